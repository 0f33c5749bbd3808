//! Which sites of the code a trace passed, and which of them were crash points.

use super::event::{Fate, Trace};
use std::collections::BTreeMap;
use wholly_media::Site;

/// What is known of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCoverage {
    /// Events of this site.
    pub events: u64,
    /// Those that a mutation changed.
    pub mutated: u64,
    /// Crash points right after one of its events whose images were gone through.
    pub points: u64,
    /// Images of those points.
    pub images: u64,
}

/// What is known of every site that was seen. Sites that are missing here were never reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// By site.
    pub sites: BTreeMap<Site, SiteCoverage>,
}

impl Coverage {
    /// The sites of a trace.
    pub fn of(trace: &Trace) -> Coverage {
        let mut coverage = Coverage::default();
        for event in &trace.events {
            let Some(site) = event.site else { continue };
            let seen = coverage.sites.entry(site).or_default();
            seen.events += 1;
            seen.mutated += u64::from(event.fate != Fate::Normal);
        }
        coverage
    }

    pub(super) fn explored(&mut self, site: Site, images: u64) {
        let seen = self.sites.entry(site).or_default();
        seen.points += 1;
        seen.images += images;
    }

    /// Adds what another one saw.
    pub fn merge(&mut self, other: &Coverage) {
        for (site, more) in &other.sites {
            let seen = self.sites.entry(*site).or_default();
            seen.events += more.events;
            seen.mutated += more.mutated;
            seen.points += more.points;
            seen.images += more.images;
        }
    }

    /// The sites that were seen but were never a crash point.
    pub fn without_crash(&self) -> Vec<Site> {
        self.sites.iter().filter(|(_, seen)| seen.points == 0).map(|(site, _)| *site).collect()
    }
}
