//! A medium that a test holds: calls that wait for it stop no others. A [`Gate`] stands for the medium, before the
//! volume, so that no lock of the volume has a part in it.
//!
//! That a call waits no test asks for: a call that should return is waited for, and a mount that stops fails the test
//! by the time limit of [`returns`].

use std::fs::{File, FileTimes, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::cache::Mapped;
use crate::common::gate::{Gate, Gated, HeldDisk, What};
use crate::common::{Scratch, or_skip};
use wholly::MountGroup;
use wholly_error::Error;
use wholly_fuse::{Mount, MountOptions, Unmounter};
use wholly_host::mount::Open;
use wholly_media::disk::DiskRegion;
use wholly_vfs::{Errno, Policy};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

/// A volume, its mount, and the gate between them.
pub(crate) struct Mounted {
    pub gate: Arc<Gate>,
    pub server: Option<JoinHandle<std::io::Result<()>>>,
    pub unmounter: Unmounter,
    pub point: Scratch,
    home: Scratch,
}

/// The kernel believes what it knows for as long as a test takes: what it is not told to forget it goes on telling.
pub(crate) fn options() -> MountOptions {
    MountOptions { valid: Duration::from_secs(3600), owns_content: true, ..MountOptions::default() }
}

impl Mounted {
    /// With directories `d` and `o`, and in each a file `f` with the text `before`.
    pub(crate) fn new(options: &MountOptions) -> Result<Mounted, String> {
        let (home, point, gate) = (Scratch::new(), Scratch::new(), Arc::new(Gate::default()));
        let image = home.path().join("volume");
        let of_volume = VolumeOptions { engine: Some(EngineKind::FineGrainedWal), ..VolumeOptions::default() };
        Volume::format(&image, 16 << 20, &of_volume).expect("make a volume");
        let volume = Volume::open(&image, &of_volume).expect("open it");
        let vfs = Gated { inner: VolumeVfs::new(&volume), gate: gate.clone() };
        let mount = Mount::new(Arc::new(vfs), point.path(), options).map_err(|error| format!("mount: {error}"))?;
        let unmounter = mount.unmounter();
        let server = std::thread::spawn(move || mount.serve());
        let mounted = Mounted { gate, server: Some(server), unmounter, point, home };
        for dir in ["d", "o"] {
            std::fs::create_dir(mounted.at(dir)).expect("make a directory");
            write(mounted.at(dir).join("f"), "before");
        }
        Ok(mounted)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    pub(crate) fn begin(&self) -> MountGroup {
        begin(self.point.path())
    }

    /// A thread that commits a group, which the gate holds.
    pub(crate) fn commit_held(&self, group: MountGroup) -> JoinHandle<Result<(), Error>> {
        self.gate.hold(What::Commit);
        let committing = std::thread::spawn(move || group.commit());
        self.gate.reached(What::Commit, 1);
        committing
    }

    /// Unmounts it. The volume is sound.
    pub(crate) fn end(mut self) {
        self.unmount();
        self.is_sound();
    }

    pub(crate) fn unmount(&mut self) {
        let mut tries = 0..12_000;
        while let Err(error) = self.unmounter.unmount() {
            assert!(error.raw_os_error() == Some(16) && tries.next().is_some(), "nobody uses it: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.has_ended();
    }

    /// It was unmounted.
    fn has_ended(&mut self) {
        self.server.take().expect("it serves").join().expect("a thread").expect("the kernel was answered to the end");
    }

    /// Unmounts it, after a thread of the server has panicked.
    pub(crate) fn ends_with_an_error(mut self) {
        self.unmounter.detach().expect("detach");
        let served = self.server.take().expect("it serves").join().expect("a thread");
        assert!(served.unwrap_err().to_string().contains("panicked"));
    }

    fn is_sound(&self) {
        let checked = Volume::check(&self.home.path().join("volume")).expect("check it");
        assert_eq!((&checked.findings[..], checked.is_clean, checked.orphans), (&[][..], true, 0));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.gate.release_all();
            let _ = rustix::mount::unmount(self.point.path(), rustix::mount::UnmountFlags::DETACH);
            if !std::thread::panicking() {
                let _ = server.join();
            }
        }
    }
}

/// What a call gives that should return while others wait for the medium. No verdict but that of a mount that stops
/// depends on the time limit.
pub(crate) fn returns<T: Send + 'static>(
    mounted: &Mounted,
    what: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (gives, given) = channel();
    let calling = std::thread::spawn(move || _ = gives.send(call()));
    match given.recv_timeout(Duration::from_secs(30)) {
        Ok(given) => {
            calling.join().expect("a call");
            given
        }
        Err(RecvTimeoutError::Disconnected) => panic!("{what} has failed: {:?}", calling.join()),
        Err(RecvTimeoutError::Timeout) => {
            mounted.gate.release_all();
            panic!("{what} waits for the medium of another call");
        }
    }
}

pub(crate) fn begin(point: &Path) -> MountGroup {
    MountGroup::begin(File::open(point).expect("open")).expect("no group runs")
}

pub(crate) fn write(path: impl AsRef<Path>, text: &str) {
    std::fs::write(path, text).expect("write");
}

pub(crate) fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("read")
}

pub(crate) fn open_to_write(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("open")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("list");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Looks, changes and a group, all of them in `o`.
pub(crate) fn use_other_files(mounted: &Mounted) {
    let at = |name: &str| mounted.at(name);
    let (o, f, new, point) = (at("o"), at("o/f"), at("o/new"), mounted.point.path().to_owned());
    let size = returns(mounted, "stat", {
        let f = f.clone();
        move || File::open(f).unwrap().metadata().unwrap().size()
    });
    assert_eq!(size, 6);
    assert_eq!(returns(mounted, "readdir", move || names(&o)), ["f"]);
    returns(mounted, "create, write and rename", {
        let (f, new) = (f.clone(), new.clone());
        move || {
            write(&new, "later!");
            std::fs::rename(new, f).unwrap();
        }
    });
    let text = returns(mounted, "read", {
        let f = f.clone();
        move || read(f)
    });
    assert_eq!(text, "later!");
    returns(mounted, "begin and abort of a group", {
        let (f, new) = (f.clone(), new.clone());
        move || {
            let group = begin(&point);
            write(&f, "of a group");
            write(&new, "of a group");
            group.abort().unwrap();
        }
    });
    let text = returns(mounted, "read after the abort", {
        let f = f.clone();
        move || read(f)
    });
    assert_eq!(text, "later!");
    returns(mounted, "write", move || write(f, "before"));
    assert!(!new.exists());
}

/// Attributes are asked for again each time.
pub(crate) fn forgetful() -> MountOptions {
    MountOptions { valid: Duration::ZERO, ..options() }
}

#[test]
fn a_group_that_is_committed_stops_nobody_who_does_not_use_its_files() {
    for options in [options(), forgetful()] {
        let Some(mounted) = or_skip(Mounted::new(&options)) else { return };
        let group = mounted.begin();
        write(mounted.at("d/f"), "and after");
        write(mounted.at("d/new"), "made");
        let committing = mounted.commit_held(group);
        use_other_files(&mounted);
        // Its own files: these calls wait, and see what the group has done.
        let looks: Vec<JoinHandle<String>> = [
            |d: PathBuf| d.join("f").metadata().unwrap().size().to_string(),
            |d: PathBuf| d.join("new").metadata().unwrap().size().to_string(),
            |d: PathBuf| names(&d).join(" "),
            |d: PathBuf| read(d.join("f")),
            |d: PathBuf| names(d.parent().unwrap()).join(" "),
            |d: PathBuf| {
                let file = open_to_write(&d.join("f"));
                file.write_all_at(b"AND", 0).unwrap();
                "written".into()
            },
        ]
        .map(|look| {
            let d = mounted.at("d");
            std::thread::spawn(move || look(d))
        })
        .into();
        use_other_files(&mounted);
        mounted.gate.release(What::Commit);
        committing.join().unwrap().expect("commit");
        let saw: Vec<String> = looks.into_iter().map(|look| look.join().unwrap()).collect();
        assert_eq!((&saw[0][..], &saw[1][..], &saw[2][..]), ("9", "4", "f new"));
        assert!(["and after", "AND after"].contains(&&saw[3][..]), "{saw:?}");
        assert_eq!((&saw[4][..], &saw[5][..]), ("d o", "written"));
        assert_eq!((read(mounted.at("d/f")), read(mounted.at("d/new"))), ("AND after".into(), "made".into()));
        mounted.end();
    }
}

/// The group is everybody's once its place in the order is taken: only who has committed it waits for the medium.
#[test]
fn a_group_that_is_ordered_is_seen_and_changed_before_it_is_durable() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    let group = mounted.begin();
    write(mounted.at("d/f"), "and after");
    mounted.gate.hold(What::Wait);
    let committing = std::thread::spawn(move || group.commit());
    mounted.gate.reached(What::Wait, 1);
    use_other_files(&mounted);
    let (f, point) = (mounted.at("d/f"), mounted.point.path().to_owned());
    let text = returns(&mounted, "a call on its files", move || {
        let file = open_to_write(&f);
        file.write_all_at(b"AND", 0).unwrap();
        let group = begin(&point);
        file.write_all_at(b"AFTER", 4).unwrap();
        group.abort().unwrap();
        read(f)
    });
    assert_eq!(text, "AND after");
    assert!(!committing.is_finished(), "it is durable on return, and not before");
    mounted.gate.release(What::Wait);
    committing.join().unwrap().expect("commit");
    mounted.end();
}

#[test]
fn an_abort_and_a_file_that_is_added_stop_nobody_who_does_not_use_its_files() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    let group = mounted.begin();
    let file = open_to_write(&mounted.at("d/f"));
    mounted.gate.hold(What::Add);
    let o = mounted.at("o");
    let adding = std::thread::spawn(move || group.add(&file).map(|()| (group, file)));
    mounted.gate.reached(What::Add, 1);
    let listed = returns(&mounted, "readdir during an add", {
        let o = o.clone();
        move || names(&o)
    });
    assert_eq!(listed, ["f"]);
    mounted.gate.release(What::Add);
    let (group, file) = adding.join().unwrap().expect("add");
    file.write_all_at(b"BEFORE", 0).unwrap();
    mounted.gate.hold(What::Abort);
    let aborting = std::thread::spawn(move || group.abort());
    mounted.gate.reached(What::Abort, 1);
    let seen = returns(&mounted, "calls during an abort", move || {
        write(o.join("f"), "later!");
        (names(&o), read(o.join("f")))
    });
    assert_eq!(seen, (vec!["f".to_owned()], "later!".to_owned()));
    mounted.gate.release(What::Abort);
    aborting.join().unwrap().expect("abort");
    assert_eq!(read(mounted.at("d/f")), "before");
    drop(file);
    mounted.end();
}

