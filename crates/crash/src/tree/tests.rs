//! The model against a real file system and the simulated one: the same ops, the same answers, the same tree.

use std::sync::Arc;

use wholly::DirEntry;
use wholly_host::{HostDir, HostFile, HostFs, HostNames, HostOptions};
use wholly_sim::{Random, SimConfig};
use wholly_vfs::{Fallocate, SetXattr, Stat};

use super::host::SITE;
use super::*;
use crate::look::{Names, at_home, tree};
use crate::script::XATTRS;
use crate::sequences::vocabulary;
use crate::workload::Start;

struct Host {
    fs: Arc<dyn HostFs>,
    files: BTreeMap<String, Arc<dyn HostFile>>,
    /// Whether looking at something changes the time of its last access.
    notes_looks: bool,
}

impl Names for Host {
    const NOTES_LOOKS: bool = false;

    fn read_dir(&mut self, path: &str) -> wholly::Result<Vec<DirEntry>> {
        Ok(self.fs.read_dir(if path == "." { b"" } else { path.as_bytes() })?)
    }

    fn metadata(&mut self, path: &str) -> wholly::Result<Stat> {
        let stat = self.fs.stat(path.as_bytes())?;
        Ok(Stat { atime_ns: if self.notes_looks { 0 } else { stat.atime_ns }, ..stat })
    }

    fn read_link(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        Ok(self.fs.read_link(path.as_bytes())?)
    }

    fn xattrs(&mut self, path: &str) -> wholly::Result<Vec<Vec<u8>>> {
        Ok(self.fs.list_xattrs(path.as_bytes())?)
    }

    fn xattr(&mut self, path: &str, name: &[u8]) -> wholly::Result<Option<Vec<u8>>> {
        Ok(self.fs.get_xattr(path.as_bytes(), name)?)
    }

    fn content(&mut self, path: &str) -> wholly::Result<Vec<u8>> {
        Ok(content(&*self.fs.open(path.as_bytes(), false)?))
    }
}

fn content(file: &dyn HostFile) -> Vec<u8> {
    let mut content = vec![0; file.stat().expect("stat").size as usize];
    file.read_at(0, &mut content).expect("read");
    content
}

impl Host {
    fn apply(&mut self, op: &Op, bytes: &[u8], handle: Option<&str>) -> wholly_media::Result<()> {
        let made = on_host(&*self.fs, handle.map(|path| &self.files[path]), op, bytes)?;
        self.files.extend(made.map(|file| (op.file().into(), file)));
        Ok(())
    }

    fn reopen(&mut self, state: &mut State) {
        state.reopen();
        let open = |path: &str| (path.to_string(), self.fs.open(path.as_bytes(), true).expect("it is there"));
        self.files = state.opened().map(open).collect();
    }
}

/// Whether a symbolic link has the name of a directory. The model follows it, as a program does; no call on a host
/// directory does.
fn leads_through_link(state: &State) -> bool {
    let is_link = |path: &&str| state.find(path).is_ok_and(|it| matches!(state.object(it).kind, Kind::Symlink(_)));
    ["A", "B", "A/C", "B/C"].iter().any(is_link)
}

/// Does drawn ops, refused ones too, and compares after each. Returns how many were refused.
fn agrees(mut host: Host, words: &[String], start: Start, seed: u64) -> (State, u32) {
    let mut random = Random(seed);
    let mut state = start.state();
    host.reopen(&mut state);
    let (mut done, mut refused) = (String::new(), 0);
    for number in 0..60 {
        // Most are refused: two of three are drawn until one is not.
        let any = number % 3 == 0;
        let op = loop {
            let word = &words[random.below(words.len() as u64) as usize];
            let op = crate::script::op(word).expect("a word");
            let mut next = state.clone();
            let fits = next.apply(&op, &op.bytes(0).unwrap_or_default()).is_ok();
            if (any || fits) && !leads_through_link(&next) {
                done += &format!(" {word}");
                break op;
            }
        };
        let bytes = op.bytes(number).unwrap_or_default();
        let handle = state.handle(op.file()).map(String::from);
        match state.apply(&op, &bytes) {
            Err(_) if op.is_of_bytes() => continue,
            Ok(()) => host.apply(&op, &bytes, handle.as_deref()).unwrap_or_else(|error| panic!("{done}: {error}")),
            Err(errno) => {
                refused += 1;
                let error = host.apply(&op, &bytes, None).err().map(|error| error.errno);
                assert_eq!(error, Some(errno), "{done}");
            }
        }
        let seen = tree(&mut host, &mut |path, error| Err(format!("{path}: {error}")));
        let seen = seen.unwrap_or_else(|error| panic!("{done}: {error}"));
        let mut should = state.clone();
        if host.notes_looks {
            should.objects.values_mut().for_each(|object| object.atime = Time::Clock);
        }
        assert_eq!(should.difference(&seen), None, "{done}");
        assert_eq!(should.hash(), seen.hash(), "{done}");
        for path in state.opened() {
            let file = format!("@{path}");
            assert!(**state.content(&file).expect("it is open") == *content(&*host.files[path]), "{done}: {file}");
        }
        if number % 20 == 19 {
            host.reopen(&mut state);
        }
    }
    (state, refused)
}

