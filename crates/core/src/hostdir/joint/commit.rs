//! The steps of a joint commit, while the process lives.

use std::sync::Arc;

use wholly_changes::{Neighbour, Summary};

use super::record::{MOST, Record};
use super::{folder, neighbours};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::parked::ParkedId;
use crate::hostdir::running::Running;

/// A group that is to be prepared, and where its store is.
struct Participant {
    running: Running,
    /// Its name once it is prepared.
    id: u64,
    summary: Summary,
    address: Vec<u8>,
    /// Whether it is in the directory, and provisional.
    is_home: bool,
}

/// Commits groups of several stores, which this thread uses. Where this fails they are aborted, unless the error is
/// [`Error::Poisoned`].
pub(super) fn commit(groups: Vec<Running>) -> Result<()> {
    let (mut changing, mut others) = (Vec::new(), Vec::new());
    for mut running in groups {
        match running.summarize_to_set_aside()? {
            Some(summary) => changing.push((running, summary)),
            None => others.push(running),
        }
    }
    if changing.len() < 2 {
        changing.pop().map_or(Ok(()), |(mut running, _)| running.commit())?;
    } else {
        commit_changing(changing)?;
    }
    // What no name leads to is seen by who has it open, and by nobody after a crash.
    others.into_iter().try_for_each(|mut running| running.commit())
}

fn commit_changing(changing: Vec<(Running, Summary)>) -> Result<()> {
    if changing.len() > MOST {
        return Err(Error::invalid(format!("a joint commit has at most {MOST} groups")));
    }
    let mut all = Vec::new();
    for (running, summary) in changing {
        let address = running.store.address()?;
        let id = running.store.log.take_sequence();
        all.push(Participant { running, id, summary, address, is_home: false });
    }
    Joint::of(all)?.run()
}

impl StoreInner {
    /// Where others will find this store after a crash.
    fn address(&self) -> Result<Vec<u8>> {
        let unfit =
            |why: &str| Error::unsupported(format!("a joint commit of a store that the others cannot find: {why}"));
        let Some(neighbours) = &self.joint.neighbours else { return Err(unfit("it has no path")) };
        let address = neighbours.address()?;
        // Another root directory, or something mounted over it: who asks later would come to something else.
        let there = neighbours.at(&address).map_err(Error::from).and_then(|host| folder::directory_of(&*host));
        let place = String::from_utf8_lossy(&address).into_owned();
        match there {
            Ok(there) if there == folder::directory_of(&*self.host)? => Ok(address),
            Ok(_) => Err(unfit(&format!("{place} is another directory"))),
            Err(error) => Err(unfit(&error.to_string())),
        }
    }
}

struct Joint {
    participants: Vec<Participant>,
    record: Record,
}

impl Joint {
    /// The first one is the coordinator.
    fn of(participants: Vec<Participant>) -> Result<Joint> {
        let (first, mut seen) = (&participants[0], Vec::<(&[u8], [u8; 16])>::new());
        for Participant { running, address, .. } in &participants {
            let volume_id = *running.store.log.volume_id();
            if seen.iter().any(|(_, other)| *other == volume_id) {
                return Err(Error::unsupported("a joint commit of a store and its copy"));
            }
            let lies_in = |inner: &[u8], outer: &[u8]| {
                inner.strip_prefix(outer).is_some_and(|rest| rest.first() == Some(&b'/') || outer == b"/")
            };
            if seen.iter().any(|(other, _)| lies_in(address, other) || lies_in(other, address)) {
                return Err(Error::unsupported("a joint commit of stores, one inside the other"));
            }
            seen.push((address, volume_id));
        }
        let mut record =
            Record { volume_id: *first.running.store.log.volume_id(), id: first.id, participants: Vec::new() };
        for participant in &participants {
            let store = &participant.running.store;
            store.make_parked_folder()?;
            record.participants.push(Neighbour {
                volume_id: *store.log.volume_id(),
                number: participant.id,
                inode: folder::directory_of(&*store.host)?,
                absolute: participant.address.clone(),
                relative: neighbours::from(&first.address, &participant.address),
            });
        }
        Ok(Joint { participants, record })
    }

    fn run(self) -> Result<()> {
        let (coordinator, id) = (self.participants[0].running.store.clone(), self.record.id);
        coordinator.joint.under_way.lock().unwrap().push(id);
        let done = self.all_steps(&coordinator);
        coordinator.joint.under_way.lock().unwrap().retain(|other| *other != id);
        done
    }

