//! What a crash has left: which transactions count, and their way home.
//!
//! | step | what is done |
//! |---|---|
//! | 1 | the newest header; the descriptions above its tail; the device's window |
//! | 2 | of each queue, what is proven counts, and behind it, in order, what holds; closed under dependency |
//! | 3 | a flush: what was believed is durable. In persistent memory it is stored again before that |
//! | 4 | the verdict, durably; from here on nothing is asked again |
//! | 5 | the newest image of each block goes home, unless a later transaction has written the block directly, or freed it |
//! | 6 | a header of the next incarnation, durably: all that was there is void |

use std::collections::BTreeMap;

use wholly_error::{Error, Result};
use wholly_media::Site;

use super::layout::{Areas, Description, Header, Mark, Seed, State, What};
use super::queues::{Life, Queues, Unfinished};
use super::{
    Mistake, Options, Proof, RAISE, RAISE_FLUSH, RECOVER_BELIEVE, RECOVER_HOME, RECOVER_HOME_FLUSH, RECOVER_VERDICT,
    RECOVER_VERDICT_FLUSH,
};
use crate::{BLOCK, Lba, Page, Run, Txid};

/// Blocks that are read at a time.
const PIECE: u64 = 256;

fn corrupt(place: impl Into<String>, why: impl Into<String>) -> Error {
    Error::Corrupt { place: place.into(), fault: why.into() }
}

/// The header of an empty journal.
fn fresh(areas: Areas, options: &Options, (generation, incarnation): (u64, u64)) -> Header {
    Header {
        generation,
        incarnation,
        tail: 0,
        state: State::Open,
        has_checksums: options.proof == Proof::Checksum,
        marks: vec![Mark { first: 1, proven: 0 }; areas.queues.into()],
    }
}

fn write_header(
    device: &dyn Queues,
    areas: Areas,
    volume: [u8; 16],
    header: &Header,
    (site, flush): (Site, Site),
) -> Result<()> {
    let at = areas.slot(header.generation);
    device.write(site, at, &[Page::new(&header.encode(Seed::of_headers(volume), at))])?;
    device.flush(flush)
}

/// How a block is written, and how that is made durable.
type Writing<'w> = (&'w mut dyn FnMut(Site, Lba, &Page) -> Result<()>, &'w dyn Fn(Site) -> Result<()>);

/// Makes an empty journal.
pub(super) fn format((write, flush): Writing<'_>, areas: Areas, volume: [u8; 16], options: &Options) -> Result<()> {
    let header = Header { state: State::Empty, ..fresh(areas, options, (1, 0)) };
    // The other slot may have one of an earlier volume with this number.
    write(RAISE, areas.slot(0), &Page::zeros())?;
    let at = areas.slot(header.generation);
    write(RAISE, at, &Page::new(&header.encode(Seed::of_headers(volume), at)))?;
    flush(RAISE_FLUSH)
}

/// The transactions of a life, by queue and place.
struct Found<'d> {
    device: &'d dyn Queues,
    volume: [u8; 16],
    seed: Seed,
    header: Header,
    /// With all of its parts.
    all: Vec<BTreeMap<u64, Vec<Description>>>,
    /// Where each description stands, with its queue and place.
    stands: Vec<(Lba, usize, u64)>,
    /// Of each queue, up to which place some description says that it is complete.
    proven: Vec<u64>,
}

/// Recovers. Returns which life it was. With `wanted`, any other one counts for nothing.
pub(super) fn recover(
    device: &dyn Queues,
    areas: Areas,
    volume: [u8; 16],
    options: &Options,
    wanted: Option<u64>,
) -> Result<u64> {
    let header = last(device, areas, volume, wanted)?;
    if !has_left(&header, wanted) {
        return Ok(header.incarnation);
    }
    let areas = Areas { queues: header.marks.len() as u16, ..areas };
    believe(device, areas, volume, &header)?;
    let incarnation = header.incarnation;
    let makes = |mistake| options.mistake == Some(mistake);
    let mut found = Found::read(device, areas, volume, header, makes(Mistake::OlderOutlives))?;
    let counts = found.counts(options)?;
    if found.header.state == State::Open {
        if device.guarantees().flushes_own_writes {
            found.store_again(&counts)?;
        }
        device.flush(RECOVER_BELIEVE)?;
        let marks = found.header.marks.iter().zip(&counts);
        let marks = marks.map(|(mark, counts)| Mark { proven: *counts, ..*mark }).collect();
        let generation = found.header.generation + 1;
        let verdict = Header { generation, state: State::Decided, marks, ..found.header.clone() };
        if !makes(Mistake::NoVerdict) {
            let sites = (RECOVER_VERDICT, RECOVER_VERDICT_FLUSH);
            write_header(device, areas, volume, &verdict, sites)?;
        }
        found.header = verdict;
    }
    found.bring_home(&counts)?;
    Ok(incarnation)
}

