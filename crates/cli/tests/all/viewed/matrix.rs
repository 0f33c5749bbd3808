//! `wholly undo` after others have acted: kinds of change, acts of others and ways to undo, each with each, against a
//! model of objects: what was there before the command, what it left, and what is there now.
//!
//! # Rules of the model
//!
//! 1. What the command found is known by its inode; what it left, by its path.
//! 2. An object is as left if what the command changed of it is: names that it gave or took, content where it wrote,
//!    attributes that it set; of what it made everything, and no other name in a directory.
//! 3. What is taken back is as before in what the command changed, and as it is now in everything else.
//! 4. What stays, stays with all its names, and with what needs these.
//! 5. The next undo brings the state before an undo back.
//!
//! `WHOLLY_MATRIX=TEXT` runs all cells with this in their names. A failure prints the line that replays it.

use super::common::run::{Rig, has_store, run, shell};
use super::common::views::VIEW;
use super::common::{self, Run, wholly};
use rustix::fs::{lgetxattr, llistxattr};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Cells of a test run in each view, unless it is a long one.
const DRAWN: usize = 50;

const BEFORE: &str = r"mkdir -p d/e q; echo one-one-one > a; echo two-two-two > b; echo three > h; ln h d/h2; ln -s a l
echo deep > d/f; echo deeper > d/e/g; mkfifo p; setfattr -n user.old -v 1 a; chmod 640 b
head -c 20000 /dev/zero | tr '\0' z > z; touch -hd @1000000000 a b h l d/f d/e/g p z d/e d q .";

/// Kinds of change: a script, the path of what it is about, as it leaves that, and a name that it takes.
const KINDS: &str = "\
echo new > n | n |
: > n | n |
echo more >> a | a |
printf TWO 1<> b | b |
truncate -s 4 a | a |
echo OTHER > a | a |
sed -i s/one/other/ a | a |
rm b | | b
mv a n | n | a
mv a b | b | a
mv a q/n | q/n | a
ln a n | n |
rm d/h2 | h | d/h2
echo x >> h; rm d/h2 | h | d/h2
echo x >> h | h |
chmod 600 a | a |
chown 1234:1235 a | a |
setfattr -n user.new -v 2 a; setfattr -x user.old a | a |
chmod 600 a; echo more >> a | a |
mkdir n; echo x > n/x; echo y > n/y; chmod 600 n/y; ln n/x n/z | n |
mkdir -p n/m/o; echo x > n/m/x; ln -s x n/m/l; echo y > n/m/o/y | n/m |
rmdir q | | q
rm -r d | | d
mv d n | n | d
mv d n; echo x >> n/f | n/f | d
ln -s a n | n |
ln -sfn b l | l |
mkfifo n | n |
rm p | | p
fallocate -p -o 4096 -l 8192 z | z |
mv a t; mv b a; mv t b | a |
chmod 700 d | d |
setfattr -n user.new -v 2 d; echo new > d/n | d |
chmod 700 d; setfattr -n user.new -v 2 d; echo new > d/n | d/n |
rm -r d; mkdir d; echo y > d/y | d |
rm a; mkdir a; echo x > a/x | a |";

