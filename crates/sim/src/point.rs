//! A crash point: the units that are pending there, and the image that each choice among them makes.

use super::choice::{Choice, Pick};
use super::config::Medium;
use super::hash::Random;
use super::image::Image;
use super::pending::{Effect, Step, UnitKey};
use super::reads::ReadSet;
use super::state::{LOG, ObjId, State};
use super::tracker::Tracker;
use std::collections::BTreeSet;
use wholly_blocks::BLOCK;

/// One thing of which a crash keeps one version.
pub(super) struct Unit {
    pub key: UnitKey,
    pub steps: Vec<Step>,
    /// How many versions there are: the durable one, one for each step, and torn or partial ones.
    pub radix: u32,
    /// For each step, whether it writes all that the steps before it wrote.
    whole: Vec<bool>,
    /// Where the newest version may be torn: offset and bytes of the unit, and of the tear.
    tear: Option<(ObjId, u64, u64, u64)>,
    /// For each version from 1 on, the bytes it writes over the durable ones: kept where they are many.
    ready: Vec<Ready>,
}

/// Bytes to be written over the durable ones, and what that adds to the hash.
struct Ready {
    obj: ObjId,
    offset: u64,
    data: Vec<u8>,
    hash: u64,
}

/// If one unit keeps this many steps, another keeps at least that many.
struct Need {
    of: u32,
    kept: u32,
    unit: u32,
    steps: u32,
}

/// A moment at which the power may fail: after so many events of a trace.
pub struct Point {
    index: u64,
    base: State,
    units: Vec<Unit>,
    needs: Vec<Need>,
    /// Steps must be applied in the order of time: see [`Tracker::in_time`].
    in_time: bool,
    /// Whether names are pending, so that an image may have objects that no name reaches.
    names: bool,
    /// Objects whose bytes may lie beyond the length that survives.
    loose: Vec<ObjId>,
}

impl Point {
    pub(super) fn new(tracker: &Tracker) -> Point {
        let mut base = tracker.durable().clone();
        let pending = &tracker.pending().chains;
        let gone = base.unreached(&tracker.pending().names());
        for id in &gone {
            base.forget(*id);
        }
        let mut units: Vec<Unit> = Vec::with_capacity(pending.len());
        let mut loose: BTreeSet<ObjId> = BTreeSet::new();
        for (key, chain) in pending {
            let reachable = |step: &&Step| gone.iter().all(|id| !step.effect.touches(*id));
            let steps: Vec<Step> = chain.iter().filter(reachable).cloned().collect();
            if steps.is_empty() {
                continue;
            }
            for step in &steps {
                match &step.effect {
                    Effect::Bytes { obj, offset, data }
                        if offset + data.as_slice().len() as u64 > base.obj(*obj).len =>
                    {
                        loose.insert(*obj);
                    }
                    Effect::Len { obj, .. } | Effect::Attr { obj, len: Some(_), .. } => {
                        loose.insert(*obj);
                    }
                    _ => {}
                }
            }
            units.push(Unit::new(key, steps, tracker));
        }
        // What no pending length can uncover is cut once for all images of this point.
        let over: Vec<ObjId> = base.objs().filter(|(_, obj)| obj.beyond).map(|(id, _)| id).collect();
        for id in over {
            let flux = |unit: &Unit| {
                unit.steps.iter().any(|step| match step.effect {
                    Effect::Len { obj, .. } | Effect::Attr { obj, len: Some(_), .. } => obj == id,
                    _ => false,
                })
            };
            if units.iter().any(flux) {
                loose.insert(id);
            } else {
                base.cut(id);
            }
        }
        let mut needs = Vec::new();
        for (of, unit) in (0..).zip(&units) {
            for (kept, step) in (1..).zip(&unit.steps) {
                for key in &step.needs {
                    let Ok(unit) = units.binary_search_by(|unit| unit.key.cmp(key)) else { continue };
                    let steps = units[unit].steps.iter().filter(|s| s.event <= step.event).count() as u32;
                    if steps > 0 {
                        needs.push(Need { of, kept, unit: unit as u32, steps });
                    }
                }
            }
        }
        let names = units.iter().any(|unit| matches!(unit.key, UnitKey::Name { .. } | UnitKey::Journal));
        let in_time = tracker.in_time();
        if !in_time {
            units.iter_mut().for_each(|unit| unit.make_ready(&base));
        }
        Point { index: tracker.now(), base, units, needs, in_time, names, loose: loose.into_iter().collect() }
    }

    /// The number of events that had happened.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The number of pending units.
    pub fn units(&self) -> usize {
        self.units.len()
    }

