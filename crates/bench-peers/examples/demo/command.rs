//! `wholly run`: a command that knows nothing of Wholly, on a real tree, killed in the middle.
//!
//! The command is an upgrade, as a person would write it: the next version of every file is unpacked over the tree by
//! tar, which says each name, and what is no more is removed. When it has said some of them, it is killed with all that
//! runs it. The tree is then put right by the next `wholly run`, and its hash is that of before. Without Wholly it is
//! neither that nor the hash of after. At last the upgrade runs to its end, and `wholly undo` takes it back.

use crate::scene::{Stop, Tree};
use indicatif::ProgressBar;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use wholly_bench::{Error, Result};
use wholly_sim::Random;

/// Kills at least, and at most, whatever the time.
const KILLS: (u32, u32) = (2, 20);
/// Kills of the command by itself.
const PLAIN_KILLS: u32 = 3;
/// One file in so many is gone in the next version.
const GONE_EVERY: usize = 10;
/// The exit code of `wholly run` where what it has shown was answered with no.
const DISCARDED: i32 = 122;

/// Lines of the review that are shown.
const SHOWN: usize = 4;

/// Unpacks the next version and removes what it does not have, in the current directory.
const UPGRADE: &str = "stdbuf -oL tar xvf \"$NEXT\" && xargs -d '\\n' rm -- < \"$GONE\"";
/// Something small to look at.
const SMALL: &str = "find . -type f | sort | head -n 3 | while read -r file; do echo '# looked at' >> \"$file\"; done; mkdir made && echo > made/new";

/// What happened.
pub struct Told {
    before: u64,
    after: u64,
    kills: u32,
    /// Kills that came when all had been committed.
    late: u32,
    /// Of the kills without Wholly, those that left neither what was there before nor what was to be.
    half_done: u32,
    review: String,
}

/// The command `wholly`, and where it works.
pub struct Stage<'a> {
    wholly: &'a Path,
    dir: PathBuf,
    stop: &'a Stop,
}

impl<'a> Stage<'a> {
    /// In the directory `dir`.
    ///
    /// # Errors
    /// Why `wholly run` cannot run there.
    pub fn new(wholly: Option<&'a Path>, dir: PathBuf, stop: &'a Stop) -> Result<Stage<'a>> {
        let wholly = wholly.ok_or("name the command `wholly` with --wholly, as `make demo` does")?;
        let stage = Stage { wholly, dir, stop };
        let tried = stage.dir("tried")?;
        let output =
            stage.as_group(&tried, &[], "true").output().map_err(|error| format!("{}: {error}", wholly.display()))?;
        match output.status.success() {
            true => Ok(stage),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().into()),
        }
    }

    /// The act.
    pub fn play(&self, tree: &Tree, seed: u64, duration: Duration, bar: &ProgressBar) -> Result<Told> {
        let begun = Instant::now();
        self.make_next(tree)?;
        let mut random = Random(seed);
        let fresh = |name: &str| -> Result<PathBuf> {
            let dir = self.dir(name)?;
            tree.copy(&dir)?;
            Ok(dir)
        };

        let plain = fresh("plain")?;
        let before = hash(&plain)?;
        succeeded("the command by itself", &self.plain(&plain, UPGRADE).output()?)?;
        let after = hash(&plain)?;
        let mut told = Told { before, after, kills: 0, late: 0, half_done: 0, review: String::new() };
        for n in 0..PLAIN_KILLS {
            let dir = fresh(&format!("plain-{n}"))?;
            self.kill_inside(&mut self.plain(&dir, UPGRADE), tree, &mut random)?;
            told.half_done += u32::from(![before, after].contains(&hash(&dir)?));
            std::fs::remove_dir_all(dir)?;
        }

        let mut dir = fresh("tree")?;
        while told.kills < KILLS.0 || (told.kills < KILLS.1 && begun.elapsed() < duration) {
            self.kill_inside(&mut self.as_group(&dir, &[], UPGRADE), tree, &mut random)?;
            told.kills += 1;
            self.recover(&dir)?;
            match hash(&dir)? {
                now if now == before => {}
                now if now == after => {
                    told.late += 1;
                    std::fs::remove_dir_all(&dir)?;
                    dir = fresh(&format!("tree-{}", told.kills))?;
                }
                now => return Err(format!("kill {}: the tree is {now:016x}, half-done", told.kills).into()),
            }
            bar.set_position(begun.elapsed().min(duration).as_millis() as u64);
        }
        succeeded("wholly run", &self.as_group(&dir, &["--keep-undo", "1G"], UPGRADE).output()?)?;
        is(&dir, after, "run to its end")?;
        told.review = self.review(&dir)?;
        is(&dir, after, "looked at and discarded")?;
        succeeded("wholly undo", &self.wholly().arg("undo").arg(&dir).output()?)?;
        is(&dir, before, "undone")?;
        Ok(told)
    }

    /// The next version: each file has a line more, and some are gone.
    fn make_next(&self, tree: &Tree) -> Result<()> {
        let next = self.dir("next")?;
        tree.copy(&next)?;
        let mut gone = String::new();
        for (n, name) in tree.files.0.keys().enumerate() {
            if n % GONE_EVERY == GONE_EVERY - 1 {
                std::fs::remove_file(next.join(name))?;
                gone += &format!("{name}\n");
            } else {
                std::fs::File::options().append(true).open(next.join(name))?.write_all(b"# the next version\n")?;
            }
        }
        std::fs::write(self.dir.join("gone"), gone)?;
        let mut tar = Command::new("tar");
        tar.arg("cf").arg(self.dir.join("next.tar")).args(["--sort=name", "-C"]).arg(&next).arg(".");
        succeeded("tar", &tar.output()?)
    }

    /// Answers a review of something small with no, and gives what it has shown.
    fn review(&self, dir: &Path) -> Result<String> {
        let mut command = self.as_group(dir, &["--review"], SMALL);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().expect("it was piped").write_all(b"discard\n")?;
        let output = child.wait_with_output()?;
        if output.status.code() != Some(DISCARDED) {
            succeeded("wholly run --review", &output)?;
            return Err("wholly run --review: nothing was discarded".into());
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Kills the command, and whoever runs it, when it has said that some of the files are there.
    fn kill_inside(&self, command: &mut Command, tree: &Tree, random: &mut Random) -> Result<()> {
        self.stop.check()?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let inside = 1 + random.below(tree.files.0.len() as u64 * 2 / 3);
        let said = BufReader::new(child.stdout.take().expect("it was piped"));
        said.lines().take(inside as usize).try_for_each(|line| line.map(drop))?;
        end(&mut child)
    }

    /// Puts right what a kill has left, and leaves an ordinary directory.
    fn recover(&self, dir: &Path) -> Result<()> {
        succeeded("the next `wholly run`", &self.as_group(dir, &[], "true").output()?)?;
        if dir.join(".wholly").exists() {
            succeeded("wholly deinit", &self.wholly().arg("deinit").arg(dir).output()?)?;
        }
        Ok(())
    }

    fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir)?;
        Ok(dir)
    }

    fn wholly(&self) -> Command {
        let mut command = Command::new(self.wholly);
        // The user's stores are no business of this, and an undo is kept where that is asked for.
        command.env("WHOLLY_REGISTRY", "").env("WHOLLY_KEEP_UNDO", "no");
        command
    }

    fn as_group(&self, dir: &Path, options: &[&str], script: &str) -> Command {
        let mut command = self.wholly();
        command.arg("run").args(options).args(["--", "sh", "-c", script]);
        self.begins_in(&mut command, dir);
        command
    }

    fn plain(&self, dir: &Path, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        self.begins_in(&mut command, dir);
        command
    }

    /// In a process group of its own, so that all of it can be killed, and Ctrl-C reaches this process alone.
    fn begins_in(&self, command: &mut Command, dir: &Path) {
        command.env("NEXT", self.dir.join("next.tar")).env("GONE", self.dir.join("gone"));
        command.current_dir(dir).stdin(Stdio::null()).process_group(0);
    }
}

