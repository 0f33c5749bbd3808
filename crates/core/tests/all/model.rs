//! The store against a plain map: random groups, implicit calls, aborts, checkpoints, reopenings, on every medium. No
//! crash here: the crash explorer does that.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use wholly::{Fallocate, File, Group, Options, Policy, Store};
use wholly_sim::{SimConfig, World};

/// Names that operations choose from. The first two exist from the start.
const NAMES: [&str; 4] = ["a", "dir/b", "c", "dir/d"];

#[derive(Clone, Debug)]
enum Op {
    Create(usize),
    Write { file: usize, offset: u64, length: usize },
    Append { file: usize, length: usize },
    SetLen { file: usize, length: u64 },
    Fallocate { file: usize, how: Fallocate, offset: u64, length: u64 },
}

#[derive(Clone, Debug)]
enum Step {
    Group { ops: Vec<Op>, commit: bool },
    Call(Op),
    Sync(usize),
    Checkpoint,
    Reopen { close: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let file = 0..NAMES.len();
    prop_oneof![
        1 => file.clone().prop_map(Op::Create),
        6 => (file.clone(), 0u64..20_000, 0usize..9000).prop_map(|(file, offset, length)| Op::Write { file, offset, length }),
        2 => (file.clone(), 0usize..5000).prop_map(|(file, length)| Op::Append { file, length }),
        2 => (file.clone(), 0u64..20_000).prop_map(|(file, length)| Op::SetLen { file, length }),
        4 => (file, how(), 0u64..20_000, 1u64..20_000)
            .prop_map(|(file, how, offset, length)| Op::Fallocate { file, how, offset, length }),
    ]
}

/// Holes as often as all others.
fn how() -> impl Strategy<Value = Fallocate> {
    use Fallocate::{Extend, Keep, Punch, Zero, ZeroExtend};
    proptest::sample::select(vec![Punch, Punch, Punch, Punch, Keep, Extend, Zero, ZeroExtend])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (proptest::collection::vec(op(), 0..6), any::<bool>()).prop_map(|(ops, commit)| Step::Group { ops, commit }),
        4 => op().prop_map(Step::Call),
        1 => (0..NAMES.len()).prop_map(Step::Sync),
        2 => Just(Step::Checkpoint),
        2 => any::<bool>().prop_map(|close| Step::Reopen { close }),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        2 => Just(Policy::PerOp),
        1 => Just(Policy::PerSync),
        1 => Just(Policy::Shared { interval: std::time::Duration::from_secs(3600) }),
    ]
}

type Model = BTreeMap<&'static str, Vec<u8>>;

struct Rig {
    world: Arc<World>,
    policy: Policy,
    store: Option<Store>,
    files: BTreeMap<&'static str, File>,
    model: Model,
    counter: u8,
}

fn options(policy: Policy) -> Options {
    Options {
        policy,
        segment_bytes: 4096,
        log_min_bytes: 16 << 10,
        log_max_bytes: 32 << 10,
        background: false,
        gather_bytes: 6000,
        ..Options::default()
    }
}

impl Rig {
    fn new(config: SimConfig, policy: Policy) -> Self {
        let world = World::new(SimConfig { log_len: 0, ..config });
        world.add_dir("dir");
        world.add_file("a", b"first");
        world.add_file("dir/b", b"");
        Store::format_on(&*world.log(), &options(policy), [7; 16]).unwrap();
        let model = Model::from([("a", b"first".to_vec()), ("dir/b", Vec::new())]);
        let mut rig = Rig { world, policy, store: None, files: BTreeMap::new(), model, counter: 0 };
        rig.open();
        rig
    }

