//! The namespaces of an ordinary user's command, and what is missing where there are none.
//!
//! Who makes a user namespace has all rights over the mount namespace that belongs to it, and none beyond what he had
//! over anything else. It knows the user and his first group by their own numbers. The command is left no rights:
//! neither those, nor what set-user-id programs would give it, which in there could only be wrong.

use crate::error::Failure;
use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether this process is an ordinary user's: one that may not mount.
pub fn is_ordinary() -> io::Result<bool> {
    Ok(!capabilities(None)?.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Why the root directory is not covered for an ordinary user.
pub fn no_root() -> Failure {
    Failure::new("run in /", "covering the root directory needs root (CAP_SYS_ADMIN)")
        .advice("use `sudo wholly run --root`, or --dir with a directory that you own")
}

/// Why an ordinary user has no overlays.
pub fn no_overlay() -> Failure {
    Failure::new("run", "an overlay needs root (CAP_SYS_ADMIN)")
        .advice("use `--view fuse`, which is the default for ordinary users")
}

/// That the user can change the directory in a namespace of his own.
pub fn check(dir: &Path) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(format!("run in {}", dir.display()), why);
    let (owner, me) = (std::fs::metadata(dir).map_err(|error| failed(error.to_string()))?.uid(), geteuid().as_raw());
    if owner != me {
        return Err(failed(format!("the directory belongs to user {owner}"))
            .advice("run it as that user or as root, or name a directory that you own with --dir"));
    }
    Ok(())
}

/// Goes to a user namespace and a mount namespace of this process's own, of which nobody else sees the mounts. The
/// process has one thread.
pub fn enter() -> Result<(), Failure> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(|errno| missing(errno.into()))?;
    let write = |file: &str, text: String| std::fs::write(format!("/proc/self/{file}"), text).map_err(missing);
    // Without that the kernel takes no group from who may not change his groups anyhow.
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))?;
    super::namespace::close().map_err(missing)
}

/// Gives up for the command what it is not to have. This process keeps what it needs to take the mounts away.
pub fn renounce() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for bit in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit)) {
            // The kernel has no more.
            Err(Errno::INVAL) => break,
            removed => removed?,
        }
    }
    let own = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..own })?;
    Ok(())
}

/// Why there is no such namespace.
fn missing(error: io::Error) -> Failure {
    let setting = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let is = |name: &str, value: &str| setting(name).trim() == value;
    let (why, advice) = match () {
        () if is("kernel/unprivileged_userns_clone", "0") => {
            ("the system lets only root create user namespaces", "set `sysctl kernel.unprivileged_userns_clone=1`")
        }
        () if is("user/max_user_namespaces", "0") || error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
            ("the system allows no more user namespaces", "raise `sysctl user.max_user_namespaces`")
        }
        () if is("kernel/apparmor_restrict_unprivileged_userns", "1") => (
            "AppArmor gives this program no rights in user namespaces",
            "give it a profile with the rule `userns`, or set `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
        ),
        () if [Errno::INVAL, Errno::NOSYS].map(|errno| Some(errno.raw_os_error())).contains(&error.raw_os_error()) => {
            ("the kernel has no user namespaces", "use a kernel that was built with CONFIG_USER_NS")
        }
        () => (
            "user namespaces are refused",
            "a filter of system calls may forbid them (in a container), or the process is in a chroot",
        ),
    };
    Failure::new("run", format!("{why} ({error})"))
        .advice(format!("without root, a command needs a user namespace: {advice}"))
}

/// Why the device of mounts is not to be had, or gives none.
pub fn no_mount(dir: &Path, error: io::Error) -> Failure {
    let failed = |why: String| Failure::new(format!("run in {}", dir.display()), why);
    match std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => failed(format!("a view cannot be mounted over it: {error}"))
            .advice("ordinary users can mount FUSE from Linux 4.18 on, if no security module forbids it"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            failed(format!("/dev/fuse: {error}")).advice("run `modprobe fuse`; a container must be given the device")
        }
        Err(error) => failed(format!("/dev/fuse: {error}"))
            .advice("all users must be allowed to open it, as on most systems: `chmod 666 /dev/fuse`, and a udev rule"),
    }
}
