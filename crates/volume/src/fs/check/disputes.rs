//! Who has a block to which several pointers lead.
//!
//! Nodes, leaves, inodes, attributes and targets prove by their bytes whose they are; content does not. A pointer that
//! is stale (its inode was not written when the block went to another file) is valid. So the first walk over all maps
//! marks content apart from the rest, and if any block has two owners, a second one settles who keeps it: never content
//! against what proves itself, and content alone only where the same users may read it in all files.

use std::collections::BTreeMap;

use wholly_error::Result;

use super::{Check, OFTEN, go_on};
use crate::engine::Load;
use crate::engine::marks::Marks;
use crate::format::dir::{Leaf, SLOTS};
use crate::format::inode::{INODE, INODE_FILE, LINE, Line, More, Owned, PER_BLOCK, Tree};
use crate::format::pointer::Pointer;
use crate::format::superblock::{Superblock, copies};
use crate::format::{BLOCK, Lba, Stream};
use crate::fs::overlay::NOTHING;
use crate::fs::remedy::{MapOf, Remedy};
use crate::fs::{DIRECTORY, REGULAR, TYPE, map};

/// Claims to blocks of several owners that are weighed against each other; of the rest, content is lost.
const MOST_CLAIMS: usize = 1 << 16;

/// A pointer to a block that has several owners.
#[derive(Clone, Copy)]
struct Claim {
    of: MapOf,
    level: u8,
    index: u64,
    /// Of content: who may read it, if any of it can be read.
    content: Option<Content>,
}

#[derive(Clone, Copy)]
struct Content {
    is_shown: bool,
    /// User, group and mode; `None` if an access control list may say more.
    readers: Readers,
}

type Readers = Option<(u32, u32, u32)>;

/// Claims to disputed blocks.
struct Claims {
    /// Structures that were walked.
    nodes: Marks,
    by_block: BTreeMap<u64, Vec<Claim>>,
    /// How many more there may be.
    left: usize,
}

impl Claims {
    fn add(&mut self, block: Lba, claim: Claim) {
        if self.left > 0 {
            self.left -= 1;
            self.by_block.entry(block.0).or_default().push(claim);
        }
    }
}

impl Check<'_, '_> {
    /// Settles who has a block to which several pointers lead.
    pub(super) fn disputes(&mut self, superblock: &Superblock, leaves: &[(u64, Lba)]) -> Result<()> {
        self.is_disputed |= self.content.add_to(&self.marks, &self.disputed);
        if !self.is_disputed {
            return Ok(());
        }
        let mut claims = Claims { nodes: Marks::new(self.blocks), by_block: BTreeMap::new(), left: MOST_CLAIMS };
        superblock.fixed().for_each(|run| claims.nodes.mark_run(run));
        let seed = self.seed.stream(INODE_FILE, 0, Stream::Data);
        self.claim(&mut claims, (MapOf::InodeFile, seed), &superblock.inode_tree, None)?;
        for (index, lba) in leaves {
            let mut bytes = [0; BLOCK];
            self.view.load(*lba, 0, &mut bytes)?;
            for (slot, raw) in bytes.chunks_exact(INODE).enumerate() {
                let ino = index * PER_BLOCK + slot as u64;
                if !self.inodes.contains_key(&ino) {
                    continue;
                }
                let line = |number: usize| raw[number * LINE..][..LINE].try_into().expect("a line");
                let owned = Owned::decode(self.seed, ino, line(Owned::NUMBER)).unwrap_or_default();
                let more = More::decode(self.seed, ino, line(More::NUMBER)).unwrap_or_default();
                let of_stream = |stream| self.seed.stream(ino, owned.generation, stream);
                let (data, xattrs) = (of_stream(Stream::Data), of_stream(Stream::Xattr));
                let readers = (more.xattr_bytes == 0).then_some((owned.uid, owned.gid, owned.mode));
                let content = (owned.mode & TYPE == REGULAR).then_some((owned.size, readers));
                self.claim(&mut claims, (MapOf::Content(ino), data), &owned.tree, content)?;
                self.claim(&mut claims, (MapOf::Xattrs(ino), xattrs), &more.xattrs, None)?;
            }
        }
        let is_complete = claims.left > 0;
        let fixed: Vec<_> = superblock.fixed().collect();
        for (block, claims) in claims.by_block {
            let of_engine = fixed.iter().any(|run| (run.start.0..run.start.0 + run.count).contains(&block));
            let is_taken = of_engine || copies(self.blocks).contains(&Lba(block));
            self.settle(Lba(block), claims, is_taken, is_complete)?;
        }
        Ok(())
    }