#[test]
fn the_model_is_what_a_real_file_system_does() {
    let mut refused = 0;
    for seed in 0..40 {
        let dir = std::env::temp_dir().join(format!("wholly-crash-tree-{}-{seed}", std::process::id()));
        let start = if seed % 2 == 0 { Start::Bare } else { Start::Dirs };
        std::fs::create_dir(&dir).expect("mkdir");
        let host = HostDir::open(&dir, HostOptions::default()).expect("open");
        let mut words = vocabulary();
        if let Err(error) = host.set_xattr(SITE, b"", XATTRS[0].as_bytes(), b"", SetXattr::Any) {
            assert_eq!(error.errno, Errno::OPNOTSUPP, "{error}");
            println!("extended attributes are left out: {error}");
            words.retain(|word| !word.contains("tag-"));
        }
        let probe = host.create_unnamed(SITE, b"", 0o600).expect("create");
        if let Err(error) = probe.fallocate(SITE, Fallocate::Zero, 0, 1) {
            assert_eq!(error.errno, Errno::OPNOTSUPP, "{error}");
            println!("ranges of zeros are left out: {error}");
            words.retain(|word| !word.starts_with("zero-") && !word.starts_with("blank-"));
        }
        drop(probe);
        let state = start.state();
        for (path, number) in state.paths() {
            match &state.object(number).kind {
                Kind::Dir(_) => host.mkdir(SITE, path.as_bytes(), 0o755).expect("mkdir"),
                Kind::File(content) => {
                    let file = host.create(SITE, path.as_bytes(), 0o644).expect("create");
                    file.write_at(SITE, 0, content).expect("write");
                }
                kind => panic!("{kind:?}"),
            }
        }
        let host = Host { fs: Arc::new(host), files: BTreeMap::new(), notes_looks: true };
        refused += agrees(host, &words, start, seed).1;
        std::fs::remove_dir_all(&dir).expect("remove");
    }
    assert!((200..800).contains(&refused), "{refused} of 2400 were refused");
}

#[test]
fn the_model_is_what_the_simulated_host_does() {
    for seed in 0..200 {
        let world = World::new(SimConfig::disk());
        let start = if seed % 2 == 0 { Start::Bare } else { Start::Dirs };
        start.state().put_into(&world);
        let host = Host { fs: world.host(), files: BTreeMap::new(), notes_looks: false };
        let (state, _) = agrees(host, &vocabulary(), start, seed);
        assert_eq!(state.difference(&at_home(&world.latest()).expect("it can be looked at")), None, "seed {seed}");
    }
}