    fn all_steps(mut self, coordinator: &Arc<StoreInner>) -> Result<()> {
        self.name_others();
        let inode = coordinator.begin_record(&self.record)?;
        if let Err(error) = self.prepare(inode).and_then(|()| self.go_home()) {
            return Err(self.give_up(coordinator, error));
        }
        match coordinator.decide(self.record.id) {
            Ok(()) => {}
            Err(error @ Error::Poisoned(_)) => {
                // Nobody knows: each says so until it is opened again, and asks then.
                self.participants.iter().for_each(|participant| _ = participant.running.store.poison(&error));
                return Err(error);
            }
            Err(error) => return Err(self.give_up(coordinator, error)),
        }
        self.settle(coordinator)
    }

    /// The undo of each part that keeps it names those of the others.
    fn name_others(&mut self) {
        let places = self.record.participants.iter().zip(&self.participants);
        let places: Vec<Neighbour> =
            places.map(|(place, part)| Neighbour { number: part.running.id, ..place.clone() }).collect();
        for (here, Participant { running, address, .. }) in self.participants.iter_mut().enumerate() {
            let others = places.iter().enumerate().filter(|(at, _)| *at != here);
            running.is_together_with(
                others.map(|(_, place)| Neighbour {
                    relative: neighbours::from(address, &place.absolute),
                    ..place.clone()
                }),
            );
        }
    }

    fn prepare(&mut self, inode: (u64, i64)) -> Result<()> {
        let (volume_id, number) = (self.record.volume_id, self.record.id);
        let there = self.participants[0].address.clone();
        for Participant { running, id, summary, address, .. } in &mut self.participants {
            let relative = neighbours::from(address, &there);
            summary.coordinator = Some(Neighbour { volume_id, number, inode, absolute: there.clone(), relative });
            running.prepare(*id, summary)?;
        }
        Ok(())
    }

    /// Writes back what its store writes back as part of a commit. The host may refuse it, up to the decision.
    fn go_home(&mut self) -> Result<()> {
        for Participant { running, id, address, is_home, .. } in &mut self.participants {
            if running.store.options.at_once {
                running.commit_prepared_at_once(*id).map_err(|error| in_store(address, error))?;
                *is_home = true;
            }
        }
        Ok(())
    }

    /// Nothing was decided because of `error`, and nothing will be: what stays of it, opens remove. Gives the error;
    /// [`Error::Poisoned`] where a part that is in its directory could not be undone: the next open does that.
    fn give_up(&self, coordinator: &StoreInner, mut error: Error) -> Error {
        let mut all_gone = true;
        // All of them are tried, whatever becomes of one.
        for Participant { running, id, is_home, .. } in &self.participants {
            let store = &running.store;
            if *is_home && store.check_usable().is_ok() {
                error = store.take_back(running.id, error);
            }
            // What has failed to survive, or to vanish, is not asked once more.
            all_gone &= store.check_usable().is_ok() && store.withdraw_prepared(ParkedId(*id)).is_ok();
        }
        if all_gone {
            let _ = coordinator.forget_record(self.record.id);
        }
        error
    }

    /// All of them are committed, whatever happens now: the error is that of a store that says so only when it is
    /// opened again.
    fn settle(self, coordinator: &Arc<StoreInner>) -> Result<()> {
        let (mut done, mut is_settled) = (Ok(()), true);
        for Participant { mut running, id, is_home, .. } in self.participants {
            let store = running.store.clone();
            let committed = if is_home { store.finish_joint(running.id) } else { running.commit_prepared(id) };
            let committed = committed.map_err(|error| store.poison(&error));
            // The log says that it was applied, whatever becomes of the file: the next pass tries again.
            is_settled &= committed.is_ok() && store.remove_applied(u64::MAX).is_ok();
            if is_home && committed.is_ok() {
                // All is in the directory: what is left is to free the log, and the next pass tries again.
                let _ = store.checkpoint();
            }
            done = done.and(committed);
        }
        if is_settled {
            // The next open of the coordinator does what this cannot.
            let _ = coordinator.forget_record(self.record.id);
        }
        done
    }
}

/// The same error, of a store at this address: a path alone does not say in which of them it is.
fn in_store(address: &[u8], error: Error) -> Error {
    let within = |what: String| format!("{what} in {}", String::from_utf8_lossy(address));
    match error {
        Error::Refused(path, errno) => Error::Refused(within(path), errno),
        Error::NoSpace(what) => Error::NoSpace(within(what)),
        Error::NotFound(path) => Error::NotFound(within(path)),
        Error::Conflict { path, change } => Error::Conflict { path: within(path), change },
        Error::Media(error) => Error::Media(wholly_media::Error { place: within(error.place), ..error }),
        other => other,
    }
}

/// Whether groups are of stores that are all different.
pub(super) fn check_apart(groups: &[Running]) -> Result<()> {
    let same = |i: usize| groups[..i].iter().any(|other| Arc::ptr_eq(&other.store, &groups[i].store));
    match (0..groups.len()).any(same) {
        true => Err(Error::invalid("two groups of one store: make them one")),
        false => Ok(()),
    }
}
