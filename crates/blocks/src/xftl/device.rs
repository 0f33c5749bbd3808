//! The commands of the device.

use std::sync::Arc;

use rustix::io::Errno;
use sync::{Mutex, MutexGuard};
use wholly_error::{Error, Result};
use wholly_media::Site;

use super::flash::{Flash, Geometry, Ppn, Read};
use super::layout::{Fault, Kind, Lost, Programs, Spare};
use super::map::{Home, Map};
use super::profile::{Clock, Config};
use super::recover::Damage;
use super::site;
use super::space::{Budget, Owner, Space};
use super::xl2p::{Buffer, Held, Place, Runs, Transactions, Version, Writer, pages_of};
use crate::{BLOCK, Counters, DeviceGuarantees, Lba, Page, Placement, Run, Tag, TxDevice, Txid};

/// Mistakes that the tests must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A table page is programmed where it was.
    TableInPlace,
    /// Blocks are erased before the root that no longer names what they hold.
    EraseBeforeRoot,
    /// A block is erased if the maps of the last root name nothing in it, although a chain after it does.
    ChainForgotten,
    /// The map is changed before the chain is durable.
    MapBeforeChain,
    /// The chain is programmed before what it names is on flash.
    ChainBeforeData,
    /// An open serves without having raised the incarnation.
    IncarnationKept,
    /// The numbers of transactions begin anew in each life.
    NumbersAgain,
    /// Several transactions are committed one by one.
    OneByOne,
    /// An abort stores the old versions anew.
    AbortPrograms,
    /// Recovery adopts what transactions had written, as if it had been written plainly.
    RunningAdopted,
    /// A chain is believed as far as it is there.
    HalfChain,
    /// Collection takes pages of running transactions for invalid.
    RunningIsGarbage,
    /// Collection moves a page of a transaction and leaves the table of the transaction as it was.
    TableOfTransaction,
    /// Recovery applies chains first, then plain writes.
    PlainLast,
    /// In one commit, the first version of a page counts, not the last.
    FirstCounts,
    /// A read serves what it finds.
    ReadsAnything,
    /// Looking raises the incarnation.
    LookRaises,
    /// Collection makes zeros of a page that has rotted.
    LostIsZeros,
}

/// What tests change of the device. No other value than the default serves a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// A mistake.
    pub mistake: Option<Mistake>,
}

/// A flash disk with X-FTL, opened. See the [module](super).
pub struct Device {
    guarantees: DeviceGuarantees,
    ftl: Mutex<Ftl>,
    only_reads: bool,
}

/// All that the device knows.
pub(super) struct Ftl {
    pub flash: Arc<dyn Flash>,
    pub geometry: Geometry,
    pub config: Config,
    pub budget: Budget,
    pub id: [u8; 16],
    pub trial: Trial,
    pub incarnation: u32,
    /// The last that a program has.
    pub sequence: u64,
    /// Programs up to this one are on flash.
    pub durable: u64,
    /// Something was programmed or erased since the last wait.
    pub in_flight: bool,
    /// The sequence of the last root on flash.
    pub root: u64,
    /// Where the next root goes.
    pub ring: (u32, u32),
    /// The last chain on flash.
    pub chains: u64,
    /// Pages of chains that are not in the map on flash.
    pub chain_pages: Vec<Ppn>,
    pub map: Map,
    pub space: Space,
    pub txs: Transactions,
    pub buffer: Buffer,
    /// What was trimmed since the last root or flush.
    pub trims: Runs,
    /// Valid content on flash, and pages in the buffer.
    pub live: u64,
    /// Pages of chains that running transactions are sure to need.
    pub promised: u64,
    pub since_root: u64,
    /// Transactions that were begun in this life.
    begun: u64,
    pub counters: Counters,
    pub programs: Programs,
    pub clock: Clock,
    pub damage: Vec<Damage>,
    /// Blocks that nothing durable names, found by the open.
    pub unnamed: Vec<u32>,
    /// What the last open has dropped, by tag. The counters have what this one drops.
    pub last_dropped: [u64; 5],
    poisoned: Option<String>,
}