/// What a recovery of a life would store: homes, and where their images are.
pub(super) fn left(device: &dyn Queues, log: Run, volume: [u8; 16], incarnation: u64) -> Result<Vec<(Lba, Lba)>> {
    let areas = Areas { log, queues: 1 };
    let header = last(device, areas, volume, Some(incarnation))?;
    if !has_left(&header, Some(incarnation)) {
        return Ok(Vec::new());
    }
    let areas = Areas { queues: header.marks.len() as u16, ..areas };
    let found = Found::read(device, areas, volume, header, false)?;
    let images = found.images(&found.counts(&Options::default())?);
    Ok(images.into_iter().map(|(home, (image, _))| (home, image)).collect())
}

/// Whether a life may have left something that counts.
fn has_left(header: &Header, wanted: Option<u64>) -> bool {
    header.state != State::Empty && wanted.is_none_or(|wanted| wanted == header.incarnation)
}

/// The header of the last life, which is not later than the one that is wanted.
fn last(device: &dyn Queues, areas: Areas, volume: [u8; 16], wanted: Option<u64>) -> Result<Header> {
    let Some((header, is_other_whole)) = newest(device, areas, volume)? else {
        let place = format!("block {}", areas.slot(0).0);
        return Err(corrupt(place, "neither header of the journal is whole"));
    };
    if wanted.is_some_and(|wanted| wanted < header.incarnation) {
        let why = format!("it is of life {}, later than the volume's", header.incarnation);
        return Err(corrupt("the journal", why));
    }
    if !is_other_whole {
        // If it was a header, and not one that a crash has torn, the life after this one has written something.
        has_none(device, areas.log, Seed::new(volume, header.incarnation + 1), areas)?;
    }
    Ok(header)
}

/// Writes the header that was read once more, durably, before the other slot is written. Its writer may have died
/// before it was durable.
fn believe(device: &dyn Queues, areas: Areas, volume: [u8; 16], header: &Header) -> Result<()> {
    match device.guarantees().flushes_own_writes {
        true => write_header(device, areas, volume, header, (RECOVER_BELIEVE, RECOVER_BELIEVE)),
        false => Ok(()),
    }
}

/// Begins a life. Returns its header.
pub(super) fn start(
    device: &dyn Queues,
    areas: Areas,
    volume: [u8; 16],
    options: &Options,
    incarnation: u64,
) -> Result<Header> {
    let last = newest(device, areas, volume)?.map(|(header, _)| header);
    last.iter().try_for_each(|header| believe(device, areas, volume, header))?;
    let generation = last.map_or(0, |header| header.generation);
    let header = fresh(areas, options, (generation + 1, incarnation));
    write_header(device, areas, volume, &header, (RAISE, RAISE_FLUSH))?;
    Ok(header)
}

/// Calls `each` with all blocks of a run.
fn each_block(device: &dyn Queues, run: Run, mut each: impl FnMut(Lba, &[u8; BLOCK]) -> Result<()>) -> Result<()> {
    let mut bytes = vec![0; PIECE as usize * BLOCK];
    let (mut at, end) = (run.start.0, run.start.0 + run.count);
    while at < end {
        let count = PIECE.min(end - at);
        let bytes = &mut bytes[..count as usize * BLOCK];
        device.read_run(Lba(at), bytes)?;
        (at..).zip(bytes.as_chunks().0).try_for_each(|(at, block)| each(Lba(at), block))?;
        at += count;
    }
    Ok(())
}

/// That no description of a life stands in the journal.
fn has_none(device: &dyn Queues, log: Run, seed: Seed, areas: Areas) -> Result<()> {
    each_block(device, log, |at, block| match Description::decode(seed, at, block) {
        None => Ok(()),
        Some(_) => {
            let [one, other] = [0, 1].map(|slot| areas.slot(slot).0);
            Err(corrupt(format!("the journal, block {one} or {other}"), "the newest header has rotted"))
        }
    })
}

