//! The command line: verbs, arguments, and what `--help` says of them.

use crate::output::parse_size;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use wholly_media::host::HostMedium;

const ABOUT: &str = "Updates of several files that happen wholly or not at all";

const LONG_ABOUT: &str = "\
Updates of several files that happen wholly or not at all

`wholly init DIR` makes an ordinary directory a store: its files stay ordinary files, and a program that \
opens the store (through the Rust library) can update any number of them in one group. After a crash, \
of the program or of the power, each group is there wholly or not at all.";

const EXAMPLES: &str = "\
Examples:
  wholly init ~/accounts         make the directory a store
  wholly stat ~/accounts         what is in it, and who uses it; changes nothing
  wholly recover ~/accounts      after a crash: take everything committed home
  wholly check ~/accounts        what is wrong with it, if anything
  wholly list ~/accounts         what is parked in it; see also diff, apply, discard
  wholly deinit ~/accounts       make it an ordinary directory again

Exit codes (as fsck(8)):
   0  done, nothing wrong           8  not done: no store, in use, no space, ...
   1  something was put right      16  the command line makes no sense
   4  damage or a conflict is left
What has become of a group (run, apply, discard):
 120  unknown: recover settles it 123  refused: could not be committed
 121  parked                      124  committed, not all of it home
 122  discarded

`wholly VERB --help` says more about each verb.";

/// The command line.
#[derive(Parser, Debug)]
#[command(name = "wholly", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// What is to be done.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What is to be done.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Make a directory a store
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Show how a store is doing; changes nothing, works while it is in use
    #[command(after_help = STAT_EXAMPLES)]
    Stat(StatArgs),
    /// Print a store's log, record by record; changes nothing, works on damaged stores
    #[command(after_help = DUMP_EXAMPLES)]
    Dump(DumpArgs),
    /// Recover a store after a crash and take everything committed home
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover(RecoverArgs),
    /// Find out what is wrong with a store; changes nothing
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Copy a damaged store's files, with all of its log that can be proven, to another directory; changes nothing
    #[command(after_help = SALVAGE_EXAMPLES)]
    Salvage(SalvageArgs),
    /// Take everything home and make the directory an ordinary one again
    #[command(after_help = DEINIT_EXAMPLES)]
    Deinit(DeinitArgs),
    /// List the groups that are parked in a store; changes nothing, works while it is in use
    #[command(after_help = LIST_EXAMPLES)]
    List(ListArgs),
    /// Show what a parked group would change
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Do what a parked group would change, all of it or nothing
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(ApplyArgs),
    /// Remove a parked group
    #[command(after_help = DISCARD_EXAMPLES)]
    Discard(ParkedArgs),
    /// Run a command, with all its children, as one group: what it changes happens wholly or not at all
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Hold the mounts that a command sees, for `run`
    #[command(hide = true)]
    Hold(HoldArgs),
    /// Become a command, for `run`
    #[command(hide = true)]
    Exec(ExecArgs),
    /// Mount a store as a file system, for programs that share it
    #[command(after_help = MOUNT_EXAMPLES)]
    Mount(MountArgs),
    /// Make a volume: a file system of Wholly's own, in a file or on a block device
    #[command(after_help = MKFS_EXAMPLES)]
    Mkfs(MkfsArgs),
    /// Check a volume that is not mounted; changes nothing
    Fsck(FsckArgs),
    /// Copy a directory into a volume that is not mounted
    Import(CopyArgs),
    /// Copy a volume that is not mounted into a new directory
    Export(CopyArgs),
    /// Explore every state that a crash may leave of small programs, on simulated media
    #[command(after_help = CRASH_EXAMPLES)]
    Crash(CrashArgs),
    /// Measure on this machine, beside the bound and, with --peers, what people use today
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
}

const INIT_EXAMPLES: &str = "\
It creates the folder .wholly in DIR and touches nothing else: files stay where and what they are. The store is remembered for \
`wholly recover --all`: in /var/lib/wholly/stores by the superuser, else in ~/.local/state/wholly/stores, or where WHOLLY_REGISTRY says.