/// A volume makes the calls of a group one at a time. So a look at something that the group has not changed is none of
/// them.
#[test]
fn a_call_in_a_group_stops_no_looks_at_other_files() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    std::fs::hard_link(mounted.at("d/f"), mounted.at("o/g")).unwrap();
    let group = mounted.begin();
    open_to_write(&mounted.at("d/f")).write_all_at(b"BEFORE and after", 0).unwrap();
    mounted.gate.hold(What::Read);
    let f = mounted.at("d/f");
    let reading = std::thread::spawn(move || read(f));
    mounted.gate.reached(What::Read, 1);
    let (o, root) = (mounted.at("o"), mounted.point.path().to_owned());
    let seen = returns(&mounted, "looks", move || {
        (read(o.join("f")), names(&o), names(&root), o.join("f").metadata().unwrap().size())
    });
    let listed = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(seen, ("before".into(), listed(&["f", "g"]), listed(&["d", "o"]), 6));
    // By another name, the file of the group is as the group has it.
    assert_eq!(mounted.at("o/g").metadata().unwrap().size(), 16);
    mounted.gate.release(What::Read);
    assert_eq!(reading.join().unwrap(), "BEFORE and after");
    group.abort().unwrap();
    assert_eq!((mounted.at("o/g").metadata().unwrap().size(), read(mounted.at("d/f"))), (6, "before".into()));
    mounted.end();
}

