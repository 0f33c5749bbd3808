//! A volume after `fork`: whichever of the processes that have it uses it first goes on, the others get `EBUSY`
//! (decision 5). [`Claim`] decides, as for a store.
//!
//! Every call on a [`Volume`], a `VolumeVfs` or a `PolicyVfs` is a *use*; `VolumeFile` and `VolumeGroup` make their
//! calls through these. A child whose use comes first leaves alone all that its parent had in memory, opens the volume
//! again from its medium, as after the death of the parent, and makes an *heir* of each `Vfs`. Running groups, open
//! handles and references to inodes are the parent's: the heirs have none, and number their own so that none is taken
//! for another (`Core::first_number`). A `VolumeFile` is opened again by its path.
//!
//! # Invariants
//!
//! 1. In a child nothing of an inherited volume is locked, dropped, read or written but what [`Forked`] keeps for the
//!    purpose and what never changes: a thread that the child does not have may be in the middle of anything.
//! 2. A drop is no use: in a child it leaves all as it is; in a parent whose volume a child has, it writes nothing.
//! 3. Uses of one thread do not nest: what calls back into a program does so between two uses.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustix::fd::OwnedFd;
use rustix::io::fcntl_dupfd_cloexec;
use wholly_error::{Error, Result};
use wholly_host::{Claim, Refused};
use wholly_host::{Inherit, keep_for_ever};
use wholly_vfs::{Errno, GroupId, begun_before_fork};

use crate::medium::{Kind, Location, opened_volume};
use crate::open::{Mounted, failed};
use crate::{Volume, VolumeOptions, owner};

/// What keeps other processes out of a volume, and what it takes to open it once more.
pub(crate) struct Owned {
    pub lock: owner::Lock,
    /// The file or device.
    pub file: OwnedFd,
    pub path: PathBuf,
    pub options: VolumeOptions,
    /// Whether calls have returned that may not be durable: those of the engine `none` on a disk, and commits that
    /// return at the order. It locks nothing.
    pub keeps_back: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Inherit for Owned {
    type Heir = Volume;

    fn what(&self) -> &'static str {
        "the volume"
    }

    fn claim(&self) -> &Arc<Claim> {
        self.lock.claim()
    }

    fn take_over(&self) -> Result<Volume> {
        let name = self.path.display().to_string();
        if Location::of(&self.path).kind == Kind::Qemu {
            // Its QEMU is the parent's.
            let why = "a volume on QEMU's controller stays with the process that has opened it: open it again here";
            return Err(Error::Busy(name, why.into()));
        }
        let keeps_back = (self.keeps_back)();
        let (claim, what) = (self.lock.claim(), if keeps_back { "its changes in memory" } else { "it" });
        if let Err(busy) = if keeps_back { claim.seize_left() } else { claim.seize() } {
            let owner = busy.pid.map_or_else(|| "another process".into(), |pid| format!("process {pid}"));
            return Err(Error::Busy(name, format!("{owner} has {what} since a fork")));
        }
        let copy = |fd| fcntl_dupfd_cloexec(fd, 0).map_err(|errno| failed("dup", &self.path, errno));
        // The description has the lock, unless the parent gave that up: then anybody may have it.
        let Some(lock) = owner::Lock::take(copy(self.lock.fd())?, &name)? else {
            return Err(Error::Busy(name, owner::of(&self.file)));
        };
        let (file, options) = (copy(&self.file)?, self.options.clone());
        let medium = opened_volume(copy(&file)?, &self.path, &options)?;
        Volume::open_owned(medium, Some((lock, file, self.path.clone())), options)
    }
}

/// A volume that is open: the last handle of it unmounts it.
pub(crate) struct Opened {
    pub mounted: Arc<Mounted>,
}

