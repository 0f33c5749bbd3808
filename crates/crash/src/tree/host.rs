//! The same ops, on a host directory.

use std::sync::Arc;

use wholly_host::{HostFile, HostFs};
use wholly_media::Site;

use super::attributes::{OWNER, times};
use super::{DIR_MODE, FIFO_MODE, FILE_MODE};
use crate::look::FIFO;
use crate::workload::{ADOPTED, Adopted, Op};

/// At which a program makes its calls that is no store.
pub(crate) const SITE: Site = Site("bystander");

/// Does an op; `file`, where it is open, is the one whose bytes it changes. Returns a file that it made.
pub(crate) fn on_host(
    fs: &dyn HostFs,
    file: Option<&Arc<dyn HostFile>>,
    op: &Op,
    bytes: &[u8],
) -> wholly_media::Result<Option<Arc<dyn HostFile>>> {
    let opened = |path: &str| match file {
        Some(file) => Ok(file.clone()),
        None => fs.open(path.as_bytes(), true),
    };
    match *op {
        Op::Create(path) => return fs.create(SITE, path.as_bytes(), FILE_MODE).map(Some),
        Op::Mkdir(path) => fs.mkdir(SITE, path.as_bytes(), DIR_MODE),
        Op::Adopt { path, what } => bring(fs, path, what, bytes),
        Op::Mknod(path) => fs.mknod(SITE, path.as_bytes(), FIFO | FIFO_MODE, 0),
        Op::Symlink { target, path } => fs.symlink(SITE, target.as_bytes(), path.as_bytes()),
        Op::Link { from, to } => fs.hard_link(SITE, from.as_bytes(), to.as_bytes()),
        Op::Unlink(path) => fs.unlink(SITE, path.as_bytes()),
        Op::Rmdir(path) => fs.rmdir(SITE, path.as_bytes()),
        Op::RemoveTree(path) => remove_tree(fs, path.as_bytes()),
        Op::Rename { from, to, how } => fs.rename(SITE, from.as_bytes(), to.as_bytes(), how),
        Op::Write { file: path, offset, .. } => opened(path)?.write_at(SITE, offset, bytes),
        Op::Append { file: path, .. } => {
            let file = opened(path)?;
            file.write_at(SITE, file.stat()?.size, bytes)
        }
        Op::SetLen { file: path, length } => opened(path)?.set_len(SITE, length),
        Op::Fallocate { file: path, how, offset, length } => opened(path)?.fallocate(SITE, how, offset, length),
        Op::SetMode { path, mode } => fs.set_mode(SITE, path.as_bytes(), mode),
        Op::SetOwner(path) => fs.set_owner(SITE, path.as_bytes(), Some(OWNER.0), Some(OWNER.1)),
        Op::SetTimes { path, atime, mtime } => {
            let (accessed, changed) = times(bytes);
            fs.set_times(SITE, path.as_bytes(), atime.then_some(accessed), mtime.then_some(changed))
        }
        Op::SetXattr { path, name, how, .. } => fs.set_xattr(SITE, path.as_bytes(), name.as_bytes(), bytes, how),
        Op::RemoveXattr { path, name } => fs.remove_xattr(SITE, path.as_bytes(), name.as_bytes()),
    }
    .map(|()| None)
}

fn remove_tree(fs: &dyn HostFs, path: &[u8]) -> wholly_media::Result<()> {
    for entry in fs.read_dir(path)? {
        let at = [path, b"/", &entry.name].concat();
        match fs.read_dir(&at) {
            Ok(_) => remove_tree(fs, &at)?,
            Err(_) => fs.unlink(SITE, &at)?,
        }
    }
    fs.rmdir(SITE, path)
}

/// Makes what an [`Op::Adopt`] brings.
fn bring(fs: &dyn HostFs, path: &str, what: Adopted, bytes: &[u8]) -> wholly_media::Result<()> {
    let file = |path: &str, bytes: &[u8]| fs.create(SITE, path.as_bytes(), FILE_MODE)?.write_at(SITE, 0, bytes);
    if what != Adopted::Whole {
        return file(path, bytes);
    }
    fs.mkdir(SITE, path.as_bytes(), DIR_MODE)?;
    ADOPTED.iter().try_for_each(|(below, content)| {
        let path = format!("{path}/{below}");
        match content {
            Some(range) => file(&path, &bytes[range.clone()]),
            None => fs.mkdir(SITE, path.as_bytes(), DIR_MODE),
        }
    })
}

/// Where in the layer lies what is to be adopted as `path`.
pub(crate) fn in_layer(path: &str) -> String {
    format!("{}/{}", wholly::LAYER, path.replace('/', "-"))
}

/// Makes in the layer, which is there, what is to be adopted; what an earlier group has given back goes.
pub(crate) fn make_in_layer(fs: &dyn HostFs, path: &str, what: Adopted, bytes: &[u8]) -> wholly_media::Result<()> {
    let path = in_layer(path);
    if fs.stat(path.as_bytes()).is_ok() {
        let gone = format!("{path}-");
        fs.rename(SITE, path.as_bytes(), gone.as_bytes(), wholly_vfs::Rename::NoReplace)?;
    }
    bring(fs, &path, what, bytes)
}
