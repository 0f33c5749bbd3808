//! Owners, and what becomes of set-user-id and set-group-id.

use wholly_vfs::{Errno, Fallocate, OFlags, SetAttr};

use super::{ANN, BOB, CREW, one_of_each};
use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::{File, Tree, bits};

table!("owners";
    chown_to_who_owns_it_already, write_by_its_maker_keeps_plain_modes;
    users: the_superuser_gives_anything_to_anybody, users_give_nothing_away, users_give_to_their_crews,
        strangers_change_no_owner, chown_of_symlinks_is_their_own, large_ids,
        chown_clears_set_ids, chown_of_directories_keeps_set_ids, chown_by_the_superuser_clears_set_ids,
        chown_keeps_setgid_without_execution, write_clears_set_ids, append_clears_set_ids, truncate_clears_set_ids,
        trunc_clears_set_ids, allocate_clears_set_ids, copy_clears_set_ids, write_of_nothing_keeps_set_ids,
        the_superusers_write_keeps_set_ids, setgid_without_execution_survives_writes, rename_and_link_keep_set_ids,
);

fn chown_to_who_owns_it_already(t: &Tree<'_>) -> Outcome {
    let stat = t.create("f", 0o644)?.stat()?;
    let after = t.chown("f", Some(stat.uid), Some(stat.gid))?;
    same((after.uid, after.gid, after.mode), (stat.uid, stat.gid, stat.mode))
}

fn write_by_its_maker_keeps_plain_modes(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o753)?;
    file.write_all(0, b"x")?;
    file.truncate(0)?;
    same(file.stat()?.mode, bits(0o753))
}

fn the_superuser_gives_anything_to_anybody(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["file", "dir", "link", "fifo", "socket"] {
        let both = t.chown(name, Some(ANN), Some(CREW))?;
        same((both.uid, both.gid), (ANN, CREW))?;
        let one = t.chown(name, Some(BOB), None)?;
        same((one.uid, one.gid), (BOB, CREW))?;
        let other = t.chown(name, None, Some(BOB))?;
        same((other.uid, other.gid), (BOB, BOB))?;
    }
    Ok(())
}

fn users_give_nothing_away(t: &Tree<'_>) -> Outcome {
    let ann = t.user(ANN);
    ann.create("f", 0o644)?;
    fails(ann.chown("f", Some(BOB), None), Errno::PERM)?;
    fails(ann.chown("f", None, Some(BOB)), Errno::PERM)?;
    fails(ann.chown("f", Some(0), Some(0)), Errno::PERM)?;
    let stat = ann.chown("f", Some(ANN), Some(ANN))?;
    same((stat.uid, stat.gid), (ANN, ANN))
}

fn users_give_to_their_crews(t: &Tree<'_>) -> Outcome {
    let ann = t.user_in(ANN, ANN, &[CREW, BOB]);
    ann.create("f", 0o644)?;
    same(ann.chown("f", None, Some(CREW))?.gid, CREW)?;
    same(ann.chown("f", Some(ANN), Some(BOB))?.gid, BOB)?;
    fails(ann.chown("f", None, Some(CREW + 1)), Errno::PERM)
}

fn strangers_change_no_owner(t: &Tree<'_>) -> Outcome {
    t.user(ANN).create("f", 0o666)?;
    let bob = t.user_in(BOB, BOB, &[ANN]);
    fails(bob.chown("f", Some(BOB), None), Errno::PERM)?;
    fails(bob.chown("f", None, Some(BOB)), Errno::PERM)
}

fn chown_of_symlinks_is_their_own(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    t.chown("l", Some(ANN), Some(ANN))?;
    same((t.stat("l")?.uid, t.stat("f")?.uid), (ANN, 0))
}

fn large_ids(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let stat = t.chown("f", Some(u32::MAX - 1), Some(0x8000_0001))?;
    same((stat.uid, stat.gid), (u32::MAX - 1, 0x8000_0001))
}

fn chown_clears_set_ids(t: &Tree<'_>) -> Outcome {
    let ann = t.user_in(ANN, ANN, &[CREW]);
    ann.create("f", 0o755)?;
    ann.chmod("f", 0o6755)?;
    same(ann.chown("f", None, Some(CREW))?.mode, bits(0o755))
}

fn chown_of_directories_keeps_set_ids(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.chmod("d", 0o6755)?;
    same(t.chown("d", Some(ANN), Some(ANN))?.mode, bits(0o6755))
}

fn chown_by_the_superuser_clears_set_ids(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o755)?;
    t.chmod("f", 0o6755)?;
    same(t.chown("f", Some(ANN), Some(ANN))?.mode, bits(0o755))
}

fn chown_keeps_setgid_without_execution(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.chmod("f", 0o6644)?;
    // Only Linux before 2.6 had another meaning for it; the bit still stays, for the superuser.
    same(t.chown("f", Some(ANN), None)?.mode, bits(0o2644))
}

/// A file with both bits that everybody may write to, open for Ann.
fn privileged<'v>(t: &Tree<'v>) -> Result<File<'v>, Errno> {
    t.file("f", 0o777, b"abcdef")?;
    t.chmod("f", 0o6777)?;
    t.user(ANN).open("f", OFlags::RDWR)
}

fn write_clears_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    file.write_all(0, b"x")?;
    same(file.stat()?.mode, bits(0o777))
}

fn append_clears_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    file.append(b"x")?;
    same(file.stat()?.mode, bits(0o777))
}

fn truncate_clears_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    same(t.user(ANN).truncate("f", 1)?.mode, bits(0o777))?;
    t.chmod("f", 0o6777)?;
    same(file.truncate(1)?.mode, bits(0o777))
}

fn trunc_clears_set_ids(t: &Tree<'_>) -> Outcome {
    privileged(t)?;
    t.user(ANN).open("f", OFlags::WRONLY | OFlags::TRUNC)?;
    same(t.stat("f")?.mode, bits(0o777))
}

fn allocate_clears_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    file.allocate(Fallocate::Extend, 0, 10_000)?;
    same(file.stat()?.mode, bits(0o777))
}

fn copy_clears_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    let from = t.user(ANN).file("g", 0o644, b"new")?;
    same(from.copy_to(0, &file, 0, 3)?, 3)?;
    same(file.stat()?.mode, bits(0o777))
}

fn write_of_nothing_keeps_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    file.write(0, b"")?;
    same(file.stat()?.mode, bits(0o6777))
}

fn the_superusers_write_keeps_set_ids(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    // Who writes counts, not who opened.
    file.by(t, |vfs, ctx, handle| vfs.write(ctx, handle, 0, b"x"))?;
    same(file.stat()?.mode, bits(0o6777))?;
    let change = SetAttr { size: Some(2), ..SetAttr::default() };
    t.vfs.setattr(&t.ctx, file.ino, None, &change)?;
    same(file.stat()?.mode, bits(0o6777))
}

fn setgid_without_execution_survives_writes(t: &Tree<'_>) -> Outcome {
    let file = privileged(t)?;
    t.chown("f", None, Some(ANN))?;
    t.chmod("f", 0o6766)?;
    file.write_all(0, b"x")?;
    same(file.stat()?.mode, bits(0o2766))
}

fn rename_and_link_keep_set_ids(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o755)?;
    t.chmod("f", 0o6755)?;
    t.rename("f", "g")?;
    same(t.link("g", "h")?.mode, bits(0o6755))
}
