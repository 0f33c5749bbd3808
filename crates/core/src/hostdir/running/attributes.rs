//! What a running group does to mode, owner and times. It decides as the kernel would for who calls, and logs
//! what comes of it.

use wholly_changes::records::{Attributes, AttributesBefore};
use wholly_changes::{Kind, Set};
use wholly_vfs::Stat;

use super::names::{At, check_bits, refused};
use super::{Inner, Running, Sharing};
use crate::error::{Error, Result};
use crate::hostdir::clock::Mtime;
use crate::hostdir::names::{Found, Moment, PERMISSIONS, TRIES, Wanted};
use crate::log::layout::EntryKind;
use wholly_vfs::rules::acl;
use wholly_vfs::rules::attributes::Asked;
use wholly_vfs::rules::permit::{self, Who};
use wholly_vfs::rules::set_id::{SET_GROUP_ID, SET_USER_ID, privileges};
use wholly_vfs::rules::xattr::CAPABILITY;

/// An object whose attributes belong to the group.
pub(super) struct Mine {
    pub found: Found,
    /// Of a regular file, its number.
    pub file: Option<usize>,
    pub stat: Stat,
}

/// What one call asks for.
#[derive(Clone, Copy, Default)]
pub(in crate::hostdir) struct Wish {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime_ns: Option<i64>,
    pub mtime_ns: Option<i64>,
    /// The times are that of the call, which whoever may write may set, too.
    pub now: bool,
    /// It is a call of chown(2), which takes set-id bits and capabilities also where it gives no new owner.
    pub chown: bool,
}

impl Wish {
    /// For the rules.
    fn asked(&self) -> Asked {
        let Wish { mode, uid, gid, atime_ns, mtime_ns, now, chown } = *self;
        Asked { mode, uid, gid, times: atime_ns.or(mtime_ns).map(|_| now), chown }
    }

    /// Whether it asks for anything.
    pub fn is_any(&self) -> bool {
        let Asked { mode, uid, gid, times, .. } = self.asked();
        mode.is_some() || uid.is_some() || gid.is_some() || times.is_some()
    }
}

impl Running {
    /// Claims the attributes of an object.
    pub(super) fn claim_attributes(&mut self, at: At<'_>) -> Result<Mine> {
        self.check_open()?;
        for _ in 0..TRIES {
            let found = self.object_at(at)?;
            self.check_not_fixed(at, found.id)?;
            let file = match self.join_named(at.bytes(), &found) {
                // It was taken away meanwhile.
                Err(Error::NotFound(_)) => continue,
                file => file?,
            };
            if file.is_none() {
                self.claim(&Wanted { attributes: vec![found.id], ..Wanted::default() })?;
            }
            // Who had it before may have moved it.
            if self.object_at(at)?.id == found.id {
                return Ok(Mine { stat: self.stat(at.bytes(), &found)?, found, file });
            }
        }
        Err(Error::Busy(at.show(), "others change it all the time".into()))
    }

    pub(in crate::hostdir) fn set_mode(&mut self, path: &[u8], mode: u32) -> Result<()> {
        check_bits(mode)?;
        self.set_attributes(path.into(), Wish { mode: Some(mode), ..Wish::default() })
    }

    pub(in crate::hostdir) fn set_owner(&mut self, path: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_attributes(path.into(), Wish { uid, gid, chown: true, ..Wish::default() })
    }

    pub(in crate::hostdir) fn set_times(
        &mut self,
        path: &[u8],
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
    ) -> Result<()> {
        // The earliest time stands for none.
        let told = |ns: Option<i64>| ns.map(|ns| ns.max(i64::MIN + 1));
        self.set_attributes(path.into(), Wish { atime_ns: told(atime_ns), mtime_ns: told(mtime_ns), ..Wish::default() })
    }

    /// Sets all of it, or nothing.
    pub(in crate::hostdir) fn set_attributes(&mut self, at: At<'_>, wish: Wish) -> Result<()> {
        self.check_open()?;
        self.let_go_of_unused();
        let mine = self.claim_attributes(at)?;
        self.check_may_set(at, &mine, &wish)?;
        if !wish.is_any() && !wish.chown {
            return Ok(());
        }
        let wish = Wish { mode: wish.asked().mode(&self.who, &mine.stat), ..wish };
        if let Some(mode) = wish.mode
            && let Some(acl) = self.acl_of(at, &mine.found, acl::ACCESS)
        {
            self.put_xattr(at, &mine, acl::ACCESS, Some(&acl.with_mode(mode).to_bytes()))?;
            return self.set_rest(at, &mine, wish).map_err(|error| self.break_off(error));
        }
        self.set_rest(at, &mine, wish)
    }

