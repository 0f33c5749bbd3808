//! Renaming each type over each: what Linux allows of them, and that everything is as it was where it does not.

use wholly_vfs::{Errno, FileType};

use super::one_of_each;
use crate::check::{Failure, Outcome, same};
use crate::suite::table;
use crate::tree::Tree;

table!("rename_types"; file, dir, full_dir, link, fifo, socket);

/// The types, a directory with something in it among them.
const TYPES: [&str; 6] = ["file", "dir", "full", "link", "fifo", "socket"];

fn make(t: &Tree<'_>, place: &str) -> Outcome {
    t.mkdir(place, 0o755)?;
    let dir = t.find(place)?;
    let t = Tree { at: dir.ino(), ..t.clone() };
    one_of_each(&t)?;
    t.mkdir("full", 0o755)?;
    t.symlink("full/x", "y")?;
    Ok(())
}

/// What must come of renaming one onto the other.
fn verdict(old: &str, new: &str) -> Result<(), Errno> {
    let is_dir = |name: &str| name == "dir" || name == "full";
    match (is_dir(old), is_dir(new)) {
        (true, false) => Err(Errno::NOTDIR),
        (false, true) => Err(Errno::ISDIR),
        (true, true) if new == "full" => Err(Errno::NOTEMPTY),
        _ => Ok(()),
    }
}

fn over_each(t: &Tree<'_>, old: &str) -> Outcome {
    for new in TYPES {
        let (from, to) = (format!("from-{new}"), format!("to-{new}"));
        make(t, &from)?;
        make(t, &to)?;
        let (old, new) = (format!("{from}/{old}"), format!("{to}/{new}"));
        let before = (t.stat(&old)?, t.stat(&new)?);
        let wanted = verdict(&old[from.len() + 1..], &new[to.len() + 1..]);
        let got = t.rename(&old, &new);
        if got != wanted {
            return Err(Failure::new(format!("{old} to {new}: {got:?}, not {wanted:?}")));
        }
        if wanted.is_err() {
            same((t.stat(&old)?, t.stat(&new)?), before)?;
            continue;
        }
        same(t.exists(&old)?, false)?;
        same((t.stat(&new)?.ino, t.stat(&new)?.kind), (before.0.ino, before.0.kind))?;
        same(t.names(&from)?.len(), TYPES.len() - 1)?;
        same(t.names(&to)?.len(), TYPES.len())?;
        if before.0.kind == FileType::RegularFile {
            same(t.content(&new)?, b"content".to_vec())?;
        }
    }
    Ok(())
}

fn file(t: &Tree<'_>) -> Outcome {
    over_each(t, "file")
}

fn dir(t: &Tree<'_>) -> Outcome {
    over_each(t, "dir")
}

fn full_dir(t: &Tree<'_>) -> Outcome {
    over_each(t, "full")
}

fn link(t: &Tree<'_>) -> Outcome {
    over_each(t, "link")
}

fn fifo(t: &Tree<'_>) -> Outcome {
    over_each(t, "fifo")
}

fn socket(t: &Tree<'_>) -> Outcome {
    over_each(t, "socket")
}
