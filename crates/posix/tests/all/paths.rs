//! Paths as Wholly walks them against paths as the kernel does.

use crate::places;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rustix::fs::{AtFlags, OFlags, RenameFlags, ResolveFlags};
use wholly_posix::{HostVfs, Tree, differ};
use wholly_vfs::{Context, Errno, FileType, Ino, Mode, Paths, Rename, Result};

/// One call that takes paths.
#[derive(Clone, Debug)]
enum Call {
    Mkdir(String),
    Mknod(String),
    Symlink(String, String),
    Link(String, String, bool),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, Rename),
    Open(String, OFlags),
}

fn path() -> BoxedStrategy<String> {
    let names = names();
    let part = (select(names), select(vec!["/", "/", "/", "//"])).prop_map(|(name, slash)| [name, slash].concat());
    (prop::collection::vec(part, 0..5), any::<bool>())
        .prop_map(|(parts, slash)| {
            let path = parts.concat();
            if slash && parts.len() < 4 { path } else { path.trim_end_matches('/').into() }
        })
        .boxed()
}

fn names() -> Vec<&'static str> {
    let long = "a name that is longer than it may be";
    vec!["a", "a", "b", "b", "c", "c", "d", ".", "..", Box::leak(long.repeat(8).into_boxed_str())]
}

fn calls(path: BoxedStrategy<String>) -> impl Strategy<Value = Vec<Call>> {
    let one = || path.clone();
    let how = select(vec![Rename::Replace, Rename::NoReplace, Rename::Exchange]);
    let open = select(vec![
        OFlags::RDONLY,
        OFlags::RDONLY | OFlags::NOFOLLOW,
        OFlags::WRONLY | OFlags::CREATE,
        OFlags::WRONLY | OFlags::CREATE,
        OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL,
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW,
    ]);
    let call = prop_oneof![
        4 => one().prop_map(Call::Mkdir),
        2 => one().prop_map(Call::Mknod),
        6 => (one(), one()).prop_map(|(path, target)| Call::Symlink(path, target)),
        2 => (one(), one(), any::<bool>()).prop_map(|(old, new, follow)| Call::Link(old, new, follow)),
        1 => one().prop_map(Call::Unlink),
        1 => one().prop_map(Call::Rmdir),
        3 => (one(), one(), how).prop_map(|(old, new, how)| Call::Rename(old, new, how)),
        6 => (one(), open).prop_map(|(path, flags)| Call::Open(path, flags)),
    ];
    prop::collection::vec(call, 1..40)
}

/// The umask takes nothing of it.
const MODE: Mode = Mode::RWXU;

fn by_kernel(vfs: &HostVfs, call: &Call) -> Result<()> {
    let root = &*vfs.root();
    match call {
        Call::Mkdir(path) => rustix::fs::mkdirat(root, &**path, MODE),
        Call::Mknod(path) => rustix::fs::mknodat(root, &**path, FileType::Fifo, MODE, 0),
        Call::Symlink(path, target) => rustix::fs::symlinkat(&**target, root, &**path),
        Call::Link(old, new, follow) => {
            let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            rustix::fs::linkat(root, &**old, root, &**new, flags)
        }
        Call::Unlink(path) => rustix::fs::unlinkat(root, &**path, AtFlags::empty()),
        Call::Rmdir(path) => rustix::fs::unlinkat(root, &**path, AtFlags::REMOVEDIR),
        Call::Rename(old, new, how) => {
            rustix::fs::renameat_with(root, &**old, root, &**new, RenameFlags::from_bits_retain(how.flags()))
        }
        Call::Open(path, flags) => rustix::fs::openat(root, &**path, *flags, MODE).map(drop),
    }
}

fn by_paths(tree: &Tree<'_>, call: &Call) -> Result<()> {
    let (paths, ctx, at) = (tree.paths(), &tree.ctx, tree.at);
    match call {
        Call::Mkdir(path) => paths.mkdir(ctx, at, path.as_bytes(), MODE).map(drop),
        Call::Mknod(path) => paths.mknod(ctx, at, path.as_bytes(), FileType::Fifo, MODE, 0).map(drop),
        Call::Symlink(path, target) => paths.symlink(ctx, at, path.as_bytes(), target.as_bytes()).map(drop),
        Call::Link(old, new, follow) => paths.link(ctx, at, old.as_bytes(), new.as_bytes(), *follow).map(drop),
        Call::Unlink(path) => paths.unlink(ctx, at, path.as_bytes()),
        Call::Rmdir(path) => paths.rmdir(ctx, at, path.as_bytes()),
        Call::Rename(old, new, how) => paths.rename(ctx, at, old.as_bytes(), new.as_bytes(), *how),
        Call::Open(path, flags) => tree.open_with(path, *flags, MODE.as_raw_mode()).map(drop),
    }
}

