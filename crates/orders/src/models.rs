//! Small programs over the index: what its users do, without the log and the files around it.
//!
//! The bytes of a version, and home bytes, are cells of the model: it ends where one is written while another thread
//! may use it. What they hold is not looked at; which version a reader finds is.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

use crate::index::{
    FileIndex, Garbage, LinesVersion, NO_VERSION, Pending, RunVersion, Slot, SparseIndex, Version, VersionArena,
    prepare_alone,
};

/// A model, by name.
#[derive(Clone, Copy)]
pub struct Model {
    /// Its kind of version.
    pub kind: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Preemptions of each of its orders, at most: in a short run, and in a long one.
    pub(crate) preemptions: (usize, usize),
    pub(crate) body: fn(),
}

impl Model {
    /// Runs the model in every order with up to its number of preemptions.
    ///
    /// # Errors
    /// What went wrong in one of them.
    pub fn check(&self, is_long: bool) -> Result<(), String> {
        let mut builder = loom::model::Builder::new();
        let (few, many) = self.preemptions;
        builder.preemption_bound = Some(if is_long { many } else { few });
        builder.max_branches = 100_000;
        let body = self.body;
        catch_unwind(AssertUnwindSafe(|| builder.check(body))).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default()
        })
    }
}

/// All of them, over both kinds of version.
pub fn all() -> impl Iterator<Item = Model> {
    models::<RunVersion>().into_iter().chain(models::<LinesVersion>())
}

fn models<V: Kind>() -> [Model; 19] {
    let model = |name, preemptions, body: fn()| Model { kind: V::NAME, name, preemptions, body };
    [
        model("a version is read", (3, 4), a_version_is_read::<V>),
        model("two calls publish", (3, 4), two_calls_publish::<V>),
        model("a call below another", (3, 4), a_call_below_another::<V>),
        model("an owner publishes beside a checkpoint", (3, 4), an_owner_publishes_beside_a_checkpoint::<V>),
        model("a reader beside an owner", (3, 4), a_reader_beside_an_owner::<V>),
        model("garbage is used again", (3, 4), garbage_is_used_again::<V>),
        model("a reader beside a checkpoint", (3, 4), a_reader_beside_a_checkpoint::<V>),
        model("a reader beside a version that covers", (3, 4), a_reader_beside_a_version_that_covers::<V>),
        model("a number is used again", (3, 4), a_number_is_used_again::<V>),
        model("a number goes to another thread", (1, 1), a_number_goes_to_another_thread::<V>),
        model("two make a node", (3, 4), two_make_a_node::<V>),
        model("two meet in a place", (2, 3), two_meet_in_a_place),
        model("a pass fails", (3, 4), a_pass_fails::<V>),
        model("an empty list is looked at", (3, 4), an_empty_list_is_looked_at::<V>),
        model("a clean file is read", (2, 2), a_clean_file_is_read::<V>),
        model("a file is clean again", (2, 3), a_file_is_clean_again::<V>),
        model("a call's version is seen again", (2, 3), || a_version_is_seen_again::<V>(Watched::publish)),
        model("an owner's version is seen again", (2, 3), || a_version_is_seen_again::<V>(Watched::publish_alone)),
        model("a prepared version is seen again", (2, 3), || a_version_is_seen_again::<V>(Watched::link_alone)),
    ]
}

/// The number of versions that a model can have.
const VERSIONS: usize = 8;

/// A block with its slot, home bytes and the bytes of its versions.
struct Block<V: Version> {
    slot: Slot,
    arena: VersionArena<V>,
    /// Those that any version covers.
    home: UnsafeCell<()>,
    /// By position.
    logged: [UnsafeCell<()>; VERSIONS],
    /// Whether a checkpoint visits the file, and whether its owner is in the middle of a commit.
    visited: AtomicBool,
    in_flight: AtomicBool,
}

/// A kind of version, with two examples: their bytes are at the position of the same number as their sequence.
trait Kind: Version + Send + Sync + 'static {
    const NAME: &'static str;

    /// A version that covers its whole block, of the group with this sequence.
    fn whole(sequence: u64) -> Self;

    /// A version of the first half of its block.
    fn half(sequence: u64) -> Self;

    fn position(&self) -> u64;

    /// Another block's version.
    fn of_another() -> Self;
}

