//! How calls of [`Vfs`](super::Vfs) change names, attributes and space: their flags, in words.

use super::{Errno, Result};

/// What a rename does about both names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rename {
    /// What has the new name loses it.
    Replace,
    /// Nothing may have the new name (`RENAME_NOREPLACE`).
    NoReplace,
    /// What has the new name gets the old one (`RENAME_EXCHANGE`).
    Exchange,
    /// As [`Replace`](Self::Replace). A [whiteout](crate::rules::names::WHITEOUT) gets the old name
    /// (`RENAME_WHITEOUT`).
    Whiteout,
    /// As [`NoReplace`](Self::NoReplace). A whiteout gets the old name.
    WhiteoutNoReplace,
}

impl Rename {
    /// The one with these flags of `renameat2(2)`.
    ///
    /// # Errors
    /// `EINVAL` for flags that there are not, or not together.
    pub const fn from_flags(flags: u32) -> Result<Rename> {
        match flags {
            0 => Ok(Rename::Replace),
            1 => Ok(Rename::NoReplace),
            2 => Ok(Rename::Exchange),
            4 => Ok(Rename::Whiteout),
            5 => Ok(Rename::WhiteoutNoReplace),
            _ => Err(Errno::INVAL),
        }
    }

    /// Its flags of `renameat2(2)`.
    pub const fn flags(self) -> u32 {
        match self {
            Rename::Replace => 0,
            Rename::NoReplace => 1,
            Rename::Exchange => 2,
            Rename::Whiteout => 4,
            Rename::WhiteoutNoReplace => 5,
        }
    }

    /// What becomes of the new name, and whether a whiteout gets the old one.
    pub const fn parts(self) -> (Rename, bool) {
        match self {
            Rename::Whiteout => (Rename::Replace, true),
            Rename::WhiteoutNoReplace => (Rename::NoReplace, true),
            how => (how, false),
        }
    }
}

/// What becomes of the space of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fallocate {
    /// Reserves space for the range; content and size stay as they are (`FALLOC_FL_KEEP_SIZE`).
    Keep,
    /// Reserves space for the range; the file grows to the end of it (mode 0).
    Extend,
    /// Makes the range read as zeros and gives back its whole blocks; the size stays (`FALLOC_FL_PUNCH_HOLE |
    /// FALLOC_FL_KEEP_SIZE`).
    Punch,
    /// Makes the range read as zeros, its space reserved; the size stays (`FALLOC_FL_ZERO_RANGE |
    /// FALLOC_FL_KEEP_SIZE`).
    Zero,
    /// Makes the range read as zeros, its space reserved; the file grows to the end of it (`FALLOC_FL_ZERO_RANGE`).
    ZeroExtend,
    /// Removes the range: what follows moves down (`FALLOC_FL_COLLAPSE_RANGE`). A volume can, a store cannot.
    Collapse,
    /// Makes a hole of the range's length: what was there, and what follows, moves up (`FALLOC_FL_INSERT_RANGE`). A
    /// volume can, a store cannot.
    Insert,
}

