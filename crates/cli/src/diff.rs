//! `wholly diff`: what a parked group would change, and for small texts how.

mod patch;

use crate::apply::within;
use crate::args::DiffArgs;
use crate::error::{Exit, Failure};
use crate::list;
use crate::output::{Name, Paint, Ui, count, name, shown, size};
use crate::parts::{self, Part};
use crate::recover;
use anstyle::AnsiColor;
use serde::Serialize;
use similar::TextDiff;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use wholly::{Change, Review, Side, What};

/// Bytes of the largest text of which the lines are compared.
const LARGEST_TEXT: u64 = 1 << 20;

/// Bytes of the longest target of a link.
const LONGEST_TARGET: usize = 4096;

/// How much there may be in a directory that is new or gone, so that it is shown one by one.
const FOLDED: usize = 20;

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
    /// What deserves a look: `set-user-ID`, `set-group-ID`, `world-writable`, `device`, `capabilities`,
    /// `leads outside`, `another's`.
    marks: Vec<&'static str>,
    /// The lines that are otherwise, where both sides are small texts.
    diff: Option<String>,
}

#[derive(Serialize)]
struct State {
    /// `file`, `directory`, `link`, `fifo`, `socket`, `character device` or `block device`.
    kind: &'static str,
    /// Of a device: major and minor number.
    device: Option<[u32; 2]>,
    /// Of a link.
    target: Option<Name>,
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
            0o010_000 => "fifo",
            0o140_000 => "socket",
            0o020_000 => "character device",
            _ => "block device",
        };
        let wholly::Stat { size, mode, uid, gid, mtime_ns, rdev, .. } = *stat;
        let device = kind.ends_with("device").then(|| [rustix::fs::major(rdev), rustix::fs::minor(rdev)]);
        State { kind, device, target: None, size, mode: mode & 0o7777, uid, gid, mtime_ns }
    }

    /// The same, with the target of a link.
    fn of_side(
        review: &Review<'_>,
        change: &Change,
        side: Side,
        stat: Option<&wholly::Stat>,
    ) -> wholly::Result<Option<State>> {
        let Some(stat) = stat else { return Ok(None) };
        let mut state = State::of(stat);
        if state.kind == "link" {
            let mut target = vec![0; LONGEST_TARGET];
            match review.read(change, side, 0, &mut target) {
                Ok(read) => state.target = Some(Name::from(&target[..read])),
                Err(wholly::Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Some(state))
    }

    /// What deserves a look, if it was not so before.
    fn marks(&self, before: Option<&State>, path: &Path, dir: &Path) -> impl Iterator<Item = &'static str> {
        let sets = |bit: u32| move |state: &State| state.kind == "file" && state.mode & bit != 0;
        let is_open = |state: &State| {
            let is_sticky = state.kind == "directory" && state.mode & 0o1000 != 0;
            state.kind != "link" && state.mode & 0o002 != 0 && !is_sticky
        };
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let marks = [
            ("set-user-ID", sets(0o4000)(self) && !before.is_some_and(sets(0o4000))),
            ("set-group-ID", sets(0o2000)(self) && !before.is_some_and(sets(0o2000))),
            ("world-writable", is_open(self) && !before.is_some_and(is_open)),
            ("device", self.device.is_some()),
            ("leads outside", self.target.as_ref().is_some_and(|target| leads_outside(dir, path, target.bytes()))),
            ("another's", before.is_none() && (self.uid, self.gid) != me),
        ];
        marks.into_iter().filter(|(_, is_so)| *is_so).map(|(mark, _)| mark)
    }
}

