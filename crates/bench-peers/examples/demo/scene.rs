//! Where the demo happens: a copy of a real tree, in a directory that vanishes with it.

use crate::work::Contents;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wholly_bench::{Error, Result};

/// At most so many files, of so many bytes each: few enough that all are compared after each crash.
const FILES: usize = 300;
const FILE_BYTES: u64 = 64 << 10;

/// Trees that a Debian system has; the first one with enough files is copied.
const TREES: [&str; 5] = ["/usr/lib/python3.11", "/usr/lib/python3", "/usr/share/doc", "/usr/include", "/usr/share"];

/// The tree that is copied.
pub struct Tree {
    /// Where it was found.
    pub from: PathBuf,
    /// Its files, by their paths in it.
    pub files: Contents,
}

impl Tree {
    /// Reads the tree `from`, or one that every system has.
    pub fn find(from: Option<&Path>) -> Result<Tree> {
        const ENOUGH: usize = 100;
        let candidates: Vec<&Path> = match from {
            Some(from) => vec![from],
            None => TREES.iter().map(Path::new).collect(),
        };
        for candidate in &candidates {
            let mut files = Contents::default();
            collect(candidate, candidate, &mut files);
            if files.0.len() >= if from.is_some() { 8 } else { ENOUGH } {
                return Ok(Tree { from: candidate.to_path_buf(), files });
            }
        }
        Err(Error::from("no tree with enough readable files; name one with --tree"))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.0.values().map(|content| content.len() as u64).sum()
    }

    /// Every directory of the tree, parents first.
    pub fn dirs(&self) -> Vec<String> {
        let mut dirs: Vec<String> = Vec::new();
        for name in self.files.0.keys() {
            for (at, _) in name.match_indices('/') {
                dirs.push(name[..at].into());
            }
        }
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Copies the tree into the directory `to`.
    pub fn copy(&self, to: &Path) -> Result<()> {
        for dir in self.dirs() {
            std::fs::create_dir_all(to.join(dir))?;
        }
        for (name, content) in &self.files.0 {
            std::fs::write(to.join(name), content)?;
        }
        Ok(())
    }
}

/// Regular files with readable names, in the order of their names. What cannot be read is left out.
fn collect(root: &Path, dir: &Path, files: &mut Contents) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if files.0.len() >= FILES {
            return;
        }
        let Ok(meta) = path.symlink_metadata() else { continue };
        let name = path.strip_prefix(root).ok().and_then(Path::to_str);
        if meta.is_dir() {
            collect(root, &path, files);
        } else if let Some(name) = name.filter(|name| !name.contains('\n'))
            && meta.is_file()
            && (1..=FILE_BYTES).contains(&meta.len())
            && let Ok(content) = std::fs::read(&path)
        {
            files.0.insert(name.into(), content);
        }
    }
}

/// A directory that is removed when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one in `parent`.
    pub fn new(parent: &Path) -> Result<Scratch> {
        let dir = parent.join(format!("wholly-demo-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|error| format!("mkdir {}: {error}", dir.display()))?;
        Ok(Scratch(dir))
    }

    /// A directory in it that did not exist.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.0.join(name);
        std::fs::create_dir(&dir)?;
        Ok(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether the user wants to stop: Ctrl-C, or a polite signal. Whoever works looks at it often and returns, so that
/// everything that was made is removed.
#[derive(Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Watches the signals.
    pub fn watch() -> Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Stop(flag))
    }

    /// An error once the user wants to stop.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::from("interrupted")) } else { Ok(()) }
    }
}
