//! A thread's place to begin groups from, and the files of its last groups.

use std::sync::Arc;

use super::file::File as Inner;
use super::group::Group;
use super::running::Running;
use super::{Store, StoreInner};
use crate::error::Result;
use sync::Ordering;

/// Begins one group after the other, faster than [`Store::begin`]. It keeps what a group needs from one group to the
/// next, so beginning and ending a group touches nothing that threads share. For a thread that commits many small
/// groups.
///
/// A writer keeps the store open, as a file does. It also keeps the files of its last groups open: until it begins a
/// group after their last handle was dropped, or is dropped itself. On persistent memory only the first eight writers
/// are faster.
///
/// # Example
/// ```
/// # fn main() -> wholly::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wholly-doc-writer-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # std::fs::write(dir.join("counter"), [0; 8]).unwrap();
/// # wholly::Store::init(&dir, &wholly::Options::default())?;
/// let store = wholly::Store::open(&dir)?;
/// let counter = store.open_file("counter")?;
/// let mut writer = store.writer();
/// for n in 1..=1000u64 {
///     let mut group = writer.begin();
///     group.write_at(&counter, 0, &n.to_le_bytes())?;
///     group.commit()?;
/// }
/// # drop(writer);
/// # store.close()?;
/// # assert_eq!(std::fs::read(dir.join("counter")).unwrap(), 1000u64.to_le_bytes());
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Writer {
    /// Dropped before the store.
    running: Running,
    store: Store,
}

impl Writer {
    pub(super) fn new(store: &Store) -> Self {
        Writer { running: Running::of_writer(store.inner.clone()), store: store.clone() }
    }

    /// Begins an explicit group, as [`Store::begin`] does. The writer has one group at a time.
    #[inline]
    pub fn begin(&mut self) -> Group<'_> {
        if !self.running.store.forked.is_mine()
            && let Err(error) = self.follow()
        {
            return Group::refused(error);
        }
        self.running.begin();
        Group::of_writer(&mut self.running)
    }

    /// After `fork`: goes on with the store as this process has it.
    #[cold]
    fn follow(&mut self) -> Result<()> {
        let inner = self.store.used(|inner| Ok(inner.clone()))?;
        if !Arc::ptr_eq(&inner, &self.running.store) {
            self.running = Running::of_writer(inner);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// References to the files of a writer's last groups, by number, so that the next group need not count itself in and
/// out.
pub(super) struct Recent {
    files: Box<[Option<Arc<Inner>>]>,
    /// How often the last handle of a file had been dropped when this was looked through.
    closes: u64,
}

impl Recent {
    const FILES: usize = 1024;

    pub fn new() -> Self {
        Recent { files: vec![None; Self::FILES].into(), closes: 0 }
    }

    /// A reference to `file`, as good as a clone.
    #[inline]
    pub fn take(&mut self, file: &Arc<Inner>) -> Arc<Inner> {
        let place = &mut self.files[file.number as usize % Self::FILES];
        match place.take_if(|known| Arc::ptr_eq(known, file)) {
            Some(known) => known,
            None => file.clone(),
        }
    }

    /// Keeps a reference that is not needed any more.
    #[inline(always)]
    pub fn put(&mut self, file: Arc<Inner>) {
        let place = file.number as usize % Self::FILES;
        self.files[place] = Some(file);
    }

    /// Gives up files that nobody has open.
    #[inline]
    pub fn forget_closed(&mut self, store: &StoreInner) {
        let closes = store.closes.load(Ordering::Relaxed);
        if closes != self.closes {
            self.closes = closes;
            for place in &mut self.files {
                place.take_if(|file| file.handles.load(Ordering::Relaxed) == 0);
            }
        }
    }
}