/// Whether the kernel opens what the trait never does: a directory for reading, a FIFO (which would wait for its other
/// end).
fn is_the_kernels(tree: &Tree<'_>, call: &Call) -> bool {
    let Call::Open(path, flags) = call else { return false };
    let follow = !flags.intersects(OFlags::NOFOLLOW | OFlags::EXCL);
    let named = tree.paths().resolve(&tree.ctx, tree.at, path.as_bytes(), follow);
    let creates = flags.contains(OFlags::CREATE);
    named.is_ok_and(|found| match found.attr.kind {
        FileType::Fifo => true,
        FileType::Directory => !creates,
        _ => false,
    })
}

fn runner(cases: u32) -> TestRunner {
    let cases = if std::env::var_os("WHOLLY_LONG").is_some() { cases * 50 } else { cases };
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

#[test]
fn calls_by_path_do_what_the_kernels_do() {
    let (Some(one), Some(other)) = (places::or_skip(places::own_tmpfs()), places::or_skip(places::own_tmpfs())) else {
        return;
    };
    // The kernel stays in it too: nothing is above what is mounted nowhere.
    let number = |path: &str| rustix::fs::statat(&*one.vfs.root(), path, AtFlags::empty()).expect("stat");
    assert_eq!((number(".").st_dev, number(".").st_ino), (number("..").st_dev, number("..").st_ino));

    let compare = |calls: Vec<Call>| {
        differ::clear(&one.vfs)?;
        differ::clear(&other.vfs)?;
        let tree = Tree::new(&other.vfs, Ino::ROOT);
        for call in &calls {
            if is_the_kernels(&tree, call) {
                continue;
            }
            let (kernel, ours) = (by_kernel(&one.vfs, call), by_paths(&tree, call));
            if kernel != ours {
                return Err(format!("{call:?}: the kernel says {kernel:?}, we say {ours:?}"));
            }
        }
        differ::same_trees(&one.vfs, &other.vfs)
    };
    let outcome = runner(1500).run(&calls(path()), |calls| compare(calls).map_err(TestCaseError::fail));
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(other.vfs.held(), (0, 0), "references and handles are given back");
}

#[test]
fn absolute_paths_and_links_lead_where_the_kernel_goes() {
    let Some(place) = places::or_skip(places::directory()) else { return };
    let root = place.vfs.root();
    let ctx = Tree::new(&place.vfs, Ino::ROOT).ctx;
    let host_root = rustix::fs::fstat(&*root).expect("stat").st_ino;
    let by_kernel = |path: &str, follow: bool| {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let fd = loop {
            match rustix::fs::openat2(&*root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // A rename somewhere on the system has met a `..`.
                Err(Errno::AGAIN) => {}
                fd => break fd?,
            }
        };
        let ino = rustix::fs::fstat(fd)?.st_ino;
        Ok(if ino == host_root { Ino::ROOT } else { Ino(ino) })
    };
    let ours = |path: &str, follow: bool, ctx: &Context| {
        Ok(Paths(&place.vfs).resolve(ctx, Ino::ROOT, path.as_bytes(), follow)?.ino())
    };
    let anywhere =
        (any::<bool>(), path()).prop_map(|(absolute, path)| [if absolute { "/" } else { "" }, &path].concat()).boxed();
    let strategy = (calls(anywhere.clone()), prop::collection::vec((anywhere, any::<bool>()), 1..20));
    let outcome = runner(500).run(&strategy, |(calls, paths)| {
        differ::clear(&place.vfs).map_err(TestCaseError::fail)?;
        let tree = Tree::new(&place.vfs, Ino::ROOT);
        for call in &calls {
            // Whether it fails is no matter here: it makes links.
            let _ = by_paths(&tree, call);
        }
        for (path, follow) in paths {
            let (kernel, ours): (Result<Ino>, Result<Ino>) = (by_kernel(&path, follow), ours(&path, follow, &ctx));
            prop_assert_eq!(kernel, ours, "{}", path);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(place.vfs.held(), (0, 0), "references are given back");
}
