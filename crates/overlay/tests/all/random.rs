//! Random calls in a random tree, made plainly and in the view of a store: see `scripts.rs` for what must come out. A
//! failure names its seed: `WHOLLY_SEED=n cargo test -p wholly-overlay --test all random` runs that one again, and
//! `WHOLLY_LONG=1` runs many more.

use std::fmt::Write as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::common::objects::{Objects, named};
use crate::common::{self, OPTIONS, World, tree_of};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, fallocate, linkat, lsetxattr, mkdirat, mknodat, renameat_with, rmdir, symlinkat, unlink,
    utimensat,
};
use rustix::io::Errno;
use wholly_overlay::How;
use wholly_sim::Random;
use wholly_vfs::Groups;

/// Paths are relative to where the calls are made.
#[derive(Clone, Debug)]
enum Call {
    Make(PathBuf, u64),
    Write(PathBuf, u64, u64),
    Truncate(PathBuf, u64),
    Punch(PathBuf, u64, u64),
    Mkdir(PathBuf),
    Symlink(PathBuf),
    Mknod(PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Unlink(PathBuf),
    Rmdir(PathBuf),
    RemoveAll(PathBuf),
    Chmod(PathBuf, u32),
    Chown(PathBuf, u32),
    Touch(PathBuf, i64),
    Xattr(PathBuf, u64),
}

impl Call {
    fn make(&self, dir: &Path) -> Result<(), Errno> {
        let at = |path: &PathBuf| dir.join(path);
        let open = |path: &PathBuf| {
            // Who opens a FIFO waits for a reader otherwise.
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let opened = std::fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(at(path));
            opened.map_err(|error| Errno::from_io_error(&error).expect("a number"))
        };
        match self {
            Call::Make(path, seed) => {
                let made = std::fs::OpenOptions::new().write(true).create_new(true).open(at(path));
                let file = made.map_err(|error| Errno::from_io_error(&error).expect("a number"))?;
                let length = Random(*seed).below(20_000);
                file.write_all_at(&Random(*seed).bytes(length), 0).expect("write");
                Ok(())
            }
            Call::Write(path, offset, seed) => {
                let length = Random(*seed).below(9_000);
                open(path)?.write_all_at(&Random(*seed).bytes(length), *offset).expect("write");
                Ok(())
            }
            Call::Truncate(path, length) => {
                open(path)?.set_len(*length).expect("truncate");
                Ok(())
            }
            Call::Punch(path, offset, length) => {
                fallocate(open(path)?, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *offset, *length)
            }
            Call::Mkdir(path) => mkdirat(CWD, at(path), Mode::from_raw_mode(0o755)),
            Call::Symlink(path) => symlinkat("target", CWD, at(path)),
            Call::Mknod(path) => mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(0o600), 0),
            Call::Link(path, new) => linkat(CWD, at(path), CWD, at(new), AtFlags::empty()),
            Call::Rename(path, new) => renameat_with(CWD, at(path), CWD, at(new), RenameFlags::empty()),
            Call::Exchange(path, new) => renameat_with(CWD, at(path), CWD, at(new), RenameFlags::EXCHANGE),
            Call::Unlink(path) => unlink(at(path)),
            Call::Rmdir(path) => rmdir(at(path)),
            Call::RemoveAll(path) => {
                std::fs::remove_dir_all(at(path)).map_err(|error| Errno::from_io_error(&error).expect("a number"))
            }
            Call::Chmod(path, mode) => match std::fs::symlink_metadata(at(path)) {
                Ok(stat) if stat.is_symlink() => Ok(()),
                _ => chmodat(CWD, at(path), Mode::from_raw_mode(*mode), AtFlags::empty()),
            },
            Call::Chown(path, id) => {
                let (uid, gid) = (Uid::from_raw(*id), Gid::from_raw(id + 1));
                chownat(CWD, at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            Call::Touch(path, time) => {
                let time = Timespec { tv_sec: *time, tv_nsec: 7 };
                let times = Timestamps { last_access: time, last_modification: time };
                utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
            }
            Call::Xattr(path, value) => lsetxattr(at(path), "trusted.value", &value.to_le_bytes(), XattrFlags::empty()),
        }
    }

    fn draw(random: &mut Random, dir: &Path) -> Call {
        let paths: Vec<PathBuf> = named(dir).filter(|path| !path.as_os_str().is_empty()).collect();
        let dirs: Vec<&PathBuf> = paths.iter().filter(|path| is_dir(&dir.join(path))).collect();
        let any = |random: &mut Random| match paths.len() {
            0 => PathBuf::from("none"),
            n => paths[random.below(n as u64) as usize].clone(),
        };
        // A name of few, in a directory that is there.
        let new = |random: &mut Random| {
            let at = random.below(dirs.len() as u64 + 1) as usize;
            let name = ["a", "b", "c", "d", "e"][random.below(5) as usize];
            dirs.get(at).map_or(PathBuf::from(name), |dir| dir.join(name))
        };
        let seed = random.draw();
        match random.below(32) {
            0..=2 => Call::Make(new(random), seed),
            3..=4 => Call::Write(any(random), seed % 30_000, seed),
            5 => Call::Truncate(any(random), seed % 40_000),
            6 => Call::Punch(any(random), seed % 20_000, 1 + seed % 9_999),
            7..=9 => Call::Mkdir(new(random)),
            10 => Call::Symlink(new(random)),
            11 => Call::Mknod(new(random)),
            12..=14 => Call::Link(any(random), new(random)),
            15..=20 => Call::Rename(any(random), new(random)),
            21 => Call::Rename(any(random), any(random)),
            22..=23 => Call::Exchange(any(random), any(random)),
            24..=25 => Call::Unlink(any(random)),
            26 => Call::Rmdir(any(random)),
            27 => Call::RemoveAll(any(random)),
            28 => Call::Chmod(any(random), [0o600, 0o755, 0o4755, 0o1777][seed as usize % 4]),
            29 => Call::Chown(any(random), seed as u32 % 3),
            30 => Call::Touch(any(random), 1_000_000_000 + (seed % 1000) as i64),
            _ => Call::Xattr(any(random), seed % 5),
        }
    }
}

fn is_dir(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir())
}

/// Makes calls, as each comes of what is there by then; gives them.
fn draw_all(random: &mut Random, count: u64, dir: &Path) -> Vec<(Call, Result<(), Errno>)> {
    let calls = (0..count).map(|_| {
        let call = Call::draw(random, dir);
        let done = call.make(dir);
        (call, done)
    });
    calls.collect()
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let parent = common::parents()[random.below(2) as usize];
    let how = if random.below(2) == 0 { How::Adopt } else { How::Copy };
    let mut world = World::unmounted(parent, "");
    let count = random.below(30);
    for (call, done) in draw_all(&mut random, count, &world.plain) {
        assert_eq!(call.make(&world.dir), done);
    }
    let mut told = format!("seed {seed}, {how:?}, below {}\n", parent.display());
    for path in named(&world.plain) {
        let _ = writeln!(told, "  there: {}", path.display());
    }
    let plain_objects = Objects::of(&world.plain);
    let objects = Objects::of(&world.dir);
    world.mount(OPTIONS);
    let count = 1 + random.below(40);
    for (call, done) in draw_all(&mut random, count, &world.plain) {
        let _ = writeln!(told, "  {call:?}: {done:?}");
        assert_eq!(call.make(&world.view), done, "{told}");
    }
    let seen = tree_of(&world.view);
    world.unmount();
    let vfs = world.vfs();
    let group = vfs.begin().expect("begin");
    let taken = world.take_up(&vfs, group, how).unwrap_or_else(|error| panic!("{told}{error}"));
    assert_eq!(taken.overtaken, [], "{told}");
    vfs.commit(group).unwrap_or_else(|error| panic!("{told}{error}"));
    drop(vfs);
    world.remove_store();
    let (is, wanted) = (tree_of(&world.dir), tree_of(&world.plain));
    let differs = is.difference(&seen);
    assert!(differs.is_empty(), "not as it was seen: {told}{differs}");
    let differs = is.of_any_run(&[]).difference(&wanted.of_any_run(&[]));
    assert!(differs.is_empty(), "not as plainly: {told}{differs}");
    assert_eq!(objects.kept(&world.dir), plain_objects.kept(&world.plain), "what each was before: {told}");
}

#[test]
fn random_calls() {
    if !common::may_mount() {
        return;
    }
    if let Ok(seed) = std::env::var("WHOLLY_SEED") {
        return run(seed.parse().expect("a number"));
    }
    let seeds = if std::env::var_os("WHOLLY_LONG").is_some() { 3000 } else { 150 };
    (0..seeds).for_each(run);
}
