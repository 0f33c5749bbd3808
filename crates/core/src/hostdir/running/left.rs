//! What a group leaves, by which it is known again when the group is taken back: noted from the group's own bytes
//! before it commits, and compared with what is there then. See [`undo_store`](crate::hostdir::undo_store).
//!
//! # Invariants
//!
//! 1. What is noted is the group's: no other program comes to it before the commit.
//! 2. Of each object that has other content, attributes or names by the group there is a note, but for directories that
//!    have other names in them only, and for what the group takes all names from without another change. So is there of
//!    everything in a directory that it has adopted.
//! 3. Only what a group has changed is compared: of what it has made all but times, of other objects the content that
//!    it has written and the attributes that it has set; never the inode, a time or the number of links.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::io::Errno;
use twox_hash::XxHash3_128;
use wholly_changes::{
    Content, Ids, Kind, Left, LeftContent, ROOT, Set, Summary, Writing, XattrValue, runs, xattr_checksum,
};
use wholly_host::{HostFile, HostFs, host_error};
use wholly_vfs::Stat;

use super::Running;
use super::apply::content_changed;
use super::names::At;
use crate::error::Result;
use crate::hostdir::StoreInner;
use crate::hostdir::undo_store::MOST_NAMES;
use crate::log::checksum::checksum;

/// The most bytes of a group that are read once more to know what it leaves. A file that is too large for what is left
/// of that is known by its times.
const MOST_SUMMED: u64 = 1 << 30;

/// The same of one that takes back another.
const MOST_TAKEN_BACK: u64 = 64 << 20;

/// Bytes that are read at a time.
const STEP: usize = 256 << 10;

/// Notes that are in memory at a time.
const AT_A_TIME: usize = 1024;

/// Notes what a group leaves.
pub(super) struct Noting {
    /// How many bytes more may be read.
    room: u64,
    /// Of how much more in adopted directories notes may be made.
    inside: u32,
    noted: Ids,
    buffer: Vec<u8>,
}

impl Noting {
    /// Of a group that takes back another one, which gives back files as they were, less is read.
    pub fn new(takes_back: bool) -> Noting {
        let room = if takes_back { MOST_TAKEN_BACK } else { MOST_SUMMED };
        Noting { room, inside: MOST_NAMES, noted: Ids::default(), buffer: Vec::new() }
    }

