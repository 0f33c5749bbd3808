//! Rings in memory: the completion side of any queue, and queues that are in memory whole.

use std::sync::Arc;
use std::time::Duration;

use sync::Mutex;
use wholly_blocks::BLOCK;
use wholly_error::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::pages::{DmaPage, PagePool, describe};
use super::{Link, media};
use crate::site;
use crate::spec::{Command, Completion, doorbell};
use crate::transport::{Memory, Transport};

/// The completion queue of any queue.
pub(super) struct CompletionRing {
    memory: Arc<dyn Memory>,
    depth: u32,
    head: u32,
    /// Of what the controller writes in this round.
    phase: bool,
}

impl CompletionRing {
    /// # Errors
    /// `NoSpace`.
    pub fn new(transport: &dyn Transport, depth: u32) -> Result<CompletionRing> {
        let memory = transport.memory((depth as usize * Completion::BYTES).div_ceil(BLOCK))?;
        Ok(CompletionRing { memory, depth, head: 0, phase: true })
    }

    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// What its doorbell is to say.
    pub fn head(&self) -> u32 {
        self.head
    }

    /// The next entry, if there is one.
    pub fn next(&mut self) -> Option<Completion> {
        let at = self.head as usize * Completion::BYTES;
        let mut bytes = [0; Completion::BYTES];
        // The word with the phase is the last that the controller writes, and is read first.
        self.memory.read(at + 12, &mut bytes[12..]);
        if !Completion::read_from_bytes(&bytes).expect("as many").has_phase(self.phase) {
            return None;
        }
        self.memory.read(at, &mut bytes[..12]);
        self.head += 1;
        if self.head == self.depth {
            (self.head, self.phase) = (0, !self.phase);
        }
        Some(Completion::read_from_bytes(&bytes).expect("as many"))
    }

    /// As it was made.
    fn reset(&mut self) {
        (self.head, self.phase) = (0, true);
        self.memory.write(0, &vec![0; self.depth as usize * Completion::BYTES]);
    }
}

/// A queue whose two rings are in memory: for admin commands, and for reads, flushes and writes outside of
/// transactions. Each command has its own two doorbells, as in ordinary drivers.
pub struct PlainQueue {
    link: Arc<Link>,
    pool: Arc<PagePool>,
    id: u16,
    interrupt: u16,
    depth: u32,
    ring: Arc<dyn Memory>,
    state: Mutex<State>,
}

struct State {
    completions: CompletionRing,
    tail: u32,
    in_flight: u32,
    /// By id.
    commands: Vec<Slot>,
    /// Whether the controller has the queue.
    is_there: bool,
}

enum Slot {
    Free,
    /// With the pages that it transfers, and since when.
    InFlight {
        _pages: Vec<DmaPage>,
        since: Duration,
    },
    /// In flight, and nobody waits for it any more.
    Abandoned {
        _pages: Vec<DmaPage>,
    },
    Done(Completion),
    /// The controller was reset while it was in flight.
    Lost,
}

impl PlainQueue {
    /// # Errors
    /// `NoSpace`.
    pub(super) fn new(
        link: &Arc<Link>,
        pool: &Arc<PagePool>,
        id: u16,
        interrupt: u16,
        depth: u32,
    ) -> Result<PlainQueue> {
        let ring = link.transport.memory((depth as usize * Command::BYTES).div_ceil(BLOCK))?;
        let completions = CompletionRing::new(&*link.transport, depth)?;
        let commands = (0..depth).map(|_| Slot::Free).collect();
        let state = Mutex::new(State { completions, tail: 0, in_flight: 0, commands, is_there: false });
        Ok(PlainQueue { link: link.clone(), pool: pool.clone(), id, interrupt, depth, ring, state })
    }

