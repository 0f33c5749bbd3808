//! Another program that writes to what a command has made, in the moment of its commit: undo never removes a byte of
//! its.

use super::common::run::{Rig, as_group};
use super::common::wholly_in;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes to the file as soon as it begins with `NEW1`. Whether it has.
fn meddle(file: &Path, ended: &AtomicBool) -> bool {
    loop {
        let mut begin = [0; 4];
        let is_over = ended.load(Ordering::Acquire);
        let looked = std::fs::File::options().read(true).write(true).open(file);
        if let Ok(looked) = looked
            && looked.read_exact_at(&mut begin, 0).is_ok()
            && begin == *b"NEW1"
        {
            looked.write_all_at(b"BYST", 0).unwrap();
            return true;
        }
        if is_over {
            return false;
        }
        std::thread::yield_now();
    }
}

/// What the bystander has written is there after the undo, whether that was refused or not.
fn nothing_of_it_goes(name: &str, rounds: usize, before: &str, script: &str, file: &str) {
    let Some(rig) = Rig::new(name) else { return };
    let (mut meddled, mut refused) = (0, 0);
    for round in 0..rounds {
        let dir = rig.dir("dir", before);
        let file = dir.join(file);
        let ended = AtomicBool::new(false);
        let has_meddled = std::thread::scope(|scope| {
            let bystander = scope.spawn(|| meddle(&file, &ended));
            assert!(as_group(&dir, &["--keep-undo", "1G"], script).status().unwrap().success());
            ended.store(true, Ordering::Release);
            bystander.join().unwrap()
        });
        let content = std::fs::read(&file).unwrap();
        let is_there = content.starts_with(b"BYST");
        let undone = wholly_in(&dir, &["undo"]);
        assert!(matches!(undone.code, Some(0 | 123 | 8)), "{}{}", undone.out, undone.err);
        if is_there {
            assert_ne!(undone.code, Some(0), "round {round}: {}", undone.out);
            assert_eq!(std::fs::read(&file).unwrap(), content, "round {round}: {}", undone.out);
        }
        meddled += usize::from(has_meddled);
        refused += usize::from(undone.code != Some(0));
        std::fs::remove_dir_all(&dir).unwrap();
    }
    println!("{rounds} rounds: {meddled} with a bystander, {refused} undos refused");
    assert!(meddled > 0, "the bystander never came");
}

/// In a short run a few rounds of each; `WHOLLY_LONG=1` has 250 of each.
fn rounds() -> usize {
    if std::env::var_os("WHOLLY_LONG").is_some() { 250 } else { 5 }
}

#[test]
fn what_it_writes_in_place_stays() {
    let before = "yes old | head -c 8000 > f";
    nothing_of_it_goes("by-place", rounds(), before, "printf NEW1 | dd of=f conv=notrunc 2> /dev/null", "f");
}

#[test]
fn what_it_writes_to_what_is_new_stays() {
    nothing_of_it_goes("by-new", rounds(), "", "echo NEW1 > g; for i in $(seq 50); do echo $i > n$i; done", "g");
}

#[test]
fn what_it_writes_to_what_was_replaced_stays() {
    let before = "yes old | head -c 8000 > f";
    nothing_of_it_goes("by-replaced", rounds(), before, "sed -i s/old/NEW1/ f", "f");
}

/// A thousand files are written back for a while.
#[test]
fn what_it_writes_to_one_of_many_stays() {
    let script = "for i in $(seq 1000); do printf 'NEW1 %s' $i > d/$i; done";
    let before = "mkdir d; for i in $(seq 1000); do printf 'old %s' $i > d/$i; done";
    nothing_of_it_goes("by-many", rounds().div_ceil(3), before, script, "d/500");
}
