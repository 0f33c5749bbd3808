//! Attributes: those that the layer has, in the order in which one does not change another. A change of owner takes
//! set-user-id and the capabilities of a program; an access list sets permission bits.

use rustix::fs::FileType;
use rustix::io::Errno;
use wholly_vfs::{Ino, SetAttr, SetXattr, Vfs};

use crate::error::Result;
use crate::group::{Group, OnGroup};
use crate::host::{OpenDir, Stat};
use crate::marks::Reader;

/// Gives an object owner, extended attributes and mode of what has `name` in a directory of the layer. Times are set
/// last, by whoever has done all else.
pub(crate) fn bring(
    group: &Group<'_>,
    reader: &Reader,
    ino: Ino,
    (dir, name): (&OpenDir, &[u8]),
    stat: &Stat,
    path: &[u8],
) -> Result<()> {
    let now = group.attributes(ino, path)?;
    let uid = (now.uid != stat.uid).then_some(stat.uid);
    let gid = (now.gid != stat.gid).then_some(stat.gid);
    if uid.is_some() || gid.is_some() {
        group.set(ino, &SetAttr { uid, gid, ..SetAttr::default() }, path)?;
    }
    bring_extended(group, reader, ino, (dir, name), path)?;
    let is_link = stat.kind == FileType::Symlink;
    if !is_link && group.attributes(ino, path)?.mode != stat.mode {
        group.set(ino, &SetAttr { mode: Some(stat.mode), ..SetAttr::default() }, path)?;
    }
    Ok(())
}

fn bring_extended(
    group: &Group<'_>,
    reader: &Reader,
    ino: Ino,
    (dir, name): (&OpenDir, &[u8]),
    path: &[u8],
) -> Result<()> {
    let ctx = group.superuser();
    let wanted = reader.shown_attributes(dir, name)?;
    let names = group.vfs.listxattr(&ctx, ino).of("listxattr", path)?;
    for had in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        // What overlayfs would have written below is in no view, and stays.
        if !wanted.contains_key(had) && !reader.is_own(had) {
            group.vfs.removexattr(&ctx, ino, had).of("removexattr", path)?;
        }
    }
    for (attribute, value) in &wanted {
        match group.vfs.getxattr(&ctx, ino, attribute) {
            Ok(had) if had == *value => continue,
            Ok(_) | Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno).of("getxattr", path),
        }
        group.vfs.setxattr(&ctx, ino, attribute, value, SetXattr::Any).of("setxattr", path)?;
    }
    Ok(())
}
