//! What programs ask of a mount, by any descriptor of it: groups of calls, begun and ended.
//!
//! A mount that we serve is asked by `ioctl`. The numbers are part of the interface of every mount, and of the C
//! header: they never change their meaning. What is asked about is the open file that the descriptor stands for; none
//! takes anything else, and one gives more than a number. A view of `wholly run` may be an overlay of the kernel's,
//! which knows nothing of that: there the same numbers go through a [connection](overlay) to who has mounted it.

mod overlay;

pub use overlay::{LENGTH, VIEW};

use crate::sys::of_std;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Opcode};
use std::sync::OnceLock;
use std::time::Duration;

use overlay::Connection;

/// By which a system call knows that the request is one of ours.
const OURS: u8 = 0xE7;

/// Returns what the descriptor is of: a [`Served`].
pub const WHAT: Opcode = ioctl::opcode::none(OURS, 0x70);
/// Begins a group, which the open file has until it ends.
pub const BEGIN: Opcode = ioctl::opcode::none(OURS, 0x71);
/// Calls by this open file belong to the group of the calling process, and the file is its own.
pub const ADD: Opcode = ioctl::opcode::none(OURS, 0x72);
/// Commits the group of the open file.
pub const COMMIT: Opcode = ioctl::opcode::none(OURS, 0x73);
/// Undoes the group of the open file.
pub const ABORT: Opcode = ioctl::opcode::none(OURS, 0x74);
/// Fills in a [`Holder`] as [bytes](Holder::to_bytes).
pub const HOLDER: Opcode = ioctl::opcode::read::<[u8; Holder::LENGTH]>(OURS, 0x75);

/// Fills in how many files have calls outside of groups that no sync has committed, and how often such calls were
/// committed early: 8 bytes each, in the order of the machine.
pub const PENDING: Opcode = ioctl::opcode::read::<[u64; 2]>(OURS, 0x76);

/// Makes the calls on the open file, a regular one, atomic and ordered: `fatomic`.
pub const FATOMIC: Opcode = ioctl::opcode::none(OURS, 0x77);
/// The same without times: `fdataatomic`.
pub const FDATAATOMIC: Opcode = ioctl::opcode::none(OURS, 0x78);
/// Commits the group of the open file, and returns when it is ordered.
pub const COMMIT_ATOMIC: Opcode = ioctl::opcode::none(OURS, 0x79);

/// What serves a directory that is one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// A mount that programs share.
    Mount = 1,
    /// What a command of `wholly run` sees.
    View = 2,
}

/// The process that has the only group of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number, where the server of the mount runs.
    pub process: u32,
    /// The user with whose rights it began the group.
    pub user: u32,
    /// For how long the group has been running.
    pub held: Duration,
    /// For how long it has made no calls.
    pub idle: Duration,
    /// It is aborted once it has made no calls for so long.
    pub timeout: Duration,
}

impl Holder {
    /// Bytes of [`to_bytes`](Self::to_bytes).
    pub const LENGTH: usize = 32;

    /// What a request returns: process and user, 4 bytes each, and three times in milliseconds, 8 bytes each, in the
    /// order of the machine. All zero: no group runs.
    pub fn to_bytes(holder: Option<&Holder>) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let Some(Holder { process, user, held, idle, timeout }) = holder else { return bytes };
        bytes[..4].copy_from_slice(&process.to_ne_bytes());
        bytes[4..8].copy_from_slice(&user.to_ne_bytes());
        for (place, time) in bytes[8..].chunks_exact_mut(8).zip([held, idle, timeout]) {
            place.copy_from_slice(&u64::try_from(time.as_millis()).unwrap_or(u64::MAX).to_ne_bytes());
        }
        bytes
    }

    fn of_bytes(bytes: &[u8; Self::LENGTH]) -> Option<Holder> {
        let number = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let time = |at: usize| Duration::from_millis(u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i])));
        let holder = Holder { process: number(0), user: number(4), held: time(8), idle: time(16), timeout: time(24) };
        (holder.process != 0).then_some(holder)
    }
}

/// Which process has the group of the mount that a descriptor is of. `None`: no group runs.
///
/// # Errors
/// `ENOTTY` where it is no mount of ours.
pub fn holder(file: std::os::fd::BorrowedFd<'_>) -> Result<Option<Holder>, Errno> {
    // SAFETY: who knows the number fills in that many bytes; for any other file system it is an error.
    let bytes = unsafe { ioctl::ioctl(of_std(&file), ioctl::Getter::<HOLDER, [u8; Holder::LENGTH]>::new()) }?;
    Ok(Holder::of_bytes(&bytes))
}

/// What [`PENDING`] fills in, of the mount that a descriptor is of.
///
/// # Errors
/// `ENOTTY` where it is no mount of ours, or one of an earlier version.
pub fn pending(file: std::os::fd::BorrowedFd<'_>) -> Result<[u64; 2], Errno> {
    // SAFETY: who knows the number fills in that many bytes; for any other file system it is an error.
    unsafe { ioctl::ioctl(of_std(&file), ioctl::Getter::<PENDING, [u64; 2]>::new()) }
}

/// `fatomic` of a file of a mount; with `data_only`, `fdataatomic`. In a view of `wholly run` that is an overlay there
/// is nothing to do: all calls of the command are one group.
///
/// # Errors
/// `ENOTTY` where it is no mount of ours, or one of an earlier version; what the server says.
pub fn fatomic(file: std::os::fd::BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
    let file = of_std(&file);
    match if data_only { ask::<FDATAATOMIC>(file) } else { ask::<FATOMIC>(file) } {
        Err(Errno::NOTTY) if overlay::is_view(file) => Ok(()),
        asked => asked.map(drop),
    }
}

