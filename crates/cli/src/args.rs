//! The command line: verbs, arguments, and what `--help` says of them.

use crate::output::parse_size;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use wholly_crash::blocks;
use wholly_host::HostMedium;
use wholly_volume::{DataMode, EngineKind, Kind, Location};

const ABOUT: &str = "Atomic updates of several files: wholly or not at all";

const LONG_ABOUT: &str = "\
Atomic updates of several files: wholly or not at all

`wholly run -- CMD` runs any command as one group: all that it changes in a directory happens at once, durably, or \
nothing does. `wholly init DIR` makes a directory a store: its files stay ordinary files, and a program that opens \
the store (with the Rust or the C library) can update any number of them in one group. After a crash of the program \
or the machine, each group is there wholly or not at all.";

const EXAMPLES: &str = "\
Examples:
  wholly run -- make install     commit what the command changes here, or nothing
  wholly run --review -- make install   show the changes and ask first
  wholly init ~/accounts         make the directory a store
  wholly list ~/accounts         list its parked groups; see also diff, apply, discard
  wholly stat ~/accounts         show its state; changes nothing
  wholly recover ~/accounts      after a crash: write everything committed back to the files
  wholly check ~/accounts        report everything that is wrong with it
  wholly deinit ~/accounts       make it an ordinary directory again

Exit codes (as fsck(8)):
   0  done, nothing is wrong        8  not done: no store, in use, no space, ...
   1  something was repaired       16  wrong usage
   4  damage or a conflict remains
Outcome of a group (run, apply, discard):
 120  unknown: run `recover`      123  refused: could not be committed
 121  parked                      124  committed, not all written back
 122  discarded

`wholly VERB --help` explains each verb.";

/// The command line.
#[derive(Parser, Debug)]
#[command(name = "wholly", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs, in the order in which `--help` lists them.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run a command and its children as one group: all of their changes happen, or none
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// List the parked groups of a store; changes nothing, works while the store is in use
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Show what a parked group would change
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Commit a parked group, wholly or not at all
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Remove a parked group
    #[command(after_help = DISCARD_EXAMPLES)]
    Discard(ParkedArgs),
    /// List the last commands, and until when each can be taken back; changes nothing, works while the store is in use
    #[command(after_help = LOG_EXAMPLES)]
    Log(ListArgs),
    /// Take back a command that `run` has committed, wholly or not at all
    #[command(after_help = UNDO_EXAMPLES)]
    Undo(UndoArgs),
    /// Make a directory a store
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Mount a store or a volume as a file system, for any program
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(MountArgs),
    /// Make a volume: a file system of Wholly's own, in a file or on a block device
    #[command(after_help = MKFS_EXAMPLES)]
    Mkfs(MkfsArgs),
    /// Make a volume that is not mounted larger or smaller, or give it another label
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(TuneArgs),
    /// Check a volume that is not mounted; changes nothing, unless -p or -y repairs it
    #[command(after_help = FSCK_EXAMPLES)]
    Fsck(FsckArgs),
    /// Copy a directory into a volume that is not mounted
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(CopyArgs),
    /// Copy a volume that is not mounted into a new directory
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(CopyArgs),
    /// Make and look at simulated flash disks with transactions of blocks (a model)
    #[command(after_help = FLASH_EXAMPLES)]
    Flash(FlashArgs),
    /// Look at NVMe controllers with a persistent memory region, and write transactions of blocks on them
    #[command(after_help = NVME_EXAMPLES)]
    Nvme(NvmeArgs),
    /// Show the state of a store, a volume or a mount; changes nothing, works while it is in use
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Recover a store after a crash and write everything committed back to the files
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover(RecoverArgs),
    /// Report everything that is wrong with a store; changes nothing
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Copy a damaged store's files, with all of its log that can be proven, to another directory
    #[command(after_help = SALVAGE_EXAMPLES)]
    Salvage(SalvageArgs),
    /// Write everything back and make the directory an ordinary one again
    #[command(after_help = DEINIT_EXAMPLES)]
    Deinit(DeinitArgs),
    /// Print the log of a store, record by record, or what stands on a volume; changes nothing, works on damaged ones
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(DumpArgs),
    /// Explore every state that a crash may leave of small programs, on simulated media
    #[command(after_help = CRASH_EXAMPLES)]
    Crash(CrashArgs),
    /// Measure on this machine, beside the hardware's bound and, with --peers, other software
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Hold the mounts that a command sees, for `run`
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Become a command, for `run`
    #[command(hide = true)]
    Exec(ExecArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Print the names that may follow in a command line, for completions
    #[command(hide = true)]
    Candidates(CandidatesArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
}

const INIT_EXAMPLES: &str = "\
It creates the folder .wholly in DIR and changes nothing else: the files stay where and what they are. `wholly \
recover --all` will recover the store: its path is registered in /var/lib/wholly/stores by the superuser, else in \
~/.local/state/wholly/stores, or in the directory that WHOLLY_REGISTRY names.

Examples:
  wholly init                      the current directory
  wholly init --dry-run /srv/data  only test the file system there
  wholly init --log-size 64M data  more log from the start, for large groups";

/// `wholly init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The directory; it must exist
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Size of the log at the start, such as 64M; it grows when groups need more
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub log_size: Option<u64>,
    /// Medium that the directory is on
    #[arg(long, value_enum, default_value_t = Medium::Auto)]
    pub medium: Medium,
    /// Only test the file system; leave nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not register the store for `wholly recover --all`
    #[arg(long)]
    pub no_register: bool,
}

/// The medium that a directory is on.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory if the files can be mapped from it (DAX), emulated on tmpfs; else a disk
    Auto,
    /// Persistent memory, emulated if there is none
    Pmem,
    /// A disk
    Disk,
}

impl From<Medium> for HostMedium {
    fn from(medium: Medium) -> HostMedium {
        match medium {
            Medium::Auto => HostMedium::Auto,
            Medium::Pmem => HostMedium::Pmem,
            Medium::Disk => HostMedium::Disk,
        }
    }
}

