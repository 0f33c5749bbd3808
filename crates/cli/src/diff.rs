//! `wholly diff`: what a parked group would change, and for small texts how.

mod patch;

use crate::args::DiffArgs;
use crate::error::{Exit, Failure};
use crate::list;
use crate::output::{Name, Paint, Ui, count, name, shown, size};
use crate::parts::{self, Part};
use crate::recover;
use anstyle::AnsiColor;
use serde::Serialize;
use similar::TextDiff;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use wholly::{Change, Review, Side, What};

/// Bytes of the largest text of which the lines are compared.
const LARGEST_TEXT: u64 = 1 << 20;

#[derive(Serialize)]
struct Diff {
    dir: Name,
    id: String,
    changes: Vec<Told>,
    /// What was parked together with it in other directories.
    others: Vec<Part>,
}

/// One change.
#[derive(Serialize)]
pub struct Told {
    /// `created`, `removed`, `replaced`, `renamed`, `linked` or `changed`.
    what: &'static str,
    path: Name,
    /// The name that it had, or another one.
    from: Option<Name>,
    before: Option<State>,
    after: Option<State>,
    /// What loses its name to it.
    replaced: Option<State>,
    /// Whether the bytes are otherwise.
    content: bool,
    xattrs: Vec<Xattr>,
    /// Whether it is a directory with everything in it.
    whole: bool,
    /// The lines that are otherwise, where both sides are small texts.
    diff: Option<String>,
}

#[derive(Serialize)]
struct State {
    /// `file`, `directory`, `link` or `special`.
    kind: &'static str,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    /// In ns since 1970. Times that the group has not set are those of before.
    mtime_ns: i64,
}

#[derive(Serialize)]
struct Xattr {
    name: Name,
    /// Null where it is removed.
    bytes: Option<usize>,
}

impl State {
    fn of(stat: &wholly::Stat) -> State {
        let kind = match stat.mode & 0o170_000 {
            0o100_000 => "file",
            0o040_000 => "directory",
            0o120_000 => "link",
            _ => "special",
        };
        let wholly::Stat { size, mode, uid, gid, mtime_ns, .. } = *stat;
        State { kind, size, mode: mode & 0o7777, uid, gid, mtime_ns }
    }
}

/// Shows what a parked group would change.
pub fn run(args: &DiffArgs, ui: &Ui) -> Result<Exit, Failure> {
    let (dir, id) = list::group("diff", &args.dir, args.id)?;
    let failed = |error| Failure::of_store("diff", &dir, error);
    let store = recover::open("diff", &dir, ui)?;
    let changes = all(&store.review(id).map_err(failed)?).map_err(failed)?;
    let others = parts::of(&dir, id);
    // A patch needs the old content of a file, which is lost once another program has changed the file.
    let changed = if args.patch { store.changed_meanwhile(id).map_err(failed)? } else { Vec::new() };
    let diff = Diff { dir: Name::of_dir(&dir), id: id.to_string(), changes, others };
    ui.emit("diff", &diff, |diff| {
        let (changes, paint) = (&diff.changes, ui.paint());
        let one = |part: &Part| format!("together with {}\n", part.shown());
        let others = diff.others.iter().map(one);
        match () {
            // It goes to a program as it is.
            () if args.patch && !std::io::stdout().is_terminal() => patch::of(changes, &changed),
            () if args.patch => safe(&patch::of(changes, &changed), paint),
            () if args.stat => others.chain([stat(changes, paint)]).collect(),
            () if args.names_only => others.chain([names(changes, paint)]).collect(),
            () => others.chain([text(changes, paint)]).collect(),
        }
    })?;
    Ok(Exit::DONE)
}

/// All that a group would change.
pub fn all(review: &Review<'_>) -> wholly::Result<Vec<Told>> {
    review.changes().iter().map(|change| told(review, change)).collect()
}

