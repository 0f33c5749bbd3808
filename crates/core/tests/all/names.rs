//! Names of a store against those of the host's own file system: the same calls on both, and the same trees to be seen,
//! in a group, after its commit or abort, at home, and after a process that died.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::common::{self, Dir};
use proptest::prelude::*;
use wholly::{Group, Options, Rename, SetXattr, Store};
use wholly_host::{HostMedium, HostOptions};

/// What is to be seen of an object: type and permissions, content or target, link count of what is no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    mode: u32,
    content: Vec<u8>,
    links: u32,
    owner: (u32, u32),
    /// Where it was chosen; that of a change is the clock's.
    mtime_ns: Option<i64>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in order, by which the same object is seen.
    first: String,
}

/// Times that are chosen are below, those of the clock above.
const LONG_AGO: i64 = 1_000_000_000_000_000_000;

type Tree = BTreeMap<String, Seen>;

#[derive(Clone, Debug)]
enum Op {
    Create(usize),
    Write(usize, u16, u16),
    Truncate(usize, u16),
    Mkdir(usize),
    Fifo(usize),
    Symlink(usize, usize),
    Link(usize, usize),
    Unlink(usize),
    Rmdir(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    NoReplace(usize, usize),
    Chmod(usize, u32),
    Chown(usize, Option<u32>, Option<u32>),
    /// To so many seconds and nanoseconds.
    Touch(usize, u32),
    SetXattr(usize, usize, usize, SetXattr),
    RemoveXattr(usize, usize),
}

const XATTRS: &[&str] = &[
    "user.a",
    "user.b",
    "trusted.c",
    "nothing.d",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
];

const PATHS: &[&str] =
    &["foo", "bar", "A", "A/foo", "A/bar", "A/C", "A/C/foo", "A/C/bar", "B", "B/foo", "B/bar", "B/C", "B/C/foo"];

fn op() -> impl Strategy<Value = Op> {
    let path = || 0..PATHS.len();
    prop_oneof![
        3 => path().prop_map(Op::Create),
        3 => (path(), 0u16..9000, 1u16..5000).prop_map(|(path, at, length)| Op::Write(path, at, length)),
        1 => (path(), 0u16..9000).prop_map(|(path, length)| Op::Truncate(path, length)),
        3 => path().prop_map(Op::Mkdir),
        1 => path().prop_map(Op::Fifo),
        1 => (path(), path()).prop_map(|(target, path)| Op::Symlink(target, path)),
        2 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => path().prop_map(Op::Unlink),
        2 => path().prop_map(Op::Rmdir),
        5 => (path(), path()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (path(), path()).prop_map(|(from, to)| Op::Exchange(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Op::NoReplace(from, to)),
        2 => (path(), 0u32..0o10000).prop_map(|(path, mode)| Op::Chmod(path, mode)),
        1 => (path(), owner(), owner()).prop_map(|(path, uid, gid)| Op::Chown(path, uid, gid)),
        2 => (path(), any::<u32>()).prop_map(|(path, time)| Op::Touch(path, time % 900_000_000)),
        3 => (path(), 0..XATTRS.len(), 0usize..300, how()).prop_map(|(path, name, value, how)| {
            Op::SetXattr(path, name, value, how)
        }),
        2 => (path(), 0..XATTRS.len()).prop_map(|(path, name)| Op::RemoveXattr(path, name)),
    ]
}

fn owner() -> impl Strategy<Value = Option<u32>> {
    // Who is not root may give files to himself only.
    let others: u32 = if rustix::process::geteuid().is_root() { 3 } else { 0 };
    proptest::option::of((0..=others).prop_map(|other| rustix::process::geteuid().as_raw() + other))
}

fn how() -> impl Strategy<Value = SetXattr> {
    proptest::sample::select(vec![SetXattr::Any, SetXattr::Any, SetXattr::Create, SetXattr::Replace])
}

fn time_of(time: u32) -> i64 {
    i64::from(time) * 1_000_000_000 + i64::from(time % 1000)
}

/// A value for an extended attribute.
fn value_of(name: usize, length: usize) -> Vec<u8> {
    // Linux takes empty capabilities and does not give them back; a store refuses them.
    if XATTRS[name].contains("capability") && (length == 0 || !length.is_multiple_of(4)) {
        let mut value = vec![0; 20];
        (value[3], value[4]) = (2, length as u8);
        return value;
    }
    if !XATTRS[name].contains("acl") || length.is_multiple_of(8) {
        return (0..length).map(|i| (i ^ length) as u8).collect();
    }
    // A list: what its owner, others by name, and all the others may.
    let bits = |by: usize| (length / by % 8) as u16;
    let none = u32::MAX;
    let entries: &[(u16, u16, u32)] = match length % 4 {
        0 => &[(1, bits(3), none), (4, bits(5), none), (32, bits(7), none)],
        1 => &[(1, 6, none), (2, bits(3), 7), (4, bits(5), none), (16, bits(7), none), (32, 0, none)],
        2 => &[(1, 7, none), (4, bits(2), none), (8, bits(3), 9), (16, bits(5), none), (32, bits(7), none)],
        _ => &[],
    };
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

#[derive(Clone, Debug)]
enum Step {
    Group(Vec<Op>, End),
    Checkpoint,
    Reopen(bool),
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Abort,
    /// It is parked, and applied: by the next owner of the store, or at once.
    Park(bool),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![6 => Just(End::Commit), 2 => Just(End::Abort), 2 => any::<bool>().prop_map(End::Park)]
}

fn step() -> impl Strategy<Value = Step> {
    let group = |most| (proptest::collection::vec(op(), 1..most), end());
    prop_oneof![
        8 => group(8).prop_map(|(ops, end)| Step::Group(ops, end)),
        2 => Just(Step::Checkpoint),
        2 => any::<bool>().prop_map(Step::Reopen),
    ]
}

fn bytes(op: &Op) -> Vec<u8> {
    let Op::Write(path, at, length) = op else { return Vec::new() };
    (0..*length).map(|i| (i as u8).wrapping_mul(7) ^ *at as u8 ^ *path as u8).collect()
}

/// The operation as the host does it.
fn on_host(root: &Path, op: &Op) -> Result<(), i32> {
    use rustix::fs::{CWD, FileType, Mode, RenameFlags};
    let at = |path: &usize| root.join(PATHS[*path]).into_os_string().into_string().unwrap();
    let errno = |error: std::io::Error| error.raw_os_error().unwrap();
    let renamed = |from, to, flags| {
        rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags).map_err(|errno| errno.raw_os_error())
    };
    let file = |path: &usize| fs::OpenOptions::new().read(true).write(true).open(at(path)).map_err(errno);
    match op {
        // With a default list the umask has no say.
        Op::Create(path) => {
            let mut new = fs::OpenOptions::new();
            new.write(true).create_new(true).mode(0o644).open(at(path)).map(drop).map_err(errno)
        }
        Op::Write(path, offset, _) => {
            use std::os::unix::fs::FileExt;
            if fs::metadata(at(path)).map_err(errno)?.file_type().is_fifo() {
                return Err(22);
            }
            file(path)?.write_all_at(&bytes(op), u64::from(*offset)).map_err(errno)
        }
        Op::Truncate(path, length) => {
            if fs::metadata(at(path)).map_err(errno)?.file_type().is_fifo() {
                return Err(22);
            }
            file(path)?.set_len(u64::from(*length)).map_err(errno)
        }
        Op::Mkdir(path) => fs::DirBuilder::new().mode(0o755).create(at(path)).map_err(errno),
        Op::Fifo(path) => rustix::fs::mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(0o644), 0)
            .map_err(|errno| errno.raw_os_error()),
        Op::Symlink(target, path) => std::os::unix::fs::symlink(PATHS[*target], at(path)).map_err(errno),
        Op::Link(from, to) => fs::hard_link(at(from), at(to)).map_err(errno),
        Op::Unlink(path) => rustix::fs::unlink(at(path)).map_err(|errno| errno.raw_os_error()),
        Op::Rmdir(path) => fs::remove_dir(at(path)).map_err(errno),
        Op::Rename(from, to) => renamed(from, to, RenameFlags::empty()),
        Op::Exchange(from, to) => renamed(from, to, RenameFlags::EXCHANGE),
        Op::NoReplace(from, to) => renamed(from, to, RenameFlags::NOREPLACE),
        Op::Chmod(path, mode) => {
            if fs::symlink_metadata(at(path)).map_err(errno)?.is_symlink() {
                return Err(95);
            }
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)).map_err(errno)
        }
        Op::Chown(path, uid, gid) => std::os::unix::fs::lchown(at(path), *uid, *gid).map_err(errno),
        Op::Touch(path, time) => {
            use rustix::fs::{AtFlags, Timespec, Timestamps};
            let ns = time_of(*time);
            let time = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: (ns % 1_000_000_000) as _ };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| e.raw_os_error())
        }
        Op::SetXattr(path, name, length, how) => {
            let flags = match how {
                SetXattr::Any => rustix::fs::XattrFlags::empty(),
                SetXattr::Create => rustix::fs::XattrFlags::CREATE,
                SetXattr::Replace => rustix::fs::XattrFlags::REPLACE,
            };
            rustix::fs::lsetxattr(at(path), XATTRS[*name], &value_of(*name, *length), flags)
                .map_err(|e| e.raw_os_error())
        }
        Op::RemoveXattr(path, name) => rustix::fs::lremovexattr(at(path), XATTRS[*name]).map_err(|e| e.raw_os_error()),
    }
}

