//! Workloads on names: every op with its operands, pairs of them, longer ones written by hand and drawn.
//!
//! The names are those of bounded black-box crash testing (ACE, B3: Mohan and others, OSDI 2018): `foo` and `bar`, in
//! the store's directory, `A`, `B` and `A/C`. An op is one of a pair if the system does not refuse it, and if it has to
//! do with the other: a name, a file, or a directory of it. Of `foo` and `bar` in a directory that has neither, `foo`
//! comes first: the other is the same.

use std::collections::BTreeMap;

use wholly_sim::Random;

use crate::by_hand::{ADOPTED, ATTRIBUTES, BY_HAND, OWNERS, PARKED, STAGED};
use crate::script::{MOST, op, workload};
use crate::tree::{Kind, State};
use crate::workload::{Op, Start, Workload};

/// So many files.
const MANY_STAGED: usize = 17;

const DIRS: [&str; 3] = ["A", "B", "A/C"];
const FILES: [&str; 8] = ["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar", "A/C/foo", "A/C/bar"];

/// Every op that is tried, as it is written.
pub(crate) fn vocabulary() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for file in FILES {
        for word in ["create", "fifo", "unlink", "write", "append", "cut", "symlink-A/foo"] {
            all.push(format!("{word}-{file}"));
        }
        for to in FILES.into_iter().filter(|to| *to != file) {
            all.extend(["link", "rename", "noreplace"].map(|word| format!("{word}-{file}-{to}")));
            if file < to {
                all.push(format!("exchange-{file}-{to}"));
            }
        }
    }
    // One file of each kind is enough for what is not of its name.
    for verb in ["punch", "nick", "zero", "blank", "alloc", "reserve"] {
        all.push(format!("{verb}-A/foo"));
    }
    all.extend(["grow-A/foo", "punch-foo", "punch-@A/foo"].map(String::from));
    all.extend(
        ["write-@A/foo", "cut-@A/foo", "symlink-A-B", "symlink-foo-A/bar", "exchange-A/foo-B"].map(String::from),
    );
    for dir in DIRS.into_iter().chain(["B/C"]) {
        all.extend([format!("mkdir-{dir}"), format!("rmdir-{dir}")]);
        for to in DIRS.into_iter().chain(["B/C", "foo"]).filter(|to| *to != dir) {
            all.push(format!("rename-{dir}-{to}"));
            if dir < to {
                all.push(format!("exchange-{dir}-{to}"));
            }
        }
    }
    all.push("noreplace-A-B".into());
    for path in ["foo", "A/foo", "A"] {
        all.extend(["chmod", "times", "tag"].map(|word| format!("{word}-{path}")));
    }
    all.push("untag-A/foo".into());
    all
}

fn starts() -> [(&'static str, State); 2] {
    [("bare", Start::Bare), ("dirs", Start::Dirs)].map(|(name, start)| {
        let mut state = start.state();
        state.reopen();
        (name, state)
    })
}

/// The state after an op, where it makes sense.
fn after(state: &State, op: &Op) -> Option<State> {
    let gives = match op {
        Op::Create(path) | Op::Mknod(path) | Op::Symlink { path, .. } | Op::Adopt { path, .. } => Some(path),
        Op::Link { to, .. } | Op::Rename { to, .. } => Some(to),
        _ => None,
    };
    if let Some(directory) = gives.and_then(|path| path.strip_suffix("bar"))
        && state.at(&format!("{directory}bar")).is_none()
        && state.at(&format!("{directory}foo")).is_none()
    {
        return None;
    }
    let mut after = state.clone();
    after.apply(op, &op.bytes(0).unwrap_or_default()).ok().map(|()| after)
}

/// The paths that an op speaks of.
fn paths(op: &Op) -> Vec<&'static str> {
    match op {
        Op::Symlink { target, path } => vec![target, path],
        Op::Link { from, to } | Op::Rename { from, to, .. } => vec![from, to],
        _ => vec![op.file().trim_start_matches('@')],
    }
}

