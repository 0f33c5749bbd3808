//! A gate that holds calls, as a medium does that does not answer.

use std::sync::{Arc, Condvar, Mutex};

use wholly_error::Error;
use wholly_media::disk::DiskRegion;
use wholly_media::{Guarantees, Region, Site};
use wholly_vfs::{Committed, GroupId, Groups, Handle, Seen, Ticket};
use wholly_volume::VolumeVfs;

/// Calls that wait for the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Abort,
    Add,
    Begin,
    Commit,
    Disk,
    Fsync,
    /// One in a group.
    Read,
    Wait,
    Write,
}

#[derive(Default)]
struct Held {
    /// Each such call waits.
    holds: Vec<What>,
    /// How many wait.
    waiting: Vec<What>,
    /// The next commit fails.
    fails: bool,
    /// The next such call panics.
    panics: Option<What>,
    /// What has passed.
    passed: Vec<What>,
}

/// See the module.
#[derive(Default)]
pub struct Gate {
    held: Mutex<Held>,
    changed: Condvar,
}

impl Gate {
    pub fn hold(&self, what: What) {
        self.held.lock().unwrap().holds.push(what);
    }

    pub fn release(&self, what: What) {
        self.held.lock().unwrap().holds.retain(|held| *held != what);
        self.changed.notify_all();
    }

    pub fn release_all(&self) {
        self.held.lock().unwrap().holds.clear();
        self.changed.notify_all();
    }

    /// Waits until so many calls are held.
    pub fn reached(&self, what: What, count: usize) {
        let mut held = self.held.lock().unwrap();
        while held.waiting.iter().filter(|waits| **waits == what).count() < count {
            held = self.changed.wait(held).unwrap();
        }
    }

    pub fn pass(&self, what: What) {
        let mut held = self.held.lock().unwrap();
        held.waiting.push(what);
        self.changed.notify_all();
        while held.holds.contains(&what) {
            held = self.changed.wait(held).unwrap();
        }
        let at = held.waiting.iter().position(|waits| *waits == what).unwrap();
        held.waiting.remove(at);
        held.passed.push(what);
        let panics = held.panics.take_if(|panics| *panics == what).is_some();
        drop(held);
        assert!(!panics, "a test wants that");
    }

    /// The next commit fails.
    pub fn fail(&self) {
        self.held.lock().unwrap().fails = true;
    }

    /// The next such call panics.
    pub fn panic(&self, what: What) {
        self.held.lock().unwrap().panics = Some(what);
    }

    /// What has passed, in this order.
    pub fn all_passed(&self) -> Vec<What> {
        self.held.lock().unwrap().passed.clone()
    }

    /// How many such calls there were.
    pub fn passed(&self, what: What) -> usize {
        self.held.lock().unwrap().passed.iter().filter(|passed| **passed == what).count()
    }
}

/// A volume behind the gate.
pub struct Gated {
    pub inner: VolumeVfs,
    pub gate: Arc<Gate>,
}

wholly_vfs::pass_on! {
    impl [] Gated;
    call |this, ctx, pass| pass(&this.inner, ctx);
    bare |this, pass| pass(&this.inner);
    {
        fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
            if ctx.group.is_some() {
                self.gate.pass(What::Read);
            }
            self.inner.read(ctx, handle, offset, buf)
        }

        fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
            self.gate.pass(What::Write);
            self.inner.write(ctx, handle, offset, data)
        }

        fn fsync(&self, ctx: &Context, handle: &Handle) -> Result<()> {
            self.gate.pass(What::Fsync);
            self.inner.fsync(ctx, handle)
        }
    }
}

impl Groups for Gated {
    fn begin_as(&self, seen: Seen) -> wholly_error::Result<GroupId> {
        let begun = self.inner.begin_as(seen);
        self.gate.pass(What::Begin);
        begun
    }

    fn add(&self, group: GroupId, handle: &Handle) -> wholly_error::Result<()> {
        self.gate.pass(What::Add);
        self.inner.add(group, handle)
    }

    fn commit_all(&self, groups: &[GroupId], how: Committed) -> wholly_error::Result<Ticket> {
        self.gate.pass(What::Commit);
        if std::mem::take(&mut self.gate.held.lock().unwrap().fails) {
            groups.iter().try_for_each(|group| self.inner.abort(*group))?;
            return Err(Error::NoSpace("a test".into()));
        }
        self.inner.commit_all(groups, how)
    }

    fn wait(&self, ticket: Ticket) -> wholly_error::Result<()> {
        self.gate.pass(What::Wait);
        self.inner.wait(ticket)
    }

    fn abort(&self, group: GroupId) -> wholly_error::Result<()> {
        self.gate.pass(What::Abort);
        self.inner.abort(group)
    }
}

/// A disk that the gate holds: nothing comes back from it meanwhile.
pub struct HeldDisk {
    pub inner: DiskRegion,
    pub gate: Arc<Gate>,
}

impl Region for HeldDisk {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.inner.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.gate.pass(What::Disk);
        self.inner.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.gate.pass(What::Disk);
        self.inner.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }

    fn extend(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.extend(site, len)
    }
}
