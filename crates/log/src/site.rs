//! Every place in the log that changes or orders persistent bytes, by name.

wholly_media::sites! {
    /// The first superblock and the first segments.
    LOG_FORMAT = "log.format";
    /// More segments.
    LOG_GROW = "log.grow";
    /// The superblock tells of more segments, before one of them is used.
    LOG_GROW_COUNT = "log.grow-count";
    /// The superblock tells of fewer segments, before the log is cut.
    LOG_SHRINK_COUNT = "log.shrink-count";
    /// Fewer segments.
    LOG_SHRINK = "log.shrink";
    /// The header of a segment that a lane opens.
    SEGMENT_HEADER = "lane.segment-header";
    /// A payload, appended to a lane while its group runs.
    LANE_PAYLOAD = "lane.payload";
    /// The entries at the end of a record.
    LANE_ENTRIES = "lane.entries";
    /// The first line of a part.
    LANE_PART = "lane.part";
    /// Parts are durable before their commit record is written.
    LANE_PARTS_FENCE = "lane.parts-fence";
    /// The first line of a commit record.
    LANE_COMMIT = "lane.commit";
    /// The fence that makes a group survive.
    LANE_COMMIT_FENCE = "lane.commit-fence";
    /// The synchronous write that makes a batch of groups survive on a disk.
    BATCH_WRITE = "batch.write";
    /// A segment with a part of a group that has outgrown memory, on a disk.
    SPILL_WRITE = "spill.write";
    /// A part that its group gives up is a record no more.
    SPILL_GIVE_UP = "spill.give-up";
    /// Spilled parts are durable before their commit record is written.
    SPILL_SYNC = "spill.sync";
    /// Recovery makes the log's length durable on persistent memory.
    RECOVER_LENGTH = "recover.length";
    /// Recovery makes durable what a dead process wrote to a log on a disk, its length included.
    RECOVER_SETTLE = "recover.settle";
    /// Recovery wipes the head of a record that it rejects.
    RECOVER_WIPE = "recover.wipe";
    /// Recovery writes again what it accepts and may not be durable.
    RECOVER_REWRITE = "recover.rewrite";
    /// Recovery makes durable what it accepts.
    RECOVER_FENCE = "recover.fence";
    /// Recovery raises the incarnation.
    RECOVER_INCARNATION = "recover.incarnation";
    /// A checkpoint is about to touch home files.
    CHECKPOINT_BEGIN = "checkpoint.begin";
    /// The tail moves.
    CHECKPOINT_TAIL = "checkpoint.tail";
}
