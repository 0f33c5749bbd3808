//! What all threads of a performance share, and what stores and volumes have in common for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use wholly_crash::{Op, State};
use wholly_sim::{Mark, Trace, World};

use crate::Error;
use crate::history::{Ending, History, Operation, Seen};

/// Bytes that a group looks at where it is going to write.
pub(crate) const OWN: usize = 16;

/// What happened.
pub struct Performance {
    /// What reached the media.
    pub trace: Trace,
    /// Who did what.
    pub history: History,
    /// The trace's time from which on there is a store or a volume that is open.
    pub made: u64,
    /// What was served in the end; none if it did not come so far.
    pub served: Option<State>,
    /// What went wrong on the way.
    pub failure: Option<String>,
}

/// See the module.
pub(crate) struct Stage {
    pub world: Arc<World>,
    /// Never held where others may go on.
    notes: Mutex<Notes>,
}

#[derive(Default)]
pub(crate) struct Notes {
    pub history: History,
    marks: u64,
    failure: Option<String>,
}

/// Who stores, for the world: the thread of the scheduler. Others may go on before the store.
pub(crate) fn storing_thread() -> u64 {
    crate::sync::switch();
    usize::from(shuttle::current::me()) as u64
}

impl Stage {
    pub fn new(world: Arc<World>) -> Arc<Stage> {
        Arc::new(Stage { world, notes: Mutex::default() })
    }

    /// What comes of `play`, which returns since when all is made, and what is served in the end.
    pub fn perform(self: &Arc<Self>, play: impl FnOnce(&Arc<Self>) -> Result<(u64, State), String>) -> Performance {
        let (made, served) = match play(self) {
            Ok((made, served)) => (made, Some(served)),
            Err(failure) => {
                self.fail(failure);
                (u64::MAX, None)
            }
        };
        let mut notes = self.notes();
        Performance {
            trace: self.world.trace(),
            history: std::mem::take(&mut notes.history),
            made,
            served,
            failure: notes.failure.take(),
        }
    }

    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first failure counts.
    pub fn fail(&self, failure: String) {
        self.notes().failure.get_or_insert(failure);
    }

    /// Marks the begin of something in the trace. Returns its number and time.
    pub fn begin(&self, label: String) -> (u64, u64) {
        let op = {
            let mut notes = self.notes();
            notes.marks += 1;
            notes.marks
        };
        self.world.mark(Mark::Begin { op, label });
        (op, self.world.now())
    }

    pub fn end(&self, op: u64) -> u64 {
        self.world.mark(Mark::Return { op });
        self.world.now()
    }

    /// Notes something that may end epochs. Returns its place.
    pub fn ends_epochs(&self, begin: u64, file: Option<&'static str>) -> usize {
        let endings = &mut self.notes().history.endings;
        endings.push(Ending { begin, end: u64::MAX, file });
        endings.len() - 1
    }

    /// Notes an operation that begins. It counts as not returned until [`returned`](Self::returned).
    pub fn note(&self, label: &str, changes: Vec<(Op, Vec<u8>)>, own: Vec<Seen>) -> (u64, usize) {
        let (op, begin) = self.begin(label.into());
        let operations = &mut self.notes().history.operations;
        operations.push(Operation { label: label.into(), begin, end: u64::MAX, changes, own, offset: None });
        (op, operations.len() - 1)
    }

    pub fn returned(&self, (op, at): (u64, usize), offset: Option<u64>) {
        let end = self.end(op);
        let operation = &mut self.notes().history.operations[at];
        (operation.end, operation.offset) = (end, offset);
    }

    /// It was refused, and did nothing. Its place stays, because others are known by theirs.
    pub fn refused(&self, (op, at): (u64, usize)) {
        self.end(op);
        let operation = &mut self.notes().history.operations[at];
        (operation.begin, operation.changes) = (u64::MAX, Vec::new());
    }
}

/// The bytes that an op writes, as the next write after `write`.
pub(crate) fn bytes_of(op: &Op, write: &mut u64) -> Vec<u8> {
    match op {
        Op::Write { length, .. } | Op::Append { length, .. } => {
            *write += 1;
            wholly_crash::data(*write, *length)
        }
        _ => Vec::new(),
    }
}

/// Whether somebody else was in the way, as may be, or had been there first.
pub(crate) fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy(..) | Error::Exists(_) | Error::NotFound(_) | Error::Refused(_, Errno::NOTEMPTY | Errno::NOENT)
    )
}

/// The path by which the program has opened or made a file.
pub(crate) fn opened_as(file: &'static str) -> &'static str {
    file.strip_prefix('@').unwrap_or(file)
}

/// Does an op that changes names or attributes, in a group or outside of them.
macro_rules! change_names {
    ($on:expr, $op:expr) => {
        match $op {
            Op::Mkdir(path) => $on.mkdir(path, wholly_crash::DIR_MODE),
            Op::Link { from, to } => $on.link(from, to),
            Op::Unlink(path) => $on.unlink(path),
            Op::Rmdir(path) => $on.rmdir(path),
            Op::Rename { from, to, how } => $on.rename(from, to, *how),
            Op::SetMode { path, mode } => $on.set_mode(path, *mode),
            op => Err(crate::Error::Unsupported(format!("{op:?} by threads"))),
        }
    };
}

/// What a store or a volume serves, for who looks at all of it.
macro_rules! served {
    ($of:ty) => {
        struct Served<'s>(&'s $of);

        impl wholly_crash::Names for Served<'_> {
            const NOTES_LOOKS: bool = true;

            fn read_dir(&mut self, path: &str) -> crate::Result<Vec<wholly_vfs::DirEntry>> {
                self.0.read_dir(path)
            }

            fn metadata(&mut self, path: &str) -> crate::Result<wholly_vfs::Stat> {
                self.0.metadata(path)
            }

            fn read_link(&mut self, path: &str) -> crate::Result<Vec<u8>> {
                self.0.read_link(path)
            }

            fn xattrs(&mut self, path: &str) -> crate::Result<Vec<Vec<u8>>> {
                self.0.xattrs(path)
            }

            fn xattr(&mut self, path: &str, name: &[u8]) -> crate::Result<Option<Vec<u8>>> {
                use std::os::unix::ffi::OsStrExt;
                self.0.xattr(path, std::ffi::OsStr::from_bytes(name))
            }

            fn content(&mut self, path: &str) -> crate::Result<Vec<u8>> {
                let mut content = vec![0; self.0.metadata(path)?.size as usize];
                self.0.open_file(path)?.read_at(0, &mut content)?;
                Ok(content)
            }
        }
    };
}

pub(crate) use {change_names, served};
