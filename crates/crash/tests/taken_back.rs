//! Groups that are taken back and done again: see the module `taken_back`.

use std::collections::BTreeSet;

use wholly_crash::{Setting, coverage, refused, taken_back};

#[test]
fn a_crash_leaves_the_group_or_what_was_before_and_the_way_to_the_other() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    for setting in if is_long { &["disk-ext4", "disk", "pmem"][..] } else { &["disk", "pmem"] } {
        let setting = Setting::named(setting);
        let limits = wholly_crash::Limits::glance().states;
        let (mut images, mut undone, mut sites, mut wrong) = (0, 0, BTreeSet::new(), Vec::new());
        for script in refused::ALL {
            match taken_back::explore(script, &setting, &limits) {
                Ok(judged) => {
                    (images, undone) = (images + judged.images, undone + judged.undone);
                    sites.extend(judged.sites);
                }
                Err(what) => wrong.push(what),
            }
        }
        println!("{}: {images} images, {undone} with an undo", setting.name);
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        for site in coverage::of(&["undo."]) {
            assert!(sites.contains(site.0), "{} was no crash point", site.0);
        }
        assert!(undone > images / 2, "only {undone} of {images} had an undo");
    }
}
