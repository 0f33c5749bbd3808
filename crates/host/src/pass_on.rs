//! Host directories that pass calls on to another one.

/// Implements [`HostFs`](crate::HostFs) and [`HostNames`](crate::HostNames) for a type that passes calls on to another
/// host directory, but for the calls that are written out. A call that is added to a trait is added here, or nothing
/// that passes on compiles.
///
/// `ask` gives the other directory for what cannot fail, `call`, which also gets the name of the call, for all else; it
/// may return an error by `?`.
///
/// ```
/// use std::cell::Cell;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use wholly_host::HostFs;
///
/// struct Counting {
///     host: Arc<dyn HostFs>,
///     calls: AtomicU64,
/// }
///
/// wholly_host::pass_on! {
///     Counting;
///     ask |this| &*this.host;
///     call |this, _name| {
///         this.calls.fetch_add(1, Ordering::Relaxed);
///         &*this.host
///     };
///     HostFs {
///         fn now_ns(&self) -> i64 { 0 }
///     }
///     HostNames {}
/// }
/// ```
#[macro_export]
macro_rules! pass_on {
    ($($all:tt)*) => {
        const _: () = {
            // The inner macro has its own variables, which begin with this.
            $crate::__pass_on! { ($) $($all)* }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __pass_on {
    (
        ($d:tt) $type:ty;
        ask |$asked:ident| $ask:expr;
        call |$called:ident, $name:ident| $call:expr;
        HostFs { $(fn $fs:ident $fs_takes:tt $(-> $fs_gives:ty)? $fs_does:block)* }
        HostNames { $(fn $names:ident $names_takes:tt $(-> $names_gives:ty)? $names_does:block)* }
    ) => {
        use $crate::__types::*;

        macro_rules! one {
            $(($d of:ident $d kind:ident $fs $d($d rest:tt)*) => {};)*
            $(($d of:ident $d kind:ident $names $d($d rest:tt)*) => {};)*
            ($d of:ident ask $d one:ident($d($d arg:ident: $d takes:ty),*) -> $d gives:ty) => {
                fn $d one(&self, $d($d arg: $d takes),*) -> $d gives {
                    let $asked = self;
                    $crate::$d of::$d one($ask, $d($d arg),*)
                }
            };
            ($d of:ident call $d one:ident($d($d arg:ident: $d takes:ty),*) -> $d gives:ty) => {
                fn $d one(&self, $d($d arg: $d takes),*) -> Result<$d gives> {
                    let ($called, $name) = (self, stringify!($d one));
                    $crate::$d of::$d one($call, $d($d arg),*)
                }
            };
        }

        impl $crate::HostFs for $type {
            $(fn $fs $fs_takes $(-> $fs_gives)? $fs_does)*
            one! { HostFs ask guarantees() -> &Guarantees }
            one! { HostFs ask now_ns() -> i64 }
            one! { HostFs call open(path: &[u8], write: bool) -> Arc<dyn HostFile> }
            one! { HostFs call open_own(path: &[u8]) -> Arc<dyn HostFile> }
            one! { HostFs call stat(path: &[u8]) -> Stat }
            one! { HostFs call settle(at: At<'_>) -> Option<Stat> }
            one! { HostFs ask copies_up() -> bool }
            one! { HostFs ask admit_all_projects(site: Site, path: &[u8]) -> () }
            one! { HostFs ask largest_file() -> u64 }
            one! { HostFs ask most_links() -> u32 }
            one! { HostFs ask takes_target(length: usize) -> bool }
            one! { HostFs call try_xattrs(steps: &[(Vec<u8>, Option<Vec<u8>>)]) -> () }
            one! { HostFs call space() -> Space }
            one! { HostFs ask shares_blocks() -> bool }
            one! { HostFs call create_unnamed(site: Site, parent: &[u8], mode: u32) -> Arc<dyn HostFile> }
            one! { HostFs call link(site: Site, file: &dyn HostFile, path: &[u8]) -> () }
            one! { HostFs call sync_dir(site: Site, path: &[u8]) -> () }
            one! { HostFs call sync_all(site: Site) -> () }
        }

        impl $crate::HostNames for $type {
            $(fn $names $names_takes $(-> $names_gives)? $names_does)*
            one! { HostNames call create_at(site: Site, at: At<'_>, mode: u32) -> Arc<dyn HostFile> }
            one! { HostNames call mkdir_at(site: Site, at: At<'_>, mode: u32) -> () }
            one! { HostNames call mknod_at(site: Site, at: At<'_>, mode: u32, rdev: u64) -> () }
            one! { HostNames call symlink_at(site: Site, target: &[u8], at: At<'_>) -> () }
            one! { HostNames call hard_link_at(site: Site, from: At<'_>, to: At<'_>) -> () }
            one! { HostNames call rename_at(site: Site, from: At<'_>, to: At<'_>, how: Rename) -> () }
            one! { HostNames call unlink_at(site: Site, at: At<'_>) -> () }
            one! { HostNames call rmdir_at(site: Site, at: At<'_>) -> () }
            one! { HostNames call stat_at(at: At<'_>) -> Stat }
            one! { HostNames call read_link(path: &[u8]) -> Vec<u8> }
            one! { HostNames call read_dir(path: &[u8]) -> Vec<DirEntry> }
            one! { HostNames call stat_all(path: &[u8], look: &mut dyn FnMut(&[u8], &Stat) -> bool) -> () }
            one! { HostNames call set_mode_at(site: Site, at: At<'_>, mode: u32) -> () }
            one! { HostNames call set_owner_at(site: Site, at: At<'_>, uid: Option<u32>, gid: Option<u32>) -> () }
            one! { HostNames call set_times_at(site: Site, at: At<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> () }
            one! { HostNames call get_xattr(path: &[u8], name: &[u8]) -> Option<Vec<u8>> }
            one! { HostNames call list_xattrs(path: &[u8]) -> Vec<Vec<u8>> }
            one! { HostNames call set_xattr_at(site: Site, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> () }
            one! { HostNames call remove_xattr_at(site: Site, at: At<'_>, name: &[u8]) -> () }
            one! { HostNames call handle(path: &[u8]) -> Option<FileHandle> }
        }
    };
}