/// Acts of others: a name, a script, and a script that makes it undone, if there is one. `$P` is the path of the
/// kind, `$T` the name that it takes, `$D` the directory, `$F` a file inside and `$K` a place elsewhere. An act ends
/// with 9 if the kind has no such thing.
const ACTS: &str = r"nothing | |
read | ls -lR > /dev/null; tar c . > /dev/null; find . -type f -exec cat {} + > /dev/null |
touch | is; touch -h $P |
same bytes | file; cat $P > $K; cat $K > $P |
copy | is; cp -a $P $K; rm -r $P; mv $K $P |
append | file; stat -c %s $P > $K; echo mine >> $P | truncate -s $(cat $K) $P
first byte | full; cp $P $K; printf Z 1<> $P | cat $K > $P
last byte | full; cp $P $K; truncate -s -1 $P; printf Z >> $P | cat $K > $P
other bytes | full; cp $P $K; tr '\0-\377' Z < $K > $P | cat $K > $P
cut | full; cp $P $K; truncate -s -1 $P | cat $K > $P
other file | file; cp -a $P $K; echo mine > t; mv t $P | cp -a $K t; mv t $P
same mode | mode; chmod $(stat -c %a $P) $P |
mode | mode; stat -c %a $P > $K; chmod 711 $P | chmod $(cat $K) $P
owner | is; stat -c %u $P > $K; chown -h 77 $P | chown -h $(cat $K) $P
attribute | mode; setfattr -n user.mine -v 1 $P | setfattr -x user.mine $P
same attribute | mode; setfattr -n user.new -v 3 $P |
remove | is; cp -a $P $K; rm -r $P | cp -a $K $P
move | is; mv $P mine | mv mine $P
link outside | cp -al . $K |
link inside | link; ln $P mine | rm mine
file at taken | taken; echo mine > $T | rm $T
directory at taken | taken; mkdir $T; echo mine > $T/mine | rm -r $T
link at taken | taken; link; ln $P $T | rm $T
moved to taken | taken; is; mv $P $T | mv $T $P
file beside | echo mine > $D/mine | rm $D/mine
file beside for a while | echo mine > $D/mine; rm $D/mine |
file inside | directory; for d in $(find $P -type d); do echo mine > $d/mine; done | find $P -name mine -delete
file inside for a while | directory; for d in $(find $P -type d); do echo mine > $d/mine; rm $d/mine; done |
edit inside | inside; echo mine >> $F | truncate -s -5 $F
remove inside | inside; cp -a $F $K; rm $F | cp -a $K $F
move inside | inside; mv $F mine | mv mine $F
directory instead | is; mv $P $K; mkdir $P | rmdir $P; mv $K $P
file instead | directory; mv $P $K; echo mine > $P | rm $P; mv $K $P
link instead | is; mv $P $K; ln -s nowhere $P | rm $P; mv $K $P";

const FUNCTIONS: &str = r#"set -e; D=$(dirname ${P:-$T})
F=$(find ${P:-nowhere} -type f 2> /dev/null | sort | tail -n 1)
is() { [ -n "$P" ] && [ -e $P -o -L $P ] || exit 9; }; taken() { [ -n "$T" -a ! -e "$T" ] || exit 9; }
mode() { is; [ ! -L $P -a ! -p $P ] || exit 9; }; link() { is; [ ! -d $P ] || exit 9; }
file() { is; [ -f $P -a ! -L $P ] || exit 9; }; full() { file; [ -s $P ] || exit 9; }
directory() { is; [ -d $P -a ! -L $P ] || exit 9; }; inside() { directory; [ -n "$F" ] || exit 9; }
"#;

/// Limits, each with why: cells with these texts in their names are not asserted. The store knows a file by one of its
/// names, and does not look for the others.
const KNOWN: &[(&[&str], &str)] = &[
    (&["`echo x >> h; rm d/h2`, copy"], "the copy is not taken back"),
    (&["`echo x >> h; rm d/h2`, remove, Skip."], "the same"),
    (&["`echo x >> h`, remove"], "a file whose first name is gone is not found by its other name"),
    (&["`echo x >> h`, move,"], "the same"),
    (&["`echo x >> h`, directory instead"], "the same"),
    (&["`echo x >> h`, link instead"], "the same"),
    (&["fuse", "`echo x >> h; rm d/h2`", "Path."], "what was written to a file is not found by the name that it has"),
    (&["overlay", "ln n/x n/z`, move inside, Skip"], "names of one file in a new directory are taken for two files"),
    (&["overlay", "ln n/x n/z`, remove inside, Skip"], "the same"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    /// Then the act is made undone, and the rest is taken back.
    Skip,
    SkipThenOver,
    Over,
    /// Then the rest is taken back.
    Path,
}

const WAYS: [Way; 5] = [Way::Plain, Way::Skip, Way::SkipThenOver, Way::Over, Way::Path];

/// Bytes of a file that are known as written together. In an overlay the command has a copy of the file.
const BLOCK: usize = if VIEW.len() == "overlay".len() { 4096 } else { 1 };

/// The inode by which the command found something, or left it.
type Id = u64;
/// The directory, and the name in it.
type Name = (Id, OsString);

/// A name that the command changed, or something that was there and is otherwise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Name(Name),
    Object(Id),
}