impl Kind for RunVersion {
    const NAME: &'static str = "runs";

    fn whole(sequence: u64) -> Self {
        let (position, stamp) = (sequence, sequence);
        RunVersion { position, stamp, start: 0, length: 4096, next: NO_VERSION, before_thinning: 64 }
    }

    fn half(sequence: u64) -> Self {
        RunVersion { length: 2048, ..Self::whole(sequence) }
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn of_another() -> Self {
        RunVersion { position: 77, ..Self::whole(7) }
    }
}

impl Kind for LinesVersion {
    const NAME: &'static str = "lines";

    fn whole(sequence: u64) -> Self {
        let (position, stamp) = (sequence, sequence);
        LinesVersion { position, stamp, lines: u64::MAX, next: NO_VERSION, before_thinning: 64 }
    }

    fn half(sequence: u64) -> Self {
        LinesVersion { lines: u64::MAX >> 32, ..Self::whole(sequence) }
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn of_another() -> Self {
        LinesVersion { position: 77, ..Self::whole(7) }
    }
}

impl<V: Kind> Block<V> {
    fn new() -> Self {
        Block {
            slot: Slot::new(),
            arena: VersionArena::new(),
            home: UnsafeCell::new(()),
            logged: std::array::from_fn(|_| UnsafeCell::new(())),
            visited: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
        }
    }

    fn numbers(&self, count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        self.arena.refill(&mut numbers, count);
        numbers
    }

    /// Puts a version's bytes into the log, as the group did before it commits.
    fn log(&self, version: V) {
        self.logged[version.position() as usize].with_mut(|_| ());
    }

    /// What a call publishes. Returns whether the list was empty; numbers that are free now go to `freed`.
    fn publish(&self, number: u32, version: V, freed: &mut Vec<u32>) -> bool {
        self.log(version);
        self.slot.claim().push(&self.arena, number, version, freed)
    }

    /// What an owner publishes. Numbers that nobody needs once the block was visited go to `garbage`.
    fn publish_alone(&self, number: u32, version: V, garbage: &mut Vec<Garbage>) {
        self.log(version);
        self.in_flight.store(true, Ordering::Release);
        // The model knows no fences between processors: both halves of the pair are ordinary ones.
        fence(Ordering::SeqCst);
        if self.visited.load(Ordering::Acquire) {
            self.slot.claim().push(&self.arena, number, version, &mut Vec::new());
        } else {
            self.slot.push_alone(&self.arena, number, version, garbage);
        }
        self.in_flight.store(false, Ordering::Release);
    }

    /// What a checkpoint does of a file that has an owner.
    fn visit(&self, target: u64, freed: &mut Vec<u32>) -> bool {
        self.visited.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        while self.in_flight.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let something = self.checkpoint(target, freed);
        self.visited.store(false, Ordering::Release);
        something
    }

    /// Reads the block: the sequences of the versions that its list holds, the newest first. Home bytes where it is
    /// empty.
    fn read(&self) -> Vec<u64> {
        let guard = self.slot.read();
        let versions: Vec<V> = self.arena.list(guard.newest()).collect();
        for version in &versions {
            assert_eq!(version.position(), version.stamp(), "a version of another block, or half of one");
            self.logged[version.position() as usize].with(|_| ());
        }
        if versions.is_empty() {
            self.home.with(|_| ());
        }
        let sequences: Vec<u64> = versions.iter().map(|version| version.stamp()).collect();
        assert!(sequences.is_sorted_by(|newer, older| newer > older), "not in commit order: {sequences:?}");
        sequences
    }

    /// What a pass does: takes home what is below `target`. Returns whether something was.
    fn checkpoint(&self, target: u64, freed: &mut Vec<u32>) -> bool {
        let claim = self.slot.claim();
        let below: Vec<V> = self.arena.list(claim.newest()).filter(|version| version.stamp() < target).collect();
        claim.drain_readers();
        let Some(newest) = below.first() else { return false };
        self.logged[newest.position() as usize].with(|_| ());
        self.home.with_mut(|_| ());
        claim.change_last(|newest| self.arena.drop_tail(newest, |version| version.stamp() < target, freed));
        true
    }

