//! `wholly mount`: the process behind a mount, and how it ends.

use super::common::{is_long, may_mount, umount, unique, wait_until_unused, wholly, wholly_with};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use wholly_sim::Random;

/// A store, and a directory to mount it on, or over itself. Unmounted and removed on drop.
struct Rig {
    home: PathBuf,
    point: PathBuf,
}

impl Rig {
    /// `None` where nothing can be mounted, which under `CI=true` is a failure.
    fn new(name: &str) -> Option<Rig> {
        Rig::below(Path::new("/dev/shm"), name)
    }

    fn below(parent: &Path, name: &str) -> Option<Rig> {
        if !may_mount() {
            return None;
        }
        let dir = parent.join(unique(name));
        let rig = Rig { home: dir.join("home"), point: dir.join("point") };
        std::fs::create_dir_all(&rig.home).unwrap();
        std::fs::create_dir_all(&rig.point).unwrap();
        wholly(&["init", text(&rig.home)]).exits(0);
        Some(rig)
    }

    fn mount(&self, options: &str) {
        wholly(&["mount", text(&self.home), text(&self.point), "-o", options]).exits(0);
        assert!(is_mounted(&self.point));
    }

    fn umount(&self) {
        umount(&self.point);
        wait_until_unused(&self.home);
    }

    /// The process that serves the mount.
    fn server(&self) -> rustix::process::Pid {
        let stat = wholly(&["--json", "stat", text(&self.home)]).json();
        let pid = stat["owner_pid"].as_i64().unwrap_or_else(|| panic!("who has the store: {stat}"));
        rustix::process::Pid::from_raw(pid as i32).unwrap()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-q", "-l"]).args([&self.point, &self.home]).status();
        let _ = std::fs::remove_dir_all(self.home.parent().unwrap());
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(text(point)))
}

#[test]
fn a_mount_stays_until_it_is_taken_away() {
    let Some(rig) = Rig::new("stays") else { return };
    rig.mount("policy=per-op");
    std::fs::write(rig.point.join("file"), b"content").unwrap();
    assert!(!rig.home.join("file").exists(), "it is in the log");
    rig.umount();
    assert!(!is_mounted(&rig.point));
    assert_eq!(std::fs::read(rig.home.join("file")).unwrap(), b"content");
}

/// `umount` returns before the server has taken everything home. Who comes next waits for that.
#[test]
fn what_follows_an_umount_finds_the_store_free() {
    let Some(rig) = Rig::new("follows") else { return };
    let home = text(&rig.home);
    for round in 0..5 {
        for verb in [&["mount", home, text(&rig.point)][..], &["recover", home], &["run", "--dir", home, "--", "true"]]
        {
            rig.mount("policy=shared=60");
            std::fs::write(rig.point.join("file"), vec![round; 4 << 20]).unwrap();
            umount(&rig.point);
            wholly(verb).exits(0);
            if verb[0] == "mount" {
                umount(&rig.point);
            }
        }
    }
    wait_until_unused(&rig.home);
}

#[test]
fn a_signal_ends_it() {
    let Some(rig) = Rig::new("signal") else { return };
    rig.mount("policy=shared=60");
    std::fs::write(rig.point.join("file"), b"content").unwrap();
    rustix::process::kill_process(rig.server(), rustix::process::Signal::TERM).unwrap();
    wait_until_unused(&rig.home);
    assert!(!is_mounted(&rig.point));
    assert_eq!(std::fs::read(rig.home.join("file")).unwrap(), b"content");
}

/// The server dies at any moment: what was synced is there, and the next mount serves it.
#[test]
fn a_killed_server_loses_nothing_that_was_synced() {
    let Some(rig) = Rig::new("killed") else { return };
    for round in 0..5 {
        rig.mount("");
        let mut file = std::fs::File::create(rig.point.join(format!("synced-{round}"))).unwrap();
        file.write_all(format!("round {round}").as_bytes()).unwrap();
        file.sync_all().unwrap();
        // Closing it counts, too.
        std::fs::write(rig.point.join(format!("closed-{round}")), b"closed").unwrap();
        std::fs::create_dir(rig.point.join(format!("dir-{round}"))).unwrap();
        let server = rig.server();
        rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
        drop(file);
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&rig.point).status();
        wait_until_unused(&rig.home);
        rig.mount("");
        for before in 0..=round {
            let synced = std::fs::read_to_string(rig.point.join(format!("synced-{before}"))).unwrap();
            assert_eq!(synced, format!("round {before}"));
            assert_eq!(std::fs::read(rig.point.join(format!("closed-{before}"))).unwrap(), b"closed");
            assert!(rig.point.join(format!("dir-{before}")).is_dir());
        }
        rig.umount();
    }
}

const POLICIES: [&str; 3] = ["per-op", "per-sync", "shared"];