#[test]
fn calls_outside_of_groups_that_wait_stop_no_group() {
    let Some(mounted) = or_skip(Mounted::new(&options())) else { return };
    let file = open_to_write(&mounted.at("d/f"));
    mounted.gate.hold(What::Write);
    let writing = std::thread::spawn(move || file.write_all_at(b"AND", 0).unwrap());
    mounted.gate.reached(What::Write, 1);
    let (point, o) = (mounted.point.path().to_owned(), mounted.at("o"));
    let listed = returns(&mounted, "groups", move || {
        for commits in [true, false] {
            let group = begin(&point);
            std::fs::rename(o.join("f"), o.join(if commits { "g" } else { "h" })).ok();
            std::fs::create_dir(o.join(commits.to_string())).unwrap();
            if commits { group.commit().unwrap() } else { group.abort().unwrap() }
        }
        names(&o)
    });
    assert_eq!(listed, ["g", "true"]);
    mounted.gate.release(What::Write);
    writing.join().unwrap();
    assert_eq!(read(mounted.at("d/f")), "ANDore");
    mounted.end();
}

/// More of them than processors.
#[test]
fn syncs_that_wait_stop_no_other_calls() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    let most = 31;
    // The kernel makes one of a file at a time.
    let files: Vec<_> = (1..=most).map(|number| File::create(mounted.at(&format!("d/{number}"))).unwrap()).collect();
    mounted.gate.hold(What::Fsync);
    let syncing: Vec<_> = (1..=most)
        .zip(files)
        .map(|(count, file)| {
            let syncing = std::thread::spawn(move || file.sync_all().unwrap());
            mounted.gate.reached(What::Fsync, count);
            use_other_files(&mounted);
            syncing
        })
        .collect();
    mounted.gate.release(What::Fsync);
    syncing.into_iter().for_each(|syncing| syncing.join().unwrap());
    // The threads that are not needed any more stand by; they are there when it is unmounted, and when they are needed.
    mounted.gate.hold(What::Fsync);
    let file = open_to_write(&mounted.at("d/f"));
    let syncing = std::thread::spawn(move || file.sync_all().unwrap());
    mounted.gate.reached(What::Fsync, 1);
    use_other_files(&mounted);
    mounted.gate.release(What::Fsync);
    syncing.join().unwrap();
    mounted.end();
}

