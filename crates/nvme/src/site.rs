//! The places where the driver stores to the persistent memory region, orders its stores, and writes registers.

wholly_media::sites! {
    /// The controller is disabled: nothing of an earlier life is in flight after it.
    RESET = "nvme.reset";
    /// Any other register outside of a transaction.
    SETUP = "nvme.setup";
    /// The head line of another life is made invalid.
    START_VOID = "nvme.start.void";
    /// That comes before what follows.
    START_VOID_ORDER = "nvme.start.void.order";
    /// It is durable.
    START_VOID_BARRIER = "nvme.start.void.barrier";
    /// Rings and words of queues are zeros.
    START_CLEAR = "nvme.start.clear";
    /// That comes before what follows.
    START_CLEAR_ORDER = "nvme.start.clear.order";
    /// It is durable.
    START_CLEAR_BARRIER = "nvme.start.clear.barrier";
    /// The head line of this life.
    START_HEAD = "nvme.start.head";
    /// That comes before what follows.
    START_HEAD_ORDER = "nvme.start.head.order";
    /// It is durable.
    START_HEAD_BARRIER = "nvme.start.head.barrier";
    /// The entries of a transaction.
    ENTRIES = "nvme.commit.entries";
    /// They arrive before the tail.
    ENTRIES_ORDER = "nvme.commit.entries.order";
    /// The tail, P-SQDB.
    TAIL = "nvme.commit.tail";
    /// It is on its way before the barrier.
    TAIL_ORDER = "nvme.commit.tail.order";
    /// Entries and tail are durable.
    COMMIT_BARRIER = "nvme.commit.barrier";
    /// The doorbell of the submission queue.
    RING = "nvme.commit.ring";
    /// The head, P-SQ-head.
    HEAD = "nvme.complete.head";
    /// It arrives before the doorbell of the completion queue.
    HEAD_ORDER = "nvme.complete.head.order";
    /// The doorbell of the completion queue.
    COMPLETE = "nvme.complete.ring";
    /// The head is durable, because somebody needs slots or waits for that.
    HEAD_BARRIER = "nvme.complete.head.barrier";
    /// The doorbell of an ordinary submission queue.
    PLAIN_RING = "nvme.plain.ring";
    /// The doorbell of an ordinary completion queue.
    PLAIN_COMPLETE = "nvme.plain.complete";
}
