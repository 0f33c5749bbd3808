//! Which file systems can carry a store, and what a store is like there.
//!
//! What can be tried is tried ([`probe`]); what no call tells is known by the file system's name: what it does at a
//! power failure, and who else can reach its files. `docs/host-file-systems.md` has the table for people.

mod journal;
mod probe;

use super::{HostDir, StoreHome};
use crate::HostFs;
use crate::sys::FileSystem;
use crate::sys::mounts::{self, Mounted};
use probe::Capabilities;
use std::fmt;
use std::sync::Arc;
use wholly_media::Result;

/// Whether a file system can carry a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All that is promised holds.
    Supported,
    /// Programs that are killed are survived, and something is less than promised: the reasons say what.
    Degraded,
    /// It would not survive a killed program, a new mount or a second program, or not work at all.
    Refused,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Supported => "supported",
            Level::Degraded => "degraded",
            Level::Refused => "refused",
        })
    }
}

/// The verdict on a directory's file system.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use wholly_host::{HostDir, HostOptions, Level, Support};
/// # let path = std::env::temp_dir().join(format!("wholly-doc-support-{}", std::process::id()));
/// # std::fs::create_dir(&path).unwrap();
/// let dir = Arc::new(HostDir::open(&path, HostOptions::default())?);
/// let support = Support::probe(&dir)?;
/// println!("{}: {support}", support.file_system); // ext4: supported
/// assert_ne!(support.level, Level::Refused);
/// # drop(dir); std::fs::remove_dir(&path).unwrap();
/// # Ok::<(), wholly_media::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// The file system as `mount(8)` calls it, where the kernel tells; else its kind.
    pub file_system: String,
    /// Whether it can carry a store.
    pub level: Level,
    /// What is less than promised, or what it is refused for: phrases, the worst first.
    pub reasons: Vec<&'static str>,
}

/// All that the verdict depends on.
#[derive(Clone, Debug)]
struct Facts {
    file_system: FileSystem,
    mount: Option<Mounted>,
    /// Of an ext2, ext3 or ext4.
    journal: Option<bool>,
    /// Mapped files that are not memory of any kind.
    maps_page_cache: bool,
    /// `None` where nothing was tried.
    capabilities: Option<Capabilities>,
}

impl Support {
    /// Tries out what a store needs, in a folder of its own that is gone again when this returns; after a crash,
    /// whoever makes a store there removes it. Nothing is tried where the name is enough for a refusal.
    ///
    /// # Errors
    /// Those of making files: `EROFS`, `EACCES`, `ENOSPC`. What the file system lacks is no error.
    pub fn probe(dir: &Arc<HostDir>) -> Result<Support> {
        let facts = Facts::of(dir);
        let by_name = facts.judge();
        if by_name.level == Level::Refused {
            return Ok(by_name);
        }
        let is_known_to_sync = matches!(facts.file_system, FileSystem::Ext4 | FileSystem::Xfs | FileSystem::Btrfs);
        let capabilities = match StoreHome::with_scratch(dir, |home| probe::capabilities(home, is_known_to_sync))? {
            Some(capabilities) => capabilities,
            None => Capabilities { locks: false, ..Capabilities::ALL },
        };
        Ok(Facts { capabilities: Some(capabilities), ..facts }.judge())
    }

    /// What can be told without a change: by the file system's name and how it is mounted.
    pub fn look(dir: &HostDir) -> Support {
        Facts::of(dir).judge()
    }

    /// What to do where it is refused.
    pub fn advice() -> &'static str {
        "make the store on a local file system such as ext4, xfs or btrfs"
    }
}

/// `supported`, or `degraded: why; and why`.
impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.level.fmt(f)?;
        match self.reasons.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.reasons.join("; ")),
        }
    }
}

impl Facts {
    fn of(dir: &HostDir) -> Facts {
        let (file_system, guarantees) = (dir.file_system(), dir.guarantees());
        Facts {
            file_system,
            mount: mounts::of(dir.as_fd()).ok().flatten(),
            journal: (file_system == FileSystem::Ext4).then(|| journal::has_journal(dir.as_fd())).flatten(),
            maps_page_cache: guarantees.is_pmem() && guarantees.emulated && !file_system.is_memory(),
            capabilities: None,
        }
    }

