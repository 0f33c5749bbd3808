//! Getting out of a damaged store what can be proven, into another directory. Nothing of the original is changed.
//!
//! # Terms
//!
//! - *proven*: a group whose records and payloads hold, of whose predecessors none is missing, and whose files are at
//!   home as the log says. A predecessor is a group that changed a file, an object or a name before it that it changes
//!   too (the contract's prefix rule).
//! - *left out*: a group that was not proven. Whatever builds on it is left out as well. What it says of inodes stays,
//!   for others rely on that.
//! - *certain*: the superblock tells which groups are home. Without it a group counts as not home where each of its
//!   files lies as its group found it: a checkpoint would have changed the file's times.
//!
//! # How
//!
//! 1. `log::salvage`: all records that prove themselves, whatever stands before them.
//! 2. [`proof`]: which groups are proven, in commit order. They are replayed as at an open, over the homes of the
//!    original; what recovery would refuse, or call a conflict, leaves its group out, and the replay begins again.
//! 3. [`copy`]: home is copied as it is. A new log has the proven groups, with the inodes of the copies; the copy is
//!    opened as a store, taken home, and the store removed. So the bytes come home by the code that always takes them
//!    there.
//!
//! The copy is durable when all of that is done. Before, it is nothing: whoever is interrupted removes it and begins
//! again.

mod copy;
mod proof;

use std::collections::HashMap;
use std::sync::Arc;

use wholly_changes::origin_of;
use wholly_changes::records::Identity;
use wholly_host::{HostDir, HostFile, HostFs};
use wholly_media::Region;
use wholly_vfs::Stat;

use super::check::{Finding, FindingKind, ReadOnly};
use super::homes::Looking;
use super::names::{ANCHOR_FOLDER, BLANK_FOLDER, UNDO_FOLDER};
use super::shadow::SHADOW_FOLDER;
use super::undo_store::is_held_or_tag;
use crate::error::{Error, Result};
use crate::log::layout::{EntryKind, LINE, StorePart, Superblock};
use crate::log::salvage::Rebuilt;
use crate::log::{in_force, read_slots, refuse_unsupported};
use copy::Copier;
pub use copy::SALVAGE;
use proof::Proof;

/// What has become of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the copy.
    Written,
    /// Its commit had not returned when a crash came, so it is absent.
    Torn,
    /// It is not in the copy, for this reason.
    LeftOut(String),
}

/// A committed group that is not written back.
#[derive(Clone, Debug)]
pub struct SalvagedGroup {
    /// Its place in commit order.
    pub sequence: u64,
    /// Where its commit record stands in the log.
    pub position: u64,
    /// The outcome.
    pub fate: Fate,
    /// The paths that it changes, as far as the log has them.
    pub paths: Vec<String>,
    /// Whether the files may hold a part of it, written back by a checkpoint, although it was left out.
    pub may_be_half_home: bool,
}

/// What a salvage did.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// In commit order.
    pub groups: Vec<SalvagedGroup>,
    /// Other findings: damage of the log, files that could not be read or copied in full.
    pub findings: Vec<Finding>,
    /// Files that were copied.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Salvaged {
    /// Whether everything was proven, and is in the copy.
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty() && !self.groups.iter().any(|group| matches!(group.fate, Fate::LeftOut(_)))
    }
}

/// A store that is salvaged.
pub struct Original {
    /// Its directory.
    pub host: Arc<HostDir>,
    /// Its log, if it has one.
    pub log: Option<Arc<dyn HostFile>>,
}

/// A copy that was made, and is a store until its log is home.
pub struct Made {
    /// What was proven, and what was left out.
    pub report: Salvaged,
    /// Whether there is a log to be taken home.
    pub has_log: bool,
}

