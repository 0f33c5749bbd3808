//! Reading directories.

use std::collections::BTreeMap;

use wholly_vfs::{Errno, FileType, Ino};

use super::one_of_each;
use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::{Name, Tree};

table!("directories";
    an_empty_one_has_two_names, types_and_numbers_are_told, one_at_a_time_is_all_at_once, goes_on_from_any_name,
    a_name_that_is_not_taken_comes_again, what_stays_comes_once_while_others_go, what_stays_comes_once_while_others_come,
    what_stays_comes_once_while_others_are_renamed, starting_again_sees_what_is_new, two_readers_do_not_meet,
    all_can_be_removed_while_it_is_read, other_types_cannot_be_read, the_end_stays_the_end, a_large_one_is_read_in_pieces,
    the_number_of_the_parent_is_told;
    users: reading_takes_read_permission,
);

fn an_empty_one_has_two_names(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let mut names = t.with_dir("d", |dir| t.read_open_dir(dir, 0, usize::MAX))?;
    names.sort_by(|one, other| one.name.cmp(&other.name));
    let told: Vec<_> = names.iter().map(|name| (&name.name[..], name.ino, name.kind)).collect();
    let wanted: Vec<(&[u8], Ino, FileType)> =
        vec![(b".", t.stat("d")?.ino, FileType::Directory), (b"..", t.at, FileType::Directory)];
    same(told, wanted)
}

fn types_and_numbers_are_told(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in t.names(".")? {
        let stat = t.stat(&name.name)?;
        same((name.ino, name.kind), (stat.ino, stat.kind))?;
    }
    same(t.names(".")?.len(), 5)
}

fn fill(t: &Tree<'_>, count: usize) -> Result<(), Errno> {
    (0..count).try_for_each(|number| t.symlink(format!("name {number}"), "x").map(drop))
}

fn one_at_a_time_is_all_at_once(t: &Tree<'_>) -> Outcome {
    fill(t, 60)?;
    t.with_dir(".", |dir| {
        let all = t.read_open_dir(dir, 0, usize::MAX)?;
        let (mut one_by_one, mut offset) = (Vec::new(), 0);
        while let Some(name) = t.read_open_dir(dir, offset, 1)?.pop() {
            offset = name.next;
            one_by_one.push(name.name);
        }
        Ok(same(one_by_one, all.into_iter().map(|name| name.name).collect()))
    })?
}

fn goes_on_from_any_name(t: &Tree<'_>) -> Outcome {
    fill(t, 40)?;
    t.with_dir(".", |dir| {
        let all: Vec<Name> = t.read_open_dir(dir, 0, usize::MAX)?;
        for (number, name) in all.iter().enumerate().rev() {
            let rest = t.read_open_dir(dir, name.next, usize::MAX)?;
            let names = |some: &[Name]| some.iter().map(|name| name.name.clone()).collect::<Vec<_>>();
            if let Err(failure) = same(names(&rest), names(&all[number + 1..])) {
                return Ok(Err(failure));
            }
        }
        Ok(Ok(()))
    })?
}

fn a_name_that_is_not_taken_comes_again(t: &Tree<'_>) -> Outcome {
    fill(t, 10)?;
    t.with_dir(".", |dir| {
        let first = t.read_open_dir(dir, 0, 3)?;
        let mut refused = Vec::new();
        t.vfs.readdir(&t.ctx, dir, first[2].next, &mut |entry| {
            refused = entry.name.to_vec();
            false
        })?;
        Ok(same(t.read_open_dir(dir, first[2].next, 1)?[0].name.clone(), refused))
    })?
}

/// Reads some names, lets `change` happen, reads the rest: how often each name came.
fn read_around(
    t: &Tree<'_>,
    some: usize,
    mut change: impl FnMut(usize) -> Result<(), Errno>,
) -> Result<BTreeMap<Vec<u8>, usize>, Errno> {
    t.with_dir(".", |dir| {
        let (mut counts, mut offset, mut round) = (BTreeMap::new(), 0, 0);
        loop {
            let names = t.read_open_dir(dir, offset, some)?;
            let Some(last) = names.last() else { return Ok(counts) };
            offset = last.next;
            names.into_iter().for_each(|name| *counts.entry(name.name).or_default() += 1);
            change(round)?;
            round += 1;
        }
    })
}

/// Those that were there all the while came once each.
fn each_once(counts: &BTreeMap<Vec<u8>, usize>, names: impl Iterator<Item = String>) -> Outcome {
    for name in names {
        same((name.clone(), counts.get(name.as_bytes())), (name, Some(&1)))?;
    }
    Ok(())
}