impl Told {
    /// Shows it.
    pub fn report(&self, tree: &Tree) {
        let line = |what: &str, hash: String, last: &str| println!("  {what:<38}{hash:>16}  {last}");
        let hex = |hash: u64| format!("{hash:016x}");
        println!(
            "`wholly run -- COMMAND`: an upgrade by tar and rm, which know nothing of Wholly, in a copy of {}\n\
             ({} files). Hashes are of all names, modes and contents.",
            tree.from.display(),
            tree.files.0.len()
        );
        line("the tree", hex(self.before), "");
        let late = match self.late {
            0 => "as before, each time".into(),
            late => format!("as before; but {late} times all new: the kill came too late"),
        };
        line(&format!("killed in the middle, {} times", self.kills), hex(self.before), &late);
        line("run to its end", hex(self.after), "all of it, and nothing else");
        line("with --review, and discarded", hex(self.after), "no change; what it showed:");
        let shown: Vec<&str> = self.review.lines().collect();
        for text in shown.iter().take(SHOWN) {
            println!("      {text}");
        }
        line("`wholly undo`", hex(self.before), "as before the upgrade");
        println!("without Wholly: half-done after {} of {PLAIN_KILLS} kills of the same command\n", self.half_done);
    }
}

/// Kills it, and all in its process group, whose number is nobody else's as long as it was not waited for.
fn end(child: &mut Child) -> Result<()> {
    let group = rustix::process::Pid::from_child(child);
    match rustix::process::kill_process_group(group, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(Error::from(format!("kill: {errno}"))),
    }
    child.wait()?;
    Ok(())
}

fn succeeded(what: &str, output: &Output) -> Result<()> {
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{what}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn is(dir: &Path, wanted: u64, when: &str) -> Result<()> {
    match hash(dir)? {
        now if now == wanted => Ok(()),
        now => Err(format!("{when} the tree is {now:016x}, not {wanted:016x}").into()),
    }
}

/// Of all names, modes and contents, but for the store's own folder.
fn hash(dir: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        let mut paths = std::fs::read_dir(&at)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        paths.sort();
        for path in paths.into_iter().filter(|path| *path != dir.join(".wholly")) {
            let stat = path.symlink_metadata()?;
            hasher.write(path.strip_prefix(dir)?.as_os_str().as_encoded_bytes());
            hasher.write_u32(stat.permissions().mode());
            if stat.is_dir() {
                todo.push(path);
            } else {
                hasher.write(&std::fs::read(&path)?);
            }
        }
    }
    Ok(hasher.finish())
}
