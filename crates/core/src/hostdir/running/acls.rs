//! What a running group does to access control lists, what these allow, and what a directory hands down to new objects.

use rustix::io::Errno;
use wholly_changes::records::{Birth, Xattr};
use wholly_changes::{Kind, Set};
use wholly_vfs::Stat;

use super::Running;
use super::attributes::Wish;
use super::names::{At, refused};
use crate::error::Result;
use crate::hostdir::names::Found;
use crate::log::layout::EntryKind;
use wholly_vfs::rules::acl::{self, Acl, Lists};
use wholly_vfs::rules::permit::Who;
use wholly_vfs::rules::set_id::in_directory;

impl Running {
    /// Sets an access list, and with it the permission bits, or a default list; takes it away if there is nobody in it.
    pub(super) fn set_acl(&mut self, at: At<'_>, name: &[u8], value: &[u8]) -> Result<()> {
        let mine = self.claim_attributes(at)?;
        let acl = Acl::read(value).or_else(|errno| refused(at, errno))?;
        let can_have = acl::check_set(&self.who, &mine.stat, name, acl.as_ref());
        if !can_have.or_else(|errno| refused(at, errno))? {
            return Ok(());
        }
        let before = self.xattr_of(at, &mine.found, name)?;
        let kept = acl.as_ref().filter(|acl| acl.is_kept(name)).map(Acl::to_bytes);
        let list = before.is_some() || kept.is_some();
        if list {
            self.put_xattr(at, &mine, name, kept.as_deref())?;
        }
        self.names_mut().defaults.remove(&mine.found.id);
        let Some(acl) = acl.filter(|_| name == acl::ACCESS) else { return Ok(()) };
        let mode = Some(acl.mode_of(&self.who, &mine.stat));
        let set = self.set(&mine, Wish { mode, ..Wish::default() });
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

    /// The same for the user of the group, as a rule asks it.
    pub(super) fn may(&self, found: &Found, stat: &Stat, wanted: u32) -> Result<(), Errno> {
        if self.allows(&self.who, found, stat, wanted) { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// What a new object in `dir` is made with: the directory's group and its default list have a say. Gives the lists
    /// that it gets, by name.
    pub(super) fn inherited(&mut self, dir: u64, birth: Birth) -> Result<(Birth, Lists)> {
        let found = Found { id: dir, kind: Kind::Directory, stat: None };
        let stat = self.stat(b"", &found)?;
        let (mode, gid) = in_directory(&self.who, &stat, birth.mode, birth.gid);
        let birth = Birth { mode, gid, ..birth };
        if Kind::of(mode) == Kind::Symlink {
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
        let (mode, lists) = default.inherited(mode);
        Ok((Birth { mode, ..birth }, lists))
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
