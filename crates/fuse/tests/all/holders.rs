//! Who may begin the only group of a mount, and for how long it may keep all others waiting: on the mount of a store
//! and on that of a volume.

use std::fs::{File, OpenOptions};
use std::io::{Error as IoError, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::common::{Mounted, Scratch, or_skip};
use rustix::fs::{Gid, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use wholly::{MountGroup, Options};
use wholly_error::{Error, Result};
use wholly_fuse::{Mount, MountOptions, Sharing, remount};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

const TIMEOUT: Duration = Duration::from_secs(300);

fn options() -> MountOptions {
    MountOptions { sharing: Sharing::Everybody, threads: 3, valid: Duration::ZERO, ..MountOptions::default() }
}

/// Does it on the mount of a store, and on that of a volume.
fn on_both(options: &MountOptions, act: impl Fn(&Path)) {
    let Some(mounted) = or_skip(Mounted::new(Options::default(), options)) else { return };
    act(mounted.point());
    mounted.end();
    let (home, point) = (Scratch::new(), Scratch::new());
    let image = home.path().join("volume");
    let made = VolumeOptions { engine: Some(EngineKind::FineGrainedWal), ..VolumeOptions::default() };
    Volume::format(&image, 16 << 20, &made).expect("make a volume");
    let volume = Volume::open(&image, &made).expect("open it");
    let mount = Mount::new(Arc::new(VolumeVfs::new(&volume)), point.path(), options).expect("mount it");
    let unmounter = mount.unmounter();
    let server = std::thread::spawn(move || mount.serve());
    act(point.path());
    while unmounter.unmount().is_err() {
        // Another test is just starting a program, which has all that is open here until it is executed.
        std::thread::yield_now();
    }
    server.join().expect("no panic").expect("the kernel was answered to the end");
    volume.close().expect("close it");
}

fn begin(point: &Path) -> Result<MountGroup> {
    MountGroup::begin(File::open(point).expect("open the root directory"))
}

/// What comes of a group that somebody else begins.
#[derive(Clone, Default)]
struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    lacks_override: bool,
}

impl User {
    fn of(uid: u32, gid: u32) -> User {
        User { uid, gid, ..User::default() }
    }

    /// Begins a group and aborts it, in a thread with these credentials.
    fn begins(&self, dir: &File) -> std::result::Result<(), i32> {
        let begun = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let groups: Vec<_> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
                set_thread_groups(&groups).expect("its groups");
                set_thread_gid(Gid::from_raw(self.gid)).expect("its group");
                set_thread_uid(Uid::from_raw(self.uid)).expect("its user");
                if self.lacks_override {
                    let mut sets = capabilities(None).expect("its capabilities");
                    sets.effective -= CapabilitySet::DAC_OVERRIDE;
                    set_capabilities(None, sets).expect("fewer of them");
                }
                MountGroup::begin(dir).map(drop)
            });
            thread.join().expect("no panic")
        });
        begun.map_err(|error| error.errno())
    }
}

/// An access list that gives a user all permissions, and everybody else none.
fn list_for(user: u32) -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, user), (4, 0, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The kernel lets everybody send a request who may open the root directory for reading, or was given it.
#[test]
fn who_may_not_write_to_the_root_directory_begins_no_group() {
    on_both(&options(), |point| {
        // Opened by the superuser: what counts is who asks.
        let dir = File::open(point).expect("open it");
        let set = |user, group, mode| {
            chown(point, Some(user), Some(group)).expect("chown");
            std::fs::set_permissions(point, PermissionsExt::from_mode(mode)).expect("chmod");
        };
        let refused = Err(Errno::ACCESS.raw_os_error());
        let other = User::of(1000, 1000);
        let member = User { groups: vec![4, 50], ..other.clone() };
        let bare = User { lacks_override: true, ..User::default() };
        set(0, 0, 0o755);
        assert_eq!((other.begins(&dir), member.begins(&dir)), (refused, refused), "only read");
        assert_eq!((User::default().begins(&dir), bare.begins(&dir)), (Ok(()), Ok(())), "the owner");
        set(1000, 0, 0o700);
        assert_eq!((other.begins(&dir), User::of(1001, 0).begins(&dir)), (Ok(()), refused), "the owner");
        assert_eq!((User::default().begins(&dir), bare.begins(&dir)), (Ok(()), refused), "the capability");
        set(0, 50, 0o775);
        assert_eq!((member.begins(&dir), other.begins(&dir)), (Ok(()), refused), "another group of the user");
        set(0, 1000, 0o1775);
        assert_eq!(other.begins(&dir), Ok(()), "the first group of the user");
        set(0, 0, 0o777);
        assert_eq!(other.begins(&dir), Ok(()), "all");
        set(0, 0, 0o700);
        rustix::fs::setxattr(point, "system.posix_acl_access", &list_for(1000), XattrFlags::empty()).expect("a list");
        assert_eq!((other.begins(&dir), User::of(1001, 1000).begins(&dir)), (Ok(()), refused), "the access list");
    });
}

#[test]
fn no_group_begins_where_nothing_can_be_changed() {
    on_both(&MountOptions { read_only: true, ..options() }, |point| {
        let refused = |begun: Result<MountGroup>| matches!(begun, Err(Error::Refused(_, Errno::ROFS)));
        assert!(refused(begin(point)));
        remount(point, &options()).expect("remount it");
        begin(point).expect("it can be written to now").abort().expect("abort");
        remount(point, &MountOptions { read_only: true, ..options() }).expect("remount it");
        assert!(refused(begin(point)), "again");
    });
}

/// The time of the test below, in seconds.
static NOW: AtomicU64 = AtomicU64::new(1000);

fn now() -> Duration {
    Duration::from_secs(NOW.load(Ordering::SeqCst))
}

fn pass(seconds: u64) {
    NOW.fetch_add(seconds, Ordering::SeqCst);
}

/// What this process does as another one: see [`act`].
fn another(what: &str, path: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "holders::act", "--nocapture"]).env("WHOLLY_ACT", what).env("WHOLLY_AT", path);
    String::from_utf8(command.output().expect("run it").stdout).expect("a text")
}

