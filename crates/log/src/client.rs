//! What a client of the log decides: what entries ask for, what its superblock says besides, where segments come from.

use std::fmt::Debug;
use std::sync::Arc;

use wholly_media::Region;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::{Entry, Superblock, SuperblockFault};

/// A client, by its types.
pub trait Client: 'static {
    /// What its entries ask for.
    type Kind: ClientKind;
    /// Its part of the superblock.
    type Part: ClientPart;
    /// Where its segments come from.
    type Source: SegmentSource<Self::Part>;
}

/// What an entry asks for.
pub trait ClientKind: Copy + Eq + Debug + Send + Sync + 'static {
    /// The one kind that the log writes itself: in a commit record, `offset` is the id of the group, whose parts stand
    /// elsewhere.
    const PARTS: Self;

    /// The kind with this number on media, if there is one.
    fn of(number: u8) -> Option<Self>;

    /// Its number on media.
    fn number(self) -> u8;

    /// Whether `entry`, which is not [`PARTS`](Self::PARTS), can have its offset, its object and its length. An entry
    /// that cannot is never written, and an error where it is read.
    fn is_sound(entry: &Entry<Self>) -> bool;
}

/// The client's part of a superblock. The client also decides how both parts stand on media.
pub trait ClientPart: Clone + Debug + Eq + Send + 'static {
    /// A superblock on media: whole lines, no more than a slot.
    type Raw: FromBytes + IntoBytes + Immutable;

    /// The bytes to be written.
    fn to_raw(superblock: &Superblock<Self>) -> Self::Raw;

    /// Checks what was read from a slot, by a checksum over all of it, and
    /// [`LogPart::is_sound`](super::layout::LogPart::is_sound).
    ///
    /// # Errors
    /// Why it is no superblock.
    fn checked(raw: &Self::Raw) -> Result<Superblock<Self>, SuperblockFault>;

    /// For what is sound but of another program: what it is, and what to do about it.
    fn unsupported(fault: SuperblockFault) -> Option<String>;
}

/// Where segments come from. Positions in its region are those of the log: the two slots of superblocks, then the
/// segments one after another, wherever they really are.
pub trait SegmentSource<P>: Send + Sync {
    /// The bytes. [`Region::set_len`] and [`Region::extend`] make room for more segments, or give back the last ones.
    fn region(&self) -> &dyn Region;

    /// A superblock is about to say that there are `segments`: where they are, unless they are simply there, is put
    /// into the client's part. One write makes both durable, before a segment that is new is used, and before one that
    /// is gone is given back.
    fn locate(&self, segments: u32, part: &mut P) {
        let _ = (segments, part);
    }
}

/// A file that grows: its segments are where their numbers say.
impl<P> SegmentSource<P> for Arc<dyn Region> {
    #[inline]
    fn region(&self) -> &dyn Region {
        &**self
    }
}
