//! Registers, rings, and the order in which commands complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use wholly_error::Result;
use wholly_media::Site;
use zerocopy::{FromBytes, IntoBytes};

use super::{Config, Faults, Medium, Memories, REGION_ADDRESS};
use crate::spec::{Command, Completion, PmrStatus, ReadBarrier, Status, cc, csts, pmr, register};
use crate::transport::Counts;

/// A submission queue.
pub(super) struct Submissions {
    pub base: u64,
    pub depth: u32,
    /// The next entry to be fetched.
    pub head: u32,
    pub tail: u32,
    pub completions: u16,
}

/// A completion queue.
pub(super) struct Completions {
    pub base: u64,
    pub depth: u32,
    pub tail: u32,
    /// As the host has told.
    pub head: u32,
    pub phase: bool,
    pub interrupt: Option<u16>,
}

/// A command that was fetched and is not complete.
pub(super) struct Running {
    /// Names it, for the medium.
    pub number: u64,
    pub queue: u16,
    pub command: Command,
    /// Of I/O commands: the how manieth it is.
    pub nth: Option<u64>,
    /// When it completes, in ns.
    pub due_ns: u64,
    /// How far the submission queue had been fetched.
    pub sq_head: u32,
    /// Of a flush: what had come into the cache by the time of its doorbell.
    pub cached: u64,
    /// Of a write: its bytes, hashed, as they were at its doorbell.
    pub hash: u64,
}

/// What a doorbell has told of an entry: to be compared with what is fetched.
pub(super) struct Told {
    pub number: u64,
    /// The bytes of a write, hashed.
    pub hash: u64,
    pub cached: u64,
    /// When, in ns.
    pub at_ns: u64,
}

/// Content in the volatile cache.
pub(super) struct Cached {
    pub bytes: Box<[u8]>,
    pub command: u64,
    /// When the oldest content that is not on the medium came.
    pub since: u64,
}

/// What of a store arrives at once, if it is aligned.
const WORD: u64 = 8;

/// Stores that have not arrived: from which thread, where, what.
type Combining = Vec<(u64, u64, Box<[u8]>)>;

pub(super) struct Device {
    pub config: Config,
    pub medium: Arc<dyn Medium>,
    pub memories: Arc<Memories>,
    pub faults: Faults,
    pub counts: Counts,
    pub reports: Vec<String>,
    pub is_held: bool,
    pub submissions: BTreeMap<u16, Submissions>,
    pub completions: BTreeMap<u16, Completions>,
    running: Vec<Running>,
    /// By queue and slot.
    pub told: BTreeMap<(u16, u32), Told>,
    pub cache: BTreeMap<u64, Cached>,
    /// How many blocks have come into the cache.
    pub came: u64,
    configuration: u32,
    status: u32,
    /// It is being reset, and the host has not seen yet that it is.
    resets: Option<Site>,
    admin: [u32; 5],
    region_control: u32,
    region_address: [u32; 2],
    /// The region as the device sees it.
    pub arrived: Vec<u8>,
    combining: Combining,
    /// Where the last store to the region ended, since the last order.
    last_store: Option<u64>,
    pub interrupts: BTreeSet<u16>,
    random: u64,
    clock_ns: u64,
    /// When the device can serve the next command.
    served_ns: u64,
    fetched: u64,
    numbers: u64,
}

impl Device {
    pub fn new(config: &Config, medium: Arc<dyn Medium>, memories: Arc<Memories>) -> Result<Device> {
        let mut arrived = vec![0; config.region.map_or(0, |_| medium.region_len()) as usize];
        medium.region_read(0, &mut arrived)?;
        Ok(Device {
            config: config.clone(),
            medium,
            memories,
            faults: Faults::default(),
            counts: Counts::default(),
            reports: Vec::new(),
            is_held: false,
            submissions: BTreeMap::new(),
            completions: BTreeMap::new(),
            running: Vec::new(),
            told: BTreeMap::new(),
            cache: BTreeMap::new(),
            came: 0,
            configuration: 0,
            status: 0,
            resets: None,
            admin: [0; 5],
            region_control: 0,
            region_address: [0; 2],
            arrived,
            combining: Vec::new(),
            last_store: None,
            interrupts: BTreeSet::new(),
            random: config.seed,
            clock_ns: 0,
            served_ns: 0,
            fetched: 0,
            numbers: 0,
        })
    }

