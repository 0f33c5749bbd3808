//! What a process may use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{MembarrierCommand, membarrier};

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

/// Tells the kernel of the fences that an open store will ask it for. The store does that itself; but once a process has threads the kernel
/// waits at each of these until all processors have come by, which takes some ten milliseconds, and there is nothing to wait for before.
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
