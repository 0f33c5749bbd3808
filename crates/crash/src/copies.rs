//! Copies of stores: the process is dead, the directory is copied with the log in it, and the copy is adopted. Its
//! files are other inodes than the log says, and it may lie on another medium than the log was made for.
//!
//! After every crash of an adoption, and of what follows it:
//!
//! 1. The copy is adopted again, without a conflict, and serves what had committed.
//! 2. The next group commits, and a close takes all of it home.
//!
//! A copy is made of what a dead process left between two calls. One that was made of a half-done checkpoint may have
//! conflicts, so that nothing of it goes home; that those are reported, and that it serves what was committed, is
//! asked.

use std::ops::ControlFlow;
use std::sync::Arc;

use wholly::Store;
use wholly_sim::{ExploreLimits, Explorer, Image, Pick, SimConfig, World};

use crate::life::{Extent, live};
use crate::look::served;
use crate::run::{Allowed, Run, run};
use crate::script::workload;
use crate::setting::Setting;
use crate::store::open;
use crate::workload::Workload;

/// What the stores have done that are copied, as [scripts](crate::script).
pub const ALL: &[&str] = &[
    "bare,write-A/foo+create-foo+append-foo,rename-A/foo-bar+write-bar",
    "dirs,rename-A/foo-B/foo+rmdir-A/C,rename-B-C+mkdir-B,create-B/foo+tag-B+chmod-C",
    "bare,link-A/foo-foo+unlink-A/foo,append-foo,home,write-foo+create-A/foo,exchange-A/foo-foo",
    "dirs,exchange-A-B+append-B/foo,lot,create-A/foo+fill-A/foo+rename-B/foo-foo,pass,symlink-foo-bar+unlink-foo,kill,mkdir-C",
    "bare.staged,create-foo+fill-foo,append-foo+create-bar+fill-bar,rename-foo-A/foo+write-bar,home,create-foo+fill-foo",
    "bare.staged,fill-A/foo+write-A/foo,create-foo+more-A/foo,home,fill-A/foo+fill-foo,rename-A/foo-bar",
];

/// How much higher the inodes of a copy are.
const INODES: u64 = 1 << 40;

/// Copies what each operation left to the medium of `to`, adopts the copy, and crashes that. Returns how many images
/// were judged, and how many copies had conflicts.
///
/// # Errors
/// What is wrong, in words, and after which crash.
pub fn explore(script: &str, setting: &Setting, to: &Setting, limits: &ExploreLimits) -> Result<(u64, u64), String> {
    let workload = workload(script).expect("it makes sense");
    let run = run(&workload, setting);
    let copied = Setting {
        name: format!("{}, copied to {}", setting.name, to.name),
        sim: Arc::new(SimConfig { inodes_from: INODES, ..(*to.sim).clone() }),
    };
    let mut explorer = Explorer::new(&run.trace);
    let (mut judged, mut conflicts) = (0, 0);
    for point in 1..=run.trace.events.len() as u64 {
        explorer.seek(point);
        let allowed = run.allowed(point);
        let image = World::from_image(&explorer.kill_image(), setting.sim.clone()).latest();
        let wrong = |choice: &str, what: String| format!("{script}, copied at {point}{choice}: {what}");
        let is_between = run.operations.iter().any(|operation| operation.end == point);
        if allowed.unmade {
            continue;
        }
        if !is_between {
            judged += 1;
            let found = half_way(&workload, &copied, &image, &allowed).map_err(|what| wrong("", what))?;
            let moment = run.moment(point);
            if found && !["checkpoint", "pass"].iter().any(|pass| moment.contains(pass)) {
                return Err(wrong("", format!("a conflict, although no checkpoint was at work: {moment}")));
            }
            conflicts += u64::from(found);
            continue;
        }
        let life = live(&workload, &copied, &image, &allowed, Extent::WHOLE).map_err(|what| wrong("", what))?;
        let adopted = Run {
            trace: life.world.trace(),
            before: allowed.states,
            unmade: false,
            operations: life.operations,
            busy: 0,
            failure: None,
        };
        judged += crashed(&workload, &copied, &adopted, limits).map_err(|(choice, what)| wrong(&choice, what))?;
    }
    Ok((judged, conflicts))
}

/// Crashes the life of a copy.
fn crashed(
    workload: &Workload,
    copied: &Setting,
    adopted: &Run,
    limits: &ExploreLimits,
) -> Result<u64, (String, String)> {
    let mut explorer = Explorer::new(&adopted.trace);
    let (mut judged, mut wrong) = (0, None);
    for point in 1..=adopted.trace.events.len() as u64 {
        explorer.seek(point);
        let allowed = adopted.allowed(point);
        let mut one = |choice: String, image: &Image, go_on: bool| {
            judged += 1;
            let extent = Extent { twice: false, go_on };
            wrong = live(workload, copied, image, &allowed, extent).err().map(|what| (choice, what));
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if one(format!(" and killed at {point}"), &explorer.kill_image(), true).is_continue() {
            explorer.for_each_image(limits, |choice, image| {
                one(format!(" and {choice}"), image, matches!(choice.pick, Pick::All | Pick::None))
            });
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
    }
    Ok(judged)
}

/// Adopts what was copied in the middle of an operation. Whether it has conflicts.
fn half_way(workload: &Workload, copied: &Setting, image: &Image, allowed: &Allowed) -> Result<bool, String> {
    let world = World::from_image(image, copied.sim.clone());
    let store = open(&world, workload, copied).map_err(|error| format!("open: {error}"))?;
    if store.recovery().conflicts.is_empty() {
        let served = served(&world, &store, workload)?;
        if !allowed.states.iter().any(|state| **state == served) {
            return Err("what is served was never committed".into());
        }
        return store.close().map(|()| false).map_err(|error| format!("close: {error}"));
    }
    refuses(&store).map(|()| true)
}

/// A store that has found a conflict takes nothing home.
fn refuses(store: &Store) -> Result<(), String> {
    match store.checkpoint() {
        Err(wholly::Error::Conflict { .. }) => Ok(()),
        other => Err(format!("a checkpoint reports {other:?} in the place of a conflict")),
    }
}
