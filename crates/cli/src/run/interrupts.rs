//! Signals that want all of it to end: from their first on nothing is committed.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// What has come so far. It is listened to as long as the process lives.
#[derive(Clone)]
pub struct Interrupts {
    first: Arc<AtomicI32>,
    /// Who is told, while it runs.
    child: Arc<AtomicI32>,
    /// Whether that is the command, which is killed at the second signal, and not who holds it, and listens too.
    is_command: bool,
}

impl Interrupts {
    /// Begins to listen to those that the process does not ignore: who started it with `nohup` wants that.
    pub fn begin() -> std::io::Result<Interrupts> {
        Self::of(false)
    }

    /// The same in the process whose child is the command.
    pub fn begin_for_command() -> std::io::Result<Interrupts> {
        Self::of(true)
    }

    fn of(is_command: bool) -> std::io::Result<Interrupts> {
        let ignored = ignored()?;
        let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
        let this = Interrupts { first: Arc::default(), child: Arc::default(), is_command };
        let heard = this.clone();
        std::thread::spawn(move || {
            for origin in signals.forever() {
                heard.hear(origin.signal, origin.process.is_some());
            }
        });
        Ok(this)
    }

    /// The terminal tells the child, too; others tell this process alone. At the second signal the command has no choice.
    fn hear(&self, signal: i32, is_for_us_alone: bool) {
        let is_first = self.note(signal);
        let Some(child) = Pid::from_raw(self.child.load(Ordering::Acquire)) else { return };
        let signal = match Signal::from_named_raw(signal) {
            _ if !is_first && self.is_command => Some(Signal::KILL),
            signal => signal.filter(|_| is_for_us_alone),
        };
        if let Some(signal) = signal {
            let _ = kill_process(child, signal);
        }
    }

    /// A signal came; whether it is the first.
    pub fn note(&self, signal: i32) -> bool {
        self.first.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire).is_ok()
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

/// The signals that this process ignores, a bit for each.
fn ignored() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
}
