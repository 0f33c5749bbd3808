//! What an open does about joint commits that a crash has cut short: every prepared group is committed or given up, as
//! the record says.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::{Neighbour, ParkedFile};
use wholly_host::{HostFs, host_error, is_there};
use wholly_vfs::Rename;

use super::folder::{self, prepared_id, prepared_path};
use super::{FOLDER, neighbours};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::{OWN_FOLDER, names_in};
use crate::hostdir::parked::{Finder, Mismatch, ParkedId};
use crate::hostdir::running::{Running, Sharing};
use crate::site;
use sync::{AtomicU8, Mutex};

use super::Neighbours;

/// What an open store knows of joint commits.
pub(crate) struct JointCommits {
    /// How other stores are found; none where nobody can.
    pub neighbours: Option<Arc<dyn Neighbours>>,
    /// 1 once the folder is durable.
    pub has_folder: AtomicU8,
    /// What the open has done about those that a crash had cut short.
    pub settled: Mutex<Decided>,
    /// The numbers of those that threads of this process are about to decide here.
    pub under_way: Mutex<Vec<u64>>,
}

impl JointCommits {
    pub fn new(neighbours: Option<Arc<dyn Neighbours>>) -> Self {
        JointCommits {
            neighbours,
            has_folder: AtomicU8::new(0),
            settled: Mutex::default(),
            under_way: Mutex::default(),
        }
    }
}

/// What opening a store did about joint commits that a crash had interrupted.
#[derive(Clone, Debug, Default)]
pub struct Decided {
    /// Groups that were decided, and are committed now.
    pub committed: Vec<ParkedId>,
    /// Groups that were not decided, and are removed.
    pub undone: Vec<ParkedId>,
    /// Groups that are parked now.
    pub released: Vec<Released>,
    /// Groups that were written back and not decided, and that are committed all the same, each with the reason why it
    /// could not be undone. Only if [`Options::release`](crate::Options::release) was set.
    pub kept: Vec<(ParkedId, String)>,
}

/// A group of a joint commit that an open has parked.
#[derive(Clone, Debug)]
pub struct Released {
    /// The id of the parked group.
    pub id: ParkedId,
    /// Where the coordinator was; empty if that is unknown.
    pub coordinator: String,
    /// What had changed meanwhile, so that the group could not be committed although it was decided. Empty if the
    /// decision was not found, and [`Options::release`](crate::Options::release) was set.
    pub mismatches: Vec<Mismatch>,
}

/// What a record says.
enum Verdict {
    Decided,
    Undecided,
    /// Why it cannot be asked.
    Unknown(String),
}

impl StoreInner {
    /// Settles all prepared groups, and forgets records that nobody needs. What it did survives when this returns.
    pub(in crate::hostdir) fn settle_joint(self: &Arc<Self>) -> Result<()> {
        let mut ids: Vec<u64> =
            names_in(&*self.host, wholly_changes::FOLDER)?.iter().filter_map(|name| prepared_id(name)).collect();
        ids.sort_unstable();
        for id in ids {
            self.settle_prepared(id)?;
        }
        self.clear_records()?;
        self.forget_settled()
    }

    /// Forgets records that nobody needs any more, but for those of joint commits that are under way.
    pub(in crate::hostdir) fn forget_settled(&self) -> Result<()> {
        let under_way = self.joint.under_way.lock().unwrap();
        for id in folder::all(&*self.host)?.into_iter().filter(|id| !under_way.contains(id)) {
            self.forget_if_settled(id)?;
        }
        Ok(())
    }

    fn settle_prepared(self: &Arc<Self>, id: u64) -> Result<()> {
        let parked = ParkedId(id);
        let (file, coordinator) = match self.read_prepared(id) {
            // It is listed as damaged then.
            Err(Error::Corrupt { .. }) if self.options.release => {
                return self.release((parked, None), None, Vec::new());
            }
            read => read?,
        };
        let applies = file.summary.applies.map(ParkedId);
        match self.ask(&coordinator)? {
            Verdict::Undecided => {
                self.withdraw_prepared(parked)?;
                self.joint.settled.lock().unwrap().undone.push(parked);
                Ok(())
            }
            Verdict::Decided => match self.commit_decided(&file) {
                Ok(mismatches) if mismatches.is_empty() => {
                    self.joint.settled.lock().unwrap().committed.push(parked);
                    Ok(())
                }
                Ok(mismatches) => self.release((parked, applies), Some(&coordinator), mismatches),
                Err(error) if self.options.release => {
                    let why = Mismatch { path: ".".into(), what: error.to_string() };
                    self.release((parked, applies), Some(&coordinator), vec![why])
                }
                Err(error) => Err(error),
            },
            Verdict::Unknown(_) if self.options.release => {
                self.release((parked, applies), Some(&coordinator), Vec::new())
            }
            Verdict::Unknown(why) => Err(waits_for(&coordinator, &why)),
        }
    }

