//! What others have changed of what the group builds on, as far as times tell: whatever is changed below after the
//! layer was made has a later `ctime`. That of a directory changes with each name in it, so that it says something of
//! directories that go, and of attributes only.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::host::{Path, Stat, Tree, ns, split};
use crate::marks::Reader;
use crate::plan::{Dir, Fate, From, Node, Plan, Source};
use crate::{How, deep};

/// Looks at all that the plan changes below, and notes in it what is otherwise.
pub(crate) struct Look<'l> {
    pub upper: &'l Tree<'l>,
    pub lower: &'l Tree<'l>,
    pub reader: &'l Reader,
    pub since_ns: i64,
}

impl Look<'_> {
    /// All, but for what is in directories that may go whole, in which the group looks itself.
    pub fn at(&self, plan: &mut Plan, how: How) -> Result<()> {
        let wrong = self.wrong(plan, |path| how == How::Adopt && plan.may_go_whole(path))?;
        plan.wrong.extend(wrong);
        Ok(())
    }

    /// What has been changed since the first look: nothing has gone home meanwhile. What was not there then, and is to
    /// be, the group looks for by itself; and so it does in directories that went `whole`.
    pub fn once_more(&self, plan: &Plan, whole: &BTreeSet<Path>) -> Result<BTreeSet<(Path, String)>> {
        let mut late = self.wrong(plan, |path| whole.contains(path))?;
        let files = plan.files.iter().filter_map(|file| match &file.source {
            Source::Aside(path, _) => Some(path),
            _ => None,
        });
        for path in files.cloned().chain(plan.hidden.iter()) {
            if self.lower.stat(&path)?.is_none() {
                late.insert((path, "it is gone".into()));
            }
        }
        late.retain(|wrong| !plan.wrong.iter().any(|known| known.0 == wrong.0));
        Ok(late)
    }

    fn wrong(&self, plan: &Plan, goes_whole: impl Fn(&[u8]) -> bool) -> Result<BTreeSet<(Path, String)>> {
        let mut wrong = BTreeSet::new();
        for (path, fate) in plan.fates() {
            let Some(stat) = self.lower.stat(&path)? else { continue };
            match fate {
                // What is in it comes along, and its attributes are compared.
                Fate::Aside(_) if stat.is_dir() => {}
                Fate::Aside(_) => self.compare(&mut wrong, &path, &stat),
                Fate::Gone => {
                    self.compare(&mut wrong, &path, &stat);
                    if stat.is_dir() && !goes_whole(&path) {
                        self.look_into_loss(plan, &mut wrong, &path)?;
                    }
                }
            }
        }
        for file in &plan.files {
            if let Source::Below(path) = &file.source {
                match self.lower.stat(path)? {
                    Some(stat) => self.compare(&mut wrong, path, &stat),
                    None => _ = wrong.insert((path.clone(), "it is gone".into())),
                }
            }
        }
        self.look_at_directory(&plan.root, &mut wrong)?;
        Ok(wrong)
    }

    fn is_late(&self, stat: &Stat) -> bool {
        ns(stat.ctime) > self.since_ns
    }

    fn compare(&self, wrong: &mut BTreeSet<(Path, String)>, path: &[u8], stat: &Stat) {
        if self.is_late(stat) {
            wrong.insert((path.to_vec(), self.in_words(stat).into()));
        }
    }

    fn in_words(&self, stat: &Stat) -> &'static str {
        match () {
            () if ns(stat.btime) > self.since_ns => "something has been made there",
            () if stat.is_dir() => "its names, or its attributes, have been changed",
            () if ns(stat.mtime) > self.since_ns => "its content has been changed",
            () => "its attributes, or its links, have been changed",
        }
    }

    /// What is in a directory that is to go, but for what is taken out of it.
    fn look_into_loss(&self, plan: &Plan, wrong: &mut BTreeSet<(Path, String)>, path: &[u8]) -> Result<()> {
        let mut late = Vec::new();
        self.lower.walk(path, &mut |path, stat| {
            let is_aside = plan.asides.contains_key(path);
            if self.is_late(stat) && !(is_aside && stat.is_dir()) {
                late.push((path.to_vec(), *stat));
            }
            Ok(!is_aside)
        })?;
        for (path, stat) in late {
            let what = match ns(stat.btime) > self.since_ns {
                true => "it has been put into a directory that the group removes",
                false => self.in_words(&stat),
            };
            wrong.insert((path, what.into()));
        }
        Ok(())
    }

    /// The attributes of a directory that was there, and of those in it: notes those that others have changed, to
    /// something else than the command has.
    fn look_at_directory(&self, dir: &Dir, wrong: &mut BTreeSet<(Path, String)>) -> Result<()> {
        if let (Some(path), true) = (&dir.lower, dir.before.is_some() && dir.from != From::Nowhere)
            && let Some(now) = self.lower.stat(path)?
            && self.is_late(&now)
            && self.differs(dir, &now, path)?
        {
            wrong.insert((path.clone(), "its attributes have been changed".into()));
        }
        for entry in &dir.entries {
            if let Node::Dir(inner) = &entry.node {
                deep(|| self.look_at_directory(inner, wrong))?;
            }
        }
        Ok(())
    }

    fn differs(&self, dir: &Dir, before: &Stat, path: &[u8]) -> Result<bool> {
        let bits = |stat: &Stat| (stat.mode, stat.uid, stat.gid);
        if bits(&dir.stat) != bits(before) {
            return Ok(true);
        }
        let (Some(upper), Some(lower)) = (self.upper.dir(&dir.upper)?, self.lower.dir(path)?) else {
            return Ok(false);
        };
        Ok(self.reader.shown_attributes(&upper, b"")? != self.reader.shown_attributes(&lower, b"")?)
    }
}

/// The paths of the directories that a path is in, the nearest first, down to the root.
pub(crate) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| (!path.is_empty()).then(|| split(path).0)).skip(1)
}