impl Ftl {
    /// Before anything was found on flash.
    pub fn new(flash: Arc<dyn Flash>, config: Config, id: [u8; 16], trial: Trial) -> Ftl {
        let geometry = flash.geometry();
        Ftl {
            budget: Budget::of(&config, &geometry),
            map: Map::new(config.logical, geometry.blocks),
            space: Space::new(geometry),
            clock: Clock::new(&config, geometry.channels),
            flash,
            geometry,
            config,
            id,
            trial,
            incarnation: 0,
            sequence: 0,
            durable: 0,
            in_flight: false,
            root: 0,
            ring: (0, 0),
            chains: 0,
            chain_pages: Vec::new(),
            txs: Transactions::default(),
            buffer: Buffer::default(),
            trims: Runs::default(),
            live: 0,
            promised: 0,
            since_root: 0,
            begun: 0,
            counters: Counters::default(),
            programs: Programs::default(),
            damage: Vec::new(),
            unnamed: Vec::new(),
            last_dropped: [0; 5],
            poisoned: None,
        }
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.trial.mistake == Some(mistake)
    }

    /// The spare bytes of the next program.
    pub fn spare(&self, kind: Kind, number: u64, index: u32) -> Spare {
        Spare {
            kind,
            tag: 0,
            incarnation: self.incarnation,
            sequence: self.sequence + 1,
            number,
            index,
            erases: 0,
            durable: self.durable,
            chains: self.chains,
            root: self.root,
            origin: 0,
        }
    }

    /// Programs a page. The caller tells the clock.
    pub fn program(&mut self, site: Site, at: Ppn, page: &Page, spare: Spare) -> Result<()> {
        let erases = self.map.erases(self.geometry.block_of(at));
        self.sequence = spare.sequence;
        self.since_root += 1;
        self.in_flight = true;
        self.flash.program(site, at, page, &Spare { erases, ..spare }.encode())
    }

    /// Waits for all that was programmed and erased, if there is something.
    pub fn wait(&mut self, site: Site) -> Result<()> {
        if self.in_flight {
            self.flash.wait(site)?;
            self.clock.wait();
            self.in_flight = false;
            self.durable = self.sequence;
        }
        Ok(())
    }

    pub fn channel(&self, at: Ppn) -> usize {
        self.geometry.channel_of(self.geometry.block_of(at))
    }

    /// Pages of chains for which there is to be room between two checkpoints: those that running transactions are sure
    /// to need, and one for what was trimmed, or those that are there.
    pub fn chain_room(&self, more: u64) -> u64 {
        self.budget.chain.max(self.promised + more + 1).max(self.chain_pages.len() as u64)
    }

    /// Data blocks that there may be now.
    pub fn data_blocks(&self) -> u32 {
        self.budget.data_blocks(&self.geometry, self.chain_room(0))
    }

    /// Whether there is room for so many pages more of content, with so many pages of chains.
    fn has_room(&self, pages: u64, chain: u64) -> bool {
        self.live + self.space.stuck_pages() + pages <= self.budget.room(&self.geometry, self.chain_room(chain))
    }

    /// Refuses if there is not. Pages of the buffer that were written plainly, and are to replace others, give room; so
    /// do chains that are in the map by now.
    fn find_room(&mut self, pages: u64, chain: u64) -> Result<()> {
        if !self.has_room(pages, chain) {
            self.program_all_held(|of| of == Writer::Plain)?;
            if self.chain_pages.len() as u64 > self.budget.chain {
                self.checkpoint()?;
            }
        }
        if self.has_room(pages, chain) { Ok(()) } else { Err(self.no_space()) }
    }

    /// A logical page's content is not where it was.
    fn forget(&mut self, at: Ppn) {
        self.space.set_owner(at, Owner::Nobody);
        self.live -= 1;
    }

