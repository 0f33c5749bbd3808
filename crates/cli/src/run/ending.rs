//! How it ends: what the command has changed in all directories is looked at, and committed, parked or discarded
//! together.

use super::Running;
use super::interrupts::Interrupts;
use super::layer::How;
use super::place::Place;
use super::review::{self, Verdict};
use crate::args::RunArgs;
use crate::diff;
use crate::error::{Exit, Failure};
use crate::mounts::Other;
use crate::output::{Name, Ui, count, name, shown};
use crate::progress::{logged, written_back};
use crate::undo::{self, KEPT_FOR};
use serde::Serialize;
use wholly::{Error, KeepUndo, StoreVfs, UndoFate};
use wholly_host::HOME;
use wholly_vfs::Groups;

/// How the command ended.
pub struct Ended {
    /// Its exit code, or 128 and the number of the signal.
    pub status: u8,
    /// Why it is not to be committed all the same, if a program in it has undone a group of its own.
    pub doomed: Option<String>,
}

/// What has become of a run.
#[derive(Serialize)]
pub struct Outcome {
    /// `committed`, `parked`, `discarded` or `aborted`.
    pub outcome: &'static str,
    /// How the command ended: its exit code, or 128 and the number of the signal.
    pub status: u8,
    /// How `wholly run` ends.
    pub exit: Exit,
    /// Why it was aborted whatever its exit code, where a program in it has undone a group of its own.
    pub doomed: Option<String>,
    /// The directories, in the order in which they were named.
    pub dirs: Vec<Changed>,
}

impl Outcome {
    /// What programs outside have changed meanwhile, each with its path.
    fn mismatches(&self) -> impl Iterator<Item = String> {
        let all = self.dirs.iter().flat_map(|dir| dir.mismatches.iter().map(move |it| (dir, it)));
        all.map(|(dir, it)| format!("{}: {}", dir.dir.join(&it.path), name(it.what.as_bytes())))
    }
}

/// One directory.
#[derive(Serialize)]
pub struct Changed {
    pub dir: Name,
    /// What is mounted in it, with all that is mounted in that: there the command has written as any other does.
    pub not_covered: Vec<Other>,
    /// The parked group, where something is parked in it.
    pub id: Option<String>,
    /// By what `wholly undo` takes it back, where that is kept.
    pub undo: Option<String>,
    /// What the group would have changed, or has: told with `--json` and `--review`, unless it was aborted.
    pub changes: Vec<diff::Told>,
    /// What programs outside have changed meanwhile, so that nothing was committed.
    pub mismatches: Vec<Mismatch>,
    /// How many these are, where somebody wants to know.
    #[serde(skip)]
    pub count: usize,
}

/// What others have changed.
#[derive(Serialize)]
pub struct Mismatch {
    path: Name,
    what: String,
}

impl Mismatch {
    fn all<'m>(mismatches: impl IntoIterator<Item = &'m wholly::Mismatch>) -> Vec<Mismatch> {
        mismatches.into_iter().map(|it| Mismatch { path: Name::from(&*it.path), what: it.what.clone() }).collect()
    }
}

