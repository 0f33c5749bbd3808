//! Programs on transactions of blocks, as data.

use super::Kind;

/// One thing that a program asks. Transactions have letters.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A transaction begins.
    Begin(u8),
    /// It writes a block over.
    Write(u8, u64),
    /// So many blocks from one on.
    Writes(u8, u64, u64),
    /// It writes a block whose earlier version nobody needs.
    Fresh(u8, u64),
    /// So many blocks from one on.
    Freshes(u8, u64, u64),
    /// It discards so many blocks.
    Discard(u8, u64, u64),
    /// It discards so many blocks, every second one, by a call each.
    DiscardEach(u8, u64, u64),
    /// It gets room for so many pages.
    Admit(u8, u64),
    /// It is lent so many blocks, where blocks can be lent.
    Lend(u8, u64, u64),
    /// It writes blocks until there is no space.
    Fill(u8),
    /// It is aborted.
    Abort(u8),
    /// Transactions are ordered by one call.
    Order(&'static [u8]),
    /// What is ordered is sent.
    Send,
    /// What is ordered becomes durable.
    Wait,
    /// Transactions are ordered, and become durable.
    Commit(&'static [u8]),
    /// For each pair of blocks a transaction writes both, and becomes durable.
    Pairs(&'static [(u64, u64)]),
    /// A block is written in no transaction.
    Plain(u64),
    /// What was written so becomes durable.
    Flush,
}

use Step::{
    Abort, Admit, Begin, Commit, Discard, DiscardEach, Fill, Flush, Fresh, Freshes, Lend, Order, Pairs, Plain, Send,
    Wait, Write, Writes,
};

/// A program.
#[derive(Debug)]
pub struct Program {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// On what.
    pub on: &'static [Kind],
    /// How many blocks there are.
    pub blocks: u64,
    /// Blocks from this one on are looked at only once block 0 has been written: fresh content that becomes durable
    /// with that. Before, anything may be there.
    pub behind: u64,
    /// What it asks.
    pub steps: &'static [Step],
}

const NONE: u64 = u64::MAX;
const EACH: &[Kind] = &Kind::ALL;
/// Those whose plain writes keep whole blocks.
const WHOLE: &[Kind] = &[Kind::Contract, Kind::Xftl];

/// All of them.
pub const ALL: &[Program] = &[
    Program {
        name: "overlapping",
        about: "transactions that write the same blocks, ordered before the first of them is durable",
        on: EACH,
        blocks: 6,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Write(b'a', 0),
            Write(b'a', 1),
            Order(b"a"),
            Begin(b'b'),
            Write(b'b', 1),
            Write(b'b', 2),
            Order(b"b"),
            Begin(b'c'),
            Write(b'c', 3),
            Order(b"c"),
            Send,
            Begin(b'd'),
            Write(b'd', 0),
            Order(b"d"),
            Wait,
            Begin(b'e'),
            Write(b'e', 1),
            Commit(b"e"),
        ],
    },
    Program {
        name: "together",
        about: "several transactions by one call, beside one that runs on and one that is aborted",
        on: EACH,
        blocks: 6,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Begin(b'b'),
            Begin(b'c'),
            Begin(b'd'),
            Write(b'a', 0),
            Write(b'b', 1),
            Write(b'c', 2),
            Write(b'd', 3),
            Abort(b'c'),
            Commit(b"ab"),
            Write(b'd', 4),
            Begin(b'e'),
            Write(b'e', 2),
            Order(b"de"),
            Wait,
        ],
    },
    Program {
        name: "aborts",
        about: "transactions that end, and the same blocks in others",
        on: EACH,
        blocks: 6,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Writes(b'a', 0, 4),
            Abort(b'a'),
            Begin(b'b'),
            Write(b'b', 0),
            Commit(b"b"),
            Begin(b'c'),
            Write(b'c', 0),
            Write(b'c', 5),
            Abort(b'c'),
            Begin(b'd'),
            Write(b'd', 5),
            Commit(b"d"),
        ],
    },
    Program {
        name: "discards",
        about: "blocks that are discarded, and written by others",
        on: EACH,
        blocks: 6,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Writes(b'a', 0, 3),
            Commit(b"a"),
            Begin(b'b'),
            Discard(b'b', 1, 1),
            Write(b'b', 0),
            Commit(b"b"),
            Begin(b'c'),
            Write(b'c', 1),
            Commit(b"c"),
            Begin(b'd'),
            Discard(b'd', 1, 1),
            Commit(b"d"),
            Begin(b'e'),
            Fresh(b'e', 1),
            Write(b'e', 2),
            Commit(b"e"),
        ],
    },
    Program {
        name: "round-and-round",
        about: "so many transactions that a log goes round, or a flash disk collects",
        on: EACH,
        blocks: 8,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Writes(b'a', 0, 8),
            Commit(b"a"),
            Begin(b'b'),
            Writes(b'b', 0, 5),
            Commit(b"b"),
            Begin(b'c'),
            Writes(b'c', 3, 5),
            Begin(b'd'),
            Writes(b'd', 0, 3),
            Commit(b"d"),
            Commit(b"c"),
            Begin(b'e'),
            Writes(b'e', 0, 8),
            Commit(b"e"),
            Begin(b'f'),
            Writes(b'f', 2, 6),
            Commit(b"f"),
            Begin(b'g'),
            Writes(b'g', 0, 8),
            Commit(b"g"),
            Begin(b'h'),
            Writes(b'h', 1, 4),
            Commit(b"h"),
        ],
    },
    Program {
        name: "admitted",
        about: "room that is admitted, and pages beyond it",
        on: EACH,
        blocks: 12,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Admit(b'a', 4),
            Writes(b'a', 0, 6),
            Order(b"a"),
            Begin(b'b'),
            Admit(b'b', 4),
            Writes(b'b', 4, 4),
            Order(b"b"),
            Begin(b'c'),
            Admit(b'c', 6),
            Writes(b'c', 6, 6),
            Commit(b"c"),
        ],
    },
    Program {
        name: "lent",
        about: "a transaction of more blocks than there is room for elsewhere: free blocks are lent to it",
        on: &[Kind::Log, Kind::Xftl],
        blocks: 60,
        behind: 40,
        // Block 0 is never written: what lent blocks have is unspecified.
        steps: &[
            Begin(b'a'),
            Writes(b'a', 1, 3),
            Commit(b"a"),
            Begin(b'b'),
            Lend(b'b', 40, 20),
            Writes(b'b', 1, 12),
            Commit(b"b"),
            Begin(b'c'),
            Write(b'c', 2),
            Commit(b"c"),
        ],
    },
    Program {
        name: "fresh",
        about: "more fresh content than is held in memory, and some of it written over",
        on: &[Kind::Log, Kind::Xftl],
        blocks: 30,
        behind: 6,
        steps: &[
            Begin(b'a'),
            Freshes(b'a', 6, 20),
            Write(b'a', 0),
            Commit(b"a"),
            Begin(b'b'),
            Write(b'b', 7),
            Write(b'b', 1),
            Commit(b"b"),
        ],
    },
    Program {
        name: "full",
        about: "transactions that write until there is no space, and others after that",
        on: &[Kind::Xftl],
        blocks: 12,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Fill(b'a'),
            Commit(b"a"),
            Begin(b'b'),
            Fill(b'b'),
            Discard(b'b', 6, 6),
            Commit(b"b"),
            Begin(b'c'),
            Write(b'c', 0),
            Commit(b"c"),
        ],
    },
    Program {
        name: "many-small",
        about: "many small transactions all over a small device",
        on: &[Kind::Xftl],
        blocks: 12,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Fill(b'a'),
            Commit(b"a"),
            Pairs(&[(0, 3), (6, 9), (1, 4), (7, 10), (2, 5), (8, 11), (0, 7), (3, 10)]),
            Pairs(&[(1, 6), (4, 9), (2, 0), (5, 3), (8, 1), (11, 4), (6, 2), (9, 5)]),
        ],
    },
    Program {
        name: "collected",
        about: "a transaction that runs while many small ones make a full flash disk collect, and move its pages",
        on: &[Kind::Xftl],
        blocks: 16,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Fill(b'a'),
            Commit(b"a"),
            Begin(b'b'),
            Writes(b'b', 4, 4),
            Commit(b"b"),
            Begin(b'c'),
            Writes(b'c', 8, 4),
            Commit(b"c"),
            Begin(b'd'),
            Writes(b'd', 12, 4),
            Commit(b"d"),
            Begin(b'r'),
            // A page of it in each of two erase blocks, whose others are soon written anew.
            Write(b'r', 12),
            Pairs(&[(0, 1)]),
            Begin(b'q'),
            Write(b'q', 2),
            Commit(b"q"),
            Write(b'r', 13),
            Pairs(&[(0, 1), (2, 0), (1, 2), (0, 1), (2, 0), (1, 2), (0, 1)]),
            Commit(b"r"),
            Pairs(&[(12, 5)]),
        ],
    },
    Program {
        name: "plain",
        about: "plain writes before, beside and behind transactions",
        on: WHOLE,
        blocks: 6,
        behind: NONE,
        steps: &[
            Plain(0),
            Plain(1),
            Flush,
            Plain(0),
            Begin(b'a'),
            Write(b'a', 2),
            Commit(b"a"),
            Plain(2),
            Flush,
            Begin(b'b'),
            Write(b'b', 1),
            Commit(b"b"),
            Plain(1),
            Flush,
        ],
    },
    Program {
        name: "chains",
        about: "commits of two and of three pages of a chain",
        on: &[Kind::Xftl],
        blocks: 680,
        behind: NONE,
        steps: &[
            Begin(b'a'),
            Writes(b'a', 0, 4),
            Commit(b"a"),
            Begin(b'b'),
            Write(b'b', 1),
            DiscardEach(b'b', 2, 170),
            Commit(b"b"),
            Begin(b'c'),
            Writes(b'c', 0, 3),
            DiscardEach(b'c', 4, 337),
            Commit(b"c"),
        ],
    },
];