    /// Changes the map.
    pub fn set_home(&mut self, lpn: u32, at: Option<Ppn>) {
        if let Some(at) = at {
            self.space.set_owner(at, Owner::Map(lpn));
        }
        if let Some(old) = self.map.set(lpn, at).filter(|old| Some(*old) != at) {
            self.forget(old);
        }
    }

    /// A logical page has no committed version any more, in memory.
    fn give_up(&mut self, lpn: u32) {
        if let Some(number) = self.buffer.plain(lpn) {
            self.buffer.take(number);
            self.live -= 1;
        }
        if self.map.get(lpn) != Home::Zeros {
            self.set_home(lpn, None);
        }
    }

    /// Takes a page out of the buffer and programs it.
    pub fn program_held(&mut self, number: u64) -> Result<()> {
        let at = self.place_of_data()?;
        let held = self.buffer.take(number);
        let Held { of, lpn, page, tag } = held;
        let (kind, tx, site) = match of {
            Writer::Plain => (Kind::Plain, 0, site::PLAIN),
            Writer::Tx(slot) => (Kind::Written, self.txs.at(slot).tx, site::WRITE),
        };
        let tag = Tag::ALL.iter().position(|each| *each == tag).unwrap_or(0) as u8;
        let spare = Spare { tag, ..self.spare(kind, tx, lpn) };
        self.program(site, at, &page, spare)?;
        let channel = self.channel(at);
        self.clock.program_held(channel);
        match of {
            Writer::Plain => {
                self.programs.plain += 1;
                self.set_home(lpn, Some(at));
            }
            Writer::Tx(slot) => {
                self.programs.data += 1;
                self.space.set_owner(at, Owner::Running(slot, lpn));
                self.txs.at_mut(slot).pages.insert(lpn, Place::At(at));
            }
        }
        Ok(())
    }

    /// Programs what these have in the buffer.
    pub fn program_all_held(&mut self, is: impl Fn(Writer) -> bool) -> Result<()> {
        self.buffer.of(is).into_iter().try_for_each(|number| self.program_held(number))
    }

    /// Makes the buffer as small as it may be.
    fn drain_buffer(&mut self) -> Result<()> {
        while self.buffer.len() > self.config.buffer as usize {
            let oldest = self.buffer.oldest().expect("it is not empty");
            self.program_held(oldest)?;
        }
        Ok(())
    }

    /// Drops a version that a running transaction has.
    fn drop_version(&mut self, place: Place) {
        match place {
            Place::At(at) => self.forget(at),
            Place::Held(number) => {
                self.buffer.take(number);
                self.live -= 1;
            }
        }
    }

    /// Counts again what the chain of a transaction needs, which needed `before`.
    fn promise(&mut self, slot: u32, before: u64) {
        self.promised = self.promised + self.txs.at(slot).chain() - before;
    }

    fn slot(&self, tx: Txid) -> Result<u32> {
        self.txs.slot(tx.0).ok_or_else(|| Error::Invalid(format!("no running transaction has the number {:#x}", tx.0)))
    }

    fn page(&self, at: Lba) -> Result<u32> {
        let page = u32::try_from(at.0).ok().filter(|page| *page < self.map.logical());
        page.ok_or_else(|| Error::Invalid(format!("block {} of a flash disk of {}", at.0, self.map.logical())))
    }

    fn pages(&self, run: Run) -> Result<(u32, u32)> {
        let pages = pages_of(run, self.map.logical());
        pages.ok_or_else(|| Error::Invalid(format!("{run:?} of a flash disk of {} blocks", self.map.logical())))
    }

    pub fn no_space(&self) -> Error {
        let what = "a block on the flash disk: end transactions, or discard blocks";
        Error::NoSpace(match self.space.stuck() {
            None => what.into(),
            Some((blocks, at)) => format!(
                "{what}; what has rotted takes room: the medium does not read {}, and {blocks} erase blocks cannot be \
                 collected; {WHAT_TO_DO}",
                self.geometry.name(at)
            ),
        })
    }

