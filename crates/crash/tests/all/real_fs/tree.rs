//! What the recorded program does to a tree, group by group, and the tree after so many groups.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use wholly::{SetXattr, Store};
use wholly_vfs::Rename;

/// How many groups there are.
pub const GROUPS: u32 = 40;

/// The extended attribute that some objects have.
const TAG: &str = "user.tag";

/// An object that can be seen: content or target, permission bits, how many names, value of the extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `f`, `d` or `l`.
    kind: char,
    mode: u32,
    names: usize,
    content: Vec<u8>,
    tag: Option<Vec<u8>>,
}

/// All that can be seen, by path.
pub type Seen = BTreeMap<String, Object>;

/// What differs, in words.
pub fn difference(expected: &Seen, seen: &Seen) -> Option<String> {
    let brief = |object: Option<&Object>| match object {
        Some(object) => {
            format!("{} {:o} {} names {} bytes", object.kind, object.mode, object.names, object.content.len())
        }
        None => "nothing".into(),
    };
    let mut paths = expected.keys().chain(seen.keys());
    let path = paths.find(|path| expected.get(*path) != seen.get(*path))?;
    Some(format!("{path} is {}, expected {}", brief(seen.get(path)), brief(expected.get(path))))
}

/// The tree as the groups leave it: names by path, what they name by number.
#[derive(Clone, Default)]
struct Tree {
    names: BTreeMap<String, usize>,
    objects: Vec<Object>,
}