    pub fn set_faults(&mut self, faults: Faults) {
        if faults.region == 1 {
            self.arrived.fill(0);
        }
        self.fetched = 0;
        self.faults = faults;
    }

    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.clock_ns)
    }

    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn takes(&mut self, cost: impl Fn(&super::Profile) -> u64) {
        let cost = self.config.profile.as_ref().map_or(0, cost);
        self.clock_ns += if self.config.is_driven { 0 } else { cost };
    }

    pub fn advance(&mut self, now: Duration) -> (Vec<u16>, Option<Duration>) {
        self.clock_ns = self.clock_ns.max(now.as_nanos() as u64);
        self.fetch();
        while let Some(at) = self.next(self.clock_ns) {
            let running = self.running.swap_remove(at);
            self.complete(running);
        }
        let due = self.running.iter().map(|running| Duration::from_nanos(running.due_ns)).min();
        (std::mem::take(&mut self.interrupts).into_iter().collect(), due)
    }

    pub fn read_register(&mut self, at: u32) -> u32 {
        self.takes(|profile| profile.read_ns);
        let Config { most_entries, doorbell_shift, region, barriers, .. } = self.config;
        let has_region = region.is_some();
        match at {
            // Queues must be contiguous; it is ready at once.
            register::CAP => (most_entries - 1) | 1 << 16 | 0x0f << 24,
            0x04 => u32::from(doorbell_shift) | 1 << 5 | 4 << 20 | u32::from(has_region) << 24,
            register::VS => 0x0001_0400,
            register::CC => self.configuration,
            register::CSTS => {
                // Nothing of an earlier life of the host comes after it has seen this, either.
                if let Some(site) = self.resets.take() {
                    let cached: BTreeSet<u64> = self.cache.values().map(|cached| cached.command).collect();
                    self.medium.reset(site, &cached);
                }
                self.status
            }
            register::AQA => self.admin[0],
            register::ASQ => self.admin[1],
            0x2c => self.admin[2],
            register::ACQ => self.admin[3],
            0x34 => self.admin[4],
            register::PMRCAP => match region {
                None => 0,
                Some(queues) => 3 << 3 | 4 << 5 | u32::from(barriers) << 10 | u32::from(queues) << 24,
            },
            register::PMRCTL => self.region_control,
            register::PMRSTS => self.region_status().0,
            register::PMRMSCL => self.region_address[0],
            register::PMRMSCU => self.region_address[1],
            _ => 0,
        }
    }

    fn region_status(&self) -> PmrStatus {
        PmrStatus(u32::from(self.faults.region) << 9)
    }

    pub fn write_register(&mut self, site: Site, at: u32, value: u32) -> Result<()> {
        self.takes(|profile| profile.posted_ns);
        match at {
            register::CC => self.configure(site, value),
            register::AQA => self.admin[0] = value,
            register::ASQ => self.admin[1] = value & !0xfff,
            0x2c => self.admin[2] = value,
            register::ACQ => self.admin[3] = value & !0xfff,
            0x34 => self.admin[4] = value,
            register::PMRCTL => self.region_control = value & pmr::EN,
            register::PMRMSCL => self.region_address[0] = value & !0xffd,
            register::PMRMSCU => self.region_address[1] = value,
            at if at >= register::DOORBELLS => self.ring(site, at, value)?,
            _ => {}
        }
        Ok(())
    }

    fn configure(&mut self, site: Site, value: u32) {
        let was = std::mem::replace(&mut self.configuration, value);
        let is_on = |configuration: u32| configuration & cc::EN != 0;
        if is_on(was) && !is_on(value) {
            self.reset();
        }
        // If it is enabled before the host has seen that it is off, it may not have been.
        self.resets = (!is_on(value)).then_some(site);
        if !is_on(was) && is_on(value) {
            let wide = |low: usize| u64::from(self.admin[low]) | u64::from(self.admin[low + 1]) << 32;
            let (sq, cq) = ((self.admin[0] & 0xfff) + 1, (self.admin[0] >> 16 & 0xfff) + 1);
            let (base, completions) = (wide(1), wide(3));
            let queue = Submissions { base, depth: sq, head: 0, tail: 0, completions: 0 };
            self.submissions.insert(0, queue);
            let interrupt = (self.config.interrupts > 0).then_some(0);
            let ring = Completions { base: completions, depth: cq, tail: 0, head: 0, phase: true, interrupt };
            self.completions.insert(0, ring);
            self.status = csts::RDY;
        }
        if value & cc::SHN_NORMAL != 0 {
            self.status |= csts::SHST_COMPLETE;
        }
    }

    /// Of each command that is in flight any part is done.
    fn reset(&mut self) {
        self.fetch();
        for running in std::mem::take(&mut self.running).into_iter().filter(|running| running.nth.is_some()) {
            match self.draw(3) {
                0 => {}
                1 => _ = self.execute(&running),
                _ => self.execute_in_part(&running),
            }
        }
        self.submissions.clear();
        self.completions.clear();
        self.told.clear();
        self.interrupts.clear();
        self.status = 0;
    }

    fn fatal(&mut self) {
        self.status = csts::CFS;
    }

    pub fn is_dead(&self) -> bool {
        self.status & csts::CFS != 0
    }

    fn ring(&mut self, site: Site, at: u32, value: u32) -> Result<()> {
        let place = (at - register::DOORBELLS) / (4 << self.config.doorbell_shift);
        let (queue, is_completion) = ((place / 2) as u16, place % 2 == 1);
        if self.status & csts::RDY == 0 {
            return Ok(());
        }
        if is_completion {
            self.counts.cq_doorbells += 1;
            match self.completions.get_mut(&queue) {
                Some(ring) if value < ring.depth => ring.head = value,
                _ => self.reports.push(format!("the doorbell of completion queue {queue} was rung with {value}")),
            }
            return Ok(());
        }
        self.counts.sq_doorbells += 1;
        let Some(ring) = self.submissions.get_mut(&queue).filter(|ring| value < ring.depth) else {
            self.reports.push(format!("the doorbell of submission queue {queue} was rung with {value}"));
            return Ok(());
        };
        let (mut at, depth, base) = (ring.tail, ring.depth, ring.base);
        ring.tail = value;
        // From now on the device may have done all of it.
        let mut commands = Vec::new();
        while at != value {
            self.numbers += 1;
            let number = self.numbers;
            let cached = self.came;
            let mut hash = 0;
            if queue > 0
                && let Some(command) = self.entry(base, at, true)
                && let Some(bytes) = self.bytes_of_write(&command)
            {
                hash = twox_hash::XxHash3_64::oneshot(&bytes);
                let offset = command.start() * u64::from(self.config.lba_bytes);
                commands.push(super::Rung { command: number, offset, bytes: bytes.into() });
            }
            self.told.insert((queue, at), Told { number, hash, cached, at_ns: self.clock_ns });
            at = (at + 1) % depth;
        }
        if !commands.is_empty() {
            self.medium.rung(site, &commands);
        }
        Ok(())
    }

    /// The entry in a slot: as the device sees it, or as the host has stored it.
    fn entry(&mut self, base: u64, slot: u32, as_stored: bool) -> Option<Command> {
        let address = base + u64::from(slot) * Command::BYTES as u64;
        let mut bytes = [0; Command::BYTES];
        let region = u64::from(self.region_address[0] & !0xfff) | u64::from(self.region_address[1]) << 32;
        let is_mapped = self.region_address[0] & pmr::CMSE != 0 && self.region_control & pmr::EN != 0;
        if address >= REGION_ADDRESS {
            let at = address.checked_sub(region)? as usize;
            if !is_mapped || at + bytes.len() > self.arrived.len() {
                return None;
            }
            match as_stored {
                true => self.region_read_stored(at as u64, &mut bytes),
                false => bytes.copy_from_slice(&self.arrived[at..at + Command::BYTES]),
            }
        } else if !self.memories.read(address, &mut bytes) {
            return None;
        }
        Some(Command::read_from_bytes(&bytes).expect("as many bytes"))
    }

    /// Takes entries out of all rings.
    fn fetch(&mut self) {
        let queues: Vec<u16> = self.submissions.keys().copied().collect();
        for queue in queues {
            loop {
                let ring = &self.submissions[&queue];
                let (base, head) = (ring.base, ring.head);
                if head == ring.tail || self.is_dead() {
                    break;
                }
                let Some(command) = self.entry(base, head, false) else {
                    self.fatal();
                    break;
                };
                let is_in_region = base >= REGION_ADDRESS;
                *(if is_in_region {
                    &mut self.counts.fetched_from_region
                } else {
                    &mut self.counts.fetched_from_memory
                }) += 1;
                let ring = self.submissions.get_mut(&queue).expect("it is there");
                ring.head = (head + 1) % ring.depth;
                let sq_head = ring.head;
                let told = self.told.remove(&(queue, head)).expect("a doorbell told of it");
                let nth = (queue > 0).then_some(self.fetched);
                self.fetched += u64::from(queue > 0);
                let Told { number, cached, at_ns, hash } = told;
                let due_ns = self.due(queue, &command, at_ns);
                self.running.push(Running { number, queue, command, nth, due_ns, sq_head, cached, hash });
            }
        }
    }

    /// When a command completes whose doorbell was rung then.
    fn due(&mut self, queue: u16, command: &Command, at_ns: u64) -> u64 {
        let Some(profile) = self.config.profile.filter(|_| queue > 0) else { return self.clock_ns };
        let bytes = match command.opcode {
            crate::spec::io::FLUSH => 0,
            _ => u64::from(command.count()) * u64::from(self.config.lba_bytes),
        };
        self.served_ns = self.served_ns.max(at_ns) + profile.service_ns(bytes);
        self.served_ns.max(at_ns + profile.latency_ns)
    }

    pub fn pause(&mut self, interrupt: u16, until: Duration) -> Result<()> {
        let until_ns = until.as_nanos() as u64;
        self.some_arrive();
        self.fetch();
        if self.interrupts.remove(&interrupt) {
            return Ok(());
        }
        let is_idle = until_ns > self.clock_ns;
        if self.config.profile.is_some() {
            self.pass_time(interrupt, until_ns, is_idle);
            return Ok(());
        }
        // How much the device gets done until the host looks again.
        let mut done = 0;
        while let Some(at) = self.next(until_ns) {
            if !is_idle && self.draw(2) == 0 {
                break;
            }
            let running = self.running.swap_remove(at);
            self.complete(running);
            done += 1;
            let is_heard = self.interrupts.contains(&interrupt) || self.config.interrupts == 0;
            if is_heard && self.draw(2) == 0 {
                break;
            }
            self.some_arrive();
            self.fetch();
        }
        if !self.interrupts.remove(&interrupt) && (done == 0 || self.config.interrupts > 0) {
            self.clock_ns = self.clock_ns.max(until_ns);
        }
        Ok(())
    }

    /// By the times of a profile: what is due completes. If the host waits and has not heard of anything yet, time goes
    /// on to what is due next, and the interrupt takes the processor's time; one interrupt may tell of several.
    fn pass_time(&mut self, interrupt: u16, until_ns: u64, is_idle: bool) {
        loop {
            let mut is_heard = self.config.interrupts > 0 && self.interrupts.remove(&interrupt);
            while let Some(at) = self.next(self.clock_ns) {
                let running = self.running.swap_remove(at);
                self.complete(running);
                is_heard |= self.config.interrupts == 0 || self.interrupts.remove(&interrupt);
            }
            if !is_idle {
                return;
            }
            if is_heard {
                return self.takes(|profile| profile.interrupt_ns);
            }
            let due = self.running.iter().map(|running| running.due_ns).min().filter(|due| *due <= until_ns);
            let Some(due) = due.filter(|_| !self.is_held && !self.is_dead()) else {
                self.clock_ns = self.clock_ns.max(until_ns);
                return;
            };
            if self.next(due).is_none() {
                // What is due next is stuck.
                self.clock_ns = self.clock_ns.max(until_ns);
                return;
            }
            self.clock_ns = self.clock_ns.max(due);
        }
    }

    /// The command that completes next: by its time, else any.
    fn next(&mut self, until_ns: u64) -> Option<usize> {
        if self.is_held || self.is_dead() {
            return None;
        }
        let is_stuck = |running: &Running| running.nth.is_some() && running.nth == self.faults.stuck;
        let ready: Vec<usize> = (0..self.running.len()).filter(|at| !is_stuck(&self.running[*at])).collect();
        if self.config.profile.is_some() {
            let first = ready.into_iter().min_by_key(|at| self.running[*at].due_ns)?;
            return (self.running[first].due_ns <= until_ns.max(self.clock_ns)).then_some(first);
        }
        match ready.len() as u64 {
            0 => None,
            many => Some(ready[self.draw(many) as usize]),
        }
    }

    fn complete(&mut self, running: Running) {
        if running.nth.is_some() && running.nth == self.faults.fatal {
            return self.fatal();
        }
        let (status, result) = self.execute(&running);
        let Running { queue, command, sq_head, .. } = running;
        let Some(submissions) = self.submissions.get(&queue) else { return };
        let number = submissions.completions;
        let Some(ring) = self.completions.get_mut(&number) else { return };
        if (ring.tail + 1) % ring.depth == ring.head {
            self.reports.push(format!("completion queue {number} is full"));
            return self.fatal();
        }
        let completion = Completion {
            result: result.into(),
            reserved: 0.into(),
            sq_head: (sq_head as u16).into(),
            sq: queue.into(),
            id: command.id,
            status: (status.0 << 1 | u16::from(ring.phase)).into(),
        };
        let address = ring.base + u64::from(ring.tail) * Completion::BYTES as u64;
        ring.tail += 1;
        if ring.tail == ring.depth {
            (ring.tail, ring.phase) = (0, !ring.phase);
        }
        let interrupt = ring.interrupt;
        if !self.memories.write(address, completion.as_bytes()) {
            self.reports.push(format!("completion queue {number} is in no memory"));
            return self.fatal();
        }
        self.counts.completions += 1;
        if let Some(interrupt) = interrupt
            && (running.nth.is_none() || running.nth != self.faults.silent)
        {
            self.counts.interrupts += 1;
            self.interrupts.insert(interrupt);
        }
    }

    pub fn region_read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.takes(|profile| profile.read_ns);
        if self.region_control & pmr::EN == 0 {
            bytes.fill(0);
            return Ok(());
        }
        self.medium.region_read(offset, bytes)?;
        self.region_read_stored(offset, bytes);
        Ok(())
    }

    /// What the host has stored, whether or not it has arrived.
    fn region_read_stored(&self, offset: u64, bytes: &mut [u8]) {
        let end = offset + bytes.len() as u64;
        bytes.copy_from_slice(&self.arrived[offset as usize..end as usize]);
        for (_, at, stored) in &self.combining {
            for (at, byte) in (*at..).zip(stored).filter(|(at, _)| (offset..end).contains(at)) {
                bytes[(at - offset) as usize] = *byte;
            }
        }
    }

    pub fn region_store(&mut self, thread: u64, site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.takes(|profile| profile.posted_ns * bytes.len().div_ceil(64) as u64);
        self.counts.region_runs += u64::from(self.last_store != Some(offset));
        self.counts.region_bytes += bytes.len() as u64;
        self.last_store = Some(offset + bytes.len() as u64);
        if self.region_control & pmr::EN == 0 || self.faults.region == 2 {
            return Ok(());
        }
        // Words arrive one by one.
        let mut at = offset;
        while at < offset + bytes.len() as u64 {
            let end = (at / WORD + 1) * WORD;
            let end = end.min(offset + bytes.len() as u64);
            self.combining.push((thread, at, bytes[(at - offset) as usize..(end - offset) as usize].into()));
            at = end;
        }
        self.medium.region_store(site, offset, bytes)
    }

    pub fn region_order(&mut self, thread: u64, site: Site) {
        self.counts.orders += 1;
        self.last_store = None;
        let (own, others) = std::mem::take(&mut self.combining).into_iter().partition(|(by, ..)| *by == thread);
        self.combining = others;
        self.arrive(own);
        self.medium.region_order(site);
    }

    fn arrive(&mut self, stores: Combining) {
        for (_, offset, bytes) in stores {
            self.arrived[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Buffers of the processor are written back whenever it likes.
    fn some_arrive(&mut self) {
        for stored in std::mem::take(&mut self.combining) {
            match self.draw(2) {
                0 => self.combining.push(stored),
                _ => self.arrive(vec![stored]),
            }
        }
    }

    pub fn region_barrier(&mut self, site: Site, by: ReadBarrier) -> Result<Option<PmrStatus>> {
        self.counts.barriers += 1;
        self.takes(|profile| profile.read_ns);
        let is_one = match by {
            ReadBarrier::OfRegion => self.config.barriers & 1 != 0,
            ReadBarrier::OfStatus => self.config.barriers & 2 != 0,
        };
        match is_one {
            true => self.medium.region_barrier(site),
            false => self.reports.push(format!("a read that is no barrier for this region: {by:?}")),
        }
        Ok((by == ReadBarrier::OfStatus).then(|| self.region_status()))
    }
}

/// A status, and the result of the command.
pub(super) type Ended = (Status, u32);