/// The operation in a group.
fn in_group(group: &mut Group<'_>, op: &Op) -> wholly::Result<()> {
    let at = |path: &usize| PATHS[*path];
    match op {
        Op::Create(path) => group.create(at(path), 0o644).map(drop),
        Op::Write(path, offset, _) => {
            let file = group.open_file(at(path))?;
            group.write_at(&file, u64::from(*offset), &bytes(op))
        }
        Op::Truncate(path, length) => {
            let file = group.open_file(at(path))?;
            group.set_len(&file, u64::from(*length))
        }
        Op::Mkdir(path) => group.mkdir(at(path), 0o755),
        Op::Fifo(path) => group.mknod(at(path), 0o010_644, 0),
        Op::Symlink(target, path) => group.symlink(PATHS[*target], at(path)),
        Op::Link(from, to) => group.link(at(from), at(to)),
        Op::Unlink(path) => group.unlink(at(path)),
        Op::Rmdir(path) => group.rmdir(at(path)),
        Op::Rename(from, to) => group.rename(at(from), at(to), Rename::Replace),
        Op::Exchange(from, to) => group.rename(at(from), at(to), Rename::Exchange),
        Op::NoReplace(from, to) => group.rename(at(from), at(to), Rename::NoReplace),
        Op::Chmod(path, mode) => group.set_mode(at(path), *mode),
        Op::Chown(path, uid, gid) => group.set_owner(at(path), *uid, *gid),
        Op::Touch(path, time) => group.set_times(at(path), Some(time_of(*time)), Some(time_of(*time))),
        Op::SetXattr(path, name, length, how) => {
            group.set_xattr(at(path), XATTRS[*name], &value_of(*name, *length), *how)
        }
        Op::RemoveXattr(path, name) => group.remove_xattr(at(path), XATTRS[*name]),
    }
}

