//! Whether two groups that run at the same time have nothing to do with each other: then neither may find the other in
//! its way.

use std::collections::BTreeSet;

use crate::tree::{Number, State};
use crate::workload::Op;

/// What a group must have for itself: objects, and names by their directory.
#[derive(Default)]
struct Touched {
    objects: BTreeSet<Number>,
    names: BTreeSet<(Number, String)>,
}

/// Whether two groups that begin with this state have nothing to do with each other, as far as that is plain: where a
/// directory is made, moved or removed, or an op is refused, nothing is said. Attributes of a directory have nothing to
/// do with the names in it.
pub(crate) fn go_together(state: &State, first: &[Op], second: &[Op]) -> bool {
    match (touched(state, first), touched(state, second)) {
        (Some(first), Some(second)) => {
            first.objects.is_disjoint(&second.objects) && first.names.is_disjoint(&second.names)
        }
        _ => false,
    }
}

fn touched(before: &State, ops: &[Op]) -> Option<Touched> {
    let (mut state, mut touched) = (before.clone(), Touched::default());
    for op in ops {
        let names: &[&str] = match op {
            Op::Mkdir(_) | Op::Rmdir(_) | Op::RemoveTree(_) | Op::Adopt { .. } => return None,
            Op::Link { from, to } | Op::Rename { from, to, .. } => &[from, to],
            _ => &[op.file()],
        };
        let is_of_names = !op.is_of_bytes() && !op.is_of_attributes();
        for path in names {
            let object = if op.is_of_bytes() { state.file(path).ok() } else { state.find(path).ok() };
            if is_of_names {
                if object.is_some_and(|object| state.object(object).is_dir()) {
                    return None;
                }
                let (dir, name) = state.parent(path).ok()?;
                touched.names.insert((dir, name.into()));
            }
            // What a group has made is its own.
            touched.objects.extend(object.filter(|object| before.has(*object)));
        }
        state.apply(op, &op.bytes(0).unwrap_or_default()).ok()?;
    }
    Some(touched)
}
