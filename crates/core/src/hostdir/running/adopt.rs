//! What a group takes out of the layer: a whole directory with all that is in it, a file, a link, a special file.
//! Somebody else has made it; the group gives it a name.
//!
//! It moves to the folder of blanks, and is to the store what a pass has hung there: an object that the host has, whose
//! name is to come. All that is in a directory comes with it and is never looked at, however much that is. So it is
//! written once, by whoever made it, and goes home by one rename.
//!
//! # Invariants
//!
//! 1. What is adopted, and all that is in it, is durable in the folder of blanks before the commit record is written.
//! 2. Nobody but the group knows of it before that: a group that ends otherwise gives it back, and what a crash leaves
//!    of it the next open removes.
//! 3. Of a group of which nobody knows whether it survives, nothing is given back.

use rustix::io::Errno;
use wholly_changes::{Kind, id_name, join};
use wholly_host::host_error;
use wholly_vfs::{Rename, Stat};

use super::Running;
use super::names::{At, refused};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::layer;
use crate::hostdir::names::{BLANK_FOLDER, BLANKS, Found, Last, Wanted, show};
use crate::hostdir::parked::Mismatch;
use crate::site;

/// Up to as many files a commit syncs one by one, rather than the whole file system.
const SYNC_EACH: usize = 16;

/// What a group has by somebody else, who made its changes.
#[derive(Default)]
pub(super) struct Brought {
    /// Where that was which it has [adopted](Private::adopted), in the same order.
    from: Paths,
    /// What the group builds on and is not what that one has seen, as he has told: objects, and what is otherwise.
    pub told: Vec<(u64, Mismatch)>,
}

/// Paths that are taken in the order contrary to that in which they came. Of very many in one directory each takes
/// little more than its name.
#[derive(Default)]
struct Paths {
    /// Directories, each with the number of the first path in it.
    dirs: Vec<(usize, Vec<u8>)>,
    /// One name behind the other, each before its length in two bytes, in pieces that never grow. None is empty.
    names: Vec<Vec<u8>>,
    count: usize,
}

/// Bytes of names in a piece.
const PIECE: usize = 64 << 10;

impl Paths {
    fn push(&mut self, path: &[u8]) {
        let (dir, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
        if self.dirs.last().is_none_or(|(_, last)| last != dir) {
            self.dirs.push((self.count, dir.to_vec()));
        }
        let length = u16::try_from(name.len()).expect("no host has so long names").to_le_bytes();
        let room = name.len() + length.len();
        if self.names.last().is_none_or(|piece| piece.capacity() - piece.len() < room) {
            self.names.push(Vec::with_capacity(if self.names.is_empty() { room } else { PIECE.max(room) }));
        }
        let piece = self.names.last_mut().expect("there is one");
        piece.extend_from_slice(name);
        piece.extend_from_slice(&length);
        self.count += 1;
    }

    fn last(&self) -> Option<Vec<u8>> {
        let ((_, dir), (names, length)) = (self.dirs.last()?, self.names.last()?.split_last_chunk()?);
        Some([dir, &names[names.len() - usize::from(u16::from_le_bytes(*length))..]].concat())
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let last = self.last()?;
        self.count -= 1;
        let (first, dir) = self.dirs.last().expect("the path is in it");
        let piece = self.names.last_mut().expect("the path is in it");
        piece.truncate(piece.len() - (last.len() - dir.len()) - 2);
        if piece.is_empty() {
            self.names.pop();
        }
        if *first == self.count {
            self.dirs.pop();
        }
        Some(last)
    }
}

impl Running {
    /// Gives what lies at the host path `from` a name.
    pub(in crate::hostdir) fn adopt(&mut self, from: &[u8], at: At<'_>) -> Result<()> {
        self.check_open()?;
        self.let_go_of_unused();
        if !layer::is_in(from) {
            return Err(Error::invalid(format!("{}: only what is in the layer can be adopted", show(from))));
        }
        let exists = |_: &Last, found: Option<&Found>| match found {
            Some(_) => Err(Error::Exists(at.show())),
            None => Ok(Wanted::default()),
        };
        let (last, _) = self.claim_last(at, exists)?;
        self.promise_name(&last.name)?;
        let store = self.store.clone();
        let failed = |error| host_error(error, from);
        let stat = store.host.stat(from).map_err(failed)?;
        if Kind::of(stat.mode) == Kind::Special && stat.rdev == 0 && stat.mode & 0o170_000 == 0o020_000 {
            // By such a device an overlay hides a name.
            return refused(At::Path(from), Errno::INVAL);
        }
        store.make_folders()?;
        let found = self.bring(from, &stat)?;
        self.hang(&found, from)?;
        let file = self.join_named(at.bytes(), &found).map_err(|error| self.break_off(error))?;
        self.set_name(&last, 0, found.id).map_err(|error| self.break_off(error))?;
        self.touch(file);
        Ok(())
    }

    /// See [`Brought::told`].
    pub(super) fn told(&self) -> &[(u64, Mismatch)] {
        self.brought.as_ref().map_or(&[], |brought| &brought.told)
    }