/// An open file of a mount, which stays open whatever becomes of the descriptor that it was made of. Programs that the
/// process executes do not get it.
#[derive(Debug)]
pub struct Open {
    file: OwnedFd,
    /// By which who has mounted an overlay is asked, once that is found to be one.
    connection: OnceLock<Connection>,
}

impl Open {
    /// The open file that a descriptor stands for.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn of(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<Open, Errno> {
        let file = rustix::io::fcntl_dupfd_cloexec(of_std(&descriptor), 3)?;
        Ok(Open { file, connection: OnceLock::new() })
    }

    /// Begins a group.
    ///
    /// # Errors
    /// `ENOTTY` where it is no mount of ours, `EBUSY` where another group runs, `EACCES` for who may not write to the
    /// mount's root directory; what the server says.
    pub fn begin(&self) -> Result<(), Errno> {
        let asked = self.ask::<BEGIN>(self.file.as_fd());
        if asked != Err(Errno::NOTTY) {
            return asked;
        }
        let connection = Connection::to_server_of(self.file.as_fd())?.ok_or(Errno::NOTTY)?;
        self.connection.get_or_init(|| connection).ask(BEGIN)
    }

    /// Asks about an open file of the mount.
    fn ask<const REQUEST: Opcode>(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.connection.get() {
            Some(connection) => connection.ask(REQUEST),
            None => ask::<REQUEST>(file).map(drop),
        }
    }

    /// Makes another open file of the same mount one of the group.
    ///
    /// # Errors
    /// `EXDEV` where it is of another mount; what the server says.
    pub fn add(&self, other: std::os::fd::BorrowedFd<'_>) -> Result<(), Errno> {
        let other = of_std(&other);
        if device(self.file.as_fd())? != device(other)? {
            return Err(Errno::XDEV);
        }
        self.ask::<ADD>(other)
    }

    /// Commits the group.
    ///
    /// # Errors
    /// `EINVAL` where it has ended; what the server says.
    pub fn commit(&self) -> Result<(), Errno> {
        self.ask::<COMMIT>(self.file.as_fd())
    }

    /// Commits the group, and returns when it is ordered. In a view of `wholly run` it joins that one group in any
    /// case.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); `ENOTTY` of a mount of an earlier version.
    pub fn commit_atomic(&self) -> Result<(), Errno> {
        match self.connection.get() {
            Some(_) => self.commit(),
            None => self.ask::<COMMIT_ATOMIC>(self.file.as_fd()),
        }
    }

    /// Undoes the group.
    ///
    /// # Errors
    /// `EINVAL` where it has ended; what the server says.
    pub fn abort(&self) -> Result<(), Errno> {
        self.ask::<ABORT>(self.file.as_fd())
    }
}

/// What an open directory is of, where it is one of ours.
pub(crate) fn served(dir: BorrowedFd<'_>) -> Option<Served> {
    let Ok(what) = ask::<WHAT>(dir) else {
        return overlay::is_view(dir).then_some(Served::View);
    };
    [Served::Mount, Served::View].into_iter().find(|served| *served as i32 == what)
}

/// On what file system it is, without asking that.
fn device(descriptor: BorrowedFd<'_>) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(descriptor, c"", flags, StatxFlags::empty())?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

fn ask<const REQUEST: Opcode>(descriptor: BorrowedFd<'_>) -> Result<i32, Errno> {
    // SAFETY: the request has no argument, and what other file systems make of one of another number is an error.
    unsafe { ioctl::ioctl(descriptor, Asked::<REQUEST>) }
}

/// A request without an argument, that returns a number.
struct Asked<const REQUEST: Opcode>;

// SAFETY: the kernel is given no pointer, and what it returns is the number itself.
unsafe impl<const REQUEST: Opcode> ioctl::Ioctl for Asked<REQUEST> {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        REQUEST
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        returned: ioctl::IoctlOutput,
        _given: *mut core::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        Ok(returned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They are public, and what was compiled with them has them for ever.
    #[test]
    fn the_numbers_stay() {
        assert_eq!([WHAT, BEGIN, ADD, COMMIT, ABORT], [0xE770, 0xE771, 0xE772, 0xE773, 0xE774]);
        assert_eq!(HOLDER & 0xFFFF, 0xE775);
        assert_eq!([FATOMIC, FDATAATOMIC, COMMIT_ATOMIC], [0xE777, 0xE778, 0xE779]);
    }

    #[test]
    fn who_has_a_group_is_told_in_bytes() {
        let [held, idle, timeout] = [70_000, 10_000, 300_000].map(Duration::from_millis);
        let holder = Holder { process: 7, user: 1000, held, idle, timeout };
        let bytes = Holder::to_bytes(Some(&holder));
        assert_eq!(Holder::of_bytes(&bytes), Some(holder));
        assert_eq!(Holder::of_bytes(&Holder::to_bytes(None)), None);
    }

    #[test]
    fn other_file_systems_know_no_groups() {
        let (dir, other) = (std::fs::File::open("/").unwrap(), std::fs::File::open("/proc").unwrap());
        let [dir, other] = [&dir, &other].map(std::os::fd::AsFd::as_fd);
        let open = Open::of(dir).unwrap();
        assert_eq!([open.begin(), open.commit(), open.abort(), open.add(dir)], [Err(Errno::NOTTY); 4]);
        assert_eq!(open.add(other), Err(Errno::XDEV));
        assert_eq!(holder(dir), Err(Errno::NOTTY));
        assert_eq!([fatomic(dir, false), fatomic(other, true), open.commit_atomic()], [Err(Errno::NOTTY); 3]);
    }
}
