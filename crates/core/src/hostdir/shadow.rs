//! Bytes of existing files that groups write much to: they go to a file of the store's own, which shares its blocks
//! with the homes later.
//!
//! # Terms
//!
//! - *shadow*: a file in `.wholly/shadow` that one group writes, from front to back, and nobody changes once that group
//!   has committed. It is to the index what a segment of the log is: versions have [positions](super#terms) in it.
//! - *slot*: a shadow's place among positions, its own until the tail has passed its group.
//! - *run*: bytes that are adjacent in the shadow and in a file. They lie alike in their blocks, so that a pass can
//!   share those.
//!
//! # Invariants
//!
//! 1. A shadow is durable, with its place in the folder, before the commit record is written that speaks of it.
//! 2. It is removed only when the superblock's tail is past its group, or the group has not committed and everybody
//!    knows.
//! 3. What no group of the log speaks of is removed at open and at close.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::records::LONGEST_SHADOW;
use wholly_changes::{id_name, join};
use wholly_host::{HostFile, HostFs, host_error};

use super::StoreInner;
use super::memory::{SHADOWS, ZEROS};
use super::names::{OWN_FOLDER, names_in};
use crate::error::{Error, Result};
use crate::site;
use sync::{AtomicU8, Mutex, Ordering, RwLock};

/// Where shadows are.
pub(super) const SHADOW_FOLDER: &[u8] = b".wholly/shadow";

/// How many there can be at a time.
const SLOTS: usize = ((ZEROS - SHADOWS) / LONGEST_SHADOW) as usize;

/// Shadows that are kept open for who reads them: there may be more than a process may have descriptors.
const MOST_OPEN: usize = 16;

/// The sequence of a group that has not committed.
const RUNNING: u64 = u64::MAX;

/// A shadow that there is.
#[derive(Clone, Copy)]
struct Known {
    number: u64,
    /// Of its group.
    sequence: u64,
}

/// A shadow that a running group has made.
pub(crate) struct Made {
    pub number: u64,
    /// The position of its first byte.
    pub first: u64,
    pub file: Arc<dyn HostFile>,
}

/// The shadows of a store, by slot.
pub(crate) struct Shadows {
    slots: RwLock<Vec<Option<Known>>>,
    /// By number; the one that was opened last comes last.
    open: Mutex<VecDeque<(u64, Arc<dyn HostFile>)>>,
    /// 1 once the folder is durable.
    has_folder: AtomicU8,
}

impl Shadows {
    pub fn new() -> Self {
        Shadows { slots: RwLock::default(), open: Mutex::default(), has_folder: AtomicU8::new(0) }
    }

    /// A slot for the shadow `number` of a running group: the position of its first byte. `None` where all are taken.
    fn add(&self, known: Known) -> Option<u64> {
        let mut slots = self.slots.write().unwrap();
        let slot = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if slot == SLOTS {
            return None;
        }
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(known);
        Some(position_of(slot))
    }

    /// The group `sequence` of the log speaks of the shadow `number`: the position of its first byte. `None` where the
    /// log speaks of more than there can be.
    pub fn replayed(&self, number: u64, sequence: u64) -> Option<u64> {
        let mut slots = self.slots.write().unwrap();
        if let Some(slot) = slots.iter().position(|known| known.is_some_and(|known| known.number == number)) {
            slots[slot] = Some(Known { number, sequence });
            return Some(position_of(slot));
        }
        drop(slots);
        self.add(Known { number, sequence })
    }

    /// The group of the shadow at `first` commits as `sequence`, and is in flight.
    pub fn committed(&self, first: u64, sequence: u64) {
        if let Some(known) = &mut self.slots.write().unwrap()[slot_of(first)] {
            known.sequence = sequence;
        }
    }

    /// Copies bytes of a version. The reader holds a slot of the index whose list names them, so that they are still
    /// there.
    pub fn read(&self, host: &dyn HostFs, position: u64, buf: &mut [u8]) -> Result<()> {
        let (file, from) = self.file(host, position)?;
        if file.read_at(from, buf)? < buf.len() {
            let place = String::from_utf8_lossy(&path_of(self.known(position).number)).into_owned();
            return Err(Error::corrupt(place, "it ends before bytes that a group has written there"));
        }
        Ok(())
    }