    /// Sets what a call asks for, the access list excepted.
    fn set_rest(&mut self, at: At<'_>, mine: &Mine, wish: Wish) -> Result<()> {
        let found = &mine.found;
        if wish.asked().drops_privileges()
            && found.kind != Kind::Directory
            && self.xattr_of(at, found, CAPABILITY)?.is_some()
        {
            self.put_xattr(at, mine, CAPABILITY, None)?;
            let set = if wish.is_any() { self.set(mine, wish) } else { Ok(()) };
            return set.map_err(|error| self.break_off(error));
        }
        if wish.is_any() { self.set(mine, wish) } else { Ok(()) }
    }

    pub(super) fn check_may_set(&self, at: At<'_>, mine: &Mine, wish: &Wish) -> Result<()> {
        let may_write = || self.may(&mine.found, &mine.stat, permit::WRITE);
        wish.asked().check(&self.who, &mine.stat, may_write).or_else(|errno| refused(at, errno))
    }

    /// The group is about to change the content of a file that it has joined.
    #[cold]
    pub(in crate::hostdir) fn content_changes(&mut self, inner: &Inner) -> Result<()> {
        // Calls beside others of their kind have seen to it before: see `StoreInner::implicit`.
        if self.sharing == Sharing::Share {
            return Ok(());
        }
        let (any, some_go) = self.has_privileges(inner.id, &self.who)?;
        inner.set_privileges(any);
        if some_go { self.drop_privileges(At::Object(inner.id)) } else { Ok(()) }
    }

    /// A file whose content somebody changes loses what made it run as its owner, unless that is the superuser; its
    /// capabilities in any case.
    pub(in crate::hostdir) fn drop_privileges(&mut self, at: At<'_>) -> Result<()> {
        let mine = self.claim_attributes(at)?;
        let capable = self.xattr_of(at, &mine.found, CAPABILITY).is_ok_and(|value| value.is_some());
        if capable {
            self.put_xattr(at, &mine, CAPABILITY, None)?;
        }
        let Some(mode) = privileges(&mine.stat, &self.who) else { return Ok(()) };
        let set = self.set(&mine, Wish { mode: Some(mode), ..Wish::default() });
        if capable { set.map_err(|error| self.break_off(error)) } else { set }
    }

    /// Whether a file has privileges, and whether some of them go when `who` changes its content.
    pub(in crate::hostdir) fn has_privileges(&self, id: u64, who: &Who) -> Result<(bool, bool)> {
        let (at, found) = (At::Object(id), self.object(id)?);
        let stat = self.stat(at.bytes(), &found)?;
        let capable = self.xattr_of(at, &found, CAPABILITY).is_ok_and(|value| value.is_some());
        let any = capable || stat.mode & (SET_USER_ID | SET_GROUP_ID) != 0;
        Ok((any, capable || privileges(&stat, who).is_some()))
    }

    pub(super) fn set(&mut self, mine: &Mine, wish: Wish) -> Result<()> {
        let Wish { mode, uid, gid, atime_ns, mtime_ns, now: _, chown: _ } = wish;
        let Stat { mode: mode_before, uid: uid_before, gid: gid_before, .. } = mine.stat;
        let before = AttributesBefore {
            mode: mode_before & PERMISSIONS,
            uid: uid_before,
            gid: gid_before,
            atime_ns: mine.stat.atime_ns,
            mtime_ns: mine.stat.mtime_ns,
        };
        let entry = Attributes { mode, uid, gid, atime_ns, mtime_ns, before };
        self.log_entry(EntryKind::Attributes, mine.found.id, &entry.to_bytes())?;
        self.has_set(mine, &Set::of_attributes(&entry));
        if let Some(ns) = mtime_ns {
            match mine.file {
                Some(i) => self.seat_mut().files[i].mtime = Mtime::Told(ns),
                None => self.names_mut().set_mtime(mine.found.id, Mtime::Told(ns)),
            }
        }
        Ok(())
    }

    /// An entry says so.
    pub(super) fn has_set(&mut self, mine: &Mine, set: &Set) {
        let (id, store) = (mine.found.id, self.store.clone());
        let last = store.names.with(|state| {
            let object = state.objects.get_mut(&id)?;
            if set.atime_ns.is_some() {
                object.read = Moment::default();
            }
            Some(object.last)
        });
        if let Some(i) = mine.file
            && (set.mode.is_some_and(|mode| mode & (SET_USER_ID | SET_GROUP_ID) != 0)
                || set.xattrs.contains_key(CAPABILITY))
        {
            self.seat().files[i].inner.set_privileges(true);
        }
        let now = store.host.now_ns();
        let private = self.names_mut();
        private.after = private.after.max(last.unwrap_or(0));
        private.set_ctime(id, now);
        private.put(id, set);
        if mine.file.is_none() {
            private.speak_of(id);
        }
        self.touch(mine.file);
    }
}
