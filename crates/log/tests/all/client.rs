//! A log of a client that is no store: its own kinds of entries, its own superblock, and segments that are extents of a
//! larger region, none behind the one before it, and the slots of its superblock behind them all.

mod crash;

use std::sync::{Arc, Mutex};

use wholly_error::{Error, Result};
use wholly_log::batch::{BatchLane, Gathered, Outcome, Request, record_bytes};
use wholly_log::checksum::checksum;
use wholly_log::lane::{AppendError, Lane};
use wholly_log::layout::{Entry, Kept, LogPart, SEGMENTS_START, SUPERBLOCK_SLOT, Superblock, SuperblockFault};
use wholly_log::scan::{self, CommittedGroup, Replay};
use wholly_log::{Client, ClientKind, ClientPart, Geometry, Log, SegmentSource, read_superblock, site};
use wholly_media::{Guarantees, Region, Site};
use wholly_sim::{Count, CountingRegion, Counts, SimConfig, World};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const SEGMENT: u64 = 4096;
/// Segments that there is room for.
const PLACES: usize = 24;

/// What entries of a bank of counters ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Counter `file` is `offset` from here on.
    Set,
    /// The payload is a note on counter `file`.
    Note,
    Parts,
}

impl ClientKind for Kind {
    const PARTS: Self = Kind::Parts;

    fn of(number: u8) -> Option<Self> {
        [Kind::Set, Kind::Note, Kind::Parts].into_iter().find(|kind| kind.number() == number)
    }

    fn number(self) -> u8 {
        // None of the store's.
        self as u8 + 100
    }

    fn is_sound(entry: &Entry<Self>) -> bool {
        (entry.kind == Kind::Note) == (entry.length > 0)
    }
}

/// Where each segment is, in segments from the start of the larger region.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Places(Vec<u32>);

#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Raw {
    checksum: U64,
    generation: U64,
    incarnation: U64,
    tail: U64,
    checkpointing: U64,
    committed: U64,
    kept_checksum: U64,
    segment_bytes: U64,
    kept_segments: U32,
    segments: U32,
    min_segments: U32,
    block: U32,
    volume_id: [u8; 16],
    places: [U32; PLACES],
}

impl ClientPart for Places {
    type Raw = Raw;

    fn to_raw(superblock: &Superblock<Self>) -> Raw {
        let Superblock { log, client } = superblock;
        let mut places = [U32::ZERO; PLACES];
        for (raw, place) in places.iter_mut().zip(&client.0) {
            *raw = U32::new(*place);
        }
        let mut raw = Raw {
            checksum: U64::ZERO,
            generation: U64::new(log.generation),
            incarnation: U64::new(log.incarnation),
            tail: U64::new(log.tail),
            checkpointing: U64::new(log.checkpointing),
            committed: U64::new(log.committed),
            kept_checksum: U64::new(log.kept.checksum),
            segment_bytes: U64::new(log.segment_bytes),
            kept_segments: U32::new(log.kept.segments),
            segments: U32::new(log.segments.expect("they are counted")),
            min_segments: U32::new(log.min_segments),
            block: U32::new(log.block),
            volume_id: log.volume_id,
            places,
        };
        raw.checksum = U64::new(checksum(1, &raw.as_bytes()[8..]));
        raw
    }

    fn checked(raw: &Raw) -> Result<Superblock<Self>, SuperblockFault> {
        if raw.checksum.get() != checksum(1, &raw.as_bytes()[8..]) {
            return Err(SuperblockFault::Checksum);
        }
        let log = LogPart {
            volume_id: raw.volume_id,
            generation: raw.generation.get(),
            incarnation: raw.incarnation.get(),
            tail: raw.tail.get(),
            checkpointing: raw.checkpointing.get(),
            segment_bytes: raw.segment_bytes.get(),
            segments: Some(raw.segments.get()),
            min_segments: raw.min_segments.get(),
            kept: Kept { segments: raw.kept_segments.get(), checksum: raw.kept_checksum.get() },
            committed: raw.committed.get(),
            block: raw.block.get(),
        };
        if !log.is_sound() || raw.segments.get() as usize > PLACES {
            return Err(SuperblockFault::Geometry);
        }
        let places = raw.places[..raw.segments.get() as usize].iter().map(|place| place.get()).collect();
        Ok(Superblock { log, client: Places(places) })
    }