#[derive(Clone)]
struct Object {
    kind: u32,
    content: Vec<u8>,
    /// Extended ones, and mode, owner and group.
    attributes: BTreeMap<String, String>,
    mtime: (i64, i64),
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        (self.kind, &self.content, &self.attributes) == (other.kind, &other.content, &other.attributes)
    }
}

impl Object {
    fn of(path: &Path, stat: &Metadata) -> Object {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (mut names, mut value) = (vec![0; 4096], vec![0; 4096]);
        let len = llistxattr(path, &mut names[..]).unwrap_or(0);
        let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        let mut value = |name: &[u8]| lgetxattr(path, name, &mut value[..]).map(|len| text(&value[..len])).unwrap();
        let mut attributes: BTreeMap<_, _> = names.map(|name| (text(name), value(name))).collect();
        let others = [("mode", stat.mode() & 0o7777), ("owner", stat.uid()), ("group", stat.gid())];
        attributes.extend(others.map(|(name, value)| (name.into(), value.to_string())));
        let content = match () {
            () if stat.is_file() => std::fs::read(path).unwrap(),
            () if stat.is_symlink() => std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
            () => Vec::new(),
        };
        Object { kind: kind(stat), content, attributes, mtime: (stat.mtime(), stat.mtime_nsec()) }
    }
}

fn kind(stat: &Metadata) -> u32 {
    stat.mode() & 0o170_000
}

/// What a command has done to something that was there.
struct Edit<'g> {
    id: Id,
    before: &'g Object,
    after: &'g Object,
}

impl Edit<'_> {
    fn wrote(&self, at: usize) -> bool {
        let [before, after] =
            [self.before, self.after].map(|it| it.content.chunks(BLOCK).nth(at / BLOCK).unwrap_or(&[]));
        at >= self.after.content.len() || !before.starts_with(after)
    }

    fn set(&self) -> impl Iterator<Item = &String> {
        let all = self.before.attributes.keys().chain(self.after.attributes.keys());
        all.filter(|name| self.before.attributes.get(*name) != self.after.attributes.get(*name))
    }

    /// Whether a file begins with what was written.
    fn is_begun(&self, now: &Object) -> bool {
        let (now, then) = (&now.content, &self.after.content);
        now.len() >= then.len() && (0..then.len()).all(|at| now[at] == then[at] || !self.wrote(at))
    }

    fn is_left(&self, now: &Object) -> bool {
        let is_content = self.before.content == self.after.content
            || (now.content.len() == self.after.content.len() && self.is_begun(now));
        is_content && self.set().all(|name| now.attributes.get(name) == self.after.attributes.get(name))
    }

    fn can_replace(&self, now: &Object) -> bool {
        let (before, after) = (&self.before.content, &self.after.content);
        let is_whole = || (0..before.len()).all(|at| self.wrote(at));
        before == after || now.content.len() == after.len() || self.is_begun(now) || is_whole()
    }

    fn take_back(&self, now: &mut Object) {
        if self.before.content != self.after.content {
            let byte = |(at, before): (usize, &u8)| if self.wrote(at) { *before } else { now.content[at] };
            now.content = self.before.content.iter().enumerate().map(byte).collect();
        }
        for name in self.set() {
            now.attributes.remove(name);
            now.attributes.extend(self.before.attributes.get(name).map(|value| (name.clone(), value.clone())));
        }
    }
}

/// A tree by its objects.
#[derive(Clone, Default)]
struct State {
    root: Id,
    names: BTreeMap<Name, Id>,
    objects: BTreeMap<Id, Object>,
}

