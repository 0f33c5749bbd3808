//! Formulas of the systems, exact: counts on a model, and waits by a clock that passes in waits alone.

use nvme_events::model::Profile;
use rustix::fs::{Mode, OFlags};
use sync_events::now;
use volume_events::PolicyVfs;
use wholly_vfs::{Context, Handle, Ino, Policy, Rename, Vfs};

use super::counts::{BLOCK, Counted, standing, steps, table_1, tick};
use super::device::Timed;
use super::ordinary::How;
use super::systems::{ALL, Commit, MQFS, MQFS_ATOMIC, System, Use};
use crate::Result;
use crate::fcfs::subject::failed;

/// Their clock is one for all.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn table_1_is_that_of_the_formulas() {
    let _alone = alone();
    for system in ALL {
        for n in [1, 4, 64] {
            for row in table_1(&system, n).expect("counts") {
                assert!(row.is_formula, "{row:?}");
            }
        }
    }
    // The paper's, with N + 1 blocks: content and inode.
    let found = |name: &str| {
        let rows = table_1(&System::named(name).expect("it is there"), 1).expect("counts");
        rows.iter().map(|row| [row.mmio, row.dma_queue, row.block_ios, row.interrupts]).collect::<Vec<_>>()
    };
    assert_eq!(found("classic"), [[8, 8, 4, 4]]);
    assert_eq!(found("horae"), [[8, 8, 4, 4]]);
    assert_eq!(found("mqfs"), [[4, 3, 3, 3]]);
    assert_eq!(found("mqfs_atomic"), [[2, 0, 0, 0], [2, 3, 3, 3]]);
    assert_eq!(found("none_parallel"), [[4, 4, 2, 2]]);
}

/// With neighbours merged, all that goes to the journal is one command, and so is the content; the commit block is
/// another one, but for Horae's, which nothing keeps from its neighbours.
#[test]
fn neighbours_are_one_command_in_each_system() {
    let _alone = alone();
    let ctx = Context::superuser();
    for system in ALL.into_iter().filter(|system| !system.is_atomic) {
        let on = Counted::new(&system, 4, true).expect("a volume");
        let append = || {
            on.put(4, 4)?;
            Ok(on.vfs.fsync(&ctx, &on.file)?)
        };
        let counts = on.counts(append).expect("append");
        // Content of four blocks, and the blocks of map, inode and bitmap.
        let name = format!("{}: {counts:?}", system.name);
        assert_eq!(counts.blocks, 7 + system.more_blocks(), "{name}");
        match system.commit {
            Commit::Tail => assert_eq!((counts.block_ios, steps(&system, counts)), (2, 4), "{name}"),
            Commit::By(How::Horae) => assert_eq!((counts.block_ios, counts.mmio_raw()), (2, 4), "{name}"),
            Commit::By(How::Classic | How::ClassicThread) => {
                assert_eq!((counts.block_ios, counts.mmio_raw()), (3, 6), "{name}");
            }
            Commit::By(How::Parallel | How::Serial) => {
                assert_eq!((counts.block_ios, counts.mmio_raw()), (4, 8), "{name}: none of them are neighbours");
            }
        }
        on.close().expect("close it");
    }
}

/// A device that takes nothing but time.
const SLOW: Profile = Profile {
    name: "slow",
    latency_ns: 1_000_000,
    bytes_per_s: 1 << 60,
    writes_per_s: 1 << 30,
    posted_ns: 0,
    read_ns: 0,
    interrupt_ns: 0,
};

/// Round trips of work.
fn waits(work: impl FnOnce() -> Result<()>) -> u64 {
    let begun = now();
    work().expect("it works");
    (now() - begun).as_nanos() as u64 / SLOW.latency_ns
}

/// What is written is there, whatever became of the transactions in between; and each call waits as often as the
/// formula says.
#[test]
fn each_call_waits_as_often_as_the_formula_says() {
    let _alone = alone();
    for system in ALL {
        sync_events::run(|| trips_of(&system).unwrap_or_else(|error| panic!("{}: {error}", system.name)));
    }
}

