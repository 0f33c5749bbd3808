//! Renaming.

use wholly_vfs::{Errno, FileType, Rename};

use crate::check::{Failure, Outcome, fails, same};
use crate::suite::table;
use crate::tree::{Tree, bits};

table!("rename";
    moves_a_file, moves_a_directory_with_all_in_it, replaces_a_file, replaces_an_empty_directory, of_nothing,
    into_no_directory, to_itself_does_nothing, of_two_names_of_one_file_does_nothing, refuses_full_directories,
    refuses_a_directory_into_itself, refuses_a_directory_onto_what_it_is_in, changes_the_parent,
    noreplace_moves, noreplace_refuses_what_is_there, noreplace_refuses_itself, exchange_swaps,
    exchange_needs_both, exchange_with_itself, exchange_refuses_ancestors, exchange_changes_the_parents,
    exchange_of_two_names_of_one_file, keeps_links_as_they_are, in_one_directory_many_times;
    users: whiteout_takes_the_old_name, whiteout_of_a_directory, whiteout_of_two_names_of_one_file, whiteout_takes_no_privileges,
);

/// Nothing else has changed by a call that failed.
#[track_caller]
fn refused(t: &Tree<'_>, old: &str, new: &str, flags: Rename, errno: Errno) -> Outcome {
    let before = (t.stat(old), t.stat(new));
    fails(t.rename_with(old, new, flags), errno)
        .map_err(|failure| Failure::new(format!("{old} to {new}: {failure}")))?;
    same((t.stat(old), t.stat(new)), before)
}

const NONE: Rename = Rename::Replace;

fn moves_a_file(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o640, b"abc")?;
    t.mkdir("d", 0o755)?;
    t.rename("f", "g")?;
    fails(t.stat("f"), Errno::NOENT)?;
    t.rename("g", "d/h")?;
    fails(t.stat("g"), Errno::NOENT)?;
    same((t.stat("d/h")?.ino, t.content("d/h")?), (file.ino, b"abc".to_vec()))
}

fn moves_a_directory_with_all_in_it(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/b", "a/b/c", "d"] {
        t.mkdir(name, 0o755)?;
    }
    t.file("a/b/c/f", 0o644, b"abc")?;
    let deep = t.find("a/b/c")?;
    t.rename("a/b", "d/e")?;
    fails(t.stat("a/b"), Errno::NOENT)?;
    same(t.content("d/e/c/f")?, b"abc".to_vec())?;
    same(Tree { at: deep.ino(), ..t.clone() }.content("f")?, b"abc".to_vec())
}

fn replaces_a_file(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"new")?;
    t.file("g", 0o644, b"old")?;
    t.rename("f", "g")?;
    same(t.content("g")?, b"new".to_vec())?;
    same(t.names(".")?.len(), 1)
}

fn replaces_an_empty_directory(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/b", "c"] {
        t.mkdir(name, 0o755)?;
    }
    t.rename("a", "c")?;
    fails(t.stat("a"), Errno::NOENT)?;
    same(t.names("c")?.len(), 1)
}

fn of_nothing(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    refused(t, "x", "y", NONE, Errno::NOENT)?;
    refused(t, "x", "f", NONE, Errno::NOENT)?;
    refused(t, "x", "f", Rename::NoReplace, Errno::NOENT)?;
    refused(t, "x/y", "z", NONE, Errno::NOENT)
}

fn into_no_directory(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.create("g", 0o644)?;
    refused(t, "f", "g/h", NONE, Errno::NOTDIR)?;
    refused(t, "f", "x/h", NONE, Errno::NOENT)?;
    refused(t, "f/x", "h", NONE, Errno::NOTDIR)
}

fn to_itself_does_nothing(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.mkdir("d", 0o755)?;
    t.rename("f", "f")?;
    t.rename("d", "d")?;
    t.rename("d/../f", "./f")?;
    same(t.content("f")?, b"abc".to_vec())?;
    same(t.names(".")?.len(), 2)
}

fn of_two_names_of_one_file_does_nothing(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.link("f", "g")?;
    t.rename("f", "g")?;
    same((t.stat("f")?.nlink, t.names(".")?.len()), (2, 2))
}

