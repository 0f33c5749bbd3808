//! The death of a process is not a power failure; one may follow the other.

use super::*;

#[test]
fn a_killed_process_leaves_what_it_wrote() {
    let first = world(pmem());
    first.log().write(W, 0, &[1; 8]).unwrap();
    let image = first.kill();
    assert!(image.is_pending());
    let second = World::from_image(&image, pmem());
    let mut buf = [0; 8];
    second.log().read(0, &mut buf).unwrap();
    assert_eq!(buf, [1; 8]);
    // The power fails now: what nobody fenced may be lost.
    assert_eq!(seen(&second, |image| log_byte(image, 0)), set([0, 1]));
    // A fence of the living does not drain what the dead stored, only what is stored again.
    second.log().write(W, 64, &[1; 8]).unwrap();
    second.log().fence(F).unwrap();
    assert_eq!(seen(&second, |image| log_byte(image, 0)), set([0, 1]));
    second.log().write(W, 0, &[1; 8]).unwrap();
    second.log().fence(F).unwrap();
    assert_eq!(seen(&second, |image| log_byte(image, 0)), set([1]));
}

#[test]
fn on_a_disk_any_sync_covers_what_the_dead_wrote() {
    let first = world(disk());
    first.log().write(W, 0, &[1; 8]).unwrap();
    let second = World::from_image(&first.kill(), disk());
    let mut buf = [9; 8];
    second.log().read_uncached(0, &mut buf).unwrap();
    assert_eq!(buf, [0; 8], "not on the disk yet");
    assert_eq!(seen(&second, |image| log_byte(image, 0)), set([0, 1]));
    second.log().fence(F).unwrap();
    assert_eq!(seen(&second, |image| log_byte(image, 0)), set([1]));
}

#[test]
fn a_sync_covers_what_the_dead_stored_into_a_mapping() {
    let first = world(pmem());
    first.add_file("a", &[0; 64]);
    first.host().open(b"a", true).unwrap().map(64).unwrap().unwrap().write(W, 0, &[1; 8]).unwrap();
    let second = World::from_image(&first.kill(), pmem());
    let byte = |image: &Image| image.read(&Place::file("a")).unwrap()[0];
    assert_eq!(seen(&second, byte), set([0, 1]));
    second.host().open(b"a", true).unwrap().sync(F).unwrap();
    assert_eq!(seen(&second, byte), set([1]));
}

#[test]
fn names_stay_and_files_without_one_go() {
    let first = world(disk());
    let host = first.host();
    for named in [true, false] {
        let file = host.create_unnamed(W, b"", 0o600).unwrap();
        file.write_at(W, 0, b"data").unwrap();
        if named {
            host.link(W, &*file, b"a").unwrap();
        }
    }
    let image = first.kill();
    assert_eq!(image.paths(), [(b"a".to_vec(), false)]);
    assert_eq!(image.read(&Place::file("a")), Some(b"data".to_vec()));
    let second = World::from_image(&image, disk());
    assert_eq!(seen(&second, |image| image.read(&Place::file("a"))).len(), 4, "none, empty, zeros, data");
    second.host().sync_all(F).unwrap();
    assert_eq!(seen(&second, |image| image.read(&Place::file("a"))), set([Some(b"data".to_vec())]));
}

#[test]
fn nothing_is_left_of_a_file_without_a_name() {
    let first = world(disk());
    let before = first.latest().hash();
    first.host().create_unnamed(W, b"", 0o600).unwrap().write_at(W, 0, b"data").unwrap();
    assert_eq!(first.kill().hash(), before);
}

#[test]
fn the_death_after_a_fence_leaves_nothing_pending() {
    let first = world(pmem());
    first.log().write(W, 0, &[1; 8]).unwrap();
    first.log().fence(F).unwrap();
    let image = first.kill();
    assert!(!image.is_pending());
    assert_eq!(image.hash(), first.latest().hash());
}

#[test]
fn a_process_may_die_at_any_point_of_a_trace() {
    let first = world(pmem());
    first.log().write(W, 0, &[1; 8]).unwrap();
    let then = first.kill().hash();
    first.log().write(W, 0, &[2; 8]).unwrap();
    let choice: Choice = "p1:kill".parse().unwrap();
    assert_eq!(first.trace().image_of(&choice).hash(), then);
}
