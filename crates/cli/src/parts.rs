//! What a run over several directories has parked, or can be undone by: the parts belong together.

use crate::error::Failure;
use crate::output::{Name, shown};
use serde::Serialize;
use std::path::{Path, PathBuf};
use wholly::{ParkedId, PartState};

/// Another part.
#[derive(Clone, Serialize)]
pub struct Part {
    /// The directory of its store: where that is, or was when it was parked.
    pub dir: Name,
    /// What it is called there.
    pub id: String,
    /// `parked`; `gone` where it was applied or discarded by itself; `away` where its store cannot be found.
    pub state: &'static str,
}

impl Part {
    /// It, and what has become of it where it is not parked.
    pub fn shown(&self) -> String {
        let what = match self.state {
            "parked" => "",
            "gone" => ", which is no longer parked",
            _ => ", which cannot be found",
        };
        format!("{} in {}{what}", self.id, self.dir)
    }
}

fn found(dir: &Path, id: ParkedId) -> Vec<wholly::Part> {
    // What cannot be read, or is not there, is said by who is asked for it.
    wholly::parts(dir, id).unwrap_or_default()
}

/// The other parts of a parked group.
pub fn of(dir: &Path, id: ParkedId) -> Vec<Part> {
    let one = |part: wholly::Part| Part {
        dir: part.dir.into(),
        id: part.id.to_string(),
        state: match part.state {
            PartState::Parked => "parked",
            PartState::Gone => "gone",
            PartState::Away => "away",
        },
    };
    found(dir, id).into_iter().map(one).collect()
}

/// All parts of these groups: those that are named, and then the others.
///
/// # Errors
/// Where one of them cannot be had, unless it is one that is `spared` and gone.
pub fn all(verb: &str, mut named: Vec<(PathBuf, ParkedId)>, spared: bool) -> Result<Vec<(PathBuf, ParkedId)>, Failure> {
    let mut next = 0;
    while let Some((dir, id)) = named.get(next).cloned() {
        next += 1;
        for part in found(&dir, id) {
            let is_it = |(dir, id): &(PathBuf, ParkedId)| {
                *id == part.id && (*dir == part.dir || dir.canonicalize().is_ok_and(|dir| dir == part.dir))
            };
            let why = match part.state {
                _ if named.iter().any(is_it) => continue,
                PartState::Parked => {
                    named.push((part.dir, part.id));
                    continue;
                }
                PartState::Gone if spared => continue,
                PartState::Gone => "that one was taken alone",
                PartState::Away => "its store cannot be found",
            };
            let what = format!("{id} belongs together with {} in {}, and {why}", part.id, shown(&part.dir));
            let advice = match part.state {
                PartState::Gone => format!(
                    "to {verb} this part alone: `wholly {verb} --only {0} {id}`; to discard it: `wholly discard {0} \
                     {id}`",
                    shown(&dir)
                ),
                _ => format!(
                    "restore that store, or {verb} this part alone: `wholly {verb} --only {} {id}`",
                    shown(&dir)
                ),
            };
            return Err(Failure::new(format!("{verb} in {}", shown(&dir)), what).advice(advice));
        }
    }
    Ok(named)
}

/// Says what is left where one part is taken alone.
pub fn warn(verb: &str, dir: &Path, id: ParkedId) -> Vec<Part> {
    let left: Vec<_> = of(dir, id).into_iter().filter(|part| part.state == "parked").collect();
    for part in &left {
        eprintln!("wholly: {verb}: only {id}; it belongs together with {}", part.shown());
    }
    left
}