/// Names that a [`Worker`] gives.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The names in a directory, and which of them are directories.
type Listing = BTreeMap<String, bool>;

fn list(dir: &Path) -> Listing {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), entry.file_type().unwrap().is_dir())
    };
    entries.map(entry).collect()
}

/// Makes, renames and removes names in a directory of its own.
struct Worker {
    dir: PathBuf,
    random: Random,
    /// What it sees.
    now: Listing,
    /// What may be there after a crash. The last one is what its last call leads to.
    allowed: Vec<Listing>,
    /// Whether a call survives when it returns.
    durable: bool,
}

impl Worker {
    fn step(&mut self) -> std::io::Result<()> {
        let [from, to] = [(); 2].map(|()| NAMES[self.random.below(NAMES.len() as u64) as usize]);
        let (old, new) = (self.dir.join(from), self.dir.join(to));
        let mut next = self.now.clone();
        let what = self.random.below(4);
        let call: Box<dyn Fn() -> std::io::Result<()>> = match (next.remove(from), what) {
            (None, what) => {
                next.insert(from.into(), what == 0);
                if what == 0 {
                    Box::new(|| std::fs::create_dir(&old))
                } else {
                    Box::new(|| std::fs::write(&old, b"content"))
                }
            }
            (Some(is_dir), 0) => {
                next.insert(from.into(), is_dir);
                Box::new(|| std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o705)))
            }
            (Some(is_dir), 1) if !self.now.contains_key(to) => {
                next.insert(to.into(), is_dir);
                Box::new(|| std::fs::rename(&old, &new))
            }
            (Some(true), _) => Box::new(|| std::fs::remove_dir(&old)),
            (Some(false), _) => Box::new(|| std::fs::remove_file(&old)),
        };
        self.allowed.push(next.clone());
        call()?;
        if self.durable {
            self.allowed.drain(..self.allowed.len() - 1);
        }
        self.now = next;
        Ok(())
    }
}

