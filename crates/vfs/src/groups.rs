//! Explicit groups of a store or volume: calls whose contexts name a group belong to it, and survive together.

use wholly_error::{Error, Result};

use super::{GroupId, Handle, Vfs};

/// Who sees the changes of a group before its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Only calls of the group.
    Private,
    /// Everybody.
    Visible,
}

/// What holds of groups once their commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Committed {
    /// They are to be durable: [`Groups::wait`] makes them so.
    Durable,
    /// They are atomic, and ordered before later groups that change the same. The medium may be slower.
    Ordered,
}

/// What [`Groups::commit_all`] gives, and [`Groups::wait`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the groups may not be durable before `wait`"]
pub struct Ticket(pub u64);

/// A store or volume with explicit groups.
///
/// A group claims what its calls change until it ends: calls of others on that get `EBUSY`. It ends by a commit or an
/// abort; calls that name it later get `EINVAL`.
///
/// # Example
/// ```
/// use wholly_error::Error;
/// use wholly_vfs::{Context, Errno, Groups, Ino, Mode};
///
/// /// Makes directories, all or none.
/// fn make(vfs: &dyn Groups, names: &[&[u8]]) -> Result<(), Error> {
///     let group = vfs.begin()?;
///     let ctx = Context { group: Some(group), ..Context::superuser() };
///     for name in names {
///         if let Err(errno) = vfs.mkdir(&ctx, Ino::ROOT, name, Mode::from_raw_mode(0o755)) {
///             vfs.abort(group)?;
///             return Err(Error::of("a directory", errno));
///         }
///     }
///     vfs.commit(group) // durable when it returns
/// }
/// # let _ = make;
/// ```
pub trait Groups: Vfs {
    /// Begins a group whose changes nobody else sees before its commit.
    ///
    /// # Errors
    /// Those of [`begin_as`](Self::begin_as).
    fn begin(&self) -> Result<GroupId> {
        self.begin_as(Seen::Private)
    }

    /// Begins a group.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this store or volume has no such groups. [`Error::Busy`] if another process keeps it
    /// after `fork`.
    fn begin_as(&self, seen: Seen) -> Result<GroupId>;

    /// Claims an open file for a group now, instead of at its first change.
    ///
    /// # Errors
    /// [`Error::Busy`] if another group has it; [`Error::Refused`] with `EBADF` if the handle is not open for writing.
    fn add(&self, group: GroupId, handle: &Handle) -> Result<()>;

    /// Commits a group. When this returns, it is durable. It has ended, also after an error.
    ///
    /// # Errors
    /// Those of [`commit_all`](Self::commit_all) and [`wait`](Self::wait).
    fn commit(&self, group: GroupId) -> Result<()> {
        let ticket = self.commit_all(&[group], Committed::Durable)?;
        self.wait(ticket)
    }

    /// Commits groups: all survive a crash, or none. When this returns, everybody sees them, and `how` holds. They have
    /// ended, also after an error.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: it is unknown whether they survive. After any other error they are aborted.
    /// [`Error::Unsupported`] for several groups where each is committed by itself.
    fn commit_all(&self, groups: &[GroupId], how: Committed) -> Result<Ticket>;

    /// Waits until groups that were committed are durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: it is unknown whether they survive.
    fn wait(&self, ticket: Ticket) -> Result<()>;

    /// Aborts a group: nothing of it is left.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such running group.
    fn abort(&self, group: GroupId) -> Result<()>;
}

/// The group of a commit, where groups are committed one by one.
///
/// # Errors
/// [`Error::Unsupported`] for several, [`Error::Invalid`] for none.
pub fn only(groups: &[GroupId]) -> Result<GroupId> {
    match groups {
        [group] => Ok(*group),
        [] => Err(Error::Invalid("a commit of no groups".into())),
        _ => Err(Error::Unsupported("several groups at once: commit one after the other".into())),
    }
}

/// Checks that a group is to be private, where there are no others.
///
/// # Errors
/// [`Error::Unsupported`].
pub fn only_private(seen: Seen) -> Result<()> {
    match seen {
        Seen::Private => Ok(()),
        Seen::Visible => Err(Error::Unsupported("a group that everybody sees before its commit".into())),
    }
}
