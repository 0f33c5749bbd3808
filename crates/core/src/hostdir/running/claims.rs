//! What a running group claims before it changes names or attributes, and whether who calls may change them.

use rustix::io::Errno;

use super::Running;
use super::busy_wait::Patience;
use super::names::{At, refused};
use crate::error::{Error, Result};
use crate::hostdir::file::IMPLICIT;
use crate::hostdir::names::{Found, Last, Object, Private, TRIES, Walk, Wanted};
use sync::{Backoff, Ordering};
use wholly_changes::records::Baseline;
use wholly_changes::{Kind, ROOT};
use wholly_vfs::rules::permit;

/// Whether what somebody has found was taken away before he looked at it: then he is to look for it again.
pub(super) fn is_gone(looked: Result<()>) -> Result<bool> {
    match looked {
        Err(Error::NotFound(_)) => Ok(true),
        looked => looked.map(|()| false),
    }
}

impl Running {
    pub(super) fn walk(&self) -> Walk<'_> {
        Walk { names: &self.store.names, host: &*self.store.host, private: self.names.as_deref() }
    }

    pub(super) fn names_mut(&mut self) -> &mut Private {
        self.plain = false;
        self.names.get_or_insert_default()
    }

    /// The directory that a name is in, and the name.
    pub(super) fn last(&self, at: At<'_>) -> Result<Last> {
        match at {
            At::Path(path) => self.walk().parent(path),
            At::In(dir, name) => Ok(Last { dir, name: name.to_vec() }),
            At::Object(_) => Err(Error::invalid("it takes a name")),
        }
    }

    /// As it claims names.
    pub(super) fn claimer(&self) -> u64 {
        if self.single { self.id | IMPLICIT } else { self.id }
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.store.check_usable()?;
        self.check_whole()
    }

    /// Claims names and objects until the group ends. Calls outside of groups wait for each other.
    pub(super) fn claim(&mut self, wanted: &Wanted) -> Result<()> {
        let (mut backoff, mut patience) = (Backoff::new(), Patience::new(self.busy_timeout));
        loop {
            let (claimer, store) = (self.claimer(), self.store.clone());
            let private = self.names_mut();
            let taken: Result<u64, u64> = store.names.with(|state| {
                debug_assert!(wanted.objects().all(|id| state.objects.contains_key(&id)), "a call keeps what it finds");
                state.claim(claimer, wanted.clone(), &mut private.held)?;
                let names = wanted.names.iter().filter_map(|(dir, name)| state.register(*dir, name));
                let objects = wanted.alone.iter().chain(&wanted.attributes).filter_map(|id| state.objects.get(id));
                let last = names.map(|register| register.last()).chain(objects.map(|object| object.last)).max();
                Ok(last.unwrap_or(0))
            });
            match taken {
                Ok(last) => {
                    if last > self.sequence {
                        self.sequence = self.store.log.take_sequence();
                    }
                    return Ok(());
                }
                Err(other) if self.single && other & IMPLICIT != 0 => backoff.wait(),
                Err(_) if patience.wait() => {}
                Err(other) => {
                    let what = self.store.names.with(|state| match (wanted.names.first(), wanted.attributes.first()) {
                        (Some((dir, name)), _) => state.path_of(*dir, name),
                        (None, Some(id)) => state.path(*id),
                        (None, None) => "an object".into(),
                    });
                    return Err(Error::Busy(what, format!("group {} has not ended", other & 0xff_ffff_ffff)));
                }
            }
        }
    }

    /// The group has ended: its claims are gone.
    #[cold]
    pub(super) fn release_names(&mut self) {
        let claimer = self.claimer();
        if let Some(private) = self.names.take() {
            self.store.names.with(|state| state.release(claimer, &private));
        }
    }

    /// Claims the last part of a path, and `more` that depends on what is there; gives what it names once nobody else
    /// can change that.
    pub(super) fn claim_last(
        &mut self,
        at: At<'_>,
        more: impl Fn(&Last, Option<&Found>) -> Result<Wanted>,
    ) -> Result<(Last, Option<Found>)> {
        for _ in 0..TRIES {
            let last = self.last(at)?;
            let found = self.walk().lookup(last.dir, &last.name)?;
            let wanted = match more(&last, found.as_ref()) {
                // What is there, or is not, comes before who asks.
                Err(error @ (Error::Exists(_) | Error::NotFound(_))) => return Err(error),
                wanted => wanted,
            };
            if found.is_none() && !self.is_there(last.dir) {
                return Err(Error::NotFound(at.show()));
            }
            if is_gone(self.check_may_change(at, last.dir, found.as_ref()))? {
                continue;
            }
            let mut wanted = wanted?;
            wanted.names.push((last.dir, last.name[..].into()));
            self.claim(&wanted)?;
            let now = match found.as_ref().filter(|found| self.walk().is_as_found(last.dir, &last.name, found)) {
                Some(found) => Some(found.clone()),
                None => self.walk().lookup(last.dir, &last.name)?,
            };
            if self.is_there(last.dir) && now.as_ref().map(|found| found.id) == found.map(|found| found.id) {
                return Ok((last, now));
            }
        }
        Err(Error::Busy(at.show(), "others change it all the time".into()))
    }

    /// Refuses a change of an object's names or attributes if the object is immutable or append-only on the host, which
    /// would refuse it when it is written back.
    pub(super) fn check_not_fixed(&self, at: At<'_>, id: u64) -> Result<()> {
        let is_fixed = |object: &Object| object.is_immutable || object.is_append_only;
        match self.store.names.with(|state| state.objects.get(&id).is_some_and(is_fixed)) {
            true => refused(at, Errno::PERM),
            false => Ok(()),
        }
    }

    /// Whether who calls may change names in a directory, and take one away from `victim`.
    pub(super) fn check_may_change(&self, at: At<'_>, dir: u64, victim: Option<&Found>) -> Result<()> {
        // A directory that is append-only can get names, and none can be taken away.
        let is_fixed = |object: &Object| object.is_immutable || (object.is_append_only && victim.is_some());
        if self.store.names.with(|state| state.objects.get(&dir).is_some_and(is_fixed)) {
            return refused(at, Errno::PERM);
        }
        if let Some(victim) = victim {
            self.check_not_fixed(at, victim.id)?;
        }
        if self.who.is_superuser() {
            return Ok(());
        }
        let found = Found { id: dir, kind: Kind::Directory, stat: None };
        let dir = self.stat(at.bytes(), &found)?;
        if !self.allows(&self.who, &found, &dir, permit::WRITE | permit::SEARCH) {
            return refused(at, Errno::ACCESS);
        }
        match victim {
            Some(victim) if self.who.is_kept_from(&dir, &self.stat(at.bytes(), victim)?) => refused(at, Errno::PERM),
            _ => Ok(()),
        }
    }

    /// Whether a directory has a name for the group.
    pub(super) fn is_there(&self, dir: u64) -> bool {
        dir == ROOT || self.walk().above(dir).is_some()
    }

    /// A directory and those that it is in, as the group sees them.
    pub(super) fn all_above(&self, dir: u64) -> Vec<u64> {
        let mut all = vec![dir];
        while let Some(above) = self.walk().above(*all.last().expect("it has one")) {
            all.push(above);
        }
        all
    }

    /// What has to be claimed of an object that is linked, unlinked or moved: nothing of files, which are
    /// [joined](Self::join_named).
    pub(super) fn of_object(found: &Found) -> Wanted {
        match found.kind {
            Kind::Regular => Wanted::default(),
            _ => Wanted { alone: vec![found.id], ..Wanted::default() },
        }
    }

    /// A regular file whose names the group changes belongs to it as if it wrote to it. Gives its number, for
    /// [`touch`](Self::touch).
    pub(super) fn join_named(&mut self, path: &[u8], found: &Found) -> Result<Option<usize>> {
        if found.kind != Kind::Regular {
            return Ok(None);
        }
        let inner = self.store.file_of(path, found)?;
        if let Some(i) = self.find(&inner) {
            return Ok(Some(i));
        }
        self.store.epochs.clean(&self.store, &inner)?;
        let fresh = inner.identified.load(Ordering::Acquire) < self.store.log.announced_tail();
        let is_new = self.own(&inner)?;
        // As long as no pass has ended, what was found is how it lies.
        let passes = self.store.names.with(|state| state.passes());
        let is_known = |(stat, then)| then == passes && inner.baseline() == Some(Baseline::of(&stat));
        if fresh
            && is_new
            && !found.stat.is_some_and(is_known)
            && inner.is_clean()
            && let Err(error) = self.store.refresh_named(&inner)
        {
            self.sharing.leave(&inner, self.owner());
            return Err(error);
        }
        let born_ns = self.born_at(inner.id);
        Ok(Some(self.add(inner, born_ns)))
    }

    /// An entry about one of the group's files has been logged. Not before: of a call that is refused replay sees
    /// nothing.
    pub(super) fn touch(&mut self, file: Option<usize>) {
        if let Some(i) = file {
            self.seat_mut().files[i].touched = true;
        }
    }
}