    /// It is an object from now on, and the group's.
    fn bring(&mut self, from: &[u8], stat: &Stat) -> Result<Found> {
        let id = self.store.names.with(|state| state.bring(stat));
        let why = || Error::Busy(show(from), "it is already one of the store's files, under another name".into());
        let id = id.ok_or_else(why)?;
        self.claim(&Wanted { alone: vec![id], ..Wanted::default() })?;
        Ok(Found { id, kind: Kind::of(stat.mode), stat: None })
    }

    /// It moves to where nobody else comes by it.
    fn hang(&mut self, found: &Found, from: &[u8]) -> Result<()> {
        let (store, to) = (self.store.clone(), hung(found.id));
        let take = || store.host.rename(site::ADOPT_TAKE, from, &to, Rename::NoReplace);
        let taken = store.names.change_home(take, |state, ()| state.hang(found.id, BLANKS));
        taken.map_err(|error| {
            store.names.with(|state| state.unmake(found.id));
            host_error(error, from)
        })?;
        self.plain = false;
        self.brought.get_or_insert_default().from.push(from);
        // The id is new, and higher than all others.
        self.names_mut().adopted.insert(found.id);
        Ok(())
    }

    /// Before the commit: what is adopted survives (invariant 1).
    #[cold]
    pub(super) fn settle_adopted(&mut self) -> Result<()> {
        let count = self.brought.as_ref().map_or(0, |brought| brought.from.count);
        let (store, Some(names)) = (&self.store, self.names.as_deref().filter(|_| count > 0)) else { return Ok(()) };
        // What a failure is about nobody knows: it may be what a pass has written.
        let poisons = |error| store.poison(&Error::Media(error));
        let is_regular = |id: u64| store.names.with(|state| state.objects[&id].kind == Kind::Regular);
        if count > SYNC_EACH || !names.adopted.iter().all(is_regular) {
            store.host.sync_all(site::ADOPT_SYNC_ALL).map_err(poisons)?;
            store.log.count_barrier();
            return Ok(());
        }
        for id in names.adopted.iter() {
            let path = hung(id);
            let home = store.host.open(&path, false).map_err(|error| host_error(error, &path))?;
            home.sync(site::ADOPT_SYNC).map_err(poisons)?;
            store.log.count_barrier();
        }
        store.host.sync_dir(site::ADOPT_SYNC_DIR, BLANK_FOLDER).map_err(poisons)?;
        store.log.count_barrier();
        Ok(())
    }

    /// The group has not committed.
    pub(super) fn give_back(&mut self) {
        let Some(mut brought) = self.brought.take() else { return };
        if self.store.check_usable().is_err() {
            // Invariant 3.
            return;
        }
        let adopted: Vec<u64> = self.names_mut().adopted.iter().collect();
        for id in adopted.into_iter().rev() {
            let from = brought.from.pop().expect("each was somewhere");
            let store: &StoreInner = &self.store;
            let give = || store.host.rename(site::ADOPT_RETURN, &hung(id), &from, Rename::NoReplace);
            // Where that fails, the next open removes it.
            let _ = store.names.change_home(give, |state, ()| state.unmake(id));
        }
    }

    /// That all of what the group would change can be shown: what is in directories that it has adopted, or removes
    /// whole, it does not know.
    pub(super) fn check_shown(&self) -> Result<()> {
        let cannot =
            |what: String| Err(Error::invalid(format!("a group that {what} can be neither reviewed nor parked")));
        let takes_whole = self.names.as_ref().is_some_and(|private| !private.taken_whole.is_empty());
        match self.brought.as_ref().and_then(|brought| brought.from.last()) {
            Some(from) => cannot(format!("has adopted {}", show(&from))),
            None if takes_whole && !self.takes_back() => cannot("removes a directory with everything in it".into()),
            None => Ok(()),
        }
    }
}

/// The host path of something that is adopted.
fn hung(id: u64) -> Vec<u8> {
    join(BLANK_FOLDER, &id_name(id))
}

#[cfg(test)]
mod tests {
    use super::Paths;

    #[test]
    fn paths_are_taken_in_the_contrary_order() {
        let all: [&[u8]; 7] = [b"a/b", b"a/c", b"a/d/e", b"a/d/", b"f", b"a/b", b"a/longer than the others"];
        let mut paths = Paths::default();
        for round in 0..2 {
            all.iter().for_each(|path| paths.push(path));
            assert_eq!((paths.count, paths.dirs.len()), (7, 4));
            for path in all.iter().rev().take(7 - round) {
                assert_eq!((paths.last(), paths.pop()), (Some(path.to_vec()), Some(path.to_vec())));
            }
            assert_eq!(paths.count, round);
            if round == 1 {
                assert_eq!(paths.pop(), Some(b"a/b".to_vec()));
            }
            assert!(paths.last().is_none() && paths.pop().is_none() && paths.dirs.is_empty() && paths.names.is_empty());
        }
    }
}
