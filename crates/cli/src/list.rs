//! `wholly list`: which groups are parked, read from outside.

use crate::args::ListArgs;
use crate::error::{Exit, Failure};
use crate::opening;
use crate::output::{Name, Ui, count, name, size};
use crate::parts::{self, Part};
use crate::stat::ago;
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use wholly::{Parked as Found, ParkedId};
use wholly_changes::Unreadable;

#[derive(Serialize)]
struct Listed {
    dir: Name,
    groups: Vec<Parked>,
}

/// A parked group.
#[derive(Serialize)]
pub struct Parked {
    /// What it is called.
    pub id: String,
    /// What was noted.
    pub note: String,
    /// When it was parked, in seconds since 1970.
    pub parked: i64,
    /// When it expires; null: never.
    pub expires: Option<i64>,
    /// Names that it sets or takes away.
    pub names: u32,
    /// Files whose bytes it changes.
    pub files: u32,
    /// Bytes that it writes to them.
    pub bytes: u64,
    /// Bytes that it takes.
    pub space: u64,
    /// Why it cannot be read.
    #[serde(serialize_with = "unreadable")]
    pub unreadable: Option<Unreadable>,
    /// What was parked together with it in other directories.
    pub others: Vec<Part>,
}

/// What is parked in a store, whoever has it open.
pub fn parked(dir: &std::path::Path, verb: &str) -> Result<Vec<Parked>, Failure> {
    const NS: i64 = 1_000_000_000;
    let all = wholly::parked(dir).map_err(|error| Failure::of_store(verb, dir, error))?;
    let one = |parked: wholly::Parked| Parked {
        others: parts::of(dir, parked.id),
        id: parked.id.to_string(),
        note: parked.note,
        parked: parked.parked_ns / NS,
        expires: parked.expires_ns.map(|ns| ns / NS),
        names: parked.names,
        files: parked.files,
        bytes: parked.bytes,
        space: parked.space,
        unreadable: parked.unreadable,
    };
    Ok(all.into_iter().map(one).collect())
}

/// The directory and the id in a command line. An id alone is that of a group in the nearest store.
pub fn operands(verb: &str, dir: &Path, id: Option<ParkedId>) -> (PathBuf, Option<ParkedId>) {
    let alone = || dir.to_str()?.parse().ok().filter(|_| dir.symlink_metadata().is_err());
    match id.is_none().then(alone).flatten() {
        Some(id) => (opening::nearest(verb), Some(id)),
        None => (dir.into(), id),
    }
}

/// The parked group that a command line means: without an id the newest one.
pub fn group(verb: &str, dir: &Path, id: Option<ParkedId>) -> Result<(PathBuf, ParkedId), Failure> {
    let (dir, id) = operands(verb, dir, id);
    let failed = |error| Failure::of_store(verb, &dir, error);
    let newest = || {
        let all = wholly::parked(&dir).map_err(failed)?;
        let newest = all.iter().filter(|parked| parked.unreadable.is_none()).max_by_key(|parked| parked.parked_ns);
        let what = || format!("{verb} in {}", dir.display());
        newest.map(|parked| parked.id).ok_or_else(|| match all.first() {
            Some(Found { id, unreadable: Some(why), .. }) => {
                Failure::new(what(), format!("group {id} is {why}")).advice("`wholly list` lists what is parked")
            }
            _ => Failure::new(what(), "nothing is parked")
                .advice("`wholly run --park` parks what a command changes; `wholly list` lists what is parked"),
        })
    };
    let id = id.map_or_else(newest, Ok)?;
    Ok((dir, id))
}

/// Lists what is parked.
pub fn run(args: &ListArgs, ui: &Ui) -> Result<Exit, Failure> {
    let groups = parked(&args.dir, "list")?;
    let listed = Listed { dir: Name::of_dir(&args.dir), groups };
    ui.emit("list", &listed, text)?;
    Ok(if listed.groups.iter().any(|group| is_damaged(&group.unreadable)) { Exit::DAMAGED } else { Exit::DONE })
}

/// Whether something is wrong, and not of a later version.
pub fn is_damaged(unreadable: &Option<Unreadable>) -> bool {
    matches!(unreadable, Some(Unreadable::Damaged(_)))
}

/// A line about what cannot be read.
pub fn told_unreadable(id: &str, why: &Unreadable) -> String {
    let advice = if matches!(why, Unreadable::Damaged(_)) { "; `wholly discard` removes it" } else { "" };
    format!("{id:8}  {}{advice}\n", name(why.to_string().as_bytes()))
}

/// As text.
pub fn unreadable<S: Serializer>(why: &Option<Unreadable>, to: S) -> Result<S::Ok, S::Error> {
    why.as_ref().map(ToString::to_string).serialize(to)
}

fn text(listed: &Listed) -> String {
    if listed.groups.is_empty() {
        return format!("{}: nothing is parked\n", listed.dir);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let mut text = String::new();
    for group in &listed.groups {
        if let Some(why) = &group.unreadable {
            text += &told_unreadable(&group.id, why);
            continue;
        }
        let expires = match group.expires {
            None => String::new(),
            Some(time) if time <= now => ", expired".into(),
            Some(time) => format!(", expires in {}", count((time - now) as u64 / 3600 + 1, "hour")),
        };
        text += &format!(
            "{:8}  {}{expires}; {}, {} in {}  {}\n",
            group.id,
            ago(group.parked),
            count(group.names.into(), "name"),
            size(group.bytes),
            count(group.files.into(), "file"),
            name(group.note.as_bytes())
        );
        for part in &group.others {
            text += &format!("          together with {}\n", part.shown());
        }
    }
    text
}
