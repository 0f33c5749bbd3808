//! The cases of each suite.

use crate::workload::{Case, Size};

/// Groups of small overwrites by one thread: the cost of making updates atomic and durable.
///
/// - `one_64`, `one_4k`: one aligned random overwrite in a file of 256 MiB.
/// - `two_files`: FCFS's microbenchmark: two unaligned random overwrites of 1 to 16 KiB in two of 1,000 files of 4 MiB.
/// - `two_files_4k`: the same with aligned overwrites of 4 KiB.
pub const GROUPS: [Case; 4] = [
    case("one_64", 1, 256 << 20, 1, Size::Aligned(64), false),
    case("one_4k", 1, 256 << 20, 1, Size::Aligned(4096), true),
    case("two_files", 1000, 4 << 20, 2, Size::Uniform(1 << 10, 16 << 10), true),
    case("two_files_4k", 1000, 4 << 20, 2, Size::Aligned(4096), true),
];

/// Opening a store: see [`opening`](crate::opening).
///
/// - `log_4k`, `log_64`: a log of 1 GiB full of groups that overwrite 4 KiB or 64 bytes of one file of 256 MiB. Each
///   block of the file has 4 or 128 versions in the log then: a table of a database under a load that is spread evenly.
///   A file of which the log touches each block only once needs more memory a group: the index takes 512 bytes for 64
///   neighbouring blocks of which one was touched.
/// - `log_4k_files`: the same over 1,000 files, which recovery has to open.
/// - `idle`: nothing in the log.
pub const OPEN: [Case; 4] = [
    opening("log_4k", 1, 256 << 20, Size::Aligned(4096), false),
    opening("log_4k_files", 1000, 256 << 10, Size::Aligned(4096), false),
    opening("log_64", 1, 256 << 20, Size::Aligned(64), false),
    opening("idle", 1, 1 << 20, Size::Aligned(4096), true),
];

/// Whole tasks: see [`tasks`](crate::tasks).
///
/// - `create_10k`: 10,000 files of 1 KiB in 20 new directories.
/// - `replace`, `overwrite`: 4 KiB, all of a file, by a new file that is renamed over it, or in place.
/// - `rewrite_1g`: all of a file of 1 GiB.
/// - `write_64k` to `write_1g`: new files of that size.
/// - `over_256k` to `over_16m`: all of files of that size.
/// - `read_4k`, `read_64k`: of a file of 256 MiB, at random and in order.
///
/// On persistent memory, calls on one file under the policy `per-sync`:
///
/// - `epoch_same_4k`, `epoch_same_128`: over the same bytes; `epoch_random_4k`, `epoch_random_128`: at random, 4 KiB at
///   multiples of them, 128 bytes at any byte; `epoch_half`: each over half of the last one; `epoch_1g`: at random in a
///   file of 1 GiB. No call is synced.
/// - `epoch_fsync_4k`: a write at random and a sync.
/// - `read_clean_128`, `read_clean_4k`: reads at random of a file whose bytes are home.
pub const STORE: [Case; 23] = [
    task("create_10k", 10_000, 1 << 10, Size::Aligned(1 << 10)),
    task("replace", 1, 4 << 10, Size::Aligned(4 << 10)),
    task("overwrite", 1, 4 << 10, Size::Aligned(4 << 10)),
    task("rewrite_1g", 1, 1 << 30, Size::Aligned(1 << 20)),
    task("write_64k", 64, 64 << 10, Size::Aligned(64 << 10)),
    task("write_256k", 32, 256 << 10, Size::Aligned(64 << 10)),
    task("write_1m", 16, 1 << 20, Size::Aligned(64 << 10)),
    task("write_16m", 4, 16 << 20, Size::Aligned(1 << 20)),
    task("write_1g", 1, 1 << 30, Size::Aligned(1 << 20)),
    task("over_256k", 32, 256 << 10, Size::Aligned(64 << 10)),
    task("over_1m", 16, 1 << 20, Size::Aligned(64 << 10)),
    task("over_16m", 4, 16 << 20, Size::Aligned(1 << 20)),
    task("read_4k", 1, 256 << 20, Size::Aligned(4 << 10)),
    task("read_64k", 1, 256 << 20, Size::Aligned(64 << 10)),
    of_epoch("epoch_same_4k", 64 << 20, Size::Aligned(4 << 10)),
    of_epoch("epoch_same_128", 64 << 20, Size::Uniform(128, 128)),
    of_epoch("epoch_random_4k", 64 << 20, Size::Aligned(4 << 10)),
    of_epoch("epoch_random_128", 64 << 20, Size::Uniform(128, 128)),
    of_epoch("epoch_half", 64 << 20, Size::Aligned(4 << 10)),
    of_epoch("epoch_1g", 1 << 30, Size::Aligned(4 << 10)),
    of_epoch("epoch_fsync_4k", 64 << 20, Size::Aligned(4 << 10)),
    of_epoch("read_clean_128", 64 << 20, Size::Uniform(128, 128)),
    of_epoch("read_clean_4k", 64 << 20, Size::Aligned(4 << 10)),
];

