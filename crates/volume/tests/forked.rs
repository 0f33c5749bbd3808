//! A volume after a real `fork`: whichever of parent and child uses it first keeps it, the other is told who has it,
//! and a child that does not use it disturbs nobody. Afterwards nothing is wrong with the volume.
//!
//! A program of its own: children have the locks of all volumes that are open in the process, and its threads' memory.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wholly_blocks::xftl::{Device, Flash, OverRegion, Profile};
use wholly_error::Error;
use wholly_media::disk::DiskRegion;
use wholly_posix::Tree;
use wholly_vfs::{Context, Errno, GroupId, Groups, Ino, Mode, OFlags, Vfs};
use wholly_vfs::{Policy, Rename};
use wholly_volume::{
    EngineKind, Kind, Location, Medium, PolicyVfs, Volume, VolumeFile, VolumeGroup, VolumeOptions, VolumeVfs,
};

unsafe extern "C" {
    fn fork() -> i32;
    fn daemon(nochdir: i32, noclose: i32) -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

/// In a child: the value that the parent has too, as the child's own. Only its last use may be this.
fn own<T>(value: &T) -> T {
    // SAFETY: the process ends by `_exit`, so that the original is not dropped as well; and it is not used any more.
    unsafe { std::ptr::read(value) }
}

/// A forked process.
struct Child(i32);

impl Child {
    /// `work` runs in the child, which says on standard error what went wrong, and ends without dropping what it did
    /// not make.
    fn fork(work: impl FnOnce() -> Result<(), Error>) -> Child {
        // SAFETY: the parent's threads are not in the child, so that a lock one of them holds is held for ever: glibc
        // sees to its allocator, and that the volume's own locks do no harm is what is tested. The child leaves by
        // `_exit`.
        let pid = unsafe { fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let code = match &result {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    let _ = writeln!(&mut std::fs::File::create("/dev/stderr").unwrap(), "in the child: {error}");
                    2
                }
                Err(_) => 3,
            };
            // SAFETY: it does not return.
            unsafe { _exit(code) }
        }
        Child(pid)
    }

    fn join(self) {
        let mut status = 0;
        // SAFETY: the status lives until the call returns.
        assert_eq!(unsafe { waitpid(self.0, &raw mut status, 0) }, self.0);
        assert_eq!(status, 0, "the child failed: {status:#x}");
    }
}

/// How a child ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It drops all that it has.
    Drops,
    /// By `_exit`.
    Exits,
}

/// A file with a volume, removed when the test has ended.
struct Place {
    image: PathBuf,
    options: VolumeOptions,
}

impl Place {
    fn new(dir: &Path, name: &str, engine: EngineKind, medium: Medium) -> Place {
        let image = dir.join(format!("wholly-forked-{name}-{}-{medium:?}-{}", engine.name(), std::process::id()));
        let options = VolumeOptions { engine: Some(engine), medium, cache_bytes: 1 << 20, ..VolumeOptions::default() };
        Volume::format(&image, 16 << 20, &options).unwrap();
        Place { image, options }
    }

    /// On a simulated flash disk in a file, with the engine for disks.
    fn flash(name: &str) -> Place {
        let file = std::env::temp_dir().join(format!("wholly-forked-{name}-flash-{}", std::process::id()));
        let (geometry, config) = Profile::OpenSsd.plan(16 << 20).unwrap();
        let made = std::fs::File::options().read(true).write(true).create_new(true).open(&file).unwrap();
        made.set_len(OverRegion::bytes(&geometry)).unwrap();
        let region = Arc::new(DiskRegion::open(made.into(), "flash").unwrap());
        let chip: Arc<dyn Flash> = OverRegion::create(region, geometry, [9; 16]).unwrap();
        Device::format(&chip, &config, [9; 16]).unwrap();
        let image = PathBuf::from(format!("flash:{}", file.display()));
        let engine = Some(EngineKind::PageCacheWal);
        let options = VolumeOptions { engine, cache_bytes: 1 << 20, ..VolumeOptions::default() };
        Volume::format(&image, 0, &options).unwrap();
        Place { image, options }
    }

