//! A volume, Wholly's own file system: tar unpacks a tree into a mounted one, and the server of the mount is killed, or
//! the power fails. `fsck.wholly -n` must find nothing each time. Each call of tar is a group: after a crash it is
//! there wholly or not at all, and so are all blocks, names and counts that belong to it.
//!
//! Then a file on a model of an NVMe controller is written over, and the model is killed with its server: what its
//! queues and its write cache had is gone, as in a power cut. After `fatomic` the file is wholly old or wholly new,
//! after `fsync` new.

use crate::kills::text;
use crate::scene::{Stop, Tree};
use indicatif::ProgressBar;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wholly_bench::{Error, Result};
use wholly_fuse::{Mount, MountOptions};
use wholly_sim::{Choice, Explorer, Pick, Random, SimConfig, Trace, World};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

/// Kills at least, and at most, whatever the time.
const KILLS: (u32, u32) = (3, 40);
/// Kills of one volume: each time a tree more is in it.
const KILLS_OF_ONE: u32 = 5;
/// Power cuts after `fatomic`, and as many after `fsync`.
const CUTS: u64 = 6;
/// Bytes of the file that is written over: one transaction.
const FILE: usize = 256 << 10;
/// The name by which fsck(8) calls the command.
const FSCK: &str = "fsck.wholly";

/// What happened.
pub struct Told {
    kills: u32,
    failures: u64,
    /// Stores that the record of the power failures has.
    events: usize,
    /// Power cuts of a controller: after `fatomic` with the file old, and with it new; after `fsync`.
    cuts: [u64; 3],
}

/// Where the act happens: in memory, which stands for persistent memory.
pub struct Stage<'a> {
    wholly: &'a Path,
    dir: PathBuf,
    stop: &'a Stop,
}

