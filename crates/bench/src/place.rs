//! The media of a run: where systems put their files.
//!
//! A case gets a fresh file system on each medium. Loop devices and mounts vanish with the [`Place`], also when a test
//! panics. Against the death of the process there are two measures: the file below a loop device has no name while it
//! is in use, and the device detaches itself with its last mount. A mount itself dies with its process only in a mount
//! namespace of its own, into which [`isolate`] takes the programs that measure.

use crate::workload::Case;
use crate::{Error, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use wholly_host::{coarse_clock, mounts};
use wholly_media::{
    Region,
    pmem::{EmulatedRegion, Emulation, Emulator, PmemRegion},
};

/// Names a file system that can be made on a loop device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopFs {
    /// ext4 as `mkfs.ext4` makes it.
    Ext4,
    /// XFS as `mkfs.xfs` makes it.
    Xfs,
}

/// A medium that a run can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory emulated by a tmpfs of our own with huge pages. Needs root.
    Tmpfs,
    /// A directory whose files are mapped: `/dev/shm`, or a DAX file system.
    PmemDir(PathBuf),
    /// A file system on a loop device over a file in the directory. Needs root.
    Loop(LoopFs, PathBuf),
    /// A directory on a disk.
    DiskDir(PathBuf),
}

impl Medium {
    /// Its name in reports.
    pub fn name(&self) -> String {
        match self {
            Medium::Tmpfs => "pmem".into(),
            Medium::PmemDir(dir) => format!("pmem {}", dir.display()),
            Medium::Loop(LoopFs::Ext4, _) => "ext4-loop".into(),
            Medium::Loop(LoopFs::Xfs, _) => "xfs-loop".into(),
            Medium::DiskDir(dir) => format!("disk {}", dir.display()),
        }
    }

    /// Whether systems may map its files and make them durable by flushes.
    pub fn is_pmem(&self) -> bool {
        matches!(self, Medium::Tmpfs | Medium::PmemDir(_))
    }

    /// Whether it stands in for something else: no figure of it is one of the real medium.
    pub fn emulated(&self) -> bool {
        match self {
            Medium::Tmpfs | Medium::Loop(..) => true,
            // Everything else that can be mapped is page cache.
            Medium::PmemDir(dir) => !is_dax(dir),
            Medium::DiskDir(_) => false,
        }
    }

    /// A line for people.
    pub fn description(&self) -> String {
        match self {
            Medium::Tmpfs => "persistent memory, emulated on a tmpfs with huge pages".into(),
            Medium::PmemDir(dir) if is_dax(dir) => format!("persistent memory at {}", dir.display()),
            Medium::PmemDir(dir) => format!("persistent memory, emulated in {}", dir.display()),
            Medium::Loop(fs, dir) => format!("{} on a loop device over a file in {}", fs.name(), dir.display()),
            Medium::DiskDir(dir) => format!("the file system at {}", dir.display()),
        }
    }

    /// Makes a fresh place for a case in which `systems` systems keep their files at the same time.
    ///
    /// # Errors
    /// In words what is missing: privileges, a program, space.
    pub fn make(&self, case: &Case, systems: usize) -> Result<Place> {
        // Each system's files, and as much again of log as a small case needs.
        let bytes = (case.data_bytes() * 5 / 4 + (192 << 20)) * systems as u64 + (1344 << 20);
        let (dir, mount) = match self {
            Medium::Tmpfs => {
                need_root()?;
                need_space(bytes - (1344 << 20), memory_available()?, "memory")?;
                // Not `always`: that would take and clear 2 MiB for each small file that a peer creates.
                let options = format!("huge=within_size,mode=0700,size={bytes}");
                let mounted = Mounted::new(&["-t", "tmpfs", "-o", &options, "wholly-bench"])?;
                (mounted.dir.clone(), Cleanup::Mount(mounted))
            }
            Medium::Loop(fs, scratch) => {
                need_root()?;
                need_space(bytes - (1344 << 20), space_available(scratch)?, "space for a loop device")?;
                let mounted = fs.mount(scratch, bytes, "")?;
                (mounted.dir.clone(), Cleanup::Mount(mounted))
            }
            Medium::PmemDir(parent) | Medium::DiskDir(parent) => {
                need_space(bytes - (1344 << 20), space_available(parent)?, "space")?;
                let dir = parent.join(unique_name());
                std::fs::create_dir(&dir).map_err(|e| format!("mkdir {}: {e}", dir.display()))?;
                (dir.clone(), Cleanup::Directory(dir))
            }
        };
        Ok(Place { medium: self.clone(), dir, emulator: None, clock: coarse_clock, _cleanup: Arc::new(mount) })
    }
}

/// Where a system puts its files. What was made for it vanishes with the last clone.
#[derive(Clone, Debug)]
pub struct Place {
    /// The medium that `dir` is on.
    pub medium: Medium,
    /// An empty directory.
    pub dir: PathBuf,
    /// What slows persistent memory down to the speed of real modules, shared by all regions of a place. A system that
    /// cannot be slowed by it must not run beside those that are.
    pub emulator: Option<Arc<Emulator>>,
    /// What stores take for the time of changes.
    pub clock: fn() -> i64,
    _cleanup: Arc<Cleanup>,
}

