//! Checking stores in real directories, and tidying their folders.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::Parked;
use wholly_host::{
    HOME, HomeError, HostDir, HostFs, HostNames, HostOptions, IGNORED, SLIP, StoreHome, Trust, UNFINISHED, UNNAMED,
};

use crate::error::{Error, Result};
use crate::hostdir::{
    ByPath, Finding, FindingKind, KeptUndo, ParkedId, Part, Report, check_on, is_own_folder, parked_on, parts_on,
    slots_of, undos_on,
};
use crate::open::{GUEST, LOG, home_error, look};

/// What the store's folder has, besides the [folders](is_own_folder) that it keeps something in.
const KNOWN: [&str; 8] = [LOG, "lock", "spare", "reserve", IGNORED, UNNAMED, SLIP, GUEST];

/// Reports what is wrong with the store in `dir`. Changes nothing.
///
/// It reads the whole log as recovery does, verifies all payload of groups that are not written back yet, and looks at
/// the files that these groups changed and at the store's folder. If a part of the log cannot be read, what comes after
/// it in the same lane is not judged.
///
/// # Errors
/// - [`Error::NotAStore`].
/// - [`Error::Busy`]: a process has the store open, or had it open during the check; the log can be judged only while
///   no process writes to it. The text names the process that has it open now.
/// - [`Error::Unsupported`]: another version of Wholly wrote the store.
/// - [`Error::Media`].
///
/// Damage is not an error but a finding.
///
/// # Example
/// ```
/// # fn main() -> wholly::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wholly-doc-check-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// wholly::Store::init(&dir, &wholly::Options::default())?;
/// let report = wholly::check(&dir)?;
/// assert!(report.is_sound());
/// for finding in &report.findings {
///     println!("{}: {}", finding.place.display(), finding.what);
/// }
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn check(dir: impl AsRef<Path>) -> Result<Report> {
    let dir = dir.as_ref();
    let host = look(dir)?;
    let mut findings = look_at_folder(&host)?;
    if findings.iter().any(|finding| finding.kind == FindingKind::Missing) {
        return Ok(Report { findings, ..Report::default() });
    }
    refuse_busy(&host, dir)?;
    let log = host.open(format!("{HOME}/{LOG}").as_bytes(), false)?;
    let before = slots_of(&log)?;
    let mut report = check_on(log.clone(), host.clone())?;
    // Who opened the store meanwhile has raised its incarnation.
    refuse_busy(&host, dir)?;
    if slots_of(&log)? != before {
        return Err(Error::Busy(dir.display().to_string(), "another process had it open during the check".into()));
    }
    report.findings.append(&mut findings);
    Ok(report)
}

/// Lists the parked groups of the store in `dir`, in the order in which they began, without opening the store: another
/// process may have it open. Changes nothing; groups that have expired are still listed.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Media`].
pub fn parked(dir: impl AsRef<Path>) -> Result<Vec<Parked>> {
    parked_on(&*look(dir.as_ref())?)
}

/// The undo that is kept in the store in `dir`, the oldest first: looked at from outside, as by [`parked`].
///
/// # Errors
/// Those of [`parked`].
pub fn undos(dir: impl AsRef<Path>) -> Result<Vec<KeptUndo>> {
    undos_on(&*look(dir.as_ref())?)
}

/// The other parts of a parked group of the store in `dir` that was [parked together](crate::StoreVfs::park_together)
/// with groups of other stores, and what has become of them: looked at from outside, as by [`parked`].
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::NotFound`] where there is no group of this name; [`Error::Corrupt`];
/// [`Error::Media`].
pub fn parts(dir: impl AsRef<Path>, id: ParkedId) -> Result<Vec<Part>> {
    let host = look(dir.as_ref())?;
    parts_on(&*host, &ByPath::of(host.clone(), Trust::Anybody), id)
}

/// Gives the folder of the store in `dir` its mode, and removes what was left by stores that were half made or half
/// removed there, and of files that never got a name. On return that survives. The log and all files stay as they are.
///
/// # Errors
/// - [`Error::NotAStore`].
/// - [`Error::Busy`]: a process has the store open; the text names it.
/// - [`Error::Untrusted`]: the store belongs to another user.
/// - [`Error::Media`].
pub fn tidy(dir: impl AsRef<Path>) -> Result<()> {
    let dir = dir.as_ref();
    let host = Arc::new(HostDir::open(dir, HostOptions::default())?);
    let home = StoreHome::open(&host, Trust::Owned).map_err(|error| home_error(error, dir))?;
    Ok(home.tidy()?)
}

/// Removes the folders of stores in `dir` that a crash has left half made or half removed, whether there is a store now
/// or not. Returns their number; the removal is durable on return. Folders that another process works on, or that
/// belong to another user, stay.
///
/// # Errors
/// [`Error::Media`].
pub fn clear_unfinished(dir: impl AsRef<Path>) -> Result<u64> {
    let host = HostDir::open(dir.as_ref(), HostOptions::default())?;
    Ok(StoreHome::clear_unfinished(&host)?)
}

pub(crate) fn refuse_busy(host: &HostDir, dir: &Path) -> Result<()> {
    match StoreHome::holder(host) {
        Ok(Some(busy)) => Err(home_error(HomeError::Busy(busy), dir)),
        // Without a lock file no process has it open.
        Ok(None) => Ok(()),
        Err(error) if error.errno == Errno::NOENT => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What does not belong in the folder, what it lacks, and who may look into it.
fn look_at_folder(host: &HostDir) -> Result<Vec<Finding>> {
    let mode = host.stat(HOME.as_bytes())?.mode & 0o7777;
    let mut findings = Vec::new();
    if mode != 0o700 {
        findings.push(Finding::new(FindingKind::Mode, HOME, format!("its mode is {mode:04o} instead of 0700")));
    }
    let entries = host.read_dir(HOME.as_bytes())?;
    let has = |name: &str| entries.iter().any(|entry| entry.name == name.as_bytes());
    for name in [LOG, "lock"].into_iter().filter(|name| !has(name)) {
        findings.push(Finding::new(FindingKind::Missing, format!("{HOME}/{name}"), "it is missing"));
    }
    for entry in entries.iter().filter(|entry| !KNOWN.iter().any(|known| known.as_bytes() == entry.name)) {
        let place = format!("{HOME}/{}", String::from_utf8_lossy(&entry.name));
        if is_own_folder(place.as_bytes()) {
            continue;
        }
        findings.push(Finding::new(FindingKind::Stranger, place, "it does not belong to a store"));
    }
    if has(UNNAMED) {
        let unnamed = host.read_dir(format!("{HOME}/{UNNAMED}").as_bytes())?;
        if !unnamed.is_empty() {
            let what = format!("{} files that never got a name", unnamed.len());
            findings.push(Finding::new(FindingKind::Torn, format!("{HOME}/{UNNAMED}"), what));
        }
    }
    let leftover = |name: &[u8]| name.starts_with(UNFINISHED.as_bytes());
    for entry in host.read_dir(b"")?.iter().filter(|entry| leftover(&entry.name)) {
        let what = "the folder of a store that was half made or half removed";
        findings.push(Finding::new(FindingKind::Leftover, OsString::from_vec(entry.name.clone()), what));
    }
    Ok(findings)
}
