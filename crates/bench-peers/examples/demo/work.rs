//! What the program of the demo does: groups of changes, each drawn by its number alone.
//!
//! So the state after `n` groups is a function of `n`: whoever knows how many groups have returned knows what every
//! file must hold.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use wholly::Store;
use wholly_sim::Random;

/// One in so many groups creates a file too.
const CREATE_EVERY: u64 = 8;

/// One change of one file.
pub enum Change {
    /// These bytes at this offset; the file may grow.
    Write(u64, Vec<u8>),
    /// The file is this long from now on.
    SetLen(u64),
    /// It appears, with this content.
    Create(Vec<u8>),
}

/// The changes of a program: names of the files that it begins with, and a seed.
pub struct Work {
    names: Vec<String>,
    seed: u64,
}

impl Work {
    /// Changes of these files.
    pub fn new(names: Vec<String>, seed: u64) -> Work {
        Work { names, seed }
    }

    /// Names and changes of group `number`; `len` tells how long a file is before it.
    pub fn group(&self, number: u64, mut len: impl FnMut(&str) -> u64) -> Vec<(String, Change)> {
        let mut random = Random(self.seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let created = number / CREATE_EVERY;
        let mut changes: Vec<(String, Change)> = Vec::new();
        for _ in 0..3 + random.below(3) {
            let at = random.below(self.names.len() as u64 + created);
            let name = match self.names.get(at as usize) {
                Some(name) => name.clone(),
                None => created_name(at - self.names.len() as u64),
            };
            if changes.iter().any(|(other, _)| *other == name) {
                continue;
            }
            let old = len(&name);
            let change = match random.below(8) {
                0 => Change::SetLen(random.below(old + 500)),
                1 => {
                    let n = 1 + random.below(1500);
                    Change::Write(old, random.bytes(n))
                }
                _ => {
                    let n = 1 + random.below(4000);
                    Change::Write(random.below(old + 1), random.bytes(n))
                }
            };
            changes.push((name, change));
        }
        if number % CREATE_EVERY == CREATE_EVERY - 1 {
            let n = random.below(3000);
            changes.push((created_name(created), Change::Create(random.bytes(n))));
        }
        changes
    }
}

fn created_name(number: u64) -> String {
    format!("created-by-the-demo-{number}")
}

/// What every file must hold.
#[derive(Clone, Default)]
pub struct Contents(pub BTreeMap<String, Vec<u8>>);

impl Contents {
    /// The files that group `number` changes, as they are after it.
    pub fn after(&self, work: &Work, number: u64) -> BTreeMap<String, Vec<u8>> {
        let mut changed = BTreeMap::new();
        for (name, change) in work.group(number, |name| self.0[name].len() as u64) {
            let mut content = self.0.get(&name).cloned().unwrap_or_default();
            match change {
                Change::Write(offset, data) => {
                    let end = offset as usize + data.len();
                    content.resize(content.len().max(end), 0);
                    content[offset as usize..end].copy_from_slice(&data);
                }
                Change::SetLen(len) => content.resize(len as usize, 0),
                Change::Create(data) => content = data,
            }
            changed.insert(name, content);
        }
        changed
    }

    /// Compares every file with `read`. `changed` is what the group in flight would have changed: it may be there
    /// wholly. Returns whether it is, or what is wrong.
    pub fn judge(
        &self,
        changed: &BTreeMap<String, Vec<u8>>,
        mut read: impl FnMut(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<bool, String> {
        let mut there: Option<(bool, &str)> = None;
        for name in self.0.keys().chain(changed.keys().filter(|name| !self.0.contains_key(*name))) {
            let found = read(name)?;
            let (old, new) = (self.0.get(name), changed.get(name));
            if new.is_none() || old == new {
                if found.as_ref() != old {
                    return Err(format!("{name} is not what was committed: {}", difference(found.as_ref(), old)));
                }
                continue;
            }
            let is_new = found.as_ref() == new;
            if !is_new && found.as_ref() != old {
                return Err(format!("{name} is neither as before nor as after the group that was interrupted"));
            }
            match there {
                Some((other, before)) if other != is_new => {
                    return Err(format!("the interrupted group is there in part: {before} and {name} disagree"));
                }
                _ => there = Some((is_new, name)),
            }
        }
        Ok(there.is_some_and(|(there, _)| there))
    }
}

fn difference(found: Option<&Vec<u8>>, expected: Option<&Vec<u8>>) -> String {
    match (found, expected) {
        (None, _) => "it is gone".into(),
        (_, None) => "it should not exist".into(),
        (Some(found), Some(expected)) if found.len() != expected.len() => {
            format!("{} bytes instead of {}", found.len(), expected.len())
        }
        (Some(found), Some(expected)) => {
            let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or_default();
            format!("the first wrong byte is {at} of {}", found.len())
        }
    }
}

/// The program that runs the groups over a store.
pub struct Program<'w> {
    work: &'w Work,
    store: Store,
    files: HashMap<String, wholly::File>,
}

impl<'w> Program<'w> {
    /// Over this store.
    pub fn new(work: &'w Work, store: Store) -> Self {
        Program { work, store, files: HashMap::new() }
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Runs group `number`. It survives when this returns.
    pub fn run(&mut self, number: u64) -> wholly::Result<()> {
        let mut failed = None;
        let changes = self.work.group(number, |name| match file(&self.store, &mut self.files, name) {
            Ok(file) => file.len(),
            Err(error) => {
                failed = Some(error);
                0
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let mut group = self.store.begin();
        for (name, change) in changes {
            match change {
                Change::Create(data) => {
                    let file = group.create(&name, 0o644)?;
                    group.write_at(&file, 0, &data)?;
                }
                Change::Write(offset, data) => {
                    group.write_at(file(&self.store, &mut self.files, &name)?, offset, &data)?;
                }
                Change::SetLen(len) => group.set_len(file(&self.store, &mut self.files, &name)?, len)?,
            }
        }
        group.commit()
    }
}

/// The same program without Wholly, over the files of a directory: each change is written and synced.
pub fn run_plainly(work: &Work, dir: &Path, number: u64) -> std::io::Result<()> {
    let open = |name: &str| File::options().write(true).create(true).truncate(false).open(dir.join(name));
    for (name, change) in work.group(number, |name| dir.join(name).metadata().map_or(0, |meta| meta.len())) {
        let file = open(&name)?;
        match change {
            Change::Create(data) => file.write_all_at(&data, 0)?,
            Change::Write(offset, data) => file.write_all_at(&data, offset)?,
            Change::SetLen(len) => file.set_len(len)?,
        }
        file.sync_all()?;
    }
    Ok(())
}

/// An open file, opened once.
fn file<'f>(
    store: &Store,
    files: &'f mut HashMap<String, wholly::File>,
    name: &str,
) -> wholly::Result<&'f wholly::File> {
    if !files.contains_key(name) {
        files.insert(name.into(), store.open_file(name)?);
    }
    Ok(&files[name])
}

/// A file of an open store, whole; none where it does not exist.
pub fn read(store: &Store, name: &str) -> Result<Option<Vec<u8>>, String> {
    let file = match store.open_file(name) {
        Ok(file) => file,
        Err(wholly::Error::NotFound(_)) => return Ok(None),
        Err(error) => return Err(format!("{name} cannot be opened: {error}")),
    };
    let mut content = vec![0; file.len() as usize];
    let n = file.read_at(0, &mut content).map_err(|error| format!("{name} cannot be read: {error}"))?;
    content.truncate(n);
    Ok(Some(content))
}
