//! Inodes that outlive their names, and files that never had one.

use wholly_vfs::{Errno, OFlags};

use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::{Tree, bits};

table!("inodes";
    an_open_file_outlives_its_name, an_open_file_outlives_a_rename_over_it, a_removed_file_can_grow_and_shrink,
    a_removed_file_has_no_names, a_removed_file_gets_no_name, a_removed_file_keeps_its_attributes_changeable,
    a_reference_outlives_the_name, a_removed_directory_is_empty, two_handles_see_one_file,
    numbers_are_the_same_by_every_name, numbers_stay_over_renames, tmpfile_has_no_name, tmpfile_gets_a_name,
    tmpfile_gets_no_name_after_its_last, tmpfile_with_excl_gets_none, tmpfile_must_be_writable,
    tmpfile_in_no_directory, tmpfile_takes_the_mode, a_closed_handle_is_bad, the_roots_parent_is_the_root,
);

fn an_open_file_outlives_its_name(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    t.unlink("f")?;
    fails(t.stat("f"), Errno::NOENT)?;
    file.write_all(3, b"def")?;
    same(file.content()?, b"abcdef".to_vec())
}

fn an_open_file_outlives_a_rename_over_it(t: &Tree<'_>) -> Outcome {
    let old = t.file("f", 0o644, b"old")?;
    t.file("g", 0o644, b"new")?;
    t.rename("g", "f")?;
    same(old.content()?, b"old".to_vec())?;
    same(old.stat()?.nlink, 0)?;
    same(t.content("f")?, b"new".to_vec())
}

fn a_removed_file_can_grow_and_shrink(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    t.unlink("f")?;
    file.write_all(100_000, b"x")?;
    same(file.stat()?.size, 100_001)?;
    file.truncate(2)?;
    same(file.content()?, b"ab".to_vec())
}

fn a_removed_file_has_no_names(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"")?;
    t.link("f", "g")?;
    t.unlink("f")?;
    same(file.stat()?.nlink, 1)?;
    t.unlink("g")?;
    same(file.stat()?.nlink, 0)
}

fn a_removed_file_gets_no_name(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"")?;
    t.unlink("f")?;
    fails(file.link_as("g"), Errno::NOENT)
}

fn a_removed_file_keeps_its_attributes_changeable(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"")?;
    t.unlink("f")?;
    let change = wholly_vfs::SetAttr { mode: Some(bits(0o600)), ..Default::default() };
    t.vfs.setattr(&t.ctx, file.ino, None, &change)?;
    same(file.stat()?.mode, bits(0o600))
}

fn a_reference_outlives_the_name(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let found = t.find("f")?;
    t.unlink("f")?;
    let handle = t.vfs.open(&t.ctx, found.ino(), OFlags::RDONLY)?;
    let mut buf = [0; 8];
    let read = t.vfs.read(&t.ctx, &handle, 0, &mut buf)?;
    t.vfs.release(&t.ctx, handle)?;
    same(&buf[..read], b"abc")
}

fn a_removed_directory_is_empty(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let dir = t.find("d")?;
    let handle = t.vfs.opendir(&t.ctx, dir.ino())?;
    t.rmdir("d")?;
    same(t.vfs.getattr(&t.ctx, dir.ino())?.nlink, 0)?;
    let names = t.read_open_dir(&handle, 0, 10);
    t.vfs.releasedir(&t.ctx, handle)?;
    fails(names, Errno::NOENT)
}

fn two_handles_see_one_file(t: &Tree<'_>) -> Outcome {
    let one = t.create("f", 0o644)?;
    let two = t.open("f", OFlags::RDWR)?;
    one.write_all(0, b"abc")?;
    same(two.content()?, b"abc".to_vec())?;
    two.truncate(1)?;
    same(one.content()?, b"a".to_vec())?;
    holds(one.handle != two.handle, "each open has a handle of its own")
}

fn numbers_are_the_same_by_every_name(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    t.link("f", "g")?;
    same(t.stat("g")?.ino, file.ino)?;
    same(t.stat("./f")?.ino, file.ino)?;
    let listed = t.names(".")?;
    same(listed.iter().map(|name| name.ino).collect::<Vec<_>>(), vec![file.ino; 2])
}

