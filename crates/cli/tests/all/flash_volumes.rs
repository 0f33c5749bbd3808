//! Volumes on flash disks: each verb that takes a volume takes `flash:FILE`. What only looks changes no byte, what is
//! damaged names its flash page, and a server that is killed under load leaves a sound volume.

use super::common::{is_long, may_mount, unique, wholly, wholly_in};
use super::volume::{Rig, described, kill_servers, populate, serve_with};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const SLOT: usize = 8192;

/// Makes a flash disk in a file of a rig, and a volume on it: the file, and what names the volume.
fn made(rig: &Rig, size: &str) -> (String, String) {
    let file = rig.path("f.img");
    wholly(&["flash", "init", &file, "--profile", "openssd", "--bytes", size]).exits(0);
    let volume = format!("flash:{file}");
    wholly(&["mkfs", &volume, "--label", "trial"]).exits(0);
    (file, volume)
}

/// The slots of a flash file whose pages satisfy something, by their numbers.
fn slots(bytes: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    let pages = bytes.chunks(SLOT).enumerate().skip(1);
    pages.filter(|(_, slot)| is_it(slot)).map(|(number, _)| number).collect()
}

/// The sequence of a slot's program, by its spare bytes.
fn sequence(slot: &[u8]) -> u64 {
    u64::from_le_bytes(slot[64..72].try_into().unwrap())
}

/// The kind of a slot that has a table of the map.
const TABLE: u8 = 3;

#[test]
fn what_is_copied_in_comes_out() {
    let rig = Rig::new("flash");
    let (from, to) = (rig.path("from"), rig.path("to"));
    let (file, volume) = made(&rig, "32M");
    let stat = wholly(&["--json", "stat", &volume]).json();
    assert_eq!((&stat["label"], &stat["engine"], &stat["blocks"]), (&"trial".into(), &"op_log".into(), &8192.into()));
    let medium = stat["medium"].as_str().unwrap();
    assert!(medium.contains("a model") && medium.contains("openssd"), "{medium}");
    populate(Path::new(&from));
    wholly(&["import", &volume, &from]).exits(0);

    let looks: [&[&str]; 7] = [
        &["fsck", "-n", &volume],
        &["stat", &volume],
        &["dump", &volume],
        &["dump", &volume, "a/7"],
        &["flash", "stat", &file],
        &["flash", "check", &file],
        &["--json", "fsck", &volume],
    ];
    let before = std::fs::read(&file).unwrap();
    for look in looks {
        wholly(look).exits(0);
        assert!(std::fs::read(&file).unwrap() == before, "{look:?} has changed a byte");
    }
    wholly(&["export", &volume, &to]).exits(0);
    assert_eq!(described(Path::new(&to)), described(Path::new(&from)));

    wholly(&["tune", &volume, "--label", "other"]).exits(0);
    wholly(&["tune", &volume, "--size", "24M"]).exits(0);
    let stat = wholly(&["--json", "stat", &volume]).json();
    assert_eq!((&stat["label"], &stat["blocks"]), (&"other".into(), &6144.into()));
    wholly(&["tune", &volume, "--size", "32M"]).exits(0);
    wholly(&["tune", &volume, "--size", "33M"]).exits(8);
    assert_eq!(std::fs::metadata(&file).unwrap().len(), before.len() as u64, "the chip has one size");
    wholly(&["fsck", "-p", "-f", &volume]).exits(0);
    wholly(&["fsck", "-y", &volume]).exits(0);
    std::fs::remove_dir_all(&to).unwrap();
    wholly(&["export", &volume, &to]).exits(0);
    assert_eq!(described(Path::new(&to)), described(Path::new(&from)));
    // A copy of the file is a flash disk, and has the volume.
    let copy = rig.path("copy.img");
    std::fs::copy(&file, &copy).unwrap();
    wholly(&["fsck", "-n", &format!("flash:{copy}")]).exits(0);
    let programs = wholly(&["--json", "flash", "stat", &file]).json();
    assert!(programs["programs"]["data"].as_u64().unwrap() > 700, "in transactions of the device: {programs}");
}

