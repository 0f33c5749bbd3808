//! Files that a group makes and writes much to: their bytes go to the host at once, where nobody sees them, and to the
//! log only that they are there.
//!
//! Such a file is *staged*: the group makes it in the folder of blanks, as a pass would later, and writes, cuts and
//! reads it there. Before the group commits, the file is synced, and the group tells the log which inode it is, and
//! that its bytes are those at home. From then on it is a file like any other that a pass has made and not yet named.
//! What the log has of it from before counts no more.
//!
//! # Invariants
//!
//! 1. A staged file that has, or may get, a name is durable, with its place in the folder, before the commit record is
//!    written.
//! 2. Nobody but the group knows of it before that: a group that ends otherwise removes it, and so does the next open
//!    where nobody could.
//! 3. Of a group of which nobody knows whether it survives, nothing is removed.
//!
//! A file of the layer can become a staged file too, with the bytes that somebody else has written.
//!
//! A group that is parked leaves its staged files to the parked group: each gets a second name, as a content file, and
//! loses the first one when the group ends.

use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::records::LARGEST_FILE;
use wholly_changes::{ContentFile, Summary, content_path, id_name, join, runs};
use wholly_host::{HostFile, host_error};
use wholly_media::Site;
use wholly_vfs::{Fallocate, Inode, Rename, Stat};

use super::space::OWN;
use super::{Inner, Joined, Running};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::allocate::{Allocation, fallocate};
use crate::hostdir::clock::Mtime;
use crate::hostdir::layer;
use crate::hostdir::names::{BLANK_FOLDER, State, show};
use crate::hostdir::overlay::Place;
use crate::hostdir::space::{Shape, Wishes, entries};
use crate::log::layout::EntryKind;
use crate::site;
use index::BLOCK;
use sync::Ordering;

/// Staged files that a group keeps open: it may write to more than a process may have descriptors.
const MOST_OPEN: usize = 64;

/// Above as many, a commit syncs the whole file system rather than each file.
const SYNC_EACH: usize = 16;

/// Bytes that are copied at a time.
const BUFFER: usize = 1 << 20;

const ALLOCATION: Allocation =
    Allocation { zeroes: site::STAGE_SPACE, reserves: site::STAGE_SPACE, writes: site::STAGE_WRITE };

/// A file whose bytes lie where they will stay.
pub(in crate::hostdir) struct Staged {
    /// The host file, while it is open.
    home: Option<Arc<dyn HostFile>>,
    /// How it lies there, once nothing of it is to change before the commit.
    stat: Option<Stat>,
    /// Whether who has it open is all who can come by it.
    is_nameless: bool,
    /// Whether it was closed for a while, so that only the whole file system says whether all of it was written back.
    was_closed: bool,
    /// What is wished of its blocks, and so at home already; a group that is parked has to tell.
    pub space: Wishes,
}

impl Staged {
    /// The group that wrote it has committed.
    #[cold]
    pub fn publish(&self, store: &StoreInner, file: &Inner) {
        let Some(stat) = &self.stat else { return };
        file.staged_as(stat);
        // What nobody has open is opened when it is wanted.
        if let Some(home) = self.home.as_ref().filter(|_| self.is_nameless || is_open(file)) {
            store.attach(file, home.clone(), true, self.is_nameless);
        }
    }
}

/// Whether a program has it open.
fn is_open(file: &Inner) -> bool {
    file.handles.load(Ordering::Relaxed) > 0
}

impl Joined {
    /// Whether writing `more` bytes to the file is writing much.
    #[inline]
    pub(super) fn is_to_be_staged(&self, store: &StoreInner, more: usize) -> bool {
        self.created && (self.staged.is_some() || self.written + more as u64 >= store.options.stage_bytes)
    }
}

impl Running {
    /// What a write does to a file that is staged, or is to be.
    #[cold]
    pub(super) fn write_staged(&mut self, i: usize, offset: u64, data: &[u8]) -> Result<()> {
        let home = self.stage(i)?;
        let size = self.seat().files[i].size;
        let write = || home.write_at(site::STAGE_WRITE, offset, data).map_err(|error| self.staging_failed(i, error));
        if let Err(error) = self.store.with_space(write) {
            // Behind the end nothing of what failed may stay, where the file may grow over it; within it nobody knows
            // what is there.
            let is_undone = offset >= size && home.set_len(site::STAGE_SIZE, size).is_ok();
            return Err(if is_undone { error } else { self.break_off(error) });
        }
        self.is_changed(i, size.max(offset + data.len() as u64));
        Ok(())
    }

