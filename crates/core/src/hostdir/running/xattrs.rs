//! What a running group does to extended attributes.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use wholly_changes::records::{LONGEST_XATTR, Xattr};
use wholly_changes::{Set, XattrValue, xattr_checksum};
use wholly_host::host_error;
use wholly_vfs::{NAME_MAX, SetXattr, Stat};

use super::Running;
use super::attributes::Mine;
use super::names::{At, refused};
use crate::error::{Error, Result};
use crate::hostdir::names::Found;
use crate::hostdir::room::Promise;
use crate::log::layout::EntryKind;
use sync::{AtomicU8, Ordering};
use wholly_vfs::rules::acl;
use wholly_vfs::rules::permit;
use wholly_vfs::rules::xattr::{
    CAPABILITY, SECURITY, TRUSTED, USER, are_capabilities, check_get, check_name, check_set, may_see,
};

/// An extended attribute that is set, or removed.
type Step = (Vec<u8>, Option<Vec<u8>>);

impl Running {
    pub(in crate::hostdir) fn set_xattr(&mut self, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        if value.len() > LONGEST_XATTR {
            return refused(at, Errno::TOOBIG);
        }
        if acl::is_acl(name) {
            return self.set_acl(at, name, value);
        }
        let mine = self.claim_attributes(at)?;
        self.check_may_set_xattr(at, name, &mine)?;
        if name == CAPABILITY && !are_capabilities(value) {
            return refused(at, Errno::INVAL);
        }
        match (how, self.xattr_of(at, &mine.found, name)?) {
            (SetXattr::Create, Some(_)) => refused(at, Errno::EXIST),
            (SetXattr::Replace, None) => refused(at, Errno::NODATA),
            _ => self.put_xattr(at, &mine, name, Some(value)),
        }
    }

    pub(in crate::hostdir) fn remove_xattr(&mut self, at: At<'_>, name: &[u8]) -> Result<()> {
        if acl::is_acl(name) {
            return self.set_acl(at, name, b"");
        }
        let mine = self.claim_attributes(at)?;
        self.check_may_set_xattr(at, name, &mine)?;
        match self.xattr_of(at, &mine.found, name)? {
            None => refused(at, Errno::NODATA),
            Some(_) => self.put_xattr(at, &mine, name, None),
        }
    }

    pub(in crate::hostdir) fn xattr(&self, at: At<'_>, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.store.check_usable()?;
        self.look_at(at, |found| self.xattr_as_asked(at, found, name))
    }

    /// An extended attribute, as somebody sees it who may not see all.
    fn xattr_as_asked(&self, at: At<'_>, found: &Found, name: &[u8]) -> Result<Option<Vec<u8>>> {
        check_xattr_name(at, name)?;
        let stat = if name.starts_with(USER) { self.stat(at.bytes(), found)? } else { Stat::default() };
        let may_read = || self.may(found, &stat, permit::READ);
        match check_get(&self.who, found.kind.bits(), name, may_read).or_else(|errno| refused(at, errno))? {
            true => Ok(self.xattr_of(at, found, name)?.map(|value| value.to_vec())),
            false => Ok(None),
        }
    }

    pub(in crate::hostdir) fn xattrs(&self, at: At<'_>) -> Result<Vec<Vec<u8>>> {
        self.store.check_usable()?;
        self.look_at(at, |found| self.xattr_names_of(at, found))
    }

    pub(super) fn xattr_names_of(&self, at: At<'_>, found: &Found) -> Result<Vec<Vec<u8>>> {
        let _still = self.store.names.keep_homes();
        // First: what a pass takes home while the host is asked is in one of the two, or in both.
        let sets = self.sets_of(found);
        let place = self.store.names.with(|state| state.host_path(found.id));
        let at_home = place.map(|place| self.list_at_home(found.id, &place)).transpose();
        let at_home = match at_home {
            Err(error) if error.errno == Errno::OPNOTSUPP => Vec::new(),
            names => names.map_err(|error| host_error(error, at.bytes()))?.unwrap_or_default(),
        };
        let mut names: BTreeSet<Vec<u8>> = at_home.into_iter().collect();
        for set in sets {
            for (name, value) in set.xattrs {
                match value {
                    Some(_) => names.insert(name),
                    None => names.remove(&name),
                };
            }
        }
        // The host tells the process, who may be another.
        names.retain(|name| may_see(&self.who, name));
        Ok(names.into_iter().collect())
    }

    pub(super) fn check_may_set_xattr(&self, at: At<'_>, name: &[u8], mine: &Mine) -> Result<()> {
        check_xattr_name(at, name)?;
        let may_write = || self.may(&mine.found, &mine.stat, permit::WRITE);
        check_set(&self.who, &mine.stat, name, may_write).or_else(|errno| refused(at, errno))
    }

    /// What is set of an object and not home: what is committed, and what the group has set.
    pub(super) fn sets_of(&self, found: &Found) -> impl Iterator<Item = Set> + use<> {
        let committed =
            self.store.names.with(|state| state.objects.get(&found.id).map(|object| object.sets.as_of(u64::MAX)));
        let private = self.names.as_deref().and_then(|private| private.set_of(found.id)).cloned();
        committed.into_iter().chain(private)
    }

