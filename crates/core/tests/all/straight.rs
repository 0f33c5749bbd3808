//! A group of writes to existing files commits on the straight path: see `Running::commit_straight`. Here the same
//! calls are made with it, and with the general path alone. Each store and each fence of the log, and each call of the
//! host, has to be the same, and so has what is read.

use std::sync::Arc;

use proptest::prelude::*;
use wholly::{File, Group, Options, Policy, Store, Writer};
use wholly_sim::{SimConfig, World};

/// Files, and how long they are at first.
const FILES: [(&str, usize); 3] = [("a", 40_000), ("b", 5_000), ("dir/c", 4_096)];

#[derive(Clone, Debug)]
enum Op {
    Add(usize),
    Write { file: usize, offset: u64, length: usize },
    Append { file: usize, length: usize },
    SetLen { file: usize, length: u64 },
    Create(u8),
    Read(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Group { by_writer: bool, ops: Vec<Op>, commit: bool },
    Call { file: usize, offset: u64, length: usize },
    Announce,
    Checkpoint,
    Reopen,
}

fn file() -> impl Strategy<Value = usize> {
    0..FILES.len()
}

/// Most groups are writes alone.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => file().prop_map(Op::Add),
        30 => (file(), 0u64..9000, 1usize..9000).prop_map(|(file, offset, length)| Op::Write { file, offset, length }),
        20 => (0u64..600, 1usize..70).prop_map(|(line, length)| Op::Write { file: 0, offset: line * 64, length }),
        2 => (file(), 1usize..5000).prop_map(|(file, length)| Op::Append { file, length }),
        1 => (file(), 0u64..9000).prop_map(|(file, length)| Op::SetLen { file, length }),
        1 => any::<u8>().prop_map(Op::Create),
        2 => file().prop_map(Op::Read),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let group = (any::<bool>(), proptest::collection::vec(op(), 0..6), 0..8u32);
    prop_oneof![
        16 => group.prop_map(|(by_writer, ops, ends)| Step::Group { by_writer, ops, commit: ends > 0 }),
        2 => (file(), 0u64..9000, 1usize..3000).prop_map(|(file, offset, length)| Step::Call { file, offset, length }),
        1 => Just(Step::Announce),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

struct Rig {
    world: Arc<World>,
    options: Options,
    open: Option<(Writer, Vec<File>, Store)>,
    counter: u8,
    /// What calls have returned.
    results: Vec<String>,
}

impl Rig {
    fn new(policy: Policy, straight: bool) -> Self {
        let world = World::new(SimConfig { log_len: 0, ..SimConfig::pmem() });
        world.add_dir("dir");
        for (name, length) in FILES {
            world.add_file(name, &vec![1; length]);
        }
        let options = Options {
            policy,
            segment_bytes: 16 << 10,
            log_min_bytes: 64 << 10,
            log_max_bytes: 128 << 10,
            stage_bytes: 20_000,
            background: false,
            straight,
            ..Options::default()
        };
        Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
        let mut rig = Rig { world, options, open: None, counter: 0, results: Vec::new() };
        rig.open();
        rig
    }

    fn open(&mut self) {
        let store = Store::open_on(self.world.log(), self.world.host(), self.options.clone(), None).unwrap();
        let files = FILES.iter().map(|(name, _)| store.open_file(name).unwrap()).collect();
        self.open = Some((store.writer(), files, store));
    }

    fn data(&mut self, length: usize) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        (0..length).map(|i| self.counter ^ i as u8).collect()
    }

    fn in_group(&mut self, group: &mut Group<'_>, files: &[File], op: &Op) {
        let result = match *op {
            Op::Add(file) => format!("{:?}", group.add(&files[file])),
            Op::Write { file, offset, length } => {
                format!("{:?}", group.write_at(&files[file], offset, &self.data(length)))
            }
            Op::Append { file, length } => format!("{:?}", group.append(&files[file], &self.data(length))),
            Op::SetLen { file, length } => format!("{:?}", group.set_len(&files[file], length)),
            Op::Create(name) => format!("{:?}", group.create(format!("new{}", name % 4), 0o644)),
            Op::Read(file) => {
                let mut bytes = vec![0; group.len(&files[file]) as usize];
                format!("{:?} {bytes:?}", group.read_at(&files[file], 0, &mut bytes))
            }
        };
        self.results.push(result);
    }

    fn step(&mut self, step: &Step) {
        let (mut writer, files, store) = self.open.take().expect("it is open");
        match step {
            Step::Group { by_writer, ops, commit } => {
                let mut group = if *by_writer { writer.begin() } else { store.begin() };
                for op in ops {
                    self.in_group(&mut group, &files, op);
                }
                if *commit {
                    self.results.push(format!("{:?}", group.commit()));
                }
            }
            Step::Call { file, offset, length } => {
                let data = self.data(*length);
                self.results.push(format!("{:?}", files[*file].write_at(*offset, &data)));
            }
            Step::Announce => self.results.push(format!("{:?}", store.announce_lot())),
            Step::Checkpoint => self.results.push(format!("{:?}", store.checkpoint().map(drop))),
            Step::Reopen => {
                drop((writer, files));
                store.close().unwrap();
                return self.open();
            }
        }
        for file in &files {
            let mut bytes = vec![0; file.len() as usize];
            let read = file.read_at(0, &mut bytes);
            self.results.push(format!("{read:?} {bytes:?}"));
        }
        self.open = Some((writer, files, store));
    }

    /// What calls have returned, and all that has come to the media.
    fn end(mut self) -> (Vec<String>, Vec<String>) {
        self.open = None;
        let events = self.world.trace().events.iter().map(|event| format!("{event:?}")).collect();
        (self.results, events)
    }
}

fn run(policy: Policy, steps: &[Step], straight: bool) -> (Vec<String>, Vec<String>) {
    let mut rig = Rig::new(policy, straight);
    steps.iter().for_each(|step| rig.step(step));
    rig.end()
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![3 => Just(Policy::PerOp), 1 => Just(Policy::PerSync)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_straight_path_does_what_the_other_does(
        policy in policy(), steps in proptest::collection::vec(step(), 1..24),
    ) {
        let (straight, other) = (run(policy, &steps, true), run(policy, &steps, false));
        for (i, (straight, other)) in straight.0.iter().zip(&other.0).enumerate() {
            prop_assert_eq!(straight, other, "result {}", i);
        }
        for (i, (straight, other)) in straight.1.iter().zip(&other.1).enumerate() {
            prop_assert_eq!(straight, other, "event {}", i);
        }
        prop_assert_eq!((straight.0.len(), straight.1.len()), (other.0.len(), other.1.len()));
    }
}