fn host_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut first: HashMap<u64, String> = HashMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let path = dir.join(entry.file_name());
            if path == Path::new(".wholly") {
                continue;
            }
            let stat = fs::symlink_metadata(root.join(&path)).unwrap();
            let content = if stat.is_file() {
                fs::read(root.join(&path)).unwrap()
            } else if stat.is_symlink() {
                fs::read_link(root.join(&path)).unwrap().into_os_string().into_encoded_bytes()
            } else {
                Vec::new()
            };
            if stat.is_dir() {
                todo.push(path.clone());
            }
            let links = if stat.is_dir() { 0 } else { stat.nlink() as u32 };
            let path = path.to_str().unwrap().to_owned();
            first
                .entry(stat.ino())
                .and_modify(|known| *known = known.clone().min(path.clone()))
                .or_insert(path.clone());
            let seen = Seen {
                mode: stat.mode(),
                content,
                links,
                owner: (stat.uid(), stat.gid()),
                mtime_ns: chosen(stat.mtime() * 1_000_000_000 + stat.mtime_nsec()),
                xattrs: xattrs(&root.join(&path)),
                first: stat.ino().to_string(),
            };
            tree.insert(path, seen);
        }
    }
    finish(tree, &first.into_iter().map(|(ino, path)| (ino.to_string(), path)).collect())
}