    /// The prepared group that one of these groups is, if it is any: the part of a joint commit.
    pub(in crate::hostdir) fn part_among(&self, applied: &[u64]) -> Result<Option<ParkedId>> {
        for id in applied {
            if is_there(&*self.host, &prepared_path(*id))? {
                return Ok(Some(ParkedId(*id)));
            }
        }
        Ok(None)
    }

    /// Whether the joint commit of a prepared group was decided. What is to be released was not.
    pub(in crate::hostdir) fn is_decided(&self, part: ParkedId) -> Result<bool> {
        let coordinator = match self.read_prepared(part.0) {
            Err(Error::Corrupt { .. }) if self.options.release => return Ok(false),
            read => read?.1,
        };
        match self.ask(&coordinator)? {
            Verdict::Decided => Ok(true),
            Verdict::Undecided => Ok(false),
            Verdict::Unknown(_) if self.options.release => Ok(false),
            Verdict::Unknown(why) => Err(waits_for(&coordinator, &why)),
        }
    }

    fn read_prepared(&self, id: u64) -> Result<(ParkedFile, Neighbour)> {
        let path = prepared_path(id);
        let file = ParkedFile::read(&*self.host, &path)?;
        let is_mine = (file.head.volume_id, file.head.id) == (*self.log.volume_id(), id);
        match file.summary.coordinator.clone().filter(|_| is_mine) {
            Some(coordinator) => Ok((file, coordinator)),
            None => {
                let name = String::from_utf8_lossy(&path);
                Err(Error::corrupt(name, "not a prepared group of this store"))
            }
        }
    }

    /// Commits a group that was decided; gives what is in the way, if anything is.
    fn commit_decided(self: &Arc<Self>, file: &ParkedFile) -> Result<Vec<Mismatch>> {
        let mut finder = Finder::new(self.clone());
        let _caller = self.names.caller();
        let mut running = Running::new(self.clone(), Sharing::Own);
        let mismatches = running.apply(file, &mut finder)?;
        if mismatches.is_empty() {
            running.commit_to_log()?;
            // It is committed, whatever becomes of the file: the log goes on telling, and the next pass tries again.
            let _ = self.remove_applied(u64::MAX);
        }
        Ok(mismatches)
    }

    /// Makes it a parked group: somebody has to look at it. Where it applies one that is parked still, that tells the
    /// same, unless it expires: what others have committed does not vanish here by itself.
    fn release(
        &self,
        (id, applies): (ParkedId, Option<ParkedId>),
        coordinator: Option<&Neighbour>,
        mut mismatches: Vec<Mismatch>,
    ) -> Result<()> {
        let head = |id: &ParkedId| ParkedFile::head_of(&*self.host, &wholly_changes::path_of(id.0)).ok();
        let lasts = |id: &ParkedId| head(id).is_some_and(|(head, _)| head.expires_ns == 0);
        let is_undo = |id: ParkedId| Ok::<_, Error>(self.is_kept(id.0)? || self.is_part(id.0)?);
        let is_kept = applies.map_or(Ok(false), is_undo)?;
        let id = if let Some(applies) = applies.filter(|id| is_kept || lasts(id)) {
            self.withdraw_prepared(id)?;
            applies
        } else {
            let (from, to) = (prepared_path(id.0), wholly_changes::path_of(id.0));
            let renamed = self.host.rename(site::JOINT_RELEASE, &from, &to, Rename::Replace);
            renamed.map_err(|error| host_error(error, &to))?;
            self.sync_parked(site::JOINT_RELEASE_SYNC)?;
            if let Some(applies) = applies {
                self.unlink_parked(&wholly_changes::path_of(applies.0))?;
                self.finish_removal(&[applies.0])?;
            }
            id
        };
        mismatches.sort();
        mismatches.dedup();
        let released = Released { id, coordinator: coordinator.map(Neighbour::place).unwrap_or_default(), mismatches };
        self.joint.settled.lock().unwrap().released.push(released);
        Ok(())
    }

    /// Removes a prepared group that was not decided. It does not come back after a crash when this has returned.
    pub(super) fn withdraw_prepared(&self, id: ParkedId) -> Result<()> {
        let path = prepared_path(id.0);
        match self.host.unlink(site::JOINT_WITHDRAW, &path) {
            Err(error) if error.errno == Errno::NOENT => Ok(()),
            Err(error) => Err(host_error(error, &path)),
            Ok(()) => self.sync_parked(site::JOINT_WITHDRAW_SYNC),
        }
    }