impl State {
    fn of(dir: &Path, mut id_of: impl FnMut(&Metadata) -> Id) -> State {
        let stat = dir.metadata().unwrap();
        let root = id_of(&stat);
        let (names, objects) = (BTreeMap::new(), BTreeMap::from([(root, Object::of(dir, &stat))]));
        let mut state = State { root, names, objects };
        let mut todo = vec![(root, dir.to_path_buf())];
        while let Some((above, path)) = todo.pop() {
            let entries = std::fs::read_dir(&path).unwrap().map(Result::unwrap);
            for entry in entries.filter(|entry| !entry.file_name().as_bytes().starts_with(b".wholly")) {
                let stat = entry.metadata().unwrap();
                let id = id_of(&stat);
                state.names.insert((above, entry.file_name()), id);
                state.objects.insert(id, Object::of(&entry.path(), &stat));
                todo.extend(stat.is_dir().then(|| (id, entry.path())));
            }
        }
        state
    }

    /// By what has a name, 0 if nothing has it.
    fn get(&self, name: &Name) -> Id {
        self.names.get(name).copied().unwrap_or(0)
    }

    fn has(&self, id: Id) -> bool {
        self.objects.contains_key(&id)
    }

    fn path(&self, (dir, name): &Name) -> Option<PathBuf> {
        let above = || self.path(self.names.iter().find(|(_, id)| *id == dir)?.0);
        if *dir == self.root { Some(name.into()) } else { Some(above()?.join(name)) }
    }

    fn paths(&self) -> BTreeMap<PathBuf, Id> {
        let root = (PathBuf::new(), self.root);
        self.names.iter().filter_map(|(name, id)| Some((self.path(name)?, *id))).chain([root]).collect()
    }

    /// What is otherwise than in `wanted`, for people.
    fn difference(&self, wanted: &State, has_time: impl Fn(&Object) -> bool) -> String {
        let told = |state: &State| {
            let mut first = HashMap::new();
            let all = state.paths().into_iter().map(|(path, id)| {
                let first = first.entry(id).or_insert_with(|| path.clone());
                let Object { kind, content, attributes, mtime } = &state.objects[&id];
                let mtime = has_time(&state.objects[&id]).then_some(mtime);
                let content = String::from_utf8_lossy(content);
                (path, format!("{kind:o} {first:?} {mtime:?} {attributes:?} {content:?}"))
            });
            all.collect::<BTreeMap<_, _>>()
        };
        let (is, wanted) = (told(self), told(wanted));
        let paths: BTreeSet<_> = is.keys().chain(wanted.keys()).collect();
        let differ = paths.into_iter().filter(|path| is.get(*path) != wanted.get(*path));
        let shown = |all: &BTreeMap<_, String>, path| format!("{:.200}", all.get(path).map_or("nothing", |it| it));
        differ.map(|at| format!("  {at:?}: {}\n    instead of {}\n", shown(&is, at), shown(&wanted, at))).collect()
    }
}

/// What a command has changed, or what of that is not taken back.
struct Group {
    before: State,
    after: State,
}

impl Group {
    fn names(&self) -> BTreeMap<&Name, [Id; 2]> {
        let all = self.before.names.keys().chain(self.after.names.keys());
        all.map(|name| (name, [self.before.get(name), self.after.get(name)])).filter(|(_, [b, a])| b != a).collect()
    }