Examples:
  wholly init                      the current directory
  wholly init --dry-run /srv/data  only say what the file system there offers
  wholly init --log-size 64M data  more log from the start, for large groups";

/// `wholly init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// The directory; it must exist
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Bytes of log to set aside now, such as 64M; it grows by itself when groups need more
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub log_size: Option<u64>,
    /// What the directory is taken for
    #[arg(long, value_enum, default_value_t = Medium::Auto)]
    pub medium: Medium,
    /// Only say what the file system offers; leave nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not remember the store for `wholly recover --all`
    #[arg(long)]
    pub no_register: bool,
}

/// What a directory is taken for.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory where there is some (DAX), and emulated on tmpfs; else a disk
    Auto,
    /// Persistent memory, emulated where there is none
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
It only reads: nothing is recovered, nobody is kept out. While a program has the store open the figures are those of the moment.

Examples:
  wholly stat /srv/data
  wholly stat --json /srv/data | jq .pending.groups";

/// `wholly stat`.
#[derive(Args, Debug)]
pub struct StatArgs {
    /// The store
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

const DUMP_EXAMPLES: &str = "\
Without options it prints both superblock slots, the segments in use and the records of groups that are not home yet.
It only reads: nothing is recovered, nobody is kept out.

Examples:
  wholly dump /srv/data
  wholly dump --all /srv/data | less      records of groups that are home, too
  wholly dump --json /srv/data | jq '.segments[].records[].entries[]'";

/// `wholly dump`.
#[derive(Args, Debug)]
pub struct DumpArgs {
    /// The store
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Also what nobody needs any more: records of groups that are home, segments that are free
    #[arg(long)]
    pub all: bool,
    /// Only this segment
    #[arg(long, value_name = "NUMBER")]
    pub segment: Option<u32>,
}

const RECOVER_EXAMPLES: &str = "\
Opening a store recovers it anyway: this verb is for when the files are needed by programs that do not know of the store.
On return the log is empty and all files are current.

--all recovers each store that the calling user has registered, by `wholly init` or --register. One that is not there, or not mounted, is skipped; \
one in use is left to its program. WHOLLY_REGISTRY names another registry: a directory with a file for each store.

A copy of a store whose log was not empty, or one that came from a backup, does not open: its log speaks of the files that were copied. --adopt takes \
the files here in their place, as they are; where a checkpoint was at work when the copy was made, it may find conflicts.

A store whose changes were to be committed together with those of other directories asks the first of these what was decided. Where that is not to be found, the \
store does not open. --release opens it without knowing: what waits becomes a parked group, for `wholly apply` or `wholly discard`.

A store that somebody else than the calling user and the superuser owns, or may write to, does not open: what is written in its folder is done with the rights of who \
opens it, so that it could make set-user-id programs for the superuser. Let its owner recover it (`runuser -u USER -- wholly recover DIR`), or, \
where he is trusted that far, say --trust-owner.

Exit code, a sum: 0: there was nothing to do; 1: something was recovered; 4: damage or a conflict is left; 8: a store could not be opened.

Examples:
  wholly recover /srv/data
  wholly recover --all                    as a system does when it starts
  wholly recover --adopt /restored/data   recover a copy, with the files that are there
  wholly recover --register /mnt/data     recover a store that was moved here, and remember the place
  wholly recover --json /srv/data | jq .conflicts";

/// `wholly recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The store
    #[arg(default_value = ".", conflicts_with = "all")]
    pub dir: PathBuf,
    /// All registered stores
    #[arg(long)]
    pub all: bool,
    /// Also remember the store for --all: one that was moved, or made by a program
    #[arg(long, conflicts_with = "all")]
    pub register: bool,
    /// Take a copy for what it was copied from: files are found by their places, whatever inodes they are
    #[arg(long, conflicts_with = "all")]
    pub adopt: bool,
    /// Park what waits in vain for another store, which was to decide a joint commit
    #[arg(long, conflicts_with = "all")]
    pub release: bool,
    /// Do what somebody else has written to the store's folder, with the rights of the calling user
    #[arg(long)]
    pub trust_owner: bool,
}