const STAT_EXAMPLES: &str = "\
It only reads: it recovers nothing and keeps no program out. If a program has the store or volume open, the figures \
are those of the moment. It also names the process that has a group on a mount of it.

Examples:
  wholly stat /srv/data
  wholly stat v.img                  a volume, mounted or not
  wholly stat /mnt                   a mount of a store or volume: its space, and which process has its group
  wholly stat --json /srv/data | jq .pending.groups";

/// `wholly stat`.
#[derive(Args, Debug)]
pub struct StatArgs {
    /// The store, the volume, or a mount of one
    #[arg(default_value = ".", value_hint = ValueHint::AnyPath)]
    pub dir: PathBuf,
    /// Of a volume, print the properties that a rule of udev imports
    #[arg(long, hide = true)]
    pub udev: bool,
}

const DUMP_EXAMPLES: &str = "\
Without options it prints both superblocks, the segments in use and the records of groups that are not written back. \
It only reads: it recovers nothing and keeps no program out.

Of a volume, which must not be mounted, it prints the copies of the superblock, and one inode if PATH or --inode names \
it: where its record and its blocks are, its attributes, the entries of a directory.

Examples:
  wholly dump /srv/data
  wholly dump --all /srv/data | less      also records of groups that are written back
  wholly dump --json /srv/data | jq '.segments[].records[].entries[]'
  wholly dump v.img home/user             the inode of a path in a volume";

/// `wholly dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// The store, or the file or block device with a volume, or flash:FILE, nvme-model:DIR or qemu:DIR
    #[arg(default_value = ".", value_hint = ValueHint::AnyPath)]
    pub dir: PathBuf,
    /// In a volume: the object that is shown; symbolic links are not followed
    #[arg(value_hint = ValueHint::Other)]
    pub path: Option<PathBuf>,
    /// In a volume: the number of the inode that is shown; 2 is the inode file
    #[arg(long, value_name = "NUMBER", conflicts_with = "path")]
    pub inode: Option<u64>,
    /// Also what is no longer needed: free segments, records of groups that are written back
    #[arg(long)]
    pub all: bool,
    /// Only this segment
    #[arg(long, value_name = "NUMBER")]
    pub segment: Option<u32>,
}

const RECOVER_EXAMPLES: &str = "\
Each open of a store recovers it. Use this verb if programs that do not open the store need the files: on return the \
log is empty and all files are current.

--all recovers each store that the calling user has registered, by `wholly init` or --register. A store that is gone \
or not mounted is skipped. A store in use is left to its program, and counts as not opened. WHOLLY_REGISTRY names \
another registry: a directory with a file for each store.

A copy of a store (or a backup) does not open if its log was not empty, because the log holds updates for the \
original's files. --accept-copy accepts the copy: the updates are for the files at the same paths here, as they are. \
If the copy was made during a checkpoint, there may be conflicts.

If a group was to be committed together with groups of other directories, the store asks the first of these \
directories for the decision. If that directory cannot be found, the store does not open. --release opens it without \
the decision: the waiting group becomes a parked group, for `wholly apply` or `wholly discard`.

A store does not open if another user than the calling one and the superuser owns its folder, or may write to it: \
opening a store executes what is written there, with the rights of the calling user. Let its owner recover it \
(`runuser -u USER -- wholly recover DIR`), or use --trust-owner if you trust that user with your rights in DIR.

Exit code, a sum: 0: there was nothing to do; 1: something was recovered; 4: damage or a conflict remains; 8: a store \
could not be opened.

Examples:
  wholly recover /srv/data
  wholly recover --all                          what a system does when it starts
  wholly recover --accept-copy /restored/data   accept a copy, and recover it with the files that are there
  wholly recover --register /mnt/data           recover a store that was moved here, and register it
  wholly recover --json /srv/data | jq .conflicts";

/// `wholly recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The store
    #[arg(default_value = ".", conflicts_with = "all", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// All registered stores
    #[arg(long)]
    pub all: bool,
    /// Register the store for --all, if it was moved or made by a program
    #[arg(long, conflicts_with = "all")]
    pub register: bool,
    /// Accept a copy: the updates in its log are for the files at the same paths
    #[arg(long, conflicts_with = "all")]
    pub accept_copy: bool,
    /// Park groups whose joint commit another store decides that cannot be found
    #[arg(long, conflicts_with = "all")]
    pub release: bool,
    /// Open the store although another user may have written to its folder
    #[arg(long)]
    pub trust_owner: bool,
}

const CHECK_EXAMPLES: &str = "\
It reads the whole log as recovery does, verifies every payload in it, and looks at the files that the log has \
updates for and at the folder .wholly. It keeps no program out; a store that a program has open is not checked. \
--repair only corrects the folder's mode and removes leftovers of stores that were half made or half removed. A crash \
is not damage: the next open recovers what it has left.

Exit code, a sum: 0: nothing is wrong; 1: something was repaired; 4: something is wrong; 8: it could not be checked; \
16: wrong usage.

Examples:
  wholly check /srv/data
  wholly check --repair /srv/data
  wholly check --json /srv/data | jq '.findings[].place'";

/// `wholly check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Repair what is safe to repair: the folder's mode, and leftovers
    #[arg(long)]
    pub repair: bool,
}

const SALVAGE_EXAMPLES: &str = "\
For a store that `recover` refuses. OUT, which must be empty or absent, becomes an ordinary directory: the files as \
they are, and over them each group of the log that can be proven, in commit order. A group is proven if its checksums \
match, each group that it builds on is proven or written back, and its files are as the log says. A group that is not \
proven is left out as a whole, and named. If both superblocks are gone, nothing tells that the log was written in DIR: \
--accept-copy accepts it, as it accepts a copy, and a group counts as not written back if its files have the times from \
before it. DIR is only read, and stays as it is. If OUT is what you want, put it in the place of DIR.

Parked groups are not copied. Owners and modes are kept as far as the calling user may set them. After an \
interruption remove OUT and begin again.

Exit code: 0: everything was proven and is in OUT; 4: something could not be proven, read or kept, and is named; 8: \
not done: DIR is in use or no store, OUT is not empty, no space; 16: wrong usage.

