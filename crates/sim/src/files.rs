//! The host directory and the content of its files.

use super::HostModel;
use super::event::EventKind;
use super::obj::LOG;
use super::pending::Effect;
use super::reads::question;
use super::region::SimRegion;
use super::state::{Birth, ObjId, ObjKind, PAGE};
use super::world::{BLOCKS, Call, Change, Live, World};
use super::{hash, names};
use rustix::io::Errno;
use std::sync::Arc;
use wholly_host::{At, HostFile, HostFs, Space};
use wholly_media::{Error, Guarantees, Region, Result, Site};
use wholly_vfs::{Fallocate, Stat};

/// The directory of a simulated world.
pub(super) struct SimHost {
    pub(super) world: Arc<World>,
}

/// An open file of it.
struct SimFile {
    world: Arc<World>,
    obj: ObjId,
    writable: bool,
}

impl SimFile {
    fn open(world: Arc<World>, obj: ObjId, writable: bool) -> Self {
        world.live().opened(obj);
        SimFile { world, obj, writable }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.world.live().closed(&self.world.config, self.obj);
    }
}

pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

pub(super) fn stat(live: &mut Live, id: ObjId) -> Stat {
    let obj = live.latest.obj(id);
    let stat = Stat {
        ino: live.inode(id),
        // 0 is no time of birth.
        btime_ns: if live.tells_births { obj.btime_ns.max(1) } else { 0 },
        size: obj.len,
        allocated: obj.allocated(),
        atime_ns: obj.atime_ns,
        mtime_ns: obj.mtime_ns,
        ctime_ns: obj.ctime_ns,
        mode: obj.mode,
        nlink: obj.nlink,
        uid: obj.uid,
        gid: obj.gid,
        rdev: obj.rdev,
        ..Stat::default()
    };
    if let Some(reads) = &mut live.reads {
        let Stat { ino, btime_ns, size, allocated, atime_ns, mtime_ns, ctime_ns, mode, nlink, uid, gid, rdev, .. } =
            stat;
        let times = [btime_ns, atime_ns, mtime_ns, ctime_ns].map(|time_ns| time_ns as u64);
        let numbers = [mode, nlink, uid, gid].map(u64::from);
        let seen = hash::numbers([[ino, size, allocated, rdev], times, numbers].as_flattened());
        reads.answer(question(2, &id.to_le_bytes()), seen);
    }
    stat
}

/// A call that ends with an effect on the host file system: on a synchronous one that is durable at its return.
pub(super) fn finish(live: &mut Live, world: &World, call: &Call, kind: EventKind) {
    let begun = live.record(call, kind);
    if world.config.host == HostModel::Synchronous {
        live.record(call, EventKind::Done { begun });
    }
}

impl SimHost {
    pub fn new(world: Arc<World>) -> Self {
        SimHost { world }
    }

    pub(super) fn file(&self, obj: ObjId, writable: bool) -> Arc<dyn HostFile> {
        Arc::new(SimFile::open(self.world.clone(), obj, writable))
    }

    /// What `path` leads to, through directories alone; a symbolic link at its end is meant itself.
    pub(super) fn resolve(&self, live: &mut Live, operation: &'static str, path: &[u8]) -> Result<ObjId> {
        let found = live.latest.resolve(path);
        if let Some(reads) = &mut live.reads {
            reads.answer(question(3, path), found.map_or_else(|e| e.raw_os_error() as u64, |id| u64::from(id) << 32));
        }
        found.map_err(|e| Error::new(operation, shown(path), e))
    }
}

impl HostFs for SimHost {
    fn guarantees(&self) -> &Guarantees {
        &self.world.host_guarantees
    }

    /// To ask does not make time pass.
    fn now_ns(&self) -> i64 {
        self.world.live().now_ns()
    }

