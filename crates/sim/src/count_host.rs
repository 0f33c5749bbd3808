//! Calls on a host directory, counted: what a store asks of it costs the same on any machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wholly_host::{At, DirEntry, FileHandle, HostFile, HostFs, HostNames, SetXattr, Space};
use wholly_media::{Guarantees, Result, Site};
use wholly_vfs::{Rename, Stat};

/// A host directory that counts the calls that go by a path. Calls that failed count.
pub struct CountingHost {
    inner: Arc<dyn HostFs>,
    calls: AtomicU64,
}

impl CountingHost {
    /// Nothing was asked of `inner` yet.
    pub fn new(inner: Arc<dyn HostFs>) -> Arc<CountingHost> {
        Arc::new(CountingHost { inner, calls: AtomicU64::new(0) })
    }

    /// How many calls were made since this was called last.
    pub fn take(&self) -> u64 {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

macro_rules! counted {
    ($($call:ident($($name:ident: $type:ty),*) -> $given:ty;)*) => {
        $(fn $call(&self, $($name: $type),*) -> Result<$given> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.inner.$call($($name),*)
        })*
    };
}

impl HostFs for CountingHost {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn now_ns(&self) -> i64 {
        self.inner.now_ns()
    }

    fn shares_blocks(&self) -> bool {
        self.inner.shares_blocks()
    }

    counted! {
        open(path: &[u8], write: bool) -> Arc<dyn HostFile>;
        stat(path: &[u8]) -> Stat;
        space() -> Space;
        create_unnamed(site: Site, parent: &[u8], mode: u32) -> Arc<dyn HostFile>;
        link(site: Site, file: &dyn HostFile, path: &[u8]) -> ();
        sync_dir(site: Site, path: &[u8]) -> ();
        sync_all(site: Site) -> ();
    }
}

impl HostNames for CountingHost {
    counted! {
        create_at(site: Site, at: At<'_>, mode: u32) -> Arc<dyn HostFile>;
        mkdir_at(site: Site, at: At<'_>, mode: u32) -> ();
        mknod_at(site: Site, at: At<'_>, mode: u32, rdev: u64) -> ();
        symlink_at(site: Site, target: &[u8], at: At<'_>) -> ();
        hard_link_at(site: Site, from: At<'_>, to: At<'_>) -> ();
        rename_at(site: Site, from: At<'_>, to: At<'_>, how: Rename) -> ();
        unlink_at(site: Site, at: At<'_>) -> ();
        rmdir_at(site: Site, at: At<'_>) -> ();
        stat_at(at: At<'_>) -> Stat;
        read_link(path: &[u8]) -> Vec<u8>;
        read_dir(path: &[u8]) -> Vec<DirEntry>;
        set_mode_at(site: Site, at: At<'_>, mode: u32) -> ();
        set_owner_at(site: Site, at: At<'_>, uid: Option<u32>, gid: Option<u32>) -> ();
        set_times_at(site: Site, at: At<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> ();
        get_xattr(path: &[u8], name: &[u8]) -> Option<Vec<u8>>;
        list_xattrs(path: &[u8]) -> Vec<Vec<u8>>;
        set_xattr_at(site: Site, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> ();
        remove_xattr_at(site: Site, at: At<'_>, name: &[u8]) -> ();
        handle(path: &[u8]) -> Option<FileHandle>;
    }
}
