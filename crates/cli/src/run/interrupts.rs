//! Signals that want all of it to end: from their first on nothing is committed.

use crate::limits::ignored_signals;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What has come so far. It is listened to as long as the process lives.
#[derive(Clone)]
pub struct Interrupts {
    first: Arc<AtomicI32>,
    /// Who is told, while it runs.
    child: Arc<AtomicI32>,
    /// Where the child is the command, which is killed at the second signal: who passes on what it hears. Else the
    /// child is who holds the command, and listens too.
    relay: Option<i32>,
    /// How many came from who passes them on, and how many otherwise: a signal to a whole process group comes in both
    /// ways.
    counts: Arc<[AtomicU32; 2]>,
}

impl Interrupts {
    /// Begins to listen to those that the process does not ignore: who started it with `nohup` wants that.
    pub fn begin() -> std::io::Result<Interrupts> {
        Self::of(None)
    }

    /// The same in the process whose child is the command, and to which `relay` passes on what it hears.
    pub fn begin_for_command(relay: i32) -> std::io::Result<Interrupts> {
        Self::of(Some(relay))
    }

    fn of(relay: Option<i32>) -> std::io::Result<Interrupts> {
        let ignored = ignored_signals()?;
        let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
        let this = Interrupts { first: Arc::default(), child: Arc::default(), relay, counts: Arc::default() };
        let heard = this.clone();
        std::thread::spawn(move || {
            for origin in signals.forever() {
                heard.hear(origin.signal, origin.process.map(|process| process.pid));
            }
        });
        Ok(this)
    }

    /// The terminal tells the child, too; other processes tell this one alone. At the second signal the command has no
    /// choice.
    fn hear(&self, signal: i32, sender: Option<i32>) {
        self.note(signal);
        let is_relayed = sender.is_some() && sender == self.relay;
        let is_first = self.counts[usize::from(is_relayed)].fetch_add(1, Ordering::AcqRel) == 0;
        let Some(child) = Pid::from_raw(self.child.load(Ordering::Acquire)) else { return };
        let signal = match Signal::from_named_raw(signal) {
            _ if !is_first && self.relay.is_some() => Some(Signal::KILL),
            signal => signal.filter(|_| sender.is_some()),
        };
        if let Some(signal) = signal {
            let _ = kill_process(child, signal);
        }
    }

    /// A signal came, perhaps the first.
    pub fn note(&self, signal: i32) {
        let _ = self.first.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The signal that came first, if any came.
    pub fn first(&self) -> Option<i32> {
        Some(self.first.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// The child runs, or it has ended.
    pub fn tell(&self, child: Option<Pid>) {
        self.child.store(child.map_or(0, |pid| pid.as_raw_nonzero().get()), Ordering::Release);
        // What came before there was somebody to tell.
        if let (Some(child), Some(signal)) = (child, self.first().and_then(Signal::from_named_raw)) {
            let _ = kill_process(child, signal);
        }
    }
}