    fn edits(&self) -> impl Iterator<Item = Edit<'_>> {
        let edit = |(id, before): (&Id, _)| Some(Edit { id: *id, before, after: self.after.objects.get(id)? });
        self.before.objects.iter().filter_map(edit).filter(|edit| edit.before != edit.after)
    }

    fn changes(&self) -> BTreeSet<Change> {
        let names = self.names().into_keys().map(|name| Change::Name(name.clone()));
        names.chain(self.edits().map(|edit| Change::Object(edit.id))).collect()
    }

    /// What lost a name and has another one. The store holds it by the first, whatever others do to that.
    fn held(&self) -> HashSet<Id> {
        let names = self.names();
        let has = |id: Id, at: usize| names.values().any(|ids| ids[at] == id);
        self.after.objects.keys().copied().filter(|id| has(*id, 0) && !has(*id, 1)).collect()
    }

    /// What is there now.
    fn now(&self, dir: &Path) -> State {
        let held = self.held();
        let (mut used, mut known): (_, HashMap<u64, Id>) = (held.clone(), held.iter().map(|id| (*id, *id)).collect());
        for (path, id) in self.after.paths() {
            let Ok(stat) = dir.join(path).symlink_metadata() else { continue };
            let is_it = kind(&stat) == self.after.objects[&id].kind && !known.contains_key(&stat.ino());
            if is_it && used.insert(id) {
                known.insert(stat.ino(), id);
            }
        }
        let mut next = 1 << 40;
        let mut state = State::of(dir, |stat| {
            next += 1;
            *known.entry(stat.ino()).or_insert(next)
        });
        for id in held {
            state.objects.entry(id).or_insert_with(|| self.after.objects[&id].clone());
        }
        state
    }

    /// Whether others have replaced one of several names of a file. If the file is held, only a copy counts.
    fn is_split(&self, edit: &Edit<'_>, now: &State) -> bool {
        let is_held = self.held().contains(&edit.id);
        let is_other = |(name, _): (&Name, _)| match now.get(name) {
            0 => false,
            id => id != edit.id && (!is_held || edit.is_left(&now.objects[&id])),
        };
        self.after.names.iter().filter(|(_, id)| **id == edit.id).any(is_other)
    }

    /// What is not as the command left it.
    fn others(&self, now: &State) -> BTreeSet<Change> {
        let has_place = |name: &Name| now.has(name.0) || !self.after.has(name.0);
        let is_left = |name: &Name, after: Id| now.get(name) == after && has_place(name);
        let names = self.names().into_iter().filter(|(name, [_, after])| !is_left(name, *after));
        let has_more = |id: Id| now.names.keys().any(|name| name.0 == id && self.after.get(name) == 0);
        let is_other = |id: Id, after: &Object| now.objects.get(&id) != Some(after) || has_more(id);
        let made = self.after.objects.iter().filter(|(id, after)| !self.before.has(**id) && is_other(**id, after));
        let is_left = |edit: &Edit<'_>| now.objects.get(&edit.id).is_some_and(|now| edit.is_left(now));
        let edits = self.edits().filter(|edit| !is_left(edit) || self.is_split(edit, now));
        let objects = made.map(|(id, _)| *id).chain(edits.map(|edit| edit.id));
        names.map(|(name, _)| Change::Name(name.clone())).chain(objects.map(Change::Object)).collect()
    }

    /// Changes with those that they need to be taken back, or that need them if they `stay`.
    fn spread(&self, mut all: BTreeSet<Change>, stay: bool) -> BTreeSet<Change> {
        let (with, without) = if stay { (&self.before, &self.after) } else { (&self.after, &self.before) };
        let mut len = usize::MAX;
        while len != all.len() {
            len = all.len();
            for (name, ids) in self.names() {
                let has = |id: &Id| all.contains(&Change::Object(*id));
                let is_in_one = has(&name.0) && !without.has(name.0);
                if is_in_one || all.contains(&Change::Name(name.clone())) || ids.iter().any(has) {
                    let dir = Some(name.0).filter(|dir| !with.has(*dir));
                    all.extend(ids.into_iter().filter(|id| *id != 0).chain(dir).map(Change::Object));
                    all.insert(Change::Name(name.clone()));
                }
            }
        }
        all
    }

    /// What becomes of `now` when all but this is taken back.
    fn taken_back(&self, now: &State, stay: &BTreeSet<Change>) -> State {
        let mut state = now.clone();
        for (name, [before, _]) in self.names() {
            if !stay.contains(&Change::Name(name.clone())) {
                state.names.remove(name);
                if let Some(object) = self.before.objects.get(&before) {
                    state.names.insert(name.clone(), before);
                    state.objects.entry(before).or_insert_with(|| object.clone());
                }
            }
        }
        for edit in self.edits().filter(|edit| !stay.contains(&Change::Object(edit.id))) {
            state.objects.entry(edit.id).and_modify(|now| edit.take_back(now));
        }
        let named: HashSet<Id> = state.paths().into_values().collect();
        state.objects.retain(|id, _| named.contains(id));
        state.names.retain(|(dir, _), _| named.contains(dir));
        state
    }

    /// Whether everything can be taken back over what is there.
    fn can_replace(&self, now: &State) -> bool {
        let edited = self.edits().map(|edit| edit.id);
        let own: HashSet<Id> = self.names().into_values().flatten().chain(edited).filter(|id| *id != 0).collect();
        let can_name = |(name, [before, after]): (&Name, [Id; 2])| {
            let is_there = !self.before.has(before) || !self.after.has(before) || now.has(before);
            let has_place = before == 0 || !self.after.has(name.0) || now.has(name.0);
            let is_own = now.get(name) != after && own.contains(&now.get(name));
            is_there && has_place && !is_own
        };
        let can_edit = |edit: Edit<'_>| {
            let can = now.objects.get(&edit.id).is_some_and(|now| edit.can_replace(now));
            can && !self.is_split(&edit, now)
        };
        self.names().into_iter().all(can_name) && self.edits().all(can_edit)
    }

    /// What is at a path or below.
    fn is_at(&self, path: &str, change: &Change) -> bool {
        [&self.before, &self.after].iter().any(|state| match change {
            Change::Name(name) => state.path(name).is_some_and(|it| it.starts_with(path)),
            Change::Object(id) => state.paths().iter().any(|(it, of)| of == id && it.starts_with(path)),
        })
    }
}

