//! Which groups are proven, and in which order they were committed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use wholly_changes::ROOT;
use wholly_changes::records::{Baseline, Identity, Value};

use super::{Fate, Finding, FindingKind, Inodes, Log, SalvagedGroup};
use crate::error::{Error, Result};
use crate::hostdir::homes::Homes;
use crate::hostdir::published::Published;
use crate::hostdir::recover::Replay;
use crate::hostdir::shadow::Shadows;
use crate::log::checksum::payload_checksum;
use crate::log::layout::{Entry, EntryKind, Head, Kept, LINE, LogPart, RecordKind, StorePart, Superblock};
use crate::log::salvage::{Collected, Fault, Group, Lost, Rebuilt, collect, payload_of};
use crate::log::scan::{CommittedGroup, Record, RecordView, Replay as _};

/// What groups can share, so that one builds on another.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Thing {
    Object(u64),
    Name(u64, Vec<u8>),
}

/// What a group says, as far as proof needs it.
#[derive(Default)]
struct Says {
    /// What it changes.
    changes: HashSet<Thing>,
    /// What it needs besides: directories of its names, and of what it identifies.
    needs: HashSet<Thing>,
    /// What is written to.
    written: HashSet<u64>,
    identities: Vec<(u64, Identity)>,
}

/// What of a group goes to the new log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    /// Only what it says of inodes, for others rely on that.
    Identities,
}

/// See the head of this file.
pub(super) struct Proof<'a> {
    log: &'a Log,
    collected: Collected<EntryKind>,
    says: Vec<Says>,
    /// Indices of groups in commit order, and what of them is kept, with the sequence that it gets.
    order: Vec<(usize, Extent, u64)>,
    /// The same, by the sequences of the old one.
    renumbered: HashMap<u64, u64>,
    /// Why others are not.
    left_out: BTreeMap<usize, Fate>,
    /// Those of which not even what they say of inodes can be.
    mute: HashSet<usize>,
    /// In the sequences of the new log.
    checkpointing: u64,
    paths: HashMap<u64, (u64, Vec<u8>)>,
}

