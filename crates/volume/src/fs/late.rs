//! Content of explicit groups that gets its place late (rule 12 of the engines). Until then the map of its file has
//! late numbers, which nobody else sees: they are in the draft, or in nodes that the group took.

use std::ops::Range;

use sync::Ordering;
use wholly_error::Result;

use super::explicit::Explicit;
use super::group::Group;
use super::table::{Inode, State};
use super::{Core, map};
use crate::engine::{Mapped, Operation, is_late};
use crate::format::pointer::reach;
use crate::format::{Lba, Run};

impl Core {
    /// Gives places to all content of a group that has none, in the order of each file. One of the files may be locked.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn place_late(&self, explicit: &Explicit, mut locked: Option<(&Inode, &mut State)>) -> Result<()> {
        let files = explicit.body().take_late();
        for (ino, blocks) in files {
            match locked.as_mut().filter(|(inode, _)| inode.id.ino == ino) {
                Some((inode, state)) => self.place_file(explicit, inode, state, blocks)?,
                None => {
                    let twin = explicit.twin(ino).expect("a group has a twin of what it writes to");
                    self.place_file(explicit, &twin, &mut twin.state.write().unwrap(), blocks)?;
                }
            }
        }
        Ok(())
    }

    fn place_file(&self, explicit: &Explicit, inode: &Inode, state: &mut State, blocks: Range<u64>) -> Result<()> {
        let mut group = Group::within(self, explicit)?;
        // The group made the file and took its name away, and nobody has it open: the content goes.
        let made = inode.twin.as_ref().map(|twin| &twin.shared).filter(|shared| shared.unborn.load(Ordering::Acquire));
        if state.record.owned.links == 0 && made.is_some_and(|shared| shared.refs.load(Ordering::Acquire) == 1) {
            let (count, to) = (u64::MAX, Mapped::Nothing);
            group.record(&Operation::Map { on: inode.id, first: 0, count, to })?;
            self.reload(&group, inode, state)?;
            return group.commit();
        }
        let (seed, tree) = (self.storage.data_seed(inode.id), state.record.owned.tree);
        // Late numbers in the order of the file: the first block of each run, and its numbers.
        let (mut late, mut block): (Vec<(u64, Run)>, _) = (Vec::new(), blocks.start);
        while block < blocks.end.min(reach(tree.depth)) {
            let (found, count) = map::run(&group, seed, &tree, block, blocks.end - block)?;
            let found = found.filter(|found| is_late(found.block) && !found.reserved);
            late.extend(found.map(|found| (block, Run { start: found.block, count })));
            block += count;
        }
        let mut left: u64 = late.iter().map(|(_, run)| run.count).sum();
        let mut taken = Run { start: Lba(0), count: 0 };
        for (mut block, Run { start: Lba(mut number), mut count }) in late {
            while count > 0 {
                if taken.count == 0 {
                    taken = group.take(left);
                }
                let at = Run { start: taken.start, count: taken.count.min(count) };
                group.place(Lba(number), at)?;
                let to = Mapped::Written(at.start);
                group.record(&Operation::Map { on: inode.id, first: block, count: at.count, to })?;
                (block, number, count, left) = (block + at.count, number + at.count, count - at.count, left - at.count);
                taken = Run { start: Lba(taken.start.0 + at.count), count: taken.count - at.count };
            }
        }
        self.reload(&group, inode, state)?;
        group.commit()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wholly_sim::{Place, Random, SimConfig, World};
    use wholly_vfs::{Context, Fallocate, Groups, Handle, Ino, Mode, OFlags, SetAttr, Vfs};

    use super::*;
    use crate::engine::Trial;
    use crate::format::BLOCK;
    use crate::{EngineKind, Volume, VolumeOptions, VolumeVfs};

    const MIB: u64 = 1 << 20;

    fn options(pages: Option<usize>) -> VolumeOptions {
        let trial = Trial { pages, ..Trial::default() };
        VolumeOptions { engine: Some(EngineKind::OpLog), trial, ..VolumeOptions::default() }
    }

    fn made(bytes: u64, pages: Option<usize>) -> (Arc<World>, Volume) {
        let world = World::new(Arc::new(SimConfig { log_len: bytes, ..SimConfig::disk() }));
        Volume::format_region(&*world.log(), &options(pages)).expect("make a volume");
        let volume = Volume::open_region(world.log(), &options(pages)).expect("open it");
        (world, volume)
    }

    fn create(vfs: &VolumeVfs, ctx: &Context, name: &[u8]) -> (Ino, Handle) {
        let (made, file) = vfs.create(ctx, Ino::ROOT, name, OFlags::RDWR, Mode::RUSR).expect("create");
        (made.ino, file)
    }

    /// How many runs of blocks a file has.
    fn runs(volume: &Volume, ino: Ino) -> u64 {
        let core = &volume.inner().core;
        let inode = core.named(ino.0).expect("it is there");
        let (tree, seed) = (inode.state.read().unwrap().record.owned.tree, core.storage.data_seed(inode.id));
        let (mut block, mut runs, end) = (0, 0, reach(tree.depth));
        while block < end {
            let (found, count) = map::run(&*core.engine, seed, &tree, block, end - block).expect("its map");
            runs += u64::from(found.is_some());
            block += count;
        }
        runs
    }

    /// Two files that grow in turn, in two groups that run at the same time, are in few runs.
    #[test]
    fn files_that_grow_in_turn_are_not_mixed() {
        for (mib, pages) in [(4, None), (4, Some(3072)), (16, Some(2048))] {
            let (_world, volume) = made(64 * MIB, pages);
            let vfs = VolumeVfs::new(&volume);
            let open = |name: &[u8]| {
                let ctx = Context { group: Some(vfs.begin().expect("begin")), ..Context::superuser() };
                let (ino, file) = create(&vfs, &ctx, name);
                (ctx, ino, file)
            };
            let files = [open(b"a"), open(b"b")];
            for at in (0..mib * MIB).step_by(BLOCK) {
                for (ctx, _, file) in &files {
                    assert_eq!(vfs.write(ctx, file, at, &[1; BLOCK]), Ok(BLOCK));
                }
            }
            for (ctx, ino, file) in files {
                vfs.commit(ctx.group.expect("its group")).expect("commit");
                let runs = runs(&volume, ino);
                println!("{mib} MiB, {pages:?} pages of cache: {runs} runs");
                assert!(runs <= mib, "{runs} runs of {mib} MiB");
                vfs.release(&Context::superuser(), file).expect("release");
            }
            drop(vfs);
            volume.close().expect("close");
        }
    }

    /// What a group removes again never comes to the medium.
    #[test]
    fn what_is_removed_before_the_commit_is_not_written() {
        const MARK: [u8; 16] = *b"never to be seen";
        for commits in [true, false] {
            let (world, volume) = made(16 * MIB, None);
            let vfs = VolumeVfs::new(&volume);
            let ctx = Context { group: Some(vfs.begin().expect("begin")), ..Context::superuser() };
            let (ino, file) = create(&vfs, &ctx, b"scratch");
            let (_, kept) = create(&vfs, &ctx, b"kept");
            let content = MARK.repeat(MIB as usize / 16);
            assert_eq!(vfs.write(&ctx, &file, 0, &content), Ok(content.len()));
            assert_eq!(vfs.write(&ctx, &kept, 0, b"content"), Ok(7));
            vfs.release(&ctx, file).expect("release");
            vfs.unlink(&ctx, Ino::ROOT, b"scratch").expect("unlink");
            vfs.forget(ino, 1);
            let group = ctx.group.expect("its group");
            if commits { vfs.commit(group) } else { vfs.abort(group) }.expect("end");
            vfs.release(&Context::superuser(), kept).expect("release");
            drop(vfs);
            volume.close().expect("close");
            let image = world.latest().read(&Place::Log).expect("the medium");
            assert!(!image.as_chunks::<16>().0.contains(&MARK), "commits: {commits}");
            assert_eq!(Volume::check_region(&*world.log()).expect("check").findings, []);
        }
    }

    /// Whatever a group does to its files, and however small the cache is, the group reads what it has written. After a
    /// commit all read it; after an abort the files are not there.
    #[test]
    fn content_without_a_place_is_as_any_other() {
        const MOST: u64 = 100 * BLOCK as u64;
        let mut random = Random(17);
        for round in 0..120 {
            let pages = [Some(8), Some(64), None][round % 3];
            let (world, volume) = made(8 * MIB, pages);
            let vfs = VolumeVfs::new(&volume);
            // Structure changes stay: they come first.
            let begin = || Context { group: Some(vfs.begin().expect("begin")), ..Context::superuser() };
            let first = begin();
            for name in [b"a", b"b"] {
                let (ino, file) = create(&vfs, &first, name);
                vfs.release(&first, file).expect("release");
                vfs.forget(ino, 1);
            }
            vfs.abort(first.group.expect("its group")).expect("abort");
            let (free, ctx) = (volume.stat().free_blocks, begin());
            let mut files: Vec<(Ino, Handle, Vec<u8>)> = Vec::new();
            for name in [b"a", b"b"] {
                let (ino, file) = create(&vfs, &ctx, name);
                files.push((ino, file, Vec::new()));
            }
            for _ in 0..40 {
                let (ino, file, model) = &mut files[random.below(2) as usize];
                let most = [100, BLOCK as u64, 20 * BLOCK as u64][random.below(3) as usize];
                let (at, len) = (random.below(MOST), 1 + random.below(most));
                let (first, count) = (at / BLOCK as u64 * BLOCK as u64, len.next_multiple_of(BLOCK as u64));
                let end = |at: u64| (at as usize).min(model.len());
                match random.below(12) {
                    0 => {
                        let cut = SetAttr { size: Some(at), ..SetAttr::default() };
                        vfs.setattr(&ctx, *ino, None, &cut).expect("cut");
                        model.resize(at as usize, 0);
                    }
                    1 => {
                        vfs.fallocate(&ctx, file, Fallocate::Punch, at, len).expect("punch");
                        let (from, to) = (end(at), end(at + len));
                        model[from..to].fill(0);
                    }
                    2 => {
                        vfs.fallocate(&ctx, file, Fallocate::Zero, at, len).expect("zero");
                        let (from, to) = (end(at), end(at + len));
                        model[from..to].fill(0);
                    }
                    3 if first + count < model.len() as u64 => {
                        vfs.fallocate(&ctx, file, Fallocate::Collapse, first, count).expect("collapse");
                        model.drain(first as usize..(first + count) as usize);
                    }
                    4 if first < model.len() as u64 => {
                        vfs.fallocate(&ctx, file, Fallocate::Insert, first, count).expect("insert");
                        model.splice(first as usize..first as usize, vec![0; count as usize]);
                    }
                    _ => {
                        let data = vec![1 + random.below(255) as u8; len as usize];
                        assert_eq!(vfs.write(&ctx, file, at, &data), Ok(data.len()));
                        model.resize(model.len().max((at + len) as usize), 0);
                        model[at as usize..(at + len) as usize].copy_from_slice(&data);
                    }
                }
                let mut read = vec![0; model.len() + 1];
                assert_eq!(vfs.read(&ctx, file, 0, &mut read), Ok(model.len()));
                assert!(read[..model.len()] == *model, "round {round}");
            }
            let commits = random.below(4) > 0;
            let group = ctx.group.expect("its group");
            if commits { vfs.commit(group) } else { vfs.abort(group) }.expect("end");
            let names = files.into_iter().zip(["a", "b"]).map(|((ino, file, model), name)| {
                vfs.release(&Context::superuser(), file).expect("release");
                vfs.forget(ino, 1);
                (name, model)
            });
            let names: Vec<_> = names.collect();
            let all_are_there = |volume: &Volume| {
                for (name, model) in &names {
                    match volume.read_file(name) {
                        Ok(read) => assert!(commits && read == *model, "round {round}"),
                        Err(_) => assert!(!commits),
                    }
                }
            };
            all_are_there(&volume);
            if !commits {
                assert_eq!(volume.stat().free_blocks, free);
            }
            drop(vfs);
            volume.close().expect("close");
            assert_eq!(Volume::check_region(&*world.log()).expect("check").findings, []);
            all_are_there(&Volume::open_region(world.log(), &options(pages)).expect("open it again"));
        }
    }
}
