//! The places where flash is programmed, erased and waited for.

wholly_media::sites! {
    /// A page of a transaction is programmed.
    WRITE = "xftl.write.program";
    /// A page that was written plainly is programmed.
    PLAIN = "xftl.plain.program";
    /// Collection programs a page elsewhere.
    MOVE = "xftl.collect.program";
    /// Wait for the pages of a commit, before its chain.
    WRITE_WAIT = "xftl.commit.wait.data";
    /// A page of a chain is programmed.
    CHAIN = "xftl.commit.program.chain";
    /// Wait for the chain: the transactions survive.
    CHAIN_WAIT = "xftl.commit.wait.chain";
    /// Wait for plain writes.
    FLUSH_WAIT = "xftl.flush.wait";
    /// A table page is programmed.
    TABLE = "xftl.checkpoint.program.table";
    /// A directory page is programmed.
    DIRECTORY = "xftl.checkpoint.program.directory";
    /// Wait for what the root names, and what the map names.
    TABLE_WAIT = "xftl.checkpoint.wait.tables";
    /// The next block of the ring is erased.
    RING_ERASE = "xftl.root.erase";
    /// Wait for that.
    RING_WAIT = "xftl.root.wait.erase";
    /// The root is programmed.
    ROOT = "xftl.root.program";
    /// Wait for the root.
    ROOT_WAIT = "xftl.root.wait";
    /// A block that nothing durable names is erased.
    ERASE = "xftl.erase";
    /// Wait for erases.
    ERASE_WAIT = "xftl.erase.wait";
    /// What the next life finds becomes durable before it acts on it.
    OPEN_WAIT = "xftl.open.wait";
    /// The head of a flash file is written.
    FORMAT = "xftl.format.write";
    /// Wait for that.
    FORMAT_WAIT = "xftl.format.wait";
}