const CHECK_EXAMPLES: &str = "\
It reads the whole log as recovery does and verifies every payload in it, looks at the files that it has updates of, and at the folder .wholly.
It keeps nobody out; a store that a program has open is not judged. --repair only puts right what costs nothing that anybody could want: the \
folder's mode, and what half-made stores have left. A crash is no damage: what it leaves in the log is the next open's to recover.

Exit code, a sum: 0: nothing is wrong; 1: something was put right; 4: something is wrong; 8: it could not be checked; 16: usage.

Examples:
  wholly check /srv/data
  wholly check --repair /srv/data
  wholly check --json /srv/data | jq '.findings[].place'";

/// `wholly check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The store
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Put right what is safe to put right: the folder's mode and leftovers in it
    #[arg(long)]
    pub repair: bool,
}

const SALVAGE_EXAMPLES: &str = "\
For a store that `recover` refuses. OUT, which must be empty or not there, becomes an ordinary directory: the files \
as they are, and over them each group of the log that can be proven, in commit order. A group is proven where its \
checksums hold, each group that it builds on is proven or home, and its files are as the log says. What is not \
proven is left out as a whole, and named. Where both superblocks are gone, a group counts as not home if its files \
have the times that it found. DIR is only read, and stays as it is: when OUT is what you want, put it in the place \
of DIR.

Parked groups are not copied. Owners and modes are kept as far as the calling user may set them. After an \
interruption remove OUT and begin again.

Exit code: 0: everything was proven and is in OUT; 4: something could not be proven, read or kept, and is named; 8: \
it could not be done: DIR is in use or no store, OUT has something in it, no space; 16: usage.

Examples:
  wholly salvage /srv/data /srv/data.salvaged
  wholly salvage --json /srv/data /srv/data.salvaged | jq '.groups[] | select(.fate == \"left-out\")'";

/// `wholly salvage`.
#[derive(Args, Debug)]
pub struct SalvageArgs {
    /// The damaged store
    pub dir: PathBuf,
    /// The copy
    pub out: PathBuf,
}

const DEINIT_EXAMPLES: &str = "\
Everything committed is taken to the files, then .wholly is removed. Where something cannot go home, because another program changed the file or the \
log is damaged, nothing is removed; nor where groups are parked, unless --discard-parked says so. A crash meanwhile leaves the store, or none; the files are whole in both cases.

Exit code 0: it is an ordinary directory; 4: damage or a conflict keeps the store there; 8: in use, or no store.

Examples:
  wholly deinit /srv/data
  wholly deinit --json /srv/data | jq .home_bytes";

/// `wholly deinit`.
#[derive(Args, Debug)]
pub struct DeinitArgs {
    /// The store
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Also where groups are parked in it, which are lost
    #[arg(long)]
    pub discard_parked: bool,
}

const LIST_EXAMPLES: &str = "\
A parked group is one that a program has set aside instead of committing it: it survives by itself until it is applied, discarded, or expires. \
Nothing waits for it meanwhile. What has expired is removed when the store is next open, and listed until then.

Exit code 0: listed; 4: one of them is damaged; 8: no store.

Examples:
  wholly list /srv/data
  wholly list --json /srv/data | jq -r '.groups[].id'";

/// `wholly list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// The store
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

const DIFF_EXAMPLES: &str = "\
First a line for each name, then the lines that are otherwise in each file that is a text of up to 1 MiB. The store is opened for it, and so recovered.

Exit code 0: shown; 4: it is damaged; 8: in use, no store, no such group.

Examples:
  wholly diff /srv/data 5-18
  wholly diff --names-only /srv/data 5-18
  wholly diff --json /srv/data 5-18 | jq -r '.changes[].path'";