    /// On a model of an NVMe controller, with the engine for that.
    fn nvme(name: &str) -> Place {
        let directory = std::env::temp_dir().join(format!("wholly-forked-{name}-nvme-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        for (file, bytes) in [("image", 16 << 20), ("pmr", 64 << 10)] {
            std::fs::File::create_new(directory.join(file)).unwrap().set_len(bytes).unwrap();
        }
        let image = PathBuf::from(format!("nvme-model:{}", directory.display()));
        let engine = Some(EngineKind::MultiQueue);
        let options = VolumeOptions { engine, cache_bytes: 1 << 20, ..VolumeOptions::default() };
        Volume::format(&image, 0, &options).unwrap();
        Place { image, options }
    }

    fn engine(&self) -> EngineKind {
        self.options.engine.expect("it was made with one")
    }

    fn open(&self) -> Volume {
        self.try_open().unwrap()
    }

    fn try_open(&self) -> wholly::Result<Volume> {
        Volume::open(&self.image, &self.options)
    }

    fn has_groups(&self) -> bool {
        self.engine().promises_groups()
    }

    /// Whether what a call has changed is on the medium when it returns.
    fn keeps_nothing_back(&self) -> bool {
        self.engine() != EngineKind::None || self.options.medium == Medium::Pmem
    }

    /// What `fsck -n` says.
    fn check(&self) {
        assert_eq!(Volume::check(&self.image).unwrap().findings, [], "{self:?}");
    }

    fn check_unmounted(&self) {
        self.check();
        assert!(Volume::check(&self.image).unwrap().is_clean, "{self:?}: it was unmounted");
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {:?}", self.engine().name(), self.options.medium)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let file = Location::of(&self.image).file;
        let _ = std::fs::remove_file(file).or_else(|_| std::fs::remove_dir_all(file));
    }
}

/// A child has the descriptors of all volumes that are open in the process, and with them their locks, for as long as
/// it lives: one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test with each engine, on each medium that it takes.
fn on_each(name: &str, test: impl Fn(&Place)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for engine in EngineKind::ALL {
        test(&Place::new(Path::new("/dev/shm"), name, *engine, Medium::Pmem));
        if engine.takes_disks() {
            test(&Place::new(&std::env::temp_dir(), name, *engine, Medium::Disk));
        }
    }
    test(&Place::flash(name));
    test(&Place::nvme(name));
}

/// The same where a child can come first.
fn on_each_durable(name: &str, test: impl Fn(&Place)) {
    on_each(name, |place| {
        if place.keeps_nothing_back() {
            test(place);
        }
    });
}

fn bytes(file: &VolumeFile, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let read = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

fn is_busy(error: &Error, owner: &str) -> bool {
    matches!(error, Error::Busy(_, why) if why.contains(&format!("process {owner} ")))
}

/// Two pipes by which parent and child take turns. A parent that hears drops its own end to tell by: else it would wait
/// for a child that has failed.
fn turns() -> ((std::io::PipeReader, std::io::PipeWriter), (std::io::PipeReader, std::io::PipeWriter)) {
    (std::io::pipe().unwrap(), std::io::pipe().unwrap())
}

fn tell(mut to: &std::io::PipeWriter) {
    to.write_all(b"x").unwrap();
}

fn hear(mut from: &std::io::PipeReader) {
    from.read_exact(&mut [0]).unwrap();
}

/// All that a process can have of a volume.
struct Hold {
    volume: Volume,
    a: VolumeFile,
    vfs: VolumeVfs,
    policed: Option<PolicyVfs>,
    group: Option<VolumeGroup>,
}

impl Hold {
    /// A volume with the files `a` and `b`, and, where there are groups, a running one that has `b`, and an epoch of
    /// `c`.
    fn of(place: &Place) -> Hold {
        let volume = place.open();
        let (a, b) = (volume.create_file("a", 0o644).unwrap(), volume.create_file("b", 0o644).unwrap());
        a.write_at(0, &[1; 5000]).unwrap();
        b.write_at(0, &[1; 5000]).unwrap();
        let vfs = VolumeVfs::new(&volume);
        let (mut policed, mut group) = (None, None);
        if place.has_groups() {
            let mut running = volume.begin();
            running.write_at(&b, 0, &[9; 3]).unwrap();
            running.create("of-the-group", 0o644).unwrap();
            group = Some(running);
            let by_policy = PolicyVfs::new(&volume, Policy::Shared { interval: Duration::from_secs(3600) }).unwrap();
            Tree::new(&by_policy, Ino::ROOT).file("c", 0o644, b"uncommitted").unwrap();
            policed = Some(by_policy);
        }
        Hold { volume, a, vfs, policed, group }
    }

    /// Each use fails with `EBUSY`, and says who has the volume.
    fn expect_busy(&mut self, owner: &str) {
        let volume = &self.volume;
        for error in [
            self.a.write_at(0, &[7]).unwrap_err(),
            self.a.append(&[7]).unwrap_err(),
            self.a.read_at(0, &mut [0]).unwrap_err(),
            self.a.sync().unwrap_err(),
            volume.create_file("d", 0o644).unwrap_err(),
            volume.read_file("a").unwrap_err(),
            volume.checkpoint().unwrap_err(),
            volume.sync().unwrap_err(),
            volume.begin().mkdir("d", 0o755).unwrap_err(),
            volume.clone().close().unwrap_err(),
        ] {
            assert!(is_busy(&error, owner), "{error}");
        }
        assert_eq!(volume.stat().blocks, 0);
        let errno = Tree::new(&self.vfs, Ino::ROOT).mkdir("d", 0o755).unwrap_err();
        assert_eq!((errno, self.vfs.begin().unwrap_err().into()), (Errno::BUSY, Errno::BUSY));
        if let Some(policed) = &self.policed {
            assert_eq!(Tree::new(policed, Ino::ROOT).content("c").unwrap_err(), Errno::BUSY);
        }
        if let Some(mut group) = self.group.take() {
            assert!(matches!(group.append(&self.a, &[7]), Err(Error::Busy(..))));
            assert!(matches!(group.commit(), Err(Error::Busy(..))));
        }
    }
}

fn write_fifty(volume: &Volume) {
    volume.mkdir("fifty", 0o755).unwrap();
    for i in 0..50u8 {
        let file = volume.create_file(format!("fifty/{i}"), 0o644).unwrap();
        file.write_at(0, &[i; 6000]).unwrap();
    }
}

fn expect_fifty(volume: &Volume) {
    for i in 0..50u8 {
        assert_eq!(volume.read_file(format!("fifty/{i}")).unwrap(), [i; 6000]);
    }
}

/// What a child does that is the first to use what it has.
fn use_first(hold: Hold, end: End) -> Result<(), Error> {
    let Hold { volume, a, vfs, policed, group } = hold;
    // What is committed is there, by what the child had before the fork too. What is not is the parent's.
    assert_eq!(bytes(&a, 6000), [1; 5000]);
    assert_eq!(volume.read_file("b")?, [1; 5000]);
    assert!(volume.metadata("of-the-group").is_err());
    write_fifty(&volume);
    a.append(&[2; 3])?;
    Tree::new(&vfs, Ino::ROOT).file("by-vfs", 0o644, b"new").unwrap();
    if let (Some(mut group), Some(policed)) = (group, &policed) {
        let Err(Error::Busy(_, why)) = group.append(&a, &[7]) else { panic!("the group is the parent's") };
        assert!(why.contains("forked"), "{why}");
        assert!(matches!(group.commit(), Err(Error::Busy(..))));
        let tree = Tree::new(policed, Ino::ROOT);
        assert_eq!(tree.content("c").unwrap(), b"", "its content was not committed");
        tree.open("c", OFlags::RDWR).unwrap().write_all(0, b"epoch").unwrap();
        let mut group = volume.begin();
        group.write_at(&a, 0, &[3])?;
        group.create("d", 0o644)?;
        group.commit()?;
        policed.sync(&Context::superuser()).unwrap();
    }
    expect_fifty(&volume);
    if end == End::Exits {
        std::mem::forget((volume, a, vfs, policed));
    }
    Ok(())
}

/// A child cannot go on with its parent's QEMU. It is told so, and the parent's volume is as it was.
#[test]
fn a_volume_on_qemu_stays_with_its_parent() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if Command::new(wholly_nvme::qtest::PROGRAM).arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "QEMU is missing: scripts/setup installs it");
        return;
    }
    let place = Place::nvme("qemu");
    let image = Location { kind: Kind::Qemu, ..Location::of(&place.image) }.written(Location::of(&place.image).file);
    let volume = Volume::open(&image, &place.options).unwrap();
    volume.create_file("a", 0o644).unwrap().write_at(0, b"before").unwrap();
    let child = Child::fork(|| match volume.create_file("b", 0o644) {
        Err(error) if error.to_string().contains("stays with the process that has opened it") => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Invalid("a child has used its parent's QEMU".into())),
    });
    child.join();
    assert!(volume.metadata("b").is_err());
    volume.create_file("c", 0o644).unwrap().write_at(0, b"after").unwrap();
    volume.close().unwrap();
    place.check_unmounted();
    let volume = place.open();
    assert_eq!([volume.read_file("a").unwrap(), volume.read_file("c").unwrap()], [&b"before"[..], b"after"]);
}

