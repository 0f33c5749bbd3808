//! The process that has the store open is killed, again and again. Killing a process is not a power failure: what it
//! wrote stays, and only its memory is gone. Power failures are the crash explorer's.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::mounts::this_program;
use wholly::{Options, Policy, Store};
use wholly_host::{HostMedium, HostOptions};

const FILES: [&str; 3] = ["one", "two", "three"];
const BYTES: usize = 30_000;
const DIRECTORY: &str = "WHOLLY_TEST_KILLED_DIRECTORY";
const MEDIUM: &str = "WHOLLY_TEST_KILLED_MEDIUM";

fn open(dir: &Path, medium: &str) -> Store {
    let medium = if medium == "pmem" { HostMedium::Pmem } else { HostMedium::Disk };
    let options = Options {
        policy: Policy::PerSync,
        segment_bytes: 32 << 10,
        log_min_bytes: 128 << 10,
        log_max_bytes: 256 << 10,
        ..Options::default()
    };
    let host = HostOptions { medium, ..HostOptions::default() };
    if !dir.join(".wholly").exists() {
        Store::init_with(dir, &options, host.clone()).unwrap();
    }
    Store::open_with(dir, options, host).unwrap()
}

/// Bytes that tell their round, and where they belong.
fn content(round: u64, file: usize) -> Vec<u8> {
    (0..BYTES / 8).flat_map(|i| (round * 1000 + (file * 7 + i % 100) as u64).to_le_bytes()).collect()
}

/// The round that all files hold, wholly.
fn round_of(store: &Store) -> u64 {
    let mut rounds = Vec::new();
    for (i, name) in FILES.iter().enumerate() {
        let file = store.open_file(name).unwrap();
        let mut bytes = vec![0; BYTES];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), BYTES);
        let round = (u64::from_le_bytes(bytes[..8].try_into().unwrap()) - (i * 7) as u64) / 1000;
        assert!(bytes == content(round, i), "{name} is torn");
        rounds.push(round);
    }
    assert!(rounds.iter().all(|&round| round == rounds[0]), "a group is torn: {rounds:?}");
    rounds[0]
}

/// What is killed. As a test of its own it does nothing.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIRECTORY) else { return };
    let store = open(Path::new(&dir), &std::env::var(MEDIUM).unwrap());
    let mut round = round_of(&store);
    let files: Vec<_> = FILES.iter().map(|name| store.open_file(name).unwrap()).collect();
    let noise = store.open_file("noise").unwrap();
    let mut out = std::io::stdout();
    loop {
        round += 1;
        let mut group = store.begin();
        for (i, file) in files.iter().enumerate() {
            group.write_at(file, 0, &content(round, i)).unwrap();
        }
        // An epoch that is never synced: it must leave no trace.
        noise.write_at(round * 100 % 5000, b"never synced").unwrap();
        group.commit().unwrap();
        writeln!(out, "committed {round}").unwrap();
    }
}

fn run(medium: &str, dir: PathBuf, kills: u64) {
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    for (i, name) in FILES.iter().enumerate() {
        std::fs::write(dir.join(name), content(0, i)).unwrap();
    }
    std::fs::write(dir.join("noise"), [0; 6000]).unwrap();
    drop(open(&dir, medium));
    let mut last = 0;
    for kill in 0..kills {
        let mut child =
            this_program(child).env(DIRECTORY, &dir).env(MEDIUM, medium).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = last;
        for line in lines.map(|line| line.unwrap()) {
            let Some(round) = line.strip_prefix("committed ") else { continue };
            acknowledged = round.parse().unwrap();
            if acknowledged >= last + 1 + kill * 17 % 60 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let report = wholly::check(&dir).unwrap();
        assert!(report.is_sound(), "kill {kill}: {:#?}", report.findings);
        let store = open(&dir, medium);
        let round = round_of(&store);
        // The child may have committed more than its pipe told us before it died, but never less.
        assert!(round >= acknowledged, "kill {kill}: {round} is there, {acknowledged} was committed");
        let mut noise = vec![1; 6000];
        store.open_file("noise").unwrap().read_at(0, &mut noise).unwrap();
        assert!(noise.iter().all(|&byte| byte == 0), "an epoch without a sync survived");
        last = round;
        if kill % 3 == 0 {
            store.close().unwrap();
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn on_emulated_persistent_memory() {
    run("pmem", format!("/dev/shm/wholly-killed-{}", std::process::id()).into(), 40);
}

#[test]
fn on_a_disk() {
    run("disk", std::env::temp_dir().join(format!("wholly-killed-{}", std::process::id())), 12);
}
