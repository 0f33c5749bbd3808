//! Permission bits, umask, and what every inode knows.

use wholly_vfs::{Errno, FileType, OFlags};

use super::one_of_each;
use crate::check::{Failure, Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::{Tree, bits};

table!("attributes";
    chmod_sets_every_bit, chmod_of_each_type, chmod_of_symlinks, the_umask_takes_bits, the_umask_is_not_for_chmod,
    symlinks_have_all_bits, sizes_of_each_type, setattr_of_nothing_changes_nothing, setgid_directories_pass_it_on,
    chmod_of_a_removed_name, mkdir_takes_the_sticky_bit, blocks_and_units;
    users: new_files_belong_to_their_maker, new_files_belong_to_the_crew_of_a_setgid_directory,
        only_the_owner_changes_the_mode, the_mode_of_others_files_loses_setgid,
        setgid_is_not_for_strangers_to_the_crew,
);

fn chmod_sets_every_bit(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.mkdir("d", 0o755)?;
    for mode in (0..12).map(|bit| 1 << bit).chain([0, 0o7777, 0o750, 0o644]) {
        for name in ["f", "d"] {
            same(t.chmod(name, mode)?.mode, bits(mode))?;
            same(t.stat(name)?.mode, bits(mode))?;
        }
    }
    Ok(())
}

fn chmod_of_each_type(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["file", "dir", "fifo", "socket"] {
        let before = t.stat(name)?;
        let after = t.chmod(name, 0o701)?;
        same((after.kind, after.mode, after.nlink, after.size), (before.kind, bits(0o701), before.nlink, before.size))?;
    }
    Ok(())
}

fn chmod_of_symlinks(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    fails(t.chmod("l", 0o600), Errno::OPNOTSUPP)?;
    same((t.stat("l")?.mode, t.stat("f")?.mode), (bits(0o777), bits(0o644)))
}

fn the_umask_takes_bits(t: &Tree<'_>) -> Outcome {
    for (umask, left) in [(0, 0o777), (0o22, 0o755), (0o77, 0o700), (0o777, 0), (0o124, 0o653)] {
        let with = t.umask(umask);
        same(with.create("f", 0o777)?.stat()?.mode, bits(left))?;
        same(with.mkdir("d", 0o777)?.mode, bits(left))?;
        same(with.mknod("p", FileType::Fifo, 0o777)?.mode, bits(left))?;
        for name in ["f", "p"] {
            t.unlink(name)?;
        }
        t.rmdir("d")?;
    }
    Ok(())
}

fn the_umask_is_not_for_chmod(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    same(t.umask(0o777).chmod("f", 0o666)?.mode, bits(0o666))
}

fn symlinks_have_all_bits(t: &Tree<'_>) -> Outcome {
    same(t.umask(0o777).symlink("l", "x")?.mode, bits(0o777))
}

fn sizes_of_each_type(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for (name, size) in [("file", 7), ("link", 7), ("fifo", 0), ("socket", 0)] {
        if t.stat(name)?.size != size {
            return Err(Failure::new(format!("the size of {name} is not {size}")));
        }
    }
    Ok(())
}

fn setattr_of_nothing_changes_nothing(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["file", "dir", "link", "fifo"] {
        let before = t.stat(name)?;
        same(t.setattr(name, Default::default())?, before)?;
    }
    Ok(())
}

fn setgid_directories_pass_it_on(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.chmod("d", 0o2755)?;
    same(t.mkdir("d/e", 0o755)?.mode, bits(0o2755))?;
    same(t.mkdir("d/e/f", 0o700)?.mode, bits(0o2700))?;
    same(t.create("d/g", 0o644)?.stat()?.mode, bits(0o644))?;
    same(t.mkdir("other", 0o755)?.mode, bits(0o755))
}

fn chmod_of_a_removed_name(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.unlink("f")?;
    fails(t.chmod("f", 0o600), Errno::NOENT)
}

fn mkdir_takes_the_sticky_bit(t: &Tree<'_>) -> Outcome {
    same(t.mkdir("d", 0o1777)?.mode, bits(0o1777))
}

fn blocks_and_units(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &[1; 10_000])?;
    file.fsync()?;
    let stat = file.stat()?;
    holds(stat.blksize.is_power_of_two() && stat.blksize >= 512, "the best unit is a power of two")?;
    holds(stat.blocks * 512 >= 10_000, "what is written takes space")
}

fn new_files_belong_to_their_maker(t: &Tree<'_>) -> Outcome {
    let ann = t.user_in(super::ANN, super::CREW, &[super::BOB]);
    ann.create("f", 0o644)?;
    ann.mkdir("d", 0o755)?;
    ann.symlink("l", "x")?;
    ann.mknod("p", FileType::Fifo, 0o644)?;
    for name in ["f", "d", "l", "p"] {
        let stat = t.stat(name)?;
        same((stat.uid, stat.gid), (super::ANN, super::CREW))?;
    }
    let unnamed = ann.tmpfile(".", OFlags::RDWR, 0o600)?.stat()?;
    same((unnamed.uid, unnamed.gid), (super::ANN, super::CREW))
}

fn new_files_belong_to_the_crew_of_a_setgid_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o777)?;
    t.chown("d", None, Some(super::CREW))?;
    t.chmod("d", 0o2777)?;
    let ann = t.user(super::ANN);
    ann.create("d/f", 0o644)?;
    ann.mkdir("d/d", 0o755)?;
    ann.symlink("d/l", "x")?;
    for name in ["d/f", "d/d", "d/l"] {
        let stat = t.stat(name)?;
        same((stat.uid, stat.gid), (super::ANN, super::CREW))?;
    }
    same(t.stat("d/d")?.mode, bits(0o2755))?;
    // Set-group-id of a file that somebody makes who is not in the crew does not come into being.
    same(ann.create("d/g", 0o2755)?.stat()?.mode, bits(0o755))?;
    let member = t.user_in(super::BOB, super::BOB, &[super::CREW]);
    same(member.create("d/h", 0o2755)?.stat()?.mode, bits(0o2755))
}

fn only_the_owner_changes_the_mode(t: &Tree<'_>) -> Outcome {
    let (ann, bob) = (t.user(super::ANN), t.user_in(super::BOB, super::BOB, &[super::ANN]));
    ann.create("f", 0o666)?;
    fails(bob.chmod("f", 0o777), Errno::PERM)?;
    same(ann.chmod("f", 0o777)?.mode, bits(0o777))?;
    same(t.chmod("f", 0o600)?.mode, bits(0o600))
}

fn the_mode_of_others_files_loses_setgid(t: &Tree<'_>) -> Outcome {
    let ann = t.user(super::ANN);
    ann.create("f", 0o755)?;
    t.chown("f", None, Some(super::CREW))?;
    same(ann.chmod("f", 0o6755)?.mode, bits(0o4755))?;
    same(t.chmod("f", 0o6755)?.mode, bits(0o6755))
}

fn setgid_is_not_for_strangers_to_the_crew(t: &Tree<'_>) -> Outcome {
    let (stranger, member) = (t.user(super::ANN), t.user_in(super::ANN, super::ANN, &[super::CREW]));
    stranger.mkdir("d", 0o755)?;
    t.chown("d", None, Some(super::CREW))?;
    same(stranger.chmod("d", 0o2755)?.mode, bits(0o755))?;
    same(member.chmod("d", 0o2755)?.mode, bits(0o2755))
}
