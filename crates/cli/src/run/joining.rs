//! Groups that programs begin in a view by overlayfs: they [join](Joined) the command's.
//!
//! The kernel hands us no `ioctl` of such a view. So this process listens on a socket, whose abstract name is what the
//! view is mounted as: who has a descriptor of the view finds that in the list of mounts (`wholly_host::mount`). A
//! connection stands for a group, and its end for the last close.

use crate::error::Failure;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, getsockopt, recvmsg, sockopt::PeerCredentials};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send, socket_with,
};
use rustix::process::geteuid;
use rustix::time::Timespec;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use wholly_fuse::{Asker, Doom, Joined};
use wholly_host::mount::{ABORT, ADD, BEGIN, COMMIT, LENGTH, VIEW};

/// Connections at a time of who may join: others wait.
const MOST: usize = 512;

/// Connections at a time of who may not join, until they have asked and been told so: the oldest has to give way.
const MOST_REFUSED: usize = 16;

/// How often all are looked at at the end. What was said before takes fewer rounds: one for each connection that waits,
/// and one for each request in a socket's buffer. Who goes on asking from outside is not waited for.
const LAST_ROUNDS: usize = 2048;

/// A name, and the socket that has it. Who connects waits until it is [served](Self::serve).
pub struct Listening {
    name: String,
    socket: OwnedFd,
}

/// The thread that answers.
pub struct Joining {
    joined: Arc<Joined>,
    /// Readable when it is to end.
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Somebody who has connected.
struct Peer {
    connection: OwnedFd,
    handle: u64,
    may_join: bool,
}

impl Listening {
    /// Under a name that nobody else has.
    pub fn new() -> rustix::io::Result<Listening> {
        let mut number = [0; 8];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("{VIEW}{:016x}", u64::from_ne_bytes(number));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // With each message the kernel says who has sent it: a child has its parent's connection.
        set_socket_passcred(&socket, true)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, 64)?;
        Ok(Listening { name, socket })
    }

    /// What the view is to be mounted as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins to answer who sees the view: what runs in the mount namespace of its holder. Others only where they could
    /// do to the command what they like anyhow.
    pub fn serve(self, holder: u32) -> Result<Joining, Failure> {
        let failed = |error: std::io::Error| Failure::new("run", format!("groups of programs: {error}"));
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?);
        let joined = Arc::new(Joined::default());
        let (its_end, its_joined) = (end.clone(), joined.clone());
        let thread = std::thread::Builder::new().name("wholly-groups".into());
        let thread = thread.spawn(move || answer(&self.socket, &its_end, &its_joined, holder)).map_err(failed)?;
        Ok(Joining { joined, end, thread: Some(thread) })
    }
}

impl Joining {
    /// Whether anything that has joined was undone. To be asked when the command has ended, and all that it has
    /// started: what has not committed by then never does.
    pub fn end(mut self) -> Doom {
        self.stop();
        self.joined.doom()
    }

    fn stop(&mut self) {
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.stop();
    }
}

fn answer(socket: &OwnedFd, end: &OwnedFd, joined: &Joined, holder: u32) {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    const LATER: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let mut peers = Vec::<Peer>::new();
    let (mut next, mut last_rounds, mut has_room) = (0, None, true);
    while last_rounds != Some(0) {
        let watch = |is_watched| if is_watched { PollFlags::IN } else { PollFlags::empty() };
        let accepts = has_room && peers.iter().filter(|peer| peer.may_join).count() < MOST;
        let mut awaited = vec![PollFd::new(end, watch(last_rounds.is_none())), PollFd::new(socket, watch(accepts))];
        awaited.extend(peers.iter().map(|peer| PollFd::new(&peer.connection, PollFlags::IN)));
        let timeout = match (last_rounds, has_room) {
            (Some(_), _) => Some(&AT_ONCE),
            (None, false) => Some(&LATER),
            (None, true) => None,
        };
        let ready = poll(&mut awaited, timeout);
        let events: Vec<bool> = awaited.iter().map(|awaited| !awaited.revents().is_empty()).collect();
        drop(awaited);
        match &mut last_rounds {
            Some(_) if ready != Err(Errno::INTR) && !events.contains(&true) => break,
            Some(rounds) => *rounds -= 1,
            None if events[0] => last_rounds = Some(LAST_ROUNDS),
            None => {}
        }
        // What its processes have said before they ended comes first.
        let mut heard = events[2..].iter();
        peers.retain(|peer| {
            let stays = !heard.next().is_some_and(|is_ready| *is_ready) || peer.is_answered(joined);
            if !stays {
                joined.release(peer.handle);
            }
            stays
        });
        has_room = true;
        if events[1] {
            match accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(connection) => {
                    admit(&mut peers, Peer { may_join: may_join(&connection, holder), connection, handle: next });
                    next += 1;
                }
                // Out of descriptors, or of memory: who waits would be reported again at once.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => has_room = false,
                // It has gone again.
                Err(_) => {}
            }
        }
    }
    // Somebody outside has them still.
    peers.iter().for_each(|peer| joined.release(peer.handle));
}

/// Nobody who may not join takes the place of one who may.
fn admit(peers: &mut Vec<Peer>, peer: Peer) {
    let refused: Vec<_> = (0..peers.len()).filter(|n| !peers[*n].may_join).collect();
    if !peer.may_join && refused.len() == MOST_REFUSED {
        peers.remove(refused[0]);
    }
    peers.push(peer);
}