/// The kernel hands them on in the background.
#[test]
fn page_writes_of_many_files_wait_at_once() {
    let Some(mounted) = or_skip(Mounted::new(&options())) else { return };
    let create = |number| File::create_new(mounted.at(&format!("d/{number}"))).unwrap();
    (1..=28).for_each(|number| create(number).set_len(4096).unwrap());
    mounted.gate.hold(What::Write);
    let writing: Vec<_> = (1..=28)
        .map(|number| {
            let path = mounted.at(&format!("d/{number}"));
            std::thread::spawn(move || {
                let mapped = Mapped::new(&OpenOptions::new().read(true).write(true).open(path).unwrap());
                mapped.write(0, b'x');
                mapped.sync();
            })
        })
        .collect();
    let gate = mounted.gate.clone();
    returns(&mounted, "the last of them", move || gate.reached(What::Write, 28));
    let o = mounted.at("o");
    assert_eq!(returns(&mounted, "readdir", move || names(&o)), ["f"]);
    mounted.gate.release(What::Write);
    writing.into_iter().for_each(|writing| writing.join().unwrap());
    assert_eq!(read(mounted.at("d/1")).as_bytes()[0], b'x');
    mounted.end();
}

/// Another thread takes the place of theirs, also where all others wait.
#[test]
fn calls_that_panic_do_not_stop_the_mount() {
    let Some(mounted) = or_skip(Mounted::new(&MountOptions { threads: 2, ..forgetful() })) else { return };
    let file = open_to_write(&mounted.at("d/f"));
    mounted.gate.hold(What::Fsync);
    let syncing = std::thread::spawn(move || file.sync_all().unwrap());
    mounted.gate.reached(What::Fsync, 1);
    for _ in 0..4 {
        mounted.gate.panic(What::Write);
        let file = open_to_write(&mounted.at("o/f"));
        let failed = returns(&mounted, "a write that panics", move || file.write_all_at(b"AND", 0));
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
        use_other_files(&mounted);
    }
    mounted.gate.release(What::Fsync);
    syncing.join().unwrap();
    mounted.ends_with_an_error();
}

