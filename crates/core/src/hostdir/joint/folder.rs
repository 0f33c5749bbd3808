//! The folder of records: what is in it, and how it changes.

use rustix::io::Errno;
use wholly_changes::{UNFINISHED, id_name, id_of, join};
use wholly_host::{HostFs, host_error, open_own};
use wholly_vfs::Rename;

use super::record::{LATER, Record};
use super::{DECIDED, FOLDER, PREPARED, UNDECIDED};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::check::{Finding, FindingKind};
use crate::hostdir::names::names_in;
use crate::site;

/// The path of a record in this state.
fn path_of(id: u64, state: &[u8]) -> Vec<u8> {
    join(FOLDER, &[&id_name(id), state].concat())
}

/// The path of a prepared group.
pub(in crate::hostdir) fn prepared_path(id: u64) -> Vec<u8> {
    join(wholly_changes::FOLDER, &[&id_name(id), PREPARED].concat())
}

/// The prepared group that a file in the folder of parked groups is by its name.
pub(in crate::hostdir) fn prepared_id(name: &[u8]) -> Option<u64> {
    name.strip_suffix(PREPARED).map(id_of).filter(|&id| id != 0 && [&id_name(id), PREPARED].concat() == name)
}

/// The record that a file in the folder is by its name, and whether it is decided.
fn named(name: &[u8]) -> Option<(u64, bool)> {
    let (number, is_decided) = match (name.strip_suffix(UNDECIDED), name.strip_suffix(DECIDED)) {
        (Some(number), _) => (number, false),
        (_, Some(number)) => (number, true),
        _ => return None,
    };
    Some((id_of(number), is_decided)).filter(|&(id, _)| id != 0 && id_name(id) == number)
}

/// A record that was found.
pub(super) struct Found {
    pub record: Record,
    pub is_decided: bool,
    pub inode: (u64, i64),
}

/// The record with this number, in the store whose directory `host` is.
///
/// # Errors
/// [`Error::Corrupt`]; of the host.
pub(super) fn find(host: &dyn HostFs, id: u64) -> Result<Option<Found>> {
    for (state, is_decided) in [(DECIDED, true), (UNDECIDED, false)] {
        let path = path_of(id, state);
        let (file, stat) = match open_own(host, &path) {
            Err(Error::NotFound(_)) => continue,
            Err(Error::Media(error)) if error.errno == Errno::NOTDIR => continue,
            opened => opened?,
        };
        let mut bytes = vec![0; usize::try_from(stat.size).unwrap_or(usize::MAX).min(LARGEST)];
        let read = file.read_at(0, &mut bytes)?;
        bytes.truncate(read);
        let corrupt = |what| Error::corrupt(String::from_utf8_lossy(&path), what);
        let record = Record::checked(&bytes).map_err(|what| match what {
            LATER => Error::Unsupported(format!("{}: {LATER}", String::from_utf8_lossy(&path))),
            what => corrupt(what),
        })?;
        if record.id != id {
            return Err(corrupt("it is another record, under its name"));
        }
        return Ok(Some(Found { record, is_decided, inode: (stat.ino, stat.btime_ns) }));
    }
    Ok(None)
}

/// Bytes of the largest record.
const LARGEST: usize = 64 + super::record::MOST * (48 + 2 * 4096 + 8);

