//! What an undo speaks of, read an entry at a time: of a group that has changed very many names only ids are in memory.

use std::collections::BTreeMap;

use log::checksum::checksum;
use wholly_error::{Error, Result};
use wholly_host::HostFs;
use zerocopy::FromBytes;

use super::read::read_all;
use super::{AT_A_TIME, Head, LEFT, ParkedFile, RawEntry, left};
use crate::records::kind::{ATTRIBUTES, NAME, TRUNCATE, WRITE, XATTR};
use crate::records::{Attributes, Value, Xattr};
use crate::{Ids, LeftContent, Set};

/// See the head of this file. Names and objects are those of the group: what it has before is what the undo restores.
#[derive(Default)]
pub struct Outline {
    /// How many names are otherwise.
    names: u64,
    /// The directories that these are in.
    dirs: Ids,
    /// The objects that have one of these names before the group, and after it.
    before: Ids,
    after: Ids,
    /// Files whose bytes are otherwise.
    contents: Ids,
    /// Objects whose times, or attributes, are restored.
    sets: Ids,
    /// Objects whose attributes are.
    attributes: Ids,
    /// Objects whose content, as the group leaves it, has a checksum in the undo.
    summed: Ids,
    /// Of objects, the names of the extended attributes that are.
    pub xattrs: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Outline {
    /// Reads that of the file at a path.
    ///
    /// # Errors
    /// As [`ParkedFile::read`], but what is only impossible is not found.
    pub fn read(host: &dyn HostFs, path: &[u8]) -> Result<(Head, Outline)> {
        let (head, file, _) = ParkedFile::open(host, path)?;
        let corrupt = |what| Error::corrupt(String::from_utf8_lossy(path), what);
        let (mut outline, mut bytes) = (Outline::default(), Vec::new());
        let (mut done, mut sum) = (0, head.seed());
        loop {
            let (begun, length) = (bytes.len(), (head.catalogue_length - done).min(AT_A_TIME as u64));
            bytes.resize(begun + length as usize, 0);
            if read_all(&*file, head.catalogue + done, &mut bytes[begun..])? < length as usize {
                return Err(corrupt("it is not as long as it was written"));
            }
            sum = checksum(sum, &bytes[begun..]);
            done += length;
            let taken = outline.take(&bytes).ok_or_else(|| corrupt("its catalogue is invalid"))?;
            bytes.drain(..taken);
            if done == head.catalogue_length {
                break;
            }
        }
        match () {
            () if sum != head.catalogue_checksum => Err(corrupt("its catalogue does not match its checksum")),
            () if !bytes.is_empty() => Err(corrupt("its catalogue is invalid")),
            () => Ok((head, outline)),
        }
    }

    /// Takes the entries that are there as a whole. Gives how many bytes these are.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        while let Ok((entry, behind)) = RawEntry::read_from_prefix(rest) {
            let length = if entry.kind == WRITE { 0 } else { entry.length.get() as usize };
            let Some((payload, behind)) = behind.split_at_checked(length.next_multiple_of(8)) else { break };
            self.add(entry.kind, entry.object.get(), &payload[..length])?;
            rest = behind;
        }
        Some(bytes.len() - rest.len())
    }

    fn add(&mut self, kind: u8, id: u64, payload: &[u8]) -> Option<()> {
        match kind {
            NAME => {
                let Value { before, after, .. } = Value::checked(payload)?;
                self.names += 1;
                self.dirs.insert(id);
                self.before.extend(Some(before).filter(|id| *id != 0));
                self.after.extend(Some(after).filter(|id| *id != 0));
            }
            TRUNCATE => _ = self.contents.insert(id),
            ATTRIBUTES => {
                let set = Set::of_attributes(&Attributes::checked(payload)?);
                self.sets.insert(id);
                self.attributes.extend((set != Set::default()).then_some(id));
            }
            XATTR => {
                self.xattrs.entry(id).or_default().push(Xattr::checked(payload)?.name);
                self.attributes.insert(id);
            }
            LEFT => {
                let (path, left) = left::checked(payload)?;
                self.summed.extend((path.is_empty() && left.content != LeftContent::Unread).then_some(id));
            }
            _ => {}
        }
        Some(())
    }

    /// What the group takes all names from.
    pub fn lost(&self) -> impl Iterator<Item = u64> + '_ {
        self.before.iter().filter(|id| !self.after.contains(*id))
    }

    /// Whether the group gives an object other bytes or attributes.
    pub fn is_changed(&self, id: u64) -> bool {
        self.contents.contains(id) || self.attributes.contains(id)
    }

    /// Whether the undo has a checksum of what the group leaves in an object.
    pub fn is_summed(&self, id: u64) -> bool {
        self.summed.contains(id)
    }

    /// Speaks no more of so many names and of these objects.
    pub fn forget(&mut self, names: u64, objects: impl Iterator<Item = u64>) {
        self.names = self.names.saturating_sub(names);
        for id in objects {
            for ids in [&mut self.before, &mut self.after, &mut self.contents, &mut self.sets, &mut self.attributes] {
                ids.remove(id);
            }
        }
    }

    /// How many changes people would count.
    pub fn changes(&self) -> u64 {
        let mut changed = self.contents.clone();
        changed.extend(self.attributes.iter());
        let only_changed = changed.iter().filter(|id| !self.before.contains(*id) && !self.after.contains(*id));
        self.names + only_changed.count() as u64
    }

    /// The directories whose names are otherwise, and all objects that the group has changed.
    pub fn objects(&self) -> Ids {
        let mut all = self.dirs.clone();
        [&self.after, &self.contents, &self.sets].into_iter().for_each(|ids| all.extend(ids.iter()));
        all.extend(self.lost());
        all
    }
}