    /// The tail has passed `sequence`, whose bytes in the log are overwritten.
    fn reuse_log(&self, sequence: u64) {
        self.logged[sequence as usize].with_mut(|_| ());
    }
}

/// Runs `body` over a block in a thread.
fn spawn<V: Kind, T: 'static>(
    block: &Arc<Block<V>>,
    body: impl FnOnce(&Block<V>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let block = block.clone();
    thread::spawn(move || body(&block))
}

/// Who sees a version sees its bytes.
fn a_version_is_read<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    let writer = spawn(&block, move |block| {
        let mut freed = Vec::new();
        assert!(block.publish(numbers[0], V::half(1), &mut freed));
        block.publish(numbers[1], V::half(2), &mut freed);
    });
    let first = block.read();
    let second = block.read();
    assert!(first.first() <= second.first(), "a version that was seen is gone: {first:?}, {second:?}");
    writer.join().expect("no panic");
}

/// Two calls publish to one block: both versions are in its list, in commit order.
fn two_calls_publish<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    let (one, two) = (numbers[0], numbers[1]);
    let publish =
        |number, sequence| spawn(&block, move |block| block.publish(number, V::half(sequence), &mut Vec::new()));
    let (first, second) = (publish(one, 1), publish(two, 2));
    let empty = [first.join().expect("no panic"), second.join().expect("no panic")];
    assert_eq!(empty.iter().filter(|empty| **empty).count(), 1, "one of them finds the list empty");
    let list = block.read();
    // The second covers the first, and frees it if nobody is in the way.
    assert!(list == [2, 1] || list == [2], "{list:?}");
}

/// A call with a lower sequence publishes later, below the newest version, while somebody reads.
fn a_call_below_another<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    block.publish(numbers[0], V::half(2), &mut Vec::new());
    let below = numbers[1];
    let writer = spawn(&block, move |block| block.publish(below, V::whole(1), &mut Vec::new()));
    assert!(matches!(block.read()[..], [2] | [2, 1]));
    writer.join().expect("no panic");
    assert_eq!(block.read(), [2, 1]);
}

/// The owner of a file publishes without a claim while a checkpoint takes an older version home.
fn an_owner_publishes_beside_a_checkpoint<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    block.publish(numbers[0], V::whole(1), &mut Vec::new());
    let newer = numbers[1];
    let owner = spawn(&block, move |block| block.publish_alone(newer, V::half(2), &mut Vec::new()));
    let mut freed = Vec::new();
    assert!(block.visit(2, &mut freed));
    block.reuse_log(1);
    owner.join().expect("no panic");
    assert_eq!(freed, [numbers[0]]);
    assert_eq!(block.read(), [2]);
}

/// The owner of a file publishes, and somebody reads.
fn a_reader_beside_an_owner<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    block.publish_alone(numbers[0], V::half(1), &mut Vec::new());
    let newer = numbers[1];
    let owner = spawn(&block, move |block| {
        let mut garbage = Vec::new();
        block.publish_alone(newer, V::half(2), &mut garbage);
        assert_eq!(garbage.len(), 1);
    });
    assert!(matches!(block.read()[..], [1] | [2]));
    owner.join().expect("no panic");
    assert_eq!(block.read(), [2]);
}

/// What an owner unlinked names something else once a checkpoint has visited its block, even where it took nothing
/// home: nobody looks at it any more.
fn garbage_is_used_again<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    let mut garbage = Vec::new();
    block.publish_alone(numbers[0], V::half(1), &mut garbage);
    let reader = spawn(&block, |block| assert!(matches!(block.read()[..], [1] | [2])));
    block.publish_alone(numbers[1], V::half(2), &mut garbage);
    block.visit(2, &mut Vec::new());
    assert_eq!(garbage[0].number, numbers[0]);
    block.reuse_log(1);
    block.arena.set(garbage[0].number, V::of_another());
    reader.join().expect("no panic");
}

