//! What was done.

/// What a block has, as its writer tells. For counts only: which kinds of blocks a crash has dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tag {
    /// Content of files.
    Data,
    /// Inodes.
    Inode,
    /// Nodes of block maps.
    Map,
    /// Entries of directories.
    Directory,
    /// Bitmaps of allocators.
    Bitmap,
}

impl Tag {
    /// All of them.
    pub const ALL: [Tag; 5] = [Tag::Data, Tag::Inode, Tag::Map, Tag::Directory, Tag::Bitmap];
}

/// Commands that were given since the medium was opened, by callers of the implementation that is asked. Calls that
/// were refused do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks that transactions have written.
    pub writes: u64,
    /// Blocks that were read, in a transaction or not.
    pub reads: u64,
    /// Blocks that transactions have discarded.
    pub discards: u64,
    /// Commits. Several transactions in one are one.
    pub commits: u64,
    /// Transactions that were committed.
    pub committed: u64,
    /// Commits that depend on others that are not durable, on another queue.
    pub depending: u64,
    /// Transactions that were aborted.
    pub aborts: u64,
    /// Blocks that were written plainly.
    pub plain_writes: u64,
    /// Plain flushes.
    pub plain_flushes: u64,
    /// Blocks that were trimmed.
    pub trims: u64,
    /// Blocks of transactions that the last open has found unfinished and dropped, by [`Tag::ALL`].
    pub dropped: [u64; 5],
}
