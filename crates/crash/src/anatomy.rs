//! What stands where in a log, for names of faults: which structure was hit, and what part it plays.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use wholly::log::checksum::segment_seed;
use wholly::log::layout::{LINE, RawSegmentHeader, RecordKind, SEGMENTS_START, SUPERBLOCK_SLOT, SegmentHeader};
use wholly::log::scan::{Records, SegmentReader};
use wholly::log::{read_superblock, segments_in, volume_seed};
use wholly_sim::World;
use zerocopy::FromBytes;

/// A range of the log, and what stands there.
struct Part {
    range: Range<u64>,
    name: String,
    /// The commit that cannot be believed without it, where its payload counts too.
    commit: Option<u64>,
}

/// The commits of a life that are not home, by lane, in order.
type Commits = BTreeMap<u32, Vec<u64>>;

/// The structures of a log that is whole.
pub(crate) struct Anatomy {
    parts: Vec<Part>,
    /// Those of the last life.
    commits: Commits,
    /// Those of the life before it, of which only the superblock in force tells.
    inherited: Commits,
    /// Where that superblock is.
    in_force: Range<u64>,
}

impl Anatomy {
    /// Of the log of a world.
    pub(crate) fn of(world: &Arc<World>) -> Anatomy {
        let region = world.log();
        let mut anatomy =
            Anatomy { parts: Vec::new(), commits: Commits::new(), inherited: Commits::new(), in_force: 0..0 };
        let Ok(superblock) = read_superblock(&*region) else { return anatomy };
        anatomy.in_force = superblock.slot_offset()..superblock.slot_offset() + 128;
        for slot in 0..2 {
            let age = if superblock.slot_offset() == slot * SUPERBLOCK_SLOT { "in force" } else { "of before" };
            anatomy.put(slot * SUPERBLOCK_SLOT..slot * SUPERBLOCK_SLOT + 128, format!("superblock {age}"), None);
        }
        let mut segments = Vec::new();
        for index in 0..u64::from(segments_in(&*region, superblock.segment_bytes)) {
            let start = SEGMENTS_START + index * superblock.segment_bytes;
            let mut line = [0u8; LINE as usize];
            region.read(start, &mut line).expect("a header");
            let raw = RawSegmentHeader::read_from_bytes(&line).expect("a header's bytes");
            if let Some(header) = SegmentHeader::checked(&raw, volume_seed(&superblock.volume_id), start) {
                segments.push((header.lane, header.incarnation, header.sequence, start));
            }
        }
        segments.sort_unstable();
        let before = segments.iter().map(|segment| segment.1).filter(|life| *life < superblock.incarnation).max();
        for (i, (lane, incarnation, sequence, start)) in segments.iter().enumerate() {
            let last = segments.get(i + 1).is_none_or(|next| (next.0, next.1) != (*lane, *incarnation));
            let this_life = *incarnation == superblock.incarnation;
            let counts = this_life || Some(*incarnation) == before;
            let life = if this_life { "life" } else { "earlier life" };
            let place = if last { "last segment" } else { "segment" };
            let seed = segment_seed(&superblock.volume_id, *incarnation, *sequence);
            let mut reader = SegmentReader::new(&*region, *start, superblock.segment_bytes);
            let mut records = Records::default();
            let begin = start + u64::from(superblock.block);
            records.read(&mut reader, seed, begin, start + superblock.segment_bytes).expect("records");
            let count = records.heads().len();
            let commits: Vec<Option<u64>> = records
                .heads()
                .map(|head| (head.kind == RecordKind::Commit && counts).then_some(head.sequence))
                .map(|sequence| sequence.filter(|sequence| *sequence >= superblock.tail))
                .collect();
            if commits.iter().any(Option::is_some) {
                let life = if this_life { &mut anatomy.commits } else { &mut anatomy.inherited };
                life.entry(*lane).or_default().extend(commits.iter().flatten());
            }
            // Without its header a segment is one that was never written, unless a second batch says otherwise.
            let first = commits.first().copied().flatten();
            anatomy.put(*start..*start + LINE, format!("header, {place}, {life}"), first);
            for (n, record) in records.iter(0).enumerate() {
                let kind = if record.head.kind == RecordKind::Part { "part" } else { "commit" };
                let home = if record.head.sequence < superblock.tail { ", home" } else { "" };
                let last = if n + 1 == count { "last " } else { "" };
                let at = record.position;
                let name = |what: &str| format!("{what} of {last}{kind}{home}, {place}, {life}");
                anatomy.put(at..at + LINE, name("head"), commits[n]);
                for entry in record.entries.iter().filter(|entry| entry.length > 0) {
                    let from = at + u64::from(entry.line) * LINE;
                    anatomy.put(from..from + u64::from(entry.length), name(&format!("{:?}", entry.kind)), commits[n]);
                }
                let end = at + u64::from(record.head.lines) * LINE;
                anatomy.put(at + record.head.tail_offset()..end, name("entries"), commits[n]);
            }
        }
        anatomy
    }

    fn put(&mut self, range: Range<u64>, name: String, commit: Option<u64>) {
        self.parts.push(Part { range, name, commit });
    }

    fn hit<'a>(&'a self, ranges: &'a [Range<u64>]) -> impl Iterator<Item = &'a Part> {
        let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        self.parts.iter().filter(move |part| ranges.iter().any(|range| overlap(range, &part.range)))
    }

    /// What stands in these ranges.
    pub(crate) fn describe(&self, ranges: &[Range<u64>]) -> String {
        let mut names: Vec<&str> = self.hit(ranges).map(|part| &*part.name).collect();
        names.dedup();
        if names.is_empty() { "nothing that counts".into() } else { names.join(" + ") }
    }

    /// Whether groups can be lost with these ranges without anybody seeing it, named by how many came behind each: if
    /// so many stand at the ends of lanes in the last life with everything hit from there on. Before that something is
    /// left that tells of what was there. Where the last life has not committed, and one fault takes the superblock
    /// that it began with as well, that holds of the life before.
    pub(crate) fn excuses(&self, ranges: &[Range<u64>], groups: &BTreeSet<usize>) -> bool {
        let hit: Vec<u64> = self.hit(ranges).filter_map(|part| part.commit).collect();
        let unbegun = self.commits.is_empty() && ranges.iter().any(|range| range.contains(&self.in_force.start));
        let commits = if unbegun { &self.inherited } else { &self.commits };
        let end = |lane: &Vec<u64>| lane.iter().rev().take_while(|commit| hit.contains(commit)).count();
        let ends: usize = commits.values().map(end).sum();
        // One lane has one end (a group that made an empty file whose name is home already does not show that it is
        // gone). Of several lanes it is not known which groups are whose.
        groups.len() <= ends && (commits.len() > 1 || groups.iter().all(|group| *group < ends))
    }
}
