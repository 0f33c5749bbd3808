//! What a group would change, for people: a list by paths.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use wholly_vfs::Stat;

use crate::{Kind, Known, Name, Summary};

/// What happens to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// A new object gets the name.
    Created,
    /// The name is removed, and so is the object, unless it has other names.
    Removed,
    /// A new object gets the name from the object that has it.
    Replaced,
    /// An object loses another name and gets this one.
    Renamed,
    /// An object gets this name in addition to another one.
    Linked,
    /// The object keeps the name, and its bytes or attributes change.
    Changed,
}

/// One change of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happens to the name.
    pub what: What,
    /// The new name, relative to the store's directory; for [`What::Removed`] the removed one.
    pub path: PathBuf,
    /// The name that a renamed object had, or another name of a linked one; else `None`.
    pub from: Option<PathBuf>,
    /// The attributes of the object that is removed, replaced, renamed or changed, as they are. `None` if there is no
    /// object.
    pub before: Option<Stat>,
    /// The attributes of the object as they will be. Times that the group has not set are those of `before`. `None` if
    /// there will be no object.
    pub after: Option<Stat>,
    /// The object that loses its name to the renamed or linked one.
    pub replaced: Option<Stat>,
    /// Whether the bytes of a file change, or may change.
    pub content: bool,
    /// Extended attributes that the group sets or removes.
    pub xattrs: Vec<XattrChange>,
    /// Whether a directory is removed, or comes back, with everything in it. No other change tells of that.
    pub whole: bool,
    before_id: u64,
    after_id: u64,
}

/// An extended attribute that a group sets or removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrChange {
    /// The name of the attribute.
    pub name: OsString,
    /// The value that it gets; `None` if it is removed.
    pub value: Option<Vec<u8>>,
}

/// The state before a change or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The committed state, which all groups see.
    Before,
    /// The state in the group.
    After,
}

fn path(bytes: Vec<u8>) -> PathBuf {
    match bytes.is_empty() {
        true => ".".into(),
        false => OsString::from_vec(bytes).into(),
    }
}

/// All changes, by path.
pub fn changes_of(summary: &Summary) -> Vec<Change> {
    let mut all = Vec::new();
    // A name of a directory that is gone has no path after.
    let before = |name: &Name| summary.name_before(name).map(path);
    let after = |name: &Name| summary.name_after(name).map(path);
    let has_moved = |id: u64| summary.moved().get(&id).is_some_and(|moves| !moves.gained.is_empty());
    let victim = |name: &Name| Some(summary.names().get(name)?.0).filter(|&id| id != 0 && !has_moved(id));
    for (&id, moves) in summary.moved() {
        let born = matches!(summary.objects.get(&id), Some(Known::Born(_)));
        let old = moves.lost.first().and_then(before);
        for (i, name) in moves.gained.iter().enumerate() {
            let Some(path) = after(name) else { continue };
            let victim = victim(name);
            let mut change = Change { path, before_id: id, after_id: id, ..summary.change(id) };
            match (born, i) {
                (true, 0) => {
                    change.what = if victim.is_some() { What::Replaced } else { What::Created };
                    change.before_id = victim.unwrap_or(0);
                    change.before = victim.and_then(|victim| summary.before(victim));
                    change.content = summary.kind(id) == Kind::Regular;
                }
                (false, i) if i < moves.lost.len() => {
                    change.what = What::Renamed;
                    change.from = before(&moves.lost[i]);
                    change.replaced = victim.and_then(|victim| summary.before(victim));
                }
                _ => {
                    change.what = What::Linked;
                    change.from = match born {
                        true => moves.gained.first().and_then(after),
                        false => old.clone().or_else(|| summary.path_before(id).map(self::path)),
                    };
                    change.replaced = victim.and_then(|victim| summary.before(victim));
                }
            }
            if i > 0 {
                change = change.without_content();
            }
            all.push(change);
        }
        let removed = moves.lost.iter().skip(moves.gained.len());
        // Where something else has the name, that is told there.
        for name in removed.filter(|name| summary.names()[*name].1 == 0) {
            let Some(path) = before(name) else { continue };
            let change =
                Change { path, what: What::Removed, before_id: id, after: None, after_id: 0, ..summary.change(id) };
            all.push(change.without_content());
        }
    }
    let changed = summary.contents.keys().chain(summary.sets.keys().filter(|id| !summary.contents.contains_key(id)));
    for &id in changed {
        let told = summary.moved().get(&id).is_some_and(|moves| !moves.lost.is_empty());
        if let (false, Some(Known::Settled(_)), Some(found)) = (told, summary.objects.get(&id), summary.path_before(id))
        {
            let now = summary.settled(id).and_then(|settled| summary.name_after(&settled.place));
            all.push(Change { path: path(now.unwrap_or(found)), before_id: id, after_id: id, ..summary.change(id) });
        }
    }
    all.sort_by(|a, b| (&a.path, a.what as u8).cmp(&(&b.path, b.what as u8)));
    all
}

impl Change {
    /// The object on one side, by its id in the change-set; 0 for none.
    #[doc(hidden)]
    pub fn id_on(&self, side: Side) -> u64 {
        match side {
            Side::Before => self.before_id,
            Side::After => self.after_id,
        }
    }

    /// That is told at another name of it.
    fn without_content(self) -> Change {
        Change { content: false, xattrs: Vec::new(), ..self }
    }
}

impl Summary {
    /// What becomes of an object, but for its names.
    fn change(&self, id: u64) -> Change {
        let xattrs = self.sets.get(&id).into_iter().flat_map(|(set, _)| &set.xattrs);
        let xattr = |(name, value): (&Vec<u8>, &Option<Arc<[u8]>>)| XattrChange {
            name: OsString::from_vec(name.clone()),
            value: value.as_ref().map(|value| value.to_vec()),
        };
        Change {
            what: What::Changed,
            path: PathBuf::new(),
            from: None,
            before: self.before(id),
            after: self.after(id),
            replaced: None,
            content: self.contents.contains_key(&id),
            xattrs: xattrs.map(xattr).collect(),
            whole: false,
            before_id: 0,
            after_id: 0,
        }
    }
}
