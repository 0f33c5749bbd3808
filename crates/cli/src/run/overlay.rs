//! Views by overlayfs, as their holder mounts them: the directory is the lower layer, and what the command changes is
//! in the upper one, which is in the store's folder.

use super::channel::Mounted;
use super::namespace;
use crate::error::Failure;
use crate::named::Named;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, MountFlags, fsconfig_create, fsconfig_set_string, fsopen};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use wholly_fuse::{MountOptions, Unmounter};
use wholly_overlay::{UPPER, WORK, open_in};

/// What the kernel calls such a file system.
const TYPE: &str = "overlay";

/// What the views take: names of the layer stay those that the directory has, whatever is renamed and linked.
const OPTIONS: &str = "redirect_dir=on,index=on,metacopy=on,xino=auto";

/// How the layers are named, so that nothing in their paths means anything.
struct Layers {
    dir: Named,
    upper: Named,
    work: Named,
}

/// A view that is mounted, or was.
pub struct Overlay {
    layers: Layers,
    pub unmounter: Unmounter,
}

impl Layers {
    /// As they are in this namespace, of which alone mounts are made.
    fn find(dir: &Path) -> io::Result<Layers> {
        let dir = Named::find(dir)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        // The owner of the directory can exchange the store's folder, but nothing in the layer. So if the upper
        // directory is the one that the layer was made with, the work directory is too.
        let layer = openat2(dir.as_fd(), wholly::LAYER, flags, Mode::empty(), beneath)?;
        let inner = |path: &str| open_in(layer.as_fd(), path).map(Named::of);
        let (upper, work) = (inner(UPPER)?, inner(WORK)?);
        Ok(Layers { dir, upper, work })
    }

    /// The option of each, and its value.
    fn named(&self) -> [(&'static str, String); 3] {
        let path = |layer: &Named| format!("/proc/self/fd/{}", layer.as_fd().as_raw_fd());
        [("lowerdir", path(&self.dir)), ("upperdir", path(&self.upper)), ("workdir", path(&self.work))]
    }
}

impl Overlay {
    /// Mounts one over a directory that has a layer, under the name `source`.
    pub fn mount(dir: &Path, source: &str) -> Result<(Overlay, Mounted), Failure> {
        Overlay::try_mount(dir, source).map_err(|error| no_overlay(dir, &error))
    }

    fn try_mount(dir: &Path, source: &str) -> io::Result<(Overlay, Mounted)> {
        let layers = Layers::find(dir)?;
        let itself = layers.dir.itself();
        let point = std::fs::read_link(&itself)?;
        let flags = flags(&namespace::options(dir)?);
        let named: String = layers.named().map(|(option, value)| format!("{option}={value},")).concat();
        let mount = |options: &str| {
            let data = CString::new(format!("{named}{options}")).expect("numbers and words");
            rustix::mount::mount(source, &itself, TYPE, flags, Some(data.as_c_str()))
        };
        // What the layer has need not survive: it is the commit that makes it. Linux before 5.10 does not know that,
        // and syncs.
        match mount(&format!("volatile,{OPTIONS}")) {
            Err(Errno::INVAL) => mount(OPTIONS)?,
            mounted => mounted?,
        }
        let unmounter = Unmounter::of(point.clone(), TYPE)?;
        let mounted = Mounted { over: layers.dir.identity()?, upper: Some(layers.upper.identity()?) };
        let overlay = Overlay { layers, unmounter };
        if let Err(error) = overlay.is_as_wanted(&crate::mounts::over_root(&point)) {
            let _ = overlay.unmounter.unmount();
            return Err(error);
        }
        Ok((overlay, mounted))
    }

    /// Where a file system cannot carry what is asked for, the kernel does without, and says so in its list of mounts
    /// only.
    fn is_as_wanted(&self, point: &Path) -> io::Result<()> {
        let id = statx(rustix::fs::CWD, point, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?.stx_mnt_id;
        let options = crate::mounts::options_of(id)?;
        for (name, value) in ["redirect_dir=on", "index=on"].map(|option| option.split_once('=').expect("it has one")) {
            let is = options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
            // What is as the module has it by itself is not listed.
            let default =
                || std::fs::read_to_string(format!("/sys/module/overlay/parameters/{name}")).unwrap_or_default();
            if is.map_or_else(|| default().trim() != "Y", |is| is != value) {
                return Err(io::Error::other(format!(
                    "the file system of the directory does not support {name}={value}"
                )));
            }
        }
        Ok(())
    }

    /// `EBUSY` where somebody uses the layers still: in a namespace that was made of this one the view may be mounted,
    /// too.
    pub fn released(&self) -> io::Result<()> {
        // The kernel makes no second one of the same layers as long as there is the first.
        let second = || {
            let second = fsopen(TYPE, FsOpenFlags::FSOPEN_CLOEXEC)?;
            for (option, value) in self.layers.named() {
                fsconfig_set_string(second.as_fd(), option, value)?;
            }
            fsconfig_set_string(second.as_fd(), "index", "on")?;
            fsconfig_create(second.as_fd())
        };
        match second() {
            // What is `volatile` it refuses, once it knows that it is the only one.
            Err(Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }
}

fn flags(options: &MountOptions) -> MountFlags {
    let flags =
        [(!options.suid, MountFlags::NOSUID), (!options.dev, MountFlags::NODEV), (options.noexec, MountFlags::NOEXEC)];
    flags.into_iter().filter(|(is, _)| *is).fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// Why there is no such view of a directory.
fn no_overlay(dir: &Path, error: &io::Error) -> Failure {
    let failed = |why: String| Failure::new(format!("run in {}", dir.display()), why);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NODEV) => {
            failed(format!("the kernel has no overlayfs: {error}")).advice("`modprobe overlay`, or use `--view fuse`")
        }
        Some(Errno::PERM | Errno::ACCESS) => failed(format!("overlayfs cannot be mounted over it: {error}"))
            .advice("overlays need root, and no security module may forbid them; or use `--view fuse`"),
        _ => failed(format!("overlayfs cannot be mounted over it: {error}"))
            .advice("not every file system supports overlays (see the kernel's log); or use `--view fuse`"),
    }
}
