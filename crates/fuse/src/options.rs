//! How a file system is mounted: the options of mount(8), as far as they concern one of ours.

use std::time::Duration;

use crate::identity::Identity;
use crate::points::Point;
use fuser::{Config, MountOption, SessionACL};
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;
use wholly_vfs::GroupId;

/// Who may use a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Who has mounted it.
    #[default]
    Owner,
    /// Who has mounted it, and the superuser (`allow_root`).
    Superuser,
    /// Everybody, as the permissions of each file say (`allow_other`).
    Everybody,
}

/// A clock that never goes back, from any moment on.
pub type Clock = fn() -> Duration;

/// The system's clock, which stands still while the system is suspended.
fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What mount(8) and df(1) call it.
    pub source: String,
    /// Who may use it.
    pub sharing: Sharing,
    /// Whether nothing can be changed (`ro`).
    pub read_only: bool,
    /// Whether programs run as their owners (`suid`).
    pub suid: bool,
    /// Whether devices are devices (`dev`).
    pub dev: bool,
    /// Whether programs cannot be executed (`noexec`).
    pub noexec: bool,
    /// Whether reading changes no times (`noatime`).
    pub noatime: bool,
    /// Whether every call is synchronous (`sync`), and every one that changes a directory (`dirsync`).
    pub sync: (bool, bool),
    /// How long the kernel believes what it knows of names and attributes before it asks again.
    pub valid: Duration,
    /// Whether closing a file makes it durable: to be set where the policy is `per-sync`.
    pub syncs_on_close: bool,
    /// Whether what one call writes is in one group, up to [`LARGEST_WRITE`](crate::LARGEST_WRITE) bytes: to be set
    /// where the policy is `per-op`. Files that are open for writing are not read from the kernel's pages then.
    pub whole_writes: bool,
    /// Whether all changes of files come through this mount, so that the pages which the kernel has of a file stay good
    /// when the file changes. To be set for a volume that nothing but the mount uses. Files of a store change without
    /// the mount: bystanders write to them. With [`whole_writes`](Self::whole_writes) it has no effect: a write past
    /// the kernel's pages may overtake a read that fills them.
    pub owns_content: bool,
    /// The explicit group that all calls of all programs belong to: the mount shows what that sees, and ends before it.
    pub group: Option<GroupId>,
    /// Whose numbers of users and groups the kernel speaks of.
    pub identity: Identity,
    /// Names on which whoever mounts it mounts something else.
    pub points: Vec<Point>,
    /// The most threads that answer the kernel. Those beyond the first two are started when all others are busy, and
    /// only a few wait for requests at a time: so a thread that waits for the medium is not missed, and an idle mount
    /// and a single caller do not pay for it.
    pub threads: usize,
    /// A group of programs that has made no calls for so long is aborted.
    pub group_timeout: Duration,
    /// By which that is measured.
    pub clock: Clock,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            source: "wholly".into(),
            sharing: Sharing::Owner,
            read_only: false,
            suid: false,
            dev: false,
            noexec: false,
            noatime: false,
            sync: (false, false),
            valid: Duration::from_secs(1),
            syncs_on_close: false,
            whole_writes: false,
            owns_content: false,
            group: None,
            identity: Identity::Shared,
            points: Vec::new(),
            threads: 32,
            group_timeout: Duration::from_secs(300),
            clock: monotonic,
        }
    }
}

/// An option that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    /// Nobody knows it.
    #[error("there is no option {0:?}")]
    Unknown(String),
    /// It takes another value.
    #[error("the option {0:?} takes {1}")]
    Value(String, &'static str),
}

