//! What `wholly run` and the process that holds its mounts say to each other, and the descriptors that they hand over.

use crate::error::Failure;
use crate::named::Identity;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that one message brings at most, and so directories that one command sees.
pub const MOST: usize = 64;

/// Bytes of a message. The longest is a failure, with a path or two.
const LONGEST: usize = 64 << 10;

/// A message.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// To the holder, with the standard input that the command is to have.
    Begin,
    /// To the holder: the directories have the layers of the views that are overlays.
    Mount,
    /// To the server: the views are mounted; the devices of those that have such come with it.
    Mounted(Vec<Mounted>),
    /// To the holder: the views are served.
    Serve,
    /// To the server: the command and all that it has started have ended, and what they have left in the kernel is on
    /// its way.
    Quiet {
        /// Whether the command's exit code is 0.
        is_success: bool,
    },
    /// To the holder: it has come.
    TakeAway,
    /// To the server: the views are gone.
    Ended {
        /// The command's exit code, or 128 and the number of the signal.
        status: u8,
        /// The signal that the holder was sent first.
        interrupt: Option<i32>,
    },
    /// To the server: it is not done. Nothing more comes.
    Failed(Failure),
}

/// A view that is mounted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Mounted {
    /// Over which directory.
    pub over: Identity,
    /// The directory that has what the command changes, where the view is an overlay.
    pub upper: Option<Identity>,
}

/// One end of it. The other one's end is that of its process.
pub struct Channel(OwnedFd);

impl Channel {
    /// Two ends.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (mine, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(mine), theirs))
    }

    /// The end that this process has as its standard input, which is another one from then on: what the other end says
    /// is to be it.
    pub fn of_stdin() -> io::Result<Channel> {
        let channel = Channel(rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?);
        let (_, descriptors) = channel.hear()?;
        let stdin = descriptors.first().ok_or(Errno::PROTO)?;
        rustix::stdio::dup2_stdin(stdin)?;
        Ok(channel)
    }

    /// Says something, and hands over descriptors.
    pub fn say(&self, said: &Said, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(said)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !rights.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::TOOBIG.into());
        }
        // Who has ended hears nothing; that is an error, and no signal.
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// `ECONNRESET` where the other end is gone.
    pub fn hear(&self) -> io::Result<(Said, Vec<OwnedFd>)> {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let length = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                received => break received?.bytes,
            }
        };
        if length == 0 {
            return Err(Errno::CONNRESET.into());
        }
        let descriptors = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptors = descriptors.flatten().collect();
        Ok((serde_json::from_slice(&bytes[..length])?, descriptors))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn descriptors_come_with_what_is_said() {
        let (one, other) = Channel::pair().unwrap();
        let other = Channel(other);
        let (mut read, write) = io::pipe().unwrap();
        one.say(&Said::Mounted(Vec::new()), &[write.as_fd()]).unwrap();
        one.say(&Said::Ended { status: 3, interrupt: None }, &[]).unwrap();
        drop((one, write));
        let (said, mut descriptors) = other.hear().unwrap();
        assert!(matches!(said, Said::Mounted(_)));
        let mut file = std::fs::File::from(descriptors.pop().unwrap());
        file.write_all(b"x").unwrap();
        drop(file);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), descriptors.len()), ("x", 0));
        assert!(matches!(other.hear().unwrap().0, Said::Ended { status: 3, interrupt: None }));
        assert_eq!(other.hear().unwrap_err().raw_os_error(), Some(Errno::CONNRESET.raw_os_error()));
    }
}