impl Place {
    /// An ext4 of so many bytes on a loop device over a file in `scratch`, with the journal mode `data`, or without a
    /// journal where it is `none`.
    ///
    /// # Errors
    /// In words what is missing.
    pub fn ext4(scratch: &Path, bytes: u64, data: &str) -> Result<Place> {
        need_root()?;
        let mounted = match data {
            "none" => LoopFs::Ext4.make_and_mount(scratch, bytes, &["-O", "^has_journal"], "")?,
            data => LoopFs::Ext4.mount(scratch, bytes, &format!(",data={data}"))?,
        };
        let medium = Medium::Loop(LoopFs::Ext4, scratch.to_owned());
        let dir = mounted.dir.clone();
        Ok(Place { medium, dir, emulator: None, clock: coarse_clock, _cleanup: Arc::new(Cleanup::Mount(mounted)) })
    }

    /// An empty directory `name` in this place.
    pub fn child(&self, name: &str) -> Result<Place> {
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir)?;
        Ok(Place { dir, ..self.clone() })
    }

    /// The same place with its persistent memory slowed down.
    pub fn emulating(self, emulation: Emulation) -> Place {
        let emulator = (self.medium.is_pmem() && emulation != Emulation::None).then(|| Emulator::new(emulation));
        Place { emulator, ..self }
    }

    /// The same place with a clock that stands still, and takes as many instructions.
    pub fn with_still_clock(self) -> Place {
        Place { clock: still_clock, ..self }
    }

    /// `region`, slowed down if this place is.
    pub fn slow_down(&self, region: PmemRegion) -> Arc<dyn Region> {
        match &self.emulator {
            Some(emulator) => Arc::new(EmulatedRegion::new(region, emulator.clone())),
            None => Arc::new(region),
        }
    }

    /// Bytes that the block device below has been told to write so far. `None` on persistent memory, whose stores no
    /// device counts.
    pub fn device_bytes_written(&self) -> Option<u64> {
        if self.medium.is_pmem() {
            return None;
        }
        let device = rustix::fs::stat(&self.dir).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        // The seventh number: sectors of 512 bytes written (Documentation/block/stat.rst).
        stat.split_ascii_whitespace().nth(6)?.parse().ok().map(|sectors: u64| sectors * 512)
    }
}

impl LoopFs {
    fn name(self) -> &'static str {
        match self {
            LoopFs::Ext4 => "ext4",
            LoopFs::Xfs => "xfs",
        }
    }

    /// Makes the file system on `bytes` bytes of a sparse file in `scratch` and mounts it, with further options
    /// if there are any.
    fn mount(self, scratch: &Path, bytes: u64, options: &str) -> Result<Mounted> {
        self.make_and_mount(scratch, bytes, &[], options)
    }

    /// The same with further options for the making of an ext4.
    fn make_and_mount(self, scratch: &Path, bytes: u64, of_mkfs: &[&str], options: &str) -> Result<Mounted> {
        let image = scratch.join(unique_name());
        let file = std::fs::File::create_new(&image).map_err(|e| format!("create {}: {e}", image.display()))?;
        let unlink = Unlink(image.clone());
        file.set_len(bytes)?;
        let image = path_str(&image)?;
        match self {
            // Blocks as on a large device. Everything is initialised now, so that nothing does it in the background of
            // a measurement.
            LoopFs::Ext4 => {
                const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";
                let all = [&["-q", "-F", "-b", "4096", "-E", LAZY], of_mkfs, &[image]].concat();
                command("mkfs.ext4", &all)?;
            }
            LoopFs::Xfs => command("mkfs.xfs", &["-q", "-f", image])?,
        }
        let options = format!("loop{options}");
        let mounted = Mounted::new(&["-t", self.name(), "-o", &options, image])?;
        // From here on the mount holds the only reference to the image.
        drop(unlink);
        Ok(mounted)
    }
}

/// Reads the clock, and tells a time of long ago.
fn still_clock() -> i64 {
    coarse_clock();
    1_000_000_000 << 30
}

/// Removes a file name on drop.
struct Unlink(PathBuf);

