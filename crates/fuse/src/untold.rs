//! Access lists that programs asked for and could not be told (see [`Identity`](crate::Identity)).
//!
//! A program that replaces a file, such as `sed -i`, makes a new one, copies the access list, and renames it over the
//! old one. Some go on where they cannot copy the list, and exit with 0. So the new file is given the list of the old
//! one by us, when it is renamed over a file whose list the same thread was refused.

use std::collections::HashMap;
use std::sync::Mutex;
use wholly_vfs::rules::acl;
use wholly_vfs::{Context, Errno, Ino, SetXattr, Vfs};

/// Threads that are remembered: each asks shortly before it renames.
const MOST: usize = 256;

/// Threads, with the files whose access lists they were refused last.
#[derive(Debug, Default)]
pub(crate) struct Untold(Mutex<HashMap<u32, Ino>>);

impl Untold {
    /// A thread was refused the access list of a file.
    pub fn note(&self, thread: u32, file: Ino) {
        let mut all = self.0.lock().unwrap();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(thread, file);
    }

    /// A thread is about to rename `from` over `to`.
    ///
    /// # Errors
    /// Those of the calls by which the list is brought over: the rename is to be refused, or the list would be lost.
    pub fn bring(
        &self,
        vfs: &dyn Vfs,
        (thread, ctx): (u32, &Context),
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
    ) -> Result<(), Errno> {
        let Some(refused) = self.0.lock().unwrap().get(&thread).copied() else { return Ok(()) };
        let referred = |(dir, name): (Ino, &[u8])| match vfs.lookup(ctx, dir, name) {
            Ok(found) => {
                vfs.forget(found.ino, 1);
                Ok(Some(found))
            }
            // The rename says why.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error),
        };
        let (Some(old), Some(new)) = (referred(to)?, referred(from)?) else { return Ok(()) };
        if old.ino != refused || (new.kind, new.uid) != (old.kind, old.uid) {
            return Ok(());
        }
        self.0.lock().unwrap().remove(&thread);
        let list_of = |ino| match vfs.getxattr(ctx, ino, acl::ACCESS) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
            list => list.map(Some),
        };
        match (list_of(old.ino)?, list_of(new.ino)?) {
            (Some(list), None) => vfs.setxattr(ctx, new.ino, acl::ACCESS, &list, SetXattr::Any),
            _ => Ok(()),
        }
    }
}
