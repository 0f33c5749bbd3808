//! Random calls on names, attributes and content, on a real directory and on the simulated one, compared step by step;
//! and what must hold of every image of such a history.

use super::super::hash::Random;
use super::*;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt::Write;
use wholly_host::{HostDir, HostFile, HostFs, HostMedium, HostOptions};
use wholly_media::Result;
use wholly_scratch::TestDir;
use wholly_vfs::{Fallocate, Rename, SetXattr};

const PATHS: &[&str] = &[
    "A",
    "B",
    "A/C",
    "foo",
    "bar",
    "A/foo",
    "A/bar",
    "B/foo",
    "B/bar",
    "A/C/foo",
    "B/C",
    "bar/foo",
    "A/none/foo",
    "C",
];
const TARGETS: &[&str] = &["A", "foo", "A/foo", "C/../foo", "../bar", "none", "bar"];
const NAMES: &[&str] = &["user.one", "user.two"];

/// A directory, real or not, and the files that are open in it.
struct Side {
    host: Arc<dyn HostFs>,
    files: Vec<Arc<dyn HostFile>>,
}

fn said<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{}", error.errno),
    }
}

/// Whether the process may do what only a privileged user may.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Side {
    /// One call, drawn; what was called, and what it said.
    fn step(&mut self, mut random: Random) -> (String, String) {
        let host = self.host.clone();
        let mut path = || PATHS[random.below(PATHS.len() as u64) as usize];
        let (one, two) = (path(), path());
        let (a, b) = (one.as_bytes(), two.as_bytes());
        let mut pick = |n: usize| random.below(n as u64) as usize;
        let mode =
            if is_root() { [0o755, 0o700, 0o4777, 0o1750][pick(4)] } else { [0o755, 0o700, 0o777, 0o750][pick(4)] };
        let (name, value) = (NAMES[pick(2)].as_bytes(), vec![b'v'; pick(5)]);
        let (offset, len) = (pick(9000) as u64, 1 + pick(9000) as u64);
        let file = self.files.get(pick(self.files.len().max(1))).cloned();
        let which = pick(26);
        let (call, said) = match which {
            0 | 1 => ("create", self.keep(host.create(W, a, mode))),
            2 | 3 => ("mkdir", said(host.mkdir(W, a, mode))),
            4 => ("mknod", said(host.mknod(W, a, [0o010_644, 0o100_600, 0o140_600][pick(3)], 0))),
            5 => ("symlink", said(host.symlink(W, TARGETS[pick(TARGETS.len())].as_bytes(), a))),
            6 | 7 => ("link", said(host.hard_link(W, a, b))),
            8 => ("exchange", said(host.rename(W, a, b, Rename::Exchange))),
            9 => ("rename new", said(host.rename(W, a, b, Rename::NoReplace))),
            10..=12 => ("rename", said(host.rename(W, a, b, Rename::Replace))),
            13 => ("unlink", said(host.unlink(W, a))),
            14 => ("rmdir", said(host.rmdir(W, a))),
            15 => ("chmod", said(host.set_mode(W, a, mode))),
            16 if is_root() => ("chown", said(host.set_owner(W, a, Some(pick(3) as u32), Some(pick(3) as u32)))),
            16 => ("readlink", said(host.read_link(a))),
            17 => {
                let set = host.set_times(W, a, None, Some(offset as i64 * 1_000_000_000 - 4000));
                ("utimensat", said(set.and_then(|()| host.stat(a)).map(|stat| stat.mtime_ns)))
            }
            18 => ("setxattr", said(host.set_xattr(W, a, name, &value, SetXattr::Any))),
            19 => ("setxattr new", said(host.set_xattr(W, a, name, &value, SetXattr::Create))),
            20 => ("removexattr", said(host.remove_xattr(W, a, name))),
            21 => ("open", self.keep(host.open(a, true))),
            22 => ("write", said(file.map_or(Ok(()), |file| file.write_at(W, offset, &vec![b'w'; len as usize])))),
            23 => ("set_len", said(file.map_or(Ok(()), |file| file.set_len(W, offset)))),
            24 => {
                use Fallocate::{Extend, Keep, Punch, Zero, ZeroExtend};
                let how = [Keep, Extend, Punch, Zero, ZeroExtend][pick(5)];
                ("fallocate", said(file.map_or(Ok(()), |file| file.fallocate(W, how, offset, len))))
            }
            _ => ("getxattr", said(host.get_xattr(a, name)) + &said(host.read_link(b))),
        };
        (format!("{call} {one} {two} {mode:o} {offset}+{len}"), said)
    }

    fn keep(&mut self, opened: Result<Arc<dyn HostFile>>) -> String {
        said(opened.map(|file| self.files.push(file)))
    }

    /// Everything that can be seen, in words.
    fn look(&self, counts: bool) -> String {
        let mut shown = String::new();
        let mut first_names = BTreeMap::new();
        self.look_into(&mut shown, &mut first_names, "", counts);
        for file in &self.files {
            let stat = file.stat().unwrap();
            let mut content = vec![0; stat.size as usize];
            let read = file.read_at(0, &mut content).unwrap();
            writeln!(shown, "open: {} names, {read} bytes, {:x}", stat.nlink, super::super::hash::bytes(&content))
                .unwrap();
        }
        shown
    }

    fn look_into(&self, shown: &mut String, first_names: &mut BTreeMap<u64, String>, dir: &str, counts: bool) {
        let host = &self.host;
        let mut entries = host.read_dir(dir.as_bytes()).unwrap();
        entries.sort();
        for entry in entries {
            let name = String::from_utf8(entry.name).unwrap();
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let stat = host.stat(path.as_bytes()).unwrap();
            assert_eq!((entry.ino, entry.kind), (stat.ino, stat.mode & 0o170_000), "{path}");
            let is_dir = stat.mode & 0o170_000 == 0o040_000;
            let same = first_names.entry(stat.ino).or_insert_with(|| path.clone()).clone();
            let nlink = if is_dir && !counts { 0 } else { stat.nlink };
            let size = if is_dir { 0 } else { stat.size };
            write!(shown, "{path}: {:o} as {same}, {nlink} names, {size} bytes", stat.mode).unwrap();
            if is_root() {
                write!(shown, ", {}:{}", stat.uid, stat.gid).unwrap();
            }
            let mut names = host.list_xattrs(path.as_bytes()).unwrap_or_default();
            names.retain(|name| name.starts_with(b"user."));
            names.sort();
            for name in names {
                write!(shown, ", {name:?}={:?}", host.get_xattr(path.as_bytes(), &name).unwrap()).unwrap();
            }
            if let Ok(target) = host.read_link(path.as_bytes()) {
                write!(shown, " -> {}", String::from_utf8(target).unwrap()).unwrap();
            }
            shown.push('\n');
            let handle = host.handle(path.as_bytes()).unwrap();
            assert_eq!(handle, host.handle(same.as_bytes()).unwrap(), "one handle for {path} and {same}");
            if is_dir {
                self.look_into(shown, first_names, &path, counts);
            }
        }
    }
}

