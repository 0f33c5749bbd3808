//! Sizes and times of devices, and the clock of the model.

use std::collections::VecDeque;

use wholly_error::{Error, Result};

use super::flash::{Geometry, PAGE};
use super::layout::DIRECTORIES;
use super::map::{ENTRIES, counts};
use super::space::{Budget, RING};

/// How long a page or a block takes, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// To program a page.
    pub program_ns: u32,
    /// To read a page.
    pub read_ns: u32,
    /// To erase a block.
    pub erase_ns: u32,
}

/// What a device is, beside its chip. It is in every root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Logical pages.
    pub logical: u32,
    /// Erase blocks for content of logical pages. What it has more than the logical pages fill is over-provisioning.
    pub data_blocks: u32,
    /// Erase blocks that are collected before a checkpoint is made to erase them all. At least 1.
    pub reserve: u32,
    /// Erase blocks for chains between two checkpoints, beyond what running transactions are sure to need. At least 1.
    pub chain_blocks: u32,
    /// Pages of the volatile write buffer. At least 1.
    pub buffer: u32,
    /// Programs after which a checkpoint is made. It bounds what an open has to look at.
    pub interval: u32,
    /// How many pages a transaction may have; the paper's device has such a limit, as its X-L2P has one size.
    pub most_pages: Option<u64>,
    /// Times of the model.
    pub times: Times,
    /// The profile, for reports. ASCII, filled up with zeros.
    pub name: [u8; 16],
}

impl Config {
    /// The erase blocks that a chip must have for it: the ring, data, system, reserve, and one to collect into; up to a
    /// multiple of the channels.
    pub fn blocks(&self, channels: u32, pages: u32) -> u32 {
        let least = RING + self.data_blocks + 1 + self.reserve + Budget::system_blocks(self, channels, pages);
        least.next_multiple_of(channels)
    }

    /// The most logical pages that such a device can have.
    pub fn most_logical(&self, channels: u32, pages: u32) -> u64 {
        u64::from(self.data_blocks.saturating_sub(channels + 1)) * u64::from(pages)
    }

    /// # Errors
    /// `Invalid`, if no device can have these numbers on this chip.
    pub(super) fn check(&self, geometry: &Geometry) -> Result<()> {
        let Geometry { channels, blocks, pages } = *geometry;
        let (_, directories) = counts(self.logical, blocks);
        let least = [self.reserve, self.chain_blocks, self.buffer, self.interval, self.logical];
        if !geometry.is_sound() || least.contains(&0) || directories > DIRECTORIES {
            return Err(Error::Invalid(format!("no flash disk has these sizes: {geometry:?}, {self:?}")));
        }
        if u64::from(self.logical) > self.most_logical(channels, pages) {
            let most = self.most_logical(channels, pages);
            return Err(Error::Invalid(format!("{} data blocks have room for {most} logical pages", self.data_blocks)));
        }
        let least = RING + self.data_blocks + 1 + self.reserve + Budget::of(self, geometry).system;
        if least > blocks {
            return Err(Error::Invalid(format!("the chip has {blocks} erase blocks; {least} are needed")));
        }
        Ok(())
    }

    /// The profile's name.
    pub fn name(&self) -> String {
        self.name.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
    }
}

/// A device to imitate. Its times are a model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The board of the paper: few channels, slow pages.
    OpenSsd,
    /// An SSD as sold: many channels.
    Commercial,
}

