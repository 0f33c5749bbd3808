//! A chip that panics where a rule of flash is broken, or X3. For tests: it reads the whole chip to know what is named.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use sync::Mutex;
use wholly_error::Result;
use wholly_media::Site;

use super::flash::{Flash, Geometry, Ppn, Read, SPARE};
use super::layout::{Entry, Kind, Root, Spare, decode_chain};
use super::map::named;
use super::space::RING;
use crate::Page;

/// A chip that is watched. It panics if
///
/// - a page is programmed twice, out of order, or into a block that is not erased (or whose erase nobody has waited
///   for);
/// - an erased page is read, or a page of a block that was erased is not;
/// - a block is erased in which a page is that is durably named: by the newest root and what it names, or by a whole
///   chain after it (X3).
pub struct Rules {
    flash: Arc<dyn Flash>,
    watch: Mutex<Watch>,
}

struct Watch {
    /// For each block, the page that is to be programmed next.
    next: Vec<u32>,
    /// Programmed, and not waited for.
    pending: HashSet<Ppn>,
    erasing: HashSet<u32>,
    /// Whether content is watched for X3. It takes a look at every page for each erase.
    is_named: bool,
    /// What is durably named, until that changes.
    named: Option<HashSet<Ppn>>,
}

impl Rules {
    /// Watches a chip, from what it holds now on.
    ///
    /// # Errors
    /// The medium's.
    pub fn new(flash: Arc<dyn Flash>) -> Result<Arc<Rules>> {
        Rules::with(flash, true)
    }

    /// Watches the rules of flash only, for large chips.
    ///
    /// # Errors
    /// The medium's.
    pub fn of_flash_only(flash: Arc<dyn Flash>) -> Result<Arc<Rules>> {
        Rules::with(flash, false)
    }

    fn with(flash: Arc<dyn Flash>, is_named: bool) -> Result<Arc<Rules>> {
        let geometry = flash.geometry();
        let mut next = vec![0; geometry.blocks as usize];
        for block in 0..geometry.blocks {
            for (index, at) in (1..).zip(geometry.pages_of(block)) {
                if !matches!(flash.look(at)?, Read::Erased) {
                    next[block as usize] = index;
                }
            }
        }
        let (pending, erasing) = (HashSet::new(), HashSet::new());
        Ok(Arc::new(Rules { flash, watch: Mutex::new(Watch { next, pending, erasing, is_named, named: None }) }))
    }

    fn watch(&self) -> sync::MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What is durably named: read anew from the chip, by other code than recovery.
    fn durably_named(&self, pending: &HashSet<Ppn>) -> Result<HashSet<Ppn>> {
        let geometry = self.flash.geometry();
        let page_at = |at: Ppn| -> Result<Option<(Spare, Page)>> {
            if pending.contains(&at) || u64::from(at.0) >= geometry.all() {
                return Ok(None);
            }
            Ok(match self.flash.read(at)? {
                Read::Programmed(spare, page) => Spare::decode(&spare).map(|spare| (spare, page)),
                _ => None,
            })
        };
        let mut newest: Option<Root> = None;
        for at in (0..RING).flat_map(|block| geometry.pages_of(block)) {
            if let Some((_, page)) = page_at(at)?
                && let Ok(root) = Root::decode(&page)
                && newest.as_ref().is_none_or(|old| old.sequence < root.sequence)
            {
                newest = Some(root);
            }
        }
        let mut all = HashSet::new();
        let Some(root) = newest else { return Ok(all) };
        for at in &root.directories {
            all.insert(*at);
            let Some((_, directory)) = page_at(*at)? else { continue };
            for at in named(&directory) {
                all.insert(at);
                let Some((spare, table)) = page_at(at)? else { continue };
                if (spare.index as usize) < (root.config.logical as usize).div_ceil(super::map::ENTRIES) {
                    all.extend(named(&table));
                }
            }
        }
        let mut chains: BTreeMap<(u64, u32), Ppn> = BTreeMap::new();
        for at in (RING..geometry.blocks).flat_map(|block| geometry.pages_of(block)) {
            if pending.contains(&at) {
                continue;
            }
            if let Read::Programmed(spare, ()) = self.flash.look(at)?
                && let Some(spare) = Spare::decode(&spare)
                && spare.kind == Kind::Chain
                && spare.incarnation == root.incarnation
                && spare.number > root.chains
            {
                chains.insert((spare.number, spare.index), at);
            }
        }
        let mut of_chain: (HashSet<Ppn>, u64) = (HashSet::new(), 0);
        for ((_, index), at) in chains {
            let Some((_, page)) = page_at(at)? else { continue };
            if index == 0 {
                of_chain = (HashSet::new(), 0);
            }
            let Some((place, entries)) = decode_chain(&root.id, &page, &mut of_chain.1) else { continue };
            of_chain.0.insert(at);
            of_chain.0.extend(entries.iter().filter_map(|entry| match entry {
                Entry::Page { at, .. } => Some(*at),
                Entry::Zeros { .. } => None,
            }));
            if index + 1 == place.pages {
                all.extend(of_chain.0.drain());
            }
        }
        Ok(all)
    }
}

impl Flash for Rules {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        let read = self.flash.read(at)?;
        let in_ring = self.geometry().block_of(at) < RING;
        assert!(in_ring || !matches!(read, Read::Erased), "{} is read and was erased", self.geometry().name(at));
        Ok(read)
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        self.flash.look(at)
    }

    fn is_mended(&self, at: Ppn) -> Result<bool> {
        self.flash.is_mended(at)
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        let geometry = self.geometry();
        let (block, index, name) = (geometry.block_of(at), at.0 % geometry.pages, geometry.name(at));
        let mut watch = self.watch();
        let next = watch.next[block as usize];
        assert!(!watch.erasing.contains(&block), "{site:?}: {name} is programmed, and nobody waited for the erase");
        assert!(index >= next, "{site:?}: {name} is programmed twice, or into a block that is not erased");
        assert!(index == next, "{site:?}: {name} is programmed out of order");
        watch.next[block as usize] = index + 1;
        watch.pending.insert(at);
        drop(watch);
        self.flash.program(site, at, page, spare)
    }

    fn erase(&self, site: Site, block: u32) -> Result<()> {
        let mut watch = self.watch();
        if watch.is_named && block >= RING {
            if watch.named.is_none() {
                watch.named = Some(self.durably_named(&watch.pending)?);
            }
            let is_named = |at: &Ppn| watch.named.as_ref().is_some_and(|named| named.contains(at));
            let geometry = self.geometry();
            if let Some(at) = geometry.pages_of(block).find(is_named) {
                panic!("{site:?}: the block of {} is erased, which is durably named (X3)", geometry.name(at));
            }
        }
        watch.next[block as usize] = 0;
        watch.pending.retain(|at| self.geometry().block_of(*at) != block);
        watch.erasing.insert(block);
        drop(watch);
        self.flash.erase(site, block)
    }

    fn wait(&self, site: Site) -> Result<()> {
        self.flash.wait(site)?;
        let mut watch = self.watch();
        watch.pending.clear();
        for block in std::mem::take(&mut watch.erasing) {
            for at in self.geometry().pages_of(block) {
                let is_erased = matches!(self.flash.look(at)?, Read::Erased);
                assert!(is_erased, "{site:?}: the block of {} was not erased", self.geometry().name(at));
            }
        }
        watch.named = None;
        Ok(())
    }

    fn description(&self) -> String {
        self.flash.description()
    }
}
