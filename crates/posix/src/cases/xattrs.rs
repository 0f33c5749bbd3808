//! Extended attributes.

use wholly_vfs::{Errno, SetXattr};

use super::{ANN, one_of_each};
use crate::check::{Outcome, fails, same};
use crate::suite::table;
use crate::tree::Tree;

table!("xattrs";
    values_are_kept, values_are_bytes, empty_values, replacing_a_value, create_and_replace, removing,
    lists_tell_all, names_of_255_bytes, names_of_256_bytes, empty_names, values_of_3000_bytes, values_of_65536_bytes,
    values_of_65537_bytes, unknown_namespaces, user_attributes_of_other_types, directories_have_them_too,
    they_belong_to_the_inode, they_go_with_the_inode, many_attributes, renaming_keeps_them;
    users: user_attributes_take_the_files_permissions, trusted_attributes_are_the_superusers,
        user_attributes_of_sticky_directories, security_attributes_are_the_superusers, writing_drops_capabilities,
);

fn values_are_kept(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", b"value")?;
    same(t.xattr("f", "user.a")?, b"value".to_vec())?;
    fails(t.xattr("f", "user.b"), Errno::NODATA)?;
    fails(t.xattr("f", "user.A"), Errno::NODATA)
}

fn values_are_bytes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let value: Vec<u8> = (0..=255).collect();
    t.set_xattr("f", "user.a", &value)?;
    same(t.xattr("f", "user.a")?, value)
}

fn empty_values(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", b"")?;
    same(t.xattr("f", "user.a")?, vec![])?;
    same(t.xattrs("f")?, vec!["user.a".to_string()])
}

fn replacing_a_value(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    for len in [10, 1000, 3, 0, 2000, 1] {
        let value = vec![len as u8; len];
        t.set_xattr("f", "user.a", &value)?;
        same(t.xattr("f", "user.a")?, value)?;
    }
    same(t.xattrs("f")?.len(), 1)
}

fn create_and_replace(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.set_xattr_with("f", "user.a", b"1", SetXattr::Replace), Errno::NODATA)?;
    t.set_xattr_with("f", "user.a", b"2", SetXattr::Create)?;
    fails(t.set_xattr_with("f", "user.a", b"3", SetXattr::Create), Errno::EXIST)?;
    same(t.xattr("f", "user.a")?, b"2".to_vec())?;
    t.set_xattr_with("f", "user.a", b"4", SetXattr::Replace)?;
    same(t.xattr("f", "user.a")?, b"4".to_vec())
}

fn removing(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.remove_xattr("f", "user.a"), Errno::NODATA)?;
    t.set_xattr("f", "user.a", b"1")?;
    t.set_xattr("f", "user.b", b"2")?;
    t.remove_xattr("f", "user.a")?;
    fails(t.xattr("f", "user.a"), Errno::NODATA)?;
    same(t.xattrs("f")?, vec!["user.b".to_string()])
}

fn lists_tell_all(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    same(t.xattrs("f")?, vec![])?;
    for name in ["user.b", "user.a", "user.a.c"] {
        t.set_xattr("f", name, b"1")?;
    }
    same(t.xattrs("f")?, ["user.a", "user.a.c", "user.b"].map(String::from).to_vec())
}

fn names_of_255_bytes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let name = format!("user.{}", "x".repeat(250));
    t.set_xattr("f", &name, b"1")?;
    same(t.xattr("f", &name)?, b"1".to_vec())?;
    same(t.xattrs("f")?, vec![name])
}

fn names_of_256_bytes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let name = format!("user.{}", "x".repeat(251));
    fails(t.set_xattr("f", &name, b"1"), Errno::RANGE)?;
    fails(t.xattr("f", &name), Errno::RANGE)?;
    fails(t.remove_xattr("f", &name), Errno::RANGE)
}

fn empty_names(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.set_xattr("f", "", b"1"), Errno::RANGE)?;
    fails(t.set_xattr("f", "user.", b"1"), Errno::INVAL)
}

fn values_of_3000_bytes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", &[7; 3000])?;
    same(t.xattr("f", "user.a")?, vec![7; 3000])
}

fn values_of_65536_bytes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", &[7; 65_536])?;
    same(t.xattr("f", "user.a")?, vec![7; 65_536])
}

fn values_of_65537_bytes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.set_xattr("f", "user.a", &[7; 65_537]), Errno::TOOBIG)?;
    same(t.xattrs("f")?, vec![])
}

fn unknown_namespaces(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    for name in ["other.a", "a", "User.a", "system.other"] {
        fails(t.set_xattr("f", name, b"1"), Errno::OPNOTSUPP)?;
        fails(t.xattr("f", name), Errno::OPNOTSUPP)?;
    }
    same(t.xattrs("f")?, vec![])
}

fn user_attributes_of_other_types(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["link", "fifo", "socket"] {
        fails(t.set_xattr(name, "user.a", b"1"), Errno::PERM)?;
        fails(t.xattr(name, "user.a"), Errno::NODATA)?;
    }
    Ok(())
}