/// The most logical pages of a profile's device: a root has room for as many directories, and the tables of erases.
const MOST_LOGICAL: u64 = 400 << 20;
const _: () = assert!(MOST_LOGICAL < (ENTRIES * ENTRIES * (DIRECTORIES - 8)) as u64);

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 2] = [Profile::OpenSsd, Profile::Commercial];

    /// As users write it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::OpenSsd => "openssd",
            Profile::Commercial => "commercial",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Sizes for a device of so many bytes.
    ///
    /// # Errors
    /// `Invalid`, if no device can have that size.
    pub fn plan(self, bytes: u64) -> Result<(Geometry, Config)> {
        const PAGES: u32 = 128;
        // Of a hundred pages of data blocks so many are over-provisioned.
        let (channels, spare, buffer, times) = match self {
            Profile::OpenSsd => (2, 13, 256, Times { program_ns: 1_300_000, read_ns: 200_000, erase_ns: 2_000_000 }),
            Profile::Commercial => (16, 7, 4096, Times { program_ns: 600_000, read_ns: 60_000, erase_ns: 3_000_000 }),
        };
        let logical = bytes / PAGE as u64;
        let data_blocks = (logical * 100).div_ceil((100 - spare) * u64::from(PAGES)) + u64::from(channels) + 1;
        if logical == 0 || !bytes.is_multiple_of(PAGE as u64) || logical > MOST_LOGICAL {
            let most = MOST_LOGICAL * PAGE as u64;
            return Err(Error::Invalid(format!(
                "{bytes} bytes: a flash disk has pages of {PAGE} bytes, {most} at most"
            )));
        }
        let data_blocks = data_blocks as u32;
        let mut name = [0; 16];
        name[..self.name().len()].copy_from_slice(self.name().as_bytes());
        let config = Config {
            logical: logical as u32,
            data_blocks,
            reserve: (data_blocks / 100).clamp(2, 64),
            chain_blocks: 2,
            buffer,
            interval: 64 * PAGES * channels,
            most_pages: None,
            times,
            name,
        };
        let geometry = Geometry { channels, blocks: config.blocks(channels, PAGES), pages: PAGES };
        config.check(&geometry)?;
        Ok((geometry, config))
    }
}

/// The clock of the model. It goes on only where the host waits. No figure depends on the machine.
pub(super) struct Clock {
    times: Times,
    /// When each channel has done what it was given.
    busy_ns: Vec<u64>,
    now_ns: u64,
    /// When the pages of the buffer that are being programmed will have left it.
    leaving: VecDeque<u64>,
    buffer: usize,
}

impl Clock {
    pub fn new(config: &Config, channels: u32) -> Clock {
        let busy_ns = vec![0; channels as usize];
        Clock { times: config.times, busy_ns, now_ns: 0, leaving: VecDeque::new(), buffer: config.buffer as usize }
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn take(&mut self, channel: usize, from_ns: u64, length_ns: u32) -> u64 {
        let busy = &mut self.busy_ns[channel];
        *busy = from_ns.max(*busy) + u64::from(length_ns);
        *busy
    }

    /// A page is programmed; nobody waits.
    pub fn program(&mut self, channel: usize) -> u64 {
        self.take(channel, self.now_ns, self.times.program_ns)
    }

    /// A page of the buffer is programmed. The host waits if the buffer is full of pages that are being programmed.
    pub fn program_held(&mut self, channel: usize) {
        if self.leaving.len() >= self.buffer
            && let Some(first) = self.leaving.pop_front()
        {
            self.now_ns = self.now_ns.max(first);
        }
        let done = self.program(channel);
        self.leaving.push_back(done);
    }

    /// The host waits for a page.
    pub fn read(&mut self, channel: usize) {
        self.now_ns = self.take(channel, self.now_ns, self.times.read_ns);
    }

    /// A page is moved by the device; nobody waits.
    pub fn copy(&mut self, from: usize, to: usize) {
        let read = self.take(from, self.now_ns, self.times.read_ns);
        self.take(to, read, self.times.program_ns);
    }

    pub fn erase(&mut self, channel: usize) {
        self.take(channel, self.now_ns, self.times.erase_ns);
    }

    /// The host waits for all channels.
    pub fn wait(&mut self) {
        self.now_ns = self.busy_ns.iter().copied().fold(self.now_ns, u64::max);
        self.leaving.clear();
    }
}