impl Fallocate {
    /// The one with these bits of `fallocate(2)`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for bits that there are not, or not together.
    pub const fn from_flags(mode: u32) -> Result<Fallocate> {
        match mode {
            0 => Ok(Fallocate::Extend),
            1 => Ok(Fallocate::Keep),
            3 => Ok(Fallocate::Punch),
            8 => Ok(Fallocate::Collapse),
            16 => Ok(Fallocate::ZeroExtend),
            17 => Ok(Fallocate::Zero),
            32 => Ok(Fallocate::Insert),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Its bits of `fallocate(2)`.
    pub const fn flags(self) -> u32 {
        match self {
            Fallocate::Extend => 0,
            Fallocate::Keep => 1,
            Fallocate::Punch => 3,
            Fallocate::Collapse => 8,
            Fallocate::ZeroExtend => 16,
            Fallocate::Zero => 17,
            Fallocate::Insert => 32,
        }
    }

    /// Whether the range reads as zeros afterwards.
    pub const fn zeroes(self) -> bool {
        matches!(self, Fallocate::Punch | Fallocate::Zero | Fallocate::ZeroExtend)
    }

    /// Whether the range has space afterwards.
    pub const fn reserves(self) -> bool {
        matches!(self, Fallocate::Keep | Fallocate::Extend | Fallocate::Zero | Fallocate::ZeroExtend)
    }

    /// Whether a file that ends in the range or before grows to the end of it.
    pub const fn extends(self) -> bool {
        matches!(self, Fallocate::Extend | Fallocate::ZeroExtend)
    }

    /// Whether bytes beyond the range move.
    pub const fn moves(self) -> bool {
        matches!(self, Fallocate::Collapse | Fallocate::Insert)
    }
}

/// What setting an extended attribute expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetXattr {
    /// Whether or not the attribute is there.
    Any,
    /// It is not (`XATTR_CREATE`).
    Create,
    /// It is (`XATTR_REPLACE`).
    Replace,
}

impl SetXattr {
    /// The one with these flags of `setxattr(2)`.
    ///
    /// # Errors
    /// `EINVAL` for flags that there are not, or not together.
    pub const fn from_flags(flags: u32) -> Result<SetXattr> {
        match flags {
            0 => Ok(SetXattr::Any),
            1 => Ok(SetXattr::Create),
            2 => Ok(SetXattr::Replace),
            _ => Err(Errno::INVAL),
        }
    }

    /// Its flags of `setxattr(2)`.
    pub const fn flags(self) -> u32 {
        match self {
            SetXattr::Any => 0,
            SetXattr::Create => 1,
            SetXattr::Replace => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, RenameFlags, XattrFlags};

    #[test]
    fn flags_are_those_of_the_kernel() {
        let (keep, none) = (FallocateFlags::KEEP_SIZE, FallocateFlags::empty());
        let spaces = [
            (Fallocate::Extend, none),
            (Fallocate::Keep, keep),
            (Fallocate::Punch, FallocateFlags::PUNCH_HOLE | keep),
            (Fallocate::Zero, FallocateFlags::ZERO_RANGE | keep),
            (Fallocate::ZeroExtend, FallocateFlags::ZERO_RANGE),
            (Fallocate::Collapse, FallocateFlags::COLLAPSE_RANGE),
            (Fallocate::Insert, FallocateFlags::INSERT_RANGE),
        ];
        let renames = [
            (Rename::Replace, RenameFlags::empty()),
            (Rename::NoReplace, RenameFlags::NOREPLACE),
            (Rename::Exchange, RenameFlags::EXCHANGE),
            (Rename::Whiteout, RenameFlags::WHITEOUT),
            (Rename::WhiteoutNoReplace, RenameFlags::WHITEOUT | RenameFlags::NOREPLACE),
        ];
        let xattrs = [
            (SetXattr::Any, XattrFlags::empty()),
            (SetXattr::Create, XattrFlags::CREATE),
            (SetXattr::Replace, XattrFlags::REPLACE),
        ];
        for flags in 0..1 << 10 {
            let space = spaces.iter().find(|(_, bits)| bits.bits() == flags);
            assert_eq!(Fallocate::from_flags(flags), space.map(|(how, _)| *how).ok_or(Errno::OPNOTSUPP));
            let rename = renames.iter().find(|(_, bits)| bits.bits() == flags);
            assert_eq!(Rename::from_flags(flags), rename.map(|(how, _)| *how).ok_or(Errno::INVAL));
            let xattr = xattrs.iter().find(|(_, bits)| bits.bits() == flags);
            assert_eq!(SetXattr::from_flags(flags), xattr.map(|(how, _)| *how).ok_or(Errno::INVAL));
        }
        assert!(spaces.iter().all(|(how, bits)| how.flags() == bits.bits()));
        assert!(renames.iter().all(|(how, bits)| how.flags() == bits.bits()));
        assert!(xattrs.iter().all(|(how, bits)| how.flags() == bits.bits()));
        for flags in [1 << 20, 1 << 31] {
            assert!(Fallocate::from_flags(flags).is_err() && Rename::from_flags(flags).is_err());
        }
    }
}