    /// The host file of the shadow that has a position, and the byte of it.
    pub fn file(&self, host: &dyn HostFs, position: u64) -> Result<(Arc<dyn HostFile>, u64)> {
        let (number, from) = (self.known(position).number, (position - SHADOWS) % LONGEST_SHADOW);
        let find = |open: &VecDeque<(u64, Arc<dyn HostFile>)>| {
            open.iter().find(|(other, _)| *other == number).map(|(_, file)| file.clone())
        };
        if let Some(file) = find(&self.open.lock().unwrap()) {
            return Ok((file, from));
        }
        let file = host.open(&path_of(number), false)?;
        let mut open = self.open.lock().unwrap();
        if find(&open).is_none() {
            if open.len() >= MOST_OPEN {
                open.pop_front();
            }
            open.push_back((number, file.clone()));
        }
        Ok((file, from))
    }

    fn known(&self, position: u64) -> Known {
        self.slots.read().unwrap()[slot_of(position)].expect("a version's shadow is there")
    }

    /// Forgets those of groups below `tail`: no version names them any more. Returns their numbers.
    fn take_below(&self, tail: u64) -> Vec<u64> {
        let mut slots = self.slots.write().unwrap();
        let gone = slots.iter_mut().filter_map(|slot| slot.take_if(|known| known.sequence < tail));
        let gone: Vec<u64> = gone.map(|known| known.number).collect();
        drop(slots);
        if !gone.is_empty() {
            self.open.lock().unwrap().retain(|(number, _)| !gone.contains(number));
        }
        gone
    }

    /// Forgets the one at `first`, whose group has not committed. Returns its number.
    fn take(&self, first: u64) -> Option<u64> {
        let known = self.slots.write().unwrap()[slot_of(first)].take()?;
        self.open.lock().unwrap().retain(|(number, _)| *number != known.number);
        Some(known.number)
    }
}

impl StoreInner {
    /// A shadow for a running group. `None` where there can be no more.
    pub fn make_shadow(&self) -> Result<Option<Made>> {
        self.make_shadow_folder()?;
        let number = self.log.take_sequence();
        let Some(first) = self.shadows.add(Known { number, sequence: RUNNING }) else { return Ok(None) };
        match self.host.create(site::SHADOW_MAKE, &path_of(number), 0o600) {
            Ok(file) => Ok(Some(Made { number, first, file })),
            Err(error) => {
                self.shadows.take(first);
                Err(host_error(error, &path_of(number)))
            }
        }
    }

    /// Makes the folder, where it is not there. It survives a crash when this returns.
    fn make_shadow_folder(&self) -> Result<()> {
        let has_folder = &self.shadows.has_folder;
        if has_folder.load(Ordering::Acquire) == 0 {
            let sites = (site::SHADOW_FOLDER, site::SHADOW_FOLDER_SYNC);
            self.make_own_folders(sites, &[OWN_FOLDER, SHADOW_FOLDER])?;
            has_folder.store(1, Ordering::Release);
        }
        Ok(())
    }

    /// The group of a shadow has not committed.
    pub fn drop_shadow(&self, first: u64) {
        if let Some(number) = self.shadows.take(first) {
            self.remove_shadow(number);
        }
    }

    /// The tail has moved (invariant 2).
    pub fn remove_shadows_below(&self, tail: u64) {
        for number in self.shadows.take_below(tail) {
            self.remove_shadow(number);
        }
    }

    /// Where that fails, the next open does it.
    fn remove_shadow(&self, number: u64) {
        let _ = self.host.unlink(site::SHADOW_REMOVE, &path_of(number));
    }

    /// Removes what nobody knows (invariant 3). What cannot be removed stays: it is in nobody's way.
    pub fn clean_shadows(&self) -> Result<()> {
        for name in names_in(&*self.host, SHADOW_FOLDER)? {
            let is_known = |known: &Option<Known>| known.is_some_and(|known| id_name(known.number) == name);
            if self.shadows.slots.read().unwrap().iter().any(is_known) {
                continue;
            }
            let _ = self.host.unlink(site::SHADOW_REMOVE, &join(SHADOW_FOLDER, &name));
        }
        Ok(())
    }
}

/// Why the bytes up to `end` of the shadow `number` cannot be there.
pub(super) fn fault_of(host: &dyn HostFs, number: u64, end: u64) -> Result<Option<&'static str>> {
    match host.stat(&path_of(number)) {
        Ok(stat) if !stat.is_file() || stat.size < end => Ok(Some("what a group has written of it was cut off")),
        Ok(_) => Ok(None),
        Err(error) if error.errno == Errno::NOENT => Ok(Some("what a group has written of it is gone")),
        Err(error) => Err(error.into()),
    }
}

fn path_of(number: u64) -> Vec<u8> {
    join(SHADOW_FOLDER, &id_name(number))
}

fn position_of(slot: usize) -> u64 {
    SHADOWS + slot as u64 * LONGEST_SHADOW
}

fn slot_of(position: u64) -> usize {
    ((position - SHADOWS) / LONGEST_SHADOW) as usize
}
