//! What a program does with a store after a crash.

use std::borrow::Cow;

use wholly::{Error, Store};
use wholly_vfs::{Rename, SetXattr};

use super::in_group;
use crate::life::Life;
use crate::run::Operation;
use crate::script::{PATHS, XATTRS};
use crate::tree::State;
use crate::workload::{FRESH, NAMES, Op, Promise, Start, Workload};

/// What a program does with a store after a recovery: it applies what is parked, and a new group changes old and new
/// files.
pub(crate) fn go_on(life: &mut Life, workload: &Workload, store: &Store, state: Promise) -> Result<Promise, String> {
    let state = apply_all(life, workload, store, state)?;
    let mut after = (*state).clone();
    let mut group = store.begin();
    let mut made = None;
    for (i, op) in ops_after(workload, &state).iter().enumerate() {
        let bytes = op.bytes(u64::from(u32::MAX) + i as u64).unwrap_or_default();
        if after.apply(op, &bytes).is_err() {
            continue;
        }
        let file = if op.is_of_bytes() && op.file() == FRESH { made.clone() } else { None };
        let done = in_group(&mut group, file, op, &bytes);
        made = done.map_err(|error| format!("in a new group: {op:?}: {error}"))?.or(made);
    }
    let after = Promise::new(after);
    life.operation("a new commit", &after, |life| {
        group.commit().map_err(|error| format!("a new group does not commit: {error}"))?;
        life.expect(workload, store, &after, "after a new group")
    })?;
    Ok(after)
}

/// Applies what is parked: it must be possible where all is as it was then.
fn apply_all(life: &mut Life, workload: &Workload, store: &Store, mut state: Promise) -> Result<Promise, String> {
    for parked in store.parked().map_err(|error| format!("what is parked: {error}"))? {
        let number = parked.note.parse().unwrap_or_default();
        let begin = life.world.now() + 1;
        let done = store.apply(parked.id);
        let mut after = (*state).clone();
        match (&done, after.apply_parked(number)) {
            (Ok(()), Ok(())) => {}
            (Err(Error::ChangedMeanwhile(..)), _) if !state.is_as_when_parked(number) => continue,
            (done, model) => return Err(format!("apply of {number}: {done:?}, and should be {model:?}")),
        }
        let (end, label) = (life.world.now(), Cow::Borrowed("apply"));
        state = Promise::new(after);
        life.operations.push(Operation { label, begin, end, state: state.clone(), waits: Vec::new() });
        life.expect(workload, store, &state, "after a parked group was applied")?;
    }
    Ok(state)
}

/// What a new group does after a recovery: to what is there, and to what it makes. What cannot be done is left out.
pub(crate) fn ops_after(workload: &Workload, state: &State) -> Vec<Op> {
    let files: Vec<&'static str> = match workload.start {
        Start::Files => NAMES[..2].to_vec(),
        _ => PATHS.iter().copied().filter(|path| state.content(path).is_some() && state.find(path).is_ok()).collect(),
    };
    let mut ops = vec![Op::Create(FRESH), Op::Append { file: FRESH, length: 11 }];
    if workload.start == Start::Crowd {
        // There may be no space for anything else before.
        ops.insert(0, Op::SetLen { file: "A/foo", length: 1 });
    }
    if let (Some(first), Some(last)) = (files.first(), files.get(1).or(files.first())) {
        ops.push(Op::Write { file: first, offset: 5, length: 24 });
        ops.push(Op::Append { file: last, length: 9 });
        if workload.start != Start::Files {
            // The file moves by its new name, and by its old one another comes.
            ops.push(Op::Mkdir(NEW_DIR));
            ops.push(Op::Link { from: first, to: NEW_LINK });
            ops.push(Op::Rename { from: last, to: NEW_NAME, how: Rename::Replace });
            ops.push(Op::Rename { from: FRESH, to: last, how: Rename::NoReplace });
            // What it had of attributes, what is new has them too, and what both lie in.
            ops.extend(ATTRIBUTES_AFTER);
        }
    }
    ops
}

/// The first of them after a write to that file, the others after names in that directory came.
const ATTRIBUTES_AFTER: [Op; 5] = [
    Op::SetTimes { path: NEW_LINK, atime: false, mtime: true },
    Op::SetXattr { path: NEW_NAME, name: XATTRS[0], length: 30, how: SetXattr::Any },
    Op::RemoveXattr { path: NEW_LINK, name: XATTRS[0] },
    Op::SetMode { path: NEW_NAME, mode: 0o640 },
    Op::SetTimes { path: NEW_DIR, atime: true, mtime: true },
];

const NEW_DIR: &str = "new";
const NEW_LINK: &str = "new/link";
const NEW_NAME: &str = "new/name";

pub(crate) fn no_conflict(store: &Store) -> Result<(), String> {
    match store.recovery().conflicts.first() {
        None => Ok(()),
        Some((path, change)) => {
            Err(format!("recovery reports a conflict where nobody interfered: {}: {change}", path.display()))
        }
    }
}