/// Home bytes change only while nobody reads them, and the log only when nobody reads that.
fn a_reader_beside_a_checkpoint<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(1);
    block.publish(numbers[0], V::half(1), &mut Vec::new());
    let reader = spawn(&block, |block| {
        block.read();
        block.read();
    });
    assert!(block.checkpoint(2, &mut Vec::new()));
    block.reuse_log(1);
    reader.join().expect("no panic");
    assert_eq!(block.read(), []);
}

/// A version that covers another frees it only if nobody reads, and its number may then name anything.
fn a_reader_beside_a_version_that_covers<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(2);
    block.publish(numbers[0], V::half(1), &mut Vec::new());
    let newer = numbers[1];
    let reader = spawn(&block, |block| assert!(matches!(block.read()[..], [1] | [2] | [2, 1])));
    let mut freed = Vec::new();
    block.publish(newer, V::half(2), &mut freed);
    for number in freed {
        block.reuse_log(1);
        // Another block's version.
        block.arena.set(number, V::of_another());
    }
    reader.join().expect("no panic");
}

/// A checkpoint frees a number, and the same thread gives it to a version of the same block.
fn a_number_is_used_again<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(1);
    block.publish(numbers[0], V::half(1), &mut Vec::new());
    let reader = spawn(&block, |block| assert!(matches!(block.read()[..], [1] | [] | [3])));
    let mut freed = Vec::new();
    block.checkpoint(2, &mut freed);
    block.publish(freed[0], V::half(3), &mut Vec::new());
    reader.join().expect("no panic");
}

/// A checkpoint frees a number, the arena hands it to another thread, and that gives it to a version of the same block.
fn a_number_goes_to_another_thread<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(1);
    block.publish(numbers[0], V::half(1), &mut Vec::new());
    let pass = spawn(&block, |block| {
        let mut freed = Vec::new();
        block.checkpoint(2, &mut freed);
        block.arena.give_back(&mut freed);
    });
    let writer = spawn(&block, |block| {
        let number = block.numbers(1)[0];
        block.publish(number, V::half(3), &mut Vec::new());
    });
    assert!(matches!(block.read()[..], [1] | [] | [3] | [3, 1]));
    pass.join().expect("no panic");
    writer.join().expect("no panic");
    assert_eq!(block.read(), [3]);
}

/// Two threads meet in a tree that has no nodes yet: they find the same slot.
fn two_make_a_node<V: Kind>() {
    const BLOCK: u64 = 70;
    let shared = Arc::new((FileIndex::default(), VersionArena::<V>::new()));
    let mut numbers = Vec::new();
    shared.1.refill(&mut numbers, 2);
    let publish = |number, sequence| {
        let shared = shared.clone();
        thread::spawn(move || {
            let (index, arena) = &*shared;
            index.get_or_make(BLOCK).claim().push(arena, number, V::half(sequence), &mut Vec::new());
        })
    };
    let threads = [publish(numbers[0], 1), publish(numbers[1], 2)];
    let (index, arena) = &*shared;
    if let Some(slot) = index.get(BLOCK) {
        let guard = slot.read();
        arena.list(guard.newest()).for_each(|version| assert_eq!(version.position(), version.stamp()));
    }
    for thread in threads {
        thread.join().expect("no panic");
    }
    let slot = index.get(BLOCK).expect("both have made it");
    let guard = slot.read();
    assert_eq!(arena.list(guard.newest()).next().expect("a version").stamp(), 2);
}

/// A place has room for one slot, and two threads make the slots of two blocks: whatever the order, each block has one.
fn two_meet_in_a_place() {
    const BLOCKS: [u64; 2] = [70, 700];
    let index = Arc::new(SparseIndex::default());
    (0..3).for_each(|block| _ = index.get_or_make(block));
    let address = |slot: &Slot| std::ptr::from_ref(slot).addr();
    let make = |blocks: [u64; 2]| {
        let index = index.clone();
        thread::spawn(move || blocks.map(|block| address(index.get_or_make(block))))
    };
    let threads = [make(BLOCKS), make([BLOCKS[1], BLOCKS[0]])];
    let before = BLOCKS.map(|block| index.get(block).map(address));
    let [one, [second, first]] = threads.map(|thread| thread.join().expect("no panic"));
    assert_eq!(one, [first, second]);
    assert_ne!(first, second);
    assert_eq!(BLOCKS.map(|block| index.get(block).map(address)), one.map(Some));
    assert!(before.into_iter().zip(one).all(|(before, after)| before.is_none_or(|before| before == after)));
}