Examples:
  wholly salvage /srv/data /srv/data.salvaged
  wholly salvage --json /srv/data /srv/data.salvaged | jq '.groups[] | select(.fate == \"left-out\")'";

/// `wholly salvage`.
#[derive(Args, Debug)]
pub struct SalvageArgs {
    /// The damaged store
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The copy
    #[arg(value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Accept a store that was copied, or whose superblocks are gone: what its log says is executed in OUT
    #[arg(long)]
    pub accept_copy: bool,
}

const DEINIT_EXAMPLES: &str = "\
Everything committed is written back to the files, then .wholly is removed. Nothing is removed if something cannot be \
written back (another program has changed the file, or the log is damaged), or if groups are parked and \
--discard-parked is not given. A crash meanwhile leaves the store or an ordinary directory; the files are whole in \
both cases.

Exit code: 0: it is an ordinary directory; 4: damage or a conflict keeps the store; 8: in use, no store, or groups \
are parked.

Examples:
  wholly deinit /srv/data
  wholly deinit --json /srv/data | jq .written_back_bytes";

/// `wholly deinit`.
#[derive(Args, Debug)]
pub struct DeinitArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Discard the groups that are parked in it
    #[arg(long)]
    pub discard_parked: bool,
}

const LIST_EXAMPLES: &str = "\
A parked group was set aside instead of committed. It survives by itself until it is applied, discarded, or expires; \
nothing waits for it meanwhile. An expired group is listed until the store is next open, and then removed.

Exit code: 0: listed; 4: a group is damaged; 8: no store.

Examples:
  wholly list /srv/data
  wholly list --json /srv/data | jq -r '.groups[].id'";

/// `wholly list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
}

const LOG_EXAMPLES: &str = "\
In a directory that is a store for good (`wholly init`), a command that was run with `--keep-undo no` is listed too, \
as one that cannot be taken back. A command is listed until it is taken back, its entry is discarded (`wholly \
discard`), it expires, or the space is needed. What took back a command is listed too: to take that back is \
to do the command again.

Exit code: 0: listed; 4: an undo is damaged; 8: no store.

Examples:
  wholly log /srv/data
  wholly log --json /srv/data | jq -r '.undos[].id'";

const UNDO_EXAMPLES: &str = "\
It prints what it changes, a line for each name. A command is taken back only if everything that it changed is as the \
command left it: otherwise all differences are listed, and nothing is changed. What other programs have changed since \
besides that stays. Without ID the newest is taken back; if that took back a command itself, the command's changes are \
made again.

With PATH or --skip-changed a part is taken back. The rest stays undoable, under the same ID.

Exit code: 0: taken back, and all files are current; 4: damaged; 8: in use, no store, nothing to take back; 120: the \
write of the commit failed, run `wholly recover` for the outcome; 123: something has been changed since; nothing has \
changed.

Examples:
  wholly undo
  wholly undo --dry-run /srv/data
  wholly undo /srv/data 5-18
  wholly undo /srv/data 5-18 -- made
  wholly undo --skip-changed
  wholly undo --over-changes";

/// `wholly undo`.
#[derive(Args, Debug)]
pub struct UndoArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The id of the command, from `wholly log`; without it the newest
    #[arg(value_hint = ValueHint::Other)]
    pub id: Option<wholly::ParkedId>,
    /// Show only what would change
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Undo only in this directory, even if the command has changed several
    #[arg(long)]
    pub only: bool,
    /// Leave as it is what has been changed since the command; undo the rest
    #[arg(long)]
    pub skip_changed: bool,
    /// Undo also what has been changed since the command; `wholly undo` again brings that back
    #[arg(long, conflicts_with = "skip_changed")]
    pub over_changes: bool,
    /// Show everything in large directories that are new or gone, one by one
    #[arg(long)]
    pub all: bool,
    /// Undo only the changes at these paths in the store, and of what is in them
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

const DIFF_EXAMPLES: &str = "\
It prints a line for each name, then the lines that differ in each text file of up to 1 MiB. Directories whose times \
alone change are counted in one line, and so is what is in a large directory that is new or gone, unless something in \
it is marked: set-user-ID and set-group-ID programs, capabilities, devices, what everybody may write to, what is another \
user's, and links that lead outside. It opens the store, and so recovers it.

--patch prints a patch for `git apply` or `patch -p1`, for another copy of the directory. It has text files only that \
nobody has changed since; other changes are listed on stderr.

Exit code: 0: shown; 4: damaged; 8: in use, no store, no such group.

Examples:
  wholly diff
  wholly diff /srv/data 5-18
  wholly diff --stat /srv/data 5-18
  wholly diff --names-only /srv/data 5-18
  wholly diff /srv/data 5-18 --exclude made
  wholly diff --patch /srv/data 5-18 | git -C ~/copy apply
  wholly diff --json /srv/data 5-18 | jq -r '.changes[].path'";

/// `wholly diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The id of the group, from `wholly list`; without it the newest
    #[arg(value_hint = ValueHint::Other)]
    pub id: Option<wholly::ParkedId>,
    /// Show names only, no lines of files
    #[arg(long, conflicts_with_all = ["stat", "patch"])]
    pub names_only: bool,
    /// Show how many lines of each file differ
    #[arg(long, conflicts_with = "patch")]
    pub stat: bool,
    /// Print a patch for `git apply` or `patch -p1`
    #[arg(long, short)]
    pub patch: bool,
    /// Show everything in large directories that are new or gone, one by one
    #[arg(long)]
    pub all: bool,
    /// Leave out the changes at this path in the store, and of what is in it; can be repeated
    #[arg(long, value_name = "PATH")]
    pub exclude: Vec<PathBuf>,
    /// Show only the changes at these paths in the store, and of what is in them
    #[arg(last = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

const APPLY_EXAMPLES: &str = "\
A group is applied only if everything that it builds on is unchanged: the names that it sets, the bytes of files that \
it changes or removes, the attributes that it sets. Otherwise all differences are listed, nothing is changed, and the \
group stays parked. On return all files are current. Groups of several stores are applied together: all of them, or \
none. So are groups that one run over several directories has parked, whichever of them is named.

