//! Enumeration, replay, caps, mutations, coverage, reads, faults, tables.

use super::*;
use rustix::io::Errno;
use wholly_media::Error;

fn words(n: u64) -> Arc<World> {
    let world = world(pmem());
    for i in 0..n {
        world.log().write(W, 8 * i, &[1; 8]).unwrap();
    }
    world
}

fn explore(world: &World, limits: &ExploreLimits) -> (Exploration, Vec<(Choice, u64)>) {
    let mut made = Vec::new();
    let done = world.trace().point(world.now()).for_each_image(limits, |choice, image| {
        made.push((choice.clone(), image.hash()));
        ControlFlow::Continue(())
    });
    (done, made)
}

#[test]
fn all_combinations_are_made_once() {
    for n in 0..=10 {
        let (done, made) = explore(&words(n), &ExploreLimits::default());
        assert!(done.exhaustive);
        assert_eq!((done.images, done.combinations), (1 << n, 1 << n));
        assert_eq!(made.iter().map(|(_, hash)| hash).collect::<BTreeSet<_>>().len(), 1 << n, "all different");
    }
    // Versions of one unit are digits: three words with 4, 2 and 2 versions.
    let world = words(3);
    world.log().write(W, 0, &[2; 8]).unwrap();
    world.log().write(W, 0, &[3; 8]).unwrap();
    let (done, made) = explore(&world, &ExploreLimits::default());
    assert_eq!(done.images, 16);
    assert_eq!(made.iter().map(|(_, hash)| hash).collect::<BTreeSet<_>>().len(), 16);
}

#[test]
fn beyond_the_limit_none_all_events_ones_pairs_and_samples_are_made_and_caps_told() {
    let world = words(20);
    let limits = ExploreLimits { samples: 100, ..ExploreLimits::default() };
    let (done, made) = explore(&world, &limits);
    assert!(!done.exhaustive);
    assert_eq!(done.combinations, 1 << 20);
    // Each word is what one event wrote.
    let (ends, events, ones) = (2, 2 * 20, 2 * 20);
    assert_eq!(done.images, ends + events + ones + 20 * 19 + 100);
    assert_eq!((done.samples, done.pairs_left_out, done.focus_left_out), (100, 0, 0));
    assert_eq!(made.len() as u64, done.images);

    let (done, _) = explore(&world, &ExploreLimits { pair_units: 10, ..limits.clone() });
    assert_eq!(done.images, ends + events + ones + 100);
    assert_eq!(done.pairs_left_out, 20 * 19);
    let (done, _) = explore(&world, &ExploreLimits { single_units: 10, pair_units: 10, ..limits.clone() });
    assert_eq!((done.images, done.singles_left_out), (ends + events + 100, 20));

    let (done, _) = explore(&world, &ExploreLimits { pair_units: 10, focus: vec![1, 2, 3], ..limits.clone() });
    assert_eq!(done.images, ends + events + ones + 100 + 2 * 8);
    let (done, _) = explore(&world, &ExploreLimits { focus_bits: 2, focus: vec![1, 2, 3], ..limits });
    assert_eq!(done.focus_left_out, 4);

    let mut tally = Tally::default();
    tally.add(&Exploration { images: 5, pairs_left_out: 380, ..Exploration::default() });
    let text = tally.to_string();
    assert!(text.contains("1 points sampled") && text.contains("pairs capped at 1 points (380 left out)"), "{text}");
}

#[test]
fn a_choice_rebuilds_its_image() {
    let world = words(18);
    world.log().write(W, 0, &[2; 8]).unwrap();
    named_file(&world);
    let limits = ExploreLimits { samples: 50, focus: vec![0, 5], pair_units: 30, ..ExploreLimits::default() };
    let (_, made) = explore(&world, &limits);
    let (_, few) = explore(&words(4), &limits);
    let (trace, small) = (world.trace(), words(4).trace());
    let (at, at_small) = (trace.point(world.now()), small.point(4));
    for (choice, hash) in made {
        let choice: Choice = choice.to_string().parse().unwrap();
        assert_eq!(at.image_of(&choice).hash(), hash, "{choice}");
    }
    for (choice, hash) in few {
        assert_eq!(at_small.image_of(&choice).hash(), hash, "{choice}");
    }
}

/// A file's unsynced page, length, times and name.
fn named_file(world: &Arc<World>) {
    let host = world.host();
    let file = host.create_unnamed(W, b"", 0o600).unwrap();
    file.write_at(W, 0, b"data").unwrap();
    host.link(W, &*file, b"a").unwrap();
}

