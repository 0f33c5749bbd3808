//! What a group writes to [shadows](crate::hostdir::shadow) rather than to the log.

use std::sync::Arc;

use wholly_changes::records::{LONGEST_SHADOW, Shadow};
use wholly_host::{HostFile, host_error};

use super::{Joined, Running};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::overlay::{Place, PrivateWrite};
use crate::hostdir::shadow::{Made, SHADOW_FOLDER};
use crate::log::layout::EntryKind;
use crate::site;
use index::BLOCK;
use sync::Ordering;

/// Bytes of the longest piece of a call that is written at once: a private write counts them in 32 bits.
const PIECE: usize = 1 << 30;

/// Calls that write less go to the log, whatever came before: a call of the host costs more than so few bytes there.
const LEAST: u64 = BLOCK;

/// The last bytes in a row that a group wrote to a file, by calls of [`LEAST`] bytes or more.
#[derive(Clone, Copy, Default)]
pub(super) struct InARow {
    bytes: u64,
    /// The byte behind the last.
    end: u64,
}

impl InARow {
    /// Counts a write. Returns how many bytes there are in a row.
    #[inline]
    fn write(&mut self, offset: u64, bytes: u64) -> u64 {
        self.bytes = if offset == self.end { self.bytes + bytes } else { bytes };
        self.end = offset + bytes;
        self.bytes
    }

    /// The same of a write that may be shorter than [`LEAST`], if it does not come to `most` bytes in a row: whether it
    /// was counted.
    #[inline]
    pub(super) fn write_below(&mut self, most: u64, offset: u64, bytes: u64) -> bool {
        if bytes < LEAST.min(most) {
            return true;
        }
        let mut counted = *self;
        let is_below = counted.write(offset, bytes) < most;
        if is_below {
            *self = counted;
        }
        is_below
    }
}

/// The shadows of a group.
pub(super) struct Shadows {
    /// The last one is being written.
    made: Vec<Made>,
    /// How long that one is.
    end: u64,
    /// Bytes in all of them.
    bytes: u64,
    /// What of the last one no entry speaks of yet.
    run: Option<Run>,
    /// Whether there can be no more: all goes to the log.
    is_refused: bool,
}

/// A run of which no entry speaks yet: it may go on.
#[derive(Clone, Copy)]
struct Run {
    /// Number of the file among the group's.
    file: usize,
    offset: u64,
    from: u64,
    length: u64,
}

/// Where there is room for bytes.
struct Room {
    /// The position of the shadow's first byte.
    first: u64,
    file: Arc<dyn HostFile>,
    /// The first byte there.
    from: u64,
}

impl Run {
    fn is_followed_by(&self, file: usize, offset: u64) -> bool {
        self.file == file && self.offset + self.length == offset
    }
}

impl Shadows {
    fn new() -> Self {
        Shadows { made: Vec::new(), end: 0, bytes: 0, run: None, is_refused: false }
    }

    /// The group commits as `sequence`, and is in flight.
    #[cold]
    pub(super) fn publish(&self, store: &StoreInner, files: &[Joined], sequence: u64) {
        self.made.iter().for_each(|made| store.shadows.committed(made.first, sequence));
        for file in files.iter().filter(|file| file.is_shadowed) {
            file.inner.shadowed.fetch_max(sequence, Ordering::AcqRel);
        }
    }
}

impl Running {
    /// Whether a write of so many bytes is to go to a shadow.
    #[inline]
    pub(super) fn is_to_be_shadowed(&mut self, i: usize, offset: u64, length: usize) -> bool {
        let stage_bytes = self.store.options.stage_bytes;
        if (length as u64) < LEAST.min(stage_bytes) {
            return false;
        }
        let in_a_row = self.seat_mut().files[i].in_a_row.write(offset, length as u64);
        in_a_row >= stage_bytes && self.begins_or_goes_on(i, offset, length as u64, in_a_row)
    }

    /// The same, of a write that comes behind many bytes. Files that are written in turns would get a run for each
    /// call: where another run has come between, there are to be as many bytes in a row again.
    #[cold]
    fn begins_or_goes_on(&mut self, i: usize, offset: u64, length: u64, in_a_row: u64) -> bool {
        let stage_bytes = self.store.options.stage_bytes;
        let run = self.shadows.as_ref().and_then(|shadows| shadows.run);
        let goes_on = run.is_some_and(|run| run.is_followed_by(i, offset));
        let begins = length >= stage_bytes || in_a_row - length < stage_bytes;
        if !goes_on && !begins {
            self.seat_mut().files[i].in_a_row.bytes = length;
        }
        let is_refused = self.shadows.as_ref().is_some_and(|shadows| shadows.is_refused);
        (goes_on || begins) && !is_refused && self.store.host.shares_blocks()
    }

    /// Writes to a shadow. Returns whether it did; else nothing was done.
    #[cold]
    pub(super) fn write_shadow(&mut self, i: usize, offset: u64, data: &[u8]) -> Result<bool> {
        let mut done = 0;
        for piece in data.chunks(PIECE) {
            let at = offset + done;
            let written = self.write_piece(i, at, piece);
            if done > 0 && !matches!(written, Ok(true)) {
                let full = || Error::invalid("a write beyond the largest file of the host");
                return Err(self.break_off(written.err().unwrap_or_else(full)));
            }
            if !written? {
                return Ok(false);
            }
            done += piece.len() as u64;
        }
        Ok(true)
    }

