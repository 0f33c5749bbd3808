//! What commands do.

use wholly_blocks::BLOCK;

use super::device::{Cached, Completions, Device, Ended, Running, Submissions};
use crate::spec::{Command, IDENTIFY_BYTES, Status, admin, io};

/// Addresses in a page of a list.
const LISTED: usize = BLOCK / 8;

impl Device {
    pub(super) fn execute(&mut self, running: &Running) -> Ended {
        let command = &running.command;
        match running.queue {
            0 => self.execute_admin(command),
            _ => (self.execute_io(running), 0),
        }
    }

    fn execute_admin(&mut self, command: &Command) -> Ended {
        let (low, high) = (command.dword10.get() as u16, command.dword10.get() >> 16);
        let can_be = (1..=self.config.queues).contains(&low);
        let (depth, address) = (high + 1, command.prp1.get());
        let flags = command.dword11.get();
        let status = match command.opcode {
            admin::IDENTIFY => return (self.identify(command), 0),
            admin::SET_FEATURES if low as u32 == admin::FEATURE_QUEUES => {
                let granted = u32::from(self.config.queues - 1);
                return (Status::SUCCESS, granted | granted << 16);
            }
            admin::CREATE_CQ if !can_be || self.completions.contains_key(&low) => Status::INVALID_QUEUE,
            admin::CREATE_SQ if !self.completions.contains_key(&((flags >> 16) as u16)) || flags >> 16 == 0 => {
                Status::INVALID_CQ
            }
            admin::CREATE_SQ if !can_be || self.submissions.contains_key(&low) => Status::INVALID_QUEUE,
            admin::CREATE_CQ | admin::CREATE_SQ if depth < 2 || depth > self.config.most_entries => {
                Status::INVALID_QUEUE_SIZE
            }
            admin::CREATE_CQ | admin::CREATE_SQ if flags & 1 == 0 || !address.is_multiple_of(BLOCK as u64) => {
                Status::INVALID_FIELD
            }
            admin::CREATE_CQ => {
                let vector = (flags >> 16) as u16;
                let has_interrupt = flags & 2 != 0;
                match self.config.interrupts {
                    0 if vector != 0 => Status::INVALID_VECTOR,
                    interrupts if interrupts > 0 && vector >= interrupts => Status::INVALID_VECTOR,
                    interrupts => {
                        let interrupt = (has_interrupt && interrupts > 0).then_some(vector);
                        let ring = Completions { base: address, depth, tail: 0, head: 0, phase: true, interrupt };
                        self.completions.insert(low, ring);
                        Status::SUCCESS
                    }
                }
            }
            admin::CREATE_SQ => {
                let completions = (flags >> 16) as u16;
                let ring = Submissions { base: address, depth, head: 0, tail: 0, completions };
                self.submissions.insert(low, ring);
                Status::SUCCESS
            }
            admin::DELETE_SQ if low > 0 && self.submissions.remove(&low).is_some() => Status::SUCCESS,
            admin::DELETE_CQ if self.submissions.values().any(|ring| low > 0 && ring.completions == low) => {
                Status::INVALID_DELETION
            }
            admin::DELETE_CQ if low > 0 && self.completions.remove(&low).is_some() => Status::SUCCESS,
            admin::DELETE_SQ => Status::INVALID_QUEUE,
            admin::DELETE_CQ => Status::INVALID_CQ,
            admin::SET_FEATURES => Status::INVALID_FIELD,
            _ => Status::INVALID_OPCODE,
        };
        (status, 0)
    }

