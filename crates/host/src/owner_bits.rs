//! A directory of an ordinary user, whose own files' permission bits are no obstacle.
//!
//! A group may take from a file the bits that the store needs to bring the group home: the superuser's store goes on
//! all the same, an ordinary user's is refused (`EACCES`). The owner may give himself the bits, so the store does, for
//! one call: what lies on the way, a directory in which a name changes, a file that is opened. What is not his, it is
//! refused as he is.
//!
//! # Invariants
//! 1. What a crash may leave with bits that were lent, the *slip* `.wholly/lent` tells, durably, before they are lent;
//!    the next to open the store takes them back, before anything else.
//! 2. One call at a time has bits lent to it. Whoever asks for attributes meanwhile waits, and sees the bits as they
//!    are to be.
//! 3. A slip is believed of what belongs to its own owner, and of permission bits alone: what it says he could have
//!    done himself.
//! 4. A slip says nothing of what has been moved, or got other bits by a call of ours, since: it is torn up before.
//!
//! A slip is kept after its call, since the next one is likely to want the same directories, and torn up at the next
//! barrier. It is a text, a line for each file: what it is, the bits that it has and those that it was lent, and where
//! it is. A line that a crash has torn is not believed, and no bits were lent by it.

use super::home::HOME;
use super::resolve::open_beneath;
use super::{HostDir, file};
use crate::HostFs;
use crate::sys::{self, OrFail, show};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wholly_media::{Error, Result};
use wholly_vfs::Stat;

/// The name of the slip in the store's folder.
pub const SLIP: &str = "lent";

/// Lines after which a slip is torn up and begun anew.
const LONGEST: usize = 1024;

const SET_GROUP_ID: u32 = 0o2000;
const DIRECTORY: u32 = 0o040_000;
const TYPE: u32 = 0o170_000;

/// See the head of this module.
#[derive(Debug)]
pub struct OwnerBits {
    dir: Arc<HostDir>,
    /// What the slip says. Held by who has bits lent.
    slip: Mutex<Vec<Line>>,
    /// Odd while bits are lent.
    lendings: AtomicU64,
}

/// What the slip says of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    ino: u64,
    btime_ns: i64,
    /// Its bits, and what they were while some were lent.
    mode: u32,
    lent: u32,
    path: Vec<u8>,
}