/// Another process begins a group, changes something, and commits.
fn try_group(path: &Path) -> String {
    another("try", path)
}

/// Time passes until another process has its group. The kernel may tell late of a call that this one has made.
fn others_come(path: &Path) -> bool {
    (0..10).any(|_| {
        pass(300);
        try_group(path).contains("committed")
    })
}

/// No test, but what [`another`] process does.
#[test]
fn act() {
    let Some(at) = std::env::var_os("WHOLLY_AT").map(PathBuf::from) else { return };
    if std::env::var_os("WHOLLY_ACT").is_some_and(|what| what == "watch") {
        let dir = File::open(&at).expect("open it");
        while MountGroup::holder(&dir).expect("it is a mount").is_some() {
            std::thread::yield_now();
        }
        return println!("ended");
    }
    match begin(&at) {
        Ok(group) => {
            std::fs::write(at.join("others"), "others").expect("nobody has it");
            group.commit().expect("commit");
            println!("committed");
        }
        Err(error) => println!("failed: {error}"),
    }
}

fn canceled<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error: IoError| error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()))
}

#[test]
fn a_group_without_calls_ends_and_others_begin_theirs() {
    on_both(&MountOptions { group_timeout: TIMEOUT, clock: now, ..options() }, |point| {
        let at = |name: &str| point.join(name);
        let holder = || MountGroup::holder(File::open(point).expect("open it")).expect("it is a mount");
        std::fs::write(at("open"), "before").expect("write");
        let mut open = OpenOptions::new().write(true).open(at("open")).expect("open");
        assert_eq!(holder(), None);
        let group = begin(point).expect("nobody has one");
        let added = OpenOptions::new().write(true).open(at("open")).expect("open");
        group.add(&added).expect("add");
        std::fs::write(at("half"), "of it").expect("write");
        pass(299);
        let found = holder().expect("this process");
        assert_eq!((found.process, found.user, found.timeout), (std::process::id(), 0, TIMEOUT));
        assert_eq!((found.held, found.idle), (Duration::from_secs(299), Duration::ZERO), "to ask is a call");
        let busy = try_group(point);
        assert!(busy.contains(&format!("process {} of user 0 has a group", std::process::id())), "{busy}");
        // Any call of the process keeps it: one that changes something, and one that only looks.
        for call in [
            |at: &Path| std::fs::write(at.join("half"), "more").expect("write"),
            |at: &Path| {
                std::fs::metadata(at.join("half")).expect("look");
            },
        ] {
            pass(299);
            call(point);
            pass(299);
            assert!(try_group(point).contains("has a group"));
            call(point);
        }
        // Those of others do not.
        pass(200);
        assert!(Command::new("ls").arg("-l").arg(point).stdout(Stdio::null()).status().expect("ls").success());
        pass(101);
        assert!(try_group(point).contains("committed"));
        // Of the group nothing is left, and its process adds nothing by halves.
        assert!(at("others").exists() && !at("half").exists());
        assert!(canceled(std::fs::write(at("half"), "the rest")));
        assert!(canceled(open.write_all(b"the rest")));
        assert!(canceled(std::fs::rename(at("open"), at("half"))));
        let others = Command::new("sh").args(["-c", "echo x >&0"]).stdin(added.try_clone().expect("dup")).output();
        assert!(!others.expect("sh").status.success(), "by a file of the group");
        assert!(matches!(begin(point), Err(Error::Refused(_, Errno::CANCELED))));
        assert!(matches!(group.add(&added), Err(Error::Refused(_, Errno::CANCELED))));
        assert_eq!(std::fs::read_to_string(at("open")).expect("read"), "before");
        let Err(Error::Refused(why, Errno::CANCELED)) = group.commit() else { panic!("it was aborted") };
        assert!(why.contains("made no calls for too long"), "{why}");
        // Now it knows.
        open.write_all(b"after").expect("it is in no group");
        for end in [|group: MountGroup| group.abort().expect("abort"), drop] {
            let group = begin(point).expect("it may again");
            std::fs::write(at("half"), "of it").expect("write");
            assert!(others_come(point));
            assert!(canceled(std::fs::write(at("half"), "the rest")));
            end(group);
            std::fs::write(at("whole"), "all of it").expect("it is in no group");
        }
        begin(point).expect("it may again").commit().expect("commit");
        drop((open, added));
    });
}

/// Nobody else has to ask.
#[test]
fn a_group_without_calls_ends_by_itself() {
    on_both(&MountOptions { group_timeout: Duration::from_millis(1), ..options() }, |point| {
        let group = begin(point).expect("nobody has one");
        // Each question would be a call of its process: another one asks.
        assert!(another("watch", point).contains("ended"));
        assert!(matches!(group.commit(), Err(Error::Refused(_, Errno::CANCELED))));
    });
}
