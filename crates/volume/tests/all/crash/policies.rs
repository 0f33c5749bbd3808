//! Calls outside of explicit groups, grouped by a policy, while the power fails: what was called since the last sync is
//! there wholly or not at all, and a sync makes it last.

use std::mem::ManuallyDrop;
use std::time::Duration;

use wholly_crash::volume::{BYTES, OnVolume, Running, engines, times_as_large};
use wholly_posix::Tree;
use wholly_sim::{SimConfig, World};
use wholly_vfs::Policy;
use wholly_vfs::{Fallocate, Groups, Ino, OFlags, Result};
use wholly_volume::{PolicyVfs, Volume, VolumeOptions, VolumeVfs};

use super::groups::expect;
use super::programs::{Done, FEW_PAGES};
use super::scripts::Step;
use super::survival::{explored, limits_of_groups, models};

/// What is done under a policy, from a beginning on.
#[derive(Debug)]
pub struct Policed {
    pub name: &'static str,
    policy: Policy,
    pub before: Step,
    /// Whether the clock stands still: then content is all that its calls change.
    pub is_still: bool,
    acts: &'static [Act],
}

/// One call, or what is one group.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Everybody sees it, and a crash takes it away.
    Pends(Step),
    /// It lasts, with what was pending before it: all of that is one group.
    Lasts(Step),
    /// The same, but for times of files.
    LastsButTimes(Step),
    /// It is ordered with what was pending before it, after all that was ordered before.
    Orders(Step),
    /// An explicit group takes this file, and gives it back. That lasts, too.
    Takes(&'static str),
    /// The volume is given up: what is pending lasts.
    End,
}

use Act::{End, Lasts, LastsButTimes, Orders, Pends, Takes};

/// The timer never ends a group here.
const SHARED: Policy = Policy::Shared { interval: Duration::MAX };

fn three(t: &Tree<'_>) -> Result<()> {
    t.file("a", 0o644, &[1; 12_288])?;
    t.file("closed", 0o600, &[3; 100])?;
    t.file("b", 0o600, &[2; 9000]).map(drop)
}

/// Does something to a file, which stays open: the last close may be a sync.
fn to(t: &Tree<'_>, path: &str, call: impl FnOnce(&wholly_posix::File<'_>) -> Result<()>) -> Result<()> {
    let file = ManuallyDrop::new(t.open(path, OFlags::RDWR)?);
    call(&file)
}

fn write(t: &Tree<'_>, path: &str, at: u64, data: &[u8]) -> Result<()> {
    to(t, path, |file| file.write_all(at, data))
}

fn sync(t: &Tree<'_>, path: &str) -> Result<()> {
    to(t, path, |file| file.fsync())
}

/// An explicit group takes a file, and gives it back.
fn take(vfs: &PolicyVfs, path: &str) -> Result<()> {
    to(&Tree::new(vfs, Ino::ROOT), path, |file| {
        let group = vfs.begin()?;
        vfs.add(group, &file.handle)?;
        Ok(vfs.abort(group)?)
    })
}

/// In one moment, so that changes of one file's blocks share no block, nor an inode.
pub static CONTENT_IN_ORDER: Policed = Policed {
    name: "content in order",
    policy: Policy::PerSync,
    before: three,
    is_still: true,
    acts: &[
        Pends(|t| write(t, "a", 100, &[40; 50])),
        Orders(|t| to(t, "a", |a| a.fatomic(true))),
        Pends(|t| write(t, "a", 9000, &[41; 50])),
        Orders(|t| to(t, "a", |a| a.fatomic(true))),
        Pends(|t| write(t, "a", 4100, &[42; 50])),
        Orders(|t| to(t, "a", |a| a.fatomic(true))),
        Pends(|t| write(t, "a", 9100, &[43; 50])),
        Lasts(|t| sync(t, "a")),
    ],
};

/// Syncs of data, and what stores the times that they keep back.
pub static TIMES_LATER: Policed = Policed {
    name: "times later",
    policy: Policy::PerSync,
    before: three,
    is_still: false,
    acts: &[
        Pends(|t| write(t, "a", 100, &[50; 50])),
        LastsButTimes(|t| to(t, "a", |a| a.fdatasync())),
        Pends(|t| write(t, "a", 9000, &[51; 50])),
        LastsButTimes(|t| to(t, "a", |a| a.fdatasync())),
        Lasts(|t| sync(t, "a")),
        Pends(|t| write(t, "a", 100, &[52; 50])),
        LastsButTimes(|t| to(t, "a", |a| a.fdatasync())),
        Lasts(|t| t.chmod("a", 0o600).map(drop)),
        // A length is stored.
        Pends(|t| to(t, "a", |a| a.append(&[53; 300]).map(drop))),
        LastsButTimes(|t| to(t, "a", |a| a.fdatasync())),
        Pends(|t| write(t, "a", 4000, &[54; 5000])),
        LastsButTimes(|t| to(t, "a", |a| a.fdatasync())),
        Lasts(|t| sync(t, "a")),
        Pends(|t| write(t, "b", 100, &[55; 50])),
        LastsButTimes(|t| to(t, "b", |b| b.fdatasync())),
        End,
    ],
};

