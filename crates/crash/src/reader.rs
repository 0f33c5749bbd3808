//! A bystander that reads: it looks at the directory of a store between any two host calls of a run.
//!
//! A store's files lie in the directory as of the groups that are home. While a pass takes more groups home, each name
//! of a regular file is at any moment as it was, or as it is to be:
//!
//! 1. A name that is a file's before and after is one's all the time.
//! 2. What no committed group has named is not there, whatever a pass makes on its way.
//! 3. Nobody may do to a file what he may not do before and may not do after.
//! 4. Where another file comes to a name, it is whole by then: its bytes, its owner, its mode and its extended
//!    attributes.
//! 5. Of a file that stays, and of one that comes where nothing was, each byte is one that it has before or after, or a
//!    zero that is not written yet.
//!
//! *Before* and *after* are all states from what is home for sure to what the operation that runs is about to commit: a
//! pass may take home any of them. Names in directories that move, come or go between them are not looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use wholly_sim::{Image, Named, Place};

use crate::look::OWN;
use crate::run::{Run, run};
use crate::setting::Setting;
use crate::tree::{Kind, Number, OWNER, Object, State};
use crate::workload::{Promise, Workload};

const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;

/// Runs a workload, and reads beside it: how often something had changed.
///
/// # Errors
/// What is wrong, in words.
pub fn read_beside(workload: &Workload, setting: &Setting) -> Result<u64, String> {
    let run = run(workload, setting);
    let mut looks = 0;
    run.trace.watch(|_, _| {
        looks += 1;
        ControlFlow::Continue(())
    });
    run.wrong(workload).map_or(Ok(looks), |what| Err(format!("{}:{}: {what}", workload.name, setting.name)))
}