fn on(dir: &Path, words: &[&str]) -> Run {
    wholly(&[&words[..1], &[dir.to_str().unwrap()], &words[1..]].concat())
}

fn check(is: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if is { Ok(()) } else { Err(what()) }
}

struct Cell<'c> {
    dir: &'c Path,
    id: String,
    is_untouched: bool,
    /// What was there before the last undo.
    last: Option<State>,
}

impl Cell<'_> {
    /// Undoes what is left of a group, and compares. Gives what is left then.
    fn undo(&mut self, group: Group, options: &[&str]) -> Result<Group, String> {
        let (now, all) = (group.now(self.dir), group.changes());
        let mut stay = BTreeSet::new();
        if let ["--", path] = options {
            let wanted = all.iter().filter(|change| group.is_at(path, change)).cloned().collect();
            stay = all.difference(&group.spread(wanted, false)).cloned().collect();
        }
        let part = Group { before: group.taken_back(&group.after, &stay), after: group.after.clone() };
        let others = part.others(&now);
        let code = match options {
            _ if all.is_subset(&stay) => 8,
            ["--over-changes"] if !part.can_replace(&now) => 123,
            ["--over-changes"] => 0,
            ["--skip-changed"] => {
                stay = group.spread(others, true);
                if all.is_subset(&stay) { 123 } else { 0 }
            }
            _ if others.is_empty() => 0,
            _ => 123,
        };
        let undone = on(self.dir, &[&["undo", &self.id], options].concat());
        let is = group.now(self.dir);
        let wanted = if code == 0 { group.taken_back(&now, &stay) } else { now.clone() };
        let mut difference = is.difference(&wanted, |_| code != 0);
        if self.is_untouched && code == 0 && stay.is_empty() && self.last.is_none() {
            difference += &is.difference(&group.before, |_| true);
        }
        let said = || format!("{options:?}: {:?}, not {code}\n{}{}{difference}", undone.code, undone.out, undone.err);
        let is_told = code != 123 || undone.out.lines().any(|line| line.starts_with("  "));
        check(undone.code == Some(code) && difference.is_empty() && is_told, said)?;
        if code != 0 {
            return Ok(group);
        }
        self.last = Some(now);
        let after = group.taken_back(&group.after, &stay);
        Ok(Group { before: group.before, after })
    }
}

