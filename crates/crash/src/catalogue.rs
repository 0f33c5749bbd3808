//! The workloads by name: hand-written ones, each for what it covers, and drawn ones.

use std::time::Duration;

use wholly::Fallocate;
use wholly_vfs::Policy;

use crate::script;
use crate::sequences;
use crate::workload::{NAMES, Op, Start, Step, Workload, mix};

fn create(file: usize) -> Op {
    Op::Create(NAMES[file])
}

fn write(file: usize, offset: u64, length: usize) -> Op {
    Op::Write { file: NAMES[file], offset, length }
}

fn append(file: usize, length: usize) -> Op {
    Op::Append { file: NAMES[file], length }
}

fn set_len(file: usize, length: u64) -> Op {
    Op::SetLen { file: NAMES[file], length }
}

fn fallocate(file: usize, how: Fallocate, offset: u64, length: u64) -> Op {
    Op::Fallocate { file: NAMES[file], how, offset, length }
}

fn punch(file: usize, offset: u64, length: u64) -> Op {
    fallocate(file, Fallocate::Punch, offset, length)
}

fn sync(file: usize) -> Step {
    Step::Sync(NAMES[file])
}

fn commit(ops: impl Into<Vec<Op>>) -> Step {
    Step::Group { ops: ops.into(), commit: true }
}

fn abort(ops: impl Into<Vec<Op>>) -> Step {
    Step::Group { ops: ops.into(), commit: false }
}

/// How many `some-pairs` are.
const SOME_PAIRS: usize = 200;

const KILL: Step = Step::Reopen { close: false };
const CLOSE: Step = Step::Reopen { close: true };

fn named(
    name: &str,
    about: &'static str,
    (min_segments, max_segments): (u32, u32),
    steps: impl Into<Vec<Step>>,
) -> Workload {
    Workload {
        name: name.into(),
        about,
        start: Start::Files,
        min_segments,
        max_segments,
        gather_bytes: 6000,
        stage_bytes: u64::MAX,
        open_files: 256,
        policy: Policy::PerOp,
        steps: steps.into(),
    }
}

/// The policy `shared`, without a timer.
const SHARED: Policy = Policy::Shared { interval: Duration::MAX };

fn under(policy: Policy, workload: Workload) -> Workload {
    Workload { policy, ..workload }
}

fn epochs() -> [Step; 13] {
    use Step::{Call, Checkpoint};
    [
        Call(write(0, 100, 20)),
        Call(append(1, 30)),
        Call(write(0, 110, 30)),
        sync(0),
        Call(set_len(0, 115)),
        commit([write(0, 3, 5), append(1, 7)]),
        Call(append(0, 16)),
        Checkpoint,
        Call(append(1, 90)),
        KILL,
        Call(write(1, 0, 3000)),
        Call(write(1, 2000, 3000)),
        sync(1),
    ]
}

/// An epoch that writes over its own bytes: in part, exactly, across what it has, in parts of the log that it has left.
/// Another one follows at once.
fn over() -> Vec<Step> {
    use Step::Call;
    vec![
        Call(write(0, 0, 900)),
        Call(write(0, 100, 64)),
        Call(write(0, 0, 900)),
        Call(write(0, 800, 300)),
        Call(write(1, 0, 3000)),
        Call(write(0, 850, 20)),
        Call(write(1, 2900, 3000)),
        Call(write(1, 1000, 2500)),
        sync(1),
        Call(write(1, 1000, 70)),
        sync(0),
        Call(write(0, 850, 20)),
        Call(write(1, 1010, 8)),
        KILL,
        Call(write(0, 4, 8)),
        Call(write(0, 6, 8)),
        sync(0),
    ]
}

/// An epoch that has so many dead bytes in the log that it gives parts up: by cuts and holes, and by one piece that
/// takes the place of many.
fn give_up() -> Vec<Step> {
    use Step::Call;
    let mut steps = vec![Call(append(0, 600)), Call(write(1, 0, 3000)), sync(1), sync(0), Call(write(1, 200, 16))];
    for round in 0..3 {
        steps.extend([
            Call(write(1, 4096 + round, 2600)),
            Call(set_len(1, 1200 - 100 * round)),
            Call(append(1, 2600)),
            Call(punch(1, 300, 2000 + round)),
        ]);
    }
    steps.extend((0..9).map(|n| Call(write(0, 4500 + 40 * n, 8))));
    steps.extend([Call(set_len(1, 5000)), Call(write(1, 4900, 50)), sync(1), sync(0), KILL, Call(append(1, 9)), CLOSE]);
    steps
}