    /// Walks a map once more, for what it has of disputed blocks. `content`: size and readers of a regular file.
    fn claim(
        &mut self,
        claims: &mut Claims,
        (of, seed): (MapOf, u64),
        tree: &Tree,
        content: Option<(u64, Readers)>,
    ) -> Result<()> {
        let (blocks, view, disputed) = (self.blocks, &self.view, &self.disputed);
        let (watch, ticks, last) = (&mut *self.watch, &mut self.ticks, self.last);
        let mut failed = Ok(());
        let mut each = |level: u8, index: u64, pointer: Pointer| {
            *ticks += 1;
            if failed.is_ok() && ticks.is_multiple_of(OFTEN) {
                failed = go_on(watch, last);
            }
            let block = pointer.block;
            if failed.is_err() || block.0 >= blocks - 1 {
                return false;
            }
            if level > 0 && !map::is_node(view, seed, (level, index), block).unwrap_or(false) {
                return false;
            }
            let content = content.filter(|_| level == 0).map(|(size, readers)| {
                let is_shown = !pointer.reserved && index.saturating_mul(BLOCK as u64) < size;
                Content { is_shown, readers }
            });
            let is_first = content.is_some() || !claims.nodes.mark(block);
            if disputed.is_marked(block) {
                claims.add(block, Claim { of, level, index, content });
            }
            is_first
        };
        map::walk(view, seed, tree, &mut each, &mut |_, _, _| ())?;
        failed
    }

    fn settle(&mut self, block: Lba, claims: Vec<Claim>, is_taken: bool, is_complete: bool) -> Result<()> {
        let mut keeper = None;
        let of_structure: Vec<usize> = (0..claims.len()).filter(|i| claims[*i].content.is_none()).collect();
        if !is_taken {
            for i in &of_structure {
                if self.is_proven(block, &claims[*i])? {
                    keeper = Some(*i);
                    break;
                }
            }
            keeper = keeper.or(of_structure.first().copied());
        }
        let fault = format!("block {} is used twice", block.0);
        let shown: Vec<&Claim> = claims.iter().filter(|claim| claim.content.is_some_and(|it| it.is_shown)).collect();
        let readers = |claim: &Claim| claim.content.and_then(|it| it.readers);
        let is_content = !is_taken && of_structure.is_empty();
        let is_one = is_content && is_complete && shown.len() == 1;
        let are_alike = is_content
            && is_complete
            && shown.iter().all(|claim| {
                readers(claim).is_some() && readers(claim) == shown.first().and_then(|first| readers(first))
            });
        // What cannot be read is not to be copied.
        let is_readable = !is_content || {
            let mut bytes = [0; BLOCK];
            self.view.load(block, 0, &mut bytes)?;
            bytes != [NOTHING; BLOCK]
        };
        let keeps = is_readable && (is_one || are_alike);
        let mut kept = None;
        for (i, claim) in claims.iter().enumerate().filter(|(i, _)| Some(*i) != keeper) {
            let (of, level, index) = (claim.of, claim.level, claim.index);
            let remedy = match (claim.content, of) {
                (Some(Content { is_shown: true, .. }), MapOf::Content(ino)) if is_content => {
                    if keeps && kept.is_none() {
                        kept = Some((i, Remedy::Keep { ino, index }));
                        continue;
                    }
                    if keeps { Remedy::Copy { ino, index } } else { Remedy::Unowned { ino, index } }
                }
                _ => Remedy::Twice { of, level, index },
            };
            self.find(of.to_string(), fault.clone(), remedy);
        }
        // After the copies: what is beyond the end of the file goes.
        if let Some((i, remedy)) = kept {
            self.find(claims[i].of.to_string(), fault, remedy);
        }
        Ok(())
    }

    /// Whether the bytes of a block say that it belongs to this structure. Attributes and targets that are not right
    /// are lost anyway.
    fn is_proven(&self, block: Lba, claim: &Claim) -> Result<bool> {
        let mut bytes = [0; BLOCK];
        match claim.of {
            _ if claim.level > 0 => Ok(true),
            MapOf::InodeFile => {
                self.view.load(block, 0, &mut bytes)?;
                Ok(self.has_inodes(claim.index, &bytes))
            }
            MapOf::Content(ino) => {
                let Some(known) = self.inodes.get(&ino).filter(|it| u32::from(it.kind) << 12 == DIRECTORY) else {
                    return Ok(true);
                };
                self.view.load(block, 0, &mut bytes)?;
                let seed = self.seed.stream(ino, known.generation, Stream::Data);
                let leaf = Leaf::new(seed, &bytes);
                Ok((0..SLOTS).any(|slot| matches!(leaf.at(slot), Ok(Some(_)))))
            }
            MapOf::Xattrs(_) => Ok(true),
        }
    }
}
