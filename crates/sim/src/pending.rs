//! What is not durable: units, and the chain of versions of each.

use super::event::{Attribute, NameChange};
use super::hash::{self, Place};
use super::state::{LOG, ObjId, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use wholly_blocks::{BLOCK, Page};

/// The name of a unit. The order is the order in which units are numbered and applied: whole words before the lines
/// that hold parts of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum UnitKey {
    /// A word of persistent memory, a sector of the log on a disk, a page of a file on a disk.
    Bytes { obj: ObjId, index: u64 },
    /// The ordinary stores to a cache line (X86, ADR).
    Line { obj: ObjId, line: u64 },
    /// All ordinary stores (X86, eADR); all ordered stores to a region.
    Order,
    /// The length of the log.
    LogLen,
    /// Attributes of an object.
    Attr { obj: ObjId },
    /// A name in a directory.
    Name { dir: ObjId, name: Arc<[u8]> },
    /// All attribute changes and names (ext4).
    Journal,
    /// All ordered transactions of blocks (`Total`). They lie over what was stored plainly before.
    Commits,
    /// One ordered transaction of blocks (`Dependent`), by its place.
    Commit { sequence: u64 },
}

impl UnitKey {
    fn hash(&self) -> u64 {
        match self {
            UnitKey::Bytes { obj, index } => hash::numbers(&[0, u64::from(*obj), *index]),
            UnitKey::Line { obj, line } => hash::numbers(&[1, u64::from(*obj), *line]),
            UnitKey::Order => hash::numbers(&[2]),
            UnitKey::LogLen => hash::numbers(&[3]),
            UnitKey::Attr { obj } => hash::numbers(&[4, u64::from(*obj)]),
            UnitKey::Name { dir, name } => hash::numbers(&[5, u64::from(*dir), hash::bytes(name)]),
            UnitKey::Journal => hash::numbers(&[6]),
            UnitKey::Commits => hash::numbers(&[7]),
            UnitKey::Commit { sequence } => hash::numbers(&[8, *sequence]),
        }
    }
}

/// A part of what was written: words by value, larger parts by reference to the event's data.
#[derive(Clone)]
pub(super) enum Bytes {
    Word { len: u8, bytes: [u8; 8] },
    Shared { data: Arc<[u8]>, from: u32, to: u32 },
}

impl Bytes {
    pub fn of(data: &Arc<[u8]>, from: usize, to: usize) -> Bytes {
        if to - from <= 8 {
            let mut bytes = [0; 8];
            bytes[..to - from].copy_from_slice(&data[from..to]);
            Bytes::Word { len: (to - from) as u8, bytes }
        } else {
            Bytes::Shared { data: data.clone(), from: from as u32, to: to as u32 }
        }
    }