impl<'a> Proof<'a> {
    /// Reads the log and finds out what is proven.
    pub fn of(log: &'a Log, homes: &dyn Homes, inodes: &Inodes) -> Result<Proof<'a>> {
        let collected = collect(&*log.region, log.superblock.as_deref())?;
        let checkpointing = collected.checkpointing;
        let mut proof = Proof {
            log,
            collected,
            says: Vec::new(),
            order: Vec::new(),
            renumbered: HashMap::new(),
            left_out: BTreeMap::new(),
            mute: HashSet::new(),
            checkpointing,
            paths: HashMap::new(),
        };
        let mut doubted = BTreeMap::new();
        for i in 0..proof.collected.groups.len() {
            let says = proof.read(i)?;
            proof.says.push(says);
        }
        if !proof.collected.is_certain {
            proof.doubt_what_may_be_home(inodes, &mut doubted);
        }
        // Each round leaves a group out, or is the last.
        loop {
            proof.judge(&doubted);
            let before = doubted.len() + proof.mute.len();
            doubted.extend(proof.replay(homes)?);
            if doubted.len() + proof.mute.len() == before {
                return Ok(proof);
            }
        }
    }

    fn group(&self, i: usize) -> &Group<EntryKind> {
        &self.collected.groups[i]
    }

    fn read(&mut self, i: usize) -> Result<Says> {
        let mut says = Says::default();
        let group = &self.collected.groups[i];
        let mut is_all_known = group.parts.len() == usize::from(group.commit.head.part);
        for (record, entry) in
            group.records().flat_map(|record| record.entries.iter().map(move |entry| (record, entry)))
        {
            let object = Thing::Object(entry.file);
            match entry.kind {
                EntryKind::Identify => {
                    let payload = self.payload(record, entry)?;
                    let Some(identity) = payload.and_then(|payload| Identity::checked(&payload)) else { continue };
                    if identity.parent != 0 {
                        says.needs.insert(Thing::Object(identity.parent));
                        self.paths.entry(entry.file).or_insert((identity.parent, identity.name.clone()));
                    }
                    says.identities.push((entry.file, identity));
                }
                EntryKind::Name => {
                    let payload = self.payload(record, entry)?;
                    let Some(value) = payload.and_then(|payload| Value::checked(&payload)) else {
                        // Whichever name it is.
                        says.changes.insert(object);
                        is_all_known = false;
                        continue;
                    };
                    says.needs.insert(object);
                    let objects = [value.before, value.after].into_iter().filter(|id| *id != 0);
                    says.changes.extend(objects.map(Thing::Object));
                    if value.after != 0 {
                        self.paths.insert(value.after, (entry.file, value.name.clone()));
                    }
                    says.changes.insert(Thing::Name(entry.file, value.name));
                }
                EntryKind::Parts | EntryKind::Clock | EntryKind::Applied | EntryKind::Provisional => {}
                EntryKind::Create | EntryKind::Attributes | EntryKind::Xattr => _ = says.changes.insert(object),
                EntryKind::Write | EntryKind::Truncate | EntryKind::Space | EntryKind::Staged | EntryKind::Shadow => {
                    says.written.insert(entry.file);
                    says.changes.insert(object);
                }
            }
        }
        if !is_all_known {
            // As much is missing of what it changes as of a group that is lost.
            let sequence = group.sequence();
            let (above, below) = (sequence.saturating_sub(1), sequence.saturating_add(1));
            self.collected.lost.push(Lost { above, below });
        }
        Ok(says)
    }

    /// The payload of an entry, where it matches its checksum.
    fn payload(&self, record: &Record, entry: &Entry) -> Result<Option<Vec<u8>>> {
        let position = record.position + u64::from(entry.line) * LINE;
        let bytes = payload_of(&*self.log.region, record, entry)?;
        let sum = payload_checksum(record.segment_seed, position, &bytes);
        Ok((sum == entry.payload_checksum).then_some(bytes))
    }

    /// Without a superblock: a group is not home where each file that it writes to lies as it was identified last. A
    /// checkpoint changes the times of what it writes to.
    fn doubt_what_may_be_home(&self, inodes: &Inodes, doubted: &mut BTreeMap<usize, String>) {
        let mut told: HashMap<u64, &Identity> = HashMap::new();
        for (i, says) in self.says.iter().enumerate() {
            told.extend(says.identities.iter().map(|(id, identity)| (*id, identity)));
            let moved = says.written.iter().find(|id| {
                let Some(identity) = told.get(id).filter(|identity| identity.ino != 0) else { return false };
                let home = inodes.get(&(identity.ino, identity.btime_ns)).map(Baseline::of);
                home.is_none() || identity.baseline != home
            });
            if let Some(id) = moved {
                let path = self.path(*id);
                doubted.insert(i, format!("{path} was written back since, or another program changed it"));
            }
        }
    }

    /// In commit order: by sequence, but a group that says that it comes after a later one comes after that. Gives the
    /// rest, too, where groups say of each other that they come first.
    fn in_order(&self) -> (Vec<usize>, Vec<usize>) {
        let groups = &self.collected.groups;
        let place: HashMap<u64, usize> = groups.iter().enumerate().map(|(i, group)| (group.sequence(), i)).collect();
        let (mut order, mut done) = (Vec::new(), HashSet::new());
        let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, group) in groups.iter().enumerate() {
            let before = place.get(&group.commit.head.after).copied();
            if let Some(before) = before.filter(|before| !done.contains(before)) {
                waiting.entry(before).or_default().push(i);
                continue;
            }
            let mut ready = vec![i];
            while let Some(i) = ready.pop() {
                done.insert(i);
                order.push(i);
                ready.extend(waiting.remove(&i).unwrap_or_default().into_iter().rev());
            }
        }
        (order, (0..groups.len()).filter(|i| !done.contains(i)).collect())
    }