/// A call in a group races with its commit: it returns first, and what it has changed is in the group.
#[test]
fn a_group_is_committed_once_its_calls_have_returned() {
    let Some(mounted) = or_skip(Mounted::new(&options())) else { return };
    let group = mounted.begin();
    let file = open_to_write(&mounted.at("d/f"));
    mounted.gate.hold(What::Write);
    let writing = std::thread::spawn(move || file.write_all_at(b"AND", 0).unwrap());
    mounted.gate.reached(What::Write, 1);
    let committing = std::thread::spawn(move || group.commit());
    // Its end has begun once it does not run any more.
    let point = mounted.point.path().to_owned();
    returns(&mounted, "the begin of the end", move || {
        while MountGroup::holder(File::open(&point).unwrap()).unwrap().is_some() {
            std::thread::yield_now();
        }
    });
    assert_eq!(mounted.gate.passed(What::Commit), 0, "a call is under way");
    // What comes now is in no group, or in the next one. That is committed after this one.
    let next = mounted.begin();
    std::fs::create_dir(mounted.at("o/next")).unwrap();
    let next = std::thread::spawn(move || next.commit());
    std::fs::create_dir(mounted.at("outside")).unwrap();
    assert_eq!(mounted.gate.passed(What::Commit), 0, "a call is under way");
    mounted.gate.release(What::Write);
    writing.join().unwrap();
    committing.join().unwrap().expect("commit");
    next.join().unwrap().expect("commit");
    let passed = mounted.gate.all_passed();
    let passed: Vec<_> = passed.into_iter().filter(|what| *what != What::Wait).collect();
    assert!(passed.ends_with(&[What::Write, What::Commit, What::Commit]), "{passed:?}");
    assert_eq!(read(mounted.at("d/f")), "ANDore");
    mounted.end();
}

/// Two ends of one group at once: the first counts, and the second is refused at once.
#[test]
fn a_group_ends_once() {
    let Some(mounted) = or_skip(Mounted::new(&options())) else { return };
    let dir = File::open(mounted.point.path()).unwrap();
    let open = Arc::new(Open::of(dir.as_fd()).unwrap());
    open.begin().unwrap();
    write(mounted.at("d/f"), "and after");
    mounted.gate.hold(What::Commit);
    let first = open.clone();
    let committing = std::thread::spawn(move || first.commit());
    mounted.gate.reached(What::Commit, 1);
    let second = open.clone();
    let refused = returns(&mounted, "a second end", move || [second.commit(), second.abort(), second.commit()]);
    assert_eq!(refused, [Err(Errno::INVAL); 3]);
    // The same open file may begin the next one.
    let next = open.clone();
    let f = mounted.at("o/f");
    returns(&mounted, "the next group", move || {
        next.begin().unwrap();
        write(f, "undone");
        next.abort().unwrap();
    });
    mounted.gate.release(What::Commit);
    committing.join().unwrap().expect("commit");
    assert_eq!((mounted.gate.passed(What::Commit), mounted.gate.passed(What::Abort)), (1, 1));
    assert_eq!((read(mounted.at("d/f")), read(mounted.at("o/f"))), ("and after".into(), "before".into()));
    drop((dir, open));
    mounted.end();
}

/// A group that may have read what another one wrote is aborted if that one is undone.
#[test]
fn a_group_that_began_during_a_commit_that_fails_fails_too() {
    let Some(mounted) = or_skip(Mounted::new(&options())) else { return };
    let group = mounted.begin();
    write(mounted.at("d/f"), "and after");
    write(mounted.at("d/new"), "made");
    mounted.gate.fail();
    let committing = mounted.commit_held(group);
    let later = mounted.begin();
    write(mounted.at("o/f"), "that was made");
    let later = std::thread::spawn(move || later.commit());
    mounted.gate.release(What::Commit);
    assert!(matches!(committing.join().unwrap(), Err(Error::Media(_))), "there is no space");
    assert!(matches!(later.join().unwrap(), Err(Error::Refused(_, Errno::AGAIN))));
    assert_eq!((mounted.gate.passed(What::Commit), mounted.gate.passed(What::Abort)), (1, 1));
    // The kernel has nothing of either.
    assert_eq!((read(mounted.at("d/f")), read(mounted.at("o/f"))), ("before".into(), "before".into()));
    assert_eq!((mounted.at("d/f").metadata().unwrap().size(), names(&mounted.at("d"))), (6, vec!["f".to_owned()]));
    let group = mounted.begin();
    write(mounted.at("o/f"), "at last");
    group.commit().expect("nothing stands against it");
    assert_eq!(read(mounted.at("o/f")), "at last");
    mounted.end();
}

