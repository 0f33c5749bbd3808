//! Extended attributes and access control lists.

use wholly_vfs::rules::acl::{self, Acl};
use wholly_vfs::rules::permit::{READ, WRITE, Who};
use wholly_vfs::rules::xattr::{CAPABILITY, are_capabilities, check_get, check_name, check_set, may_see};
use wholly_vfs::{Context, Errno, Result, SetXattr};

use super::explicit::What;
use super::group::{Group, Need};
use super::table::{Inode, State};
use super::{Core, TYPE, map};
use crate::engine::{DataAt, Fields, InoGen, Kind, Operation, Placed, corrupt};
use crate::format::inode::Times;
use crate::format::pointer::{depth_for, nodes_for};
use crate::format::xattr::{self, TOTAL_MAX, VALUE_MAX, Xattrs};
use crate::format::{BLOCK, Fault};

/// Blocks for so many bytes of attributes, with their map.
pub fn blocks_for(bytes: usize) -> u64 {
    let blocks = bytes.div_ceil(BLOCK) as u64;
    if blocks == 0 { 0 } else { blocks + nodes_for(0, depth_for(blocks - 1), 0, blocks - 1) }
}

impl Core {
    pub fn load_xattrs(&self, inode: &Inode, state: &State) -> Result<Xattrs> {
        // Those of a directory are others' as long as its group has not claimed them.
        let shared = inode.changed().map(|shared| shared.state.read().unwrap());
        let others = shared.as_ref().filter(|shared| !shared.has_attributes(inode.group().map(|group| group.id)));
        let more = others.map_or(&state.record.more, |others| &others.record.more);
        let len = more.xattr_bytes as usize;
        if len == 0 {
            return Ok(Xattrs::new());
        }
        let damaged = |fault| corrupt(format!("extended attributes of inode {}", inode.id.ino), fault);
        if len > TOTAL_MAX {
            return Err(damaged(Fault("they are too long")).into());
        }
        let mut bytes = vec![0; len];
        let seed = self.storage.xattr_seed(inode.id);
        for (i, part) in bytes.chunks_mut(BLOCK).enumerate() {
            let sight = self.sight(inode);
            let pointer = map::get(&sight, seed, &more.xattrs, i as u64)?;
            let home = Some(pointer.ok_or_else(|| damaged(Fault("a block is not there")))?.block);
            let at = DataAt { file: inode.id, block: i as u64, home, valid: true, own: false, late: false };
            self.engine.read(sight.view(), &at, 0, part)?;
        }
        if self.xattr_sum(inode.id, &bytes) != more.xattr_sum {
            return Err(damaged(Fault("they have a wrong checksum")).into());
        }
        Ok(xattr::decode(&bytes).map_err(damaged)?)
    }

    pub fn xattr_sum(&self, id: InoGen, bytes: &[u8]) -> u32 {
        self.storage.seed.xattr_sum(id.ino, id.generation, bytes)
    }

    /// Gives an inode other attributes: those are in new blocks, which the group has reserved.
    pub fn put_xattrs(&self, group: &mut Group<'_>, on: InoGen, bytes: &[u8]) -> Result<()> {
        let (mut runs, mut done) = (Vec::new(), 0);
        while done < bytes.len() {
            let at =
                DataAt { file: on, block: (done / BLOCK) as u64, home: None, valid: false, own: false, late: false };
            let Placed::Elsewhere(run) = group.write(&at, 0, &bytes[done..])? else { unreachable!("it had no home") };
            done += run.count as usize * BLOCK;
            runs.push(run);
        }
        let (len, sum) = (bytes.len() as u32, self.xattr_sum(on, bytes));
        Ok(group.record(&Operation::Xattrs { on, runs: &runs, bytes: len, sum })?)
    }

    /// Stores attributes, and sets fields in the same group: permission bits and a list that belong together. `need`:
    /// whether that makes space.
    pub fn store_xattrs(
        &self,
        inode: &Inode,
        state: &mut State,
        xattrs: &Xattrs,
        fields: Fields,
        need: Need,
    ) -> Result<()> {
        let bytes = xattr::encode(xattrs);
        if bytes.len() > TOTAL_MAX {
            return Err(Errno::NOSPC);
        }
        let mut group =
            self.begin_logging(inode, Kind::Implicit, blocks_for(bytes.len()), need, state.record.xattrs_go())?;
        self.put_xattrs(&mut group, inode.id, &bytes)?;
        let times = fields.times.or(Some(Times { ctime: self.now(), ..state.record.times }));
        self.assign(&mut group, inode, state, &Fields { times, ..fields })?;
        group.commit()?;
        Ok(self.reload(&self.sight(inode), inode, state)?)
    }

    /// An access control list of an inode.
    pub fn acl(&self, inode: &Inode, state: &State, name: &[u8]) -> Result<Option<Acl>> {
        if state.record.more.xattr_bytes == 0 {
            return Ok(None);
        }
        let xattrs = self.load_xattrs(inode, state)?;
        let value = xattrs.iter().find(|(other, _)| other == name);
        Ok(value.and_then(|(_, value)| Acl::read(value).ok().flatten()))
    }