    fn write(&mut self, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) -> Result<()> {
        let (slot, lpn) = (self.slot(tx)?, self.page(at)?);
        let running = self.txs.at(slot);
        let (old, before) = (running.pages.get(&lpn).copied(), running.chain());
        if old.is_none() {
            let has = running.size() - u64::from(running.zeros.contains(lpn));
            if self.config.most_pages.is_some_and(|most| has >= most) {
                let why = format!("a transaction of more than {has} blocks on this flash disk");
                return Err(Error::NoSpace(why));
            }
            // Its entry may divide a run of zeros: two more at most.
            let more = (running.entries() + 2).div_ceil(super::CHAIN_ENTRIES as u64) - before;
            // Nobody reads the committed version: its page is given up.
            let is_there = self.buffer.plain(lpn).is_some() || self.map.get(lpn) != Home::Zeros;
            let gives_up = how == Placement::Fresh && is_there;
            self.find_room(u64::from(!gives_up), more)?;
            if gives_up {
                self.give_up(lpn);
            }
        }
        match old {
            Some(Place::Held(number)) => self.buffer.replace(number, page.clone(), tag),
            _ => {
                if let Some(place) = old {
                    self.drop_version(place);
                }
                let number = self.buffer.put(Held { of: Writer::Tx(slot), lpn, page: page.clone(), tag });
                self.live += 1;
                let running = self.txs.at_mut(slot);
                running.pages.insert(lpn, Place::Held(number));
                running.zeros.remove(lpn, lpn + 1);
                self.promise(slot, before);
            }
        }
        self.counters.writes += 1;
        self.keep_within()?;
        self.drain_buffer()
    }

    fn discard(&mut self, tx: Txid, run: Run) -> Result<()> {
        let (slot, (from, to)) = (self.slot(tx)?, self.pages(run)?);
        let running = self.txs.at(slot);
        let before = running.chain();
        if let Some(most) = self.config.most_pages {
            let new = (from..to).filter(|lpn| running.version(*lpn).is_none()).count() as u64;
            if running.size() + new > most {
                return Err(Error::NoSpace(format!("a transaction of more than {most} blocks on this flash disk")));
            }
        }
        let written: Vec<(u32, Place)> = running.pages.range(from..to).map(|(lpn, place)| (*lpn, *place)).collect();
        if written.is_empty() {
            let more = (running.entries() + 1).div_ceil(super::CHAIN_ENTRIES as u64) - before;
            self.find_room(0, more)?;
        }
        for (lpn, place) in written {
            self.txs.at_mut(slot).pages.remove(&lpn);
            self.drop_version(place);
        }
        self.txs.at_mut(slot).zeros.insert(from, to);
        self.promise(slot, before);
        self.counters.discards += run.count;
        self.keep_within()
    }

    /// Ends a transaction; what it has written is dropped, or was given to the map.
    pub fn end(&mut self, slot: u32) {
        self.promised -= self.txs.at(slot).chain();
        self.txs.end(slot);
    }

    fn abort(&mut self, tx: Txid) -> Result<()> {
        let slot = self.slot(tx)?;
        let places: Vec<(u32, Place)> = self.txs.at(slot).pages.iter().map(|(lpn, place)| (*lpn, *place)).collect();
        for (lpn, place) in places {
            self.drop_version(place);
            if self.makes(Mistake::AbortPrograms)
                && let Home::At(home) = self.map.get(lpn)
                && let Read::Programmed(_, page) = self.flash.read(home)?
            {
                let held = Held { of: Writer::Plain, lpn, page, tag: Tag::Data };
                let number = self.buffer.put(held);
                self.live += 1;
                self.program_held(number)?;
            }
        }
        self.end(slot);
        self.counters.aborts += 1;
        Ok(())
    }

