//! Names and attributes: what a crash keeps of each call, counted by hand.

use super::*;
use wholly_host::HostFs;
use wholly_vfs::{Fallocate, Rename, SetXattr};

fn on(model: HostModel) -> (Arc<World>, Arc<dyn HostFs>) {
    let world = world(SimConfig { host: model, ..disk() });
    world.add_dir("A");
    world.add_dir("B");
    world.add_file("A/foo", b"foo");
    world.add_file("bar", b"bar");
    let host = world.host();
    (world, host)
}

/// Every path but those of the directories `A` and `B`, with what a file holds.
fn tree(image: &Image) -> String {
    let shown = |(path, is_dir): (Vec<u8>, bool)| {
        let name = String::from_utf8(path.clone()).unwrap();
        let content = image.read(&Place::file(&path)).map(|bytes| String::from_utf8(bytes).unwrap());
        match (is_dir, content) {
            (true, _) if name == "A" || name == "B" => None,
            (true, _) => Some(format!("{name}/")),
            (_, Some(content)) if name.ends_with(&content) => Some(name),
            (_, content) => Some(format!("{name}={}", content.unwrap_or_default())),
        }
    };
    image.paths().into_iter().filter_map(shown).collect::<Vec<_>>().join(" ")
}

fn trees(world: &World) -> BTreeSet<String> {
    seen(world, tree)
}

fn these<const N: usize>(trees: [&str; N]) -> BTreeSet<String> {
    set(trees.map(str::to_owned))
}

#[test]
fn a_name_in_a_new_directory_needs_the_directorys() {
    let (world, host) = on(HostModel::Weak);
    host.mkdir(W, b"C", 0o700).unwrap();
    host.symlink(W, b"x", b"C/link").unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "A/foo C/ bar", "A/foo C/ C/link= bar"]));
    // The name in it is durable, the way to it is not.
    host.sync_dir(F, b"C").unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "A/foo C/ C/link= bar"]));
    host.sync_dir(F, b"").unwrap();
    assert_eq!(trees(&world), these(["A/foo C/ C/link= bar"]));
}

#[test]
fn a_rename_survives_on_both_sides_or_on_none() {
    for model in [HostModel::Weak, HostModel::Ext4Ordered, HostModel::Synchronous] {
        let (world, host) = on(model);
        host.rename(W, b"A/foo", b"B/bar", Rename::NoReplace).unwrap();
        let inside = world.now() - u64::from(model == HostModel::Synchronous);
        assert_eq!(seen_at(&world, inside, tree), these(["A/foo bar", "B/bar=foo bar"]), "{model:?}");
        // Either directory's sync is for both sides.
        host.sync_dir(F, if model == HostModel::Weak { b"A" } else { b"B" }).unwrap();
        assert_eq!(trees(&world), these(["B/bar=foo bar"]));
    }
}

#[test]
fn what_is_replaced_or_exchanged_is_never_missing() {
    let (world, host) = on(HostModel::Weak);
    host.rename(W, b"A/foo", b"bar", Rename::Replace).unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "bar=foo"]));
    let (world, host) = on(HostModel::Weak);
    host.rename(W, b"A/foo", b"bar", Rename::Exchange).unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "A/foo=bar bar=foo"]));
}

#[test]
fn changes_of_one_name_survive_as_a_prefix_and_others_as_any_subset() {
    let (world, host) = on(HostModel::Weak);
    host.rename(W, b"A/foo", b"B/foo", Rename::Replace).unwrap();
    host.hard_link(W, b"bar", b"A/foo").unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "B/foo bar", "A/foo=bar B/foo bar"]));
    let (world, host) = on(HostModel::Weak);
    host.rename(W, b"A/foo", b"B/foo", Rename::Replace).unwrap();
    host.unlink(W, b"bar").unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "B/foo bar", "A/foo", "B/foo"]));
    let (world, host) = on(HostModel::Ext4Ordered);
    host.rename(W, b"A/foo", b"B/foo", Rename::Replace).unwrap();
    host.unlink(W, b"bar").unwrap();
    assert_eq!(trees(&world), these(["A/foo bar", "B/foo bar", "B/foo"]));
}

#[test]
fn weak_a_file_that_moved_out_may_go_with_its_old_directory() {
    let moved = |model| {
        let (world, host) = on(model);
        host.rename(W, b"A/foo", b"B/foo", Rename::Replace).unwrap();
        host.rmdir(W, b"A").unwrap();
        seen(&world, |image| {
            let paths: Vec<_> = image.paths().into_iter().map(|(path, _)| String::from_utf8(path).unwrap()).collect();
            paths.join(" ")
        })
    };
    assert_eq!(moved(HostModel::Weak), these(["A A/foo B bar", "B bar", "A B B/foo bar", "B B/foo bar"]));
    assert_eq!(moved(HostModel::Ext4Ordered), these(["A A/foo B bar", "A B B/foo bar", "B B/foo bar"]));
}