/// Ends the groups as the command did.
pub fn end(
    args: &RunArgs,
    ui: &Ui,
    running: &mut [Running<'_>],
    interrupts: &Interrupts,
    Ended { status, doomed }: Ended,
) -> Result<Outcome, Failure> {
    let dirs = running.iter().map(|one| Changed {
        dir: Name::from(one.place.dir()),
        not_covered: one.covered.others.clone(),
        id: None,
        undo: None,
        changes: Vec::new(),
        mismatches: Vec::new(),
        count: 0,
    });
    let is_doomed = doomed.is_some();
    let exit = if is_doomed { Exit::REFUSED } else { Exit::of_child(status) };
    let mut outcome = Outcome { outcome: "aborted", status, exit, doomed, dirs: dirs.collect() };
    let is_success = || status == 0 && !is_doomed && interrupts.first().is_none();
    let mut verdict = Verdict::Discard;
    if is_success() {
        let are_looked_at = is_looked_at(args, ui);
        let stores = running.iter().map(|one| one.place.store()).collect();
        ui.telling("collecting the changes", logged(stores), || take_up(running, are_looked_at))?;
        let running = &*running;
        look(args, ui, running, &mut outcome)?;
        let nothing = (args.park || args.review) && outcome.dirs.iter().all(|dir| dir.count == 0);
        verdict = match () {
            () if nothing => Verdict::Apply,
            () if args.park => Verdict::Park,
            () if args.review => review::ask(&outcome.dirs, interrupts)?,
            () => Verdict::Apply,
        };
    }
    if !is_success() {
        verdict = Verdict::Discard;
    }
    (outcome.outcome, outcome.exit) = match verdict {
        Verdict::Apply => {
            let so_far = written_back(running.iter().map(|one| one.place.store()).collect());
            ui.telling("committing", so_far, || commit(args, running, &mut outcome))?;
            tell_undo(args, running, &mut outcome);
            if outcome.mismatches().next().is_some() { ("parked", Exit::REFUSED) } else { ("committed", Exit::DONE) }
        }
        Verdict::Park => {
            park(args, running, &mut outcome)?;
            ("parked", Exit::PARKED)
        }
        Verdict::Discard => {
            for Running { view, group, place, .. } in running {
                view.abort(*group).map_err(|error| place.failed(error))?;
                if status != 0 {
                    undo::tell_what_could_be_freed(place.dir());
                }
            }
            match interrupts.first() {
                None if is_success() => ("discarded", Exit::DISCARDED),
                Some(signal) if exit == Exit::DONE => {
                    ("aborted", Exit::of_child(u8::try_from(128 + signal).unwrap_or(u8::MAX)))
                }
                _ => ("aborted", exit),
            }
        }
    };
    Ok(outcome)
}

/// Whether anybody looks at what the command has changed, or is to be able to later.
pub fn is_looked_at(args: &RunArgs, ui: &Ui) -> bool {
    args.review || args.park || args.verbose || ui.json
}

/// Makes changes of the groups of what the overlays have written to their layers. What is to be committed at once moves
/// there by its names; what somebody is to look at, or what another directory may be in the way of, is written anew.
fn take_up(running: &mut [Running<'_>], are_looked_at: bool) -> Result<(), Failure> {
    let moves = running.len() == 1 && !are_looked_at;
    for one in running {
        let failed = |error| one.place.failed(error);
        let tell_left_out = || {
            eprintln!("wholly: run: {}/.wholly is left out: that name belongs to `wholly`", shown(one.place.dir()));
        };
        let Some(layer) = &one.layer else {
            let moved = || {
                let what = "the command has moved something to .wholly, the name of the store's own folder";
                Failure::new(format!("run in {}", shown(one.place.dir())), what).advice(UNCHANGED).exit(Exit::REFUSED)
            };
            let removed = one.view.remove_left_out(one.group).map_err(|error| match error {
                Error::Refused(..) => moved(),
                error => failed(error),
            });
            if removed? {
                tell_left_out();
            }
            continue;
        };
        let how = if moves { How::Adopt } else { How::Copy };
        let taken = layer.take_up(one.place, &one.view, one.group, how)?;
        if taken.left_out {
            tell_left_out();
        }
        if taken.adopted == 0 {
            continue;
        }
        one.has_adopted =
            taken.overtaken.is_empty() && one.view.changed_meanwhile(one.group).map_err(failed)?.is_empty();
        if !one.has_adopted {
            // It is parked, which nothing is whose files come from the layer. They go back there.
            one.view.abort(one.group).map_err(failed)?;
            layer.undo(one.place, &one.view, one.group, &taken)?;
            one.group = one.view.begin().map_err(failed)?;
            layer.take_up(one.place, &one.view, one.group, How::Copy)?;
        }
    }
    Ok(())
}

/// Finds out what has changed, as far as somebody is told.
fn look(args: &RunArgs, ui: &Ui, running: &[Running<'_>], outcome: &mut Outcome) -> Result<(), Failure> {
    let reads = args.review || ui.json;
    if !reads && !args.park && !args.verbose {
        return Ok(());
    }
    for (Running { view, group, place, .. }, dir) in running.iter().zip(&mut outcome.dirs) {
        let looked = view.review(*group, |review| {
            let told = if reads { diff::all(review, place.dir())? } else { Vec::new() };
            Ok((told, review.changes().len()))
        });
        (dir.changes, dir.count) = looked.and_then(|told| told).map_err(|error| place.failed(error))?;
    }
    Ok(())
}

/// One group commits by itself; several commit together. Where programs outside have changed what any of them builds
/// on, all are parked.
fn commit(args: &RunArgs, running: &[Running<'_>], outcome: &mut Outcome) -> Result<(), Failure> {
    // A store that has failed before commits nothing: only what fails from here on may be committed.
    for one in running {
        one.place.store().check_usable().map_err(|error| one.place.failed(error))?;
    }
    for Running { view, group, place, .. } in running {
        let most_bytes = undo_bytes(args, place);
        let keep = KeepUndo { note: note(args), expires: KEPT_FOR, most_bytes };
        view.keep_undo(*group, &keep).map_err(|error| place.failed(error))?;
    }
    if running.iter().any(|one| one.place.in_view()) {
        refuse_overtaken(running)?;
    }
    if let [Running { view, group, place, has_adopted, .. }] = running {
        if *has_adopted || place.in_view() {
            // What a bystander does after the last look is a conflict, as after any commit.
            return view.commit(*group).map_err(|error| refused(place, error));
        }
        return match view.commit_or_park(*group, &note(args), None) {
            Err(Error::ChangedMeanwhile(id, overtaken)) => {
                let dir = &mut outcome.dirs[0];
                dir.mismatches = Mismatch::all(&*overtaken);
                dir.id = Some(id.to_string());
                let parked = place.store().review(id).map_err(|error| place.failed(error))?;
                dir.count = parked.changes().len();
                Ok(())
            }
            committed => committed.map_err(|error| refused(place, error)),
        };
    }
    for (Running { view, group, place, .. }, dir) in running.iter().zip(&mut outcome.dirs) {
        let overtaken = view.changed_meanwhile(*group).map_err(|error| place.failed(error))?;
        dir.mismatches = Mismatch::all(&overtaken);
    }
    if outcome.mismatches().next().is_some() {
        return park(args, running, outcome);
    }
    let groups: Vec<_> = running.iter().map(|one| (&*one.view, one.group)).collect();
    StoreVfs::commit_together(&groups).map_err(|error| {
        let dirs: Vec<_> = running.iter().map(|one| shown(one.place.dir())).collect();
        let what = format!("commit in {} together", dirs.join(", "));
        match error {
            Error::Poisoned(why) => Failure::unknown(what, why),
            error => Failure::new(what, error).advice(UNCHANGED),
        }
    })
}

/// In the view of another run nothing is parked: what programs outside have changed meanwhile is an error.
fn refuse_overtaken(running: &[Running<'_>]) -> Result<(), Failure> {
    for Running { view, group, place, .. } in running {
        let overtaken = view.changed_meanwhile(*group).map_err(|error| place.failed(error))?;
        if let Some(first) = overtaken.first() {
            let what = format!("commit in {}", shown(place.dir()));
            return Err(Failure::new(what, name(first.to_string().as_bytes())).advice(UNCHANGED).exit(Exit::REFUSED));
        }
    }
    Ok(())
}

/// The most bytes of the undo that is kept in a directory.
fn undo_bytes(args: &RunArgs, place: &Place) -> u64 {
    const DEFAULT: u64 = 1 << 30;
    match args.keep_undo {
        // The outer run takes it all back.
        _ if place.in_view() => 0,
        Some(most) => most,
        // A folder that is the superuser's would be in its owner's way, and one that is his would show him what the
        // superuser has removed.
        None if place.is_another_users() => 0,
        None => DEFAULT,
    }
}

/// Says what has become of the undo, where that was to be kept.
fn tell_undo(args: &RunArgs, running: &[Running<'_>], outcome: &mut Outcome) {
    if outcome.mismatches().next().is_some() {
        return;
    }
    for (one, dir) in running.iter().zip(&mut outcome.dirs) {
        match one.place.store().undo_fate() {
            Some(UndoFate::Kept(id)) => {
                dir.undo = Some(id.to_string());
                undo::tell_what_is_held(one.place.dir(), id);
            }
            Some(UndoFate::NotKept(_)) if one.place.in_view() || args.keep_undo == Some(0) => {}
            Some(UndoFate::NotKept(why)) => {
                let why = match undo_bytes(args, one.place) {
                    0 => "the directory is another user's, who could not use a store of root's; `--keep-undo 1G` \
                          keeps it"
                        .into(),
                    _ => name(why.as_bytes()),
                };
                eprintln!("wholly: run: committed in {}, but its undo is not kept: {why}", dir.dir);
            }
            // Nothing has changed, or it was not to be kept.
            _ => {}
        }
    }
}

/// What a person can do after a refusal.
const UNCHANGED: &str = "nothing has changed; remove the cause, and run it again";

/// A group was not committed, unless nobody knows.
fn refused(place: &Place, error: Error) -> Failure {
    let is_unknown = matches!(error, Error::Poisoned(_));
    let failure = place.undecided(error);
    if is_unknown { failure } else { failure.advice(UNCHANGED) }
}

/// Each group is parked in its own directory, where it changes anything; they name each other.
fn park(args: &RunArgs, running: &[Running<'_>], outcome: &mut Outcome) -> Result<(), Failure> {
    let mut failed = None;
    for (one, dir) in running.iter().zip(&mut outcome.dirs) {
        dir.count = changes_of(one)?;
    }
    let groups: Vec<_> = running.iter().map(|one| (&*one.view, one.group)).collect();
    let all = StoreVfs::park_together(&groups, &note(args), None);
    for ((one, dir), parked) in running.iter().zip(&mut outcome.dirs).zip(all) {
        match parked {
            Ok(id) => dir.id = id.map(|id| id.to_string()),
            Err(error) => _ = failed.get_or_insert(one.place.undecided(error)),
        }
    }
    // What is parked all the same, somebody has to know.
    failed.map_or(Ok(()), |failure| {
        eprint!("{}", parked(outcome));
        Err(failure)
    })
}

/// What is noted with what is parked: the command.
fn note(args: &RunArgs) -> String {
    let note = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    note.chars().filter(|char| *char != '\0').take(250).collect()
}

fn changes_of(one: &Running<'_>) -> Result<usize, Failure> {
    one.view.review(one.group, |review| review.changes().len()).map_err(|error| one.place.failed(error))
}

/// What is parked where.
fn parked(outcome: &Outcome) -> String {
    let parked = outcome.dirs.iter().filter_map(|dir| Some((dir, dir.id.as_ref()?)));
    let one = |(changed, id): (&Changed, &String)| {
        let (dir, changes) = (&changed.dir, count(changed.count as u64, "change"));
        format!(
            "wholly: run: parked as {id}: {changes} in {dir}; see `wholly diff {dir} {id}`, then apply or discard it\n"
        )
    };
    let mut text: String = parked.clone().map(one).collect();
    let kept: Vec<_> = parked.clone().map(|(dir, _)| dir.dir.join(&HOME.into()).to_string()).collect();
    if !kept.is_empty() {
        text += &format!(
            "wholly: run: until then it is in {}, which git ignores; `git clean -x` and `rm -rf` would delete it\n",
            kept.join(" and ")
        );
    }
    if let (2.., Some((first, id))) = (parked.clone().count(), parked.clone().next()) {
        let dir = &first.dir;
        text += &format!(
            "wholly: run: these groups belong together: `wholly apply {dir} {id}` applies all of them or none\n"
        );
    }
    text
}

/// What a person is told, on stderr: nothing, where all is as it was asked for.
pub fn text(outcome: &Outcome, args: &RunArgs) -> String {
    let names = || {
        let names: Vec<_> = outcome.dirs.iter().map(|dir| dir.dir.to_string()).collect();
        names.join(", ")
    };
    let names_are = || format!("{} {}", names(), if outcome.dirs.len() == 1 { "is" } else { "are" });
    let text = match outcome.outcome {
        "aborted" if outcome.doomed.is_some() => {
            let why = name(outcome.doomed.as_deref().unwrap_or_default().as_bytes());
            format!("wholly: run: {why}; {} unchanged\n", names_are())
        }
        "aborted" => format!("wholly: run: command exited with status {}; {} unchanged\n", outcome.exit, names_are()),
        "discarded" => format!("wholly: run: discarded; {} unchanged\n", names_are()),
        "parked" => {
            let why =
                outcome.mismatches().map(|what| format!("wholly: run: not committed, changed meanwhile: {what}\n"));
            why.chain([parked(outcome)]).collect()
        }
        _ if args.verbose || args.review => {
            let changes = outcome.dirs.iter().map(|dir| dir.count as u64).sum();
            format!(
                "wholly: run: committed: {} in {}; changes elsewhere are not covered\n",
                count(changes, "change"),
                names()
            )
        }
        _ => String::new(),
    };
    if args.verbose { text + &not_covered(&outcome.dirs) } else { text }
}

/// What the directories hold that no group does.
pub fn not_covered(dirs: &[Changed]) -> String {
    let others = dirs.iter().flat_map(|dir| &dir.not_covered);
    let others: Vec<_> =
        others.map(|other| format!("{} ({})", shown(&other.path), name(other.kind.as_bytes()))).collect();
    match others.as_slice() {
        [] => String::new(),
        others => format!("wholly: run: not covered, with what is mounted in it: {}\n", others.join(", ")),
    }
}
