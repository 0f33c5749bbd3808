//! `wholly apply`: commits a parked group and writes it back; or one of each of several stores, together.

use crate::args::ApplyArgs;
use crate::error::{Exit, Failure};
use crate::list;
use crate::opening;
use crate::output::{Name, Ui, name, shown};
use crate::parts;
use crate::progress::written_back;
use crate::recover;
use crate::undo;
use serde::Serialize;
use std::path::{Component, Path, PathBuf};
use wholly::{Error, ParkedId, Store, UndoFate};

#[derive(Serialize)]
struct Applied {
    applied: bool,
    groups: Vec<Group>,
    /// What is not as the groups rely on.
    mismatches: Vec<Mismatch>,
    /// Whether a part stays parked.
    is_left: bool,
    /// Which side has won where something is not.
    winner: Option<Side>,
    /// The id by which `wholly undo` takes it back, if that is kept.
    undo: Option<String>,
}

/// Whose version stays of what others have changed meanwhile.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Side {
    /// The directory.
    Ours,
    /// What was parked.
    Theirs,
}

#[derive(Serialize)]
struct Group {
    dir: Name,
    id: String,
}

#[derive(Serialize)]
struct Mismatch {
    dir: Name,
    path: Name,
    what: String,
}

/// Applies parked groups.
pub fn run(args: &ApplyArgs, ui: &Ui) -> Result<Exit, Failure> {
    let mut groups = groups(args)?;
    if args.ours || args.theirs || !args.paths.is_empty() || !args.exclude.is_empty() {
        let (dir, id) = groups.swap_remove(0);
        return some(args, ui, &dir, id);
    }
    if args.only {
        groups.iter().for_each(|(dir, id)| _ = parts::warn("apply", dir, *id));
    } else {
        groups = parts::all("apply", groups, false)?;
    }
    let mut stores = Vec::new();
    for (dir, _) in &groups {
        stores.push(recover::open_to_apply("apply", dir, args.keep_undo, ui)?);
    }
    let done = ui.telling("applying", written_back(stores.iter().collect()), || match (&stores[..], &groups[..]) {
        ([store], [(_, id)]) => store.apply(*id),
        _ => Store::apply_together(stores.iter().zip(groups.iter().map(|(_, id)| *id))),
    });
    let is_applied = match done {
        Ok(()) => true,
        Err(Error::ChangedMeanwhile(..)) => false,
        Err(error) => {
            // Groups of different stores may have the same name: whose it is that cannot be had shows when each is
            // asked for.
            let is_it = |(store, (_, id)): &(&Store, &(PathBuf, ParkedId))| store.review(*id).is_err();
            let of = stores.iter().zip(&groups).find(is_it).map_or(&groups[0].0, |(_, (dir, _))| dir);
            return Err(Failure::of_decision("apply", of, error));
        }
    };
    let (mut applied, mut failure) = (Applied::new(is_applied), None);
    for (store, (dir, id)) in stores.into_iter().zip(groups) {
        let done = if is_applied {
            applied.undo = tell_undo(&store, &dir, args.keep_undo).or(applied.undo);
            recover::write_back(&store, ui).and_then(|()| opening::close(store).map(drop))
        } else {
            let told =
                |it: wholly::Mismatch| Mismatch { dir: Name::from(&*dir), path: Name::from(&*it.path), what: it.what };
            store.changed_meanwhile(id).map(|otherwise| applied.mismatches.extend(otherwise.into_iter().map(told)))
        };
        // What is committed is, in all of them: the others are taken home all the same.
        if let Err(error) = done {
            failure.get_or_insert(Failure::of_store("apply", &dir, error));
        }
        applied.groups.push(Group { dir: dir.into(), id: id.to_string() });
    }
    if let Some(failure) = failure {
        return Err(if is_applied {
            failure.advice("all groups are committed; `wholly recover` writes them back").exit(Exit::NOT_HOME)
        } else {
            failure
        });
    }
    ui.emit("apply", &applied, text)?;
    Ok(if applied.applied { Exit::DONE } else { Exit::REFUSED })
}

impl Applied {
    fn new(applied: bool) -> Applied {
        Applied { applied, groups: Vec::new(), mismatches: Vec::new(), is_left: false, winner: None, undo: None }
    }
}

