//! Recovery over logs that something has scribbled on: it never panics and never hangs, and where it serves, it serves
//! bytes that some group wrote, or an error that names the place.

use proptest::prelude::*;
use wholly::{Error, Store};
use wholly_media::{Region, Site};
use wholly_sim::SimConfig;

use super::fuzz_corpus::harness::filled::{LENGTH, filled, options};

const SCRIBBLE: Site = Site("test.scribble");

#[derive(Clone, Debug)]
enum Scribble {
    Flip { at: u64, bit: u32 },
    Fill { at: u64, length: u64, byte: u8 },
    Copy { from: u64, to: u64, length: u64 },
}

fn scribble() -> impl Strategy<Value = Scribble> {
    // Places are fractions of the log, lines more often than not: that is where heads are.
    let place = || prop_oneof![3 => (0u64..1 << 16).prop_map(|line| line * 64), 1 => 0u64..1 << 22];
    prop_oneof![
        4 => (place(), 0u64..64, 0u32..8).prop_map(|(at, byte, bit)| Scribble::Flip { at: at + byte, bit }),
        1 => (place(), 1u64..300, any::<u8>()).prop_map(|(at, length, byte)| Scribble::Fill { at, length, byte }),
        2 => (place(), place(), 1u64..600).prop_map(|(from, to, length)| Scribble::Copy { from, to, length }),
    ]
}

fn apply(log: &dyn Region, scribble: &Scribble) {
    let len = log.len();
    let read = |at: u64, length: u64| {
        let at = at % len;
        let mut bytes = vec![0; length.min(len - at) as usize];
        log.read(at, &mut bytes).unwrap();
        (at, bytes)
    };
    let (at, bytes) = match *scribble {
        Scribble::Flip { at, bit } => {
            let (at, mut bytes) = read(at, 1);
            bytes[0] ^= 1 << bit;
            (at, bytes)
        }
        Scribble::Fill { at, length, byte } => {
            let (at, mut bytes) = read(at, length);
            bytes.fill(byte);
            (at, bytes)
        }
        Scribble::Copy { from, to, length } => {
            let (_, bytes) = read(from, length);
            let to = to % len;
            (to, bytes[..bytes.len().min((len - to) as usize)].to_vec())
        }
    };
    log.write(SCRIBBLE, at, &bytes).unwrap();
    log.fence(SCRIBBLE).unwrap();
}

fn survives(config: SimConfig, scribbles: &[Scribble]) {
    let world = filled(config);
    for scribble in scribbles {
        apply(&*world.log(), scribble);
    }
    match Store::open_on(world.log(), world.host(), options(), None) {
        Err(Error::Corrupt { place, .. }) => assert!(!place.is_empty()),
        Err(Error::NotAStore(_) | Error::Unsupported(_)) => {}
        Err(error) => panic!("{error}"),
        Ok(store) => {
            let file = store.open_file("a").unwrap();
            let mut bytes = [0xee; LENGTH];
            match file.read_at(0, &mut bytes) {
                Ok(read) => assert!(bytes[..read].iter().all(|byte| byte & 0xe0 == 0), "bytes that nobody wrote"),
                Err(Error::Corrupt { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            // Whatever is left goes home or is refused; a new life begins in any case.
            let _ = store.checkpoint();
            drop((file, store));
            let _ = Store::open_on(world.log(), world.host(), options(), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn pmem(scribbles in proptest::collection::vec(scribble(), 1..5)) {
        survives(SimConfig::pmem(), &scribbles);
    }

    #[test]
    fn disk(scribbles in proptest::collection::vec(scribble(), 1..5)) {
        survives(SimConfig::disk(), &scribbles);
    }
}