fn what_stays_comes_once_while_others_go(t: &Tree<'_>) -> Outcome {
    fill(t, 200)?;
    // From both ends, so that some go before they were read and some after.
    let counts = read_around(t, 7, |round| match round {
        0..25 => t.unlink(format!("name {}", round * 4)).and_then(|()| t.unlink(format!("name {}", 198 - round * 4))),
        _ => Ok(()),
    })?;
    each_once(&counts, (0..200).filter(|number| number % 2 == 1).map(|number| format!("name {number}")))?;
    holds(counts.values().all(|&count| count == 1), "no name comes twice")
}

fn what_stays_comes_once_while_others_come(t: &Tree<'_>) -> Outcome {
    fill(t, 100)?;
    let counts = read_around(t, 7, |round| match round {
        0..20 => (0..10).try_for_each(|number| t.symlink(format!("more {round} {number}"), "x").map(drop)),
        _ => Ok(()),
    })?;
    each_once(&counts, (0..100).map(|number| format!("name {number}")))?;
    holds(counts.values().all(|&count| count == 1), "no name comes twice")
}

fn what_stays_comes_once_while_others_are_renamed(t: &Tree<'_>) -> Outcome {
    fill(t, 100)?;
    let counts = read_around(t, 7, |round| match round {
        0..14 => t.rename(format!("name {}", round * 3), format!("renamed {round}")),
        _ => Ok(()),
    })?;
    each_once(&counts, (0..100).filter(|number| number % 3 != 0).map(|number| format!("name {number}")))
}

fn starting_again_sees_what_is_new(t: &Tree<'_>) -> Outcome {
    fill(t, 3)?;
    t.with_dir(".", |dir| {
        let before = t.read_open_dir(dir, 0, usize::MAX)?.len();
        t.create("new", 0o644)?;
        t.unlink("name 0")?;
        let after = t.read_open_dir(dir, 0, usize::MAX)?;
        Ok(same(before, after.len()).and(holds(after.iter().any(|name| name.name == b"new"), "the new name comes")))
    })?
}

fn two_readers_do_not_meet(t: &Tree<'_>) -> Outcome {
    fill(t, 30)?;
    let (one, two) = t.with_dir(".", |one| {
        t.with_dir(".", |two| {
            let (mut from_one, mut from_two) = (t.read_open_dir(one, 0, 10)?, t.read_open_dir(two, 0, 20)?);
            from_one.extend(t.read_open_dir(one, from_one[9].next, usize::MAX)?);
            from_two.extend(t.read_open_dir(two, from_two[19].next, usize::MAX)?);
            Ok((from_one, from_two))
        })
    })?;
    same(one.len(), 32)?;
    same(one, two)
}

fn all_can_be_removed_while_it_is_read(t: &Tree<'_>) -> Outcome {
    // As `rm -r` does.
    t.mkdir("d", 0o755)?;
    let place = t.find("d")?;
    let d = Tree { at: place.ino(), ..t.clone() };
    fill(&d, 300)?;
    d.with_dir(".", |dir| {
        let mut offset = 0;
        loop {
            let names = d.read_open_dir(dir, offset, 11)?;
            let Some(last) = names.last() else { return Ok(()) };
            offset = last.next;
            for name in names.iter().filter(|name| name.kind != FileType::Directory) {
                d.unlink(&name.name)?;
            }
        }
    })?;
    Ok(t.rmdir("d")?)
}

fn other_types_cannot_be_read(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in super::NO_DIRECTORIES {
        fails(t.with_dir(name, |_| Ok(())), Errno::NOTDIR)?;
    }
    Ok(())
}

fn the_end_stays_the_end(t: &Tree<'_>) -> Outcome {
    fill(t, 3)?;
    t.with_dir(".", |dir| {
        let end = t.read_open_dir(dir, 0, usize::MAX)?.pop().map_or(0, |name| name.next);
        Ok(same(t.read_open_dir(dir, end, 10)?, vec![]).and(same(t.read_open_dir(dir, end, 10)?, vec![])))
    })?
}

fn a_large_one_is_read_in_pieces(t: &Tree<'_>) -> Outcome {
    fill(t, 1000)?;
    let counts = read_around(t, 64, |_| Ok(()))?;
    each_once(&counts, (0..1000).map(|number| format!("name {number}")))?;
    same(counts.len(), 1002)
}

fn the_number_of_the_parent_is_told(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    let listed = t.with_dir("d", |dir| t.read_open_dir(dir, 0, usize::MAX))?;
    same(listed.into_iter().find(|name| name.name == b"..").map(|name| name.ino), Some(t.stat(".")?.ino))
}

fn reading_takes_read_permission(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o733)?;
    t.create("d/f", 0o644)?;
    let ann = t.user(super::ANN);
    fails(ann.names("d"), Errno::ACCESS)?;
    ann.stat("d/f")?;
    t.chmod("d", 0o744)?;
    same(ann.names("d")?.len(), 1)?;
    fails(ann.stat("d/f"), Errno::ACCESS)
}