    fn open(&mut self) {
        let store = Store::open_on(self.world.log(), self.world.host(), options(self.policy), None).unwrap();
        assert!(store.recovery().conflicts.is_empty(), "{:?}", store.recovery());
        self.files = self.model.keys().map(|&name| (name, store.open_file(name).unwrap())).collect();
        self.store = Some(store);
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn data(&mut self, length: usize) -> Vec<u8> {
        self.counter = self.counter.wrapping_add(1);
        (0..length).map(|i| self.counter ^ i as u8).collect()
    }

    fn in_group(&mut self, group: &mut Group, model: &mut Model, files: &mut BTreeMap<&'static str, File>, op: &Op) {
        match *op {
            Op::Create(file) => {
                let name = NAMES[file];
                let created = group.create(name, 0o644);
                assert_eq!(created.is_ok(), !model.contains_key(name), "{name}");
                if let Ok(file) = created {
                    model.insert(name, Vec::new());
                    files.insert(name, file);
                }
            }
            Op::Write { file, offset, length } => {
                let (Some(file), data) = (files.get(NAMES[file]).cloned(), self.data(length)) else { return };
                group.write_at(&file, offset, &data).unwrap();
                if !data.is_empty() {
                    paint(model.get_mut(name_of(&file)).unwrap(), offset as usize, &data);
                }
            }
            Op::Append { file, length } => {
                let (Some(file), data) = (files.get(NAMES[file]).cloned(), self.data(length)) else { return };
                let content = model.get_mut(name_of(&file)).unwrap();
                assert_eq!(group.append(&file, &data).unwrap(), content.len() as u64);
                content.extend_from_slice(&data);
            }
            Op::SetLen { file, length } => {
                let Some(file) = files.get(NAMES[file]) else { return };
                group.set_len(file, length).unwrap();
                model.get_mut(name_of(file)).unwrap().resize(length as usize, 0);
            }
            Op::Fallocate { file, how, offset, length } => {
                let Some(file) = files.get(NAMES[file]) else { return };
                group.fallocate(file, how, offset, length).unwrap();
                change_space(model.get_mut(name_of(file)).unwrap(), how, offset as usize, (offset + length) as usize);
            }
        }
        for (name, content) in model.iter() {
            let file = &files[name];
            assert_eq!(group.len(file), content.len() as u64, "{name} in the group");
            assert_eq!(
                &read(content.len(), |offset, buf| group.read_at(file, offset, buf)),
                content,
                "{name} in the group"
            );
        }
    }

    fn call(&mut self, op: &Op) {
        match *op {
            Op::Create(_) => {}
            Op::Write { file, offset, length } => {
                let (Some(file), data) = (self.files.get(NAMES[file]).cloned(), self.data(length)) else { return };
                file.write_at(offset, &data).unwrap();
                if !data.is_empty() {
                    paint(self.model.get_mut(name_of(&file)).unwrap(), offset as usize, &data);
                }
            }
            Op::Append { file, length } => {
                let (Some(file), data) = (self.files.get(NAMES[file]).cloned(), self.data(length)) else { return };
                file.append(&data).unwrap();
                self.model.get_mut(name_of(&file)).unwrap().extend_from_slice(&data);
            }
            Op::SetLen { file, length } => {
                let Some(file) = self.files.get(NAMES[file]).cloned() else { return };
                file.set_len(length).unwrap();
                self.model.get_mut(name_of(&file)).unwrap().resize(length as usize, 0);
            }
            Op::Fallocate { file, how, offset, length } => {
                let Some(file) = self.files.get(NAMES[file]).cloned() else { return };
                file.fallocate(how, offset, length).unwrap();
                let content = self.model.get_mut(name_of(&file)).unwrap();
                change_space(content, how, offset as usize, (offset + length) as usize);
            }
        }
    }

    fn check(&self) {
        for (name, content) in &self.model {
            let file = &self.files[name];
            assert_eq!(file.len(), content.len() as u64, "{name}");
            assert_eq!(&read(content.len(), |offset, buf| file.read_at(offset, buf)), content, "{name}");
        }
    }

    fn check_home(&self) {
        let host = self.world.host();
        for (name, content) in &self.model {
            let file = host.open(name.as_bytes(), false).unwrap();
            assert_eq!(file.stat().unwrap().size, content.len() as u64, "{name} at home");
            let mut home = vec![0; content.len()];
            assert_eq!(file.read_at(0, &mut home).unwrap(), content.len());
            assert_eq!(&home, content, "{name} at home");
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Group { ops, commit } => {
                let mut group = self.store().begin();
                let (mut model, mut files) = (self.model.clone(), self.files.clone());
                for op in ops {
                    self.in_group(&mut group, &mut model, &mut files, op);
                    self.check();
                }
                if *commit {
                    group.commit().unwrap();
                    (self.model, self.files) = (model, files);
                } else {
                    group.abort();
                }
            }
            Step::Call(op) => self.call(op),
            Step::Sync(file) => {
                if let Some(file) = self.files.get(NAMES[*file]) {
                    file.sync().unwrap();
                }
            }
            Step::Checkpoint => {
                // Implicit groups that have not committed are not to be seen at home.
                self.store().sync().unwrap();
                self.store().checkpoint().unwrap();
                assert_eq!(self.store().stat().pending_blocks, 0);
                self.check_home();
            }
            Step::Reopen { close } => {
                self.files.clear();
                let store = self.store.take().unwrap();
                if *close {
                    store.close().unwrap();
                    self.check_home();
                } else {
                    drop(store);
                }
                self.open();
            }
        }
        self.check();
    }
}

fn name_of(file: &File) -> &'static str {
    NAMES.iter().find(|name| name.as_bytes() == file.path()).unwrap()
}

fn paint(content: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if content.len() < offset + data.len() {
        content.resize(offset + data.len(), 0);
    }
    content[offset..offset + data.len()].copy_from_slice(data);
}

fn change_space(content: &mut Vec<u8>, how: Fallocate, from: usize, to: usize) {
    if how.extends() && to > content.len() {
        content.resize(to, 0);
    }
    if how.zeroes() {
        let size = content.len();
        content[from.min(size)..to.min(size)].fill(0);
    }
}

/// Reads a file whole, and asks for more than there is.
fn read(length: usize, read: impl Fn(u64, &mut [u8]) -> wholly::Result<usize>) -> Vec<u8> {
    let mut buf = vec![0xee; length + 10];
    assert_eq!(read(0, &mut buf).unwrap(), length);
    buf.truncate(length);
    buf
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn pmem(steps in proptest::collection::vec(step(), 1..30), policy in policy()) {
        let mut rig = Rig::new(SimConfig::pmem(), policy);
        steps.iter().for_each(|step| rig.step(step));
    }

    #[test]
    fn disk(steps in proptest::collection::vec(step(), 1..30), policy in policy()) {
        let mut rig = Rig::new(SimConfig::disk(), policy);
        steps.iter().for_each(|step| rig.step(step));
    }
}
