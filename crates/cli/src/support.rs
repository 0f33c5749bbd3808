//! Which file systems can carry a store, and what a store is like there.

use serde::Serialize;
use wholly_media::{FileSystem, Guarantees};

/// Whether a file system can carry a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All that is promised holds.
    Supported,
    /// It works, and something is less than it could be: the notes say what.
    Degraded,
    /// A promise could not be kept.
    Refused,
}

/// What a file system offers.
#[derive(Clone, Debug, Serialize)]
pub struct Support {
    /// Whether it can carry a store.
    pub level: Level,
    /// What is less than it could be, or why it is refused.
    pub notes: Vec<String>,
}

/// What the file system of a directory offers, which has these guarantees.
pub fn of(file_system: FileSystem, guarantees: &Guarantees) -> Support {
    use FileSystem as Fs;
    let (level, note) = match file_system {
        Fs::Ext4 | Fs::Xfs => (Level::Supported, ""),
        Fs::Tmpfs | Fs::Ramfs => (Level::Supported, "the files are in memory: they outlive programs, not the power"),
        Fs::Btrfs => (Level::Degraded, "not tested at power failures; the log is exempt from copy-on-write (NOCOW)"),
        Fs::F2fs | Fs::Bcachefs | Fs::Zfs => (Level::Degraded, "not tested at power failures"),
        Fs::Overlay => (
            Level::Degraded,
            "a file gets a new identity when it is first written to: touch the files before the store is used, \
             or make the store in the upper directory itself",
        ),
        Fs::Fuse => (Level::Degraded, "what survives a power failure is up to the program behind this file system"),
        Fs::Plan9 => (Level::Degraded, "what survives a power failure is up to the server"),
        Fs::Nfs | Fs::Smb => (
            Level::Refused,
            "other machines could change the files unnoticed, and what survives a crash is up to the server",
        ),
        Fs::Fat | Fs::ExFat => {
            (Level::Refused, "it has no hard links and no identity of files: new files cannot appear at once")
        }
        Fs::Hugetlbfs => (Level::Refused, "its files cannot be written by system calls"),
        Fs::Ntfs => (Level::Degraded, "not tested at power failures"),
        _ => (Level::Degraded, "this file system is not known to Wholly and was never tested"),
    };
    let mut notes: Vec<String> = Vec::from_iter((!note.is_empty()).then(|| note.to_string()));
    if guarantees.is_pmem() && guarantees.emulated && !file_system.is_memory() {
        notes.push("mapped files of this file system are page cache: nothing survives a power failure".into());
    }
    Support { level, notes }
}

impl Support {
    /// As a line: `supported`, `degraded: why`.
    pub fn line(&self) -> String {
        let word = match self.level {
            Level::Supported => "supported",
            Level::Degraded => "degraded",
            Level::Refused => "refused",
        };
        match self.notes.is_empty() {
            true => word.into(),
            false => format!("{word}: {}", self.notes.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wholly_media::{Kind, PersistenceDomain};

    fn guarantees(kind: Kind) -> Guarantees {
        Guarantees {
            kind,
            atomic_unit: 8,
            block: 8,
            domain: PersistenceDomain::MemoryController,
            emulated: true,
            description: String::new(),
        }
    }

    #[test]
    fn what_is_degraded_or_refused_says_why() {
        let disk = guarantees(Kind::Disk);
        assert_eq!(of(FileSystem::Ext4, &disk).line(), "supported");
        for fs in [FileSystem::Nfs, FileSystem::Fat, FileSystem::Overlay, FileSystem::Other(7), FileSystem::Tmpfs] {
            assert!(!of(fs, &disk).notes.is_empty(), "{fs}");
        }
        assert_eq!(of(FileSystem::Nfs, &disk).level, Level::Refused);
        let pmem = of(FileSystem::Ext4, &guarantees(Kind::Pmem));
        assert!(pmem.line().contains("page cache"), "{}", pmem.line());
    }
}
