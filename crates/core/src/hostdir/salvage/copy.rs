//! Copying the files of a store as they are: bytes, holes, names, links, owners, modes, attributes, times.
//!
//! The original is only read, with the caller's own rights, and each object of it by one descriptor: whoever owns a
//! directory of it may exchange what is in that meanwhile. What cannot be read, or cannot be made so in the copy, is
//! named, and the rest is copied. The copy lies where nobody else reaches it, so paths are safe there.

use std::collections::HashMap;

use rustix::io::Errno;
use wholly_changes::{Kind, join};
use wholly_host::{At, Attributes, HOME, HostDir, HostFile, HostFs, Object, UNFINISHED};
use wholly_media::Site;

use super::{Finding, FindingKind, Inodes};
use crate::error::Result;

/// A copy that a crash cuts short is no copy: nothing in it is ordered.
pub const SALVAGE: Site = Site("salvage");

/// Bytes that are copied by one call.
const CHUNK: usize = 1 << 20;

/// See the head of this file.
pub(super) struct Copier<'a> {
    from: &'a HostDir,
    to: &'a dyn HostFs,
    progress: &'a mut dyn FnMut(u64, u64),
    all: u64,
    /// Where what was copied is, by the inode that it was.
    pub copies: HashMap<(u64, i64), Vec<u8>>,
    /// Directories that get their attributes when all is in them.
    directories: Vec<(Vec<u8>, Attributes)>,
    pub problems: Vec<Finding>,
    pub files: u64,
    pub bytes: u64,
    buffer: Vec<u8>,
}

/// Whether it is not the user's.
fn is_own(path: &[u8]) -> bool {
    path == HOME.as_bytes() || path.starts_with(UNFINISHED.as_bytes())
}

/// All objects below the directory, by their inodes.
pub(super) fn inodes(host: &dyn HostFs) -> Result<Inodes> {
    let mut inodes = Inodes::new();
    let root = host.stat(b"")?;
    inodes.insert((root.ino, root.btime_ns), root);
    let mut todo = vec![Vec::new()];
    while let Some(directory) = todo.pop() {
        // What cannot be read is named by who copies it.
        for entry in host.read_dir(&directory).unwrap_or_default() {
            let path = join(&directory, &entry.name);
            let Ok(stat) = host.stat(&path) else { continue };
            inodes.insert((stat.ino, stat.btime_ns), stat);
            if Kind::of(stat.mode) == Kind::Directory {
                todo.push(path);
            }
        }
    }
    Ok(inodes)
}

impl<'a> Copier<'a> {
    pub fn new(from: &'a HostDir, to: &'a dyn HostFs, all: u64, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        Copier {
            from,
            to,
            progress,
            all,
            copies: HashMap::new(),
            directories: Vec::new(),
            problems: Vec::new(),
            files: 0,
            bytes: 0,
            buffer: vec![0; CHUNK],
        }
    }

    /// Copies all that is in a directory, which the copy has, and the directory's attributes at the end.
    pub fn copy_all(&mut self, path: &[u8]) -> Result<()> {
        let inode = self.from.stat(path)?.inode();
        let mut todo = vec![(path.to_vec(), inode)];
        while let Some((directory, inode)) = todo.pop() {
            self.copies.insert(inode, directory.clone());
            let at = At { path: &directory, dir: None, inode: Some(inode) };
            let found = self.from.object(at).and_then(|object| Ok((object.attributes()?, object.names())));
            let listed = found.and_then(|(attributes, names)| {
                self.directories.push((directory.clone(), attributes));
                names
            });
            let names = match listed {
                Ok(names) => names,
                Err(error) => {
                    self.problem(&directory, &error, "it cannot be listed");
                    continue;
                }
            };
            for name in names {
                let path = join(&directory, &name);
                if is_own(&path) {
                    continue;
                }
                match self.from.object(At { path: &path, dir: Some(inode), inode: None }) {
                    Ok(object) if Kind::of(object.stat().mode) == Kind::Directory => {
                        self.to.mkdir(SALVAGE, &path, 0o700)?;
                        todo.push((path, object.stat().inode()));
                    }
                    Ok(object) => self.copy_object(&path, &object)?,
                    Err(error) => self.problem(&path, &error, "it cannot be looked at"),
                }
            }
        }
        Ok(())
    }