    /// How many versions a unit has.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn versions(&self, unit: usize) -> u32 {
        self.units[unit].radix
    }

    /// A unit in words.
    ///
    /// # Panics
    /// If there is no such unit.
    pub fn describe(&self, unit: usize) -> String {
        self.units[unit].to_string()
    }

    /// The product of the versions of all units, `u128::MAX` if it is larger. Under `Ext4Ordered` some of them are not
    /// allowed.
    pub fn combinations(&self) -> u128 {
        self.units.iter().fold(1, |n: u128, unit| n.saturating_mul(u128::from(unit.radix)))
    }

    /// The units that hold a word which was read.
    pub fn units_read(&self, reads: &ReadSet) -> Vec<u32> {
        let read = |step: &Step| match &step.effect {
            Effect::Bytes { obj, offset, data } => reads.contains(*obj, *offset, data.as_slice().len() as u64),
            Effect::Blocks { images, .. } => {
                images.iter().any(|(at, _)| reads.contains(LOG, at * BLOCK as u64, BLOCK as u64))
            }
            _ => true,
        };
        (0..).zip(&self.units).filter(|(_, unit)| unit.steps.iter().any(read)).map(|(i, _)| i).collect()
    }

    /// The events that wrote what is pending, in order; negative for those of a dead process.
    pub fn pending_events(&self) -> Vec<i64> {
        let events: BTreeSet<i64> =
            self.units.iter().flat_map(|unit| unit.steps.iter().map(|step| step.event)).collect();
        events.into_iter().collect()
    }

    /// The last of the [events](Self::pending_events) that wrote what is pending.
    pub fn last_pending_event(&self) -> Option<i64> {
        self.units.iter().flat_map(|unit| unit.steps.last()).map(|step| step.event).max()
    }

    /// The image that a choice stands for.
    ///
    /// # Panics
    /// If the choice is one of another point, names units or versions that this point does not have, or is
    /// [`Pick::Kill`], which is no power failure: see [`Explorer::kill_image`](super::Explorer::kill_image).
    pub fn image_of(&self, choice: &Choice) -> Image {
        assert_eq!(choice.point, self.index, "{choice} is a choice of another point");
        assert!(choice.pick != Pick::Kill, "the death of the process is no choice among pending units");
        self.build(&self.versions_of(&choice.pick))
    }

    /// Whether a choice can be made here: it names units, versions and events that this point has.
    pub fn has(&self, pick: &Pick) -> bool {
        let is_unit = |unit: &u32| (*unit as usize) < self.units.len();
        match pick {
            Pick::None | Pick::All | Pick::Seed(..) | Pick::Kill => true,
            Pick::Set(units) | Pick::Not(units) => units.iter().all(is_unit),
            Pick::Mix(_, set) => {
                set.iter().all(|(unit, version)| is_unit(unit) && *version < self.units[*unit as usize].radix)
            }
            Pick::Number(number) => u128::from(*number) < self.combinations(),
            Pick::Only(event) | Pick::But(event) => self.units.iter().any(|unit| unit.position(*event).is_some()),
        }
    }

    pub(super) fn all_units(&self) -> &[Unit] {
        &self.units
    }

    pub(super) fn base(&self) -> &State {
        &self.base
    }

    pub(super) fn in_time(&self) -> bool {
        self.in_time
    }

    /// The version that each unit keeps.
    pub(super) fn versions_of(&self, pick: &Pick) -> Vec<u32> {
        let newest = || self.units.iter().map(|unit| unit.steps.len() as u32).collect::<Vec<u32>>();
        let durable = || vec![0; self.units.len()];
        let mut versions = match pick {
            Pick::None | Pick::Kill => durable(),
            Pick::All => newest(),
            Pick::Set(set) => {
                let (mut versions, newest) = (durable(), newest());
                set.iter().for_each(|unit| versions[*unit as usize] = newest[*unit as usize]);
                versions
            }
            Pick::Not(set) => {
                let mut versions = newest();
                set.iter().for_each(|unit| versions[*unit as usize] = 0);
                versions
            }
            Pick::Number(number) => {
                let mut rest = *number;
                let mut digit = |unit: &Unit| {
                    let digit = rest % u64::from(unit.radix);
                    rest /= u64::from(unit.radix);
                    digit as u32
                };
                let versions = self.units.iter().map(&mut digit).collect();
                assert_eq!(rest, 0, "number {number} is larger than the combinations of this point");
                versions
            }
            Pick::Mix(new, set) => {
                let mut versions = if *new { newest() } else { durable() };
                for (unit, version) in set {
                    assert!(*version < self.units[*unit as usize].radix, "unit {unit} has no version {version}");
                    versions[*unit as usize] = *version;
                }
                versions
            }
            Pick::Seed(seed, n) => self.sample(*seed, *n),
            Pick::Only(event) => {
                self.units.iter().map(|unit| unit.position(*event).map_or(0, |i| i as u32 + 1)).collect()
            }
            Pick::But(event) => {
                self.units.iter().map(|unit| unit.position(*event).unwrap_or(unit.steps.len()) as u32).collect()
            }
        };
        self.repair(&mut versions);
        versions
    }

    /// A random state. How many units survive is drawn first, so that nearly none and nearly all are seen too.
    fn sample(&self, seed: u64, n: u64) -> Vec<u32> {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ self.index.rotate_left(32));
        random.0 = random.draw() ^ n;
        let survive_of_16 = [1, 2, 4, 8, 8, 8, 12, 14][random.below(8) as usize];
        let mut version = |unit: &Unit| {
            if random.below(16) >= survive_of_16 {
                0
            } else if random.below(2) == 0 {
                unit.steps.len() as u32
            } else {
                1 + random.below(u64::from(unit.radix) - 1) as u32
            }
        };
        self.units.iter().map(&mut version).collect()
    }

    fn broken<'a>(&'a self, versions: &'a [u32]) -> impl Iterator<Item = &'a Need> {
        self.needs.iter().filter(move |need| {
            let version = versions[need.unit as usize];
            let torn = version as usize > self.units[need.unit as usize].steps.len();
            versions[need.of as usize] >= need.kept && (version < need.steps || torn)
        })
    }

    /// Whether the host file system's model allows this combination.
    pub(super) fn allows(&self, versions: &[u32]) -> bool {
        self.broken(versions).next().is_none()
    }

    /// Adds what must be there with what is there.
    fn repair(&self, versions: &mut [u32]) {
        loop {
            let fixes: Vec<(u32, u32)> = self.broken(versions).map(|need| (need.unit, need.steps)).collect();
            if fixes.is_empty() {
                return;
            }
            // Each turn mends a torn version or adds a step.
            for (unit, steps) in fixes {
                let version = &mut versions[unit as usize];
                let newest = self.units[unit as usize].steps.len() as u32;
                *version = if *version > newest { newest } else { steps.max(*version) };
            }
        }
    }

    /// The image with these versions.
    pub(super) fn build(&self, versions: &[u32]) -> Image {
        let mut state = self.base.clone();
        if self.in_time {
            let mut steps: Vec<&Step> = Vec::new();
            for (unit, version) in self.units.iter().zip(versions) {
                steps.extend(&unit.steps[..(*version as usize).min(unit.steps.len())]);
            }
            steps.sort_by_key(|step| step.event);
            steps.iter().for_each(|step| step.effect.apply(&mut state));
            for (unit, version) in self.units.iter().zip(versions) {
                unit.deform(&mut state, &self.base, *version);
            }
        } else {
            for (unit, version) in self.units.iter().zip(versions) {
                self.apply(unit, *version, &mut state);
            }
        }
        self.finish(state)
    }

    /// Brings one unit to a version.
    pub(super) fn apply(&self, unit: &Unit, version: u32, state: &mut State) {
        let kept = (version as usize).min(unit.steps.len());
        if let Some(ready) = kept.checked_sub(1).and_then(|i| unit.ready.get(i)) {
            state.put_known(ready.obj, ready.offset, &ready.data, ready.hash);
            unit.deform(state, &self.base, version);
            return;
        }
        let first = (0..kept).rev().find(|i| unit.whole[*i]).unwrap_or(0);
        for step in &unit.steps[first..kept] {
            step.effect.apply(state);
        }
        unit.deform(state, &self.base, version);
    }

    /// Takes away what no length and no name reaches.
    pub(super) fn finish(&self, mut state: State) -> Image {
        if self.names {
            state.unreached(&[]).into_iter().for_each(|id| state.forget(id));
        }
        for id in &self.loose {
            state.cut(*id);
        }
        Image::new(state)
    }
}