fn compare(dir: &TestDir, seed: u64, steps: u64) {
    let options = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    let mut real = Side { host: Arc::new(HostDir::open(dir.path(), options).unwrap()), files: Vec::new() };
    let mut simulated = Side { host: world(disk()).host(), files: Vec::new() };
    let counts = real.host.stat(b"").unwrap().nlink == 2;
    if seed.is_multiple_of(2) {
        for (side, dir) in [&real, &simulated].into_iter().flat_map(|side| ["A", "B", "A/C"].map(|dir| (side, dir))) {
            side.host.mkdir(W, dir.as_bytes(), 0o755).unwrap();
        }
    }
    let mut random = Random(seed);
    let mut history = String::new();
    for _ in 0..steps {
        let draw = random.draw();
        let (call, said) = real.step(Random(draw));
        // What this file system does not have.
        if said == format!("{}", Errno::OPNOTSUPP) && (call.contains("xattr") || call.starts_with("fallocate")) {
            continue;
        }
        let (_, simulated_said) = simulated.step(Random(draw));
        writeln!(history, "{call}: {said}").unwrap();
        assert_eq!(simulated_said, said, "seed {seed}, {}:\n{history}", dir.path().display());
        assert_eq!(simulated.look(counts), real.look(counts), "seed {seed}, {}:\n{history}", dir.path().display());
    }
}

#[test]
fn a_simulated_directory_behaves_as_a_real_one() {
    for seed in 0..40 {
        compare(&TestDir::on_disk(), seed, 120);
        if let Some(dir) = TestDir::on_tmpfs() {
            compare(&dir, seed, 120);
        }
    }
}

/// What there is to find of holes, of the same file on each host: blocks of 64 KiB, larger than any unit of a file
/// system.
fn holes_are_found(host: &dyn HostFs) {
    const BLOCK: u64 = 64 << 10;
    let file = host.create(W, b"holes", 0o600).unwrap();
    file.write_at(W, 0, &[1; BLOCK as usize]).unwrap();
    file.write_at(W, 32 * BLOCK, &[2; BLOCK as usize]).unwrap();
    file.set_len(W, 40 * BLOCK).unwrap();
    file.sync(F).unwrap();
    let found = |at| (file.next_data(at * BLOCK).unwrap(), file.next_hole(at * BLOCK).unwrap());
    assert_eq!([0, 16, 32].map(|at| found(at).0), [Some(0), Some(32 * BLOCK), Some(32 * BLOCK)]);
    assert_eq!([0, 16, 32].map(|at| found(at).1), [Some(BLOCK), Some(16 * BLOCK), Some(33 * BLOCK)]);
    assert_eq!([33, 40, 41].map(found), [(None, Some(33 * BLOCK)), (None, None), (None, None)]);
    assert_eq!(file.next_data(32 * BLOCK + 5).unwrap(), Some(32 * BLOCK + 5));
    file.fallocate(W, Fallocate::Punch, 0, BLOCK).unwrap();
    file.sync(F).unwrap();
    assert_eq!(found(0), (Some(32 * BLOCK), Some(0)));
    file.set_len(W, 33 * BLOCK - 100).unwrap();
    assert_eq!(file.next_hole(32 * BLOCK).unwrap(), Some(33 * BLOCK - 100), "the end is a hole");
}