/// Copies `from` to the empty directory `to`, with a log of what is proven. `make_store` makes the store's folder
/// there, and an empty log; `progress` is told bytes that were copied, and all there are.
pub fn salvage_on(
    from: &Original,
    to: &Arc<dyn HostFs>,
    volume_id: [u8; 16],
    make_store: &mut dyn FnMut() -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Made> {
    let mut findings = Vec::new();
    let log = Log::of(from, &mut findings)?;
    let inodes = copy::inodes(&*from.host)?;
    let proof = match &log {
        Some(log) => Some(Proof::of(log, &Looking(from.host.clone()), &inodes)?),
        None => None,
    };
    let mut copier = Copier::new(&from.host, &**to, inodes.values().map(|stat| stat.size).sum(), progress);
    copier.copy_all(b"")?;
    let has_log = proof.as_ref().is_some_and(Proof::has_groups);
    if has_log {
        make_store()?;
        for folder in [ANCHOR_FOLDER, BLANK_FOLDER, SHADOW_FOLDER] {
            copier.copy_folder(folder)?;
        }
    }
    copier.finish_directories()?;
    let (files, bytes) = (copier.files, copier.bytes);
    findings.append(&mut copier.problems);
    let copies = copier.copies;
    let mut report = Salvaged { groups: Vec::new(), findings, files, bytes };
    let (Some(log), Some(proof)) = (&log, &proof) else { return Ok(Made { report, has_log: false }) };
    report.findings.extend(proof.findings());
    report.groups = proof.report();
    note_orphans(from, &mut report)?;
    note_parked(from, &mut report)?;
    if has_log {
        let file = to.open(b".wholly/log", true)?;
        let mut put = |offset, bytes: &[u8]| Ok(file.write_at(SALVAGE, offset, bytes)?);
        let mut rebuilt = Rebuilt::new(&*log.region, proof.collected(), volume_id, &mut put);
        proof.write(&mut rebuilt, &mut |entry, payload| {
            if entry.kind == EntryKind::Identify {
                *payload = identity_in(&**to, &copies, payload)?;
            }
            Ok(())
        })?;
        rebuilt.finish(proof.tail(), proof.checkpointing(), StorePart { origin: origin_of(&**to)? })?;
        file.sync(SALVAGE)?;
    }
    to.sync_all(SALVAGE)?;
    Ok(Made { report, has_log })
}

/// The log that is read.
struct Log {
    region: Arc<dyn Region>,
    superblock: Option<Superblock>,
}

impl Log {
    /// Also says what of it cannot be read.
    fn of(from: &Original, findings: &mut Vec<Finding>) -> Result<Option<Log>> {
        let Some(log) = &from.log else {
            findings.push(Finding::new(
                FindingKind::Missing,
                ".wholly/log",
                "it is gone, with everything not written back",
            ));
            return Ok(None);
        };
        let len = log.stat()?.size;
        let slots = read_slots::<StorePart>(&ReadOnly::new(log.clone(), len, LINE as u32))?;
        let superblock = in_force(&slots).cloned();
        refuse_unsupported(&slots)?;
        if superblock.is_none() {
            let what = "no copy is valid: the times of files decide which groups are written back";
            findings.push(Finding::new(FindingKind::Superblock, "superblock", what));
        }
        let block = superblock.as_ref().map_or(LINE as u32, |superblock| superblock.block);
        Ok(Some(Log { region: Arc::new(ReadOnly::new(log.clone(), len, block)), superblock }))
    }
}

/// An identity as it is in the copy: of the inode there. That the original lies as it should was looked at before.
fn identity_in(to: &dyn HostFs, copies: &HashMap<(u64, i64), Vec<u8>>, payload: &[u8]) -> Result<Vec<u8>> {
    let identity = Identity::checked(payload).ok_or_else(|| Error::corrupt("log", "an identity is impossible"))?;
    let Some(path) = copies.get(&(identity.ino, identity.btime_ns)) else { return Ok(payload.to_vec()) };
    let stat = to.stat(path)?;
    let copied = Identity { ino: stat.ino, btime_ns: stat.btime_ns, handle: 0, baseline: None, ..identity };
    Ok(copied.to_bytes())
}

/// What hung in a folder of the store's own may belong to a group that was left out.
fn note_orphans(from: &Original, report: &mut Salvaged) -> Result<()> {
    if !report.groups.iter().any(|group| matches!(group.fate, Fate::LeftOut(_))) {
        return Ok(());
    }
    for folder in [ANCHOR_FOLDER, BLANK_FOLDER] {
        for name in super::names::names_in(&*from.host, folder)? {
            let place = format!("{}/{}", String::from_utf8_lossy(folder), String::from_utf8_lossy(&name));
            let what = "a checkpoint was moving it; if no proven group names it, it is in the original only";
            report.findings.push(Finding::new(FindingKind::File, place, what));
        }
    }
    Ok(())
}

/// Parked groups stay where they are: they speak of the original's files.
fn note_parked(from: &Original, report: &mut Salvaged) -> Result<()> {
    for folder in [wholly_changes::FOLDER, UNDO_FOLDER, super::joint::FOLDER] {
        let is_part = |name: &[u8]| match folder {
            UNDO_FOLDER => is_held_or_tag(name),
            _ => wholly_changes::named_content(name).is_some(),
        };
        let names = super::names::names_in(&*from.host, folder)?;
        for name in names.into_iter().filter(|name| !is_part(name)) {
            let place = format!("{}/{}", String::from_utf8_lossy(folder), String::from_utf8_lossy(&name));
            let what = "a parked group, or a joint commit, is in the original only";
            report.findings.push(Finding::new(FindingKind::Parked, place, what));
        }
    }
    Ok(())
}

/// What the host has, by inode.
type Inodes = HashMap<(u64, i64), Stat>;
