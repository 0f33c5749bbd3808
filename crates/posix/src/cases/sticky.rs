//! Sticky directories: everybody makes names there, and takes away his own only.

use wholly_vfs::{Errno, Rename};

use super::{ANN, BOB};
use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("sticky";;
    users: others_files_stay, own_files_go, the_directorys_owner_takes_all, the_superuser_takes_all,
        others_directories_stay, others_files_are_not_renamed, others_files_are_not_replaced,
        others_files_are_not_exchanged, others_files_are_not_moved_out, own_files_move_in,
);

/// A sticky directory of Bob's with a file of each, full of names.
fn sticky(t: &Tree<'_>) -> Result<(), Errno> {
    t.mkdir("s", 0o1777)?;
    t.mkdir("plain", 0o777)?;
    t.chown("s", Some(0), Some(0))?;
    t.user(ANN).file("s/anns", 0o666, b"ann")?;
    t.user(BOB).file("s/bobs", 0o666, b"bob")?;
    t.user(BOB).mkdir("s/dir", 0o777)?;
    Ok(())
}

fn others_files_stay(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    fails(t.user(ANN).unlink("s/bobs"), Errno::PERM)?;
    same(t.content("s/bobs")?, b"bob".to_vec())
}

fn own_files_go(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    t.user(ANN).unlink("s/anns")?;
    Ok(t.user(BOB).rmdir("s/dir")?)
}

fn the_directorys_owner_takes_all(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    t.chown("s", Some(ANN), None)?;
    t.user(ANN).unlink("s/bobs")?;
    Ok(t.user(ANN).rmdir("s/dir")?)
}

fn the_superuser_takes_all(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    t.chown("s", Some(ANN), None)?;
    t.unlink("s/bobs")?;
    Ok(t.rename("s/anns", "plain/x")?)
}

fn others_directories_stay(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    fails(t.user(ANN).rmdir("s/dir"), Errno::PERM)
}

fn others_files_are_not_renamed(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    fails(t.user(ANN).rename("s/bobs", "s/x"), Errno::PERM)?;
    Ok(t.user(BOB).rename("s/bobs", "s/x")?)
}

fn others_files_are_not_replaced(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    fails(t.user(ANN).rename("s/anns", "s/bobs"), Errno::PERM)?;
    t.user(ANN).create("plain/f", 0o644)?;
    fails(t.user(ANN).rename("plain/f", "s/bobs"), Errno::PERM)
}

fn others_files_are_not_exchanged(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    fails(t.user(ANN).rename_with("s/anns", "s/bobs", Rename::Exchange), Errno::PERM)?;
    fails(t.user(ANN).rename_with("s/bobs", "s/anns", Rename::Exchange), Errno::PERM)
}

fn others_files_are_not_moved_out(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    fails(t.user(ANN).rename("s/bobs", "plain/x"), Errno::PERM)?;
    Ok(t.user(ANN).rename("s/anns", "plain/x")?)
}

fn own_files_move_in(t: &Tree<'_>) -> Outcome {
    sticky(t)?;
    t.user(ANN).create("plain/f", 0o644)?;
    Ok(t.user(ANN).rename("plain/f", "s/f")?)
}