/// Reads along a run in which nothing crashes. Returns what it should not have seen, and after how many events.
pub(crate) fn read_along(run: &Run) -> Option<(u64, String)> {
    let mut home = Home::new(run);
    let mut found = None;
    run.trace.watch(|point, image| {
        home.reaches(point);
        found = home.look(image).err().map(|what| (point, format!("a reader beside it {}: {what}", run.moment(point))));
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}

/// What may be home.
struct Home<'r> {
    run: &'r Run,
    /// What was there at first, and after each operation.
    states: Vec<Promise>,
    /// The states that may be there: from the first of these on, up to before the other one.
    from: usize,
    to: usize,
    /// Operations that have returned.
    returned: usize,
    /// States as of which lots were announced that wait.
    lots: VecDeque<usize>,
}

impl<'r> Home<'r> {
    fn new(run: &'r Run) -> Self {
        let mut states = vec![run.before[0].clone()];
        states.extend(run.operations.iter().map(|operation| operation.state.clone()));
        Home { run, states, from: 0, to: 1, returned: 0, lots: VecDeque::new() }
    }

    /// So many events have happened.
    fn reaches(&mut self, point: u64) {
        let operations = &self.run.operations;
        while let Some(operation) = operations.get(self.returned).filter(|operation| operation.end <= point) {
            // As of before it: what it commits itself may not be home.
            let before = self.returned;
            let home = match operation.label.split(' ').next() {
                // Of a file: nothing goes home by that.
                _ if operation.label.starts_with("close of ") => None,
                Some("lot") => {
                    self.lots.push_back(before);
                    None
                }
                // It announces one more, and takes the oldest. What joins that is left out: less is sure to be home
                // then.
                Some("pass") => {
                    self.lots.push_back(before);
                    self.lots.pop_front()
                }
                Some("checkpoint" | "close") => {
                    self.lots.clear();
                    Some(before)
                }
                // Another process knows of no lots.
                Some("open") => {
                    self.lots.clear();
                    None
                }
                _ => None,
            };
            self.from = self.from.max(home.unwrap_or(0));
            self.returned += 1;
        }
        let begun = operations[self.returned..].iter().take_while(|operation| operation.begin <= point).count();
        self.to = self.returned + begun + 1;
    }

    fn look(&self, image: &Image) -> Result<(), String> {
        let mut window: Vec<&State> = Vec::new();
        for promise in &self.states[self.from..self.to] {
            if window.last().is_none_or(|last| !std::ptr::eq(*last, &**promise)) {
                window.push(promise);
            }
        }
        let names: BTreeMap<String, Named> = (image.names().into_iter())
            .map(|named| (String::from_utf8_lossy(&named.path).into_owned(), named))
            .filter(|(path, _)| path.split('/').next() != Some(OWN))
            .collect();
        let in_states = window.iter().flat_map(|state| state.paths()).map(|(path, _)| path);
        let paths: BTreeSet<String> = in_states.chain(names.keys().cloned()).collect();
        for path in paths.iter().filter(|path| stays(&window, path)) {
            let seen = names.get(path).map(|named| (named, image));
            look_at(&window, path, seen).map_err(|what| format!("{path} {what}"))?;
        }
        Ok(())
    }
}

/// Whether the directories of a path are the same ones in all states.
fn stays(window: &[&State], path: &str) -> bool {
    path.match_indices('/').map(|(at, _)| &path[..at]).all(|dir| {
        let number = window[0].find(dir).ok().filter(|number| window[0].object(*number).is_dir());
        number.is_some() && window.iter().all(|state| state.find(dir).ok() == number)
    })
}

fn look_at(window: &[&State], path: &str, seen: Option<(&Named, &Image)>) -> Result<(), String> {
    let has: Vec<Option<Number>> = window.iter().map(|state| state.find(path).ok()).collect();
    let file = |(state, number): (&&State, &Option<Number>)| {
        number.filter(|number| matches!(state.object(*number).kind, Kind::File(_)))
    };
    let files: Vec<Option<Number>> = window.iter().zip(&has).map(file).collect();
    let Some((named, image)) = seen else {
        let is_dir = |(state, number): (&&State, &Option<Number>)| number.is_none_or(|n| state.object(n).is_dir());
        return if window.iter().zip(&has).any(is_dir) { Ok(()) } else { Err("is absent".into()) };
    };
    if has.iter().all(Option::is_none) {
        return Err("is there, and was never committed".into());
    }
    if named.mode & TYPE != FILE {
        return if files.iter().all(Option::is_some) { Err("is no file".into()) } else { Ok(()) };
    }
    let content = image.read(&Place::file(path)).unwrap_or_default();
    let numbers: BTreeSet<Number> = files.iter().flatten().copied().collect();
    let mut wrong = String::from("is a file, and never was");
    for number in numbers {
        let versions: Vec<&Object> =
            window.iter().filter(|state| state.has(number)).map(|state| state.object(number)).collect();
        let replaces = files[0].is_some_and(|first| first != number);
        match judge(&versions, named, &content, replaces) {
            Ok(()) => return Ok(()),
            Err(what) => wrong = what,
        }
    }
    Err(wrong)
}

/// Whether what is seen is one of these versions of a file, or on the way from one to another. One that replaces
/// another is whole.
fn judge(versions: &[&Object], seen: &Named, content: &[u8], replaces: bool) -> Result<(), String> {
    let mode = seen.mode & !TYPE;
    let owner = (seen.owner.0 == OWNER.0 || seen.owner.1 == OWNER.1).then_some(seen.owner);
    for (user, group) in USERS {
        let may = |mode, owner| allowed(mode, owner, user, group);
        let bits = may(mode, owner);
        if !versions.iter().any(|version| bits & !may(version.mode, version.owner) == 0) {
            let all: Vec<String> = versions.iter().map(|v| format!("{:o} of {:?}", v.mode, v.owner)).collect();
            return Err(format!("has mode {mode:o} of {owner:?}, wider than all of {}", all.join(", ")));
        }
    }
    let bytes = |version: &&Object| match &version.kind {
        Kind::File(bytes) => bytes.clone(),
        _ => [].into(),
    };
    let all: Vec<_> = versions.iter().map(bytes).collect();
    let (least, most) =
        (all.iter().map(|b| b.len()).min().unwrap_or(0), all.iter().map(|b| b.len()).max().unwrap_or(0));
    if replaces {
        if !(least..=most).contains(&content.len()) {
            return Err(format!("has another file of {} bytes, instead of {least} to {most}", content.len()));
        }
        if !versions.iter().any(|version| version.mode == mode && version.owner == owner) {
            return Err(format!("has another file with mode {mode:o} of {owner:?}, which it is not to have"));
        }
        let is_one = |version: &&Object| {
            let value = |(name, value): (&String, &std::sync::Arc<[u8]>)| (name.as_bytes().to_vec(), value.to_vec());
            version.xattrs.iter().map(value).collect::<BTreeMap<_, _>>() == seen.xattrs
        };
        if !versions.iter().any(is_one) {
            return Err(format!(
                "has another file with the attributes {:?}, which it is not to have",
                seen.xattrs.keys()
            ));
        }
    }
    let strange = content.iter().enumerate().find(|(at, byte)| {
        let is_one = all.iter().any(|bytes| bytes.get(*at) == Some(*byte));
        let may_come = **byte == 0 && (!replaces || *at >= least);
        !is_one && !may_come
    });
    match strange {
        Some((at, byte)) => Err(format!("has a byte {byte:02x} at {at}, which it never had")),
        None => Ok(()),
    }
}

/// For whom permissions are asked, by user and group: the owner that calls set, groups, and a stranger. Whose store it
/// is may do everything.
const USERS: [(u32, u32); 5] = [OWNER, (OWNER.0, u32::MAX), (u32::MAX, OWNER.1), (u32::MAX, 0), (u32::MAX, u32::MAX)];

/// What somebody may do to a file, as the last three permission bits; set-id bits are its owner's.
fn allowed(mode: u32, owner: Option<(u32, u32)>, user: u32, group: u32) -> u32 {
    let (uid, gid) = owner.unwrap_or((0, 0));
    if user == uid {
        mode >> 6 & 7 | mode & 0o6000
    } else if group == gid {
        mode >> 3 & 7
    } else {
        mode & 7
    }
}
