//! The calls of `tar x` through the view of one explicit group, or on the host and then adopted; and the tree that they
//! leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly::{LAYER, Options, Store, StoreVfs};
use wholly_host::HostFs;
use wholly_sim::{Trace, World};
use wholly_vfs::{Context, GroupId, Groups, Ino, Mode, OFlags, SetAttr, SetTime, Timestamp, Vfs};

use super::Archive;
use crate::setting::Setting;
use crate::tree::SITE;
use crate::workload::{data, mix};

/// Files of the archive.
pub(super) const FILES: u32 = 10_000;
/// Of which as many are in one directory.
const FILES_OF_DIRECTORY: u32 = 500;
/// Bytes of each.
const FILE_BYTES: usize = 1 << 10;

/// What stands in the store's directory before.
const OTHERS: [&str; 2] = ["before", "there/before"];
const OTHER_DIR: &str = "there";

/// What identifies the store.
const VOLUME_ID: [u8; 16] = *b"crash explorer.t";

/// What shows of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Type and permission bits.
    pub mode: u32,
    pub owner: (u32, u32),
    /// Of a directory 1, whatever is in it.
    pub nlink: u32,
    /// Of a directory nothing.
    pub size: u64,
    /// When it was read last; none where looking may have changed that.
    pub atime_ns: Option<i64>,
    /// When it was changed last; none where the clock says.
    pub mtime_ns: Option<i64>,
    /// A hash of the content.
    pub content: u64,
}

/// All objects by path.
pub(super) type Tree = BTreeMap<String, Entry>;

/// What was done, and what it should leave.
pub(super) struct Recorded {
    pub trace: Trace,
    /// The number of events when the group began, when its commit did, when that had returned, and when its pass had.
    pub began: u64,
    pub commit: u64,
    pub committed: u64,
    pub home: u64,
    /// What there is without the archive, and with it.
    pub sides: [Tree; 2],
    /// Why it ended early.
    pub failure: Option<String>,
}

/// How the store is opened: as users open it, but with one thread, so that a run is the same each time.
pub(super) fn options() -> Options {
    Options { background: false, checkpoint_threads: 1, accept_copy: true, spare_bytes: 0, ..Options::default() }
}

pub(super) fn open(world: &Arc<World>) -> wholly::Result<Store> {
    Store::open_on(world.log(), world.host(), options(), None)
}

/// Unpacks the archive in a recorded world, commits, and takes all home.
pub(super) fn record(archive: Archive, setting: &Setting) -> Recorded {
    let world = World::new(setting.sim.clone());
    world.add_dir(OTHER_DIR);
    (1..).zip(OTHERS).for_each(|(n, path)| world.add_file(path, &data(u64::MAX - n, 700)));
    let mut recorded = Recorded {
        trace: world.trace(),
        began: 0,
        commit: 0,
        committed: u64::MAX,
        home: u64::MAX,
        sides: [before(), with_archive()],
        failure: None,
    };
    let done = crate::quiet::catch(|| all(archive, &world, &mut recorded).map_err(|error| error.to_string()));
    recorded.failure = done.unwrap_or_else(|panic| Err(format!("panic: {panic}"))).err();
    recorded.trace = world.trace();
    recorded
}

fn all(archive: Archive, world: &Arc<World>, recorded: &mut Recorded) -> wholly::Result<()> {
    Store::format_on(&*world.log(), &options(), VOLUME_ID)?;
    let store = open(world)?;
    recorded.began = world.now();
    let view = StoreVfs::new(&store);
    let group = view.begin()?;
    match archive {
        Archive::Unpacked => {
            unpack(&view, group).map_err(|errno| wholly_media::Error::new("unpack", "the archive", errno))?;
        }
        Archive::Adopted => {
            store.make_layer()?;
            unpack_in_layer(&*world.host())?;
            for n in (0..FILES).step_by(FILES_OF_DIRECTORY as usize) {
                view.import(group, Ino::ROOT, dir(n).as_bytes(), in_layer(&dir(n)).as_bytes())?;
            }
        }
    }
    recorded.commit = world.now();
    view.commit(group)?;
    recorded.committed = world.now();
    store.checkpoint()?;
    recorded.home = world.now();
    Ok(())
}

/// The context of a user whom the kernel lets do all this, as it is for the superuser's mount.
fn context(group: GroupId) -> Context {
    Context { group: Some(group), is_permitted: true, ..Context::superuser() }
}

