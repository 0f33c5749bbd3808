//! Groups that are parked, in the model: what the directory was to each of them, and what it is to be.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::State;

/// A parked group.
#[derive(Clone, Debug)]
pub(super) struct ParkedGroup {
    /// What everybody saw when it was parked.
    base: State,
    /// What the group saw.
    private: State,
}

impl State {
    /// Parks a group that sees `private`, under the next number, which is its note. With `stays` it does not expire at
    /// once.
    pub fn park(&mut self, private: &State, stays: bool) {
        self.parks += 1;
        let alone = |state: &State| State { parked: Default::default(), opened: self.opened.clone(), ..state.clone() };
        let mut group = ParkedGroup { base: alone(self), private: alone(private) };
        group.private.forget();
        if stays {
            self.parked.insert(self.parks, Some(Arc::new(group)));
        }
    }

    /// The numbers of the groups that are parked.
    pub fn parked(&self) -> BTreeSet<u32> {
        self.parked.keys().copied().collect()
    }

    /// A group of this number is parked, of which nothing else is known.
    pub(crate) fn has_parked(&mut self, number: u32) {
        self.parked.insert(number, None);
    }

    /// What is parked in `other` is parked, and it is a guest as that is.
    pub(crate) fn take_parked(&mut self, other: &State) {
        self.guest = other.guest;
        self.parked.clone_from(&other.parked);
    }

    /// It is parked no more.
    pub fn discard(&mut self, number: u32) {
        self.parked.remove(&number);
    }

    /// Does what a parked group would do.
    ///
    /// # Errors
    /// In words, where somebody has changed the same since.
    pub fn apply_parked(&mut self, number: u32) -> Result<(), String> {
        let group = self.parked.get(&number).cloned().flatten().ok_or("no such group is parked")?;
        self.merge(&group.base, &group.private)?;
        self.discard(number);
        Ok(())
    }

    /// The same over what somebody has changed since.
    ///
    /// # Errors
    /// In words, where the two do not go together.
    pub fn apply_over(&mut self, number: u32) -> Result<(), String> {
        let group = self.parked.get(&number).cloned().flatten().ok_or("no such group is parked")?;
        self.merge_over(&group.base, &group.private)?;
        self.discard(number);
        Ok(())
    }

    /// Whether all is as it was when a group was parked.
    pub fn is_as_when_parked(&self, number: u32) -> bool {
        let now = State { parked: Default::default(), ..self.clone() };
        self.parked.get(&number).cloned().flatten().is_some_and(|group| group.base == now)
    }
}
