//! POSIX ACLs, as Linux keeps them: the attributes `system.posix_acl_access` and `system.posix_acl_default` (acl(5),
//! linux/posix_acl_xattr.h).

use wholly_vfs::{Access, Errno, FileType, OFlags};

use super::{ANN, BOB, CREW};
use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::{Tree, bits};

table!("acl";
    a_plain_mode_is_no_acl, an_acl_is_kept, bad_acls_are_refused, only_directories_have_defaults,
    an_acl_like_the_mode_vanishes, the_mask_is_the_mode_of_the_group, chmod_changes_the_mask, a_default_is_passed_on,
    a_default_takes_the_umasks_place;
    users: a_named_user_gets_in, the_mask_limits, a_named_crew_gets_in, only_the_owner_sets_one,
);

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// An ACL of these entries: tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const NOBODY: u32 = u32::MAX;

fn for_ann(permissions: u16, mask: u16) -> Vec<u8> {
    acl(&[(OWNER, 6, NOBODY), (USER, permissions, ANN), (OWNING, 4, NOBODY), (MASK, mask, NOBODY), (OTHER, 0, NOBODY)])
}

fn a_plain_mode_is_no_acl(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.xattr("f", ACCESS), Errno::NODATA)?;
    fails(t.xattr("f", DEFAULT), Errno::NODATA)?;
    same(t.xattrs("f")?, vec![])
}

fn an_acl_is_kept(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", ACCESS, &for_ann(6, 7))?;
    same(t.xattr("f", ACCESS)?, for_ann(6, 7))?;
    same(t.xattrs("f")?, vec![ACCESS.to_string()])?;
    t.remove_xattr("f", ACCESS)?;
    fails(t.xattr("f", ACCESS), Errno::NODATA)
}

fn bad_acls_are_refused(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let no_mask = acl(&[(OWNER, 6, NOBODY), (USER, 6, ANN), (OWNING, 4, NOBODY), (OTHER, 0, NOBODY)]);
    let no_owner = acl(&[(OWNING, 4, NOBODY), (OTHER, 0, NOBODY)]);
    let unknown = acl(&[(OWNER, 6, NOBODY), (OWNING, 4, NOBODY), (OTHER, 0, NOBODY), (0x40, 0, NOBODY)]);
    for bad in [no_mask, no_owner, unknown, vec![2, 0, 0, 0, 1]] {
        fails(t.set_xattr("f", ACCESS, &bad), Errno::INVAL)?;
    }
    fails(t.set_xattr("f", ACCESS, &[9, 0, 0, 0]), Errno::OPNOTSUPP)?;
    same(t.stat("f")?.mode, bits(0o644))
}

fn only_directories_have_defaults(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.mkdir("d", 0o755)?;
    t.symlink("l", "f")?;
    fails(t.set_xattr("f", DEFAULT, &for_ann(6, 7)), Errno::ACCESS)?;
    fails(t.set_xattr("l", ACCESS, &for_ann(6, 7)), Errno::OPNOTSUPP)?;
    Ok(t.set_xattr("d", DEFAULT, &for_ann(6, 7))?)
}

fn an_acl_like_the_mode_vanishes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", ACCESS, &acl(&[(OWNER, 7, NOBODY), (OWNING, 5, NOBODY), (OTHER, 1, NOBODY)]))?;
    same(t.stat("f")?.mode, bits(0o751))?;
    fails(t.xattr("f", ACCESS), Errno::NODATA)
}

fn the_mask_is_the_mode_of_the_group(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", ACCESS, &for_ann(6, 7))?;
    same(t.stat("f")?.mode, bits(0o670))
}

fn chmod_changes_the_mask(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", ACCESS, &for_ann(6, 7))?;
    t.chmod("f", 0o624)?;
    let mut wanted = for_ann(6, 2);
    let other = wanted.len() - 6;
    wanted[other] = 4;
    same(t.xattr("f", ACCESS)?, wanted)
}

fn a_default_is_passed_on(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.set_xattr("d", DEFAULT, &for_ann(7, 7))?;
    t.mkdir("d/e", 0o777)?;
    same((t.xattr("d/e", DEFAULT)?, t.xattr("d/e", ACCESS)?), (for_ann(7, 7), for_ann(7, 7)))?;
    t.create("d/f", 0o640)?;
    same(t.xattr("d/f", ACCESS)?, for_ann(7, 4))?;
    fails(t.xattr("d/f", DEFAULT), Errno::NODATA)?;
    t.mknod("d/p", FileType::Fifo, 0o666)?;
    same(t.xattr("d/p", ACCESS)?, for_ann(7, 6))
}

fn a_default_takes_the_umasks_place(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.set_xattr("d", DEFAULT, &acl(&[(OWNER, 6, NOBODY), (OWNING, 6, NOBODY), (OTHER, 4, NOBODY)]))?;
    same(t.umask(0o777).create("d/f", 0o666)?.stat()?.mode, bits(0o664))?;
    same(t.umask(0o777).create("d/g", 0o600)?.stat()?.mode, bits(0o600))
}

fn a_named_user_gets_in(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o600, b"abc")?;
    t.set_xattr("f", ACCESS, &for_ann(4, 7))?;
    let (ann, bob) = (t.user(ANN), t.user(BOB));
    same(ann.content("f")?, b"abc".to_vec())?;
    fails(ann.open("f", OFlags::WRONLY), Errno::ACCESS)?;
    fails(bob.open("f", OFlags::RDONLY), Errno::ACCESS)?;
    ann.access("f", Access::READ_OK)?;
    fails(ann.access("f", Access::WRITE_OK), Errno::ACCESS)
}

fn the_mask_limits(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o600)?;
    t.set_xattr("f", ACCESS, &for_ann(7, 2))?;
    fails(t.user(ANN).open("f", OFlags::RDONLY), Errno::ACCESS)?;
    t.user(ANN).open("f", OFlags::WRONLY)?;
    Ok(())
}

fn a_named_crew_gets_in(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o600)?;
    let entries = [(OWNER, 6, NOBODY), (OWNING, 0, NOBODY), (GROUP, 6, CREW), (MASK, 6, NOBODY), (OTHER, 0, NOBODY)];
    t.set_xattr("f", ACCESS, &acl(&entries))?;
    t.user_in(BOB, BOB, &[CREW]).open("f", OFlags::RDWR)?;
    fails(t.user(BOB).open("f", OFlags::RDWR), Errno::ACCESS)
}

fn only_the_owner_sets_one(t: &Tree<'_>) -> Outcome {
    t.user(ANN).create("f", 0o666)?;
    fails(t.user(BOB).set_xattr("f", ACCESS, &for_ann(6, 7)), Errno::PERM)?;
    Ok(t.user(ANN).set_xattr("f", ACCESS, &for_ann(6, 7))?)
}
