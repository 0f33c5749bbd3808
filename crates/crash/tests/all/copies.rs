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
    let all = [
        ("disk", "disk", copies::ALL.len()),
        ("pmem", "pmem", count(1)),
        ("disk-ext4", "disk-ext4", count(1)),
        // The log is made again for another medium.
        ("pmem", "disk", count(2)),
        ("pmem", "disk-4k", count(1)),
        ("disk", "disk-4k", count(2)),
        ("disk-4k", "pmem", count(1)),
        ("disk-4k", "disk", count(1)),
    ];
    let of = |(from, to, count): (&'static str, &'static str, usize)| {
        copies::ALL[..count].iter().map(move |script| (from, to, script))
    };
    let jobs: Vec<(&str, &str, &&str)> = all.into_iter().flat_map(of).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((from, to, script)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let [of, on] = [from, to].map(|name| Setting::named(name));
            match copies::explore(script, &of, &on, &limits) {
                Ok((images, conflicts)) => println!("{from} to {to}: {images} images, {conflicts} conflicts, {script}"),
                Err(what) => panic!("{from} to {to}: {what}"),
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}
