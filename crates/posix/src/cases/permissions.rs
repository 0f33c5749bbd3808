//! Who may do what.

use wholly_vfs::{Access, Errno, FileType, OFlags};

use super::{ANN, BOB, CREW};
use crate::check::{Failure, Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("permissions";
    access_of_what_is_there;
    users: opening_takes_the_right_bits, access_agrees_with_the_bits, the_first_class_that_fits_counts,
        the_superuser_may_read_and_write_all, the_superuser_executes_what_somebody_may, groups_of_users_count,
        making_names_takes_a_writable_directory, taking_names_takes_a_writable_directory,
        renaming_takes_both_directories, moving_directories_takes_them_too, names_need_no_permission_on_the_file,
        truncate_takes_write_permission, trunc_takes_write_permission, noatime_is_for_owners,
        reading_links_takes_no_permission, stat_takes_no_permission_on_the_file, a_writable_directory_without_search,
        creating_over_what_is_there_takes_its_permissions, tmpfile_takes_a_writable_directory,
        unreadable_and_unknown_are_told_apart,
);

fn access_of_what_is_there(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o600)?;
    t.access("f", Access::EXISTS)?;
    t.access("f", Access::READ_OK | Access::WRITE_OK)?;
    fails(t.access("f", Access::EXEC_OK), Errno::ACCESS)?;
    fails(t.access("x", Access::EXISTS), Errno::NOENT)
}

/// Modes by which a class of users has each combination of bits, and what it may do.
fn combinations(shift: u32) -> impl Iterator<Item = (u32, bool, bool, bool)> {
    (0..8u32).map(move |bits| (bits << shift, bits & 4 != 0, bits & 2 != 0, bits & 1 != 0))
}

/// The owner, a member of the file's group of users, anybody else; and where their bits are.
fn classes<'v>(t: &Tree<'v>) -> [(Tree<'v>, u32); 3] {
    [(t.user(ANN), 6), (t.user_in(BOB, BOB, &[CREW]), 3), (t.user(BOB), 0)]
}

fn opening_takes_the_right_bits(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.chown("f", Some(ANN), Some(CREW))?;
    for (user, shift) in classes(t) {
        for (mode, read, write, _) in combinations(shift) {
            t.chmod("f", mode)?;
            for (flags, may) in [(OFlags::RDONLY, read), (OFlags::WRONLY, write), (OFlags::RDWR, read && write)] {
                let got = user.open("f", flags).map(drop);
                if got != if may { Ok(()) } else { Err(Errno::ACCESS) } {
                    return Err(Failure::new(format!("mode {mode:o}, {flags:?}: {got:?}")));
                }
            }
        }
    }
    Ok(())
}

fn access_agrees_with_the_bits(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.mkdir("d", 0o755)?;
    for name in ["f", "d"] {
        t.chown(name, Some(ANN), Some(CREW))?;
        for (user, shift) in classes(t) {
            for (mode, read, write, execute) in combinations(shift) {
                t.chmod(name, mode)?;
                let all = [(Access::READ_OK, read), (Access::WRITE_OK, write), (Access::EXEC_OK, execute)];
                for (access, may) in all {
                    same(user.access(name, access), if may { Ok(()) } else { Err(Errno::ACCESS) })?;
                }
                user.access(name, Access::EXISTS)?;
            }
        }
    }
    Ok(())
}

fn the_first_class_that_fits_counts(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.chown("f", Some(ANN), Some(CREW))?;
    let [(owner, _), (member, _), (other, _)] = classes(t);
    t.chmod("f", 0o077)?;
    fails(owner.open("f", OFlags::RDONLY), Errno::ACCESS)?;
    member.open("f", OFlags::RDONLY)?;
    t.chmod("f", 0o707)?;
    fails(member.open("f", OFlags::RDONLY), Errno::ACCESS)?;
    other.open("f", OFlags::RDONLY)?;
    // Who owns it is not asked as a member.
    fails(
        t.user_in(ANN, CREW, &[]).chmod("f", 0o077).and_then(|_| t.user_in(ANN, CREW, &[]).open("f", OFlags::RDONLY)),
        Errno::ACCESS,
    )
}

fn the_superuser_may_read_and_write_all(t: &Tree<'_>) -> Outcome {
    let ann = t.user(ANN);
    ann.mkdir("d", 0o755)?;
    ann.file("d/f", 0o600, b"abc")?;
    ann.chmod("d/f", 0)?;
    ann.chmod("d", 0)?;
    same(t.content("d/f")?, b"abc".to_vec())?;
    t.open("d/f", OFlags::RDWR)?;
    t.create("d/g", 0o644)?;
    same(t.names("d")?.len(), 2)
}

fn the_superuser_executes_what_somebody_may(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.access("f", Access::EXEC_OK), Errno::ACCESS)?;
    t.chmod("f", 0o001)?;
    t.access("f", Access::EXEC_OK)?;
    t.mkdir("d", 0)?;
    Ok(t.access("d", Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?)
}

fn groups_of_users_count(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o060)?;
    t.chown("f", None, Some(CREW))?;
    t.user_in(ANN, CREW, &[]).open("f", OFlags::RDWR)?;
    t.user_in(ANN, ANN, &[CREW - 1, CREW, CREW + 1]).open("f", OFlags::RDWR)?;
    fails(t.user_in(ANN, ANN, &[CREW - 1, CREW + 1]).open("f", OFlags::RDWR), Errno::ACCESS)
}

