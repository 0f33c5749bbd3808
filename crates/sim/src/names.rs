//! Names and attributes of the host directory.

use super::config::MutationKind;
use super::event::{Attribute, EventKind, NameChange};
use super::files::{self, SimHost, finish, shown, stat};
use super::hash;
use super::pending::Effect;
use super::reads::question;
use super::state::{Birth, ObjId, ObjKind};
use super::world::{Call, Change, Live, World};
use rustix::io::Errno;
use std::sync::Arc;
use wholly_host::{At, FileHandle, HostFile, HostNames};
use wholly_media::{Error, Result, Site};
use wholly_vfs::{DirEntry, Inode, Rename, SetXattr, Stat};

/// A name in a directory, and what has it.
pub(super) struct NameOf {
    dir: ObjId,
    name: Arc<[u8]>,
    obj: Option<ObjId>,
}

impl NameOf {
    /// The name is given to somebody, or nobody.
    pub fn becomes(&self, is: Option<ObjId>) -> NameChange {
        NameChange { dir: self.dir, name: self.name.clone(), was: self.obj, is }
    }
}

impl SimHost {
    /// The name that `path` ends in, whoever has it.
    fn name(&self, live: &mut Live, operation: &'static str, at: At<'_>) -> Result<NameOf> {
        let found = live.latest.resolve_parent(at.path).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::XDEV if at.dir.is_some() => Errno::STALE,
            errno => errno,
        });
        let (dir, name) = found.map_err(|e| Error::new(operation, shown(at.path), e))?;
        compare(live, dir, at.dir, at.path)?;
        let obj = self.resolve(live, operation, at.path).ok();
        Ok(NameOf { dir, name: Arc::from(name), obj })
    }

    /// What has a name, if it is what it should be.
    fn find(&self, live: &mut Live, operation: &'static str, at: At<'_>) -> Result<ObjId> {
        if at.dir.is_some() {
            self.name(live, operation, at)?;
        }
        let obj = self.resolve(live, operation, at.path)?;
        compare(live, obj, at.inode, at.path)?;
        Ok(obj)
    }

    /// The name that `path` ends in, which nobody has.
    pub(super) fn free_name(&self, live: &mut Live, operation: &'static str, at: At<'_>) -> Result<NameOf> {
        let name = self.name(live, operation, at)?;
        if name.obj.is_some() { Err(Error::new(operation, shown(at.path), Errno::EXIST)) } else { Ok(name) }
    }

    /// A call changes names, all at once.
    pub(super) fn change_names<const N: usize>(
        &self,
        live: &mut Live,
        call: &Call,
        what: &'static str,
        changes: [NameChange; N],
    ) {
        let changes = Arc::<[NameChange]>::from(changes);
        match call.is_late() {
            true => live.late.push((*call, Change::Names(what, changes))),
            false => change_names(&self.world, live, call, what, changes),
        }
    }

    /// Makes an object with a name. What it has beyond the bits that its owner needs comes by a second change.
    fn make(
        &self,
        site: Site,
        operation: &'static str,
        at: At<'_>,
        mode: u32,
        rdev: u64,
        target: &[u8],
    ) -> Result<ObjId> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let name = self.free_name(&mut live, operation, at)?;
        let call = live.call(&self.world.config, thread, site, operation, || shown(at.path))?;
        let first = match ObjKind::of_mode(mode) {
            ObjKind::Dir => mode & !0o7777 | 0o700,
            ObjKind::Symlink => mode,
            _ => mode & !0o7777 | 0o600,
        };
        let birth = Birth { mode: first, rdev, target: Arc::from(target), time_ns: live.time_ns(), inode: None };
        let obj = live.create(&call, birth);
        self.change_names(&mut live, &call, operation, [name.becomes(Some(obj))]);
        if mode != first {
            self.set(&mut live, &call, obj, Attribute::Mode(mode & 0o7777));
        }
        Ok(obj)
    }

    fn set(&self, live: &mut Live, call: &Call, obj: ObjId, attribute: Attribute) {
        set(&self.world, live, call, obj, attribute);
    }

    /// Sets what `choose` says of the object at `path`.
    fn set_at(
        &self,
        site: Site,
        operation: &'static str,
        at: At<'_>,
        choose: impl FnOnce(&mut Live, ObjId) -> Result<Vec<Attribute>, Errno>,
    ) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let obj = self.find(&mut live, operation, at)?;
        let chosen = choose(&mut live, obj).map_err(|e| Error::new(operation, shown(at.path), e))?;
        let call = live.call(&self.world.config, thread, site, operation, || shown(at.path))?;
        chosen.into_iter().for_each(|attribute| self.set(&mut live, &call, obj, attribute));
        Ok(())
    }

    /// Looks at the object at `path` as `look` does; `summary` is what a reader has learned.
    fn look<T>(
        &self,
        operation: &'static str,
        path: &[u8],
        kind: u64,
        look: impl FnOnce(&Live, ObjId) -> Result<T, Errno>,
        summary: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let mut live = self.world.live();
        let obj = self.resolve(&mut live, operation, path)?;
        let found = look(&live, obj);
        if let Some(reads) = &mut live.reads {
            let learned = found.as_ref().map_or_else(|e| e.raw_os_error() as u64, summary);
            reads.answer(question(kind, &obj.to_le_bytes()), learned);
        }
        found.map_err(|e| Error::new(operation, shown(path), e))
    }
}

