//! Access control lists, which the kernel shows as extended attributes: `posix_acl(5)`, and `linux/posix_acl_xattr.h`
//! for the bytes.
//!
//! An access list and the permission bits are two sights of one thing: whoever sets one changes the other. A
//! directory's default list is what new objects in it get.

use crate::Stat;
use rustix::io::Errno;

use super::permit::Who;
use super::set_id::{SET_GROUP_ID, may_set_group_id};
use super::{DIRECTORY, PERMISSIONS, SYMLINK, TYPE};

/// The attribute that is an object's access list.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute that is a directory's default list.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Access control lists, each with its name.
pub type Lists = Vec<(&'static [u8], Acl)>;

/// Whether `who` may set or remove a list of what looks like `stat`. Gives whether it can have one of that name.
pub fn check_set(who: &Who, stat: &Stat, name: &[u8], list: Option<&Acl>) -> Result<bool, Errno> {
    match stat.mode & TYPE {
        SYMLINK => Err(Errno::OPNOTSUPP),
        _ if !who.owns(stat) => Err(Errno::PERM),
        DIRECTORY => Ok(true),
        _ if name == DEFAULT && list.is_some() => Err(Errno::ACCESS),
        _ => Ok(name == ACCESS),
    }
}

/// Whether an attribute is a list.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

const VERSION: u32 = 2;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// In the place of an id, where the tag says it all.
const NOBODY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A list that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Checks the value of an attribute, as the kernel does. `None`: there is nobody in it, which takes a list away.
    pub fn read(value: &[u8]) -> Result<Option<Acl>, Errno> {
        match value.split_first_chunk::<4>() {
            None if value.is_empty() => Ok(None),
            None => Err(Errno::INVAL),
            Some((version, _)) if u32::from_le_bytes(*version) != VERSION => Err(Errno::OPNOTSUPP),
            Some((_, [])) => Ok(None),
            Some((_, entries)) => Acl::checked(entries).map(Some).ok_or(Errno::INVAL),
        }
    }

    fn checked(entries: &[u8]) -> Option<Acl> {
        if !entries.len().is_multiple_of(8) {
            return None;
        }
        let entry = |bytes: &[u8]| Entry {
            tag: u16::from_le_bytes([bytes[0], bytes[1]]),
            permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        let entries: Vec<Entry> = entries.chunks(8).map(entry).collect();
        let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
        let once = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|&tag| count(tag) == 1) && count(MASK) <= 1;
        let names_somebody = count(USER) + count(GROUP) > 0;
        let sound = entries.is_sorted_by_key(|entry| entry.tag)
            && entries.iter().all(|entry| {
                let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&entry.tag);
                let named = [USER, GROUP].contains(&entry.tag);
                known && entry.permissions & !7 == 0 && (!named || entry.id != NOBODY)
            })
            && once
            && (!names_somebody || count(MASK) == 1);
        sound.then_some(Acl(entries))
    }

    /// The value of the attribute.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    fn get(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions))
    }

    fn set(&mut self, tag: u16, permissions: u32) {
        for entry in self.0.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = permissions as u16;
        }
    }

    /// The tag of what the group's permission bits are.
    fn group_class(&self) -> u16 {
        if self.get(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The permission bits of an object that has it: nine of them.
    pub fn mode(&self) -> u32 {
        let bits = |tag| self.get(tag).unwrap_or(0);
        bits(USER_OBJ) << 6 | bits(self.group_class()) << 3 | bits(OTHER)
    }

    /// Whether permission bits say all that it does.
    pub fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// Whether it names nobody but this user and this group.
    pub fn names_only(&self, uid: u32, gid: u32) -> bool {
        self.0.iter().all(|entry| match entry.tag {
            USER => entry.id == uid,
            GROUP => entry.id == gid,
            _ => true,
        })
    }

    /// What becomes of it when the permission bits are set.
    pub fn with_mode(mut self, mode: u32) -> Acl {
        let group = self.group_class();
        self.set(USER_OBJ, mode >> 6 & 7);
        self.set(group, mode >> 3 & 7);
        self.set(OTHER, mode & 7);
        self
    }

    /// What a new object gets, asked for with `mode`, where this is its directory's default: its mode, and its lists.
    pub fn inherited(self, mode: u32) -> (u32, Lists) {
        let masked = self.mode() & mode & 0o777;
        let access = self.clone().with_mode(masked);
        let lists = [(ACCESS, access), (DEFAULT, self)].into_iter();
        let gets = |(name, list): &(&[u8], Acl)| match *name {
            ACCESS => !list.is_mode(),
            _ => mode & TYPE == DIRECTORY,
        };
        (mode & !0o777 | masked, lists.filter(gets).collect())
    }

    /// Whether it is kept as the list `name`: an access list that says no more than permission bits is not.
    pub fn is_kept(&self, name: &[u8]) -> bool {
        name == DEFAULT || !self.is_mode()
    }

    /// The permission bits of what looks like `stat` once `who` has set this access list.
    pub fn mode_of(&self, who: &Who, stat: &Stat) -> u32 {
        let mode = stat.mode & PERMISSIONS & !0o777 | self.mode();
        if may_set_group_id(who, stat.gid) { mode } else { mode & !SET_GROUP_ID }
    }

    /// Whether a user who is in these groups has all of `wanted` permissions for what looks like `stat`.
    pub fn allows(&self, stat: &Stat, uid: u32, is_member: impl Fn(u32) -> bool, wanted: u32) -> bool {
        let has = |permissions: u32| permissions & wanted == wanted;
        let mask = self.get(MASK).unwrap_or(7);
        if uid == stat.uid {
            return has(self.get(USER_OBJ).unwrap_or(0));
        }
        if let Some(user) = self.0.iter().find(|entry| entry.tag == USER && entry.id == uid) {
            return has(u32::from(user.permissions) & mask);
        }
        let mut of_groups = self.0.iter().filter(|entry| match entry.tag {
            GROUP_OBJ => is_member(stat.gid),
            GROUP => is_member(entry.id),
            _ => false,
        });
        match of_groups.clone().next() {
            Some(_) => of_groups.any(|entry| has(u32::from(entry.permissions) & mask)),
            None => has(self.get(OTHER).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `getfacl` writes it, in short.
    fn acl(entries: &[(u16, u16, u32)]) -> Option<Acl> {
        let entries = entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect();
        Acl::read(&Acl(entries).to_bytes()).ok().flatten()
    }

    fn with_user(user: u16, mask: u16) -> Acl {
        let entries = [
            (USER_OBJ, 6, NOBODY),
            (USER, user, 7),
            (GROUP_OBJ, 4, NOBODY),
            (GROUP, 2, 9),
            (MASK, mask, NOBODY),
            (OTHER, 0, NOBODY),
        ];
        acl(&entries).expect("it makes sense")
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        let (user, group, other) = ((USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHER, 0, NOBODY));
        assert!(acl(&[user, group, other]).is_some_and(|acl| acl.is_mode() && acl.mode() == 0o640));
        for (what, entries) in [
            ("nobody", vec![]),
            ("no owner", vec![group, other]),
            ("two owners", vec![user, user, group, other]),
            ("no mask", vec![user, (USER, 6, 7), group, other]),
            ("out of order", vec![group, user, other]),
            ("a user without an id", vec![user, (USER, 6, NOBODY), group, (MASK, 7, NOBODY), other]),
            ("more permissions than there are", vec![(USER_OBJ, 8, NOBODY), group, other]),
            ("a tag of later days", vec![user, group, other, (0x40, 0, NOBODY)]),
        ] {
            assert_eq!(acl(&entries), None, "{what}");
        }
        let bytes = acl(&[user, group, other]).unwrap().to_bytes();
        assert_eq!(bytes.len(), 28);
        assert_eq!(Acl::read(&bytes[..27]), Err(Errno::INVAL));
        assert_eq!(Acl::read(&[&[3], &bytes[1..]].concat()), Err(Errno::OPNOTSUPP), "another version");
        assert_eq!((Acl::read(&bytes[..4]), Acl::read(b"")), (Ok(None), Ok(None)));
    }

    #[test]
    fn the_mask_is_the_groups_bits() {
        let acl = with_user(7, 5);
        assert_eq!((acl.mode(), acl.is_mode()), (0o650, false));
        let set = acl.clone().with_mode(0o727);
        assert_eq!((set.mode(), set.get(GROUP_OBJ)), (0o727, Some(4)));
        let (mode, lists) = acl.clone().inherited(0o604);
        let [(ACCESS, inherited)] = &lists[..] else { panic!("{lists:?}") };
        assert_eq!((mode, inherited.mode(), inherited.get(MASK)), (0o600, 0o600, Some(0)));
        assert_eq!(acl.clone().inherited(DIRECTORY | 0o777).1[1], (DEFAULT, acl));
    }

    #[test]
    fn users_before_groups_before_others() {
        let stat = Stat { uid: 1, gid: 2, ..Stat::default() };
        let acl = with_user(7, 5);
        let may = |uid: u32, groups: &[u32], wanted| acl.allows(&stat, uid, |gid| groups.contains(&gid), wanted);
        assert!(may(1, &[], 6) && !may(1, &[2], 1), "the owner");
        assert!(may(7, &[], 5) && !may(7, &[2], 2), "a user, less the mask");
        assert!(may(3, &[2, 9], 4) && !may(3, &[2, 9], 6), "no group has both");
        assert!(!may(3, &[9], 2), "the mask");
        assert!(!may(3, &[], 4), "others");
    }
}
