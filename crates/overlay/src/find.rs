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
            None => handle.is_some_and(|handle| open.handles.get(&handle) == Some(file)),
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
    let lost: Vec<usize> = open.handles.files().collect();
    open.seek_indexed(plan);
    if !open.is_done() {
        open.look_in(plan, lower, b"")?;
    }
    for file in lost {
        let is_found = !matches!(plan.files[file].source, Source::Sought(..));
        if let Some(path) = plan.files[file].upper.first().filter(|_| is_found).cloned() {
            plan.wrong(&path, "the file that it was copied from has another name");
        }
    }
    for file in open.handles.files().chain(open.unknown.keys().copied()) {
        let file = &mut plan.files[file];
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

/// Files by what they were below. There may be very many: nothing is done with all of them for each of them.
#[derive(Default)]
struct Handles(HashMap<FileHandle, usize>);

impl Handles {
    fn get(&self, handle: &FileHandle) -> Option<usize> {
        self.0.get(handle).copied()
    }

    fn insert(&mut self, handle: FileHandle, file: usize) {
        self.0.insert(handle, file);
    }

    fn remove(&mut self, handle: &FileHandle) {
        self.0.remove(handle);
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    fn files(&self) -> impl Iterator<Item = usize> {
        self.0.values().copied().inspect(|_| {
            #[cfg(test)]
            tests::PASSED.set(tests::PASSED.get() + 1);
        })
    }
}

/// What is still sought.
struct Sought {
    handles: Handles,
    /// Files of a file system without handles, with their types.
    unknown: HashMap<usize, rustix::fs::FileType>,
}

impl Sought {
    fn of(plan: &Plan) -> Self {
        let mut sought = Sought { handles: Handles::default(), unknown: HashMap::new() };
        for (number, file) in plan.files.iter().enumerate() {
            match &file.source {
                // Of what the index alone leads to, a name that stays is sought.
                Source::Sought(..) if file.index.is_some() => {}
                Source::Sought(Origin::Handle(handle), _) => sought.handles.insert(handle.clone(), number),
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
        match &plan.files[file].source {
            Source::Sought(Origin::Handle(handle), _) => self.handles.remove(handle),
            _ => _ = self.unknown.remove(&file),
        }
        let aside = if plan.is_gone(&path) { plan.set_aside(&path) } else { None };
        plan.files[file].source = match aside {
            Some(number) => Source::Aside(path, number),
            None => Source::Below(path),
        };
    }

    fn look_at(&mut self, plan: &mut Plan, lower: &Tree<'_>, path: &[u8]) -> Result<()> {
        let handle = lower.identify(path)?.and_then(|(_, handle)| handle);
        if let Some(file) = handle.and_then(|handle| self.handles.get(&handle))
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    use rustix::fs::{Mode, OFlags, open};
    use wholly_scratch::TestDir;

    use super::*;
    use crate::marks::Marks;
    use crate::paths::Names;
    use crate::plan::{Dir, File, From};

    thread_local! {
        /// Files of [`Handles`] that were passed one by one.
        pub(super) static PASSED: Cell<usize> = const { Cell::new(0) };
    }

    /// Moves files away from names that the layer hides; of every fourth only that is known, of one more not even that.
    /// Returns how many were passed one by one to find all others.
    fn passed(files: usize) -> Option<usize> {
        let dir = TestDir::on_disk();
        let fd = open(dir.path(), OFlags::PATH, Mode::empty()).expect("open");
        let lower = Tree::new(fd.as_fd(), b".");
        let stat = lower.stat(b"").expect("stat").expect("it is there");
        let root = Dir {
            upper: Path::new(),
            lower: Some(Path::new()),
            from: From::Below,
            stat,
            before: None,
            marks: Marks::default(),
            count: 0,
            plain: Names::default(),
            entries: Vec::new(),
            is_whole: false,
        };
        let (asides, wrong) = Default::default();
        let (hidden, hidden_dirs) = Default::default();
        let mut plan = Plan { root, files: Vec::new(), hidden, hidden_dirs, asides, wrong, has_own_folder: false };
        for number in 0..files {
            let path = format!("from{number}").into_bytes();
            drop(dir.file(&format!("from{number}")));
            let (stat, handle) = lower.identify(&path).expect("identify").expect("it is there");
            // There is nothing to count where files have none.
            let origin = Origin::Handle(handle?);
            plan.hide(&path, &stat);
            let (upper, marks) = (vec![format!("to{number}").into_bytes()], Marks::default());
            let source = Source::Sought(origin, Some(path).filter(|_| number % 4 > 0));
            plan.files.push(File { upper, index: None, stat, marks, source, stays: false });
        }
        std::fs::remove_file(dir.path().join("from1")).expect("remove");
        PASSED.set(0);
        resolve(&mut plan, &lower).expect("resolve");
        let found = |file: &&File| matches!(file.source, Source::Aside(..));
        assert_eq!(plan.files.iter().filter(found).count(), files - 1);
        assert!(plan.files[1].source == Source::Nowhere && plan.wrong.len() == 1);
        Some(PASSED.get())
    }

    #[test]
    fn one_more_file_is_one_more_step() {
        let [few, many] = [50, 200].map(passed);
        assert_eq!(few, many, "what is lost is passed, and nothing else");
    }
}