#[test]
fn walking_is_the_same_as_seeking() {
    let world = words(4);
    world.log().fence(F).unwrap();
    named_file(&world);
    world.host().sync_all(F).unwrap();
    let trace = world.trace();
    let mut walker = Explorer::new(&trace);
    loop {
        let all: Choice = format!("p{}:all", walker.index()).parse().unwrap();
        assert_eq!(walker.point().image_of(&all).hash(), trace.image_of(&all).hash());
        assert_eq!(walker.point().units(), trace.point(walker.index()).units());
        if !walker.advance() {
            break;
        }
    }
    assert_eq!(walker.index(), trace.events.len() as u64);
    walker.seek(2);
    assert_eq!(walker.point().units(), 2);
}

#[test]
fn the_hash_is_of_the_content_whatever_its_history() {
    let one = words(2);
    one.log().fence(F).unwrap();
    let other = world(pmem());
    other.log().write(W, 0, &[7; 24]).unwrap();
    other.log().write(W, 0, &[1; 16]).unwrap();
    other.log().write(W, 16, &[0; 8]).unwrap();
    assert_eq!(one.latest().hash(), other.latest().hash());
    other.log().write(W, 4000, &[1]).unwrap();
    assert_ne!(one.latest().hash(), other.latest().hash());
}

#[test]
fn the_callback_may_stop() {
    let done = words(8).trace().point(8).for_each_image(&ExploreLimits::default(), |_, _| ControlFlow::Break(()));
    assert_eq!((done.images, done.stopped), (1, true));
}

const ONE: Site = Site("test.one");
const TWO: Site = Site("test.two");

fn two_sites(config: SimConfig) -> BTreeSet<(u8, u8)> {
    let world = world(config);
    let log = world.log();
    log.write(ONE, 0, &[1; 8]).unwrap();
    log.fence(Site("fence.one")).unwrap();
    log.write(TWO, 512, &[1; 8]).unwrap();
    log.fence(Site("fence.two")).unwrap();
    seen(&world, |image| (log_byte(image, 0), log_byte(image, 512)))
}

#[test]
fn a_mutation_breaks_exactly_one_site() {
    use MutationKind::*;
    assert_eq!(two_sites(pmem()), set([(1, 1)]));
    assert_eq!(two_sites(broken(pmem(), Site("fence.two"), DropOrder)), set([(1, 0), (1, 1)]));
    // The later fence of the thread covers what the dropped one left.
    assert_eq!(two_sites(broken(pmem(), Site("fence.one"), DropOrder)), set([(1, 1)]));
    assert_eq!(two_sites(broken(pmem(), ONE, DropWrite)), set([(0, 1)]));
    assert_eq!(two_sites(broken(pmem(), TWO, DropWrite)), set([(1, 0)]));
    assert_eq!(two_sites(broken(pmem(), TWO, DelayWrite)), set([(1, 0), (1, 1)]));
    // Delayed past the first fence, drained by the second.
    assert_eq!(two_sites(broken(pmem(), ONE, DelayWrite)), set([(1, 1)]));
    assert_eq!(two_sites(broken(pmem(), Site("other"), DropOrder)), set([(1, 1)]));
}

#[test]
fn a_dropped_write_through_stays_pending_until_a_sync() {
    let world = world(broken(disk(), ONE, MutationKind::DropOrder));
    world.log().write_through(ONE, 0, &[1; 512]).unwrap();
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([0, 1]));
    world.log().fence(F).unwrap();
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([1]));
}

#[test]
fn a_dropped_sync_syncs_nothing() {
    for (site, survivors) in [("file", 3), ("dir", 2), ("other", 1)] {
        let world = world(broken(disk(), Site(site), MutationKind::DropOrder));
        let host = world.host();
        let file = host.create_unnamed(W, b"", 0o600).unwrap();
        file.write_at(W, 0, b"data").unwrap();
        host.link(W, &*file, b"a").unwrap();
        file.sync(Site("file")).unwrap();
        host.sync_dir(Site("dir"), b"").unwrap();
        assert_eq!(seen(&world, |image| image.read(&Place::file("a"))).len(), survivors, "{site}");
    }
    let world = world(broken(disk(), Site("all"), MutationKind::DropOrder));
    named_file(&world);
    world.host().sync_all(Site("all")).unwrap();
    assert_eq!(seen(&world, |image| image.read(&Place::file("a"))).len(), 4);
}

#[test]
fn a_call_can_be_made_to_fail_once() {
    let mutation = Mutation { site: F, kind: MutationKind::Fail(Errno::IO), nth: Some(1) };
    let world = world(SimConfig { mutations: vec![mutation], ..pmem() });
    let log = world.log();
    log.fence(F).unwrap();
    log.write(W, 0, &[1; 8]).unwrap();
    assert_eq!(log.fence(F), Err(Error::new("fence", "log 0+0", Errno::IO)));
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([0, 1]));
    log.fence(F).unwrap();
}

