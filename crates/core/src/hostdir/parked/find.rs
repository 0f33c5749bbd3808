//! Where the objects of a parked group are by now. They go by inode and time of birth; where one is not at the place
//! that it had, the whole directory is looked through, once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wholly_changes::{CurrentObjects, Kind, Known, ROOT, Summary, copied};

use super::super::StoreInner;
use super::super::names::{Entry, Found, TYPE, Walk};
use super::super::running::Running;
use crate::error::{Error, Result};

/// Looks for objects, and keeps those that it has found in the table.
pub(crate) struct Finder {
    store: Arc<StoreInner>,
    /// By the id in the parked group.
    found: HashMap<u64, Option<u64>>,
    pinned: Vec<u64>,
    /// What is anywhere, by inode, once that was looked for.
    anywhere: Option<HashMap<(u64, i64), u64>>,
}

impl Finder {
    pub fn new(store: Arc<StoreInner>) -> Self {
        Finder { store, found: HashMap::from([(ROOT, Some(ROOT))]), pinned: Vec::new(), anywhere: None }
    }

    fn walk(store: &StoreInner) -> Walk<'_> {
        Walk { names: &store.names, host: &*store.host, private: None }
    }

    /// What has the name, if it is this inode.
    fn at(&mut self, dir: u64, name: &[u8], inode: (u64, i64)) -> Result<Option<u64>> {
        let found = match Self::walk(&self.store).lookup(dir, name) {
            Ok(Some(found)) => found,
            Ok(None) | Err(Error::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(self.keep(&found, inode))
    }

    /// Keeps an object in the table, if it is this inode.
    fn keep(&mut self, found: &Found, inode: (u64, i64)) -> Option<u64> {
        let is_it = self.store.names.with(|state| {
            let is_it = state.objects.get(&found.id).is_some_and(|object| object.inode() == Some(inode));
            is_it && state.pin(found.id)
        });
        if is_it {
            self.pinned.push(found.id);
        }
        is_it.then_some(found.id)
    }

    /// Looks through the directory for all objects of the group.
    fn anywhere(&mut self, summary: &Summary) -> Result<&HashMap<(u64, i64), u64>> {
        if self.anywhere.is_none() {
            let inode = |known: &Known| match known {
                Known::Settled(settled) => Some((settled.stat.ino, settled.stat.btime_ns)),
                Known::Born(_) => None,
            };
            let wanted: HashSet<(u64, i64)> = summary.objects.values().filter_map(inode).collect();
            let numbers: HashSet<u64> = wanted.iter().map(|inode| inode.0).collect();
            self.anywhere = Some(self.look_through(&wanted, &numbers)?);
        }
        Ok(self.anywhere.as_ref().expect("it was just made"))
    }

    fn look_through(
        &mut self,
        wanted: &HashSet<(u64, i64)>,
        numbers: &HashSet<u64>,
    ) -> Result<HashMap<(u64, i64), u64>> {
        let mut all = HashMap::new();
        let mut todo = vec![ROOT];
        while let Some(dir) = todo.pop() {
            // What goes meanwhile, or may not be looked into, has nothing.
            let Ok(list) = Self::walk(&self.store).list(dir) else { continue };
            for (name, entry) in list {
                let is_of_interest = match entry {
                    // Some file systems do not tell types.
                    Entry::Host { ino, kind } => {
                        numbers.contains(&ino) || kind & TYPE == 0 || Kind::of(kind) == Kind::Directory
                    }
                    Entry::Object(_) => true,
                };
                if !is_of_interest {
                    continue;
                }
                let Ok(Some(found)) = Self::walk(&self.store).lookup(dir, &name) else { continue };
                let inode =
                    self.store.names.with(|state| state.objects.get(&found.id).and_then(|object| object.inode()));
                if let Some(inode) = inode.filter(|inode| wanted.contains(inode))
                    && let Some(id) = self.keep(&found, inode)
                {
                    all.insert(inode, id);
                }
                if found.kind == Kind::Directory {
                    todo.push(found.id);
                }
            }
        }
        Ok(all)
    }
}

impl CurrentObjects for Finder {
    fn find(&mut self, summary: &Summary, id: u64) -> Result<Option<u64>> {
        if let Some(&found) = self.found.get(&id) {
            return Ok(found);
        }
        let Some(settled) = summary.settled(id) else { return Ok(None) };
        let inode = (settled.stat.ino, settled.stat.btime_ns);
        let (dir, name) = &settled.place;
        let mut found = match self.find(summary, *dir)? {
            Some(dir) => self.at(dir, name, inode)?,
            None => None,
        };
        if found.is_none() {
            found = self.anywhere(summary)?.get(&inode).copied();
        }
        self.found.insert(id, found);
        Ok(found)
    }

    fn read(&mut self, now: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.store.read_committed(now, offset, buf)
    }
}

impl StoreInner {
    /// Reads what everybody sees of a file or of the target of a symbolic link.
    pub(super) fn read_committed(self: &Arc<Self>, id: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let looking = Running::looking(self.clone());
        let found = looking.object(id)?;
        if found.kind == Kind::Symlink {
            return Ok(copied(&looking.read_link_of(id)?, offset, buf));
        }
        let file = looking.open_object(id, false)?;
        self.read_visible(&file, offset, buf)
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        if !self.store.forked.is_inherited() {
            self.store.names.with(|state| self.pinned.iter().for_each(|id| state.unpin(*id)));
        }
    }
}