fn trips_of(system: &System) -> Result<()> {
    // Of a transaction that writes so many commands, with the commit block.
    let formula = |commands: u64| match system.commit {
        Commit::Tail | Commit::By(How::Horae | How::Parallel) => 1,
        Commit::By(How::Classic | How::ClassicThread) => 2,
        Commit::By(How::Serial) => commands,
    };
    let device = Timed::new(256 << 20, SLOW)?;
    let of = Use { clock: standing, merges: false, ..Use::with(2) };
    let queues = system.queues(device, &of)?;
    let volume = system.volume(queues.clone(), &of)?;
    let (vfs, ctx) = (PolicyVfs::new(&volume, Policy::PerSync)?, Context::superuser());
    let create = |name: &str| -> Result<Handle> {
        let (made, file) = vfs.create(&ctx, Ino::ROOT, name.as_bytes(), OFlags::RDWR, Mode::RUSR)?;
        vfs.forget(made.ino, 1);
        Ok(file)
    };
    let file = create("a")?;
    let put = |at: u64| -> Result<()> {
        tick();
        Ok(vfs.write(&ctx, &file, at * BLOCK, &[at as u8 + 1; BLOCK as usize]).map(drop)?)
    };
    (0..2).try_for_each(|at| put(at).and_then(|()| Ok(vfs.fsync(&ctx, &file)?)))?;
    vfs.release(&ctx, create("b")?)?;
    let append = |at| -> Result<()> {
        put(at)?;
        Ok(vfs.fsync(&ctx, &file)?)
    };
    assert_eq!(waits(|| append(2)), formula(4), "{}: content, map, inode, bitmap", system.name);
    assert_eq!(waits(|| append(2)), formula(2), "{}: content, inode", system.name);
    tick();
    assert_eq!(waits(|| vfs.release(&ctx, create("c")?).map_err(Into::into)), formula(4), "{}: create", system.name);
    tick();
    let rename = || Ok(vfs.rename(&ctx, Ino::ROOT, b"b", Ino::ROOT, b"d", Rename::Replace)?);
    assert_eq!(waits(rename), formula(3), "{}: rename", system.name);
    tick();
    assert_eq!(waits(|| Ok(vfs.unlink(&ctx, Ino::ROOT, b"d")?)), formula(4), "{}: unlink", system.name);
    // Handed over, and not waited for.
    let tell = |at: u64| -> Result<()> {
        put(at)?;
        Ok(vfs.fatomic(&ctx, &file, false)?)
    };
    let locks = u64::from(system.locks_pages);
    assert_eq!(waits(|| tell(3)), 0, "{}: fatomic", system.name);
    assert_eq!(waits(|| tell(4)), locks * formula(4), "{}: fatomic of the same pages", system.name);
    let is_there = |vfs: &PolicyVfs, file: &Handle| -> Result<bool> {
        let mut all = vec![0; 5 * BLOCK as usize];
        let read = vfs.read(&ctx, file, 0, &mut all)?;
        let mut blocks = all.chunks(BLOCK as usize).zip(1..);
        Ok(read == all.len() && blocks.all(|(block, byte)| block.iter().all(|it| *it == byte)))
    };
    assert!(is_there(&vfs, &file)?, "{}", system.name);
    vfs.release(&ctx, file)?;
    drop(vfs);
    volume.close().map_err(failed)?;
    let volume = system.open(queues, &of)?;
    let vfs = PolicyVfs::new(&volume, Policy::PerSync)?;
    let found = vfs.lookup(&ctx, Ino::ROOT, b"a")?;
    let file = vfs.open(&ctx, found.ino, OFlags::RDWR)?;
    assert!(is_there(&vfs, &file)?, "{}, opened again", system.name);
    vfs.release(&ctx, file)?;
    vfs.forget(found.ino, 1);
    drop(vfs);
    volume.close().map_err(failed)
}

#[test]
fn names_of_systems_are_their_own() {
    for system in ALL {
        assert_eq!(System::named(system.name).map(|found| found.name), Some(system.name));
    }
    assert_eq!((MQFS.more_blocks(), MQFS_ATOMIC.more_blocks()), (1, 1));
}
