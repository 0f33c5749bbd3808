//! The checkpoint: tables, directory pages, the root; then the erases that it allows.

use wholly_error::Result;

use super::device::{Ftl, Mistake};
use super::flash::Ppn;
use super::layout::{Kind, Root};
use super::map::ENTRIES;
use super::site;
use super::space::{Owner, RING, Stream};
use crate::Page;

impl Ftl {
    /// Where the next system page goes. What is kept free is enough for all of a checkpoint, and for chains.
    pub fn place_of_system(&mut self) -> Ppn {
        self.space.next(Stream::System, true, true).expect("blocks were kept free for it")
    }

    fn program_system(&mut self, site: wholly_media::Site, page: &Page, kind: Kind, index: usize) -> Result<Ppn> {
        let mut at = self.place_of_system();
        if self.makes(Mistake::TableInPlace)
            && kind == Kind::Table
            && let Some(old) = self.map.table_at(index)
        {
            at = old;
        }
        let spare = self.spare(kind, 0, index as u32);
        self.program(site, at, page, spare)?;
        self.clock.program(self.channel(at));
        self.programs.map += 1;
        Ok(at)
    }

    /// Stores the map as it is, and then erases what nothing durable names. Durable on return: the map, and all that it
    /// names.
    pub fn checkpoint(&mut self) -> Result<()> {
        if self.space.blocks_of_tables() > self.budget.tables {
            self.map.change_all();
        }
        let changed = self.map.changed();
        let mut directories: Vec<usize> = changed.iter().map(|table| table / ENTRIES).collect();
        directories.dedup();
        for table in changed {
            let page = self.map.encode_table(table);
            let at = self.program_system(site::TABLE, &page, Kind::Table, table)?;
            if let Some(old) = self.map.stored_table(table, at) {
                self.space.set_owner(old, Owner::Nobody);
            }
            self.space.set_owner(at, Owner::Table(table as u32));
        }
        for directory in directories {
            let page = self.map.encode_directory(directory);
            let at = self.program_system(site::DIRECTORY, &page, Kind::Directory, directory)?;
            if let Some(old) = self.map.stored_directory(directory, at) {
                self.space.set_owner(old, Owner::Nobody);
            }
            self.space.set_owner(at, Owner::Directory(directory as u32));
        }
        self.wait(site::TABLE_WAIT)?;
        self.store_root()?;
        for at in std::mem::take(&mut self.chain_pages) {
            self.space.set_owner(at, Owner::Nobody);
        }
        self.trims.clear();
        let dead = self.space.dead();
        self.erase(&dead)
    }

    /// Programs the next root. Durable on return.
    pub fn store_root(&mut self) -> Result<()> {
        let (mut block, mut index) = self.ring;
        if index == self.geometry.pages {
            // The newest root is the last page of this block: the other one has older roots only.
            (block, index) = ((block + 1) % RING, 0);
            self.flash.erase(site::RING_ERASE, block)?;
            self.in_flight = true;
            self.programs.erases += 1;
            self.map.set_erases(block, self.map.erases(block) + 1);
            self.clock.erase(self.geometry.channel_of(block));
            self.wait(site::RING_WAIT)?;
        }
        let running: Vec<u64> = self.txs.all().map(|running| running.tx).collect();
        let mut scan = self.space.open_blocks();
        if !running.is_empty() {
            scan.extend(self.space.blocks_of_running());
        }
        scan.sort_unstable();
        scan.dedup();
        self.programs.map += 1;
        let root = Root {
            id: self.id,
            incarnation: self.incarnation,
            geometry: self.geometry,
            config: self.config,
            sequence: self.sequence + 1,
            chains: self.chains,
            directories: self.map.directory_list(),
            programs: self.programs,
            dropped: self.last_dropped,
            running,
            scan: Some(scan),
        };
        let at = self.geometry.page(block, index);
        let spare = self.spare(Kind::Root, 0, index);
        self.program(site::ROOT, at, &root.encode(), spare)?;
        self.clock.program(self.channel(at));
        self.wait(site::ROOT_WAIT)?;
        self.ring = (block, index + 1);
        self.root = root.sequence;
        self.since_root = 0;
        Ok(())
    }

    /// Erases blocks that nothing durable names (X3).
    pub fn erase(&mut self, blocks: &[u32]) -> Result<()> {
        for block in blocks {
            self.flash.erase(site::ERASE, *block)?;
            self.in_flight = true;
            self.programs.erases += 1;
            self.map.set_erases(*block, self.map.erases(*block) + 1);
            self.clock.erase(self.geometry.channel_of(*block));
        }
        self.wait(site::ERASE_WAIT)?;
        blocks.iter().for_each(|block| self.space.release(*block, self.map.erases(*block)));
        Ok(())
    }
}