With paths (after `--`) only the changes there are applied, with those that they need, such as a new directory for a \
file in it; the rest stays parked.

If something has changed meanwhile, one side can win there. --ours: what the directory has now stays; the rest of the \
group is applied, and the group is gone. --theirs: what was parked wins, and replaces what the directory has now. \
`wholly undo` brings that back. Refused, with nothing changed, are: a file that is gone; one of which the group has a \
part only, if its length has changed; anything in a directory that is gone; the name of a directory that is not empty.

Exit code: 0: applied; 4: damaged; 8: in use, no store, no such group; 120: the write of the commit failed, run \
`wholly recover` for the outcome; 123: something has changed meanwhile, the group stays parked; 124: committed, but \
not all written back.

Examples:
  wholly apply
  wholly apply /srv/data 5-18
  wholly apply /srv/data 5-18 /srv/index 2-7
  wholly apply --only /srv/data 5-18
  wholly apply /srv/data 5-18 -- made
  wholly apply --ours /srv/data 5-18
  wholly apply --theirs /srv/data 5-18
  wholly apply --theirs /srv/data 5-18 -- made
  wholly apply --json /srv/data 5-18 | jq '.mismatches'";

const DISCARD_EXAMPLES: &str = "\
If one run over several directories has parked several groups, all of them are discarded, whichever is named. The id \
of a command from `wholly log` removes its undo.

Exit code: 0: removed; 8: in use, no store, no such group; 120: the medium failed, run `wholly list` for the outcome.

Examples:
  wholly discard
  wholly discard /srv/data 5-18
  wholly discard --only /srv/data 5-18";

/// `wholly apply`.
#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The id of the group, from `wholly list`; without it the newest
    #[arg(value_hint = ValueHint::Other)]
    pub id: Option<wholly::ParkedId>,
    /// Further stores, each with a group to apply together with the first: DIR ID DIR ID ...
    #[arg(value_name = "DIR ID")]
    pub others: Vec<OsString>,
    /// Apply only the named groups, even if one run has parked them together with others
    #[arg(long)]
    pub only: bool,
    /// What other programs have changed meanwhile stays as it is in the directory; apply the rest
    #[arg(long, conflicts_with_all = ["others", "paths"])]
    pub ours: bool,
    /// What was parked replaces what other programs have changed meanwhile
    #[arg(long, conflicts_with_all = ["others", "ours"])]
    pub theirs: bool,
    /// Keep for 7 days what `wholly undo` needs, if that takes at most SIZE of disk space
    #[arg(long, default_value = "1G", env = "WHOLLY_KEEP_UNDO", value_name = "SIZE|no", value_hint = ValueHint::Other)]
    #[arg(value_parser = undo_bound)]
    pub keep_undo: u64,
    /// Leave parked the changes at this path in the store, and of what is in it, with those that need them; can be
    /// repeated
    #[arg(long, value_name = "PATH", conflicts_with_all = ["others", "ours"])]
    pub exclude: Vec<PathBuf>,
    /// Apply only the changes at these paths in the store, and of what is in them
    #[arg(last = true, value_name = "PATH", conflicts_with = "others")]
    pub paths: Vec<PathBuf>,
}

/// `wholly discard`.
#[derive(Args, Debug)]
pub struct ParkedArgs {
    /// The store
    #[arg(default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// The id of the group, from `wholly list` or `wholly log`; without it the newest parked one
    #[arg(value_hint = ValueHint::Other)]
    pub id: Option<wholly::ParkedId>,
    /// Discard only the named group, even if one run has parked it together with others
    #[arg(long)]
    pub only: bool,
}

const CRASH_EXAMPLES: &str = "\
Small programs (workloads) run over simulated media (worlds) that record each write and flush. At every point of the \
record, each state that a power failure may leave is made, recovered and checked. A violation is printed with the \
command that replays it.

Exit code: 0: no violation; 4: a violation; 16: wrong usage.

Examples:
  wholly crash                                     all workloads in the worlds pmem and disk, a little of each
  wholly crash --list                              list workloads and worlds
  wholly crash two-files --world pmem --effort thorough
  wholly crash random-1..200 --world disk-ext4     two hundred random workloads
  wholly crash --effort thorough --piece 3/8        one of eight pieces of a long run
  wholly crash --subject volume:hybrid_log ones pairs     every call on a volume, and all pairs, in groups too
  wholly crash --subject ccnvme                    transactions on queues in a device's persistent memory region
  wholly crash --replay two-files:pmem:p26:set:0,3 --html crash.html     a picture of the crash, and all events
  wholly crash --replay two-files:pmem:p26:set:0,3 --svg crash.svg       the picture alone";

/// `wholly crash`.
#[derive(Args, Debug)]
pub struct CrashArgs {
    /// Workloads: names, random-SEED, random-FROM..TO [default: all written by hand, and some on names]
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// What to explore: `store`; `volume:ENGINE` with an engine of `wholly mkfs` that promises something; transactions
    /// of blocks, `blocks:contract`, `blocks:log`, `blocks:xftl` or `blocks:multi_queue`; or transactions on queues in
    /// a device's persistent memory region, `ccnvme` [default: store; with --replay, the subject of the state]
    #[arg(long, value_name = "SUBJECT", value_parser = parse_subject)]
    pub subject: Option<SubjectArg>,
    /// World: medium and host file system; repeatable [default: pmem and disk for a store; for others, the first two in
    /// which they are explored]
    #[arg(long = "world", value_name = "NAME")]
    pub worlds: Vec<String>,
    /// With `ccnvme` (M3, M8, M10) or `blocks:multi_queue` (the others, and M10 in the world ccnvme-window): take a
    /// rule of the paper literally that does not hold, and find out what goes wrong
    #[arg(long, value_name = "RULE", value_parser = PossibleValuesParser::new(
        ["M1", "M2", "M3", "M4", "M5", "M6", "M7", "M8", "M10", "M17", "after"]
    ))]
    pub paper: Option<String>,
    /// How much of each workload to explore
    #[arg(long, value_enum, default_value_t = Effort::Hunt)]
    pub effort: Effort,
    /// Explore only piece K of N
    #[arg(long, value_name = "K/N", value_parser = parse_piece, conflicts_with_all = ["list", "replay"])]
    pub piece: Option<Piece>,
    /// List the workloads and worlds: of the subject, if it is a volume, else all
    #[arg(long)]
    pub list: bool,
    /// Rebuild the state that a violation names, and show what led to it
    #[arg(long, value_name = "STATE", conflicts_with_all = ["workloads", "list"])]
    pub replay: Option<String>,
    /// Write the replayed state as an HTML page: a picture of each crash, with all events
    #[arg(long, value_name = "FILE", requires = "replay")]
    pub html: Option<PathBuf>,
    /// Write the pictures alone, as an SVG file
    #[arg(long, value_name = "FILE", requires = "replay")]
    pub svg: Option<PathBuf>,
}

