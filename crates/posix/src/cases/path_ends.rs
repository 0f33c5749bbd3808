//! The last part of a path: slashes behind it, `.`, `..`, and the root.

use wholly_vfs::{Errno, FileType, OFlags, Rename, Result};

use super::one_of_each;
use crate::check::{Failure, Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("path_ends";
    mkdir, mknod, symlink, link, unlink, rmdir, create, rename_from, rename_to, rename_noreplace, rename_exchange,
);

/// Makes a call for each path in turn, and compares what it says.
fn each(call: impl Fn(&str) -> Result<()>, paths: &[(&str, Errno)]) -> Outcome {
    for (path, errno) in paths {
        match call(path) {
            Err(got) if got == *errno => {}
            got => return Err(Failure::new(format!("{path}: {got:?} where {errno:?} is wanted"))),
        }
    }
    Ok(())
}

fn setting(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    t.symlink("to-dir", "dir")?;
    t.symlink("to-file", "file")?;
    Ok(())
}

const TAKEN: [(&str, Errno); 10] = [
    (".", Errno::EXIST),
    ("..", Errno::EXIST),
    ("/", Errno::EXIST),
    ("dir/.", Errno::EXIST),
    ("dir/..", Errno::EXIST),
    ("dir/", Errno::EXIST),
    ("file/", Errno::EXIST),
    ("link/", Errno::EXIST),
    ("to-dir/", Errno::EXIST),
    ("file/x", Errno::NOTDIR),
];

fn mkdir(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    each(|path| t.mkdir(path, 0o755).map(drop), &TAKEN)?;
    t.mkdir("new//", 0o755)?;
    same(t.stat("new")?.kind, FileType::Directory)
}

fn mknod(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    each(|path| t.mknod(path, FileType::Fifo, 0o644).map(drop), &TAKEN)?;
    fails(t.mknod("new/", FileType::Fifo, 0o644), Errno::NOENT)
}

fn symlink(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    each(|path| t.symlink(path, "x").map(drop), &TAKEN)?;
    fails(t.symlink("new/", "x"), Errno::NOENT)
}

fn link(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    each(|path| t.link("file", path).map(drop), &TAKEN)?;
    fails(t.link("file", "new/"), Errno::NOENT)?;
    fails(t.link("file/", "new"), Errno::NOTDIR)?;
    fails(t.link("dir/", "new"), Errno::PERM)
}

fn unlink(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    let paths = [
        (".", Errno::ISDIR),
        ("..", Errno::ISDIR),
        ("/", Errno::ISDIR),
        ("dir/.", Errno::ISDIR),
        ("dir/", Errno::ISDIR),
        ("file/", Errno::NOTDIR),
        ("link/", Errno::NOTDIR),
        ("to-dir/", Errno::NOTDIR),
        ("to-file/", Errno::NOTDIR),
        ("new/", Errno::NOENT),
    ];
    each(|path| t.unlink(path), &paths)
}

fn rmdir(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    let paths = [
        (".", Errno::INVAL),
        ("dir/.", Errno::INVAL),
        ("..", Errno::NOTEMPTY),
        ("dir/..", Errno::NOTEMPTY),
        ("/", Errno::BUSY),
        ("file/", Errno::NOTDIR),
        ("to-dir/", Errno::NOTDIR),
        ("to-dir", Errno::NOTDIR),
        ("new/", Errno::NOENT),
    ];
    each(|path| t.rmdir(path), &paths)?;
    Ok(t.rmdir("dir//")?)
}

fn create(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    t.symlink("to-slash", "new/")?;
    let open = |path: &str, more: OFlags| t.open_with(path, OFlags::RDWR | OFlags::CREATE | more, 0o644).map(drop);
    let paths = [
        (".", Errno::ISDIR),
        ("..", Errno::ISDIR),
        ("/", Errno::ISDIR),
        ("dir", Errno::ISDIR),
        ("dir/", Errno::ISDIR),
        ("file/", Errno::ISDIR),
        ("new/", Errno::ISDIR),
        ("to-dir", Errno::ISDIR),
        ("to-slash", Errno::ISDIR),
    ];
    each(|path| open(path, OFlags::empty()), &paths)?;
    each(
        |path| open(path, OFlags::EXCL),
        &[(".", Errno::EXIST), ("/", Errno::EXIST), ("dir", Errno::EXIST), ("new/", Errno::ISDIR)],
    )?;
    fails(open("new", OFlags::DIRECTORY), Errno::INVAL)?;
    fails(t.stat("new"), Errno::NOENT)
}

fn rename_from(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    let paths = [
        (".", Errno::BUSY),
        ("..", Errno::BUSY),
        ("/", Errno::BUSY),
        ("dir/.", Errno::BUSY),
        ("dir/..", Errno::BUSY),
        ("file/", Errno::NOTDIR),
        ("link/", Errno::NOTDIR),
        ("to-dir/", Errno::NOTDIR),
        ("nothing/", Errno::NOENT),
    ];
    each(|path| t.rename(path, "new"), &paths)?;
    t.rename("dir//", "new//")?;
    same(t.stat("new")?.kind, FileType::Directory)
}

fn rename_to(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    let paths = [
        (".", Errno::BUSY),
        ("..", Errno::BUSY),
        ("/", Errno::BUSY),
        ("dir/.", Errno::BUSY),
        ("new/", Errno::NOTDIR),
        ("dir/", Errno::NOTDIR),
        ("link/", Errno::NOTDIR),
    ];
    each(|path| t.rename("file", path), &paths)?;
    each(
        |path| t.rename("dir", path),
        &[("file/", Errno::NOTDIR), ("to-dir/", Errno::NOTDIR), ("dir/new/", Errno::INVAL)],
    )
}

fn rename_noreplace(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    let rename = |path: &str| t.rename_with("file", path, Rename::NoReplace);
    let paths = [
        (".", Errno::EXIST),
        ("..", Errno::EXIST),
        ("/", Errno::EXIST),
        ("dir/", Errno::EXIST),
        ("new/", Errno::NOTDIR),
    ];
    each(rename, &paths)?;
    each(|path| t.rename_with(path, "new", Rename::NoReplace), &[(".", Errno::BUSY), ("file/", Errno::NOTDIR)])
}

fn rename_exchange(t: &Tree<'_>) -> Outcome {
    setting(t)?;
    let swap = |one: &str, other: &str| t.rename_with(one, other, Rename::Exchange);
    each(|path| swap("file", path), &[(".", Errno::BUSY), ("new/", Errno::NOENT), ("link/", Errno::NOTDIR)])?;
    each(|path| swap(path, "dir"), &[("..", Errno::BUSY), ("file/", Errno::NOTDIR), ("new/", Errno::NOENT)])?;
    swap("file", "dir/")?;
    same((t.stat("file")?.kind, t.stat("dir")?.kind), (FileType::Directory, FileType::RegularFile))
}
