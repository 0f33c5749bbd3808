//! The layer of a store that is seen by an overlay: the directory in its folder to which the kernel writes what the
//! command changes, and that becomes calls of the group when the command has ended.

use super::ahead::Ahead;
use super::place::Place;
use crate::error::Failure;
use crate::named::{Identity, Named};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, StatxFlags, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fgetxattr,
    flistxattr, fsetxattr, futimens, makedev, mkdirat, mknodat, openat, statx,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use wholly::{Error, StoreVfs};
use wholly_overlay::{Layers, UPPER, WORK, name_of, open_in};
use wholly_vfs::GroupId;

pub use wholly_overlay::{How, Taken};

/// Xattrs with such names mean something to the kernel in a layer, and nothing elsewhere.
const KERNELS: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// How long a tick of the file system's clock lasts at most: some count whole seconds.
const LONGEST_TICK: Duration = Duration::from_secs(5);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// See the head of this module.
pub struct Layer {
    itself: OwnedFd,
    upper: Identity,
    /// A file by which the clock is read.
    clock: OwnedFd,
    /// The upper directory, opened when the command had written nothing yet: by it the kernel tells what it could not
    /// write since.
    written: OwnedFd,
    /// What was changed later was so when the layer was there, or is that by the command.
    since_ns: i64,
    /// How far the system's clock was ahead then.
    ahead: Ahead,
}

/// Whether there is no space, or a quota allows no more.
fn is_full(error: &Error) -> bool {
    [Errno::NOSPC, Errno::DQUOT].contains(&Errno::from_raw_os_error(error.errno()))
}

impl Layer {
    /// Makes it, empty. All that is in the store is home then, and whatever changes has a later time of change than the
    /// layer: so what a bystander changes is known from what was there.
    pub fn make(place: &Place) -> Result<Layer, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format!("run in {}", place.dir().display()), format!("layer of the overlay: {error}"))
        };
        place.store().checkpoint().map_err(|error| place.failed(error))?;
        let layer = loop {
            let made = place.store().make_layer().and_then(|()| place.store().open_layer());
            let filled = made.and_then(|itself| {
                let refused =
                    |error| Error::of("the layer of the overlay", Errno::from_io_error(&error).unwrap_or(Errno::IO));
                Layer::fill(itself).map_err(refused)
            });
            match filled {
                // What can be taken back gives way.
                Err(error) if is_full(&error) && place.store().drop_oldest_undo().unwrap_or(false) => {}
                filled => break filled.map_err(|error| place.failed(error))?,
            }
        };
        layer.wait_for_tick(place)?;
        // It is what the view shows of the directory itself.
        let dir = openat(place.itself(), ".", DIRECTORY, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        look_alike(&dir, &layer.written).map_err(|errno| failed(errno.into()))?;
        Ok(layer)
    }

    fn fill(itself: OwnedFd) -> std::io::Result<Layer> {
        for path in [UPPER, WORK] {
            mkdirat(&itself, name_of(path), Mode::RWXU)?;
        }
        let upper = open_in(itself.as_fd(), UPPER)?;
        // In the view the store's folder is not there.
        mknodat(&upper, wholly_host::HOME, FileType::CharacterDevice, Mode::empty(), makedev(0, 0))?;
        let written = openat(&upper, ".", DIRECTORY, Mode::empty())?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let clock = openat(&itself, "clock", flags, Mode::RUSR)?;
        let (ahead, since_ns) = (Ahead::now(), ctime_ns(&clock)?);
        Ok(Layer { itself, upper: Named::of(upper).identity()?, clock, written, since_ns, ahead })
    }

    /// Which directory the view is to have as its upper one.
    pub fn upper(&self) -> Identity {
        self.upper
    }

    fn wait_for_tick(&self, place: &Place) -> Result<(), Failure> {
        let failed = |why: &str| Failure::new(format!("run in {}", place.dir().display()), why.to_owned());
        let begin = Instant::now();
        loop {
            // A change of the mode changes that time, also where it stays what it was.
            let now = fchmod(&self.clock, Mode::RUSR).and_then(|()| ctime_ns(&self.clock));
            if now.map_err(|errno| failed(&format!("layer of the overlay: {errno}")))? > self.since_ns {
                return Ok(());
            }
            if begin.elapsed() > LONGEST_TICK {
                return Err(failed("the times of change do not advance there").advice("use `--view fuse`"));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Has the disk begin with what the commit will wait for. Nothing depends on it.
    pub fn write_back(&self) {
        if let Ok(clock) = self.clock.try_clone() {
            let _ = std::thread::Builder::new().spawn(move || rustix::fs::syncfs(clock));
        }
    }

    /// Makes calls of a group of all that the command has changed. What is written anew is read, or its bytes are
    /// moved: an error where the kernel has lost any of it.
    pub fn take_up(&self, place: &Place, view: &StoreVfs, group: GroupId, how: How) -> Result<Taken, Failure> {
        let layers = self.layers(place, view, group);
        let taken = wholly_overlay::take_up(&layers, how).map_err(|error| failed(place, error))?;
        if how == How::Copy || !taken.overtaken.is_empty() {
            let failed = |errno| {
                Failure::new(
                    format!("write what the command has changed in {}", place.dir().display()),
                    wholly_media::in_words(errno),
                )
            };
            rustix::fs::syncfs(&self.written).map_err(|errno| failed(errno).advice("nothing has changed"))?;
        }
        Ok(taken)
    }

    /// Makes the layer what it was before: that group has been aborted.
    pub fn undo(&self, place: &Place, view: &StoreVfs, group: GroupId, taken: &Taken) -> Result<(), Failure> {
        taken.undo(&self.layers(place, view, group)).map_err(|error| failed(place, error))
    }

    fn layers<'a>(&'a self, place: &'a Place, vfs: &'a StoreVfs, group: GroupId) -> Layers<'a> {
        // What others have changed by a clock that was set back is older by that, but no more.
        let since_ns = self.since_ns.saturating_sub(Ahead::now().set_back_since(self.ahead));
        let (dir, layer) = (place.itself().as_fd(), self.itself.as_fd());
        Layers { vfs, group, dir, layer, since_ns, namespace: "trusted" }
    }
}

