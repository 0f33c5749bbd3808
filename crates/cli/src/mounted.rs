//! What a mount tells of itself: `wholly stat` of a mount point, and of what a process has mounted.

use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, size};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Serialize;
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

#[derive(Serialize)]
struct Stat {
    mount: Name,
    /// The directory, file or device that is mounted there.
    source: Name,
    options: String,
    bytes: u64,
    free_bytes: u64,
    inodes: u64,
    free_inodes: u64,
    group: Option<Group>,
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
    let Ok(source) = source.canonicalize() else { return Vec::new() };
    let all = mounts::all().unwrap_or_default();
    all.into_iter().filter(|mount| is_ours(mount) && mount.source == source).map(|mount| mount.at).collect()
}

fn group_at(mount: &Path) -> Option<Group> {
    let root = openat(CWD, mount, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
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

/// Shows the mount at a path, or of what is there and can be seen only by the mount. `None`: there is none.
pub fn stat(path: &Path, ui: &Ui) -> Option<Result<Exit, Failure>> {
    let mount = at(path).map(|mount| mount.at).or_else(|| match path.is_dir() {
        true => None,
        false => of(path).into_iter().next(),
    })?;
    // Views of `wholly run` are no mounts that users know of.
    let served = HostDir::open(&mount, HostOptions::default()).ok()?.served();
    (served == Some(Served::Mount)).then(|| show(&mount, ui))
}

fn show(mount: &Path, ui: &Ui) -> Result<Exit, Failure> {
    let failed =
        |errno: rustix::io::Errno| Failure::new(format!("stat {}", mount.display()), std::io::Error::from(errno));
    let found = at(mount).ok_or(rustix::io::Errno::NOENT).map_err(failed)?;
    let space = rustix::fs::statvfs(mount).map_err(failed)?;
    let stat = Stat {
        mount: Name::from(mount),
        source: Name::from(&*found.source),
        options: found.options,
        bytes: space.f_blocks * space.f_frsize,
        free_bytes: space.f_bavail * space.f_frsize,
        inodes: space.f_files,
        free_inodes: space.f_favail,
        group: group_at(mount),
    };
    ui.emit("stat", &stat, |stat| {
        let group = stat.group.as_ref().map_or("none".into(), Group::text);
        format!(
            "{} is a mount of {}\n  options      {}\n  size         {}, {} free\n  inodes       {}, {} free\n  \
             group        {group}\n",
            stat.mount,
            stat.source,
            stat.options,
            size(stat.bytes),
            size(stat.free_bytes),
            stat.inodes,
            stat.free_inodes,
        )
    })?;
    Ok(Exit::DONE)
}