/// One process at a time has it, whichever way it is named. `stat` works meanwhile.
#[test]
fn a_mounted_one_is_in_use() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("flash-mounted");
    let (file, volume) = made(&rig, "32M");
    let mut server = serve_with(&volume, &rig.point(), "rw");
    let point = rig.path("point");
    std::fs::write(rig.point().join("a"), [7; 9000]).unwrap();
    let refused: [&[&str]; 9] = [
        &["fsck", "-n", &volume],
        &["import", &volume, &rig.path("point")],
        &["mkfs", "--force", &volume],
        &["mkfs", "--force", &file, "--size", "16M"],
        &["tune", &volume, "--label", "x"],
        &["dump", &volume],
        &["flash", "stat", &file],
        &["flash", "check", &file],
        &["mount", &volume, &rig.path("point")],
    ];
    for verb in refused {
        let run = wholly(verb);
        run.exits(8);
        assert!(run.err.contains("has it open") || run.err.contains("has the volume open"), "{verb:?}: {}", run.err);
    }
    for name in [&volume, &point] {
        let stat = wholly(&["--json", "stat", name]).json();
        assert_eq!((&stat["volume"], &stat["mount"]["mount"]), (&volume.as_str().into(), &point.as_str().into()));
        assert!(stat["in_use_by"].as_str().unwrap().contains(&server.id().to_string()), "{stat}");
    }
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for i in 0..300 {
                std::fs::write(rig.point().join(format!("{}", i % 20)), vec![i as u8; 20_000]).unwrap();
            }
        });
        while !writing.is_finished() {
            let stat = wholly(&["stat", &volume]);
            let is_told = stat.code == Some(8) && stat.err.contains("look again");
            assert!(stat.code == Some(0) || is_told, "{}", stat.err);
        }
    });
    let before = described(&rig.point());
    rig.umount();
    assert!(server.wait().unwrap().success());
    wholly(&["mount", &volume, &point]).exits(0);
    assert_eq!(described(&rig.point()), before);
    rig.umount();
    wholly(&["fsck", "-n", &volume]).exits(0);
    wholly(&["flash", "check", &file]).exits(0);
}

#[test]
fn a_wrong_name_says_what_to_name() {
    let rig = Rig::new("flash-wrong");
    let (file, volume) = made(&rig, "8M");
    let (plain, to) = (rig.path("v.img"), rig.path("to"));
    wholly(&["mkfs", &plain, "--size", "8M"]).exits(0);
    std::fs::create_dir(rig.path("from")).unwrap();
    let from = rig.path("from");
    // The file without `flash:`, and a volume with it.
    let of_plain = format!("flash:{plain}");
    for (name, says) in [(&file, format!("flash:{file}")), (&of_plain, "name it without flash:".into())] {
        let before = (std::fs::read(&file).unwrap(), std::fs::read(&plain).unwrap());
        let verbs: [&[&str]; 8] = [
            &["fsck", "-n", name],
            &["fsck", "-y", name],
            &["stat", name],
            &["dump", name],
            &["import", name, &from],
            &["export", name, &to],
            &["tune", name, "--label", "x"],
            &["mount", name, &from],
        ];
        for verb in verbs {
            let run = wholly(verb);
            run.exits(8);
            assert!(run.err.contains(&says), "{verb:?}: {}", run.err);
        }
        assert!((std::fs::read(&file).unwrap(), std::fs::read(&plain).unwrap()) == before);
    }
    let is_refused = |arguments: &[&str], says: &str| {
        let before = std::fs::read(&file).unwrap();
        let run = wholly(arguments);
        run.exits(8);
        assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
        assert!(std::fs::read(&file).unwrap() == before, "{arguments:?}");
    };
    is_refused(&["mkfs", &file], "a flash disk");
    for medium in ["disk", "pmem"] {
        is_refused(&["fsck", "-y", "--medium", medium, &file], &format!("name it flash:{file}"));
    }
    is_refused(&["mkfs", &volume], "it holds a volume of Wholly");
    is_refused(&["mkfs", "--force", "--medium", "pmem", &volume], "a flash disk is a disk");
    is_refused(&["flash", "stat", &plain], "this is no flash file");
    // The verbs of flash disks take the file itself, and what they make is its owner's.
    let named = wholly(&["flash", "stat", &volume]);
    named.exits(16);
    assert!(named.err.contains(&format!("name the file itself, {file}")), "{}", named.err);
    wholly(&["flash", "salvage", &file, &rig.path("copy")]).exits(0);
    for made in [&file, &rig.path("copy")] {
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(made).unwrap()) & 0o777, 0o600, "{made}");
    }
    is_refused(&["flash", "check", &rig.path("from")], "no file and no block device");
    let missing = format!("flash:{}", rig.path("none"));
    for verb in
        [&["mkfs", &missing][..], &["mkfs", &missing, "--size", "16M"], &["fsck", &missing], &["stat", &missing]]
    {
        is_refused(verb, "wholly flash init");
    }
    assert!(!Path::new(&rig.path("none")).exists());
    is_refused(&["mount", &missing, &from], "it must exist");
    is_refused(&["fsck", "flash:"], "wholly flash init");
    is_refused(&["stat", &format!("flash:{from}")], "no file and no block device");
    wholly(&["mkfs", "--force", "--engine", "hybrid_log", &volume]).exits(8);
    wholly(&["fsck", "-n", &volume]).exits(0);
    // A file that is called so is named with its directory.
    let dir = Path::new(&from);
    wholly_in(dir, &["mkfs", "./flash:v", "--size", "8M"]).exits(0);
    assert!(dir.join("flash:v").exists());
    wholly_in(dir, &["fsck", "-n", "./flash:v"]).exits(0);
    wholly_in(dir, &["fsck", "-n", "flash:v"]).exits(8);
    wholly(&["mkfs", "--force", &file, "--size", "8M"]).exits(0);
    wholly(&["fsck", "-n", &file]).exits(0);
}

