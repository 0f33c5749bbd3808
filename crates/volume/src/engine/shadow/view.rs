//! The view that moves blocks: whatever a mutator changes is fresh, or made fresh before.

use wholly_error::Result;
use wholly_media::Site;

use super::Shadow;
use crate::engine::draft::Draft;
use crate::engine::{Allocate, Load, StorageView, inode_index};
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// The most images that a draft keeps: 1 MiB. Further ones are stored early.
const MOST_IMAGES: usize = 256;

/// See the module.
pub(super) struct Shadowing<'s> {
    pub engine: &'s Shadow,
    pub draft: &'s mut Draft,
    pub space: &'s mut dyn Allocate,
}

impl Shadowing<'_> {
    fn keep(&mut self, at: Lba, image: Box<[u8; BLOCK]>) -> Result<()> {
        if self.draft.images.len() >= MOST_IMAGES {
            self.engine.store_images(self.draft)?;
        }
        self.draft.images.insert(at, image);
        Ok(())
    }
}

impl Load for Shadowing<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.engine.load(at, offset, buf)?;
        self.draft.overlay(at.byte() + offset as u64, buf);
        Ok(())
    }
}

impl StorageView for Shadowing<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = at.byte() + offset as u64;
        if let Some(index) = inode_index(at) {
            let read = |line: u64, buf: &mut [u8; LINE]| self.engine.load(at, (line - at.byte()) as usize, buf);
            if self.draft.put_over(read, site, to, bytes)? {
                self.draft.inode_blocks.insert(index);
            }
            return Ok(());
        }
        assert!(self.draft.fresh.contains(&at), "a block is changed that others can reach");
        if let Some(image) = self.draft.images.get_mut(&at) {
            image[offset..offset + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        if let Ok(block) = <&[u8; BLOCK]>::try_from(bytes) {
            return self.keep(at, Box::new(*block));
        }
        self.draft.stored = true;
        Ok(self.engine.base.region.write(site, to, bytes)?)
    }

    fn fresh(&mut self) -> Lba {
        let at = self.space.take(1).start;
        self.draft.fresh.insert(at);
        at
    }

    fn release(&mut self, at: Lba) {
        self.draft.images.remove(&at);
        self.space.release(Run { start: at, count: 1 });
    }

    fn shadow(&mut self, at: Lba) -> Result<Lba> {
        if self.draft.fresh.contains(&at) {
            return Ok(at);
        }
        let mut image = Box::new([0; BLOCK]);
        self.load(at, 0, &mut image[..])?;
        let to = self.fresh();
        self.keep(to, image)?;
        Ok(to)
    }

    fn moves_blocks(&self) -> bool {
        true
    }
}
