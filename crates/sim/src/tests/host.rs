//! The host file system: pages, lengths, names, and three models of what a crash keeps of them.

use super::*;
use rustix::io::Errno;
use wholly_host::{HostFile, HostFs};

fn host(model: HostModel) -> (Arc<World>, Arc<dyn HostFs>) {
    let world = world(SimConfig { host: model, ..disk() });
    world.add_dir("d");
    let host = world.host();
    (world, host)
}

fn file(image: &Image, path: &str) -> Option<Vec<u8>> {
    image.read(&Place::file(path))
}

fn created(host: &Arc<dyn HostFs>) -> Arc<dyn HostFile> {
    let file = host.create_unnamed(W, b"d", 0o600).unwrap();
    file.write_at(W, 0, b"data").unwrap();
    file
}

#[test]
fn weak_name_length_and_data_survive_each_by_itself() {
    let (world, host) = host(HostModel::Weak);
    let new = created(&host);
    host.link(W, &*new, b"d/a").unwrap();
    let all = set([None, Some(vec![]), Some(vec![0; 4]), Some(b"data".to_vec())]);
    assert_eq!(seen(&world, |image| file(image, "d/a")), all);
    // Nothing is left of the file where its name is lost.
    assert_eq!(seen(&world, Image::hash).len(), all.len());
    // The directory's sync is for the name only.
    host.sync_dir(F, b"d").unwrap();
    assert_eq!(seen(&world, |image| file(image, "d/a")), set([Some(vec![]), Some(vec![0; 4]), Some(b"data".to_vec())]));
    new.sync(F).unwrap();
    assert_eq!(seen(&world, |image| file(image, "d/a")), set([Some(b"data".to_vec())]));
}

#[test]
fn weak_a_files_sync_is_not_for_its_name() {
    let (world, host) = host(HostModel::Weak);
    let new = created(&host);
    host.link(W, &*new, b"d/a").unwrap();
    new.sync(F).unwrap();
    assert_eq!(seen(&world, |image| file(image, "d/a")), set([None, Some(b"data".to_vec())]));
}

#[test]
fn a_file_without_a_durable_name_is_gone() {
    let (world, host) = host(HostModel::Weak);
    let new = created(&host);
    new.sync(F).unwrap();
    let before = images_at(&world.trace(), 0)[0].hash();
    assert_eq!(seen(&world, Image::hash), set([before]));
    // What nobody can reach is not counted as a state.
    new.write_at(W, 0, &[1; 40_000]).unwrap();
    assert_eq!(world.trace().point(world.now()).units(), 0);
}

#[test]
fn pages_of_a_file_survive_each_by_itself() {
    let (world, host) = host(HostModel::Weak);
    let new = created(&host);
    new.write_at(W, 0, &[0; 8192]).unwrap();
    host.link(W, &*new, b"a").unwrap();
    host.sync_all(F).unwrap();
    new.write_at(W, 4000, &[1; 200]).unwrap();
    let parts = |image: &Image| {
        let a = file(image, "a").unwrap();
        (a[4000], a[4095], a[4096], a[4199])
    };
    assert_eq!(seen(&world, parts), set([(0, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1)]));
}

#[test]
fn sectors_of_a_page_survive_each_by_itself_where_pages_are_sectors() {
    let world = world(SimConfig { home_page: 512, ..disk() });
    world.add_file("a", &[0; 4096]);
    assert_eq!(world.host().guarantees().atomic_unit, 512);
    world.host().open(b"a", true).unwrap().write_at(W, 0, &[1; 1024]).unwrap();
    assert_eq!(seen(&world, |image| (file(image, "a").unwrap()[0], file(image, "a").unwrap()[512])).len(), 4);
}

#[test]
fn a_cut_takes_bytes_away_for_good() {
    let (world, host) = host(HostModel::Weak);
    let new = created(&host);
    host.link(W, &*new, b"a").unwrap();
    host.sync_all(F).unwrap();
    new.set_len(W, 2).unwrap();
    new.set_len(W, 4).unwrap();
    assert_eq!(
        seen(&world, |image| file(image, "a").unwrap()),
        set([b"data".to_vec(), b"da".to_vec(), b"da\0\0".to_vec()])
    );
    new.write_at(W, 3, b"!").unwrap();
    // The page is written after the cut, or without it.
    assert_eq!(
        seen(&world, |image| file(image, "a").unwrap()),
        set([&b"data"[..], b"da", b"da\0\0", b"dat!", b"da\0!"].map(<[u8]>::to_vec))
    );
    new.sync(F).unwrap();
    assert_eq!(seen(&world, |image| file(image, "a").unwrap()), set([b"da\0!".to_vec()]));
}

