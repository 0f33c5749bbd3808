//! A planted bug must be found, and its correct version must pass: the proof that the rig can see.

use super::*;

const PAYLOAD: Site = Site("planted.payload");
const PAYLOAD_FENCE: Site = Site("planted.payload.fence");
const FLAG: Site = Site("planted.flag");
const FLAG_FENCE: Site = Site("planted.flag.fence");

/// Writes a payload and then a flag that says the payload is there; `fenced`: with the fence between them.
fn publish(world: &Arc<World>, fenced: bool) {
    let log = world.log();
    world.mark(Mark::Begin { op: 1, label: "publish".into() });
    log.write(PAYLOAD, 1024, &[7; 64]).unwrap();
    if fenced {
        log.fence(PAYLOAD_FENCE).unwrap();
    }
    log.write(FLAG, 0, &[1; 8]).unwrap();
    log.fence(FLAG_FENCE).unwrap();
    world.mark(Mark::Return { op: 1 });
}

/// Crashes at every point in every way. Returns the choices that broke atomicity or durability.
fn violations(config: SimConfig, fenced: bool) -> Vec<Choice> {
    let world = world(config.clone());
    publish(&world, fenced);
    let trace = world.trace();
    let mut found = Vec::new();
    let mut explorer = Explorer::new(&trace);
    loop {
        let returned = trace.events[..explorer.index() as usize]
            .iter()
            .any(|event| matches!(event.kind, EventKind::Mark(Mark::Return { op: 1 })));
        explorer.for_each_image(&ExploreLimits::default(), |choice, image| {
            let after = World::from_image(image, config.clone());
            let (mut flag, mut payload) = ([0; 8], [0; 64]);
            after.log().read(0, &mut flag).unwrap();
            after.log().read(1024, &mut payload).unwrap();
            let published = flag == [1; 8];
            if published && payload != [7; 64] || returned && !published {
                found.push(choice.clone());
            }
            ControlFlow::Continue(())
        });
        if !explorer.advance() {
            break;
        }
    }
    assert_eq!(explorer.coverage().without_crash(), []);
    found
}

#[test]
fn one_fence_too_few_is_found_and_the_correct_protocol_passes() {
    for config in [pmem(), disk()] {
        assert_eq!(violations(config.clone(), true), []);
        assert!(!violations(config, false).is_empty());
    }
}

#[test]
fn every_fence_dropped_and_every_write_dropped_or_delayed_is_found() {
    use MutationKind::*;
    for config in [pmem(), disk()] {
        for site in [PAYLOAD_FENCE, FLAG_FENCE] {
            assert!(!violations(broken(config.clone(), site, DropOrder), true).is_empty(), "{site:?}");
        }
        for site in [PAYLOAD, FLAG] {
            assert!(!violations(broken(config.clone(), site, DropWrite), true).is_empty(), "{site:?}");
            assert!(!violations(broken(config.clone(), site, DelayWrite), true).is_empty(), "{site:?}");
        }
    }
}
