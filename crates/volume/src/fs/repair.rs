//! Repair of a volume that is not mounted. See [`repair`].
//!
//! A repair works on an [`Overlay`]: it checks, carries out the remedies of the lowest [rank](Remedy::rank), and checks
//! again, until nothing is wrong. Then all blocks that have changed are stored at once. Nothing is changed if a fault
//! remains that is not known how to put right.
//!
//! A remedy for which there is no space is left, and the rest stored: the volume is no worse then, and its user can
//! make space.
//!
//! | file | idea |
//! |---|---|
//! | `repair.rs` | rounds of checks and remedies; names for what has none |
//! | `repair/surgeon.rs` | carrying out a remedy |
//! | `repair/storing.rs` | storing all changes at once |

mod storing;
mod surgeon;

pub use storing::{SITES, end_log, finish, give_log, give_up, store, unfinished};

use std::collections::HashSet;
use std::sync::Arc;

use wholly_error::{Error, Result};
use wholly_media::Region;
use wholly_vfs::{Context, Errno};

use super::DIRECTORY;
use super::check::{Examined, Finding, Watch, examine};
use super::group::{Group, Need};
use super::mount::{self, Plain, read_superblock};
use super::names::Birth;
use super::overlay::Overlay;
use super::remedy::Remedy;
use super::storage::write_superblock;
use crate::engine::{Engine, Kind};
use crate::format::dir::NAME_MAX;
use crate::format::inode::ROOT;
use surgeon::Surgeon;

/// The most checks of one repair: each remedy may uncover what it hid, and no fault hides many.
const MOST_ROUNDS: usize = 64;
/// Bytes of memory for the mount that names inodes anew.
const CACHE: usize = 1 << 20;

/// Which faults are put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Those whose remedy loses nothing. If there are others, nothing is changed.
    Safe,
    /// All.
    All,
}

/// A fault, and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mended {
    /// What was wrong.
    pub finding: Finding,
    /// What became of it.
    pub done: String,
}

/// Makes an engine that stores in place, for the mount inside of a repair.
pub type InPlace<'e> = dyn Fn(&Arc<dyn Region>) -> Box<dyn Engine> + 'e;

/// What a repair over an overlay has come to.
#[derive(Default)]
pub struct Outcome {
    pub done: Vec<Mended>,
    /// What could not be put right.
    pub left: Vec<Finding>,
    /// Whether what is left is only for want of space: the rest is worth storing.
    pub is_full: bool,
}

/// Makes all metadata sound over an overlay.
///
/// # Errors
/// Those of a check.
pub fn mend(
    over: &Arc<Overlay<'static>>,
    extent: Repair,
    in_place: &InPlace<'_>,
    watch: &mut Watch<'_>,
) -> Result<Outcome> {
    let region: Arc<dyn Region> = over.clone();
    // Saved allocators do not hold for what is going to be changed.
    let mut superblock = read_superblock(&*region)?;
    (superblock.saved, superblock.is_clean) = (None, false);
    write_superblock(&mut Plain { region: &*region, next: 0 }, &mut superblock)?;
    let (mut outcome, mut refused) = (Outcome::default(), HashSet::new());
    let mut rounds = 0;
    loop {
        let superblock = read_superblock(&*region)?;
        let examined = examine(&*region, &superblock, &mut |progress| watch(progress))?;
        let Examined { checked, remedies, marks, is_complete } = examined;
        let is_safe = is_complete && remedies.iter().all(Remedy::is_safe);
        let open = || remedies.iter().filter(|remedy| **remedy != Remedy::Other && !refused.contains(*remedy));
        let rank = open().map(Remedy::rank).min();
        // A check that did not list all is no round: what it lists goes, and the medium has only so much.
        rounds += usize::from(is_complete);
        let Some(rank) = rank.filter(|_| (extent == Repair::All || is_safe) && rounds <= MOST_ROUNDS) else {
            let is_only_full = rank.is_none() && !refused.is_empty();
            (outcome.left, outcome.is_full) = (checked.findings, is_only_full);
            return Ok(outcome);
        };
        let mut surgeon = Surgeon::new(&region, superblock, &marks);
        let mut nameless = Vec::new();
        for (finding, remedy) in checked.findings.into_iter().zip(&remedies) {
            if remedy.rank() != rank || refused.contains(remedy) {
                continue;
            }
            if let Remedy::Attach { ino, kind } = *remedy {
                nameless.push((ino, u32::from(kind) << 12));
            }
            match surgeon.apply(remedy) {
                Ok(more) => outcome.done.push(Mended { finding, done: remedy.done() + more }),
                Err(Error::NoSpace(_)) => _ = refused.insert(remedy.clone()),
                Err(error) => return Err(error),
            }
        }
        if !nameless.is_empty() {
            let unattached = attach(&region, in_place, &nameless)?;
            outcome.done.retain(|it| !unattached.iter().any(|(ino, _)| it.finding.place == format!("inode {ino}")));
            refused.extend(unattached.iter().map(|(ino, kind)| Remedy::Attach { ino: *ino, kind: (kind >> 12) as u8 }));
        }
    }
}