/// What a call needs of its owner.
#[derive(Clone, Copy)]
enum Need<'a> {
    /// To come to it.
    Way(&'a [u8]),
    /// To change its name.
    Name(&'a [u8]),
    /// To move it from the one path to the other: a directory that gets another parent is itself written to.
    Move(&'a [u8], &'a [u8]),
    /// To come to it, and these bits of it.
    Bits(&'a [u8], u32),
}

impl OwnerBits {
    /// The directory, with the bits taken back that a crash has left lent. Only the owner of the store in it may.
    ///
    /// # Errors
    /// Those of reading the slip and of taking bits back.
    pub fn open(dir: Arc<HostDir>) -> Result<OwnerBits> {
        let this = OwnerBits { dir, slip: Mutex::default(), lendings: AtomicU64::new(0) };
        if let Some((uid, lines)) = this.read_slip()? {
            // What lies deeper was lent later, and is reached by what was lent before.
            for line in lines.iter().rev() {
                this.take_back_after_crash(line, uid)?;
            }
            rustix::fs::syncfs(this.dir.as_fd()).or_fail("syncfs", || show(b""))?;
            this.tear_up()?;
        }
        Ok(this)
    }

    /// Makes a call, and where it is refused makes it again with the bits that it needs.
    fn lend<T>(&self, needs: &[Need<'_>], call: impl Fn() -> Result<T>) -> Result<T> {
        let refused = match call() {
            Err(error) if error.errno == Errno::ACCESS => error,
            done => return done,
        };
        let mut slip = self.slip();
        let mut lent = Vec::new();
        self.lendings.fetch_add(1, Ordering::SeqCst);
        let given = needs.iter().try_for_each(|need| self.give(need, &mut slip, &mut lent));
        let done = match given {
            Ok(()) if lent.is_empty() => Err(refused),
            Ok(()) => call(),
            Err(error) => Err(error),
        };
        let returned = lent.iter().rev().try_for_each(|(place, mode)| set_bits(place, *mode));
        self.lendings.fetch_add(1, Ordering::SeqCst);
        let done = done?;
        // The slip tells of it still.
        returned.or_fail("chmod back", || "what bits were lent to")?;
        Ok(done)
    }

    /// What `look` sees: what somebody is lent meanwhile is not to be seen.
    fn look_undisturbed<T>(&self, need: Need<'_>, look: impl Fn() -> Result<T>) -> Result<T> {
        let is_refused = |found: &Result<T>| found.as_ref().is_err_and(|error| error.errno == Errno::ACCESS);
        let before = self.lendings.load(Ordering::SeqCst);
        let mut found = look();
        if !before.is_multiple_of(2) || self.lendings.load(Ordering::SeqCst) != before {
            let _nobody = self.slip();
            found = look();
        }
        if is_refused(&found) { self.lend(&[need], look) } else { found }
    }

    /// Dies in a call that moves something, once that has done what `call` does: nothing is taken back.
    #[cfg(test)]
    pub(super) fn die_in_move(self, from: &[u8], to: &[u8], call: impl FnOnce()) {
        let mut lent = Vec::new();
        for need in [Need::Move(from, to), Need::Name(to)] {
            self.give(&need, &mut self.slip(), &mut lent).expect("lend");
        }
        call();
    }

    /// Writes down that what is at the path had other bits before.
    #[cfg(test)]
    pub(super) fn claim_lent(&self, path: &[u8], mode: u32) {
        let (_, stat) = self.look(path).expect("look");
        let lent = stat.mode & 0o7777;
        let line = Line { ino: stat.ino, btime_ns: stat.btime_ns, mode, lent, path: path.to_vec() };
        self.write_down(line, &mut self.slip(), &[]).expect("write down");
    }

    /// Lends what is needed, and says so on the slip first.
    fn give(&self, need: &Need<'_>, slip: &mut Vec<Line>, lent: &mut Vec<(OwnedFd, u32)>) -> Result<()> {
        let (path, parent, own) = match *need {
            Need::Way(path) => (path, 0o100, 0),
            Need::Name(path) | Need::Move(path, _) => (path, 0o300, 0),
            Need::Bits(path, bits) => (path, 0o100, bits),
        };
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let above: Vec<usize> = (!path.is_empty()).then_some(0).into_iter().chain(slashes).collect();
        for (i, &end) in above.iter().enumerate() {
            let bits = if i + 1 == above.len() { parent } else { 0o100 };
            self.give_one((&path[..end], None), bits, slip, lent)?;
        }
        match *need {
            Need::Move(_, to) if self.look(path).is_ok_and(|(_, stat)| stat.mode & TYPE == DIRECTORY) => {
                self.give_one((path, Some(to)), 0o200, slip, lent)
            }
            _ if own != 0 => self.give_one((path, None), own, slip, lent),
            _ => Ok(()),
        }
    }

    /// What a path names, without following a link at its end.
    fn look(&self, path: &[u8]) -> rustix::io::Result<(OwnedFd, Stat)> {
        let place = open_beneath(self.dir.as_fd(), path, OFlags::PATH | OFlags::NOFOLLOW)?;
        let stat = file::stat(place.as_fd())?;
        Ok((place, stat))
    }

    /// Lends bits of what is at a path, or after the call at another one.
    fn give_one(
        &self,
        (path, then): (&[u8], Option<&[u8]>),
        bits: u32,
        slip: &mut Vec<Line>,
        lent: &mut Vec<(OwnedFd, u32)>,
    ) -> Result<()> {
        // What is not there, or not to be come to, the call will say.
        let Ok((place, stat)) = self.look(path) else { return Ok(()) };
        let mode = stat.mode & 0o7777;
        let is_link = stat.mode & TYPE == 0o120_000;
        if mode & bits == bits || is_link || stat.uid != geteuid().as_raw() || would_lose_bits(&stat) {
            return Ok(());
        }
        for path in [Some(path), then].into_iter().flatten() {
            let line = Line { ino: stat.ino, btime_ns: stat.btime_ns, mode, lent: mode | bits, path: path.to_vec() };
            if !slip.contains(&line) {
                self.write_down(line, slip, lent)?;
            }
        }
        set_bits(&place, mode | bits).or_fail("chmod", || show(path))?;
        lent.push((place, mode));
        Ok(())
    }

    /// Says on the slip what is to be lent. On return a crash cannot lose it.
    fn write_down(&self, line: Line, slip: &mut Vec<Line>, lent: &[(OwnedFd, u32)]) -> Result<()> {
        if slip.len() >= LONGEST && lent.is_empty() {
            self.tear_up()?;
            slip.clear();
        }
        let home = self.dir.open_fd(HOME.as_bytes(), OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW;
        let failed = || format!("{HOME}/{SLIP}");
        let fd = open_beneath(home.as_fd(), SLIP.as_bytes(), flags).or_fail("open", failed)?;
        if slip.is_empty() {
            // Exact, whatever the umask made of it.
            rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR).or_fail("fchmod", failed)?;
        }
        let text = line.to_text();
        let written = rustix::io::write(&fd, &text).or_fail("write", failed)?;
        if written != text.len() {
            return Err(Error::new("write", failed(), Errno::NOSPC));
        }
        rustix::fs::fsync(&fd).or_fail("fsync", failed)?;
        if slip.is_empty() {
            let folder = self.dir.open_fd(HOME.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
            rustix::fs::fsync(folder).or_fail("fsync", || HOME)?;
        }
        slip.push(line);
        Ok(())
    }

    /// The slip says nothing any more. Nothing is lent.
    fn tear_up(&self) -> Result<()> {
        let home = self.dir.open_fd(HOME.as_bytes(), OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        match rustix::fs::unlinkat(&home, SLIP, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(errno) => Err(Error::new("unlink", format!("{HOME}/{SLIP}"), errno)),
        }
    }

    /// The same, durably, before bits or places change of which it may tell.
    fn tear_up_before(&self, may_tell: impl Fn(&Line) -> bool) -> Result<MutexGuard<'_, Vec<Line>>> {
        let mut slip = self.slip();
        if slip.iter().any(may_tell) {
            self.tear_up()?;
            let home = self.dir.open_fd(HOME.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
            rustix::fs::fsync(home).or_fail("fsync", || HOME)?;
            slip.clear();
        }
        Ok(slip)
    }

    fn slip(&self) -> MutexGuard<'_, Vec<Line>> {
        // Who panicked in a call has lent what the slip tells.
        self.slip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the process before has written down, and which user's that was; `None` where there is no slip.
    fn read_slip(&self) -> Result<Option<(u32, Vec<Line>)>> {
        let path = format!("{HOME}/{SLIP}");
        let fd = match self.dir.open_fd(path.as_bytes(), OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK) {
            Err(error) if error.errno == Errno::NOENT => return Ok(None),
            opened => opened?,
        };
        let Stat { size, uid, .. } = file::stat(fd.as_fd()).or_fail("statx", || path.as_str())?;
        // Longer than any that is written down here.
        const MOST: u64 = (LONGEST as u64 + 64) * 10_000;
        let mut bytes = vec![0; size.min(MOST) as usize];
        let len = sys::read_full_at(&fd, &mut bytes, 0).or_fail("read", || path.as_str())?;
        let lines = bytes[..len].split_inclusive(|&byte| byte == b'\n').filter_map(Line::of_text).collect();
        Ok(Some((uid, lines)))
    }

    fn take_back_after_crash(&self, line: &Line, uid: u32) -> Result<()> {
        // Where it is not there any more, or is something else, or has other bits by now, it is not lent.
        let Ok((place, stat)) = self.look(&line.path) else { return Ok(()) };
        let is_it = (stat.ino, stat.btime_ns, stat.mode & 0o7777) == (line.ino, line.btime_ns, line.lent);
        let only_permissions = (line.mode ^ line.lent) & !0o777 == 0;
        if is_it && stat.uid == uid && only_permissions {
            set_bits(&place, line.mode).or_fail("chmod back", || show(&line.path))?;
        }
        Ok(())
    }
}

/// Whether the owner could not give it its own bits again: the kernel takes set-group-id from who is not in the group.
fn would_lose_bits(stat: &Stat) -> bool {
    let is_in =
        |gid| getegid().as_raw() == gid || getgroups().is_ok_and(|all| all.iter().any(|one| one.as_raw() == gid));
    stat.mode & SET_GROUP_ID != 0 && !is_in(stat.gid)
}

/// Sets the bits of what the descriptor is open on, whatever its name is by now.
fn set_bits(place: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::fs::chmodat(CWD, itself, Mode::from_raw_mode(mode), AtFlags::empty())
}

impl Line {
    fn to_text(&self) -> Vec<u8> {
        let path: String = self.path.iter().map(|byte| format!("{byte:02x}")).collect();
        let Line { ino, btime_ns, mode, lent, .. } = self;
        let text = format!("{ino} {btime_ns} {mode:o} {lent:o} {path}.");
        format!("{text} {:08x}\n", sum(text.as_bytes())).into_bytes()
    }

    /// `None` for what no call has written, or not to its end.
    fn of_text(text: &[u8]) -> Option<Line> {
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let (text, told) = text.rsplit_once(' ')?;
        if u32::from_str_radix(told, 16).ok()? != sum(text.as_bytes()) {
            return None;
        }
        let mut words = text.split(' ');
        let (ino, btime_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let mut bits = || u32::from_str_radix(words.next()?, 8).ok().filter(|bits| *bits <= 0o7777);
        let (mode, lent) = (bits()?, bits()?);
        let path = words.next()?.strip_suffix('.')?;
        let byte = |at: usize| u8::from_str_radix(path.get(at..at + 2)?, 16).ok();
        let path = (0..path.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?;
        Some(Line { ino, btime_ns, mode, lent, path })
    }
}

/// FNV-1a: a torn line is to be known as one.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

crate::pass_on! {
    OwnerBits;
    ask |this| &*this.dir;
    call |this, _name| &*this.dir;
    HostFs {
        fn open(&self, path: &[u8], write: bool) -> Result<Arc<dyn HostFile>> {
            self.lend(&[Need::Way(path)], || HostFs::open(&*self.dir, path, write))
        }

        fn open_own(&self, path: &[u8]) -> Result<Arc<dyn HostFile>> {
            self.lend(&[Need::Bits(path, 0o600)], || HostFs::open(&*self.dir, path, true))
        }

        fn stat(&self, path: &[u8]) -> Result<Stat> {
            self.look_undisturbed(Need::Way(path), || self.dir.stat(path))
        }

        fn settle(&self, at: At<'_>) -> Result<Option<Stat>> {
            self.lend(&[Need::Way(at.path)], || self.dir.settle(at))
        }

        fn create_unnamed(&self, site: Site, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>> {
            self.lend(&[Need::Bits(parent, 0o300)], || self.dir.create_unnamed(site, parent, mode))
        }

        fn link(&self, site: Site, file: &dyn HostFile, path: &[u8]) -> Result<()> {
            self.lend(&[Need::Name(path)], || self.dir.link(site, file, path))
        }

        fn sync_dir(&self, site: Site, path: &[u8]) -> Result<()> {
            self.lend(&[Need::Bits(path, 0o500)], || self.dir.sync_dir(site, path))
        }

        fn sync_all(&self, site: Site) -> Result<()> {
            let mut slip = self.slip();
            if !slip.is_empty() {
                self.tear_up()?;
                slip.clear();
            }
            drop(slip);
            self.dir.sync_all(site)
        }
    }
    HostNames {
    fn create_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<Arc<dyn HostFile>> {
            self.lend(&[Need::Name(at.path)], || self.dir.create_at(site, at, mode))
        }

        fn mkdir_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<()> {
            self.lend(&[Need::Name(at.path)], || self.dir.mkdir_at(site, at, mode))
        }

        fn mknod_at(&self, site: Site, at: At<'_>, mode: u32, rdev: u64) -> Result<()> {
            self.lend(&[Need::Name(at.path)], || self.dir.mknod_at(site, at, mode, rdev))
        }

        fn symlink_at(&self, site: Site, target: &[u8], at: At<'_>) -> Result<()> {
            self.lend(&[Need::Name(at.path)], || self.dir.symlink_at(site, target, at))
        }

        fn hard_link_at(&self, site: Site, from: At<'_>, to: At<'_>) -> Result<()> {
            self.lend(&[Need::Way(from.path), Need::Name(to.path)], || self.dir.hard_link_at(site, from, to))
        }

        fn rename_at(&self, site: Site, from: At<'_>, to: At<'_>, how: Rename) -> Result<()> {
            // What lies in a directory that moves is not where the slip says it is.
            let moves = |line: &Line| [from, to].iter().any(|at| is_at_or_in(&line.path, at.path));
            drop(self.tear_up_before(moves)?);
            let back = if how == Rename::Exchange { Need::Move(to.path, from.path) } else { Need::Name(to.path) };
            let needs = &[Need::Move(from.path, to.path), back];
            let renamed = self.lend(needs, || self.dir.rename_at(site, from, to, how));
            drop(self.tear_up_before(moves)?);
            renamed
        }

        fn unlink_at(&self, site: Site, at: At<'_>) -> Result<()> {
            self.lend(&[Need::Name(at.path)], || self.dir.unlink_at(site, at))
        }

        fn rmdir_at(&self, site: Site, at: At<'_>) -> Result<()> {
            self.lend(&[Need::Name(at.path)], || self.dir.rmdir_at(site, at))
        }

        fn stat_at(&self, at: At<'_>) -> Result<Stat> {
            self.look_undisturbed(Need::Way(at.path), || self.dir.stat_at(at))
        }

        fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
            self.lend(&[Need::Way(path)], || self.dir.read_link(path))
        }

        fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
            self.lend(&[Need::Bits(path, 0o500)], || self.dir.read_dir(path))
        }

        fn stat_all(&self, path: &[u8], look: &mut dyn FnMut(&[u8], &Stat) -> bool) -> Result<()> {
            let all = self.look_undisturbed(Need::Bits(path, 0o500), || {
                let mut all = Vec::new();
                self.dir.stat_all(path, &mut |name, stat| {
                    all.push((name.to_vec(), *stat));
                    true
                })?;
                Ok(all)
            })?;
            all.iter().all(|(name, stat)| look(name, stat));
            Ok(())
        }

        fn set_mode_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<()> {
            drop(self.tear_up_before(|line| line.path == at.path)?);
            self.lend(&[Need::Way(at.path)], || self.dir.set_mode_at(site, at, mode))
        }

        fn set_owner_at(&self, site: Site, at: At<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
            self.lend(&[Need::Way(at.path)], || self.dir.set_owner_at(site, at, uid, gid))
        }

        fn set_times_at(&self, site: Site, at: At<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
            self.lend(&[Need::Way(at.path)], || self.dir.set_times_at(site, at, atime_ns, mtime_ns))
        }

        fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>> {
            self.lend(&[Need::Bits(path, 0o400)], || self.dir.get_xattr(path, name))
        }

        fn list_xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
            self.lend(&[Need::Way(path)], || self.dir.list_xattrs(path))
        }

        fn set_xattr_at(&self, site: Site, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
            // An access list says what the bits are.
            drop(self.tear_up_before(|line| line.path == at.path)?);
            self.lend(&[to_change(at.path, name)], || self.dir.set_xattr_at(site, at, name, value, how))
        }

        fn remove_xattr_at(&self, site: Site, at: At<'_>, name: &[u8]) -> Result<()> {
            drop(self.tear_up_before(|line| line.path == at.path)?);
            self.lend(&[to_change(at.path, name)], || self.dir.remove_xattr_at(site, at, name))
        }

        fn handle(&self, path: &[u8]) -> Result<Option<FileHandle>> {
            self.lend(&[Need::Way(path)], || self.dir.handle(path))
        }
    }
}

/// What it takes to change an extended attribute. What is not the user's own takes no bits of the file, and may change
/// them.
fn to_change<'a>(path: &'a [u8], name: &[u8]) -> Need<'a> {
    if name.starts_with(b"user.") { Need::Bits(path, 0o200) } else { Need::Way(path) }
}

/// Whether a path is this place, or below it.
fn is_at_or_in(path: &[u8], place: &[u8]) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
