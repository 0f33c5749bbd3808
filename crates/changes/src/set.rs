//! What groups set of an object's attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly_vfs::Stat;
use wholly_vfs::rules::PERMISSIONS;

use crate::records::{Attributes, AttributesBefore, Xattr};

/// A value of an extended attribute; `None`: there is no such attribute.
pub type XattrValue = Option<Arc<[u8]>>;

/// What one group set. `None`: it did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access in ns.
    pub atime_ns: Option<i64>,
    /// By name.
    pub xattrs: BTreeMap<Vec<u8>, XattrValue>,
    /// What there was before: of an attribute that is set, as at home where no group below is not home.
    pub before: Before,
}

/// Attributes before a group set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Mode, owner and times.
    pub attributes: AttributesBefore,
    /// Checksums of values, where there were any, by name.
    pub xattrs: BTreeMap<Vec<u8>, Option<u64>>,
}

impl Set {
    /// Whether it sets nothing.
    pub fn is_empty(&self) -> bool {
        let Set { mode, uid, gid, atime_ns, xattrs, before: _ } = self;
        mode.is_none() && uid.is_none() && gid.is_none() && atime_ns.is_none() && xattrs.is_empty()
    }

    /// The same group, or a later one, sets more.
    pub fn put(&mut self, later: &Set) {
        // Of what was set already, the first value before is the one from outside.
        let before = &mut self.before.attributes;
        for (set, was, then) in [
            (self.mode.is_some(), &mut before.mode, later.before.attributes.mode),
            (self.uid.is_some(), &mut before.uid, later.before.attributes.uid),
            (self.gid.is_some(), &mut before.gid, later.before.attributes.gid),
        ] {
            if !set {
                *was = then;
            }
        }
        for (name, then) in &later.before.xattrs {
            self.before.xattrs.entry(name.clone()).or_insert(*then);
        }
        self.mode = later.mode.or(self.mode);
        self.uid = later.uid.or(self.uid);
        self.gid = later.gid.or(self.gid);
        self.atime_ns = later.atime_ns.or(self.atime_ns);
        self.xattrs.extend(later.xattrs.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// What somebody sees who would see `stat` without it.
    pub fn show(&self, stat: &mut Stat) {
        if let Some(mode) = self.mode {
            stat.mode = stat.mode & !PERMISSIONS | mode;
        }
        stat.uid = self.uid.unwrap_or(stat.uid);
        stat.gid = self.gid.unwrap_or(stat.gid);
        stat.atime_ns = self.atime_ns.unwrap_or(stat.atime_ns);
    }

    /// What an entry of the log sets.
    pub fn of_attributes(entry: &Attributes) -> Set {
        let Attributes { mode, uid, gid, atime_ns, mtime_ns: _, before } = *entry;
        let before = Before { attributes: before, ..Before::default() };
        Set { mode, uid, gid, atime_ns, before, ..Set::default() }
    }

    /// The same of one extended attribute.
    pub fn of_xattr(entry: Xattr) -> Set {
        let mut set = Set::default();
        set.before.xattrs.insert(entry.name.clone(), entry.before);
        set.xattrs.insert(entry.name, entry.value.map(Arc::from));
        set
    }
}

/// By which a value is known that is not kept.
pub fn xattr_checksum(value: &[u8]) -> u64 {
    log::checksum::checksum(0, value)
}