#[test]
fn weak_directories_that_change_places_may_lose_each_other() {
    let (world, host) = on(HostModel::Weak);
    host.rename(W, b"B", b"A/B", Rename::Replace).unwrap();
    host.sync_all(F).unwrap();
    host.rename(W, b"A/B", b"B", Rename::Replace).unwrap();
    host.rename(W, b"A", b"B/A", Rename::Replace).unwrap();
    assert_eq!(trees(&world), these(["A/B/ A/foo bar", "A/foo bar", "B/A/ B/A/foo bar", "bar"]));
}

#[test]
fn a_file_without_a_name_lives_as_long_as_it_is_open() {
    let (world, host) = on(HostModel::Weak);
    let foo = host.open(b"A/foo", true).unwrap();
    host.unlink(W, b"A/foo").unwrap();
    foo.write_at(W, 3, b"!").unwrap();
    let mut buf = [0; 8];
    assert_eq!((foo.read_at(0, &mut buf), foo.stat().unwrap().nlink), (Ok(4), 0));
    // The name may be there still, and then so may what was written.
    assert_eq!(trees(&world), these(["A/foo bar", "A/foo=foo\0 bar", "A/foo=foo! bar", "bar"]));
    let killed = world.kill();
    assert_eq!(tree(&killed), "bar");
    let next = World::from_image(&killed, SimConfig { host: HostModel::Weak, ..disk() });
    assert_eq!(trees(&next), trees(&world));
    next.host().sync_dir(F, b"A").unwrap();
    assert_eq!(trees(&next), these(["bar"]));
}

#[test]
fn link_counts_are_those_of_the_names_that_survive() {
    let (world, host) = on(HostModel::Weak);
    host.hard_link(W, b"bar", b"A/bar").unwrap();
    host.mkdir(W, b"A/C", 0o700).unwrap();
    host.unlink(W, b"bar").unwrap();
    let counts = |image: &Image| {
        let host = World::from_image(image, disk()).host();
        let count = |path: &[u8]| host.stat(path).map_or(0, |stat| stat.nlink);
        (count(b"bar"), count(b"A/bar"), count(b"A"), count(b"A/C"))
    };
    let files = [(1, 0), (2, 2), (0, 1), (0, 0)];
    let all = files.iter().flat_map(|(a, b)| [(*a, *b, 2, 0), (*a, *b, 3, 2)]);
    assert_eq!(seen(&world, counts), set(all));
}

