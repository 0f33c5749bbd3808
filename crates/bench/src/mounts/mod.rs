//! The suite `mount`: calls on a mounted store, and on a file system that does nothing but answer.
//!
//! | system | what it is |
//! |---|---|
//! | `bare`, the base | files in a map in memory, by the same crate (`fuser`), the same options, the same validity of names and attributes, the same flags: `bare.rs` |
//! | `store` | `wholly mount` with its defaults, on a directory of its own |
//! | `view` | the same store as `wholly run` shows it to a command: all calls are in one explicit group |
//! | `direct` | the directory that the store is in, without any of that |
//!
//! In `read_4k_beside` and `read_written` the base is `passthrough`, a directory of the host by the same crate, whose
//! pages the kernel keeps as it likes (`crate::volume`), and the other is `volume`: `wholly mount` of a volume.
//!
//! Each is served by a process of its own, as a mount is; this process makes the calls, one after the other. `bare`
//! knows of no extended attributes and says so once, after which the kernel does not ask for any: it is less than any
//! real file system.
//!
//! # What is inside the clock
//!
//! - The calls of a turn, by descriptors that were opened before it; `create_unlink` opens, closes and removes. How
//!   many calls a turn has is found once, such that one of `bare` takes about as long as `--turn-ms` says, and is the
//!   same for all.
//! - `read_4k`: each page was read before. `read_4k_uncached` and `write_4k` go past the kernel's pages (`O_DIRECT`),
//!   so that each is a request.
//! - `read_4k_beside`: before each turn, and outside of the clock, one byte of the file is written. `read_written`: the
//!   whole file is, and synced, so that no system writes to the disk while it is read; a turn is one call, which reads
//!   all of it.
//! - `write_4k` ends with an `fsync`, which is when the content of `store` becomes durable. In `create_unlink` both
//!   calls are durable when they return; in `view` nothing is before its commit, which is not part of it, and in `bare`
//!   nothing ever.
//! - `cpu_ns_per_group` is the processor time of this process and of the server's; that of the latter in the kernel's
//!   ticks of ten milliseconds.

mod bare;
mod serve;

use crate::harness::{Plan, Whose, cpu_ns, ticks_ns};
use crate::place::{Place, command, path_str};
use crate::report::{Report, Skipped};
use crate::tasks::{Figures, Sample, add, rows, sync_file_system};
use crate::volume::{PASSTHROUGH, VOLUME};
use crate::workload::Case;
use crate::{Error, Result};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, open, openat, unlinkat};
pub use serve::{SERVE, serve};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use wholly_sim::Random;

/// The base, and the others.
const BARE: &str = "bare";
const OTHERS: [&str; 3] = ["store", "view", DIRECT];
const DIRECT: &str = "direct";

/// Cases of what the kernel keeps of a volume.
const BESIDE: &str = "read_4k_beside";
const WRITTEN: &str = "read_written";