    fn open(&self, path: &[u8], write: bool) -> Result<Arc<dyn HostFile>> {
        let mut live = self.world.live();
        let obj = self.resolve(&mut live, "open", path)?;
        match live.latest.obj(obj).kind {
            ObjKind::File => {}
            ObjKind::Dir => return Err(Error::new("open", shown(path), Errno::ISDIR)),
            ObjKind::Symlink => return Err(Error::new("open", shown(path), Errno::LOOP)),
            // Nobody opens a socket; what else there is, is no regular file.
            _ if live.latest.obj(obj).mode & 0o170_000 == 0o140_000 => {
                return Err(Error::new("open", shown(path), Errno::NXIO));
            }
            _ => return Err(Error::new("open", shown(path), Errno::INVAL)),
        }
        drop(live);
        Ok(self.file(obj, write))
    }

    /// The log is no file of the directory, but shows as one here.
    fn stat(&self, path: &[u8]) -> Result<Stat> {
        let mut live = self.world.live();
        if path == b".wholly/log" {
            return Ok(Stat { ino: live.inode_of_log(), btime_ns: 1, ..stat(&mut live, LOG) });
        }
        let id = self.resolve(&mut live, "stat", path)?;
        Ok(stat(&mut live, id))
    }

    /// As much as anybody wants, unless the world [says otherwise](World::has_free).
    fn space(&self) -> Result<Space> {
        let free = self.world.live().free_blocks;
        Ok(Space {
            block_bytes: 4096,
            blocks: BLOCKS,
            free_blocks: free,
            available_blocks: free,
            usable_blocks: free,
            inodes: 0,
            free_inodes: 0,
        })
    }

    /// What is shared and what is copied no crash can tell apart.
    fn open_own(&self, path: &[u8]) -> Result<Arc<dyn HostFile>> {
        self.open(path, true)
    }

    fn settle(&self, _at: At<'_>) -> Result<Option<Stat>> {
        Ok(None)
    }

    fn copies_up(&self) -> bool {
        false
    }

    fn admit_all_projects(&self, _site: Site, _path: &[u8]) {}

    fn largest_file(&self) -> u64 {
        u64::MAX
    }

    fn most_links(&self) -> u32 {
        u32::MAX
    }

    fn takes_target(&self, _length: usize) -> bool {
        true
    }

    fn try_xattrs(&self, _steps: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
        Ok(())
    }

    fn shares_blocks(&self) -> bool {
        true
    }

    fn create_unnamed(&self, site: Site, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let dir = self.resolve(&mut live, "create", parent)?;
        if live.latest.obj(dir).kind != ObjKind::Dir {
            return Err(Error::new("create", shown(parent), Errno::NOTDIR));
        }
        let call = live.call(&self.world.config, thread, site, "create", || shown(parent))?;
        let birth = Birth::plain(0o100_000 | mode & 0o7777, live.time_ns());
        let obj = live.create(&call, birth);
        drop(live);
        Ok(self.file(obj, true))
    }

    fn link(&self, site: Site, file: &dyn HostFile, path: &[u8]) -> Result<()> {
        let failed = |e| Error::new("link", shown(path), e);
        let file = file.as_any().downcast_ref::<SimFile>().filter(|f| Arc::ptr_eq(&f.world, &self.world));
        let obj = file.ok_or_else(|| failed(Errno::XDEV))?.obj;
        let thread = self.world.thread();
        let mut live = self.world.live();
        let at = self.free_name(&mut live, "link", path.into())?;
        let call = live.call(&self.world.config, thread, site, "link", || shown(path))?;
        self.change_names(&mut live, &call, "link", [at.becomes(Some(obj))]);
        Ok(())
    }

    fn sync_dir(&self, site: Site, path: &[u8]) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let dir = self.resolve(&mut live, "fsync", path)?;
        if live.latest.obj(dir).kind != ObjKind::Dir {
            return Err(Error::new("fsync", shown(path), Errno::NOTDIR));
        }
        let call = live.call(&self.world.config, thread, site, "fsync", || shown(path))?;
        names::catch_up(&self.world, &mut live);
        live.record(&call, EventKind::SyncDir { dir });
        Ok(())
    }

    fn sync_all(&self, site: Site) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = live.call(&self.world.config, thread, site, "syncfs", String::new)?;
        names::catch_up(&self.world, &mut live);
        live.record(&call, EventKind::SyncAll);
        Ok(())
    }
}

