//! Joint commits of several stores, crashed everywhere.

use rustix::io::Errno;
use wholly::site::JOINT_PREPARE_SYNC;
use wholly_crash::Setting;
use wholly_crash::joint::{ALL, FAILING, FAILING_AT_ONCE, How, Limits, explore, mutants, refused, sites};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind};

fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

fn limits() -> Limits {
    if is_long() { Limits::long() } else { Limits::quick() }
}

#[test]
fn all_stores_have_their_group_or_none() {
    for setting in ["disk", "disk-ext4", "pmem"] {
        let setting = Setting::named(setting);
        let (most, failing) = match setting.name.as_str() {
            _ if is_long() => (ALL.len(), FAILING),
            "disk" => (2, &FAILING[FAILING.len() - 3..]),
            // Where every word is by itself there are many more states, and what a store does when a call fails
            // depends little on the world.
            _ => (1, &FAILING[..0]),
        };
        all_or_none(&setting, &ALL[..most], failing, false);
    }
}

#[test]
fn all_directories_have_their_group_or_none() {
    for setting in ["disk", "disk-ext4", "pmem"] {
        let setting = Setting::named(setting);
        let (most, failing) = match setting.name.as_str() {
            _ if is_long() => (ALL.len(), FAILING_AT_ONCE),
            "disk" => (2, &FAILING_AT_ONCE[..1]),
            "pmem" => (1, &FAILING_AT_ONCE[..0]),
            _ => (0, &FAILING_AT_ONCE[..0]),
        };
        all_or_none(&setting, &ALL[..most], failing, true);
    }
}

fn all_or_none(setting: &Setting, all: &[&[&str]], failing: &[(usize, Site)], at_once: bool) {
    let runs = all.iter().map(|scripts| (*scripts, None));
    for (scripts, fails) in runs.chain(failing.iter().map(|fails| (ALL[0], Some(*fails)))) {
        let how = How { at_once, fails, ..How::default() };
        let outcome = explore(scripts, how, setting, &limits())
            .unwrap_or_else(|what| panic!("{}, {scripts:?}, {how:?}: {what}", setting.name));
        println!("{}, {}, {how:?}: {outcome:?}", setting.name, scripts.join(" and "));
        assert!(outcome.points > 5 && outcome.nested * 10 > outcome.images, "{outcome:?}");
    }
}

/// What takes back the groups of a joint commit is one, too.
#[test]
fn all_directories_are_taken_back_or_none() {
    let settings = if is_long() { &["disk", "disk-ext4", "pmem"][..] } else { &["disk"] };
    for setting in settings {
        let setting = Setting::named(setting);
        for scripts in &ALL[..if is_long() { ALL.len() } else { 1 }] {
            let how = How { at_once: true, takes_back: true, ..How::default() };
            let outcome = explore(scripts, how, &setting, &limits())
                .unwrap_or_else(|what| panic!("{}, {scripts:?}: {what}", setting.name));
            println!("{}, {}: {outcome:?}", setting.name, scripts.join(" and "));
            assert!(outcome.points > 5 && outcome.nested * 10 > outcome.images, "{outcome:?}");
        }
    }
}

/// What is refused in one directory changes nothing in any.
#[test]
fn what_a_host_refuses_changes_nothing_in_any_directory() {
    for setting in ["disk-ext4", "pmem"] {
        let setting = Setting::named(setting);
        let (mut calls, mut refusals, mut wrong) = (0, 0, Vec::new());
        for scripts in ALL {
            for errno in [Errno::NOSPC, Errno::PERM, Errno::IO] {
                for lasts in [false, true] {
                    match refused(scripts, (errno, lasts), None, &setting, &limits()) {
                        Ok(judged) => (calls, refusals) = (calls + judged.calls, refusals + judged.refused),
                        Err(what) => wrong.push(what),
                    }
                }
            }
        }
        println!("{}: {calls} calls, {refusals} joint commits refused", setting.name);
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(refusals > 1_000, "only {refusals} joint commits were refused");
    }
}

#[test]
fn a_crash_after_a_refusal_leaves_all_directories_new_or_old() {
    let (every, some) = if is_long() { (1, ALL) } else { (16, &ALL[..2]) };
    let setting = Setting::named("disk");
    // The crashes are those of any joint commit, and nested recovery is judged there.
    let limits = Limits { most: 4, nested_one_in: 256, ..limits() };
    for scripts in some {
        let judged = refused(scripts, (Errno::NOSPC, false), Some(every), &setting, &limits).unwrap();
        println!("{}: {judged:?}", scripts.join(" and "));
        assert!(judged.images > 100, "{judged:?}");
    }
}

/// Whatever is in the logs, and however many stores there are: what was decided before all were prepared is noticed.
#[test]
fn every_combination_of_stores_notices_a_planted_bug() {
    let broken = Setting::named("disk").broken(Mutation::new(JOINT_PREPARE_SYNC, MutationKind::DropOrder));
    for scripts in &ALL[..if is_long() { ALL.len() } else { 2 }] {
        let noticed = explore(scripts, How::default(), &broken, &Limits::quick());
        println!("{}", noticed.expect_err(&scripts.join(" and ")));
    }
}

/// What no state can tell from the code: site, what is broken, and why.
const EQUIVALENT: &[(&str, MutationKind, &str)] =
    &[("joint.make", MutationKind::DelayWrite, FIRST_NAME), ("joint.remove", MutationKind::DelayWrite, NOBODY_ASKS)];

const FIRST_NAME: &str = "who asks for the file's first name is the folder's sync, behind the rename that gives it the other one; the file's own \
                          sync, before that, asks for its bytes.";

const NOBODY_ASKS: &str =
    "no prepared group refers to a record that is removed: where it comes back, the next open removes it again.";

/// A fixed sixth of them; by `WHOLLY_LONG`, all.
#[test]
fn every_mutant_of_a_joint_commit_is_noticed() {
    let setting = Setting::named("disk");
    let all = mutants(&setting);
    for site in sites() {
        assert!(all.iter().any(|mutant| mutant.site == site), "{} is never passed", site.0);
    }
    let mut wrong = Vec::new();
    for mutant in all.into_iter().step_by(if is_long() { 1 } else { 6 }) {
        let proof = EQUIVALENT.iter().find(|(site, kind, _)| (*site, *kind) == (mutant.site.0, mutant.kind));
        // The long run doubts every proof.
        if proof.is_some() && !is_long() {
            continue;
        }
        let broken = setting.broken(mutant);
        let mut runs = [false, true].into_iter().flat_map(|at_once| {
            let runs = ALL.iter().map(|scripts| (*scripts, None));
            let runs = runs.chain(FAILING.iter().map(|fails| (ALL[0], Some(*fails))));
            runs.map(move |(scripts, fails)| (scripts, How { at_once, fails, ..How::default() }))
        });
        let noticed = runs.find_map(|(scripts, how)| explore(scripts, how, &broken, &Limits::quick()).err());
        println!("{}: {}", broken.name, noticed.as_deref().or(proof.map(|proof| proof.2)).unwrap_or("NOT NOTICED"));
        if noticed.is_some() == proof.is_some() {
            wrong.push(broken.name);
        }
    }
    assert!(wrong.is_empty(), "not noticed, or noticed in spite of a proof: {wrong:?}");
}