/// What another process does: see [`act`].
pub(crate) fn another(what: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "held::act", "--nocapture"]).env("WHOLLY_HELD", what).env("WHOLLY_AT", path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// No test, but what [`another`] process does.
#[test]
fn act() {
    let Some(what) = std::env::var_os("WHOLLY_HELD") else { return };
    let at = PathBuf::from(std::env::var_os("WHOLLY_AT").unwrap());
    match what.to_str() {
        Some("commit") => {
            let group = begin(&at);
            write(at.join("d/f"), "and after");
            group.commit().unwrap();
        }
        Some("busy") => assert!(matches!(MountGroup::begin(File::open(&at).unwrap()), Err(Error::Busy(..)))),
        _ => panic!("{what:?}"),
    }
}

/// The holder of a group is killed while it is committed: that goes on, and nobody aborts it.
#[test]
fn a_commit_is_not_undone_by_the_end_of_its_process() {
    let Some(mounted) = or_skip(Mounted::new(&options())) else { return };
    mounted.gate.hold(What::Commit);
    let mut process = another("commit", mounted.point.path());
    mounted.gate.reached(What::Commit, 1);
    process.kill().unwrap();
    use_other_files(&mounted);
    mounted.gate.release(What::Commit);
    process.wait().unwrap();
    // Its open file is closed by now, or will be: of a group that has ended that is nothing to anybody.
    mounted.begin().commit().expect("nothing stands against it");
    assert_eq!(read(mounted.at("d/f")), "and after");
    assert_eq!(
        (mounted.gate.passed(What::Commit), mounted.gate.passed(What::Abort)),
        (2, 1),
        "that of the other files"
    );
    mounted.end();
}

/// An unmount waits for a commit, and does not undo it.
#[test]
fn a_mount_that_is_detached_ends_after_a_commit() {
    let Some(mut mounted) = or_skip(Mounted::new(&options())) else { return };
    let group = mounted.begin();
    write(mounted.at("d/f"), "and after");
    let committing = mounted.commit_held(group);
    mounted.unmounter.detach().expect("detach");
    mounted.gate.release(What::Commit);
    committing.join().unwrap().expect("commit");
    mounted.has_ended();
    mounted.is_sound();
    assert_eq!((mounted.gate.passed(What::Commit), mounted.gate.passed(What::Abort)), (1, 0));
    let volume = Volume::open(&mounted.home.path().join("volume"), &VolumeOptions::default()).expect("open it");
    let of_volume = VolumeVfs::new(&volume);
    let ctx = wholly_vfs::Context::superuser();
    use wholly_vfs::{Ino, OFlags, Vfs};
    let dir = of_volume.lookup(&ctx, Ino::ROOT, b"d").unwrap().ino;
    let file = of_volume.lookup(&ctx, dir, b"f").unwrap().ino;
    let open = of_volume.open(&ctx, file, OFlags::RDONLY).unwrap();
    let mut text = [0; 9];
    assert_eq!(of_volume.read(&ctx, &open, 0, &mut text).unwrap(), 9);
    assert_eq!(&text, b"and after");
    of_volume.release(&ctx, open).unwrap();
}

/// A volume on a disk that the gate holds.
fn on_a_disk(policy: Policy) -> Option<(Mounted, Volume)> {
    let (home, point) = (Scratch::new(), Scratch::new());
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(home.path().join("disk")).unwrap();
    file.set_len(32 << 20).unwrap();
    let disk = DiskRegion::open(file.into(), "disk").expect("a disk");
    let gate = Arc::new(Gate::default());
    let disk = Arc::new(HeldDisk { inner: disk, gate: gate.clone() });
    let of_volume = VolumeOptions { engine: Some(EngineKind::PageCacheWal), ..VolumeOptions::default() };
    Volume::format_region(&*disk, &of_volume).expect("make a volume");
    let volume = Volume::open_region(disk.clone(), &of_volume).expect("open it");
    let vfs = PolicyVfs::new(&volume, policy).expect("its engine has groups");
    let options = MountOptions { syncs_on_close: policy == Policy::PerSync, threads: 32, ..forgetful() };
    let mounted = Mount::new(Arc::new(vfs), point.path(), &options).map_err(|error| format!("mount: {error}"));
    let mount = or_skip(mounted)?;
    let unmounter = mount.unmounter();
    let server = std::thread::spawn(move || mount.serve());
    Some((Mounted { gate, server: Some(server), unmounter, point, home }, volume))
}

/// The same with a volume on a disk, under `per-sync`. It has locks of its own: what changes something may wait for
/// them. So others only look here, at files that nobody commits.
#[test]
fn a_disk_that_does_not_answer_stops_nobody_who_looks_at_other_files() {
    let Some((mut mounted, volume)) = on_a_disk(Policy::PerSync) else { return };
    for dir in ["a", "b", "g", "o"] {
        std::fs::create_dir(mounted.at(dir)).unwrap();
        write(mounted.at(dir).join("f"), "before");
        // A look that sets the time of access would be a change, and wait.
        let accessed = FileTimes::new().set_accessed(SystemTime::now() + Duration::from_secs(3600));
        for path in [mounted.at(dir), mounted.at(dir).join("f")] {
            File::open(path).unwrap().set_times(accessed).unwrap();
        }
    }
    // A close would be a sync.
    let open = Arc::new(File::open(mounted.at("o/f")).unwrap());
    let look = {
        let (o, open) = (mounted.at("o"), open.clone());
        move || {
            let mut text = [0; 6];
            open.read_exact_at(&mut text, 0).unwrap();
            (names(&o), text, o.join("f").metadata().unwrap().size())
        }
    };
    let syncing = |dir: &str| {
        let file = open_to_write(&mounted.at(dir).join("f"));
        file.write_all_at(b"AND", 0).unwrap();
        move || file.sync_all().unwrap()
    };
    let (a, b) = (syncing("a"), syncing("b"));
    let group = mounted.begin();
    let of_group = open_to_write(&mounted.at("g/f"));
    of_group.write_all_at(b"AND", 0).unwrap();
    mounted.gate.hold(What::Disk);
    let committing = std::thread::spawn(move || group.commit());
    mounted.gate.reached(What::Disk, 1);
    let seen = [returns(&mounted, "looks during the commit of a group", look.clone())];
    let syncing = [std::thread::spawn(a), std::thread::spawn(b)];
    let seen = [seen[0].clone(), returns(&mounted, "looks while two calls sync as well", look)];
    mounted.gate.release(What::Disk);
    committing.join().unwrap().expect("commit");
    syncing.into_iter().for_each(|syncing| syncing.join().unwrap());
    for seen in seen {
        assert_eq!(seen, (vec!["f".to_owned()], *b"before", 6));
    }
    for dir in ["a", "b", "g"] {
        assert_eq!(read(mounted.at(dir).join("f")), "ANDore");
    }
    drop((of_group, open));
    mounted.unmount();
    volume.close().unwrap();
}

/// Makes a call in each of 16 threads while the first commit is held; `is_ordered` asks the volume. Returns how many
/// writes of the disk that took.
fn writes_of_sixteen(
    mounted: &Mounted,
    calls: impl Iterator<Item = Box<dyn FnOnce() + Send>>,
    is_ordered: impl Fn(usize) -> bool,
) -> usize {
    let before = mounted.gate.passed(What::Disk);
    mounted.gate.hold(What::Disk);
    let mut threads = Vec::new();
    for call in calls {
        threads.push(std::thread::spawn(call));
        // All others come after the first, which has begun a commit.
        mounted.gate.reached(What::Disk, 1);
    }
    assert_eq!(threads.len(), 16);
    while !(0..threads.len()).all(&is_ordered) {
        assert!(!threads.iter().any(|thread| thread.is_finished()), "a call has returned before it was durable");
        std::thread::yield_now();
    }
    mounted.gate.release(What::Disk);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    mounted.gate.passed(What::Disk) - before
}

#[test]
fn syncs_of_sixteen_files_share_a_write_of_the_disk() {
    let Some((mut mounted, volume)) = on_a_disk(Policy::PerSync) else { return };
    let name = |i: usize| format!("f{i}");
    let files: Vec<_> = (0..16)
        .map(|i| {
            write(mounted.at(&name(i)), "before");
            let file = open_to_write(&mounted.at(&name(i)));
            file.write_all_at(b"AND", 0).unwrap();
            file
        })
        .collect();
    let syncs = files.iter().map(|file| file.try_clone().unwrap());
    let syncs = syncs.map(|file| Box::new(move || file.sync_all().unwrap()) as Box<dyn FnOnce() + Send>);
    let is_ordered = |i| volume.read_file(name(i)).expect("read it") == b"ANDore";
    assert_eq!(writes_of_sixteen(&mounted, syncs, is_ordered), 2);
    drop(files);
    mounted.unmount();
    volume.close().unwrap();
}

#[test]
fn creates_in_sixteen_directories_share_a_write_of_the_disk() {
    let Some((mut mounted, volume)) = on_a_disk(Policy::PerOp) else { return };
    let name = |i: usize| format!("d{i}");
    (0..16).for_each(|i| std::fs::create_dir(mounted.at(&name(i))).unwrap());
    let made = (0..16).map(|i| mounted.at(&name(i)).join("made"));
    let calls = made.map(|path| Box::new(move || std::fs::create_dir(path).unwrap()) as Box<dyn FnOnce() + Send>);
    let is_ordered = |i| volume.metadata(name(i) + "/made").is_ok();
    assert_eq!(writes_of_sixteen(&mounted, calls, is_ordered), 2);
    mounted.unmount();
    volume.close().unwrap();
}

/// The disk does not answer. `fatomic` and an atomic commit return, and everybody sees what they have ordered. What
/// waits for the disk later is ordered after them.
#[test]
fn what_is_atomic_on_a_mount_waits_for_no_medium() {
    let Some((mut mounted, volume)) = on_a_disk(Policy::PerSync) else { return };
    for name in ["f", "g", "new"] {
        write(mounted.at(name), "before");
    }
    let file = open_to_write(&mounted.at("new"));
    mounted.gate.hold(What::Disk);
    let passed = mounted.gate.passed(What::Disk);
    let (point, g) = (mounted.point.path().to_owned(), open_to_write(&mounted.at("g")));
    let (file, g) = returns(&mounted, "fatomic, fdataatomic and an atomic commit", move || {
        file.write_all_at(b"AND", 0).unwrap();
        wholly::fatomic(&file).unwrap();
        file.write_all_at(b"after", 3).unwrap();
        wholly::fdataatomic(&file).unwrap();
        let group = begin(&point);
        g.write_all_at(b"of the group", 0).unwrap();
        std::fs::create_dir(point.join("made")).unwrap();
        group.commit_atomic().unwrap();
        (file, g)
    });
    assert_eq!(mounted.gate.passed(What::Disk), passed, "nobody has waited for the disk");
    let [from, to] = ["new", "f"].map(|name| mounted.at(name));
    let renaming = std::thread::spawn(move || std::fs::rename(from, to).unwrap());
    mounted.gate.reached(What::Disk, 1);
    assert!(!renaming.is_finished(), "it is durable when it returns");
    mounted.gate.release(What::Disk);
    renaming.join().unwrap();
    [&file, &g].into_iter().for_each(|file| file.sync_all().unwrap());
    let [f, g_text] = ["f", "g"].map(|name| read(mounted.at(name)));
    assert_eq!((&f[..], &g_text[..], mounted.at("made").is_dir()), ("ANDafter", "of the group", true));
    let dir = File::open(mounted.point.path()).unwrap();
    assert!(matches!(wholly::fatomic(&dir), Err(Error::Refused(_, Errno::BADF))));
    assert!(matches!(wholly::fatomic(File::open("/").unwrap()), Err(Error::Unsupported(_))));
    drop((file, g, dir));
    mounted.unmount();
    volume.close().unwrap();
}

/// The order of a group is that of the file system below: only who has asked for that waits for the medium.
#[test]
fn an_atomic_commit_asks_for_no_wait() {
    let Some(mounted) = or_skip(Mounted::new(&forgetful())) else { return };
    mounted.gate.hold(What::Wait);
    let group = mounted.begin();
    write(mounted.at("d/f"), "and after");
    returns(&mounted, "an atomic commit", move || group.commit_atomic().unwrap());
    assert_eq!((mounted.gate.passed(What::Commit), mounted.gate.passed(What::Wait)), (1, 0));
    mounted.gate.release(What::Wait);
    assert_eq!(read(mounted.at("d/f")), "and after");
    // It has ended.
    mounted.begin().commit().expect("commit");
    // One that fails is undone, as the other kind is.
    let group = mounted.begin();
    write(mounted.at("d/f"), "undone");
    mounted.gate.fail();
    assert!(matches!(group.commit_atomic(), Err(Error::Media(_))), "there is no space");
    assert_eq!(read(mounted.at("d/f")), "and after");
    mounted.end();
}