fn a_child_comes_first(name: &str, end: End) {
    on_each_durable(name, |place| {
        let mut hold = Hold::of(place);
        let child = Child::fork(|| use_first(own(&hold), end));
        let pid = child.0.to_string();
        child.join();
        hold.expect_busy(&pid);
        drop(hold);
        match end {
            End::Drops => place.check_unmounted(),
            End::Exits => place.check(),
        }
        let volume = place.open();
        expect_fifty(&volume);
        assert_eq!(volume.read_file("a").unwrap()[1..], [&[1; 4999][..], &[2; 3]].concat());
        assert_eq!(volume.read_file("by-vfs").unwrap(), b"new");
        if place.has_groups() {
            assert_eq!((volume.read_file("a").unwrap()[0], volume.read_file("c").unwrap()), (3, b"epoch".to_vec()));
        }
        volume.close().unwrap();
        place.check_unmounted();
    });
}

#[test]
fn a_child_that_uses_it_first_keeps_it() {
    a_child_comes_first("child", End::Drops);
}

#[test]
fn a_child_that_uses_it_first_has_it_until_it_exits() {
    a_child_comes_first("exit", End::Exits);
}

#[test]
fn a_parent_that_uses_it_first_keeps_it() {
    on_each("parent", |place| {
        for end in [End::Drops, End::Exits] {
            let place = Place::new(
                Location::of(&place.image).file.parent().unwrap(),
                "again",
                place.engine(),
                place.options.medium,
            );
            let hold = Hold::of(&place);
            let (to_child, to_parent) = turns();
            let parent = std::process::id().to_string();
            let child = Child::fork(|| {
                hear(&to_child.0);
                let mut hold = own(&hold);
                hold.expect_busy(&parent);
                assert!(is_busy(&place.try_open().unwrap_err(), &parent), "it has the lock still");
                if end == End::Exits {
                    std::mem::forget(hold);
                    tell(&to_parent.1);
                    return Ok(());
                }
                drop(hold);
                tell(&to_parent.1);
                hear(&to_child.0);
                // Its copy of the lock is gone, and the parent's was given up: now it is free for all.
                let volume = place.open();
                expect_fifty(&volume);
                volume.close()
            });
            drop(to_parent.1);
            hold.a.append(&[2]).unwrap();
            tell(&to_child.1);
            hear(&to_parent.0);
            write_fifty(&hold.volume);
            let Hold { volume, a, vfs, policed, group } = hold;
            if let Some(mut group) = group {
                group.write_at(&volume.open_file("b").unwrap(), 3, &[9]).unwrap();
                group.commit().unwrap();
            }
            drop((a, vfs, policed));
            volume.close().unwrap();
            place.check_unmounted();
            tell(&to_child.1);
            child.join();
            place.check_unmounted();
            let volume = place.open();
            assert_eq!(volume.read_file("a").unwrap().len(), 5001);
            if place.has_groups() {
                assert_eq!(volume.read_file("b").unwrap()[..5], [9, 9, 9, 9, 1]);
                assert_eq!(volume.read_file("c").unwrap(), b"uncommitted", "its drop has committed it");
                assert_eq!(volume.metadata("of-the-group").unwrap().size, 0);
            }
        }
    });
}

