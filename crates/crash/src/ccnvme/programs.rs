//! Programs of transactions on queues, as data.

/// One thing that a program asks. Transactions are numbered from 1 on, in the order of their commits.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A transaction of these blocks on this queue is committed.
    Commit(u16, &'static [u64]),
    /// The last transaction of a queue is waited for.
    Wait(u16),
    /// The device works for a while, and the completions of a queue are looked at.
    Poll(u16),
    /// The last transaction of a queue is waited for, and fails.
    Fails(u16),
    /// The device is opened again, with what is in flight, and a new life begins.
    Again,
}

use Step::{Again, Commit, Fails, Poll, Wait};

/// A program.
#[derive(Debug)]
pub struct Program {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Queues.
    pub queues: u16,
    /// Entries of each.
    pub depth: u32,
    /// Whether neighbours are one command.
    pub merge: bool,
    /// Whether a transaction is acknowledged only when the head is durable.
    pub waits_for_head: bool,
    /// Bytes up to which all writes of a transaction are forced.
    pub most_forced: usize,
    /// The count of the first entry of each queue.
    pub first_count: u32,
    /// A command that fails, counted in the first life, and its transaction.
    pub failing: Option<(u64, u64)>,
    /// What it asks.
    pub steps: &'static [Step],
}

/// Blocks of the device.
pub const BLOCKS: u64 = 12;

/// What most programs have: two queues of eight entries.
const PLAIN: Program = Program {
    name: "",
    about: "",
    queues: 2,
    depth: 8,
    merge: false,
    waits_for_head: false,
    most_forced: 256 << 10,
    first_count: 0,
    failing: None,
    steps: &[],
};

/// All of them. A block that several transactions write is waited for in between: the device keeps no order.
pub const ALL: &[Program] = &[
    Program {
        name: "one-by-one",
        about: "transactions on two queues, each waited for, over each other's blocks",
        steps: &[Commit(0, &[0, 2]), Wait(0), Commit(1, &[2, 4]), Wait(1), Commit(0, &[0, 4, 6]), Wait(0)],
        ..PLAIN
    },
    Program {
        name: "two-queues",
        about: "transactions in flight on two queues at once, waited for in another order",
        steps: &[Commit(0, &[0, 2]), Commit(1, &[4, 6]), Commit(0, &[8]), Wait(1), Commit(1, &[10]), Wait(0), Wait(1)],
        ..PLAIN
    },
    Program {
        name: "slots-again",
        about: "more transactions than a queue has slots: they are used again",
        depth: 4,
        steps: &[
            Commit(0, &[0]),
            Commit(0, &[2]),
            Commit(0, &[4]),
            Wait(0),
            Commit(0, &[0, 6]),
            Commit(1, &[8]),
            Poll(0),
            Commit(0, &[2]),
            Wait(0),
            Wait(1),
            Commit(0, &[0, 4]),
            Wait(0),
        ],
        ..PLAIN
    },
    Program {
        name: "slots-in-flight",
        about: "slots used again while the device works, of transactions that nobody has waited for",
        depth: 4,
        steps: &[
            Commit(0, &[0]),
            Commit(0, &[1]),
            Commit(0, &[2]),
            Poll(0),
            Poll(0),
            Commit(0, &[3]),
            Poll(0),
            Commit(0, &[4]),
            Poll(0),
            Commit(0, &[5]),
            Wait(0),
        ],
        ..PLAIN
    },
    Program {
        name: "durable-heads",
        about: "transactions that are acknowledged once the window certainly does not show them",
        depth: 4,
        waits_for_head: true,
        steps: &[
            Commit(0, &[0, 2]),
            Commit(1, &[4]),
            Wait(0),
            Commit(0, &[2, 6]),
            Wait(1),
            Wait(0),
            Commit(0, &[0]),
            Commit(1, &[4, 8]),
            Wait(1),
            Wait(0),
        ],
        ..PLAIN
    },
    Program {
        name: "neighbours",
        about: "commands of several blocks",
        merge: true,
        steps: &[Commit(0, &[0, 1, 2]), Commit(1, &[4, 5, 8]), Wait(0), Commit(0, &[1, 2]), Wait(0), Wait(1)],
        ..PLAIN
    },
    Program {
        name: "parts",
        about: "transactions that are too large to be forced: parts, a flush, and the commit",
        most_forced: 4096,
        steps: &[
            Commit(0, &[0, 2, 4]),
            Wait(0),
            Commit(1, &[6]),
            Commit(0, &[0, 4]),
            Wait(0),
            Commit(1, &[8, 10]),
            Wait(1),
        ],
        ..PLAIN
    },
    Program {
        name: "counts-overflow",
        about: "counts of entries, and numbers of commands, that begin again at 0",
        depth: 4,
        first_count: 0u32.wrapping_sub(4),
        steps: &[
            Commit(0, &[0, 2]),
            Commit(1, &[4]),
            Wait(0),
            Commit(0, &[6]),
            Commit(0, &[8, 10]),
            Wait(1),
            Commit(1, &[2, 3, 4]),
            Wait(0),
            Commit(0, &[0]),
            Wait(1),
            Wait(0),
        ],
        ..PLAIN
    },
    Program {
        name: "a-write-fails",
        about: "a write that fails, what is behind it, and another queue, which goes on",
        failing: Some((2, 2)),
        steps: &[
            Commit(0, &[0]),
            Wait(0),
            Commit(0, &[2, 4, 6]),
            Commit(0, &[0, 8]),
            Fails(0),
            Commit(1, &[10]),
            Wait(1),
            Commit(1, &[9, 11]),
            Wait(1),
        ],
        ..PLAIN
    },
    Program {
        name: "again",
        about: "a new life while transactions of the one before are not finished",
        depth: 4,
        steps: &[
            Commit(0, &[0, 2]),
            Wait(0),
            Commit(0, &[4]),
            Commit(1, &[6, 8]),
            Again,
            Commit(1, &[0, 8]),
            Wait(1),
            Commit(0, &[2]),
            Again,
            Commit(0, &[4]),
            Wait(0),
        ],
        ..PLAIN
    },
    Program {
        name: "three-queues",
        about: "three queues",
        queues: 3,
        depth: 4,
        steps: &[
            Commit(2, &[0, 2]),
            Commit(0, &[4]),
            Commit(1, &[6]),
            Wait(1),
            Commit(1, &[6, 8]),
            Wait(0),
            Wait(2),
            Wait(1),
        ],
        ..PLAIN
    },
    Program {
        name: "four-queues",
        about: "four queues, with one transaction each",
        queues: 4,
        depth: 4,
        waits_for_head: true,
        steps: &[
            Commit(3, &[0]),
            Commit(0, &[2]),
            Commit(1, &[4]),
            Wait(3),
            Commit(2, &[6, 7]),
            Wait(0),
            Wait(1),
            Wait(2),
        ],
        ..PLAIN
    },
];
