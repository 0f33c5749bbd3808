//! The crash model: what is durable, and what of the rest may survive.
//!
//! A [`Tracker`] walks over the events of a trace. What an event changes is cut into *steps*, each belonging to a
//! *unit*: the smallest thing of which a crash keeps one version, old or newer. A unit's steps form a chain, oldest
//! first; a crash keeps some prefix of each chain. What orders (fence, sync, the return of a synchronous call) moves a
//! prefix of chains into the durable state.

use super::config::{ANY, DEAD, DeviceRules, HostModel, KERNEL, Medium, MutationKind, PmemMode, SimConfig};
use super::event::{Attribute, Event, EventKind, Fate, NameChange};
use super::image::Image;
use super::pending::{Bytes, Effect, Pending, Step, UnitKey, put_block};
use super::state::{Birth, LOG, ObjId, ObjKind, REGION, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use wholly_blocks::Order;
use wholly_media::PersistenceDomain;

/// The crash model at one point of a trace.
#[derive(Clone)]
pub(super) struct Tracker {
    config: Arc<SimConfig>,
    base: State,
    pending: Pending,
    now: i64,
    /// Pending changes that took bytes of a file or the log away.
    shrinks: Vec<(ObjId, i64)>,
}

impl Tracker {
    pub fn new(config: &Arc<SimConfig>, image: &Image) -> Tracker {
        let pending = image.pending.as_deref().cloned().unwrap_or_default();
        let mut tracker =
            Tracker { config: config.clone(), base: image.state.clone(), pending, now: 0, shrinks: Vec::new() };
        let mut lens: BTreeMap<ObjId, u64> = BTreeMap::new();
        for step in tracker.pending.chains.values().flatten() {
            let (obj, len) = match step.effect {
                Effect::Attr { obj, len: Some(len), .. } => (obj, len),
                Effect::Len { obj, new, .. } => (obj, new),
                Effect::Punch { obj, .. } => {
                    tracker.shrinks.push((obj, step.event));
                    continue;
                }
                _ => continue,
            };
            let old = lens.insert(obj, len).unwrap_or_else(|| tracker.base.obj(obj).len);
            if len < old {
                tracker.shrinks.push((obj, step.event));
            }
        }
        tracker
    }

    /// The number of events walked over.
    pub fn now(&self) -> u64 {
        self.now as u64
    }

    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// What a crash is certain to keep, with bytes beyond the ends of files and files without a name.
    pub fn durable(&self) -> &State {
        &self.base
    }

    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Whether the order of steps matters within an image: a pending change takes bytes away, or sets times of a
    /// directory that its names change too, or writes blocks that another one writes.
    pub fn in_time(&self) -> bool {
        let sets_times = |step: &Step| match step.effect {
            Effect::Attribute { obj, attribute: Attribute::Times(..), .. } => self.base.obj(obj).kind == ObjKind::Dir,
            _ => false,
        };
        let attributes = |key: &UnitKey| matches!(key, UnitKey::Attr { .. } | UnitKey::Journal);
        let of_blocks = |key: &UnitKey| matches!(key, UnitKey::Commits | UnitKey::Commit { .. });
        // They are the last in the order of keys.
        self.pending.chains.last_key_value().is_some_and(|(key, _)| of_blocks(key))
            || !self.shrinks.is_empty()
            || self.pending.chains.iter().any(|(key, chain)| attributes(key) && chain.iter().any(sets_times))
    }

    /// Walks over the next event.
    pub fn step(&mut self, event: &Event) {
        let delay = match event.fate {
            Fate::Mutated(MutationKind::DropWrite) => {
                // A file that was made exists although nothing was written; a dropped write-through still orders.
                match &event.kind {
                    EventKind::Create { .. } => self.create(&event.kind),
                    EventKind::Fence { .. } | EventKind::BlockCommitted { .. } => self.order(event),
                    _ => {}
                }
                self.now += 1;
                return;
            }
            Fate::Mutated(MutationKind::DelayWrite) => 1,
            _ => 0,
        };
        let new = New { event: self.now, thread: event.thread, command: 0, delay };
        match &event.kind {
            EventKind::Store { obj, offset, data } => self.store(new, *obj, *offset, data),
            EventKind::Through { offset, data } => self.store(new, LOG, *offset, data),
            EventKind::Ring { commands } => {
                for rung in &**commands {
                    self.store(New { command: rung.command, ..new }, LOG, rung.offset, &rung.bytes);
                }
            }
            EventKind::Landed { command, offset, data } => {
                self.store(New { command: *command, ..new }, LOG, *offset, data);
                // Nothing of the command is left to come, and what was to be there before it is passed.
                self.drain(|_, step| step.event == new.event);
            }
            EventKind::Flush => self.drain(|_, step| step.thread == DEAD && step.command != 0),
            // What this process had told the device of does not come any more, but from the write cache.
            EventKind::Reset { cached } => self.pending.chains.retain(|_, chain| {
                let stays = |step: &Step| step.command == 0 || step.thread == DEAD || cached.contains(&step.command);
                chain.retain(stays);
                !chain.is_empty()
            }),
            EventKind::LogLen { old, new: len } => {
                if len < old {
                    self.shrinks.push((LOG, self.now));
                }
                self.push(new, UnitKey::LogLen, Effect::Len { obj: LOG, old: *old, new: *len }, Vec::new());
            }
            EventKind::Create { .. } => self.create(&event.kind),
            EventKind::Write { obj, offset, data, grown, fresh, time_ns } => {
                let kernel = New { thread: KERNEL, ..new };
                self.store(kernel, *obj, *offset, data);
                let needs =
                    if grown.is_some() { self.data_units(*obj, *offset, data.len(), fresh) } else { Vec::new() };
                self.attr(kernel, *obj, *grown, *time_ns, needs);
            }
            EventKind::SetLen { obj, old, new: len, time_ns } => {
                if len < old {
                    self.shrinks.push((*obj, self.now));
                }
                self.attr(New { thread: KERNEL, ..new }, *obj, Some(*len), *time_ns, Vec::new());
            }
            EventKind::Allocate { obj, offset, len, time_ns } => {
                let time_ns = self.config.times.then_some(*time_ns);
                let effect = Effect::Allocate { obj: *obj, offset: *offset, len: *len, time_ns };
                self.push(New { thread: KERNEL, ..new }, self.meta_key(*obj), effect, Vec::new());
            }
            EventKind::Punch { obj, offset, len, time_ns } => {
                let time_ns = self.config.times.then_some(*time_ns);
                // What is written there later is kept with this, like what is written beyond a cut.
                self.shrinks.push((*obj, self.now));
                let needs = self.pending_bytes(*obj, *offset, *len);
                let effect = Effect::Punch { obj: *obj, offset: *offset, len: *len, time_ns };
                self.push(New { thread: KERNEL, ..new }, self.meta_key(*obj), effect, needs);
            }
            EventKind::Names { changes, time_ns, .. } => self.names(New { thread: KERNEL, ..new }, changes, *time_ns),
            EventKind::Attribute { obj, attribute, time_ns } => {
                let time_ns = self.config.times.then_some(*time_ns);
                let effect = Effect::Attribute { obj: *obj, attribute: attribute.clone(), time_ns };
                self.push(New { thread: KERNEL, ..new }, self.meta_key(*obj), effect, Vec::new());
            }
            EventKind::BlockWrite { at, page, fresh: true, .. } => put_block(&mut self.base, *at, Some(page)),
            EventKind::BlockWrite { .. }
            | EventKind::BlockDiscard { .. }
            | EventKind::BlockCommit { .. }
            | EventKind::BlockAbort { .. } => {}
            EventKind::BlockOrder { sequence, images, needs } => {
                let effect = Effect::Blocks { sequence: *sequence, images: images.clone() };
                match self.config.blocks.order {
                    Order::Total => self.push(new, UnitKey::Commits, effect, Vec::new()),
                    Order::Dependent => {
                        let needs = needs.iter().map(|of| UnitKey::Commit { sequence: *of }).collect();
                        self.push(new, UnitKey::Commit { sequence: *sequence }, effect, needs);
                    }
                }
            }
            EventKind::Fence { .. }
            | EventKind::HandOver { .. }
            | EventKind::Sync { .. }
            | EventKind::SyncDir { .. }
            | EventKind::SyncAll
            | EventKind::BlockCommitted { .. }
            | EventKind::Done { .. } => {
                if event.fate != Fate::Mutated(MutationKind::DropOrder) {
                    self.order(event);
                }
            }
            EventKind::Mark(_) => {}
        }
        self.now += 1;
    }

    /// An object is there as soon as something names it.
    fn create(&mut self, event: &EventKind) {
        create(&mut self.base, event);
    }

    fn names(&mut self, new: New, changes: &Arc<[NameChange]>, time_ns: i64) {
        let time_ns = self.config.times.then_some(time_ns);
        if self.config.host == HostModel::Ext4Ordered {
            let effect = Effect::Names { changes: changes.clone(), only: None, time_ns };
            return self.push(new, UnitKey::Journal, effect, Vec::new());
        }
        let key = |change: &NameChange| UnitKey::Name { dir: change.dir, name: change.name.clone() };
        for (i, change) in changes.iter().enumerate() {
            let others = changes.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| key(other)).collect();
            let effect = Effect::Names { changes: changes.clone(), only: Some(i), time_ns };
            self.push(new, key(change), effect, others);
        }
    }

    fn push(&mut self, new: New, key: UnitKey, effect: Effect, needs: Vec<UnitKey>) {
        let New { event, thread, command, delay } = new;
        let step = Step { event, thread, command, effect, delay, needs };
        self.pending.chains.entry(key).or_default().push(step);
    }

    /// The unit of a file's attribute changes.
    fn meta_key(&self, obj: ObjId) -> UnitKey {
        match self.config.host {
            HostModel::Ext4Ordered => UnitKey::Journal,
            _ => UnitKey::Attr { obj },
        }
    }

    fn attr(&mut self, new: New, obj: ObjId, len: Option<u64>, time_ns: i64, needs: Vec<UnitKey>) {
        let time = self.config.times.then_some(time_ns);
        if len.is_none() && time.is_none() {
            return;
        }
        let key = self.meta_key(obj);
        if len.is_none()
            && let Some(last) = self.pending.chains.get_mut(&key).and_then(|chain| chain.last_mut())
            && let Effect::Attr { obj: of, len: None, time_ns: old } = &mut last.effect
            && *of == obj
        {
            // Many writes in a row: one step with the last time. The times between are not kept as versions.
            *old = time;
            last.event = new.event;
            last.delay = last.delay.max(new.delay);
            return;
        }
        self.push(new, key, Effect::Attr { obj, len, time_ns: time }, needs);
    }

    /// What an object's bytes are on.
    pub fn medium(&self, obj: ObjId) -> Medium {
        match obj {
            LOG => self.config.log,
            REGION if self.config.device.is_some() => Medium::PMEM,
            _ => self.config.home,
        }
    }

    /// Whether stores to an object's bytes survive in their order, once they are ordered.
    fn is_in_order(&self, obj: ObjId) -> bool {
        obj == REGION && matches!(self.config.device, Some(DeviceRules { in_order: true, .. }))
    }

    /// Bytes of a unit of data of this object.
    pub fn unit_len(&self, obj: ObjId) -> u64 {
        match self.medium(obj) {
            Medium::Pmem { .. } => 8,
            Medium::Disk { sector } if obj == LOG => u64::from(sector),
            Medium::Disk { .. } => u64::from(self.config.home_page),
        }
    }

    fn store(&mut self, new: New, obj: ObjId, offset: u64, data: &Arc<[u8]>) {
        let unit = self.unit_len(obj);
        let mut from = 0;
        while from < data.len() {
            let at = offset + from as u64;
            let index = at / unit;
            let to = data.len().min(from + ((index + 1) * unit - at) as usize);
            let key = match self.medium(obj) {
                Medium::Pmem { domain, mode: PmemMode::X86 } => self.x86_key(domain, obj, at, (to - from) as u64),
                _ => UnitKey::Bytes { obj, index },
            };
            // What was ordered before has arrived before this does.
            let needs = if self.is_in_order(obj) { vec![UnitKey::Order] } else { Vec::new() };
            self.push(new, key, Effect::Bytes { obj, offset: at, data: Bytes::of(data, from, to) }, needs);
            from = to;
        }
    }

    /// Which unit a store of a word or a part of one belongs to: a non-temporal store to a word of which an ordinary
    /// store is pending stays behind that.
    fn x86_key(&self, domain: PersistenceDomain, obj: ObjId, at: u64, len: u64) -> UnitKey {
        let ordinary = match domain {
            PersistenceDomain::CpuCaches => UnitKey::Order,
            _ => UnitKey::Line { obj, line: at / 64 },
        };
        let overlaps = |step: &Step| match &step.effect {
            Effect::Bytes { obj: of, offset, .. } => *of == obj && offset / 8 == at / 8,
            _ => false,
        };
        if len < 8 || self.pending.chains.get(&ordinary).is_some_and(|chain| chain.iter().any(overlaps)) {
            ordinary
        } else {
            UnitKey::Bytes { obj, index: at / 8 }
        }
    }

    /// The pending units of a range of bytes.
    fn pending_bytes(&self, obj: ObjId, offset: u64, len: u64) -> Vec<UnitKey> {
        let unit = self.unit_len(obj);
        let from = UnitKey::Bytes { obj, index: offset / unit };
        let to = UnitKey::Bytes { obj, index: (offset + len).div_ceil(unit) };
        self.pending.chains.range(from..to).map(|(key, _)| key.clone()).collect()
    }

    /// The units of the part of a write that lies in `blocks`.
    fn data_units(&self, obj: ObjId, offset: u64, len: usize, blocks: &[u64]) -> Vec<UnitKey> {
        if self.config.host != HostModel::Ext4Ordered {
            return Vec::new();
        }
        let block = super::state::PAGE as u64;
        let (unit, end) = (self.unit_len(obj), offset + len as u64);
        let mut keys = Vec::new();
        for n in blocks {
            let (from, to) = (offset.max(n * block), end.min((n + 1) * block));
            for index in from / unit..to.div_ceil(unit) {
                let key = UnitKey::Bytes { obj, index };
                if self.pending.chains.contains_key(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }

    /// A fence, a sync, a return, or what a later fence of another thread covers.
    fn order(&mut self, event: &Event) {
        let thread = event.thread;
        let config = self.config.clone();
        let pmem = |obj: ObjId| if obj == LOG { config.log.is_pmem() } else { config.home.is_pmem() };
        // What the kernel or a dead process stored, and what the calling core did: a system call fences.
        let by_kernel = |step: &Step| matches!(step.thread, KERNEL | DEAD) || step.thread == thread;
        match &event.kind {
            EventKind::Fence { obj: REGION } if config.device.is_some() => self.drain(|key, step| {
                let is_there = matches!(key, UnitKey::Bytes { obj: REGION, .. } | UnitKey::Order);
                is_there && step.thread == ANY
            }),
            EventKind::HandOver { obj: REGION } if config.device.is_some() => self.order_region(thread),
            EventKind::Fence { obj } if pmem(*obj) => self.drain(|key, step| match key {
                UnitKey::Bytes { obj, .. } | UnitKey::Line { obj, .. } if !pmem(*obj) => false,
                UnitKey::Bytes { .. } | UnitKey::Line { .. } | UnitKey::Order => [thread, ANY].contains(&step.thread),
                _ => false,
            }),
            EventKind::HandOver { .. } => {
                let of_thread = |step: &&mut Step| step.thread == thread;
                for step in self.pending.chains.values_mut().flatten().filter(of_thread) {
                    // One that is delayed is not among them.
                    match step.delay {
                        0 => step.thread = ANY,
                        _ => step.delay -= 1,
                    }
                }
            }
            EventKind::Fence { .. } => self.drain(|key, _| {
                matches!(key, UnitKey::Bytes { obj: LOG, .. } | UnitKey::Line { obj: LOG, .. } | UnitKey::LogLen)
            }),
            EventKind::Sync { obj } => self.sync(*obj, by_kernel),
            EventKind::SyncDir { dir } => {
                let journal = self.journal_until(*dir);
                self.drain(|key, step| match key {
                    UnitKey::Name { dir: of, .. } | UnitKey::Attr { obj: of } => of == dir,
                    UnitKey::Journal => step.event <= journal,
                    _ => false,
                });
            }
            EventKind::SyncAll => self.drain(|key, step| match key {
                UnitKey::Bytes { obj, .. } | UnitKey::Line { obj, .. } => {
                    *obj != LOG && (!pmem(*obj) || by_kernel(step))
                }
                UnitKey::Order => !step.effect.touches(LOG) && by_kernel(step),
                UnitKey::Attr { .. } | UnitKey::Name { .. } | UnitKey::Journal => true,
                UnitKey::LogLen | UnitKey::Commits | UnitKey::Commit { .. } => false,
            }),
            EventKind::BlockCommitted { sequences } => self.drain(|key, step| match &step.effect {
                Effect::Blocks { sequence, .. } => sequences.contains(sequence),
                _ => matches!(key, UnitKey::Bytes { obj: LOG, .. }),
            }),
            EventKind::Done { begun } => {
                let begun = *begun as i64;
                self.drain(|_, step| step.event == begun);
            }
            _ => {}
        }
    }

    /// A thread orders its stores to the region. They have not arrived, but no later one arrives before them.
    fn order_region(&mut self, thread: u64) {
        let in_order = self.is_in_order(REGION);
        let mut ordered = Vec::new();
        self.pending.chains.retain(|key, chain| {
            if !matches!(key, UnitKey::Bytes { obj: REGION, .. }) {
                return true;
            }
            for step in chain.iter_mut().filter(|step| step.thread == thread) {
                match step.delay {
                    0 => step.thread = ANY,
                    _ => step.delay -= 1,
                }
            }
            if in_order {
                ordered.extend(chain.extract_if(.., |step| step.thread == ANY));
            }
            !chain.is_empty()
        });
        ordered.sort_by_key(|step| step.event);
        if !ordered.is_empty() {
            ordered.iter_mut().for_each(|step| step.needs.clear());
            self.pending.chains.entry(UnitKey::Order).or_default().extend(ordered);
        }
    }

    fn sync(&mut self, file: ObjId, by_kernel: impl Fn(&Step) -> bool) {
        let journal = self.journal_until(file);
        let pmem = self.config.home.is_pmem();
        self.drain(|key, step| match key {
            UnitKey::Bytes { obj, .. } | UnitKey::Line { obj, .. } => *obj == file && (!pmem || by_kernel(step)),
            UnitKey::Order => step.effect.touches(file) && by_kernel(step),
            UnitKey::Attr { obj } => *obj == file,
            UnitKey::Journal => step.event <= journal,
            UnitKey::Name { .. } | UnitKey::LogLen | UnitKey::Commits | UnitKey::Commit { .. } => false,
        });
    }

    /// The last event in the journal that touches an object: a sync of the object commits up to there.
    fn journal_until(&self, obj: ObjId) -> i64 {
        let chain = self.pending.chains.get(&UnitKey::Journal);
        chain.into_iter().flatten().rfind(|step| step.effect.touches(obj)).map_or(i64::MIN, |step| step.event)
    }

    /// Makes durable what `select` wants, with all that must not come later than it.
    fn drain(&mut self, select: impl FnMut(&UnitKey, &Step) -> bool) {
        let mut taken = Vec::new();
        self.pending.take(select, &mut taken);
        let mut seen = 0;
        // Each turn takes steps out of the pending ones, or ends.
        while seen < taken.len() {
            let mut needed: Vec<(UnitKey, i64)> = Vec::new();
            for step in &taken[seen..] {
                needed.extend(step.needs.iter().map(|key| (key.clone(), step.event)));
                if let Effect::Bytes { obj, offset, .. } = step.effect {
                    if let Medium::Pmem { mode: PmemMode::X86, .. } = self.medium(obj) {
                        // A part of a word is not kept without what was stored to the word before it.
                        needed.push((UnitKey::Bytes { obj, index: offset / 8 }, step.event));
                    }
                    // Bytes stored after the file was cut short cannot be kept without the cut.
                    let cuts = self.shrinks.iter().filter(|(of, at)| *of == obj && *at < step.event);
                    let key = if obj == LOG { UnitKey::LogLen } else { self.meta_key(obj) };
                    needed.extend(cuts.map(|(_, at)| (key.clone(), *at)));
                }
            }
            seen = taken.len();
            for (key, until) in needed {
                let Some(chain) = self.pending.chains.get_mut(&key) else { continue };
                let n = chain.iter().rposition(|step| step.event <= until).map_or(0, |i| i + 1);
                taken.extend(chain.drain(..n));
                if chain.is_empty() {
                    self.pending.chains.remove(&key);
                }
            }
        }
        taken.sort_by_key(|step| step.event);
        for step in &taken {
            if let Effect::Len { obj, new: len, .. } | Effect::Attr { obj, len: Some(len), .. } = step.effect
                && len < self.base.obj(obj).len
            {
                self.pending.cut(obj, step.event, len);
            }
            step.effect.apply(&mut self.base);
        }
        if !self.shrinks.is_empty() {
            let left: Vec<i64> = self.pending.chains.values().flatten().map(|step| step.event).collect();
            self.shrinks.retain(|(_, at)| left.contains(at));
        }
    }

    /// The image that the death of the process leaves.
    pub fn kill(&self) -> Image {
        let mut state = self.base.clone();
        let mut pending = self.pending.clone();
        if let Some(device) = self.config.device {
            // Stores to a device's region are on their way to it, and it goes on.
            let mut arrived = Vec::new();
            let is_there = |step: &Step| step.effect.touches(REGION) || (step.command != 0 && !device.has_write_cache);
            pending.take(|_, step| is_there(step), &mut arrived);
            arrived.sort_by_key(|step| step.event);
            arrived.iter().for_each(|step| step.effect.apply(&mut state));
        }
        // What was ordered and not durable was in memory, or is what a power failure may keep of it as well.
        pending.chains.retain(|key, _| !matches!(key, UnitKey::Commits | UnitKey::Commit { .. }));
        let gone = state.unreached(&pending.names());
        for id in &gone {
            state.forget(*id);
        }
        for chain in pending.chains.values_mut() {
            chain.retain(|step| !gone.iter().any(|id| step.effect.touches(*id)));
            for step in chain {
                step.thread = DEAD;
                step.event -= self.now;
                step.delay = 0;
            }
        }
        pending.chains.retain(|_, chain| !chain.is_empty());
        if pending.chains.is_empty() {
            for id in 0..state.objs().count() as ObjId {
                state.cut(id);
            }
            return Image::new(state);
        }
        Image { state, pending: Some(Arc::new(pending)), faults: Vec::new() }
    }
}

/// Makes the object that an event tells of.
fn create(state: &mut State, event: &EventKind) {
    let EventKind::Create { obj, mode, rdev, target, inode, time_ns } = event else { unreachable!("a create") };
    let birth = Birth { mode: *mode, rdev: *rdev, target: target.clone(), time_ns: *time_ns, inode: *inode };
    let made = state.create(&birth);
    debug_assert_eq!(made, *obj, "objects are numbered in the order of their births");
}

/// Who makes a step, and when.
#[derive(Clone, Copy)]
struct New {
    event: i64,
    thread: u64,
    command: u64,
    delay: u8,
}