/// Shows what a parked group would change.
pub fn run(args: &DiffArgs, ui: &Ui) -> Result<Exit, Failure> {
    let (dir, id) = list::group("diff", &args.dir, args.id)?;
    let failed = |error| Failure::of_store("diff", &dir, error);
    let store = recover::open("diff", &dir, ui)?;
    let mut changes = all(&store.review(id).map_err(failed)?, &dir).map_err(failed)?;
    let [paths, but] = [&args.paths, &args.exclude].map(|paths| within(&dir, paths));
    let is_at = |change: &Told, above: &Path| {
        let lies_in = |path: &Name| above == Path::new(".") || path.as_path().starts_with(above);
        lies_in(&change.path) || change.from.as_ref().is_some_and(lies_in)
    };
    changes.retain(|change| {
        (paths.is_empty() || paths.iter().any(|path| is_at(change, path)))
            && !but.iter().any(|path| is_at(change, path))
    });
    let how = Shown { paint: ui.paint(), all: args.all };
    let others = parts::of(&dir, id);
    // A patch needs the old content of a file, which is lost once another program has changed the file.
    let changed = if args.patch { store.changed_meanwhile(id).map_err(failed)? } else { Vec::new() };
    let diff = Diff { dir: Name::of_dir(&dir), id: id.to_string(), changes, others };
    ui.emit("diff", &diff, |diff| {
        let (changes, paint) = (&diff.changes, how.paint);
        let one = |part: &Part| format!("together with {}\n", part.shown());
        let others = diff.others.iter().map(one);
        match () {
            // It goes to a program as it is.
            () if args.patch && !std::io::stdout().is_terminal() => patch::of(changes, &changed),
            () if args.patch => safe(&patch::of(changes, &changed), paint),
            () if args.stat => others.chain([stat(changes, paint)]).collect(),
            () if args.names_only => others.chain([names(changes, how)]).collect(),
            () => others.chain([text(changes, how)]).collect(),
        }
    })?;
    Ok(Exit::DONE)
}

/// How changes are shown.
#[derive(Clone, Copy)]
pub struct Shown {
    pub paint: Paint,
    /// Whether large directories that are new or gone are, one by one.
    pub all: bool,
}

/// All that a group would change in a directory.
pub fn all(review: &Review<'_>, dir: &Path) -> wholly::Result<Vec<Told>> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    review.changes().iter().map(|change| told(review, change, &dir)).collect()
}

/// Whether a link leads out of the directory, as far as its target tells.
fn leads_outside(dir: &Path, path: &Path, target: &[u8]) -> bool {
    let target = Path::new(OsStr::from_bytes(target));
    let (from, target) = match target.strip_prefix(dir) {
        Ok(inside) => (0, inside),
        Err(_) if target.is_absolute() => return true,
        Err(_) => (path.components().count() as i64 - 1, target),
    };
    let mut depth = from;
    for part in target.components() {
        depth += match part {
            Component::ParentDir => -1,
            Component::Normal(_) => 1,
            _ => 0,
        };
        if depth < 0 {
            return true;
        }
    }
    false
}

