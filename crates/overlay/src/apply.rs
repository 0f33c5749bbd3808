//! Does what is planned, by calls on the group.

use std::collections::BTreeSet;

use rustix::fs::{AtFlags, FileType, IFlags, StatxAttributes, StatxFlags, readlinkat, unlinkat};
use rustix::io::Errno;
use wholly_vfs::{Handle, Ino, OFlags, Vfs};

use crate::content::{self, Bytes};
use crate::error::{Error, OnHost, Result, show};
use crate::group::{Group, OnGroup};
use crate::host::{OpenDir, Path, Stat, Tree, join, ns, split};
use crate::marks::Reader;
use crate::plan::{Dir, Entry, Fate, File, From, Node, Plan, Source};
use crate::undo::Undo;
use crate::{How, deep};
use crate::{UPPER, attributes};

/// Bytes of a file from which on it is better to move them than to copy them, as for a store
/// ([`stage_bytes`](wholly::Options)).
const LARGE: u64 = 512 << 10;

/// What is being done.
pub(crate) struct Apply<'a, 'v> {
    pub plan: &'a Plan,
    pub group: Group<'v>,
    pub upper: &'a Tree<'a>,
    pub lower: &'a Tree<'a>,
    pub index: Option<&'a OpenDir>,
    pub reader: &'a Reader,
    pub how: How,
    pub since_ns: i64,
    /// What the files of the plan are in the store, once that is known.
    inos: Vec<Option<Ino>>,
    /// The directories of the layer that are in the store, each before those in it.
    placed: Vec<(Ino, &'a Dir)>,
    /// What the names of what is set aside begin with.
    aside: Vec<u8>,
    /// Whether the layer is not needed again, so that bytes may be taken out of it.
    moves_bytes: bool,
    /// How many things were taken over as they were.
    pub adopted: usize,
    /// The directories that were removed with everything in them.
    pub gone_whole: BTreeSet<Path>,
    /// What was changed in the layer for that.
    pub undo: Undo,
}

impl<'a, 'v> Apply<'a, 'v> {
    pub fn new(
        plan: &'a Plan,
        group: Group<'v>,
        (upper, lower, index, reader): (&'a Tree<'a>, &'a Tree<'a>, Option<&'a OpenDir>, &'a Reader),
        (how, since_ns): (How, i64),
    ) -> Self {
        let inos = vec![None; plan.files.len()];
        let (placed, aside, gone_whole) = Default::default();
        let (undo, moves_bytes) = (Undo::default(), how == How::Copy);
        Apply {
            plan,
            group,
            upper,
            lower,
            index,
            reader,
            how,
            since_ns,
            inos,
            placed,
            aside,
            moves_bytes,
            adopted: 0,
            gone_whole,
            undo,
        }
    }

    pub fn all(&mut self) -> Result<()> {
        self.find_files()?;
        self.free_names()?;
        // The store has a file at home at that name of it which was looked for last: that is to be one that stays, not
        // one that went.
        self.find_files()?;
        self.place(&self.plan.root, Ino::ROOT)?;
        for number in 0..self.plan.files.len() {
            self.group.look_once(true)?;
            self.change_file(number)?;
        }
        self.group.look_once(false)?;
        while let Some((ino, dir)) = self.placed.pop() {
            self.finish_directory(ino, dir)?;
        }
        Ok(())
    }

    /// Files that keep a name, and are given others or have changed, by that name, as long as it leads to them. If no
    /// name changes, each is found when its turn comes.
    fn find_files(&mut self) -> Result<()> {
        let names_change = self.plan.fates().next().is_some();
        for (number, file) in self.plan.files.iter().enumerate() {
            if let Source::Below(path) = &file.source
                && (names_change || file.upper.as_slice() != std::slice::from_ref(path))
            {
                self.inos[number] = self.group.at(path)?;
            }
        }
        Ok(())
    }