    fn unsupported(_: SuperblockFault) -> Option<String> {
        None
    }
}

/// Extents of a larger region, as one region.
struct Extents {
    base: Arc<dyn Region>,
    places: Mutex<Vec<u32>>,
}

impl Extents {
    fn new(base: &Arc<dyn Region>, places: Vec<u32>) -> Arc<Extents> {
        Arc::new(Extents { base: base.clone(), places: Mutex::new(places) })
    }

    /// As the superblock tells where they are.
    fn open(base: &Arc<dyn Region>) -> Arc<Extents> {
        let superblock = read_superblock::<Places>(&*Extents::new(base, Vec::new())).unwrap();
        Extents::new(base, superblock.client.0)
    }

    /// Where byte `offset` is. The slots are behind all segments.
    fn find(&self, offset: u64) -> u64 {
        let place = match offset.checked_sub(SEGMENTS_START) {
            None => PLACES as u64 + offset / SUPERBLOCK_SLOT,
            Some(at) => u64::from(self.places.lock().unwrap()[(at / SEGMENT) as usize]),
        };
        place * SEGMENT + offset % SEGMENT
    }
}

impl Region for Extents {
    fn guarantees(&self) -> &Guarantees {
        self.base.guarantees()
    }

    fn len(&self) -> u64 {
        SEGMENTS_START + self.places.lock().unwrap().len() as u64 * SEGMENT
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        assert!(offset % SEGMENT + buf.len() as u64 <= SEGMENT && offset + buf.len() as u64 <= self.len());
        self.base.read(self.find(offset), buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.base.write(site, self.find(offset), data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.base.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.base.write_through(site, self.find(offset), data)
    }

    /// Takes every third extent that is free, from the end on, so that none follows another.
    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        let segments = ((len - SEGMENTS_START) / SEGMENT) as usize;
        let mut places = self.places.lock().unwrap();
        let before = places.len();
        places.truncate(segments);
        let all = (0..PLACES as u32).rev().map(|i| (i * 7) % PLACES as u32);
        let free: Vec<u32> = all.filter(|place| !places.contains(place)).take(segments - places.len()).collect();
        places.extend(free);
        for place in places.iter().skip(before) {
            self.base.write_through(site, u64::from(*place) * SEGMENT, &[0; SEGMENT as usize])?;
        }
        Ok(())
    }
}

struct Source(Arc<Extents>);

impl SegmentSource<Places> for Source {
    fn region(&self) -> &dyn Region {
        &*self.0
    }

    fn locate(&self, segments: u32, part: &mut Places) {
        part.0 = self.0.places.lock().unwrap()[..segments as usize].to_vec();
    }
}

struct Toy;

impl Client for Toy {
    type Kind = Kind;
    type Part = Places;
    type Source = Source;
}

/// A kind, a counter, a value, a note.
type Told = (Kind, u64, u64, Vec<u8>);

/// What recovery gives, by sequence.
struct Groups(Arc<Extents>, Vec<(u64, Vec<Told>)>);

impl Replay for Groups {
    type Kind = Kind;

    fn group(&mut self, group: &CommittedGroup<'_, Kind>) -> Result<()> {
        let mut all = Vec::new();
        for record in group.parts.iter().map(|part| part.view()).chain([group.commit]) {
            for entry in record.entries.iter().filter(|entry| entry.kind != Kind::Parts) {
                let mut note = vec![0; entry.length as usize];
                self.0.read(record.position + u64::from(entry.line) * 64, &mut note)?;
                all.push((entry.kind, entry.file, entry.offset, note));
            }
        }
        self.1.push((group.sequence, all));
        Ok(())
    }
}

const GEOMETRY: Geometry = Geometry { segment_bytes: SEGMENT, min_segments: 2, max_segments: PLACES as u32 };

fn format(base: &Arc<dyn Region>) {
    let extents = Extents::new(base, Vec::new());
    let part = || Places(extents.places.lock().unwrap().clone());
    Log::<Toy>::format(&*extents, GEOMETRY, [7; 16], part).unwrap();
}

fn open(base: &Arc<dyn Region>) -> (Log<Toy>, Vec<(u64, Vec<Told>)>) {
    let extents = Extents::open(base);
    let mut groups = Groups(extents.clone(), Vec::new());
    let (log, _) = scan::open(Source(extents), GEOMETRY, |_, _| Ok(()), &mut groups, &|_| ()).unwrap();
    (log, groups.1)
}

/// Commits groups as the medium wants them.
struct Committer {
    log: Log<Toy>,
    lane: Lane<Toy>,
    batch: BatchLane<Toy>,
}

impl Committer {
    fn new(log: Log<Toy>) -> Committer {
        Committer { lane: Lane::new(&log, 1), batch: BatchLane::new(), log }
    }