    /// Decides on every group, but for what home says.
    fn judge(&mut self, doubted: &BTreeMap<usize, String>) {
        let tail = self.collected.tail;
        let (order, never) = self.in_order();
        let mut left_out = BTreeMap::new();
        let mut foul: HashMap<Thing, u64> = HashMap::new();
        let mut last: HashMap<Thing, u64> = HashMap::new();
        let mut accepted = HashSet::new();
        let mut kept = Vec::new();
        for i in never {
            left_out.insert(i, Fate::LeftOut("it and another group each claim to follow the other".into()));
        }
        for &i in &order {
            let (group, says) = (self.group(i), &self.says[i]);
            let after = group.commit.head.after;
            let spoiled = || says.changes.iter().chain(&says.needs).find_map(|thing| foul.get(thing));
            let masks = |thing: &Thing| {
                let from = last.get(thing).copied().unwrap_or(0).max(tail.saturating_sub(1));
                // One that is lost may have changed this before the one that is named changed something else.
                self.collected.lost.iter().any(|lost| lost.above.max(from) + 1 < lost.below.min(after))
            };
            let why = match (&group.fault, doubted.get(&i)) {
                (Some(Fault::Torn), _) => Some(Fate::Torn),
                (Some(Fault::Rot(what)), _) => Some(Fate::LeftOut(what.clone())),
                (None, Some(what)) => Some(Fate::LeftOut(what.clone())),
                (None, None) if after >= tail && !accepted.contains(&after) => Some(Fate::LeftOut(format!(
                    "it builds on group {}, which is not there or not proven",
                    number(after)
                ))),
                (None, None) => match spoiled() {
                    Some(before) => {
                        Some(Fate::LeftOut(format!("it builds on group {}, which was left out", number(*before))))
                    }
                    None if says.changes.iter().any(masks) => {
                        Some(Fate::LeftOut("a group that it builds on may be among those that are lost".into()))
                    }
                    None => None,
                },
            };
            let sequence = group.sequence();
            last.extend(says.changes.iter().map(|thing| (thing.clone(), sequence)));
            match why {
                None => {
                    accepted.insert(sequence);
                    kept.push((i, Extent::All));
                }
                Some(fate) => {
                    foul.extend(says.changes.iter().map(|thing| (thing.clone(), sequence)));
                    left_out.insert(i, fate);
                    if !self.mute.contains(&i) && !self.identities_of(i).is_empty() {
                        kept.push((i, Extent::Identities));
                    }
                }
            }
        }
        // Sequences stay as they are where they rise.
        let mut next = 0;
        self.order = kept
            .into_iter()
            .map(|(i, what)| {
                next = self.group(i).sequence().max(next + 1);
                (i, what, next)
            })
            .collect();
        self.renumbered = self.order.iter().map(|(i, _, new)| (self.group(*i).sequence(), *new)).collect();
        let touched = self.collected.checkpointing;
        let below = self.order.iter().filter(|(i, ..)| self.group(*i).sequence() < touched).map(|(.., new)| new + 1);
        self.checkpointing = below.max().unwrap_or(0).max(touched);
        self.left_out = left_out;
    }

    /// A group's commit record as it is to be in the new log: its head, and its entries.
    fn commit_of(&self, i: usize, what: Extent, sequence: u64) -> (Head, Vec<Entry>) {
        let commit = &self.group(i).commit;
        let new = |old: u64| self.renumbered.get(&old).copied().unwrap_or(0);
        let head = commit.head;
        match what {
            Extent::All => {
                let after = if head.after < self.collected.tail { 0 } else { new(head.after) };
                (Head { sequence, after, ..head }, commit.entries.clone())
            }
            Extent::Identities => {
                let entries = self.identities_of(i);
                (Head { sequence, after: 0, part: 0, entries: entries.len() as u16, ..head }, entries)
            }
        }
    }

    /// What a group that is left out says of the inodes of objects that it does not change itself.
    fn identities_of(&self, i: usize) -> Vec<Entry> {
        let (group, says) = (self.group(i), &self.says[i]);
        let is_told = |entry: &&Entry| {
            entry.kind == EntryKind::Identify
                && says.identities.iter().any(|(id, _)| *id == entry.file)
                && !says.changes.contains(&Thing::Object(entry.file))
        };
        match group.fault {
            Some(Fault::Torn) => Vec::new(),
            _ => group.commit.entries.iter().filter(is_told).copied().collect(),
        }
    }

    /// Replays what is kept over the homes. Gives what must be left out besides, and why.
    fn replay(&mut self, homes: &dyn Homes) -> Result<BTreeMap<usize, String>> {
        let superblock = self.superblock();
        let (index, shadows) = (Published::new(), Shadows::new());
        let mut replay = Replay::new(Arc::clone(&self.log.region), homes, (&index, &shadows), &superblock);
        for &(i, what, sequence) in &self.order {
            let group = self.group(i);
            let (head, entries) = self.commit_of(i, what, sequence);
            let RecordView { position, segment_seed, .. } = group.commit.view();
            let parts: &[Record] = if what == Extent::All { &group.parts } else { &[] };
            let commit = RecordView { position, head: &head, entries: &entries, segment_seed };
            match replay.group(&CommittedGroup { sequence, parts, commit }) {
                Err(Error::Corrupt { .. }) if what == Extent::Identities => {
                    self.mute.insert(i);
                    return Ok(BTreeMap::new());
                }
                Err(Error::Corrupt { place, fault }) => return Ok(BTreeMap::from([(i, format!("{place}: {fault}"))])),
                replayed => replayed?,
            }
        }
        replay.settle()?;
        let mut found = BTreeMap::new();
        for (id, (path, change)) in replay.conflicting() {
            for &(i, what, _) in &self.order {
                let says = &self.says[i];
                // Of a name whose object nobody knows only the path is told.
                let names_it = |thing: &Thing| match thing {
                    Thing::Name(_, name) => id == 0 && path.as_os_str().as_bytes().ends_with(name),
                    Thing::Object(object) => id != 0 && *object == id,
                };
                let speaks = says.changes.iter().any(names_it);
                if what == Extent::All && speaks {
                    found
                        .entry(i)
                        .or_insert_with(|| format!("{} was changed by another program: {change}", path.display()));
                }
            }
        }
        Ok(found)
    }

