//! Whatever bytes a volume or a store's log has, every verb says something and ends with a code of its own: no panic,
//! no signal. `crates/volume/tests/any_bytes.rs` tries many more volumes, in one process.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::common::{self, Place, Run, is_long, wholly};

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Lengths at which something ends.
const LENGTHS: [usize; 14] = [0, 1, 8, 25, 100, 511, 512, 4095, 4096, 4097, 5000, 8191, 8192, 65_536];

/// Files of each length, a few of each kind: nothing, anything, and the beginning of something real, damaged or not.
fn images(real: &[u8]) -> Vec<Vec<u8>> {
    let mut random = Random(7);
    let mut images = Vec::new();
    for (n, length) in LENGTHS.into_iter().enumerate() {
        let begin = real[..length.min(real.len())].to_vec();
        let mut flipped = begin.clone();
        for _ in 0..3 {
            let at = random.below(length.clamp(1, 600));
            flipped.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << random.below(8));
        }
        let any = (0..length).map(|_| random.below(256) as u8).collect();
        let kinds = [vec![0; length], any, begin, flipped, vec![0xff; length]];
        let some = kinds.into_iter().enumerate().filter(|(kind, _)| is_long() || (kind + n) % 3 == 0);
        images.extend(some.map(|(_, image)| image));
    }
    images
}

fn ends(run: &Run, what: &str) {
    let panicked = [&run.out, &run.err].iter().any(|said| said.contains("panicked"));
    let is_own = run.code.is_some_and(|code| code != 101);
    assert!(is_own && !panicked, "{what}: {:?}\n{}{}", run.code, run.out, run.err);
    let says = !run.out.trim().is_empty() || !run.err.trim().is_empty();
    assert!(says || run.code == Some(0), "{what}: {:?} without a word", run.code);
}

fn removed(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
}

/// Does it with all of them, by several threads.
fn with_all(images: &[Vec<u8>], act: impl Fn(usize, &[u8]) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let Some(image) = images.get(n) else { break };
                    act(n, image);
                }
            });
        }
    });
}

fn unmounted(point: &Path) {
    if is_mount(point) {
        common::umount(point);
    }
}

fn is_mount(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("read it");
    mounts.lines().any(|line| line.split(' ').nth(4) == point.to_str())
}

#[test]
fn no_verb_panics_on_the_bytes_of_a_volume() {
    let place = Place::on_memory();
    let real = place.dir.join("real");
    wholly(&["mkfs", real.to_str().unwrap(), "--size", "16M"]).exits(0);
    let real = std::fs::read(real).expect("read it");
    with_all(&images(&real), |n, image| {
        let at = |name: &str| place.dir.join(format!("{n}-{name}"));
        let (file, source, out, point) = (at("file"), at("source"), at("out"), at("point"));
        for dir in [&source, &point] {
            std::fs::create_dir(dir).expect("mkdir");
        }
        std::fs::write(source.join("x"), "x").expect("write");
        let words = |path: &PathBuf| path.to_str().expect("UTF-8").to_owned();
        let (v, source, to, on) = (words(&file), words(&source), words(&out), words(&point));
        let verbs: &[&[&str]] = &[
            &["dump", &v],
            &["--json", "dump", &v, "--inode", "1"],
            &["dump", &v, "a"],
            &["stat", &v],
            &["fsck", "-n", &v],
            &["fsck", "-p", &v],
            &["fsck", "-y", &v],
            &["tune", &v, "--size", "16M"],
            &["tune", &v, "--size", "0"],
            &["import", &v, &source],
            &["export", &v, &to],
            &["mount", &v, &on],
            &["mkfs", &v],
            &["mkfs", "--force", &v],
            &["check", &v],
            &["recover", &v],
            &["list", &v],
            &["log", &v],
            &["undo", &v],
            &["diff", &v, "1-1"],
            &["salvage", &v, &to],
            &["deinit", &v],
            &["init", "--no-register", &v],
        ];
        for verb in verbs {
            std::fs::write(&file, image).expect("write");
            ends(&wholly(verb), &format!("{verb:?} of {} bytes ({n})", image.len()));
            unmounted(&point);
            removed(&out);
        }
    });
}

