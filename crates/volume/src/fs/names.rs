//! Calls that make, find, move and remove names. Errors come in the order in which Linux checks.

use sync::{MutexGuard, RwLockWriteGuard};
use wholly_vfs::rules::acl;
use wholly_vfs::rules::names::{WHITEOUT, check_kind, check_name, check_rename};
use wholly_vfs::rules::permit::{READ, SEARCH, WRITE, Who};
use wholly_vfs::rules::set_id::in_directory;
use wholly_vfs::{Context, Errno, Rename, Result};

use super::attributes::is_superuser;
use super::dir::Place;
use super::explicit::What;
use super::group::{Group, Need};
use super::storage::Record;
use super::table::{Held, Inode, State};
use super::{Core, DIRECTORY, PERMISSIONS, REGULAR, SYMLINK, TYPE, xattrs};
use crate::engine::{DataAt, Fields, InoGen, Kind, Logged, Mapped, Operation, Placed};
use crate::format::inode::{ROOT, SHORT_TARGET, Times};
use crate::format::xattr::Xattrs;

/// The most names of an inode.
const LINKS_MAX: u32 = u32::MAX - 1;

/// How an inode is made.
pub struct Birth<'b> {
    /// Type and permission bits.
    pub mode: u32,
    pub rdev: u64,
    /// Of a symbolic link.
    pub target: &'b [u8],
}

impl Core {
    /// That this is a directory that the context may search.
    pub fn check_search(&self, ctx: &Context, dir: &Inode, state: &State) -> Result<()> {
        if dir.kind != DIRECTORY {
            return Err(Errno::NOTDIR);
        }
        self.check_permits(ctx, dir, state, SEARCH)
    }

    pub fn check_permits(&self, ctx: &Context, inode: &Inode, state: &State, wanted: u32) -> Result<()> {
        if self.permits(ctx, inode, state, wanted)? { Ok(()) } else { Err(Errno::ACCESS) }
    }

