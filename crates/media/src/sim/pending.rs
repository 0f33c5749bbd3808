//! What is not durable: units, and the chain of versions of each.

use super::hash::{self, Place};
use super::state::{ObjId, State};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of a unit. The order is the order in which units are numbered and applied: whole words before the lines
/// that hold parts of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum UnitKey {
    /// A word of persistent memory, a sector of the log on a disk, a page of a file on a disk.
    Bytes { obj: ObjId, index: u64 },
    /// The ordinary stores to a cache line (X86, ADR).
    Line { obj: ObjId, line: u64 },
    /// All ordinary stores (X86, eADR).
    Order,
    /// The length of the log.
    LogLen,
    /// Length, times and allocation of a file.
    Attr { obj: ObjId },
    /// A name in a directory.
    Name { dir: ObjId, name: Arc<[u8]> },
    /// All attribute changes and names (ext4).
    Journal,
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
    },
    Link {
        obj: ObjId,
        dir: ObjId,
        name: Arc<[u8]>,
        time_ns: Option<i64>,
    },
}

impl Effect {
    pub fn apply(&self, state: &mut State) {
        match self {
            Effect::Bytes { obj, offset, data } => state.put(*obj, *offset, data.as_slice()),
            Effect::Len { obj, new, .. } => state.set_len(*obj, *new),
            Effect::Attr { obj, len, time_ns } => {
                if let Some(len) = len {
                    state.set_len(*obj, *len);
                }
                if let Some(t) = time_ns {
                    // The later one wins, in whatever order units are applied.
                    let ctime_ns = state.obj(*obj).ctime_ns.max(*t);
                    state.set_times(*obj, *t, ctime_ns);
                }
            }
            Effect::Allocate { obj, offset, len } => state.allocate(*obj, *offset, *len),
            Effect::Link { obj, dir, name, time_ns } => {
                state.link(*dir, name, *obj);
                if let Some(t) = time_ns {
                    let (mtime_ns, ctime_ns) = (state.obj(*obj).mtime_ns, state.obj(*obj).ctime_ns.max(*t));
                    state.set_times(*obj, mtime_ns, ctime_ns);
                }
            }
        }
    }

    /// The object that this changes, and the directory where it is a name.
    pub fn touches(&self, id: ObjId) -> bool {
        match self {
            Effect::Bytes { obj, .. }
            | Effect::Len { obj, .. }
            | Effect::Attr { obj, .. }
            | Effect::Allocate { obj, .. } => *obj == id,
            Effect::Link { obj, dir, .. } => *obj == id || *dir == id,
        }
    }
}

/// One version of a unit.
#[derive(Clone)]
pub(super) struct Step {
    /// The event that made it; negative if the process that did has died.
    pub event: i64,
    pub thread: u64,
    pub effect: Effect,
    /// How many orderings that should cover it do not.
    pub delay: u8,
    /// Of the journal: the data that must be there if this is.
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
                    Effect::Attr { len, time_ns, .. } => {
                        let some = |it: Option<u64>| [u64::from(it.is_some()), it.unwrap_or(0)];
                        hash::numbers([some(*len), some(time_ns.map(|t| t as u64))].as_flattened())
                    }
                    Effect::Allocate { offset, len, .. } => offset ^ len.rotate_left(32),
                    Effect::Link { obj, name, .. } => hash::bytes(name) ^ u64::from(*obj),
                };
                sum = sum.wrapping_add(hash::term(Place(key.wrapping_add(i as u64)), what | 1 << 63));
            }
        }
        sum
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