/// A page that has rotted is an error that names it, and is no other's. A repair writes it anew.
#[test]
fn a_rotten_page_names_itself() {
    let rig = Rig::new("flash-rot");
    let (file, volume) = made(&rig, "8M");
    let (from, to) = (rig.path("from"), rig.path("to"));
    std::fs::create_dir(&from).unwrap();
    for name in ["one", "other"] {
        std::fs::write(Path::new(&from).join(name), format!("content of {name} ").repeat(2000)).unwrap();
    }
    wholly(&["import", &volume, &from]).exits(0);
    let sound = std::fs::read(&file).unwrap();
    let of_one = slots(&sound, |slot| slot[4096..].windows(15).any(|part| part == b"content of one "));
    let at = *of_one.last().unwrap();
    let mut bytes = sound.clone();
    of_one.iter().for_each(|slot| bytes[slot * SLOT + 4096 + 100] ^= 16);
    std::fs::write(&file, &bytes).unwrap();
    let named = format!("flash page {} ", at - 1);
    let checked = wholly(&["flash", "check", &file]);
    checked.exits(4);
    assert!(checked.out.contains(&named) && checked.out.contains("write the block anew"), "{}", checked.out);
    // Content has no structure: only a reader sees that it is gone.
    let exported = wholly(&["export", &volume, &to]);
    exported.exits(8);
    assert!(exported.err.contains("one"), "{}", exported.err);
    if may_mount() {
        let mut server = serve_with(&volume, &rig.point(), "rw");
        assert!(std::fs::read(rig.point().join("one")).is_err());
        let other = std::fs::read_to_string(rig.point().join("other")).unwrap();
        assert!(other == "content of other ".repeat(2000), "other pages are read");
        std::fs::write(rig.point().join("one"), "new").unwrap();
        rig.umount();
        assert!(server.wait().unwrap().success());
        wholly(&["export", &volume, &to]).exits(0);
    }

    // Of a structure: the check says so, and the repair stores what is left.
    std::fs::write(&file, &sound).unwrap();
    let block = wholly(&["--json", "dump", &volume, "other"]).json()["inode"]["block"].as_u64().unwrap();
    let is_it = |slot: &[u8]| slot[80..84] == u32::to_le_bytes(block as u32) && matches!(slot[56], 5..=7);
    let mut bytes = sound.clone();
    slots(&sound, is_it).iter().for_each(|slot| bytes[slot * SLOT + 5000] ^= 1);
    std::fs::write(&file, &bytes).unwrap();
    let checked = wholly(&["fsck", "-n", &volume]);
    checked.exits(4);
    assert!(checked.out.contains(&format!("block {block}")) && checked.out.contains("flash page"), "{}", checked.out);
    assert!(std::fs::read(&file).unwrap() == bytes, "a check has changed a byte");
    wholly(&["fsck", "-y", &volume]).exits(1);
    wholly(&["fsck", "-n", &volume]).exits(0);
    let checked = wholly(&["flash", "check", &file]);
    checked.exits(0);
}