    pub fn lookup(&self, ctx: &Context, dir: u64, name: &[u8]) -> Result<Held<'_>> {
        let dir = self.held_by(ctx, dir)?;
        let state = dir.state.read().unwrap();
        self.check_search(ctx, &dir, &state)?;
        let ino = match name {
            b"." => dir.id.ino,
            b".." if dir.id.ino == ROOT => ROOT,
            b".." if state.record.owned.links == 0 => return Err(Errno::NOENT),
            b".." => state.record.more.parent,
            _ => {
                check_name(name)?;
                let found = self.find(&dir, &state, name)?.and_then(|place| place.found);
                found.ok_or(Errno::NOENT)?.head.ino
            }
        };
        self.named_by(ctx, ino)
    }

    /// What an object in a directory is made with: mode and group of users, and its extended attributes.
    fn inherited(&self, ctx: &Context, dir: &Inode, state: &State, mode: u32) -> Result<(u32, u32, Xattrs)> {
        let (mode, gid) = in_directory(&Who::of(ctx), &state.stat(), mode, ctx.gid);
        if mode & TYPE == SYMLINK {
            return Ok((mode, gid, Xattrs::new()));
        }
        let Some(default) = self.acl(dir, state, acl::DEFAULT)? else {
            return Ok((mode & !(ctx.umask.as_raw_mode() & 0o777), gid, Xattrs::new()));
        };
        let (mode, lists) = default.inherited(mode);
        Ok((mode, gid, lists.into_iter().map(|(name, list)| (name.to_vec(), list.to_bytes())).collect()))
    }

    /// A directory in which a call is going to change names.
    fn held_for_names(&self, ctx: &Context, dir: u64) -> Result<Held<'_>> {
        let held = self.held_by(ctx, dir)?;
        if held.kind == DIRECTORY { self.take(ctx, held, What::Place) } else { Ok(held) }
    }

    /// What it takes to remove or move an inode.
    fn what_goes(inode: &Inode) -> What<'static> {
        if inode.kind == DIRECTORY { What::Alone } else { What::Itself }
    }

    /// Directories are going to be above one that a group moves.
    fn keep_places(&self, ctx: &Context, line: &[u64]) -> Result<()> {
        line.iter().try_for_each(|ino| self.take(ctx, self.named_by(ctx, *ino)?, What::Place).map(drop))
    }

    /// Where a new name goes, if there is room for it.
    fn find_free(&self, ctx: &Context, dir: &Inode, state: &State, name: &[u8]) -> Result<Option<Place>> {
        self.check_search(ctx, dir, state)?;
        check_name(name)?;
        match self.find(dir, state, name)? {
            Some(Place { found: Some(_), .. }) => Err(Errno::EXIST),
            _ if state.record.owned.links == 0 => Err(Errno::NOENT),
            place => self.check_permits(ctx, dir, state, WRITE).map(|()| place),
        }
    }

    /// Makes an inode with a name.
    ///
    /// # Errors
    /// `EEXIST` if the name is there; then nothing was checked but that the directory can be searched.
    pub fn make(&self, ctx: &Context, dir: u64, name: &[u8], birth: &Birth<'_>) -> Result<Held<'_>> {
        let dir = self.held_for_names(ctx, dir)?;
        let mut state = dir.state.write().unwrap();
        let place = self.find_free(ctx, &dir, &state, name)?;
        let place = self.take_name(&dir, &state, name, place)?;
        let place = self.make_room(&dir, &mut state, name, place)?;
        let is_dir = birth.mode & TYPE == DIRECTORY;
        // The number that is taken is in use when the volume is unmounted, or was given back.
        let _admitted = self.admit()?;
        let (mut group, id, record) = self.bear(ctx, &dir, &state, birth, 1)?;
        self.insert(&mut group, &dir, &place, name, (id.ino, birth.mode & TYPE))?;
        self.names_changed(&group, &dir, &mut state)?;
        let now = record.times.mtime;
        self.touch(&mut group, &dir, &mut state, |times| (times.mtime, times.ctime) = (now, now))?;
        group.commit()?;
        if is_dir {
            state.subdirs = state.subdirs.map(|count| count + 1);
        }
        let held = self.born_in(&dir, id.ino, record, true)?;
        if is_dir {
            held.state.write().unwrap().subdirs = Some(0);
        }
        Ok(held)
    }

    /// Makes a regular file without a name, in the care of a directory.
    pub fn make_nameless(&self, ctx: &Context, dir: u64, mode: u32, nameable: bool) -> Result<Held<'_>> {
        let dir = self.held_for_names(ctx, dir)?;
        let state = dir.state.read().unwrap();
        self.check_search(ctx, &dir, &state)?;
        if state.record.owned.links == 0 {
            return Err(Errno::NOENT);
        }
        self.check_permits(ctx, &dir, &state, WRITE)?;
        let birth = Birth { mode: REGULAR | mode, rdev: 0, target: b"" };
        // An unmount finds the inode in the table, and frees it.
        let _admitted = self.admit()?;
        let (group, id, record) = self.bear(ctx, &dir, &state, &birth, 0)?;
        group.commit()?;
        self.born_in(&dir, id.ino, record, nameable)
    }

    /// Begins the group that makes an inode.
    fn bear<'c>(
        &'c self,
        ctx: &Context,
        dir: &'c Inode,
        state: &State,
        birth: &Birth<'_>,
        links: u32,
    ) -> Result<(Group<'c>, InoGen, Record)> {
        let (mode, gid, lists) = self.inherited(ctx, dir, state, birth.mode)?;
        let bytes = crate::format::xattr::encode(&lists);
        let is_long = birth.target.len() > SHORT_TARGET;
        let blocks = xattrs::blocks_for(bytes.len()) + u64::from(is_long);
        let ino = self.take_inode()?;
        let begun = self
            .storage
            .next_generation(&*self.engine, ino)
            .and_then(|generation| Ok((self.begin(dir, Kind::Implicit, blocks, Need::Ordinary)?, generation)));
        let (mut group, generation) = begun.inspect_err(|_| self.inodes.give(ino, 1))?;
        let id = InoGen { ino, generation };
        let now = self.now();
        let fields = Fields {
            born: true,
            mode: Some(mode),
            uid: Some(ctx.uid),
            gid: Some(gid),
            links: Some(links),
            size: Some(birth.target.len() as u64),
            times: Some(Times { atime: now, mtime: now, ctime: now, btime: now }),
            parent: (mode & TYPE == DIRECTORY).then_some(dir.id.ino),
            rdev: Some(birth.rdev),
            target: (!is_long).then(|| birth.target.to_vec()).filter(|target| !target.is_empty()),
            target_sum: is_long.then(|| self.target_sum(id, birth.target)),
        };
        group.record(&Operation::Assign { on: id, fields: &fields })?;
        let mut record = Record::default();
        record.owned.generation = generation;
        record.set(&fields);
        if is_long {
            let at = DataAt { file: id, block: 0, home: None, valid: false, own: false, late: false };
            let Placed::Elsewhere(run) = group.write(&at, 0, birth.target)? else { unreachable!("it had no home") };
            group.record(&Operation::Map { on: id, first: 0, count: 1, to: Mapped::Written(run.start) })?;
        }
        if !bytes.is_empty() {
            self.put_xattrs(&mut group, id, &bytes)?;
        }
        if blocks > 0 {
            record = self.storage.read(&group, ino)?;
        }
        Ok((group, id, record))
    }

    pub fn target_sum(&self, id: InoGen, target: &[u8]) -> u32 {
        self.storage.seed.target_sum(id.ino, id.generation, target)
    }

    /// The target of a symbolic link.
    pub fn target(&self, inode: &Inode) -> Result<Vec<u8>> {
        use crate::engine::corrupt;
        let state = inode.state.read().unwrap();
        if inode.kind != SYMLINK {
            return Err(Errno::INVAL);
        }
        let len = state.record.owned.size as usize;
        let sight = self.sight(inode);
        let stored = self.storage.target(&sight, inode.id.ino)?;
        if len <= SHORT_TARGET {
            return Ok(stored.short[..len].to_vec());
        }
        let damaged = |what| corrupt(format!("symbolic link {}", inode.id.ino), crate::format::Fault(what));
        let seed = self.storage.data_seed(inode.id);
        let pointer = super::map::get(&sight, seed, &state.record.owned.tree, 0)?;
        let pointer = pointer.filter(|_| len <= crate::format::BLOCK).ok_or_else(|| damaged("it has no target"))?;
        let mut target = vec![0; len];
        let at = DataAt { file: inode.id, block: 0, home: Some(pointer.block), valid: true, own: false, late: false };
        self.engine.read(sight.view(), &at, 0, &mut target)?;
        if self.target_sum(inode.id, &target) != stored.sum {
            return Err(damaged("its target has a wrong checksum").into());
        }
        Ok(target)
    }

    /// Gives an inode one more name.
    pub fn link(&self, ctx: &Context, ino: u64, dir: u64, name: &[u8]) -> Result<Held<'_>> {
        let (inode, dir) = (self.held_by(ctx, ino)?, self.held_for_names(ctx, dir)?);
        let mut state = dir.state.write().unwrap();
        let place = self.find_free(ctx, &dir, &state, name)?;
        if inode.kind == DIRECTORY {
            return Err(Errno::PERM);
        }
        let place = self.take_name(&dir, &state, name, place)?;
        let inode = self.take(ctx, inode, What::Itself)?;
        let mut of_inode = inode.state.write().unwrap();
        let links = of_inode.record.owned.links;
        if links == 0 && !of_inode.nameable {
            return Err(Errno::NOENT);
        }
        if links >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        of_inode.check_free(&inode, None, What::Itself)?;
        let place = self.make_room(&dir, &mut state, name, place)?;
        let mut group = self.begin(&dir, Kind::Implicit, 0, Need::Ordinary)?;
        self.set_links(&mut group, &inode, &mut of_inode, links + 1)?;
        self.insert(&mut group, &dir, &place, name, (inode.id.ino, inode.kind))?;
        self.dir_changed(&mut group, &dir, &mut state)?;
        group.commit()?;
        drop(of_inode);
        Ok(inode)
    }

    fn set_links(&self, group: &mut Group<'_>, inode: &Inode, state: &mut State, links: u32) -> Result<()> {
        let times = Times { ctime: self.now(), ..state.record.times };
        let fields = Fields { links: Some(links), times: Some(times), ..Fields::default() };
        self.assign(group, inode, state, &fields)?;
        state.nameable = links > 0;
        Ok(())
    }

    /// After a change of the names of a directory: its leaves may be in other blocks.
    fn names_changed(&self, group: &Group<'_>, dir: &Inode, state: &mut State) -> Result<()> {
        match self.engine.moves_blocks() && dir.changed().is_none() {
            true => Ok(self.reload(group, dir, state)?),
            false => Ok(()),
        }
    }

    fn dir_changed(&self, group: &mut Group<'_>, dir: &Inode, state: &mut State) -> Result<()> {
        self.names_changed(group, dir, state)?;
        let now = self.now();
        Ok(self.touch(group, dir, state, |times| (times.mtime, times.ctime) = (now, now))?)
    }

    /// What Linux checks before a name goes (`may_delete`).
    fn check_delete(
        &self,
        ctx: &Context,
        (dir, state): (&Inode, &State),
        (victim, of_victim): (&Inode, &State),
        is_dir: bool,
    ) -> Result<()> {
        self.check_permits(ctx, dir, state, WRITE | SEARCH)?;
        if !is_superuser(ctx) && Who::of(ctx).is_kept_from(&state.stat(), &of_victim.stat()) {
            return Err(Errno::PERM);
        }
        check_kind(is_dir, victim.kind == DIRECTORY)
    }

    /// Removes a name.
    pub fn unlink(&self, ctx: &Context, dir: u64, name: &[u8], is_dir: bool) -> Result<()> {
        let dir = self.held_for_names(ctx, dir)?;
        let mut state = dir.state.write().unwrap();
        self.check_search(ctx, &dir, &state)?;
        check_name(name)?;
        let place = self.find(&dir, &state, name)?.filter(|place| place.found.is_some()).ok_or(Errno::NOENT)?;
        let place = self.take_name(&dir, &state, name, Some(place))?.ok_or(Errno::NOENT)?;
        let ino = place.found.map_or(0, |found| found.head.ino);
        // Given back after the locks: that may free it.
        let victim = self.named_by(ctx, ino)?;
        let what = Self::what_goes(&victim);
        let victim = self.take(ctx, victim, what)?;
        let mut of_victim = victim.state.write().unwrap();
        self.check_delete(ctx, (&dir, &state), (&victim, &of_victim), is_dir)?;
        if is_dir && !self.is_empty(&victim, &of_victim)? {
            return Err(Errno::NOTEMPTY);
        }
        of_victim.check_free(&victim, None, what)?;
        let begin = |logged| self.begin_logging(&dir, Kind::Implicit, 0, Need::Vital, logged);
        let (mut group, frees) = match begin(of_victim.record.goes()) {
            // Its content is freed by itself, then.
            Err(wholly_error::Error::NoSpace(_)) => (begin(Logged::default())?, false),
            group => (group?, true),
        };
        self.remove(&mut group, &dir, &place, name)?;
        let links = if is_dir { 0 } else { of_victim.record.owned.links.saturating_sub(1) };
        // Others come to it until an explicit group is committed.
        if links == 0 && frees && victim.twin.is_none() && self.take_last(&victim) {
            group.record(&Operation::Free { what: victim.id })?;
            group.release_inode(victim.id.ino);
        } else {
            self.set_links(&mut group, &victim, &mut of_victim, links)?;
        }
        self.dir_changed(&mut group, &dir, &mut state)?;
        group.commit()?;
        if is_dir {
            state.subdirs = state.subdirs.map(|count| count.saturating_sub(1));
        }
        drop(of_victim);
        self.tidy(&dir, &mut state, &place)?;
        drop(state);
        Ok(())
    }

    /// The directories above a directory, itself first, the root last. The caller holds the rename lock.
    ///
    /// # Errors
    /// `ENOENT` if one of them has been removed meanwhile.
    pub fn line_of(&self, ctx: &Context, dir: &Inode) -> Result<Vec<u64>> {
        // A directory with a name keeps its parent from being removed, as long as it is locked.
        let above = |dir: &Inode| -> Result<Held<'_>> {
            let state = dir.state.read().unwrap();
            if state.record.owned.links == 0 {
                return Err(Errno::NOENT);
            }
            self.named_by(ctx, state.record.more.parent)
        };
        let mut line = vec![dir.id.ino];
        let mut at: Option<Held<'_>> = None;
        while *line.last().expect("it has one") != ROOT {
            // Damaged parents could go round for ever.
            if line.len() > 1 << 20 {
                return Err(Errno::UCLEAN);
            }
            let next = above(at.as_ref().map_or(dir, |held| held))?;
            line.push(next.id.ino);
            at = Some(next);
        }
        Ok(line)
    }

    pub fn rename(
        &self,
        ctx: &Context,
        (from, name): (u64, &[u8]),
        (to, new_name): (u64, &[u8]),
        how: Rename,
    ) -> Result<()> {
        let (how, leaves) = how.parts();
        let exchange = how == Rename::Exchange;
        let (from, to) = (self.held_for_names(ctx, from)?, self.held_for_names(ctx, to)?);
        let across = from.id.ino != to.id.ino;
        let _still: Option<MutexGuard<'_, ()>> = across.then(|| self.rename.lock().unwrap());
        let is_dir = from.kind == DIRECTORY && to.kind == DIRECTORY;
        let lines = match across && is_dir {
            true => (self.line_of(ctx, &from)?, self.line_of(ctx, &to)?),
            false => (Vec::new(), Vec::new()),
        };
        let to_first = lines.0.contains(&to.id.ino) || !lines.1.contains(&from.id.ino) && to.id.ino < from.id.ino;
        let dirs = if to_first { [&to, &from] } else { [&from, &to] };
        let mut dirs = Locked::take(&dirs[..if across { 2 } else { 1 }]);
        for dir in [&from, &to] {
            self.check_search(ctx, dir, dirs.get(dir))?;
        }
        check_name(name)?;
        check_name(new_name)?;
        let find = |dirs: &Locked<'_>, dir: &Inode, name| self.find(dir, dirs.get(dir), name);
        let ino_of = |place: &Option<Place>| place.as_ref().and_then(|place| place.found).map(|found| found.head.ino);
        let old_place = find(&dirs, &from, name)?;
        let moved = self.named_by(ctx, ino_of(&old_place).ok_or(Errno::NOENT)?)?;
        let new_place = find(&dirs, &to, new_name)?;
        let taken = ino_of(&new_place).map(|ino| self.named_by(ctx, ino)).transpose()?;
        let is_above_old = taken.as_ref().is_some_and(|taken| lines.0.contains(&taken.id.ino));
        let is_above = (lines.1.contains(&moved.id.ino), is_above_old);
        if !check_rename(how, taken.as_ref().map(|taken| taken.id == moved.id), is_above)? {
            // Both names are there, by others that may not be durable.
            self.relies_on(moved.id.ino);
            return Ok(());
        }
        let old_place = self.take_name(&from, dirs.get(&from), name, old_place)?;
        let new_place = self.take_name(&to, dirs.get(&to), new_name, new_place)?;
        let moved = {
            let what = Self::what_goes(&moved);
            self.take(ctx, moved, what)?
        };
        let taken = match taken {
            Some(taken) => {
                let what = Self::what_goes(&taken);
                Some(self.take(ctx, taken, what)?)
            }
            None => None,
        };
        let goes_up = |inode: &Held<'_>| across && inode.kind == DIRECTORY;
        if goes_up(&moved) {
            self.keep_places(ctx, &lines.1)?;
        }
        if exchange && taken.as_ref().is_some_and(goes_up) {
            self.keep_places(ctx, &lines.0)?;
        }
        let mut others: Vec<&Held<'_>> = [Some(&moved), taken.as_ref()].into_iter().flatten().collect();
        // As a commit does: directories first.
        others.sort_by_key(|inode| (inode.kind != DIRECTORY, inode.id.ino));
        let mut others = Locked::take(&others);
        let moves_dir = moved.kind == DIRECTORY;
        self.check_delete(ctx, (&from, dirs.get(&from)), (&moved, others.get(&moved)), moves_dir)?;
        match &taken {
            Some(taken) => {
                let is_dir = if exchange { taken.kind == DIRECTORY } else { moves_dir };
                self.check_delete(ctx, (&to, dirs.get(&to)), (taken, others.get(taken)), is_dir)?;
            }
            None if dirs.get(&to).record.owned.links == 0 => return Err(Errno::NOENT),
            None => self.check_permits(ctx, &to, dirs.get(&to), WRITE)?,
        }
        if across {
            let leave = |inode: &Held<'_>| match inode.kind == DIRECTORY {
                true => self.check_permits(ctx, inode, others.get(inode), WRITE),
                false => Ok(()),
            };
            leave(&moved)?;
            taken.as_ref().filter(|_| exchange).map_or(Ok(()), leave)?;
        }
        if let Some(taken) = taken.as_ref().filter(|_| moves_dir && !exchange)
            && !self.is_empty(taken, others.get(taken))?
        {
            return Err(Errno::NOTEMPTY);
        }
        for inode in [Some(&moved), taken.as_ref()].into_iter().flatten() {
            others.get(inode).check_free(inode, None, Self::what_goes(inode))?;
        }
        let (new_place, old_place) = match &taken {
            Some(_) => (new_place, old_place),
            None => {
                let room = self.make_room(&to, dirs.get_mut(&to), new_name, new_place)?;
                // A split may have moved it.
                (Some(room), find(&dirs, &from, name)?)
            }
        };
        let (Some(old_place), Some(new_place)) = (old_place, new_place) else { return Err(Errno::UCLEAN) };

        // The number that is taken is in use when the volume is unmounted, or was given back.
        let _admitted = leaves.then(|| self.admit()).transpose()?;
        let whiteout = Birth { mode: WHITEOUT, rdev: 0, target: b"" };
        let (mut group, left) = match leaves {
            true => {
                let (group, id, record) = self.bear(ctx, &from, dirs.get(&from), &whiteout, 1)?;
                (group, Some((id.ino, record)))
            }
            false => {
                let need = if taken.is_some() { Need::Vital } else { Need::Ordinary };
                (self.begin(&from, Kind::Implicit, 0, need)?, None)
            }
        };
        let named = |inode: &Held<'_>| (inode.id.ino, inode.kind);
        match &taken {
            None => self.insert(&mut group, &to, &new_place, new_name, named(&moved))?,
            Some(_) => self.replace(&mut group, &to, &new_place, named(&moved), new_name)?,
        }
        match (taken.as_ref().filter(|_| exchange).map(named), &left) {
            (Some(taken), _) => self.replace(&mut group, &from, &old_place, taken, name)?,
            (None, Some((ino, _))) => self.replace(&mut group, &from, &old_place, (*ino, WHITEOUT), name)?,
            (None, None) => self.remove(&mut group, &from, &old_place, name)?,
        }
        let now = self.now();
        for (inode, parent) in [(Some(&moved), &to), (taken.as_ref(), &from)] {
            let Some(inode) = inode else { continue };
            let state = others.get_mut(inode);
            let times = Some(Times { ctime: now, ..state.record.times });
            let goes = !exchange && inode.id != moved.id;
            let links = state.record.owned.links;
            let fields = match (inode.kind == DIRECTORY, goes) {
                (true, true) => Fields { links: Some(0), times, ..Fields::default() },
                (false, true) => Fields { links: Some(links.saturating_sub(1)), times, ..Fields::default() },
                (true, false) if across => Fields { parent: Some(parent.id.ino), times, ..Fields::default() },
                _ => Fields { times, ..Fields::default() },
            };
            self.assign(&mut group, inode, state, &fields)?;
            state.nameable = state.record.owned.links > 0;
        }
        self.dir_changed(&mut group, &from, dirs.get_mut(&from))?;
        if across {
            self.dir_changed(&mut group, &to, dirs.get_mut(&to))?;
        }
        group.commit()?;
        let goes_to = |dir: &Inode, state: &mut State, by: i64| {
            let _ = dir;
            state.subdirs = state.subdirs.map(|count| count.saturating_add_signed(by));
        };
        let of_taken = i64::from(taken.as_ref().is_some_and(|taken| taken.kind == DIRECTORY));
        let of_moved = i64::from(moves_dir);
        goes_to(&from, dirs.get_mut(&from), if exchange { of_taken } else { 0 } - of_moved);
        goes_to(&to, dirs.get_mut(&to), of_moved - of_taken);
        drop(others);
        let is_left = left.is_some();
        let left = left.map(|(ino, record)| self.born_in(&from, ino, record, true)).transpose()?;
        if !exchange && !is_left {
            self.tidy(&from, dirs.get_mut(&from), &old_place)?;
        }
        drop(dirs);
        drop(left);
        Ok(())
    }

    /// That a directory may be read.
    pub fn check_list(&self, ctx: &Context, dir: &Inode) -> Result<()> {
        if dir.kind != DIRECTORY {
            return Err(Errno::NOTDIR);
        }
        self.check_permits(ctx, dir, &dir.state.read().unwrap(), READ)
    }

    /// The bits of a mode that a caller may give to what it makes.
    pub fn mode_of(kind: u32, mode: u32) -> u32 {
        kind | mode & if kind == DIRECTORY { 0o1777 } else { PERMISSIONS }
    }
}

/// Inodes that are locked, in the order in which they were given.
struct Locked<'i>(Vec<(u64, RwLockWriteGuard<'i, State>)>);

impl<'i> Locked<'i> {
    fn take(inodes: &[&'i Held<'_>]) -> Self {
        Locked(inodes.iter().map(|inode| (inode.id.ino, inode.state.write().unwrap())).collect())
    }

    fn get(&self, inode: &Inode) -> &State {
        &self.0.iter().find(|(ino, _)| *ino == inode.id.ino).expect("it is locked").1
    }

    fn get_mut(&mut self, inode: &Inode) -> &mut State {
        &mut self.0.iter_mut().find(|(ino, _)| *ino == inode.id.ino).expect("it is locked").1
    }
}