fn making_names_takes_a_writable_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let ann = t.user(ANN);
    ann.create("f", 0o644)?;
    fails(ann.create("d/f", 0o644), Errno::ACCESS)?;
    fails(ann.mkdir("d/d", 0o755), Errno::ACCESS)?;
    fails(ann.mknod("d/p", FileType::Fifo, 0o644), Errno::ACCESS)?;
    fails(ann.symlink("d/l", "x"), Errno::ACCESS)?;
    fails(ann.link("f", "d/g"), Errno::ACCESS)?;
    t.chmod("d", 0o777)?;
    ann.create("d/f", 0o644)?;
    Ok(())
}

fn taking_names_takes_a_writable_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o777)?;
    let ann = t.user(ANN);
    ann.create("d/f", 0o644)?;
    ann.mkdir("d/d", 0o755)?;
    t.chmod("d", 0o755)?;
    fails(ann.unlink("d/f"), Errno::ACCESS)?;
    fails(ann.rmdir("d/d"), Errno::ACCESS)?;
    fails(ann.unlink("d/x"), Errno::NOENT)
}

fn renaming_takes_both_directories(t: &Tree<'_>) -> Outcome {
    t.mkdir("mine", 0o777)?;
    t.mkdir("closed", 0o755)?;
    let ann = t.user(ANN);
    ann.create("mine/f", 0o644)?;
    t.create("closed/f", 0o666)?;
    fails(ann.rename("mine/f", "closed/g"), Errno::ACCESS)?;
    fails(ann.rename("closed/f", "mine/g"), Errno::ACCESS)?;
    fails(ann.rename("mine/f", "closed/f"), Errno::ACCESS)?;
    fails(ann.rename_with("mine/f", "closed/f", wholly_vfs::Rename::Exchange), Errno::ACCESS)
}

fn moving_directories_takes_them_too(t: &Tree<'_>) -> Outcome {
    for name in ["a", "b"] {
        t.mkdir(name, 0o777)?;
    }
    t.mkdir("a/d", 0o755)?;
    let ann = t.user(ANN);
    // Its `..` changes.
    fails(ann.rename("a/d", "b/d"), Errno::ACCESS)?;
    ann.rename("a/d", "a/e")?;
    t.chmod("a/e", 0o777)?;
    Ok(ann.rename("a/e", "b/e")?)
}

fn names_need_no_permission_on_the_file(t: &Tree<'_>) -> Outcome {
    t.create("f", 0)?;
    let ann = t.user(ANN);
    ann.rename("f", "g")?;
    Ok(ann.unlink("g")?)
}

fn truncate_takes_write_permission(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    fails(t.user(ANN).truncate("f", 1), Errno::ACCESS)?;
    same(t.stat("f")?.size, 3)
}

fn trunc_takes_write_permission(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    fails(t.user(ANN).open("f", OFlags::RDONLY | OFlags::TRUNC), Errno::ACCESS)?;
    same(t.stat("f")?.size, 3)
}

fn noatime_is_for_owners(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o666)?;
    fails(t.user(ANN).open("f", OFlags::RDONLY | OFlags::NOATIME), Errno::PERM)?;
    t.chown("f", Some(ANN), None)?;
    t.user(ANN).open("f", OFlags::RDONLY | OFlags::NOATIME)?;
    Ok(())
}

fn reading_links_takes_no_permission(t: &Tree<'_>) -> Outcome {
    t.umask(0o777).symlink("l", "target")?;
    same(t.user(ANN).readlink("l")?, b"target".to_vec())
}

fn stat_takes_no_permission_on_the_file(t: &Tree<'_>) -> Outcome {
    t.create("f", 0)?;
    t.mkdir("d", 0)?;
    let ann = t.user(ANN);
    same((ann.stat("f")?.size, ann.stat("d")?.kind), (0, FileType::Directory))
}

fn a_writable_directory_without_search(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o666)?;
    t.create("d/f", 0o666)?;
    let ann = t.user(ANN);
    fails(ann.stat("d/f"), Errno::ACCESS)?;
    fails(ann.create("d/g", 0o644), Errno::ACCESS)?;
    fails(ann.unlink("d/f"), Errno::ACCESS)?;
    same(ann.names("d")?.len(), 1)
}

fn creating_over_what_is_there_takes_its_permissions(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let ann = t.user(ANN);
    fails(ann.open_with("f", OFlags::RDWR | OFlags::CREATE, 0o666), Errno::ACCESS)?;
    ann.open_with("f", OFlags::RDONLY | OFlags::CREATE, 0o666)?;
    // And none on the directory.
    t.mkdir("d", 0o755)?;
    t.create("d/f", 0o666)?;
    ann.open_with("d/f", OFlags::RDWR | OFlags::CREATE, 0o666)?;
    Ok(())
}

fn tmpfile_takes_a_writable_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    fails(t.user(ANN).tmpfile("d", OFlags::RDWR, 0o600), Errno::ACCESS)
}

fn unreadable_and_unknown_are_told_apart(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let ann = t.user(ANN);
    fails(ann.open_with("d/x", OFlags::RDONLY, 0), Errno::NOENT)?;
    fails(ann.rename("d/x", "y"), Errno::NOENT)?;
    fails(ann.create("d/x", 0o644), Errno::ACCESS)?;
    t.mkdir("d/e", 0o755)?;
    fails(ann.mkdir("d/e", 0o755), Errno::EXIST)
}