/// A pass that fails after it wrote home leaves the versions where they are, and whoever claims the slot next writes
/// home again.
fn a_pass_fails<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(1);
    block.publish(numbers[0], V::half(1), &mut Vec::new());
    let pass = |block: &Block<V>| {
        let claim = block.slot.claim();
        claim.drain_readers();
        block.home.with_mut(|_| ());
    };
    let first = spawn(&block, pass);
    pass(&block);
    first.join().expect("no panic");
}

/// Who cuts a file passes over blocks without versions; who sees that a list is empty sees the home bytes that emptied
/// it.
fn an_empty_list_is_looked_at<V: Kind>() {
    let block = Arc::new(Block::<V>::new());
    let numbers = block.numbers(1);
    block.publish(numbers[0], V::half(1), &mut Vec::new());
    let other = spawn(&block, |block| {
        if block.slot.is_empty() {
            block.home.with(|_| ());
        }
    });
    block.checkpoint(2, &mut Vec::new());
    other.join().expect("no panic");
}

/// A block of a file whose home bytes are read without a look at the slot while the file is clean. They are two words
/// here, because such a reader does not keep them from changing; each holds the sequence of the group that wrote it.
struct Watched<V: Version> {
    block: Block<V>,
    pending: Pending,
    home: [AtomicU64; 2],
}

/// A mistake that is made on purpose with a [`Watched`] block, to see that a model finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A version is counted when it is visible.
    RaisedAfter,
    /// A version is no longer counted when it is about to go home.
    LoweredBefore,
    /// A version is no longer counted when its bytes are about to change, and it is dropped after them.
    LoweredBetween,
    /// A reader looks only before it reads.
    OneLook,
    /// A reader that looks again only finds the file clean again.
    NoRounds,
    /// A reader reads before its first look.
    ReadBefore,
}

std::thread_local!(static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) });

/// Makes a mistake, or none, from now on in models of this thread of the operating system.
pub fn make(mistake: Option<Mistake>) {
    MISTAKE.set(mistake);
}

fn makes(mistake: Mistake) -> bool {
    MISTAKE.get() == Some(mistake)
}