fn chosen(mtime_ns: i64) -> Option<i64> {
    Some(mtime_ns).filter(|&ns| ns < LONG_AGO)
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let value = |name: &str| {
        let mut value = vec![0; 300];
        let length = rustix::fs::lgetxattr(path.as_os_str().as_bytes(), name, &mut value).ok()?;
        value.truncate(length);
        Some((name.as_bytes().to_vec(), value))
    };
    XATTRS.iter().filter_map(|name| value(name)).collect()
}

fn finish(mut tree: Tree, first: &HashMap<String, String>) -> Tree {
    for seen in tree.values_mut() {
        seen.first.clone_from(&first[&seen.first]);
    }
    tree
}

fn group_tree(group: &mut Group<'_>) -> wholly::Result<Tree> {
    let mut tree = Tree::new();
    let mut first: HashMap<String, String> = HashMap::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for entry in group.read_dir(if dir.is_empty() { "." } else { &dir })? {
            let name = String::from_utf8(entry.name).unwrap();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let stat = group.metadata(&path)?;
            assert_eq!(entry.kind, stat.mode & 0o170_000, "{path}");
            let content = match entry.kind {
                0o100_000 => {
                    let file = group.open_file(&path)?;
                    let mut content = vec![0; group.len(&file) as usize];
                    let read = group.read_at(&file, 0, &mut content)?;
                    assert_eq!((read, stat.size), (content.len(), read as u64), "{path}");
                    content
                }
                0o120_000 => group.read_link(&path)?,
                _ => Vec::new(),
            };
            let is_dir = entry.kind == 0o040_000;
            if is_dir {
                todo.push(path.clone());
            }
            let ino = stat.ino.to_string();
            first
                .entry(ino.clone())
                .and_modify(|known| *known = known.clone().min(path.clone()))
                .or_insert(path.clone());
            let links = if is_dir { 0 } else { stat.nlink };
            let mut xattrs = BTreeMap::new();
            for name in group.xattrs(&path)?.into_iter().filter(|name| XATTRS.iter().any(|x| x.as_bytes() == name)) {
                let value = group.xattr(&path, std::str::from_utf8(&name).unwrap())?.expect("it is listed");
                xattrs.insert(name, value);
            }
            let (owner, mtime_ns) = ((stat.uid, stat.gid), chosen(stat.mtime_ns));
            tree.insert(path, Seen { mode: stat.mode, content, links, owner, mtime_ns, xattrs, first: ino });
        }
    }
    Ok(finish(tree, &first))
}