/// The base of a case, and the others.
fn systems_of(case: &Case) -> (&'static str, &'static [&'static str]) {
    match case.name {
        BESIDE | WRITTEN => (PASSTHROUGH, &[VOLUME]),
        _ => (BARE, &OTHERS),
    }
}

/// What is read and written.
const NAME: &str = "file";
/// Bytes of a call.
const CALL_BYTES: usize = 4096;
/// The same where a whole file is.
const READ_BYTES: usize = 1 << 20;
/// Calls of a turn in a tiny run, and those that the search for their number begins with.
const TINY_CALLS: u64 = 8;
const FIRST_CALLS: u64 = 16;

/// Runs the cases of `plan` with the command `program`, with those systems that `chosen` names or all of them.
///
/// # Errors
/// The first failure of a system. What cannot be measured here is no failure; the report says it under `skipped`.
pub fn run(
    plan: &Plan,
    chosen: &[String],
    program: &Path,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let wanted = |name: &&&'static str| chosen.is_empty() || chosen.iter().any(|c| c == **name);
    for case in &plan.cases {
        let (base, others) = systems_of(case);
        let systems: Vec<&str> = [&base].into_iter().chain(others.iter().filter(wanted)).copied().collect();
        for medium in &plan.media {
            let label = format!("{}/{} on {}", case.suite, case.name, medium.name());
            progress(&label);
            let place = match missing(program).map_or_else(|| medium.make(case, systems.len()), |why| Err(why.into())) {
                Ok(place) => place,
                Err(e) => {
                    let (case, medium) = (case.name.to_owned(), medium.name());
                    report.skipped.push(Skipped { case, medium, system: None, reason: e.to_string() });
                    continue;
                }
            };
            let mut figures = Figures::of(&systems);
            take_turns(plan, case, program, &place, &mut figures).map_err(|e| format!("{label}: {e}"))?;
            report.rows.extend(rows(case, medium, base, &figures));
        }
    }
    Ok(())
}

/// What is not here of what the suite takes.
pub(crate) fn missing(program: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".into());
    }
    if !program.exists() {
        return Some(format!("{} is not there: build it, or name it with --program", program.display()));
    }
    (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse: `modprobe fuse`".into())
}

fn take_turns(plan: &Plan, case: &Case, program: &Path, place: &Place, figures: &mut [Figures]) -> Result<()> {
    let mut entrants = Vec::new();
    for figures in figures.iter() {
        entrants.push(Entrant::new(case, figures.system, program, place)?);
    }
    let calls = match plan.tiny {
        _ if case.name == WRITTEN => 1,
        true => TINY_CALLS,
        false => calls_of_a_turn(plan, &mut entrants[0].calls)?,
    };
    for turn in 0..plan.turns {
        for i in 0..entrants.len() {
            let at = (turn + i) % entrants.len();
            let entrant = &mut entrants[at];
            entrant.calls.prepare(turn)?;
            let (cpu, device) = (entrant.cpu_ns()?, place.device_bytes_written());
            let start = Instant::now();
            entrant.calls.make(calls, plan.seed ^ turn as u64)?;
            let ns = start.elapsed().as_nanos() as f64;
            let cpu_ns = (entrant.cpu_ns()? - cpu) as f64;
            let device_bytes = place.device_bytes_written().zip(device).map(|(now, then)| now - then);
            let sample = Sample { ns, cpu_ns, device_bytes, groups: calls, ..Sample::default() };
            add(figures, figures[at].system, sample);
        }
    }
    Ok(())
}

/// How many calls take as long as a turn is to take.
pub(crate) fn calls_of_a_turn(plan: &Plan, calls: &mut Calls) -> Result<u64> {
    let mut count = FIRST_CALLS;
    loop {
        let start = Instant::now();
        calls.make(count, plan.seed)?;
        let elapsed = start.elapsed();
        if elapsed * 4 >= plan.turn {
            return Ok((count as f64 * plan.turn.as_secs_f64() / elapsed.as_secs_f64()) as u64 + 1);
        }
        count *= 2;
    }
}

/// A system that is ready for its turns. Its files are closed before its mount ends.
struct Entrant {
    calls: Calls,
    server: Option<Server>,
}

impl Entrant {
    fn new(case: &Case, system: &str, program: &Path, place: &Place) -> Result<Entrant> {
        let (dir, point) = (place.child(system)?.dir, place.dir.join(format!("{system}-point")));
        // What is in no directory is written through the mount.
        let by_mount = [BARE, VOLUME].contains(&system);
        if !by_mount {
            write_file(&dir, case.file_bytes)?;
        }
        sync_file_system(&place.dir)?;
        if system == DIRECT {
            return Ok(Entrant { calls: Calls::of(case, &dir)?, server: None });
        }
        std::fs::create_dir(&point)?;
        let server = Server::start(program, system, &dir, &point)?;
        if by_mount {
            write_file(&point, case.file_bytes)?;
        }
        Ok(Entrant { calls: Calls::of(case, &point)?, server: Some(server) })
    }

    fn cpu_ns(&self) -> Result<i128> {
        let server = match &self.server {
            Some(server) => ticks_ns(&server.process.id().to_string(), Whose::Own)?,
            None => 0,
        };
        Ok(cpu_ns() + i128::from(server))
    }
}

pub(crate) fn write_file(dir: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create_new(dir.join(NAME))?;
    let piece = vec![0x5a; 1 << 16];
    let mut left = bytes as usize;
    while left > 0 {
        let length = left.min(piece.len());
        file.write_all(&piece[..length])?;
        left -= length;
    }
    Ok(())
}

/// A process that serves a mount. Both end with this.
pub(crate) struct Server {
    pub process: Child,
    point: PathBuf,
}

impl Server {
    pub fn start(program: &Path, system: &str, dir: &Path, point: &Path) -> Result<Server> {
        let mut process = Command::new(program)
            .args(["bench", SERVE, system])
            .args([dir, point])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let mut said = String::new();
        let out = process.stdout.take().ok_or("stdout was piped")?;
        BufReader::new(out).read_line(&mut said)?;
        if said.is_empty() {
            return Err(format!("{system}: its server ends with {}", process.wait()?).into());
        }
        Ok(Server { process, point: point.to_owned() })
    }

    /// Ends it as a crash of its program does; the mount goes, too.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        command("umount", &["-l", path_str(&self.point)?])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let unmounted = path_str(&self.point).and_then(|point| command("umount", &[point]));
        if unmounted.is_err() {
            // Somebody uses it: it ends with its server.
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// The calls of a case, in one directory.
pub(crate) struct Calls {
    case: &'static str,
    directory: File,
    file: File,
    /// Pieces of the file.
    pieces: u64,
    buffer: Vec<u8>,
    /// Where in the buffer what is aligned for direct calls begins.
    aligned: usize,
}

impl Calls {
    pub fn of(case: &Case, dir: &Path) -> Result<Calls> {
        let how = match case.name {
            "read_4k_uncached" | "write_4k" => OFlags::RDWR | OFlags::DIRECT,
            "create_unlink" | BESIDE | WRITTEN => OFlags::RDWR,
            _ => OFlags::RDONLY,
        };
        let buffer = vec![0xa5; 2 * CALL_BYTES];
        let aligned = buffer.as_ptr().align_offset(CALL_BYTES);
        let file = File::from(open(dir.join(NAME), how | OFlags::CLOEXEC, Mode::empty())?);
        let calls = Calls {
            case: case.name,
            directory: File::open(dir)?,
            file,
            pieces: case.file_bytes / CALL_BYTES as u64,
            buffer,
            aligned,
        };
        if ["read_4k", BESIDE].contains(&case.name) {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut &calls.file, &mut all)?;
        }
        Ok(calls)
    }

    /// What is done before a turn.
    fn prepare(&mut self, turn: usize) -> Result<()> {
        let length = self.pieces * CALL_BYTES as u64;
        match self.case {
            BESIDE => Ok(self.file.write_all_at(&[turn as u8], turn as u64 * 4099 % length)?),
            WRITTEN => {
                let piece = vec![turn as u8; READ_BYTES];
                let mut parts = (0..length).step_by(READ_BYTES);
                parts.try_for_each(|at| self.file.write_all_at(&piece, at))?;
                Ok(self.file.sync_all()?)
            }
            _ => Ok(()),
        }
    }

    /// So many calls.
    pub fn make(&mut self, calls: u64, seed: u64) -> Result<()> {
        let Calls { case, directory, file, pieces, buffer, aligned } = self;
        let (directory, file, piece) = (&*directory, &*file, &mut buffer[*aligned..*aligned + CALL_BYTES]);
        let mut random = Random(seed);
        let mut at = || random.below(*pieces) * CALL_BYTES as u64;
        match *case {
            WRITTEN => {
                let (mut piece, length) = (vec![0; READ_BYTES], *pieces * CALL_BYTES as u64);
                let mut parts = (0..calls).flat_map(|_| (0..length).step_by(READ_BYTES));
                parts.try_for_each(|at| file.read_exact_at(&mut piece, at))?;
            }
            "read_4k" | "read_4k_uncached" | BESIDE => (0..calls).try_for_each(|_| file.read_exact_at(piece, at()))?,
            "write_4k" => {
                (0..calls).try_for_each(|_| file.write_all_at(piece, at()))?;
                file.sync_all()?;
            }
            "fstat" => (0..calls).try_for_each(|_| fstat(file).map(drop))?,
            "create_unlink" => (0..calls).try_for_each(|_| {
                let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(openat(directory, "new", how, Mode::from_raw_mode(0o644))?);
                unlinkat(directory, "new", AtFlags::empty())
            })?,
            other => return Err(Error::from(format!("no calls for the case {other}"))),
        }
        Ok(())
    }
}
