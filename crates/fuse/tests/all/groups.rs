//! Groups by `ioctl` on a mount that programs share: what belongs to them, what others see, and what the kernel keeps
//! when they end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{Mounted, or_skip};
use wholly::{MountGroup, Options, Store};
use wholly_error::Error;
use wholly_fuse::MountOptions;
use wholly_vfs::Policy;

/// The kernel believes what it knows for as long as a test takes: what it is not told to forget it goes on telling.
fn mounted() -> Option<Mounted> {
    with(&MountOptions { threads: 3, ..MountOptions::default() })
}

fn with(options: &MountOptions) -> Option<Mounted> {
    let store = Options { policy: Policy::PerSync, ..Options::default() };
    let options = MountOptions { syncs_on_close: true, valid: Duration::from_secs(3600), ..options.clone() };
    or_skip(Mounted::new(store, &options))
}

fn begin(mounted: &Mounted) -> MountGroup {
    MountGroup::begin(File::open(mounted.point()).unwrap()).expect("nobody else has a group there")
}

fn write(path: impl AsRef<Path>, text: &str) {
    std::fs::write(path, text).unwrap();
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A script of another process, in the mount.
fn sh(mounted: &Mounted, script: &str) -> Output {
    Command::new("sh").args(["-c", script]).current_dir(mounted.point()).output().unwrap()
}

/// What it says.
fn said(mounted: &Mounted, script: &str) -> String {
    let output = sh(mounted, script);
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// It fails, since a group has what it would change.
fn is_busy(mounted: &Mounted, script: &str) {
    let output = sh(mounted, script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("busy"), "{script}: {output:?}");
}

/// All that another process, and this one, see below the mount's root: names, sizes, content.
fn seen(mounted: &Mounted) -> String {
    let script =
        "find . | sort; find . -type f | sort | xargs stat -c '%n %s %a %h'; find . -type f | sort | xargs cat";
    let there = said(mounted, script);
    for line in there.lines().filter(|line| line.starts_with("./") && !line.contains(' ')) {
        assert!(mounted.point().join(line).symlink_metadata().is_ok(), "{line}");
    }
    there
}

/// What this process does as another one: see [`act`].
fn another(what: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "groups::act", "--nocapture"]).env("WHOLLY_ACT", what).env("WHOLLY_AT", path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until it says so.
fn wait_for(child: &mut Child, word: &str) {
    let (mut all, mut byte) = (String::new(), [0]);
    while !all.contains(word) {
        assert_eq!(child.stdout.as_mut().unwrap().read(&mut byte).unwrap(), 1, "it has ended: {all}");
        all.push(byte[0] as char);
    }
}

/// No test, but what [`another`] process does.
#[test]
#[expect(clippy::zombie_processes, reason = "the child is to outlive the process")]
fn act() {
    let Some(what) = std::env::var_os("WHOLLY_ACT") else { return };
    let at = PathBuf::from(std::env::var_os("WHOLLY_AT").unwrap());
    let group = MountGroup::begin(File::open(&at).unwrap());
    match (what.to_str().unwrap(), group) {
        ("hold", Ok(group)) => {
            write(at.join("file"), "another's");
            write(at.join("made"), "another's");
            println!("ready");
            let _ = std::io::stdin().read(&mut [0]);
            group.commit().unwrap();
        }
        ("leave", Ok(group)) => {
            write(at.join("file"), "another's");
            // A child has what was open, and outlives it.
            let keeps = Command::new("sleep")
                .arg("1000")
                .stdin(group_file(&at, group))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            println!("ready {}.", keeps.id());
        }
        ("try", Err(Error::Busy(..))) => println!("busy"),
        (what, group) => panic!("{what}: {group:?}"),
    }
}

/// The open file by which a group begins once more, after another one has ended: it is what a child gets.
fn group_file(at: &Path, group: MountGroup) -> File {
    use std::os::fd::AsFd;
    group.abort().unwrap();
    let dir = File::open(at).unwrap();
    wholly_host::mount::Open::of(dir.as_fd()).unwrap().begin().unwrap();
    write(at.join("file"), "another's");
    dir
}

fn of_store(store: &Store, path: &str) -> Option<String> {
    let file = store.open_file(path).ok()?;
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

#[test]
fn a_group_is_there_wholly_when_it_is_committed() {
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    for name in ["changed", "renamed", "removed", "cut"] {
        write(at(name), "before");
    }
    let group = begin(&mounted);
    write(at("changed"), "and after");
    std::fs::rename(at("renamed"), at("new")).unwrap();
    std::fs::remove_file(at("removed")).unwrap();
    OpenOptions::new().write(true).open(at("cut")).unwrap().set_len(3).unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    write(at("dir/file"), "made");
    // Nothing of it is the store's yet, whatever was synced.
    File::open(at("dir/file")).unwrap().sync_all().unwrap();
    let store = mounted.store();
    assert_eq!(of_store(store, "changed").unwrap(), "before");
    assert_eq!((of_store(store, "new"), of_store(store, "dir/file")), (None, None));
    assert_eq!(of_store(store, "renamed").unwrap(), "before");
    // The mount shows it to everybody.
    let now = seen(&mounted);
    assert!(now.contains("./dir/file 4") && now.contains("and after") && !now.contains("renamed"), "{now}");
    group.commit().unwrap();
    assert_eq!(of_store(store, "changed").unwrap(), "and after");
    assert_eq!((of_store(store, "renamed"), of_store(store, "removed")), (None, None));
    assert_eq!(of_store(store, "cut").unwrap(), "bef");
    assert_eq!(seen(&mounted), now);
    let home = mounted.end();
    assert_eq!(read(home.path().join("dir/file")), "made");
}

/// Names, attributes, content and sizes: nobody sees anything of it any more, whatever the kernel had of it.
#[test]
fn nothing_is_left_of_a_group_that_is_aborted() {
    let Some(mounted) = mounted() else { return };
    leaves_nothing(mounted);
}

/// The kernel keeps no pages of what is open for writing then.
#[test]
fn nothing_is_left_where_each_call_is_durable_by_itself() {
    let options = MountOptions { whole_writes: true, valid: Duration::from_secs(3600), ..MountOptions::default() };
    let Some(mounted) = or_skip(Mounted::new(Options::default(), &options)) else { return };
    leaves_nothing(mounted);
}

fn leaves_nothing(mounted: Mounted) {
    let at = |name: &str| mounted.point().join(name);
    std::fs::create_dir_all(at("dir/inner")).unwrap();
    for name in ["changed", "renamed", "replaced", "removed", "cut", "linked", "mode", "dir/inner/deep"] {
        write(at(name), &format!("{name} before"));
    }
    std::fs::create_dir(at("empty")).unwrap();
    let before = seen(&mounted);
    let open = File::open(at("changed")).unwrap();
    let losing = File::open(at("removed")).unwrap();
    for _ in 0..3 {
        let group = begin(&mounted);
        write(at("changed"), "something else, and longer than it was");
        std::fs::rename(at("renamed"), at("replaced")).unwrap();
        std::fs::remove_file(at("removed")).unwrap();
        OpenOptions::new().write(true).open(at("cut")).unwrap().set_len(2).unwrap();
        std::fs::hard_link(at("linked"), at("link")).unwrap();
        std::os::unix::fs::symlink("changed", at("symlink")).unwrap();
        std::fs::set_permissions(at("mode"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::remove_dir(at("empty")).unwrap();
        std::fs::rename(at("dir"), at("moved")).unwrap();
        std::fs::create_dir_all(at("made/below")).unwrap();
        write(at("made/below/file"), "made");
        write(at("moved/inner/deep"), "changed below");
        let now = seen(&mounted);
        assert!(now.contains("./moved/inner/deep") && now.contains("./made/below/file 4"), "{now}");
        group.abort().unwrap();
        // This process first, of which nobody has looked before.
        assert_eq!(read(at("changed")), "changed before");
        assert_eq!((at("linked").metadata().unwrap().nlink(), losing.metadata().unwrap().nlink()), (1, 1));
        assert_eq!(at("mode").metadata().unwrap().mode() & 0o777, 0o644);
        let mut names: Vec<_> =
            std::fs::read_dir(mounted.point()).unwrap().map(|one| one.unwrap().file_name()).collect();
        names.sort();
        let all = ["changed", "cut", "dir", "empty", "linked", "mode", "removed", "renamed", "replaced"];
        assert_eq!(names, all);
        assert_eq!(seen(&mounted), before);
        // Through what was open before, too.
        let mut bytes = [0; 100];
        assert_eq!(open.read_at(&mut bytes, 0).unwrap(), "changed before".len());
        assert!(bytes.starts_with(b"changed before"));
    }
    drop((open, losing));
    let home = mounted.end();
    assert_eq!(read(home.path().join("dir/inner/deep")), "dir/inner/deep before");
}

/// The kernel knows where a file ends, and does not ask again before it writes there.
#[test]
fn what_is_appended_after_an_abort_stands_at_the_end() {
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    for (name, length) in [("cut", 3u64), ("grown", 5000)] {
        write(at(name), "0123456789");
        let mut log = OpenOptions::new().append(true).open(at(name)).unwrap();
        let group = begin(&mounted);
        OpenOptions::new().write(true).open(at(name)).unwrap().set_len(length).unwrap();
        group.abort().unwrap();
        log.write_all(b"abc").unwrap();
        log.write_all(b"def").unwrap();
        assert_eq!(read(at(name)), "0123456789abcdef", "{name}");
        log.write_all(b"g").unwrap();
        assert_eq!(said(&mounted, &format!("cat {name}")), "0123456789abcdefg", "{name}");
        // Nobody asks for the size between these.
        for _ in 0..2 {
            let group = begin(&mounted);
            log.write_all(b"xyz").unwrap();
            group.abort().unwrap();
        }
        log.write_all(b"h").unwrap();
        assert_eq!(read(at(name)), "0123456789abcdefgh", "{name}");
    }
    mounted.end();
}

#[test]
fn others_leave_alone_what_a_group_has_and_change_the_rest() {
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    for name in ["changed", "renamed", "free"] {
        write(at(name), "before");
    }
    let group = begin(&mounted);
    write(at("changed"), "after");
    std::fs::rename(at("renamed"), at("new")).unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    write(at("dir/file"), "made");
    for script in [
        "echo other > changed",
        "echo other > dir/file",
        "echo other > renamed",
        "echo other > dir/other",
        "mkdir dir/other",
        "rm new",
        "rm dir/file",
        "mv free new",
        "ln free renamed",
        "chmod 600 dir/file",
        "chmod 700 dir",
        "rm changed",
    ] {
        is_busy(&mounted, script);
    }
    // Its own calls may, and are seen by whoever made them.
    assert_eq!(
        said(&mounted, "echo other > free; cat free; echo more >> free; cat free; mkdir own; ls -d own"),
        "other\nother\nmore\nown\n"
    );
    assert_eq!(of_store(mounted.store(), "free").unwrap(), "other\nmore\n");
    assert_eq!(of_store(mounted.store(), "changed").unwrap(), "before");
    group.abort().unwrap();
    assert_eq!(
        said(&mounted, "cat free changed renamed; ls"),
        "other\nmore\nbeforebeforechanged\nfree\nown\nrenamed\n"
    );
    said(&mounted, "echo other > changed; echo other > new");
    mounted.end();
}

#[test]
fn one_group_at_a_time() {
    let Some(mounted) = mounted() else { return };
    write(mounted.point().join("file"), "before");
    let group = begin(&mounted);
    assert!(
        matches!(MountGroup::begin(File::open(mounted.point()).unwrap()), Err(Error::Busy(..))),
        "they do not nest"
    );
    let mut other = another("try", mounted.point());
    wait_for(&mut other, "busy");
    other.wait().unwrap();
    group.commit().unwrap();
    // Any file does.
    let group = MountGroup::begin(File::open(mounted.point().join("file")).unwrap()).unwrap();
    drop(group);
    begin(&mounted).abort().unwrap();
    mounted.end();
}

#[test]
fn the_death_of_its_process_aborts_a_group() {
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    write(at("file"), "before");
    for _ in 0..3 {
        let mut other = another("hold", mounted.point());
        wait_for(&mut other, "ready");
        assert_eq!((read(at("file")).as_str(), at("made").exists()), ("another's", true));
        other.kill().unwrap();
        other.wait().unwrap();
        // A group that begins comes after the end of the one before it.
        let group = begin(&mounted);
        assert_eq!((read(at("file")).as_str(), at("made").exists()), ("before", false));
        group.commit().unwrap();
        assert_eq!(said(&mounted, "cat file; ls"), "beforefile\n");
    }
    let mut other = another("hold", mounted.point());
    wait_for(&mut other, "ready");
    drop(other.stdin.take());
    assert!(other.wait().unwrap().success());
    assert_eq!(said(&mounted, "cat file made"), "another'sanother's");
    mounted.end();
}

#[test]
fn the_last_close_aborts_a_group() {
    use std::os::fd::AsFd;
    let Some(mounted) = mounted() else { return };
    let file = mounted.point().join("file");
    write(&file, "before");
    let dir = File::open(mounted.point()).unwrap();
    wholly_host::mount::Open::of(dir.as_fd()).unwrap().begin().unwrap();
    write(&file, "after");
    let other = dir.try_clone().unwrap();
    drop(dir);
    assert_eq!(read(&file), "after", "it is open still");
    drop(other);
    // The kernel does not wait for what it tells of a last close.
    let group = loop {
        match MountGroup::begin(File::open(mounted.point()).unwrap()) {
            Err(Error::Busy(..)) => std::thread::yield_now(),
            group => break group.unwrap(),
        }
    };
    assert_eq!(read(&file), "before");
    group.commit().unwrap();
    mounted.end();
}

/// The last close is not what counts, where a child has the open file still.
#[test]
fn a_child_does_not_keep_the_group_of_a_process_that_has_ended() {
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    write(at("file"), "before");
    let mut other = another("leave", mounted.point());
    let mut all = String::new();
    other.stdout.take().unwrap().read_to_string(&mut all).unwrap();
    other.wait().unwrap();
    let keeps = all.split("ready ").nth(1).and_then(|rest| rest.split('.').next()).expect("it says who keeps it");
    let group = begin(&mounted);
    assert_eq!(read(at("file")), "before");
    group.abort().unwrap();
    let pid = rustix::process::Pid::from_raw(keeps.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    mounted.end();
}

#[test]
fn threads_belong_to_the_group_and_children_by_what_they_are_given() {
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    let create = |name: &str| File::create(at(name)).unwrap();
    write(at("given"), "before ");
    let group = begin(&mounted);
    std::thread::scope(|scope| {
        scope.spawn(|| write(at("thread"), "made"));
    });
    said(&mounted, "echo own > child");
    let given = OpenOptions::new().append(true).open(at("given")).unwrap();
    group.add(&given).unwrap();
    let status = Command::new("echo").arg("child's").stdout(given).status().unwrap();
    assert!(status.success());
    assert_eq!(read(at("given")), "before child's\n");
    assert!(
        matches!(group.add(File::open(at("given")).unwrap()), Err(Error::Refused(..))),
        "it is not open for writing"
    );
    let elsewhere = File::create(mounted.home().join("elsewhere")).unwrap();
    assert!(matches!(group.add(elsewhere), Err(Error::Refused(_, rustix::io::Errno::XDEV))));
    let store = mounted.store();
    assert_eq!(of_store(store, "child").unwrap(), "own\n");
    assert_eq!(of_store(store, "thread"), None);
    assert_eq!(of_store(store, "given").unwrap(), "before ");
    group.abort().unwrap();
    assert_eq!(said(&mounted, "cat *"), "own\nbefore ");
    drop(create("after"));
    assert_eq!(of_store(store, "after").unwrap(), "", "it is in no group");
    mounted.end();
}

/// What is written to mapped memory comes on nobody's behalf: it goes where the file's content belongs.
#[test]
fn mapped_memory_goes_with_its_file() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    let Some(mounted) = mounted() else { return };
    let at = |name: &str| mounted.point().join(name);
    let store = mounted.store();
    let open = |name: &str| {
        write(at(name), &"-".repeat(8192));
        OpenOptions::new().read(true).write(true).open(at(name)).unwrap()
    };
    let (added, other) = (open("added"), open("other"));
    let map = |file: &File| {
        // SAFETY: a new mapping, of which only `poke` below knows.
        unsafe { mmap(std::ptr::null_mut(), 8192, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }
            .unwrap()
    };
    let maps = [map(&added), map(&other)];
    let poke = |byte: u8, syncs: bool| {
        for map in maps {
            // SAFETY: inside of the mapping, which lives until the end of the test.
            unsafe { map.cast::<u8>().add(5000).write_volatile(byte) };
            if syncs {
                // SAFETY: the whole mapping.
                unsafe { msync(map, 8192, MsyncFlags::SYNC) }.unwrap();
            }
        }
    };
    let byte = |name: &str| of_store(store, name).unwrap().as_bytes()[5000];
    let group = begin(&mounted);
    group.add(&added).unwrap();
    poke(b'1', true);
    assert_eq!((byte("added"), byte("other")), (b'-', b'1'));
    group.commit().unwrap();
    assert_eq!((byte("added"), byte("other")), (b'1', b'1'));
    // What the kernel has not written yet when the group is undone goes with it.
    let group = begin(&mounted);
    group.add(&added).unwrap();
    poke(b'2', false);
    group.abort().unwrap();
    added.sync_all().unwrap();
    other.sync_all().unwrap();
    assert_eq!((byte("added"), byte("other")), (b'1', b'2'));
    assert_eq!(read(at("added")).as_bytes()[5000], b'1');
    // A group has no content by asking for it in vain.
    let group = begin(&mounted);
    assert!(matches!(group.add(File::open(at("other")).unwrap()), Err(Error::Refused(..))));
    poke(b'3', true);
    group.abort().unwrap();
    assert_eq!((byte("added"), byte("other")), (b'3', b'3'));
    // One that changes anything of a file has what comes of its pages, too: nobody else could take that.
    let group = begin(&mounted);
    std::fs::set_permissions(at("other"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    poke(b'4', true);
    assert_eq!((byte("added"), byte("other")), (b'4', b'3'));
    group.commit().unwrap();
    assert_eq!(byte("other"), b'4');
    for map in maps {
        // SAFETY: nobody uses it any more.
        unsafe { munmap(map, 8192) }.unwrap();
    }
    drop((added, other));
    mounted.end();
}

/// Also where one thread has to answer all requests, and the kernel waits for it.
#[test]
fn groups_end_while_others_are_at_it() {
    let Some(mounted) = with(&MountOptions { threads: 1, ..MountOptions::default() }) else { return };
    let at = |name: &str| mounted.point().join(name);
    write(at("file"), &"before ".repeat(10_000));
    let mut others: Vec<_> = (0..3)
        .map(|n| {
            let script = format!(
                "echo ready; while [ -e file ] && ! [ -e end ]; do cat file >/dev/null; ls -l >/dev/null; echo {n} > other-{n}; mkdir dir-{n} && rmdir dir-{n}; done"
            );
            let mut command = Command::new("sh");
            command.args(["-c", &script]).current_dir(mounted.point()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    others.iter_mut().for_each(|other| wait_for(other, "ready"));
    for round in 0..40 {
        let group = begin(&mounted);
        write(at("file"), &"during ".repeat(9_000));
        for n in 0..5 {
            write(at(&format!("made-{n}")), "made");
        }
        if round % 2 == 0 {
            group.abort().unwrap();
            assert_eq!(read(at("file")).len(), 70_000, "round {round}");
            assert!(!at("made-0").exists());
        } else {
            group.commit().unwrap();
            assert_eq!(read(at("file")).len(), 63_000, "round {round}");
            write(at("file"), &"before ".repeat(10_000));
            (0..5).for_each(|n| std::fs::remove_file(at(&format!("made-{n}"))).unwrap());
        }
    }
    write(at("end"), "");
    others.iter_mut().for_each(|other| assert!(other.wait().unwrap().success()));
    drop(others);
    mounted.end();
}

#[test]
fn a_store_that_is_mounted_is_not_opened_there() {
    let Some(mounted) = mounted() else { return };
    let Err(Error::Unsupported(why)) = Store::open(mounted.point()) else { panic!("it is a mount") };
    assert!(why.contains("a mount of a store") && why.contains("wholly_mount_begin"), "{why}");
    std::fs::create_dir(mounted.point().join("below")).unwrap();
    assert!(matches!(Store::open(mounted.point().join("below")), Err(Error::Unsupported(_))));
    let file = File::open(mounted.home()).unwrap();
    assert!(matches!(MountGroup::begin(file), Err(Error::Unsupported(_))), "it is the directory itself");
    mounted.end();
}