/// Whole commands, by `wholly run` and without it: see [`commands`](crate::commands).
///
/// - `true_100k`: a command that does nothing, in a directory of 100,000 files.
/// - `tar_10k`, `tar_30k`: an archive of 10,000, or 30,000, files of 1 KiB is unpacked.
/// - `git_clone`: a repository of 2,000 files of 4 KiB is cloned.
/// - `make_j2`: a program of 60 files in C is built by two compilers at a time.
/// - `dpkg_5k`: a package of 5,000 files of 1 KiB is installed.
/// - `rm_rf`: a tree of 10,000 files is removed.
/// - `sed_1k`: 1,000 files are edited by `sed -i`.
/// - `write_1g`: a file of 1 GiB is written.
/// - `change_1g`: 4 KiB of a file of 1 GiB are overwritten.
/// - `change_15`: in a directory of 100,000 files, five files are overwritten, five removed and five made.
pub const RUN: [Case; 11] = [
    command("true_100k", 100_000, 1 << 10),
    command("change_15", 100_000, 1 << 10),
    command("tar_10k", 10_000, 1 << 10),
    command("tar_30k", 30_000, 1 << 10),
    command("git_clone", 2_000, 4 << 10),
    command("make_j2", 60, 4 << 10),
    command("dpkg_5k", 5_000, 1 << 10),
    command("rm_rf", 10_000, 1 << 10),
    command("sed_1k", 1_000, 1 << 10),
    command("write_1g", 1, 1 << 30),
    command("change_1g", 1, 1 << 30),
];

/// Calls on a mounted store: see [`mounts`](crate::mounts).
///
/// - `read_4k`: reads of 4 KiB at random from a file of 64 MiB that the kernel has in its pages; `read_4k_uncached`:
///   the same past them.
/// - `write_4k`: writes of 4 KiB at random to a file of 64 MiB, past the kernel's pages, and an `fsync`.
/// - `fstat`: of an open file.
/// - `create_unlink`: a file is made, closed and removed.
/// - `read_4k_beside`: as `read_4k`, after a byte of the file was written; `read_written`: a file of 128 MiB is read
///   that was just written. Both on mounts of a volume.
pub const MOUNT: [Case; 7] = [
    call("read_4k", 64 << 20),
    call("fstat", 4 << 10),
    call("read_4k_uncached", 64 << 20),
    call("write_4k", 64 << 20),
    call("create_unlink", 0),
    call("read_4k_beside", 64 << 20),
    call("read_written", 128 << 20),
];

