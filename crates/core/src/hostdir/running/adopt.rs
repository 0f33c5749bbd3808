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
use wholly_host::{Rename, Stat};

use super::Running;
use super::names::{At, refused};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::layer;
use crate::hostdir::names::{BLANK_FOLDER, BLANKS, Found, Kind, Last, Wanted, id_name, join, show};
use crate::hostdir::parked::Mismatch;
use crate::hostdir::table::host_error;
use crate::site;

/// Up to as many files a commit syncs one by one, rather than the whole file system.
const SYNC_EACH: usize = 16;

/// What a group has by somebody else, who made its changes.
#[derive(Default)]
pub(super) struct Brought {
    adopted: Vec<Adopted>,
    /// What the group builds on and is not what that one has seen, as he has told: objects, and what is otherwise.
    pub told: Vec<(u64, Mismatch)>,
}

/// Something that a group has adopted.
struct Adopted {
    id: u64,
    kind: Kind,
    /// Where it was.
    from: Vec<u8>,
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

    fn adopted(&self) -> &[Adopted] {
        self.brought.as_ref().map_or(&[], |brought| &brought.adopted)
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
        let adopted = Adopted { id: found.id, kind: found.kind, from: from.to_vec() };
        self.brought.get_or_insert_default().adopted.push(adopted);
        self.names_mut().adopted.push(found.id);
        Ok(())
    }

    /// Before the commit: what is adopted survives (invariant 1).
    #[cold]
    pub(super) fn settle_adopted(&mut self) -> Result<()> {
        let (store, adopted) = (&self.store, self.adopted());
        if adopted.is_empty() {
            return Ok(());
        }
        // What a failure is about nobody knows: it may be what a pass has written.
        let poisons = |error| store.poison(&Error::Media(error));
        if adopted.len() > SYNC_EACH || adopted.iter().any(|adopted| adopted.kind != Kind::Regular) {
            store.host.sync_all(site::ADOPT_SYNC_ALL).map_err(poisons)?;
            store.log.count_barrier();
            return Ok(());
        }
        for adopted in adopted {
            let path = hung(adopted.id);
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
        let Some(brought) = self.brought.take() else { return };
        if self.store.check_usable().is_err() {
            // Invariant 3.
            return;
        }
        for Adopted { id, from, .. } in brought.adopted.into_iter().rev() {
            let store: &StoreInner = &self.store;
            let give = || store.host.rename(site::ADOPT_RETURN, &hung(id), &from, Rename::NoReplace);
            // Where that fails, the next open removes it.
            let _ = store.names.change_home(give, |state, ()| state.unmake(id));
        }
    }

    /// That all of what the group would change can be shown: what is in directories that it has adopted it does not
    /// know.
    pub(super) fn check_shown(&self) -> Result<()> {
        match self.adopted().first() {
            None => Ok(()),
            Some(Adopted { from, .. }) => Err(Error::invalid(format!(
                "a group that has adopted {} can be neither reviewed nor parked",
                show(from)
            ))),
        }
    }
}

/// The host path of something that is adopted.
fn hung(id: u64) -> Vec<u8> {
    join(BLANK_FOLDER, &id_name(id))
}