/// What the oracle must tell apart.
#[test]
fn states_differ_by_what_can_be_seen() {
    let files = |content: &[u8], mode| {
        let mut state = State::default();
        state.put("a", Object::file(content, mode));
        state
    };
    let mut linked = files(b"x", 0o644);
    linked.apply(&Op::Link { from: "a", to: "b" }, b"").expect("it can be linked");
    let mut copied = files(b"x", 0o644);
    copied.put("b", Object::file(*b"x", 0o644));
    let with = |op: Op| {
        let mut state = files(b"x", 0o644);
        state.apply(&op, &[7; 16]).expect("it is there");
        state
    };
    let times = |atime, mtime| with(Op::SetTimes { path: "a", atime, mtime });
    let xattr = |name, length| with(Op::SetXattr { path: "a", name, length, how: SetXattr::Any });
    let all = [
        files(b"x", 0o644),
        files(b"y", 0o644),
        files(b"xx", 0o644),
        files(b"x", 0o600),
        linked,
        copied,
        with(Op::SetOwner("a")),
        times(true, false),
        times(false, true),
        times(true, true),
        xattr("user.tag", 16),
        xattr("user.note", 16),
    ];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            assert_eq!(a == b, i == j, "{i} and {j}: {:?}", a.difference(b));
            assert_eq!(a.hash() == b.hash(), i == j, "{i} and {j}");
        }
    }
    // Another order of making is no difference, nor is a file that only its opener still has.
    let mut other = State::default();
    other.put("z", Object::file(*b"z", 0o644));
    other.reopen();
    other.put("a", Object::file(*b"x", 0o644));
    other.apply(&Op::Unlink("z"), b"").expect("it is there");
    assert_eq!(other, all[0]);
    assert!(other.content("@z").is_some());
    other.reopen();
    assert!(other.content("@z").is_none());
}

/// What two groups do at the same time, the second of which commits first: the script of a state that has both, or what
/// is wrong.
fn merged(first: &str, second: &str) -> Result<State, String> {
    let done = |ops: &str| {
        let mut state = Start::Dirs.state();
        state.reopen();
        let base = state.clone();
        for op in ops.split('+') {
            let op = crate::script::op(op).expect("an op");
            let bytes = if op.is_of_bytes() { b"bytes".to_vec() } else { op.bytes(1).unwrap_or_default() };
            state.apply(&op, &bytes).expect("it can be done");
        }
        (base, state)
    };
    let ((base, first), (_, second)) = (done(first), done(second));
    let mut state = base.clone();
    state.merge(&base, &second)?;
    assert_eq!(state, second, "alone it is what it is");
    state.merge(&base, &first)?;
    Ok(state)
}

#[test]
fn groups_that_do_not_exclude_each_other_are_merged() {
    let seen = |first, second| {
        let state = merged(first, second).unwrap_or_else(|what| panic!("{first}, {second}: {what}"));
        state.paths().into_iter().map(|(path, _)| path).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(seen("create-foo", "create-bar+mkdir-B/C"), "A A/C A/foo B B/C bar foo");
    assert_eq!(seen("link-A/foo-foo", "rename-A-B/C"), "B B/C B/C/C B/C/foo foo");
    assert_eq!(seen("create-A/C/foo", "rename-A/C-B/C"), "A A/foo B B/C B/C/foo");
    assert_eq!(seen("create-foo", "unlink-A/foo+rmdir-A/C+rmdir-A"), "B foo");
    let both = merged("append-A/foo", "rename-A-B/C").expect("they go together");
    assert_eq!(both.content("B/C/foo").map(|content| content.len()), Some(305));
    assert_eq!(both.content("@A/foo"), both.content("B/C/foo"));
    let both = merged("times-A/foo+append-A/foo+chmod-A", "rename-A/foo-B/foo+tag-B").expect("they go together");
    let at = |path| both.at(path).expect("it is there");
    assert_eq!((at("B/foo").mtime, at("A").mode, at("B").xattrs.len()), (Time::Clock, 0o705, 1));
    let both = merged("mkdir-B/C+create-B/C/foo+times-B/C", "tag-A/foo").expect("they go together");
    assert!(matches!(both.at("B/C").expect("it is there").mtime, Time::Set(_)));
    for (first, second) in [("times-A", "create-A/bar"), ("create-A/bar", "times-A")] {
        let both = merged(first, second).expect("they go together");
        assert_eq!(both.at("A").expect("it is there").mtime, Time::Either, "{first}, {second}");
    }
    for (first, second) in [
        ("create-foo", "mkdir-foo"),
        ("unlink-A/foo", "rename-A/foo-foo"),
        ("append-A/foo", "cut-A/foo"),
        ("create-B/foo", "rmdir-B"),
        ("rmdir-B", "create-B/foo"),
        ("rename-A-B/C", "rename-B-A/C/foo"),
        ("rename-A/C-C", "rename-A/C-B/C"),
        ("chmod-A/foo", "tag-A/foo"),
        ("times-A", "shut-A"),
    ] {
        assert!(merged(first, second).is_err(), "{first}, {second}");
    }
}
