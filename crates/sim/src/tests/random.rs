//! Random histories under every model: what a process sees against plain vectors, and what must hold of every image.

use super::super::hash::Random;
use super::*;
use wholly_host::HostFile;
use wholly_media::PersistenceDomain;

/// A file, and what it should hold.
struct Plain {
    file: Arc<dyn HostFile>,
    path: Option<String>,
    bytes: Vec<u8>,
}

fn history(seed: u64, config: SimConfig) -> (Arc<World>, Vec<Plain>, Vec<u8>) {
    let world = world(config);
    world.add_dir("d");
    world.add_file("old", &[5; 5000]);
    let (log, host) = (world.log(), world.host());
    let mut log_bytes = vec![0; log.len() as usize];
    let old = Plain { file: host.open(b"old", true).unwrap(), path: Some("old".into()), bytes: vec![5; 5000] };
    let mut files = vec![old];
    let mut random = Random(seed);
    for n in 0..60 {
        LOGICAL.set(random.below(3));
        let value = random.draw() as u8;
        let which = random.below(files.len() as u64) as usize;
        match random.below(14) {
            0..=2 => {
                let at = random.below(4000) as usize;
                let len = 1 + random.below(40) as usize;
                log.write(W, at as u64, &vec![value; len]).unwrap();
                log_bytes[at..at + len].fill(value);
            }
            3 => {
                log.write_through(W, 2048, &[value; 512]).unwrap();
                log_bytes[2048..2560].fill(value);
            }
            4 => log.fence(F).unwrap(),
            5 => {
                let len = 4096 + random.below(3) as usize * 512;
                log.set_len(W, len as u64).unwrap();
                log_bytes.resize(len, 0);
            }
            6 => {
                let file = host.create_unnamed(W, b"d", 0o600).unwrap();
                files.push(Plain { file, path: None, bytes: Vec::new() });
            }
            7 | 8 => {
                let plain = &mut files[which];
                let (at, len) = (random.below(9000) as usize, 1 + random.below(300) as usize);
                plain.file.write_at(W, at as u64, &vec![value; len]).unwrap();
                plain.bytes.resize(plain.bytes.len().max(at + len), 0);
                plain.bytes[at..at + len].fill(value);
            }
            9 => {
                let plain = &mut files[which];
                let len = random.below(9000);
                plain.file.set_len(W, len).unwrap();
                plain.bytes.resize(len as usize, 0);
            }
            10 => {
                let plain = &mut files[which];
                let (at, len) = (random.below(6000), 1 + random.below(40));
                if (at + len) as usize <= plain.bytes.len() {
                    plain.file.allocate(W, at, len).unwrap();
                    if let Some(map) = plain.file.map(at + len).unwrap() {
                        map.write(W, at, &vec![value; len as usize]).unwrap();
                        plain.bytes[at as usize..(at + len) as usize].fill(value);
                    }
                }
            }
            11 => {
                let plain = &mut files[which];
                if plain.path.is_none() {
                    let path = if value & 1 == 0 { format!("d/{n}") } else { n.to_string() };
                    host.link(W, &*plain.file, path.as_bytes()).unwrap();
                    plain.path = Some(path);
                }
            }
            12 => files[which].file.sync(F).unwrap(),
            _ if value < 100 => host.sync_all(F).unwrap(),
            _ => host.sync_dir(F, if value & 1 == 0 { b"" } else { b"d" }).unwrap(),
        }
    }
    LOGICAL.set(0);
    (world, files, log_bytes)
}

fn configs() -> Vec<SimConfig> {
    let mut configs = Vec::new();
    for host in [HostModel::Weak, HostModel::Ext4Ordered, HostModel::Synchronous] {
        for base in [pmem(), disk()] {
            configs.push(SimConfig { host, times: true, log_len: 4096, ..base });
        }
    }
    for domain in [PersistenceDomain::MemoryController, PersistenceDomain::CpuCaches] {
        let medium = Medium::Pmem { domain, mode: PmemMode::X86 };
        configs.push(SimConfig { log: medium, home: medium, log_len: 4096, ..pmem() });
    }
    configs.push(SimConfig { tearing: true, home_page: 512, log_len: 4096, ..disk() });
    configs
}

#[test]
fn a_process_sees_what_it_wrote() {
    for (n, config) in configs().into_iter().enumerate() {
        for seed in 0..40 {
            let (world, files, log) = history(seed, config.clone());
            let what = || format!("seed {seed}, configuration {n}");
            let check = |image: &Image| {
                assert!(image.read(&Place::Log).unwrap() == log, "the log, {}", what());
                for plain in &files {
                    let Some(path) = &plain.path else { continue };
                    assert!(image.read(&Place::file(path)).as_ref() == Some(&plain.bytes), "{path}, {}", what());
                }
            };
            check(&world.latest());
            let killed = world.kill();
            check(&killed);
            // All of what is pending at the end is the same, and so it is after the world of the dead goes on.
            let trace = world.trace();
            let all = Choice { point: world.now(), pick: Pick::All };
            check(&trace.image_of(&all));
            let next = World::from_image(&killed, config.clone());
            let after = next.trace().image_of(&Choice { point: 0, pick: Pick::All });
            let direct = trace.image_of(&all);
            assert_eq!(after.hash(), direct.hash(), "{}", what());
            let none = Choice { pick: Pick::None, ..all };
            let after_kill = next.trace().image_of(&Choice { point: 0, pick: Pick::None }).hash();
            assert_eq!(after_kill, trace.image_of(&none).hash(), "{}", what());
        }
    }
}

#[test]
fn every_image_is_whole_and_its_choice_rebuilds_it() {
    let limits = ExploreLimits { exhaustive_bits: 6, pair_units: 6, samples: 8, ..ExploreLimits::default() };
    for config in configs() {
        for seed in 0..6 {
            let (world, ..) = history(seed, config.clone());
            let trace = world.trace();
            let mut explorer = Explorer::new(&trace);
            loop {
                let point = explorer.point();
                point.for_each_image(&limits, |choice, image| {
                    assert_eq!(image.hash(), image.state.hashed_anew(), "seed {seed} {choice}");
                    assert_eq!(image.hash(), point.image_of(choice).hash(), "seed {seed} {choice}");
                    for (id, obj) in image.state.objs() {
                        assert!(!obj.beyond || id == 0, "seed {seed} {choice}: bytes beyond the end of {id}");
                        let mut tail = [0; 64];
                        obj.read(obj.len, &mut tail);
                        assert_eq!(tail, [0; 64], "seed {seed} {choice}: bytes beyond the end of {id}");
                    }
                    ControlFlow::Continue(())
                });
                if !explorer.advance() {
                    break;
                }
            }
        }
    }
}
