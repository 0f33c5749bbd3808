//! Stores that somebody else may have written to, as a user meets them: what does something of what is written in them
//! is refused.

use super::common::{self, places};
use std::os::unix::fs::chown;

/// Somebody else, who is not the superuser.
const OTHER: u32 = 12_345;

#[test]
fn verbs_do_nothing_for_others() {
    if !rustix::process::geteuid().is_root() {
        return common::skipped("it takes the superuser");
    }
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        chown(place.dir.join(".wholly"), Some(OTHER), None).unwrap();
        let before = std::fs::read(place.dir.join(".wholly/log")).unwrap();
        let dir = place.dir.to_str().unwrap();
        let (id, run) = ("1-1", ["run", "--dir", dir, "--", "true"]);
        let verbs: [&[&str]; 6] =
            [&["recover", dir], &["deinit", dir], &["apply", dir, id], &["discard", dir, id], &["mount", dir], &run];
        for verb in verbs {
            let said = common::wholly(verb);
            let code = if verb[0] == "run" { 125 } else { 8 };
            said.exits(code);
            assert!(said.err.contains("belongs to user 12345") && said.err.contains("--trust-owner"), "{}", said.err);
        }
        assert!(std::fs::read(place.dir.join(".wholly/log")).unwrap() == before);
        // Whoever looks does nothing of what is written.
        for verb in ["stat", "check", "dump", "list"] {
            place.run(&[verb]).exits(0);
        }
        place.run(&["recover", "--trust-owner"]).exits(1);
        assert_eq!(std::fs::read(place.dir.join("a")).unwrap()[..100], [3; 100]);
    }
}