    /// What is in these ranges, which `read` reads.
    fn sum(&mut self, ranges: &[(u64, u64)], read: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<LeftContent> {
        let bytes: u64 = ranges.iter().map(|(from, to)| to - from).sum();
        match self.room.checked_sub(bytes) {
            None => Ok(LeftContent::Unread),
            Some(room) => {
                self.room = room;
                sum_of(ranges, &mut self.buffer, read).map(LeftContent::Sum)
            }
        }
    }
}

fn sum_of(
    ranges: &[(u64, u64)],
    buffer: &mut Vec<u8>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<u128> {
    // One call sums up a file that fits; very many are small.
    if let &[(from, to)] = ranges
        && to - from <= STEP as u64
    {
        buffer.resize((to - from) as usize, 0);
        read(from, buffer)?;
        return Ok(XxHash3_128::oneshot(buffer));
    }
    let mut sum = XxHash3_128::new();
    for &(from, to) in ranges {
        for at in (from..to).step_by(STEP) {
            buffer.resize((to - at).min(STEP as u64) as usize, 0);
            read(at, buffer)?;
            sum.write(buffer);
        }
    }
    Ok(sum.finish_128())
}

/// Reads a step at a time with `read`, but no holes: these are what lies before the next data.
fn over_holes(
    mut next_data: impl FnMut(u64) -> Result<Option<u64>>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> impl FnMut(u64, &mut [u8]) -> Result<()> {
    // What is before it, and was not read yet, is a hole.
    let mut data = 0;
    move |at, buffer| {
        // Less is read as fast as it is asked for.
        if buffer.len() == STEP {
            if data <= at {
                data = next_data(at)?.unwrap_or(u64::MAX);
            }
            if data >= at + STEP as u64 {
                buffer.fill(0);
                return Ok(());
            }
        }
        read(at, buffer)
    }
}

/// The bytes that a group has written to a file.
fn written(content: &Content) -> Vec<(u64, u64)> {
    let zeroed = content.space.iter().filter(|(_, how)| how.zeroes());
    let mut ranges: Vec<(u64, u64)> = content.pieces.iter().map(|piece| (piece.offset, piece.end())).collect();
    ranges.extend(zeroed.map(|(range, _)| (range.start.min(content.size), range.end.min(content.size))));
    ranges.push((content.limit.min(content.size), content.size));
    ranges.retain(|(from, to)| from < to);
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for piece in runs(ranges) {
        match joined.last_mut() {
            Some(last) if last.1 == piece.offset => last.1 = piece.end(),
            _ => joined.push((piece.offset, piece.end())),
        }
    }
    joined
}

/// Whether an extended attribute tells of what a program does, and not of where the host has a file: hosts label files
/// by themselves.
fn is_told(name: &[u8]) -> bool {
    !name.starts_with(b"security.") || name == b"security.capability"
}

/// The checksum of extended attributes, in the order of their names.
fn sum_of_xattrs(
    names: impl IntoIterator<Item = Vec<u8>>,
    mut value_of: impl FnMut(&[u8]) -> Result<XattrValue>,
) -> Result<u64> {
    let mut names: Vec<Vec<u8>> = names.into_iter().filter(|name| is_told(name)).collect();
    names.sort_unstable();
    let mut sum = 0;
    for name in names {
        let value = value_of(&name)?;
        sum = checksum(sum, &name);
        sum = checksum(sum, &value.as_deref().map_or(u64::MAX, xattr_checksum).to_le_bytes());
    }
    Ok(sum)
}

impl Running {
    /// Notes what the group leaves of what a part of it speaks of. It takes all names from `lost`.
    pub(super) fn note_left(
        &self,
        noting: &mut Noting,
        part: &Summary,
        lost: &Ids,
    ) -> Result<BTreeMap<(u64, Vec<u8>), Left>> {
        let gained = part.names().values().map(|(_, after)| *after).filter(|id| *id != 0);
        let is_plain = |id: &u64| part.kind(*id) != Kind::Directory && !lost.contains(*id);
        let others = part.objects.keys().copied().filter(is_plain);
        let changed = part.contents.keys().chain(part.sets.keys()).copied();
        let mut all = BTreeMap::new();
        for id in gained.chain(others).chain(changed) {
            let is_given_whole = self.names.as_ref().is_some_and(|private| private.given_whole.contains(&id));
            if !is_given_whole && noting.noted.insert(id) {
                // What was held has no name before, either: to take that back is to remove it.
                let is_made = id != ROOT && part.settled(id).is_none();
                all.insert((id, Vec::new()), self.note_one(noting, part, id, is_made)?);
            }
        }
        Ok(all)
    }

    /// Whether the group has made it.
    pub(in crate::hostdir) fn is_made(&self, id: u64) -> bool {
        self.names.as_ref().is_some_and(|private| private.is_born(id))
    }

    fn note_one(&self, noting: &mut Noting, part: &Summary, id: u64, is_made: bool) -> Result<Left> {
        let found = self.object(id)?;
        let stat = self.stat(b"", &found)?;
        let mut left = Left { mode: stat.mode, uid: stat.uid, gid: stat.gid, rdev: stat.rdev, ..Left::default() };
        let names = match is_made {
            true => self.xattr_names_of(At::Path(b""), &found)?,
            false => part.sets.get(&id).map_or_else(Vec::new, |(set, _)| set.xattrs.keys().cloned().collect()),
        };
        left.xattrs = sum_of_xattrs(names, |name| self.xattr_of(At::Path(b""), &found, name))?;
        match found.kind {
            Kind::Regular => {
                left.size = stat.size;
                let content = part.contents.get(&id);
                if is_made || content.is_some() {
                    left.ranges = content.filter(|_| !is_made).map_or_else(|| all_of(left.size), written);
                    left.content = self.sum_file(noting, id, &left.ranges)?;
                }
            }
            Kind::Symlink if is_made => {
                left.content = LeftContent::Sum(XxHash3_128::oneshot(&self.walk().read_link(&found)?));
            }
            _ => {}
        }
        Ok(left)
    }

    /// The checksum of these ranges of a file, as the group sees it. A file that nobody uses stays out of the table of
    /// open files.
    fn sum_file(&self, noting: &mut Noting, id: u64, ranges: &[(u64, u64)]) -> Result<LeftContent> {
        if ranges.is_empty() {
            return noting.sum(ranges, |_, _| Ok(()));
        }
        let is_adopted = self.names.as_ref().is_some_and(|private| private.adopted.contains(id));
        let (file, path) = self.store.names.with(|state| (state.file(id), state.host_path(id)));
        match (file.filter(|_| !is_adopted), path) {
            (None, Some(path)) => sum_at_home(&*self.store.host, noting, &path, ranges),
            _ => {
                let file = self.open_object(id, false)?;
                let read = |at, buffer: &mut [u8]| {
                    buffer.fill(0);
                    self.read(&file, at, buffer).map(drop)
                };
                noting.sum(ranges, over_holes(|at| self.next_data(&file, at), read))
            }
        }
    }

    /// The same of everything in a directory that the group has adopted, and then of that. Where it is too much, there
    /// is no note of the directory itself, and what is in it is known by times.
    pub(super) fn note_inside(
        &self,
        noting: &mut Noting,
        (id, itself): (u64, Left),
        writing: &mut Writing,
    ) -> Result<()> {
        let host = &*self.store.host;
        let Some(root) = self.store.names.with(|state| state.host_path(id)) else { return Ok(()) };
        let (mut part, mut is_all) = (Summary::default(), true);
        self.store.look_below(&root, &mut |path, stat| {
            if path == root || !is_all {
                return Ok(());
            }
            is_all = noting.inside > 0;
            if !is_all {
                return Ok(());
            }
            noting.inside -= 1;
            let mut left = Left { mode: stat.mode, uid: stat.uid, gid: stat.gid, rdev: stat.rdev, ..Left::default() };
            left.xattrs = xattrs_at_home(host, path)?;
            match Kind::of(stat.mode) {
                Kind::Regular => {
                    left.size = stat.size;
                    left.ranges = all_of(stat.size);
                    left.content = sum_at_home(host, noting, path, &left.ranges)?;
                }
                Kind::Symlink => left.content = LeftContent::Sum(sum_of_target(host, path)?),
                _ => {}
            }
            part.left.insert((id, path[root.len() + 1..].to_vec()), left);
            match part.left.len() {
                AT_A_TIME => writing.add(&std::mem::take(&mut part)),
                _ => Ok(()),
            }
        })?;
        if is_all {
            part.left.insert((id, Vec::new()), itself);
        }
        writing.add(&part)
    }
}

/// Opens a file; none that this user may not read. Such a file he can make, move and remove all the same.
fn open_to_read(host: &dyn HostFs, path: &[u8]) -> Result<Option<Arc<dyn HostFile>>> {
    match host.open(path, false) {
        Err(error) if matches!(error.errno, Errno::ACCESS | Errno::PERM) => Ok(None),
        file => file.map(Some).map_err(|error| host_error(error, path)),
    }
}

/// Reads what is at home.
fn read_from(file: &dyn HostFile, path: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<()> {
    let read = move |at, buffer: &mut [u8]| {
        buffer.fill(0);
        file.read_at(at, buffer).map(drop).map_err(|error| host_error(error, path))
    };
    over_holes(move |at| file.next_data(at).map_err(|error| host_error(error, path)), read)
}

fn sum_at_home(host: &dyn HostFs, noting: &mut Noting, path: &[u8], ranges: &[(u64, u64)]) -> Result<LeftContent> {
    if ranges.is_empty() {
        return noting.sum(ranges, |_, _| Ok(()));
    }
    match open_to_read(host, path)? {
        Some(file) => noting.sum(ranges, read_from(&*file, path)),
        None => Ok(LeftContent::Unread),
    }
}

fn all_of(size: u64) -> Vec<(u64, u64)> {
    Vec::from_iter((size > 0).then_some((0, size)))
}

fn sum_of_target(host: &dyn HostFs, path: &[u8]) -> Result<u128> {
    Ok(XxHash3_128::oneshot(&host.read_link(path).map_err(|error| host_error(error, path))?))
}

fn xattrs_at_home(host: &dyn HostFs, path: &[u8]) -> Result<u64> {
    let failed = |error| host_error(error, path);
    let names = match host.list_xattrs(path) {
        Err(error) if error.errno == Errno::OPNOTSUPP => Vec::new(),
        names => names.map_err(failed)?,
    };
    sum_of_xattrs(names, |name| Ok(host.get_xattr(path, name).map_err(failed)?.map(Into::into)))
}

/// How a file is known whose content is not compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    AllTimes,
    /// Its user may not read it: the store looks at it by other bits for a moment, which changes its time of change.
    Mtime,
}

impl StoreInner {
    /// Whether this user may read what is at a host path, if it is a file.
    pub(super) fn is_readable(&self, path: &[u8]) -> Result<bool> {
        Ok(match self.host.stat(path) {
            Ok(stat) if Kind::of(stat.mode) == Kind::Regular => open_to_read(&*self.host, path)?.is_some(),
            _ => true,
        })
    }

    /// What of something at a host path, which is so, is not as a group has left it; in words. The group has made it,
    /// or has set these attributes. `is_old` is asked where its content was not noted.
    pub(super) fn difference(
        &self,
        (path, stat): (&[u8], &Stat),
        left: &Left,
        set: Option<&Set>,
        is_old: impl FnOnce(By) -> bool,
    ) -> Result<Option<String>> {
        let host = &*self.host;
        let kind = Kind::of(stat.mode);
        let sets = |is_set: fn(&Set) -> bool| set.is_none_or(is_set);
        let is_other = kind != Kind::of(left.mode) || (kind == Kind::Special && stat.rdev != left.rdev);
        let xattrs = || match set {
            None => xattrs_at_home(host, path),
            // It has set none; or that is not what is taken back.
            Some(set) if set.xattrs.is_empty() => Ok(left.xattrs),
            Some(set) => sum_of_xattrs(set.xattrs.keys().cloned(), |name| {
                let value = host.get_xattr(path, name).map_err(|error| host_error(error, path))?;
                Ok(value.map(Into::into))
            }),
        };
        let attributes = [
            (stat.mode != left.mode && sets(|set| set.mode.is_some()), "its mode has been changed"),
            (stat.uid != left.uid && sets(|set| set.uid.is_some()), "its owner has been changed"),
            (stat.gid != left.gid && sets(|set| set.gid.is_some()), "its group has been changed"),
        ];
        if is_other {
            return Ok(Some("something else has its name".into()));
        }
        if let Some(what) = self.content_difference((path, stat), left, is_old)? {
            return Ok(Some(what));
        }
        if let Some((_, what)) = attributes.into_iter().find(|(differs, _)| *differs) {
            return Ok(Some(what.into()));
        }
        Ok((xattrs()? != left.xattrs).then(|| "its attributes have been changed".into()))
    }

    fn content_difference(
        &self,
        (path, stat): (&[u8], &Stat),
        left: &Left,
        is_old: impl FnOnce(By) -> bool,
    ) -> Result<Option<String>> {
        let is_same = match left.content {
            LeftContent::Untouched => true,
            LeftContent::Sum(sum) if Kind::of(stat.mode) == Kind::Symlink => sum == sum_of_target(&*self.host, path)?,
            _ if stat.size != left.size => false,
            LeftContent::Unread => is_old(By::AllTimes),
            LeftContent::Sum(sum) => match self.sum_of_left(path, left)? {
                Some(found) => found == sum,
                None => is_old(By::Mtime),
            },
        };
        Ok((!is_same).then(|| content_changed(left.size, stat.size)))
    }

    /// The checksum of what is where a group has written to a file; none where this user may not read it.
    fn sum_of_left(&self, path: &[u8], left: &Left) -> Result<Option<u128>> {
        let Some(file) = open_to_read(&*self.host, path)? else { return Ok(None) };
        sum_of(&left.ranges, &mut Vec::new(), read_from(&*file, path)).map(Some)
    }

    /// Whether a file begins with all that a group has left, and has more.
    pub(super) fn is_appended_to(&self, path: &[u8], size: u64, left: &Left) -> Result<bool> {
        let is_longer = left.content != LeftContent::Untouched && size > left.size;
        Ok(is_longer && self.sum_of_left(path, left)?.map(LeftContent::Sum) == Some(left.content))
    }
}