fn refuses_full_directories(t: &Tree<'_>) -> Outcome {
    for name in ["a", "b", "c", "b/d"] {
        t.mkdir(name, 0o755)?;
    }
    t.create("c/f", 0o644)?;
    refused(t, "a", "b", NONE, Errno::NOTEMPTY)?;
    refused(t, "a", "c", NONE, Errno::NOTEMPTY)?;
    refused(t, "b", "c", NONE, Errno::NOTEMPTY)
}

fn refuses_a_directory_into_itself(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/b", "a/b/c"] {
        t.mkdir(name, 0o755)?;
    }
    for new in ["a/x", "a/b/x", "a/b/c/x", "a/b", "a/b/c"] {
        refused(t, "a", new, NONE, Errno::INVAL)?;
    }
    refused(t, "a/b", "a/b/x", NONE, Errno::INVAL)?;
    refused(t, "a", "a/x", Rename::NoReplace, Errno::INVAL)
}

fn refuses_a_directory_onto_what_it_is_in(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/b", "a/b/c"] {
        t.mkdir(name, 0o755)?;
    }
    t.create("a/b/f", 0o644)?;
    for old in ["a/b", "a/b/c", "a/b/f"] {
        refused(t, old, "a", NONE, Errno::NOTEMPTY)?;
    }
    refused(t, "a/b/f", "a/b", NONE, Errno::NOTEMPTY)
}

fn changes_the_parent(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/b", "c"] {
        t.mkdir(name, 0o755)?;
    }
    t.rename("a/b", "c/b")?;
    same(t.stat("c/b/..")?.ino, t.stat("c")?.ino)?;
    let listed = t.with_dir("c/b", |dir| t.read_open_dir(dir, 0, usize::MAX))?;
    let parent = listed.into_iter().find(|name| name.name == b"..").map(|name| name.ino);
    same(parent, Some(t.stat("c")?.ino))
}

fn noreplace_moves(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.mkdir("d", 0o755)?;
    t.rename_with("f", "d/g", Rename::NoReplace)?;
    t.rename_with("d", "e", Rename::NoReplace)?;
    same(t.content("e/g")?, b"abc".to_vec())
}

fn noreplace_refuses_what_is_there(t: &Tree<'_>) -> Outcome {
    super::one_of_each(t)?;
    t.file("f", 0o644, b"abc")?;
    t.mkdir("d", 0o755)?;
    for new in ["file", "dir", "link", "fifo", "socket"] {
        refused(t, "f", new, Rename::NoReplace, Errno::EXIST)?;
        refused(t, "d", new, Rename::NoReplace, Errno::EXIST)?;
    }
    Ok(())
}

fn noreplace_refuses_itself(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.link("f", "g")?;
    refused(t, "f", "f", Rename::NoReplace, Errno::EXIST)?;
    refused(t, "f", "g", Rename::NoReplace, Errno::EXIST)
}

fn exchange_swaps(t: &Tree<'_>) -> Outcome {
    super::one_of_each(t)?;
    t.create("dir/x", 0o644)?;
    let names = ["file", "dir", "link", "fifo", "socket"];
    for one in names {
        for other in names {
            let (first, second) = (t.stat(one)?.ino, t.stat(other)?.ino);
            t.rename_with(one, other, Rename::Exchange)?;
            same((t.stat(one)?.ino, t.stat(other)?.ino), (second, first))?;
            t.rename_with(other, one, Rename::Exchange)?;
        }
    }
    same(t.names(".")?.len(), 5)?;
    same(t.names("dir")?.len(), 1)
}

fn exchange_needs_both(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    refused(t, "f", "x", Rename::Exchange, Errno::NOENT)?;
    refused(t, "x", "f", Rename::Exchange, Errno::NOENT)
}

fn exchange_with_itself(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.rename_with("f", "f", Rename::Exchange)?;
    same(t.content("f")?, b"abc".to_vec())
}

fn exchange_refuses_ancestors(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/b", "a/b/c"] {
        t.mkdir(name, 0o755)?;
    }
    t.create("a/b/f", 0o644)?;
    for below in ["a/b", "a/b/c", "a/b/f"] {
        refused(t, "a", below, Rename::Exchange, Errno::INVAL)?;
        refused(t, below, "a", Rename::Exchange, Errno::INVAL)?;
    }
    Ok(())
}