impl Unit {
    fn new(key: &UnitKey, steps: Vec<Step>, tracker: &Tracker) -> Unit {
        let config = tracker.config();
        let newest = steps.len() as u32 + 1;
        let mut tear = None;
        let mut radix = newest;
        match *key {
            UnitKey::Bytes { obj, index } => {
                let len = tracker.unit_len(obj);
                if let (Medium::Disk { sector }, true) = (tracker.medium(obj), config.tearing) {
                    let mut random = Random((u64::from(obj) << 40) ^ index);
                    let sector = u64::from(sector);
                    // A page tears between sectors and keeps the old ones behind the tear, which the disk was not
                    // writing; a sector tears anywhere, and what is behind may be old, zero or random.
                    let at = if len > sector {
                        radix += 1;
                        (1 + random.below(len / sector - 1)) * sector
                    } else {
                        radix += 3;
                        1 + random.below(len - 1)
                    };
                    tear = Some((obj, index * len, len, at));
                }
            }
            // A crash inside a change of length may also stop half-way.
            UnitKey::LogLen if steps.len() == 1 => radix += 1,
            _ => {}
        }
        let cover = |step: &Step| match &step.effect {
            Effect::Bytes { offset, data, .. } => Some((*offset, offset + data.as_slice().len() as u64)),
            _ => None,
        };
        let mut reach: Option<(u64, u64)> = None;
        let mut whole = Vec::with_capacity(steps.len());
        let alone = matches!(key, UnitKey::Bytes { .. });
        for step in &steps {
            let now = cover(step);
            whole.push(match (now, reach) {
                (Some((from, to)), Some((low, high))) => alone && from <= low && to >= high,
                _ => true,
            });
            reach = match (now, reach) {
                (Some((from, to)), Some((low, high))) => Some((low.min(from), high.max(to))),
                (now, _) => now,
            };
            if now.is_none() {
                *whole.last_mut().expect("just pushed") = false;
            }
        }
        Unit { key: key.clone(), steps, radix, whole, tear, ready: Vec::new() }
    }