fn told(review: &Review<'_>, change: &Change) -> wholly::Result<Told> {
    let what = match change.what {
        What::Created => "created",
        What::Removed => "removed",
        What::Replaced => "replaced",
        What::Renamed => "renamed",
        What::Linked => "linked",
        What::Changed => "changed",
    };
    let xattr = |xattr: &wholly::XattrChange| Xattr {
        name: Name::from(xattr.name.as_bytes()),
        bytes: xattr.value.as_ref().map(Vec::len),
    };
    Ok(Told {
        what,
        path: Name::from(&*change.path),
        from: change.from.as_deref().map(Name::from),
        before: change.before.as_ref().map(State::of),
        after: change.after.as_ref().map(State::of),
        replaced: change.replaced.as_ref().map(State::of),
        content: change.content,
        xattrs: change.xattrs.iter().map(xattr).collect(),
        whole: change.whole,
        diff: lines(review, change)?,
    })
}

/// The lines that are otherwise.
fn lines(review: &Review<'_>, change: &Change) -> wholly::Result<Option<String>> {
    if !change.content && change.what != What::Removed {
        return Ok(None);
    }
    let before = texts(review, change, Side::Before, change.before.as_ref())?;
    let after = texts(review, change, Side::After, change.after.as_ref())?;
    let (Some(before), Some(after)) = (before, after) else { return Ok(None) };
    let path = shown(&change.path);
    let (old, new) = (change.from.as_deref().map_or(path.clone(), shown), path);
    let diff = TextDiff::from_lines(&before, &after);
    Ok(Some(diff.unified_diff().header(&format!("a/{old}"), &format!("b/{new}")).to_string()))
}

/// One side, where that is a small text; empty where there is no file.
fn texts(
    review: &Review<'_>,
    change: &Change,
    side: Side,
    stat: Option<&wholly::Stat>,
) -> wholly::Result<Option<String>> {
    let Some(stat) = stat.filter(|stat| stat.is_file()) else { return Ok(Some(String::new())) };
    if stat.size > LARGEST_TEXT {
        return Ok(None);
    }
    // Today it may be longer than it was.
    let mut bytes = vec![0; LARGEST_TEXT as usize + 1];
    let read = match review.read(change, side, 0, &mut bytes) {
        Err(wholly::Error::NotFound(_)) => return Ok(None),
        read => read?,
    };
    bytes.truncate(read);
    let is_text = read as u64 <= LARGEST_TEXT && !bytes.contains(&0);
    Ok(String::from_utf8(bytes).ok().filter(|_| is_text))
}

/// A line for each change, and the lines of files that are otherwise.
pub fn text(changes: &[Told], paint: Paint) -> String {
    let mut text = names(changes, paint);
    for change in changes {
        match &change.diff {
            Some(lines) if !lines.is_empty() => text += &format!("\n{}", safe(lines, paint)),
            None if change.content => text += &format!("\nBinary files a/{0} and b/{0} differ\n", change.path),
            _ => {}
        }
    }
    text
}

/// A line for each change. Directories whose times alone are otherwise are one line.
pub fn names(changes: &[Told], paint: Paint) -> String {
    let (times, others): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.is_time_of_directory());
    let mut text: String = others.into_iter().map(|change| one_line(change, paint)).collect();
    match &times[..] {
        [] => {}
        [one] => text += &one_line(one, paint),
        all => {
            let directories = format!("{} directories", all.len());
            text += &format!("{} {directories}  (times set)\n", paint.text(AnsiColor::Yellow, "changed  "));
        }
    }
    text
}

/// How many lines of each file are otherwise.
fn stat(changes: &[Told], paint: Paint) -> String {
    let is_shown = |change: &&Told| change.diff.is_some() || change.content;
    let width = changes.iter().filter(is_shown).map(|change| change.path.to_string().chars().count()).max();
    let (mut text, mut all) = (String::new(), (0, 0));
    for change in changes.iter().filter(is_shown) {
        let path = format!("{:1$}", change.path, width.unwrap_or(0));
        match change.counts() {
            Some((more, less)) => {
                all = (all.0 + more, all.1 + less);
                let (more, less) = (format!("{more:>6} +"), format!("{less:>6} -"));
                let (more, less) = (paint.text(AnsiColor::Green, &more), paint.text(AnsiColor::Red, &less));
                text += &format!("{path} {more}{less}\n");
            }
            None => {
                let [before, after] =
                    [&change.before, &change.after].map(|state| state.as_ref().map_or(0, |state| state.size));
                text += &format!("{path} binary, {} -> {}\n", size(before), size(after));
            }
        }
    }
    text + &format!("{}: {} +, {} -\n", count(changes.len() as u64, "change"), all.0, all.1)
}