/// Refuses what is not the inode that it should be.
fn compare(live: &mut Live, obj: ObjId, inode: Option<Inode>, path: &[u8]) -> Result<()> {
    match inode.is_none_or(|inode| stat(live, obj).inode() == inode) {
        true => Ok(()),
        false => Err(Error::new("find", shown(path), Errno::STALE)),
    }
}

/// Changes names, recorded.
fn change_names(world: &World, live: &mut Live, call: &Call, what: &'static str, changes: Arc<[NameChange]>) {
    let time_ns = live.time_ns();
    if !call.is_dropped() {
        Effect::Names { changes: changes.clone(), only: None, time_ns: Some(time_ns) }.apply(&mut live.latest);
        changes.iter().filter_map(|change| change.was).for_each(|was| live.may_be_gone(&world.config, was));
    }
    finish(live, world, call, EventKind::Names { call: what, changes, time_ns });
}

/// Makes the changes that were put off.
pub(super) fn catch_up(world: &World, live: &mut Live) {
    for (call, change) in std::mem::take(&mut live.late) {
        match change {
            Change::Names(what, changes) => change_names(world, live, &call, what, changes),
            Change::Attribute(obj, attribute) => set_now(world, live, &call, obj, attribute),
            Change::Bytes(obj, offset, data) => files::put(world, live, &call, obj, offset, &data),
        }
    }
}

/// Sets an attribute, recorded.
pub(super) fn set(world: &World, live: &mut Live, call: &Call, obj: ObjId, attribute: Attribute) {
    match call.is_late() {
        true => live.late.push((*call, Change::Attribute(obj, attribute))),
        false => set_now(world, live, call, obj, attribute),
    }
}

fn set_now(world: &World, live: &mut Live, call: &Call, obj: ObjId, attribute: Attribute) {
    let time_ns = live.time_ns();
    if !call.is_dropped() {
        Effect::Attribute { obj, attribute: attribute.clone(), time_ns: Some(time_ns) }.apply(&mut live.latest);
    }
    finish(live, world, call, EventKind::Attribute { obj, attribute, time_ns });
}

