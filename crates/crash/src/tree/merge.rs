//! Two groups that run at the same time: what one has done to the state that it began with, done to another one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Kind, Number, Object, State, Time};

impl State {
    /// Makes the changes that led from `base` to `theirs`: names one by one, the bytes of each file, the attributes of
    /// each object.
    ///
    /// # Errors
    /// In words, where somebody has changed the same since `base`, or where the two do not go together.
    pub fn merge(&mut self, base: &State, theirs: &State) -> Result<(), String> {
        self.merge_as(base, theirs, false)
    }

    /// The same over what somebody has changed of it since `base`: `theirs` wins.
    ///
    /// # Errors
    /// In words, where the two do not go together.
    pub fn merge_over(&mut self, base: &State, theirs: &State) -> Result<(), String> {
        self.merge_as(base, theirs, true)
    }

    fn merge_as(&mut self, base: &State, theirs: &State, is_over: bool) -> Result<(), String> {
        // What they made gets other numbers here.
        let mut numbers: BTreeMap<Number, Number> = BTreeMap::new();
        for (&number, object) in theirs.objects.range(base.next..) {
            let empty = match object.kind {
                Kind::Dir(_) => Object { kind: Kind::Dir(BTreeMap::new()), ..object.clone() },
                _ => object.clone(),
            };
            numbers.insert(number, self.add(empty));
        }
        let changed = |(number, object): (&Number, &Object)| {
            base.objects.get(number).filter(|before| object.is_changed(before)).map(|_| (*number, object.mtime))
        };
        let others: BTreeMap<Number, Time> = self.objects.iter().filter_map(changed).collect();
        let here = |number: &Number| numbers.get(number).copied().unwrap_or(*number);
        let nothing = BTreeMap::new();
        // What they removed was empty before.
        let removed = base.objects.iter().filter(|(number, _)| !theirs.objects.contains_key(number));
        let emptied: Vec<(&Number, Object)> =
            removed.filter(|(_, object)| object.is_dir()).map(|(number, _)| (number, Object::dir(0))).collect();
        let emptied = emptied.iter().map(|(number, object)| (*number, object));
        for (number, object) in theirs.objects.iter().chain(emptied) {
            let before = base.objects.get(number);
            match (&object.kind, before.map(|before| &before.kind)) {
                (Kind::Dir(names), before) => {
                    let before = if let Some(Kind::Dir(before)) = before { before } else { &nothing };
                    let all: BTreeSet<&String> = names.keys().chain(before.keys()).collect();
                    for name in all {
                        let (was, is) = (before.get(name), names.get(name));
                        if was == is {
                            continue;
                        }
                        let dir = here(number);
                        if !self.objects.contains_key(&dir) {
                            return Err(format!("a directory is gone that gets a name {name}"));
                        }
                        if self.entry(dir, name).ok() != was.copied() && !is_over {
                            return Err(format!("both have changed the name {name} of a directory"));
                        }
                        self.change(dir, name, is.map(here));
                    }
                }
                (Kind::File(content), Some(Kind::File(before))) if content != before => {
                    let now = self.objects.get(number);
                    if now.is_none_or(|object| object.kind != Kind::File(before.clone()) && !is_over) {
                        return Err("both have changed the bytes of a file, or one has removed it".into());
                    }
                    self.set_content(*number, content.clone());
                }
                _ => {}
            }
        }
        for (number, after) in &theirs.objects {
            match (base.objects.get(number), self.objects.get_mut(&here(number))) {
                (Some(before), Some(object)) => {
                    match is_over {
                        true => object.take_attributes(before, after),
                        false => object.merge_attributes(before, after)?,
                    }
                    // Neither waits for the other where one names something in a directory and one sets its times.
                    let both = others.get(number).filter(|_| before.is_dir() && after.is_changed(before));
                    if both.is_some_and(|other| (after.mtime, *other) != (Time::Clock, Time::Clock)) {
                        object.mtime = Time::Either;
                    }
                }
                (Some(_), None) => {}
                (None, object) => object.expect("it was added").mtime = after.mtime,
            }
        }
        for (path, number) in &theirs.opened {
            if base.opened.get(path) != Some(number) {
                self.opened.insert(path.clone(), here(number));
            }
        }
        self.check()?;
        self.forget();
        Ok(())
    }

    /// Each directory has one name, or none and nothing in it.
    fn check(&self) -> Result<(), String> {
        let mut named = BTreeMap::from([(super::ROOT, String::new())]);
        for (path, number) in self.paths() {
            if self.objects[&number].is_dir()
                && let Some(other) = named.insert(number, path.clone())
            {
                return Err(format!("a directory is both {other} and {path}"));
            }
        }
        for (number, object) in &self.objects {
            if let Kind::Dir(names) = &object.kind
                && !named.contains_key(number)
                && !names.is_empty()
            {
                return Err("a directory is gone with something in it".into());
            }
        }
        Ok(())
    }
}
