//! A host that refuses what a group asks for while it is written back: see the module `refused`.

use std::collections::BTreeSet;

use rustix::io::Errno;
use wholly_crash::{Setting, coverage, refused};

#[test]
fn what_the_host_refuses_changes_nothing() {
    for setting in ["disk-ext4", "pmem"] {
        let setting = Setting::named(setting);
        let (mut calls, mut refusals, mut wrong) = (0, 0, Vec::new());
        for script in refused::ALL {
            for errno in refused::ERRNOS {
                for lasts in [false, true] {
                    match refused::explore(script, &setting, (errno, lasts), None) {
                        Ok(judged) => {
                            calls += judged.calls;
                            refusals += judged.refused;
                        }
                        Err(what) => wrong.push(what),
                    }
                }
            }
        }
        println!("{}: {calls} calls, {refusals} groups refused", setting.name);
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(refusals > 1_000, "only {refusals} groups were refused");
    }
}

#[test]
fn a_crash_after_a_refusal_leaves_all_or_nothing() {
    let every = if std::env::var_os("WHOLLY_LONG").is_some() { 1 } else { 36 };
    for setting in ["disk-ext4", "disk", "pmem"] {
        let setting = Setting::named(setting);
        let limits = wholly_crash::Limits::glance().states;
        let (mut images, mut sites, mut wrong) = (0, BTreeSet::new(), Vec::new());
        for script in refused::ALL {
            match refused::explore(script, &setting, (Errno::NOSPC, false), Some((&limits, every))) {
                Ok(judged) => {
                    images += judged.images;
                    sites.extend(judged.sites);
                }
                Err(what) => wrong.push(what),
            }
        }
        println!("{}: {images} images", setting.name);
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        for site in coverage::of(&["undo."]) {
            assert!(sites.contains(site.0), "{} was no crash point", site.0);
        }
    }
}