    /// What a cut does to a staged file.
    #[cold]
    pub(super) fn cut_staged(&mut self, i: usize, length: u64) -> Result<()> {
        let home = self.stage(i)?;
        home.set_len(site::STAGE_SIZE, length).map_err(|error| self.staging_failed(i, error))?;
        let file = &mut self.seat_mut().files[i];
        if let Some(staged) = file.staged.as_mut().filter(|_| length < file.size) {
            staged.space.cut(length.div_ceil(BLOCK));
        }
        self.is_changed(i, length);
        Ok(())
    }

    /// What `fallocate` does to a staged file.
    #[cold]
    pub(super) fn allocate_staged(&mut self, i: usize, how: Fallocate, offset: u64, end: u64) -> Result<()> {
        let home = self.stage(i)?;
        let size = self.seat().files[i].size;
        let new = if how.extends() { size.max(end) } else { size };
        let allocated = fallocate(&*home, &ALLOCATION, how, offset..end, size)
            .and_then(|()| if new > size { home.set_len(site::STAGE_SIZE, new) } else { Ok(()) });
        if let Err(error) = allocated {
            let error = self.staging_failed(i, error);
            // What was to be zeros may be so in part.
            return Err(if how.zeroes() { self.break_off(error) } else { error });
        }
        if let Some(staged) = &mut self.seat_mut().files[i].staged {
            for (how, range) in entries(how, offset, end, size) {
                Shape::new(how, range.start, range.end).wish(&mut staged.space, OWN);
            }
        }
        self.is_changed(i, new);
        Ok(())
    }

    fn is_changed(&mut self, i: usize, size: u64) {
        let now = self.store.host.now_ns();
        let file = &mut self.seat_mut().files[i];
        (file.touched, file.mtime, file.size) = (true, Mtime::Changed(now), size);
    }

    fn staging_failed(&self, i: usize, error: wholly_media::Error) -> Error {
        host_error(error, &self.seat().files[i].inner.path)
    }

    /// Reads bytes of a staged file that lie before its end.
    pub(super) fn read_staged(&self, i: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (home, mut done) = (self.staged_home(i)?, 0);
        while done < buf.len() {
            match home.read_at(offset + done as u64, &mut buf[done..])? {
                0 => break,
                read => done += read,
            }
        }
        buf[done..].fill(0);
        Ok(())
    }

    /// The first byte at or behind `offset` of a staged file that is data, or is not.
    pub(super) fn next_staged(&self, i: usize, offset: u64, is_data: bool) -> Result<Option<u64>> {
        let home = self.staged_home(i)?;
        Ok(if is_data { home.next_data(offset)? } else { home.next_hole(offset)? })
    }

    /// The runs of a staged file that are no holes: first byte, and the one behind the last.
    pub(super) fn staged_runs(&self, i: usize) -> Result<Vec<(u64, u64)>> {
        let (mut all, mut at, size) = (Vec::new(), 0, self.seat().files[i].size);
        while let Some(data) = self.next_staged(i, at, true)?.filter(|data| *data < size) {
            at = self.next_staged(i, data, false)?.map_or(size, |hole| hole.min(size)).max(data + 1);
            all.push((data, at));
        }
        Ok(all)
    }

    /// The host file of a staged one, opened for this call where it is not open.
    fn staged_home(&self, i: usize) -> Result<Arc<dyn HostFile>> {
        let file = &self.seat().files[i];
        if let Some(home) = file.staged.as_ref().and_then(|staged| staged.home.clone()) {
            return Ok(home);
        }
        let path = path_of(&file.inner);
        self.store.host.open(&path, true).map_err(|error| host_error(error, &path))
    }

    /// The host file of a file that is staged from now on, and stays open while not many others are.
    fn stage(&mut self, i: usize) -> Result<Arc<dyn HostFile>> {
        if self.seat().files[i].staged.is_none() {
            let store = self.store.clone();
            store.with_space(|| self.move_to_stage(i))?;
        }
        let home = self.staged_home(i)?;
        let seat = self.seat_mut();
        if let Some(place) = seat.open_stages.iter().position(|&open| open == i) {
            seat.open_stages.remove(place);
        } else if seat.open_stages.len() >= MOST_OPEN
            && let Some(oldest) = seat.open_stages.pop_front()
            && let Some(staged) = &mut seat.files[oldest].staged
        {
            (staged.home, staged.was_closed) = (None, true);
        }
        seat.open_stages.push_back(i);
        if let Some(staged) = &mut seat.files[i].staged {
            staged.home = Some(home.clone());
        }
        Ok(home)
    }