fn failed(place: &Place, error: wholly_overlay::Error) -> Failure {
    Failure::new(format!("run in {}", place.dir().display()), error).advice("nothing has changed")
}

fn ctime_ns(file: &OwnedFd) -> rustix::io::Result<i64> {
    let time = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::CTIME)?.stx_ctime;
    Ok(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.into()))
}

/// Gives a new directory the owner, the mode, the access lists and other xattrs, and the times of another one.
fn look_alike(of: &OwnedFd, new: &OwnedFd) -> rustix::io::Result<()> {
    let stat = statx(of, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    fchown(new, Some(Uid::from_raw(stat.stx_uid)), Some(Gid::from_raw(stat.stx_gid)))?;
    for name in names(of)?.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if KERNELS.iter().any(|kernels| name.starts_with(kernels)) {
            continue;
        }
        let mut value = vec![0; LONGEST_XATTR];
        let length = fgetxattr(of, name, &mut value[..])?;
        fsetxattr(new, name, &value[..length], XattrFlags::empty())?;
    }
    // Behind the owner and the access list, which change it.
    fchmod(new, Mode::from_raw_mode(stat.stx_mode.into()))?;
    let time = |time: rustix::fs::StatxTimestamp| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() };
    let times = Timestamps { last_access: time(stat.stx_atime), last_modification: time(stat.stx_mtime) };
    futimens(new, &times)
}

/// What the kernel gives at most.
const LONGEST_XATTR: usize = 64 << 10;

fn names(of: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let mut names = vec![0; LONGEST_XATTR];
    match flistxattr(of, &mut names[..]) {
        // The file system has none.
        Err(Errno::OPNOTSUPP) => names.clear(),
        length => names.truncate(length?),
    }
    Ok(names)
}