    /// The value of an extended attribute, as the group sees it.
    pub(super) fn xattr_of(&self, at: At<'_>, found: &Found, name: &[u8]) -> Result<XattrValue> {
        let _still = self.store.names.keep_homes();
        if let Some(value) = self.sets_of(found).filter_map(|mut set| set.xattrs.remove(name)).last() {
            return Ok(value);
        }
        let place = self.store.names.with(|state| state.host_path(found.id));
        let is_there = place.is_some();
        if is_there && self.has_not(found.id, name) {
            return Ok(None);
        }
        let space = Spaces::of(name);
        if !is_there && self.store.xattr_spaces.has(space) {
            return Ok(None);
        }
        // Of what the host has not made: whether it can have such a one at all.
        match self.store.host.get_xattr(&place.unwrap_or_default(), name) {
            Ok(value) => {
                self.store.xattr_spaces.add(space);
                Ok(value.filter(|_| is_there).map(Into::into))
            }
            Err(error) if error.errno == Errno::OPNOTSUPP => refused(at, Errno::OPNOTSUPP),
            Err(error) => Err(host_error(error, at.bytes())),
        }
    }

    /// Refuses an extended attribute for which the host has no room beside the others of the object. Gives what it
    /// takes more of the host's space.
    fn check_xattr_room(&self, at: At<'_>, found: &Found, name: &[u8], value: &[u8]) -> Result<Promise> {
        /// Bytes that every file system has room for.
        const SMALL: usize = 400;
        /// About what each costs besides.
        const HEAD: usize = 16;
        let _still = self.store.names.keep_homes();
        let mut sets: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for set in self.sets_of(found) {
            sets.extend(set.xattrs.into_iter().map(|(name, value)| (name, value.map(|value| value.to_vec()))));
        }
        let at_home = self.xattrs_at_home(at, found)?;
        let lengths = |(name, value): &Step| Some((name.clone(), HEAD + name.len() + value.as_ref()?.len()));
        let mut before: BTreeMap<Vec<u8>, usize> = at_home.iter().filter_map(lengths).collect();
        for set in &sets {
            match set.1 {
                Some(value) => _ = before.insert(set.0.clone(), HEAD + set.0.len() + value.len()),
                None => _ = before.remove(set.0),
            }
        }
        let was: usize = before.values().sum();
        before.insert(name.to_vec(), HEAD + name.len() + value.len());
        let more = Promise::xattrs(before.values().sum()).bytes.saturating_sub(Promise::xattrs(was).bytes);
        sets.insert(name.to_vec(), Some(value.to_vec()));
        // As a checkpoint does it: over what the host has, first what is removed.
        let mut steps = at_home;
        let (removed, set): (Vec<_>, Vec<_>) = sets.into_iter().partition(|(_, value)| value.is_none());
        steps.extend(removed.into_iter().chain(set));
        let bytes = |(name, value): &Step| HEAD + name.len() + value.as_ref().map_or(0, Vec::len);
        if steps.iter().map(bytes).sum::<usize>() <= SMALL {
            return Ok(Promise::bytes(more));
        }
        self.store.host.try_xattrs(&steps).or_else(|error| refused(at, error.errno))?;
        Ok(Promise::bytes(more))
    }

    /// The extended attributes that the host has of an object, in its order.
    fn xattrs_at_home(&self, at: At<'_>, found: &Found) -> Result<Vec<Step>> {
        let host = &self.store.host;
        let Some(place) = self.store.names.with(|state| state.host_path(found.id)) else { return Ok(Vec::new()) };
        let failed = |error| host_error(error, at.bytes());
        let names = match host.list_xattrs(&place) {
            Err(error) if error.errno == Errno::OPNOTSUPP => Vec::new(),
            names => names.map_err(failed)?,
        };
        let value = |name: Vec<u8>| Ok((host.get_xattr(&place, &name).map_err(failed)?, name));
        let all: Result<Vec<_>> = names.into_iter().map(value).collect();
        Ok(all?.into_iter().filter(|(value, _)| value.is_some()).map(|(value, name)| (name, value)).collect())
    }

    pub(super) fn put_xattr(&mut self, at: At<'_>, mine: &Mine, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let before = self.xattr_of(at, &mine.found, name)?;
        if let Some(value) = value.filter(|value| before.as_ref().is_none_or(|before| before.len() < value.len())) {
            let more = self.check_xattr_room(at, &mine.found, name, value)?;
            // What undoes a group takes back what that has freed.
            if !more.is_none() && self.store.parked.provisional.lock().unwrap().is_empty() {
                self.promise(more, at.bytes())?;
            }
        }
        let before = before.as_deref().map(xattr_checksum);
        let entry = Xattr { name: name.to_vec(), value: value.map(<[u8]>::to_vec), before };
        self.log_entry(EntryKind::Xattr, mine.found.id, &entry.to_bytes())?;
        self.has_set(mine, &Set::of_xattr(entry));
        Ok(())
    }
}

/// Of which kinds the host is known to have extended attributes: its answer for one name of a kind is that for all of
/// them. Which it does not have is not kept. The kernel asks for the capabilities of a program before each write to a
/// file, and who makes many is spared as many calls.
#[derive(Default)]
pub(crate) struct Spaces(AtomicU8);

impl Spaces {
    /// The kind of a name, as a bit: none, where the host is to be asked each time.
    fn of(name: &[u8]) -> u8 {
        match name {
            acl::ACCESS => 1,
            acl::DEFAULT => 2,
            _ if name.starts_with(USER) => 4,
            _ if name.starts_with(TRUSTED) => 8,
            _ if name.starts_with(SECURITY) => 16,
            _ => 0,
        }
    }

    fn has(&self, space: u8) -> bool {
        self.0.load(Ordering::Relaxed) & space != 0
    }

    fn add(&self, space: u8) {
        if !self.has(space) {
            self.0.fetch_or(space, Ordering::Relaxed);
        }
    }
}

fn check_xattr_name(at: At<'_>, name: &[u8]) -> Result<()> {
    if name.contains(&0) && name.len() <= NAME_MAX {
        return Err(Error::invalid("the name of an extended attribute cannot hold a zero byte"));
    }
    check_name(name).or_else(|errno| refused(at, errno))
}
