//! A volume whose calls outside of explicit groups are grouped by a policy. `epochs.rs` has the rules.

use std::sync::Arc;

use wholly_vfs::{Errno, GroupId, Handle, Ino, OFlags, Policy, Result};

use crate::Volume;
use crate::epochs::{Epochs, MOST_DIRTY, Marked, Policed};
use crate::fork::{Guarded, OverVolume, guard};
use crate::open::Mounted;
use crate::vfs::{COPIED, UnguardedVfs};

/// A volume whose calls outside of explicit groups are grouped by a policy.
///
/// All that use it see each change at once. Calls on the [`Volume`] itself see what is committed, and get `EBUSY` where
/// they would change a file with changes that are not.
///
/// Under [`Policy::PerSync`] a file's changes are committed when the program asks for it, and at no other time: a call
/// for which there is no space fails with `ENOSPC`, and so does one that would give a 65,537th file pending changes.
/// What was written before can be synced then.
///
/// Drop it before [`Volume::close`]: the drop commits what is pending, a close aborts it.
pub struct PolicyVfs(Guarded<Policed<UnguardedVfs>>);

impl std::fmt::Debug for PolicyVfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyVfs").finish_non_exhaustive()
    }
}

impl PolicyVfs {
    /// Groups the calls of `volume`, which stays open as long as this does.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for any policy but `per-op` if the volume's engine has no groups.
    pub fn new(volume: &Volume, policy: Policy) -> Result<PolicyVfs> {
        Self::with_most_dirty(volume, policy, MOST_DIRTY)
    }

    /// The same, with another limit of files that have pending changes under `per-sync`: for tests.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    #[doc(hidden)]
    pub fn with_most_dirty(volume: &Volume, policy: Policy, most: u64) -> Result<PolicyVfs> {
        let opened = volume.opened().current()?;
        let policed = opened.used(|_| Policed::new(UnguardedVfs::over(opened.mounted.clone()), policy, most))?;
        Ok(PolicyVfs(Guarded::new(policed, opened)))
    }

    /// How often the group under [`Policy::Shared`] was committed without a sync or the timer: for want of space, or
    /// because it had become very large.
    pub fn early_commits(&self) -> u64 {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.early_commits())).unwrap_or_default()
    }

    /// How many files have pending changes.
    pub fn pending_files(&self) -> u64 {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.dirty_files())).unwrap_or_default()
    }

    /// As [`VolumeVfs::held`](crate::VolumeVfs::held), of what callers hold.
    #[doc(hidden)]
    pub fn held(&self) -> (u64, usize) {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.below().held())).unwrap_or_default()
    }
}

guard!(PolicyVfs);

impl Policed<UnguardedVfs> {
    /// See [`UnguardedVfs::identity`].
    pub fn identity(&self, handle: Handle) -> Result<(u64, u64)> {
        self.below().identity(handle)
    }
}

impl OverVolume for Policed<UnguardedVfs> {
    fn again(&self, volume: &Arc<Mounted>) -> Result<Self> {
        let (policy, most_dirty) = self.kind();
        Policed::new(UnguardedVfs::over(volume.clone()), policy, most_dirty)
    }

    fn end(&self) {
        self.end_all();
        self.below().end();
    }
}

impl Epochs for UnguardedVfs {
    const COPIED: usize = COPIED;

    fn marked(&self, handle: Handle) -> Result<(Arc<Marked>, OFlags)> {
        self.of_handle(handle).map(|(inode, flags)| (inode.mark().clone(), flags))
    }

    fn marked_inode(&self, ino: Ino) -> Option<Arc<Marked>> {
        self.mounted().core.known(ino.0).map(|inode| inode.mark().clone())
    }

    fn has_changed(&self, group: GroupId, ino: Ino) -> bool {
        self.mounted().core.has_changed(group, ino.0)
    }

    fn in_background(&self, work: &mut dyn FnMut()) -> bool {
        let volume = self.mounted();
        let _alone = volume.background.lock().unwrap();
        // A child has the volume now.
        let Ok(used) = volume.forked.enter_background() else { return false };
        work();
        volume.forked.leave(used);
        true
    }
}