    fn read(&mut self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        let lpn = self.page(at)?;
        let own = match tx {
            Some(tx) => self.txs.at(self.slot(tx)?).version(lpn),
            None => None,
        };
        let at = match own {
            Some(Version::Zeros) => None,
            Some(Version::Page(Place::Held(number))) => {
                bytes.copy_from_slice(&self.buffer.get(number)[..]);
                self.counters.reads += 1;
                return Ok(());
            }
            Some(Version::Page(Place::At(at))) => Some(at),
            None => match (self.buffer.plain(lpn), self.map.get(lpn)) {
                (Some(number), _) => {
                    bytes.copy_from_slice(&self.buffer.get(number)[..]);
                    self.counters.reads += 1;
                    return Ok(());
                }
                (None, Home::Zeros) => None,
                (None, Home::At(at)) => Some(at),
                (None, Home::Lost(table)) => {
                    let place = format!("logical page {lpn} of the flash disk");
                    let where_it_was = match self.map.table_at(table as usize) {
                        Some(at) => self.geometry.name(at),
                        None => format!("its directory page is {}", self.geometry.name(self.map.directory_of(table))),
                    };
                    let fault =
                        format!("table page {table}, which tells where it is, is lost: {where_it_was}; {WHAT_TO_DO}");
                    return Err(Error::corrupt(place, fault));
                }
            },
        };
        if let Some(damage) = self.damage.iter().find(|damage| damage.hides(lpn)) {
            return Err(Error::corrupt(format!("logical page {lpn} of the flash disk"), damage.to_string()));
        }
        match at {
            None => bytes.fill(0),
            Some(at) => {
                let page = self.content(lpn, at)?;
                bytes.copy_from_slice(&page[..]);
                let channel = self.channel(at);
                self.clock.read(channel);
            }
        }
        self.counters.reads += 1;
        Ok(())
    }

    /// The content of a logical page, which is to be there.
    ///
    /// # Errors
    /// `Corrupt` if something else is.
    pub fn content(&self, lpn: u32, at: Ppn) -> Result<Page> {
        let fault = match self.flash.read(at)? {
            Read::Programmed(spare, page) => match Spare::decode(&spare) {
                _ if self.makes(Mistake::ReadsAnything) => return Ok(page),
                Some(spare) if spare.is_content() && spare.index == lpn => return Ok(page),
                Some(spare) if spare.kind == Kind::Lost && spare.index == lpn => {
                    let Lost { at, fault } = Lost::decode(&page);
                    format!("it was lost in {}: when that was to be collected, {fault}", self.geometry.name(at))
                }
                Some(spare) => format!("it holds logical page {} instead", spare.index),
                None => "its spare bytes say nothing".into(),
            },
            Read::Erased => Fault::Erased.to_string(),
            Read::Damaged(_) => Fault::Damaged.to_string(),
            Read::Unreadable => Fault::Unreadable.to_string(),
        };
        let place = format!("logical page {lpn} of the flash disk, {}", self.geometry.name(at));
        Err(Error::corrupt(place, format!("{fault}; write the block anew, or discard it")))
    }

    /// Refuses if a running transaction has one of these pages.
    fn check_plain(&self, from: u32, to: u32) -> Result<()> {
        match self.txs.all().find(|running| running.touches(from, to)) {
            Some(running) => {
                Err(Error::Busy(format!("block {from}"), format!("transaction {:#x} has written it", running.tx)))
            }
            None => Ok(()),
        }
    }

    fn plain_write(&mut self, at: Lba, page: &Page) -> Result<()> {
        let lpn = self.page(at)?;
        self.check_plain(lpn, lpn + 1)?;
        match self.buffer.plain(lpn) {
            Some(number) => self.buffer.replace(number, page.clone(), Tag::Data),
            None => {
                self.find_room(1, 0)?;
                self.buffer.put(Held { of: Writer::Plain, lpn, page: page.clone(), tag: Tag::Data });
                self.live += 1;
            }
        }
        self.trims.remove(lpn, lpn + 1);
        self.counters.plain_writes += 1;
        self.drain_buffer()
    }