/// A copy of a sound flash disk is a volume for a plain disk, once it has a log there.
#[test]
fn a_copy_on_a_disk_gets_a_log() {
    let rig = Rig::new("flash-copy");
    let (file, volume) = made(&rig, "8M");
    let (from, to, copy) = (rig.path("from"), rig.path("to"), rig.path("copy.img"));
    populate(Path::new(&from));
    wholly(&["import", &volume, &from]).exits(0);
    wholly(&["flash", "salvage", &file, &copy]).exits(0);
    wholly(&["fsck", "-n", &copy]).exits(0);
    let refused = wholly(&["tune", &copy, "--label", "x"]);
    assert!(refused.err.contains("fsck -p") && refused.code != Some(0), "{}", refused.err);
    let given = wholly(&["fsck", "-p", &copy]);
    given.exits(1);
    assert!(given.out.contains("it has no log: it was made on a flash disk: it has got one"), "{}", given.out);
    wholly(&["fsck", "-p", "-f", &copy]).exits(0);
    wholly(&["tune", &copy, "--label", "x"]).exits(0);
    wholly(&["export", &copy, &to]).exits(0);
    assert_eq!(described(Path::new(&to)), described(Path::new(&from)));
    wholly(&["fsck", "-n", &copy]).exits(0);
}

/// Without its map a flash disk is only read. What is wrong with the file as a whole is said by each verb.
#[test]
fn a_damaged_map_is_told_and_nothing_is_written() {
    let rig = Rig::new("flash-map");
    let (file, volume) = made(&rig, "8M");
    let (from, to) = (rig.path("from"), rig.path("to"));
    populate(Path::new(&from));
    wholly(&["import", &volume, &from]).exits(0);
    // What it has written since then is in the map.
    wholly(&["tune", &volume, "--label", "x"]).exits(0);
    let sound = std::fs::read(&file).unwrap();
    for index in [0, 1] {
        let is_it = |slot: &[u8]| slot[56] == TABLE && slot[80..84] == u32::to_le_bytes(index);
        let newest = *slots(&sound, is_it).iter().max_by_key(|at| sequence(&sound[**at * SLOT..])).unwrap();
        let mut rotten = sound.clone();
        rotten[newest * SLOT + 4096 + 5] ^= 1;
        std::fs::write(&file, &rotten).unwrap();
        let named = format!("flash page {} ", newest - 1);
        let checked = wholly(&["flash", "check", &file]);
        checked.exits(4);
        assert!(checked.out.contains(&named) && checked.out.contains("wholly flash salvage"), "{}", checked.out);
        // In each half of the disk is something of a structure.
        let checked = wholly(&["fsck", "-n", &volume]);
        checked.exits(4);
        assert!(checked.out.contains(&named), "{}", checked.out);
        let verbs: [&[&str]; 4] = [
            &["import", &volume, &from],
            &["export", &volume, &to],
            &["tune", &volume, "--label", "y"],
            &["mkfs", "--force", &volume],
        ];
        for verb in verbs {
            let run = wholly(verb);
            run.exits(8);
            assert!(run.err.contains(&named), "{verb:?}: {}", run.err);
        }
        // What can be read is copied, and the copy is repaired.
        let copy = rig.path("copy.img");
        let salvaged = wholly(&["flash", "salvage", &file, &copy]);
        salvaged.exits(4);
        assert!(salvaged.out.contains(&named) && salvaged.out.contains("wholly fsck -y"), "{}", salvaged.out);
        wholly(&["fsck", "-y", &copy]).exits(1);
        wholly(&["fsck", "-n", &copy]).exits(0);
        // On a disk it needs a log, which it has got.
        wholly(&["tune", &copy, "--label", "copied"]).exits(0);
        wholly(&["flash", "salvage", &file, &copy]).exits(8);
        assert!(std::fs::read(&file).unwrap() == rotten, "it is only read");
        std::fs::remove_file(&copy).unwrap();
    }

    let mut version = sound.clone();
    version[8] = 9;
    let cut = &sound[..sound.len() - 3 * SLOT];
    for (bytes, says, code) in
        [(&version[..], "version 9", 8), (cut, "it is cut", 4), (&sound[..100], "no flash file", 8)]
    {
        std::fs::write(&file, bytes).unwrap();
        let verbs: [&[&str]; 6] = [
            &["fsck", "-n", &volume],
            &["fsck", "-y", &volume],
            &["stat", &volume],
            &["dump", &volume],
            &["import", &volume, &from],
            &["mkfs", "--force", &volume],
        ];
        for verb in verbs {
            let run = wholly(verb);
            run.exits(code);
            assert!(run.err.contains(says) && !run.err.contains("fsck -y"), "{verb:?}: {}", run.err);
        }
        assert!(std::fs::read(&file).unwrap() == bytes);
    }
}