    /// Its number.
    pub fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Where its rings are: for submissions, for completions.
    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.ring.address(), self.state.lock().unwrap().completions.address())
    }

    /// As it was made: after a reset of the controller. What was in flight is lost.
    pub(super) fn reset(&self) {
        let state = &mut *self.state.lock().unwrap();
        state.completions.reset();
        (state.tail, state.in_flight, state.is_there) = (0, 0, false);
        for slot in &mut state.commands {
            match slot {
                Slot::InFlight { .. } => *slot = Slot::Lost,
                Slot::Abandoned { .. } => *slot = Slot::Free,
                _ => {}
            }
        }
    }

    /// The controller has it from now on.
    pub(super) fn is_created(&self) {
        self.state.lock().unwrap().is_there = true;
    }

    pub(super) fn is_there(&self) -> bool {
        self.state.lock().unwrap().is_there
    }

    /// Since when the oldest command has been in flight.
    fn oldest(&self) -> Option<Duration> {
        let state = self.state.lock().unwrap();
        let since = state.commands.iter().filter_map(|slot| match slot {
            Slot::InFlight { since, .. } => Some(*since),
            _ => None,
        });
        since.min()
    }

    /// Hands a command to the controller, which transfers these pages. Returns its number, for [`wait`](Self::wait).
    /// Waits while the queue is full.
    ///
    /// # Errors
    /// `NoSpace` for memory; the transport's; what [`wait`](Self::wait) says of a controller that does not answer.
    pub fn submit(&self, mut command: Command, mut pages: Vec<DmaPage>) -> Result<u16> {
        describe(&mut command, &mut pages, &self.pool)?;
        self.link.wait_for(
            self.interrupt,
            || self.oldest(),
            || {
                let state = &mut *self.state.lock().unwrap();
                if !state.is_there {
                    return Err(self.link.error(self.id, "a command", "the controller was reset"));
                }
                self.reap(state)?;
                let free = state.commands.iter().position(|slot| matches!(slot, Slot::Free));
                let Some(id) = free.filter(|_| state.in_flight < self.depth - 1) else { return Ok(None) };
                command.id = (id as u16).into();
                self.ring.write(state.tail as usize * Command::BYTES, command.as_bytes());
                state.tail = (state.tail + 1) % self.depth;
                state.in_flight += 1;
                let (_pages, since) = (std::mem::take(&mut pages), self.link.transport.now());
                state.commands[id] = Slot::InFlight { _pages, since };
                self.ring_doorbell(site::PLAIN_RING, false, state.tail)?;
                Ok(Some(id as u16))
            },
        )
    }

    /// Waits for a command, and forgets it.
    ///
    /// # Errors
    /// `Media` (`EIO`) if it failed, the controller does not answer in time, or has been reset.
    pub fn wait(&self, id: u16) -> Result<Completion> {
        let look = || {
            let state = &mut *self.state.lock().unwrap();
            self.reap(state)?;
            let slot = &mut state.commands[usize::from(id)];
            match slot {
                Slot::InFlight { .. } | Slot::Abandoned { .. } => Ok(None),
                Slot::Lost => {
                    *slot = Slot::Free;
                    Err(self.link.error(self.id, "a command", "the controller was reset"))
                }
                Slot::Done(completion) => {
                    let completion = *completion;
                    *slot = Slot::Free;
                    Ok(Some(completion))
                }
                Slot::Free => Err(Error::Invalid(format!("no command {id} was handed to queue {}", self.id))),
            }
        };
        self.link.wait_for(self.interrupt, || self.oldest(), look).inspect_err(|_| self.forget(id))
    }

    /// Nobody waits for a command any more. Its pages stay until it completes, or the controller was reset.
    fn forget(&self, id: u16) {
        let slot = &mut self.state.lock().unwrap().commands[usize::from(id)];
        *slot = match std::mem::replace(slot, Slot::Free) {
            Slot::InFlight { _pages, .. } | Slot::Abandoned { _pages } => Slot::Abandoned { _pages },
            _ => Slot::Free,
        };
    }

    /// Whether a command has completed, without waiting. The device works meanwhile.
    ///
    /// # Errors
    /// `Media` (`EIO`).
    pub fn is_done(&self, id: u16) -> Result<bool> {
        self.link.transport.pause(self.interrupt, std::time::Duration::ZERO)?;
        let state = &mut *self.state.lock().unwrap();
        self.reap(state)?;
        Ok(!matches!(state.commands[usize::from(id)], Slot::InFlight { .. }))
    }

    /// [`submit`](Self::submit), [`wait`](Self::wait), and a look at the status. `what` is the command in words.
    ///
    /// # Errors
    /// As both; `Media` (`EIO`) for a command that fails.
    pub fn execute(&self, command: Command, pages: Vec<DmaPage>, what: &str) -> Result<Completion> {
        let completion = self.submit(command, pages).and_then(|id| self.wait(id))?;
        match completion.status() {
            status if status.is_success() => Ok(completion),
            status => Err(self.link.error(self.id, what, &status.to_string())),
        }
    }

    fn reap(&self, state: &mut State) -> Result<()> {
        while let Some(completion) = state.completions.next() {
            let slot = state.commands.get_mut(usize::from(completion.id.get()));
            match slot {
                Some(slot @ Slot::InFlight { .. }) => *slot = Slot::Done(completion),
                Some(slot @ Slot::Abandoned { .. }) => *slot = Slot::Free,
                _ => {
                    let what = format!("the completion of a command {} that is not in flight", completion.id);
                    return Err(media(&*self.link.transport, self.id, &what, "it is ignored"));
                }
            }
            state.in_flight -= 1;
            self.ring_doorbell(site::PLAIN_COMPLETE, true, state.completions.head())?;
        }
        Ok(())
    }

    fn ring_doorbell(&self, site: wholly_media::Site, is_completion: bool, value: u32) -> Result<()> {
        self.link.transport.write32(site, doorbell(self.id, is_completion, self.link.stride), value)
    }
}