impl<'a> Stage<'a> {
    /// In the directory `dir`.
    ///
    /// # Errors
    /// Why volumes cannot be mounted there.
    pub fn new(wholly: Option<&'a Path>, dir: PathBuf, stop: &'a Stop) -> Result<Stage<'a>> {
        let wholly = wholly.ok_or("name the command `wholly` with --wholly, as `make demo` does")?;
        let stage = Stage { wholly, dir, stop };
        symlink(wholly, stage.dir.join(FSCK))?;
        std::fs::create_dir(stage.point())?;
        stage.make(16 << 20)?;
        let mut server = stage.serve(stage.image().as_os_str())?;
        stage.unmount()?;
        server.wait()?;
        Ok(stage)
    }

    /// The act.
    pub fn play(&self, tree: &Tree, seed: u64, duration: Duration, bar: &ProgressBar) -> Result<Told> {
        let begun = Instant::now();
        let from = self.dir.join("from");
        std::fs::create_dir(&from)?;
        tree.copy(&from)?;
        let mut tar = Command::new("tar");
        tar.arg("cf").arg(self.archive()).args(["--sort=name", "-C"]).arg(&from).arg(".");
        succeeded("tar", &tar.output()?)?;
        let bytes = (tree.bytes() + (tree.files.0.len() as u64 * 8192)) * 3 / 2 + (4 << 20);
        let mut random = Random(seed);
        let mut kills = 0;
        while kills < KILLS.0 || (kills < KILLS.1 && begun.elapsed() < duration / 2) {
            if kills % KILLS_OF_ONE == 0 {
                self.make(bytes * u64::from(KILLS_OF_ONE))?;
            }
            self.kill_inside(tree, kills, &mut random)?;
            kills += 1;
            succeeded(&format!("{FSCK} -n after kill {kills}"), &self.fsck(self.image().as_os_str())?)?;
            bar.set_position(begun.elapsed().min(duration).as_millis() as u64);
        }
        let cuts = self.cut_power()?;
        let trace = self.record(bytes)?;
        let failures = self.fail_power(&trace, seed, || {
            bar.set_position(begun.elapsed().min(duration).as_millis() as u64);
            begun.elapsed() >= duration
        })?;
        Ok(Told { kills, failures, events: trace.events.len(), cuts })
    }

    /// Unpacks the tree into a directory of its own, and kills the server when some files are there.
    fn kill_inside(&self, tree: &Tree, number: u32, random: &mut Random) -> Result<()> {
        self.stop.check()?;
        let mut server = self.serve(self.image().as_os_str())?;
        let inside = 1 + random.below(tree.files.0.len() as u64 * 2 / 3);
        let killed = self.unpack(&format!("{number}"), |lines| {
            lines.take(inside as usize).try_for_each(|line| line.map(drop))?;
            Ok(server.kill()?)
        });
        server.wait()?;
        self.unmount()?;
        killed.map(drop)
    }

    /// Writes over a file on a model of an NVMe controller, and cuts its power.
    fn cut_power(&self) -> Result<[u64; 3]> {
        let device = self.dir.join("device");
        let place = format!("nvme-model:{}", device.display());
        std::fs::create_dir(&device)?;
        for (name, bytes) in [("image", 16 << 20), ("pmr", 256 << 10)] {
            std::fs::File::create(device.join(name))?.set_len(bytes)?;
        }
        let mut mkfs = self.wholly();
        succeeded("wholly mkfs", &mkfs.args(["mkfs", &place]).output()?)?;
        let (mut cuts, mut number) = ([0; 3], 0);
        let whole = |number: u8| vec![number; FILE];
        for cut in 0..=2 * CUTS {
            self.stop.check()?;
            let mut server = self.serve(place.as_ref())?;
            let path = self.point().join("file");
            let file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            // The first time it is made.
            let is_durable = cut == 0 || cut % 2 == 1;
            file.write_all_at(&whole(number + 1), 0)?;
            if is_durable {
                file.sync_all()?
            } else {
                wholly::fatomic(&file).map_err(text)?
            }
            server.kill()?;
            server.wait()?;
            drop(file);
            self.unmount()?;
            let mut server = self.serve(place.as_ref())?;
            let found = std::fs::read(&path)?;
            let is_new = found == whole(number + 1);
            if !is_new && (is_durable || found != whole(number)) {
                return Err(format!("power cut {cut}: the file is neither old nor new").into());
            }
            number += u8::from(is_new);
            cuts[if is_durable { 2 } else { usize::from(is_new) }] += 1;
            self.unmount()?;
            server.wait()?;
        }
        succeeded(&format!("{FSCK} -n after the last power cut"), &self.fsck(place.as_ref())?)?;
        Ok(cuts)
    }

    /// Runs tar, which says each name, and what is to be done while it runs.
    fn unpack(
        &self,
        dir: &str,
        meanwhile: impl FnOnce(&mut dyn Iterator<Item = std::io::Result<String>>) -> Result<()>,
    ) -> Result<Output> {
        let to = self.point().join(dir);
        std::fs::create_dir(&to)?;
        let mut tar = Command::new("stdbuf");
        tar.args(["-oL", "tar", "xvf"]).arg(self.archive()).arg("-C").arg(&to);
        // In a process group of its own: Ctrl-C reaches this process alone.
        tar.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = tar.spawn()?;
        let out = BufReader::new(child.stdout.take().expect("it was piped"));
        let done = meanwhile(&mut out.lines());
        if done.is_err() {
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        done.map(|()| output)
    }

    /// tar unpacks onto simulated persistent memory, which records each store and fence.
    fn record(&self, bytes: u64) -> Result<Trace> {
        let world = World::new(SimConfig { log_len: bytes / 4096 * 4096, ..SimConfig::pmem() });
        let options = VolumeOptions { engine: Some(EngineKind::FineGrainedWal), ..VolumeOptions::default() };
        Volume::format_region(&*world.log(), &options).map_err(text)?;
        let world = World::from_image(&world.latest(), world.trace().config.clone());
        let volume = Volume::open_region(world.log(), &options).map_err(text)?;
        let mount = Mount::new(Arc::new(VolumeVfs::new(&volume)), &self.point(), &MountOptions::default())?;
        let unmounter = mount.unmounter();
        std::thread::scope(|scope| -> Result<()> {
            let served = scope.spawn(|| mount.serve());
            let unpacked = self.unpack("tree", |lines| {
                for line in lines {
                    line?;
                }
                Ok(())
            });
            unmounter.unmount()?;
            served.join().map_err(|_| "a panic of the mount")??;
            succeeded("tar", &unpacked?)
        })?;
        let trace = world.trace();
        // Not unmounted: that is no part of it.
        std::mem::forget(volume);
        Ok(trace)
    }

    fn fail_power(&self, trace: &Trace, seed: u64, mut is_over: impl FnMut() -> bool) -> Result<u64> {
        let mut random = Random(seed);
        let mut failures = 0;
        while failures == 0 || !is_over() {
            let mut points: Vec<u64> = (0..32).map(|_| random.below(trace.events.len() as u64 + 1)).collect();
            points.sort_unstable();
            let mut explorer = Explorer::new(trace);
            for index in points {
                self.stop.check()?;
                explorer.seek(index);
                let choice = Choice { point: index, pick: Pick::Seed(seed, random.draw() >> 1) };
                let world = World::from_image(&explorer.point().image_of(&choice), trace.config.clone());
                let checked = Volume::check_region(&*world.log()).map_err(text)?;
                if let Some(finding) = checked.findings.first() {
                    return Err(format!("power failure {choice} (seed {seed}): {finding}").into());
                }
                failures += 1;
                if is_over() {
                    return Ok(failures);
                }
            }
        }
        Ok(failures)
    }

    fn image(&self) -> PathBuf {
        self.dir.join("volume.img")
    }

    fn archive(&self) -> PathBuf {
        self.dir.join("tree.tar")
    }

    fn point(&self) -> PathBuf {
        self.dir.join("point")
    }

    fn wholly(&self) -> Command {
        let mut command = Command::new(self.wholly);
        command.env("WHOLLY_REGISTRY", "");
        command
    }

    fn make(&self, bytes: u64) -> Result<()> {
        let mut mkfs = self.wholly();
        mkfs.arg("mkfs").arg(self.image()).args(["--force", "--engine", "fine_grained_wal"]);
        succeeded("wholly mkfs", &mkfs.arg("--size").arg(bytes.to_string()).output()?)
    }

    fn fsck(&self, what: &OsStr) -> Result<Output> {
        Ok(Command::new(self.dir.join(FSCK)).arg("-n").arg(what).output()?)
    }

    /// Mounts a volume, by a server that is a child.
    fn serve(&self, what: &OsStr) -> Result<Child> {
        let mut mount = self.wholly();
        mount.args(["mount", "--foreground"]).arg(what).arg(self.point());
        mount.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut server = mount.spawn()?;
        let below = std::fs::metadata(&self.dir)?.dev();
        while std::fs::metadata(self.point()).map_or(true, |found| found.dev() == below) {
            if server.try_wait()?.is_some() {
                return Err(String::from_utf8_lossy(&server.wait_with_output()?.stderr).trim().into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn unmount(&self) -> Result<()> {
        succeeded("umount", &Command::new("umount").arg("-l").arg(self.point()).output()?)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // After an error something may be mounted still.
        let _ = Command::new("umount").args(["-q", "-l"]).arg(self.point()).stderr(Stdio::null()).status();
    }
}

impl Told {
    /// Shows it.
    pub fn report(&self, tree: &Tree) {
        let line = |what: &str, count: String, last: &str| println!("  {what:<38}{count:>16}  {last}");
        println!(
            "A volume, Wholly's own file system, on emulated persistent memory: tar unpacks {} files into a mount of it.\n\
             `fsck.wholly -n` after each crash: nothing is wrong.",
            tree.files.0.len()
        );
        line("server killed (SIGKILL)", self.kills.to_string(), "while tar runs");
        let of = format!("simulated: tar on a mount, {} stores and fences recorded", self.events);
        line("power failures", self.failures.to_string(), &of);
        let [old, new, durable] = self.cuts;
        line(
            "controller killed after fatomic",
            (old + new).to_string(),
            &format!("a file is old {old} times, new {new} times"),
        );
        line("controller killed after fsync", durable.to_string(), "it is new each time; nvme-model, emulated");
        println!();
    }
}

fn succeeded(what: &str, output: &Output) -> Result<()> {
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = [&output.stdout[..], &output.stderr].concat();
            Err(Error::from(format!("{what}: {}: {}", output.status, String::from_utf8_lossy(&said))))
        }
    }
}