/// The example: nobody waits for anybody.
#[test]
fn both_at_once() {
    on_each_durable("race", |place| {
        for round in 1..=6u8 {
            let volume = place.open();
            let a = volume.create_file(format!("a{round}"), 0o644).unwrap();
            let (to_child, to_parent) = turns();
            let child = Child::fork(|| {
                hear(&to_child.0);
                let theirs = volume.mkdir(format!("child{round}"), 0o755);
                if theirs.is_ok() {
                    for i in 0..50 {
                        volume.create_file(format!("child{round}/{i}"), 0o644)?.write_at(0, &[round; 5000])?;
                    }
                }
                assert!(matches!(theirs, Ok(()) | Err(Error::Busy(..))), "{theirs:?}");
                (&to_parent.1).write_all(&[u8::from(theirs.is_ok())]).unwrap();
                Ok(())
            });
            tell(&to_child.1);
            std::thread::sleep(Duration::from_micros(u64::from(round) * 10));
            let mine = (0..20).map(|_| a.append(&[round; 5000])).filter(Result::is_ok).count();
            child.join();
            let mut theirs = [0];
            (&to_parent.0).read_exact(&mut theirs).unwrap();
            assert!((mine == 0) == (theirs == [1]) && matches!(mine, 0 | 20), "round {round}: {mine} and {theirs:?}");
            drop((a, volume));
            place.check();
            let volume = place.open();
            assert_eq!(volume.read_file(format!("a{round}")).unwrap(), vec![round; mine * 5000]);
            let has = volume.read_dir(format!("child{round}")).map_or(0, |names| names.len());
            assert_eq!(has, usize::from(theirs[0]) * 50);
            volume.close().unwrap();
        }
    });
}