/// A copy with holes takes all of its space before anything is written, or says that there is none.
#[test]
fn holes_take_their_space_before_a_byte_changes() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("flash-holes");
    let (file, volume) = made(&rig, "4M");
    let from = rig.path("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(Path::new(&from).join("a"), vec![7; 2 << 20]).unwrap();
    let host = rig.path("host");
    std::fs::create_dir(&host).unwrap();
    let length = std::fs::metadata(&file).unwrap().len();
    let size = format!("size={}", length + (2 << 20));
    assert!(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none", &host]).status().unwrap().success());
    let (copy, other) = (format!("{host}/copy.img"), format!("{host}/other"));
    std::fs::write(&other, vec![1; length as usize / 2]).unwrap();
    assert!(Command::new("cp").args(["--sparse=always", &file, &copy]).status().unwrap().success());
    let before = std::fs::read(&copy).unwrap();
    let of_copy = format!("flash:{copy}");
    for verb in [&["import", &of_copy, &from][..], &["fsck", "-y", &of_copy], &["mkfs", "--force", &of_copy]] {
        let run = wholly(verb);
        run.exits(8);
        assert!(run.err.contains("that are holes") && run.err.contains("make room there"), "{verb:?}: {}", run.err);
        assert!(std::fs::read(&copy).unwrap() == before, "{verb:?} has changed a byte");
    }
    wholly(&["fsck", "-n", &of_copy]).exits(0);
    wholly(&["flash", "check", &copy]).exits(0);
    std::fs::remove_file(&other).unwrap();
    wholly(&["import", &of_copy, &from]).exits(0);
    let taken = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&copy).unwrap()) * 512;
    assert!(taken >= length, "{taken} of {length}");
    wholly(&["fsck", "-n", &of_copy]).exits(0);
    assert!(Command::new("umount").arg(&host).status().unwrap().success());
    // The file as it was made has no holes.
    wholly(&["import", &volume, &from]).exits(0);
}

/// The volume is full before its flash disk is, and what is removed makes room.
#[test]
fn a_full_one_says_so_and_goes_on() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new("flash-full");
    let (file, volume) = made(&rig, "8M");
    wholly(&["mount", &volume, &rig.path("point")]).exits(0);
    for round in 0..4 {
        let path = rig.point().join("large");
        let mut large = OpenOptions::new().create(true).write(true).truncate(true).open(&path).unwrap();
        let full =
            (0..).find_map(|_| large.write_all(&[round; 60_000]).and_then(|()| large.sync_data()).err()).unwrap();
        assert_eq!(full.raw_os_error(), Some(28), "{full}");
        let length = large.metadata().unwrap().len();
        assert!(length > 1 << 20, "{length}");
        drop(large);
        std::fs::remove_file(&path).unwrap();
        // The kernel tells later that nobody uses it any more.
        while rustix::fs::statvfs(rig.point()).unwrap().f_bavail < 100 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::fs::write(rig.point().join("small"), [round; 50_000]).unwrap();
    }
    rig.umount();
    wholly(&["fsck", "-n", &volume]).exits(0);
    wholly(&["flash", "check", &file]).exits(0);
    let stat = wholly(&["--json", "flash", "stat", &file]).json();
    assert!(stat["erases"].as_u64().unwrap() > 10, "{stat}");
}

/// A process dies here, and no power fails: the file keeps all that was written to it, and the flash disk's buffer goes
/// with the process.
#[test]
fn a_killed_server_leaves_a_sound_volume() {
    if !may_mount() {
        return;
    }
    let rig = Rig::new(&unique("flash-killed"));
    let (file, volume) = made(&rig, "32M");
    kill_servers(&rig, &volume, if is_long() { 100 } else { 10 }, |round| 20 + 13 * round);
    let checked = wholly(&["--json", "fsck", "-n", &volume]).json();
    assert_eq!((&checked["clean"], &checked["findings"]), (&true.into(), &serde_json::json!([])));
    wholly(&["flash", "check", &file]).exits(0);
}