    /// See [`Group::import_content`](crate::Group::import_content).
    pub(in crate::hostdir) fn stage_from(&mut self, inner: &Arc<Inner>, from: &[u8]) -> Result<bool> {
        self.check_open()?;
        if !layer::is_in(from) {
            return Err(Error::invalid(format!("{}: only what is in the layer can be imported", show(from))));
        }
        let i = self.join(inner)?;
        let file = &self.seat().files[i];
        if !file.created || file.has_content() {
            return Err(Error::invalid(format!("{}: it is not new and empty", inner.name())));
        }
        let (store, to) = (self.store.clone(), path_of(inner));
        let failed = |error| host_error(error, from);
        let stat = store.host.stat(from).map_err(failed)?;
        let is_known = store.names.with(|state| state.knows_inode(stat.inode()));
        if !stat.is_file() || stat.nlink != 1 || stat.size > LARGEST_FILE || is_known {
            return Ok(false);
        }
        store.make_folders()?;
        let rename = |from: &[u8], to: &[u8]| store.host.rename(site::STAGE_TAKE, from, to, Rename::NoReplace);
        let take = || {
            rename(from, &to)?;
            let taken = self.check_taken(&to, stat.inode());
            if !matches!(taken, Ok(Some(_))) {
                rename(&to, from)?;
            }
            taken
        };
        let tell = |state: &mut State, taken: &Option<Stat>| {
            if taken.is_some() {
                state.stage(inner.id, stat.inode());
            }
        };
        let taken = match store.names.change_home(take, tell) {
            // It is in another project, has flags that forbid it, or runs.
            Err(error) if matches!(error.errno, Errno::XDEV | Errno::PERM | Errno::ACCESS | Errno::TXTBSY) => None,
            taken => taken.map_err(failed)?,
        };
        let Some(Stat { size, .. }) = taken else { return Ok(false) };
        // Others have written it, and may have seen errors that a sync of this file would not show: all is synced.
        let staged = Staged { home: None, stat: None, is_nameless: false, was_closed: true, space: Wishes::default() };
        self.seat_mut().files[i].staged = Some(Box::new(staged));
        self.is_changed(i, size);
        Ok(true)
    }

    /// Gives what was taken out of the layer, if it is that inode and has one name. It can be opened again and again
    /// from then on, whatever mode its group wants: a pass sets that before others can find the file.
    fn check_taken(&self, path: &[u8], inode: Inode) -> wholly_media::Result<Option<Stat>> {
        let host = &self.store.host;
        let stat = host.stat(path)?;
        if !stat.is_file() || stat.inode() != inode || stat.nlink != 1 || stat.size > LARGEST_FILE {
            return Ok(None);
        }
        match host.open(path, true) {
            Err(error) if error.errno == Errno::ACCESS => {
                host.set_mode(site::STAGE_TAKE, path, 0o600)?;
                host.open(path, true)?
            }
            home => home?,
        };
        Ok(Some(stat))
    }

    /// Makes the host file, with all that the group wrote so far.
    fn move_to_stage(&mut self, i: usize) -> Result<()> {
        let store = self.store.clone();
        store.make_folders()?;
        let inner = self.seat().files[i].inner.clone();
        let (id, path) = (inner.id, path_of(&inner));
        let make = || {
            // So that we can open it again, whatever its group wants; a pass sets the mode before others can find it.
            let home = store.host.create(site::STAGE_MAKE, &path, 0o600)?;
            let stat = home.stat()?;
            Ok((home, (stat.ino, stat.btime_ns)))
        };
        let made = store.names.change_home(make, |state, (_, inode)| state.stage(id, *inode));
        let (home, _) = made.map_err(|error| self.staging_failed(i, error))?;
        if let Err(error) = self.copy_to_stage(i, &*home) {
            // As it was, in the log or in memory.
            store.remove_staged(&inner);
            return Err(error);
        }
        let seat = self.seat_mut();
        seat.writes.cut(i as u32, 0);
        let file = &mut seat.files[i];
        let space = file.wishes.take().map_or_else(Wishes::default, |wishes| *wishes);
        (file.limit, file.written) = (u64::MAX, 0);
        let staged = Staged { home: Some(home), stat: None, is_nameless: false, was_closed: false, space };
        file.staged = Some(Box::new(staged));
        Ok(())
    }