#[test]
fn bytes_that_are_kept_keep_the_cut_before_them() {
    for model in [HostModel::Weak, HostModel::Ext4Ordered] {
        let world = world(SimConfig { host: model, ..pmem() });
        world.add_file("a", &[1; 24]);
        let a = world.host().open(b"a", true).unwrap();
        a.set_len(W, 2).unwrap();
        a.set_len(W, 24).unwrap();
        let map = a.map(24).unwrap().unwrap();
        map.write(W, 8, &[2; 8]).unwrap();
        map.fence(F).unwrap();
        let parts = |image: &Image| {
            let a = file(image, "a").unwrap();
            (a.len(), a[0], a.get(8).copied(), a.get(16).copied())
        };
        assert_eq!(seen(&world, parts), set([(2, 1, None, None), (24, 1, Some(2), Some(0))]));
        a.sync(F).unwrap();
        assert_eq!(seen(&world, parts), set([(24, 1, Some(2), Some(0))]));
    }
}

#[test]
fn bytes_stored_beyond_the_durable_length_wait_for_the_length() {
    let world = world(pmem());
    world.add_file("a", &[1; 8]);
    let a = world.host().open(b"a", true).unwrap();
    a.set_len(W, 16).unwrap();
    a.allocate(W, 0, 16).unwrap();
    let map = a.map(16).unwrap().unwrap();
    map.write(W, 8, &[2; 8]).unwrap();
    map.fence(F).unwrap();
    let (short, long) = ([1; 8].to_vec(), [[1; 8], [2; 8]].concat());
    assert_eq!(seen(&world, |image| file(image, "a").unwrap()), set([short, long.clone()]));
    a.sync(F).unwrap();
    assert_eq!(seen(&world, |image| file(image, "a").unwrap()), set([long]));
}

#[test]
fn ext4_names_and_lengths_survive_as_a_prefix() {
    let (world, host) = host(HostModel::Ext4Ordered);
    let (a, b) = (created(&host), created(&host));
    host.link(W, &*a, b"d/a").unwrap();
    host.link(W, &*b, b"b").unwrap();
    a.set_len(W, 2).unwrap();
    let data = || Some(b"data".to_vec());
    // Not among them: b without a, a shorter a without b, and a name without the data that its length shows.
    let all = set([(None, None), (data(), None), (data(), data()), (Some(b"da".to_vec()), data())]);
    assert_eq!(seen(&world, |image| (file(image, "d/a"), file(image, "b"))), all);
}

#[test]
fn ext4_data_of_new_blocks_comes_before_the_length_that_shows_them() {
    let (world, host) = host(HostModel::Ext4Ordered);
    let new = created(&host);
    host.link(W, &*new, b"a").unwrap();
    host.sync_all(F).unwrap();
    new.write_at(W, 4096, &[1; 8]).unwrap();
    let tail = |image: &Image| file(image, "a").unwrap().get(4096).copied();
    assert_eq!(seen(&world, tail), set([None, Some(1)]));
    // An overwrite of the block, and the bytes that a growing write puts into a block which the file had before.
    new.write_at(W, 4096, &[2; 16]).unwrap();
    assert_eq!(seen(&world, tail), set([None, Some(1), Some(2)]));
    new.sync(F).unwrap();
    new.write_at(W, 4096 + 16, &[3; 8]).unwrap();
    assert_eq!(seen(&world, |image| file(image, "a").unwrap().get(4096 + 16).copied()), set([None, Some(0), Some(3)]));
}

#[test]
fn ext4_only_new_blocks_beyond_the_old_end_come_with_the_length() {
    let (world, host) = host(HostModel::Ext4Ordered);
    let new = created(&host);
    host.link(W, &*new, b"a").unwrap();
    // A block set aside beyond the end, and a hole before it.
    new.set_len(W, 8192).unwrap();
    new.allocate(W, 8192, 4096).unwrap();
    host.sync_all(F).unwrap();
    new.write_at(W, 4096, &[1; 8192]).unwrap();
    let parts = |image: &Image| {
        let a = file(image, "a").unwrap();
        (a[4096], a.get(8192).copied())
    };
    let all = [(0, None), (1, None), (0, Some(0)), (0, Some(1)), (1, Some(0)), (1, Some(1))];
    assert_eq!(seen(&world, parts), set(all));
}

#[test]
fn ext4_samples_keep_the_rule_too() {
    let (world, host) = host(HostModel::Ext4Ordered);
    let new = host.create_unnamed(W, b"d", 0o600).unwrap();
    new.write_at(W, 0, &[1; 20_000]).unwrap();
    host.link(W, &*new, b"a").unwrap();
    let limits = ExploreLimits { exhaustive_bits: 1, samples: 50, ..ExploreLimits::default() };
    let done = world.trace().point(world.now()).for_each_image(&limits, |choice, image| {
        assert!(file(image, "a").is_none_or(|a| a == [1; 20_000]), "{choice}");
        ControlFlow::Continue(())
    });
    assert!(!done.exhaustive && done.samples == 50);
}

#[test]
fn a_sync_of_all_does_not_cover_the_log() {
    let (world, host) = host(HostModel::Weak);
    world.log().write(W, 0, &[1; 8]).unwrap();
    host.sync_all(F).unwrap();
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([0, 1]));
}