/// The hand-written workloads.
pub fn all() -> Vec<Workload> {
    use Step::{Across, Announce, Call, Checkpoint, Pass};
    vec![
        named(
            "small-commit",
            "one record of one line, then one that overlaps it",
            (4, 8),
            [commit([write(0, 100, 8)]), commit([write(0, 104, 16)])],
        ),
        named(
            "two-files",
            "a group over two files, aligned and not, one of which grows",
            (4, 8),
            [
                commit([write(0, 96, 40), write(1, 0, 24)]),
                commit([write(1, 17, 30), write(0, 4090, 13)]),
                Checkpoint,
                commit([write(0, 100, 3), append(1, 5)]),
            ],
        ),
        named(
            "multi-part",
            "groups that fill several segments: parts, fence, commit record; then a small one",
            (4, 8),
            [commit([write(0, 0, 4096), write(1, 10, 5000)]), commit([write(0, 4000, 200)]), Checkpoint],
        ),
        named(
            "overlap",
            "versions of a block over each other, older ones hidden, then written back, then more",
            (4, 8),
            [
                commit([write(0, 0, 300)]),
                commit([write(0, 100, 300), write(0, 50, 60)]),
                commit([write(0, 350, 20)]),
                Checkpoint,
                commit([write(0, 90, 30)]),
                commit([write(0, 80, 20), write(0, 85, 30)]),
                Checkpoint,
            ],
        ),
        named(
            "truncate-extend",
            "bytes that were cut never come back when the file grows again",
            (4, 8),
            [
                commit([write(0, 4000, 700)]),
                commit([set_len(0, 100), set_len(0, 4200)]),
                Checkpoint,
                commit([set_len(0, 64), write(0, 4100, 20)]),
                commit([set_len(0, 50)]),
                commit([set_len(0, 4097)]),
                Checkpoint,
                KILL,
                commit([set_len(0, 0), append(0, 10)]),
            ],
        ),
        named(
            "create-write",
            "files that come with their group, in two directories, and are written again",
            (4, 8),
            [
                commit([create(2), write(2, 0, 40)]),
                commit([create(3), append(3, 70), write(0, 8, 8)]),
                commit([append(2, 9)]),
                Checkpoint,
                commit([write(2, 4, 50), append(3, 3)]),
                abort([create(4), append(4, 30)]),
                commit([create(4)]),
            ],
        ),
        named(
            "create-kill",
            "created files whose process dies before any checkpoint",
            (4, 8),
            [
                commit([create(2), write(2, 0, 40), create(3)]),
                KILL,
                commit([append(2, 9), append(3, 20)]),
                KILL,
                Checkpoint,
                commit([create(4), append(4, 30)]),
                CLOSE,
                commit([append(4, 30)]),
            ],
        ),
        named(
            "log-full",
            "a log of two segments that may not grow: checkpoints in the middle of groups, then growth by force",
            (2, 2),
            [
                commit([write(0, 0, 1500)]),
                commit([write(0, 700, 1500)]),
                commit([write(1, 0, 2500)]),
                commit([write(0, 10, 3000), write(1, 100, 3000), write(0, 3500, 3000)]),
                commit([write(1, 0, 9)]),
                CLOSE,
                commit([write(1, 3, 9)]),
            ],
        ),
        named(
            "growth",
            "a log that grows twice and is cut back by a proper close",
            (2, 6),
            [commit([write(0, 0, 4000)]), commit([write(1, 0, 7000)]), commit([write(0, 77, 4000)]), CLOSE, CLOSE],
        ),
        named(
            "checkpoints",
            "checkpoints between small groups: what a group identifies, and when again",
            (4, 8),
            [
                commit([write(0, 0, 8)]),
                Checkpoint,
                commit([write(0, 8, 8)]),
                Checkpoint,
                Checkpoint,
                commit([write(0, 5, 8)]),
                commit([write(1, 5, 8)]),
                Checkpoint,
                commit([write(1, 0, 6)]),
            ],
        ),
        named(
            "laps",
            "many opens, and reuse of the same segments",
            (2, 3),
            [
                commit([write(0, 0, 900)]),
                KILL,
                commit([write(0, 500, 900)]),
                KILL,
                commit([write(1, 0, 1800)]),
                Checkpoint,
                commit([write(0, 0, 2000)]),
                KILL,
                KILL,
                commit([write(0, 1000, 2000), write(1, 1000, 700)]),
                CLOSE,
                commit([write(1, 900, 1700)]),
                commit([write(0, 3, 5)]),
            ],
        ),
        named(
            "abort-shorter",
            "an aborted group, and shorter and longer ones in its place",
            (4, 8),
            [
                abort([write(0, 0, 300), write(1, 0, 100)]),
                commit([write(0, 10, 20)]),
                abort([write(0, 0, 6000)]),
                commit([write(1, 0, 200), write(0, 0, 100)]),
                abort([write(0, 50, 7000), set_len(1, 3)]),
                KILL,
                commit([write(0, 30, 90)]),
            ],
        ),
        named(
            "calls",
            "implicit calls: each is a group",
            (4, 8),
            [
                Call(write(0, 100, 20)),
                Call(append(1, 30)),
                Call(set_len(0, 110)),
                Call(append(0, 16)),
                Call(set_len(0, 300)),
                Checkpoint,
                Call(write(1, 10, 100)),
                Call(set_len(1, 7)),
                KILL,
                Call(append(1, 7)),
            ],
        ),
        under(
            Policy::PerSync,
            named("epochs", "calls between syncs, joined by an explicit group, closed, spilled", (3, 4), epochs()),
        ),
        under(SHARED, named("shared", "the same calls in one group for all files", (3, 4), epochs())),
        under(Policy::PerSync, named("over", "calls between syncs that write over each other", (4, 8), over())),
        under(SHARED, named("shared-over", "the same calls in one group for all files", (4, 8), over())),
        under(
            Policy::PerSync,
            named("give-up", "epochs with many bytes that do not count any more", (4, 8), give_up()),
        ),
        under(SHARED, named("shared-give-up", "the same calls in one group for all files", (4, 8), give_up())),
        named(
            "many-entries",
            "records whose entries take several lines",
            (4, 8),
            [
                commit((0..9).map(|i| write(0, i * 20, 5)).collect::<Vec<_>>()),
                commit((0..20).map(|i| write(usize::from(i % 2 == 0), i * 7, 9)).collect::<Vec<_>>()),
                Checkpoint,
            ],
        ),
        named(
            "many-files",
            "a checkpoint that touches more files than it syncs one by one",
            (4, 16),
            [
                commit((2..NAMES.len() - 1).flat_map(|f| [create(f), append(f, 3)]).collect::<Vec<_>>()),
                Checkpoint,
                commit([append(3, 8), append(9, 8)]),
            ],
        ),
        named(
            "spill",
            "groups around the bound of what is gathered in memory",
            (4, 8),
            [
                commit([write(0, 0, 1700), write(1, 0, 100), write(0, 50, 1000)]),
                abort([write(0, 0, 1700), write(1, 0, 1000)]),
                commit([write(1, 90, 3000), write(0, 1000, 1000), set_len(1, 80), append(1, 60)]),
                KILL,
                commit([write(1, 0, 3000)]),
                Checkpoint,
            ],
        ),
        named(
            "held",
            "two groups that have outgrown memory, and hold what they append to the log, while a checkpoint runs",
            (4, 4),
            [
                commit([write(0, 0, 1500)]),
                commit([write(0, 700, 1500)]),
                Across {
                    first: vec![write(1, 0, 2500), append(1, 400)],
                    second: vec![write(0, 300, 2500), append(0, 2500)],
                },
                KILL,
                abort([write(1, 0, 2500)]),
                commit([write(0, 9, 9)]),
            ],
        ),
        named(
            "lots",
            "checkpoints write back what was committed before, while later groups of the same files stay in the log",
            (4, 8),
            [
                commit([write(0, 100, 40), write(0, 4200, 30), append(1, 50)]),
                Announce,
                commit([write(0, 900, 24), write(1, 10, 8)]),
                Pass,
                commit([append(0, 90), append(1, 20)]),
                Announce,
                commit([write(0, 130, 20), set_len(1, 60)]),
                Announce,
                commit([append(1, 9)]),
                Pass,
                KILL,
                commit([append(0, 300)]),
                Announce,
                commit([write(0, 5100, 10)]),
                Pass,
                Pass,
            ],
        ),
        named(
            "lots-of-lengths",
            "checkpoints write back lengths, while later groups write to the same files",
            (4, 8),
            [
                commit([append(1, 70), set_len(0, 5100)]),
                Checkpoint,
                commit([set_len(1, 60), set_len(0, 9000)]),
                Announce,
                commit([append(1, 5), write(0, 10, 8)]),
                Pass,
                commit([set_len(0, 40), set_len(1, 300)]),
                Announce,
                commit([append(1, 9), write(0, 3, 4)]),
                Pass,
                KILL,
            ],
        ),
        named(
            "holes",
            "writes far beyond the end: gaps read as zeros, blocks are allocated before stores into them",
            (4, 8),
            [
                commit([write(1, 20_000, 10)]),
                Checkpoint,
                commit([write(1, 9000, 20), set_len(0, 30_000)]),
                Checkpoint,
                commit([write(0, 29_000, 30)]),
                Call(set_len(1, 9010)),
                Checkpoint,
            ],
        ),
        named(
            "punches",
            "holes over what is written back and what is not, before and after writes to these; cut, and grown",
            (4, 8),
            [
                commit([write(1, 0, 13_000), punch(1, 4096, 4096), write(1, 5000, 20)]),
                commit([punch(0, 100, 4200), punch(1, 4000, 5000), write(1, 4090, 30)]),
                Checkpoint,
                commit([write(1, 8192, 4000)]),
                commit([punch(1, 0, 20_000), write(1, 12_500, 8)]),
                abort([punch(0, 0, 9000)]),
                Checkpoint,
                Call(punch(0, 0, 4096)),
                commit([write(0, 5, 9), set_len(0, 3000), set_len(0, 9000), punch(0, 4096, 4096)]),
                KILL,
                commit([punch(1, 12_000, 1000), write(1, 12_480, 16), punch(0, 0, 10)]),
                Checkpoint,
                Call(punch(1, 12_480, 8)),
            ],
        ),
        named(
            "space",
            "zeros with space, space without zeros, in files and beyond, over holes and below, in one or more groups",
            (4, 8),
            [
                commit([
                    fallocate(1, Fallocate::Extend, 100, 9000),
                    write(1, 4000, 200),
                    fallocate(0, Fallocate::Zero, 50, 4200),
                ]),
                commit([fallocate(0, Fallocate::Keep, 4096, 9000), fallocate(1, Fallocate::ZeroExtend, 4050, 9000)]),
                Checkpoint,
                commit([punch(1, 0, 8192), fallocate(1, Fallocate::Extend, 0, 4096), write(1, 8, 8)]),
                commit([punch(0, 0, 8192)]),
                commit([fallocate(0, Fallocate::Zero, 4000, 9000), set_len(0, 7000)]),
                KILL,
                Call(fallocate(1, Fallocate::Keep, 20_000, 5000)),
                commit([write(1, 20_100, 20), punch(1, 16_384, 4096)]),
                Checkpoint,
                commit([fallocate(1, Fallocate::Zero, 0, 30_000), set_len(1, 5000)]),
            ],
        ),
        named(
            "transfer",
            "a group that changes a few bytes of two files at once, and is written back",
            (4, 8),
            [commit([write(0, 96, 40), write(1, 0, 24)]), Checkpoint],
        ),
    ]
}