/// Whether who has connected is of the command, the same user or the superuser.
fn may_join(connection: &OwnedFd, holder: u32) -> bool {
    let Ok(peer) = getsockopt(connection, PeerCredentials) else { return false };
    let namespace = |pid: u32| {
        let path = format!("/proc/{pid}/ns/mnt");
        let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::INO).ok()?;
        Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
    };
    let is_inside = || namespace(peer.pid() as u32).is_some_and(|inside| Some(inside) == namespace(holder));
    [0, geteuid().as_raw()].contains(&peer.uid()) || is_inside()
}

impl Peer {
    /// Answers what it asks next; `false` where it has closed the connection.
    fn is_answered(&self, joined: &Joined) -> bool {
        let mut bytes = [0; LENGTH];
        let mut told = nix::cmsg_space!(UnixCredentials);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let mut room = [IoSliceMut::new(&mut bytes)];
        let (length, thread) = match recvmsg::<()>(self.connection.as_raw_fd(), &mut room, Some(&mut told), flags) {
            Ok(received) => {
                let sender = received.cmsgs().ok().and_then(|mut messages| {
                    messages.find_map(|message| match message {
                        ControlMessageOwned::ScmCredentials(who) => Some(who.pid()),
                        _ => None,
                    })
                });
                // Nobody's where the sender is in a namespace of processes that is not seen here.
                (received.bytes, sender.unwrap_or(0) as u32)
            }
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return true,
            Err(_) => return false,
        };
        if length != LENGTH {
            return false;
        }
        let asker = Asker { thread, handle: self.handle };
        let answer = match u32::from_ne_bytes(bytes) {
            _ if !self.may_join => Err(Errno::PERM),
            BEGIN => joined.begin(asker),
            ADD => joined.add(asker),
            COMMIT => joined.commit(asker),
            ABORT => joined.abort(asker),
            _ => Err(Errno::NOTTY),
        };
        let answer = answer.unwrap_or_else(|errno| -errno.raw_os_error());
        send(&self.connection, &answer.to_ne_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{RecvFlags, connect, recv};
    use std::process::{Command, Stdio};

    fn connected(name: &str) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        socket
    }

    fn answer(socket: &OwnedFd) -> i32 {
        let mut answer = [0; LENGTH];
        recv(socket, &mut answer, RecvFlags::empty()).unwrap();
        i32::from_ne_bytes(answer)
    }

    fn ask(socket: &OwnedFd, request: u32) -> i32 {
        send(socket, &request.to_ne_bytes(), SendFlags::NOSIGNAL).unwrap();
        answer(socket)
    }

    #[test]
    fn a_connection_is_a_group() {
        let begin = || {
            let listening = Listening::new().unwrap();
            (listening.name().to_owned(), listening.serve(std::process::id()).unwrap())
        };
        let no = |errno: Errno| -errno.raw_os_error();
        let (name, joining) = begin();
        let (one, other) = (connected(&name), connected(&name));
        assert_eq!(
            [ask(&one, COMMIT), ask(&one, ADD), ask(&one, 1)],
            [Errno::INVAL, Errno::INVAL, Errno::NOTTY].map(no)
        );
        assert_eq!([ask(&one, BEGIN), ask(&one, ADD), ask(&other, ADD)], [0; 3]);
        assert_eq!([ask(&one, BEGIN), ask(&other, BEGIN)], [no(Errno::BUSY); 2], "they do not nest");
        // A child has its parent's connection, and no part in the group.
        let child =
            Command::new("printf").arg("\\163\\347\\0\\0").stdout(Stdio::from(one.try_clone().unwrap())).status();
        assert!(child.unwrap().success());
        assert_eq!(answer(&one), no(Errno::PERM));
        assert_eq!([ask(&other, COMMIT), ask(&one, COMMIT)], [no(Errno::INVAL), 0]);
        // One that is closed without a group undoes nothing.
        drop(other);
        assert_eq!(joining.end().why(), None);

        let (name, joining) = begin();
        let one = connected(&name);
        assert_eq!([ask(&one, BEGIN), ask(&one, ABORT)], [0; 2]);
        assert!(joining.end().why().unwrap().contains("has aborted its group"));

        for is_closed in [true, false] {
            let (name, joining) = begin();
            let one = connected(&name);
            assert_eq!(ask(&one, BEGIN), 0);
            let kept = (!is_closed).then_some(one);
            assert!(joining.end().why().unwrap().contains("has not committed its group"));
            drop(kept);
        }
    }

    #[test]
    fn who_may_not_join_keeps_no_place() {
        let peer = |handle, may_join| {
            let connection =
                socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
            Peer { connection, handle, may_join }
        };
        let mut peers = Vec::new();
        let refused = MOST_REFUSED as u64;
        for handle in 0..refused + 2 {
            admit(&mut peers, peer(handle, false));
            admit(&mut peers, peer(100 + handle, true));
        }
        let of = |may_join| {
            let peers = peers.iter().filter(move |peer| peer.may_join == may_join);
            peers.map(|peer| peer.handle).collect::<Vec<_>>()
        };
        assert_eq!(of(false), (2..refused + 2).collect::<Vec<_>>());
        assert_eq!(of(true), (100..refused + 102).collect::<Vec<_>>());
    }
}