impl SimFile {
    fn place(&self) -> String {
        format!("inode {}", self.obj)
    }

    fn call(&self, live: &mut Live, thread: u64, site: Site, operation: &'static str) -> Result<Call> {
        if !self.writable {
            return Err(Error::new(operation, self.place(), Errno::BADF));
        }
        live.call(&self.world.config, thread, site, operation, || self.place())
    }
}

impl SimFile {
    /// Where holes and data are was asked and answered.
    fn sought(&self, live: &mut Live, kind: u64, offset: u64, found: Option<u64>) {
        if let Some(reads) = &mut live.reads {
            let place = [u64::from(self.obj).to_le_bytes(), offset.to_le_bytes()];
            reads.answer(question(kind, place.as_flattened()), found.map_or(0, |at| at + 1));
        }
    }
}

/// Writes bytes, recorded.
pub(super) fn put(world: &World, live: &mut Live, call: &Call, obj: ObjId, offset: u64, data: &[u8]) {
    let end = offset + data.len() as u64;
    let file = live.latest.obj(obj);
    let grown = (end > file.len).then_some(end);
    let first_beyond = file.len.div_ceil(PAGE as u64).max(offset / PAGE as u64);
    let fresh = (first_beyond..end.div_ceil(PAGE as u64)).filter(|n| !file.has_page(*n)).collect();
    let time_ns = live.time_ns();
    if !call.is_dropped() {
        if let Some(len) = grown {
            live.latest.set_len(obj, len);
        }
        live.latest.set_times(obj, time_ns, time_ns);
        live.write(obj, offset, data);
    }
    finish(live, world, call, EventKind::Write { obj, offset, data: data.into(), grown, fresh, time_ns });
}

/// The parts of calls that change content, recorded.
impl SimFile {
    fn put(&self, live: &mut Live, call: &Call, offset: u64, data: &[u8]) {
        match call.is_late() {
            true => live.late.push((*call, Change::Bytes(self.obj, offset, data.into()))),
            false => put(&self.world, live, call, self.obj, offset, data),
        }
    }

    fn cut(&self, live: &mut Live, call: &Call, len: u64) {
        let (old, time_ns) = (live.latest.obj(self.obj).len, live.time_ns());
        if !call.is_dropped() {
            live.latest.set_len(self.obj, len);
            live.latest.set_times(self.obj, time_ns, time_ns);
        }
        finish(live, &self.world, call, EventKind::SetLen { obj: self.obj, old, new: len, time_ns });
    }

    fn allocate_blocks(&self, live: &mut Live, call: &Call, offset: u64, len: u64) {
        let time_ns = live.time_ns();
        if !call.is_dropped() {
            Effect::Allocate { obj: self.obj, offset, len, time_ns: Some(time_ns) }.apply(&mut live.latest);
        }
        finish(live, &self.world, call, EventKind::Allocate { obj: self.obj, offset, len, time_ns });
    }

    /// Writes zeros to the blocks of a range that are there.
    fn put_zeros(&self, live: &mut Live, call: &Call, from: u64, to: u64) {
        let block = PAGE as u64;
        let end = to.div_ceil(block).min(live.latest.obj(self.obj).pages_end());
        for n in from / block..end {
            let (from, to) = (from.max(n * block), to.min((n + 1) * block));
            if live.latest.obj(self.obj).has_page(n) {
                self.put(live, call, from, &[0; PAGE][..(to - from) as usize]);
            }
        }
    }

    fn punch(&self, live: &mut Live, call: &Call, offset: u64, len: u64) {
        let (block, end) = (PAGE as u64, offset + len);
        let size = live.latest.obj(self.obj).len;
        if offset < size {
            self.put_zeros(live, call, offset, end.min(size));
        }
        let (first, last) = (offset.div_ceil(block), (end / block).min(live.latest.obj(self.obj).pages_end()));
        let (offset, len) = (first * block, last.saturating_sub(first) * block);
        let time_ns = live.time_ns();
        if !call.is_dropped() {
            Effect::Punch { obj: self.obj, offset, len, time_ns: Some(time_ns) }.apply(&mut live.latest);
        }
        finish(live, &self.world, call, EventKind::Punch { obj: self.obj, offset, len, time_ns });
    }
}