    fn grow(log: &Log<Toy>) -> Result<()> {
        log.grow(log.segments().0, 1)
    }

    fn append(log: &Log<Toy>, lane: &mut Lane<Toy>, group: &[Told]) {
        for (kind, file, offset, data) in group {
            while let Err(error) = lane.reserve(log, data.len() as u64) {
                assert!(matches!(error, AppendError::NeedRoom), "{error:?}");
                Self::grow(log).unwrap();
            }
            lane.append(log, *kind, *file, *offset, data).unwrap();
        }
    }

    fn commit(&mut self, group: &[Told]) -> u64 {
        let Committer { log, lane, batch } = self;
        if !log.is_pmem() {
            let gathered = |(kind, file, offset, data): &Told| Gathered {
                kind: *kind,
                file: *file,
                offset: *offset,
                data: data[..].into(),
            };
            let id = log.take_sequence();
            let mut entries: Vec<_> = group.iter().map(gathered).collect();
            let mut parts = 0;
            if record_bytes(&entries, log.block()) > log.segment_bytes() - log.block() {
                // All of it, before the record that commits it.
                entries.clear();
                lane.open(id);
                Self::append(log, lane, group);
                parts = lane.close(log).unwrap();
                log.region().fence(site::SPILL_SYNC).unwrap();
            }
            let request = Request { group: id, entries, parts, after: 0, announced: log.announced_tail() };
            match batch.commit(log, request, || Self::grow(log)).unwrap() {
                Outcome::Committed(sequence, _) => {
                    lane.retire(log, sequence);
                    return sequence;
                }
                Outcome::Announced => panic!("nothing was announced"),
            }
        }
        let slot = log.in_flight().enter(log.sequence_bound());
        let sequence = log.take_sequence();
        lane.open(sequence);
        Self::append(log, lane, group);
        lane.store_commit(log, sequence, 0).unwrap();
        lane.fence_commit(log).unwrap();
        lane.finish(log, sequence);
        log.in_flight().leave(slot);
        sequence
    }

    /// All that was committed is home.
    fn checkpoint(&mut self) {
        self.checkpoint_with(|| Ok(())).unwrap();
    }

