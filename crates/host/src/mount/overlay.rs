//! Views that are overlays of the kernel's: by what they are known, and how who has mounted one is asked.
//!
//! What such a view is mounted as begins with [`VIEW`] and is the abstract name of a socket, on which its mounter
//! listens. A connection stands for a group, as an open file does on other mounts: its end is the last close.

use crate::sys::mounts::{self, Mounted};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Mutex, PoisonError};

/// How the names of views begin.
pub const VIEW: &str = "wholly-run:";

/// Bytes of a request, which is one of the numbers of `ioctl`, and of its answer: nothing, or an error number below it.
pub const LENGTH: usize = 4;

/// What overlays say of themselves to `statfs`.
const MAGIC: u64 = 0x794c_7630;

/// A connection to who has mounted a view.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    /// Held while somebody asks, so that the answer is to that.
    asking: Mutex<()>,
}

/// Whether a descriptor is of such a view.
pub(super) fn is_view(descriptor: BorrowedFd<'_>) -> bool {
    name(descriptor).is_ok_and(|name| name.is_some())
}

/// What the view that a descriptor is of was mounted as; `None` where it is of something else.
fn name(descriptor: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Errno> {
    if rustix::fs::fstatfs(descriptor)?.f_type as u64 & 0xffff_ffff != MAGIC {
        return Ok(None);
    }
    let is_view =
        |mount: &Mounted| mount.kind == "overlay" && mount.source.as_os_str().as_bytes().starts_with(VIEW.as_bytes());
    Ok(mounts::of(descriptor)?.filter(is_view).map(|mount| mount.source.into_os_string().into_vec()))
}

impl Connection {
    /// Connects to who has mounted the view that a descriptor is of; `None` where it is of something else.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where nobody listens: it has ended, and nothing will be committed, or this process is in a network
    /// namespace of its own.
    pub fn to_server_of(descriptor: BorrowedFd<'_>) -> Result<Option<Connection>, Errno> {
        let Some(name) = name(descriptor)? else { return Ok(None) };
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let address = SocketAddrUnix::new_abstract_name(&name)?;
        rustix::net::connect(&socket, &address).map_err(|errno| match errno {
            Errno::CONNREFUSED => Errno::OPNOTSUPP,
            errno => errno,
        })?;
        Ok(Some(Connection { socket, asking: Mutex::new(()) }))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// What is answered; `ENOTCONN` where nobody does any more.
    pub fn ask(&self, request: Opcode) -> Result<(), Errno> {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = |errno| match errno {
            Errno::PIPE | Errno::CONNRESET => Errno::NOTCONN,
            errno => errno,
        };
        let socket = self.socket.as_fd();
        rustix::io::retry_on_intr(|| rustix::net::send(socket, &request.to_ne_bytes(), SendFlags::NOSIGNAL))
            .map_err(gone)?;
        let mut answer = [0; LENGTH];
        let read = rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut answer, RecvFlags::empty()));
        match (read.map_err(gone)?.0, i32::from_ne_bytes(answer)) {
            (LENGTH, 0) => Ok(()),
            (LENGTH, errno @ -4095..0) => Err(Errno::from_raw_os_error(-errno)),
            _ => Err(Errno::NOTCONN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags};

    #[test]
    fn other_file_systems_are_no_views() {
        for path in [c"/", c"/proc"] {
            let dir = rustix::fs::openat(CWD, path, OFlags::RDONLY, Mode::empty()).unwrap();
            assert!(!is_view(dir.as_fd()));
            assert!(Connection::to_server_of(dir.as_fd()).unwrap().is_none());
        }
    }
}
