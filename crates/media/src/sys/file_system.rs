//! The kinds of file systems that Wholly tells apart.

use crate::sys::OrFail;
use crate::{Error, Result};
use rustix::fd::AsFd;

/// The kind of a file system, told by the magic number of `statfs(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileSystem {
    /// Memory, lost at power failure.
    Tmpfs,
    /// Memory in huge pages; files have no `write(2)` and sizes are multiples of the page.
    Hugetlbfs,
    /// Memory that never swaps.
    Ramfs,
    /// ext2, ext3 or ext4: they share their number.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs: copies on write unless told otherwise by `NOCOW`.
    Btrfs,
    /// F2FS.
    F2fs,
    /// bcachefs.
    Bcachefs,
    /// ZFS.
    Zfs,
    /// overlayfs.
    Overlay,
    /// NFS.
    Nfs,
    /// CIFS or SMB.
    Smb,
    /// FAT.
    Fat,
    /// exFAT.
    ExFat,
    /// NTFS (the kernel's `ntfs3`).
    Ntfs,
    /// A file system in user space, virtiofs among them.
    Fuse,
    /// 9P.
    Plan9,
    /// Any other, with its number.
    Other(u32),
}

impl FileSystem {
    /// The kind of the file system that an open file lies on.
    ///
    /// # Errors
    /// Those of `fstatfs(2)`.
    pub fn of(fd: impl AsFd) -> Result<FileSystem, Error> {
        let statfs = rustix::fs::fstatfs(fd).or_fail("fstatfs", || "")?;
        // The numbers are 32 bits wide; some architectures sign-extend them.
        Ok(Self::from_magic(statfs.f_type as u32))
    }

    fn from_magic(magic: u32) -> FileSystem {
        match magic {
            0x0102_1994 => FileSystem::Tmpfs,
            0x9584_58f6 => FileSystem::Hugetlbfs,
            0x8584_58f6 => FileSystem::Ramfs,
            0x0000_ef53 => FileSystem::Ext4,
            0x5846_5342 => FileSystem::Xfs,
            0x9123_683e => FileSystem::Btrfs,
            0xf2f5_2010 => FileSystem::F2fs,
            0xca45_1a4e => FileSystem::Bcachefs,
            0x2fc1_2fc1 => FileSystem::Zfs,
            0x794c_7630 => FileSystem::Overlay,
            0x0000_6969 => FileSystem::Nfs,
            0xff53_4d42 | 0xfe53_4d42 => FileSystem::Smb,
            0x0000_4d44 => FileSystem::Fat,
            0x2011_bab0 => FileSystem::ExFat,
            0x7366_746e => FileSystem::Ntfs,
            0x6573_5546 => FileSystem::Fuse,
            0x0102_1997 => FileSystem::Plan9,
            other => FileSystem::Other(other),
        }
    }

    /// Whether its files are memory that a power failure clears.
    pub fn is_memory(self) -> bool {
        matches!(self, FileSystem::Tmpfs | FileSystem::Hugetlbfs | FileSystem::Ramfs)
    }
}

impl std::fmt::Display for FileSystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileSystem::Tmpfs => "tmpfs",
            FileSystem::Hugetlbfs => "hugetlbfs",
            FileSystem::Ramfs => "ramfs",
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
            FileSystem::F2fs => "f2fs",
            FileSystem::Bcachefs => "bcachefs",
            FileSystem::Zfs => "zfs",
            FileSystem::Overlay => "overlayfs",
            FileSystem::Nfs => "nfs",
            FileSystem::Smb => "smb",
            FileSystem::Fat => "fat",
            FileSystem::ExFat => "exfat",
            FileSystem::Ntfs => "ntfs",
            FileSystem::Fuse => "fuse",
            FileSystem::Plan9 => "9p",
            FileSystem::Other(magic) => return write!(f, "file system {magic:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(FileSystem::from_magic(0xef53).to_string(), "ext4");
        assert_eq!(FileSystem::from_magic(0x0102_1994), FileSystem::Tmpfs);
        assert_eq!(FileSystem::from_magic(7).to_string(), "file system 0x7");
        assert!(FileSystem::Tmpfs.is_memory() && !FileSystem::Ext4.is_memory());
    }
}