/// The workload with this name: also `random-SEED`, `names-SEED`, and a [script](crate::script).
pub fn find(name: &str) -> Option<Workload> {
    let drawn = |kind, drawn: fn(u64) -> Workload| Some(drawn(name.strip_prefix(kind)?.parse().ok()?));
    if let Some(workload) = drawn("random-", random).or_else(|| drawn("names-", sequences::drawn)) {
        return Some(workload);
    }
    let mut by_hand = all()
        .into_iter()
        .chain(sequences::by_hand())
        .chain(sequences::parked())
        .chain(sequences::staged())
        .chain(sequences::adopted())
        .chain([sequences::many_creates()]);
    by_hand.find(|workload| workload.name == name).or_else(|| script::workload(name))
}

/// The workloads of a name, which may stand for several: `random-3..9` and `names-3..9` for those of these seeds,
/// `by-hand`, `ones`, `pairs` and `some-pairs` for those on names, `parked` for those on parked groups, `adopted` for
/// those on what groups adopt, `staged` and `staged-pairs` for those on staged files, `files` for the others that are
/// written by hand.
pub fn several(name: &str) -> Option<Vec<Workload>> {
    match name {
        "files" => return Some(all()),
        "by-hand" => return Some(sequences::by_hand()),
        "parked" => return Some(sequences::parked()),
        "ones" => return Some(sequences::ones()),
        "pairs" => return Some(sequences::pairs()),
        "adopted" => return Some(sequences::adopted()),
        "staged" => return Some(sequences::staged()),
        "staged-pairs" => return Some(sequences::staged_pairs()),
        "some-pairs" => return Some(sequences::some_pairs(0, SOME_PAIRS)),
        _ => {}
    }
    for (kind, drawn) in [("random-", random as fn(u64) -> Workload), ("names-", sequences::drawn)] {
        if let Some((from, to)) = name.strip_prefix(kind).and_then(|range| range.split_once("..")) {
            return Some((from.parse().ok()?..to.parse().ok()?).map(drawn).collect());
        }
    }
    find(name).map(|workload| vec![workload])
}

