//! Reading directories: whoever begins at the first name gets a list of what is there then, in the order of names, and
//! goes on in that.

use std::sync::Arc;

use super::StoreVfs;
use super::open::{Open, OpenDirectory};
use crate::hostdir::names::{DIRECTORY, TYPE};
use crate::hostdir::running::Running;
use sync::Mutex;
use wholly_changes::Kind;
use wholly_vfs::rules::permit::{READ, Who};
use wholly_vfs::{Context, Errno, FileType, Handle, Ino, Listed, Result};

impl StoreVfs {
    pub(super) fn open_directory(&self, ctx: &Context, dir: Ino) -> Result<Handle> {
        let id = self.inodes.id(dir)?;
        self.look(ctx, |running| {
            if running.object(id)?.kind != Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            match Who::of(ctx).is_superuser() || self.permits(ctx, running, id, READ)? {
                true => Ok(()),
                false => Err(Errno::ACCESS),
            }
        })?;
        // As long as it is open it is referred to.
        let ino = self.inodes.refer(&self.store, id).ok_or(Errno::STALE)?;
        Ok(self.handles.open(Open::Directory(OpenDirectory { ino, id, names: Mutex::default() })))
    }

    pub(super) fn read_directory(
        &self,
        ctx: &Context,
        dir: &OpenDirectory,
        offset: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let names = self.look(ctx, |running| {
            if !running.has_name(dir.id) {
                return Err(Errno::NOENT);
            }
            let known = dir.names.lock().unwrap().clone().filter(|_| offset != 0);
            known.map_or_else(|| self.list(running, dir), Ok)
        })?;
        if offset == 0 {
            self.look(ctx, |running| Ok(running.has_read(dir.id)?))?;
            *dir.names.lock().unwrap() = Some(names.clone());
        }
        // `each` may make calls of its own.
        for entry in names.from(offset) {
            if !each(entry) {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, running: &Running, dir: &OpenDirectory) -> Result<Arc<Listing>> {
        let above = running.above(dir.id).ok_or(Errno::NOENT)?;
        let mut listed = running.list_of(dir.id)?;
        listed.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut all = Listing::with_room_for(listed.iter().map(|entry| &*entry.name));
        all.push(b".", dir.ino.0, DIRECTORY);
        all.push(b"..", self.inodes.number(&self.store, above).0, DIRECTORY);
        for entry in listed {
            // Some file systems do not tell types in listings.
            let kind = match entry.kind & TYPE {
                0 => match running.look_up(dir.id, &entry.name)? {
                    Some(found) => running.stat_of(found.id)?.mode,
                    None => continue,
                },
                kind => kind,
            };
            all.push(self.shown(dir.id, &entry.name), entry.ino, kind);
        }
        Ok(Arc::new(all))
    }
}

/// Entries between two that are known by their places.
const APART: u64 = 64;

/// The names of a directory, one behind the other: of a million each takes few bytes.
#[derive(Default)]
pub(super) struct Listing {
    /// Of each entry the inode number, the type, the length of the name, and the name.
    bytes: Vec<u8>,
    /// Where every [`APART`]th entry begins.
    places: Vec<usize>,
    count: u64,
}

/// Bytes of an entry before its name.
const BEFORE_NAME: usize = 11;

impl Listing {
    /// An empty one, with room for these names and for `.` and `..`.
    fn with_room_for<'n>(names: impl Iterator<Item = &'n [u8]>) -> Self {
        let bytes = names.chain([&b"."[..], b".."]).map(|name| BEFORE_NAME + name.len()).sum();
        Listing { bytes: Vec::with_capacity(bytes), ..Listing::default() }
    }

    fn push(&mut self, name: &[u8], ino: u64, mode: u32) {
        if self.count.is_multiple_of(APART) {
            self.places.push(self.bytes.len());
        }
        self.count += 1;
        self.bytes.extend_from_slice(&ino.to_le_bytes());
        self.bytes.push((mode >> TYPE.trailing_zeros()) as u8);
        // Some hosts have names that are longer than any that a call may give.
        self.bytes.extend_from_slice(&u16::try_from(name.len()).expect("no host has so long names").to_le_bytes());
        self.bytes.extend_from_slice(name);
    }

    /// The entries from the one with this number on.
    fn from(&self, first: u64) -> impl Iterator<Item = Listed<'_>> {
        let known = first - first % APART;
        let place = usize::try_from(first / APART).ok().and_then(|i| self.places.get(i));
        let mut rest = place.map_or(&[][..], |place| &self.bytes[*place..]);
        let mut next = known;
        let all = std::iter::from_fn(move || {
            let (ino, behind) = rest.split_first_chunk::<8>()?;
            let (&[kind, low, high], behind) = behind.split_first_chunk::<3>()?;
            let (name, behind) = behind.split_at(u16::from_le_bytes([low, high]).into());
            (rest, next) = (behind, next + 1);
            let kind = FileType::from_raw_mode(u32::from(kind) << TYPE.trailing_zeros());
            Some(Listed { ino: Ino(u64::from_le_bytes(*ino)), next, kind, name })
        });
        all.skip((first - known) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_goes_on_from_any_entry() {
        let names: Vec<Vec<u8>> = (0..200).map(|n| vec![b'n'; n * 4 + 1]).collect();
        let mut listing = Listing::with_room_for(names.iter().map(|name| &name[..]));
        let room = listing.bytes.capacity();
        for (i, name) in names.iter().enumerate() {
            let mode = if i % 3 == 0 { DIRECTORY } else { 0o120_644 };
            listing.push(name, u64::MAX - i as u64, mode);
        }
        listing.push(b".", 1, DIRECTORY);
        listing.push(b"..", 2, DIRECTORY);
        assert_eq!((listing.bytes.len(), listing.bytes.capacity()), (room, room), "it takes what it was given");
        for first in 0..=202 {
            let rest: Vec<_> = listing.from(first).collect();
            assert_eq!(rest.len() as u64, 202 - first);
            for (i, entry) in rest.iter().enumerate().map(|(i, entry)| (first + i as u64, entry)).take(3) {
                assert_eq!(entry.next, i + 1);
                if i < 200 {
                    let kind = if i % 3 == 0 { FileType::Directory } else { FileType::Symlink };
                    assert_eq!((entry.ino, entry.kind, entry.name), (Ino(u64::MAX - i), kind, &*names[i as usize]));
                }
            }
        }
        assert!([203, 256, u64::MAX].into_iter().all(|first| listing.from(first).next().is_none()));
        assert_eq!(
            listing.from(200).map(|entry| (entry.ino.0, entry.name)).collect::<Vec<_>>(),
            [(1, &b"."[..]), (2, b"..")]
        );
    }
}
