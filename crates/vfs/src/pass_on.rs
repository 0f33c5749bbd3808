//! Implementations of [`Vfs`](crate::Vfs) over others.

/// Implements [`Vfs`](crate::Vfs) for a type that passes calls on to another one, but for the calls that are written
/// out. A call that is added to the trait is added here, or nothing that passes on compiles.
///
/// `call` says how a call is passed on, whose context is `ctx`: `pass(to, ctx)` makes it on `to`. `bare` says it for
/// calls without a context: `pass(to)`. What stands in brackets are the parameters of the type.
///
/// ```
/// use wholly_vfs::{Context, Handle, Result, Vfs};
///
/// /// Everybody is the superuser.
/// struct Free<'v>(&'v dyn Vfs);
///
/// wholly_vfs::pass_on! {
///     impl [] Free<'_>;
///     call |this, ctx, pass| pass(this.0, &Context { uid: 0, ..ctx.clone() });
///     bare |this, pass| pass(this.0);
///     {
///         fn fsync(&self, _ctx: &Context, _handle: &Handle) -> Result<()> { Ok(()) }
///     }
/// }
/// ```
#[macro_export]
macro_rules! pass_on {
    ($($all:tt)*) => {
        const _: () = {
            $crate::__pass_on! { ($) $($all)* }
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __pass_on {
    (
        ($d:tt) impl [$($of:tt)*] $type:ty;
        call |$this:ident, $ctx:ident, $pass:ident| $call:expr;
        bare |$bare_this:ident, $bare_pass:ident| $bare:expr;
        { $(fn $written:ident $takes:tt $(-> $gives:ty)? $does:block)* }
    ) => {
        use $crate::*;

        macro_rules! one {
            $(($d kind:ident $written $d($d rest:tt)*) => {};)*
            (call $d one:ident($d($d arg:ident: $d takes:ty),*) -> $d gives:ty) => {
                fn $d one(&self, $ctx: &Context, $d($d arg: $d takes),*) -> $d gives {
                    let $this = self;
                    #[allow(unused_mut, reason = "some calls fill a buffer")]
                    let mut $pass = |to: &_, ctx: &Context| $crate::Vfs::$d one(to, ctx, $d($d arg),*);
                    $call
                }
            };
            (give $d one:ident) => {
                fn $d one(&self, $ctx: &Context, handle: Handle) -> Result<()> {
                    let $this = self;
                    #[allow(unused_mut, reason = "as above")]
                    let mut $pass = |to: &_, ctx: &Context| $crate::Vfs::$d one(to, ctx, handle.clone());
                    $call
                }
            };
            (bare $d one:ident($d($d arg:ident: $d takes:ty),*) -> $d gives:ty) => {
                fn $d one(&self, $d($d arg: $d takes),*) -> $d gives {
                    let $bare_this = self;
                    let $bare_pass = |to: &_| $crate::Vfs::$d one(to, $d($d arg),*);
                    $bare
                }
            };
        }

        impl<$($of)*> $crate::Vfs for $type {
            $(fn $written $takes $(-> $gives)? $does)*
            one! { call lookup(dir: Ino, name: &[u8]) -> Result<Attr> }
            one! { bare forget(ino: Ino, references: u64) -> () }
            one! { call getattr(ino: Ino) -> Result<Attr> }
            one! { call setattr(ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr> }
            one! { call access(ino: Ino, access: Access) -> Result<()> }
            one! { call readlink(ino: Ino) -> Result<Vec<u8>> }
            one! { call mknod(dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr> }
            one! { call mkdir(dir: Ino, name: &[u8], mode: Mode) -> Result<Attr> }
            one! { call symlink(dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr> }
            one! { call link(ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> }
            one! { call unlink(dir: Ino, name: &[u8]) -> Result<()> }
            one! { call rmdir(dir: Ino, name: &[u8]) -> Result<()> }
            one! { call rename(from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()> }
            one! { call open(ino: Ino, flags: OFlags) -> Result<Handle> }
            one! { call create(dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> }
            one! { call tmpfile(dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> }
            one! { call read(handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> }
            one! { call write(handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> }
            one! { call append(handle: &Handle, data: &[u8]) -> Result<(u64, usize)> }
            one! {
                call copy_file_range(from: &Handle, from_offset: u64, to: &Handle, to_offset: u64, len: usize)
                    -> Result<usize>
            }
            one! { call fallocate(handle: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> }
            one! { call seek(handle: &Handle, seek: Seek) -> Result<u64> }
            one! { call fsync(handle: &Handle) -> Result<()> }
            one! { call fdatasync(handle: &Handle) -> Result<()> }
            one! { call fatomic(handle: &Handle, data_only: bool) -> Result<()> }
            one! { give release }
            one! { call opendir(dir: Ino) -> Result<Handle> }
            one! { call readdir(handle: &Handle, offset: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<()> }
            one! { call fsyncdir(handle: &Handle) -> Result<()> }
            one! { give releasedir }
            one! { call setxattr(ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> }
            one! { call getxattr(ino: Ino, name: &[u8]) -> Result<Vec<u8>> }
            one! { call listxattr(ino: Ino) -> Result<Vec<u8>> }
            one! { call removexattr(ino: Ino, name: &[u8]) -> Result<()> }
            one! { call statfs(ino: Ino) -> Result<StatFs> }
            one! { bare pending() -> Result<Pending> }
            one! { call sync() -> Result<()> }
        }
    };
}
