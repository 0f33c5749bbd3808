//! Which times an operation changes, and which it leaves.

use wholly_vfs::{Errno, Fallocate, FileType, OFlags, Rename};

use super::before::Before;
use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::Tree;

table!("times";
    create_sets_all, create_changes_the_directory, open_of_what_is_there_changes_nothing, mkdir_changes_the_directory,
    mknod_changes_the_directory, symlink_changes_the_directory, link_changes_inode_and_directory,
    unlink_changes_inode_and_directory, rmdir_changes_the_directory, rename_changes_inode_and_directories,
    rename_changes_what_it_replaces, exchange_changes_all, rename_to_itself_changes_nothing, write_changes_the_content,
    write_of_nothing_changes_nothing, append_changes_the_content, truncate_changes_the_content,
    truncate_to_the_same_size_by_path, truncate_to_the_same_size_by_handle, trunc_changes_the_content,
    trunc_of_an_empty_file, punch_changes_the_content, allocate_changes_the_content, allocate_keep_size_changes_the_content,
    copy_changes_the_target,
    chmod_changes_the_inode, chown_changes_the_inode, set_xattr_changes_the_inode, read_raises_atime,
    readlink_raises_atime, readdir_raises_atime, noatime_leaves_atime, stat_changes_nothing, a_lookup_changes_nothing,
    failed_calls_change_nothing,
);

fn create_sets_all(t: &Tree<'_>) -> Outcome {
    t.create("old", 0o644)?;
    let old = Before::of(t, &["old"])?.stat("old")?;
    t.create("f", 0o644)?;
    t.mkdir("d", 0o755)?;
    t.symlink("l", "x")?;
    t.mknod("p", FileType::Fifo, 0o644)?;
    for name in ["f", "d", "l", "p"] {
        let stat = t.stat(name)?;
        same((stat.atime, stat.mtime), (stat.ctime, stat.ctime))?;
        holds(stat.ctime > old.ctime, "what is made later has later times")?;
    }
    Ok(())
}

fn create_changes_the_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let before = Before::of(t, &["d"])?;
    t.create("d/f", 0o644)?;
    before.expect("d", "mc")?;
    let (dir, file) = (t.stat("d")?, t.stat("d/f")?);
    holds(dir.mtime == dir.ctime && dir.mtime >= file.ctime, "both are of one moment")
}

fn open_of_what_is_there_changes_nothing(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.file("d/f", 0o644, b"abc")?;
    let before = Before::of(t, &["d", "d/f"])?;
    t.open_with("d/f", OFlags::RDWR | OFlags::CREATE, 0o644)?;
    before.expect("d", "")?;
    before.expect("d/f", "")
}

fn mkdir_changes_the_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let before = Before::of(t, &["d"])?;
    t.mkdir("d/e", 0o755)?;
    before.expect("d", "mc")
}

fn mknod_changes_the_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let before = Before::of(t, &["d"])?;
    t.mknod("d/p", FileType::Fifo, 0o644)?;
    before.expect("d", "mc")
}

fn symlink_changes_the_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let before = Before::of(t, &["d"])?;
    t.symlink("d/l", "x")?;
    before.expect("d", "mc")
}

fn link_changes_inode_and_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.mkdir("e", 0o755)?;
    t.create("d/f", 0o644)?;
    let before = Before::of(t, &["d", "e", "d/f"])?;
    t.link("d/f", "e/g")?;
    before.expect("d", "")?;
    before.expect("e", "mc")?;
    before.expect("d/f", "c")
}

fn unlink_changes_inode_and_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.create("d/f", 0o644)?;
    t.link("d/f", "g")?;
    let before = Before::of(t, &["d", "g"])?;
    t.unlink("d/f")?;
    before.expect("d", "mc")?;
    before.expect("g", "c")
}

fn rmdir_changes_the_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.mkdir("d/e", 0o755)?;
    let before = Before::of(t, &["d"])?;
    t.rmdir("d/e")?;
    before.expect("d", "mc")
}

