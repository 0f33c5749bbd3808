//! What holds on the mount of a store and on that of a volume alike, where space is short: both have 48 MiB.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::common::{Mounted, Scratch, or_skip};
use wholly::{MountGroup, Options};
use wholly_fuse::{Mount, MountOptions};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

const MIB: usize = 1 << 20;

/// A file system with little space, taken away on drop.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// Does it on the mount of a store, and on that of a volume.
fn on_both(act: impl Fn(&Path)) {
    let home = Scratch::new();
    let small = mount("wholly-fuse", home.path(), "tmpfs", MountFlags::empty(), Some(c"size=48m"));
    let Some(()) = or_skip(small.map_err(|errno| format!("mount a tmpfs: {errno}"))) else { return };
    let small = Small(home.path().to_path_buf());
    let store = Options { log_max_bytes: 2 << 20, ..Options::default() };
    let options = MountOptions { threads: 3, ..MountOptions::default() };
    let Some(mounted) = or_skip(Mounted::of(home, store, &options)) else { return };
    act(mounted.point());
    drop((mounted.end(), small));

    let (home, point) = (Scratch::new(), Scratch::new());
    let image = home.path().join("volume");
    let made = VolumeOptions { engine: Some(EngineKind::FineGrainedWal), cache_bytes: MIB, ..VolumeOptions::default() };
    Volume::format(&image, 48 << 20, &made).expect("make a volume");
    let volume = Volume::open(&image, &made).expect("open it");
    let mount = Mount::new(Arc::new(VolumeVfs::new(&volume)), point.path(), &options).expect("mount it");
    let unmounter = mount.unmounter();
    let server = std::thread::spawn(move || mount.serve());
    act(point.path());
    while unmounter.unmount().is_err() {
        // Another test is just starting a program, which has all that is open here until it is executed.
        std::thread::yield_now();
    }
    server.join().expect("no panic").expect("the kernel was answered to the end");
    volume.close().expect("close it");
    assert_eq!(Volume::check(&image).expect("check it").findings, []);
}

fn begin(point: &Path) -> MountGroup {
    MountGroup::begin(File::open(point).expect("open the root directory")).expect("nobody has one")
}

fn is_all(path: &Path, byte: u8, length: usize) -> bool {
    let content = std::fs::read(path).expect("read");
    content.len() == length && content.iter().all(|found| *found == byte)
}

/// Another process writes to a file until there is no space. Returns how many bytes it has then.
fn fill(point: &Path, name: &str) -> u64 {
    let mut command = Command::new("sh");
    let script = format!("while head -c 262144 /dev/zero >> {name}; do :; done; exit 3");
    let filled = command.args(["-c", &script]).current_dir(point).stderr(Stdio::piped()).output().expect("run sh");
    let said = String::from_utf8_lossy(&filled.stderr);
    assert!(filled.status.code() == Some(3) && said.contains("No space left"), "{filled:?}");
    std::fs::metadata(point.join(name)).expect("it is there").len()
}

fn is_full<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()))
}

/// Tries until it is so. The kernel does not wait for what it tells of a last close, and until then a removed file has
/// its space.
fn comes(is_so: impl Fn() -> bool) -> bool {
    (0..12_000).any(|_| {
        is_so() || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            false
        }
    })
}

/// A group writes three times as much as there is log, and six times as much as there is cache, over content.
#[test]
fn a_group_is_larger_than_log_and_cache() {
    const LENGTH: usize = 6 * MIB;
    on_both(|point| {
        let path = point.join("file");
        std::fs::write(&path, vec![1; LENGTH]).expect("write");
        for commits in [false, true] {
            let group = begin(point);
            let file = OpenOptions::new().write(true).open(&path).expect("open");
            for at in (0..LENGTH).step_by(1 << 16) {
                file.write_all_at(&[2; 1 << 16], at as u64).expect("write over it");
            }
            drop(file);
            assert!(is_all(&path, 2, LENGTH));
            if commits { group.commit() } else { group.abort() }.expect("it ends");
            assert!(is_all(&path, 1 + u8::from(commits), LENGTH), "committed: {commits}");
        }
    });
}