impl MountOptions {
    /// Takes one option as it stands behind `-o`, between commas. Those that only concern who mounts it, and when, are
    /// nothing to us.
    ///
    /// # Errors
    /// [`OptionError`].
    pub fn set(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("suid", None) => self.suid = true,
            ("nosuid", None) => self.suid = false,
            ("dev", None) => self.dev = true,
            ("nodev", None) => self.dev = false,
            ("exec", None) => self.noexec = false,
            ("noexec", None) => self.noexec = true,
            ("atime" | "relatime", None) => self.noatime = false,
            ("noatime", None) => self.noatime = true,
            ("sync", None) => self.sync.0 = true,
            ("async", None) => self.sync.0 = false,
            ("dirsync", None) => self.sync.1 = true,
            ("allow_other", None) => self.sharing = Sharing::Everybody,
            ("allow_root", None) => self.sharing = Sharing::Superuser,
            ("fsname", Some(source)) => self.source = source.into(),
            ("valid", Some(seconds)) => {
                let seconds = seconds.parse().ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
                self.valid = seconds.ok_or_else(|| OptionError::Value(name.into(), "seconds, such as 0.5"))?;
            }
            ("group_timeout", Some(seconds)) => {
                let seconds = seconds.parse().ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
                let seconds = seconds.filter(|seconds| !seconds.is_zero());
                self.group_timeout =
                    seconds.ok_or_else(|| OptionError::Value(name.into(), "seconds, such as 300, and not 0"))?;
            }
            ("threads", Some(threads)) => {
                let threads = threads.parse().ok().filter(|threads| (1..=256).contains(threads));
                self.threads = threads.ok_or_else(|| OptionError::Value(name.into(), "a number from 1 to 256"))?;
            }
            // What every mount has, or every kernel does.
            ("default_permissions" | "defaults" | "norelatime" | "strictatime" | "diratime" | "nodiratime", None) => {}
            // What concerns mount(8) and systemd: fstab(5), systemd.mount(5).
            ("auto" | "noauto" | "user" | "nouser" | "users" | "owner" | "group" | "nofail" | "_netdev", None) => {}
            ("silent" | "loud" | "mand" | "nomand" | "lazytime" | "nolazytime" | "iversion" | "noiversion", None) => {}
            ("comment" | "subtype", Some(_)) => {}
            // What the kernel shows of each mount: mount(8) passes it on when it remounts.
            ("user_id" | "group_id", Some(_)) => {}
            (other, _) if other.starts_with("x-") || other.starts_with("X-") => {}
            _ => return Err(OptionError::Unknown(option.into())),
        }
        Ok(())
    }

    /// The same for a whole list, with commas between.
    ///
    /// # Errors
    /// [`OptionError`] of the first that makes no sense.
    pub fn set_all(&mut self, options: &str) -> Result<(), OptionError> {
        options.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.set(option))
    }

    pub(crate) fn access(&self) -> SessionACL {
        match self.sharing {
            Sharing::Owner => SessionACL::Owner,
            Sharing::Superuser => SessionACL::RootAndOwner,
            Sharing::Everybody => SessionACL::All,
        }
    }

    pub(crate) fn config(&self) -> Config {
        let either = |is: bool, yes: MountOption, no: MountOption| if is { yes } else { no };
        let mut options = vec![
            MountOption::FSName(self.source.clone()),
            MountOption::Subtype("wholly".into()),
            MountOption::DefaultPermissions,
            either(self.read_only, MountOption::RO, MountOption::RW),
            either(self.suid, MountOption::Suid, MountOption::NoSuid),
            either(self.dev, MountOption::Dev, MountOption::NoDev),
            either(self.noexec, MountOption::NoExec, MountOption::Exec),
        ];
        options.extend(self.noatime.then_some(MountOption::NoAtime));
        options.extend(self.sync.0.then_some(MountOption::Sync));
        options.extend(self.sync.1.then_some(MountOption::DirSync));
        let mut config = Config::default();
        config.mount_options = options;
        config.acl = self.access();
        config.n_threads = Some(self.threads);
        // The kernel gives each request to the thread that has waited longest: with many, none has its memory at hand.
        // With some more than can run, two callers at once do not make another one start and stop each time.
        let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get().min(8));
        config.idle_threads = Some(processors + 2);
        // The kernel gives a second device only to who is in the user namespace in which the first was opened.
        config.clone_fd = self.threads > 1 && self.identity == Identity::Shared;
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_as_mount_has_them() {
        let mut options = MountOptions::default();
        options
            .set_all("rw,nosuid,dev,noexec,allow_other,x-systemd.automount,nofail,_netdev,valid=0.25,threads=3,group_timeout=60")
            .unwrap();
        assert!(!options.read_only && !options.suid && options.dev && options.noexec);
        assert_eq!(options.sharing, Sharing::Everybody);
        assert_eq!((options.valid, options.threads), (Duration::from_millis(250), 3));
        assert_eq!(options.group_timeout, Duration::from_secs(60));
        options.set_all("ro,,suid,fsname=home").unwrap();
        assert!(options.read_only && options.suid);
        assert_eq!(options.source, "home");
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let mut options = MountOptions::default();
        assert_eq!(options.set("fast"), Err(OptionError::Unknown("fast".into())));
        assert_eq!(options.set("ro=1"), Err(OptionError::Unknown("ro=1".into())));
        assert!(matches!(options.set("threads=0"), Err(OptionError::Value(name, _)) if name == "threads"));
        for none in ["group_timeout=0", "group_timeout=-1", "group_timeout=soon"] {
            assert!(matches!(options.set(none), Err(OptionError::Value(name, _)) if name == "group_timeout"), "{none}");
        }
        assert!(matches!(options.set("valid=-1"), Err(OptionError::Value(name, _)) if name == "valid"));
    }
}