fn copy_tree(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

fn errors_agree(op: &Op, host: i32, store: &wholly::Error) -> bool {
    // The host opens a directory for reading only; a store opens regular files.
    let opens = matches!(op, Op::Write(..) | Op::Truncate(..)) && matches!(host, 21 | 22) && store.errno() == 22;
    // Of two reasons each names one.
    let both = [39, 17].contains(&host) && [39, 17].contains(&store.errno());
    store.errno() == host || opens || both
}

/// What was changed and is as it was after that has another time on the host only: gives both one.
fn same_times(store: &Store, model: &Path) {
    let (there, here) = (host_tree(model), group_tree(&mut store.begin()).unwrap());
    for (path, seen) in &here {
        if there.get(path).is_some_and(|other| other.mtime_ns != seen.mtime_ns) {
            let time = rustix::fs::Timespec { tv_sec: 5, tv_nsec: 5 };
            let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
            let at = model.join(path);
            rustix::fs::utimensat(
                rustix::fs::CWD,
                at.as_os_str().as_bytes(),
                &times,
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            )
            .unwrap();
            store.set_times(path, None, Some(time_of(5))).unwrap();
        }
    }
}

fn run(steps: &[Step], options: &Options, home: &Path, medium: HostMedium) {
    let root = home.join("store");
    let (model, before) = (home.join("model"), home.join("before"));
    for dir in [&root, &model] {
        fs::create_dir_all(dir.join("A/C")).unwrap();
        fs::write(dir.join("A/foo"), b"first").unwrap();
        fs::write(dir.join("bar"), b"second").unwrap();
        fs::hard_link(dir.join("bar"), dir.join("A/C/bar")).unwrap();
    }
    let host = HostOptions { medium, ..HostOptions::default() };
    Store::init_with(&root, options, host.clone()).unwrap();
    let open = || Store::open_with(&root, options.clone(), host.clone()).unwrap();
    let mut store = open();
    for step in steps {
        match step {
            Step::Group(ops, end) => {
                copy_tree(&model, &before);
                let mut group = store.begin();
                for op in ops {
                    let (host, done) = (on_host(&model, op), in_group(&mut group, op));
                    match (host, &done) {
                        (Ok(()), Ok(())) => {}
                        (Err(errno), Err(error)) if errors_agree(op, errno, error) => {}
                        (host, done) => panic!("{op:?}: the host says {host:?}, the store {done:?}"),
                    }
                }
                assert_eq!(group_tree(&mut group).unwrap(), host_tree(&model), "in the group");
                match end {
                    End::Commit => group.commit().unwrap(),
                    End::Abort => {
                        group.abort();
                        copy_tree(&before, &model);
                    }
                    End::Park(by_the_next) => {
                        let nothing = group.review().unwrap().changes().is_empty();
                        match group.park("", None) {
                            Ok(id) => {
                                if *by_the_next {
                                    drop(store);
                                    store = open();
                                }
                                store.apply(id).unwrap();
                            }
                            Err(wholly::Error::Invalid(_)) if nothing => {}
                            Err(error) => panic!("it cannot be parked: {error}"),
                        }
                        same_times(&store, &model);
                    }
                }
            }
            Step::Checkpoint => {
                store.checkpoint().unwrap();
                assert_eq!(host_tree(&root), host_tree(&model), "at home");
            }
            Step::Reopen(close) => {
                if *close {
                    store.close().unwrap();
                    assert_eq!(host_tree(&root), host_tree(&model), "at home");
                } else {
                    drop(store);
                }
                store = open();
                assert_eq!(store.recovery().conflicts, []);
            }
        }
        assert_eq!(group_tree(&mut store.begin()).unwrap(), host_tree(&model), "after {step:?}");
    }
    store.close().unwrap();
    assert_eq!(host_tree(&root), host_tree(&model), "at home at the end");
    for folder in ["blank", "anchor"] {
        let left = fs::read_dir(root.join(".wholly").join(folder)).map(|entries| entries.count());
        assert_eq!(left.unwrap_or(0), 0, "something is left in {folder}");
    }
}

/// A group's record names the last group that changed one of its files: of a call that was refused half-way there is no
/// entry, and it must not count. The log was taken for rotten.
#[test]
fn a_refused_rename_leaves_no_trace_in_the_groups_record() {
    for (dir, medium) in common::Dir::on_media("refused-rename") {
        for name in ["moved", "taken", "other"] {
            fs::write(dir.join(name), name).unwrap();
        }
        let options = Options { background: false, ..Options::default() };
        let host = HostOptions { medium, ..HostOptions::default() };
        Store::init_with(&*dir, &options, host.clone()).unwrap();
        let store = Store::open_with(&*dir, options.clone(), host.clone()).unwrap();
        let file = |name| store.open_file(name).unwrap();
        file("other").write_at(0, b"1").unwrap();
        file("moved").write_at(0, b"2").unwrap();
        let mut owner = store.begin();
        owner.write_at(&file("taken"), 0, b"3").unwrap();
        let mut group = store.begin();
        let refused = group.rename("moved", "taken", Rename::Replace);
        assert!(matches!(refused, Err(wholly::Error::Busy(..))), "{refused:?}");
        group.write_at(&file("other"), 0, b"4").unwrap();
        group.commit().unwrap();
        drop((owner, store));
        let store = Store::open_with(&*dir, options, host).unwrap();
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("other")).unwrap(), b"4ther");
        assert_eq!(fs::read(dir.join("moved")).unwrap(), b"2oved");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn as_the_host_does(steps in proptest::collection::vec(step(), 1..20)) {
        for (dir, medium) in common::Dir::on_media("names") {
            run(&steps, &Options { background: false, ..Options::default() }, &dir, medium);
        }
    }
}