#[test]
fn coverage_tells_sites_seen_and_sites_crashed_at() {
    let world = words(2);
    world.log().fence(F).unwrap();
    let trace = world.trace();
    let mut explorer = Explorer::new(&trace);
    assert_eq!(explorer.coverage().without_crash(), [F, W]);
    explorer.seek(1);
    explorer.for_each_image(&ExploreLimits::default(), |_, _| ControlFlow::Continue(()));
    assert_eq!(explorer.coverage().without_crash(), [F]);
    let seen = explorer.coverage().sites[&W];
    assert_eq!((seen.events, seen.points, seen.images), (2, 1, 2));
    assert_eq!((explorer.tally().points, explorer.tally().images), (1, 2));
}

#[test]
fn the_fingerprint_is_of_what_was_read() {
    let trace = words(2).trace();
    let (mut first, mut second) = (BTreeSet::new(), BTreeSet::new());
    for image in images_at(&trace, 2) {
        let world = World::from_image(&image, pmem());
        world.track_reads();
        let mut byte = [0];
        world.log().read(1, &mut byte).unwrap();
        first.insert(world.read_fingerprint());
        let before = world.read_fingerprint();
        world.log().read(7, &mut byte).unwrap();
        assert_eq!(world.read_fingerprint(), before, "a word counts once");
        if byte[0] == 1 {
            world.log().read(8, &mut byte).unwrap();
            assert_eq!(world.reads().words(), 2);
        }
        second.insert(world.read_fingerprint());
        let read = trace.point(2).units_read(&world.reads());
        assert_eq!(read.len() as u64, world.reads().words());
    }
    assert_eq!(first.len(), 2, "four images, two of which differ in what was read");
    assert_eq!(second.len(), 3);
}

#[test]
fn what_was_read_is_told_in_ranges_of_words() {
    let world = world(pmem());
    world.add_file("a", b"0123456789abc");
    let image = world.latest();
    world.track_reads();
    for (offset, bytes) in [(20, 4), (8, 9), (100, 1)] {
        world.log().read(offset, &mut vec![0; bytes]).unwrap();
    }
    world.host().open(b"a", false).unwrap().read_at(0, &mut [0; 13]).unwrap();
    let ranges = [(Place::Log, 8..24), (Place::Log, 96..104), (Place::file("a"), 0..13)];
    assert_eq!(image.ranges_read(&world.reads()), ranges);
}

#[test]
fn names_and_stats_are_read_too() {
    let run = |setup: &dyn Fn(&World)| {
        let world = world(pmem());
        setup(&world);
        world.track_reads();
        let _ = world.host().stat(b"a");
        world.read_fingerprint()
    };
    let prints = [run(&|_| ()), run(&|w| w.add_file("a", b"")), run(&|w| w.add_file("a", b"x"))];
    assert_eq!(set(prints).len(), 3);
    assert_eq!(run(&|w| w.add_file("b", b"")), prints[0]);
}

#[test]
fn faults_can_be_put_into_an_image() {
    let world = world(pmem());
    world.add_file("a", b"0123456789abcdef");
    let clean = world.latest();
    let a = Place::file("a");

    let mut rotten = clean.clone();
    rotten.flip_bit(&a, 1, 7);
    assert_eq!(rotten.read(&a).unwrap()[1], b'1' ^ 0x80);
    assert_ne!(rotten.hash(), clean.hash());
    rotten.flip_bit(&a, 1, 7);
    assert_eq!(rotten.hash(), clean.hash());

    let mut swapped = clean.clone();
    swapped.swap((&a, 0), (&Place::Log, 64), 8);
    assert_eq!(swapped.read(&a).unwrap(), b"\0\0\0\0\0\0\0\089abcdef");
    assert_eq!(&swapped.read(&Place::Log).unwrap()[64..72], b"01234567");

    let mut lost = clean.clone();
    lost.misdirect((&a, 0), (&a, 8), 8);
    assert_eq!(lost.read(&a).unwrap(), b"0123456701234567");

    let mut bad = clean.clone();
    bad.fail_reads(&Place::Log, 512..1024);
    let world = World::from_image(&bad, pmem());
    let log = world.log();
    let mut buf = [0; 8];
    log.read(504, &mut buf).unwrap();
    assert_eq!(log.read(505, &mut buf).unwrap_err().errno, Errno::IO);
    log.write(W, 512, &[1; 512]).unwrap();
    log.read(505, &mut buf).unwrap();
}

