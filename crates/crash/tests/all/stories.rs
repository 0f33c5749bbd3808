//! Every bug that the explorer has found, by the state that showed it. Each of these failed once.

use crate::common::is_long;
use wholly::Store;
use wholly_crash::{Allowed, Extent, Limits, Setting, catalogue, explore, live, run};
use wholly_sim::{Choice, Pick, World};

fn explored(workload: &str, setting: &str) {
    let workload = catalogue::find(workload).expect("a workload");
    explore(&workload, &Setting::named(setting), &Limits::hunt()).assert_clean();
}

/// The process died while the log grew: the new length was there to be seen, but not durable. The next process filled
/// the new segment with a committed group; a power failure took the segment away. Recovery makes the length durable
/// before it builds on it.
#[test]
fn a_process_dies_while_the_log_grows() {
    explored("growth", "pmem");
    explored("laps", "pmem");
}

/// The process died inside of the synchronous write of a commit record. Recovery read past the page cache, did not find
/// the record and served the state before it; its own sync made the record durable, and the recovery after that served
/// the group. Recovery syncs first.
#[test]
fn a_process_dies_inside_of_a_synchronous_write() {
    explored("small-commit", "disk");
    explored("two-files", "disk-4k");
}

/// The process died in a checkpoint, after it had cut a home file and before the sync. Recovery found the file as long
/// as it should be, so the next checkpoint neither touched nor synced it, and moved the tail; a power failure brought
/// the old length back. A checkpoint after recovery syncs every file that the log speaks of.
#[test]
fn a_process_dies_after_a_checkpoint_cut_a_file() {
    explored("random-16", "disk");
}

/// A committed group had created a file, whose name the power failure took. The log was full. Recovery made the file
/// again and wanted to tell the log which inode it is now; there was no room, so it ran a checkpoint, which gave the
/// file its name. A crash then left a name whose inode the log did not know: a conflict where nobody had interfered.
/// Until the log knows, it grows instead.
#[test]
fn a_file_is_made_again_while_the_log_is_full() {
    explored("random-48", "disk");
    explored("random-49", "pmem-over-disk");
}

/// A power failure took one word of a segment's header, or of the first line of a commit record, and left the rest of a
/// group that never committed. The next life used the segment again, wrote a header or a record of the same shape, and
/// the power failed when the one word that both have in common was there: together they made the old header or record
/// whole, and since its incarnation was no longer the last one, nobody verified it. Recovery wipes what it finds torn,
/// even where it cannot tell what it was.
#[test]
fn a_later_write_does_not_complete_what_an_earlier_crash_tore() {
    let (workload, setting) = (catalogue::find("laps").expect("a workload"), Setting::named("pmem"));
    let first = run(&workload, &setting);
    let commit = first.operations.iter().find(|operation| operation.label == "commit 4").expect("it commits");
    let before_fence = first.trace.point(commit.end - 2);
    // What one word lost shows, its neighbours show, too.
    for lost in (0..before_fence.units() as u32).step_by(if is_long() { 1 } else { 3 }) {
        let torn = Choice { point: before_fence.index(), pick: Pick::Not(vec![lost]) };
        let allowed = first.allowed(torn.point);
        let world = World::from_image(&before_fence.image_of(&torn), setting.sim.clone());
        let store = Store::open_on(world.log(), world.host(), workload.options(setting.segment_bytes()), None);
        let store = store.unwrap_or_else(|error| panic!("{torn}: {error}"));
        let file = store.open_file("dir/b").expect("it is there");
        if !file.is_empty() {
            // What was lost was the same as what had been there before.
            continue;
        }
        let mut group = store.begin();
        group.write_at(&file, 0, &[1; 1800]).expect("it can be written");
        group.commit().expect("it commits");
        let trace = world.trace();
        let before_fence = trace.point(trace.events.len() as u64 - 1);
        let states = vec![allowed.states[0].clone()];
        for kept in 0..before_fence.units() as u32 {
            let again = Choice { point: before_fence.index(), pick: Pick::Set(vec![kept]) };
            let allowed = Allowed { states: states.clone(), unmade: false };
            if let Err(what) = live(&workload, &setting, &before_fence.image_of(&again), &allowed, Extent::WHOLE) {
                panic!("{torn}, then the same again, then {again} ({}): {what}", before_fence.describe(kept as usize));
            }
        }
    }
}

/// A log segment that cannot hold two blocks of the disk stopped the program instead of being refused.
#[test]
fn a_segment_too_small_for_the_disk_is_refused() {
    let world = wholly_sim::World::new(Setting::named("disk-4k").sim);
    let options = wholly::Options { segment_bytes: 4096, spare_bytes: 0, ..wholly::Options::default() };
    let made = wholly::Store::format_on(&*world.log(), &options, [1; 16]);
    assert!(matches!(made, Err(wholly::Error::Invalid(_))), "{made:?}");
}

/// The log on a disk, files mapped from persistent memory: a checkpoint took the sync of the log's file for the fence
/// of its stores into mappings, saw no file whose size or times had changed, synced none, and moved the tail.
#[test]
fn a_log_on_a_disk_does_not_fence_mapped_files() {
    explored("checkpoints", "disk-torn");
    explored("growth", "disk-torn");
}

/// A group made a file, and a directory, and chose their times. The checkpoint told the log which inodes they are, by a
/// record above its target, took that record for a later change whose time the log would go on telling, left the times
/// to a later pass, and moved the tail past the only record that had them. A crash then left the times of the pass.
#[test]
fn what_a_pass_made_has_its_times_before_the_tail_moves() {
    explored("bare,mkdir-B+times-B,home", "disk");
    explored("bare,create-foo+times-foo,home", "pmem");
}

/// The oracle's own: a group wrote to a file that it had made, and to no other. That joins nothing, so what calls
/// outside of groups had changed went on waiting for a sync, and a death of the process took it.
#[test]
fn a_group_that_writes_to_what_it_makes_joins_nothing() {
    explored("random-4031", "disk");
}