/// A file that loses the name by which the log knew it hangs on an anchor while the log has something for it, and no
/// longer.
#[test]
fn an_anchor_goes_when_nobody_needs_it() {
    for (dir, medium) in Dir::on_media("idle-anchor") {
        std::fs::write(dir.join("known"), "known").unwrap();
        let host = HostOptions { medium, ..HostOptions::default() };
        let options = Options { background: false, ..Options::default() };
        Store::init_with(&*dir, &options, host.clone()).unwrap();
        let open = || Store::open_with(&*dir, options.clone(), host.clone()).unwrap();
        let anchors = || std::fs::read_dir(dir.join(".wholly/anchor")).map_or(0, |names| names.count());
        let store = open();
        // Nobody looks at the file but by the name that goes.
        std::fs::hard_link(dir.join("known"), dir.join("linked")).unwrap();
        let mut group = store.begin();
        let file = group.open_file("linked").unwrap();
        group.append(&file, b", and more").unwrap();
        group.commit().unwrap();
        drop(file);
        store.unlink("linked").unwrap();
        store.checkpoint().unwrap();
        assert_eq!(anchors(), 1, "it was dirty when it lost its name");
        for pass in 0..4 {
            store.create_file(format!("other{pass}"), 0o644).unwrap();
            store.checkpoint().unwrap();
        }
        assert_eq!(anchors(), 0);
        assert_eq!(store.metadata("known").unwrap().nlink, 1);
        let mut group = store.begin();
        let file = group.open_file("known").unwrap();
        group.append(&file, b", and more").unwrap();
        group.commit().unwrap();
        drop(file);
        drop(store);
        let store = open();
        assert_eq!((store.recovery().conflicts.len(), store.metadata("known").unwrap().nlink), (0, 1));
    }
}

/// What a file is known by when a second name of it has come and gone, and nobody has looked at the first one since.
#[test]
fn a_name_that_comes_and_goes_takes_nothing_along() {
    for (dir, medium) in Dir::on_media("come-and-gone") {
        fs::write(dir.join("a"), "0123").unwrap();
        let open = common::made_in(&dir, medium);
        let store = open();
        let file = store.open_file("a").unwrap();
        store.link("a", "d").unwrap();
        store.unlink("d").unwrap();
        store.checkpoint().unwrap();
        file.write_at(0, b"new!").unwrap();
        drop((file, store));
        let store = open();
        assert_eq!(store.recovery().conflicts, []);
        let mut seen = [0; 5];
        assert_eq!(store.open_file("a").unwrap().read_at(0, &mut seen).unwrap(), 4);
        assert_eq!(&seen[..4], b"new!");
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"new!");
    }
}