impl CrashArgs {
    /// What to explore.
    pub fn subject(&self) -> SubjectArg {
        self.subject.unwrap_or(SubjectArg::Store)
    }
}

/// What is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectArg {
    /// A store.
    Store,
    /// A volume with this engine.
    Volume(EngineKind),
    /// Transactions of blocks.
    Blocks(blocks::Kind),
    /// Transactions on queues in a device's persistent memory region.
    Queues,
}

impl SubjectArg {
    /// How it is written.
    pub fn name(self) -> String {
        match self {
            SubjectArg::Store => "store".into(),
            SubjectArg::Volume(engine) => format!("volume:{}", engine.name()),
            SubjectArg::Blocks(kind) => format!("blocks:{}", kind.name()),
            SubjectArg::Queues => "ccnvme".into(),
        }
    }
}

fn parse_subject(text: &str) -> Result<SubjectArg, String> {
    if let Some(kind) = text.strip_prefix("blocks:").and_then(blocks::Kind::named) {
        return Ok(SubjectArg::Blocks(kind));
    }
    let mut engines = wholly_crash::volume::engines();
    match text.strip_prefix("volume:").map(|name| engines.find(|engine| engine.name() == name)) {
        Some(Some(engine)) => Ok(SubjectArg::Volume(engine)),
        None if text == "store" => Ok(SubjectArg::Store),
        None if text == "ccnvme" => Ok(SubjectArg::Queues),
        _ => {
            let names: Vec<&str> = wholly_crash::volume::engines().map(EngineKind::name).collect();
            Err(format!(
                "a subject is store, ccnvme, blocks:KIND with one of {}, or volume:ENGINE with one of {}",
                blocks::Kind::ALL.map(blocks::Kind::name).join(", "),
                names.join(", ")
            ))
        }
    }
}

/// One of several pieces of a long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which one, from 1 on.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

fn parse_piece(text: &str) -> Result<Piece, String> {
    let piece = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    match piece {
        Some((number, of)) if (1..=of).contains(&number) => Ok(Piece { number, of }),
        _ => Err("a piece is K/N with K from 1 to N, such as 3/8".into()),
    }
}

/// How much of each workload is explored.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some states of each point: seconds
    Hunt,
    /// What `make test` does: minutes
    Quick,
    /// All states if there are at most 65,536, else 10,000 and more: hours
    Thorough,
}

const RUN_EXAMPLES: &str = "\
The command sees DIR with its changes; all other programs see it unchanged. When the command exits with 0, processes \
that it has left running are killed, and all of its changes in DIR happen at once, durably. In every other case \
nothing changes. Changes outside of DIR are not covered, nor are other file systems that are mounted in it: --verbose \
and --review name them. DIR need not be a store: it becomes a temporary one, for as long as something is kept in it. \
Without root you can run commands only in directories that you own, and set-user-id programs such as sudo do not get \
their owner's rights.

Exit code: the command's if it fails, 128 plus the number of its signal if it is killed. Otherwise 0: committed; 120: \
the write of the commit failed, run `wholly recover` for the outcome; 121: parked; 122: discarded; 123: not \
committed: other programs have changed the same meanwhile (the changes are parked), no space, or a program in it has \
undone its group; 124: committed, but not all written back; 125: wholly could not run the command; 126: the command \
cannot be executed; 127: there is no such command.

Examples:
  wholly run -- make install
  wholly run --dir /etc --review -- ./harden.sh   show the changes and ask; changes elsewhere are not covered
  wholly run --dir /srv/www --dir /srv/data -- ./deploy.sh   both change, or neither does
  wholly run --root -- apt-get install nginx     the whole system, as far as it is on one file system
  wholly run --park -- ./migrate.sh              then wholly list, diff, apply or discard
  wholly run --keep-undo 20G -- ./upgrade.sh     keep what it removes, if that is at most 20 GiB; see wholly undo";

/// How many bytes of disk space the undo of a command may take; 0: it is not kept.
fn undo_bound(text: &str) -> Result<u64, String> {
    if text == "no" { Ok(0) } else { parse_size(text) }
}

/// `wholly run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Directory to cover; repeat it for several directories, which commit together
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub dir: Vec<PathBuf>,
    /// Cover the root directory, except other file systems that are mounted in it
    #[arg(long, conflicts_with = "dir")]
    pub root: bool,
    /// How the command is isolated: overlayfs or FUSE
    #[arg(long, value_enum, default_value_t = View::Auto, env = "WHOLLY_VIEW")]
    pub view: View,
    /// Show the changes, and ask whether to apply, park or discard them
    #[arg(long, conflicts_with = "park")]
    pub review: bool,
    /// Park the changes instead of committing them
    #[arg(long)]
    pub park: bool,
    /// Report how many changes were made, and what is not covered
    #[arg(long, short)]
    pub verbose: bool,
    /// Keep for 7 days what `wholly undo` needs, if that takes at most SIZE of disk space [default: 1G; no, if the
    /// superuser runs in another user's directory]
    #[arg(long, env = "WHOLLY_KEEP_UNDO", value_name = "SIZE|no", value_hint = ValueHint::Other)]
    #[arg(value_parser = undo_bound)]
    pub keep_undo: Option<u64>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// How a command is isolated.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Overlayfs for the superuser if it can be mounted and need not copy a large file; else FUSE
    Auto,
    /// A FUSE mount: every call goes to wholly
    Fuse,
    /// The kernel's overlayfs, for the superuser: changes go to a directory in .wholly
    Overlay,
}