    /// Sets aside what gets another place, and removes what goes.
    fn free_names(&mut self) -> Result<()> {
        if !self.plan.asides.is_empty() {
            self.choose_names()?;
        }
        for (path, fate) in self.plan.fates() {
            let (above, name) = split(&path);
            // What others have removed with its directory is noted.
            let Some(dir) = self.group.dir(above)? else { continue };
            match fate {
                Fate::Gone if self.goes_whole(dir, name, &path)? => _ = self.gone_whole.insert(path),
                Fate::Gone => self.group.remove(dir, name, &path)?,
                Fate::Aside(number) => {
                    let aside = self.aside_name(number);
                    self.group.rename((dir, name), (Ino::ROOT, &aside), &path)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a directory with everything in it at once, if that can be. Whether it did.
    fn goes_whole(&self, dir: Ino, name: &[u8], path: &[u8]) -> Result<bool> {
        if self.how == How::Copy || !self.plan.may_go_whole(path) || self.refuses_renames(split(path).0)? {
            return Ok(false);
        }
        match self.group.vfs.remove_tree(self.group.id, dir, name, self.since_ns) {
            // Others have taken it away since it was looked at.
            Err(wholly::Error::NotFound(_)) => Ok(false),
            Err(wholly::Error::Refused(_, errno)) if errno == Errno::NOTDIR => Ok(false),
            removed => removed.map_err(|error| Error::Store { path: show(path), error }),
        }
    }

    /// Names in the store's root that nothing has, neither below nor in the layer.
    fn choose_names(&mut self) -> Result<()> {
        let mut taken = self.group.names(Ino::ROOT, b"")?;
        taken.extend(self.plan.root.entries.iter().map(|entry| entry.name.clone()));
        taken.extend(self.plan.root.plain.iter().map(<[u8]>::to_vec));
        let free = |begin: &Vec<u8>| !taken.iter().any(|name| name.starts_with(begin));
        // At most as many are taken as there are names.
        let begins = (0..=taken.len()).map(|number| format!(".wholly-moved-{number}-").into_bytes());
        self.aside = begins.into_iter().find(free).expect("one more than there are names");
        Ok(())
    }

    fn aside_name(&self, number: usize) -> Vec<u8> {
        [&self.aside[..], number.to_string().as_bytes()].concat()
    }

    /// Gives all that is in a directory of the layer its name in the store.
    fn place(&mut self, dir: &'a Dir, ino: Ino) -> Result<()> {
        let how = self.how;
        let below = dir.lower.as_ref().filter(|_| dir.from != From::Nowhere);
        if let (How::Adopt, Some(below)) = (how, below)
            && self.refuses_renames(below)?
        {
            self.how = How::Copy;
        }
        let placed = self.place_all(dir, ino);
        self.how = how;
        placed
    }

    /// Whether the host may refuse to rename something into a directory below that was made elsewhere: it is encrypted,
    /// or what is made in it is to belong to its project.
    fn refuses_renames(&self, below: &[u8]) -> Result<bool> {
        let Some(open) = self.lower.dir(below)? else { return Ok(false) };
        let stat = rustix::fs::statx(open.fd(), "", AtFlags::EMPTY_PATH, StatxFlags::empty()).on("statx", below)?;
        // Not all file systems have such flags.
        let flags = rustix::fs::ioctl_getflags(open.fd()).unwrap_or(IFlags::empty());
        let is_encrypted = stat.stx_attributes.contains(StatxAttributes::ENCRYPTED);
        Ok(is_encrypted || flags.contains(IFlags::PROJECT_INHERIT))
    }

    fn place_all(&mut self, dir: &'a Dir, ino: Ino) -> Result<()> {
        self.placed.push((ino, dir));
        self.undo.dirs.push((dir.upper.clone(), dir.count));
        let open = self.upper.dir(&dir.upper)?.ok_or_else(|| Error::unsound(&dir.upper, "it is not a directory"))?;
        for name in dir.plain.iter() {
            self.place_new(&open, ino, name, &join(&dir.upper, name), self.moves_bytes)?;
        }
        for Entry { name, node } in &dir.entries {
            let path = join(&dir.upper, name);
            match node {
                Node::Dir(inner) => self.place_directory(inner, ino, name, &path)?,
                Node::Marked(marks) => {
                    if self.how == How::Adopt {
                        self.undo.marks.extend(self.reader.clear(&open, &path, name, marks)?);
                    }
                    // What overlayfs has written on it is not to come along.
                    self.place_new(&open, ino, name, &path, false)?;
                }
                Node::File { stays: true, .. } => {}
                Node::File { file, .. } => self.place_file(*file, &open, ino, name, &path)?,
            }
        }
        Ok(())
    }

    /// Something new that is no directory and has no other name. If it `moves`, so do its bytes.
    fn place_new(&mut self, open: &OpenDir, dir: Ino, name: &[u8], path: &[u8], moves: bool) -> Result<()> {
        match self.how {
            How::Adopt => self.adopt(dir, name, path),
            How::Copy => {
                let stat = open.stat(name)?.ok_or_else(|| Error::unsound(path, "it vanished while it was read"))?;
                let made = self.make(open, dir, name, &stat, path, moves)?;
                self.group.vfs.forget(made, 1);
                Ok(())
            }
        }
    }

    fn place_directory(&mut self, inner: &'a Dir, dir: Ino, name: &[u8], path: &Path) -> Result<()> {
        if inner.is_whole && self.how == How::Adopt {
            self.clear_all(inner)?;
            return self.adopt(dir, name, path);
        }
        let ino = match inner.from {
            From::Below => self.group.get(dir, name, path)?,
            From::Aside(number) => {
                let aside = self.aside_name(number);
                self.group.rename((Ino::ROOT, &aside), (dir, name), path)?;
                self.group.get(dir, name, path)?
            }
            From::Nowhere => {
                let (stat, vfs) = (&inner.stat, self.group.vfs);
                let ctx = self.group.context(stat.uid, stat.gid);
                let made = vfs.mkdir(&ctx, dir, name, stat.mode).of("mkdir", path)?;
                self.group.hold(made.ino)
            }
        };
        deep(|| self.place(inner, ino))
    }

    fn place_file(&mut self, number: usize, open: &OpenDir, dir: Ino, name: &[u8], path: &[u8]) -> Result<()> {
        let file = &self.plan.files[number];
        if let Some(ino) = self.inos[number] {
            return self.group.link(ino, dir, name, path);
        }
        let ino = match &file.source {
            Source::Aside(_, aside) => {
                let aside = self.aside_name(*aside);
                self.group.rename((Ino::ROOT, &aside), (dir, name), path)?;
                self.group.get(dir, name, path)?
            }
            _ if self.how == How::Adopt => {
                self.undo.marks.extend(self.reader.clear(open, path, name, &file.marks)?);
                self.unlink_others(file, path)?;
                self.adopt(dir, name, path)?;
                self.group.get(dir, name, path)?
            }
            _ => {
                let made = self.make(open, dir, name, &file.stat, path, false)?;
                self.group.hold(made)
            }
        };
        self.inos[number] = Some(ino);
        Ok(())
    }

    /// What is taken over by one name has no others in the layer: it is given them in the store.
    fn unlink_others(&mut self, file: &File, path: &[u8]) -> Result<()> {
        for other in file.upper.iter().filter(|other| *other != path) {
            if let Some(above) = self.upper.above(other)? {
                unlinkat(above.fd(), split(other).1, AtFlags::empty()).on("unlink", other)?;
                self.undo.links.push((path.to_vec(), other.clone()));
            }
        }
        Ok(())
    }

    /// Makes the attributes of a new directory, and of all that is in it, those that the view shows.
    fn clear_all(&mut self, dir: &Dir) -> Result<()> {
        let gone = |path: &[u8]| Error::unsound(path, "it vanished while it was read");
        let mut todo = vec![dir];
        while let Some(dir) = todo.pop() {
            let marked = |entry: &&Entry| match &entry.node {
                Node::Marked(_) => true,
                Node::File { file, .. } => {
                    let file = &self.plan.files[*file];
                    !file.marks.are_none() && file.upper.first() == Some(&join(&dir.upper, &entry.name))
                }
                Node::Dir(_) => false,
            };
            let mut marked = dir.entries.iter().filter(marked).peekable();
            if !dir.marks.are_none() || marked.peek().is_some() {
                let open = self.upper.dir(&dir.upper)?.ok_or_else(|| gone(&dir.upper))?;
                self.undo.marks.extend(self.reader.clear(&open, &dir.upper, b"", &dir.marks)?);
                for entry in marked {
                    let marks = match &entry.node {
                        Node::Marked(marks) => Some(&**marks),
                        Node::File { file, .. } => Some(&self.plan.files[*file].marks),
                        Node::Dir(_) => None,
                    };
                    let path = join(&dir.upper, &entry.name);
                    let cleared = marks.map(|marks| self.reader.clear(&open, &path, &entry.name, marks)).transpose()?;
                    self.undo.marks.extend(cleared.flatten());
                }
            }
            todo.extend(dir.entries.iter().filter_map(|entry| match &entry.node {
                Node::Dir(inner) => Some(&**inner),
                _ => None,
            }));
        }
        Ok(())
    }

    fn adopt(&mut self, dir: Ino, name: &[u8], path: &[u8]) -> Result<()> {
        let from = join(UPPER.as_bytes(), path);
        let adopted = self.group.vfs.import(self.group.id, dir, name, &from);
        adopted.map_err(|error| Error::Store { path: show(path), error })?;
        self.adopted += 1;
        Ok(())
    }

    /// Makes what lies in the layer anew. One reference. If it `moves`, the bytes of a large file do.
    fn make(&mut self, open: &OpenDir, dir: Ino, name: &[u8], stat: &Stat, path: &[u8], moves: bool) -> Result<Ino> {
        let (vfs, ctx) = (self.group.vfs, self.group.context(stat.uid, stat.gid));
        let ino = match stat.kind {
            FileType::RegularFile => {
                let fd = open.open_file(name)?;
                let bytes = Bytes { fd: std::os::fd::AsFd::as_fd(&fd), size: stat.size, path };
                let flags = OFlags::WRONLY | OFlags::EXCL;
                let (made, handle) = vfs.create(&ctx, dir, name, flags, stat.mode).of("create", path)?;
                if moves && stat.size >= LARGE && self.move_bytes((open, name), (made.ino, &handle), stat, path)? {
                    return Ok(made.ino);
                }
                content::write(&self.group, handle, made.ino, &bytes, path)?;
                made.ino
            }
            FileType::Symlink => {
                let target = readlinkat(open.fd(), name, Vec::new()).on("readlink", path)?;
                vfs.symlink(&ctx, dir, name, target.to_bytes()).of("symlink", path)?.ino
            }
            kind => vfs.mknod(&ctx, dir, name, kind, stat.mode, stat.rdev).of("mknod", path)?.ino,
        };
        attributes::bring(&self.group, self.reader, ino, (open, name), stat, path)?;
        self.group.set_times(ino, stat, path)?;
        Ok(ino)
    }

    /// Gives a new file, which is open, the attributes of one in the layer, and moves its bytes. Gives whether that was
    /// possible. Then the file is closed.
    fn move_bytes(
        &self,
        (open, name): (&OpenDir, &[u8]),
        (ino, handle): (Ino, &Handle),
        stat: &Stat,
        path: &[u8],
    ) -> Result<bool> {
        let group = &self.group;
        // They come from what is about to move.
        attributes::bring(group, self.reader, ino, (open, name), stat, path)?;
        let from = join(UPPER.as_bytes(), path);
        let moved = group.vfs.import_content(group.id, handle, &from);
        if moved.map_err(|error| Error::Store { path: show(path), error })? {
            group.vfs.release(&group.superuser(), handle.clone()).of("release", path)?;
            group.set_times(ino, stat, path)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Content and attributes of a file that was there.
    fn change_file(&mut self, number: usize) -> Result<()> {
        let file = &self.plan.files[number];
        if let (None, Source::Below(path)) = (self.inos[number], &file.source) {
            self.inos[number] = self.group.at(path)?;
        }
        let Some(ino) = self.inos[number].filter(|_| file.source != Source::Nowhere) else { return Ok(()) };
        let path = match &file.source {
            Source::Below(path) | Source::Aside(path, _) => path,
            _ => return Ok(()),
        };
        let gone = || Error::unsound(path, "it vanished while it was read");
        let above;
        let (open, name) = match (file.upper.first(), &file.index, self.index) {
            (Some(upper), ..) => {
                above = self.upper.above(upper)?.ok_or_else(gone)?;
                (&above, split(upper).1)
            }
            (None, Some(name), Some(index)) => (index, &name[..]),
            _ => return Ok(()),
        };
        let mut changed = false;
        if file.stat.kind == FileType::RegularFile && !file.marks.is_metacopy {
            let fd = open.open_file(name)?;
            let bytes = Bytes { fd: std::os::fd::AsFd::as_fd(&fd), size: file.stat.size, path };
            let below = self.lower.above(path)?.and_then(|above| above.open_file(split(path).1).ok());
            let before = below.as_ref().map(std::os::fd::AsFd::as_fd);
            changed = content::update(&self.group, ino, &bytes, before, path)?;
        }
        attributes::bring(&self.group, self.reader, ino, (open, name), &file.stat, path)?;
        if changed || self.group.attributes(ino, path)?.mtime != file.stat.mtime {
            self.group.set_times(ino, &file.stat, path)?;
        }
        Ok(())
    }

    /// The attributes of a directory, after all that is in it has its name.
    fn finish_directory(&mut self, ino: Ino, dir: &Dir) -> Result<()> {
        let path = &dir.upper;
        let open = self.upper.dir(path)?.ok_or_else(|| Error::unsound(path, "it is not a directory"))?;
        attributes::bring(&self.group, self.reader, ino, (&open, b""), &dir.stat, path)?;
        // What others have changed in it meanwhile has a later time.
        let later = dir.before.filter(|before| ns(before.mtime) > self.since_ns.max(ns(dir.stat.mtime)));
        let stat = later.unwrap_or(dir.stat);
        // It is that of the last change of a name, or somebody has set it.
        if ns(stat.mtime) > self.since_ns {
            let told = self.group.vfs.names_changed_at(self.group.id, ino, ns(stat.mtime));
            told.map_err(|error| Error::Store { path: show(path), error })?;
        }
        if self.group.attributes(ino, path)?.mtime != stat.mtime {
            self.group.set_times(ino, &stat, path)?;
        }
        Ok(())
    }
}
