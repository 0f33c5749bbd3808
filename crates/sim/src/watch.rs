//! What a program sees that reads the host directory beside the one under test, between any two of its calls.

use super::config::MutationKind;
use super::event::{EventKind, Fate, Trace};
use super::image::Image;
use super::pending::Effect;
use super::state::{Birth, LOG};
use std::ops::ControlFlow;

impl Trace {
    /// Shows the directory as it is seen after each event that changes it: the number of events until then, and all
    /// that is there, as if durable.
    /// `look` ends it.
    pub fn watch(&self, mut look: impl FnMut(u64, &Image) -> ControlFlow<()>) {
        let mut image = Image::new(self.initial.seen());
        for (event, point) in self.events.iter().zip(1..) {
            if event.fate == Fate::Mutated(MutationKind::DropWrite) && !matches!(event.kind, EventKind::Create { .. }) {
                continue;
            }
            let state = &mut image.state;
            match &event.kind {
                EventKind::Store { obj, offset, data } if *obj != LOG => state.put(*obj, *offset, data),
                EventKind::Create { mode, rdev, target, inode, time_ns, .. } => {
                    let (mode, rdev, target) = (*mode, *rdev, target.clone());
                    state.create(&Birth { mode, rdev, target, time_ns: *time_ns, inode: *inode });
                    continue;
                }
                EventKind::Write { obj, offset, data, grown, time_ns, .. } => {
                    Effect::Attr { obj: *obj, len: *grown, time_ns: Some(*time_ns) }.apply(state);
                    state.put(*obj, *offset, data);
                }
                EventKind::SetLen { obj, new, time_ns, .. } => {
                    Effect::Attr { obj: *obj, len: Some(*new), time_ns: Some(*time_ns) }.apply(state);
                }
                EventKind::Punch { obj, offset, len, time_ns } => {
                    Effect::Punch { obj: *obj, offset: *offset, len: *len, time_ns: Some(*time_ns) }.apply(state);
                }
                EventKind::Names { changes, time_ns, .. } => {
                    Effect::Names { changes: changes.clone(), only: None, time_ns: Some(*time_ns) }.apply(state);
                }
                EventKind::Attribute { obj, attribute, time_ns } => {
                    let attribute = attribute.clone();
                    Effect::Attribute { obj: *obj, attribute, time_ns: Some(*time_ns) }.apply(state);
                }
                _ => continue,
            }
            if look(point, &image).is_break() {
                break;
            }
        }
    }
}