/// The server dies after a drawn number of calls, while threads make, rename and remove names, and a pass of the
/// checkpoint takes home what the last round has left. The store opens all the same, and holds what had returned, by
/// policy.
fn names_survive_a_killed_server(parent: &Path, policy: &str) {
    const WORKERS: u64 = 3;
    let name = format!("load-{policy}");
    let Some(rig) = Rig::below(parent, &name) else { return };
    let dirs: Vec<String> = (0..WORKERS).map(|n| format!("worker-{n}")).collect();
    dirs.iter().for_each(|dir| std::fs::create_dir(rig.home.join(dir)).unwrap());
    let mut before: Vec<Vec<Listing>> = vec![vec![Listing::new()]; dirs.len()];
    for round in 0..if is_long() { 100 } else { 5 } {
        rig.mount(&format!("policy={policy}"));
        let server = rig.server();
        let (calls, killed) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut workers = Vec::new();
        for ((n, dir), allowed) in (0..).zip(&dirs).zip(&before) {
            let dir = rig.point.join(dir);
            let now = list(&dir);
            assert!(allowed.contains(&now), "round {round}, {policy}: {now:?} in {dir:?} instead of {allowed:?}");
            let (random, durable) = (Random(round * WORKERS + n), policy != "shared");
            workers.push(Worker { dir, random, allowed: vec![now.clone()], now, durable });
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    scope.spawn(|| {
                        loop {
                            if let Err(error) = worker.step() {
                                assert!(killed.load(Ordering::SeqCst), "{error}, and the server is alive");
                                return;
                            }
                            calls.fetch_add(1, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            let until = Random(round).below(80);
            while calls.load(Ordering::SeqCst) < until && running.iter().all(|running| !running.is_finished()) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            killed.store(true, Ordering::SeqCst);
            rustix::process::kill_process(server, rustix::process::Signal::KILL).unwrap();
        });
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&rig.point).status();
        wait_until_unused(&rig.home);
        wholly(&["check", text(&rig.home)]).exits(0);
        before = workers.into_iter().map(|worker| worker.allowed).collect();
    }
    rig.mount("");
    rig.umount();
    for (dir, allowed) in dirs.iter().zip(&before) {
        let now = list(&rig.home.join(dir));
        assert!(allowed.contains(&now), "at home, {policy}: {now:?} in {dir:?} instead of {allowed:?}");
    }
}

#[test]
fn a_server_killed_under_load_on_memory() {
    POLICIES.iter().for_each(|policy| names_survive_a_killed_server(Path::new("/dev/shm"), policy));
}

#[test]
fn a_server_killed_under_load_on_a_disk() {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    POLICIES.iter().for_each(|policy| names_survive_a_killed_server(disk, policy));
}

#[test]
fn over_its_own_directory_nobody_sees_the_store_behind_it() {
    let Some(rig) = Rig::new("over") else { return };
    let registry = rig.home.with_file_name("registry").display().to_string();
    wholly_with(&registry, &["recover", "--register", text(&rig.home)]).exits(0);
    wholly(&["mount", text(&rig.home)]).exits(0);
    std::fs::write(rig.home.join("file"), b"content").unwrap();
    assert!(!rig.home.join(".wholly").exists());
    let stat = wholly(&["stat", text(&rig.home)]);
    stat.exits(0);
    assert!(stat.out.contains(" is a mount of "), "{}", stat.out);
    // It is not gone, nor another one, and not this verb's to recover.
    let all = wholly_with(&registry, &["--json", "recover", "--all"]);
    all.exits(8);
    assert!(all.out.contains(r#""outcome":"busy","why":"it is mounted over its own directory"#), "{}", all.out);
    for verb in ["init", "check", "dump", "list", "recover", "deinit", "mount", "run"] {
        let arguments = [&[verb][..], &[text(&rig.home)]].concat();
        let run =
            if verb == "run" { wholly(&["run", "--dir", text(&rig.home), "--", "true"]) } else { wholly(&arguments) };
        assert!(run.code != Some(0) && run.err.contains("`umount` it first"), "{verb}: {}", run.err);
    }
    umount(&rig.home);
    wait_until_unused(&rig.home);
    assert!(rig.home.join(".wholly").exists());
    assert_eq!(std::fs::read(rig.home.join("file")).unwrap(), b"content");
}

/// As mount(8) calls its helpers.
#[test]
fn under_the_name_of_a_helper() {
    let Some(rig) = Rig::new("helper") else { return };
    let helper = rig.home.parent().unwrap().join("mount.wholly");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wholly"), &helper).unwrap();
    let (home, point) = (text(&rig.home), text(&rig.point));
    let options = "rw,nosuid,nodev,noexec,_netdev,x-systemd.automount,nofail,allow_other";
    let mut command = Command::new(&helper);
    let output = command.args([home, point, "-s", "-o", options, "-t", "wholly"]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(point)).expect("it is mounted");
    for word in [home, "fuse.wholly", "rw", "nosuid", "nodev", "noexec", "default_permissions", "allow_other"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    rig.umount();
}

/// mount(8) does not pass on its defaults, `suid` and `dev`. It remounts by the helper of the type that the kernel
/// shows, with the options that the kernel shows.
#[test]
fn mount_leaves_out_its_defaults_and_remounts() {
    let Some(rig) = Rig::new("remount") else { return };
    let helper = rig.home.parent().unwrap().join("mount.fuse.wholly");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_wholly"), &helper).unwrap();
    let (home, point) = (text(&rig.home), text(&rig.point));
    let mount = |options: &str| {
        let output = Command::new(&helper).args([home, point, "-o", options]).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let lines: Vec<_> = mounts.lines().filter(|line| line.split(' ').nth(1) == Some(point)).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].split(' ').nth(3).unwrap().split(',').map(String::from).collect::<Vec<_>>()
    };
    let has = |words: &[String], word: &str| words.iter().any(|other| other == word);
    let words = mount("rw,allow_other");
    assert!(has(&words, "rw") && !has(&words, "nosuid") && !has(&words, "nodev"), "{words:?}");
    std::fs::write(rig.point.join("file"), b"content").unwrap();
    let words = mount("ro,remount,noexec,user_id=0,group_id=0,default_permissions,allow_other");
    assert!(has(&words, "ro") && has(&words, "noexec") && !has(&words, "nosuid"), "{words:?}");
    let refused = std::fs::write(rig.point.join("file"), b"other").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(!has(&mount("rw,remount"), "ro"));
    std::fs::write(rig.point.join("file"), b"other").unwrap();
    rig.umount();
    let output = Command::new(&helper).args([home, point, "-o", "ro,remount"]).output().unwrap();
    assert!(!output.status.success(), "there is no mount of a store: {output:?}");
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let Some(rig) = Rig::new("errors") else { return };
    let (home, point) = (text(&rig.home), text(&rig.point));
    let failed = |arguments: &[&str], code: i32, said: &str| {
        let run = wholly(arguments);
        run.exits(code);
        assert!(run.err.contains(said), "{arguments:?}: {}", run.err);
    };
    failed(&["mount", point], 8, &format!("mount {point}: there is no store"));
    failed(&["mount", home, "/nowhere"], 8, "must exist");
    failed(&["mount", home, point, "-o", "fast"], 16, "there is no option \"fast\"");
    failed(&["mount", home, point, "-o", "policy=never"], 16, "per-op, per-sync and shared");
    rig.mount("");
    failed(&["mount", home, point], 8, "process");
    assert!(is_mounted(&rig.point), "the mount that is there stays");
    rig.umount();
}
