//! The oracle of a large group: what a crash left is all of it or nothing of it, and stays so.
//!
//! 1. Recovery succeeds, reports no conflict, and serves one of the allowed sides: every path, mode, owner, link count,
//!    time and content of it, and nothing else.
//! 2. A close takes it home: the directory holds the same, and the store's own folder nothing that is not always there.
//! 3. The log is empty then, and another open serves the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly::Store;
use wholly_sim::{Image, Place, Trace, World};

use super::unpack::{Entry, Tree, digest, open};
use crate::replay::Recovery;
use crate::setting::Setting;
use crate::view::View;

/// The folder that belongs to the store itself.
const OWN: &str = ".wholly";

const TYPE: u32 = 0o170_000;
const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// Which sides a crash may leave: without the archive, and with it.
pub(super) type Allowed = [bool; 2];

/// What became of a state.
pub(super) struct Life {
    /// What happened in it.
    pub trace: Trace,
    /// What recovery looked at.
    pub fingerprint: u64,
    /// Which side is served.
    pub side: usize,
    /// The number of events when recovery had returned.
    pub recovered: u64,
}

impl Life {
    /// What a crash of this life at a point may leave, and when that is, where `before` was allowed at first: what was
    /// served stays.
    pub fn allowed(&self, point: u64, before: Allowed) -> (Allowed, &'static str) {
        match point < self.recovered {
            true => (before, "during recovery"),
            false => ([self.side == 0, self.side == 1], "after recovery"),
        }
    }
}