fn numbers_stay_over_renames(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.mkdir("d", 0o755)?;
    let (f, d) = (t.find("f")?, t.find("d")?);
    t.rename("f", "d/g")?;
    t.rename("d", "e")?;
    same((t.stat("e")?.ino, t.stat("e/g")?.ino), (d.ino(), f.ino()))
}

fn tmpfile_has_no_name(t: &Tree<'_>) -> Outcome {
    let file = t.tmpfile(".", OFlags::RDWR, 0o600)?;
    same(file.stat()?.nlink, 0)?;
    same(t.names(".")?, vec![])?;
    file.write_all(0, b"abc")?;
    same(file.content()?, b"abc".to_vec())
}

fn tmpfile_gets_a_name(t: &Tree<'_>) -> Outcome {
    let file = t.tmpfile(".", OFlags::WRONLY, 0o600)?;
    file.write_all(0, b"abc")?;
    same(file.link_as("f")?.nlink, 1)?;
    same(t.content("f")?, b"abc".to_vec())?;
    fails(file.link_as("f"), Errno::EXIST)?;
    same(file.link_as("g")?.nlink, 2)
}

/// However it has lost its last name.
fn tmpfile_gets_no_name_after_its_last(t: &Tree<'_>) -> Outcome {
    let lost: [fn(&Tree<'_>) -> wholly_vfs::Result<()>; 3] = [
        |t| t.unlink("f"),
        |t| {
            t.create("other", 0o600)?;
            t.rename("other", "f")
        },
        |t| {
            t.link("f", "g")?;
            t.unlink("f")?;
            t.unlink("g")
        },
    ];
    for lose in lost {
        let file = t.tmpfile(".", OFlags::RDWR, 0o600)?;
        file.write_all(0, b"abc")?;
        same(file.link_as("f")?.nlink, 1)?;
        lose(t)?;
        same(file.stat()?.nlink, 0)?;
        fails(file.link_as("again"), Errno::NOENT)?;
        same(file.content()?, b"abc".to_vec())?;
        let _ = t.unlink("f");
    }
    same(t.names(".")?, vec![])
}

fn tmpfile_with_excl_gets_none(t: &Tree<'_>) -> Outcome {
    let file = t.tmpfile(".", OFlags::RDWR | OFlags::EXCL, 0o600)?;
    fails(file.link_as("f"), Errno::NOENT)
}

fn tmpfile_must_be_writable(t: &Tree<'_>) -> Outcome {
    fails(t.tmpfile(".", OFlags::RDONLY, 0o600), Errno::INVAL)
}

fn tmpfile_in_no_directory(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.tmpfile("f", OFlags::RDWR, 0o600), Errno::NOTDIR)
}

fn tmpfile_takes_the_mode(t: &Tree<'_>) -> Outcome {
    same(t.umask(0o027).tmpfile(".", OFlags::RDWR, 0o666)?.stat()?.mode, bits(0o640))
}

fn a_closed_handle_is_bad(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let found = t.find("f")?;
    let handle = t.vfs.open(&t.ctx, found.ino(), OFlags::RDWR)?;
    t.vfs.release(&t.ctx, handle.clone())?;
    fails(t.vfs.read(&t.ctx, &handle, 0, &mut [0]), Errno::BADF)?;
    fails(t.vfs.write(&t.ctx, &handle, 0, &[0]), Errno::BADF)?;
    fails(t.vfs.fsync(&t.ctx, &handle), Errno::BADF)?;
    fails(t.vfs.release(&t.ctx, handle), Errno::BADF)
}

fn the_roots_parent_is_the_root(t: &Tree<'_>) -> Outcome {
    let root = t.stat("/")?;
    same(root.ino, wholly_vfs::Ino::ROOT)?;
    same(t.stat("/..")?.ino, root.ino)?;
    same(t.stat("/../../.")?.ino, root.ino)?;
    same(t.stat("..")?.ino, root.ino)?;
    let listed = t.with_dir("/", |dir| t.read_open_dir(dir, 0, usize::MAX))?;
    let dots = listed.iter().filter(|name| name.name == b"." || name.name == b"..");
    same(dots.map(|name| name.ino).collect::<Vec<_>>(), vec![root.ino; 2])
}