fn rename_changes_inode_and_directories(t: &Tree<'_>) -> Outcome {
    for name in ["a", "b", "a/d"] {
        t.mkdir(name, 0o755)?;
    }
    t.create("a/f", 0o644)?;
    let before = Before::of(t, &["a", "b", "a/f"])?;
    t.rename("a/f", "b/f")?;
    before.expect("a", "mc")?;
    before.expect("b", "mc")?;
    before.expect_as("a/f", "b/f", "c")?;
    let before = Before::of(t, &["a", "b"])?;
    t.rename("a/d", "b/d")?;
    before.expect("a", "mc")?;
    before.expect("b", "mc")?;
    let before = Before::of(t, &["b", "b/f"])?;
    t.rename("b/f", "b/g")?;
    before.expect("b", "mc")?;
    before.expect_as("b/f", "b/g", "c")
}

fn rename_changes_what_it_replaces(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.create("g", 0o644)?;
    t.link("g", "h")?;
    let before = Before::of(t, &["f", "h"])?;
    t.rename("f", "g")?;
    before.expect("h", "c")
}

fn exchange_changes_all(t: &Tree<'_>) -> Outcome {
    for name in ["a", "b", "b/d"] {
        t.mkdir(name, 0o755)?;
    }
    t.create("a/f", 0o644)?;
    let before = Before::of(t, &["a", "b", "a/f", "b/d"])?;
    t.rename_with("a/f", "b/d", Rename::Exchange)?;
    before.expect("a", "mc")?;
    before.expect("b", "mc")?;
    before.expect_as("a/f", "b/d", "c")?;
    before.expect_as("b/d", "a/f", "c")
}

fn rename_to_itself_changes_nothing(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.create("d/f", 0o644)?;
    t.link("d/f", "d/g")?;
    let before = Before::of(t, &["d", "d/f"])?;
    t.rename("d/f", "d/f")?;
    t.rename("d/f", "d/g")?;
    before.expect("d", "")?;
    before.expect("d/f", "")
}

fn write_changes_the_content(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    for offset in [0, 3, 10_000] {
        let before = Before::of(t, &["f"])?;
        file.write_all(offset, b"x")?;
        before.expect("f", "mc")?;
        let stat = file.stat()?;
        same(stat.mtime, stat.ctime)?;
    }
    Ok(())
}

fn write_of_nothing_changes_nothing(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    file.write(0, b"")?;
    before.expect("f", "")
}

fn append_changes_the_content(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    file.append(b"x")?;
    before.expect("f", "mc")
}

fn truncate_changes_the_content(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    for size in [1, 100, 0] {
        let before = Before::of(t, &["f"])?;
        t.truncate("f", size)?;
        before.expect("f", "mc")?;
        let before = Before::of(t, &["f"])?;
        file.truncate(size + 5)?;
        before.expect("f", "mc")?;
    }
    Ok(())
}

fn truncate_to_the_same_size_by_path(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    t.truncate("f", 3)?;
    before.expect("f", "mc")
}

fn truncate_to_the_same_size_by_handle(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    file.truncate(3)?;
    before.expect("f", "mc")
}

fn trunc_changes_the_content(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    t.open("f", OFlags::WRONLY | OFlags::TRUNC)?;
    before.expect("f", "mc")
}

fn trunc_of_an_empty_file(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let before = Before::of(t, &["f"])?;
    t.open("f", OFlags::WRONLY | OFlags::TRUNC)?;
    before.expect("f", "mc")
}

fn punch_changes_the_content(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &[1; 100_000])?;
    let before = Before::of(t, &["f"])?;
    file.allocate(Fallocate::Punch, 10, 90_000)?;
    before.expect("f", "mc")
}

fn allocate_changes_the_content(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    file.allocate(Fallocate::Extend, 0, 100_000)?;
    before.expect("f", "mc")
}

fn allocate_keep_size_changes_the_content(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    // The second time it has all of the space.
    for _ in 0..2 {
        let before = Before::of(t, &["f"])?;
        file.allocate(Fallocate::Keep, 4096, 5000)?;
        before.expect("f", "mc")?;
    }
    Ok(())
}

