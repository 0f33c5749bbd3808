//! Looking at a flash disk. No byte of it changes, nor does its incarnation.

use std::sync::Arc;

use wholly_error::Result;

use super::device::{Ftl, Mistake, Trial};
use super::flash::{Flash, Geometry};
use super::layout::Programs;
use super::profile::Config;
use super::space::RING;

/// What a flash disk is, and what was done on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The chip.
    pub geometry: Geometry,
    /// The device.
    pub config: Config,
    /// How often it was opened.
    pub incarnation: u32,
    /// Logical pages that do not read as zeros.
    pub mapped: u64,
    /// Programs by cause over all lives; erases as of the last checkpoint.
    pub programs: Programs,
    /// Blocks of unfinished transactions that the last open has dropped, by [`Tag::ALL`](crate::Tag::ALL). Those of
    /// transactions that were aborted after the last checkpoint are counted as well.
    pub dropped: [u64; 5],
    /// The same, of what the next open would drop.
    pub unfinished: [u64; 5],
    /// Erases of the blocks behind the ring: the fewest, the most, and of all together.
    pub wear: (u32, u32, u64),
    /// What is damaged of tables and chains, each in words.
    pub damage: Vec<String>,
}

impl Stat {
    fn of(ftl: &Ftl) -> Stat {
        let erases = || (RING..ftl.geometry.blocks).map(|block| ftl.map.erases(block));
        Stat {
            geometry: ftl.geometry,
            config: ftl.config,
            incarnation: ftl.incarnation,
            mapped: ftl.map.mapped().count() as u64,
            programs: ftl.programs,
            dropped: ftl.last_dropped,
            unfinished: ftl.counters.dropped,
            wear: (erases().min().unwrap_or(0), erases().max().unwrap_or(0), erases().map(u64::from).sum()),
            damage: ftl.damage.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it is.
    pub stat: Stat,
    /// Pages that were read and are right.
    pub right: u64,
    /// Each fault in words, with what to do: of tables and chains, then of content.
    pub faults: Vec<String>,
}

/// Looks at a flash disk. Changes no byte.
///
/// # Errors
/// As [`Device::open`](super::Device::open).
pub fn stat(flash: Arc<dyn Flash>) -> Result<Stat> {
    Ok(Stat::of(&Ftl::load(flash, Trial::default())?))
}

/// Reads all that a flash disk holds. Changes no byte.
///
/// # Errors
/// As [`Device::open`](super::Device::open). Damage is no error: the report has it.
pub fn check(flash: Arc<dyn Flash>) -> Result<Report> {
    check_trial(flash, Trial::default())
}

/// [`check`], with what tests change.
///
/// # Errors
/// As that.
#[doc(hidden)]
pub fn check_trial(flash: Arc<dyn Flash>, trial: Trial) -> Result<Report> {
    let mut ftl = Ftl::load(flash, trial)?;
    if ftl.makes(Mistake::LookRaises) {
        ftl.start()?;
    }
    let stat = Stat::of(&ftl);
    let (mut right, mut faults) = (0, stat.damage.clone());
    for at in ftl.map.system_pages() {
        if ftl.flash.is_mended(at)? {
            let name = ftl.geometry.name(at);
            faults.push(format!("{name} of the map: its spare bytes have rotted and are known by their copy; open it"));
        }
    }
    for (lpn, at) in ftl.map.mapped() {
        match ftl.content(lpn, at) {
            Ok(_) => {
                right += 1;
                if ftl.flash.is_mended(at)? {
                    let name = ftl.geometry.name(at);
                    let why = "its spare bytes have rotted and are known by their copy; write the block anew";
                    faults.push(format!("logical page {lpn} of the flash disk, {name}: {why}"));
                }
            }
            Err(error) => faults.push(error.to_string()),
        }
    }
    Ok(Report { stat, right, faults })
}