/// Times to be set, as far as they are given.
pub(super) fn times(live: &mut Live, id: ObjId, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Attribute {
    // First: a clock that has not begun would take the new time for one that the image tells of.
    live.time_ns();
    mtime_ns.inspect(|time_ns| live.clock_reaches(*time_ns));
    let obj = live.latest.obj(id);
    Attribute::Times(atime_ns.unwrap_or(obj.atime_ns), mtime_ns.unwrap_or(obj.mtime_ns))
}

/// Whether an object of this kind may have an attribute of this name; `write`: may be given one.
fn check_xattr(kind: ObjKind, name: &[u8], write: bool) -> Result<(), Errno> {
    let namespace = name.iter().position(|&byte| byte == b'.').map_or(name, |dot| &name[..dot]);
    match namespace {
        b"user" if !matches!(kind, ObjKind::File | ObjKind::Dir) => {
            Err(if write { Errno::PERM } else { Errno::NODATA })
        }
        b"user" | b"trusted" | b"security" if name.len() > namespace.len() + 1 => Ok(()),
        b"user" | b"trusted" | b"security" => Err(Errno::INVAL),
        _ => Err(Errno::OPNOTSUPP),
    }
}

impl HostNames for SimHost {
    fn create_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<Arc<dyn HostFile>> {
        let obj = self.make(site, "create", at, 0o100_000 | mode & 0o7777, 0, &[])?;
        Ok(self.file(obj, true))
    }

    fn mkdir_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<()> {
        self.make(site, "mkdir", at, 0o040_000 | mode & 0o7777, 0, &[]).map(drop)
    }

    fn mknod_at(&self, site: Site, at: At<'_>, mode: u32, rdev: u64) -> Result<()> {
        let kind = mode & 0o170_000;
        match kind {
            0o100_000 | 0o010_000 | 0o140_000 => self.make(site, "mknod", at, mode & 0o177_777, 0, &[]).map(drop),
            0o020_000 | 0o060_000 => self.make(site, "mknod", at, mode & 0o177_777, rdev, &[]).map(drop),
            0o040_000 => Err(Error::new("mknod", shown(at.path), Errno::PERM)),
            _ => Err(Error::new("mknod", shown(at.path), Errno::INVAL)),
        }
    }

    fn symlink_at(&self, site: Site, target: &[u8], at: At<'_>) -> Result<()> {
        if target.is_empty() {
            return Err(Error::new("symlink", shown(at.path), Errno::NOENT));
        }
        self.make(site, "symlink", at, 0o120_777, 0, target).map(drop)
    }

    fn hard_link_at(&self, site: Site, from: At<'_>, to: At<'_>) -> Result<()> {
        let (old, new) = (from, to);
        let failed = |e| Error::new("link", shown(new.path), e);
        let thread = self.world.thread();
        let mut live = self.world.live();
        let from = self.name(&mut live, "link", from)?;
        let to = self.name(&mut live, "link", to)?;
        let obj = from.obj.ok_or_else(|| failed(Errno::NOENT))?;
        compare(&mut live, obj, old.inode, old.path)?;
        if to.obj.is_some() {
            return Err(failed(Errno::EXIST));
        }
        if live.latest.obj(obj).kind == ObjKind::Dir {
            return Err(failed(Errno::PERM));
        }
        let call = live.call(&self.world.config, thread, site, "link", || String::from_utf8_lossy(&to.name).into())?;
        self.change_names(&mut live, &call, "link", [to.becomes(Some(obj))]);
        Ok(())
    }

    fn rename_at(&self, site: Site, from: At<'_>, to: At<'_>, how: Rename) -> Result<()> {
        let failed = |e| Err(Error::new("rename", format!("{} to {}", shown(from.path), shown(to.path)), e));
        let thread = self.world.thread();
        let mut live = self.world.live();
        let old = self.name(&mut live, "rename", from)?;
        let new = self.name(&mut live, "rename", to)?;
        let Some(moved) = old.obj else { return failed(Errno::NOENT) };
        match (how, new.obj) {
            (Rename::Whiteout | Rename::WhiteoutNoReplace, _) => return failed(Errno::INVAL),
            (Rename::NoReplace, Some(_)) => return failed(Errno::EXIST),
            (Rename::Exchange, None) => return failed(Errno::NOENT),
            _ => {}
        }
        let state = &live.latest;
        let is_dir = |id: ObjId| state.obj(id).kind == ObjKind::Dir;
        if is_dir(moved) && state.is_in(moved, new.dir) {
            return failed(Errno::INVAL);
        }
        if let Some(replaced) = new.obj {
            if is_dir(replaced) && state.is_in(replaced, old.dir) {
                return failed(if how == Rename::Exchange { Errno::INVAL } else { Errno::NOTEMPTY });
            }
            if replaced == moved {
                return Ok(());
            }
            if how != Rename::Exchange {
                match (is_dir(moved), is_dir(replaced)) {
                    (true, false) => return failed(Errno::NOTDIR),
                    (false, true) => return failed(Errno::ISDIR),
                    (true, true) if !state.obj(replaced).entries.is_empty() => return failed(Errno::NOTEMPTY),
                    _ => {}
                }
            }
        }
        let call = live.call(&self.world.config, thread, site, "rename", || shown(from.path))?;
        let left = if how == Rename::Exchange { new.obj } else { None };
        if call.mutation == Some(MutationKind::Split) && how != Rename::NoReplace && new.obj.is_some() {
            self.change_names(&mut live, &call, "unlink", [new.becomes(None)]);
        }
        self.change_names(&mut live, &call, "rename", [old.becomes(left), new.becomes(Some(moved))]);
        Ok(())
    }

    fn unlink_at(&self, site: Site, at: At<'_>) -> Result<()> {
        let failed = |e| Err(Error::new("unlink", shown(at.path), e));
        let thread = self.world.thread();
        let mut live = self.world.live();
        let name = self.name(&mut live, "unlink", at)?;
        match name.obj.map(|id| live.latest.obj(id).kind) {
            None => return failed(Errno::NOENT),
            Some(ObjKind::Dir) => return failed(Errno::ISDIR),
            Some(_) => {}
        }
        let call = live.call(&self.world.config, thread, site, "unlink", || shown(at.path))?;
        self.change_names(&mut live, &call, "unlink", [name.becomes(None)]);
        Ok(())
    }

    fn rmdir_at(&self, site: Site, at: At<'_>) -> Result<()> {
        let failed = |e| Err(Error::new("rmdir", shown(at.path), e));
        let thread = self.world.thread();
        let mut live = self.world.live();
        let name = self.name(&mut live, "rmdir", at)?;
        match name.obj.map(|id| live.latest.obj(id)) {
            None => return failed(Errno::NOENT),
            Some(obj) if obj.kind != ObjKind::Dir => return failed(Errno::NOTDIR),
            Some(obj) if !obj.entries.is_empty() => return failed(Errno::NOTEMPTY),
            Some(_) => {}
        }
        let call = live.call(&self.world.config, thread, site, "rmdir", || shown(at.path))?;
        self.change_names(&mut live, &call, "rmdir", [name.becomes(None)]);
        Ok(())
    }

    fn stat_at(&self, at: At<'_>) -> Result<Stat> {
        let mut live = self.world.live();
        let id = self.find(&mut live, "stat", at)?;
        Ok(stat(&mut live, id))
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let look = |live: &Live, id| match live.latest.obj(id) {
            obj if obj.kind == ObjKind::Symlink => Ok(obj.target.to_vec()),
            _ => Err(Errno::INVAL),
        };
        self.look("readlink", path, 5, look, |target| hash::bytes(target))
    }

    fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        let look = |live: &Live, id| {
            let dir = live.latest.obj(id);
            if dir.kind != ObjKind::Dir {
                return Err(Errno::NOTDIR);
            }
            let entry = |(name, id): (&Arc<[u8]>, &ObjId)| {
                let kind = live.latest.obj(*id).mode & 0o170_000;
                DirEntry { name: name.to_vec(), ino: live.inode(*id), kind }
            };
            Ok(dir.entries.iter().map(entry).collect::<Vec<_>>())
        };
        let summary = |entries: &Vec<DirEntry>| {
            let entry = |entry: &DirEntry| [hash::bytes(&entry.name), entry.ino, u64::from(entry.kind)];
            hash::numbers(entries.iter().map(entry).collect::<Vec<_>>().as_flattened())
        };
        self.look("readdir", path, 6, look, summary)
    }

    fn stat_all(&self, path: &[u8], look: &mut dyn FnMut(&[u8], &Stat) -> bool) -> Result<()> {
        for entry in self.read_dir(path)? {
            let at = [path, b"/", &entry.name].concat();
            let at = if path.is_empty() { &at[1..] } else { &at[..] };
            if !look(&entry.name, &self.stat_at(at.into())?) {
                break;
            }
        }
        Ok(())
    }

    fn set_mode_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<()> {
        self.set_at(site, "chmod", at, |live, id| match live.latest.obj(id).kind {
            ObjKind::Symlink => Err(Errno::OPNOTSUPP),
            _ => Ok(vec![Attribute::Mode(mode & 0o7777)]),
        })
    }

    fn set_owner_at(&self, site: Site, at: At<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_at(site, "chown", at, |live, id| {
            let obj = live.latest.obj(id);
            let owner = Attribute::Owner(uid.unwrap_or(obj.uid), gid.unwrap_or(obj.gid));
            // As the kernel does, whoever calls: a set-group-id bit without execution by the group means something
            // else.
            let lost = if obj.mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
            let mode = obj.mode & 0o7777;
            if matches!(obj.kind, ObjKind::Dir | ObjKind::Symlink) || mode & lost == 0 {
                return Ok(vec![owner]);
            }
            Ok(vec![owner, Attribute::Mode(mode & !lost)])
        })
    }

    fn set_times_at(&self, site: Site, at: At<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        self.set_at(site, "utimensat", at, |live, id| Ok(vec![times(live, id, atime_ns, mtime_ns)]))
    }

    fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>> {
        let look = |live: &Live, id| {
            let obj = live.latest.obj(id);
            match check_xattr(obj.kind, name, false) {
                Err(Errno::NODATA) => Ok(None),
                Err(errno) => Err(errno),
                Ok(()) => Ok(obj.xattrs.get(name).map(|value| value.to_vec())),
            }
        };
        let summary = |value: &Option<Vec<u8>>| {
            let value = value.as_ref().map_or(0, |value| hash::bytes(value) | 1);
            hash::numbers(&[hash::bytes(name), value])
        };
        self.look("getxattr", path, 7 ^ hash::bytes(name) << 3, look, summary)
    }

    fn list_xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let look = |live: &Live, id| Ok(live.latest.obj(id).xattrs.keys().map(|name| name.to_vec()).collect());
        let summary =
            |names: &Vec<Vec<u8>>| hash::numbers(&names.iter().map(|name| hash::bytes(name)).collect::<Vec<_>>());
        self.look("listxattr", path, 0, look, summary)
    }

    fn set_xattr_at(&self, site: Site, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.set_at(site, "setxattr", at, |live, id| {
            let obj = live.latest.obj(id);
            check_xattr(obj.kind, name, true)?;
            match (how, obj.xattrs.contains_key(name)) {
                (SetXattr::Create, true) => Err(Errno::EXIST),
                (SetXattr::Replace, false) => Err(Errno::NODATA),
                _ => Ok(vec![Attribute::Xattr(Arc::from(name), Some(Arc::from(value)))]),
            }
        })
    }

    fn remove_xattr_at(&self, site: Site, at: At<'_>, name: &[u8]) -> Result<()> {
        self.set_at(site, "removexattr", at, |live, id| {
            let obj = live.latest.obj(id);
            check_xattr(obj.kind, name, true)?;
            match obj.xattrs.contains_key(name) {
                true => Ok(vec![Attribute::Xattr(Arc::from(name), None)]),
                false => Err(Errno::NODATA),
            }
        })
    }

    fn handle(&self, path: &[u8]) -> Result<Option<FileHandle>> {
        let mut live = self.world.live();
        let id = self.resolve(&mut live, "name_to_handle_at", path)?;
        Ok(Some(FileHandle { kind: 1, bytes: id.to_le_bytes().to_vec() }))
    }
}
