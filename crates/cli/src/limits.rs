//! What a process may use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{MembarrierCommand, membarrier};

use signal_hook::consts::SIGXFSZ;
use std::sync::Arc;

/// Makes a write beyond the file size limit (`ulimit -f`) fail with `EFBIG` instead of killing the process by
/// `SIGXFSZ`. Child processes get the signal's disposition as this process found it.
pub fn survive_file_size() {
    let is_ignored = ignored_signals().is_ok_and(|ignored| ignored & (1 << (SIGXFSZ - 1)) != 0);
    if !is_ignored {
        // A handler, and not "ignore": exec resets handlers to the default. `SIGXFSZ` can always be caught.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// The signals that this process ignores, a bit for each.
pub fn ignored_signals() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
}

/// How many files a process may have open, as it was.
#[derive(Clone, Copy)]
pub struct OpenFiles(Option<u64>);

/// A process that serves others has open what all of them have: as much as the system lets it. Gives what it was.
pub fn raise_open_files() -> OpenFiles {
    let is = getrlimit(Resource::Nofile);
    // Where that is refused it serves as many as it can.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: is.maximum, maximum: is.maximum });
    OpenFiles(is.current)
}

/// Tells the kernel of the fences that an open store will ask it for. The store does that itself; but once a process
/// has threads the kernel waits at each of these until all processors have come by, which takes some ten milliseconds,
/// and there is nothing to wait for before.
pub fn register_fences() {
    // Where it has none the store makes its own.
    let _ = membarrier(MembarrierCommand::RegisterGlobalExpedited);
    let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
}

impl OpenFiles {
    /// As an argument: the number, or nothing where there is no limit.
    pub fn to_argument(self) -> String {
        self.0.map_or(String::new(), |number| number.to_string())
    }

    /// The limit of such an argument.
    pub fn of_argument(argument: &str) -> OpenFiles {
        OpenFiles(argument.parse().ok())
    }

    /// Has this process have the limit again.
    pub fn set(self) {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: self.0, maximum });
    }
}