impl Told {
    fn is_time_of_directory(&self) -> bool {
        let (Some(before), Some(after)) = (&self.before, &self.after) else { return false };
        let looks = |state: &State| (state.mode, state.uid, state.gid);
        let is_same = after.kind == "directory" && looks(before) == looks(after) && self.xattrs.is_empty();
        self.what == "changed" && is_same
    }

    /// Lines that come and go, where that is known.
    fn counts(&self) -> Option<(usize, usize)> {
        let lines = || self.diff.as_ref().map(|diff| diff.lines().skip(2));
        let begin = |with: char| Some(lines()?.filter(|line| line.starts_with(with)).count());
        Some((begin('+')?, begin('-')?))
    }
}

/// Lines of a file, made safe for a terminal.
fn safe(lines: &str, paint: Paint) -> String {
    let one = |line: &str| line.split('\t').map(|part| name(part.as_bytes())).collect::<Vec<_>>().join("\t");
    let colored = |line: &str| {
        let safe = one(line.trim_end_matches('\n'));
        match line.as_bytes().first() {
            Some(b'+') => paint.text(AnsiColor::Green, &safe),
            Some(b'-') => paint.text(AnsiColor::Red, &safe),
            Some(b'@') => paint.text(AnsiColor::Cyan, &safe),
            _ => safe,
        }
    };
    lines.split_inclusive('\n').map(|line| colored(line) + "\n").collect()
}

fn one_line(change: &Told, paint: Paint) -> String {
    let from = change.from.as_ref().map_or(String::new(), |from| format!("{from} -> "));
    let mut notes = Vec::new();
    let is_file = |state: &&State| state.kind == "file";
    match (change.before.as_ref().filter(is_file), change.after.as_ref().filter(is_file)) {
        (Some(before), Some(after)) if change.content || before.size != after.size => {
            notes.push(format!("{} -> {}", size(before.size), size(after.size)));
        }
        (None, Some(after)) => notes.push(size(after.size)),
        (Some(before), None) => notes.push(size(before.size)),
        _ => {}
    }
    for kind in change.after.iter().chain(&change.before).map(|state| state.kind).filter(|kind| *kind != "file").take(1)
    {
        notes.push(kind.into());
    }
    if change.whole {
        notes.push("with everything in it".into());
    }
    if let (Some(before), Some(after)) = (&change.before, &change.after) {
        if before.mode != after.mode {
            notes.push(format!("mode {:o} -> {:o}", before.mode, after.mode));
        }
        if (before.uid, before.gid) != (after.uid, after.gid) {
            notes.push(format!("owner {}:{} -> {}:{}", before.uid, before.gid, after.uid, after.gid));
        }
        if before.mtime_ns != after.mtime_ns && change.what != "replaced" {
            notes.push("times set".into());
        }
    }
    if let Some(replaced) = &change.replaced {
        notes.push(format!("replaces a {} of {}", replaced.kind, size(replaced.size)));
    }
    for xattr in &change.xattrs {
        notes.push(match xattr.bytes {
            Some(bytes) => format!("{} = {}", xattr.name, size(bytes as u64)),
            None => format!("without {}", xattr.name),
        });
    }
    let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
    let color = match change.what {
        "created" => AnsiColor::Green,
        "removed" => AnsiColor::Red,
        _ => AnsiColor::Yellow,
    };
    format!("{} {from}{}{notes}\n", paint.text(color, &format!("{:9}", change.what)), change.path)
}