    fn copy_to_stage(&self, i: usize, home: &dyn HostFile) -> Result<()> {
        let file = &self.seat().files[i];
        let failed = |error| self.staging_failed(i, error);
        let written = self.seat().writes.in_range(i as u32, 0, u64::MAX).filter(|write| write.place != Place::Zeros);
        let mut buffer = Vec::new();
        for piece in runs(written.map(|write| (write.offset, write.end())).collect()) {
            let end = piece.offset + u64::from(piece.length);
            for at in (piece.offset..end).step_by(BUFFER) {
                buffer.resize((end - at).min(BUFFER as u64) as usize, 0);
                self.read(&file.inner, at, &mut buffer)?;
                home.write_at(site::STAGE_WRITE, at, &buffer).map_err(failed)?;
            }
        }
        let reserved = file.wishes.iter().flat_map(|wishes| wishes.in_range(0..u64::MAX));
        for (blocks, _) in reserved.filter(|(_, wish)| wish.reserves()) {
            let range = blocks.start * BLOCK..blocks.end.saturating_mul(BLOCK);
            fallocate(home, &ALLOCATION, Fallocate::Keep, range, file.size).map_err(failed)?;
        }
        if home.stat()?.size != file.size {
            home.set_len(site::STAGE_SIZE, file.size).map_err(failed)?;
        }
        Ok(())
    }