    /// Sets or removes a list, with the fields that change by that.
    pub fn set_list(
        &self,
        inode: &Inode,
        state: &mut State,
        name: &[u8],
        list: Option<Acl>,
        fields: Fields,
    ) -> Result<()> {
        let mut xattrs = self.load_xattrs(inode, state)?;
        let before = xattrs.clone();
        xattrs.retain(|(other, _)| other != name);
        let need = if list.is_none() { Need::Vital } else { Need::Ordinary };
        xattrs.extend(list.map(|list| (name.to_vec(), list.to_bytes())));
        xattrs.sort_unstable();
        match xattrs == before {
            true if fields == Fields::default() => {
                self.relies_on(inode.id.ino);
                Ok(())
            }
            true => self.set_fields(inode, state, &fields),
            false => self.store_xattrs(inode, state, &xattrs, fields, need),
        }
    }

    /// Sets fields in a group of their own.
    pub fn set_fields(&self, inode: &Inode, state: &mut State, fields: &Fields) -> Result<()> {
        let mut group = self.begin(inode, Kind::Implicit, 0, Need::Vital)?;
        self.assign(&mut group, inode, state, fields)?;
        Ok(group.commit()?)
    }

    fn set_acl(&self, ctx: &Context, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
        let mut state = inode.state.write().unwrap();
        let list = Acl::read(value)?;
        state.check_free(inode, None, What::Itself)?;
        let (who, stat) = (Who::of(ctx), state.stat());
        if !acl::check_set(&who, &stat, name, list.as_ref())? {
            return Ok(());
        }
        let kept = list.clone().filter(|list| list.is_kept(name));
        let Some(list) = list.filter(|_| name == acl::ACCESS) else {
            return self.set_list(inode, &mut state, name, kept, Fields::default());
        };
        let mode = Some(stat.mode & TYPE | list.mode_of(&who, &stat));
        let times = Some(Times { ctime: self.now(), ..state.record.times });
        let fields = Fields { mode, times, ..Fields::default() };
        self.set_list(inode, &mut state, name, kept, fields)
    }

    fn check_may_set(&self, ctx: &Context, inode: &Inode, state: &State, name: &[u8]) -> Result<()> {
        check_name(name)?;
        check_set(&Who::of(ctx), &state.stat(), name, || self.check_permits(ctx, inode, state, WRITE))
    }

    pub fn set_xattr(&self, ctx: &Context, inode: &Inode, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        if value.len() > VALUE_MAX {
            return Err(Errno::TOOBIG);
        }
        if acl::is_acl(name) {
            return self.set_acl(ctx, inode, name, value);
        }
        let mut state = inode.state.write().unwrap();
        self.check_may_set(ctx, inode, &state, name)?;
        state.check_free(inode, None, What::Itself)?;
        if name == CAPABILITY && !are_capabilities(value) {
            return Err(Errno::INVAL);
        }
        let mut xattrs = self.load_xattrs(inode, &state)?;
        match xattrs.iter_mut().find(|(other, _)| other == name) {
            Some(_) if how == SetXattr::Create => return Err(Errno::EXIST),
            None if how == SetXattr::Replace => return Err(Errno::NODATA),
            Some((_, there)) => *there = value.to_vec(),
            None => xattrs.push((name.to_vec(), value.to_vec())),
        }
        xattrs.sort_unstable();
        self.store_xattrs(inode, &mut state, &xattrs, Fields::default(), Need::Ordinary)
    }

    pub fn remove_xattr(&self, ctx: &Context, inode: &Inode, name: &[u8]) -> Result<()> {
        if acl::is_acl(name) {
            return self.set_acl(ctx, inode, name, b"");
        }
        let mut state = inode.state.write().unwrap();
        self.check_may_set(ctx, inode, &state, name)?;
        state.check_free(inode, None, What::Itself)?;
        let mut xattrs = self.load_xattrs(inode, &state)?;
        let before = xattrs.len();
        xattrs.retain(|(other, _)| other != name);
        if xattrs.len() == before {
            return Err(Errno::NODATA);
        }
        self.store_xattrs(inode, &mut state, &xattrs, Fields::default(), Need::Vital)
    }

    pub fn xattr(&self, ctx: &Context, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let state = inode.state.read().unwrap();
        check_name(name)?;
        if !check_get(&Who::of(ctx), inode.kind, name, || self.check_permits(ctx, inode, &state, READ))? {
            return Err(Errno::NODATA);
        }
        let xattrs = self.load_xattrs(inode, &state)?;
        xattrs.into_iter().find(|(other, _)| other == name).map(|(_, value)| value).ok_or(Errno::NODATA)
    }

    pub fn xattr_names(&self, ctx: &Context, inode: &Inode) -> Result<Vec<u8>> {
        let xattrs = self.load_xattrs(inode, &inode.state.read().unwrap())?;
        let who = Who::of(ctx);
        let seen = xattrs.into_iter().map(|(name, _)| name).filter(|name| may_see(&who, name));
        Ok(seen.flat_map(|name| [name, vec![0]].concat()).collect())
    }
}