struct Draw {
    state: u64,
    syncs: bool,
    later: bool,
}

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.state = mix(self.state);
        ((u128::from(self.state) * u128::from(n)) >> 64) as u64
    }

    fn length(&mut self, most: u64) -> u64 {
        let short = self.below(3) > 0;
        self.below(if short { most.min(100) } else { most })
    }

    fn op(&mut self, creates: bool) -> Op {
        let file = self.below(4) as usize;
        if self.later && self.below(3) == 0 {
            use Fallocate::{Extend, Keep, Punch, Zero, ZeroExtend};
            let how = [Punch, Punch, Punch, Zero, ZeroExtend, Extend, Keep][self.below(7) as usize];
            return fallocate(file, how, self.length(9000), 1 + self.length(9000));
        }
        match self.below(11) {
            0 if creates => create(file),
            0..=6 => write(file, self.length(9000), self.length(4500) as usize),
            7 | 8 => append(file, self.length(3000) as usize),
            _ => set_len(file, self.length(9000)),
        }
    }

    fn step(&mut self) -> Step {
        match self.below(if self.later { 19 } else { 14 }) {
            0..=6 => {
                let ops = (0..self.below(4)).map(|_| self.op(true)).collect();
                Step::Group { ops, commit: self.below(4) > 0 }
            }
            7..=9 if self.syncs && self.below(4) == 0 => sync(self.below(4) as usize),
            7..=9 => Step::Call(self.op(false)),
            10 | 11 => Step::Checkpoint,
            14..=16 => Step::Announce,
            17 | 18 => Step::Pass,
            _ => Step::Reopen { close: self.below(3) == 0 },
        }
    }
}