/// `wholly hold`: its standard input is the socket to the process that starts it.
#[derive(Args, Debug)]
pub struct HoldArgs {
    /// The process that starts it
    #[arg(long)]
    pub parent: i32,
    /// Set for an ordinary user
    #[arg(long)]
    pub ordinary: bool,
    /// Limit on open files of the command
    #[arg(long)]
    pub files: String,
    /// Where the command runs
    #[arg(long)]
    pub here: PathBuf,
    /// The directories that are mounted over
    #[arg(long, required = true)]
    pub dir: Vec<PathBuf>,
    /// Other file systems that are mounted in them
    #[arg(long)]
    pub other: Vec<PathBuf>,
    /// Names of the overlays, one for each directory
    #[arg(long)]
    pub overlay: Vec<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `wholly exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// The process that starts it
    #[arg(long)]
    pub parent: i32,
    /// Limit on open files
    #[arg(long)]
    pub files: String,
    /// The view covers the root directory
    #[arg(long)]
    pub root: bool,
    /// Where the command runs
    #[arg(long)]
    pub dir: PathBuf,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const MOUNT_EXAMPLES: &str = "\
Any number of programs can share the mount, and they need not know of the store. The mount stays until `umount \
POINT`, or until its server process is asked to end; then everything is written back. Without POINT the store is \
mounted over its own directory, so that no program changes its files directly.

Options:
  policy=per-sync           names survive when the call returns, data when the file is synced or closed (default)
  policy=per-op             every call survives when it returns
  policy=shared[=SECONDS]   data survive together: at each fsync, and every SECONDS (5)
  allow_other, allow_root   users other than the one who mounted it may use it
  suid, dev                 allow set-user-id programs and devices (off by default)
  ro, noexec, noatime, sync, dirsync
  valid=SECONDS             how long the kernel caches names and attributes (1)
  group_timeout=SECONDS     a group of a program that makes no calls for so long is aborted (300)
  threads=N                 most threads that serve the kernel, started as they are needed (32)
  data=MODE                 the mode that the volume was made with, `ordered` or `journal`: another one is refused
  checkpointers=N           threads that write back in the background, of a volume with the engine hybrid_log (half of
                            the processors)

Examples:
  wholly mount /srv/data                         over itself
  wholly mount /srv/data /mnt -o allow_other     elsewhere, for all users
  mount -t wholly /srv/data /mnt                 if the command is also installed as /sbin/mount.wholly
  umount /mnt";

/// `wholly mount`.
#[derive(Args, Debug)]
pub struct MountArgs {
    /// The store, or the file or block device with a volume, or flash:FILE, nvme-model:DIR or qemu:DIR
    #[arg(value_hint = ValueHint::AnyPath)]
    pub dir: PathBuf,
    /// The mount point [default: the store's own directory]
    #[arg(value_hint = ValueHint::DirPath)]
    pub point: Option<PathBuf>,
    /// Mount options, separated by commas
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
    /// Serve, and report when that has begun
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub background: bool,
    /// Called by mount(8), which prints the messages itself
    #[arg(long, hide = true)]
    pub helper: bool,
    /// mount(8) passes these to all helpers; they have no effect here
    #[arg(short = 's', hide = true)]
    sloppy: bool,
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[arg(short = 'v', hide = true)]
    pub verbose: bool,
    #[arg(short = 'f', hide = true)]
    pub fake: bool,
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    kind: Option<String>,
    #[arg(short = 'N', hide = true, value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
}

const MKFS_EXAMPLES: &str = "\
On persistent memory (a file in memory or on DAX) the engine is `hybrid_log`, on a disk `op_log`, unless \
another one is chosen. Only `page_cache_wal`, `op_log` and `none` take disks. Every engine but `none` keeps each call wholly or \
not at all; with `none`, anything may be lost after a crash. Only a new file is written, one without data (empty, or \
holes alone), or a device whose first 4 MiB and last 1 MiB are zeros; --force writes over anything.

Examples:
  wholly mkfs v.img --size 1G        in a file, which is made
  wholly mount v.img /mnt            mount it
  wholly mkfs --force /dev/sdx       on a block device, whatever is there";

const TUNE_EXAMPLES: &str = "\
Nothing moves: a volume can become as small as its last block in use allows.

Examples:
  wholly tune v.img --size 2G        so large from here on, and the file with it
  wholly tune v.img --label data     another label";

/// `wholly tune`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("change").args(["size", "label"]).required(true).multiple(true))]
pub struct TuneArgs {
    /// The file or block device with the volume, or flash:FILE, nvme-model:DIR or qemu:DIR
    pub volume: PathBuf,
    /// How large it becomes, such as 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// A name for the volume, of at most 64 bytes; "" for none
    #[arg(short = 'L', long, value_parser = parse_label)]
    pub label: Option<String>,
}

const FSCK_EXAMPLES: &str = "\
Without -p and -y it only names what is wrong, as with -n.

The exit code is a sum of: 1 faults were repaired, 4 faults remain, 8 it could not be done (in use, no volume), 16 \
wrong usage, 32 cancelled by a signal. 2 (reboot) and 128 (library error) do not occur.

Examples:
  wholly fsck -n v.img               name what is wrong
  wholly fsck -p v.img               repair what a crash has left, as at the start of the system
  wholly fsck -y -C0 v.img           repair everything, with a bar that shows how far it is";

const IMPORT_EXAMPLES: &str = "\
Examples:
  wholly import v.img DIR            copy what is in DIR to the root of the volume";

const EXPORT_EXAMPLES: &str = "\
Examples:
  wholly export v.img DIR            copy everything, into a directory that is made";

const FLASH_EXAMPLES: &str = "\
A flash file holds a simulated flash disk that writes many blocks wholly or not at all (X-FTL). No device on sale has \
such commands: all figures are a model's.

Examples:
  wholly flash init f.img --profile openssd --bytes 64M  make one of 64 MiB
  wholly flash stat f.img                                programs by cause, erases, wear
  wholly flash check f.img                               read all that it holds; changes nothing
  wholly flash salvage f.img v.img                       its content, as far as it can be read, in a file
  wholly mkfs flash:f.img                                a volume on it: each verb of volumes takes flash:FILE";

const FLASH_INIT_EXAMPLES: &str = "\
Examples:
  wholly flash init f.img --bytes 64M  a board with two channels and slow pages
  wholly flash init f.img --profile commercial --bytes 2G  an SSD with 16 channels
  wholly mkfs flash:f.img            a volume on it";

const FLASH_STAT_EXAMPLES: &str = "\
Counts are of all lives of the flash disk, erases as of its last checkpoint. All are a model's.

Examples:
  wholly flash stat f.img
  wholly --json flash stat f.img | jq .programs";

const FLASH_CHECK_EXAMPLES: &str = "\
The exit code is 4 if something is damaged. Each line names the flash page, and says what to do.

Examples:
  wholly flash check f.img";

const FLASH_SALVAGE_EXAMPLES: &str = "\
The exit code is 4 if something cannot be read: it is listed, and is zeros in the copy.

Examples:
  wholly flash salvage f.img v.img   copy what can be read
  wholly fsck -y v.img               repair a volume that is in the copy";

/// `wholly flash`.
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct FlashArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: FlashVerb,
}

/// The verbs of flash disks.
#[derive(Subcommand, Debug)]
pub enum FlashVerb {
    /// Make a flash disk in a new file
    #[command(after_help = FLASH_INIT_EXAMPLES)]
    Init(FlashInitArgs),
    /// Show what a flash disk is and what was done on it; changes nothing
    #[command(after_help = FLASH_STAT_EXAMPLES)]
    Stat(FlashFileArgs),
    /// Read all that a flash disk holds, and report everything that is wrong; changes nothing
    #[command(after_help = FLASH_CHECK_EXAMPLES)]
    Check(FlashFileArgs),
    /// Copy what can be read of a flash disk into a new file; changes nothing of the flash disk
    #[command(after_help = FLASH_SALVAGE_EXAMPLES)]
    Salvage(FlashSalvageArgs),
}

/// `wholly flash init`.
#[derive(Args, Debug)]
pub struct FlashInitArgs {
    /// The file to make
    pub file: PathBuf,
    /// The device to imitate: few channels and slow pages, or many channels
    #[arg(long, value_parser = PossibleValuesParser::new(["openssd", "commercial"]), default_value = "openssd")]
    pub profile: String,
    /// How much it holds, such as 2G
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub bytes: u64,
}

/// `wholly flash stat` and `wholly flash check`.
#[derive(Args, Debug)]
pub struct FlashFileArgs {
    /// The flash file
    pub file: PathBuf,
}

/// `wholly flash salvage`.
#[derive(Args, Debug)]
pub struct FlashSalvageArgs {
    /// The flash file
    pub file: PathBuf,
    /// The file to make, as long as the flash disk is large: what cannot be read is zeros in it
    pub to: PathBuf,
}

const NVME_EXAMPLES: &str = "\
DEVICE is nvme-model:DIR or qemu:DIR: a model of a controller in this process, or QEMU's controller (qemu-system-x86), \
over the files `image` (blocks) and `pmr` (persistent memory region) of a directory. Hardware is not driven yet.

Examples:
  mkdir dev; truncate --size 64M dev/image; truncate --size 1M dev/pmr
  wholly nvme probe nvme-model:dev            what the controller offers
  printf 'write 3 both\\nwrite 9 or none\\ncommit\\nwait\\n' | wholly nvme tx nvme-model:dev
  wholly nvme unfinished nvme-model:dev       what a crash has left unfinished";

const NVME_PROBE_EXAMPLES: &str = "\
The controller is reset. Its blocks and its region are not changed.

Examples:
  wholly nvme probe nvme-model:dev
  wholly --json nvme probe qemu:dev";

const NVME_UNFINISHED_EXAMPLES: &str = "\
It reads the region alone, works while the device is in use, and changes nothing. What is listed may be on the medium \
wholly, in part, or not at all; what is not listed is there wholly or not at all. The exit code is 4 if something is \
listed, or the region does not tell.

Examples:
  wholly nvme unfinished nvme-model:dev
  wholly --json nvme unfinished qemu:dev";

const NVME_TX_EXAMPLES: &str = "\
A script has one command a line; `#` begins a comment:

  write BLOCK TEXT         write a block of 4 KiB: TEXT, then zeros
  fill BLOCK COUNT BYTE    write blocks, all bytes the same
  queue N                  write what follows on this queue, from 0 on
  commit                   commit what was written: it is atomic
  wait                     wait until all that was committed is durable
  read BLOCK               print the text of a block

All lines are read before the first is done. At the end everything that was committed is waited for.

Examples:
  printf 'write 3 both\\nwrite 9 or none\\ncommit\\n' | wholly nvme tx nvme-model:dev
  echo 'read 3' | wholly nvme tx qemu:dev";

/// `wholly nvme`.
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct NvmeArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: NvmeVerb,
}

/// The verbs of controllers.
#[derive(Subcommand, Debug)]
pub enum NvmeVerb {
    /// Show what a controller offers, how it would be used, and why
    #[command(after_help = NVME_PROBE_EXAMPLES)]
    Probe(NvmeDeviceArgs),
    /// List the transactions that a crash has left unfinished; changes nothing
    #[command(after_help = NVME_UNFINISHED_EXAMPLES)]
    Unfinished(NvmeDeviceArgs),
    /// Do a script of transactions, from standard input
    #[command(after_help = NVME_TX_EXAMPLES)]
    Tx(NvmeTxArgs),
}

/// `wholly nvme probe` and `wholly nvme unfinished`.
#[derive(Args, Debug)]
pub struct NvmeDeviceArgs {
    /// nvme-model:DIR or qemu:DIR
    pub device: NvmeDevice,
}