impl Opened {
    /// Whether this process has it by `fork`.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.mounted.forked.is_inherited()
    }

    /// Runs a call on the volume as this process has it.
    pub fn used<T, E: From<Error>>(&self, call: impl FnOnce(&Mounted) -> Result<T, E>) -> Result<T, E> {
        let forked = &self.mounted.forked;
        match forked.enter() {
            Ok(used) => {
                let result = call(&self.mounted);
                forked.leave(used);
                result
            }
            Err(Refused::Inherited) => forked.heir()?.opened().used(call),
            Err(why) => Err(forked.refused(why).into()),
        }
    }

    /// The volume as this process has it, which takes it over if it must.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process keeps it; those of opening it.
    pub fn current(self: &Arc<Self>) -> Result<Arc<Opened>> {
        let mut opened = self.clone();
        while opened.is_inherited() {
            opened = opened.mounted.forked.heir()?.opened().clone();
        }
        Ok(opened)
    }

    /// Why this process does not have the volume, as far as it has found out.
    pub fn lost(&self) -> Option<Error> {
        let forked = &self.mounted.forked;
        match forked.enter() {
            Ok(used) => {
                forked.leave(used);
                None
            }
            Err(Refused::Inherited) => match forked.settled() {
                Some(Ok(heir)) => heir.opened().lost(),
                settled => settled.and_then(Result::err),
            },
            Err(why) => Some(forked.refused(why)),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let forked = &self.mounted.forked;
        match forked.enter() {
            Ok(used) => {
                // Without an unmount the next mount rebuilds the allocators.
                let _ = self.mounted.close();
                forked.leave(used);
            }
            Err(Refused::Inherited) => {
                keep_for_ever(&self.mounted);
                forked.let_go();
            }
            // They see it by themselves, unless they are asleep.
            Err(Refused::Seized(_)) => self.mounted.core.checkpointers.stop(),
        }
    }
}

/// A `Vfs` over a volume, without regard to forks.
pub(crate) trait OverVolume: Sized {
    /// In a child: the same over the volume that the child took over. Only what never changes of `self` is looked at.
    fn again(&self, volume: &Arc<Mounted>) -> Result<Self, Errno>;

    /// Waits for what the call that ends has ordered.
    fn settle(&self) -> Result<()>;

    /// It is not used any more.
    fn end(&self);
}

/// A `Vfs` as the processes have it that are forked while it is there.
pub(crate) struct Guarded<T: OverVolume> {
    here: Arc<T>,
    /// In a child that took the volume over.
    heir: OnceLock<Box<Guarded<T>>>,
    /// Dropped last.
    opened: Arc<Opened>,
}

impl<T: OverVolume> Guarded<T> {
    pub fn new(here: T, opened: Arc<Opened>) -> Self {
        Guarded { here: Arc::new(here), heir: OnceLock::new(), opened }
    }

    pub fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }

    /// In a child: its own.
    #[cold]
    fn heir(&self) -> Result<&Guarded<T>> {
        if let Some(heir) = self.heir.get() {
            return Ok(heir);
        }
        let opened = self.opened.current()?;
        let here = opened.used(|_| self.here.again(&opened.mounted).map_err(|errno| Error::of("the volume", errno)))?;
        let heir = Box::new(Guarded::new(here, opened));
        Ok(self.heir.get_or_init(|| heir))
    }

    /// Makes a call, which may belong to a group, on the volume as this process has it.
    #[inline]
    pub fn used<R, E: From<Error>>(
        &self,
        group: Option<GroupId>,
        call: impl FnOnce(&T) -> Result<R, E>,
    ) -> Result<R, E> {
        let forked = &self.opened.mounted.forked;
        match forked.enter() {
            Ok(used) => {
                let result = call(&self.here);
                // All locks are free.
                let settled = self.here.settle();
                forked.leave(used);
                let result = result?;
                settled?;
                Ok(result)
            }
            Err(Refused::Inherited) => match group {
                Some(group) if self.opened.mounted.numbers(group.0) => Err(begun_before_fork().into()),
                _ => self.heir()?.used(group, call),
            },
            Err(why) => Err(forked.refused(why).into()),
        }
    }

    /// Gives something back that a call has returned. In a child it is no use, if the parent was given it.
    pub fn gives_back<R>(&self, is_given: bool, call: impl FnOnce(&T) -> Result<R, Errno>) -> Result<R, Errno> {
        match self.opened.is_inherited() && !is_given {
            true => Err(Errno::BADF),
            false => self.used(None, call),
        }
    }

    /// Whether a number of a handle or a group is of the volume as this process has it.
    pub fn has_given(&self, number: u64) -> bool {
        match self.opened.is_inherited() {
            false => self.opened.mounted.numbers(number),
            true => self.heir.get().is_some_and(|heir| heir.has_given(number)),
        }
    }

    /// In a child: whether it has taken the volume over, and used this.
    pub fn has_heir(&self) -> bool {
        self.heir.get().is_some()
    }
}