    fn identify(&mut self, command: &Command) -> Status {
        let mut bytes = [0u8; IDENTIFY_BYTES];
        let mut text = |at: usize, len: usize, text: &str| {
            bytes[at..at + len].fill(b' ');
            bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        match (command.dword10.get() & 0xff, command.namespace.get()) {
            (1, _) => {
                text(4, 20, "model");
                text(24, 40, "Wholly NVMe model");
                text(64, 8, "1.0");
                bytes[77] = self.config.most_pages_log2;
                (bytes[512], bytes[513], bytes[516]) = (0x66, 0x44, 1);
                bytes[525] = if self.config.has_write_cache { 7 } else { 6 };
            }
            (0, 1) => {
                let size = self.medium.len() / u64::from(self.config.lba_bytes);
                for at in [0, 8, 16] {
                    bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
                }
                bytes[99] = u8::from(self.config.is_read_only);
                bytes[128..130].copy_from_slice(&self.config.metadata.to_le_bytes());
                bytes[130] = self.config.lba_bytes.ilog2() as u8;
            }
            // A namespace that could be there, and is not.
            (0, 2..=256) => {}
            (0, _) => return Status::INVALID_NAMESPACE,
            _ => return Status::INVALID_FIELD,
        }
        match self.memories.write(command.prp1.get(), &bytes) {
            true => Status::SUCCESS,
            false => self.unmapped(command.prp1.get()),
        }
    }

    fn unmapped(&mut self, address: u64) -> Status {
        self.reports.push(format!("a transfer at {address:#x}, where the host has no memory"));
        Status::INVALID_FIELD
    }

    /// The addresses of a transfer of so many bytes, page by page; none for a list that is none.
    fn pages(&self, command: &Command, bytes: usize) -> Option<Vec<u64>> {
        let count = bytes.div_ceil(BLOCK);
        let mut pages = vec![command.prp1.get()];
        if count == 2 {
            pages.push(command.prp2.get());
        }
        let mut list = command.prp2.get();
        while count > 2 && pages.len() < count {
            let mut addresses = [0; BLOCK];
            if !self.memories.read(list, &mut addresses) {
                return None;
            }
            let left = count - pages.len();
            let address = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| addresses[8 * i + byte]));
            let here = if left <= LISTED { left } else { LISTED - 1 };
            pages.extend((0..here).map(address));
            list = address(LISTED - 1);
        }
        pages.iter().all(|page| page.is_multiple_of(BLOCK as u64)).then_some(pages)
    }

    fn gather(&self, command: &Command, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        let pages = self.pages(command, len)?;
        let is_whole = bytes.chunks_mut(BLOCK).zip(&pages).all(|(part, page)| self.memories.read(*page, part));
        is_whole.then_some(bytes)
    }

    fn scatter(&self, command: &Command, bytes: &[u8]) -> bool {
        let Some(pages) = self.pages(command, bytes.len()) else { return false };
        bytes.chunks(BLOCK).zip(&pages).all(|(part, page)| self.memories.write(*page, part))
    }

    /// What is wrong with the fields of a read or a write.
    fn fault(&self, command: &Command) -> Option<Status> {
        let (start, count) = (command.start(), u64::from(command.count()));
        let size = self.medium.len() / u64::from(self.config.lba_bytes);
        let most = match self.config.most_pages_log2 {
            0 => u64::MAX,
            log2 => (BLOCK as u64) << log2,
        };
        if count * u64::from(self.config.lba_bytes) > most {
            return Some(Status::INVALID_FIELD);
        }
        start.checked_add(count).is_none_or(|end| end > size).then_some(Status::LBA_OUT_OF_RANGE)
    }

    /// The bytes that a write would write, if it is one that can be done.
    pub(super) fn bytes_of_write(&self, command: &Command) -> Option<Vec<u8>> {
        let is_write = command.opcode == io::WRITE && command.namespace.get() == 1 && !self.config.is_read_only;
        if !is_write || self.fault(command).is_some() {
            return None;
        }
        self.gather(command, command.count() as usize * self.config.lba_bytes as usize)
    }

    fn execute_io(&mut self, running: &Running) -> Status {
        let command = &running.command;
        let is_it = |fault: Option<u64>| fault.is_some() && fault == running.nth;
        if let Some((nth, status)) = self.faults.fail
            && is_it(Some(nth))
        {
            return status;
        }
        match command.namespace.get() {
            1 => {}
            2..=256 => return Status::INVALID_FIELD,
            _ => return Status::INVALID_NAMESPACE,
        }
        let len = command.count() as usize * self.config.lba_bytes as usize;
        match command.opcode {
            io::FLUSH => {
                self.counts.flushes += 1;
                self.flush(running.cached)
            }
            io::READ | io::WRITE => {
                if let Some(status) = self.fault(command) {
                    return status;
                }
                self.counts.block_ios += 1;
                self.counts.blocks += u64::from(command.count());
                match command.opcode {
                    io::READ => self.read(command, len),
                    _ if self.config.is_read_only => Status::READ_ONLY,
                    _ => {
                        let Some(bytes) = self.gather(command, len) else { return self.unmapped(command.prp1.get()) };
                        if hash(&bytes) != running.hash {
                            let id = command.id;
                            self.reports.push(format!("a page of command {id} changed while it was in flight"));
                        }
                        let half = bytes.len() / 2 / 512 * 512;
                        let is_torn = is_it(self.faults.torn);
                        let bytes = if is_torn { &bytes[..half] } else { &bytes };
                        let status = self.write(running.number, command, bytes);
                        if is_torn { Status::WRITE_FAULT } else { status }
                    }
                }
            }
            _ => Status::INVALID_OPCODE,
        }
    }

    /// Some blocks of a write, as a reset may leave it.
    pub(super) fn execute_in_part(&mut self, running: &Running) {
        let Some(bytes) = self.bytes_of_write(&running.command) else { return };
        let unit = self.config.lba_bytes as usize;
        for (at, part) in (0..).zip(bytes.chunks(unit)) {
            if self.draw(2) == 0 {
                let command = &running.command;
                let block = Command::transfer(io::WRITE, command.namespace.get(), command.start() + at, 1);
                let block = if command.is_forced() { block.forced() } else { block };
                self.write(running.number, &block, part);
            }
        }
    }

    fn read(&mut self, command: &Command, len: usize) -> Status {
        let unit = self.config.lba_bytes as usize;
        let mut bytes = vec![0; len];
        if self.medium.read(command.start() * unit as u64, &mut bytes).is_err() {
            return Status::READ_FAULT;
        }
        for (lba, part) in (command.start()..).zip(bytes.chunks_mut(unit)) {
            if let Some(cached) = self.cache.get(&lba) {
                part.copy_from_slice(&cached.bytes[..part.len()]);
            }
        }
        match self.scatter(command, &bytes) {
            true => Status::SUCCESS,
            false => self.unmapped(command.prp1.get()),
        }
    }

    fn write(&mut self, number: u64, command: &Command, bytes: &[u8]) -> Status {
        let unit = self.config.lba_bytes as usize;
        if self.config.has_write_cache && !command.is_forced() {
            for (lba, part) in (command.start()..).zip(bytes.chunks(unit)) {
                self.came += 1;
                let since = self.cache.get(&lba).map_or(self.came, |cached| cached.since);
                let mut block = vec![0; unit].into_boxed_slice();
                block[..part.len()].copy_from_slice(part);
                self.cache.insert(lba, Cached { bytes: block, command: number, since });
            }
            return Status::SUCCESS;
        }
        (command.start()..command.start() + u64::from(command.count())).for_each(|lba| _ = self.cache.remove(&lba));
        match self.medium.write(number, command.start() * unit as u64, bytes) {
            Ok(()) => Status::SUCCESS,
            Err(_) => Status::WRITE_FAULT,
        }
    }

    /// Writes back what had come into the cache by then.
    fn flush(&mut self, came: u64) -> Status {
        let unit = u64::from(self.config.lba_bytes);
        let covered: Vec<u64> =
            self.cache.iter().filter(|(_, cached)| cached.since <= came).map(|(lba, _)| *lba).collect();
        for lba in covered {
            let cached = self.cache.remove(&lba).expect("it is there");
            if self.medium.write(cached.command, lba * unit, &cached.bytes).is_err() {
                return Status::WRITE_FAULT;
            }
        }
        self.medium.flushed();
        Status::SUCCESS
    }
}

fn hash(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}
