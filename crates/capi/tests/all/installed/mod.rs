//! What `make install` copies, and programs that are compiled with it.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Not where compilers and loaders look by themselves.
const PREFIX: &str = "/opt/wholly";

/// Says why a test does not run. Fails where everything must be there.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}; scripts/setup installs it");
    eprintln!("skipped: {why}");
}

/// In which language a source is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C,
    Cpp,
}

/// The installed tree.
pub struct Installed {
    scratch: PathBuf,
    root: PathBuf,
}

impl Installed {
    /// Installs once for all tests. `None`, with the reason said, where a tool is missing.
    pub fn get() -> Option<&'static Installed> {
        static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();
        INSTALLED.get_or_init(Self::install).as_ref()
    }

    fn install() -> Option<Installed> {
        for tool in ["make", "cc", "c++", "pkg-config", "nm", "readelf"] {
            if Command::new(tool).arg("--version").output().is_err() {
                skip(&format!("there is no {tool}"));
                return None;
            }
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let scratch = target.join("installed");
        let _ = std::fs::remove_dir_all(&scratch);
        let root = scratch.join("root");
        std::fs::create_dir_all(&root).expect("make a directory");
        // The command takes long to build and is not looked at by C programs.
        let all = std::env::var("CI").as_deref() == Ok("true");
        let output = Command::new("make")
            .args(["build", "install"])
            .arg(format!("ARGS={}", if all { "" } else { "library" }))
            .arg(format!("PREFIX={PREFIX}"))
            .arg(format!("DESTDIR={}", root.display()))
            .arg("PROFILE=dev")
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .env("CARGO_TARGET_DIR", Self::built())
            .env("CARGO", env!("CARGO"))
            .env_remove("MAKEFLAGS")
            .env_remove("LIBDIR")
            .output()
            .expect("run make");
        said(&output, "make install");
        let installed = Installed { scratch, root };
        if all {
            let command = installed.root.join("opt/wholly/bin/wholly");
            let version = installed.output(command.to_str().expect("UTF-8"), &["--version"]);
            assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
            let unit = installed.root.join("opt/wholly/lib/systemd/system/wholly-recover.service");
            let unit = std::fs::read_to_string(unit).expect("the systemd unit");
            assert!(unit.contains(&format!("ExecStart={PREFIX}/bin/wholly recover --all")), "{unit}");
            let example = installed.root.join("opt/wholly/share/doc/wholly/examples/mnt-data.mount");
            assert!(std::fs::read_to_string(example).expect("an example of a unit").contains("Type=wholly"));
        }
        Some(installed)
    }

    /// The folder in which it was built, shared with the tests that build programs to watch.
    pub fn built() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-libc")
    }

    /// A place for a file of the tests.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// The shared library.
    pub fn library(&self) -> String {
        self.root.join("opt/wholly/lib/libwholly.so").to_str().expect("UTF-8").to_owned()
    }

    /// `pkg-config` finds the installed library, and no other.
    fn finding(&self, mut command: Command) -> Command {
        command
            .env("PKG_CONFIG_LIBDIR", self.root.join("opt/wholly/lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &self.root);
        command
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = self.finding(Command::new("pkg-config"));
        command.args(arguments).arg("wholly");
        let flags = said(&command.output().expect("run pkg-config"), "pkg-config");
        flags.split_whitespace().map(String::from).collect()
    }

    fn compiler(&self, source: &Path, language: Language, flags: &[&str], program: &Path) -> Command {
        let mut command = Command::new(if language == Language::C { "cc" } else { "c++" });
        match language {
            Language::C => command.arg("-std=c11"),
            Language::Cpp => command.args(["-std=c++17", "-x", "c++"]),
        };
        command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-D_GNU_SOURCE", "-pthread"]).args(flags);
        command.arg(source).args(["-x", "none", "-o"]).arg(program).args(self.pkg_config(&["--cflags"]));
        command
    }

    /// Where the program of a source goes, each time another.
    fn program(&self, source: &Path) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let stem = source.file_stem().and_then(OsStr::to_str).expect("a name");
        self.scratch.join(format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Compiles and links a program as `pkg-config` says. The path is relative to the package.
    pub fn compile(&self, source: &str, language: Language, flags: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.program(&source);
        let mut command = self.compiler(&source, language, flags, &program);
        let output = command.args(self.pkg_config(&["--libs"])).output().expect("run the compiler");
        said(&output, &format!("{command:?}"));
        program
    }

    /// As [`compile`](Self::compile), with the library in the program.
    pub fn compile_static(&self, source: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let program = self.program(&source);
        let mut command = self.compiler(&source, Language::C, &[], &program);
        let libraries = self.pkg_config(&["--static", "--libs"]).into_iter();
        // Only this one; of the system's libraries static ones may not be there.
        let libraries = libraries.map(|flag| if flag == "-lwholly" { "-l:libwholly.a".into() } else { flag });
        let output = command.args(libraries).output().expect("run the compiler");
        said(&output, &format!("{command:?}"));
        program
    }

    /// Whether programs can be made with these flags, and run.
    pub fn can_compile(&self, flags: &[&str]) -> bool {
        let source = self.scratch("empty.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("write a source");
        let program = self.program(&source);
        let made = self.compiler(&source, Language::C, flags, &program).output().expect("run the compiler");
        made.status.success() && Command::new(&program).status().is_ok_and(|status| status.success())
    }

    /// Runs a program in a place and returns what it said.
    pub fn run(&self, program: &Path, place: &Place) -> String {
        self.run_with(program, place, |_| {})
    }

    /// As [`run`](Self::run), with what the caller sets.
    pub fn run_with(&self, program: &Path, place: &Place, set: impl Fn(&mut Command)) -> String {
        let mut command = self.command(program, place);
        set(&mut command);
        said(&command.output().expect("run the program"), &format!("{command:?}"))
    }

    /// Runs a program that must fail, and returns what it said.
    pub fn fails(&self, program: &Path, place: &Place) -> String {
        let output = self.command(program, place).output().expect("run the program");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs a line of shell in a place.
    pub fn shell(&self, line: &str, place: &Place) {
        let mut command = self.finding(Command::new("sh"));
        said(&command.args(["-c", line]).current_dir(&**place).output().expect("run a shell"), line);
    }

    fn command(&self, program: &Path, place: &Place) -> Command {
        let mut command = Command::new(program);
        command.arg(&**place).env("LD_LIBRARY_PATH", self.root.join("opt/wholly/lib"));
        command
    }

    /// What a tool says.
    pub fn output(&self, tool: &str, arguments: &[&str]) -> String {
        said(&Command::new(tool).args(arguments).output().expect("run a tool"), tool)
    }
}

/// What a command that succeeded wrote.
fn said(output: &Output, what: &str) -> String {
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{text}", output.status);
    text
}

/// An empty directory, removed on drop.
pub struct Place(PathBuf);

impl Place {
    /// One on emulated persistent memory, and one on the disk that temporary files are on.
    pub fn on_media(name: &str) -> [Place; 2] {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        [PathBuf::from("/dev/shm"), std::env::temp_dir()].map(|parent| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = parent.join(format!("wholly-capi-{name}-{}-{number}", std::process::id()));
            std::fs::create_dir(&dir).expect("make a directory");
            Place(dir)
        })
    }
}

impl Deref for Place {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