#[test]
fn holes_are_found_as_on_a_real_directory() {
    holes_are_found(&*world(disk()).host());
    for dir in [Some(TestDir::on_disk()), TestDir::on_tmpfs()].into_iter().flatten() {
        let options = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
        holes_are_found(&HostDir::open(dir.path(), options).unwrap());
    }
}

/// A history on a simulated directory, with syncs.
fn history(seed: u64, config: SimConfig) -> Arc<World> {
    let world = world(config);
    for dir in ["A", "A/C"] {
        world.add_dir(dir);
    }
    for file in ["foo", "A/foo", "A/C/foo"] {
        world.add_file(file, file.as_bytes());
    }
    let mut side = Side { host: world.host(), files: Vec::new() };
    let mut random = Random(seed);
    for _ in 0..40 {
        LOGICAL.set(random.below(2));
        side.step(Random(random.draw()));
        match random.below(24) {
            0 => side.host.sync_all(F).unwrap(),
            1 | 2 => {
                // Where there is no such directory nothing is synced.
                let _ = side.host.sync_dir(F, [&b""[..], b"A", b"B", b"A/C"][random.below(4) as usize]);
            }
            3 => side.files.iter().for_each(|file| file.sync(F).unwrap()),
            _ => {}
        }
    }
    LOGICAL.set(0);
    world
}

fn models() -> impl Iterator<Item = SimConfig> {
    let of = |host| [SimConfig { host, times: true, ..disk() }, SimConfig { host, times: true, ..pmem() }];
    [HostModel::Weak, HostModel::Ext4Ordered, HostModel::Synchronous].into_iter().flat_map(of)
}

#[test]
fn what_is_pending_is_what_a_process_sees() {
    for config in models() {
        for seed in 0..60 {
            let world = history(seed, config.clone());
            let at_end = |pick| Choice { point: world.now(), pick };
            let (trace, killed) = (world.trace(), world.kill());
            let next = World::from_image(&killed, config.clone()).trace();
            let at_start = |pick| Choice { point: 0, pick };
            let all = trace.image_of(&at_end(Pick::All));
            assert_eq!(all.paths(), world.latest().paths(), "seed {seed} {:?}", config.host);
            for (path, _) in all.paths() {
                let place = Place::file(&path);
                assert_eq!(all.read(&place), world.latest().read(&place), "seed {seed} {:?}", config.host);
            }
            assert_eq!(next.image_of(&at_start(Pick::All)).hash(), all.hash(), "seed {seed} {:?}", config.host);
            let none = trace.image_of(&at_end(Pick::None)).hash();
            assert_eq!(next.image_of(&at_start(Pick::None)).hash(), none, "seed {seed} {:?}", config.host);
        }
    }
}

#[test]
fn every_image_of_names_is_whole_and_its_choice_rebuilds_it() {
    let limits = ExploreLimits { exhaustive_bits: 6, pair_units: 6, samples: 8, ..ExploreLimits::default() };
    for config in models() {
        for seed in 0..6 {
            let trace = history(seed, config.clone()).trace();
            let mut explorer = Explorer::new(&trace);
            loop {
                let point = explorer.point();
                point.for_each_image(&limits, |choice, image| {
                    assert_eq!(image.hash(), image.state.hashed_anew(), "seed {seed} {choice}");
                    assert_eq!(image.hash(), point.image_of(choice).hash(), "seed {seed} {choice}");
                    assert!(image.state.unreached(&[]).is_empty(), "seed {seed} {choice}");
                    check_counts(image, seed, choice);
                    ControlFlow::Continue(())
                });
                if !explorer.advance() {
                    break;
                }
            }
        }
    }
}

/// Link counts are those of the names; a directory has one name.
fn check_counts(image: &Image, seed: u64, choice: &Choice) {
    let mut names: BTreeMap<u32, u32> = BTreeMap::new();
    let mut below: BTreeMap<u32, u32> = BTreeMap::new();
    for (id, obj) in image.state.objs() {
        for named in obj.entries.values() {
            *names.entry(*named).or_default() += 1;
            let is_dir = image.state.obj(*named).mode & 0o170_000 == 0o040_000;
            *below.entry(id).or_default() += u32::from(is_dir);
        }
    }
    for (id, named) in names {
        let obj = image.state.obj(id);
        match obj.mode & 0o170_000 == 0o040_000 {
            true => {
                assert_eq!(named, 1, "seed {seed} {choice}: names of directory {id}");
                assert_eq!(obj.nlink, 2 + below.get(&id).unwrap_or(&0), "seed {seed} {choice}: count of {id}");
            }
            false => assert_eq!(obj.nlink, named, "seed {seed} {choice}: count of {id}"),
        }
    }
}
