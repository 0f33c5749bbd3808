//! What a mount tells of itself: `wholly stat` of a mount point, and of what a process has mounted.

use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, size};
use crate::volume;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use wholly::MountGroup;
use wholly_host::mount::Served;
use wholly_host::mounts::{self, Mounted};
use wholly_host::{HostDir, HostOptions};

/// The group that runs on a mount, and the process that has it.
#[derive(Serialize)]
pub struct Group {
    /// Where the mount is.
    mount: Name,
    pid: u32,
    /// What the process calls itself.
    command: Option<Name>,
    /// The user with whose rights the group began.
    user: u32,
    /// Seconds since it began.
    held_seconds: f64,
    /// Seconds since its last call.
    idle_seconds: f64,
    /// It is aborted after so many seconds without calls.
    timeout_seconds: f64,
}

/// A mount, and how full it is.
#[derive(Serialize)]
pub struct Mount {
    /// Where it is.
    pub mount: Name,
    /// The directory, file or device that is mounted there.
    source: Name,
    options: String,
    bytes: u64,
    pub free_bytes: u64,
    pub inodes: u64,
    pub free_inodes: u64,
    group: Option<Group>,
    /// Files with calls outside of groups that no sync has committed.
    pending_files: u64,
    /// How often such calls were committed for want of space, or because they were very many.
    early_commits: u64,
}

fn is_ours(mount: &Mounted) -> bool {
    mount.kind == wholly_fuse::TYPE
}

/// The mount whose root directory is at a path, if it is one of ours.
fn at(path: &Path) -> Option<Mounted> {
    let path = path.canonicalize().ok()?;
    // Of several at one path the last is seen.
    mounts::all().ok()?.into_iter().rfind(|mount| mount.at == path).filter(is_ours)
}

/// Mounts of a directory, file or device, under the name that `wholly mount` gives them.
fn of(source: &Path) -> Vec<PathBuf> {
    let Ok(source) = volume::renamed(source, Path::canonicalize) else { return Vec::new() };
    let all = mounts::all().unwrap_or_default();
    all.into_iter().filter(|mount| is_ours(mount) && mount.source == source).map(|mount| mount.at).collect()
}

fn root(mount: &Path) -> Option<OwnedFd> {
    openat(CWD, mount, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn pending_at(mount: &Path) -> Option<[u64; 2]> {
    wholly_host::mount::pending(root(mount)?.as_fd()).ok()
}

fn group_at(mount: &Path) -> Option<Group> {
    let root = root(mount)?;
    let holder = MountGroup::holder(root).ok()??;
    let command = std::fs::read(format!("/proc/{}/comm", holder.process)).ok();
    Some(Group {
        mount: Name::from(mount),
        pid: holder.process,
        command: command.map(|name| Name::from(name.trim_ascii_end())),
        user: holder.user,
        held_seconds: holder.held.as_secs_f64(),
        idle_seconds: holder.idle.as_secs_f64(),
        timeout_seconds: holder.timeout.as_secs_f64(),
    })
}

/// The group that runs on a mount of a store or volume, if one does.
pub fn group_of(source: &Path) -> Option<Group> {
    of(source).iter().find_map(|mount| group_at(mount))
}

impl Group {
    /// In a line, without its end.
    pub fn text(&self) -> String {
        let command = self.command.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        let seconds = |seconds: f64| count(seconds as u64, "second");
        format!(
            "of process {}{command}, user {}, on {}: begun {} ago, no calls for {}; aborted after {} without calls",
            self.pid,
            self.user,
            self.mount,
            seconds(self.held_seconds),
            seconds(self.idle_seconds),
            seconds(self.timeout_seconds),
        )
    }
}

impl Mount {
    fn at(mount: &Mounted) -> rustix::io::Result<Mount> {
        let space = rustix::fs::statvfs(&mount.at)?;
        let [pending_files, early_commits] = pending_at(&mount.at).unwrap_or_default();
        Ok(Mount {
            mount: Name::from(&*mount.at),
            source: Name::from(&*mount.source),
            options: mount.options.clone(),
            bytes: space.f_blocks * space.f_frsize,
            free_bytes: space.f_bavail * space.f_frsize,
            inodes: space.f_files,
            free_inodes: space.f_favail,
            group: group_at(&mount.at),
            pending_files,
            early_commits,
        })
    }

    /// Lines of `wholly stat` about the mount.
    pub fn text(&self) -> String {
        let group = self.group.as_ref().map_or("none".into(), Group::text);
        let early = match self.early_commits {
            0 => String::new(),
            times => format!(", committed early {}: for space, or because they were many", count(times, "time")),
        };
        let pending = count(self.pending_files, "file");
        format!("  options      {}\n  group        {group}\n  not synced   {pending}{early}\n", self.options)
    }
}

/// The mount of a volume, if there is one.
pub fn mount_of(volume: &Path) -> Option<Mount> {
    let mount = of(volume).into_iter().next()?;
    Mount::at(&at(&mount)?).ok()
}

/// Shows what is mounted at a path. `None`: nothing of ours.
pub fn stat(path: &Path, ui: &Ui) -> Option<Result<Exit, Failure>> {
    let mount = at(path)?;
    if volume::is_one(&mount.source) {
        return Some(volume::stat(&mount.source, ui));
    }
    // Views of `wholly run` are no mounts that users know of.
    let served = HostDir::open(&mount.at, HostOptions::default()).ok()?.served();
    (served == Some(Served::Mount)).then(|| show(&mount, ui))
}

fn show(mount: &Mounted, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |errno| Failure::new(format!("stat {}", mount.at.display()), std::io::Error::from(errno));
    ui.emit("stat", &Mount::at(mount).map_err(failed)?, |mount| {
        let (all, free) = (size(mount.bytes), size(mount.free_bytes));
        let inodes = format!("{}, {} free", mount.inodes, mount.free_inodes);
        format!(
            "{} is a mount of {}\n{}  size         {all}, {free} free\n  inodes       {inodes}\n",
            mount.mount,
            mount.source,
            mount.text()
        )
    })?;
    Ok(Exit::DONE)
}
