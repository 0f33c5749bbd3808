//! One process has a volume open. Another one is told which; when that one is killed, the next has it at once.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use wholly_error::Error;
use wholly_posix::Tree;
use wholly_vfs::Ino;
use wholly_volume::{EngineKind, Medium, Repair, Volume, VolumeOptions, VolumeVfs};

const NAMED: &str = "WHOLLY_TEST_TAKEOVER";

fn options(engine: EngineKind) -> VolumeOptions {
    VolumeOptions { engine: Some(engine), medium: Medium::Pmem, cache_bytes: 1 << 20, ..VolumeOptions::default() }
}

/// A file with a volume, removed on drop.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, engine: EngineKind) -> Image {
        let path = std::env::temp_dir().join(format!("wholly-{name}-{}-{}", engine.name(), std::process::id()));
        Volume::format(&path, 16 << 20, &options(engine)).expect("make a volume");
        Image(path)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Not a test of its own: the process that is killed. It says the number of each file that is there.
#[test]
fn the_process_that_is_killed() {
    let Some(path) = std::env::var_os(NAMED) else { return };
    let volume = Volume::open(Path::new(&path), &options(EngineKind::None)).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    for number in 0u64.. {
        let name = format!("{}", number % 500);
        let _ = tree.unlink(&name);
        tree.file(&name, 0o644, &number.to_le_bytes()).expect("make a file");
        println!("file {number}");
    }
}

fn start(image: &Image) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["volume::takeover::the_process_that_is_killed", "--exact", "--nocapture"]).env(NAMED, &image.0);
    command.stdout(Stdio::piped()).spawn().expect("another process")
}

#[test]
fn the_death_of_its_process_frees_a_volume() {
    for engine in [EngineKind::None, EngineKind::FineGrainedWal, EngineKind::Undo, EngineKind::Shadow] {
        let image = Image::new("takeover", engine);
        for round in 1..=5 {
            let mut child = start(&image);
            let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
            let mut numbers = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("file ")?.parse().ok());
            let said: u64 = numbers.nth(100 * round).expect("so many files");
            for busy in [
                Volume::open(&image.0, &options(engine)).map(drop),
                Volume::check(&image.0).map(drop),
                Volume::repair(&image.0, &options(engine), (Repair::All, true), &mut |_| unreachable!("it is in use"))
                    .map(drop),
            ] {
                let Err(Error::Busy(_, why)) = busy else { panic!("{busy:?}") };
                assert!(why.starts_with(&format!("process {} (", child.id())), "{why}");
            }
            child.kill().expect("kill it");
            child.wait().expect("it is dead");
            if engine != EngineKind::None {
                let checked = Volume::check(&image.0).expect("nobody has it");
                assert_eq!(checked.findings, [], "round {round}");
            } else {
                // A call that was in flight may be half-done.
                let repaired = Volume::repair(&image.0, &options(engine), (Repair::All, true), &mut |_| {
                    std::ops::ControlFlow::Continue(())
                });
                assert_eq!(repaired.expect("nobody has it").left, [], "round {round}");
            }
            let volume = Volume::open(&image.0, &options(engine)).expect("nobody has it");
            let vfs = VolumeVfs::new(&volume);
            let tree = Tree::new(&vfs, Ino::ROOT);
            // But for the one that was made anew when the process died.
            let is_whole = |name: &u64| {
                let content = tree.content(format!("{name}")).ok().and_then(|content| content.try_into().ok());
                content.is_some_and(|number| u64::from_le_bytes(number) % 500 == *name)
            };
            let torn: Vec<u64> = (0..said.min(500)).filter(|name| !is_whole(name)).collect();
            assert!(torn.len() <= 1, "round {round}: {torn:?}");
        }
    }
}