    fn judge(&self) -> Support {
        let mut reasons: Vec<(Level, &'static str)> = Vec::new();
        reasons.extend(self.of_name());
        reasons.extend(self.of_mount());
        if self.maps_page_cache {
            reasons.push((
                Level::Degraded,
                "files of this file system are mapped as if they were persistent memory: nothing of a store survives a \
                 power failure",
            ));
        }
        reasons.extend(self.capabilities.iter().flat_map(of_capabilities));
        // What only degrades is of no interest where there can be no store.
        let level = reasons.iter().map(|&(level, _)| level).max().unwrap_or(Level::Supported);
        reasons.retain(|&(of, _)| of == level);
        Support {
            file_system: match &self.mount {
                Some(mount) => mount.kind.clone(),
                None => self.file_system.to_string(),
            },
            level,
            reasons: reasons.into_iter().map(|(_, reason)| reason).collect(),
        }
    }

    /// What is known of a kind of file system, and cannot be tried.
    fn of_name(&self) -> Option<(Level, &'static str)> {
        use FileSystem as Fs;
        let kind = self.mount.as_ref().map_or("", |mount| mount.kind.as_str());
        if NETWORK.contains(&kind) || matches!(self.file_system, Fs::Nfs | Fs::Smb) {
            return Some((
                Level::Refused,
                "it is shared over a network: a program that the server considers dead loses the store to another \
                 machine, goes on writing, and both damage it",
            ));
        }
        match self.file_system {
            Fs::Fat | Fs::ExFat => {
                return Some((
                    Level::Refused,
                    "its files have no inode numbers that outlive the mount, so recovery cannot identify them; it has \
                     no hard links and no journal",
                ));
            }
            Fs::Hugetlbfs => return Some((Level::Refused, "its files cannot be written to by system calls")),
            _ if OF_THE_KERNEL.contains(&kind) => {
                return Some((Level::Refused, "the kernel generates its files: nothing is stored in it"));
            }
            _ => {}
        }
        if self.journal == Some(false) || UNJOURNALED.contains(&kind) || self.file_system == Fs::Ntfs {
            return Some((
                Level::Degraded,
                "it has no journal: a store survives killed programs, but a power failure may leave names and whole \
                 files torn or lost",
            ));
        }
        let reason = match self.file_system {
            Fs::Ext4 | Fs::Xfs | Fs::Btrfs => return None,
            Fs::Tmpfs | Fs::Ramfs => {
                "the files are in memory: they outlive programs, but nothing survives a reboot or a power failure"
            }
            Fs::Overlay => {
                "a file of a lower layer gets another inode when the store first opens it: a power failure right after \
                 that may show as a conflict"
            }
            Fs::Fuse if kind == "virtiofs" => "what survives a power failure is up to the host",
            Fs::Fuse => {
                "a program serves it, which syncs may not reach: a store survives killed programs; what survives a \
                 power failure is up to that program"
            }
            Fs::Plan9 => "what survives a power failure is up to the server",
            Fs::F2fs | Fs::Bcachefs | Fs::Zfs => "it was never tested at power failures",
            _ => "it is not known to Wholly, and was never tested at power failures",
        };
        Some((Level::Degraded, reason))
    }

    /// What a mount's options take away.
    fn of_mount(&self) -> Vec<(Level, &'static str)> {
        let mut reasons = Vec::new();
        let Some(mount) = &self.mount else { return reasons };
        if ["nobarrier", "barrier=0"].into_iter().any(|option| mount.has(option)) {
            reasons.push((
                Level::Degraded,
                "it is mounted without barriers: a power failure loses the content of the disk's cache, committed or \
                 not",
            ));
        }
        // The second is what newer kernels call it.
        if self.file_system == FileSystem::Overlay && ["volatile", "fsync=volatile"].into_iter().any(|it| mount.has(it))
        {
            reasons.push((
                Level::Degraded,
                "it is mounted volatile: a store survives killed programs, but a power failure may leave anything",
            ));
        }
        reasons
    }
}

/// Served by other machines, beside those with a number of their own.
const NETWORK: [&str; 6] = ["ceph", "afs", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs"];

/// File systems that the kernel generates.
const OF_THE_KERNEL: [&str; 18] = [
    "proc",
    "sysfs",
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nsfs",
    "pstore",
    "securityfs",
    "selinuxfs",
    "tracefs",
];

/// Without a journal, beside those with a number of their own: a rename is two changes that nothing holds together.
const UNJOURNALED: [&str; 8] = ["ext2", "ntfs3", "hfs", "hfsplus", "udf", "minix", "ufs", "affs"];

fn of_capabilities(found: &Capabilities) -> impl Iterator<Item = (Level, &'static str)> {
    use Level::{Degraded, Refused};
    let table = [
        (found.locks, Refused, "its files cannot be locked: nothing keeps a second program from opening the store"),
        (found.syncs, Refused, "it does not sync files or directories: it is unknown what survives a power failure"),
        (found.new_files, Refused, "a file cannot be filled before it has its name: new files would appear half made"),
        (
            found.hard_links,
            Refused,
            "it has no hard links with one inode number for all names: nothing would keep a file while its names \
             change",
        ),
        (
            found.no_replace,
            Degraded,
            "renames cannot refuse to replace: a file that another program creates at the same moment under the same \
             name may be lost",
        ),
        (
            found.birth_time,
            Degraded,
            "it keeps no time of birth: files are identified by inode number alone, and a new file that was given the \
             same number may be taken for the old one",
        ),
        (
            found.fine_times,
            Degraded,
            "its times are whole seconds: another program's write to a file with updates in the log is detected only \
             if it changes the size or the second",
        ),
        (
            found.case_matters,
            Degraded,
            "names that differ in case only are one name: two groups that create them conflict",
        ),
        (found.permissions, Degraded, "it does not keep permissions: others may be able to read the log"),
    ];
    table.into_iter().filter(|&(has, ..)| !has).map(|(_, level, reason)| (level, reason))
}

#[cfg(test)]
mod tests;
