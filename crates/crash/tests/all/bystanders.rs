//! Programs that change the directory of a store behind its back, and crashes after that: see
//! `wholly_crash::bystanders`.

use wholly_crash::{Limits, Setting, between, bystanders};

#[test]
fn what_a_bystander_changed_is_reported_and_nobody_loses_anything() {
    for setting in ["disk", "pmem", "disk-ext4"] {
        let mut late = 0;
        let wrong: Vec<String> = (bystanders::ALL.iter())
            .filter_map(|bystander| match bystander.explore(&Setting::named(setting), &Limits::glance().states) {
                Ok((images, done)) => {
                    println!("{setting}: {images} images, {done} late, {}, {:?}", bystander.groups, bystander.acts);
                    late += done;
                    None
                }
                Err(what) => Some(what),
            })
            .collect();
        assert!(wrong.is_empty(), "{setting}:\n{}", wrong.join("\n"));
        assert!(late > 0, "nobody came after a crash in a checkpoint");
    }
}

#[test]
fn a_bystander_may_come_between_any_two_calls() {
    for setting in ["disk", "pmem"] {
        let mut wrong = Vec::new();
        for scene in between::ALL {
            match scene.explore(&Setting::named(setting)) {
                Ok(places) => {
                    println!("{setting}: {places} places, {}, {:?}", scene.group, scene.acts);
                    assert!(places > 4, "{}: he came at {places} places", scene.group);
                }
                Err(what) => wrong.push(what),
            }
        }
        assert!(wrong.is_empty(), "{setting}:\n{}", wrong.join("\n"));
    }
}