static ALL: [Policed; 2] = [
    Policed {
        name: "from sync to sync",
        policy: Policy::PerSync,
        before: three,
        is_still: false,
        acts: &[
            Pends(|t| write(t, "a", 100, &[10; 5000])),
            Pends(|t| to(t, "a", |a| a.append(&[11; 300]).map(drop))),
            Pends(|t| write(t, "b", 64, &[12; 64])),
            Pends(|t| write(t, "a", 4000, &[13; 200])),
            Lasts(|t| {
                expect(t.content("a")?[4000..4300] == [[13; 200], [10; 200]].concat()[..300])?;
                sync(t, "a")
            }),
            Pends(|t| write(t, "a", 0, &[14; 12_588])),
            Pends(|t| t.open("b", OFlags::RDWR).map(drop)),
            // The last close.
            Lasts(|t| t.open("closed", OFlags::RDWR)?.write_all(50, &[30; 500])),
            Lasts(|t| sync(t, "b")),
            Pends(|t| to(t, "a", |a| a.truncate(5000).map(drop))),
            Pends(|t| write(t, "a", 4500, &[15; 6000])),
            Lasts(|t| t.vfs.sync(&t.ctx)),
            Lasts(|t| t.create("c", 0o644).map(drop)),
            Pends(|t| write(t, "c", 10, &[16; 6000])),
            Pends(|t| {
                let flags = Fallocate::Punch;
                to(t, "a", |a| a.allocate(flags, 100, 8000))
            }),
            Takes("a"),
            Lasts(|t| to(t, "c", |c| c.fdatasync())),
            Lasts(|t| ManuallyDrop::new(t.open("b", OFlags::RDWR | OFlags::SYNC)?).write_all(4000, &[17; 500])),
            Pends(|t| write(t, "b", 4100, &[18; 100])),
            Pends(|t| write(t, "b", 8000, &[19; 3000])),
            End,
        ],
    },
    Policed {
        name: "all calls together",
        policy: SHARED,
        before: three,
        is_still: false,
        acts: &[
            Pends(|t| write(t, "a", 100, &[20; 5000])),
            Pends(|t| write(t, "b", 64, &[21; 64])),
            Lasts(|t| t.create("c", 0o644).map(drop)),
            Pends(|t| write(t, "c", 0, &[22; 5000])),
            Pends(|t| t.open("b", OFlags::RDWR)?.write_all(8000, &[23; 2000])),
            Lasts(|t| {
                expect(t.content("a")?[99..101] == [1, 20] && t.content("c")? == [22; 5000])?;
                sync(t, "b")
            }),
            Pends(|t| to(t, "a", |a| a.truncate(4000).map(drop))),
            Pends(|t| write(t, "a", 3900, &[24; 500])),
            Pends(|t| write(t, "c", 4090, &[25; 10])),
            Takes("c"),
            Pends(|t| to(t, "b", |b| b.append(&[26; 700]).map(drop))),
            Pends(|t| write(t, "a", 0, &[27; 9000])),
            Lasts(|t| t.vfs.sync(&t.ctx)),
            Pends(|t| write(t, "c", 0, &[28; 100])),
            Pends(|t| write(t, "a", 50, &[29; 100])),
            End,
        ],
    },
];

pub fn all() -> Vec<OnVolume<Done>> {
    let on = |engine| ALL.iter().map(move |policed| OnVolume { engine, program: Done::Policed(policed, FEW_PAGES) });
    engines().flat_map(on).collect()
}

impl Policed {
    pub fn perform(&self, running: &mut Running<'_>) -> std::result::Result<(), String> {
        let vfs = PolicyVfs::new(running.volume(), self.policy).map_err(|errno| errno.to_string())?;
        // A run that fails may leave it in a state that is not fit to be dropped.
        let mut vfs = ManuallyDrop::new(Some(vfs));
        for (number, act) in self.acts.iter().enumerate() {
            let before = running.state().clone();
            let label = format!("act {number}");
            let mut body = |_: &Volume| match act {
                Pends(step) | Lasts(step) | LastsButTimes(step) | Orders(step) => {
                    step(&Tree::new(vfs.as_ref().expect("not given up"), Ino::ROOT))
                }
                Takes(path) => take(vfs.as_ref().expect("not given up"), path),
                End => {
                    drop(vfs.take());
                    Ok(())
                }
            };
            let done = match act {
                Pends(_) => running.group_step(&label, &mut body),
                LastsButTimes(_) => running.data_step(&label, &mut body),
                Orders(_) => running.order_step(&label, &mut body),
                Lasts(_) | Takes(_) | End => running.step(&label, &mut body),
            }?;
            done.map_err(|errno| format!("{label}: {errno}"))?;
            match (act, before != *running.state()) {
                (Pends(_), true) => return Err(format!("{label} lasts")),
                (Lasts(_) | LastsButTimes(_) | Orders(_) | Takes(_) | End, false) => {
                    return Err(format!("{label} does not last"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[test]
fn what_a_policy_groups_is_there_wholly_or_not_at_all() {
    explored(&models(), &all(), &limits_of_groups());
}

/// Pending content is committed before a call changes the name of its file.
#[test]
fn names_come_after_pending_content() {
    for (engine, policed) in engines().flat_map(|engine| ALL.iter().map(move |policed| (engine, policed))) {
        let log_len = BYTES * times_as_large(engine);
        let world = World::new(SimConfig { log_len, ..SimConfig::pmem() });
        let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
        Volume::format_region(&*world.log(), &options).expect("make a volume");
        let volume = Volume::open_region(world.log(), &options).expect("open it");
        let vfs = PolicyVfs::new(&volume, policed.policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        three(&tree).expect("three files");
        write(&tree, "a", 0, &[5; 9000]).expect("write");
        tree.rename("a", "c").expect("rename");
        // The process dies.
        let dead = World::from_image(&world.latest(), world.config().clone());
        let volume = Volume::open_region(dead.log(), &options).expect("open it");
        let content = Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).content("c").expect("it has its new name");
        assert!(content[..9000] == [5; 9000], "{}, {}", engine.name(), policed.name);
    }
}