/// `wholly nvme tx`.
#[derive(Args, Debug)]
pub struct NvmeTxArgs {
    /// nvme-model:DIR or qemu:DIR
    pub device: NvmeDevice,
    /// Forget what a crash has left unfinished, or what another user of the device has in its region
    #[arg(long)]
    pub forget: bool,
}

/// A controller, as it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeDevice {
    /// Whether it is QEMU's; else the model.
    pub is_qemu: bool,
    /// The directory with its files.
    pub directory: PathBuf,
}

impl std::str::FromStr for NvmeDevice {
    type Err = String;

    fn from_str(text: &str) -> Result<NvmeDevice, String> {
        let location = Location::of(text.as_ref());
        match location.is_nvme() && !location.file.as_os_str().is_empty() {
            true => Ok(NvmeDevice { is_qemu: location.kind == Kind::Qemu, directory: location.file.into() }),
            false => Err("a device is nvme-model:DIR or qemu:DIR".into()),
        }
    }
}

impl std::fmt::Display for NvmeDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", if self.is_qemu { "qemu" } else { "nvme-model" }, self.directory.display())
    }
}

/// `wholly mkfs`.
#[derive(Args, Debug)]
pub struct MkfsArgs {
    /// The file or block device, flash:FILE, nvme-model:DIR or qemu:DIR
    pub volume: PathBuf,
    /// How large a file becomes, such as 1G; by default as large as it is
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// A name for the volume, of at most 64 bytes
    #[arg(short = 'L', long, value_parser = parse_label)]
    pub label: Option<String>,
    /// Overwrite what is there
    #[arg(short = 'f', long)]
    pub force: bool,
    /// What makes changes permanent [default: hybrid_log on persistent memory, op_log on disks,
    /// multi_queue on NVMe controllers with queues for transactions]
    #[arg(long, value_parser = engine_parser())]
    pub engine: Option<EngineKind>,
    /// How many queues the engine multi_queue has a journal for [default: 4, fewer on a small volume]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: Option<u16>,
    /// What the engine multi_queue does with new content: `ordered` stores it in its place, `journal` in the journal
    /// first [default: ordered]
    #[arg(long, value_name = "MODE", value_parser = data_parser())]
    pub data: Option<DataMode>,
    /// What the file is taken for
    #[arg(long, value_enum, default_value_t = Medium::Auto)]
    pub medium: Medium,
}

/// Before anything is changed.
fn parse_label(text: &str) -> Result<String, String> {
    match text.len() {
        0..=64 => Ok(text.into()),
        bytes => Err(format!("it has {bytes} bytes, and a label has at most 64")),
    }
}

fn engine_parser() -> impl TypedValueParser<Value = EngineKind> {
    let value = |engine: &EngineKind| PossibleValue::new(engine.name()).help(engine.about());
    PossibleValuesParser::new(EngineKind::ALL.iter().map(value))
        .map(|name| EngineKind::named(&name).expect("each possible value is a name"))
}

fn data_parser() -> impl TypedValueParser<Value = DataMode> {
    PossibleValuesParser::new(DataMode::ALL.map(DataMode::name))
        .map(|name| DataMode::named(&name).expect("each possible value is a name"))
}

/// `wholly fsck`.
#[derive(Args, Debug)]
pub struct FsckArgs {
    /// The file or block device, flash:FILE, nvme-model:DIR or qemu:DIR
    pub volume: PathBuf,
    /// Change nothing
    #[arg(short = 'n', conflicts_with_all = ["automatic", "yes"])]
    pub no_changes: bool,
    /// Repair what loses nothing; a volume that was unmounted is passed over. If there is more, change nothing of it
    #[arg(short = 'p', short_alias = 'a', conflicts_with = "yes")]
    pub automatic: bool,
    /// Repair everything, and say what is lost
    #[arg(short = 'y')]
    pub yes: bool,
    /// Check with -p, too, what was unmounted
    #[arg(short = 'f')]
    pub forced: bool,
    /// Show how far it is: a bar for 0, lines `PASS DONE TOTAL VOLUME` to another descriptor
    #[arg(short = 'C', value_name = "FD", num_args = 1)]
    pub progress: Option<u32>,
    /// What the file is taken for
    #[arg(long, value_enum, default_value_t = Medium::Auto)]
    pub medium: Medium,
}

/// `wholly import` and `wholly export`.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// The file or block device with the volume, or flash:FILE, nvme-model:DIR or qemu:DIR
    pub volume: PathBuf,
    /// The directory
    pub dir: PathBuf,
}

const BENCH_EXAMPLES: &str = "\
`wholly bench help` lists every option of the suites.

Examples:
  wholly bench groups                         needs root: makes its own tmpfs, ext4 and xfs
  wholly bench groups --pmem /dev/shm --disk /var/tmp --files 100
  wholly bench groups --peers --json          beside SQLite, libpmemobj and rename
  wholly bench fcfs --pmem /dev/shm           FCFS's figures: counts, model time and wall time
  wholly bench minl2r --figures figures       MinL2R's figures 5 to 8, beside a real ext4
  wholly bench ccnvme --case table1           ccNVMe's table 1, counted by a model of a controller";

/// `wholly bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Measure other software too (needs the program wholly-bench-peers beside this one)
    #[arg(long)]
    pub peers: bool,
    /// The suite (`groups`) and its options
    #[arg(value_name = "SUITE", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// `wholly completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `wholly candidates`.
#[derive(Args, Debug)]
pub struct CandidatesArgs {
    /// The words after `wholly` and before the cursor
    #[arg(last = true)]
    pub words: Vec<OsString>,
}

/// `wholly man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// The directory for the pages
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    /// A paragraph is one line, which is broken where the terminal ends. Lists have lines of their own.
    #[test]
    fn help_is_not_broken_in_the_source() {
        for verb in Cli::command().get_subcommands() {
            let text = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let is_list = |paragraph: &&str| paragraph.lines().next().is_some_and(|line| line.ends_with(':'));
            for paragraph in text.split("\n\n").filter(|paragraph| !is_list(paragraph)) {
                assert!(paragraph.lines().count() < 2, "{}: {paragraph}", verb.get_name());
            }
        }
    }
}
