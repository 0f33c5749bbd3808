//! The server of a mount is killed, of a store and of a volume: what survives is what the page on mounts says. A
//! process dies here, and no power fails.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use super::common::{may_mount, unique, wait_until_unused, wholly};
use super::volume::serve_with;
use wholly::MountGroup;

/// A mount whose server runs in the foreground. Taken away and removed on drop.
struct Served {
    dir: PathBuf,
    /// The store or the volume.
    what: PathBuf,
    options: String,
    server: Option<Child>,
}

impl Served {
    fn new(is_volume: bool, options: &str) -> Served {
        let dir = PathBuf::from("/dev/shm").join(unique("served"));
        let what = dir.join("what");
        std::fs::create_dir_all(dir.join("point")).expect("mkdir");
        let word = what.to_str().expect("UTF-8");
        if is_volume {
            wholly(&["mkfs", word, "--size", "32M"]).exits(0);
        } else {
            std::fs::create_dir(&what).expect("mkdir");
            wholly(&["init", word]).exits(0);
        }
        let mut served = Served { dir, what, options: options.into(), server: None };
        served.serve();
        served
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join("point").join(name)
    }

    fn serve(&mut self) {
        let word = self.what.to_str().expect("UTF-8");
        self.server = Some(serve_with(word, &self.dir.join("point"), &self.options));
    }

    fn kill(&mut self) {
        let mut server = self.server.take().expect("it serves");
        server.kill().expect("kill it");
        server.wait().expect("it is dead");
    }

    /// Mounts it again, once nobody uses the dead mount any more.
    fn again(&mut self) {
        assert!(Command::new("umount").arg("-l").arg(self.at("")).status().expect("run umount").success());
        wait_until_unused(&self.what);
        self.serve();
    }

    fn begin(&self) -> MountGroup {
        MountGroup::begin(File::open(self.at("")).expect("open it")).expect("nobody has one")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).expect("read it")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(self.at("")).status();
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn on_both(options: &str, act: impl Fn(Served)) {
    if may_mount() {
        [false, true].into_iter().for_each(|is_volume| act(Served::new(is_volume, options)));
    }
}

/// A group of hundreds of files is there wholly if its commit has returned, and not at all if the server dies before.
#[test]
fn a_group_is_there_wholly_or_not_at_all() {
    const FILES: usize = 100;
    on_both("rw", |mut served| {
        std::fs::create_dir(served.at("old")).expect("mkdir");
        for n in 0..FILES {
            std::fs::write(served.at(&format!("old/{n}")), "before").expect("write");
        }
        let change = |served: &Served, dir: &str| {
            let group = served.begin();
            std::fs::create_dir(served.at(dir)).expect("mkdir");
            for n in 0..FILES {
                std::fs::write(served.at(&format!("{dir}/{n}")), dir).expect("write");
                let old = served.at(&format!("old/{n}"));
                if n % 2 == 0 {
                    std::fs::rename(old, served.at(&format!("{dir}/from-{n}"))).expect("rename");
                } else {
                    std::fs::write(old, dir).expect("write");
                }
            }
            File::open(served.at(&format!("{dir}/7"))).and_then(|file| file.sync_all()).expect("it is in the group");
            group
        };
        let names = |served: &Served, dir: &str| std::fs::read_dir(served.at(dir)).map_or(0, Iterator::count);
        let group = change(&served, "never");
        served.kill();
        assert!(group.commit().is_err());
        served.again();
        assert_eq!((names(&served, "never"), names(&served, "old")), (0, FILES));
        assert!((0..FILES).all(|n| served.read(&format!("old/{n}")) == b"before"));

        change(&served, "committed").commit().expect("commit");
        served.kill();
        served.again();
        assert_eq!((names(&served, "committed"), names(&served, "old")), (FILES + FILES / 2, FILES / 2));
        for n in 0..FILES {
            assert_eq!(served.read(&format!("committed/{n}")), b"committed");
            let (old, content) = match n % 2 {
                0 => (format!("committed/from-{n}"), &b"before"[..]),
                _ => (format!("old/{n}"), &b"committed"[..]),
            };
            assert_eq!(served.read(&old), content);
        }
    });
}

fn create(served: &Served, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(served.at(name)).expect("make a file")
}

/// Under `per-sync`, the default, content falls back to the last sync, and what a call on a name finds pending lasts
/// with it. A length is content, also where an open cuts it.
#[test]
fn content_is_as_at_its_last_sync() {
    const ALONE: &str = "WHOLLY_TEST_ALONE";
    // In a process of its own: a program that another test starts would close, and so commit, what is open here.
    if std::env::var_os(ALONE).is_none() {
        let mut command = Command::new(std::env::current_exe().expect("its path"));
        command.args(["--exact", "server_killed::content_is_as_at_its_last_sync", "--nocapture"]).env(ALONE, "1");
        assert!(command.status().expect("run it").success());
        return;
    }
    for options in ["rw", "policy=per-sync"] {
        content_is_kept(options);
    }
}

fn content_is_kept(options: &str) {
    on_both(options, |mut served| {
        let [synced, never, renamed] = ["synced", "never", "renamed"].map(|name| create(&served, name));
        std::fs::write(served.at("cut"), [6; 7000]).expect("write");
        let cut = OpenOptions::new().write(true).truncate(true).open(served.at("cut")).expect("open");
        assert_eq!(cut.metadata().expect("stat").len(), 0);
        cut.write_all_at(b"new", 0).expect("write");
        synced.write_all_at(&[1; 9000], 0).expect("write");
        synced.sync_all().expect("sync");
        synced.write_all_at(&[2; 5000], 100).expect("write");
        synced.set_len(12_000).expect("lengthen");
        never.write_all_at(&[3; 4000], 0).expect("write");
        renamed.write_all_at(&[4; 3000], 0).expect("write");
        std::fs::rename(served.at("renamed"), served.at("to")).expect("rename");
        renamed.write_all_at(&[5; 3000], 0).expect("write");
        served.kill();
        drop((synced, never, renamed, cut));
        served.again();
        assert_eq!(served.read("cut"), [6; 7000]);
        assert_eq!(served.read("synced"), [1; 9000]);
        assert_eq!(served.read("never"), b"", "its name lasts");
        assert_eq!(served.read("to"), [4; 3000]);
        assert!(!served.at("renamed").exists());
    });
}

/// Under `shared`, the death of the process that has written something takes nothing away: any sync makes it last, and
/// nothing else does, but for the timer.
#[test]
fn what_is_shared_outlives_who_wrote_it() {
    on_both("policy=shared=100000", |mut served| {
        let other = create(&served, "other");
        let write = |name: &str| {
            let script = format!("printf content > {name}; kill -9 $$");
            let status = Command::new("sh").args(["-c", &script]).current_dir(served.at("")).status();
            assert!(!status.expect("run sh").success(), "it is killed");
        };
        write("first");
        other.sync_all().expect("sync");
        write("second");
        // The kernel does not pass it on.
        rustix::fs::syncfs(&other).expect("syncfs");
        served.kill();
        drop(other);
        served.again();
        assert_eq!(served.read("first"), b"content");
        assert_eq!(served.read("second"), b"", "its name lasts");
    });
}
