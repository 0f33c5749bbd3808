//! How a store is opened by the verbs that need all of it: for the medium that it was made for, and behind a mount of
//! it that is ending.

use crate::error::Failure;
use crate::mounts;
use crate::output::{name, shown, size};
use crate::survey;
use std::ffi::CStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wholly::{Options, Store};
use wholly_host::{HOME, HostDir, HostFs, HostMedium, HostOptions, StoreHome};

/// What a process that serves a mount is called in the kernel's list of processes.
pub const SERVER: &CStr = c"wholly-mount";

/// What it is called from when nobody can use the mount any more, until it has taken everything home.
pub const ENDING: &CStr = c"wholly-umount";

/// How long it is waited for while it is called a server and its mount is not there: one that was only detached serves
/// whoever uses it still.
const LONGEST: Duration = Duration::from_secs(30);

/// How long nobody is told why.
const UNTOLD: Duration = Duration::from_secs(1);

/// Opens the store in `dir`, to which `itself` leads whatever has come to that name, for `verb`: that recovers it.
pub fn open(verb: &str, dir: &Path, itself: &Path, options: Options) -> Result<Store, Failure> {
    let medium = survey::medium_of(itself, &format!("{verb} {}", dir.display()))?;
    tell_whose(verb, dir, itself);
    open_on(medium, itself, options).map_err(|error| Failure::of_store(verb, dir, error))
}

/// Tells the superuser that the directory belongs to somebody else, who can do there what he likes meanwhile.
pub fn tell_whose(verb: &str, dir: &Path, itself: &Path) {
    let owner = || HostDir::open(itself, HostOptions::default()).and_then(|host| host.stat(b"")).map(|stat| stat.uid);
    if rustix::process::geteuid().is_root()
        && let Ok(owner @ 1..) = owner()
    {
        eprintln!(
            "wholly: {verb} {}: user {owner} owns this directory, and can exchange whatever is in it meanwhile",
            shown(dir)
        );
    }
}

/// The same, where it is known for which medium it was made.
pub fn open_on(medium: HostMedium, dir: &Path, options: Options) -> wholly::Result<Store> {
    let (begin, mut is_told) = (Instant::now(), false);
    while let Some((server, is_over)) = ending(dir)
        && (is_over || begin.elapsed() < LONGEST)
    {
        if !is_told && begin.elapsed() > UNTOLD {
            is_told = true;
            eprintln!("wholly: waiting for process {server}, which writes back what was written through a mount");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Store::open_with(dir, options, HostOptions { medium, ..HostOptions::default() })
}

/// Closes a store once its log is empty. A temporary one is removed, unless something is kept in it, or another store
/// may ask it what was decided. Whether it was.
pub fn close(store: Store) -> wholly::Result<bool> {
    tell_dropped(&store);
    let is_kept = |undo: &wholly::KeptUndo| undo.gone.is_none();
    let keeps = || Ok::<_, wholly::Error>(!store.parked()?.is_empty() || store.undos()?.iter().any(is_kept));
    let goes = store.is_temporary()? && !keeps()? && !store.may_be_asked()?;
    if goes { store.remove() } else { store.close() }?;
    Ok(goes)
}

/// The store that a verb is about where none is named: that of the current directory, or the nearest above that is the
/// caller's own, which is said.
pub fn nearest(verb: &str) -> PathBuf {
    let Ok(here) = std::env::current_dir() else { return ".".into() };
    let owner = |dir: &Path| dir.join(HOME).symlink_metadata().ok().map(|stat| stat.uid());
    if owner(&here).is_some() {
        return ".".into();
    }
    let own = rustix::process::geteuid().as_raw();
    match here.ancestors().skip(1).find(|above| owner(above) == Some(own)) {
        Some(above) => {
            eprintln!("wholly: {verb}: in {}", shown(above));
            above.into()
        }
        None => ".".into(),
    }
}

/// Says which undo went since it was last asked, because something needed its space.
pub fn tell_dropped(store: &Store) {
    for undo in store.take_dropped_undos() {
        let (command, bytes) = (name(undo.note.as_bytes()), size(undo.bytes));
        eprintln!("wholly: `{command}` cannot be taken back any more: the {bytes} of its undo were needed");
    }
}

/// The process that has the store open for a mount that is not there any more, and whether that has an end for
/// everybody: `umount` returns before all is taken home.
fn ending(dir: &Path) -> Option<(u32, bool)> {
    let host = HostDir::open(dir, HostOptions::default()).ok()?;
    let server = StoreHome::holder(&host).ok()??.pid?;
    let name = std::fs::read_to_string(format!("/proc/{server}/comm")).ok()?;
    let is_called = |it: &CStr| name.trim_end().as_bytes() == it.to_bytes();
    if is_called(ENDING) {
        return Some((server, true));
    }
    let source = dir.canonicalize().ok()?;
    let is_there = || mounts::sees(server, wholly_fuse::TYPE, Path::new(&*source.to_string_lossy())).unwrap_or(true);
    (is_called(SERVER) && !is_there()).then_some((server, false))
}
