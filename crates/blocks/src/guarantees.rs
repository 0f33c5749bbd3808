//! What implementations promise, and where their bounds are. Callers choose by it; the simulator obeys it.

/// Which ordered transactions a crash keeps, of those that are not durable yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A prefix of the order.
    Total,
    /// A set that is closed under dependency. A transaction depends on each one ordered before it that has written or
    /// discarded one of its blocks, fresh or not, and on those that `order` was told by `after`.
    Dependent,
}

/// Of a [`TxBlocks`](crate::TxBlocks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockGuarantees {
    /// How many blocks there are.
    pub blocks: u64,
    /// What a crash keeps of ordered transactions (T1).
    pub order: Order,
    /// Whether blocks that are written over ([`Placement::Overwrite`](crate::Placement)) leave memory before the
    /// transaction is ordered. If not, they stay in memory, or in blocks that the caller has lent.
    pub steals_overwrites: bool,
    /// How many blocks a transaction may write over before it needs blocks that were lent (T10). `None`: any number.
    pub most_overwrites: Option<u64>,
    /// How many pages, [`admitted`](crate::TxBlocks::admit) together, an empty implementation has room for.
    pub room: u64,
    /// Whether blocks can be lent ([`lend`](crate::TxBlocks::lend)).
    pub takes_lent: bool,
    /// So many blocks that are lent take the place of one of `most_overwrites`: what names their versions takes space,
    /// too. `u64::MAX`: none.
    pub lent_by_overwrite: u64,
    /// Whether discarded blocks read as zeros once that is durable (T11). If not, what they hold is unspecified.
    pub zeroes_discarded: bool,
    /// Whether each block is checked as it is read (T9), also where only the home has it.
    pub checks_blocks: bool,
    /// Whether this only stands in for the medium: figures must say so.
    pub emulated: bool,
    /// A line for people and reports.
    pub description: String,
}

/// Of a [`TxDevice`](crate::TxDevice).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceGuarantees {
    /// How many blocks there are.
    pub blocks: u64,
    /// How many blocks a transaction may write or discard (T10). `None`: any number, while there is space.
    pub most_pages: Option<u64>,
    /// How many versions that were written over a committed one ([`Placement::Overwrite`](crate::Placement)) all
    /// running transactions together may have, so that no write says `NoSpace`: the space beyond that of all blocks.
    /// `u64::MAX`: space never ends.
    pub sure_overwrites: u64,
    /// Whether free blocks make room for more such versions, one page each. A block is free from its trim on, until
    /// somebody writes it.
    pub free_blocks_help: bool,
    /// So many of these take the place of one of `sure_overwrites`: what names their versions takes space, too.
    /// `u64::MAX`: none.
    pub lent_by_overwrite: u64,
    /// Whether discarded blocks read as zeros (T11). If not, what they hold is unspecified.
    pub zeroes_discarded: bool,
    /// What a crash keeps wholly or not at all of a plain write: a block, or the unit of a medium below.
    pub plain_unit: u32,
    /// Whether each block is checked as it is read (T9).
    pub checks_blocks: bool,
    /// Whether this is a model of a device. Then its times are not those of any real device.
    pub emulated: bool,
    /// A line for people and reports.
    pub description: String,
}
