//! Groups by `ioctl` on the mount of a volume: as on that of a store (`groups.rs`), with nothing of the kernel's left
//! when they end.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::{Scratch, or_skip};
use wholly::MountGroup;
use wholly_error::Error;
use wholly_fuse::{Mount, MountOptions, Unmounter};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

/// A volume in a file in memory, and its mount.
struct Mounted {
    server: Option<JoinHandle<std::io::Result<()>>>,
    unmounter: Unmounter,
    point: Scratch,
    home: Scratch,
}

impl Mounted {
    fn image(&self) -> PathBuf {
        self.home.path().join("volume")
    }

    fn new() -> Result<Mounted, String> {
        let (home, point) = (Scratch::new(), Scratch::new());
        let image = home.path().join("volume");
        let options = VolumeOptions { engine: Some(EngineKind::FineGrainedWal), ..VolumeOptions::default() };
        Volume::format(&image, 16 << 20, &options).expect("make a volume");
        let volume = Volume::open(&image, &options).expect("open it");
        // The kernel believes what it knows for as long as a test takes.
        let valid = Duration::from_secs(3600);
        let options = MountOptions { threads: 3, valid, owns_content: true, ..MountOptions::default() };
        let mount = Mount::new(Arc::new(VolumeVfs::new(&volume)), point.path(), &options);
        let mount = mount.map_err(|error| format!("mount: {error}"))?;
        let unmounter = mount.unmounter();
        let server = std::thread::spawn(move || mount.serve());
        Ok(Mounted { server: Some(server), unmounter, point, home })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    fn begin(&self) -> MountGroup {
        MountGroup::begin(File::open(self.point.path()).expect("open")).expect("nobody else has a group there")
    }

    /// What another process says.
    fn sh(&self, script: &str) -> (bool, String) {
        let output = Command::new("sh").args(["-c", script]).current_dir(self.point.path()).output().expect("run sh");
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    /// All that another process sees: names, sizes, modes, link counts of files, content.
    fn seen(&self) -> String {
        let script =
            "find . | sort; find . -type f | sort | xargs stat -c '%n %s %a %h'; find . -type f | sort | xargs cat";
        let (is_done, said) = self.sh(script);
        assert!(is_done, "{said}");
        said
    }

    /// Unmounts it. The volume is sound, and has what the mount had.
    fn end(mut self) {
        let mut tries = 0..12_000;
        while let Err(error) = self.unmounter.unmount() {
            assert!(error.raw_os_error() == Some(16) && tries.next().is_some(), "nobody uses it: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server.take().expect("it serves").join().expect("a thread").expect("the kernel was answered to the end");
        let checked = Volume::check(&self.image()).expect("check it");
        assert_eq!((&checked.findings[..], checked.is_clean, checked.orphans), (&[][..], true, 0));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _ = rustix::mount::unmount(self.point.path(), rustix::mount::UnmountFlags::DETACH);
            if !std::thread::panicking() {
                let _ = server.join();
            }
        }
    }
}

fn write(path: impl AsRef<Path>, text: &str) {
    std::fs::write(path, text).expect("write");
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("read")
}

/// Changes of all kinds, of what `prepare` has made.
fn change(mounted: &Mounted) {
    let at = |name: &str| mounted.at(name);
    write(at("changed"), "something else, and longer than it was");
    std::fs::rename(at("renamed"), at("replaced")).expect("rename");
    std::fs::remove_file(at("removed")).expect("remove");
    OpenOptions::new().write(true).open(at("cut")).and_then(|file| file.set_len(2)).expect("cut");
    std::fs::hard_link(at("linked"), at("link")).expect("link");
    std::os::unix::fs::symlink("changed", at("symlink")).expect("symlink");
    std::fs::set_permissions(at("mode"), PermissionsExt::from_mode(0o600)).expect("chmod");
    std::fs::remove_dir(at("empty")).expect("rmdir");
    std::fs::rename(at("dir"), at("moved")).expect("rename");
    std::fs::create_dir_all(at("made/below")).expect("mkdir");
    write(at("made/below/file"), "made");
    write(at("moved/inner/deep"), "changed below");
    // That is in no group, and makes nothing of it durable.
    File::open(at("changed")).and_then(|file| file.sync_all()).expect("sync");
}

fn prepare(mounted: &Mounted) {
    std::fs::create_dir_all(mounted.at("dir/inner")).expect("mkdir");
    for name in ["changed", "renamed", "replaced", "removed", "cut", "linked", "mode", "dir/inner/deep"] {
        write(mounted.at(name), &format!("{name} before"));
    }
    std::fs::create_dir(mounted.at("empty")).expect("mkdir");
}

#[test]
fn a_group_is_there_wholly_or_not_at_all() {
    let Some(mounted) = or_skip(Mounted::new()) else { return };
    prepare(&mounted);
    let before = mounted.seen();
    let open = File::open(mounted.at("changed")).expect("open");
    let losing = File::open(mounted.at("removed")).expect("open");
    for _ in 0..3 {
        let group = mounted.begin();
        change(&mounted);
        let now = mounted.seen();
        assert!(now.contains("./moved/inner/deep") && now.contains("./made/below/file 4"), "{now}");
        group.abort().expect("abort");
        // This process first, which has looked at nothing before.
        assert_eq!(read(mounted.at("changed")), "changed before");
        let links = mounted.at("linked").metadata().expect("stat").nlink();
        assert_eq!((links, losing.metadata().expect("stat").nlink()), (1, 1));
        assert_eq!(mounted.seen(), before);
        let mut bytes = [0; 100];
        assert_eq!(open.read_at(&mut bytes, 0).expect("read"), "changed before".len());
    }
    drop((open, losing));
    let group = mounted.begin();
    change(&mounted);
    let now = mounted.seen();
    group.commit().expect("commit");
    assert_eq!(mounted.seen(), now);
    assert_eq!(read(mounted.at("moved/inner/deep")), "changed below");
    let mut log = OpenOptions::new().append(true).open(mounted.at("made/below/file")).expect("open");
    log.write_all(b" since").expect("append");
    drop(log);
    assert_eq!(read(mounted.at("made/below/file")), "made since");
    mounted.end();
}

#[test]
fn others_leave_alone_what_a_group_has_and_change_the_rest() {
    let Some(mounted) = or_skip(Mounted::new()) else { return };
    let at = |name: &str| mounted.at(name);
    for name in ["changed", "renamed", "free"] {
        write(at(name), "before");
    }
    let group = mounted.begin();
    write(at("changed"), "after");
    std::fs::rename(at("renamed"), at("new")).expect("rename");
    std::fs::create_dir(at("dir")).expect("mkdir");
    write(at("dir/file"), "made");
    assert!(matches!(MountGroup::begin(File::open(at("free")).expect("open")), Err(Error::Busy(..))), "one at a time");
    for script in [
        "echo other > changed",
        "echo other > dir/file",
        "echo other > renamed",
        "echo other > dir/other",
        "mkdir dir/other",
        "rm new",
        "rm dir/file",
        "mv free new",
        "ln free renamed",
        "chmod 600 dir/file",
        "chmod 700 dir",
        "rm changed",
    ] {
        let (is_done, said) = mounted.sh(script);
        assert!(!is_done && said.contains("busy"), "{script}: {said}");
    }
    let (is_done, said) = mounted.sh("echo other > free; cat free; echo more >> free; cat free; mkdir own; ls -d own");
    assert_eq!((is_done, &said[..]), (true, "other\nother\nmore\nown\n"));
    // A file that was added is the group's in every process.
    let given = OpenOptions::new().append(true).open(at("free")).expect("open");
    group.add(&given).expect("add");
    assert!(Command::new("echo").arg("child's").stdout(given).status().expect("run echo").success());
    assert_eq!(read(at("free")), "other\nmore\nchild's\n");
    group.abort().expect("abort");
    let (is_done, said) = mounted.sh("cat free changed renamed; ls");
    assert_eq!((is_done, &said[..]), (true, "other\nmore\nbeforebeforechanged\nfree\nown\nrenamed\n"));
    assert!(mounted.sh("echo other > changed; echo other > new").0);
    mounted.end();
}

/// A mount that was detached ends with the last file that is open there, which is the group's.
#[test]
fn a_group_ends_with_its_mount() {
    let Some(mounted) = or_skip(Mounted::new()) else { return };
    write(mounted.at("file"), "before");
    let group = mounted.begin();
    write(mounted.at("file"), "after");
    write(mounted.at("made"), "after");
    rustix::mount::unmount(mounted.point.path(), rustix::mount::UnmountFlags::DETACH).expect("detach");
    drop(group);
    let image = mounted.image();
    let mut mounted = mounted;
    mounted.server.take().expect("it serves").join().expect("a thread").expect("the kernel was answered to the end");
    let volume = Volume::open(&image, &VolumeOptions::default()).expect("open it");
    let mut bytes = [0; 6];
    volume.open_file("file").expect("open").read_at(0, &mut bytes).expect("read");
    assert_eq!(&bytes, b"before");
    assert!(volume.metadata("made").is_err());
}