    fn trim(&mut self, run: Run) -> Result<()> {
        let (from, to) = self.pages(run)?;
        self.check_plain(from, to)?;
        for lpn in from..to {
            self.give_up(lpn);
        }
        self.trims.insert(from, to);
        self.counters.trims += run.count;
        Ok(())
    }

    fn begin(&mut self) -> Txid {
        self.begun += 1;
        let incarnation = if self.makes(Mistake::NumbersAgain) { 0 } else { self.incarnation };
        let tx = Txid::new(incarnation.into(), self.begun);
        self.txs.begin(tx.0);
        tx
    }

    /// Makes a checkpoint if the last one is long ago.
    pub fn checkpoint_if_due(&mut self) -> Result<()> {
        if self.since_root >= u64::from(self.config.interval) { self.checkpoint() } else { Ok(()) }
    }
}

/// For those whose map is lost.
pub(super) const WHAT_TO_DO: &str =
    "copy what can be read (`wholly flash salvage`), then make it anew (`wholly flash init`)";

impl Device {
    /// Makes an empty flash disk on an erased chip. Durable on return.
    ///
    /// # Errors
    /// `Invalid`, if the chip is too small for what it is to be; the medium's.
    pub fn format(flash: &Arc<dyn Flash>, config: &Config, id: [u8; 16]) -> Result<()> {
        config.check(&flash.geometry())?;
        let mut ftl = Ftl::new(flash.clone(), *config, id, Trial::default());
        ftl.store_root()
    }

    /// Opens the flash disk on a chip: finds what is durable, drops what running transactions had written, raises the
    /// incarnation. Then everything that was found is durable.
    ///
    /// If tables or chains are damaged, the device is opened for reading only, and has changed nothing
    /// ([`damage`](Self::damage)): what is intact can be read.
    ///
    /// # Errors
    /// `Invalid` if there is no root; `Unsupported` for another version; `Corrupt` if the newest root is damaged; the
    /// medium's.
    pub fn open(flash: Arc<dyn Flash>) -> Result<Device> {
        Device::open_trial(flash, Trial::default())
    }

    /// [`open`](Self::open), with what tests change.
    ///
    /// # Errors
    /// As that.
    #[doc(hidden)]
    pub fn open_trial(flash: Arc<dyn Flash>, trial: Trial) -> Result<Device> {
        // What a process that died has written may not be on flash yet, and this life acts on what it finds.
        flash.wait(site::OPEN_WAIT)?;
        let mut ftl = Ftl::load(flash, trial)?;
        if ftl.damage.is_empty() {
            ftl.start()?;
        }
        Ok(Device::of(ftl, false))
    }