/// Gives whether there is such a cell.
fn cell(dir: &Path, [script, path, taken]: [&str; 3], [name, act, back]: [&str; 3], way: Way) -> Result<bool, String> {
    let look = || State::of(dir, Metadata::ino);
    let before = look();
    let output = run(dir, &["--keep-undo", "1G"], script);
    check(output.status.success() && output.stderr.is_empty(), || format!("{output:?}"))?;
    let group = Group { before, after: look() };
    let id = on(dir, &["log", "--json"]).json()["undos"][0]["id"].as_str().unwrap().to_owned();
    let set = format!("P={path}; T={taken}; K={}; {FUNCTIONS}", dir.with_extension("keep").display());
    let acted = shell(dir, &format!("{set}{act}")).output().unwrap();
    if acted.status.code() == Some(9) {
        return Ok(false);
    }
    check(acted.status.success(), || format!("{acted:?}"))?;
    let mut cell = Cell { dir, id, is_untouched: name == "nothing", last: None };
    let options: &[&str] = match way {
        Way::Plain => &[],
        Way::Skip | Way::SkipThenOver => &["--skip-changed"],
        Way::Over => &["--over-changes"],
        Way::Path => &["--", if path.is_empty() { taken } else { path }],
    };
    let rest = cell.undo(group, options)?;
    if !rest.changes().is_empty() && !matches!(way, Way::Plain | Way::Over) {
        if way == Way::Skip {
            // Fails if what was taken back is in its way.
            _ = shell(dir, &format!("{set}{back}")).output().unwrap();
            cell.last = None;
        }
        cell.undo(rest, if way == Way::SkipThenOver { &["--over-changes"] } else { &[] })?;
    }
    // An undo that has found everything as before has none itself.
    if let Some(last) = cell.last.filter(|last| !look().difference(last, |_| false).is_empty()) {
        let redone = on(dir, &["undo"]);
        let difference = look().difference(&last, |object| object.kind != 0o040_000);
        let said = || format!("redo: {:?}\n{}{}{difference}", redone.code, redone.out, redone.err);
        check(redone.code == Some(0) && difference.is_empty(), said)?;
    }
    let checked = on(dir, &["check"]);
    check(checked.code == Some(0) || !has_store(dir), || format!("check: {}{}", checked.out, checked.err))?;
    Ok(true)
}

fn table(text: &'static str) -> impl Iterator<Item = [&'static str; 3]> {
    text.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().try_into().expect("three columns"))
}

#[test]
fn each_change_is_taken_back_after_each_act_of_others() {
    let Some(rig) = Rig::new("matrix") else { return };
    let wanted = std::env::var("WHOLLY_MATRIX").ok();
    let mut cells = Vec::new();
    for kind in table(KINDS) {
        for act in table(ACTS) {
            cells.extend(WAYS.map(|way| (kind, act, way, format!("{VIEW}: `{}`, {}, {way:?}.", kind[0], act[0]))));
        }
    }
    cells.retain(|(.., name)| wanted.as_ref().is_none_or(|wanted| name.contains(wanted)));
    // The seed is fixed, and another one in each view.
    let mut random = VIEW.len() as u64;
    for i in (1..cells.len()).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        cells.swap(i, (random >> 33) as usize % (i + 1));
    }
    let most = if common::is_long() || wanted.is_some() { usize::MAX } else { DRAWN };
    let (mut done, mut known, mut wrong) = (0, 0, String::new());
    for (n, (kind, act, way, name)) in cells.into_iter().enumerate() {
        let dir = rig.dir(&format!("dir{n}"), BEFORE);
        match cell(&dir, kind, act, way) {
            Ok(is_there) => done += usize::from(is_there),
            Err(_) if KNOWN.iter().any(|(all, _)| all.iter().all(|text| name.contains(text))) => known += 1,
            Err(what) => wrong += &format!("WHOLLY_MATRIX='{name}' {what}\n"),
        }
        std::fs::remove_dir_all(&dir).unwrap();
        if done == most {
            break;
        }
    }
    println!("{done} cells are as in the model, {known} are known not to be");
    assert!(wrong.is_empty(), "{wrong}");
}
