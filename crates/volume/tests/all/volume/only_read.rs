//! Checks of what is only read, and who may use a file or a device beside whom.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    CWD, FallocateFlags, FileType, MemfdFlags, Mode, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate,
    memfd_create, mknodat,
};
use wholly_error::Error;
use wholly_posix::Tree;
use wholly_vfs::Ino;
use wholly_volume::{EngineKind, Medium, Object, Volume, VolumeOptions, VolumeVfs};

const BYTES: u64 = 4 << 20;

fn options(engine: EngineKind) -> VolumeOptions {
    VolumeOptions { engine: Some(engine), cache_bytes: 1 << 20, force: true, ..VolumeOptions::default() }
}

/// A file in memory, with a volume that has a file.
fn volume(engine: EngineKind, unmounts: bool) -> (OwnedFd, PathBuf) {
    let file = memfd_create("volume", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file in memory");
    ftruncate(&file, BYTES).expect("its length");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Volume::format(&path, BYTES, &options(engine)).expect("make a volume");
    let volume = Volume::open(&path, &options(engine)).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    Tree::new(&vfs, Ino::ROOT).file("file", 0o644, &[7; 10_000]).expect("make a file");
    drop(vfs);
    match unmounts {
        true => volume.close().expect("close it"),
        false => volume.abandon(),
    }
    (file, path)
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("read")
}

/// A check, and a look at what stands there, change nothing of a file, and need no right to. Holes stay holes.
#[test]
fn a_check_changes_nothing() {
    for (engine, unmounts) in EngineKind::ALL.iter().flat_map(|engine| [(*engine, true), (*engine, false)]) {
        let what = format!("{}, unmounted: {unmounts}", engine.name());
        let (file, path) = volume(engine, unmounts);
        if unmounts {
            let used = Volume::check(&path).expect("check it").last_used_block + 1;
            let (from, to) = (used * 4096, BYTES - 4096);
            assert!(from < to, "{what}: there are free blocks at the end");
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, from, to - from).expect("make a hole");
        }
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK).expect("seal it");
        let (bytes, before) = (content(&path), fstat(&file).expect("stat"));
        let checked = Volume::check(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((checked.findings, checked.is_clean), (vec![], unmounts), "{what}");
        let dumped = Volume::dump(&path, Some(Object::Path(b"file"))).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(dumped.inode.and_then(|inode| inode.owned).expect("an inode").size, 10_000, "{what}");
        let after = fstat(&file).expect("stat");
        assert_eq!((after.st_blocks, after.st_mtime_nsec), (before.st_blocks, before.st_mtime_nsec), "{what}");
        assert!(content(&path) == bytes, "{what}");
    }
}

/// Any number of checks run at once. Nobody uses the volume beside one.
#[test]
fn checks_run_beside_each_other_and_alone() {
    let (_file, path) = volume(EngineKind::None, true);
    let mut looks = 0;
    let checked = Volume::check_watched(&path, &mut |_| {
        looks += 1;
        assert_eq!(Volume::check(&path).expect("another check").findings, []);
        let refused = Volume::open(&path, &options(EngineKind::None));
        assert!(matches!(refused, Err(Error::Busy(..))), "{refused:?}");
        ControlFlow::Continue(())
    });
    assert_eq!(checked.expect("check it").findings, []);
    assert!(looks > 0);
    let volume = Volume::open(&path, &options(EngineKind::None)).expect("the checks are over");
    assert!(matches!(Volume::check(&path), Err(Error::Busy(..))));
    volume.close().expect("close it");
}

/// A loop device over a file.
struct Device {
    node: PathBuf,
    dir: PathBuf,
}

impl Device {
    fn new(name: &str) -> Option<Device> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "it takes the superuser and loop devices");
            println!("skipped: it takes the superuser and loop devices");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("wholly-device-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("mkdir");
        let file = std::fs::File::create(dir.join("file")).expect("a file");
        file.set_len(BYTES).expect("its length");
        Some(Device { node: attach(&dir, &[]), dir })
    }

    /// From now on it can only be read. (`blockdev --setro` would outlast the loop device, for its next user.)
    fn can_only_be_read(&mut self) {
        assert!(Command::new("losetup").arg("-d").arg(&self.node).status().expect("losetup").success());
        self.node = attach(&self.dir, &["--read-only"]);
    }

    /// Another node of the device.
    fn other_node(&self) -> PathBuf {
        let path = self.dir.join("node");
        let device = rustix::fs::stat(&self.node).expect("stat").st_rdev;
        mknodat(CWD, path.as_os_str().as_bytes(), FileType::BlockDevice, Mode::RUSR | Mode::WUSR, device)
            .expect("mknod");
        path
    }
}

/// A loop device over the file in `dir`.
fn attach(dir: &Path, options: &[&str]) -> PathBuf {
    let mut losetup = Command::new("losetup");
    let attached = losetup.args(options).args(["--find", "--show"]).arg(dir.join("file")).output().expect("losetup");
    assert!(attached.status.success(), "{attached:?}");
    String::from_utf8_lossy(&attached.stdout).trim().into()
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.node).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A child process has copies of all descriptors from its fork to its exec. They do not keep a closed volume locked.
#[test]
fn a_copy_of_a_descriptor_keeps_nobody_out() {
    let (_file, path) = volume(EngineKind::FineGrainedWal, true);
    let volume = Volume::open(&path, &options(EngineKind::FineGrainedWal)).expect("open it");
    let (here, there) = UnixStream::pair().expect("a pair");
    let starts = std::thread::spawn(move || {
        let mut command = Command::new("true");
        let wait = move || {
            rustix::io::write(&there, b"!")?;
            rustix::io::read(&there, &mut [0; 1])?;
            Ok(())
        };
        // SAFETY: in the new process there are two system calls, and no memory is allocated.
        unsafe { command.pre_exec(wait) };
        command.status()
    });
    rustix::io::read(&here, &mut [0; 1]).expect("it has its copies");
    volume.close().expect("close it");
    for _ in 0..2 {
        Volume::open(&path, &options(EngineKind::FineGrainedWal)).expect("open it again").close().expect("close it");
        assert_eq!(Volume::check(&path).expect("nobody has it").findings, []);
    }
    rustix::io::write(&here, b"!").expect("it goes on");
    assert!(starts.join().expect("a thread").expect("it began").success());
}

/// A device is one thing, whichever of its nodes somebody takes. One that cannot be written to can be checked.
#[test]
fn a_device_has_one_user() {
    let Some(mut device) = Device::new("one") else { return };
    let options = VolumeOptions { medium: Medium::Disk, ..options(EngineKind::None) };
    Volume::format(&device.node, 0, &options).expect("make a volume");
    let volume = Volume::open(&device.node, &options).expect("open it");
    let other = device.other_node();
    for path in [&device.node, &other] {
        let refused =
            [Volume::open(path, &options).map(drop), Volume::check(path).map(drop), Volume::format(path, 0, &options)];
        for refused in refused {
            let Err(Error::Busy(_, why)) = &refused else { panic!("{}: {refused:?}", path.display()) };
            assert!(why.starts_with(&format!("process {} (", std::process::id())), "{why}");
        }
    }
    volume.close().expect("close it");
    assert_eq!(Volume::check(&other).expect("nobody has it").findings, []);

    device.can_only_be_read();
    assert_eq!(Volume::check(&device.node).expect("it can be read").findings, []);
    assert!(matches!(Volume::open(&device.node, &options), Err(Error::Media(_))));
}