    /// Opens the flash disk on a chip to read what the next [`open`](Self::open) would find. Changes no byte, nor the
    /// incarnation; a chip that can only be read will do. Every other command is refused with `EROFS`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_read(flash: Arc<dyn Flash>) -> Result<Device> {
        Ok(Device::of(Ftl::load(flash, Trial::default())?, true))
    }

    fn of(ftl: Ftl, only_reads: bool) -> Device {
        let guarantees = DeviceGuarantees {
            blocks: ftl.map.logical().into(),
            most_pages: ftl.config.most_pages,
            sure_overwrites: ftl.budget.sure_overwrites(&ftl.config, &ftl.geometry),
            free_blocks_help: true,
            lent_by_overwrite: u64::MAX,
            zeroes_discarded: true,
            plain_unit: BLOCK as u32,
            checks_blocks: true,
            emulated: true,
            description: format!("X-FTL ({}) on {}", ftl.config.name(), ftl.flash.description()),
        };
        Device { guarantees, ftl: Mutex::new(ftl), only_reads }
    }

    fn ftl(&self) -> MutexGuard<'_, Ftl> {
        self.ftl.lock().expect("no holder of this lock panics")
    }

    /// What is damaged of tables and chains. With anything in it the device is only read.
    pub fn damage(&self) -> Vec<Damage> {
        self.ftl().damage.clone()
    }

    /// Programs by cause and erases, over all lives.
    pub fn programs(&self) -> Programs {
        self.ftl().programs
    }

    /// The time on the clock of the model since the device was opened, in ns.
    pub fn model_ns(&self) -> u64 {
        self.ftl().clock.now_ns()
    }

    /// What it is.
    pub fn config(&self) -> Config {
        self.ftl().config
    }

    /// Bytes of memory for the tables of such a device, whatever it does: the map, and who names each flash page.
    pub fn table_bytes(config: &Config, geometry: &Geometry) -> u64 {
        4 * u64::from(config.logical) + 8 * geometry.all() + 32 * u64::from(geometry.blocks)
    }

    /// Stores the map, so that the next open has nothing to apply. Pages of running transactions stay theirs.
    ///
    /// # Errors
    /// As [`flush`](TxDevice::flush).
    pub fn checkpoint(&self) -> Result<()> {
        self.with(|ftl| {
            ftl.program_all_held(|of| of == Writer::Plain)?;
            ftl.checkpoint()
        })
    }

    /// Calls on a device that has not failed. An error of the medium is its failure.
    fn with<T>(&self, call: impl FnOnce(&mut Ftl) -> Result<T>) -> Result<T> {
        let mut ftl = self.ftl();
        ftl.check_usable()?;
        if self.only_reads {
            return Err(Error::of("the flash disk was opened to be read", Errno::ROFS));
        }
        if let Some(damage) = ftl.damage.first() {
            return Err(Error::corrupt("the flash disk, which can only be read", damage.to_string()));
        }
        let done = call(&mut ftl);
        if let Err(error @ (Error::Media(_) | Error::Corrupt { .. })) = &done {
            ftl.poisoned = Some(error.to_string());
        }
        done
    }
}

impl Ftl {
    fn check_usable(&self) -> Result<()> {
        match &self.poisoned {
            Some(why) => Err(Error::Poisoned(format!("the flash disk: {why}"))),
            None => Ok(()),
        }
    }
}

impl TxDevice for Device {
    fn guarantees(&self) -> &DeviceGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        self.with(|ftl| Ok(ftl.begin()))
    }

    fn write(&self, _: Site, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) -> Result<()> {
        self.with(|ftl| ftl.write(tx, at, page, how, tag))
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        let mut ftl = self.ftl();
        ftl.check_usable()?;
        ftl.read(tx, at, bytes)
    }

    fn discard(&self, _: Site, tx: Txid, run: Run) -> Result<()> {
        self.with(|ftl| ftl.discard(tx, run))
    }

    fn abort(&self, _: Site, tx: Txid) -> Result<()> {
        self.with(|ftl| ftl.abort(tx))
    }

    fn commit(&self, _: Site, txs: &[Txid]) -> Result<()> {
        self.with(|ftl| {
            let mut slots = Vec::with_capacity(txs.len());
            for tx in txs {
                let slot = ftl.slot(*tx)?;
                if slots.contains(&slot) {
                    return Err(Error::Invalid(format!("transaction {:#x} is named twice", tx.0)));
                }
                slots.push(slot);
            }
            ftl.commit(&slots)
        })
    }

    fn plain_write(&self, _: Site, at: Lba, page: &Page) -> Result<()> {
        self.with(|ftl| ftl.plain_write(at, page))
    }

    fn flush(&self, _: Site) -> Result<()> {
        self.with(|ftl| ftl.flush())
    }

    fn trim(&self, _: Site, run: Run) -> Result<()> {
        self.with(|ftl| ftl.trim(run))
    }

    fn counters(&self) -> Counters {
        self.ftl().counters
    }
}
