//! Copies of stores that are adopted, and crashes of that: see `wholly_crash::copies`.

use wholly_crash::{Limits, Setting, copies};
use wholly_media::sim::ExploreLimits;

#[test]
fn an_adopted_copy_survives_every_crash() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let few = ExploreLimits { samples: 2, single_units: 6, ..Limits::glance().states };
    let limits = if long { ExploreLimits { samples: 4, single_units: 12, ..Limits::glance().states } } else { few };
    for (setting, count) in [("disk", copies::ALL.len()), ("pmem", 1), ("disk-ext4", 2)] {
        for script in &copies::ALL[..if long { copies::ALL.len() } else { count }] {
            match copies::explore(script, &Setting::named(setting), &limits) {
                Ok((images, conflicts)) => println!("{setting}: {images} images, {conflicts} conflicts, {script}"),
                Err(what) => panic!("{setting}: {what}"),
            }
        }
    }
}
