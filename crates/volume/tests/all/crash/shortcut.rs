//! The engine `shortcut_jfs`: the scripts and groups of the engine `undo`, which moves blocks by the same rule,
//! mistakes that are planted, and what a write costs.

use wholly_crash::coverage;
use wholly_crash::volume::tick;
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::EventKind;
use wholly_sim::MutationKind::{DelayWrite, DropOrder};
use wholly_volume::EngineKind::ShortcutJfs;

use super::costs::Recorded;
use super::planted::{expect_seen, once};
use super::programs::{Done, world};
use super::scripts::Script;
use super::survival::{explored, limits, limits_of_groups, models, some};
use super::undo::{calls_on, groups_on, own_groups_on};

/// All that it stores and orders, but for what only explicit groups pass.
fn sites() -> Vec<Site> {
    let mut sites = wholly_volume::sites();
    sites.retain(|site| site.0.starts_with("shortcut.") || site.0.starts_with("wal.") && !OF_GROUPS.contains(site));
    sites
}

const OF_GROUPS: [Site; 2] = [Site("wal.call.hand_over"), Site("wal.link")];

#[test]
fn each_call_survives_wholly_or_not_at_all_with_shortcuts() {
    let outcome = explored(&models(), &some(calls_on(ShortcutJfs)), &limits());
    assert_eq!(coverage::uncovered(&sites(), &outcome), [], "these were no crash points");
}

#[test]
fn groups_survive_wholly_or_not_at_all_with_shortcuts() {
    let outcome = explored(&models(), &some(groups_on(ShortcutJfs)), &limits_of_groups());
    assert_eq!(coverage::uncovered(&OF_GROUPS, &outcome), [], "these were no crash points");
}

/// Metadata in place before its old bytes are durable, after the commit, or acknowledged before the commit is; moved
/// content that the call does not order.
#[test]
fn mistakes_with_shortcuts_are_seen() {
    let of_calls = [("wal.log.fence", DropOrder), ("wal.commit.fence", DropOrder), ("volume.map.pointer", DelayWrite)];
    expect_seen(&calls_on(ShortcutJfs), &world("pmem"), &of_calls, &once());
    let of_groups = [("shortcut.moved", DelayWrite), ("wal.call.hand_over", DropOrder)];
    expect_seen(&own_groups_on(ShortcutJfs), &world("pmem"), &of_groups, &once());
}

/// By lines: below half of a block, content twice and its head, half of a block and more once; two undo entries and a
/// line in place for times, as many for a pointer but one; a commit entry; and below half, a settled word.
#[test]
fn a_write_with_shortcuts_costs_what_is_said() {
    static SCRIPT: Script = Script {
        name: "costs",
        before: |t| t.file("a", 0o644, &[1; 36_864]).map(drop),
        steps: &[
            |t| overwrite(t, &[2; 1024]),
            |t| overwrite(t, &[3; 2048]),
            |t| overwrite(t, &[4; 4096]),
            |t| overwrite(t, &[5; 8192]),
            |t| overwrite(t, &[6; 32_768]),
        ],
    };
    fn overwrite(t: &Tree<'_>, data: &[u8]) -> wholly_vfs::Result<()> {
        tick();
        t.open("a", wholly_vfs::OFlags::RDWR)?.write_all(0, data)
    }
    let (mut writes, mut lines) = (Vec::new(), 0);
    let recorded = Recorded::of(ShortcutJfs, Done::Still(&SCRIPT));
    for event in recorded.steps() {
        match &event.kind {
            EventKind::Store { offset, data, .. } => lines += (offset + data.len() as u64).div_ceil(64) - offset / 64,
            EventKind::Fence { .. } if event.site == Some(Site("wal.commit.fence")) => {
                writes.push(std::mem::take(&mut lines));
            }
            _ => {}
        }
    }
    // What the first write stores after its commit is counted with the next.
    let after = 16 + 1;
    assert_eq!(writes, [17 + 4, after + 64 + 6, 64 + 6, 128 + 6, 512 + 7]);
}
