//! What is committed of an object's attributes and not home.
//!
//! Mode, owner and time of access are registers, as names are: each has the value of the last group that set it, and
//! what is not home is kept with the sequence of its group. So is each extended attribute. The time of the last change
//! of content is another matter: see [`clock`](crate::hostdir::clock).

use wholly_vfs::Stat;

use wholly_changes::records::AttributesBefore;
use wholly_changes::{Set, xattr_checksum};
use wholly_vfs::rules::PERMISSIONS;

/// What is committed of an object's attributes and not home, in commit order.
/// Most objects have none, and then it takes little memory.
#[derive(Default)]
pub(crate) struct Sets(Option<Box<Committed>>);

#[derive(Default)]
struct Committed(Vec<(u64, Set)>);

impl Sets {
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> &[(u64, Set)] {
        self.0.as_ref().map_or(&[], |all| &all.0)
    }

    /// A group at `sequence` has set this.
    pub fn publish(&mut self, sequence: u64, set: &Set) {
        let all = &mut self.0.get_or_insert_default().0;
        debug_assert!(all.last().is_none_or(|last| last.0 <= sequence), "attributes are set in commit order");
        match all.last_mut() {
            Some((last, known)) if *last == sequence => known.put(set),
            _ => all.push((sequence, set.clone())),
        }
    }

    /// All that groups below `target` have set.
    pub fn as_of(&self, target: u64) -> Set {
        let mut all = Set::default();
        self.all().iter().take_while(|(stamp, _)| *stamp < target).for_each(|(_, set)| all.put(set));
        all
    }

    /// All of it is home that groups below `tail` have set.
    pub fn forget(&mut self, tail: u64) {
        if let Some(all) = &mut self.0 {
            all.0.retain(|&(stamp, _)| stamp >= tail);
            if all.0.is_empty() {
                self.0 = None;
            }
        }
    }

    /// What a bystander has made of an attribute that is to be set, in words: it is neither what it was, nor what a
    /// pass may have made of it.
    pub fn foreign(&self, stat: &Stat) -> Option<&'static str> {
        let could_be = |now: u32, value: fn(&Set) -> Option<u32>, before: fn(&AttributesBefore) -> u32| {
            let mut setting = self.all().iter().filter(|(_, set)| value(set).is_some());
            let Some((_, first)) = setting.clone().next() else { return true };
            now == before(&first.before.attributes) || setting.any(|(_, set)| value(set) == Some(now))
        };
        match () {
            () if !self.could_have_mode(stat.mode & PERMISSIONS) => Some("its mode has been changed"),
            () if !could_be(stat.uid, |set| set.uid, |before| before.uid) => Some("its owner has been changed"),
            () if !could_be(stat.gid, |set| set.gid, |before| before.gid) => Some("its group has been changed"),
            () => None,
        }
    }

    /// Whether an object, of which the mode is to be set, could have this one without a bystander: an access list that
    /// goes home changes nine bits, and a new owner takes set-id bits away, before the mode itself follows.
    fn could_have_mode(&self, now: u32) -> bool {
        const PERMITS: u32 = 0o777;
        const SET_ID: u32 = 0o6000;
        let setting = || self.all().iter().filter_map(|(_, set)| Some((set, set.mode?)));
        let Some((first, _)) = setting().next() else { return true };
        let mut could = setting().map(|(_, mode)| mode).chain([first.before.attributes.mode]);
        let permits = could.clone().any(|mode| mode & PERMITS == now & PERMITS);
        permits && could.any(|mode| [mode, mode & !SET_ID].iter().any(|mode| mode & !PERMITS == now & !PERMITS))
    }

    /// Whether an extended attribute, which is to be set, has a value at home that it could have without a bystander.
    pub fn could_be(&self, name: &[u8], now: Option<&[u8]>) -> bool {
        let mut setting = self.all().iter().filter_map(|(_, set)| Some((set, set.xattrs.get(name)?)));
        let Some((first, _)) = setting.clone().next() else { return true };
        let before = first.before.xattrs.get(name).copied().flatten();
        before == now.map(xattr_checksum) || setting.any(|(_, value)| value.as_deref() == now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wholly_changes::{Before, records::Xattr};

    fn mode(mode: u32, before: u32) -> Set {
        let before =
            Before { attributes: AttributesBefore { mode: before, ..Default::default() }, ..Default::default() };
        Set { mode: Some(mode), before, ..Set::default() }
    }

    #[test]
    fn the_last_one_counts_and_the_first_tells_what_was_before() {
        let mut sets = Sets::default();
        sets.publish(3, &mode(0o600, 0o644));
        sets.publish(5, &Set { uid: Some(7), ..Set::default() });
        sets.publish(9, &mode(0o640, 0o600));
        let all = sets.as_of(u64::MAX);
        assert_eq!((all.mode, all.uid, all.before.attributes.mode), (Some(0o640), Some(7), 0o644));
        assert_eq!((sets.as_of(9).mode, sets.as_of(3).mode), (Some(0o600), None));
        let foreign = |mode| sets.foreign(&Stat { mode, ..Stat::default() });
        for known in [0o644, 0o600, 0o640] {
            assert_eq!(foreign(0o100_000 | known), None, "{known:o}");
        }
        assert!(foreign(0o666).is_some() && foreign(0o1644).is_some());
        sets.publish(9, &mode(0o6750, 0o600));
        let foreign = |mode| sets.foreign(&Stat { mode, ..Stat::default() });
        assert_eq!((foreign(0o750), foreign(0o6644)), (None, None), "on its way to that");
        sets.forget(9);
        let foreign = |mode| sets.foreign(&Stat { mode, ..Stat::default() });
        assert!(foreign(0o644).is_some(), "the pass has made another of it");
        assert_eq!(foreign(0o600), None);
    }

    #[test]
    fn an_extended_attribute_is_known_by_its_checksum() {
        let entry = |value: Option<&[u8]>, before: Option<&[u8]>| {
            Set::of_xattr(Xattr {
                name: b"user.a".to_vec(),
                value: value.map(<[u8]>::to_vec),
                before: before.map(xattr_checksum),
            })
        };
        let mut sets = Sets::default();
        sets.publish(3, &entry(Some(b"1"), None));
        sets.publish(4, &entry(None, Some(b"1")));
        for (value, could) in [(None, true), (Some(&b"1"[..]), true), (Some(b"2"), false)] {
            assert_eq!(sets.could_be(b"user.a", value), could, "{value:?}");
        }
        assert!(sets.could_be(b"user.b", Some(b"?")), "nobody sets it");
        assert_eq!(sets.as_of(4).xattrs[&b"user.a"[..]].as_deref(), Some(&b"1"[..]));
        assert_eq!(sets.as_of(5).xattrs[&b"user.a"[..]], None);
    }
}