/// The newest of the two headers, and whether the other one is whole. None if neither is.
fn newest(device: &dyn Queues, areas: Areas, volume: [u8; 16]) -> Result<Option<(Header, bool)>> {
    let (mut found, mut whole): (Option<Header>, _) = (None, 0);
    for slot in 0..2 {
        let at = areas.slot(slot);
        let mut bytes = [0; BLOCK];
        device.read(at, &mut bytes)?;
        let header = Header::decode(Seed::of_headers(volume), at, &bytes).map_err(|version| {
            let why = format!("the journal has version {version}: open it with the version of Wholly that made it");
            Error::Unsupported(why)
        })?;
        whole += u8::from(header.is_some());
        found = match (found, header) {
            (Some(one), Some(other)) if other.generation < one.generation => Some(one),
            (one, other) => other.or(one),
        };
    }
    Ok(found.map(|header| (header, whole == 2)))
}

impl<'d> Found<'d> {
    /// Reads all areas.
    fn read(
        device: &'d dyn Queues,
        areas: Areas,
        volume: [u8; 16],
        header: Header,
        ignores_tail: bool,
    ) -> Result<Found<'d>> {
        let seed = Seed::new(volume, header.incarnation);
        let mut stands = Vec::new();
        let mut all: Vec<BTreeMap<u64, Vec<Description>>> = vec![BTreeMap::new(); areas.queues.into()];
        let mut proven: Vec<u64> = header.marks.iter().map(|mark| mark.proven).collect();
        each_block(device, areas.all(), |at, block| {
            let Some(description) = Description::decode(seed, at, block) else { return Ok(()) };
            let queue = usize::from(description.queue);
            if queue >= all.len() || description.proven.len() != all.len() {
                return Ok(());
            }
            for (proven, mark) in proven.iter_mut().zip(&description.proven) {
                *proven = (*proven).max(*mark);
            }
            let is_below = description.place < header.marks[queue].first;
            if !is_below || ignores_tail {
                stands.push((at, queue, description.place));
                all[queue].entry(description.place).or_default().push(description);
            }
            Ok(())
        })?;
        for parts in all.iter_mut().flat_map(|queue| queue.values_mut()) {
            parts.sort_by_key(|part| part.part.0);
        }
        Ok(Found { device, volume, seed, header, all, stands, proven })
    }

    /// The parts of a transaction, if they are all there.
    fn get(&self, queue: usize, place: u64) -> Option<&[Description]> {
        let parts = self.all[queue].get(&place)?;
        let is_whole = parts.len() == usize::from(parts[0].part.1)
            && (0..).zip(parts).all(|(number, part)| part.part.0 == number && part.tx == parts[0].tx);
        is_whole.then_some(parts)
    }

    /// Whether what a transaction has written is there. `with_direct`: also what may have another owner by now.
    fn holds(&self, parts: &[Description], with_direct: bool) -> Result<bool> {
        let mut bytes = [0; BLOCK];
        for entry in parts.iter().flat_map(|part| &part.entries) {
            let (at, sum) = match entry.what {
                What::Journaled { image, sum } => (image, sum),
                What::Direct { sum } if with_direct => (entry.home, sum),
                _ => continue,
            };
            self.device.read(at, &mut bytes)?;
            if self.seed.sum_of_block(entry.home, &bytes) != sum {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Of each queue, up to which place transactions count. After a verdict that is not asked again.
    fn counts(&self, options: &Options) -> Result<Vec<u64>> {
        match self.header.state {
            State::Decided => Ok(self.header.marks.iter().map(|mark| mark.proven).collect()),
            _ => self.decide(options),
        }
    }

    /// The same, by what is there.
    fn decide(&self, options: &Options) -> Result<Vec<u64>> {
        let checks_direct = options.mistake != Some(Mistake::DirectUnchecked);
        let mut counts = Vec::with_capacity(self.all.len());
        for (queue, mark) in self.header.marks.iter().enumerate() {
            let mut place = mark.first;
            loop {
                let is_proven = place <= self.proven[queue];
                let parts = self.get(queue, place);
                let counts = match parts {
                    None => false,
                    // What is proven may have been written over by its next owner; its images may not.
                    Some(parts) if self.header.has_checksums => self.holds(parts, !is_proven && checks_direct)?,
                    Some(parts) => is_proven || self.is_finished(queue, parts[0].tx)?,
                };
                if !counts && is_proven {
                    let place = format!("the journal, queue {queue}, transaction {place}");
                    return Err(corrupt(place, "it was on the medium, and is not there any more"));
                }
                if !counts {
                    break;
                }
                place += 1;
            }
            counts.push(place - 1);
        }
        if options.mistake != Some(Mistake::NoDependencies) {
            while self.cut(&mut counts) && options.mistake != Some(Mistake::ClosureOnce) {}
        }
        Ok(counts)
    }

    fn life(&self) -> Life {
        Life { volume: self.volume, incarnation: self.header.incarnation }
    }

    /// Whether the device does not name a transaction as unfinished.
    fn is_finished(&self, queue: usize, tx: Txid) -> Result<bool> {
        let why = match self.device.unfinished() {
            Unfinished::Known { life, queues } if life == self.life() => {
                return Ok(!queues.get(queue).is_some_and(|unfinished| unfinished.contains(&tx)));
            }
            Unfinished::Known { life, .. } if life.volume != self.volume => "its region is another volume's".into(),
            Unfinished::Known { life, .. } => format!("its region is of life {}", life.incarnation),
            Unfinished::Unknown(why) => why,
        };
        let why = format!("it has no checksums, and the device does not tell what is unfinished: {why}");
        Err(corrupt("the journal", why))
    }

    /// Drops what depends on something that does not count. Returns whether there was any.
    fn cut(&self, counts: &mut [u64]) -> bool {
        let before = counts.to_vec();
        for (queue, mark) in self.header.marks.iter().enumerate() {
            let lacks = |place: &u64| {
                let parts = self.get(queue, *place).expect("it counts");
                parts[0].after.iter().any(|(other, needed)| before[usize::from(*other)] < *needed)
            };
            if let Some(first) = (mark.first..=counts[queue]).find(lacks) {
                counts[queue] = first - 1;
            }
        }
        before != counts
    }

    /// Stores what counts once more, where it stands.
    fn store_again(&self, counts: &[u64]) -> Result<()> {
        let all = self.all.iter().zip(counts);
        let all = all.flat_map(|(queue, counts)| queue.range(..=counts).flat_map(|(_, parts)| parts));
        let written = all.flat_map(|part| &part.entries).filter_map(|entry| match entry.what {
            What::Journaled { image, .. } => Some(image),
            What::Direct { .. } => Some(entry.home),
            What::Revoked { .. } => None,
        });
        let stands = self.stands.iter().filter(|(_, queue, place)| *place <= counts[*queue]).map(|(at, ..)| *at);
        let mut bytes = [0; BLOCK];
        for at in written.chain(stands) {
            self.device.read(at, &mut bytes)?;
            self.device.write(RECOVER_BELIEVE, at, &[Page::new(&bytes)])?;
        }
        Ok(())
    }

    /// The last image of each block, with its checksum, unless the block has been written directly or freed after that.
    fn images(&self, counts: &[u64]) -> BTreeMap<Lba, (Lba, u64)> {
        let mut all: Vec<&Description> = Vec::new();
        for (queue, counts) in self.all.iter().zip(counts) {
            all.extend(queue.range(..=counts).flat_map(|(_, parts)| parts));
        }
        // The order of transactions is that of their numbers; in one, that of its parts.
        all.sort_by_key(|description| (description.tx, description.part.0));
        let mut images = BTreeMap::new();
        for entry in all.iter().flat_map(|description| &description.entries) {
            match entry.what {
                What::Journaled { image, sum } => _ = images.insert(entry.home, (image, sum)),
                What::Direct { .. } => _ = images.remove(&entry.home),
                What::Revoked { count } => {
                    let run = entry.home..Lba(entry.home.0.saturating_add(count));
                    let gone: Vec<Lba> = images.range(run).map(|(home, _)| *home).collect();
                    gone.iter().for_each(|home| _ = images.remove(home));
                }
            }
        }
        images
    }

    /// Stores these.
    fn bring_home(&self, counts: &[u64]) -> Result<()> {
        let mut bytes = [0; BLOCK];
        let (mut start, mut pages) = (Lba(0), Vec::new());
        for (home, (image, sum)) in &self.images(counts) {
            self.device.read(*image, &mut bytes)?;
            if self.header.has_checksums && self.seed.sum_of_block(*home, &bytes) != *sum {
                return Err(corrupt(
                    format!("the journal, block {}", image.0),
                    format!("it is no image of block {}", home.0),
                ));
            }
            if start.0 + pages.len() as u64 != home.0 || pages.len() as u64 == PIECE {
                self.store(start, &mut pages)?;
                start = *home;
            }
            pages.push(Page::new(&bytes));
        }
        self.store(start, &mut pages)?;
        self.device.flush(RECOVER_HOME_FLUSH)
    }

    fn store(&self, start: Lba, pages: &mut Vec<Page>) -> Result<()> {
        match pages.is_empty() {
            true => Ok(()),
            false => self.device.write(RECOVER_HOME, start, &std::mem::take(pages)),
        }
    }
}
