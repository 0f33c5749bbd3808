//! What running groups keep others from.

use std::collections::BTreeMap;

use wholly_vfs::{Errno, GroupId, Result};

use crate::fs::DIRECTORY;
use crate::fs::table::{Inode, State};

/// What running groups keep others from, at a shared directory that none of them has alone.
#[derive(Debug, Default)]
pub struct Claims {
    /// The one that has the attributes.
    pub(super) attributes: Option<GroupId>,
    /// Those that rely on where it is.
    pub(super) sharers: Vec<GroupId>,
    pub(super) names: BTreeMap<Vec<u8>, Named>,
    /// Slots for names to come, by key: the first one, and how many.
    pub rooms: BTreeMap<u64, (usize, usize)>,
}

#[derive(Debug)]
pub(super) struct Named {
    pub(super) group: GroupId,
    /// The key of its room.
    pub(super) room: Option<u64>,
}

/// One claim.
pub(super) enum Fresh {
    Twin,
    Alone,
    Attributes,
    Sharer,
    Name(Vec<u8>),
}

/// What a call changes of an inode.
#[derive(Clone, Copy, Debug)]
pub enum What<'n> {
    /// All but names: of a directory, its attributes.
    Itself,
    /// A name in a directory.
    Name(&'n [u8]),
    /// Nothing: it relies on where the directory is.
    Place,
    /// A directory that is removed or moved.
    Alone,
}

impl State {
    /// That no other group has claimed what is to be changed.
    ///
    /// # Errors
    /// `EBUSY`.
    pub fn check_free(&self, inode: &Inode, me: Option<GroupId>, what: What<'_>) -> Result<()> {
        let other = |of: Option<GroupId>| of.is_some() && of != me;
        let is_dir = inode.kind == DIRECTORY;
        let is_busy = self.claims.as_ref().is_some_and(|claims| match what {
            What::Itself => is_dir && other(claims.attributes),
            What::Name(name) => other(claims.names.get(name).map(|named| named.group)),
            What::Place => false,
            What::Alone => other(claims.attributes) || claims.sharers.iter().any(|group| other(Some(*group))),
        });
        if is_busy || other(self.alone) { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// Whether a group has the attributes of a directory.
    pub fn has_attributes(&self, group: Option<GroupId>) -> bool {
        let attributes = self.claims.as_ref().and_then(|claims| claims.attributes);
        group.is_some() && (attributes == group || self.alone == group)
    }

    /// Whether a group has it alone.
    pub fn is_claimed(&self) -> bool {
        self.alone.is_some()
    }

    pub(super) fn claims(&mut self) -> &mut Claims {
        self.claims.get_or_insert_default()
    }

    pub(super) fn release(&mut self, group: GroupId) {
        self.alone.take_if(|of| *of == group);
        let Some(claims) = &mut self.claims else { return };
        claims.attributes.take_if(|of| *of == group);
        claims.sharers.retain(|of| *of != group);
        let rooms = &mut claims.rooms;
        claims.names.retain(|_, named| {
            if named.group == group {
                named.room.map(|key| rooms.remove(&key));
            }
            named.group != group
        });
        self.drop_empty_claims();
    }

    pub(super) fn release_one(&mut self, group: GroupId, claim: &Fresh) {
        if let Fresh::Alone = claim {
            self.alone = None;
        }
        let Some(claims) = &mut self.claims else { return };
        match claim {
            Fresh::Twin | Fresh::Alone => {}
            Fresh::Attributes => claims.attributes = None,
            Fresh::Sharer => claims.sharers.retain(|of| *of != group),
            Fresh::Name(name) => {
                let room = claims.names.remove(name).and_then(|named| named.room);
                room.map(|key| claims.rooms.remove(&key));
            }
        }
        self.drop_empty_claims();
    }

    fn drop_empty_claims(&mut self) {
        self.claims
            .take_if(|claims| claims.attributes.is_none() && claims.sharers.is_empty() && claims.names.is_empty());
    }
}