/// One change of a group.
#[derive(Clone, Debug)]
pub enum Op {
    Write(&'static str, u64, Vec<u8>),
    Append(String, Vec<u8>),
    SetLen(&'static str, u64),
    Create(String, Vec<u8>),
    Mkdir(String),
    Symlink(&'static str, String),
    Link(&'static str, String),
    Unlink(String),
    Rename(String, String),
    Exchange(&'static str, &'static str),
    SetMode(String, u32),
    Tag(String, Vec<u8>),
    Untag(String),
}

/// What a group does.
pub fn ops(group: u32) -> Vec<Op> {
    let (n, byte) = (u64::from(group), group as u8 + 1);
    let mut ops = vec![
        Op::Write("a", n * 17_777 % 80_000, vec![byte; 300 + group as usize * 4001 % 30_000]),
        Op::Append("b".into(), vec![byte; 50 + group as usize * 977 % 7000]),
    ];
    if group % 5 == 3 {
        ops.push(Op::SetLen("a", 40_000 + n * 100));
    }
    if group % 4 == 1 {
        let name = format!("dir/c{group}");
        ops.extend([Op::Create(name.clone(), vec![byte; 100 + group as usize * 900]), Op::Tag(name, vec![byte; 40])]);
    }
    match group % 6 {
        // A directory with a file, which then moves into another one, and a file that moves out of it.
        2 => ops.extend([
            Op::Mkdir(format!("d{group}")),
            Op::Create(format!("d{group}/f"), vec![byte; 2000]),
            Op::SetMode(format!("d{group}"), 0o700),
        ]),
        4 => ops.push(Op::Rename(format!("d{}", group - 2), format!("dir/d{}", group - 2))),
        5 => ops.push(Op::Rename(format!("dir/d{}/f", group - 3), format!("f{}", group - 3))),
        _ => {}
    }
    match group % 5 {
        2 => ops.push(Op::Link("b", format!("dir/b{group}"))),
        4 => ops.push(Op::Unlink(format!("dir/b{}", group - 2))),
        _ => {}
    }
    if group % 7 >= 3 {
        // A file is replaced as programs do it.
        ops.extend([
            Op::Create("dir/new".into(), vec![byte; 5000]),
            Op::SetMode("dir/new".into(), 0o640),
            Op::Rename("dir/new".into(), "replaced".into()),
        ]);
    }
    match group % 8 {
        3 => ops.push(Op::Exchange("x", "dir/y")),
        5 => ops.extend([Op::SetMode("a".into(), 0o600 | (group & 0o77)), Op::Tag("dir".into(), vec![byte; 9])]),
        6 => ops.push(Op::Symlink("../a", format!("dir/l{group}"))),
        7 => ops.extend([Op::Rename(format!("dir/l{}", group - 1), "l".into()), Op::Untag("dir".into())]),
        _ => {}
    }
    ops
}

impl Tree {
    fn initial() -> Tree {
        let mut tree = Tree::default();
        tree.add("dir", 'd', 0o755, Vec::new());
        for (name, content) in initial_files() {
            tree.add(name, 'f', 0o644, content);
        }
        tree
    }

    fn add(&mut self, path: &str, kind: char, mode: u32, content: Vec<u8>) {
        self.names.insert(path.into(), self.objects.len());
        self.objects.push(Object { kind, mode, names: 0, content, tag: None });
    }

    fn at(&mut self, path: &str) -> &mut Object {
        &mut self.objects[self.names[path]]
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Write(path, offset, data) => {
                let (content, end) = (&mut self.at(path).content, offset as usize + data.len());
                content.resize(content.len().max(end), 0);
                content[offset as usize..end].copy_from_slice(&data);
            }
            Op::Append(path, data) => self.at(&path).content.extend(data),
            Op::SetLen(path, len) => self.at(path).content.resize(len as usize, 0),
            Op::Create(path, data) => self.add(&path, 'f', 0o600, data),
            Op::Mkdir(path) => self.add(&path, 'd', 0o750, Vec::new()),
            Op::Symlink(target, path) => self.add(&path, 'l', 0o777, target.into()),
            Op::Link(from, to) => _ = self.names.insert(to, self.names[from]),
            Op::Unlink(path) => _ = self.names.remove(&path),
            Op::Rename(from, to) => {
                let below = format!("{from}/");
                let moves = |path: &String| *path == from || path.starts_with(&below);
                let moved: Vec<String> = self.names.keys().filter(|path| moves(path)).cloned().collect();
                for path in moved {
                    let object = self.names.remove(&path).expect("it was there");
                    self.names.insert(format!("{to}{}", &path[from.len()..]), object);
                }
            }
            Op::Exchange(one, other) => {
                let (first, second) = (self.names[one], self.names[other]);
                self.names.extend([(one.into(), second), (other.into(), first)]);
            }
            Op::SetMode(path, mode) => self.at(&path).mode = mode,
            Op::Tag(path, value) => self.at(&path).tag = Some(value),
            Op::Untag(path) => self.at(&path).tag = None,
        }
    }

    fn seen(&self) -> Seen {
        let see = |(path, number): (&String, &usize)| {
            let object = self.objects[*number].clone();
            let names = self.names.values().filter(|other| *other == number).count();
            // Of directories the subdirectories count.
            (path.clone(), Object { names: if object.kind == 'd' { 0 } else { names }, ..object })
        };
        self.names.iter().map(see).collect()
    }
}

/// Files that are there before the first group.
pub fn initial_files() -> [(&'static str, Vec<u8>); 4] {
    [("a", vec![0xaa; 90_000]), ("b", Vec::new()), ("x", vec![1; 10]), ("dir/y", vec![2; 20])]
}

/// What can be seen after so many groups.
pub fn after(groups: u32) -> Seen {
    let mut tree = Tree::initial();
    (0..groups).flat_map(ops).for_each(|op| tree.apply(op));
    tree.seen()
}

/// Commits a group.
pub fn commit(store: &Store, group: u32) -> wholly::Result<()> {
    let mut changes = store.begin();
    for op in ops(group) {
        match op {
            Op::Write(path, offset, data) => {
                let file = changes.open_file(path)?;
                changes.write_at(&file, offset, &data)?;
            }
            Op::Append(path, data) => {
                let file = changes.open_file(&path)?;
                changes.append(&file, &data)?;
            }
            Op::SetLen(path, len) => {
                let file = changes.open_file(path)?;
                changes.set_len(&file, len)?;
            }
            Op::Create(path, data) => {
                let file = changes.create(&path, 0o600)?;
                changes.append(&file, &data)?;
            }
            Op::Mkdir(path) => changes.mkdir(&path, 0o750)?,
            Op::Symlink(target, path) => changes.symlink(target, &path)?,
            Op::Link(from, to) => changes.link(from, &to)?,
            Op::Unlink(path) => changes.unlink(&path)?,
            Op::Rename(from, to) => changes.rename(&from, &to, Rename::Replace)?,
            Op::Exchange(one, other) => changes.rename(one, other, Rename::Exchange)?,
            Op::SetMode(path, mode) => changes.set_mode(&path, mode)?,
            Op::Tag(path, value) => changes.set_xattr(&path, TAG, &value, SetXattr::Any)?,
            Op::Untag(path) => changes.remove_xattr(&path, TAG)?,
        }
    }
    changes.commit()
}

/// What a store serves.
pub fn served(store: &Store) -> wholly::Result<Seen> {
    let (mut seen, mut todo) = (Seen::new(), vec![String::new()]);
    while let Some(dir) = todo.pop() {
        for entry in store.read_dir(if dir.is_empty() { "." } else { &dir })? {
            let name = String::from_utf8(entry.name).expect("names of these are text");
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let stat = store.metadata(&path)?;
            let (kind, content) = match stat.mode & 0o170_000 {
                0o040_000 => ('d', Vec::new()),
                0o120_000 => ('l', store.read_link(&path)?),
                _ => {
                    let file = store.open_file(&path)?;
                    let mut content = vec![0; file.len() as usize];
                    file.read_at(0, &mut content)?;
                    ('f', content)
                }
            };
            let tag = if kind == 'l' { None } else { store.xattr(&path, OsStr::new(TAG))? };
            let names = if kind == 'd' { 0 } else { stat.nlink as usize };
            if kind == 'd' {
                todo.push(path.clone());
            }
            seen.insert(path, Object { kind, mode: stat.mode & 0o7777, names, content, tag });
        }
    }
    Ok(seen)
}

/// What a directory of the host has.
pub fn at_home(root: &Path) -> std::io::Result<Seen> {
    let (mut seen, mut todo) = (Seen::new(), vec![root.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir)? {
            let full = entry?.path();
            let path = full.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
            if path == ".wholly" {
                continue;
            }
            let stat = full.symlink_metadata()?;
            let (kind, content) = match stat.file_type() {
                kind if kind.is_dir() => ('d', Vec::new()),
                kind if kind.is_symlink() => ('l', std::fs::read_link(&full)?.as_os_str().as_bytes().to_vec()),
                _ => ('f', std::fs::read(&full)?),
            };
            let mut value = [0; 256];
            let tag = match rustix::fs::lgetxattr(&full, TAG, &mut value) {
                Ok(length) => Some(value[..length].to_vec()),
                Err(rustix::io::Errno::NODATA) => None,
                // Symbolic links have none.
                Err(_) if kind == 'l' => None,
                Err(errno) => return Err(errno.into()),
            };
            let names = if kind == 'd' { 0 } else { stat.nlink() as usize };
            if kind == 'd' {
                todo.push(full);
            }
            seen.insert(path, Object { kind, mode: stat.permissions().mode() & 0o7777, names, content, tag });
        }
    }
    Ok(seen)
}
