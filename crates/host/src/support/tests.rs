//! The verdicts, over facts that no machine has all of; and what is tried, where there is something to try it on.

use super::*;
use crate::HostOptions;
use wholly_scratch::TestDir;

fn facts(file_system: FileSystem, kind: &str, options: &str) -> Facts {
    let mounted = mounts::parse(format!("1 0 0:1 / / rw - {kind} /dev/a {options}").as_bytes()).pop();
    Facts {
        file_system,
        mount: mounted.filter(|_| !kind.is_empty()),
        journal: (file_system == FileSystem::Ext4).then_some(true),
        maps_page_cache: false,
        capabilities: Some(Capabilities::ALL),
    }
}

#[test]
fn each_file_system_has_its_verdict() {
    use FileSystem as Fs;
    use Level::{Degraded, Refused, Supported};
    let table = [
        (Fs::Ext4, "ext4", "rw", Supported, ""),
        (Fs::Ext4, "ext3", "rw", Supported, ""),
        (Fs::Ext4, "ext2", "rw", Degraded, "no journal"),
        (Fs::Ext4, "ext4", "rw,nobarrier", Degraded, "without barriers"),
        (Fs::Xfs, "xfs", "rw,attr2", Supported, ""),
        (Fs::Btrfs, "btrfs", "rw,ssd", Supported, ""),
        (Fs::Btrfs, "btrfs", "rw,nobarrier", Degraded, "without barriers"),
        (Fs::Tmpfs, "tmpfs", "rw,size=1g", Degraded, "nothing survives a reboot"),
        (Fs::Ramfs, "ramfs", "rw", Degraded, "nothing survives a reboot"),
        (Fs::Hugetlbfs, "hugetlbfs", "rw", Refused, "cannot be written"),
        (Fs::Overlay, "overlay", "rw,lowerdir=/l", Degraded, "lower layer"),
        (Fs::Overlay, "overlay", "rw,lowerdir=/l,volatile", Degraded, "volatile"),
        (Fs::Overlay, "overlay", "rw,lowerdir=/l,fsync=volatile", Degraded, "volatile"),
        (Fs::Nfs, "nfs4", "rw,vers=4.2", Refused, "over a network"),
        (Fs::Nfs, "", "", Refused, "over a network"),
        (Fs::Smb, "cifs", "rw", Refused, "over a network"),
        (Fs::Fuse, "fuse.sshfs", "rw", Refused, "over a network"),
        (Fs::Fat, "vfat", "rw", Refused, "numbers that outlive the mount"),
        (Fs::ExFat, "exfat", "rw", Refused, "numbers that outlive the mount"),
        (Fs::Ntfs, "ntfs3", "rw", Degraded, "no journal"),
        (Fs::Fuse, "fuse.bindfs", "rw", Degraded, "a program serves it"),
        (Fs::Fuse, "virtiofs", "rw", Degraded, "up to the host"),
        (Fs::Plan9, "9p", "rw", Degraded, "up to the server"),
        (Fs::F2fs, "f2fs", "rw", Degraded, "never tested"),
        (Fs::Zfs, "zfs", "rw", Degraded, "never tested"),
        (Fs::Other(0x482b), "hfsplus", "rw", Degraded, "no journal"),
        (Fs::Other(7), "", "", Degraded, "not known"),
    ];
    for (file_system, kind, options, level, reason) in table {
        let support = facts(file_system, kind, options).judge();
        assert_eq!(support.level, level, "{file_system} {kind} {options}: {support}");
        assert_eq!(support.reasons.is_empty(), level == Supported, "{file_system} {kind} {options}: {support}");
        assert!(support.to_string().contains(reason), "{file_system} {kind} {options}: {support}");
        let name = if kind.is_empty() { file_system.to_string() } else { kind.to_owned() };
        assert_eq!(support.file_system, name);
    }
}

#[test]
fn what_is_missing_is_said_by_what_it_costs() {
    type Change = fn(&mut Capabilities);
    let table: [(Change, Level, &str); 9] = [
        (|c| c.locks = false, Level::Refused, "cannot be locked"),
        (|c| c.syncs = false, Level::Refused, "does not sync"),
        (|c| c.new_files = false, Level::Refused, "half made"),
        (|c| c.hard_links = false, Level::Refused, "hard links"),
        (|c| c.no_replace = false, Level::Degraded, "refuse to replace"),
        (|c| c.birth_time = false, Level::Degraded, "time of birth"),
        (|c| c.fine_times = false, Level::Degraded, "whole seconds"),
        (|c| c.case_matters = false, Level::Degraded, "differ in case"),
        (|c| c.permissions = false, Level::Degraded, "permissions"),
    ];
    for (change, level, reason) in table {
        let mut capabilities = Capabilities::ALL;
        change(&mut capabilities);
        let found = Facts { capabilities: Some(capabilities), ..facts(FileSystem::Xfs, "xfs", "rw") };
        let support = found.judge();
        assert_eq!((support.level, support.reasons.len()), (level, 1), "{support}");
        assert!(support.reasons[0].contains(reason), "{support}");
        // A refusal hides what only degrades.
        let on_tmpfs = Facts { file_system: FileSystem::Tmpfs, ..found }.judge();
        let reasons = if level == Level::Refused { 1 } else { 2 };
        assert_eq!((on_tmpfs.level, on_tmpfs.reasons.len()), (level.max(Level::Degraded), reasons), "{on_tmpfs}");
    }
}

#[test]
fn a_disk_taken_for_memory_is_degraded_and_so_is_ext4_without_a_journal() {
    let ext4 = facts(FileSystem::Ext4, "ext4", "rw");
    for facts in [Facts { maps_page_cache: true, ..ext4.clone() }, Facts { journal: Some(false), ..ext4.clone() }] {
        assert_eq!(facts.judge().level, Level::Degraded);
    }
    // Where the kernel does not tell, there is one: who made it without had to ask for that.
    assert_eq!(Facts { journal: None, ..ext4 }.judge().level, Level::Supported);
}

#[test]
fn what_is_tried_leaves_nothing() {
    for dir in TestDir::on_tmpfs().into_iter().chain([TestDir::on_disk()]) {
        let host = Arc::new(HostDir::open(dir.path(), HostOptions::default()).expect("open"));
        let support = Support::probe(&host).expect("probe");
        assert_ne!(support.level, Level::Refused, "{support}");
        assert_eq!(support.reasons, Support::look(&host).reasons, "these file systems have all that is tried");
        assert_eq!(std::fs::read_dir(dir.path()).expect("list").count(), 0);
    }
}
