//! Finds below what the layer has under other names.
//!
//! What was moved has lost its name below: it is where the layer hides something. What overlayfs has written on it may
//! say where. Only of what is reached through the index alone, and of what others have moved, nothing says anything: it
//! is sought everywhere.

use std::collections::HashMap;

use wholly_host::FileHandle;

use crate::error::Result;
use crate::host::{Path, Tree};
use crate::marks::Origin;
use crate::paths::Paths;
use crate::plan::{Plan, Source};

/// Finds all that is sought.
pub(crate) fn resolve(plan: &mut Plan, lower: &Tree<'_>) -> Result<()> {
    let mut open = Sought::of(plan);
    for (file, path) in hints(plan) {
        let found = lower.identify(&path)?;
        let is_it = found.is_some_and(|(stat, handle)| match open.unknown.get(&file) {
            Some(kind) => stat.kind == *kind,
            None => handle.is_some_and(|handle| open.handles.get(&handle) == Some(&file)),
        });
        if is_it {
            open.found(plan, file, path);
        }
    }
    let hidden = if open.is_done() { Paths::default() } else { plan.hidden.clone() };
    for path in hidden.iter() {
        if open.is_done() {
            break;
        }
        match lower.stat(&path)? {
            Some(stat) if stat.is_dir() => open.look_in(plan, lower, &path)?,
            Some(_) => open.look_at(plan, lower, &path)?,
            None => {}
        }
    }
    // The index has files whose names are not in the layer; and what else is left others have moved or removed.
    let lost: Vec<usize> = open.handles.values().copied().collect();
    open.seek_indexed(plan);
    if !open.is_done() {
        open.look_in(plan, lower, b"")?;
    }
    for file in lost.into_iter().filter(|file| !open.handles.values().any(|number| number == file)) {
        if let Some(path) = plan.files[file].upper.first().cloned() {
            plan.wrong(&path, "the file that it was copied from has another name");
        }
    }
    for file in open.handles.values().chain(open.unknown.keys()) {
        let file = &mut plan.files[*file];
        file.source = Source::Nowhere;
        if let Some(path) = file.upper.first().cloned() {
            plan.wrong(&path, "the file that it was copied from is gone");
        }
    }
    Ok(())
}

/// Where what overlayfs has written says that something was.
fn hints(plan: &Plan) -> Vec<(usize, Path)> {
    let hint = |(number, file): (usize, &crate::plan::File)| match &file.source {
        Source::Sought(_, hint) => hint.clone().map(|hint| (number, hint)),
        _ => None,
    };
    plan.files.iter().enumerate().filter_map(hint).collect()
}

/// What is still sought.
struct Sought {
    handles: HashMap<FileHandle, usize>,
    /// Files of a file system without handles, with their types.
    unknown: HashMap<usize, rustix::fs::FileType>,
}

impl Sought {
    fn of(plan: &Plan) -> Self {
        let mut sought = Sought { handles: HashMap::new(), unknown: HashMap::new() };
        for (number, file) in plan.files.iter().enumerate() {
            match &file.source {
                // Of what the index alone leads to, a name that stays is sought.
                Source::Sought(..) if file.index.is_some() => {}
                Source::Sought(Origin::Handle(handle), _) => _ = sought.handles.insert(handle.clone(), number),
                Source::Sought(Origin::Unknown, _) => _ = sought.unknown.insert(number, file.stat.kind),
                _ => {}
            }
        }
        sought
    }

    fn is_done(&self) -> bool {
        self.handles.is_empty()
    }

    fn seek_indexed(&mut self, plan: &Plan) {
        for (number, file) in plan.files.iter().enumerate() {
            if let (Source::Sought(Origin::Handle(handle), _), Some(_)) = (&file.source, &file.index) {
                self.handles.insert(handle.clone(), number);
            }
        }
    }

    fn found(&mut self, plan: &mut Plan, file: usize, path: Path) {
        self.handles.retain(|_, number| *number != file);
        self.unknown.remove(&file);
        let aside = if plan.is_gone(&path) { plan.set_aside(&path) } else { None };
        plan.files[file].source = match aside {
            Some(number) => Source::Aside(path, number),
            None => Source::Below(path),
        };
    }

    fn look_at(&mut self, plan: &mut Plan, lower: &Tree<'_>, path: &[u8]) -> Result<()> {
        let handle = lower.identify(path)?.and_then(|(_, handle)| handle);
        if let Some(&file) = handle.and_then(|handle| self.handles.get(&handle))
            && !(plan.files[file].index.is_some() && plan.is_gone(path))
        {
            self.found(plan, file, path.to_vec());
        }
        Ok(())
    }

    fn look_in(&mut self, plan: &mut Plan, lower: &Tree<'_>, dir: &[u8]) -> Result<()> {
        lower.walk(dir, &mut |path, stat| {
            if path == b".wholly" || self.is_done() {
                return Ok(false);
            }
            if !stat.is_dir() {
                self.look_at(plan, lower, path)?;
            }
            Ok(true)
        })
    }
}
