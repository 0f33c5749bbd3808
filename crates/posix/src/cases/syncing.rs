//! Syncs: what can be seen of them without a crash. The crash explorer sees the rest.

use wholly_vfs::{Errno, OFlags};

use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("syncing"; of_any_handle, of_a_removed_file, of_directories, of_everything, of_bad_handles);

fn of_any_handle(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    for flags in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let file = t.open("f", flags)?;
        file.fsync()?;
        file.fdatasync()?;
        file.fatomic(false)?;
        file.fatomic(true)?;
    }
    same(t.content("f")?, b"abc".to_vec())
}

fn of_a_removed_file(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    t.unlink("f")?;
    file.fsync()?;
    same(file.content()?, b"abc".to_vec())
}

fn of_directories(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    Ok(t.with_dir(".", |dir| t.vfs.fsyncdir(&t.ctx, dir))?)
}

fn of_everything(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.vfs.sync(&t.ctx)?;
    same(t.content("f")?, b"abc".to_vec())
}

fn of_bad_handles(t: &Tree<'_>) -> Outcome {
    // It is closed at once.
    let handle = t.create("f", 0o644)?.handle.clone();
    fails(t.vfs.fsync(&t.ctx, &handle), Errno::BADF)?;
    fails(t.vfs.fdatasync(&t.ctx, &handle), Errno::BADF)?;
    fails(t.vfs.fatomic(&t.ctx, &handle, false), Errno::BADF)?;
    fails(t.vfs.fsyncdir(&t.ctx, &handle), Errno::BADF)
}
