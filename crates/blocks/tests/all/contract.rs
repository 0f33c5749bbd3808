//! The contract in the simulator: it obeys the rules, and shows all that they allow.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_blocks::{Order, TxBlocks};
use wholly_sim::{BlockRules, ExploreLimits, Image, Mutation, MutationKind, Place, SimConfig, World};

use crate::suite::{BLOCKS, FAILS, Opened, ROOM, S, Subject, commit, holds, writes};

/// The contract of an order.
pub struct Contract(pub Order);

struct Life(Arc<World>, Arc<dyn TxBlocks>);

fn life(world: Arc<World>) -> Box<dyn Opened> {
    let blocks = world.blocks();
    Box::new(Life(world, blocks))
}

impl Subject for Contract {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        let rules = BlockRules { order: self.0, most_overwrites, room: ROOM };
        let mutations = vec![Mutation::new(FAILS, MutationKind::Fail(Errno::IO))];
        life(World::new(SimConfig { mutations, ..SimConfig::blocks(BLOCKS, rules) }))
    }
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.1.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let begun = self.0.now();
        work(&*self.1);
        let (trace, mut seen, mut lives) = (self.0.trace(), BTreeSet::new(), Vec::new());
        for point in begun..=self.0.now() {
            let done = trace.point(point).for_each_image(&ExploreLimits::default(), |_, image: &Image| {
                if seen.insert(image.hash()) {
                    lives.push(life(World::from_image(image, self.0.config().clone())));
                }
                ControlFlow::Continue(())
            });
            assert!(done.exhaustive, "the cases are small");
        }
        lives
    }

    fn rotten(&self, at: u64) -> Box<dyn Opened> {
        let mut image = self.0.latest();
        image.fail_reads(&Place::Log, at * 4096..(at + 1) * 4096);
        life(World::from_image(&image, self.0.config().clone()))
    }
}

#[test]
fn total() {
    holds(&Contract(Order::Total));
}

#[test]
fn dependent() {
    holds(&Contract(Order::Dependent));
}

/// Five ordered transactions, of which the second overwrites a block of the first and the fourth comes after the third:
/// each state that an order allows is there.
#[test]
fn it_shows_all_that_is_allowed() {
    for (order, states) in [(Order::Total, 6), (Order::Dependent, 3 * 3 * 2)] {
        let opened = Contract(order).make(None);
        let crashes = opened.during(&mut |blocks| {
            let mut places = Vec::new();
            for (of, after) in [(0, None), (0, None), (1, None), (2, Some(2)), (3, None)] {
                let tx = writes(blocks, &[(of, 1 + places.len() as u8)]);
                let after: Vec<_> = after.map(|i: usize| places[i]).into_iter().collect();
                places.push(blocks.order(S, &[tx], &after).unwrap());
            }
        });
        assert_eq!(crashes.len(), states, "{order:?}");
    }
}

/// The death of a process leaves what a power failure may leave, and nothing that is pending.
#[test]
fn a_death_leaves_nothing_pending() {
    let world = World::new(SimConfig::blocks(BLOCKS, BlockRules::default()));
    let blocks = world.blocks();
    commit(&*blocks, &[writes(&*blocks, &[(0, 1)])]);
    blocks.order(S, &[writes(&*blocks, &[(0, 2)])], &[]).unwrap();
    let image = world.kill();
    assert!(!image.is_pending());
    assert_eq!(image.read(&Place::Log).unwrap()[0], 1);
}
