//! Two stores in memory, and what a group of each does.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use wholly::{Group, Neighbours, Options, Store};
use wholly_host::HostFs;
use wholly_media::Site;
use wholly_sim::{Explorer, Image, SimConfig, World};

/// A store that goes home when it is told to.
pub fn options() -> Options {
    Options { background: false, ..Options::default() }
}

/// One that is not to wait for others.
pub fn releasing() -> Options {
    Options { release: true, ..options() }
}

/// One that writes groups back as part of their commit.
pub fn at_once() -> Options {
    Options { at_once: true, ..options() }
}

/// A group that gives `a` other bytes and makes `b`.
pub fn change(store: &Store) -> Group<'static> {
    let mut group = store.begin();
    let a = group.open_file("a").unwrap();
    group.write_at(&a, 0, b"new").unwrap();
    let b = group.create("b", 0o644).unwrap();
    group.append(&b, &[7; 10_000]).unwrap();
    group
}

/// A group that takes away `c` and the bytes of `a`: it needs no space, and what undoes it does.
pub fn loss(store: &Store) -> Group<'static> {
    let mut group = store.begin();
    let a = group.open_file("a").unwrap();
    group.set_len(&a, 0).unwrap();
    group.unlink("c").unwrap();
    group
}

/// Two stores in memory, which find each other as long as they are told of each other.
pub struct Memory {
    pub worlds: [Arc<World>; 2],
}

/// How one of them finds the other: by the address `/0` or `/1`, if at all.
struct Beside {
    own: usize,
    others: [Option<Arc<World>>; 2],
}

impl Neighbours for Beside {
    fn address(&self) -> wholly_media::Result<Vec<u8>> {
        Ok(format!("/{}", self.own).into_bytes())
    }

    fn at(&self, address: &[u8]) -> wholly_media::Result<Arc<dyn HostFs>> {
        let which = [&b"/0"[..], b"/1"].iter().position(|known| *known == address);
        let world = which.and_then(|which| self.others[which].as_ref());
        world.map(|world| world.host()).ok_or_else(|| wholly_media::Error::new("open", "a neighbour", Errno::NOENT))
    }
}

impl Memory {
    pub fn new() -> Memory {
        Self::of([SimConfig::disk(), SimConfig::disk()])
    }

    pub fn of(worlds: [SimConfig; 2]) -> Memory {
        let clock = Arc::new(AtomicU64::new(0));
        let worlds = worlds.map(|config| {
            let world = World::new(config);
            world.add_file("a", b"old");
            world.add_file("c", b"stays");
            world.share(clock.clone());
            world
        });
        for (which, world) in worlds.iter().enumerate() {
            Store::format_on(&*world.log(), &options(), [which as u8 + 1; 16]).unwrap();
        }
        Memory { worlds }
    }

    /// What the death of the process leaves of what `joint` does with both stores, as soon as something has happened
    /// here in that world.
    pub fn killed_in(joint: impl FnOnce(&[Store; 2]), which: usize, site: Site) -> Memory {
        Self::killed_with(&options(), joint, which, site)
    }

    /// The same of stores with these options.
    pub fn killed_with(options: &Options, joint: impl FnOnce(&[Store; 2]), which: usize, site: Site) -> Memory {
        let memory = Memory::new();
        let stores = [0, 1].map(|which| memory.open(which, options.clone(), [true; 2]).unwrap());
        joint(&stores);
        drop(stores);
        let traces = [0, 1].map(|which| memory.worlds[which].trace());
        let ticks = [0, 1].map(|which| memory.worlds[which].ticks());
        let at = traces[which].events.iter().position(|event| event.site == Some(site)).unwrap();
        let tick = ticks[which][at];
        let images: [Image; 2] = [0, 1].map(|which| {
            let mut explorer = Explorer::new(&traces[which]);
            explorer.seek(ticks[which].partition_point(|other| *other <= tick) as u64);
            explorer.kill_image()
        });
        Memory { worlds: images.map(|image| World::from_image(&image, SimConfig::disk())) }
    }

    /// Opens one; `there` are the ones that it can find.
    pub fn open(&self, which: usize, options: Options, there: [bool; 2]) -> wholly::Result<Store> {
        let others = [0, 1].map(|other| there[other].then(|| self.worlds[other].clone()));
        let world = &self.worlds[which];
        Store::open_among(world.log(), world.host(), options, None, Some(Arc::new(Beside { own: which, others })))
    }

    pub fn is_new(&self, which: usize, store: &Store) -> bool {
        let (mut a, file) = ([0; 3], store.open_file("a").unwrap());
        file.read_at(0, &mut a).unwrap();
        let b = store.open_file("b").is_ok();
        assert_eq!(b, &a == b"new", "store {which}");
        b
    }
}