/// On a full mount a group's call is refused, and the group can be aborted; files can be removed, and their space is
/// there for others.
#[test]
fn a_full_mount_can_be_emptied() {
    on_both(|point| {
        let (kept, new) = (point.join("kept"), point.join("new"));
        std::fs::write(&kept, vec![1; MIB]).expect("write");
        let first = fill(point, "filler");
        assert!(first > 16 * MIB as u64, "{first}");
        let group = begin(point);
        assert!(is_full(std::fs::write(&new, vec![2; 4 * MIB])));
        assert!(is_full(
            OpenOptions::new().append(true).open(&kept).and_then(|mut kept| kept.write_all(&[3; 4 << 20]))
        ));
        group.abort().expect("abort");
        assert!(!new.exists() && is_all(&kept, 1, MIB), "it has changed nothing");
        std::fs::remove_file(point.join("filler")).expect("it can be removed");
        assert!(comes(|| fill(point, "filler") + 2 * MIB as u64 > first), "{first} bytes at first");
        std::fs::remove_file(point.join("filler")).expect("it can be removed");
        let in_a_group = || {
            let group = begin(point);
            let written = std::fs::write(&new, vec![2; 4 * MIB]);
            if written.is_ok() { group.commit() } else { group.abort() }.expect("it ends");
            written.is_ok()
        };
        assert!(comes(in_a_group), "there is space again");
        assert!(is_all(&new, 2, 4 * MIB));
    });
}

/// What a group removes is nobody's before it commits, however full the mount gets: it may be aborted.
#[test]
fn nobody_takes_what_a_group_has_freed() {
    const LENGTH: usize = 8 * MIB;
    on_both(|point| {
        let old = point.join("old");
        std::fs::write(&old, vec![1; LENGTH]).expect("write");
        let group = begin(point);
        std::fs::remove_file(&old).expect("remove");
        let first = fill(point, "filler");
        group.abort().expect("abort");
        assert!(is_all(&old, 1, LENGTH));
        std::fs::remove_file(point.join("filler")).expect("remove");
        let group = begin(point);
        std::fs::remove_file(&old).expect("remove");
        group.commit().expect("commit");
        let more = first + (LENGTH - 2 * MIB) as u64;
        assert!(comes(|| fill(point, "filler") > more), "{first} bytes beside it, and no {more} in its place");
    });
}

/// No test, but what another process does: it begins a group, changes something, and is killed.
#[test]
fn act() {
    let Some(at) = std::env::var_os("WHOLLY_BOTH").map(PathBuf::from) else { return };
    let group = MountGroup::begin(File::open(&at).expect("open it")).expect("nobody has one");
    for name in ["file", "made"] {
        std::fs::write(at.join(name), "another's").expect("write");
    }
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    group.commit().expect("nobody kills it");
}

#[test]
fn the_death_of_its_process_aborts_a_group() {
    on_both(|point| {
        std::fs::write(point.join("file"), "before").expect("write");
        for _ in 0..3 {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args(["--exact", "both::act", "--nocapture"]).env("WHOLLY_BOTH", point);
            let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("run it");
            let (mut said, mut byte) = (String::new(), [0]);
            while !said.contains("ready") {
                other.stdout.as_mut().expect("it was piped").read_exact(&mut byte).expect("it is alive");
                said.push(byte[0] as char);
            }
            assert!(point.join("made").exists());
            other.kill().expect("kill it");
            other.wait().expect("it is dead");
            // A group that begins comes after the end of the one before it.
            let group = begin(point);
            assert_eq!(std::fs::read(point.join("file")).expect("read"), b"before");
            assert!(!point.join("made").exists());
            group.commit().expect("commit");
        }
    });
}

/// What is written to the mapped memory of a file that was added is the group's, and goes with it.
#[test]
fn mapped_memory_goes_with_its_group() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    on_both(|point| {
        let path = point.join("file");
        std::fs::write(&path, [b'-'; 8192]).expect("write");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
        // SAFETY: a new mapping, of which only this test knows.
        let map =
            unsafe { mmap(std::ptr::null_mut(), 8192, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0) };
        let map = map.expect("map it");
        for commits in [false, true] {
            let group = begin(point);
            group.add(&file).expect("add");
            // SAFETY: inside of the mapping, which lives until the end of the test.
            unsafe { map.cast::<u8>().add(5000).write_volatile(b'x') };
            // SAFETY: the whole mapping.
            unsafe { msync(map, 8192, MsyncFlags::SYNC) }.expect("sync it");
            if commits { group.commit() } else { group.abort() }.expect("it ends");
            let content = std::fs::read(&path).expect("read");
            assert_eq!(content[5000], if commits { b'x' } else { b'-' }, "committed: {commits}");
            assert!(content.iter().enumerate().all(|(at, byte)| at == 5000 || *byte == b'-'));
        }
        // SAFETY: nobody uses it any more.
        unsafe { munmap(map, 8192) }.expect("unmap it");
    });
}
