//! Hard links and link counts.

use wholly_vfs::{Errno, FileType, OFlags};

use super::{NO_DIRECTORIES, one_of_each};
use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("links";
    link_gives_another_name, link_takes_each_type, link_refuses_directories, link_refuses_what_is_there,
    link_of_a_symlink_is_one, link_can_follow, link_of_nothing, link_into_no_directory, link_across_directories,
    counts_of_files, counts_of_directories, counts_after_renaming_directories, counts_after_renaming_over,
    link_to_itself,
);

fn link_gives_another_name(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let linked = t.link("f", "g")?;
    same((linked.ino, linked.nlink), (file.ino, 2))?;
    t.open("g", OFlags::WRONLY)?.write_all(3, b"d")?;
    same(t.content("f")?, b"abcd".to_vec())?;
    t.unlink("f")?;
    same(t.content("g")?, b"abcd".to_vec())
}

fn link_takes_each_type(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in NO_DIRECTORIES {
        let other = format!("{name}-too");
        t.link(name, &other)?;
        let (one, two) = (t.stat(name)?, t.stat(&other)?);
        same((one.ino, one.kind, one.nlink), (two.ino, two.kind, 2))?;
    }
    Ok(())
}

fn link_refuses_directories(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    fails(t.link("d", "e"), Errno::PERM)
}

fn link_refuses_what_is_there(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    t.file("f", 0o644, b"")?;
    for name in NO_DIRECTORIES.into_iter().chain(["dir"]) {
        fails(t.link("f", name), Errno::EXIST)?;
    }
    same(t.stat("f")?.nlink, 1)
}

fn link_of_a_symlink_is_one(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    t.link("l", "m")?;
    same((t.stat("m")?.kind, t.stat("f")?.nlink), (FileType::Symlink, 1))
}

fn link_can_follow(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    let made = t.paths().link(&t.ctx, t.at, b"l", b"m", true)?;
    same((made.kind, made.nlink), (FileType::RegularFile, 2))
}

fn link_of_nothing(t: &Tree<'_>) -> Outcome {
    fails(t.link("x", "y"), Errno::NOENT)
}

fn link_into_no_directory(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.link("f", "f/g"), Errno::NOTDIR)?;
    fails(t.link("f", "x/g"), Errno::NOENT)
}

fn link_across_directories(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.mkdir("e", 0o755)?;
    t.file("d/f", 0o644, b"abc")?;
    t.link("d/f", "e/g")?;
    t.unlink("d/f")?;
    t.rmdir("d")?;
    same(t.content("e/g")?, b"abc".to_vec())
}

fn counts_of_files(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    for number in 1..=20 {
        t.link("f", format!("g{number}"))?;
        same(file.stat()?.nlink, number + 1)?;
    }
    for number in (1..=20).rev() {
        t.unlink(format!("g{number}"))?;
        same(file.stat()?.nlink, number)?;
    }
    Ok(())
}

/// A directory counts itself and those in it.
fn counts_of_directories(t: &Tree<'_>) -> Outcome {
    same(t.mkdir("d", 0o755)?.nlink, 2)?;
    t.create("d/f", 0o644)?;
    t.symlink("d/l", "f")?;
    same(t.stat("d")?.nlink, 2)?;
    t.mkdir("d/e", 0o755)?;
    t.mkdir("d/g", 0o755)?;
    same(t.stat("d")?.nlink, 4)?;
    t.rmdir("d/e")?;
    same(t.stat("d")?.nlink, 3)
}

fn counts_after_renaming_directories(t: &Tree<'_>) -> Outcome {
    for name in ["a", "b", "a/d"] {
        t.mkdir(name, 0o755)?;
    }
    t.rename("a/d", "a/e")?;
    same((t.stat("a")?.nlink, t.stat("b")?.nlink), (3, 2))?;
    t.rename("a/e", "b/e")?;
    same((t.stat("a")?.nlink, t.stat("b")?.nlink), (2, 3))?;
    t.create("a/f", 0o644)?;
    t.rename_with("a/f", "b/e", wholly_vfs::Rename::Exchange)?;
    same((t.stat("a")?.nlink, t.stat("b")?.nlink), (3, 2))
}

fn counts_after_renaming_over(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/d", "a/e"] {
        t.mkdir(name, 0o755)?;
    }
    t.rename("a/d", "a/e")?;
    same(t.stat("a")?.nlink, 3)?;
    let file = t.create("f", 0o644)?;
    t.link("f", "g")?;
    t.create("h", 0o644)?;
    t.rename("h", "g")?;
    same(file.stat()?.nlink, 1)
}

fn link_to_itself(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.link("f", "f"), Errno::EXIST)?;
    same(t.stat("f")?.nlink, 1)
}
