//! Setting times.

use wholly_vfs::{Errno, SetTime, Timestamp};

use super::ANN;
use super::before::{Before, PAST};
use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::{Tree, at};

table!("set_times";
    utimes_sets_both, utimes_sets_one, utimes_of_now, utimes_changes_ctime, utimes_of_nothing_changes_nothing,
    utimes_of_symlinks, utimes_before_1970, utimes_beyond_2038, utimes_refuses_bad_nanoseconds,
    times_are_kept_to_the_nanosecond;
    users: owners_set_times, writers_set_now, readers_set_nothing, writers_do_not_set_given_times,
);

fn utimes_sets_both(t: &Tree<'_>) -> Outcome {
    super::one_of_each(t)?;
    for name in ["file", "dir", "link", "fifo", "socket"] {
        t.utimes(name, at(5000), at(6000))?;
        let stat = t.stat(name)?;
        same((SetTime::At(stat.atime), SetTime::At(stat.mtime)), (at(5000), at(6000)))?;
    }
    Ok(())
}

fn utimes_sets_one(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    let before = Before::of(t, &["f"])?;
    t.utimes("f", at(5000), SetTime::Omit)?;
    before.expect("f", "ac")?;
    same(SetTime::At(file.stat()?.atime), at(5000))?;
    let before = Before::of(t, &["f"])?;
    file.utimes(SetTime::Omit, at(6000))?;
    before.expect("f", "mc")?;
    same(SetTime::At(file.stat()?.mtime), at(6000))
}

fn utimes_of_now(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.utimes("f", at(PAST), at(PAST))?;
    let both = t.utimes("f", SetTime::Now, SetTime::Now)?;
    same((both.atime, both.mtime), (both.ctime, both.ctime))?;
    let one = t.utimes("f", at(5), SetTime::Now)?;
    same((SetTime::At(one.atime), one.mtime), (at(5), one.ctime))
}

fn utimes_changes_ctime(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let before = Before::of(t, &["f"])?;
    t.utimes("f", at(PAST), at(PAST))?;
    before.expect("f", "c")
}

fn utimes_of_nothing_changes_nothing(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let before = Before::of(t, &["f"])?;
    t.utimes("f", SetTime::Omit, SetTime::Omit)?;
    before.expect("f", "")
}

fn utimes_of_symlinks(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    t.utimes("f", at(1000), at(1000))?;
    t.utimes("l", at(2000), at(2000))?;
    let (link, file) = (t.stat("l")?, t.stat("f")?);
    same((SetTime::At(link.mtime), SetTime::At(file.mtime)), (at(2000), at(1000)))
}

fn utimes_before_1970(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.utimes("f", at(-5000), at(-1))?;
    let stat = t.stat("f")?;
    same((SetTime::At(stat.atime), SetTime::At(stat.mtime)), (at(-5000), at(-1)))
}

fn utimes_beyond_2038(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    // To 2446: ext4 goes no further.
    for sec in [1 << 31, 1 << 32, 15_032_385_534] {
        same(SetTime::At(t.utimes("f", SetTime::Omit, at(sec))?.mtime), at(sec))?;
    }
    Ok(())
}

fn utimes_refuses_bad_nanoseconds(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let bad = SetTime::At(Timestamp { sec: 1, nsec: 1_000_000_000 });
    fails(t.utimes("f", bad, SetTime::Omit), Errno::INVAL)?;
    fails(t.utimes("f", SetTime::Omit, bad), Errno::INVAL)
}

fn times_are_kept_to_the_nanosecond(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    for nsec in [0, 1, 999_999_999] {
        let time = Timestamp { sec: 77, nsec };
        same(t.utimes("f", SetTime::At(time), SetTime::At(time))?.mtime, time)?;
    }
    Ok(())
}

fn owners_set_times(t: &Tree<'_>) -> Outcome {
    let ann = t.user(ANN);
    ann.create("f", 0)?;
    ann.utimes("f", at(5), at(6))?;
    ann.utimes("f", SetTime::Now, SetTime::Now)?;
    Ok(())
}

fn writers_set_now(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o666)?;
    t.user(ANN).utimes("f", SetTime::Now, SetTime::Now)?;
    Ok(())
}

fn readers_set_nothing(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let ann = t.user(ANN);
    fails(ann.utimes("f", SetTime::Now, SetTime::Now), Errno::ACCESS)?;
    fails(ann.utimes("f", at(5), at(6)), Errno::PERM)
}

fn writers_do_not_set_given_times(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o666)?;
    let ann = t.user(ANN);
    fails(ann.utimes("f", at(5), at(6)), Errno::PERM)?;
    fails(ann.utimes("f", SetTime::Now, at(6)), Errno::PERM)?;
    fails(ann.utimes("f", SetTime::Now, SetTime::Omit), Errno::PERM)
}
