//! Everything in a world at one moment: shared until written, hashed as it changes.

use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) use super::obj::{Birth, LOG, Obj, ObjId, ObjKind, PAGE, REGION, ROOT};

/// Everything at one moment. Cloning shares all of it.
#[derive(Clone)]
pub(super) struct State {
    objs: Vec<Arc<Obj>>,
    hash: u64,
    /// Processes that have worked on it. No part of the hash: only the clock goes by it.
    pub lives: u32,
}

impl State {
    /// A log of `log_len` zero bytes, an empty directory, and a region of zeros where the world has one.
    pub fn new(log_len: u64, region_len: Option<u64>) -> State {
        let mut state = State { objs: Vec::new(), hash: 0, lives: 0 };
        state.add(ObjKind::Log, &Birth::plain(0, 0));
        state.set_len(LOG, log_len);
        state.create(&Birth::plain(0o040_755, 0));
        if let Some(len) = region_len {
            state.add(ObjKind::Region, &Birth::plain(0, 0));
            state.set_len(REGION, len);
        }
        state
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn obj(&self, id: ObjId) -> &Obj {
        &self.objs[id as usize]
    }

    pub fn objs(&self) -> impl Iterator<Item = (ObjId, &Obj)> {
        self.objs.iter().enumerate().map(|(id, obj)| (id as ObjId, &**obj))
    }

    /// The inode numbers that no object has any more.
    pub fn free_inodes(&self) -> BTreeSet<ObjId> {
        let mut free: BTreeSet<ObjId> = (0..self.objs.len() as ObjId).collect();
        for (_, obj) in self.objs().filter(|(_, obj)| obj.kind != ObjKind::Gone) {
            free.remove(&obj.inode());
        }
        free
    }

    pub fn change<R>(&mut self, id: ObjId, f: impl FnOnce(&mut Obj) -> R) -> R {
        let obj = Arc::make_mut(&mut self.objs[id as usize]);
        let before = obj.hash();
        let result = f(obj);
        self.hash = self.hash.wrapping_sub(before).wrapping_add(obj.hash());
        result
    }

    /// A new object without a name.
    pub fn create(&mut self, birth: &Birth) -> ObjId {
        self.add(ObjKind::of_mode(birth.mode), birth)
    }

    fn add(&mut self, kind: ObjKind, birth: &Birth) -> ObjId {
        let id = self.objs.len() as ObjId;
        let obj = Obj::new(id, kind, birth);
        self.hash = self.hash.wrapping_add(obj.hash());
        self.objs.push(Arc::new(obj));
        id
    }

    /// Writes bytes, whatever the length says.
    pub fn put(&mut self, id: ObjId, offset: u64, data: &[u8]) {
        self.change(id, |obj| obj.put(offset, data));
    }

    /// Writes bytes, adding `hash` to the hash: what [`put`](Self::put) of them would add for their words.
    pub fn put_known(&mut self, id: ObjId, offset: u64, data: &[u8], hash: u64) {
        self.change(id, |obj| obj.put_known(offset, data, hash));
    }

    /// Sets the length; where that takes bytes away, they are gone.
    pub fn set_len(&mut self, id: ObjId, len: u64) {
        self.change(id, |obj| {
            let shrinks = len < obj.len;
            obj.set_len(len);
            if shrinks {
                obj.cut(false);
            }
        });
    }

    pub fn set_times(&mut self, id: ObjId, mtime_ns: i64, ctime_ns: i64) {
        self.change(id, |obj| obj.set_times(mtime_ns, ctime_ns));
    }

    /// Something about an object changed; the later time wins, in whatever order units are applied.
    pub fn changed_at(&mut self, id: ObjId, time_ns: i64) {
        self.change(id, |obj| obj.set_times(obj.mtime_ns, obj.ctime_ns.max(time_ns)));
    }

    pub fn set_atime(&mut self, id: ObjId, atime_ns: i64) {
        self.change(id, |obj| obj.set_atime(atime_ns));
    }

    /// Sets the permission bits.
    pub fn set_mode(&mut self, id: ObjId, mode: u32) {
        self.change(id, |obj| obj.set_mode(mode));
    }

    pub fn set_owner(&mut self, id: ObjId, uid: u32, gid: u32) {
        self.change(id, |obj| obj.set_owner(uid, gid));
    }

    /// Sets or removes an extended attribute.
    pub fn set_xattr(&mut self, id: ObjId, name: &Arc<[u8]>, value: Option<&Arc<[u8]>>) {
        self.change(id, |obj| obj.set_xattr(name, value));
    }

    /// Gives the whole blocks of a range back: they read as zeros.
    pub fn punch(&mut self, id: ObjId, offset: u64, len: u64) {
        self.change(id, |obj| {
            (offset.div_ceil(PAGE as u64)..(offset + len) / PAGE as u64).for_each(|n| obj.free_page(n))
        });
    }

    /// Allocates the blocks of a range.
    pub fn allocate(&mut self, id: ObjId, offset: u64, len: u64) {
        self.change(id, |obj| obj.allocate(offset, len));
    }

    /// Takes away what lies beyond an object's length.
    pub fn cut(&mut self, id: ObjId) {
        if self.obj(id).beyond {
            self.change(id, |obj| obj.cut(true));
        }
    }

    /// Forgets an object that nothing names. The names in a directory go with it, and what has others as well loses
    /// these.
    pub fn forget(&mut self, id: ObjId) {
        let names = self.obj(id).entries.clone();
        for (name, _) in names.iter().filter(|(_, named)| self.obj(**named).kind != ObjKind::Gone).collect::<Vec<_>>() {
            self.set_name(id, name, None);
        }
        self.hash = self.hash.wrapping_sub(self.objs[id as usize].hash());
        self.objs[id as usize] = Arc::new(Obj::gone(id));
    }

    /// The hash, computed from the contents.
    #[cfg(test)]
    pub fn hashed_anew(&self) -> u64 {
        self.objs().fold(0, |sum: u64, (_, obj)| sum.wrapping_add(obj.hashed_anew()))
    }
}
