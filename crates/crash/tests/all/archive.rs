//! A crash during the commit of 10,000 new files, and while they go home, is all or nothing.
//!
//! `WHOLLY_LONG=1` goes through more states. No verdict depends on time.

use wholly_crash::archive::{Archive, Limits, explore};
use wholly_crash::{Seen, Setting};
use wholly_sim::{Mutation, MutationKind};

#[test]
fn ten_thousand_new_files_are_all_there_or_none() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let limits = match is_long {
        true => Limits { every: 4000, orders: 16, samples: 2, ..Limits::quick() },
        false => Limits::quick(),
    };
    // A file system with a journal allows little that the weak one does not.
    let worlds = if is_long { &["disk", "disk-ext4", "pmem"][..] } else { &["disk", "pmem"] };
    for archive in Archive::ALL {
        for world in worlds {
            // A short run has each archive once: what is adopted is the host's, whichever log tells of it.
            if !is_long && (*world == "pmem") == (archive == Archive::Adopted) {
                continue;
            }
            let outcome = explore(archive, &Setting::named(world), &Seen::default(), &limits);
            println!("{}, {world}: {outcome}", archive.name());
            outcome.assert_clean();
        }
    }
}

/// Each is one that small groups do not have: what a large one writes before its commit record, and home files by the
/// thousand.
#[test]
fn what_is_broken_on_purpose_is_noticed() {
    for (archive, world, site) in [
        // The commit record is written before the log has the group's bytes.
        (Archive::Unpacked, "disk", wholly::site::SPILL_SYNC),
        // The log is free before names and bytes are home.
        (Archive::Unpacked, "disk", wholly::site::CHECKPOINT_SYNC),
        // The commit record is written before what is adopted survives.
        (Archive::Adopted, "disk", wholly::site::ADOPT_SYNC_ALL),
    ] {
        let broken = Setting::named(world).broken(Mutation::new(site, MutationKind::DropOrder));
        let outcome = explore(archive, &broken, &Seen::default(), &Limits::hunt());
        let violation = outcome.violations.first().unwrap_or_else(|| panic!("{} was not noticed", broken.name));
        println!("{violation}");
        let again = wholly_crash::replay(&violation.replay).expect("a violation names its state");
        assert!(again.violation.is_some(), "{violation} does not replay");
    }
}