/// Whether one path is the other, or lies in it.
fn related(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether two ops have to do with each other.
fn belong(state: &State, a: &Op, b: &Op) -> bool {
    let (of_a, of_b) = (paths(a), paths(b));
    let same = |x: &str, y: &str| {
        let file = |path: &str| state.find(path).ok().filter(|of| matches!(state.object(*of).kind, Kind::File(_)));
        file(x).is_some() && file(x) == file(y)
    };
    of_a.iter().any(|x| of_b.iter().any(|y| related(x, y) || same(x, y)))
}

fn named((name, about, script): (&str, &'static str, &str)) -> Workload {
    let workload = workload(script).unwrap_or_else(|| panic!("{script} makes no sense"));
    Workload { name: name.into(), about, ..workload }
}

/// Those that are written by hand, each for what could go wrong.
pub fn by_hand() -> Vec<Workload> {
    let owners: &[_] = if rustix::process::geteuid().is_root() { OWNERS } else { &[] };
    BY_HAND.iter().chain(ATTRIBUTES).chain(owners).copied().map(named).collect()
}

/// Those on groups that are parked.
pub fn parked() -> Vec<Workload> {
    PARKED.iter().copied().map(named).collect()
}

/// Those on files that are staged, or have shadows, and more of the first than are synced one by one.
pub fn staged() -> Vec<Workload> {
    let many: Vec<String> = (0..MANY_STAGED).map(|n| format!("create-n{n:02}+fill-n{n:02}")).collect();
    let many = workload(&format!("bare.staged,{},home", many.join("+"))).expect("it makes sense");
    let many = Workload {
        name: "many-staged".into(),
        about: "a group with more staged files than are synced one by one",
        ..many
    };
    STAGED.iter().copied().map(named).chain([many]).collect()
}

/// Those on what groups adopt.
pub fn adopted() -> Vec<Workload> {
    ADOPTED.iter().copied().map(named).collect()
}

/// Forty files in one group: too much for every world and every run.
pub fn many_creates() -> Workload {
    let many: Vec<String> = (0..MOST).map(|n| format!("create-n{n:02}")).collect();
    let workload = workload(&format!("bare,{},home", many.join("+"))).expect("it makes sense");
    Workload { name: "many-creates".into(), about: "a group with as many names as fill segments", ..workload }
}

/// Each op that the system does not refuse at first, by itself: committed, and taken home; aborted.
pub fn ones() -> Vec<Workload> {
    let mut scripts = Vec::new();
    for (start, state) in starts() {
        for text in vocabulary() {
            if after(&state, &op(&text).expect("a word")).is_some() {
                scripts.push(format!("{start},{text},home"));
                scripts.push(format!("{start},abort.{text},home"));
            }
        }
    }
    made(&scripts)
}

/// Each op that the system does not refuse at first, by itself: as a call, and in a group that commits, or aborts.
pub fn ones_on_volumes() -> Vec<Workload> {
    let mut scripts = Vec::new();
    for (start, state) in starts() {
        let words = vocabulary().into_iter().filter(|text| after(&state, &op(text).expect("a word")).is_some());
        scripts.extend(words.flat_map(|text| ["call.", "", "abort."].map(|how| format!("{start},{how}{text}"))));
    }
    made(&scripts)
}

/// All pairs that make sense: as two calls, one after the other, and where the process dies or closes between them; in
/// one group, and in two at once.
pub fn pairs_on_volumes() -> Vec<Workload> {
    let mut scripts = Vec::new();
    for Couple { start, first, second, ways } in couples() {
        scripts.push(format!("{start},call.{first},call.{second}"));
        if ways.contains(&Pair::Dying) {
            scripts.extend(["kill", "close"].map(|end| format!("{start},call.{first},{end},call.{second}")));
        }
        scripts.push(format!("{start},{first}+{second}"));
        if ways.contains(&Pair::Across) {
            scripts.push(format!("{start},{first}%{second}"));
        }
    }
    made(&scripts)
}

/// All pairs that make sense, each op a group: the first one returns at the order, and the second one, or is durable.
pub fn ordered_pairs() -> Vec<Workload> {
    let mut scripts = Vec::new();
    for Couple { start, first, second, .. } in couples() {
        scripts.extend(["order", "call"].map(|how| format!("{start},order.{first},{how}.{second}")));
    }
    made(&scripts)
}

/// How the ops of a pair come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// In one group.
    Together,
    /// In two groups.
    Apart,
    /// In two groups, and a checkpoint between.
    Home,
    /// In two groups, and the process dies between.
    Dying,
    /// In two groups at the same time: the first begins first and commits last.
    Across,
}

/// All of them.
pub const PAIRS: [Pair; 5] = [Pair::Together, Pair::Apart, Pair::Home, Pair::Dying, Pair::Across];

impl Pair {
    fn script(self, start: &str, first: &str, second: &str) -> String {
        match self {
            Pair::Together => format!("{start},{first}+{second},home"),
            Pair::Apart => format!("{start},{first},{second},home"),
            Pair::Home => format!("{start},{first},home,{second},home"),
            Pair::Dying => format!("{start},{first},kill,{second},home"),
            Pair::Across => format!("{start},{first}%{second},home"),
        }
    }
}

/// Two ops that make sense, one after the other, and have to do with each other.
struct Couple {
    start: &'static str,
    first: String,
    second: String,
    /// The ways in which they make sense.
    ways: Vec<Pair>,
}

fn couples() -> Vec<Couple> {
    let mut couples = Vec::new();
    let words = vocabulary();
    for (start, state) in starts() {
        for first in &words {
            let a = op(first).expect("a word");
            let Some(then) = after(&state, &a) else { continue };
            let mut later = then.clone();
            later.reopen();
            for second in &words {
                let b = op(second).expect("a word");
                if after(&then, &b).is_none() || !(belong(&state, &a, &b) || belong(&then, &a, &b)) {
                    continue;
                }
                let makes_sense = |pair: &Pair| match pair {
                    Pair::Across => after(&state, &b).is_some(),
                    Pair::Dying => after(&later, &b).is_some(),
                    _ => true,
                };
                let ways = PAIRS.into_iter().filter(makes_sense).collect();
                couples.push(Couple { start, first: first.clone(), second: second.clone(), ways });
            }
        }
    }
    couples
}

/// All pairs that make sense, in all ways.
pub fn pairs() -> Vec<Workload> {
    let mut scripts = Vec::new();
    for Couple { start, first, second, ways } in couples() {
        scripts.extend(ways.into_iter().map(|pair| pair.script(start, &first, &second)));
    }
    made(&scripts)
}

/// A group that makes a staged file, or one that writes to a shadow, and each op that has to do with it, in all ways.
pub fn staged_pairs() -> Vec<Workload> {
    let mut scripts = Vec::new();
    let firsts = [["create-foo", "fill-foo"], ["fill-A/foo", "more-A/foo"]];
    for ((start, state), words) in starts().into_iter().flat_map(|start| firsts.map(|words| (start.clone(), words))) {
        let first = words.map(|word| op(word).expect("a word"));
        let then = first.iter().fold(state.clone(), |state, op| after(&state, op).expect("it makes sense"));
        let mut later = then.clone();
        later.reopen();
        for second in vocabulary() {
            let b = op(&second).expect("a word");
            if after(&then, &b).is_none() || !belong(&then, &first[0], &b) {
                continue;
            }
            let makes_sense = |pair: &Pair| match pair {
                Pair::Across => after(&state, &b).is_some(),
                Pair::Dying => after(&later, &b).is_some(),
                _ => true,
            };
            let start = format!("{start}.staged");
            scripts.extend(
                PAIRS
                    .iter()
                    .filter(|pair| makes_sense(pair))
                    .map(|pair| pair.script(&start, &words.join("+"), &second)),
            );
        }
    }
    made(&scripts)
}

/// From this seed on files are staged.
pub const STAGING: u64 = 200_000;

/// From this seed on lots are announced between the groups, and go home later.
pub const LOTS: u64 = 100_000;

/// A workload drawn by a seed, called by its script: five to eight ops. The same seed gives the same one as long as the
/// vocabulary stays as it is.
pub fn drawn(seed: u64) -> Workload {
    let mut verbs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for word in vocabulary() {
        let verb = word.split('-').next().expect("a verb");
        verbs.entry(verb.into()).or_default().push(word);
    }
    let mut draw = Draw { random: Random(seed), verbs: verbs.into_values().collect() };
    let (start, mut state) = starts()[draw.random.below(2) as usize].clone();
    let staged = if seed >= STAGING { ".staged" } else { "" };
    let (mut script, mut ops) = (format!("{start}{staged}"), 5 + draw.random.below(4));
    let lots = seed >= LOTS;
    while ops > 0 {
        let (mut then, kind) = (state.clone(), draw.random.below(12));
        let most = if kind == 7 { 1 } else { ops.min(3) };
        let first = draw.group(&mut then, most);
        ops -= first.len() as u64;
        let group = first.join("+");
        script += &match kind {
            0..=4 => format!(",{group}"),
            5 => format!(",abort.{group}"),
            6 | 7 => {
                let mut other = state.clone();
                let second = draw.group(&mut other, 1).join("+");
                format!(",{group}%{second}")
            }
            8 => format!(",call.{},home", first[0]),
            9 => format!(",{group},home"),
            10 => format!(",{group},kill"),
            _ => format!(",{group},close"),
        };
        if kind == 8 {
            then = after(&state, &op(&first[0]).expect("a word")).expect("it could be done");
        }
        if kind >= 10 {
            then.reopen();
        }
        if kind != 5 {
            state = then;
        }
        if lots {
            script += ["", "", ",lot", ",lot", ",pass"][draw.random.below(5) as usize];
        }
    }
    workload(&(script + ",home")).expect("it makes sense")
}

struct Draw {
    random: Random,
    /// Words of one verb together, so that those with two operands are no more likely.
    verbs: Vec<Vec<String>>,
}

impl Draw {
    /// Up to `most` ops that make sense, and one at least.
    fn group(&mut self, state: &mut State, most: u64) -> Vec<String> {
        let wanted = 1 + self.random.below(most) as usize;
        let mut group = Vec::new();
        while group.len() < wanted {
            let verb = self.random.below(self.verbs.len() as u64) as usize;
            let words = &self.verbs[verb];
            let word = &words[self.random.below(words.len() as u64) as usize];
            if let Some(after) = after(state, &op(word).expect("a word")) {
                *state = after;
                group.push(word.clone());
            }
        }
        group
    }
}

/// So many pairs, drawn by a seed.
pub fn some_pairs(seed: u64, count: usize) -> Vec<Workload> {
    let (mut all, mut random) = (pairs(), Random(seed));
    let count = count.min(all.len());
    for i in 0..count {
        let other = i as u64 + random.below((all.len() - i) as u64);
        all.swap(i, other as usize);
    }
    all.truncate(count);
    all
}

fn made(scripts: &[String]) -> Vec<Workload> {
    scripts.iter().map(|script| workload(script).unwrap_or_else(|| panic!("{script} makes no sense"))).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::workload::Step;

    /// Does all of it; which ops were refused.
    fn refused(workload: &Workload) -> Vec<String> {
        let mut state = workload.initial();
        state.reopen();
        let refused = RefCell::new(Vec::new());
        let group = |state: &mut State, ops: &[Op]| {
            for op in ops {
                if let Err(error) = state.apply(op, &op.bytes(0).unwrap_or_default()) {
                    refused.borrow_mut().push(format!("{op:?}: {error}"));
                }
            }
        };
        for step in &workload.steps {
            match step {
                Step::Group { ops, commit: true } | Step::Order(ops) => group(&mut state, ops),
                Step::Group { ops, commit: false } => group(&mut state.clone(), ops),
                Step::Across { first, second } => {
                    group(&mut state.clone(), second);
                    group(&mut state, first);
                    // Where it is in the way of the first it is given up.
                    let mut both = state.clone();
                    if second.iter().all(|op| both.apply(op, &op.bytes(0).unwrap_or_default()).is_ok()) {
                        state = both;
                    }
                }
                Step::Park { ops, stays } => {
                    let mut private = state.clone();
                    group(&mut private, ops);
                    state.park(&private, *stays);
                }
                Step::Apply { number, clash: false } => {
                    if let Err(what) = state.apply_parked(*number) {
                        refused.borrow_mut().push(format!("apply of {number}: {what}"));
                    }
                }
                Step::Apply { .. } => {}
                Step::ApplyOver { number } => {
                    if let Err(what) = state.apply_over(*number) {
                        refused.borrow_mut().push(format!("apply of {number} over what is there: {what}"));
                    }
                }
                Step::Discard { number } => state.discard(*number),
                Step::Keep => state.set_temporary(false),
                Step::Call(op) => group(&mut state, std::slice::from_ref(op)),
                Step::Reopen { .. } => state.reopen(),
                Step::Checkpoint | Step::Announce | Step::Pass | Step::Sync(_) | Step::Full(_) => {}
            }
        }
        refused.into_inner()
    }

    #[test]
    fn every_op_can_be_done() {
        let drawn = (0..300).map(drawn);
        for workload in by_hand().into_iter().chain(parked()).chain(ones()).chain(pairs()) {
            assert_eq!(refused(&workload), [] as [String; 0], "{}", workload.name);
        }
        // What a group does that may be given up may be missed later.
        let all: usize = drawn.map(|workload| refused(&workload).len()).sum();
        assert!(all < 100, "{all} ops of drawn workloads were refused");
    }

    #[test]
    fn there_are_so_many() {
        let names: BTreeSet<String> = pairs().into_iter().map(|workload| workload.name).collect();
        assert_eq!(names.len(), pairs().len(), "no pair twice");
        println!(
            "{} words, {} by hand, {} ones, {} couples, {} pairs",
            vocabulary().len(),
            by_hand().len(),
            ones().len(),
            couples().len(),
            names.len()
        );
        assert!((100..1000).contains(&ones().len()));
        assert!((2000..20_000).contains(&names.len()));
        // Each kind of pair, and each verb, comes up.
        for text in ["bare,rename-A/foo-foo+create-A/foo,home", "bare,rename-A/foo-foo,home,rmdir-A,home"] {
            assert!(names.contains(text), "{text}");
        }
        for word in vocabulary() {
            let verb = format!("{}-", word.split('-').next().expect("a verb"));
            assert!(names.iter().any(|name| name.contains(&verb)), "{verb}");
        }
        assert_eq!(some_pairs(1, 50), some_pairs(1, 50));
        assert_ne!(some_pairs(1, 50), some_pairs(2, 50));
    }
}