    fn write_piece(&mut self, i: usize, offset: u64, piece: &[u8]) -> Result<bool> {
        let store = self.store.clone();
        let length = piece.len() as u64;
        let Some(Room { first, file, from }) = self.room_in_shadow(i, offset, length)? else { return Ok(false) };
        let failed = |error| host_error(error, &self.seat().files[i].inner.path);
        // Nothing speaks of what a failed write may have left.
        store.with_space(|| file.write_at(site::SHADOW_WRITE, from, piece).map_err(failed))?;
        let shadows = self.shadows.as_mut().expect("there is room in one");
        shadows.bytes += length;
        shadows.end = from + length;
        match &mut shadows.run {
            Some(run) => run.length += length,
            None => shadows.run = Some(Run { file: i, offset, from, length }),
        }
        let (place, seat) = (Place::Shadow(first + from), self.seat_mut());
        seat.files[i].is_shadowed = true;
        seat.writes.push(PrivateWrite { file: i as u32, length: length as u32, offset, place });
        Ok(true)
    }

    /// Where to write to: a place where the first byte lies in its block as that at `offset` does in its own. It
    /// goes on with the run, or there is none. `None` where there can be no shadow for so many bytes.
    fn room_in_shadow(&mut self, i: usize, offset: u64, length: u64) -> Result<Option<Room>> {
        let run = self.shadows.as_ref().and_then(|shadows| shadows.run);
        if !run.is_some_and(|run| run.is_followed_by(i, offset)) {
            self.end_run()?;
        }
        let fits = |end: u64| end < LONGEST_SHADOW && end <= self.store.longest(end);
        let behind = |shadows: &Shadows| {
            let aligned = shadows.end.next_multiple_of(BLOCK) + offset % BLOCK;
            if shadows.run.is_some() { shadows.end } else { aligned }
        };
        if let Some(shadows) = &self.shadows
            && let Some(made) = shadows.made.last()
            && fits(behind(shadows).saturating_add(length))
        {
            return Ok(Some(Room { first: made.first, file: made.file.clone(), from: behind(shadows) }));
        }
        if !fits(offset % BLOCK + length) {
            return Ok(None);
        }
        self.end_run()?;
        let made = match self.store.make_shadow() {
            Err(Error::NoSpace(_)) if self.store.free_removed() => self.store.make_shadow(),
            made => made,
        };
        self.plain = false;
        let shadows = self.shadows.get_or_insert_with(|| Box::new(Shadows::new()));
        match made {
            Ok(Some(made)) => {
                let room = Room { first: made.first, file: made.file.clone(), from: offset % BLOCK };
                shadows.end = 0;
                shadows.made.push(made);
                Ok(Some(room))
            }
            Err(Error::Poisoned(why)) => Err(Error::Poisoned(why)),
            // The log can take it.
            _ => {
                shadows.is_refused = true;
                Ok(None)
            }
        }
    }

    /// Tells the log of the run, before it is told of anything else: what comes later lies above.
    #[inline]
    pub(super) fn end_run(&mut self) -> Result<()> {
        if self.shadows.is_some() { self.tell_run() } else { Ok(()) }
    }

    #[cold]
    fn tell_run(&mut self) -> Result<()> {
        let Some(shadows) = &self.shadows else { return Ok(()) };
        let (Some(run), Some(made)) = (shadows.run, shadows.made.last()) else { return Ok(()) };
        let Run { file, offset, from, length } = run;
        let payload = Shadow { number: made.number, from, length }.to_bytes();
        let id = self.seat().files[file].inner.id;
        self.append_entry(EntryKind::Shadow, id, offset, &payload)?;
        if let Some(shadows) = &mut self.shadows {
            shadows.run = None;
        }
        Ok(())
    }

    /// Before the commit: shadows survive (invariant 1 of theirs).
    #[cold]
    pub(super) fn settle_shadows(&mut self) -> Result<()> {
        let store = self.store.clone();
        store.bound_staged();
        let Some(shadows) = &mut self.shadows else { return Ok(()) };
        let bytes = std::mem::take(&mut shadows.bytes);
        if bytes == 0 {
            return Ok(());
        }
        store.checkpointer.count_staged(bytes);
        let synced = shadows.made.iter().try_for_each(|made| {
            store.log.count_barrier();
            made.file.sync(site::SHADOW_SYNC)
        });
        synced.map_err(|error| match self.implicit {
            // Nobody could end the group of calls that have returned.
            true => store.poison(&Error::Media(error)),
            false => self.break_off(Error::Media(error)),
        })?;
        let synced = store.host.sync_dir(site::SHADOW_SYNC_DIR, SHADOW_FOLDER);
        synced.map_err(|error| store.poison(&Error::Media(error)))?;
        store.log.count_barrier();
        Ok(())
    }

    /// The group has not committed.
    pub(super) fn remove_shadows(&mut self) {
        // Of a group of which nobody knows whether it survives, nothing is removed.
        if let Some(shadows) = self.shadows.take()
            && self.store.check_usable().is_ok()
        {
            shadows.made.iter().for_each(|made| self.store.drop_shadow(made.first));
        }
    }
}
