//! A mount all of which is one group, which whoever mounted it ends: groups of programs [join](Joined) it.

use wholly_vfs::{Context, GroupId};

use super::Call;
use super::joined::Joined;

pub(crate) struct View {
    group: GroupId,
    /// Groups that have joined, by their open files.
    pub joined: Joined,
}

impl View {
    pub fn new(group: GroupId) -> View {
        View { group, joined: Joined::default() }
    }

    pub fn call(&self, ctx: Context) -> Call {
        Call::outside(Context { group: Some(self.group), ..ctx })
    }
}