#[test]
fn a_lost_directory_counts_no_links() {
    let (world, host) = on(HostModel::Weak);
    host.mkdir(W, b"C", 0o700).unwrap();
    host.hard_link(W, b"bar", b"C/bar").unwrap();
    let links = |image: &Image| {
        let names = image.names().into_iter().filter(|named| named.path.ends_with(b"bar"));
        names
            .map(|named| format!("{} {}", String::from_utf8(named.path).unwrap(), named.nlink))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(seen(&world, links), these(["bar 1", "C/bar 2, bar 2"]));
    // Nor does one whose names are durable, and its own is not.
    host.sync_dir(F, b"C").unwrap();
    assert_eq!(seen(&world, links), these(["bar 1", "C/bar 2, bar 2"]));
}

#[test]
fn attributes_of_an_object_survive_as_a_prefix() {
    let (world, host) = on(HostModel::Weak);
    let chosen = |image: &Image| {
        let host = World::from_image(image, disk()).host();
        let stat = host.stat(b"bar").unwrap();
        (stat.mode & 0o7777, stat.uid, host.get_xattr(b"bar", b"user.x").unwrap())
    };
    let x = || Some(b"1".to_vec());
    host.set_mode(W, b"bar", 0o4711).unwrap();
    host.set_xattr(W, b"bar", b"user.x", b"1", SetXattr::Any).unwrap();
    host.set_owner(W, b"bar", Some(7), None).unwrap();
    let all = [(0o644, 0, None), (0o4711, 0, None), (0o4711, 0, x()), (0o4711, 7, x()), (0o711, 7, x())];
    assert_eq!(seen(&world, chosen), set(all));
    // Of other objects independently; the file's sync is for its own, the directory's for the directory's.
    host.set_mode(W, b"A", 0o700).unwrap();
    let mode = |image: &Image| World::from_image(image, disk()).host().stat(b"A").unwrap().mode & 0o777;
    assert_eq!(seen(&world, |image| (chosen(image), mode(image))).len(), 10);
    host.open(b"bar", true).unwrap().sync(F).unwrap();
    assert_eq!(seen(&world, chosen), set([(0o711, 7, x())]));
    assert_eq!(seen(&world, mode), set([0o755, 0o700]));
    host.sync_dir(F, b"A").unwrap();
    assert_eq!(seen(&world, mode), set([0o700]));
    host.remove_xattr(W, b"bar", b"user.x").unwrap();
    assert_eq!(seen(&world, chosen), set([(0o711, 7, x()), (0o711, 7, None)]));
}

#[test]
fn a_new_file_has_its_owners_bits_first() {
    let (world, host) = on(HostModel::Weak);
    host.create(W, b"new", 0o640).unwrap();
    let mode = |image: &Image| World::from_image(image, disk()).host().stat(b"new").ok().map(|stat| stat.mode & 0o777);
    assert_eq!(seen(&world, mode), set([None, Some(0o600), Some(0o640)]));
    assert_eq!(world.host().stat(b"new").unwrap().mode, 0o100_640);
}

#[test]
fn times_of_a_directory_go_with_its_names_unless_they_are_set() {
    let world = world(SimConfig { times: true, ..disk() });
    world.add_dir("A");
    let host = world.host();
    let mtime = |image: &Image| World::from_image(image, disk()).host().stat(b"A").unwrap().mtime_ns;
    let all = || world.trace().image_of(&Choice { point: world.now(), pick: Pick::All }).hash();
    host.mkdir(W, b"A/C", 0o700).unwrap();
    let first = host.stat(b"A").unwrap().mtime_ns;
    assert_eq!(seen(&world, mtime), set([0, first]));
    host.set_times(W, b"A", None, Some(5)).unwrap();
    assert_eq!((host.stat(b"A").unwrap().mtime_ns, all()), (5, world.latest().hash()));
    assert_eq!(seen(&world, mtime), set([0, first, 5]));
    host.symlink(W, b"x", b"A/link").unwrap();
    let last = host.stat(b"A").unwrap().mtime_ns;
    assert!(last > first);
    assert_eq!(all(), world.latest().hash());
    host.set_times(W, b"A", None, Some(last + 1_000_000_000)).unwrap();
    host.mkdir(W, b"A/D", 0o700).unwrap();
    assert!(host.stat(b"A").unwrap().mtime_ns > last + 1_000_000_000, "the clock is never behind");
    assert_eq!(all(), world.latest().hash());
}

#[test]
fn holes_survive_by_pages_and_keep_what_is_written_later() {
    for model in [HostModel::Weak, HostModel::Ext4Ordered] {
        let world = world(SimConfig { host: model, ..disk() });
        world.add_file("a", &[1; 12_288]);
        let a = world.host().open(b"a", true).unwrap();
        a.fallocate(W, Fallocate::Punch, 100, 8092).unwrap();
        let parts = |image: &Image| {
            let a = image.read(&Place::file("a")).unwrap();
            let allocated = World::from_image(image, disk()).host().stat(b"a").unwrap().allocated;
            (a[99], a[100], a[4096], a[8191], a[8192], allocated / 4096)
        };
        // The first page in part; the second wholly: its bytes first, then its block.
        let all = [
            (1, 1, 1, 1, 1, 3),
            (1, 0, 1, 1, 1, 3),
            (1, 1, 0, 0, 1, 3),
            (1, 0, 0, 0, 1, 3),
            (1, 1, 0, 0, 1, 2),
            (1, 0, 0, 0, 1, 2),
        ];
        assert_eq!(seen(&world, parts), set(all), "{model:?}");
        a.write_at(W, 4096, &[2; 10]).unwrap();
        let second = |image: &Image| image.read(&Place::file("a")).unwrap()[4096..8192].to_vec();
        let written = [&[2; 10][..], &[0; 4086]].concat();
        assert_eq!(seen(&world, second), set([vec![1; 4096], vec![0; 4096], written.clone()]));
        a.sync(F).unwrap();
        assert_eq!(seen(&world, second), set([written]));
        assert_eq!(a.stat().unwrap().allocated, 12_288);
    }
}

#[test]
fn broken_calls_on_names_do_what_they_are_told() {
    let rename = |kind| {
        let world = world(broken(disk(), W, kind));
        world.add_file("foo", b"foo");
        let host = world.host();
        let done = host.rename(W, b"foo", b"bar", Rename::Replace);
        host.sync_dir(F, b"").unwrap();
        (done.is_ok(), trees(&world))
    };
    assert_eq!(rename(MutationKind::DropWrite), (true, these(["foo"])));
    assert_eq!(rename(MutationKind::DelayWrite), (true, these(["foo", "bar=foo"])));
    assert_eq!(rename(MutationKind::Fail(rustix::io::Errno::IO)), (false, these(["foo"])));
    let world = world(broken(disk(), F, MutationKind::DropOrder));
    world.host().mkdir(W, b"C", 0o700).unwrap();
    world.host().sync_dir(F, b"").unwrap();
    assert_eq!(trees(&world), these(["", "C/"]));
}

/// As ext4 does: the lowest number that is free comes next, and only the time of birth tells the two objects apart.
#[test]
fn an_inode_number_is_used_again() {
    for (model, again) in [(HostModel::Weak, false), (HostModel::Ext4Ordered, true), (HostModel::Synchronous, true)] {
        let world = world(SimConfig { host: model, ..disk() });
        let host = world.host();
        let number = |path: &[u8]| host.stat(path).map(|stat| (stat.ino, stat.btime_ns)).unwrap();
        host.create(W, b"a", 0o600).unwrap();
        host.mkdir(W, b"d", 0o700).unwrap();
        let (file, dir) = (number(b"a"), number(b"d"));
        // Not as long as somebody has it open.
        let open = host.open(b"a", false).unwrap();
        host.unlink(W, b"a").unwrap();
        host.create(W, b"b", 0o600).unwrap();
        assert_ne!(number(b"b").0, file.0, "{model:?}");
        drop(open);
        host.rmdir(W, b"d").unwrap();
        for (path, old) in [(b"c", file), (b"e", dir)] {
            host.create(W, path, 0o600).unwrap();
            assert_eq!(number(path).0 == old.0, again, "{model:?}");
            assert_ne!(number(path), old, "{model:?}");
        }
        // In no state have two names that are not of one object the same number.
        let inodes = |image: &Image| {
            let host = World::from_image(image, disk()).host();
            let mut all: Vec<u64> = host.read_dir(b"").unwrap().into_iter().map(|entry| entry.ino).collect();
            all.sort_unstable();
            all.windows(2).all(|pair| pair[0] != pair[1])
        };
        assert_eq!(seen(&world, inodes), set([true]), "{model:?}");
        // The next process may use all that are free.
        host.sync_all(F).unwrap();
        host.unlink(W, b"b").unwrap();
        let lost = number(b"c").0;
        host.unlink(W, b"c").unwrap();
        host.sync_all(F).unwrap();
        let next = World::from_image(&world.kill(), disk()).host();
        (0..8).for_each(|n| _ = next.create(W, &[b'x', b'0' + n], 0o600).unwrap());
        let numbers: Vec<u64> = next.read_dir(b"").unwrap().into_iter().map(|entry| entry.ino).collect();
        assert!(numbers.contains(&lost), "{model:?}: {numbers:?} without {lost}");
    }
}

/// What is put off comes before the next sync, in the order of the calls; what is two calls is seen in between.
#[test]
fn calls_that_come_late_and_calls_that_are_two() {
    let broken = |kind| SimConfig { mutations: vec![Mutation::new(LATE, kind)], ..disk() };
    const LATE: Site = Site("late");
    let world = world(broken(MutationKind::Late));
    let host = world.host();
    host.create(W, b"a", 0o600).unwrap();
    host.set_mode(LATE, b"a", 0o640).unwrap();
    host.rename(W, b"a", b"b", Rename::Replace).unwrap();
    assert_eq!(host.stat(b"b").unwrap().mode & 0o777, 0o600);
    host.sync_all(F).unwrap();
    assert_eq!(host.stat(b"b").unwrap().mode & 0o777, 0o640);
    assert_eq!(seen(&world, |image| image.names()[0].mode & 0o777), set([0o640]));

    let world = World::new(broken(MutationKind::Split));
    let host = world.host();
    host.create(W, b"a", 0o600).unwrap();
    host.create(W, b"b", 0o600).unwrap();
    let from = world.now();
    host.rename(LATE, b"a", b"b", Rename::Replace).unwrap();
    let mut looks = Vec::new();
    world.trace().watch(|point, image| {
        if point > from {
            looks.push(image.paths().into_iter().map(|(path, _)| path).collect::<Vec<_>>());
        }
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(looks, [vec![b"a".to_vec()], vec![b"b".to_vec()]]);
}