    /// The same of a folder of the store's own, which need not be there.
    pub fn copy_folder(&mut self, path: &[u8]) -> Result<()> {
        match self.from.stat(path) {
            Ok(_) => self.to.mkdir(SALVAGE, path, 0o700)?,
            Err(error) if error.errno == Errno::NOENT => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.copy_all(path)
    }

    fn copy_object(&mut self, path: &[u8], object: &Object) -> Result<()> {
        let (stat, inode) = (object.stat(), object.stat().inode());
        if stat.nlink > 1
            && let Some(first) = self.copies.get(&inode)
        {
            return Ok(self.to.hard_link(SALVAGE, first, path)?);
        }
        match Kind::of(stat.mode) {
            Kind::Regular => self.copy_file(path, object)?,
            Kind::Symlink => match object.target() {
                Ok(target) => self.to.symlink(SALVAGE, &target, path)?,
                Err(error) => {
                    self.problem(path, &error, "it cannot be read");
                    return Ok(());
                }
            },
            _ => match self.to.mknod(SALVAGE, path, stat.mode & !0o7777 | 0o600, stat.rdev) {
                Err(error) if error.errno == Errno::PERM => {
                    self.problem(path, &error, "it cannot be made");
                    return Ok(());
                }
                made => made?,
            },
        }
        self.files += 1;
        self.copies.insert(inode, path.to_vec());
        self.copy_attributes(path, object)
    }

    fn copy_file(&mut self, path: &[u8], object: &Object) -> Result<()> {
        let stat = object.stat();
        let copy = self.to.create(SALVAGE, path, 0o600)?;
        copy.set_len(SALVAGE, stat.size)?;
        let source = match object.open() {
            Ok(source) => source,
            Err(error) => {
                self.problem(path, &error, "it cannot be opened, and is zeros in the copy");
                return Ok(());
            }
        };
        let mut at = 0;
        while at < stat.size {
            // Where nobody can tell there are no holes.
            let Some(begin) = source.next_data(at).unwrap_or(Some(at)) else { break };
            let end = source.next_hole(begin).unwrap_or(None).unwrap_or(stat.size).min(stat.size);
            let length = (end.saturating_sub(begin) as usize).min(CHUNK);
            if length == 0 {
                break;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = source.read_at(begin, &mut buffer[..length]);
            let written = match &read {
                Ok(read) => copy.write_at(SALVAGE, begin, &buffer[..*read]),
                Err(_) => Ok(()),
            };
            self.buffer = buffer;
            written?;
            match read {
                Ok(0) => break,
                Ok(read) => at = begin + read as u64,
                Err(error) => {
                    let what = format!("bytes from {begin} on cannot be read, and are zeros in the copy");
                    self.problem(path, &error, &what);
                    // A page on: what is behind it may be read.
                    at = (begin / 4096 + 1) * 4096;
                }
            }
            self.bytes += length as u64;
            (self.progress)(self.bytes.min(self.all), self.all);
        }
        Ok(())
    }

    /// Without them the copy is the caller's alone.
    fn copy_attributes(&mut self, path: &[u8], object: &Object) -> Result<()> {
        match object.attributes() {
            Ok(attributes) => self.give(path, &attributes),
            Err(error) => {
                self.problem(path, &error, "its owner and permissions cannot be read");
                Ok(())
            }
        }
    }

    fn give(&mut self, path: &[u8], attributes: &Attributes) -> Result<()> {
        let to = self.to;
        Ok(attributes.give(SALVAGE, to, path, &mut |what, error| {
            self.problem(path, &error, what);
            Ok(())
        })?)
    }

    /// Gives directories what they had, those in others first.
    pub fn finish_directories(&mut self) -> Result<()> {
        for (path, attributes) in std::mem::take(&mut self.directories).into_iter().rev() {
            self.give(&path, &attributes)?;
        }
        Ok(())
    }

    fn problem(&mut self, path: &[u8], error: &wholly_media::Error, what: &str) {
        let path = String::from_utf8_lossy(path).into_owned();
        let what = format!("{what}: {}", wholly_media::in_words(error.errno));
        self.problems.push(Finding::new(FindingKind::File, path, what));
    }
}