fn told(review: &Review<'_>, change: &Change, dir: &Path) -> wholly::Result<Told> {
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
    let before = State::of_side(review, change, Side::Before, change.before.as_ref())?;
    let after = State::of_side(review, change, Side::After, change.after.as_ref())?;
    // What replaces something is new.
    let same = before.as_ref().filter(|_| change.what != What::Replaced);
    let mut marks: Vec<_> = after.iter().flat_map(|after| after.marks(same, &change.path, dir)).collect();
    let has_capabilities = |xattr: &&wholly::XattrChange| xattr.name == "security.capability" && xattr.value.is_some();
    marks.extend(change.xattrs.iter().find(has_capabilities).map(|_| "capabilities"));
    Ok(Told {
        what,
        path: Name::from(&*change.path),
        from: change.from.as_deref().map(Name::from),
        before,
        after,
        replaced: change.replaced.as_ref().map(State::of),
        content: change.content,
        xattrs: change.xattrs.iter().map(xattr).collect(),
        whole: change.whole,
        marks,
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
pub fn text(changes: &[Told], how: Shown) -> String {
    let (mut text, paint) = (names(changes, how), how.paint);
    let folded = if how.all { HashSet::new() } else { folded(changes).into_values().flatten().collect() };
    for change in changes.iter().enumerate().filter(|(at, _)| !folded.contains(at)).map(|(_, change)| change) {
        match &change.diff {
            Some(lines) if !lines.is_empty() => text += &format!("\n{}", safe(lines, paint)),
            None if change.content => text += &format!("\nBinary files a/{0} and b/{0} differ\n", change.path),
            _ => {}
        }
    }
    text
}

/// A line for each change. Directories whose times alone are otherwise are one line.
pub fn names(changes: &[Told], how: Shown) -> String {
    let paint = how.paint;
    let folded = if how.all { HashMap::new() } else { folded(changes) };
    let inside: HashSet<usize> = folded.values().flatten().copied().collect();
    let shown = changes.iter().enumerate().filter(|(at, _)| !inside.contains(at));
    let (times, others): (Vec<_>, Vec<_>) = shown.partition(|(_, change)| change.is_time_of_directory());
    let times: Vec<&Told> = times.into_iter().map(|(_, change)| change).collect();
    let line = |(at, change): (usize, &Told)| match folded.get(&at) {
        Some(inside) => folded_line(change, inside.iter().map(|at| &changes[*at]), paint),
        None => one_line(change, paint),
    };
    let mut text: String = others.into_iter().map(line).collect();
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

/// Large directories that are new or gone, by their places in the list, with the places of what is in them and need not
/// be shown: what is marked has its own line.
fn folded(changes: &[Told]) -> HashMap<usize, Vec<usize>> {
    let is_directory =
        |change: &Told| change.after.as_ref().or(change.before.as_ref()).is_some_and(State::is_directory);
    let (mut all, mut at) = (HashMap::new(), 0);
    while at < changes.len() {
        let dir = &changes[at];
        let is_it = matches!(dir.what, "created" | "removed") && is_directory(dir);
        let lies_in = |change: &Told| change.path.as_path().starts_with(dir.path.as_path());
        let end = at + 1 + changes[at + 1..].iter().take_while(|change| is_it && lies_in(change)).count();
        let is_plain = |at: &usize| changes[*at].what == dir.what && changes[*at].marks.is_empty();
        let inside: Vec<usize> = (at + 1..end).filter(is_plain).collect();
        if inside.len() > FOLDED {
            all.insert(at, inside);
            at = end;
        } else {
            at += 1;
        }
    }
    all
}

fn folded_line<'t>(dir: &Told, inside: impl Iterator<Item = &'t Told>, paint: Paint) -> String {
    let (mut directories, mut others, mut bytes) = (0, 0, 0);
    for state in inside.filter_map(|change| change.after.as_ref().or(change.before.as_ref())) {
        (directories, others) =
            if state.is_directory() { (directories + 1, others) } else { (directories, others + 1) };
        bytes += if state.kind == "file" { state.size } else { 0 };
    }
    let below = if directories > 0 { format!(", {}", directories_of(directories)) } else { String::new() };
    let line = one_line(dir, paint);
    let line = line.trim_end_matches(['\n', ')']);
    format!("{line}; in it {} of {}{below}; --all shows them)\n", count(others, "file"), size(bytes))
}

fn directories_of(number: u64) -> String {
    if number == 1 { "1 directory".into() } else { format!("{number} directories") }
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

impl State {
    fn is_directory(&self) -> bool {
        self.kind == "directory"
    }

    /// Whether it has a mode that programs give to what they make, or that says nothing.
    fn is_ordinary(&self) -> bool {
        match self.kind {
            "directory" => matches!(self.mode, 0o700 | 0o750 | 0o755 | 0o770 | 0o775),
            "link" => true,
            _ => matches!(self.mode, 0o600 | 0o640 | 0o644 | 0o660 | 0o664),
        }
    }
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
    if let Some(state) = change.after.iter().chain(&change.before).next().filter(|state| state.kind != "file") {
        notes.push(match state.device {
            Some([major, minor]) => format!("{} {major}:{minor}", state.kind),
            None => state.kind.into(),
        });
    }
    let is_new = change.before.is_none() || change.what == "replaced";
    if let Some(after) = change.after.as_ref().filter(|after| is_new && !after.is_ordinary()) {
        notes.push(format!("mode {:o}", after.mode));
    }
    if let (Some(after), true) = (&change.after, change.marks.contains(&"another's")) {
        notes.push(format!("owner {}:{}", after.uid, after.gid));
    }
    if change.whole {
        notes.push("with everything in it".into());
    }
    if let (Some(before), Some(after)) = (&change.before, &change.after) {
        if before.mode != after.mode && change.what != "replaced" {
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
    let marks = change.marks.iter().filter(|mark| !matches!(**mark, "another's" | "device"));
    notes.extend(marks.map(|mark| paint.text(AnsiColor::Red, mark)));
    let notes = if notes.is_empty() { String::new() } else { format!("  ({})", notes.join(", ")) };
    let to = change.after.as_ref().or(change.before.as_ref()).and_then(|state| state.target.as_ref());
    let to = to.map_or(String::new(), |target| format!(" -> {target}"));
    let color = match change.what {
        "created" => AnsiColor::Green,
        "removed" => AnsiColor::Red,
        _ => AnsiColor::Yellow,
    };
    format!("{} {from}{}{to}{notes}\n", paint.text(color, &format!("{:9}", change.what)), change.path)
}