    /// Composes the versions of a sector or a page, which no other unit overlaps.
    fn make_ready(&mut self, base: &State) {
        let UnitKey::Bytes { obj, .. } = self.key else { return };
        let (mut low, mut high) = (u64::MAX, 0);
        for step in &self.steps {
            let Effect::Bytes { offset, data, .. } = &step.effect else { return };
            low = low.min(*offset);
            high = high.max(offset + data.as_slice().len() as u64);
        }
        if high - low <= 8 {
            return;
        }
        let mut data = vec![0; (high - low) as usize];
        base.obj(obj).read(low, &mut data);
        // The object alone: a state may have thousands of them.
        let mut alone = base.obj(obj).clone();
        alone.allocate(low, high - low);
        let before = alone.hash();
        for step in &self.steps {
            let Effect::Bytes { offset, data: part, .. } = &step.effect else { return };
            let at = (offset - low) as usize;
            data[at..at + part.as_slice().len()].copy_from_slice(part.as_slice());
            alone.put(low, &data);
            let hash = alone.hash().wrapping_sub(before);
            self.ready.push(Ready { obj, offset: low, data: data.clone(), hash });
        }
    }

    fn position(&self, event: i64) -> Option<usize> {
        self.steps.iter().position(|step| step.event == event)
    }

    /// Versions beyond the newest: torn, or half-way.
    fn deform(&self, state: &mut State, base: &State, version: u32) {
        let newest = self.steps.len() as u32;
        if version <= newest {
            return;
        }
        if let Some((obj, offset, len, at)) = self.tear {
            let mut tail = vec![0; (len - at) as usize];
            match version - newest {
                1 => base.obj(obj).read(offset + at, &mut tail),
                2 => {}
                _ => {
                    let mut random = Random(offset ^ u64::from(obj).rotate_left(40));
                    tail.chunks_mut(8)
                        .for_each(|part| part.copy_from_slice(&random.draw().to_le_bytes()[..part.len()]));
                }
            }
            state.put(obj, offset + at, &tail);
        } else if let Effect::Len { obj, old, new } = &self.steps[0].effect {
            // Half-way, at a whole block.
            state.set_len(*obj, old.midpoint(*new) / 512 * 512);
        }
    }
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            UnitKey::Bytes { .. } | UnitKey::Line { .. } | UnitKey::Order => {
                let (mut low, mut high, mut of) = (u64::MAX, 0, None);
                for step in &self.steps {
                    if let Effect::Bytes { obj, offset, data } = &step.effect {
                        of = Some(*obj);
                        low = low.min(*offset);
                        high = high.max(offset + data.as_slice().len() as u64);
                    }
                }
                match of {
                    _ if self.key == UnitKey::Order => write!(f, "ordinary stores")?,
                    Some(LOG) | None => write!(f, "log {low}+{}", high.saturating_sub(low))?,
                    Some(id) => write!(f, "inode {id} {low}+{}", high.saturating_sub(low))?,
                }
            }
            UnitKey::LogLen => write!(f, "length of the log")?,
            UnitKey::Attr { obj } => write!(f, "attributes of inode {obj}")?,
            UnitKey::Name { dir, name } => write!(f, "name {} in inode {dir}", String::from_utf8_lossy(name))?,
            UnitKey::Journal => write!(f, "journal")?,
            UnitKey::Commits => write!(f, "ordered transactions")?,
            UnitKey::Commit { sequence } => write!(f, "ordered transaction {sequence}")?,
        }
        write!(f, ", {} versions", self.radix)
    }
}