    fn truncate(&mut self, most: u64) {
        match self {
            Bytes::Word { len, .. } => *len = u64::from(*len).min(most) as u8,
            Bytes::Shared { from, to, .. } => *to = u64::from(*to - *from).min(most) as u32 + *from,
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Word { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Shared { data, from, to } => &data[*from as usize..*to as usize],
        }
    }
}

#[derive(Clone)]
pub(super) enum Effect {
    Bytes {
        obj: ObjId,
        offset: u64,
        data: Bytes,
    },
    Len {
        obj: ObjId,
        old: u64,
        new: u64,
    },
    /// A write or a change of length: the new length, if it changed, and the time.
    Attr {
        obj: ObjId,
        len: Option<u64>,
        time_ns: Option<i64>,
    },
    Allocate {
        obj: ObjId,
        offset: u64,
        len: u64,
        time_ns: Option<i64>,
    },
    Punch {
        obj: ObjId,
        offset: u64,
        len: u64,
        time_ns: Option<i64>,
    },
    /// All that a call changed, or one of its changes.
    Names {
        changes: Arc<[NameChange]>,
        only: Option<usize>,
        time_ns: Option<i64>,
    },
    Attribute {
        obj: ObjId,
        attribute: Attribute,
        time_ns: Option<i64>,
    },
    /// What an ordered transaction has written.
    Blocks {
        sequence: u64,
        images: Arc<[(u64, Option<Page>)]>,
    },
}

/// The content of an object was changed at a time.
fn modified(state: &mut State, obj: ObjId, time_ns: Option<i64>) {
    if let Some(t) = time_ns {
        // The later one wins, in whatever order units are applied.
        let ctime_ns = state.obj(obj).ctime_ns.max(t);
        state.set_times(obj, t, ctime_ns);
    }
}

/// Stores a block's page, or zeros.
pub(super) fn put_block(state: &mut State, at: u64, page: Option<&Page>) {
    state.put(LOG, at * BLOCK as u64, page.map_or(&[0; BLOCK], |page| &**page));
}

impl Effect {
    pub fn apply(&self, state: &mut State) {
        match self {
            Effect::Bytes { obj, offset, data } => state.put(*obj, *offset, data.as_slice()),
            Effect::Len { obj, new, .. } => state.set_len(*obj, *new),
            Effect::Blocks { images, .. } => images.iter().for_each(|(at, page)| put_block(state, *at, page.as_ref())),
            Effect::Attr { obj, len, time_ns } => {
                if let Some(len) = len {
                    state.set_len(*obj, *len);
                }
                modified(state, *obj, *time_ns);
            }
            Effect::Allocate { obj, offset, len, time_ns } => {
                state.allocate(*obj, *offset, *len);
                modified(state, *obj, *time_ns);
            }
            Effect::Punch { obj, offset, len, time_ns } => {
                state.punch(*obj, *offset, *len);
                modified(state, *obj, *time_ns);
            }
            Effect::Names { time_ns, .. } => {
                for change in self.names() {
                    state.set_name(change.dir, &change.name, change.is);
                    let Some(t) = time_ns else { continue };
                    let (mtime_ns, ctime_ns) = (state.obj(change.dir).mtime_ns, state.obj(change.dir).ctime_ns);
                    state.set_times(change.dir, mtime_ns.max(*t), ctime_ns.max(*t));
                    change.was.iter().chain(&change.is).for_each(|id| state.changed_at(*id, *t));
                }
            }
            Effect::Attribute { obj, attribute, time_ns } => {
                match attribute {
                    Attribute::Mode(mode) => state.set_mode(*obj, *mode),
                    Attribute::Owner(uid, gid) => state.set_owner(*obj, *uid, *gid),
                    Attribute::Times(atime_ns, mtime_ns) => {
                        state.set_atime(*obj, *atime_ns);
                        state.set_times(*obj, *mtime_ns, state.obj(*obj).ctime_ns);
                    }
                    Attribute::Xattr(name, value) => state.set_xattr(*obj, name, value.as_ref()),
                }
                if let Some(t) = time_ns {
                    state.changed_at(*obj, *t);
                }
            }
        }
    }

    /// The changes of names that this makes.
    pub fn names(&self) -> &[NameChange] {
        match self {
            Effect::Names { changes, only: None, .. } => changes,
            Effect::Names { changes, only: Some(i), .. } => &changes[*i..=*i],
            _ => &[],
        }
    }