/// From this seed on passes take home what was committed before, and leave what came since; and there are holes. Of
/// lower seeds some stand in tests of bugs that are gone.
pub const LATER: u64 = 2000;

/// From this seed on what groups make and write to is staged.
pub const STAGED: u64 = 4000;

/// A workload drawn by a seed. The same seed gives the same one for ever.
pub fn random(seed: u64) -> Workload {
    let mut draw = Draw { state: seed, syncs: false, later: seed >= LATER };
    let min_segments = 2 + draw.below(3) as u32;
    let max_segments = min_segments + draw.below(4) as u32;
    // Seeds below are named in tests of bugs that are gone.
    let policy = if seed < 1000 { Policy::PerOp } else { [Policy::PerOp, Policy::PerSync, SHARED][seed as usize % 3] };
    draw.syncs = policy != Policy::PerOp;
    let steps = (0..4 + draw.below(6)).map(|_| draw.step()).collect();
    Workload {
        name: format!("random-{seed}"),
        about: "drawn",
        start: Start::Files,
        min_segments,
        max_segments,
        gather_bytes: [1, 700, 6000][draw.below(3) as usize],
        stage_bytes: if seed < STAGED { u64::MAX } else { [1, 500, 4000][draw.below(3) as usize] },
        open_files: if seed < STAGED || seed.is_multiple_of(2) { 256 } else { 0 },
        policy,
        steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let workloads = all();
        for (i, workload) in workloads.iter().enumerate() {
            assert!(workloads[..i].iter().all(|other| other.name != workload.name));
            assert_eq!(find(&workload.name).as_ref(), Some(workload));
        }
        let seeds =
            several("names-2..4").map(|some| some.into_iter().map(|workload| workload.name).collect::<Vec<_>>());
        assert_eq!(seeds, Some(vec![sequences::drawn(2).name, sequences::drawn(3).name]));
        assert_eq!(several("random-7"), Some(vec![random(7)]));
        assert_eq!(several("random-7..x"), None);
        assert_eq!(find("random-7"), Some(random(7)));
        assert_ne!(random(7).steps, random(8).steps);
        for workload in sequences::by_hand() {
            assert_eq!(find(&workload.name).as_ref(), Some(&workload));
        }
        assert_eq!(find("nonsense"), None);
    }
}