    /// Asks the coordinator. Its process is dead, or has given the store up: what it has not decided it never will.
    fn ask(&self, coordinator: &Neighbour) -> Result<Verdict> {
        let mut why = None;
        for host in self.places_of(coordinator) {
            let found = host.and_then(|host| Ok(folder::find(&*host, coordinator.number)?.map(|found| (host, found))));
            match found {
                Ok(Some((_, found))) if is_it(&found, coordinator) && !found.is_decided => {
                    return Ok(Verdict::Undecided);
                }
                // Invariant 4.
                Ok(Some((host, found))) if is_it(&found, coordinator) => {
                    match host.sync_dir(site::JOINT_ASK_SYNC, FOLDER) {
                        Ok(()) => return Ok(Verdict::Decided),
                        Err(error) => why = Some(format!("it is unknown whether the record there survives: {error}")),
                    }
                }
                Ok(Some(_)) => why = Some("there is another store, or a copy".into()),
                Ok(None) => _ = why.get_or_insert_with(|| "the store there has no record of it".into()),
                Err(error) => _ = why.get_or_insert_with(|| error.to_string()),
            }
        }
        Ok(Verdict::Unknown(why.unwrap_or_else(|| "other stores cannot be found".into())))
    }

    /// Where another store may be, the likeliest first: as seen from here, since snapshots of both have the same
    /// inodes; this one itself where it is meant.
    fn places_of(&self, other: &Neighbour) -> Vec<Result<Arc<dyn HostFs>>> {
        if other.volume_id == *self.log.volume_id() {
            return vec![Ok(self.host.clone())];
        }
        let Some(all) = &self.joint.neighbours else { return Vec::new() };
        let beside = all.address().map(|here| neighbours::to(&here, &other.relative));
        let beside = beside.ok().filter(|beside| *beside != other.absolute);
        let places = beside.into_iter().chain(std::iter::once(other.absolute.clone()));
        places.map(|place| Ok(all.at(&place)?)).collect()
    }

    /// Forgets a record once no participant has its prepared group any more. Where a copy was adopted, its records are
    /// those of the store that was copied, and nobody asks for them here.
    fn forget_if_settled(&self, id: u64) -> Result<()> {
        let found = match folder::find(&*self.host, id) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            // Who asks for it is told so.
            Err(_) if self.options.release => return self.forget_record(id),
            Err(_) => return Ok(()),
        };
        let may_ask = |participant: &Neighbour| match self.state_of(participant) {
            State::Settled => false,
            State::Prepared => true,
            State::Away => !self.options.release,
        };
        match self.recovery.adopted || !found.record.participants.iter().any(may_ask) {
            true => self.forget_record(id),
            false => Ok(()),
        }
    }

    /// What has become of a participant.
    fn state_of(&self, participant: &Neighbour) -> State {
        let places = self.places_of(participant);
        let is_it =
            |host: &&Arc<dyn HostFs>| folder::directory_of(&***host).is_ok_and(|inode| inode == participant.inode);
        let mut state = State::Away;
        for host in places.iter().flatten().filter(is_it) {
            let is_gone = |path: &[u8]| host.stat(path).is_err_and(|error| error.errno == Errno::NOENT);
            // A store that was removed has settled before. Where a prepared group is gone, the process that removed it
            // may have died before that survived.
            let has_settled = is_gone(OWN_FOLDER)
                || (is_gone(&prepared_path(participant.number))
                    && host.sync_dir(site::JOINT_ASK_SYNC, wholly_changes::FOLDER).is_ok());
            if !has_settled {
                return State::Prepared;
            }
            state = State::Settled;
        }
        state
    }
}

fn waits_for(coordinator: &Neighbour, why: &str) -> Error {
    let advice = "restore it, or open without the decision: `wholly recover --release`";
    let what = format!("a joint commit waits for the decision of {}: {why}; {advice}", coordinator.place());
    Error::Busy("the store".into(), what)
}

/// Why a store does not open that cannot undo a part of a joint commit.
pub(in crate::hostdir) fn cannot_be_undone(error: &Error) -> Error {
    let advice = "remedy that, or keep it: `wholly recover --release`";
    let what = format!("a joint commit was not decided, and what is written back of it cannot be undone: {error}");
    Error::Busy("the store".into(), format!("{what}; {advice}"))
}

/// What has become of a participant of a joint commit.
enum State {
    /// It will never ask: its prepared group is gone, and does not come back.
    Settled,
    /// It may ask.
    Prepared,
    /// It cannot be found.
    Away,
}

/// Whether a record is the one that a prepared group names (invariant 6).
fn is_it(found: &folder::Found, coordinator: &Neighbour) -> bool {
    found.record.volume_id == coordinator.volume_id && found.inode == coordinator.inode
}