/// Programs fork all the time to run others, by `system` or `popen`, and some children end by `exit` and not by `exec`.
#[test]
fn children_that_do_not_use_it_disturb_nobody() {
    on_each("idle", |place| {
        let mut hold = Hold::of(place);
        for round in 1..=10u8 {
            let child = Child::fork(|| {
                if round % 2 == 0 {
                    drop((own(&hold), hold.volume.clone()));
                }
                Ok(())
            });
            // Meanwhile, and afterwards.
            hold.a.append(&[round]).unwrap();
            child.join();
            assert!(Command::new("true").status().unwrap().success());
            if let (Some(group), Some(policed)) = (&mut hold.group, &hold.policed) {
                group.append(&hold.volume.open_file("b").unwrap(), &[round]).unwrap();
                Tree::new(policed, Ino::ROOT).open("c", OFlags::RDWR).unwrap().append(&[round]).unwrap();
            }
            assert!(matches!(place.try_open(), Err(Error::Busy(..))), "the lock is the parent's still");
        }
        let Hold { volume, a, vfs, policed, group } = hold;
        assert_eq!(bytes(&a, 6000)[5000..], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        if let Some(group) = group {
            group.commit().unwrap();
        }
        drop((a, vfs, policed));
        volume.close().unwrap();
        place.check_unmounted();
        let volume = place.open();
        if place.has_groups() {
            assert_eq!(volume.read_file("b").unwrap()[5000..], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
            assert_eq!(volume.read_file("c").unwrap()[11..], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        }
    });
}

/// A daemon opens its volume, and goes on in a child whose parent ends without a word.
#[test]
fn a_daemon_goes_on_with_it() {
    on_each_durable("daemon", |place| {
        let (_, to_test) = turns();
        let starter = Child::fork(|| {
            let Hold { volume, a, .. } = Hold::of(place);
            // SAFETY: it forks; the parent ends in it, the child returns.
            assert_eq!(unsafe { daemon(1, 1) }, 0);
            a.append(&[2])?;
            write_fifty(&volume);
            drop(a);
            volume.close()?;
            tell(&to_test.1);
            Ok(())
        });
        drop(to_test.1);
        starter.join();
        hear(&to_test.0);
        place.check_unmounted();
        let volume = place.open();
        expect_fifty(&volume);
        assert_eq!(volume.read_file("a").unwrap().len(), 5001);
    });
}

/// Here the parent is a child itself, so that it can be outlived.
#[test]
fn a_child_outlives_its_parent() {
    on_each_durable("orphan", |place| {
        let (to_child, to_test) = turns();
        let parent = Child::fork(|| {
            let hold = Hold::of(place);
            Child::fork(|| {
                hear(&to_child.0);
                use_first(own(&hold), End::Drops)?;
                tell(&to_test.1);
                Ok(())
            });
            // Uses after the fork, but the dead hold nothing.
            hold.volume.mkdir("later", 0o755)?;
            hold.a.set_len(6000)?;
            hold.a.set_len(5000)?;
            std::mem::forget(hold);
            Ok(())
        });
        drop(to_test.1);
        parent.join();
        tell(&to_child.1);
        hear(&to_test.0);
        place.check_unmounted();
        let volume = place.open();
        expect_fifty(&volume);
        volume.rmdir("later").unwrap();
    });
}

#[test]
fn what_the_parent_has_closed_a_child_can_have() {
    on_each("closed", |place| {
        let (volume, (to_child, _)) = (place.open(), turns());
        let a = volume.create_file("a", 0o644).unwrap();
        let child = Child::fork(|| {
            hear(&to_child.0);
            a.write_at(0, b"child")?;
            drop(own(&a));
            own(&volume).close()
        });
        a.write_at(0, b"maker").unwrap();
        drop(a);
        volume.close().unwrap();
        tell(&to_child.1);
        child.join();
        place.check_unmounted();
        assert_eq!(place.open().read_file("a").unwrap(), b"child");
    });
}

#[test]
fn a_grandchild_takes_over_from_a_child() {
    on_each_durable("grandchild", |place| {
        let hold = Hold::of(place);
        Child::fork(|| {
            hold.a.append(&[2])?;
            Tree::new(&hold.vfs, Ino::ROOT).mkdir("of-the-child", 0o755).unwrap();
            let other = Child::fork(|| {
                assert_eq!(bytes(&hold.a, 6000).len(), 5001);
                assert!(Tree::new(&hold.vfs, Ino::ROOT).exists("of-the-child").unwrap());
                hold.a.append(&[3])?;
                write_fifty(&hold.volume);
                drop(own(&hold));
                Ok(())
            });
            let pid = other.0.to_string();
            other.join();
            let error = hold.a.append(&[7]).unwrap_err();
            assert!(is_busy(&error, &pid), "{error}");
            drop(own(&hold));
            Ok(())
        })
        .join();
        assert!(matches!(hold.a.append(&[8]), Err(Error::Busy(..))));
        drop(hold);
        place.check_unmounted();
        let volume = place.open();
        expect_fifty(&volume);
        assert_eq!(volume.read_file("a").unwrap()[5000..], [2, 3]);
    });
}

/// Threads of the parent are in calls at the fork; the child, which has none of them, goes on all the same.
#[test]
fn a_fork_in_the_middle_of_other_threads_calls() {
    on_each_durable("busy", |place| {
        for round in 1..=8u64 {
            let volume = place.open();
            for name in ["a", "b"] {
                let _ = volume.create_file(name, 0o644);
            }
            let stop = AtomicBool::new(false);
            let (a, b) = (volume.open_file("a").unwrap(), volume.open_file("b").unwrap());
            std::thread::scope(|scope| {
                for (file, name) in [(&a, "x"), (&b, "y")] {
                    let (volume, stop) = (&volume, &stop);
                    scope.spawn(move || {
                        let mut at = round;
                        while !stop.load(Ordering::Relaxed) {
                            at = at * 31 % 90_000;
                            let made = volume.create_file(name, 0o644).map(drop);
                            if file.write_at(at, &[1; 900]).is_err() || made.and_then(|()| volume.unlink(name)).is_err()
                            {
                                break;
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_micros(round * 700));
                let child = Child::fork(|| match a.write_at(0, &[round as u8]) {
                    // The parent's threads came first, or were in a call.
                    Err(Error::Busy(..)) => Ok(()),
                    Err(error) => Err(error),
                    Ok(()) => {
                        assert_eq!(bytes(&a, 1), [round as u8]);
                        write_fifty(&volume);
                        drop((own(&a), own(&b)));
                        own(&volume).close()
                    }
                });
                child.join();
                stop.store(true, Ordering::Relaxed);
            });
            drop((a, b, volume));
            place.check_unmounted();
            let volume = place.open();
            for i in 0..50 {
                let _ = volume.unlink(format!("fifty/{i}"));
            }
            for name in ["x", "y"] {
                let _ = volume.unlink(name);
            }
            let _ = volume.rmdir("fifty");
        }
    });
}

/// A child that was refused lets go of the lock: the next one has the volume when the owner is killed, while the child
/// lives.
#[test]
fn a_child_that_is_refused_keeps_nobody_out() {
    on_each("refused", |place| {
        let ((to_parent, to_child), (to_test, to_end)) = (turns(), turns());
        let parent = Child::fork(|| {
            let volume = place.open();
            Child::fork(|| {
                hear(&to_child.0);
                assert!(matches!(volume.sync(), Err(Error::Busy(..))));
                tell(&to_test.1);
                hear(&to_end.0);
                Ok(())
            });
            volume.mkdir("parent", 0o755)?;
            volume.sync()?;
            tell(&to_child.1);
            hear(&to_parent.0);
            std::mem::forget(volume);
            Ok(())
        });
        drop(to_test.1);
        hear(&to_test.0);
        assert!(matches!(place.try_open(), Err(Error::Busy(..))), "the parent lives");
        tell(&to_parent.1);
        parent.join();
        let volume = place.open();
        volume.mkdir("next", 0o755).unwrap();
        volume.close().unwrap();
        tell(&to_end.1);
        place.check_unmounted();
    });
}

/// The timer of a policy is no use: a child that comes first has the volume, whatever the timer has committed.
#[test]
fn a_timer_does_not_use_it() {
    on_each_durable("timer", |place| {
        if !place.has_groups() {
            return;
        }
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, Policy::Shared { interval: Duration::from_millis(1) }).unwrap();
        Tree::new(&vfs, Ino::ROOT).file("a", 0o644, b"epoch").unwrap();
        let child = Child::fork(|| {
            let tree = Tree::new(&vfs, Ino::ROOT);
            // Long enough for a tick, which commits what was written before the fork.
            std::thread::sleep(Duration::from_millis(50));
            tree.file("b", 0o644, b"child").unwrap();
            drop((own(&vfs), own(&volume)));
            Ok(())
        });
        child.join();
        assert_eq!(Tree::new(&vfs, Ino::ROOT).content("a").unwrap_err(), Errno::BUSY);
        drop((vfs, volume));
        place.check_unmounted();
        assert_eq!(place.open().read_file("b").unwrap(), b"child");
    });
}

/// No number that the parent was given means anything in a child, whatever the child does before.
#[test]
fn numbers_from_before_the_fork_mean_nothing_after_it() {
    on_each_durable("numbers", |place| {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let ctx = Context::superuser();
        let (attr, handle) =
            vfs.create(&ctx, Ino::ROOT, b"a", OFlags::RDWR, Mode::from_raw_mode(0o644)).expect("make a file");
        let group = if place.has_groups() { vfs.begin().unwrap() } else { GroupId(1) };
        Child::fork(|| {
            // No use: it gives back what the child never had.
            assert_eq!(vfs.release(&ctx, handle.clone()).unwrap_err(), Errno::BADF);
            vfs.forget(attr.ino, 1);
            if place.has_groups() {
                assert_eq!(Errno::from(vfs.abort(group).unwrap_err()), Errno::BUSY);
                let within = Context { group: Some(group), ..ctx.clone() };
                assert_eq!(vfs.getattr(&within, Ino::ROOT).unwrap_err(), Errno::BUSY);
            }
            Ok(())
        })
        .join();
        vfs.write(&ctx, &handle, 0, b"parent").unwrap();
        Child::fork(|| {
            let tree = Tree::new(&vfs, Ino::ROOT);
            for i in 0..20 {
                let _ = vfs.create(
                    &ctx,
                    Ino::ROOT,
                    format!("child{i}").as_bytes(),
                    OFlags::RDWR,
                    Mode::from_raw_mode(0o644),
                );
                if place.has_groups() {
                    vfs.begin().unwrap();
                    assert_eq!(Errno::from(vfs.commit(group).unwrap_err()), Errno::BUSY);
                }
                assert_eq!(vfs.write(&ctx, &handle, 0, b"child").unwrap_err(), Errno::BADF);
                assert_eq!(vfs.getattr(&ctx, attr.ino).unwrap_err(), Errno::STALE);
            }
            assert_eq!(tree.content("a").unwrap(), b"parent");
            drop((own(&vfs), own(&volume)));
            Ok(())
        })
        .join();
        drop((vfs, volume));
        place.check_unmounted();
    });
}

/// A child finds an open file by the path that it was opened by, and no other file that is there now.
#[test]
fn a_file_that_has_moved_is_not_taken_for_another() {
    on_each_durable("moved", |place| {
        let volume = place.open();
        let (a, b) = (volume.create_file("a", 0o600).unwrap(), volume.create_file("b", 0o600).unwrap());
        volume.rename("b", "a", Rename::Exchange).unwrap();
        Child::fork(|| {
            for file in [&a, &b] {
                let error = file.write_at(0, b"wrong").unwrap_err();
                assert!(matches!(&error, Error::NotFound(why) if why.contains("before a fork")), "{error}");
            }
            volume.open_file("a")?.write_at(0, b"right")?;
            drop((own(&a), own(&b)));
            own(&volume).close()
        })
        .join();
        drop((a, b, volume));
        place.check_unmounted();
        assert_eq!(place.open().read_file("b").unwrap(), b"");
    });
}

/// With the engine `none`, what was changed on a disk is in the memory of the process alone: a child has the volume
/// only when the parent has left it.
#[test]
fn what_is_in_memory_alone_stays_with_the_parent() {
    on_each("memory", |place| {
        if place.keeps_nothing_back() {
            return;
        }
        let hold = Hold::of(place);
        write_fifty(&hold.volume);
        let parent = std::process::id().to_string();
        Child::fork(|| {
            let mut hold = own(&hold);
            let error = hold.volume.sync().unwrap_err();
            assert!(error.to_string().contains("in memory"), "{error}");
            hold.expect_busy(&parent);
            drop(hold);
            Ok(())
        })
        .join();
        hold.a.append(&[2]).unwrap();
        drop(hold);
        place.check_unmounted();
        expect_fifty(&place.open());
    });
}

/// The same of a group whose commit has returned at the order. Once it is durable, a child can come first.
#[test]
fn what_is_ordered_stays_with_the_parent_until_it_is_durable() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::new(&std::env::temp_dir(), "ordered", EngineKind::PageCacheWal, Medium::Disk);
    let volume = place.open();
    let group = volume.begin();
    group.mkdir("ordered", 0o700).unwrap();
    group.commit_atomic().unwrap();
    Child::fork(|| {
        let volume = own(&volume);
        let error = volume.metadata("ordered").unwrap_err();
        assert!(error.to_string().contains("in memory"), "{error}");
        Ok(())
    })
    .join();
    volume.sync().unwrap();
    Child::fork(|| {
        let volume = own(&volume);
        volume.metadata("ordered")?;
        volume.close()
    })
    .join();
    drop(volume);
    place.check_unmounted();
    assert!(place.open().metadata("ordered").is_ok());
}

/// A file that the kernel shows as a device, until it is dropped.
struct Loop {
    node: PathBuf,
    file: PathBuf,
}

impl Loop {
    fn new() -> Option<Loop> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "it takes the superuser and loop devices");
            println!("skipped: it takes the superuser and loop devices");
            return None;
        }
        let file = std::env::temp_dir().join(format!("wholly-forked-loop-{}", std::process::id()));
        std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
        let losetup = Command::new("losetup").args(["--find", "--show"]).arg(&file).output().unwrap();
        assert!(losetup.status.success(), "{losetup:?}");
        Some(Loop { node: String::from_utf8_lossy(&losetup.stdout).trim().into(), file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.node).status();
        let _ = std::fs::remove_file(&self.file);
    }
}

/// The kernel gives a device to one opener. A child that takes the volume over has the device, too, and one that was
/// refused lets go of it.
#[test]
fn a_device_goes_with_its_volume() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(device) = Loop::new() else { return };
    let options =
        VolumeOptions { engine: Some(EngineKind::PageCacheWal), medium: Medium::Disk, ..VolumeOptions::default() };
    Volume::format(&device.node, 0, &options).unwrap();
    // The node is not a test's to remove.
    let place = std::mem::ManuallyDrop::new(Place { image: device.node.clone(), options });
    let mut hold = Hold::of(&place);
    let child = Child::fork(|| {
        write_fifty(&hold.volume);
        assert!(matches!(place.try_open(), Err(Error::Busy(..))));
        drop(own(&hold));
        Ok(())
    });
    let pid = child.0.to_string();
    child.join();
    hold.expect_busy(&pid);
    place.check_unmounted();
    let volume = place.open();
    expect_fifty(&volume);
    let a = volume.open_file("a").unwrap();
    let (to_child, to_parent) = turns();
    let child = Child::fork(|| {
        hear(&to_child.0);
        assert!(matches!(a.append(&[7]), Err(Error::Busy(..))));
        tell(&to_parent.1);
        hear(&to_child.0);
        Ok(())
    });
    drop(to_parent.1);
    a.append(&[2]).unwrap();
    tell(&to_child.1);
    hear(&to_parent.0);
    drop(a);
    volume.close().unwrap();
    place.check_unmounted();
    tell(&to_child.1);
    child.join();
}
