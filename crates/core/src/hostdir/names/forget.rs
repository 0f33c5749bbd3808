//! What the table forgets when a pass has ended, and who keeps it from that.
//!
//! A call finds objects, and has nothing of them but their ids until it claims, pins or opens them. Passes may come
//! between, any number of them. So each call that looks for objects is a [`Caller`] as long as it lasts, and the table
//! keeps what anybody has come by since the oldest of those began.

use std::collections::BTreeSet;

use wholly_changes::{Ids, Kind, ROOT};

use super::{BLANKS, Home, Names, Object, State};
use sync::Ordering;

/// Calls that may have objects in hand.
#[derive(Default)]
pub(crate) struct Callers {
    /// How many have begun: the clock by which objects tell when somebody came by.
    begun: u64,
    /// When those began that have not ended.
    since: BTreeSet<u64>,
    /// How many passes have ended.
    passes: u64,
}

impl Callers {
    /// Whether one of them was there when the clock stood so.
    fn were_there(&self, at: u64) -> bool {
        self.since.first().is_some_and(|&since| at >= since)
    }

    /// Whether one of them may have come by this object.
    fn have(&self, object: &Object) -> bool {
        self.were_there(object.seen)
    }
}

/// A call that looks for objects. As long as it lives the table keeps what it finds.
pub(crate) struct Caller<'a> {
    names: &'a Names,
    since: u64,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        // After a panic under the lock nobody uses the table any more.
        if let Ok(mut state) = self.names.state.lock() {
            state.callers.since.remove(&self.since);
        }
    }
}

impl Names {
    /// A call begins that looks for objects.
    pub fn caller(&self) -> Caller<'_> {
        let since = self.with(|state| {
            state.callers.begun += 1;
            state.callers.since.insert(state.callers.begun);
            state.callers.begun
        });
        Caller { names: self, since }
    }

    /// The log has nothing below `tail` any more: see invariant 4.
    pub fn forget(&self, tail: u64) {
        let mut state = self.state.lock().unwrap();
        state.forget(tail);
        self.waiting.store(state.waiting(), Ordering::Release);
    }
}

impl State {
    /// Somebody has come by an object. Gives what it is, if it is in the table.
    pub fn see(&mut self, id: u64) -> Option<Kind> {
        debug_assert!(!self.callers.since.is_empty(), "who looks for objects is a caller");
        let object = self.objects.get_mut(&id)?;
        object.seen = self.callers.begun;
        Some(object.kind)
    }

    /// A call opens a file: before it looks where that is, so that a pass that makes it meanwhile leaves it open.
    pub fn begin_open(&mut self, id: u64) {
        if self.see(id).is_some()
            && let Some(object) = self.objects.get_mut(&id)
        {
            object.opened = object.seen;
        }
    }

    /// Whether a call may be opening this file.
    pub fn is_being_opened(&self, id: u64) -> bool {
        self.objects.get(&id).is_some_and(|object| self.callers.were_there(object.opened))
    }

    /// How many passes have ended: as long as that stays, the host has what it had.
    pub fn passes(&self) -> u64 {
        self.callers.passes
    }

    /// What hangs on an anchor, and nothing keeps: the log has nothing for it at or above its `tail`.
    pub fn idle_on_anchors(&self, tail: u64) -> Vec<u64> {
        let hanging = self.objects.iter().filter(|(_, object)| object.hangs[0] && object.kind != Kind::Directory);
        hanging.map(|(id, _)| *id).filter(|id| self.is_idle_on_anchor(*id, tail)).collect()
    }

    /// Whether this is one of them.
    pub fn is_idle_on_anchor(&self, id: u64, tail: u64) -> bool {
        let object = self.objects.get(&id).filter(|object| object.hangs[0] && !self.held.contains(id));
        object.is_some_and(|object| !object.is_used(tail) && !self.callers.have(object)) && !self.is_claimed(id)
    }

    /// What groups below `target` made or adopted, that hangs in the folder of blanks and has no name, and that nobody
    /// can come by any more.
    pub fn spent_blanks(&self, target: u64) -> Vec<u64> {
        let hanging = self.objects.iter().filter(|(_, object)| object.hangs[1]);
        hanging.map(|(id, _)| *id).filter(|id| self.is_spent_blank(*id, target)).collect()
    }

    /// Whether this is one of them. A pass that takes its bytes home, or its time, has it open.
    pub fn is_spent_blank(&self, id: u64, target: u64) -> bool {
        let Some(object) = self.objects.get(&id) else { return false };
        let hangs = object.hangs[1] && object.home() == Some(Home::Folder(BLANKS));
        // Of what was adopted nobody has told that he made it.
        let came = if object.is_born() { object.made } else { object.last };
        let is_made = came != 0 && came < target;
        let is_open =
            object.pins > 0 || object.file.upgrade().is_some_and(|file| file.handles.load(Ordering::Relaxed) > 0);
        let is_held = is_open || self.callers.have(object);
        hangs && is_made && object.place().is_none() && !is_held && !self.is_claimed(id)
    }

    /// Forgets what is home: everything below `tail` is, and no group at or above it speaks of what is not in use.
    pub(super) fn forget(&mut self, tail: u64) {
        for names in self.registers.values_mut() {
            names.retain(|_, register| register.forget(tail));
        }
        self.registers.retain(|_, names| !names.is_empty());
        self.count = self.registers.values().map(|names| names.len() as u64).sum();
        for (_, object) in self.objects.iter_mut().filter(|(_, object)| object.waits) {
            if object.home().is_none() && object.place().is_none() && !object.nameable {
                // It has no place at home where somebody could set them: who has it open goes on seeing them here.
                object.waits = false;
                continue;
            }
            object.sets.forget(tail);
            let is_told = object.file.upgrade().is_some_and(|file| file.mtime().is_some());
            object.waits = !object.sets.is_empty() || object.mtime.ns().is_some() || is_told;
        }
        self.callers.passes += 1;
        let mut kept = Ids::from_iter([ROOT]);
        for (dir, names) in &self.registers {
            self.keep(*dir, &mut kept);
            for register in names.values() {
                let values = register.values().map(|value| value.1);
                values.chain([register.home()]).for_each(|id| self.keep(id, &mut kept));
            }
        }
        for (id, object) in self.objects.iter() {
            // What hangs in one of the store's own folders is forgotten once it does not: till then the host counts a
            // name too many.
            if object.hangs != [false; 2]
                || object.is_used(tail)
                || self.callers.have(object)
                || self.claims.has(*id, object)
            {
                self.keep(*id, &mut kept);
            }
        }
        let by_inode = &mut self.by_inode;
        self.objects.retain(|id, object| {
            let stays = kept.contains(*id);
            if !stays
                && let Some(inode) = object.inode()
                && by_inode.get(&inode) == Some(id)
            {
                by_inode.remove(&inode);
            }
            stays
        });
        self.waiting_objects = self.objects.values().filter(|object| object.waits).count() as u64;
    }

    /// An object stays in the table, and with it the directories that it is in.
    fn keep(&self, id: u64, kept: &mut Ids) {
        let mut todo = vec![id];
        while let Some(id) = todo.pop() {
            if kept.insert(id)
                && let Some(object) = self.objects.get(&id)
            {
                todo.extend(object.place().map(|place| place.0).into_iter().chain(object.home().map(Home::dir)));
            }
        }
    }
}