#[test]
fn ext4_a_sync_commits_the_journal_up_to_its_object() {
    let (world, host) = host(HostModel::Ext4Ordered);
    let (a, b, c) = (created(&host), created(&host), created(&host));
    host.link(W, &*a, b"d/a").unwrap();
    host.link(W, &*b, b"b").unwrap();
    host.link(W, &*c, b"d/c").unwrap();
    b.sync(F).unwrap();
    let names = |image: &Image| image.paths().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    let with = |more: &[&str]| more.iter().map(|s| s.as_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(seen(&world, names), set([with(&["b", "d", "d/a"]), with(&["b", "d", "d/a", "d/c"])]));
    // The data of a new block goes with the journal, although its own file was not synced.
    assert_eq!(seen(&world, |image| file(image, "d/a")), set([Some(b"data".to_vec())]));
}

#[test]
fn synchronous_calls_are_durable_when_they_return_and_not_before() {
    let (world, host) = host(HostModel::Synchronous);
    let new = created(&host);
    host.link(W, &*new, b"a").unwrap();
    let link = world.now() - 1;
    assert_eq!(seen_at(&world, link, |image| file(image, "a")), set([None, Some(b"data".to_vec())]));
    assert_eq!(seen(&world, |image| file(image, "a")), set([Some(b"data".to_vec())]));
    new.write_at(W, 0, &[1; 8192]).unwrap();
    assert_eq!(seen(&world, |image| file(image, "a")), set([Some(vec![1; 8192])]));
    assert!(seen_at(&world, world.now() - 1, |image| file(image, "a")).len() > 4);
}

#[test]
fn times_are_lost_like_lengths() {
    let world = world(SimConfig { times: true, ..disk() });
    world.add_file("a", &[0; 8]);
    let host = world.host();
    let old = host.stat(b"a").unwrap().mtime_ns;
    host.open(b"a", true).unwrap().write_at(W, 0, &[1]).unwrap();
    let new = host.stat(b"a").unwrap().mtime_ns;
    assert!(new > old);
    let time = |image: &Image| World::from_image(image, disk()).host().stat(b"a").unwrap().mtime_ns;
    assert_eq!(seen(&world, time), set([old, new]));
}

#[test]
fn the_last_change_is_the_later_one_whichever_unit_has_it() {
    let world = world(SimConfig { times: true, ..disk() });
    let host = world.host();
    let new = host.create_unnamed(W, b"", 0o600).unwrap();
    new.write_at(W, 0, b"data").unwrap();
    host.link(W, &*new, b"a").unwrap();
    let all = |world: &World| world.trace().image_of(&Choice { point: world.now(), pick: Pick::All }).hash();
    assert_eq!(all(&world), world.latest().hash());
    host.sync_dir(F, b"").unwrap();
    assert_eq!(all(&world), world.latest().hash());
    new.write_at(W, 0, b"more").unwrap();
    assert_eq!(all(&world), world.latest().hash());
}

#[test]
fn allocation_is_lost_unless_synced() {
    let world = world(pmem());
    world.add_file("a", &[]);
    let host = world.host();
    let a = host.open(b"a", true).unwrap();
    a.set_len(W, 4096).unwrap();
    a.sync(F).unwrap();
    a.allocate(W, 0, 4096).unwrap();
    let blocks = |image: &Image| World::from_image(image, pmem()).host().stat(b"a").unwrap().allocated;
    assert_eq!(seen(&world, blocks), set([0, 4096]));
    a.sync(F).unwrap();
    assert_eq!(seen(&world, blocks), set([4096]));
}

#[test]
fn calls_fail_as_a_directorys_do() {
    let (_world, host) = host(HostModel::Weak);
    let new = created(&host);
    host.link(W, &*new, b"d/a").unwrap();
    let error = |result: wholly_media::Result<()>| result.unwrap_err().errno;
    assert_eq!(error(host.link(W, &*new, b"d/a")), Errno::EXIST);
    assert_eq!(error(host.link(W, &*new, b"none/a")), Errno::NOENT);
    assert_eq!(error(host.open(b"d/../../x", true).map(drop)), Errno::XDEV);
    assert_eq!(error(host.open(b"d/a/b", true).map(drop)), Errno::NOTDIR);
    assert_eq!(error(host.open(b"d", true).map(drop)), Errno::ISDIR);
    assert_eq!(error(host.stat(b"none").map(drop)), Errno::NOENT);
    assert_eq!(error(host.sync_dir(F, b"d/a")), Errno::NOTDIR);
    assert_eq!(error(host.open(b"d/a", false).unwrap().write_at(W, 0, b"x")), Errno::BADF);
    let (_other, elsewhere) = self::host(HostModel::Weak);
    assert_eq!(error(elsewhere.link(W, &*new, b"x")), Errno::XDEV);
    let mut buf = [0; 9];
    assert_eq!(host.open(b"d/a", false).unwrap().read_at(1, &mut buf).unwrap(), 3);
    assert_eq!(host.stat(b"").unwrap().mode & 0o170_000, 0o040_000);
}
