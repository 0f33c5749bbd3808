//! Which persistence sites of the code were crash points.

use wholly::site;
use wholly_media::Site;

use crate::explore::Outcome;

/// Sites of the code at which no explored run or recovery has crashed.
pub fn uncovered(outcome: &Outcome) -> Vec<Site> {
    let crashed = |site: &Site| outcome.coverage.sites.get(site).is_some_and(|seen| seen.points > 0);
    site::ALL.iter().filter(|site| !crashed(site)).copied().collect()
}

/// A line for each site: events, crash points, images.
pub fn table(outcome: &Outcome) -> String {
    let mut lines = String::from("site                    events     points     images\n");
    for site in site::ALL {
        let seen = outcome.coverage.sites.get(site).copied().unwrap_or_default();
        lines += &format!("{:<22} {:>8} {:>10} {:>10}\n", site.0, seen.events, seen.points, seen.images);
    }
    lines
}
