//! A host that refuses what a part of a joint commit asks for, where the stores write back as part of the commit: at
//! each call on one of the directories, that call only, or all of that kind until the commit has returned. Then
//!
//! 1. The commit succeeds, and every directory has its group when it returns; or it fails, and every directory is as it
//!    was.
//! 2. The next group of each store commits; where a store has failed, once it is opened again.
//! 3. After a crash at any moment of that, all stores open, in any order, and all have their group or none.

use rustix::io::Errno;
use wholly::{Error, Store};
use wholly_sim::{Image, Place, World};

use super::worlds::Worlds;
use super::{How, Joint, Limits, VOLUME_IDS, failed};
use crate::look::at_home;
use crate::refused::{Refusing, goes_on};
use crate::setting::Setting;

/// How many calls and images were judged, and how many joint commits were refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusals {
    /// Calls before which a host began to refuse.
    pub calls: u64,
    /// Joint commits that failed.
    pub refused: u64,
    /// Combinations of images of crashes.
    pub images: u64,
}

/// Tries hosts that refuse with `errno` at each call on the directory of each store. With `lasts` they go on refusing
/// calls of that kind. There are crashes after one in `every` of them, if any.
///
/// # Errors
/// What is wrong, in words.
pub fn refused(
    scripts: &[&str],
    (errno, lasts): (Errno, bool),
    every: Option<u64>,
    setting: &Setting,
    limits: &Limits,
) -> Result<Refusals, String> {
    let mut joint = Joint::of(scripts, setting, limits);
    joint.how = How { at_once: true, ..How::default() };
    joint.record()?;
    let mut all = Refusals::default();
    for which in 0..scripts.len() {
        for call in 1.. {
            let crashes = every.is_some_and(|every| call % every == 0);
            let one = crate::quiet::catch(|| joint.refuse(which, (errno, lasts, call), crashes));
            let named = |what| {
                format!(
                    "{}, {errno:?} from call {call} on store {which}, lasts: {lasts}: {what}",
                    scripts.join(" and ")
                )
            };
            let (came, is_refused) = one.unwrap_or_else(Err).map_err(named)?;
            if !came {
                break;
            }
            all.calls += 1;
            all.refused += u64::from(is_refused);
            assert!(call < 10_000, "a joint commit makes fewer calls");
        }
    }
    all.images = joint.outcome.images;
    Ok(all)
}

/// What programs outside see of an object, but for times.
#[derive(PartialEq)]
struct Shown {
    path: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
    content: Option<Vec<u8>>,
}

fn directory(image: &Image) -> Vec<Shown> {
    let names = image.names().into_iter().filter(|it| !it.path.starts_with(b".wholly"));
    let shown =
        |path: Vec<u8>, mode, owner| Shown { content: image.read(&Place::File(path.clone())), path, mode, owner };
    names.map(|it| shown(it.path, it.mode, it.owner)).collect()
}

impl Joint<'_> {
    /// Gives whether the host came to refuse anything, and whether the commit failed.
    fn refuse(
        &mut self,
        which: usize,
        (errno, lasts, call): (Errno, bool, u64),
        crashes: bool,
    ) -> Result<(bool, bool), String> {
        let worlds = (0..self.workloads.len()).map(|which| {
            let world = World::new((*self.setting.sim).clone());
            self.workloads[which].initial().put_into(&world);
            world
        });
        let worlds = Worlds::of(worlds.collect());
        let host = Refusing::new(worlds[which].host(), (errno, lasts));
        let mut stores = Vec::new();
        for (i, id) in VOLUME_IDS.into_iter().enumerate().take(self.workloads.len()) {
            Store::format_on(&*worlds[i].log(), &self.options(i), id).map_err(failed("making a store"))?;
            let host = if i == which { host.clone() } else { worlds[i].host() };
            stores.push(worlds.open_on((i, host), false, self.options(i)).map_err(failed("open"))?);
        }
        let groups = self.begin(&worlds, &stores)?;
        let begin = worlds.now();
        host.begin(call);
        let committed = Store::commit_together(groups);
        let came = host.end();
        let end = worlds.now();
        let allowed = match &committed {
            Ok(()) => [false, true],
            Err(Error::Poisoned(_)) => [true; 2],
            Err(_) => [true, false],
        };
        let recorded = worlds.history();
        self.go_on(&worlds, stores, allowed).map_err(|what| format!("{committed:?}: {what}"))?;
        if crashes {
            for tick in begin..=end {
                let allowed = if tick < end { [true; 2] } else { allowed };
                self.crash_at(&recorded, tick, allowed, true)
                    .map_err(|what| format!("{committed:?}, crashed at {tick}: {what}"))?;
            }
        }
        Ok((came, committed.is_err()))
    }

    /// All stores have what they may have, and go on.
    fn go_on(&self, worlds: &Worlds, stores: Vec<Store>, allowed: [bool; 2]) -> Result<(), String> {
        if stores.iter().any(|store| store.check_usable().is_err()) {
            drop(stores);
            let images: Vec<_> = worlds.iter().map(|world| world.kill()).collect();
            for order in self.orders() {
                self.live(&images, &order, allowed)?;
            }
            return Ok(());
        }
        let side = usize::from(!allowed[0]);
        // Bystanders see it from the moment at which the commit has returned.
        let shown = || worlds.iter().map(|world| directory(&world.latest())).collect::<Vec<_>>();
        let at_once = shown();
        for (i, store) in stores.iter().enumerate() {
            self.side(worlds, i, store, allowed)?;
            goes_on(store).map_err(|what| format!("store {i}: {what}"))?;
        }
        stores.into_iter().try_for_each(|store| store.close().map_err(failed("close")))?;
        // What could not be removed, the next open removes; a record when nobody asks for it any more.
        for i in (0..worlds.len()).rev() {
            let again = self.open(worlds, i).map_err(|error| format!("second open of store {i}: {error}"))?;
            again.close().map_err(|error| format!("second close of store {i}: {error}"))?;
        }
        if shown() != at_once {
            return Err("when the commit had returned, the directories were not what they were to be".into());
        }
        for i in 0..worlds.len() {
            let home = at_home(&worlds[i].latest())?;
            if let Some(difference) = self.sides[i][side].difference(&home) {
                return Err(format!("at home in store {i}, {difference}"));
            }
        }
        Ok(())
    }
}