fn directories_have_them_too(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.set_xattr("d", "user.a", b"1")?;
    same(t.xattrs("d")?, vec!["user.a".to_string()])?;
    t.create("d/f", 0o644)?;
    same(t.xattrs("d/f")?, vec![])
}

fn they_belong_to_the_inode(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.link("f", "g")?;
    t.set_xattr("f", "user.a", b"1")?;
    same(t.xattr("g", "user.a")?, b"1".to_vec())
}

fn they_go_with_the_inode(t: &Tree<'_>) -> Outcome {
    for round in 0..5u8 {
        t.create("f", 0o644)?;
        same(t.xattrs("f")?, vec![])?;
        t.set_xattr("f", "user.a", &[round; 500])?;
        t.unlink("f")?;
    }
    Ok(())
}

fn many_attributes(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    let name = |number: u8| format!("user.attribute-{number:03}");
    for number in 0..60 {
        t.set_xattr("f", &name(number), &[number; 20])?;
    }
    for number in (0..60).step_by(3) {
        t.remove_xattr("f", &name(number))?;
    }
    let left: Vec<u8> = (0..60).filter(|number| number % 3 != 0).collect();
    same(t.xattrs("f")?, left.iter().map(|&number| name(number)).collect())?;
    for number in left {
        same(t.xattr("f", &name(number))?, vec![number; 20])?;
    }
    Ok(())
}

fn renaming_keeps_them(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", b"1")?;
    t.create("g", 0o644)?;
    t.set_xattr("g", "user.b", b"2")?;
    t.rename("f", "g")?;
    same(t.xattrs("g")?, vec!["user.a".to_string()])
}

fn user_attributes_take_the_files_permissions(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.set_xattr("f", "user.a", b"1")?;
    let ann = t.user(ANN);
    same(ann.xattr("f", "user.a")?, b"1".to_vec())?;
    fails(ann.set_xattr("f", "user.a", b"2"), Errno::ACCESS)?;
    fails(ann.remove_xattr("f", "user.a"), Errno::ACCESS)?;
    t.chmod("f", 0o622)?;
    fails(ann.xattr("f", "user.a"), Errno::ACCESS)?;
    ann.set_xattr("f", "user.a", b"3")?;
    same(ann.xattrs("f")?, vec!["user.a".to_string()])
}

fn trusted_attributes_are_the_superusers(t: &Tree<'_>) -> Outcome {
    let ann = t.user(ANN);
    ann.create("f", 0o666)?;
    t.set_xattr("f", "trusted.a", b"1")?;
    same((t.xattr("f", "trusted.a")?, t.xattrs("f")?), (b"1".to_vec(), vec!["trusted.a".to_string()]))?;
    fails(ann.xattr("f", "trusted.a"), Errno::NODATA)?;
    fails(ann.set_xattr("f", "trusted.a", b"2"), Errno::PERM)?;
    fails(ann.remove_xattr("f", "trusted.a"), Errno::PERM)?;
    same(ann.xattrs("f")?, vec![])?;
    // Also of what has no user's attributes.
    t.symlink("l", "x")?;
    t.set_xattr("l", "trusted.a", b"1")?;
    same(t.xattr("l", "trusted.a")?, b"1".to_vec())
}

fn user_attributes_of_sticky_directories(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o1777)?;
    fails(t.user(ANN).set_xattr("d", "user.a", b"1"), Errno::PERM)?;
    t.chown("d", Some(ANN), None)?;
    Ok(t.user(ANN).set_xattr("d", "user.a", b"1")?)
}

fn security_attributes_are_the_superusers(t: &Tree<'_>) -> Outcome {
    let ann = t.user(ANN);
    ann.create("f", 0o666)?;
    fails(ann.set_xattr("f", "security.wholly-test", b"1"), Errno::PERM)?;
    t.set_xattr("f", "security.wholly-test", b"1")?;
    same(ann.xattr("f", "security.wholly-test")?, b"1".to_vec())
}

/// `struct vfs_cap_data` of revision 2 (linux/capability.h): `CAP_NET_RAW`, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn writing_drops_capabilities(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o755)?;
    for round in 0..3 {
        t.set_xattr("f", "security.capability", &CAPABILITY)?;
        same(t.xattr("f", "security.capability")?, CAPABILITY.to_vec())?;
        // Even the superuser's.
        match round {
            0 => file.write_all(0, b"x")?,
            1 => _ = t.truncate("f", 5)?,
            _ => _ = t.chown("f", Some(ANN), None)?,
        }
        fails(t.xattr("f", "security.capability"), Errno::NODATA)?;
    }
    // Of a symbolic link they mean nothing, and go all the same.
    t.symlink("l", "f")?;
    t.set_xattr("l", "security.capability", &CAPABILITY)?;
    t.chown("l", Some(ANN), None)?;
    fails(t.xattr("l", "security.capability"), Errno::NODATA)
}