/// `wholly diff`.
#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The store
    pub dir: PathBuf,
    /// The group, as `wholly list` names it
    pub id: wholly::ParkedId,
    /// No lines of files
    #[arg(long)]
    pub names_only: bool,
}

const APPLY_EXAMPLES: &str = "\
It is applied only if what it relies on is as it was: the names that it sets, the bytes of files that it changes or removes, attributes that it sets. \
Else all that is otherwise is listed, nothing is changed, and it stays parked. On return all files are current. Groups of several stores are applied \
together: all of them, or none; what a run over several directories has parked is, whichever part is named.

Exit code 0: applied; 4: damaged; 8: in use, no store, no such group; 120: the write of the commit failed, `wholly recover` finds out what became of it; 123: something is otherwise, it stays parked; 124: committed, but not all of it could be taken home.

Examples:
  wholly apply /srv/data 5-18
  wholly apply /srv/data 5-18 /srv/index 2-7
  wholly apply --only /srv/data 5-18
  wholly apply --json /srv/data 5-18 | jq '.mismatches'";

const DISCARD_EXAMPLES: &str = "\
What a run over several directories has parked is discarded in all of them, whichever part is named.

Exit code 0: it is gone; 8: in use, no store, no such group; 120: the medium failed, `wholly list` shows whether it is gone.

Examples:
  wholly discard /srv/data 5-18
  wholly discard --only /srv/data 5-18";

/// `wholly apply`.
#[derive(Args, Debug)]
pub struct ApplyArgs {
    /// The store
    pub dir: PathBuf,
    /// The group, as `wholly list` names it
    pub id: wholly::ParkedId,
    /// Further stores, each with the group to be applied together with it: DIR ID DIR ID ...
    #[arg(value_name = "DIR ID")]
    pub others: Vec<OsString>,
    /// Only what is named, also where a run has parked it together with groups of other directories
    #[arg(long)]
    pub only: bool,
}

/// `wholly discard`.
#[derive(Args, Debug)]
pub struct ParkedArgs {
    /// The store
    pub dir: PathBuf,
    /// The group, as `wholly list` names it
    pub id: wholly::ParkedId,
    /// Only this one, also where a run has parked it together with groups of other directories
    #[arg(long)]
    pub only: bool,
}

const CRASH_EXAMPLES: &str = "\
Small programs (workloads) run over simulated media (worlds) that record each write and flush. At every point of the record each
state that a power failure may leave there is made, recovered and judged. A violation is printed with the command that replays it.

Exit code 0: no violation; 4: there is one.

Examples:
  wholly crash                                     all workloads in the worlds pmem and disk, a little of each
  wholly crash --list                              which workloads and worlds there are
  wholly crash two-files --world pmem --effort thorough
  wholly crash random-1..200 --world disk-ext4     two hundred drawn workloads
  wholly crash --effort thorough --piece 3/8        one of eight pieces of a long run
  wholly crash --replay two-files:pmem:p26:set:0,3 --html crash.html";

/// `wholly crash`.
#[derive(Args, Debug)]
pub struct CrashArgs {
    /// Workloads: names, random-SEED, random-FROM..TO [default: all that are written by hand, and some of those on names]
    #[arg(value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    /// World: medium and host file system; can be repeated
    #[arg(long = "world", value_name = "NAME", default_values_t = ["pmem".to_string(), "disk".to_string()])]
    pub worlds: Vec<String>,
    /// How much of each
    #[arg(long, value_enum, default_value_t = Effort::Hunt)]
    pub effort: Effort,
    /// Explore only one of N pieces, which together are the whole
    #[arg(long, value_name = "K/N", value_parser = parse_piece, conflicts_with_all = ["list", "replay"])]
    pub piece: Option<Piece>,
    /// List the workloads and worlds
    #[arg(long)]
    pub list: bool,
    /// Rebuild one state, as a violation names it, and show what led to it
    #[arg(long, value_name = "STATE", conflicts_with_all = ["workloads", "list"])]
    pub replay: Option<String>,
    /// Write the replayed state as a page for a browser
    #[arg(long, value_name = "FILE", requires = "replay")]
    pub html: Option<PathBuf>,
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

/// How much of each workload is gone through.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some states of each point: seconds
    Hunt,
    /// What `make test` does: minutes
    Quick,
    /// All states where they number at most 65,536, else 10,000 and more: hours
    Thorough,
}

