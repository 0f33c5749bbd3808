//! `wholly nvme`: looking at controllers, and transactions of blocks by scripts.

use super::common::{Place, Run, wholly, wholly_told};
use std::path::Path;
use std::process::Command;
use wholly_blocks::{Lba, Txid};
use wholly_nvme::model::Model;
use wholly_nvme::{Controller, Life, Options};

/// A device in files, as the help says.
fn device(place: &Place) -> (String, String) {
    let directory = place.dir.join("dev");
    std::fs::create_dir(&directory).unwrap();
    for (name, len) in [("image", 8 << 20), ("pmr", 256 << 10)] {
        std::fs::File::create(directory.join(name)).unwrap().set_len(len).unwrap();
    }
    let directory = directory.to_str().unwrap();
    (format!("nvme-model:{directory}"), format!("qemu:{directory}"))
}

fn script(device: &str, text: &str, more: &[&str]) -> Run {
    wholly_told(text, &[&["nvme", "tx", device], more].concat())
}

fn content(place: &Place) -> [Vec<u8>; 2] {
    ["image", "pmr"].map(|name| std::fs::read(place.dir.join("dev").join(name)).unwrap())
}

pub fn has_qemu() -> bool {
    let has = Command::new(wholly_nvme::qtest::PROGRAM).arg("--version").output().is_ok();
    assert!(has || std::env::var_os("CI").is_none(), "QEMU is missing: scripts/setup installs it");
    has
}

#[test]
fn transactions_by_a_script() {
    let place = Place::on_disk();
    let (model, qemu) = device(&place);
    let text =
        "# both, or none\nwrite 3 both  words\nwrite 9 or none\ncommit\nqueue 1\nfill 100 3 7\ncommit\nwait\nread 3\n";
    let ran = script(&model, text, &[]);
    ran.exits(0);
    for part in
        ["transaction 1 on queue 0: 2 blocks, atomic", "queue 1: 3 blocks", "block 3: both  words", "no hardware"]
    {
        assert!(ran.out.contains(part), "{}", ran.out);
    }
    let [image, _] = content(&place);
    assert!(image[9 * 4096..].starts_with(b"or none\0") && image[102 * 4096..103 * 4096] == [7; 4096]);
    if !has_qemu() {
        return;
    }
    // The files are the same device.
    let ran = script(&qemu, "read 9\nwrite 9 by QEMU\ncommit\n", &[]);
    ran.exits(0);
    assert!(ran.out.contains("block 9: or none") && ran.out.contains("QEMU's controller, no hardware"), "{}", ran.out);
    assert!(content(&place)[0][9 * 4096..].starts_with(b"by QEMU\0"));
    let probed = wholly(&["--json", "nvme", "probe", &qemu]);
    probed.exits(0);
    let probed = probed.json();
    assert_eq!((&probed["kind"], &probed["mode"]), (&"qemu".into(), &"region".into()));
}

#[test]
fn looking_changes_nothing() {
    let place = Place::on_disk();
    let (model, _) = device(&place);
    let unknown = wholly(&["nvme", "unfinished", &model]);
    unknown.exits(4);
    assert!(unknown.out.contains("unknown: the region has no head line"), "{}", unknown.out);
    script(&model, "write 1 x\ncommit\n", &[]).exits(0);
    let before = content(&place);
    let probed = wholly(&["nvme", "probe", &model]);
    probed.exits(0);
    for part in ["a model in this process", "2048 of 4 KiB", "queues in the persistent memory region"] {
        assert!(probed.out.contains(part), "{}", probed.out);
    }
    wholly(&["nvme", "unfinished", &model]).exits(0);
    assert!(content(&place) == before, "looking has changed a byte");
}

/// The process dies with transactions in flight.
#[test]
fn what_is_unfinished_is_listed_and_kept() {
    let place = Place::on_disk();
    let (model, _) = device(&place);
    {
        let device = Model::in_directory(Path::new(model.split_once(':').unwrap().1)).unwrap();
        let controller = Controller::open(device.clone(), Options { queues: 2, ..Options::default() }).unwrap();
        controller.start(Life { volume: *b"raw transactions", incarnation: 5 }).unwrap();
        device.hold(true);
        let mut lease = controller.lease().unwrap();
        let page = controller.page().unwrap();
        lease.write(Lba(4), &[page.clone(), page.clone()]).unwrap();
        lease.commit(Txid(7), Lba(20), &[page]).unwrap();
        // In use: looking works, opening does not.
        wholly(&["nvme", "unfinished", &model]).exits(4);
        let busy = wholly(&["nvme", "probe", &model]);
        busy.exits(8);
        assert!(busy.err.contains("another process has the device"), "{}", busy.err);
    }
    let listed = wholly(&["nvme", "unfinished", &model]);
    listed.exits(4);
    assert!(listed.out.contains("queue 0: transaction 7: blocks 4-5 20"), "{}", listed.out);
    let json: serde_json::Value = serde_json::from_str(&wholly(&["--json", "nvme", "unfinished", &model]).out).unwrap();
    assert_eq!(json["queues"][0]["transactions"][0]["number"], 7);
    let before = content(&place);
    let refused = script(&model, "write 1 x\ncommit\n", &[]);
    refused.exits(8);
    assert!(refused.err.contains("1 unfinished transaction") && refused.err.contains("--forget"), "{}", refused.err);
    assert!(content(&place) == before, "what is unfinished is lost");
    script(&model, "write 1 x\ncommit\n", &["--forget"]).exits(0);
    wholly(&["nvme", "unfinished", &model]).exits(0);
}

#[test]
fn a_bad_script_changes_nothing() {
    let place = Place::on_disk();
    let (model, _) = device(&place);
    let before = content(&place);
    for (text, words) in [
        ("wrte 3 x\n", "line 1: \"wrte 3 x\" is no command"),
        ("write 3 a\ncommit\nwrite 3 b\ncommit\n", "line 3: block 3 is written again"),
        ("write x a\ncommit\n", "\"x\" is no number"),
        ("write 1 a\n", "without a `commit`"),
        ("write 2048 a\ncommit\n", "the device has 2048"),
        ("fill 1 0 7\ncommit\n", "from 1 to"),
        ("fill 1 1 256\ncommit\n", "256 is no byte"),
    ] {
        let ran = script(&model, text, &[]);
        ran.exits(16);
        assert!(ran.err.contains(words), "{text:?}: {}", ran.err);
    }
    assert!(content(&place) == before);
    script(&model, "commit\n", &[]).exits(8);
    let queue = script(&model, "queue 99\n", &[]);
    queue.exits(8);
    assert!(queue.err.contains("queue 99: there are"), "{}", queue.err);
    wholly(&["nvme", "probe", "nvme:0000:01:00.0"]).exits(16);
    let none = wholly(&["nvme", "probe", "nvme-model:/nowhere"]);
    none.exits(8);
    assert!(none.err.contains("truncate --size"), "{}", none.err);
}

/// The owner of the directory swaps a file for a link.
#[test]
fn links_are_not_followed() {
    let place = Place::on_disk();
    let (model, qemu) = device(&place);
    let pmr = place.dir.join("dev/pmr");
    std::fs::rename(&pmr, place.dir.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", &pmr).unwrap();
    for device in [&model, &qemu] {
        for verb in ["probe", "unfinished"] {
            let ran = wholly(&["nvme", verb, device]);
            ran.exits(8);
            assert!(ran.err.contains("symbolic link") || ran.err.contains("symlink"), "{}", ran.err);
        }
    }
}
