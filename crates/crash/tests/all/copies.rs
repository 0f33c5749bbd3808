//! Copies of stores that are adopted, and crashes of that: see `wholly_crash::copies`.
//!
//! `WHOLLY_LONG=1` goes through more. No verdict depends on time.

use std::sync::atomic::{AtomicUsize, Ordering};

use wholly_crash::{Limits, Setting, copies};
use wholly_sim::ExploreLimits;

/// One test, with two workers.
#[test]
fn an_adopted_copy_survives_every_crash() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let (samples, single_units) = if long { (4, 12) } else { (1, 3) };
    let limits = ExploreLimits { samples, single_units, ..Limits::glance().states };
    let count = |few: usize| if long { copies::ALL.len() } else { few };
    let all = [("disk", copies::ALL.len()), ("pmem", count(1)), ("disk-ext4", count(1))];
    let of = |(setting, count): (&'static str, usize)| copies::ALL[..count].iter().map(move |script| (setting, script));
    let jobs: Vec<(&str, &&str)> = all.into_iter().flat_map(of).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((setting, script)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match copies::explore(script, &Setting::named(setting), &limits) {
                Ok((images, conflicts)) => println!("{setting}: {images} images, {conflicts} conflicts, {script}"),
                Err(what) => panic!("{setting}: {what}"),
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}
