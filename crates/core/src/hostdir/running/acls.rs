//! What a running group does to access control lists, what these allow, and what a directory hands down to new objects.

use rustix::io::Errno;
use wholly_host::Stat;

use super::Running;
use super::attributes::Wish;
use super::names::{At, refused};
use crate::error::Result;
use crate::hostdir::names::{Found, Kind, PERMISSIONS, Set};
use crate::hostdir::records::{Birth, Xattr};
use crate::log::layout::EntryKind;
use crate::rules::acl::{self, Acl};
use crate::rules::permit::Who;
use crate::rules::set_id::{GROUP_EXECUTES, SET_GROUP_ID, may_set_group_id};

/// Access control lists, each with its name.
pub(super) type Lists = Vec<(&'static [u8], Acl)>;

impl Running {
    /// Sets an access list, and with it the permission bits, or a default list; takes it away if there is nobody in it.
    pub(super) fn set_acl(&mut self, at: At<'_>, name: &[u8], value: &[u8]) -> Result<()> {
        let mine = self.claim_attributes(at)?;
        let acl = Acl::read(value).or_else(|errno| refused(at, errno))?;
        match mine.found.kind {
            Kind::Symlink => return refused(at, Errno::OPNOTSUPP),
            _ if !self.who.owns(&mine.stat) => return refused(at, Errno::PERM),
            Kind::Directory => {}
            _ if name == acl::DEFAULT && acl.is_some() => return refused(at, Errno::ACCESS),
            _ if name == acl::DEFAULT => return Ok(()),
            _ => {}
        }
        let before = self.xattr_of(at, &mine.found, name)?;
        // A list that permission bits say all of is not kept.
        let kept = acl.as_ref().filter(|acl| name == acl::DEFAULT || !acl.is_mode()).map(Acl::to_bytes);
        let list = before.is_some() || kept.is_some();
        if list {
            self.put_xattr(at, &mine, name, kept.as_deref())?;
        }
        self.names_mut().defaults.remove(&mine.found.id);
        let Some(acl) = acl.filter(|_| name == acl::ACCESS) else { return Ok(()) };
        let mut mode = mine.stat.mode & PERMISSIONS & !0o777 | acl.mode();
        if !may_set_group_id(&self.who, mine.stat.gid) {
            mode &= !SET_GROUP_ID;
        }
        let set = self.set(&mine, Wish { mode: Some(mode), ..Wish::default() });
        if list { set.map_err(|error| self.break_off(error)) } else { set }
    }

    /// A list of an object, as the group sees it, where there is one.
    pub(super) fn acl_of(&self, at: At<'_>, found: &Found, name: &[u8]) -> Option<Acl> {
        let value = self.xattr_of(at, found, name).ok().flatten()?;
        Acl::read(&value).ok().flatten()
    }

    /// Whether somebody has all of `wanted` permissions for an object that looks like `stat`.
    pub(in crate::hostdir) fn allows(&self, who: &Who, found: &Found, stat: &Stat, wanted: u32) -> bool {
        if who.is_superuser() {
            return true;
        }
        match self.acl_of(At::Object(found.id), found, acl::ACCESS) {
            Some(acl) => acl.allows(stat, who.uid(), |group| who.is_in(group), wanted),
            None => who.may(stat, wanted),
        }
    }

    /// What a new object in `dir` is made with: the directory's group and its default list have a say. Gives the lists
    /// that it gets, by name.
    pub(super) fn inherited(&mut self, dir: u64, birth: Birth) -> Result<(Birth, Lists)> {
        let found = Found { id: dir, kind: Kind::Directory, stat: None };
        let stat = self.stat(b"", &found)?;
        let birth = self.of_group(&stat, birth);
        let kind = Kind::of(birth.mode);
        if kind == Kind::Symlink {
            return Ok((birth, Vec::new()));
        }
        let default = match self.names_mut().defaults.get(&dir) {
            Some(default) => default.clone(),
            None => {
                let default = self.acl_of(At::Object(dir), &found, acl::DEFAULT);
                self.names_mut().defaults.insert(dir, default.clone());
                default
            }
        };
        let Some(default) = default else { return Ok((birth, Vec::new())) };
        let (access, bits) = default.clone().inherited(birth.mode);
        let mut lists = Vec::new();
        if !access.is_mode() {
            lists.push((acl::ACCESS, access));
        }
        if kind == Kind::Directory {
            lists.push((acl::DEFAULT, default));
        }
        Ok((Birth { mode: birth.mode & !0o777 | bits, ..birth }, lists))
    }

    /// A new object belongs to the group of a directory that has the bit for it.
    fn of_group(&self, dir: &Stat, birth: Birth) -> Birth {
        if dir.mode & SET_GROUP_ID == 0 {
            return birth;
        }
        let runs = birth.mode & (SET_GROUP_ID | GROUP_EXECUTES) == SET_GROUP_ID | GROUP_EXECUTES;
        let mode = match Kind::of(birth.mode) {
            Kind::Directory => birth.mode | SET_GROUP_ID,
            _ if runs && !may_set_group_id(&self.who, dir.gid) => birth.mode & !SET_GROUP_ID,
            _ => birth.mode,
        };
        Birth { gid: dir.gid, mode, ..birth }
    }

    /// Gives an object that the group has just made the lists that it inherits.
    pub(super) fn hand_down(&mut self, id: u64, lists: Lists) -> Result<()> {
        for (name, acl) in lists {
            let entry = Xattr { name: name.to_vec(), value: Some(acl.to_bytes()), before: None };
            self.log_entry(EntryKind::Xattr, id, &entry.to_bytes()).map_err(|error| self.break_off(error))?;
            self.names_mut().put(id, &Set::of_xattr(entry));
        }
        Ok(())
    }
}
