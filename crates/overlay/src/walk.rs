//! Reads the layer into a plan.

use std::collections::HashMap;

use rustix::fs::FileType;

use crate::deep;
use crate::error::{Error, Result};
use crate::host::{OpenDir, Path, Stat, Tree, join};
use crate::marks::{Marks, Reader};
use crate::paths::Names;
use crate::plan::{Dir, Entry, File, From, Node, Plan, Source};

/// The store's own folder.
const OWN_FOLDER: &[u8] = b".wholly";

/// Reads it.
pub(crate) struct Walk<'w> {
    upper: &'w Tree<'w>,
    lower: &'w Tree<'w>,
    reader: &'w Reader,
    plan: Plan,
    /// The number in the plan of inodes of the layer that have several names or were there before.
    numbers: HashMap<u64, usize>,
}

/// What an entry of the layer is.
enum Is {
    Whiteout,
    /// Something new that is no directory, has no other name, and is as the command has made it.
    Plain,
    Otherwise(Node),
}

/// Looks at all that is in the layer. What was moved, and is no directory, is still sought.
pub(crate) fn read(upper: &Tree<'_>, lower: &Tree<'_>, index: Option<&OpenDir>, reader: &Reader) -> Result<Plan> {
    let gone = || Error::unsound(b"", "it is not a directory");
    let dir = upper.dir(b"")?.ok_or_else(gone)?;
    let root = Dir {
        upper: Path::new(),
        lower: Some(Path::new()),
        from: From::Below,
        stat: dir.stat(b"")?.ok_or_else(gone)?,
        before: lower.stat(b"")?,
        marks: reader.marks(&dir, b"")?,
        count: 0,
        plain: Names::default(),
        entries: Vec::new(),
        is_whole: false,
    };
    let (files, hidden, hidden_dirs, asides, wrong, has_own_folder) = Default::default();
    let plan = Plan { root, files, hidden, hidden_dirs, asides, wrong, has_own_folder };
    let mut walk = Walk { upper, lower, reader, plan, numbers: HashMap::new() };
    let root = walk.entries(b"", Some(b""), &dir)?;
    (walk.plan.root.count, walk.plan.root.plain, walk.plan.root.entries) = root;
    if let Some(index) = index {
        walk.read_index(index)?;
    }
    walk.plan.mark_whole()?;
    Ok(walk.plan)
}