/// A volume in process and mounted: see [`volume`](crate::volume).
///
/// - `read`, `overwrite`: 4 KiB at random of a file of 1 GiB, in process.
/// - `create`, `unlink`: files in a directory of 100,000, in process.
/// - `tar_10k`, `git_clone`: as in the suite `run`, on a mount; `rm_rf`: the tree of `tar_10k` is removed.
/// - `read_4k_uncached`, `write_4k`: as in the suite `mount`.
/// - `group_8k`, `fsync_4k`: durable writes of `page_cache_wal` on a disk, in process and on a mount; `block_4k`: of
///   the log below it; `writers_4k`: by one thread and by eight.
/// - `open_1m`, `open_1m_disk`: 10^6 files of 8 KiB on average.
pub const VOLUME: [Case; 15] = [
    in_process("read", 1, 1 << 30),
    in_process("overwrite", 1, 1 << 30),
    in_process("create", 100_000, 0),
    in_process("unlink", 100_000, 0),
    on_volume("tar_10k", 10_000, 1 << 10),
    on_volume("git_clone", 2_000, 4 << 10),
    on_volume("rm_rf", 10_000, 1 << 10),
    on_volume("read_4k_uncached", 1, 64 << 20),
    on_volume("write_4k", 1, 64 << 20),
    on_volume("group_8k", 1, 16 << 20),
    on_volume("block_4k", 1, 64 << 20),
    on_volume("fsync_4k", 1, 64 << 20),
    on_volume("writers_4k", 8, 8 << 20),
    in_process("open_1m", 1_000_000, 8 << 10),
    on_volume("open_1m_disk", 1_000_000, 8 << 10),
];

/// FCFS's microbenchmark on volumes: see [`fcfs`](crate::fcfs).
///
/// - `two_files`: two overwrites of 1 byte to 16 KiB at any byte, in two of the files of 4 MiB.
/// - `size_64` to `size_16k`: aligned overwrites of that size.
/// - `recovery`: of a log that `two_files` has left.
pub const FCFS: [Case; 7] = [
    of_paper("two_files", Size::Uniform(1, 16 << 10)),
    of_paper("size_64", Size::Aligned(64)),
    of_paper("size_256", Size::Aligned(256)),
    of_paper("size_1k", Size::Aligned(1 << 10)),
    of_paper("size_4k", Size::Aligned(4 << 10)),
    of_paper("size_16k", Size::Aligned(16 << 10)),
    of_paper("recovery", Size::Uniform(1, 16 << 10)),
];

/// The benchmarks of MinL2R: see [`minl2r`](crate::minl2r). Each case has several sizes.
///
/// - `fio`: random overwrites of 1 to 32 KiB in a file of 16 MiB.
/// - `iozone`: overwrites of 1 to 512 KiB in order, at random, and through a buffer of 4 KiB.
/// - `threshold`: overwrites inside of a block by different thresholds.
/// - `backup`: bytes that are logged or copied by overwrites of 1 to 512 KiB.
pub const MINL2R: [Case; 4] = [of_minl2r("fio"), of_minl2r("iozone"), of_minl2r("threshold"), of_minl2r("backup")];

const fn of_minl2r(name: &'static str) -> Case {
    let size = Size::Aligned(4 << 10);
    Case { suite: "minl2r", name, files: 1, file_bytes: 16 << 20, updates: 1, size, on_disk: false }
}

const fn case(name: &'static str, files: u32, file_bytes: u64, updates: usize, size: Size, on_disk: bool) -> Case {
    Case { suite: "groups", name, files, file_bytes, updates, size, on_disk }
}

const fn opening(name: &'static str, files: u32, file_bytes: u64, size: Size, on_disk: bool) -> Case {
    Case { suite: "open", name, files, file_bytes, updates: 1, size, on_disk }
}

const fn task(name: &'static str, files: u32, file_bytes: u64, size: Size) -> Case {
    Case { suite: "store", name, files, file_bytes, updates: 1, size, on_disk: true }
}

const fn of_epoch(name: &'static str, file_bytes: u64, size: Size) -> Case {
    Case { on_disk: false, ..task(name, 1, file_bytes, size) }
}