const RUN_EXAMPLES: &str = "\
The command sees DIR as it would be, everybody else as it was. When it exits with 0, what it has started is ended, and all that it has changed in DIR \
happens at once, durably. At any other end, of the command or of wholly itself, nothing has changed. What it writes outside of DIR is not covered. \
Other file systems that are mounted in it are seen and not covered: --verbose and --review name them. A directory that is no store is one only for as long as the command runs. Who is not the superuser runs commands in directories of his own, without programs that change the user (sudo).

Exit code: that of a command that fails, or 128 and the number of its signal; else 0: committed; 120: the write of the commit failed, `wholly recover` finds out what became of it; 121: parked; 122: discarded; 123: it could not be committed: others have changed the same meanwhile (it is parked), \
no space, or a program in it has undone its group; 124: committed, but not all of it could be taken home; 125: wholly could not run it; 126: it cannot be executed; 127: there is no such command.

Examples:
  wholly run -- make install
  wholly run --dir /etc --review -- ./harden.sh   look first; what it changes elsewhere is not covered
  wholly run --dir /srv/www --dir /srv/data -- ./deploy.sh   both change, or neither does
  wholly run --root -- apt-get install nginx     the whole system, as far as it lies on one file system
  wholly run --park -- ./migrate.sh              then wholly list, diff, apply or discard";

/// `wholly run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// A directory that is covered; to be repeated for several, which commit together
    #[arg(long, default_value = ".")]
    pub dir: Vec<PathBuf>,
    /// Cover the root directory, but for other file systems that are mounted in it
    #[arg(long, conflicts_with = "dir")]
    pub root: bool,
    /// By what the command sees the directories
    #[arg(long, value_enum, default_value_t = View::Auto, env = "WHOLLY_VIEW")]
    pub view: View,
    /// Show what would change, and ask
    #[arg(long, conflicts_with = "park")]
    pub review: bool,
    /// Set what would change aside instead of doing it
    #[arg(long)]
    pub park: bool,
    /// Say how many changes were made
    #[arg(long, short)]
    pub verbose: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// By what a command sees its directories.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Overlayfs for the superuser, where it can be had; else FUSE
    Auto,
    /// A mount whose calls all come to wholly
    Fuse,
    /// The kernel keeps what the command changes, in a directory of its own
    Overlay,
}

