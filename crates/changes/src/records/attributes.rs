//! Payload of `Attributes`: mode, owner and times that are set.

use zerocopy::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::PERMISSIONS;

const SETS_MODE: u32 = 1;
const SETS_UID: u32 = 2;
const SETS_GID: u32 = 4;
const SETS_ATIME: u32 = 8;
const SETS_MTIME: u32 = 16;
const SETS_ALL: u32 = SETS_MODE | SETS_UID | SETS_GID | SETS_ATIME | SETS_MTIME;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawAttributes {
    which: U32,
    mode: U32,
    uid: U32,
    gid: U32,
    atime_ns: I64,
    mtime_ns: I64,
    mode_before: U32,
    uid_before: U32,
    gid_before: U32,
    reserved: [u8; 4],
    atime_ns_before: I64,
    mtime_ns_before: I64,
}
const _: () = assert!(size_of::<RawAttributes>() == 64);
const _: () = assert!(std::mem::offset_of!(RawAttributes, atime_ns) == 16);
const _: () = assert!(std::mem::offset_of!(RawAttributes, mode_before) == 32);
const _: () = assert!(std::mem::offset_of!(RawAttributes, atime_ns_before) == 48);

/// What is set, where it is `Some`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, set-id bits included: no call changes the type.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access in ns.
    pub atime_ns: Option<i64>,
    /// Time of the last change of content in ns.
    pub mtime_ns: Option<i64>,
    /// All of them as they were.
    pub before: AttributesBefore,
}

/// The attributes before they were set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributesBefore {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last access in ns.
    pub atime_ns: i64,
    /// Time of the last change of content in ns.
    pub mtime_ns: i64,
}

impl Attributes {
    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Attributes { mode, uid, gid, atime_ns, mtime_ns, before } = self;
        let set = [
            (mode.is_some(), SETS_MODE),
            (uid.is_some(), SETS_UID),
            (gid.is_some(), SETS_GID),
            (atime_ns.is_some(), SETS_ATIME),
            (mtime_ns.is_some(), SETS_MTIME),
        ];
        let raw = RawAttributes {
            which: U32::new(set.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum()),
            mode: U32::new(mode.unwrap_or(0)),
            uid: U32::new(uid.unwrap_or(0)),
            gid: U32::new(gid.unwrap_or(0)),
            atime_ns: I64::new(atime_ns.unwrap_or(0)),
            mtime_ns: I64::new(mtime_ns.unwrap_or(0)),
            mode_before: U32::new(before.mode),
            uid_before: U32::new(before.uid),
            gid_before: U32::new(before.gid),
            reserved: [0; 4],
            atime_ns_before: I64::new(before.atime_ns),
            mtime_ns_before: I64::new(before.mtime_ns),
        };
        let bytes = raw.as_bytes().to_vec();
        debug_assert_eq!(Self::checked(&bytes).as_ref(), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Attributes> {
        let raw = RawAttributes::read_from_bytes(bytes).ok()?;
        let which = raw.which.get();
        let is_set = |bit: u32| which & bit != 0;
        let sound = which & !SETS_ALL == 0
            && (is_set(SETS_MODE) || raw.mode.get() == 0)
            && (is_set(SETS_UID) || raw.uid.get() == 0)
            && (is_set(SETS_GID) || raw.gid.get() == 0)
            && (is_set(SETS_ATIME) || raw.atime_ns.get() == 0)
            && (is_set(SETS_MTIME) || raw.mtime_ns.get() == 0)
            && (raw.mode.get() | raw.mode_before.get()) & !PERMISSIONS == 0
            && raw.reserved == [0; 4];
        sound.then(|| Attributes {
            mode: is_set(SETS_MODE).then(|| raw.mode.get()),
            uid: is_set(SETS_UID).then(|| raw.uid.get()),
            gid: is_set(SETS_GID).then(|| raw.gid.get()),
            atime_ns: is_set(SETS_ATIME).then(|| raw.atime_ns.get()),
            mtime_ns: is_set(SETS_MTIME).then(|| raw.mtime_ns.get()),
            before: AttributesBefore {
                mode: raw.mode_before.get(),
                uid: raw.uid_before.get(),
                gid: raw.gid_before.get(),
                atime_ns: raw.atime_ns_before.get(),
                mtime_ns: raw.mtime_ns_before.get(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::with;
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Attributes {
        Attributes {
            mode: Some(1),
            uid: Some(2),
            gid: Some(3),
            atime_ns: Some(4),
            mtime_ns: Some(-5),
            before: AttributesBefore { mode: 6, uid: 7, gid: 8, atime_ns: 9, mtime_ns: 10 },
        }
    }

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = sample().to_bytes();
        assert_eq!(bytes.len(), 64);
        let at = [0, 4, 8, 12, 16, 24, 32, 36, 40, 48, 56].map(|at| bytes[at]);
        assert_eq!(at, [31, 1, 2, 3, 4, 251, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn impossible_ones_are_refused() {
        let bytes = sample().to_bytes();
        assert_eq!(Attributes::checked(&bytes[..63]), None);
        assert_eq!(Attributes::checked(&[&bytes[..], &[0]].concat()), None);
        let foul = [
            ("an attribute of later days", with(&bytes, 0, &[63])),
            ("a type in the mode", with(&bytes, 4, &0o100600u32.to_le_bytes())),
            ("a type in the mode before", with(&bytes, 32, &0o100600u32.to_le_bytes())),
            ("reserved bytes", with(&bytes, 44, &[1])),
        ];
        for (what, bytes) in foul {
            assert_eq!(Attributes::checked(&bytes), None, "{what}");
        }
        for bit in [SETS_MODE, SETS_UID, SETS_GID, SETS_ATIME, SETS_MTIME] {
            let foul = with(&bytes, 0, &(SETS_ALL & !bit).to_le_bytes());
            assert_eq!(Attributes::checked(&foul), None, "a value that is said not to be set: {bit}");
        }
    }

    proptest! {
        #[test]
        fn a_payload_reads_back(
            mode in proptest::option::of(0u32..=PERMISSIONS),
            owner in any::<(Option<u32>, Option<u32>)>(),
            times in any::<(Option<i64>, Option<i64>)>(),
            mode_before in 0u32..=PERMISSIONS,
            before in any::<(u32, u32, i64, i64)>(),
        ) {
            let before = AttributesBefore {
                mode: mode_before,
                uid: before.0,
                gid: before.1,
                atime_ns: before.2,
                mtime_ns: before.3,
            };
            let attributes =
                Attributes { mode, uid: owner.0, gid: owner.1, atime_ns: times.0, mtime_ns: times.1, before };
            prop_assert_eq!(Attributes::checked(&attributes.to_bytes()), Some(attributes));
        }
    }
}