const fn command(name: &'static str, files: u32, file_bytes: u64) -> Case {
    Case { suite: "run", name, files, file_bytes, updates: 1, size: Size::Aligned(4 << 10), on_disk: true }
}

const fn call(name: &'static str, file_bytes: u64) -> Case {
    Case { suite: "mount", name, files: 1, file_bytes, updates: 1, size: Size::Aligned(4 << 10), on_disk: true }
}

const fn in_process(name: &'static str, files: u32, file_bytes: u64) -> Case {
    Case { suite: "volume", name, files, file_bytes, updates: 1, size: Size::Aligned(4 << 10), on_disk: false }
}

const fn of_paper(name: &'static str, size: Size) -> Case {
    Case { suite: "fcfs", name, files: 1000, file_bytes: 4 << 20, updates: 2, size, on_disk: false }
}

const fn on_volume(name: &'static str, files: u32, file_bytes: u64) -> Case {
    Case { on_disk: true, ..in_process(name, files, file_bytes) }
}

/// Transactions on queues in a device's persistent memory region: see [`ccnvme`](crate::ccnvme).
///
/// - `table1`: what a transaction of 1 to 64 blocks moves over PCIe.
/// - `tx`: transactions of 4 to 64 KiB, one after the other and many at once, by the times of a profile.
/// - `pmr`: stores to the region, with and without a barrier, by the same times.
pub const CCNVME: [Case; 3] = [of_ccnvme("table1"), of_ccnvme("tx"), of_ccnvme("pmr")];

const fn of_ccnvme(name: &'static str) -> Case {
    Case {
        suite: "ccnvme",
        name,
        files: 1,
        file_bytes: 4 << 20,
        updates: 1,
        size: Size::Aligned(4 << 10),
        on_disk: false,
    }
}

/// Transactions of blocks on a disk: see [`journal`](crate::journal).
pub const JOURNAL: [Case; 3] = [of_journal("tx"), of_journal("writers"), of_journal("recovery")];

const fn of_journal(name: &'static str) -> Case {
    Case { suite: "journal", on_disk: true, ..of_ccnvme(name) }
}

/// The figures of MQFS: see [`mqfs`](crate::mqfs).
///
/// - `table1`: what `fsync` and `fatomic` of 1 to 64 blocks move over PCIe.
/// - `fig2`, `fig11`: appends to private files, each followed by `fsync` or `fdataatomic`.
/// - `fig12a`, `fig12b`: varmail, and the log of a key-value store.
/// - `fig13`: one mechanism after the other.
/// - `fig14`: the stages of a sync.
pub const MQFS: [Case; 7] = [
    of_mqfs("table1"),
    of_mqfs("fig2"),
    of_mqfs("fig11"),
    of_mqfs("fig12a"),
    of_mqfs("fig12b"),
    of_mqfs("fig13"),
    of_mqfs("fig14"),
];

const fn of_mqfs(name: &'static str) -> Case {
    Case { suite: "mqfs", ..of_ccnvme(name) }
}

/// Names of all suites.
pub const NAMES: [&str; 11] =
    ["groups", "open", "store", "run", "mount", "volume", "fcfs", "minl2r", "ccnvme", "journal", "mqfs"];

/// The cases of the suite `name`.
pub fn by_name(name: &str) -> Option<&'static [Case]> {
    match name {
        "groups" => Some(&GROUPS),
        "open" => Some(&OPEN),
        "store" => Some(&STORE),
        "run" => Some(&RUN),
        "mount" => Some(&MOUNT),
        "volume" => Some(&VOLUME),
        "fcfs" => Some(&FCFS),
        "minl2r" => Some(&MINL2R),
        "ccnvme" => Some(&CCNVME),
        "journal" => Some(&JOURNAL),
        "mqfs" => Some(&MQFS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_cases_that_name_it() {
        for name in NAMES {
            let cases = by_name(name).unwrap();
            assert!(!cases.is_empty());
            assert!(cases.iter().all(|case| case.suite == name));
        }
        assert!(by_name("nonsense").is_none());
    }
}
