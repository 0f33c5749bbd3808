//! What a command may change beside the directories that it runs in: that stays, also if the run is aborted.

use crate::output::shown;
use std::path::{Path, PathBuf};

/// Says what can be known before the command runs, and is easily overlooked.
pub fn tell(here: &Path, dirs: &[&Path]) {
    let here = here.canonicalize().unwrap_or_else(|_| here.to_path_buf());
    let is_covered = |path: &Path| dirs.iter().any(|dir| path.starts_with(dir));
    if !is_covered(&here) {
        eprintln!("wholly: run: the command starts in {}: what it changes there is not covered", shown(&here));
    }
    for dir in dirs {
        if let Some(repository) = repository_of(dir).filter(|path| !is_covered(path)) {
            let (dir, repository) = (shown(dir), shown(&repository));
            eprintln!("wholly: run: {dir} is a working tree of {repository}: commits there are not covered");
        }
    }
}

/// The repository of a linked working tree, or of a submodule: their `.git` is a file that names it.
fn repository_of(dir: &Path) -> Option<PathBuf> {
    const LONGEST: u64 = 8192;
    let file = dir.join(".git");
    let is_file = file.symlink_metadata().is_ok_and(|stat| stat.is_file() && stat.len() < LONGEST);
    let text = is_file.then(|| std::fs::read_to_string(&file).ok()).flatten()?;
    let named = text.strip_prefix("gitdir:")?.trim();
    dir.join(named).canonicalize().ok()
}