fn copy_changes_the_target(t: &Tree<'_>) -> Outcome {
    let (from, to) = (t.file("f", 0o644, b"abc")?, t.create("g", 0o644)?);
    let before = Before::of(t, &["f", "g"])?;
    from.copy_to(0, &to, 0, 3)?;
    before.expect("f", "a")?;
    before.expect("g", "mc")
}

fn chmod_changes_the_inode(t: &Tree<'_>) -> Outcome {
    super::one_of_each(t)?;
    for name in ["file", "dir", "fifo"] {
        let before = Before::of(t, &[name])?;
        t.chmod(name, 0o600)?;
        before.expect(name, "c")?;
        // Also where it is the same already.
        let before = Before::of(t, &[name])?;
        t.chmod(name, 0o600)?;
        before.expect(name, "c")?;
    }
    Ok(())
}

fn chown_changes_the_inode(t: &Tree<'_>) -> Outcome {
    super::one_of_each(t)?;
    for name in ["file", "dir", "link"] {
        let before = Before::of(t, &[name])?;
        t.chown(name, Some(t.ctx.uid), Some(t.ctx.gid))?;
        before.expect(name, "c")?;
    }
    Ok(())
}

fn set_xattr_changes_the_inode(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", b"1")?;
    let before = Before::of(t, &["f"])?;
    t.set_xattr("f", "user.a", b"2")?;
    before.expect("f", "c")?;
    let before = Before::of(t, &["f"])?;
    t.remove_xattr("f", "user.a")?;
    before.expect("f", "c")
}

fn read_raises_atime(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    file.read(0, 3)?;
    before.expect("f", "a")
}

fn readlink_raises_atime(t: &Tree<'_>) -> Outcome {
    t.symlink("l", "x")?;
    let before = Before::of(t, &["l"])?;
    t.readlink("l")?;
    before.expect("l", "a")
}

fn readdir_raises_atime(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.create("d/f", 0o644)?;
    let before = Before::of(t, &["d"])?;
    t.names("d")?;
    before.expect("d", "a")
}

fn noatime_leaves_atime(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let before = Before::of(t, &["f"])?;
    same(t.open("f", OFlags::RDONLY | OFlags::NOATIME)?.content()?, b"abc".to_vec())?;
    before.expect("f", "")
}

fn stat_changes_nothing(t: &Tree<'_>) -> Outcome {
    super::one_of_each(t)?;
    let names = ["file", "dir", "link", "fifo"];
    let before = Before::of(t, &names)?;
    for name in names {
        t.stat(name)?;
        t.xattrs(name)?;
        t.access("file", wholly_vfs::Access::READ_OK)?;
        before.expect(name, "")?;
    }
    Ok(())
}

fn a_lookup_changes_nothing(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.create("d/f", 0o644)?;
    let before = Before::of(t, &["d", "d/f"])?;
    t.stat("d/f")?;
    fails(t.stat("d/x"), Errno::NOENT)?;
    before.expect("d", "")?;
    before.expect("d/f", "")
}

fn failed_calls_change_nothing(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.file("d/f", 0o644, b"abc")?;
    t.mkdir("d/e", 0o755)?;
    t.create("d/e/g", 0o644)?;
    let before = Before::of(t, &["d", "d/f", "d/e"])?;
    fails(t.create("d/f", 0o644), Errno::EXIST)?;
    fails(t.mkdir("d/f", 0o755), Errno::EXIST)?;
    fails(t.link("d/f", "d/e"), Errno::EXIST)?;
    fails(t.unlink("d/x"), Errno::NOENT)?;
    fails(t.unlink("d/e"), Errno::ISDIR)?;
    fails(t.rmdir("d/e"), Errno::NOTEMPTY)?;
    fails(t.rename("d/f", "d/e"), Errno::ISDIR)?;
    fails(t.rename_with("d/f", "d/e", Rename::NoReplace), Errno::EXIST)?;
    fails(t.set_xattr("d/f", "other.a", b"x"), Errno::OPNOTSUPP)?;
    for name in ["d", "d/f", "d/e"] {
        before.expect(name, "")?;
    }
    Ok(())
}