/// Lives on after a crash; only recovers, unless it is to go on.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn live(
    setting: &Setting,
    image: &Image,
    sides: &[Tree; 2],
    allowed: Allowed,
    go_on: bool,
) -> Result<Life, String> {
    crate::quiet::catch(|| {
        let world = World::from_image(image, setting.sim.clone());
        world.track_reads();
        let store = opened(&world, "recovery")?;
        let recovered = world.now();
        let fingerprint = world.stop_reads().fingerprint();
        let serves = tree(&store).map_err(|error| format!("after recovery, {error}"))?;
        let side = which(sides, allowed, &serves)?;
        if go_on {
            store.close().map_err(|error| format!("close: {error}"))?;
            let home = at_home(&world.latest())?;
            same(&sides[side], &home).map_err(|difference| format!("at home after close, {difference}"))?;
            let store = opened(&world, "open after close")?;
            if store.recovery().scan.groups != 0 || store.recovery().files != 0 {
                return Err(format!("the log is not empty after close: {:?}", store.recovery()));
            }
            let serves = tree(&store).map_err(|error| format!("after close and open, {error}"))?;
            same(&sides[side], &serves).map_err(|difference| format!("after close and open, {difference}"))?;
        } else {
            drop(store);
        }
        Ok(Life { trace: world.trace(), fingerprint, side, recovered })
    })
    .unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

/// A side in short.
pub(super) fn view(side: usize) -> View {
    View { made_by: ["what was there", "the archive"][side].into(), versions: Vec::new() }
}

/// What a recovery does, at its last `most` events.
pub(super) fn recovery(setting: &Setting, image: &Image, sides: &[Tree; 2], most: u64) -> Recovery {
    let served = |_: &_, store: &Store| which(sides, [true, true], &tree(store)?).map(view);
    Recovery::of(image, setting, most, |world| opened(world, "recovery"), served)
}

fn opened(world: &Arc<World>, when: &str) -> Result<Store, String> {
    let store = open(world).map_err(|error| format!("{when}: {error}"))?;
    match store.recovery().conflicts.first() {
        None => Ok(store),
        Some((path, change)) => {
            Err(format!("{when} reports a conflict where nobody interfered: {}: {change}", path.display()))
        }
    }
}

/// Which of the sides it is.
fn which(sides: &[Tree; 2], allowed: Allowed, serves: &Tree) -> Result<usize, String> {
    let mut differences = Vec::new();
    for (side, wanted) in sides.iter().enumerate().filter(|(side, _)| allowed[*side]) {
        match same(wanted, serves) {
            Ok(()) => return Ok(side),
            Err(difference) => differences.push(difference),
        }
    }
    let (served, all) = (serves.len() - sides[0].len().min(serves.len()), sides[1].len() - sides[0].len());
    Err(format!("recovery serves {served} of {all} objects: {}", differences.join("; or ")))
}

/// Whether all is as it should be: else the first path at which it is not.
fn same(wanted: &Tree, found: &Tree) -> Result<(), String> {
    if let Some((path, entry)) = found.iter().find(|(path, _)| !wanted.contains_key(*path)) {
        return Err(format!("{path} should not be there: {entry:?}"));
    }
    for (path, wanted) in wanted {
        let Some(found) = found.get(path) else { return Err(format!("{path} is not there")) };
        let time = |wanted: Option<i64>, found: Option<i64>| wanted.is_none() || found.is_none() || wanted == found;
        let times = time(wanted.atime_ns, found.atime_ns) && time(wanted.mtime_ns, found.mtime_ns);
        let found_so = Entry { atime_ns: wanted.atime_ns, mtime_ns: wanted.mtime_ns, ..found.clone() };
        if !times || found_so != *wanted {
            return Err(format!("{path} is {found:x?} and should be {wanted:x?}"));
        }
    }
    Ok(())
}

/// Everything that a store serves. What lists an object and what it says of itself must agree.
fn tree(store: &Store) -> Result<Tree, String> {
    let mut tree = BTreeMap::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        let listed =
            store.read_dir(if dir.is_empty() { "." } else { &dir }).map_err(|error| format!("{dir}: {error}"))?;
        for entry in listed {
            let name = String::from_utf8_lossy(&entry.name);
            let path = if dir.is_empty() { name.into_owned() } else { format!("{dir}/{name}") };
            if path == OWN {
                continue;
            }
            let failed = |error| format!("{path}: {error}");
            // First: a look at the content may be noted as the last access.
            let stat = store.metadata(&path).map_err(failed)?;
            if entry.ino != stat.ino || entry.kind != 0 && entry.kind != stat.mode & TYPE {
                return Err(format!("{path} is {entry:?} in its directory, and by itself {stat:?}"));
            }
            let is_dir = stat.mode & TYPE == DIR;
            let mut content = vec![0; if is_dir { 0 } else { stat.size as usize + 1 }];
            if !is_dir {
                let file = store.open_file(&path).map_err(failed)?;
                let read = file.read_at(0, &mut content).map_err(failed)?;
                content.truncate(read);
            }
            let shown = Entry {
                mode: stat.mode,
                owner: (stat.uid, stat.gid),
                nlink: if is_dir { 1 } else { stat.nlink },
                size: content.len() as u64,
                atime_ns: Some(stat.atime_ns),
                mtime_ns: Some(stat.mtime_ns),
                content: if is_dir { 0 } else { digest(&content) },
            };
            if is_dir {
                todo.push(path.clone());
            } else if stat.size != shown.size {
                return Err(format!("{path} has {} bytes and says {}", shown.size, stat.size));
            }
            if tree.insert(path.clone(), shown).is_some() {
                return Err(format!("{path} is listed twice"));
            }
        }
    }
    Ok(tree)
}

/// Everything at home, where looking has left its mark in the times of last access. In the store's own folder may be
/// empty folders.
fn at_home(image: &Image) -> Result<Tree, String> {
    let mut tree = BTreeMap::new();
    for it in image.names() {
        let path = String::from_utf8_lossy(&it.path).into_owned();
        let (is_dir, is_file) = (it.mode & TYPE == DIR, it.mode & TYPE == FILE);
        if path.split('/').next() == Some(OWN) {
            if !is_dir || path.split('/').count() > 2 {
                return Err(format!("at home after close, {path} is left"));
            }
            continue;
        }
        let content = if is_file { image.read(&Place::File(it.path)) } else { None }.unwrap_or_default();
        let shown = Entry {
            mode: it.mode,
            owner: it.owner,
            nlink: if is_dir { 1 } else { it.nlink },
            size: content.len() as u64,
            atime_ns: None,
            mtime_ns: Some(it.times_ns.1),
            content: if is_file { digest(&content) } else { 0 },
        };
        tree.insert(path, shown);
    }
    Ok(tree)
}
