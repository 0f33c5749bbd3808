//! The Debian packages of `make deb`: a Debian system installs them, and runs what they hold, without a compiler. It
//! takes minutes, and so happens only with `WHOLLY_LONG=1`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::common::run::succeeds;
use super::common::{has_debian, may_run, skipped};

const PACKAGES: [&str; 3] = ["wholly", "libwholly0", "libwholly-dev"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn says(command: &mut Command) -> String {
    String::from_utf8(succeeds(command)).unwrap()
}

/// A directory as the root directory of commands, with what systems mount.
struct System<'d>(&'d Path);

impl System<'_> {
    fn command(&self, script: &str) -> Command {
        const ENTER: &str = "mount --bind \"$0\" \"$0\" && cd \"$0\" && mount -t proc proc proc && mount --rbind /dev dev && \
                             exec chroot . sh -exc \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", ENTER]).arg(self.0).arg(script);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").env("HOME", "/root");
        command
    }

    fn does(&self, script: &str) -> String {
        says(&mut self.command(script))
    }
}

/// The size of a file, and where the page of installation has it.
fn is_about(page: &str, name: &str, file: &Path) {
    let bytes = std::fs::metadata(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).len();
    let shown = page.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | "))?.strip_suffix(" MB |"));
    let shown = shown.unwrap_or_else(|| panic!("docs/install.md has no size of {name}"));
    let (shown, found) = (shown.parse::<f64>().unwrap(), bytes as f64 / 1e6);
    assert!((found / shown - 1.0).abs() < 0.25, "docs/install.md: {name} has {found:.1} MB, not {shown}");
}

#[test]
fn a_debian_system_installs_and_runs_them() {
    let turn = crate::PACKAGES_TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !has_debian() || !may_run(&["make", "cc", "pkg-config", "dpkg-deb", "dpkg-shlibdeps"]) {
        return;
    }
    if !Command::new(env!("CARGO")).args(["deb", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return skipped("it takes cargo-deb: `cargo install cargo-deb`");
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut make = Command::new("make");
    make.arg("deb").current_dir(root()).env("CARGO_TARGET_DIR", target).env("CARGO", env!("CARGO"));
    succeeds(make.env_remove("MAKEFLAGS").env("PROFILE", "release"));

    let version = env!("CARGO_PKG_VERSION");
    let deb = |name: &str| target.join(format!("debian/{name}_{version}-1_amd64.deb"));
    let page = std::fs::read_to_string(root().join("docs/install.md")).unwrap();
    for name in PACKAGES {
        is_about(&page, &format!("{name}.deb"), &deb(name));
    }
    let needs = says(Command::new("dpkg-deb").arg("-f").arg(deb("libwholly-dev")).arg("Depends"));
    assert_eq!(needs, format!("libwholly0 (= {version}-1)\n"), "crates/capi/Cargo.toml");

    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let system = scratch.path().join("system");
    succeeds(Command::new("cp").arg("-a").arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian")).arg(&system));
    drop(turn);
    // A program of somebody who has the packages, both ways.
    let developer = scratch.path().join("developer");
    for name in PACKAGES {
        succeeds(Command::new("dpkg-deb").arg("-x").arg(deb(name)).arg(&developer));
        std::fs::copy(deb(name), system.join("tmp").join(format!("{name}.deb"))).unwrap();
    }
    let libraries = developer.join("usr/lib/x86_64-linux-gnu");
    for (name, file) in
        [("bin/wholly", developer.join("usr/bin/wholly")), ("libwholly.a", libraries.join("libwholly.a"))]
    {
        is_about(&page, name, &file);
    }
    is_about(&page, "libwholly.so", &libraries.join("libwholly.so"));
    std::fs::copy(developer.join("usr/bin/wholly"), system.join("tmp/wholly")).unwrap();
    let libraries = libraries.join("pkgconfig");
    for (name, flag, libs) in [("dynamic", "", "--libs"), ("static", "-static", "--static --libs")] {
        let (root, system) = (root(), system.display());
        let source = root.join("crates/capi/tests/c/groups.c");
        let flags = format!("-D_GNU_SOURCE -pthread {flag} $(pkg-config --cflags {libs} wholly)");
        let mut shell = Command::new("sh");
        shell.args(["-ec", &format!("cc {} {flags} -o {system}/tmp/{name}", source.display())]);
        succeeds(shell.env("PKG_CONFIG_SYSROOT_DIR", &developer).env("PKG_CONFIG_LIBDIR", &libraries));
    }

    let system = System(&system);
    if !system.command("/tmp/wholly --version").status().unwrap().success() {
        return skipped("this system's programs do not run in that one");
    }
    assert_eq!(system.does("command -v cc gcc cargo || true"), "", "it has no compiler");
    system.does("dpkg -i /tmp/wholly.deb /tmp/libwholly0.deb /tmp/libwholly-dev.deb");
    assert_eq!(system.does("dpkg --audit; dpkg --verify wholly libwholly0 libwholly-dev"), "");
    assert_eq!(system.does("wholly --version"), format!("wholly {version}\n"));
    for path in [
        "usr/include/wholly/compat.h",
        "usr/lib/systemd/system/wholly-recover.service",
        "usr/lib/udev/rules.d/61-wholly.rules",
        "usr/sbin/mount.wholly",
        "usr/share/bash-completion/completions/wholly",
        "usr/share/doc/wholly/copyright",
        "usr/share/doc/wholly/volume.md",
        "usr/share/fish/vendor_completions.d/wholly.fish",
        "usr/share/man/man1/wholly-run.1.gz",
        "usr/share/misc/wholly.magic",
        "usr/share/zsh/site-functions/_wholly",
    ] {
        assert!(developer.join(path).exists(), "{path}");
        // A small Debian leaves out what people read.
        assert!(path.starts_with("usr/share") || system.0.join(path).exists(), "{path}");
    }
    assert!(system.does("ldconfig -p").contains("libwholly.so.0 "));
    let said = system.does(
        "mkdir /srv/data /srv/programs && cd /srv/data && echo old > file && wholly init . && wholly stat . && \
         wholly run -- sh -c 'echo new > file' && cat file && ! wholly run -- sh -c 'rm file; exit 1' && cat file && \
         wholly check . && cd / && wholly mkfs v.img --size 16M && wholly fsck -n v.img && \
         for program in dynamic static; do mkdir /srv/programs/$program; /tmp/$program /srv/programs/$program; done",
    );
    assert!(said.contains("new\nnew\n"), "{said}");
    system.does("dpkg --purge wholly libwholly-dev libwholly0");
    assert_eq!(
        system.does("dpkg -l | grep wholly || true; command -v wholly || true; ldconfig -p | grep wholly || true"),
        ""
    );
}