/// What a mount and an unmount put in order: it frees what was removed, saves the allocators, and writes all copies of
/// the superblock. What the log had is stored or void.
///
/// # Errors
/// Those of a mount.
pub fn tidy(region: &Arc<dyn Region>, in_place: &InPlace<'_>) -> Result<()> {
    let core = mount::mount(region, in_place(region), CACHE, super::clock)?;
    let _shut = core.shut();
    let unmounted = mount::unmount(&core, &**region);
    core.end();
    unmounted
}

/// Gives inodes names in a directory of the root that nobody but the superuser can enter. Returns those for which there
/// is no space.
fn attach(region: &Arc<dyn Region>, in_place: &InPlace<'_>, nameless: &[(u64, u32)]) -> Result<Vec<(u64, u32)>> {
    let mut core = mount::mount(region, in_place(region), CACHE, super::clock)?;
    // The blocks that are kept are for this.
    core.kept = 0;
    let core = core;
    let root = core.named(ROOT)?;
    let name_of = |number: u32, name: &str| match number {
        0 => name.to_owned(),
        number => format!("{name}-{number}"),
    };
    let mut number = 0;
    let dir = loop {
        let name = name_of(number, "lost+found");
        let found = core.find(&root, &root.state.read().unwrap(), name.as_bytes())?.and_then(|place| place.found);
        match found.map(|found| found.head) {
            None => {
                let birth = Birth { mode: DIRECTORY | 0o700, rdev: 0, target: b"" };
                match core.make(&Context::superuser(), ROOT, name.as_bytes(), &birth) {
                    Ok(dir) => break dir,
                    Err(Errno::NOSPC) => {
                        drop(root);
                        core.sync()?;
                        return Ok(nameless.to_vec());
                    }
                    Err(errno) => return Err(Error::Refused(name, errno)),
                }
            }
            Some(head) if u32::from(head.kind) << 12 == DIRECTORY => {
                let dir = core.named(head.ino)?;
                let owned = dir.state.read().unwrap().record.owned;
                if owned.uid == 0 && owned.mode & 0o077 == 0 {
                    break dir;
                }
                number += 1;
            }
            Some(_) => number += 1,
        }
    };
    let mut state = dir.state.write().unwrap();
    let mut left = Vec::new();
    for &(ino, kind) in nameless {
        let (mut number, mut name, mut place) = (0, String::new(), None);
        while name.is_empty() {
            let tried = name_of(number, &format!("#{ino}"));
            place = core.find(&dir, &state, tried.as_bytes())?;
            match &place {
                Some(it) if it.found.is_some() => number += 1,
                _ => name = tried,
            }
        }
        debug_assert!(name.len() <= NAME_MAX);
        let place = match core.make_room(&dir, &mut state, name.as_bytes(), place) {
            Err(Error::NoSpace(_)) => {
                left.push((ino, kind));
                continue;
            }
            place => place?,
        };
        let mut group = Group::begin(&core, Kind::Implicit, 0, Need::Vital)?;
        core.insert(&mut group, &dir, &place, name.as_bytes(), (ino, kind))?;
        group.commit()?;
    }
    drop(state);
    drop((dir, root));
    core.sync()?;
    Ok(left)
}
