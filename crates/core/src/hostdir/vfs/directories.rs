//! Reading directories: whoever begins at the first name gets a list of what is there then, in the order of names, and
//! goes on in that.

use std::sync::Arc;

use super::StoreVfs;
use super::handles::{Listed, Open, OpenDirectory};
use crate::hostdir::names::{Kind, TYPE};
use crate::hostdir::running::Running;
use crate::rules::permit::{READ, Who};
use crate::sync::Mutex;
use crate::vfs::{Context, DirEntry, Errno, FileType, Handle, Ino, Result};

impl StoreVfs {
    pub(super) fn open_directory(&self, ctx: &Context, dir: Ino) -> Result<Handle> {
        let id = self.inodes.id(dir)?;
        self.look(ctx, |running| {
            if running.object(id)?.kind != Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            match Who::of(ctx).is_superuser() || self.permits(ctx, running, id, READ)? {
                true => Ok(()),
                false => Err(Errno::ACCESS),
            }
        })?;
        // As long as it is open it is referred to.
        let ino = self.inodes.refer(&self.store, id).ok_or(Errno::STALE)?;
        Ok(self.handles.add(Open::Directory(OpenDirectory { ino, id, names: Mutex::default() })))
    }

    pub(super) fn read_directory(
        &self,
        ctx: &Context,
        dir: &OpenDirectory,
        offset: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let names = self.look(ctx, |running| {
            if !running.has_name(dir.id) {
                return Err(Errno::NOENT);
            }
            let known = dir.names.lock().unwrap().clone().filter(|_| offset != 0);
            known.map_or_else(|| self.list(running, dir), Ok)
        })?;
        if offset == 0 {
            self.look(ctx, |running| Ok(running.has_read(dir.id)?))?;
            *dir.names.lock().unwrap() = Some(names.clone());
        }
        // `each` may make calls of its own.
        for (i, listed) in names.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            let Listed { name, ino, kind } = listed;
            if !each(DirEntry { ino: *ino, next: i as u64 + 1, kind: *kind, name }) {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, running: &Running, dir: &OpenDirectory) -> Result<Arc<Vec<Listed>>> {
        let above = running.above(dir.id).ok_or(Errno::NOENT)?;
        let directory = FileType::Directory;
        let mut all = vec![
            Listed { name: b".".to_vec(), ino: dir.ino, kind: directory },
            Listed { name: b"..".to_vec(), ino: self.inodes.number(&self.store, above), kind: directory },
        ];
        let mut listed = running.list_of(dir.id)?;
        listed.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for entry in listed {
            // Some file systems do not tell types in listings.
            let kind = match entry.kind & TYPE {
                0 => match running.look_up(dir.id, &entry.name)? {
                    Some(found) => running.stat_of(found.id)?.mode,
                    None => continue,
                },
                kind => kind,
            };
            all.push(Listed { name: entry.name, ino: Ino(entry.ino), kind: FileType::from_raw_mode(kind) });
        }
        Ok(Arc::new(all))
    }
}
