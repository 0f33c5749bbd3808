//! What a reader sees of a state, in short: a version for each path that matters.

use std::collections::BTreeMap;

use wholly_sim::{Image, Place};

use crate::tree::{Kind, Object, State, looks_as};
use crate::workload::Promise;

/// Paths that a view has at most.
const MOST: usize = 6;

/// A path and the version of what is there: `v0` is what was there at first, `v1` what took its place, and so on.
pub type Version = (String, String);

/// One state, in short.
pub struct View {
    /// The operation that made it, in words.
    pub made_by: String,
    /// The paths that tell it from the other states in question.
    pub versions: Vec<Version>,
}

/// The states of a run, in the order in which they were made, and all that ever was at a path.
#[derive(Default)]
pub(crate) struct History {
    states: Vec<(String, Promise)>,
    at: BTreeMap<String, Vec<Option<Object>>>,
}

impl History {
    /// Adds a state, if it is a new one.
    pub fn add(&mut self, made_by: &str, state: &Promise) {
        if self.states.iter().any(|(_, known)| known == state) {
            return;
        }
        for (path, _) in state.paths() {
            // What comes later was not there at first.
            let nothing = if self.states.is_empty() { Vec::new() } else { vec![None] };
            self.at.entry(path).or_insert(nothing);
        }
        for (path, versions) in &mut self.at {
            let object = state.at(path);
            if !versions.iter().any(|version| looks_as(version.as_ref(), object)) {
                versions.push(object.cloned());
            }
        }
        self.states.push((made_by.into(), state.clone()));
    }

    /// The paths in which these states differ; if it is one state, those in which it differs from the one before it.
    pub fn that_matter(&self, states: &[Promise]) -> Vec<String> {
        let Some(first) = states.first() else { return Vec::new() };
        let at = self.states.iter().position(|(_, state)| state == first).unwrap_or(0);
        let others = match states.len() {
            1 => vec![&self.states[at.saturating_sub(1)].1],
            _ => states[1..].iter().collect(),
        };
        let differs = |path: &&String| others.iter().any(|other| !looks_as(first.at(path), other.at(path)));
        let paths: Vec<String> = self.at.keys().filter(differs).cloned().collect();
        let is_file = |path: &&String| matches!(first.at(path), Some(Object { kind: Kind::File(_), .. }));
        // Where nothing has changed, any file tells that.
        if paths.is_empty() { self.at.keys().filter(is_file).cloned().collect() } else { paths }
    }

    /// A state in short.
    pub fn view(&self, state: &State, paths: &[String]) -> View {
        let made_by = self.states.iter().find(|(_, known)| **known == *state).map(|(made_by, _)| made_by.clone());
        let version = |path: &String| self.version(path, |object| looks_as(object.as_ref(), state.at(path)));
        View { made_by: made_by.unwrap_or_default(), versions: short(paths, version) }
    }

    /// What files of an image hold by themselves, as other programs see them; empty where no path is a file there.
    pub fn files(&self, image: &Image, paths: &[String]) -> Vec<Version> {
        let content = |path: &String| image.read(&Place::file(path));
        if paths.iter().all(|path| content(path).is_none()) {
            return Vec::new();
        }
        let version = |path: &String| {
            let content = content(path);
            self.version(path, |object| match (object, &content) {
                (Some(Object { kind: Kind::File(bytes), .. }), Some(content)) => **bytes == **content,
                (object, content) => object.is_none() && content.is_none(),
            })
        };
        short(paths, version)
    }

    fn version(&self, path: &str, is: impl Fn(&Option<Object>) -> bool) -> String {
        let versions = self.at.get(path).map_or(&[][..], Vec::as_slice);
        match versions.iter().rposition(is) {
            Some(number) if versions[number].is_some() => format!("v{number}"),
            Some(_) => "absent".into(),
            None => "mixed".into(),
        }
    }
}

fn short(paths: &[String], version: impl Fn(&String) -> String) -> Vec<Version> {
    let mut versions: Vec<Version> = paths.iter().take(MOST).map(|path| (path.clone(), version(path))).collect();
    if paths.len() > MOST {
        versions.push((format!("and {} more", paths.len() - MOST), String::new()));
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{FILE_MODE, Time};

    #[test]
    fn a_path_has_a_version_for_all_that_ever_was_there() {
        let state = |files: &[(&str, &str)]| {
            let mut state = State::default();
            for (path, content) in files {
                state.put(path, Object::file(content.as_bytes(), FILE_MODE));
            }
            Promise::new(state)
        };
        let states = [&[("a", "old")][..], &[("a", "new"), ("b", "b")], &[("a", "new")]].map(state);
        let mut history = History::default();
        for (label, state) in ["start", "commit 0", "commit 1"].into_iter().zip(&states) {
            history.add(label, state);
        }
        let shown = |view: View| format!("{} {:?}", view.made_by, view.versions);
        let paths = history.that_matter(&states[..2]);
        assert_eq!(shown(history.view(&states[0], &paths)), r#"start [("a", "v0"), ("b", "absent")]"#);
        assert_eq!(shown(history.view(&states[1], &paths)), r#"commit 0 [("a", "v1"), ("b", "v1")]"#);
        assert_eq!(history.that_matter(&states[2..]), ["b"]);
        // What can be seen is compared, as where a state is judged.
        let mut touched = State::default();
        touched.put("a", Object { mtime: Time::Either, ..Object::file(*b"new", FILE_MODE) });
        assert_eq!(history.view(&touched, &paths).versions[0].1, "v1");
        let other = state(&[("a", "torn")]);
        assert_eq!(shown(history.view(&other, &paths)), r#" [("a", "mixed"), ("b", "absent")]"#);
    }
}