/// `wholly hold`: the socket by which it speaks to who starts it is its standard input.
#[derive(Args, Debug)]
pub struct HoldArgs {
    /// Who starts it
    #[arg(long)]
    pub parent: i32,
    /// Whether it is an ordinary user's
    #[arg(long)]
    pub ordinary: bool,
    /// How many files the command may have open
    #[arg(long)]
    pub files: String,
    /// Where the command runs
    #[arg(long)]
    pub here: PathBuf,
    /// The directories that are mounted over
    #[arg(long, required = true)]
    pub dir: Vec<PathBuf>,
    /// What else is mounted in them
    #[arg(long)]
    pub other: Vec<PathBuf>,
    /// By overlayfs: what the views are called, one for each directory
    #[arg(long)]
    pub overlay: Vec<String>,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `wholly exec`.
#[derive(Args, Debug)]
pub struct ExecArgs {
    /// Who starts it
    #[arg(long)]
    pub parent: i32,
    /// How many files it may have open
    #[arg(long)]
    pub files: String,
    /// Whether the root directory is what is mounted over it
    #[arg(long)]
    pub root: bool,
    /// Where
    #[arg(long)]
    pub dir: PathBuf,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

const MOUNT_EXAMPLES: &str = "\
Programs that use the mount need not know of the store, and any number of them share it. It \
stays until `umount POINT`, or until the process that serves it is told to end; then everything is taken home. Without POINT the store is mounted over \
its own directory, so that nobody changes its files behind its back.

Options:
  policy=per-sync           names survive when the call returns, data when the file is synced or closed (default)
  policy=per-op             every call survives when it returns
  policy=shared[=SECONDS]   data survive together: at each fsync, and every so many seconds (5)
  allow_other, allow_root   not only who mounted it may use it
  suid, dev                 programs run as their owners, devices are devices: not unless asked
  ro, noexec, noatime, sync, dirsync
  valid=SECONDS             for so long the kernel believes what it knows of names and attributes (1)
  threads=N                 that answer the kernel (as many as there are processors, 8 at most)

Examples:
  wholly mount /srv/data                         over itself
  wholly mount /srv/data /mnt -o allow_other     elsewhere, for everybody
  mount -t wholly /srv/data /mnt                 where the command is also there as /sbin/mount.wholly
  umount /mnt";

/// `wholly mount`.
#[derive(Args, Debug)]
pub struct MountArgs {
    /// The store, or the file or block device with a volume
    pub dir: PathBuf,
    /// Where; by default over the store's own directory
    pub point: Option<PathBuf>,
    /// Mount options, with commas between
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
    /// Serve, and say when that has begun
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub background: bool,
    /// As mount(8) calls it, which says itself what there is to say
    #[arg(long, hide = true)]
    pub helper: bool,
    /// What mount(8) says to all helpers: nothing to us
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
The volume's engine is `none`, which gives no consistency: after a crash, anything may be lost.

Examples:
  wholly mkfs v.img --size 1G        in a file, which is made
  wholly mount v.img /mnt            mount it
  wholly mkfs --force /dev/sdx       on a block device, whatever is there";

/// `wholly mkfs`.
#[derive(Args, Debug)]
pub struct MkfsArgs {
    /// The file or block device
    pub volume: PathBuf,
    /// How large a file becomes, such as 1G; by default as large as it is
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// A name for the volume, of at most 64 bytes
    #[arg(short = 'L', long)]
    pub label: Option<String>,
    /// Overwrite what is there
    #[arg(short = 'f', long)]
    pub force: bool,
    /// What the file is taken for
    #[arg(long, value_enum, default_value_t = Medium::Auto)]
    pub medium: Medium,
}

/// `wholly fsck`.
#[derive(Args, Debug)]
pub struct FsckArgs {
    /// The file or block device
    pub volume: PathBuf,
    /// Change nothing: volumes are not repaired yet
    #[arg(short = 'n')]
    pub no_changes: bool,
    /// As fsck(8) calls it
    #[arg(short = 'a', short_alias = 'p', hide = true)]
    automatic: bool,
    #[arg(short = 'y', hide = true)]
    yes: bool,
    #[arg(short = 'f', hide = true)]
    forced: bool,
    #[arg(short = 'C', hide = true, value_name = "FD", num_args = 0..=1)]
    progress: Option<Option<i32>>,
    /// What the file is taken for
    #[arg(long, value_enum, default_value_t = Medium::Auto)]
    pub medium: Medium,
}

/// `wholly import` and `wholly export`.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// The file or block device with the volume
    pub volume: PathBuf,
    /// The directory
    pub dir: PathBuf,
}

const BENCH_EXAMPLES: &str = "\
Every option of the suites is listed by `wholly bench help`.

Examples:
  wholly bench groups                         needs root: makes its own tmpfs, ext4 and xfs
  wholly bench groups --pmem /dev/shm --disk /var/tmp --files 100
  wholly bench groups --peers --json          beside SQLite, libpmemobj and rename";

/// `wholly bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Measure what people use today too (the program wholly-bench-peers, beside this one)
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

/// `wholly man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where the pages go
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
}