impl HostFile for SimFile {
    fn stat(&self) -> Result<Stat> {
        Ok(stat(&mut self.world.live(), self.obj))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let mut live = self.world.live();
        let len = live.len(self.obj);
        let n = (buf.len() as u64).min(len.saturating_sub(offset)) as usize;
        live.read(self.obj, offset, &mut buf[..n]).map_err(|e| Error::new("read", self.place(), e))?;
        Ok(n)
    }

    fn write_at(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = self.call(&mut live, thread, site, "write")?;
        if !data.is_empty() {
            self.put(&mut live, &call, offset, data);
        }
        Ok(())
    }

    fn write_from(&self, site: Site, offset: u64, source: &dyn HostFile, from: u64, len: u64) -> Result<()> {
        let other = source.as_any().downcast_ref::<SimFile>().filter(|file| Arc::ptr_eq(&file.world, &self.world));
        let other = other.ok_or_else(|| Error::new("copy", self.place(), Errno::XDEV))?;
        let mut data = vec![0; len as usize];
        if other.read_at(from, &mut data)? < data.len() {
            return Err(Error::new("copy", other.place(), Errno::IO));
        }
        self.write_at(site, offset, &data)
    }

    fn set_len(&self, site: Site, len: u64) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = self.call(&mut live, thread, site, "ftruncate")?;
        self.cut(&mut live, &call, len);
        Ok(())
    }

    fn fallocate(&self, site: Site, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = self.call(&mut live, thread, site, "fallocate")?;
        if len == 0 {
            return Err(Error::new("fallocate", self.place(), Errno::INVAL));
        }
        if how.moves() {
            return Err(Error::new("fallocate", self.place(), Errno::OPNOTSUPP));
        }
        if how == Fallocate::Punch {
            self.punch(&mut live, &call, offset, len);
            return Ok(());
        }
        self.allocate_blocks(&mut live, &call, offset, len);
        let (size, end) = (live.latest.obj(self.obj).len, offset + len);
        let grown = how.extends() && end > size;
        if how.zeroes() && offset < size {
            self.put_zeros(&mut live, &call, offset, end.min(size));
        }
        if grown {
            self.cut(&mut live, &call, end);
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let mut live = self.world.live();
        let file = live.latest.obj(self.obj);
        let found = (offset < file.len)
            .then(|| (offset / PAGE as u64..file.pages_end()).find(|n| file.is_written(*n)))
            .flatten()
            .map(|n| offset.max(n * PAGE as u64))
            .filter(|at| *at < file.len);
        self.sought(&mut live, 7, offset, found);
        Ok(found)
    }

    fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        let mut live = self.world.live();
        let file = live.latest.obj(self.obj);
        let found = (offset < file.len).then(|| {
            let first = (offset / PAGE as u64..).find(|n| !file.is_written(*n)).expect("a file ends");
            offset.max(first * PAGE as u64).min(file.len)
        });
        self.sought(&mut live, 0, offset, found);
        Ok(found)
    }

    fn set_times(&self, site: Site, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = self.call(&mut live, thread, site, "futimens")?;
        let times = names::times(&mut live, self.obj, atime_ns, mtime_ns);
        names::set(&self.world, &mut live, &call, self.obj, times);
        Ok(())
    }

    fn sync(&self, site: Site) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = live.call(&self.world.config, thread, site, "fsync", || self.place())?;
        names::catch_up(&self.world, &mut live);
        live.record(&call, EventKind::Sync { obj: self.obj });
        Ok(())
    }

    fn map(&self, len: u64) -> Result<Option<Arc<dyn Region>>> {
        if !self.world.config.home.is_pmem() {
            return Ok(None);
        }
        Ok(Some(Arc::new(SimRegion::mapping(self.world.clone(), self.obj, len, self.writable))))
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
