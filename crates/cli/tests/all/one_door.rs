//! What the superuser does in directories of other users: they exchange what is in them meanwhile, and nothing comes of
//! that outside, nor is content given away. Nothing here depends on when they do: each order of events is to be safe.

use super::common::{is_long, skipped, wholly};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use rustix::fs::{Gid, Uid};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const THEM: u32 = 7001;
/// In files and names that they cannot read.
const OUTSIDE: &str = "what nobody else may read";
/// In a file of root's in a directory of theirs.
const INSIDE: &str = "what root has in a directory of theirs";

/// `outside` is root's, `theirs` is theirs, and what root keeps is in none of them.
struct Rig {
    root: PathBuf,
    before: BTreeMap<PathBuf, String>,
}

impl Rig {
    fn new(name: &str) -> Rig {
        // In memory: hundreds of copies are made.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let root = parent.join(format!("wholly-cli-door-{name}-{}", std::process::id()));
        let outside = root.join("outside");
        for dir in ["secret", "empty"] {
            std::fs::create_dir_all(outside.join(dir)).unwrap();
        }
        for file in ["victim", "secret/victim", &format!("secret/{OUTSIDE}")] {
            std::fs::write(outside.join(file), OUTSIDE).unwrap();
            std::fs::set_permissions(outside.join(file), PermissionsExt::from_mode(0o600)).unwrap();
        }
        let before = described(&outside);
        Rig { root, before }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn path(&self, path: &str) -> String {
        self.at(path).to_str().unwrap().into()
    }

    /// Makes `theirs` anew: what they exchange, and a directory in it that `fill` gets.
    fn set_up(&self, path: &str, fill: impl FnOnce(&Path)) {
        let theirs = self.at("theirs");
        let _ = std::fs::remove_dir_all(&theirs);
        let bait = theirs.join("bait");
        std::fs::create_dir_all(bait.join("directory")).unwrap();
        std::fs::write(bait.join("directory/file"), "theirs").unwrap();
        symlink(self.at("outside/victim"), bait.join("to-file")).unwrap();
        symlink(self.at("outside/secret"), bait.join("to-directory")).unwrap();
        symlink(self.at("outside/empty"), bait.join("to-empty")).unwrap();
        assert!(Command::new("mkfifo").arg(bait.join("fifo")).status().unwrap().success());
        std::fs::create_dir(theirs.join(path)).unwrap();
        assert!(Command::new("chown").args(["-hR", "7001:7001"]).arg(&theirs).status().unwrap().success());
        fill(&theirs.join(path));
        std::fs::write(bait.join("private"), INSIDE).unwrap();
        std::fs::set_permissions(bait.join("private"), PermissionsExt::from_mode(0o600)).unwrap();
    }

    /// Nothing outside has changed.
    fn is_untouched(&self) {
        assert_eq!(described(&self.at("outside")), self.before);
    }

    /// A copy has nothing of what is outside, and what is root's is root's alone.
    fn gives_nothing_away(&self, copy: &Path) {
        for (path, text) in described(copy) {
            assert!(!text.contains(OUTSIDE) && !path.to_string_lossy().contains(OUTSIDE), "{path:?}: {text}");
            assert!(!text.contains(INSIDE) || text.starts_with("100600 0 0 "), "{path:?}: {text}");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// What is below a directory, itself included: all but the time of the last access.
fn described(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(path) = todo.pop() {
        let found = path.symlink_metadata().unwrap();
        let mut text = format!("{:o} {} {} ", found.mode(), found.uid(), found.gid());
        text += &format!("{} links, {} B, {} {}", found.nlink(), found.len(), found.ctime(), found.ctime_nsec());
        if found.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if found.is_file() {
            text += &String::from_utf8_lossy(&std::fs::read(&path).unwrap());
        }
        all.insert(path, text);
    }
    all
}

/// Makes the calling thread one of theirs.
fn become_one_of_them() {
    let (uid, gid) = (Uid::from_raw(THEM), Gid::from_raw(THEM));
    rustix::thread::set_thread_groups(&[gid]).unwrap();
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
}

/// When they strike.
#[derive(Clone, Copy, Debug)]
enum When {
    /// Without end.
    Always,
    /// Once, when so many events have been seen in the directory.
    Once(u32),
}

/// What they exchange, one in each round, below a directory that a verb works on.
const TARGETS: [&str; 13] = [
    "file",
    "",
    "sub/file",
    "sub",
    ".wholly.unfinished-1",
    "victim",
    "sub/sub",
    "sub/victim",
    "out",
    "store/file",
    "store/sub",
    "new",
    "store",
];

/// For what, in turn.
const FOR_FILES: [&str; 4] = ["to-file", "private", "fifo", "to-directory"];
const FOR_DIRECTORIES: [&str; 4] = ["to-directory", "to-empty", "directory", "to-file"];

/// Exchanges something for bait. What is root's directory cannot leave the directory that it is in.
fn exchange(theirs: &Path, at: &Path, bait: &str) -> bool {
    let bait = theirs.join("bait").join(bait);
    if renameat_with(CWD, &bait, CWD, at, RenameFlags::EXCHANGE).is_ok() {
        return true;
    }
    let mut aside = at.as_os_str().to_owned();
    aside.push(".aside");
    std::fs::rename(at, aside).is_ok() && std::fs::rename(&bait, at).is_ok()
}

/// Takes that back.
fn restore(theirs: &Path, at: &Path, bait: &str) {
    let bait = theirs.join("bait").join(bait);
    let mut aside = at.as_os_str().to_owned();
    aside.push(".aside");
    if Path::new(&aside).symlink_metadata().is_ok() {
        let _ = std::fs::rename(at, &bait);
        let _ = std::fs::rename(aside, at);
    } else {
        let _ = renameat_with(CWD, &bait, CWD, at, RenameFlags::EXCHANGE);
    }
}

/// Calls `verb` while they exchange something in `dir`, and returns how often they did.
fn attacked(theirs: &Path, dir: &Path, when: When, round: usize, verb: impl FnOnce()) -> usize {
    let (ends, begins) = (AtomicBool::new(false), std::sync::Barrier::new(2));
    let target = TARGETS[round % TARGETS.len()];
    let is_file = target.ends_with("file") || target.ends_with("victim");
    let bait = (if is_file { FOR_FILES } else { FOR_DIRECTORIES })[round / 3 % 4];
    std::thread::scope(|scope| {
        let them = scope.spawn(|| {
            become_one_of_them();
            let at = if target.is_empty() { dir.to_path_buf() } else { dir.join(target) };
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
            for watched in ["..", "", "sub", "sub/sub", "store", "store/sub"] {
                let _ = inotify::add_watch(&fd, dir.join(watched), WatchFlags::ALL_EVENTS);
            }
            begins.wait();
            let (mut swaps, mut seen) = (0, 0);
            while !ends.load(Ordering::Relaxed) {
                if let When::Once(wanted) = when {
                    let mut buf = [MaybeUninit::uninit(); 512];
                    let mut events = Reader::new(&fd, &mut buf);
                    while seen < wanted && events.next().is_ok() {
                        seen += 1;
                    }
                    if seen < wanted {
                        std::thread::yield_now();
                        continue;
                    }
                    return usize::from(exchange(theirs, &at, bait));
                }
                if exchange(theirs, &at, bait) {
                    swaps += 1;
                    restore(theirs, &at, bait);
                }
            }
            swaps
        });
        begins.wait();
        verb();
        ends.store(true, Ordering::Relaxed);
        them.join().unwrap()
    })
}

/// Calls `trial` until they have exchanged something 50 times, by both ways to strike (1,000 times if tests may take
/// their time).
fn trials(mut trial: impl FnMut(When, usize) -> usize) {
    let wanted = if is_long() { 1000 } else { 50 };
    let (mut swaps, mut rounds) = (0, 0);
    while swaps < wanted || rounds < wanted / 2 {
        swaps += trial(When::Always, rounds);
        rounds += 1;
        assert!(rounds < 100 * wanted, "they have exchanged nothing");
    }
    for round in 0..wanted {
        trial(When::Once(1 + round as u32 % 37), round);
    }
}

fn is_root() -> bool {
    let is = rustix::process::geteuid().is_root();
    if !is {
        skipped("it takes the superuser");
    }
    is
}

/// A directory as somebody has it, with names that the baits have, too.
fn populate(dir: &Path) {
    std::fs::create_dir_all(dir.join("sub/sub")).unwrap();
    for file in ["file", "victim", "sub/file", "sub/victim", "sub/sub/file"] {
        std::fs::write(dir.join(file), "theirs").unwrap();
        std::fs::set_permissions(dir.join(file), PermissionsExt::from_mode(0o4777)).unwrap();
    }
    assert!(Command::new("chown").args(["-R", "7001:7001"]).arg(dir).status().unwrap().success());
    std::fs::set_permissions(dir.join("file"), PermissionsExt::from_mode(0o4777)).unwrap();
}

#[test]
fn an_export_touches_nothing_outside() {
    if !is_root() {
        return;
    }
    let rig = Rig::new("export");
    let image = rig.path("v.img");
    populate(&rig.at("from"));
    wholly(&["mkfs", &image, "--size", "16M", "--engine", "none"]).exits(0);
    wholly(&["import", &image, &rig.path("from")]).exits(0);
    trials(|when, round| {
        rig.set_up("o", |_| ());
        let swaps = attacked(&rig.at("theirs"), &rig.at("theirs/o"), when, round, || {
            wholly(&["export", &image, &rig.path("theirs/o")]);
        });
        rig.is_untouched();
        rig.gives_nothing_away(&rig.at("theirs"));
        swaps
    });
}

#[test]
fn an_import_reads_nothing_outside() {
    if !is_root() {
        return;
    }
    let rig = Rig::new("import");
    let (image, copy) = (rig.path("v.img"), rig.at("copy"));
    trials(|when, round| {
        rig.set_up("u", populate);
        wholly(&["mkfs", &image, "--force", "--size", "16M", "--engine", "none"]).exits(0);
        let swaps = attacked(&rig.at("theirs"), &rig.at("theirs/u"), when, round, || {
            wholly(&["import", &image, &rig.path("theirs/u")]);
        });
        rig.is_untouched();
        let _ = std::fs::remove_dir_all(&copy);
        wholly(&["export", &image, &rig.path("copy")]).exits(0);
        rig.gives_nothing_away(&copy);
        swaps
    });
}

#[test]
fn a_salvage_touches_and_reads_nothing_outside() {
    if !is_root() {
        return;
    }
    let rig = Rig::new("salvage");
    // One with a group that is not written back.
    let fill = |place: &Path| {
        let (dir, out) = (place.join("store"), place.join("out"));
        populate(&dir);
        std::fs::create_dir(&out).unwrap();
        chown(&out, Some(THEM), Some(THEM)).unwrap();
        let options = || wholly::Options { background: false, ..wholly::Options::default() };
        wholly::Store::init(&dir, &options()).unwrap();
        let store = wholly::Store::open_with(&dir, options(), Default::default()).unwrap();
        let mut group = store.begin();
        let file = store.open_file("file").unwrap();
        group.write_at(&file, 0, b"committed").unwrap();
        group.mkdir("new", 0o755).unwrap();
        group.commit().unwrap();
    };
    trials(|when, round| {
        rig.set_up("place", fill);
        // An absent directory, too.
        let out = if round % 2 == 0 { "theirs/place/out" } else { "theirs/place/new" };
        let swaps = attacked(&rig.at("theirs"), &rig.at("theirs/place"), when, round, || {
            wholly(&["salvage", &rig.path("theirs/place/store"), &rig.path(out)]);
        });
        rig.is_untouched();
        rig.gives_nothing_away(&rig.at("theirs"));
        swaps
    });
}

/// A link on the way that is another user's leads the superuser nowhere, whatever the verb.
#[test]
fn root_follows_no_link_of_another_user() {
    if !is_root() {
        return;
    }
    let rig = Rig::new("link");
    let (image, store) = (rig.path("v.img"), rig.path("store"));
    rig.set_up("m", |_| ());
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    std::fs::create_dir(&store).unwrap();
    wholly(&["init", &store]).exits(0);
    let (link, below) = (rig.path("theirs/bait/to-empty"), rig.path("theirs/bait/to-empty/new"));
    let verbs: [&[&str]; 6] = [
        &["export", &image, &link],
        &["export", &image, &below],
        &["import", &image, &link],
        &["salvage", &store, &below],
        &["mount", &image, &link],
        &["run", "--dir", &link, "--", "touch", "file"],
    ];
    for verb in verbs {
        let refused = wholly(verb);
        assert!(refused.code != Some(0) && refused.err.contains("another user"), "{verb:?}: {}", refused.err);
        rig.is_untouched();
    }
    // Root's own links lead on.
    symlink(rig.at("real"), rig.at("own")).unwrap();
    wholly(&["export", &image, &rig.path("own")]).exits(0);
    wholly(&["import", &image, &rig.path("own")]).exits(0);
}

/// A capability goes with a change of the owner, and set-ID bits with both.
#[test]
fn capabilities_are_copied() {
    if !is_root() {
        return;
    }
    let rig = Rig::new("capability");
    let (image, from, to) = (rig.path("v.img"), rig.at("from"), rig.at("to"));
    let value = [&[1, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    std::fs::create_dir(&from).unwrap();
    for (name, owner) in [("root", 0), ("other", 3)] {
        std::fs::write(from.join(name), "a program").unwrap();
        chown(from.join(name), Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(from.join(name), PermissionsExt::from_mode(0o6755)).unwrap();
        rustix::fs::setxattr(from.join(name), "security.capability", &value, XattrFlags::empty()).unwrap();
    }
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    wholly(&["import", &image, &rig.path("from")]).exits(0);
    wholly(&["export", &image, &rig.path("to")]).exits(0);
    for (name, owner) in [("root", 0), ("other", 3)] {
        let mut found = [0; 64];
        let length = rustix::fs::getxattr(to.join(name), "security.capability", &mut found[..]).unwrap();
        assert_eq!(found[..length], value, "{name}");
        let found = to.join(name).metadata().unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o6755, owner, owner), "{name}");
    }
}

/// Neither descriptors nor the stack bound how deep a directory may be.
#[test]
fn deep_directories_are_copied() {
    let rig = Rig::new("deep");
    let (image, from) = (rig.path("v.img"), rig.path("from"));
    let script = "mkdir -p \"$2\"; cd \"$2\"; i=0; while [ $i -lt 1500 ]; do mkdir d; cd -P d 2>/dev/null; i=$((i+1)); \
                  done; echo deep >file; ulimit -n 40; cd /; \"$0\" mkfs \"$1\" --size 64M --engine none && \"$0\" import \"$1\" \"$2\" \
                  && \"$0\" export \"$1\" \"$3\" && \"$0\" export \"$1\" \"$3\"; echo $?";
    let mut shell = Command::new("sh");
    let ran =
        shell.args(["-c", script, env!("CARGO_BIN_EXE_wholly"), &image, &from, &rig.path("to")]).output().unwrap();
    // The second one finds the directory filled.
    assert_eq!(String::from_utf8_lossy(&ran.stdout).lines().last(), Some("8"), "{ran:?}");
    let found = Command::new("find").current_dir(rig.at("to")).args([".", "-name", "file"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout).matches("/d").count(), 1500);
    // A copy that fails leaves nothing.
    let small = rig.path("small");
    let refused = wholly(&["export", &rig.path("none.img"), &small]);
    refused.exits(8);
    assert!(!Path::new(&small).exists());
    for dir in [&from, &rig.path("to")] {
        assert!(Command::new("rm").args(["-rf", dir]).status().unwrap().success());
    }
}

/// What is mounted below is not imported without a word, nor left out without one.
#[test]
fn a_mount_below_is_named() {
    if !is_root() {
        return;
    }
    let rig = Rig::new("below");
    let image = rig.path("v.img");
    std::fs::create_dir_all(rig.at("from/sub/point")).unwrap();
    wholly(&["mkfs", &image, "--size", "16M"]).exits(0);
    let script = "mount -t tmpfs none \"$2/sub/point\" && exec \"$0\" import \"$1\" \"$2\"";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "--propagation", "private", "sh", "-c", script, env!("CARGO_BIN_EXE_wholly"), &image]);
    let refused = shell.arg(rig.at("from")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(8) && said.contains("from/sub/point") && said.contains("mounted"), "{said}");
}