#[test]
fn the_table_tells_what_was_kept_and_what_was_lost() {
    let world = world(pmem());
    world.add_file("a", &[0; 64]);
    world.mark(Mark::Begin { op: 7, label: "write a".into() });
    world.log().write(Site("log.append"), 0, &[1; 8]).unwrap();
    world.log().fence(Site("log.fence")).unwrap();
    let map = world.host().open(b"a", true).unwrap().map(64).unwrap().unwrap();
    map.write(Site("home.write"), 8, &[1; 16]).unwrap();
    world.log().write(Site("log.retire"), 0, &[2; 8]).unwrap();
    let trace = world.trace();
    let rows = trace.timeline(0..5, None).rows;
    assert_eq!((rows[1].state, rows[1].durable_by), (RowState::Durable, Some(2)));
    assert_eq!((rows[3].state, rows[3].durable_by), (RowState::Pending(2), None));
    assert_eq!(trace.timeline(3..5, None).rows, rows[3..]);
    assert_eq!((rows[3].op, rows[3].op_label.as_str(), rows[3].place.as_str()), (Some(7), "write a", "a"));
    let choice: Choice = "p5:set:1".parse().unwrap();
    let rows = trace.timeline(0..5, Some(&choice)).rows;
    assert_eq!(rows[3].state, RowState::Torn { survived: 1, lost: 1 });
    assert_eq!(rows[4].state, RowState::Lost(1));
    let table = trace.table(&choice, 100);
    for part in ["home.write", "TORN (1 of 2)", "LOST (1)", "durable", "crash at p5:set:1, 3 units pending"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let widest = |width| trace.table(&choice, width).lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest(72) <= 72 && widest(200) > 72, "{}", trace.table(&choice, 72));
}

/// A store and the fence after it change places, as do a fence and the store after it, of one thread. What nothing
/// comes after is not made.
#[test]
fn steps_that_come_late_change_places() {
    const STORE: Site = Site("store");
    let run = |late: Site| {
        let world = world(broken(pmem(), late, MutationKind::Late));
        let log = world.log();
        log.write(STORE, 0, &[1; 8]).unwrap();
        on_thread(1, || log.fence(W)).unwrap();
        log.fence(F).unwrap();
        log.write(Site("next"), 8, &[1; 8]).unwrap();
        world
    };
    let both = |image: &Image| (log_byte(image, 0), log_byte(image, 8));
    let at = |late: Site, point: u64| seen_at(&run(late), point, both);
    // Fences of the other thread, of this one, then the store: each word by itself.
    assert_eq!(at(STORE, 2), set([(0, 0)]));
    assert_eq!(seen(&run(STORE), both), set([(0, 0), (1, 0), (0, 1), (1, 1)]));
    // Both stores, then the fence.
    assert_eq!(at(F, 3), set([(0, 0), (1, 0), (0, 1), (1, 1)]));
    assert_eq!(seen(&run(F), both), set([(1, 1)]));
    // Nothing comes after it.
    assert_eq!(seen(&run(Site("next")), both), set([(1, 0)]));
}

/// The same on a disk, where stores may be durable when they return.
#[test]
fn steps_of_a_disk_that_come_late_change_places() {
    let run = |late: Site| {
        let world = world(broken(disk(), late, MutationKind::Late));
        let log = world.log();
        log.write(W, 0, &[1; 512]).unwrap();
        log.fence(F).unwrap();
        log.write_through(ONE, 512, &[1; 512]).unwrap();
        log.fence(Site("last")).unwrap();
        world
    };
    let both = |image: &Image| (log_byte(image, 0), log_byte(image, 512));
    // The fence comes when the other store has returned.
    assert_eq!(seen_at(&run(F), 3, both), set([(0, 1), (1, 1)]));
    assert_eq!(seen_at(&run(ONE), 3, both), set([(1, 0)]));
    assert_eq!(seen(&run(ONE), both), set([(1, 1)]));
}

/// A word or a sector is stored in halves, one after the other.
#[test]
fn a_store_that_is_two_tears_where_the_medium_does_not() {
    let halves = |config: SimConfig, unit: u64, through: bool| {
        let world = world(broken(config, ONE, MutationKind::Split));
        let (log, data) = (world.log(), vec![1; 2 * unit as usize]);
        if through { log.write_through(ONE, 0, &data) } else { log.write(ONE, 0, &data) }.unwrap();
        let at = move |image: &Image, half: u64| log_byte(image, (half * unit / 2) as usize);
        let all =
            (0..=world.now()).flat_map(|point| seen_at(&world, point, |image| [0, 1, 2, 3].map(|i| at(image, i))));
        all.collect::<BTreeSet<_>>()
    };
    let (none, all) = ([0; 4], [1; 4]);
    let each = set([
        none,
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 0, 1, 0],
        [1, 1, 1, 0],
        [0, 0, 1, 1],
        [1, 0, 1, 1],
        all,
    ]);
    assert_eq!(halves(pmem(), 8, false), each);
    assert_eq!(halves(disk(), 512, false), each);
    assert_eq!(halves(disk(), 512, true), set([none, [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], all]));
}