impl<T: OverVolume> Drop for Guarded<T> {
    fn drop(&mut self) {
        let mounted = &self.opened.mounted;
        match mounted.forked.enter() {
            Ok(used) => {
                self.here.end();
                mounted.forked.leave(used);
            }
            Err(Refused::Inherited) => keep_for_ever(&self.here),
            Err(Refused::Seized(_)) => {
                // Nothing that is left to do reaches the medium from here on.
                mounted.core.end();
                self.here.end();
            }
        }
    }
}

/// Implements the traits `Vfs`, `Groups` and `AcrossForks` for a type whose only field is a [`Guarded`] one.
macro_rules! guard {
    ($vfs:ident) => {
        wholly_vfs::pass_on! {
            impl [] $vfs;
            call |this, ctx, pass| this.0.used(ctx.group, |vfs| pass(vfs, ctx));
            bare |this, pass| this.0.used(None, |vfs| pass(vfs));
            {
                fn forget(&self, ino: Ino, references: u64) {
                    let _ = self.0.gives_back(self.0.has_heir(), |vfs| Ok(vfs.forget(ino, references)));
                }

                fn release(&self, ctx: &Context, handle: Handle) -> Result<()> {
                    self.0.gives_back(self.0.has_given(handle.number()), |vfs| vfs.release(ctx, handle))
                }

                fn releasedir(&self, ctx: &Context, handle: Handle) -> Result<()> {
                    self.0.gives_back(self.0.has_given(handle.number()), |vfs| vfs.releasedir(ctx, handle))
                }

                fn readdir(
                    &self,
                    ctx: &Context,
                    handle: &Handle,
                    offset: u64,
                    each: &mut dyn FnMut(Listed<'_>) -> bool,
                ) -> Result<()> {
                    let mut at = offset;
                    loop {
                        // `each` may make calls of its own.
                        let mut some = Vec::new();
                        self.0.used(ctx.group, |vfs| {
                            vfs.readdir(ctx, handle, at, &mut |entry| {
                                let is_taken = some.len() < $crate::fork::ENTRIES;
                                if is_taken {
                                    some.push((entry.ino, entry.next, entry.kind, entry.name.to_vec()));
                                }
                                is_taken
                            })
                        })?;
                        for (ino, next, kind, name) in &some {
                            if !each(Listed { ino: *ino, next: *next, kind: *kind, name }) {
                                return Ok(());
                            }
                            at = *next;
                        }
                        if some.len() < $crate::fork::ENTRIES {
                            return Ok(());
                        }
                    }
                }
            }
        }

        impl wholly_vfs::AcrossForks for $vfs {
            fn has_given(&self, number: u64) -> bool {
                !self.0.opened().is_inherited() || self.0.has_given(number)
            }

            fn identity(&self, handle: &wholly_vfs::Handle) -> wholly_vfs::Result<(u64, u64)> {
                self.0.used(None, |vfs| vfs.identity(handle))
            }

            fn lost(&self) -> Option<wholly_error::Error> {
                self.0.opened().lost()
            }
        }

        impl wholly_vfs::Groups for $vfs {
            fn begin_as(&self, seen: wholly_vfs::Seen) -> wholly_error::Result<GroupId> {
                self.0.used(None, |vfs| vfs.begin_as(seen))
            }

            fn add(&self, group: GroupId, handle: &wholly_vfs::Handle) -> wholly_error::Result<()> {
                self.0.used(Some(group), |vfs| vfs.add(group, handle))
            }

            fn commit_all(
                &self,
                groups: &[GroupId],
                how: wholly_vfs::Committed,
            ) -> wholly_error::Result<wholly_vfs::Ticket> {
                self.0.used(groups.first().copied(), |vfs| vfs.commit_all(groups, how))
            }

            fn wait(&self, ticket: wholly_vfs::Ticket) -> wholly_error::Result<()> {
                self.0.used(None, |vfs| vfs.wait(ticket))
            }

            fn abort(&self, group: GroupId) -> wholly_error::Result<()> {
                self.0.used(Some(group), |vfs| vfs.abort(group))
            }
        }
    };
}
pub(crate) use guard;

/// Names of a directory that are listed in one use.
pub(crate) const ENTRIES: usize = 64;