    /// All that was committed goes home.
    fn checkpoint_with(&mut self, go_home: impl FnOnce() -> Result<()>) -> Result<()> {
        self.lane.leave(&self.log);
        self.batch.leave(&self.log);
        let target = self.log.announce_tail();
        self.log.begin_checkpoint(target)?;
        go_home()?;
        self.log.release_below(target)?;
        self.log.shrink()
    }
}

fn worlds() -> [Arc<World>; 2] {
    let len = SEGMENT * (PLACES as u64 + 2);
    [SimConfig::pmem(), SimConfig::disk()].map(|config| World::new(SimConfig { log_len: len, ..config }))
}

fn note(counter: u64, length: usize) -> Told {
    (Kind::Note, counter, 0, vec![counter as u8; length])
}

/// Groups of the client's kinds fill segments all over the larger region, and are there after each open in their order.
/// The superblock tells of every segment that was taken on the way, and those that are given back serve again.
#[test]
fn a_log_lives_in_extents_of_a_larger_region() {
    for world in worlds() {
        let base = world.log();
        format(&base);
        let mut committed = Vec::new();
        for life in 0..3u64 {
            let (log, found) = open(&base);
            assert_eq!(found, committed);
            let mut committer = Committer::new(log);
            for i in 0..10 {
                let group = vec![(Kind::Set, 1, life * 100 + i, Vec::new()), note(i, 1000 + i as usize)];
                committed.push((committer.commit(&group), group));
            }
            let superblock = committer.log.superblock();
            assert!(superblock.segments > Some(2 + 2 * life as u32), "{:?}", superblock.segments);
            assert_eq!(superblock.client.0.len(), superblock.segments.unwrap() as usize);
            assert!(superblock.client.0.windows(2).all(|next| next[1] != next[0] + 1), "{:?}", superblock.client);
        }
        let (log, found) = open(&base);
        assert_eq!(found, committed);
        let mut committer = Committer::new(log);
        committer.checkpoint();
        assert_eq!(committer.log.superblock().client.0.len(), 2);
        let last = vec![note(7, 3000)];
        let sequence = committer.commit(&last);
        assert_eq!(open(&base).1, [(sequence, last)]);
    }
}

/// What a group costs, whoever the client is: its record, and what makes it survive.
#[test]
fn a_group_costs_one_fence_or_one_write() {
    let [pmem, disk] = worlds().map(|world| {
        let counting = CountingRegion::new(world.log());
        let base: Arc<dyn Region> = counting.clone();
        format(&base);
        let mut committer = Committer::new(open(&base).0);
        committer.commit(&[(Kind::Set, 1, 2, Vec::new())]);
        counting.take();
        // A head with its first entry, 100 bytes in two lines, and the other entry in a line of its own.
        committer.commit(&[(Kind::Set, 1, 3, Vec::new()), note(1, 100)]);
        counting.take()
    });
    let count = |calls, bytes, fences| Count { calls, bytes, lines: bytes / 64, fences };
    let expected = [
        (site::LANE_PAYLOAD, count(2, 128, 0)),
        (site::LANE_ENTRIES, count(1, 64, 0)),
        (site::LANE_COMMIT, count(1, 64, 0)),
        (site::LANE_COMMIT_FENCE, count(1, 0, 1)),
    ];
    assert_eq!(pmem, Counts::from(expected));
    assert_eq!(disk, Counts::from([(site::BATCH_WRITE, count(1, 512, 1))]));
}

/// A group larger than a segment has parts, which its client's own kind for them holds together.
#[test]
fn a_group_of_several_parts_is_given_as_one() {
    for world in worlds() {
        let base = world.log();
        format(&base);
        let mut committer = Committer::new(open(&base).0);
        let group: Vec<Told> = (0..9).map(|i| note(i, 1500)).collect();
        let sequence = committer.commit(&group);
        assert_eq!(open(&base).1, [(sequence, group)]);
    }
}

/// A kind that another client has is none here.
#[test]
fn kinds_of_others_are_refused() {
    /// Knows no notes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Older(Kind);
    impl ClientKind for Older {
        const PARTS: Self = Older(Kind::Parts);
        fn of(number: u8) -> Option<Self> {
            Kind::of(number).filter(|kind| *kind != Kind::Note).map(Older)
        }
        fn number(self) -> u8 {
            self.0.number()
        }
        fn is_sound(_: &Entry<Self>) -> bool {
            true
        }
    }
    struct OlderToy;
    impl Client for OlderToy {
        type Kind = Older;
        type Part = Places;
        type Source = Source;
    }
    struct Nobody;
    impl Replay for Nobody {
        type Kind = Older;
        fn group(&mut self, _: &CommittedGroup<'_, Older>) -> Result<()> {
            Ok(())
        }
    }
    for world in worlds() {
        let base = world.log();
        format(&base);
        let mut committer = Committer::new(open(&base).0);
        committer.commit(&[(Kind::Set, 1, 2, Vec::new())]);
        let reopen = || {
            let source = Source(Extents::open(&base));
            scan::open::<OlderToy>(source, GEOMETRY, |_, _| Ok(()), &mut Nobody, &|_| ()).map(|_| ())
        };
        reopen().unwrap();
        let mut committer = Committer::new(open(&base).0);
        committer.commit(&[note(3, 10)]);
        assert!(matches!(reopen(), Err(Error::Corrupt { .. })), "{:?}", reopen());
    }
}