fn exchange_changes_the_parents(t: &Tree<'_>) -> Outcome {
    for name in ["a", "b", "a/x", "b/y", "a/x/in-x"] {
        t.mkdir(name, 0o755)?;
    }
    t.rename_with("a/x", "b/y", Rename::Exchange)?;
    same(t.stat("b/y/..")?.ino, t.stat("b")?.ino)?;
    same(t.stat("a/x/..")?.ino, t.stat("a")?.ino)?;
    same((t.names("b/y")?.len(), t.names("a/x")?.len()), (1, 0))
}

fn exchange_of_two_names_of_one_file(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.link("f", "g")?;
    t.rename_with("f", "g", Rename::Exchange)?;
    same(t.names(".")?.len(), 2)
}

fn keeps_links_as_they_are(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.symlink("l", "f")?;
    t.rename("l", "m")?;
    same((t.readlink("m")?, t.content("f")?), (b"f".to_vec(), b"abc".to_vec()))?;
    t.create("g", 0o644)?;
    t.rename("g", "m")?;
    same(t.content("f")?, b"abc".to_vec())
}

fn in_one_directory_many_times(t: &Tree<'_>) -> Outcome {
    let file = t.file("0", 0o644, b"abc")?;
    for number in 0..300 {
        // Names of changing lengths move within the directory's blocks.
        let name = |number: usize| format!("{number}{}", "x".repeat(number * 7 % 200));
        t.rename(if number == 0 { "0".into() } else { name(number) }, name(number + 1))?;
    }
    let names = t.names(".")?;
    same((names.len(), names[0].ino), (1, file.ino))
}

fn is_whiteout(t: &Tree<'_>, name: &str) -> Outcome {
    let left = t.stat(name)?;
    same((left.kind, left.rdev, left.mode, left.nlink), (FileType::CharacterDevice, 0, bits(0), 1))
}

fn whiteout_takes_the_old_name(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    t.mkdir("d", 0o755)?;
    t.rename_with("f", "g", Rename::Whiteout)?;
    same((t.stat("g")?.ino, t.content("g")?), (file.ino, b"abc".to_vec()))?;
    is_whiteout(t, "f")?;
    t.file("d/h", 0o644, b"old")?;
    t.rename_with("g", "d/h", Rename::Whiteout)?;
    same((t.stat("d/h")?.ino, t.content("d/h")?), (file.ino, b"abc".to_vec()))?;
    is_whiteout(t, "g")?;
    // A whiteout is a file like others.
    t.rename_with("g", "f", Rename::Whiteout)?;
    is_whiteout(t, "f")?;
    is_whiteout(t, "g")?;
    refused(t, "f", "g", Rename::WhiteoutNoReplace, Errno::EXIST)?;
    refused(t, "f", "d", Rename::Whiteout, Errno::ISDIR)?;
    t.unlink("f")?;
    t.unlink("g")?;
    same(t.names(".")?.len(), 1)
}

fn whiteout_of_a_directory(t: &Tree<'_>) -> Outcome {
    for name in ["a", "a/d", "b", "b/e"] {
        t.mkdir(name, 0o755)?;
    }
    t.file("a/d/f", 0o644, b"abc")?;
    t.rename_with("a/d", "b/e", Rename::Whiteout)?;
    is_whiteout(t, "a/d")?;
    same(t.content("b/e/f")?, b"abc".to_vec())?;
    same((t.stat("a")?.nlink, t.stat("b")?.nlink), (2, 3))?;
    same(t.stat("b/e/..")?.ino, t.stat("b")?.ino)?;
    t.rename_with("b/e", "b/f", Rename::WhiteoutNoReplace)?;
    is_whiteout(t, "b/e")?;
    same((t.content("b/f/f")?, t.stat("b")?.nlink), (b"abc".to_vec(), 3))
}

fn whiteout_of_two_names_of_one_file(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.link("f", "g")?;
    t.rename_with("f", "g", Rename::Whiteout)?;
    same((t.content("f")?, t.content("g")?), (b"abc".to_vec(), b"abc".to_vec()))
}

fn whiteout_takes_no_privileges(t: &Tree<'_>) -> Outcome {
    let ann = t.user(super::ANN);
    ann.file("f", 0o644, b"abc")?;
    ann.rename_with("f", "g", Rename::Whiteout)?;
    same((ann.content("g")?, ann.stat("f")?.uid), (b"abc".to_vec(), super::ANN))?;
    is_whiteout(t, "f")?;
    ann.unlink("f")?;
    Ok(())
}