impl Walk<'_> {
    /// What is in a directory of the layer that is merged with `lower`: how many names, what is plain, all else.
    fn entries(&mut self, upper: &[u8], lower: Option<&[u8]>, dir: &OpenDir) -> Result<(usize, Names, Vec<Entry>)> {
        // One that is gone below is as one that was never there; who looks for the directory says so.
        let below = lower.map(|lower| self.lower.dir(lower)).transpose()?.flatten();
        let below = lower.zip(below.as_ref());
        let (mut plain, mut entries) = (Names::default(), Vec::new());
        let names = dir.names()?;
        let count = names.len();
        for (name, _) in names {
            let path = join(upper, &name);
            let stat = dir.stat(&name)?.ok_or_else(|| Error::unsound(&path, "it vanished while it was read"))?;
            if path == OWN_FOLDER {
                if !is_whiteout(&stat) {
                    self.is_all_new(dir, &name, stat)?;
                    self.plan.has_own_folder = true;
                }
                continue;
            }
            match self.look_at(&path, &name, stat, dir, below)? {
                Is::Whiteout => {}
                Is::Plain => plain.insert(&name),
                Is::Otherwise(node) => entries.push(Entry { name, node }),
            }
        }
        Ok((count, plain, entries))
    }

    /// What has the name of the store's own folder is left out. So nothing in it may come from elsewhere in the
    /// directory.
    fn is_all_new(&self, dir: &OpenDir, name: &[u8], stat: Stat) -> Result<()> {
        let is_new = |dir: &OpenDir, name: &[u8]| {
            let marks = self.reader.marks(dir, name)?;
            let is_moved = marks.origin.is_some() || marks.redirect.is_some();
            if is_moved { Err(Error::OwnFolder) } else { Ok(()) }
        };
        is_new(dir, name)?;
        let mut todo = if stat.is_dir() { vec![name.to_vec()] } else { Vec::new() };
        while let Some(path) = todo.pop() {
            let Some(dir) = self.upper.dir(&path)? else { continue };
            for (name, _) in dir.names()? {
                is_new(&dir, &name)?;
                if dir.stat(&name)?.is_some_and(|stat| stat.is_dir()) {
                    todo.push(join(&path, &name));
                }
            }
        }
        Ok(())
    }

    fn look_at(
        &mut self,
        path: &[u8],
        name: &[u8],
        stat: Stat,
        dir: &OpenDir,
        below: Option<(&[u8], &OpenDir)>,
    ) -> Result<Is> {
        if is_whiteout(&stat) {
            self.white_out(name, below)?;
            return Ok(Is::Whiteout);
        }
        let marks = self.reader.marks(dir, name)?;
        if marks.is_whiteout && stat.kind == FileType::RegularFile && stat.size == 0 {
            self.white_out(name, below)?;
            return Ok(Is::Whiteout);
        }
        match stat.is_dir() {
            true => self.directory(path, name, stat, marks, below).map(Is::Otherwise),
            false => self.file(path, name, stat, marks, below),
        }
    }

    /// A name is gone. Where there is nothing below, it never was.
    fn white_out(&mut self, name: &[u8], below: Option<(&[u8], &OpenDir)>) -> Result<()> {
        if let Some((lower, below)) = below {
            let path = join(lower, name);
            match below.stat(name)? {
                Some(stat) => self.plan.hide(&path, &stat),
                None => self.plan.wrong(&path, "it is gone"),
            }
        }
        Ok(())
    }

    /// What has a name below is not what has it in the layer.
    fn hide(&mut self, name: &[u8], below: Option<(&[u8], &OpenDir)>) -> Result<()> {
        if let Some((lower, below)) = below
            && let Some(stat) = below.stat(name)?
        {
            self.plan.hide(&join(lower, name), &stat);
        }
        Ok(())
    }

    fn directory(
        &mut self,
        path: &[u8],
        name: &[u8],
        stat: Stat,
        marks: Marks,
        below: Option<(&[u8], &OpenDir)>,
    ) -> Result<Node> {
        let here = below.map(|(lower, _)| join(lower, name));
        // Below it has this path: from the root, or in the directory that its own is merged with.
        let there = match &marks.redirect {
            _ if marks.is_opaque => None,
            Some(redirect) if redirect.starts_with(b"/") => Some(redirect[1..].to_vec()),
            Some(redirect) => below.map(|(lower, _)| join(lower, redirect)),
            None => here.clone(),
        };
        let found = there.as_ref().map(|there| self.lower.identify(there)).transpose()?.flatten();
        let found = found.filter(|(before, _)| before.is_dir());
        let (from, before) = match (&there, found) {
            (Some(there), Some((before, handle))) => {
                // Which it was copied from the kernel keeps, though it goes by names.
                if marks.origin.as_ref().is_some_and(|origin| !origin.is(handle.as_ref())) {
                    self.plan.wrong(there, "something else has its name");
                }
                let from = match here.as_ref() == Some(there) {
                    true => From::Below,
                    false => {
                        let twice = || Error::unsound(path, "two directories claim to have been the same one");
                        From::Aside(self.plan.set_aside(there).ok_or_else(twice)?)
                    }
                };
                (from, Some(before))
            }
            (there, _) => {
                if let (Some(there), true) = (there, marks.origin.is_some() || marks.redirect.is_some()) {
                    self.plan.wrong(there, "it is gone");
                }
                (From::Nowhere, None)
            }
        };
        if from != From::Below {
            self.hide(name, below)?;
        }
        let lower = there.filter(|_| from != From::Nowhere);
        let open = self.upper.dir(path)?.ok_or_else(|| Error::unsound(path, "it vanished while it was read"))?;
        let (count, plain, entries) = deep(|| self.entries(path, lower.as_deref(), &open))?;
        let upper = path.to_vec();
        Ok(Node::Dir(Box::new(Dir { upper, lower, from, stat, before, marks, count, plain, entries, is_whole: false })))
    }

    fn file(
        &mut self,
        path: &[u8],
        name: &[u8],
        stat: Stat,
        marks: Marks,
        below: Option<(&[u8], &OpenDir)>,
    ) -> Result<Is> {
        let Some(origin) = &marks.origin else {
            self.hide(name, below)?;
            if stat.nlink > 1 {
                let file = self.number(stat, &marks, Source::Nowhere);
                self.plan.files[file].upper.push(path.to_vec());
                return Ok(Is::Otherwise(Node::File { file, stays: false }));
            }
            return Ok(match marks.are_none() {
                true => Is::Plain,
                false => Is::Otherwise(Node::Marked(Box::new(marks))),
            });
        };
        let here = match below {
            Some((lower, below)) => below.identify(name)?.map(|found| (join(lower, name), found)),
            None => None,
        };
        let same = here.filter(|(_, (before, handle))| match origin {
            crate::marks::Origin::Handle(_) => origin.is(handle.as_ref()),
            crate::marks::Origin::Unknown => before.kind == stat.kind && marks.redirect.is_none(),
        });
        let hint = marks.redirect.as_ref().and_then(|redirect| match redirect.strip_prefix(b"/") {
            Some(path) => Some(path.to_vec()),
            None => below.map(|(lower, _)| join(lower, redirect)),
        });
        let file = self.number(stat, &marks, Source::Sought(origin.clone(), None));
        let known = &mut self.plan.files[file];
        known.upper.push(path.to_vec());
        let stays = same.is_some();
        match (same, &mut known.source) {
            (Some((here, _)), source) => {
                *source = Source::Below(here);
                known.stays = true;
            }
            (None, Source::Sought(_, known)) if known.is_none() => *known = hint,
            _ => {}
        }
        if !stays {
            self.hide(name, below)?;
        }
        Ok(Is::Otherwise(Node::File { file, stays }))
    }

    /// The number of an inode.
    fn number(&mut self, stat: Stat, marks: &Marks, source: Source) -> usize {
        let files = &mut self.plan.files;
        *self.numbers.entry(stat.ino).or_insert_with(|| {
            files.push(File { upper: Vec::new(), index: None, stat, marks: marks.clone(), source, stays: false });
            files.len() - 1
        })
    }

    /// A file that has several names below, and was copied, has a name in the index, by which all its names lead to the
    /// copy: those that are not in the layer, too (`Documentation/filesystems/overlayfs.rst`, "Index").
    fn read_index(&mut self, index: &OpenDir) -> Result<()> {
        for (name, _) in index.names()? {
            let Some(stat) = index.stat(&name)? else { continue };
            // Directories are in it for NFS; names with `#` are of work that goes on.
            if name.starts_with(b"#") || stat.is_dir() || is_whiteout(&stat) || self.numbers.contains_key(&stat.ino) {
                continue;
            }
            let marks = self.reader.marks(index, &name)?;
            if let Some(origin) = marks.origin.clone() {
                let file = self.number(stat, &marks, Source::Sought(origin, None));
                self.plan.files[file].index = Some(name);
            }
        }
        Ok(())
    }
}

/// A name of which the layer says that it is gone: a character device of number 0.
fn is_whiteout(stat: &Stat) -> bool {
    stat.kind == FileType::CharacterDevice && stat.rdev == 0
}