/// The numbers of all records.
pub(super) fn all(host: &dyn HostFs) -> Result<Vec<u64>> {
    let mut all: Vec<u64> = names_in(host, FOLDER)?.iter().filter_map(|name| named(name)).map(|(id, _)| id).collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// What is wrong with the records of a store.
pub(in crate::hostdir) fn check(host: &dyn HostFs, volume_id: &[u8; 16]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for name in names_in(host, FOLDER)? {
        let place = String::from_utf8_lossy(&join(FOLDER, &name)).into_owned();
        let Some((id, _)) = named(&name) else {
            findings.push(match name.ends_with(UNFINISHED) {
                true => Finding::new(FindingKind::Torn, place, "the record of a joint commit that had just begun"),
                false => Finding::new(FindingKind::Stranger, place, "it does not belong to a store"),
            });
            continue;
        };
        let what = match find(host, id) {
            Ok(Some(found)) if found.record.volume_id != *volume_id => "it is a record of another store".into(),
            Ok(_) | Err(Error::Unsupported(_)) => continue,
            Err(Error::Corrupt { fault, .. }) => fault,
            Err(error) => return Err(error),
        };
        findings.push(Finding::new(FindingKind::Joint, place, what));
    }
    Ok(findings)
}

impl StoreInner {
    /// Writes a record, undecided: it survives when this returns. Gives its inode.
    pub(super) fn begin_record(&self, record: &Record) -> Result<(u64, i64)> {
        self.make_own_folder(FOLDER, &self.joint.has_folder, (site::JOINT_FOLDER, site::JOINT_FOLDER_SYNC))?;
        let path = path_of(record.id, UNDECIDED);
        let unfinished = [path.as_slice(), UNFINISHED].concat();
        let failed = |error| host_error(error, &path);
        let write = || {
            match self.host.unlink(site::JOINT_REMOVE, &unfinished) {
                Err(error) if error.errno != Errno::NOENT => return Err(failed(error)),
                _ => {}
            }
            let file = self.host.create(site::JOINT_MAKE, &unfinished, 0o600).map_err(failed)?;
            file.write_at(site::JOINT_WRITE, 0, &record.to_bytes()).map_err(failed)?;
            file.sync(site::JOINT_SYNC).map_err(failed)?;
            self.log.count_barrier();
            self.host.rename(site::JOINT_BEGIN, &unfinished, &path, Rename::Replace).map_err(failed)?;
            let stat = file.stat()?;
            Ok((stat.ino, stat.btime_ns))
        };
        let inode = write().inspect_err(|_| {
            // What stays of it the next open removes.
            let _ = self.host.unlink(site::JOINT_REMOVE, &unfinished);
        })?;
        self.sync_records(site::JOINT_BEGIN_SYNC)?;
        Ok(inode)
    }

    /// The commit point of all participants.
    ///
    /// # Errors
    /// Then nothing is decided; [`Error::Poisoned`] where nobody knows.
    pub(super) fn decide(&self, id: u64) -> Result<()> {
        let (from, to) = (path_of(id, UNDECIDED), path_of(id, DECIDED));
        if let Err(error) = self.host.rename(site::JOINT_DECIDE, &from, &to, Rename::Replace) {
            let is_gone = |path: &[u8]| self.host.stat(path).is_err_and(|error| error.errno == Errno::NOENT);
            let error = host_error(error, &to);
            return Err(if self.host.stat(&from).is_ok() && is_gone(&to) { error } else { self.poison(&error) });
        }
        self.sync_records(site::JOINT_DECIDE_SYNC)
    }

    /// Removes a record, once no prepared group refers to it any more (invariant 3). If it comes back after a crash,
    /// the next open removes it.
    pub(super) fn forget_record(&self, id: u64) -> Result<()> {
        for state in [DECIDED, UNDECIDED] {
            let path = path_of(id, state);
            match self.host.unlink(site::JOINT_REMOVE, &path) {
                Err(error) if error.errno != Errno::NOENT => return Err(host_error(error, &path)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes records that were not finished.
    pub(super) fn clear_records(&self) -> Result<()> {
        for name in names_in(&*self.host, FOLDER)?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            let path = join(FOLDER, name);
            self.host.unlink(site::JOINT_REMOVE, &path).map_err(|error| host_error(error, &path))?;
        }
        Ok(())
    }

    /// Whether there are records: somebody may ask for them.
    pub(in crate::hostdir) fn has_records(&self) -> Result<bool> {
        Ok(!all(&*self.host)?.is_empty())
    }

    fn sync_records(&self, site: wholly_media::Site) -> Result<()> {
        self.host.sync_dir(site, FOLDER).map_err(|error| self.poison(&Error::Media(error)))?;
        self.log.count_barrier();
        Ok(())
    }
}

/// The inode of a store's directory, by which a participant is known, and known to be one no more.
pub(super) fn directory_of(host: &dyn HostFs) -> Result<(u64, i64)> {
    let stat = host.stat(b"").map_err(|error| host_error(error, b""))?;
    Ok((stat.ino, stat.btime_ns))
}