impl Drop for Unlink {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[derive(Debug)]
enum Cleanup {
    /// Held for its drop.
    Mount(#[allow(dead_code, reason = "held for its drop")] Mounted),
    Directory(PathBuf),
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Cleanup::Directory(dir) = self {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// A mounted file system, unmounted on drop.
#[derive(Debug)]
struct Mounted {
    dir: PathBuf,
}

impl Mounted {
    /// Calls `mount` with `arguments` and a fresh mount point.
    fn new(arguments: &[&str]) -> Result<Mounted> {
        let dir = std::env::temp_dir().join(unique_name());
        std::fs::create_dir(&dir)?;
        let mut all = arguments.to_vec();
        all.push(path_str(&dir)?);
        if let Err(e) = command("mount", &all) {
            let _ = std::fs::remove_dir(&dir);
            return Err(e);
        }
        Ok(Mounted { dir })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Ok(dir) = path_str(&self.dir) else { return };
        // A system that failed may still hold files open: then the mount goes with the last of them.
        if command("umount", &[dir]).is_err() {
            let _ = command("umount", &["--lazy", dir]);
        }
        let _ = std::fs::remove_dir(&self.dir);
    }
}

/// Runs the calling program again in a mount namespace of its own with `variables` set, so that its mounts die with it
/// however it dies. Returns in that second run, and at once where there is no root to do so.
///
/// # Errors
/// If `unshare` cannot be run.
pub fn isolate(variables: &[(&str, &str)]) -> Result<()> {
    const ISOLATED: &str = "WHOLLY_BENCH_ISOLATED";
    if std::env::var_os(ISOLATED).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    let error = command.args(std::env::args_os().skip(1)).env(ISOLATED, "1").envs(variables.iter().copied()).exec();
    Err(format!("exec unshare: {error}").into())
}

/// Runs a program. What it says on stderr is the error.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|e| format!("{program}: {e} (scripts/setup installs what is missing)"))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), message.trim()).into())
}

fn need_root() -> Result<()> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err("mounting needs root".into()) }
}

fn need_space(needed: u64, available: u64, what: &str) -> Result<()> {
    if needed < available / 10 * 9 {
        return Ok(());
    }
    Err(format!("needs {} MiB of {what}, there are {}; fewer --files need less", needed >> 20, available >> 20).into())
}

fn memory_available() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).ok_or("no MemAvailable in /proc/meminfo")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

fn space_available(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir).map_err(|e| format!("statvfs {}: {e}", dir.display()))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Whether the file system of `dir` is mounted so that mappings reach persistent memory itself.
fn is_dax(dir: &Path) -> bool {
    let (Ok(stat), Ok(mounts)) = (rustix::fs::stat(dir), mounts::all()) else {
        return false;
    };
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let mount = mounts.iter().find(|mount| mount.device == device);
    mount.is_some_and(|mount| mount.has("dax") || mount.has("dax=always"))
}

pub(crate) fn path_str(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::from("a path is not UTF-8"))
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("wholly-bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Size;

    const SMALL: Case = Case {
        suite: "s",
        name: "c",
        files: 1,
        file_bytes: 1 << 20,
        updates: 1,
        size: Size::Aligned(64),
        on_disk: true,
    };

    fn is_mounted(dir: &Path) -> bool {
        mounts::all().unwrap().iter().any(|mount| mount.at == dir)
    }

    /// Makes the place, or says why the test is skipped; a missing capability fails where all are promised.
    fn make(medium: &Medium) -> Option<Place> {
        match medium.make(&SMALL, 1) {
            Ok(place) => Some(place),
            Err(e) if std::env::var_os("CI").is_some_and(|v| v == "true") => panic!("{}: {e}", medium.name()),
            Err(e) => {
                eprintln!("skipped {}: {e}", medium.name());
                None
            }
        }
    }

    fn mounts() -> [Medium; 3] {
        let scratch = std::env::temp_dir();
        [Medium::Tmpfs, Medium::Loop(LoopFs::Ext4, scratch.clone()), Medium::Loop(LoopFs::Xfs, scratch)]
    }

    #[test]
    fn a_place_works_and_vanishes() {
        for medium in mounts() {
            let Some(place) = make(&medium) else { continue };
            let dir = place.dir.clone();
            assert!(is_mounted(&dir), "{}", medium.name());
            let child = place.child("x").unwrap();
            std::fs::write(child.dir.join("file"), [1; 8192]).unwrap();
            std::fs::File::open(child.dir.join("file")).unwrap().sync_all().unwrap();
            assert_eq!(place.device_bytes_written().is_some_and(|bytes| bytes >= 8192), !medium.is_pmem());
            drop(place);
            assert!(is_mounted(&dir), "a clone still holds it");
            drop(child);
            assert!(!is_mounted(&dir) && !dir.exists(), "{}", medium.name());
        }
    }

    #[test]
    fn a_place_vanishes_after_a_panic_with_files_open() {
        for medium in mounts() {
            let Some(place) = make(&medium) else { continue };
            let dir = place.dir.clone();
            let file = std::fs::File::create(dir.join("file")).unwrap();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _place = place;
                panic!("planned");
            }));
            assert!(result.is_err());
            assert!(!is_mounted(&dir) && !dir.exists(), "{}", medium.name());
            drop(file);
        }
    }

    #[test]
    fn too_little_space_is_said_in_words() {
        let huge = Case { files: 1 << 20, file_bytes: 1 << 30, ..SMALL };
        let error = Medium::DiskDir(std::env::temp_dir()).make(&huge, 1).unwrap_err().to_string();
        assert!(error.contains("MiB of space"), "{error}");
    }
}
