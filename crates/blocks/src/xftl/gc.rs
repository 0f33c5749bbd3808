//! Collection: greedy. The data block with the fewest valid pages is emptied, at any time, whatever runs. A page that
//! has rotted leaves a mark in its place, so that its block can be erased.

use wholly_error::{Error, Result};

use super::device::{Ftl, Mistake};
use super::flash::{Ppn, Read};
use super::layout::{Fault, Kind, Lost, Spare};
use super::site;
use super::space::{Owner, Stream, Use};
use super::xl2p::Place;
use crate::Page;

/// The transaction of a page whose spare bytes cannot be read. No chain names it, so that the logical page is in doubt
/// if a chain is.
const UNKNOWN: u64 = u64::MAX;

impl Ftl {
    /// Blocks that are kept free: for the next checkpoints, and for the chains of all running transactions.
    fn kept(&self) -> u32 {
        let chains = self.budget.data - self.data_blocks();
        (self.budget.system + chains).saturating_sub(self.space.count(Use::System))
    }

    /// Whether so many blocks more are free than have to be kept.
    pub fn has_free(&self, blocks: u32) -> bool {
        self.space.count(Use::Free) >= self.kept() + blocks
    }

    /// Collects until a data block may be opened for the host, and another one to collect into after that.
    fn make_room(&mut self) -> Result<()> {
        while self.space.count(Use::Data) >= self.data_blocks() && self.collect()? {}
        if !self.has_free(2) {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Where the next page of the host's content goes. Room was promised to it.
    ///
    /// One block more than those that are kept is always free when the host's content is programmed: a crash gives the
    /// blocks that wait back their content, and whoever recovers has to collect.
    pub fn place_of_data(&mut self) -> Result<Ppn> {
        if self.space.opens_next(Stream::Data) {
            self.make_room()?;
        } else if !self.has_free(1) {
            self.checkpoint()?;
        }
        let may_open = self.space.count(Use::Data) < self.data_blocks() && self.has_free(2);
        let at = self.space.next(Stream::Data, may_open, true);
        at.ok_or_else(|| self.no_space())
    }

    /// Collects until there are no more data blocks than may be: running transactions have taken some of these for
    /// their chains.
    pub fn keep_within(&mut self) -> Result<()> {
        while self.space.count(Use::Data) > self.data_blocks() && self.collect()? {}
        Ok(())
    }

    /// Empties the data block with the fewest valid pages. It waits for the next root then (X3). Returns whether there
    /// was one.
    fn collect(&mut self) -> Result<bool> {
        // What it holds takes one block at most, beside those that are not full.
        if !self.has_free(1) {
            self.checkpoint()?;
        }
        let Some(victim) = self.space.victim() else { return Ok(false) };
        for at in self.geometry.pages_of(victim) {
            let owner = self.space.owner(at);
            let is_running = matches!(owner, Owner::Running(..));
            match owner {
                Owner::Running(..) if self.makes(Mistake::RunningIsGarbage) => {
                    self.space.set_owner(at, Owner::Nobody);
                    self.live -= 1;
                }
                Owner::Map(_) | Owner::Running(..) if !self.move_page(at, owner)? => {
                    // The medium may read it another time: its block is left as it is.
                    self.space.stick(at);
                    return Ok(true);
                }
                Owner::Map(_) | Owner::Running(..) | Owner::Nobody => {}
                _ => unreachable!("a data block holds content only"),
            }
            debug_assert!(!is_running || self.space.owner(at) == Owner::Nobody);
        }
        self.space.set_use(victim, Use::Waiting);
        let is_new = || -> Result<bool> {
            let first = self.flash.look(self.geometry.page(victim, 0))?;
            Ok(
                matches!(first, Read::Programmed(spare, ()) if Spare::decode(&spare).is_some_and(|s| s.sequence > self.root)),
            )
        };
        if self.makes(Mistake::EraseBeforeRoot) || self.makes(Mistake::ChainForgotten) && is_new()? {
            self.erase(&[victim])?;
        }
        Ok(true)
    }

    /// Programs a page elsewhere, or a mark that it is lost, and changes what names it (X7, X8). Returns whether the
    /// medium has read it.
    fn move_page(&mut self, at: Ppn, owner: Owner) -> Result<bool> {
        let (Owner::Map(lpn) | Owner::Running(_, lpn)) = owner else { return Ok(true) };
        let read = match self.flash.read(at) {
            Err(Error::Media(_)) => return Ok(false),
            read => read?,
        };
        let (spare, page, fault) = match read {
            Read::Programmed(spare, page) => (Some(spare), Some(page), Fault::Other),
            Read::Damaged(spare) => (Some(spare), None, Fault::Damaged),
            Read::Erased => (None, None, Fault::Erased),
            Read::Unreadable => (None, None, Fault::Unreadable),
        };
        let is_it = |spare: &Spare| (spare.is_content() || spare.kind == Kind::Lost) && spare.index == lpn;
        let old = spare.and_then(|spare| Spare::decode(&spare)).filter(is_it);
        let (kind, page) = match (&old, page) {
            (Some(Spare { kind: Kind::Lost, .. }), Some(page)) => (Kind::Lost, page),
            (Some(_), Some(page)) => (Kind::Moved, page),
            _ if self.makes(Mistake::LostIsZeros) => (Kind::Moved, Page::zeros()),
            _ => (Kind::Lost, Lost { at, fault }.encode()),
        };
        let may_open = self.has_free(1);
        // Only blocks that the medium does not read, so that they cannot be collected, can have taken the room for it.
        let to = self.space.next(Stream::Data, may_open, false).ok_or_else(|| self.no_space())?;
        let (tag, number, origin) = match (old, owner) {
            (Some(old), _) if matches!(old.kind, Kind::Moved | Kind::Lost) => (old.tag, old.number, old.origin),
            (Some(old), _) => (old.tag, old.number, old.sequence),
            (None, Owner::Running(slot, _)) => (0, self.txs.at(slot).tx, 0),
            (None, _) => (0, UNKNOWN, 0),
        };
        let spare = Spare { tag, origin, ..self.spare(kind, number, lpn) };
        self.program(site::MOVE, to, &page, spare)?;
        self.clock.copy(self.channel(at), self.channel(to));
        self.programs.collection += 1;
        self.space.set_owner(at, Owner::Nobody);
        self.space.set_owner(to, owner);
        match owner {
            Owner::Running(slot, lpn) if !self.makes(Mistake::TableOfTransaction) => {
                self.txs.at_mut(slot).pages.insert(lpn, Place::At(to));
            }
            Owner::Map(lpn) => _ = self.map.set(lpn, Some(to)),
            _ => {}
        }
        Ok(true)
    }
}