impl<V: Kind> Watched<V> {
    fn new() -> Self {
        Watched { block: Block::new(), pending: Pending::new(), home: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// What a call publishes.
    fn publish(&self, number: u32, sequence: u64) {
        let (arena, freed) = (&self.block.arena, &mut Vec::new());
        let claim = self.block.slot.claim();
        if !makes(Mistake::RaisedAfter) {
            self.pending.push(&claim, arena, number, V::whole(sequence), freed);
        } else if claim.push(arena, number, V::whole(sequence), freed) {
            self.pending.raise(1);
        }
    }

    /// The same for an owner, while no checkpoint visits the file.
    fn publish_alone(&self, number: u32, sequence: u64) {
        let (arena, garbage) = (&self.block.arena, &mut Vec::new());
        if !makes(Mistake::RaisedAfter) {
            self.pending.push_alone(&self.block.slot, arena, number, V::whole(sequence), garbage);
        } else if self.block.slot.push_alone(arena, number, V::whole(sequence), garbage).was_empty {
            self.pending.raise(1);
        }
    }

    /// The same where the version was prepared before.
    fn link_alone(&self, number: u32, sequence: u64) {
        let slot = &self.block.slot;
        let newest = slot.newest_alone();
        prepare_alone(&self.block.arena, newest, number, V::whole(sequence), &mut Vec::new());
        self.pending.link_alone(slot, number, newest == NO_VERSION);
    }

    /// What a pass does. Numbers that are free now go to `freed`.
    fn checkpoint(&self, freed: &mut Vec<u32>) {
        let claim = self.block.slot.claim();
        let Some(newest) = self.block.arena.list(claim.newest()).next() else { return };
        let lower_if = |now: bool| now.then(|| self.pending.lower(1));
        lower_if(makes(Mistake::LoweredBefore));
        claim.drain_readers();
        self.pending.before_home_changes();
        self.home[0].store(newest.stamp(), Ordering::Relaxed);
        lower_if(makes(Mistake::LoweredBetween));
        self.home[1].store(newest.stamp(), Ordering::Relaxed);
        claim.change_last(|newest| self.block.arena.drop_tail(newest, |_| true, freed));
        lower_if(!makes(Mistake::LoweredBefore) && !makes(Mistake::LoweredBetween));
    }

    fn home(&self) -> [u64; 2] {
        self.home.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The sequence of the group that is seen in both words of a clean file.
    fn read_clean(&self) -> Option<u64> {
        let before = makes(Mistake::ReadBefore).then(|| self.home());
        let clean = self.pending.clean()?;
        let words = before.unwrap_or_else(|| self.home());
        let is_still = match MISTAKE.get() {
            Some(Mistake::OneLook) => true,
            Some(Mistake::NoRounds) => self.pending.clean().is_some(),
            _ => self.pending.is_still(clean),
        };
        if !is_still {
            return None;
        }
        assert_eq!(words[0], words[1], "of two groups");
        Some(words[0])
    }

    /// The same of a file that need not be clean.
    fn read(&self) -> u64 {
        if let Some(seen) = self.read_clean() {
            return seen;
        }
        let guard = self.block.slot.read();
        let version: Option<V> = self.block.arena.list(guard.newest()).next();
        let words = self.home();
        version.map_or_else(
            || {
                assert_eq!(words[0], words[1], "of two groups, while nothing of them may change");
                words[0]
            },
            |version| version.stamp(),
        )
    }
}

/// Runs `body` over a file in a thread.
fn beside<V: Kind>(file: &Arc<Watched<V>>, body: impl FnOnce(&Watched<V>) + 'static) -> thread::JoinHandle<()> {
    let file = file.clone();
    thread::spawn(move || body(&file))
}

/// One writes and another takes it home, while a third reads: what it has seen it goes on seeing, in both words.
fn a_clean_file_is_read<V: Kind>() {
    let file = Arc::new(Watched::<V>::new());
    let number = file.block.numbers(1)[0];
    let writer = beside(&file, move |file| file.publish(number, 1));
    let pass = beside(&file, |file| file.checkpoint(&mut Vec::new()));
    let (first, second) = (file.read(), file.read());
    assert!(first <= second, "a version that was seen is gone: {first}, {second}");
    writer.join().expect("no panic");
    pass.join().expect("no panic");
    file.checkpoint(&mut Vec::new());
    assert_eq!(file.read_clean(), Some(1));
}

/// A version comes, goes home and is gone again, twice, while another thread reads: the count of versions is the same
/// before and after.
fn a_file_is_clean_again<V: Kind>() {
    let file = Arc::new(Watched::<V>::new());
    let number = file.block.numbers(1)[0];
    let reader = beside(&file, |file| {
        let seen = file.read_clean();
        assert!(seen.is_none_or(|sequence| sequence <= 2));
    });
    let mut freed = Vec::new();
    file.publish_alone(number, 1);
    file.checkpoint(&mut freed);
    file.link_alone(freed[0], 2);
    file.checkpoint(&mut freed);
    assert_eq!(file.read_clean(), Some(2));
    reader.join().expect("no panic");
}

/// A file becomes clean, and another version comes. A reader that was on its way to the list finds it there, and its
/// next read of the file finds it too, wherever it looks.
fn a_version_is_seen_again<V: Kind>(publish: fn(&Watched<V>, u32, u64)) {
    let file = Arc::new(Watched::<V>::new());
    let number = file.block.numbers(1)[0];
    publish(&file, number, 1);
    let other = beside(&file, move |file| {
        let mut freed = Vec::new();
        file.checkpoint(&mut freed);
        publish(file, freed[0], 2);
    });
    let (first, second) = (file.read(), file.read());
    assert!(first <= second, "a version that was seen is gone: {first}, {second}");
    other.join().expect("no panic");
    assert_eq!(file.read(), 2);
}