    /// Whether this changes an object, gives it a name or takes one, or changes a name in it.
    pub fn touches(&self, id: ObjId) -> bool {
        match self {
            Effect::Bytes { obj, .. }
            | Effect::Len { obj, .. }
            | Effect::Attr { obj, .. }
            | Effect::Allocate { obj, .. }
            | Effect::Punch { obj, .. }
            | Effect::Attribute { obj, .. } => *obj == id,
            Effect::Blocks { .. } => id == LOG,
            Effect::Names { .. } => {
                let of = |change: &NameChange| change.dir == id || change.was == Some(id) || change.is == Some(id);
                self.names().iter().any(of)
            }
        }
    }
}

/// One version of a unit.
#[derive(Clone)]
pub(super) struct Step {
    /// The event that made it; negative if the process that did has died.
    pub event: i64,
    pub thread: u64,
    /// The command of a device that writes it; 0: none does.
    pub command: u64,
    pub effect: Effect,
    /// How many orderings that should cover it do not.
    pub delay: u8,
    /// Units that must be there up to this event if this is.
    pub needs: Vec<UnitKey>,
}

/// What is not durable: a chain of versions for each unit.
#[derive(Clone, Default)]
pub(super) struct Pending {
    pub chains: BTreeMap<UnitKey, Vec<Step>>,
}

impl Pending {
    pub fn hash(&self) -> u64 {
        let mut sum = 0u64;
        for (key, chain) in &self.chains {
            let key = key.hash();
            for (i, step) in chain.iter().enumerate() {
                let what = match &step.effect {
                    Effect::Bytes { obj, offset, data } => {
                        hash::bytes(data.as_slice()) ^ (u64::from(*obj) << 40) ^ offset
                    }
                    Effect::Len { new, .. } => *new,
                    Effect::Blocks { images, .. } => {
                        let of = |(at, page): &(u64, Option<Page>)| {
                            page.as_ref().map_or(0, |page| hash::bytes(&page[..]) | 1) ^ at.rotate_left(32)
                        };
                        hash::numbers(&images.iter().map(of).collect::<Vec<_>>())
                    }
                    Effect::Attr { len, time_ns, .. } => {
                        let some = |it: Option<u64>| [u64::from(it.is_some()), it.unwrap_or(0)];
                        hash::numbers([some(*len), some(time_ns.map(|t| t as u64))].as_flattened())
                    }
                    Effect::Allocate { offset, len, .. } => offset ^ len.rotate_left(32),
                    Effect::Punch { offset, len, .. } => offset ^ len.rotate_left(31) ^ 1,
                    Effect::Names { .. } => {
                        let of = |c: &NameChange| hash::bytes(&c.name) ^ c.is.map_or(0, |id| u64::from(id) << 32 | 1);
                        hash::numbers(&step.effect.names().iter().map(of).collect::<Vec<_>>())
                    }
                    Effect::Attribute { attribute, .. } => match attribute {
                        Attribute::Mode(mode) => hash::numbers(&[0, u64::from(*mode)]),
                        Attribute::Owner(uid, gid) => hash::numbers(&[1, u64::from(*uid), u64::from(*gid)]),
                        Attribute::Times(a, m) => hash::numbers(&[2, *a as u64, *m as u64]),
                        Attribute::Xattr(name, value) => {
                            let value = value.as_ref().map_or(0, |value| hash::bytes(value) | 1);
                            hash::numbers(&[3, hash::bytes(name), value])
                        }
                    },
                };
                sum = sum.wrapping_add(hash::term(Place(key.wrapping_add(i as u64)), what | 1 << 63));
            }
        }
        sum
    }

    /// The names that it gives, each as directory and object.
    pub fn names(&self) -> Vec<(ObjId, ObjId)> {
        let changes = self.chains.values().flatten().flat_map(|step| step.effect.names());
        changes.filter_map(|change| Some((change.dir, change.is?))).collect()
    }

    /// The state with all of it.
    pub fn applied_to(&self, state: &State) -> State {
        let mut state = state.clone();
        let mut steps: Vec<&Step> = self.chains.values().flatten().collect();
        steps.sort_by_key(|step| step.event);
        for step in steps {
            step.effect.apply(&mut state);
        }
        state
    }

    /// An object was cut to `len` bytes, durably: older stores beyond that went to blocks which are no longer its own.
    pub fn cut(&mut self, id: ObjId, event: i64, len: u64) {
        self.chains.retain(|_, chain| {
            chain.retain_mut(|step| match &mut step.effect {
                Effect::Bytes { obj, offset, data } if *obj == id && step.event < event => {
                    data.truncate(len.saturating_sub(*offset));
                    !data.as_slice().is_empty()
                }
                _ => true,
            });
            !chain.is_empty()
        });
    }

    /// Takes prefixes of chains: each up to and with the last step that `select` wants and that is not delayed.
    pub fn take(&mut self, mut select: impl FnMut(&UnitKey, &Step) -> bool, taken: &mut Vec<Step>) {
        self.chains.retain(|key, chain| {
            let mut keep_from = 0;
            for (i, step) in chain.iter_mut().enumerate() {
                if select(key, step) {
                    if step.delay > 0 {
                        step.delay -= 1;
                    } else {
                        keep_from = i + 1;
                    }
                }
            }
            taken.extend(chain.drain(..keep_from));
            !chain.is_empty()
        });
    }
}