/// Whatever names a file has had, it is found by the one that it has.
#[test]
fn a_file_is_found_by_the_name_that_is_left() {
    for (dir, medium) in Dir::on_media("left") {
        fs::write(dir.join("home"), "0123").unwrap();
        let store = common::made_in(&dir, medium)();

        let mut group = store.begin();
        group.create("a", 0o644).unwrap();
        group.link("a", "b").unwrap();
        group.unlink("b").unwrap();
        assert_eq!(group.metadata("a").unwrap().nlink, 1);
        drop(group.open_file("a").unwrap());
        group.commit().unwrap();
        assert_eq!(store.metadata("a").unwrap().nlink, 1);

        store.rename("home", "away", Rename::Replace).unwrap();
        store.rename("away", "home", Rename::Replace).unwrap();
        store.link("home", "other").unwrap();
        store.unlink("other").unwrap();
        assert_eq!(store.metadata("home").unwrap().nlink, 1);
        drop(store.open_file("home").unwrap());
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("home")).unwrap(), b"0123");
    }
}

/// A pass that gives a file another name changes its time of change: that is nobody's conflict after a crash, however
/// the file was known before.
#[test]
fn a_second_name_is_no_conflict() {
    for (dir, medium) in Dir::on_media("second-name") {
        fs::write(dir.join("a"), "0123").unwrap();
        let open = common::made_in(&dir, medium);
        let store = open();
        store.link("a", "b").unwrap();
        let mut group = store.begin();
        group.set_mode("a", 0o600).unwrap();
        // So that the host's clock tells the pass from what was before.
        std::thread::sleep(std::time::Duration::from_millis(20));
        store.checkpoint().unwrap();
        group.commit().unwrap();
        store.open_file("a").unwrap().write_at(0, b"new!").unwrap();
        drop(store);
        let store = open();
        assert_eq!(store.recovery().conflicts, []);
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("b")).unwrap(), b"new!");
    }
}

/// Of two names that the host knows one goes, by a lot that was announced before that: the file is still found by the
/// other.
#[test]
fn the_other_name_is_a_home() {
    use wholly::StoreVfs;
    use wholly_vfs::{Context, Ino, Vfs};
    for (dir, medium) in Dir::on_media("other-name") {
        fs::write(dir.join("a"), "0123").unwrap();
        fs::hard_link(dir.join("a"), dir.join("b")).unwrap();
        let store = common::made_in(&dir, medium)();
        let view = StoreVfs::new(&store);
        let ctx = Context::of(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        store.create_file("before", 0o644).unwrap();
        store.announce_lot().unwrap();
        store.unlink("a").unwrap();
        let found = view.lookup(&ctx, Ino::ROOT, b"b").unwrap();
        store.take_lot_home().unwrap();
        store.take_lot_home().unwrap();
        assert_eq!(view.getattr(&ctx, found.ino).unwrap().size, 4);
        view.forget(found.ino, 1);
        drop(view);
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("b")).unwrap(), b"0123");
    }
}

/// Links lead where Linux lets them, but not out of the store's directory.
#[test]
fn paths_lead_through_links() {
    use wholly::Error;
    use wholly_vfs::Errno;
    let dir = Dir::new(std::path::Path::new("/dev/shm"), "through-links");
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/f"), "0123").unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, dir.join(name)).unwrap();
    let links = [
        ("a/b", "l"),
        ("../b/./f", "a/b/m"),
        ("a/b/f/", "slash"),
        ("a/b/f/.", "dot"),
        ("..", "up"),
        ("/a", "absolute"),
    ];
    links.iter().for_each(|(target, name)| link(target, name));
    (0..40).for_each(|i| link(&format!("{}", i + 1), &i.to_string()));
    link("l/m", "40");
    let store = common::made_in(&dir, HostMedium::Disk)();
    let size = |path: &str| store.open_file(path).map(|file| file.len());
    let refused = |path: &str| match size(path) {
        Err(Error::Refused(_, errno)) => Some(errno),
        _ => None,
    };
    assert_eq!(["l/f", "l/m"].map(|path| size(path).unwrap()), [4; 2]);
    // Of 40 links, the last two are those that lead to the file.
    assert_eq!((size("3").unwrap(), refused("2")), (4, Some(Errno::LOOP)));
    assert_eq!(["slash", "dot", "l/f/g"].map(refused), [Some(Errno::NOTDIR); 3]);
    assert_eq!(["up/a/b/f", "absolute/b/f"].map(refused), [Some(Errno::XDEV); 2]);
    store.close().unwrap();
}