/// Applies a part of a parked group, what nothing is in the way of, or over what is in its way.
fn some(args: &ApplyArgs, ui: &Ui, dir: &Path, id: ParkedId) -> Result<Exit, Failure> {
    parts::warn("apply", dir, id);
    let store = recover::open_to_apply("apply", dir, args.keep_undo, ui)?;
    let winner = if args.theirs { Some(Side::Theirs) } else { args.ours.then_some(Side::Ours) };
    let [paths, but] = [&args.paths, &args.exclude].map(|paths| within(dir, paths));
    let done = ui.telling("applying", written_back(vec![&store]), || match winner {
        Some(Side::Theirs) => store.apply_over(id, &paths, &but),
        Some(Side::Ours) => store.apply_free(id).map(|mismatches| (false, mismatches)),
        None => store.apply_part(id, &paths, &but).map(|is_left| (is_left, Vec::new())),
    });
    let mut applied =
        Applied { winner, groups: vec![Group { dir: dir.into(), id: id.to_string() }], ..Applied::new(true) };
    let mismatches = match done {
        Err(Error::ChangedMeanwhile(_, mismatches)) => {
            (applied.applied, applied.is_left) = (false, true);
            mismatches.to_vec()
        }
        done => {
            let (is_left, mismatches) = done.map_err(|error| Failure::of_decision("apply", dir, error))?;
            applied.is_left = is_left;
            mismatches
        }
    };
    let told = |it: wholly::Mismatch| Mismatch { dir: dir.into(), path: Name::from(&*it.path), what: it.what };
    applied.mismatches = mismatches.into_iter().map(told).collect();
    if applied.applied {
        applied.undo = tell_undo(&store, dir, args.keep_undo);
    }
    opening::close(store).map_err(|error| Failure::of_store("apply", dir, error))?;
    ui.emit("apply", &applied, text)?;
    Ok(if applied.applied { Exit::DONE } else { Exit::REFUSED })
}

/// The id by which `wholly undo` takes it back; says why it does not.
fn tell_undo(store: &Store, dir: &Path, keep_undo: u64) -> Option<String> {
    match store.undo_fate()? {
        UndoFate::Kept(id) => {
            undo::tell_what_is_held(dir, id);
            return Some(id.to_string());
        }
        UndoFate::NotKept(why) if keep_undo > 0 => {
            let why = name(why.as_bytes());
            eprintln!("wholly: apply: applied in {}, but its undo is not kept: {why}", shown(dir));
        }
        UndoFate::NotKept(_) => {}
    }
    None
}

/// Paths as they are in a directory, however they were typed.
pub fn within(dir: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    let dir = dir.canonicalize().unwrap_or_default();
    let one = |path: &PathBuf| {
        let parts = path.strip_prefix(&dir).unwrap_or(path).components().filter(|part| *part != Component::CurDir);
        let path: PathBuf = parts.collect();
        if path.as_os_str().is_empty() { ".".into() } else { path }
    };
    paths.iter().map(one).collect()
}

/// The stores that are named, each with its group.
fn groups(args: &ApplyArgs) -> Result<Vec<(PathBuf, ParkedId)>, Failure> {
    let failed = |dir: &Path, why: String| Failure::new(format!("apply in {}", dir.display()), why);
    let mut groups = vec![list::group("apply", &args.dir, args.id)?];
    for pair in args.others.chunks(2) {
        let dir = PathBuf::from(&pair[0]);
        let Some(id) = pair.get(1) else {
            return Err(failed(&dir, "no group is named".into()).advice("`wholly list` names those that are parked"));
        };
        let id = id.to_string_lossy().parse().map_err(|error: Error| failed(&dir, error.to_string()))?;
        groups.push((dir, id));
    }
    Ok(groups)
}

fn text(applied: &Applied) -> String {
    let groups: Vec<_> = applied.groups.iter().map(|group| group.id.as_str()).collect();
    let ids = groups.join(", ");
    let end = match (applied.is_left, &applied.undo) {
        (true, Some(_)) => "; the rest stays parked, and `wholly undo` takes this back\n",
        (true, None) => "; the rest stays parked\n",
        (false, Some(_)) => "; `wholly undo` takes it back\n",
        (false, None) => "\n",
    };
    if applied.applied && applied.mismatches.is_empty() {
        let in_part = if applied.is_left { " in part" } else { "" };
        return format!("{ids}: applied{in_part}, and all files are current{end}");
    }
    let mut text = match (applied.applied, applied.winner) {
        (true, Some(Side::Theirs)) => format!("{ids}: applied over what was changed since it was parked:\n"),
        (true, _) => format!("{ids}: applied but for what was changed since it was parked:\n"),
        (false, Some(Side::Theirs)) => format!("{ids}: not applied, nothing was changed. What cannot be replaced:\n"),
        (false, _) => format!("{ids}: not applied, nothing was changed. Changed since it was parked:\n"),
    };
    for Mismatch { dir, path, what } in &applied.mismatches {
        // One store is known by what was asked.
        let path = if applied.groups.len() > 1 { &dir.join(path) } else { path };
        text += &format!("  {path}: {}\n", name(what.as_bytes()));
    }
    match (applied.applied, applied.winner) {
        (true, Some(Side::Theirs)) => text + &format!("All files are current{end}"),
        (true, _) => text,
        (false, Some(Side::Theirs)) => {
            text + "It stays parked. Restore the listed files or move them away, and retry; apply other paths \
                    (`wholly apply --theirs DIR ID -- PATH`); keep the listed files and apply the rest (`wholly apply \
                    --ours`); or discard (`wholly discard`).\n"
        }
        (false, _) => {
            text + "It stays parked. Restore the listed files and retry; keep them and apply the rest (`wholly apply \
                    --ours`); replace them by what was parked (`wholly apply --theirs`); or discard (`wholly \
                    discard`).\n"
        }
    }
}