/// What tar asks the kernel for, and the kernel asks of the view.
fn unpack(view: &StoreVfs, group: GroupId) -> Result<(), wholly_vfs::Errno> {
    let ctx = context(group);
    let mut dirs = Vec::new();
    for n in 0..FILES {
        if n % FILES_OF_DIRECTORY == 0 {
            let made = view.mkdir(&ctx, Ino::ROOT, dir(n).as_bytes(), Mode::from_raw_mode(0o700))?;
            view.setattr(&ctx, made.ino, None, &owner_of(n))?;
            dirs.push((n, made.ino));
        }
        let (_, parent) = *dirs.last().expect("the first file comes with its directory");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let (made, handle) = view.create(&ctx, parent, name(n).as_bytes(), flags, Mode::from_raw_mode(0o600))?;
        let content = data(u64::from(n), FILE_BYTES);
        assert_eq!(view.write(&ctx, &handle, 0, &content)?, content.len(), "there is space");
        view.setattr(&ctx, made.ino, Some(&handle), &times_of(n))?;
        view.setattr(&ctx, made.ino, Some(&handle), &owner_of(n))?;
        view.setattr(&ctx, made.ino, Some(&handle), &mode_of(mode(n)))?;
        view.release(&ctx, handle)?;
        view.forget(made.ino, 1);
    }
    // Directories come last: what is made in them changes their times, and takes permission.
    for (n, ino) in dirs {
        view.setattr(&ctx, ino, None, &times_of(n))?;
        view.setattr(&ctx, ino, None, &mode_of(DIR_MODE))?;
        view.forget(ino, 1);
    }
    Ok(())
}

fn in_layer(path: &str) -> String {
    format!("{LAYER}/{path}")
}

/// The same on the host, by a program that syncs nothing.
fn unpack_in_layer(host: &dyn HostFs) -> wholly_media::Result<()> {
    let set = |path: &str, n: u32| {
        let (uid, gid) = owner(n);
        host.set_owner(SITE, path.as_bytes(), Some(uid), Some(gid))?;
        host.set_times(SITE, path.as_bytes(), Some(atime_ns(n)), Some(mtime_ns(n)))
    };
    for n in 0..FILES {
        if n % FILES_OF_DIRECTORY == 0 {
            host.mkdir(SITE, in_layer(&dir(n)).as_bytes(), DIR_MODE)?;
        }
        let path = in_layer(&format!("{}/{}", dir(n), name(n)));
        host.create(SITE, path.as_bytes(), mode(n))?.write_at(SITE, 0, &data(u64::from(n), FILE_BYTES))?;
        set(&path, n)?;
    }
    (0..FILES).step_by(FILES_OF_DIRECTORY as usize).try_for_each(|n| set(&in_layer(&dir(n)), n))
}

const DIR_MODE: u32 = 0o750;

fn mode(n: u32) -> u32 {
    [0o644, 0o600, 0o755, 0o440][(n % 4) as usize]
}

fn owner(n: u32) -> (u32, u32) {
    [(1000, 1000), (0, 0), (1001, 50)][(n % 3) as usize]
}

fn mtime_ns(n: u32) -> i64 {
    (1_600_000_000 + i64::from(n) * 61) * 1_000_000_000
}

/// Not the same, so that one never passes for the other; later, so that nobody's look raises it.
fn atime_ns(n: u32) -> i64 {
    mtime_ns(n) + 5_000_000_007
}

fn owner_of(n: u32) -> SetAttr {
    let (uid, gid) = owner(n);
    SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() }
}

fn mode_of(mode: u32) -> SetAttr {
    SetAttr { mode: Some(Mode::from_raw_mode(mode)), ..SetAttr::default() }
}

fn times_of(n: u32) -> SetAttr {
    let at = |ns: i64| SetTime::At(Timestamp { sec: ns / 1_000_000_000, nsec: (ns % 1_000_000_000) as u32 });
    SetAttr { atime: at(atime_ns(n)), mtime: at(mtime_ns(n)), ..SetAttr::default() }
}

/// The directory of a file.
fn dir(n: u32) -> String {
    format!("d{:03}", n / FILES_OF_DIRECTORY)
}

fn name(n: u32) -> String {
    format!("file{n:05}")
}

/// A hash of a content.
pub(super) fn digest(content: &[u8]) -> u64 {
    let word = |part: &[u8]| part.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    content.chunks(8).fold(content.len() as u64, |hash, part| mix(hash ^ word(part)))
}

fn file_entry(mode: u32, content: &[u8]) -> Entry {
    Entry {
        mode: 0o100_000 | mode,
        owner: (0, 0),
        nlink: 1,
        size: content.len() as u64,
        atime_ns: None,
        mtime_ns: None,
        content: digest(content),
    }
}

fn dir_entry(mode: u32) -> Entry {
    Entry { mode: 0o040_000 | mode, nlink: 1, size: 0, content: 0, ..file_entry(mode, &[]) }
}

fn before() -> Tree {
    let others = (1..).zip(OTHERS).map(|(n, path)| (path.to_string(), file_entry(0o644, &data(u64::MAX - n, 700))));
    others.chain([(OTHER_DIR.into(), dir_entry(0o755))]).collect()
}

fn with_archive() -> Tree {
    let mut tree = before();
    let as_unpacked = |entry: Entry, n: u32| Entry {
        owner: owner(n),
        atime_ns: Some(atime_ns(n)),
        mtime_ns: Some(mtime_ns(n)),
        ..entry
    };
    for n in 0..FILES {
        if n % FILES_OF_DIRECTORY == 0 {
            tree.insert(dir(n), as_unpacked(dir_entry(DIR_MODE), n));
        }
        let entry = file_entry(mode(n), &data(u64::from(n), FILE_BYTES));
        tree.insert(format!("{}/{}", dir(n), name(n)), as_unpacked(entry, n));
    }
    tree
}