#[test]
fn no_verb_panics_on_the_bytes_of_a_flash_file() {
    let place = Place::on_memory();
    let real = place.dir.join("real");
    let word = real.to_str().unwrap();
    wholly(&["flash", "init", word, "--bytes", "1M"]).exits(0);
    wholly(&["mkfs", &format!("flash:{word}")]).exits(0);
    let real = std::fs::read(&real).expect("read it");
    let mut all = images(&real);
    // Of its whole length: bits anywhere in what was programmed.
    let programmed: Vec<usize> = real.chunks(8192).enumerate().filter(|it| it.1[0] != 0).map(|it| it.0).collect();
    let mut random = Random(11);
    for _ in 0..if is_long() { 200 } else { 12 } {
        let mut image = real.clone();
        for _ in 0..1 + random.below(40) {
            let slot = programmed[random.below(programmed.len())];
            let at = slot * 8192 + [random.below(128), 2048 + random.below(128), random.below(8192)][random.below(3)];
            image[at] ^= 1 << random.below(8);
        }
        all.push(image);
    }
    with_all(&all, |n, image| {
        let at = |name: &str| place.dir.join(format!("{n}-{name}"));
        let (file, source, out, copy) = (at("file"), at("source"), at("out"), at("copy"));
        std::fs::create_dir(&source).expect("mkdir");
        std::fs::write(source.join("x"), "x").expect("write");
        let words = |path: &PathBuf| path.to_str().expect("UTF-8").to_owned();
        let (f, source, to, copied) = (words(&file), words(&source), words(&out), words(&copy));
        let v = format!("flash:{f}");
        let looks: &[&[&str]] = &[
            &["flash", "stat", &f],
            &["flash", "check", &f],
            &["--json", "flash", "check", &f],
            &["flash", "salvage", &f, &copied],
            &["flash", "init", &f, "--bytes", "1M"],
            &["dump", &v],
            &["dump", &v, "a"],
            &["stat", &v],
            &["fsck", "-n", &v],
            &["mkfs", &v],
        ];
        let verbs: &[&[&str]] = &[
            &["fsck", "-p", &v],
            &["fsck", "-y", &v],
            &["tune", &v, "--size", "512K"],
            &["import", &v, &source],
            &["export", &v, &to],
            &["mkfs", "--force", &v],
        ];
        for (verb, looks) in looks.iter().map(|verb| (verb, true)).chain(verbs.iter().map(|verb| (verb, false))) {
            std::fs::write(&file, image).expect("write");
            ends(&wholly(verb), &format!("{verb:?} of {} bytes ({n})", image.len()));
            // `mkfs` takes a disk with nothing on it.
            assert!(!looks || verb[0] == "mkfs" || std::fs::read(&file).expect("read") == image, "{verb:?} ({n})");
            removed(&out);
            let _ = std::fs::remove_file(&copy);
        }
    });
}

#[test]
fn no_verb_panics_on_the_bytes_of_a_log() {
    let place = Place::on_memory();
    let template = place.dir.join("real");
    std::fs::create_dir(&template).expect("mkdir");
    std::fs::write(template.join("a"), "a").expect("write");
    wholly(&["init", "--no-register", template.to_str().unwrap()]).exits(0);
    let real = std::fs::read(template.join(".wholly/log")).expect("read it");
    with_all(&images(&real), |n, image| {
        let at = |name: &str| place.dir.join(format!("{n}-{name}"));
        let (store, out, point) = (at("store"), at("out"), at("point"));
        std::fs::create_dir(&point).expect("mkdir");
        let words = |path: &PathBuf| path.to_str().expect("UTF-8").to_owned();
        let (d, to, on) = (words(&store), words(&out), words(&point));
        let verbs: &[&[&str]] = &[
            &["stat", &d],
            &["--json", "stat", &d],
            &["check", &d],
            &["dump", &d],
            &["--json", "dump", "--all", &d],
            &["dump", "--segment", "0", &d],
            &["list", &d],
            &["log", &d],
            &["diff", &d, "1-1"],
            &["undo", &d],
            &["apply", &d, "1-1"],
            &["discard", &d, "1-1"],
            &["recover", &d],
            &["recover", "--accept-copy", &d],
            &["salvage", &d, &to],
            &["deinit", &d],
            &["init", "--no-register", &d],
            &["mount", &d, &on],
        ];
        for verb in verbs {
            let copied = std::process::Command::new("cp").arg("-a").args([&template, &store]).status();
            assert!(copied.expect("run cp").success());
            std::fs::write(store.join(".wholly/log"), image).expect("write");
            ends(&wholly(verb), &format!("{verb:?} of {} bytes ({n})", image.len()));
            unmounted(&point);
            common::wait_until_unused(&store);
            removed(&store);
            removed(&out);
        }
    });
}