    fn superblock(&self) -> Superblock {
        let log = LogPart {
            volume_id: [0; 16],
            generation: 1,
            incarnation: self.collected.incarnation,
            tail: self.collected.tail,
            checkpointing: self.checkpointing,
            segment_bytes: self.collected.segment_bytes,
            segments: None,
            min_segments: 0,
            kept: Kept::default(),
            committed: 0,
            block: self.collected.block as u32,
        };
        Superblock { log, client: StorePart::default() }
    }

    pub fn collected(&self) -> &Collected<EntryKind> {
        &self.collected
    }

    pub fn tail(&self) -> u64 {
        self.collected.tail
    }

    pub fn checkpointing(&self) -> u64 {
        self.checkpointing
    }

    /// Whether any is proven.
    pub fn has_groups(&self) -> bool {
        self.order.iter().any(|(_, what, _)| *what == Extent::All)
    }

    /// Gives what is kept to a new log.
    pub fn write(
        &self,
        to: &mut Rebuilt<'_>,
        change: &mut dyn FnMut(&Entry, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        for &(i, what, sequence) in &self.order {
            let group = self.group(i);
            if what == Extent::All {
                for part in &group.parts {
                    debug_assert_eq!(part.head.kind, RecordKind::Part);
                    to.append(part, part.head, &part.entries, &mut *change)?;
                }
            }
            let (head, entries) = self.commit_of(i, what, sequence);
            to.append(&group.commit, head, &entries, &mut *change)?;
        }
        Ok(())
    }

    /// Where the log does not fit.
    pub fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        self.collected.places.iter().map(|(place, what)| Finding::new(FindingKind::Log, place, what))
    }

    /// What has become of each group.
    pub fn report(&self) -> Vec<SalvagedGroup> {
        let of = |(i, group): (usize, &Group<EntryKind>)| {
            let fate = self.left_out.get(&i).cloned().unwrap_or(Fate::Written);
            let sequence = group.sequence();
            let may_be_half_home = matches!(fate, Fate::LeftOut(_))
                && (sequence < self.collected.checkpointing || !self.collected.is_certain);
            let mut paths: Vec<String> = self.says[i].changes.iter().map(|thing| self.path_of(thing)).collect();
            paths.sort();
            paths.dedup();
            SalvagedGroup { sequence, position: group.commit.position, fate, paths, may_be_half_home }
        };
        self.collected.groups.iter().enumerate().map(of).collect()
    }

    fn path_of(&self, thing: &Thing) -> String {
        match thing {
            Thing::Object(id) => self.path(*id),
            Thing::Name(dir, name) if *dir == ROOT => String::from_utf8_lossy(name).into_owned(),
            Thing::Name(dir, name) => format!("{}/{}", self.path(*dir), String::from_utf8_lossy(name)),
        }
    }

    /// Where an object was named last, as far as the log tells.
    fn path(&self, id: u64) -> String {
        /// Deeper than any path: names that went from one directory to another may lead in a circle.
        const DEPTH: usize = 256;
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT {
            match self.paths.get(&at) {
                Some((dir, name)) if names.len() < DEPTH => {
                    names.push(String::from_utf8_lossy(name).into_owned());
                    at = *dir;
                }
                _ => {
                    names.push(format!("object {}", number(at)));
                    break;
                }
            }
        }
        names.reverse();
        names.join("/")
    }
}

/// A sequence, or an id, as tools show it: the life in which it was given, and which it was.
fn number(id: u64) -> String {
    format!("{}.{}", id >> 40, id & ((1 << 40) - 1))
}