    /// Before the commit: what is staged survives (invariant 1), and the log is told of it.
    #[cold]
    pub(super) fn settle_stages(&mut self) -> Result<()> {
        let store = self.store.clone();
        store.bound_staged();
        let unsettled = |file: &Joined| {
            file.staged.as_ref().is_some_and(|staged| staged.stat.is_none()).then(|| file.inner.clone())
        };
        let all: Vec<(usize, Arc<Inner>)> =
            self.seat().files.iter().enumerate().filter_map(|(i, file)| Some((i, unsettled(file)?))).collect();
        let (lasting, passing): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, inner)| self.may_have_name(inner.id));
        for (i, inner) in passing {
            self.keep_without_name(i, &inner)?;
        }
        let files: Vec<usize> = lasting.iter().map(|(i, _)| *i).collect();
        self.sync_staged(&files, BLANK_FOLDER, (site::STAGE_SYNC, site::STAGE_SYNC_DIR))?;
        for (i, inner) in lasting {
            let home = self.staged_home(i)?;
            let stat = home.stat()?;
            store.checkpointer.count_staged(stat.size);
            if let Some(staged) = &mut self.seat_mut().files[i].staged {
                staged.stat = Some(stat);
                if is_open(&inner) {
                    staged.home = Some(home);
                }
            }
            self.know(&[inner.id])?;
            self.entry(EntryKind::Staged, inner.id, stat.size, &[])?;
            self.names_mut().add_staged(inner.id);
            // No entry of the log says when its bytes were written.
            if let Mtime::Changed(ns) = self.seat().files[i].mtime {
                self.tell_mtime(inner.id, ns)?;
                self.seat_mut().files[i].mtime = Mtime::Told(ns);
            }
        }
        Ok(())
    }

    /// Makes staged files survive, with their names in a folder.
    fn sync_staged(&mut self, files: &[usize], folder: &[u8], (each, names): (Site, Site)) -> Result<()> {
        let store = self.store.clone();
        let was_open = |i: &usize| self.seat().files[*i].staged.as_ref().is_some_and(|staged| !staged.was_closed);
        if files.len() > SYNC_EACH || !files.iter().all(was_open) {
            // If it fails, nobody knows for which file: it may be one that a pass has written.
            store.host.sync_all(each).map_err(|error| store.poison(&Error::Media(error)))?;
            store.log.count_barrier();
        } else if !files.is_empty() {
            for i in files {
                let synced = self.staged_home(*i)?.sync(each);
                synced.map_err(|error| self.break_off(Error::Media(error)))?;
                store.log.count_barrier();
            }
            store.host.sync_dir(names, folder).map_err(|error| store.poison(&Error::Media(error)))?;
            store.log.count_barrier();
        }
        Ok(())
    }

    /// Gives the staged files of a group that is being parked as `id` a second name each, as content files. Names and
    /// files survive when this returns. If it fails, some may have such names. Without hard links on the host none has.
    pub(super) fn keep_staged(&mut self, id: u64, summary: &mut Summary) -> Result<()> {
        let store = self.store.clone();
        let mut kept = Vec::new();
        for (i, file) in self.seat().files.iter().enumerate() {
            let object = file.inner.id;
            if file.staged.is_none() || !summary.contents.contains_key(&object) {
                continue;
            }
            let path = content_path(id, object);
            match store.host.hard_link(site::PARK_LINK, &path_of(&file.inner), &path) {
                Err(error) if matches!(error.errno, Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::XDEV) => {
                    break;
                }
                linked => linked.map_err(|error| host_error(error, &path))?,
            }
            kept.push(i);
        }
        self.sync_staged(&kept, wholly_changes::FOLDER, (site::PARK_CONTENT_SYNC, site::PARK_CONTENT_SYNC_DIR))?;
        for i in kept {
            let object = self.seat().files[i].inner.id;
            let path = content_path(id, object);
            let Stat { mtime_ns, allocated, size, .. } =
                store.host.stat(&path).map_err(|error| host_error(error, &path))?;
            let content = summary.contents.get_mut(&object).expect("it was just there");
            if size != content.size {
                return Err(Error::corrupt(show(&path), "another program has changed what the group writes"));
            }
            content.file = Some(ContentFile { mtime_ns, allocated });
        }
        Ok(())
    }

    /// Whether somebody may find the object by a name once the group has committed.
    fn may_have_name(&self, id: u64) -> bool {
        let named = self.names.as_ref().is_some_and(|private| private.links(id) > 0);
        named || self.store.names.with(|state| state.objects.get(&id).is_some_and(|object| object.nameable))
    }

    /// A staged file that nobody will find lives on for who has it open, if anybody has.
    fn keep_without_name(&mut self, i: usize, inner: &Inner) -> Result<()> {
        let pins = self.store.names.with(|state| state.objects.get(&inner.id).map_or(0, |object| object.pins));
        let home = if is_open(inner) || pins > 0 { Some(self.staged_home(i)?) } else { None };
        self.store.remove_staged(inner);
        self.store.names.with(|state| {
            if let Some(object) = state.objects.get_mut(&inner.id) {
                // What is left is the process's, whoever made it.
                object.unsure = true;
            }
        });
        let stat = home.as_ref().map(|home| home.stat()).transpose()?.unwrap_or_default();
        let file = &mut self.seat_mut().files[i];
        file.size = stat.size;
        if let Some(staged) = &mut file.staged {
            (staged.home, staged.stat, staged.is_nameless) = (home, Some(stat), true);
        }
        Ok(())
    }

    /// The group has not committed.
    pub(super) fn remove_stages(&mut self) {
        let store = self.store.clone();
        if self.store.check_usable().is_err() {
            // Invariant 3.
            return;
        }
        for file in self.seat().files.iter().filter(|file| file.staged.is_some()) {
            store.remove_staged(&file.inner);
        }
    }
}

/// The host path of a staged file.
fn path_of(file: &Inner) -> Vec<u8> {
    join(BLANK_FOLDER, &id_name(file.id))
}

impl StoreInner {
    /// Takes the place of a staged file away, where it has one. Where that fails, the next open does it.
    fn remove_staged(&self, file: &Inner) {
        let hangs = self.names.with(|state| state.objects.get(&file.id).is_some_and(|object| object.hangs[1]));
        if hangs {
            let remove = || self.host.unlink(site::STAGE_REMOVE, &path_of(file));
            // The group is told nothing of it if that fails.
            let _ = self.names.change_home(remove, |state, ()| state.unmake(file.id));
        }
    }

    /// Runs a checkpoint if that may free space: it removes what has lost its name, at home and among staged files.
    /// Returns whether it did.
    pub(in crate::hostdir) fn free_removed(&self) -> bool {
        let is_removed = || {
            self.names.with(|state| {
                let mut registers = state.registers.values().flat_map(|names| names.iter());
                registers.any(|(_, register)| register.home() != 0 && register.home() != register.newest())
            })
        };
        (self.checkpointer.has_staged() || is_removed()) && self.checkpoint().is_ok()
    }
}
