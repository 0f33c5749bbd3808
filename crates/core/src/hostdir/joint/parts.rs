//! Groups of several stores that are parked together: each names the others, so that none is applied without them by
//! mistake.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use wholly_changes::{Neighbour, ParkedFile, path_of};
use wholly_host::{HostFs, is_there};

use super::{Neighbours, record};
use super::{folder, neighbours};
use crate::error::{Error, Result};
use crate::hostdir::StoreVfs;
use crate::hostdir::parked::ParkedId;
use crate::hostdir::running::Running;
use crate::hostdir::undo_store::{kept_path, made_path};
use wholly_vfs::GroupId;

/// Another part of what was parked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The directory of its store: where that is, or was when it was parked.
    pub dir: PathBuf,
    /// Its name there.
    pub id: ParkedId,
    /// What has become of it.
    pub state: PartState,
}

/// What has become of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// It is parked, or its undo is kept.
    Parked,
    /// It was applied, undone or discarded by itself, or was never parked or kept because of a crash.
    Gone,
    /// Its store is not where it was, neither by its path nor as seen from the other one.
    Away,
}

impl StoreVfs {
    /// Parks groups of several stores together: each that changes anything names the others. Gives for each the parked
    /// group; none where it has changed nothing, which is aborted. A crash leaves some of them parked, or all.
    ///
    /// # Errors
    /// For each by itself, those of [`park`](StoreVfs::park).
    pub fn park_together(
        groups: &[(&StoreVfs, GroupId)],
        note: &str,
        keep: Option<Duration>,
    ) -> Vec<Result<Option<ParkedId>>> {
        let mut taken: Vec<Result<Option<Running>>> =
            groups.iter().map(|(view, group)| view.take_changing(*group)).collect();
        let (stores, places): (Vec<_>, Vec<_>) = taken
            .iter()
            .enumerate()
            .filter_map(|(i, running)| {
                let running = running.as_ref().ok()?.as_ref()?;
                Some((i, place_of(running)))
            })
            .unzip();
        let mut done = Vec::new();
        for (i, running) in taken.drain(..).enumerate() {
            let running = match running {
                Ok(Some(running)) => running,
                Ok(None) => {
                    done.push(Ok(None));
                    continue;
                }
                Err(error) => {
                    done.push(Err(error));
                    continue;
                }
            };
            let here = stores.iter().position(|at| *at == i).expect("it changes something");
            let others = places.iter().enumerate().filter(|(at, _)| *at != here).map(|(_, place)| Neighbour {
                relative: neighbours::from(&places[here].absolute, &place.absolute),
                ..place.clone()
            });
            let others: Vec<Neighbour> = others.take(record::MOST).collect();
            done.push(groups[i].0.park_taken(running, note, keep, &others).map(Some));
        }
        done
    }
}

/// How others find the group of a store once it is parked.
fn place_of(running: &Running) -> Neighbour {
    let store = &running.store;
    // Where it cannot be told where that is, the others know at least that it is there.
    let absolute = store.joint.neighbours.as_ref().and_then(|neighbours| neighbours.address().ok()).unwrap_or_default();
    Neighbour {
        volume_id: *store.log.volume_id(),
        number: running.id,
        inode: folder::directory_of(&*store.host).unwrap_or_default(),
        absolute,
        relative: Vec::new(),
    }
}

/// The other parts of a parked group, or of an undo, of the store whose directory `host` is.
///
/// # Errors
/// [`Error::NotFound`] where there is none of this name; [`Error::Corrupt`].
pub fn parts_on(host: &dyn HostFs, others: &dyn Neighbours, id: ParkedId) -> Result<Vec<Part>> {
    let named = |error| match error {
        Error::NotFound(_) => Error::NotFound(format!("parked group {id}")),
        error => error,
    };
    let path = if is_there(host, &kept_path(host, id.0))? { made_path(host, id.0) } else { path_of(id.0) };
    if !ParkedFile::head_of(host, &path).map_err(named)?.0.may_have_parts() {
        return Ok(Vec::new());
    }
    let file = ParkedFile::read(host, &path).map_err(named)?;
    let here = others.address();
    let one = |part: &Neighbour| {
        let beside = here.as_ref().ok().map(|here| neighbours::to(here, &part.relative));
        let mut state = (PartState::Away, part.absolute.clone());
        for place in beside.into_iter().chain([part.absolute.clone()]) {
            let Ok(there) = others.at(&place) else { continue };
            match state_at(&there, part)? {
                PartState::Away => {}
                found => {
                    state = (found, place);
                    break;
                }
            }
        }
        Ok(Part { dir: OsStr::from_bytes(&state.1).into(), id: ParkedId(part.number), state: state.0 })
    };
    file.summary.parts.iter().map(one).collect()
}

/// What has become of a part, as far as one directory tells.
fn state_at(there: &Arc<dyn HostFs>, part: &Neighbour) -> Result<PartState> {
    let kept = kept_path(&**there, part.number);
    let path = if is_there(&**there, &kept)? { kept } else { path_of(part.number) };
    match ParkedFile::head_of(&**there, &path) {
        Ok((head, _)) if (head.volume_id, head.id) == (part.volume_id, part.number) => Ok(PartState::Parked),
        // What cannot be read is there, and whoever applies it is told so.
        Err(Error::Corrupt { .. } | Error::Unsupported(_)) => Ok(PartState::Parked),
        Ok(_) => Ok(PartState::Away),
        Err(error) if error.errno() == Errno::NOENT.raw_os_error() => {
            let is_it = folder::directory_of(&**there).is_ok_and(|inode| inode == part.inode);
            Ok(if is_it { PartState::Gone } else { PartState::Away })
        }
        Err(error) => Err(error),
    }
}
