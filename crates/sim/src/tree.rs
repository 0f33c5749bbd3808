//! The tree of names of a [`State`]: who has which, what a path leads to, and what can be reached.

use super::hash::{Place, term};
use super::state::{LOG, ObjId, ObjKind, ROOT, State};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// Gives `name` in `dir` to an object, or to nobody. Link counts follow.
    pub fn set_name(&mut self, dir: ObjId, name: &Arc<[u8]>, obj: Option<ObjId>) {
        let old = self.change(dir, |dir| {
            let place = Place::name(dir.id(), name);
            let old = match obj {
                Some(id) => dir.entries.insert(name.clone(), id),
                None => dir.entries.remove(name),
            };
            let known = |id: Option<ObjId>| id.map_or(0, |id| term(place, u64::from(id)));
            dir.add_hash(known(obj).wrapping_sub(known(old)));
            old
        });
        if old != obj {
            old.inspect(|id| self.count_name(dir, *id, -1));
            obj.inspect(|id| self.count_name(dir, *id, 1));
        }
    }

    fn count_name(&mut self, dir: ObjId, id: ObjId, change: i32) {
        let counted = if self.obj(id).kind == ObjKind::Dir { dir } else { id };
        self.change(counted, |obj| obj.nlink = obj.nlink.wrapping_add_signed(change));
    }

    /// What `path` leads to, through directories alone; a symbolic link at its end is meant itself.
    pub fn resolve(&self, path: &[u8]) -> Result<ObjId, Errno> {
        match path.first() {
            None => return Ok(ROOT),
            Some(b'/') => return Err(Errno::XDEV),
            _ => {}
        }
        let mut way = vec![ROOT];
        for part in path.split(|b| *b == b'/') {
            let at = *way.last().expect("the root stays");
            if self.obj(at).kind != ObjKind::Dir {
                return Err(Errno::NOTDIR);
            }
            match part {
                b"" | b"." => {}
                b".." => {
                    way.pop();
                    if way.is_empty() {
                        return Err(Errno::XDEV);
                    }
                }
                part => way.push(*self.obj(at).entries.get(part).ok_or(Errno::NOENT)?),
            }
        }
        Ok(*way.last().expect("the root stays"))
    }

    /// The directory and the last part of `path`, a plain name.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(ObjId, &'p [u8]), Errno> {
        let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(0) => (&path[..1], &path[1..]),
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::INVAL);
        }
        let dir = self.resolve(parent)?;
        if self.obj(dir).kind != ObjKind::Dir {
            return Err(Errno::NOTDIR);
        }
        Ok((dir, name))
    }

    /// The first path of every object below the root, the root and the log not included, in order.
    pub fn paths(&self) -> BTreeMap<Vec<u8>, ObjId> {
        let mut found = BTreeMap::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((prefix, dir)) = todo.pop() {
            for (name, id) in &self.obj(dir).entries {
                let mut path: Vec<u8> = prefix.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                if self.obj(*id).kind == ObjKind::Dir {
                    todo.push((path.clone(), *id));
                }
                found.insert(path, *id);
            }
        }
        found
    }

    /// Whether a directory has a name, or is the root.
    pub fn is_named(&self, id: ObjId) -> bool {
        id == ROOT || self.objs().any(|(_, obj)| obj.entries.values().any(|of| *of == id))
    }

    /// Whether `below` is `above` or lies in it.
    pub fn is_in(&self, above: ObjId, below: ObjId) -> bool {
        let mut todo = vec![above];
        while let Some(id) = todo.pop() {
            if id == below {
                return true;
            }
            todo.extend(self.obj(id).entries.values().filter(|id| self.obj(**id).kind == ObjKind::Dir));
        }
        false
    }

    /// The objects that no name reaches, neither of this state nor of `more`, (directory, object), in order.
    pub fn unreached(&self, more: &[(ObjId, ObjId)]) -> Vec<ObjId> {
        let mut reached = vec![false; self.objs().count()];
        let mut todo = vec![LOG, ROOT];
        while let Some(id) = todo.pop() {
            if std::mem::replace(&mut reached[id as usize], true) {
                continue;
            }
            todo.extend(self.obj(id).entries.values());
            todo.extend(more.iter().filter(|(dir, _)| *dir == id).map(|(_, obj)| obj));
        }
        let stays = |kind: ObjKind| matches!(kind, ObjKind::Gone | ObjKind::Region);
        let lost = self.objs().filter(|(id, obj)| !reached[*id as usize] && !stays(obj.kind));
        lost.map(|(id, _)| id).collect()
    }
}
