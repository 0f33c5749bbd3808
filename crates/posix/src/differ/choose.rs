//! How calls are chosen.

use proptest::prelude::*;
use proptest::sample::select;
use wholly_vfs::{Fallocate, OFlags, Rename, Seek, SetXattr};

use super::caller::{Caller, PART_BYTES};
use super::ops::{Op, Path, SHARED_SLOT, SLOTS};

fn path(caller: Caller) -> impl Strategy<Value = Path> {
    let within = match caller.shared_dirs() {
        [] => vec![""],
        dirs => dirs.to_vec(),
    };
    let name = select(vec!["a", "a", "b", "b", "c", ".", ".."]).prop_map(move |name| caller.own(name));
    let names = prop::collection::vec(name, 1..4);
    let path = (prop::bool::weighted(0.1), select(within), names, prop::bool::weighted(0.05));
    path.prop_map(|(absolute, within, names, slash)| {
        [if absolute { "/" } else { "" }, within, &names.join("/"), if slash { "/" } else { "" }].concat()
    })
}

fn mode() -> impl Strategy<Value = u32> {
    // Who owns it keeps all permissions, so that it can be removed again by whoever runs this.
    select(vec![0o700, 0o755, 0o777, 0o1777, 0o2755, 0o4711, 0o6777])
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_000u64, (0..50u64).prop_map(|block| block * 4096), 0..200_000u64]
}

fn len() -> impl Strategy<Value = usize> {
    prop_oneof![0..100usize, 0..10_000usize, (0..8usize).prop_map(|blocks| blocks * 4096)]
}

fn names(caller: Caller) -> impl Strategy<Value = Op> {
    let flags = select(vec![OFlags::empty(), OFlags::EXCL, OFlags::TRUNC, OFlags::NOFOLLOW]);
    let rename = select(vec![Rename::Replace, Rename::Replace, Rename::NoReplace, Rename::Exchange]);
    let umask = || select(vec![0, 0o22, 0o77]);
    let path = || path(caller);
    prop_oneof![
        4 => (path(), mode(), umask()).prop_map(|(path, mode, umask)| Op::Mkdir { path, mode, umask }),
        4 => (path(), mode(), umask(), flags).prop_map(|(path, mode, umask, flags)| Op::Create { path, mode, umask, flags }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::Mknod { path, mode }),
        2 => (path(), path()).prop_map(|(path, target)| Op::Symlink { path, target }),
        2 => (path(), path()).prop_map(|(old, new)| Op::Link { old, new }),
        2 => path().prop_map(|path| Op::Unlink { path }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        4 => (path(), path(), rename).prop_map(|(old, new, how)| Op::Rename { old, new, how }),
        2 => path().prop_map(|path| Op::Stat { path }),
        1 => path().prop_map(|path| Op::List { path }),
    ]
}

fn attributes(caller: Caller) -> impl Strategy<Value = Op> {
    let name = || select(vec!["user.a", "user.b", "trusted.c", "other.d"]);
    let flags = select(vec![SetXattr::Any, SetXattr::Create, SetXattr::Replace]);
    let value = prop::collection::vec(any::<u8>(), 0..20);
    let path = || path(caller);
    prop_oneof![
        2 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        2 => (path(), offset()).prop_map(|(path, size)| Op::Truncate { path, size }),
        2 => (path(), name(), value, flags).prop_map(|(path, name, value, how)| Op::SetXattr { path, name, value, how }),
        1 => (path(), name()).prop_map(|(path, name)| Op::RemoveXattr { path, name }),
    ]
}

fn space() -> impl Strategy<Value = Fallocate> {
    select(vec![Fallocate::Extend, Fallocate::Keep, Fallocate::Punch, Fallocate::Punch, Fallocate::ZeroExtend])
}

fn data(caller: Caller) -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let path = || path(caller);
    let access = select(vec![OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR, OFlags::RDWR, OFlags::RDWR]);
    let more = select(vec![OFlags::empty(), OFlags::APPEND, OFlags::TRUNC, OFlags::CREATE]);
    let flags = (access, more).prop_map(|(access, more)| access | more);
    let seek = (any::<bool>(), offset()).prop_map(|(data, at)| if data { Seek::Data(at) } else { Seek::Hole(at) });
    prop_oneof![
        4 => (slot(), path(), flags).prop_map(|(slot, path, flags)| Op::Open { slot, path, flags }),
        1 => slot().prop_map(|slot| Op::Close { slot }),
        5 => (slot(), offset(), 1..255u8, len()).prop_map(|(slot, offset, byte, len)| Op::Write { slot, offset, byte, len }),
        2 => (slot(), 1..255u8, len()).prop_map(|(slot, byte, len)| Op::Append { slot, byte, len }),
        3 => (slot(), offset(), len()).prop_map(|(slot, offset, len)| Op::Read { slot, offset, len }),
        2 => (slot(), space(), offset(), offset()).prop_map(|(slot, how, offset, len)| Op::Allocate { slot, how, offset, len }),
        2 => (slot(), seek).prop_map(|(slot, seek)| Op::Seek { slot, seek }),
        2 => (slot(), offset(), slot(), offset(), len()).prop_map(|(from, from_offset, to, to_offset, len)| Op::Copy { from, from_offset, to, to_offset, len }),
        1 => slot().prop_map(|slot| Op::Sync { slot }),
    ]
}

/// Calls on the caller's own parts of the shared file.
fn parts(caller: Caller) -> impl Strategy<Value = Op> {
    let range = move || {
        let bytes = (0..PART_BYTES, 0..PART_BYTES).prop_map(|(from, to)| (from.min(to), from.max(to)));
        (select(caller.parts()), bytes).prop_map(|(part, (from, to))| (part + from, (to - from) as usize))
    };
    let slot = SHARED_SLOT;
    prop_oneof![
        5 => (range(), 1..255u8).prop_map(move |((offset, len), byte)| Op::Write { slot, offset, byte, len }),
        4 => range().prop_map(move |(offset, len)| Op::Read { slot, offset, len }),
        2 => (space(), range()).prop_map(move |(how, (offset, len))| Op::Allocate { slot, how, offset, len: len as u64 }),
        1 => (0..SLOTS, offset(), range()).prop_map(move |(from, from_offset, (to_offset, len))| Op::Copy { from, from_offset, to: slot, to_offset, len }),
        1 => (range(), 0..SLOTS, offset()).prop_map(move |((from_offset, len), to, to_offset)| Op::Copy { from: slot, from_offset, to, to_offset, len }),
        1 => Just(Op::Sync { slot }),
    ]
}

/// Sequences of calls. Most begin with files in the slots, so that there is something to write to.
pub fn sequence(caller: Caller) -> impl Strategy<Value = Vec<Op>> {
    let open = prop::collection::vec(prop::bool::weighted(0.8), SLOTS);
    let call = prop_oneof![4 => names(caller), 2 => attributes(caller), 4 => data(caller)];
    let call = match caller.has_parts() {
        true => prop_oneof![3 => call, 1 => parts(caller)].boxed(),
        false => call.boxed(),
    };
    (open, prop::collection::vec(call, 1..60)).prop_map(move |(open, calls)| {
        let slots = (0..SLOTS).filter(|&slot| open[slot]);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let opened = slots.map(|slot| Op::Open { slot, path: caller.own(["c", "b", "c"][slot]), flags });
        opened.chain(calls).collect()
    })
}
