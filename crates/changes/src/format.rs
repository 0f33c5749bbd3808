//! A parked group on media: see `docs/format.md`.

mod left;
mod outline;
mod read;

use std::collections::HashSet;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_host::{HostFile, HostFs, host_error};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use log::checksum::{PIECE, checksum, payload_checksum, segment_seed};
use wholly_error::Result;

use crate::records::kind::{ATTRIBUTES, CREATE, IDENTIFY, NAME, SPACE, TRUNCATE, WRITE, XATTR};
use crate::records::{Attributes, Baseline, Identity, Space, Value, Xattr};
use crate::{
    Base, ContentFile, FOLDER, Ids, Known, LONGEST_NOTE, Origin, Piece, Set, Settled, Summary, id_name, id_of, join,
    origin_of, site,
};
pub use outline::Outline;
use read::Reading;
pub use read::{ParkedFile, Written};

/// Bytes of the head, note included.
const HEAD: usize = 4096;
const NOTE: usize = 128;
const MAGIC: [u8; 8] = *b"WHOLLYPG";
/// The first version has no entries of the kinds that the others add: [`PART`], [`CONTENT`] and [`LEFT`]. A group is
/// written in the first version that has all its kinds.
const OLDEST: u32 = 2;
const WITH_PARTS: u32 = 3;
const WITH_CONTENT: u32 = 4;
/// It has [`LEFT`], and no content files.
const WITH_LEFT: u32 = 5;
/// What is added to the version where the head tells which folder the group was parked in.
const IN_FOLDER: u32 = 3;
const IN_OLDEST: u32 = OLDEST + IN_FOLDER;
const IN_LATEST: u32 = WITH_LEFT + IN_FOLDER;
/// Bytes at the end of the head that tell it.
const FOLDER_AT: usize = HEAD - size_of::<RawFolder>();
/// The most bytes of disk space of the content files of a group.
const MOST_CONTENT: u64 = 1 << 56;
const _: () = assert!(NOTE + LONGEST_NOTE <= FOLDER_AT);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHead {
    checksum: U64,
    magic: [u8; 8],
    version: U32,
    note_length: U32,
    volume_id: [u8; 16],
    id: U64,
    parked_ns: I64,
    expires_ns: I64,
    catalogue: U64,
    catalogue_length: U64,
    catalogue_checksum: U64,
    bytes: U64,
    files: U32,
    names: U32,
    home_below: U64,
    content_bytes: U64,
    content_files: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<RawHead>() == NOTE);
const _: () = assert!(std::mem::offset_of!(RawHead, id) == 40);
const _: () = assert!(std::mem::offset_of!(RawHead, catalogue) == 64);
const _: () = assert!(std::mem::offset_of!(RawHead, bytes) == 88);
const _: () = assert!(std::mem::offset_of!(RawHead, content_bytes) == 112);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawFolder {
    log_ino: U64,
    log_btime_ns: I64,
    dir_ino: U64,
    dir_btime_ns: I64,
}
const _: () = assert!(size_of::<RawFolder>() == 32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    object: U64,
    offset: U64,
    position: U64,
    checksum: U64,
    length: U32,
    kind: u8,
    reserved: [u8; 3],
}
const ENTRY: usize = 40;
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawBase {
    which: U64,
    size: U64,
    mtime_ns: I64,
    ctime_ns: I64,
}
const _: () = assert!(size_of::<RawBase>() == 32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawContent {
    mtime_ns: I64,
    allocated: U64,
}
const _: () = assert!(size_of::<RawContent>() == 16);

/// The kinds of entries that only parked groups have.
const BASE: u8 = 32;
const COORDINATOR: u8 = 33;
const APPLIES: u8 = 34;
const PART: u8 = 35;
const CONTENT: u8 = 36;
const LEFT: u8 = 37;

/// The first bytes of a parked group, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    version: u32,
    /// The folder that it was parked in; `None` where an earlier version wrote it.
    pub origin: Option<Origin>,
    /// The store that it was parked in.
    pub volume_id: [u8; 16],
    /// The id of the group.
    pub id: u64,
    /// What it is for, for people.
    pub note: String,
    /// When it was parked, in ns since 1970.
    pub parked_ns: i64,
    /// When it is discarded; 0: never.
    pub expires_ns: i64,
    /// Bytes that the group writes to files.
    pub bytes: u64,
    /// How many files these are.
    pub files: u32,
    /// How many names are otherwise.
    pub names: u32,
    /// Of what a group left: the groups of the log below this are in the directory.
    pub home_below: u64,
    /// Bytes of disk space that the content files take.
    pub content_bytes: u64,
    /// How many content files there are.
    pub content_files: u32,
    catalogue: u64,
    catalogue_length: u64,
    catalogue_checksum: u64,
}

/// What is wrong with a head that is sound, but has a version that is not known here.
const LATER: &str = "a later version of Wholly wrote it: use that";

impl Head {
    /// Whether it may be one part of several.
    pub fn may_have_parts(&self) -> bool {
        self.version >= WITH_PARTS
    }

    fn to_bytes(&self) -> Vec<u8> {
        let raw = RawHead {
            checksum: U64::new(0),
            magic: MAGIC,
            version: U32::new(self.version + self.origin.map_or(0, |_| IN_FOLDER)),
            note_length: U32::new(self.note.len() as u32),
            volume_id: self.volume_id,
            id: U64::new(self.id),
            parked_ns: I64::new(self.parked_ns),
            expires_ns: I64::new(self.expires_ns),
            catalogue: U64::new(self.catalogue),
            catalogue_length: U64::new(self.catalogue_length),
            catalogue_checksum: U64::new(self.catalogue_checksum),
            bytes: U64::new(self.bytes),
            files: U32::new(self.files),
            names: U32::new(self.names),
            home_below: U64::new(self.home_below),
            content_bytes: U64::new(self.content_bytes),
            content_files: U32::new(self.content_files),
            reserved: [0; 4],
        };
        let mut bytes = [raw.as_bytes(), self.note.as_bytes()].concat();
        bytes.resize(HEAD, 0);
        if let Some(Origin { log, dir }) = self.origin {
            let raw = RawFolder {
                log_ino: U64::new(log.0),
                log_btime_ns: I64::new(log.1),
                dir_ino: U64::new(dir.0),
                dir_btime_ns: I64::new(dir.1),
            };
            bytes[FOLDER_AT..].copy_from_slice(raw.as_bytes());
        }
        let sum = checksum(0, &bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// What does not fit, in words.
    fn checked(bytes: &[u8], len: u64) -> Result<Head, &'static str> {
        let (raw, rest) = RawHead::read_from_prefix(bytes).map_err(|_| "it is too short")?;
        if raw.magic != MAGIC {
            return Err("not a parked group");
        }
        if raw.checksum.get() != checksum(0, &bytes[8..]) {
            return Err("its head does not match its checksum");
        }
        let (version, folder) = match raw.version.get() {
            version @ OLDEST..=WITH_CONTENT => (version, None),
            version @ IN_OLDEST..=IN_LATEST => (version - IN_FOLDER, rest.split_at_checked(FOLDER_AT - NOTE)),
            _ => return Err(LATER),
        };
        let (rest, folder) = folder.unwrap_or((rest, &[]));
        let note_length = raw.note_length.get() as usize;
        let note = rest.get(..note_length).filter(|note| note.len() <= LONGEST_NOTE);
        let note = note.and_then(|note| String::from_utf8(note.to_vec()).ok());
        let (from, length) = (raw.catalogue.get(), raw.catalogue_length.get());
        let fits = from >= HEAD as u64 && from.checked_add(length) == Some(len);
        let has_content = raw.content_files.get() != 0;
        let sound = fits
            && raw.reserved == [0; 4]
            && has_content == (version == WITH_CONTENT)
            && raw.content_bytes.get() <= if has_content { MOST_CONTENT } else { 0 }
            && rest[note_length.min(rest.len())..].iter().all(|&byte| byte == 0)
            && raw.expires_ns.get() >= 0;
        match note {
            Some(note) if sound => Ok(Head {
                version,
                origin: RawFolder::read_from_bytes(folder).ok().map(|raw| Origin {
                    log: (raw.log_ino.get(), raw.log_btime_ns.get()),
                    dir: (raw.dir_ino.get(), raw.dir_btime_ns.get()),
                }),
                volume_id: raw.volume_id,
                id: raw.id.get(),
                note,
                parked_ns: raw.parked_ns.get(),
                expires_ns: raw.expires_ns.get(),
                bytes: raw.bytes.get(),
                files: raw.files.get(),
                names: raw.names.get(),
                home_below: raw.home_below.get(),
                content_bytes: raw.content_bytes.get(),
                content_files: raw.content_files.get(),
                catalogue: from,
                catalogue_length: length,
                catalogue_checksum: raw.catalogue_checksum.get(),
            }),
            _ if !fits => Err("it is not as long as it was written"),
            _ => Err("its head is invalid"),
        }
    }

    /// Whether it was parked in the folder that is here. What an earlier version has parked is believed to be: where a
    /// store that was copied is opened, that is marked first.
    pub fn is_here(&self, here: Origin) -> bool {
        self.origin.is_none_or(|origin| origin.is_here(here))
    }

    fn seed(&self) -> u64 {
        segment_seed(&self.volume_id, self.id, 0)
    }
}

/// Where a parked group is.
pub fn path_of(id: u64) -> Vec<u8> {
    join(FOLDER, &id_name(id))
}

/// Where the content file of an object is.
pub fn content_path(id: u64, object: u64) -> Vec<u8> {
    join(FOLDER, &content_name(id, object))
}

fn content_name(id: u64, object: u64) -> Vec<u8> {
    [&id_name(id), &b"."[..], &id_name(object)].concat()
}

/// The group and the object of a content file, by its name.
pub fn named_content(name: &[u8]) -> Option<(u64, u64)> {
    let (_, object) = name.split_at_checked(name.iter().position(|byte| *byte == b'.')? + 1)?;
    let (id, object) = (id_of(name), id_of(object));
    (id != 0 && object != 0 && content_name(id, object) == name).then_some((id, object))
}

fn create(host: &dyn HostFs, path: &[u8]) -> Result<Arc<dyn HostFile>> {
    match host.unlink(site::PARK_REMOVE, path) {
        Err(error) if error.errno != Errno::NOENT => return Err(host_error(error, path)),
        _ => {}
    }
    host.create(site::PARK_MAKE, path, 0o600).map_err(|error| host_error(error, path))
}

/// Makes a copy at `to` of what is parked at `from`, whose head tells another folder. It survives a crash when this
/// returns, but for its name.
pub fn copy_marked(host: &dyn HostFs, from: &[u8], to: &[u8], origin: Origin) -> Result<()> {
    let (head, source, len) = ParkedFile::open(host, from)?;
    let head = Head { origin: Some(origin), ..head }.to_bytes();
    let (file, at) = (create(host, to)?, HEAD as u64);
    file.write_at(site::PARK_WRITE, 0, &head)
        .and_then(|()| file.write_from(site::PARK_WRITE, at, &*source, at, len - at))
        .and_then(|()| file.sync(site::PARK_SYNC))
        .map_err(|error| host_error(error, to))
}

/// The file of a group that is being parked.
pub struct Writing {
    file: Arc<dyn HostFile>,
    path: Vec<u8>,
    head: Head,
    seed: u64,
    /// Behind the bytes that are written so far.
    position: u64,
    catalogue: Catalogue,
    /// The length and the checksum of what of the catalogue is written.
    written: (u64, u64),
}

impl Writing {
    /// Begins a file that has no name of a parked group yet.
    pub fn new(
        host: &dyn HostFs,
        path: &[u8],
        head: (&[u8; 16], u64, &str),
        (parked_ns, expires_ns): (i64, i64),
    ) -> Result<Writing> {
        let (volume_id, id, note) = head;
        let file = create(host, path)?;
        let head = Head {
            version: OLDEST,
            origin: Some(origin_of(host)?),
            volume_id: *volume_id,
            id,
            note: note.into(),
            parked_ns,
            expires_ns,
            bytes: 0,
            files: 0,
            names: 0,
            home_below: 0,
            content_bytes: 0,
            content_files: 0,
            catalogue: 0,
            catalogue_length: 0,
            catalogue_checksum: 0,
        };
        let seed = head.seed();
        let (path, catalogue) = (path.to_vec(), Catalogue::default());
        Ok(Writing { file, path, head, seed, position: HEAD as u64, catalogue, written: (0, seed) })
    }

    /// Writes the bytes of a piece: before anything is [added](Self::add).
    pub fn write(&mut self, piece: &mut Piece, data: &[u8]) -> Result<()> {
        debug_assert_eq!(piece.length as usize, data.len());
        debug_assert!(self.catalogue.is_empty() && self.written.0 == 0, "the catalogue is behind the bytes");
        piece.position = self.position;
        piece.checksum = payload_checksum(self.seed, self.position, data);
        self.put(self.position, data)?;
        self.position += data.len() as u64;
        self.head.bytes += data.len() as u64;
        Ok(())
    }

    /// So many bytes besides this file belong to what it tells of, and the groups of the log below `home_below` are in
    /// the directory.
    pub fn is_about(&mut self, bytes: u64, home_below: u64) {
        self.head.bytes += bytes;
        self.head.home_below = home_below;
    }

    /// Takes the time that the file system has given to the new file: no earlier change has a later one. The time of
    /// the kernel's last tick would not do. From Linux 6.13 on, a change has a finer time if somebody has looked at the
    /// file since the change before.
    pub fn is_as_old_as_its_file(&mut self) -> Result<()> {
        self.head.parked_ns = self.file.stat().map_err(|error| host_error(error, &self.path))?.ctime_ns;
        Ok(())
    }

    /// Adds what a group would change, or a part of that: the first part has all but names, and names come in order. Of
    /// what several parts speak of, the first one counts.
    pub fn add(&mut self, part: &Summary) -> Result<()> {
        debug_assert!(is_readable(part), "it was looked at before");
        self.head.version = self.head.version.max(version_of(part));
        for content in part.contents.values() {
            let Some(file) = content.file else { continue };
            self.head.bytes += content.pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
            self.head.content_bytes += file.allocated;
            self.head.content_files += 1;
        }
        self.head.files += part.contents.len() as u32;
        self.head.names += part.names().len() as u32;
        let mut catalogue = std::mem::take(&mut self.catalogue);
        let added = catalogue.add_all(part, &mut |bytes| self.put_catalogue(bytes));
        self.catalogue = catalogue;
        added
    }

    /// Writes the rest. The file survives a crash when this returns, but for its name.
    pub fn finish(mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.catalogue).bytes;
        // Nothing has a checksum too, but only where it is all.
        if !rest.is_empty() || self.written.0 == 0 {
            self.put_catalogue(&rest)?;
        }
        (self.head.catalogue, (self.head.catalogue_length, self.head.catalogue_checksum)) =
            (self.position, self.written);
        self.put(0, &self.head.to_bytes())?;
        self.file.sync(site::PARK_SYNC).map_err(|error| host_error(error, &self.path))
    }

    fn put_catalogue(&mut self, bytes: &[u8]) -> Result<()> {
        let (length, sum) = self.written;
        self.put(self.position + length, bytes)?;
        self.written = (length + bytes.len() as u64, checksum(sum, bytes));
        Ok(())
    }

    fn put(&self, offset: u64, data: &[u8]) -> Result<()> {
        const MOST: usize = 1 << 20;
        for (i, data) in data.chunks(MOST).enumerate() {
            let at = offset + (i * MOST) as u64;
            self.file.write_at(site::PARK_WRITE, at, data).map_err(|error| host_error(error, &self.path))?;
        }
        Ok(())
    }
}

/// The first version that has all kinds of entries of a group.
fn version_of(summary: &Summary) -> u32 {
    match (content_files(summary).next(), summary.parts.is_empty()) {
        _ if !summary.left.is_empty() => WITH_LEFT,
        (Some(_), _) => WITH_CONTENT,
        (None, false) => WITH_PARTS,
        (None, true) => OLDEST,
    }
}

/// The objects whose bytes are in content files.
pub fn content_files(summary: &Summary) -> impl Iterator<Item = u64> + '_ {
    summary.contents.iter().filter(|(_, content)| content.file.is_some()).map(|(id, _)| *id)
}

/// Whether what would be written of a group is what its reader takes, wherever the bytes of its pieces come to stand.
pub fn is_readable(summary: &Summary) -> bool {
    Reading { bytes: &catalogue(summary), end: None, summary: Summary::default(), open: None }.all().is_some()
}

/// All of a group but the bytes that it writes, in the making.
#[derive(Default)]
struct Catalogue {
    /// What is not passed on yet.
    bytes: Vec<u8>,
    /// The objects that it tells of, and those of whose attributes.
    objects: Ids,
    sets: Ids,
}

/// Bytes of the catalogue that are written at a time: a whole number of what checksums go by.
const AT_A_TIME: usize = 256 << 10;
const _: () = assert!(AT_A_TIME.is_multiple_of(PIECE));

impl Catalogue {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn add(&mut self, kind: u8, object: u64, payload: &[u8]) {
        self.add_at(kind, object, 0, payload);
    }

    fn add_at(&mut self, kind: u8, object: u64, offset: u64, payload: &[u8]) {
        let piece = Piece { offset, length: payload.len() as u32, ..Piece::default() };
        self.entry(kind, object, &piece);
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    fn entry(&mut self, kind: u8, object: u64, piece: &Piece) {
        let entry = RawEntry {
            object: U64::new(object),
            offset: U64::new(piece.offset),
            position: U64::new(piece.position),
            checksum: U64::new(piece.checksum),
            length: U32::new(piece.length),
            kind,
            reserved: [0; 3],
        };
        self.bytes.extend_from_slice(entry.as_bytes());
    }

    fn truncate(&mut self, object: u64, length: u64) {
        self.entry(TRUNCATE, object, &Piece { offset: length, ..Piece::default() });
    }

    /// Adds what a group, or a part of one, tells, from front to back, and passes on what is long enough for that: so
    /// that of a large one only a part is in memory.
    fn add_all(&mut self, summary: &Summary, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if let Some(coordinator) = &summary.coordinator {
            self.add(COORDINATOR, 0, &coordinator.to_bytes());
        }
        if let Some(id) = summary.applies {
            self.add(APPLIES, id, &[]);
        }
        summary.parts.iter().for_each(|part| self.add(PART, 0, &part.to_bytes()));
        for (id, settled) in above_first(summary) {
            if !self.objects.insert(id) {
                continue;
            }
            self.add(IDENTIFY, id, &identity(settled).to_bytes());
            if let Some(base) = settled.base {
                self.add(BASE, id, base_entry(base).as_bytes());
            }
            self.pass_on(write)?;
        }
        for (id, known) in &summary.objects {
            if let Known::Born(birth) = known
                && self.objects.insert(*id)
            {
                self.add(CREATE, *id, &birth.to_bytes());
            }
            self.pass_on(write)?;
        }
        for ((dir, name), &(before, after)) in summary.names() {
            self.add(NAME, *dir, &Value { before, after, name: name.to_vec() }.to_bytes());
            self.pass_on(write)?;
        }
        for (id, content) in &summary.contents {
            self.truncate(*id, content.limit);
            if let Some(ContentFile { mtime_ns, allocated }) = content.file {
                let file = RawContent { mtime_ns: I64::new(mtime_ns), allocated: U64::new(allocated) };
                self.add(CONTENT, *id, file.as_bytes());
            }
            for (range, how) in &content.space {
                let space = Space { length: range.end - range.start, how: *how };
                self.add_at(SPACE, *id, range.start, &space.to_bytes());
            }
            content.pieces.iter().for_each(|piece| self.entry(WRITE, *id, piece));
            self.truncate(*id, content.size);
            self.pass_on(write)?;
        }
        for (id, (set, mtime_ns)) in &summary.sets {
            if !self.sets.insert(*id) {
                continue;
            }
            let Set { mode, uid, gid, atime_ns, .. } = *set;
            let entry = Attributes { mode, uid, gid, atime_ns, mtime_ns: *mtime_ns, before: set.before.attributes };
            self.add(ATTRIBUTES, *id, &entry.to_bytes());
            for (name, value) in &set.xattrs {
                let before = set.before.xattrs.get(name).copied().flatten();
                let value = value.as_ref().map(|value| value.to_vec());
                self.add(XATTR, *id, &Xattr { name: name.clone(), value, before }.to_bytes());
            }
            self.pass_on(write)?;
        }
        for ((id, path), left) in &summary.left {
            self.add(LEFT, *id, &left::to_bytes(path, left));
            self.pass_on(write)?;
        }
        Ok(())
    }

    /// Passes on whole pieces of what checksums go by.
    fn pass_on(&mut self, write: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while self.bytes.len() >= AT_A_TIME {
            write(&self.bytes[..AT_A_TIME])?;
            self.bytes.drain(..AT_A_TIME);
        }
        Ok(())
    }
}

fn catalogue(summary: &Summary) -> Vec<u8> {
    let (mut all, mut rest) = (Vec::new(), Catalogue::default());
    let add = &mut |bytes: &[u8]| {
        all.extend_from_slice(bytes);
        Ok(())
    };
    rest.add_all(summary, add).expect("memory takes it");
    [all, rest.bytes].concat()
}

/// The objects that a group has found, directories before what is in them.
fn above_first(summary: &Summary) -> Vec<(u64, &Settled)> {
    fn add<'s>(summary: &'s Summary, id: u64, done: &mut HashSet<u64>, all: &mut Vec<(u64, &'s Settled)>) {
        if let Some(settled) = summary.settled(id).filter(|_| done.insert(id)) {
            add(summary, settled.place.0, done, all);
            all.push((id, settled));
        }
    }
    let (mut done, mut all) = (HashSet::new(), Vec::new());
    summary.objects.keys().for_each(|id| add(summary, *id, &mut done, &mut all));
    all
}

fn identity(settled: &Settled) -> Identity {
    let Settled { stat, place, .. } = settled;
    Identity {
        ino: stat.ino,
        btime_ns: stat.btime_ns,
        handle: 0,
        baseline: Some(Baseline::of(stat)),
        parent: place.0,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        nlink: stat.nlink,
        name: place.1.to_vec(),
    }
}

fn base_entry(base: Base) -> RawBase {
    let raw = |which: u64, size: u64, mtime_ns: i64, ctime_ns: i64| RawBase {
        which: U64::new(which),
        size: U64::new(size),
        mtime_ns: I64::new(mtime_ns),
        ctime_ns: I64::new(ctime_ns),
    };
    match base {
        Base::Sum(sum) => raw(1, sum, 0, 0),
        Base::Stat(Baseline { size, mtime_ns, ctime_ns }) => raw(2, size, mtime_ns, ctime_ns),
        Base::Lost => raw(3, 0, 0, 0),
    }
}

fn base_of(bytes: &[u8]) -> Option<Base> {
    let raw = RawBase::read_from_bytes(bytes).ok()?;
    let (size, mtime_ns, ctime_ns) = (raw.size.get(), raw.mtime_ns.get(), raw.ctime_ns.get());
    let base = match raw.which.get() {
        1 => Base::Sum(size),
        2 => Base::Stat(Baseline { size, mtime_ns, ctime_ns }),
        3 => Base::Lost,
        _ => return None,
    };
    (base_entry(base).as_bytes() == bytes).then_some(base)
}

#[cfg(test)]
mod tests {
    use wholly_vfs::Fallocate;
    use wholly_vfs::Stat;

    use super::*;
    use crate::records::{AttributesBefore, Birth, LARGEST_FILE};
    use crate::{Content, Neighbour, ROOT};

    fn head() -> Head {
        Head {
            version: WITH_PARTS,
            origin: Some(Origin { log: (1, -2), dir: (3, -4) }),
            volume_id: [9; 16],
            id: 7,
            note: "note".into(),
            parked_ns: 1,
            expires_ns: 2,
            bytes: 3,
            files: 4,
            names: 5,
            home_below: 9,
            content_bytes: 0,
            content_files: 0,
            catalogue: 4096,
            catalogue_length: 6,
            catalogue_checksum: 8,
        }
    }

    fn settled_at(name: &[u8]) -> Settled {
        Settled { stat: Stat::default(), place: (ROOT, name.into()), base: None }
    }

    /// The same of version 7, which tells in addition the folder that it was parked in.
    #[test]
    fn version_7_tells_its_folder() {
        let before = include_bytes!("../tests/fixtures/parked-version-4");
        let bytes = include_bytes!("../tests/fixtures/parked-version-7");
        let head = Head::checked(&bytes[..HEAD], bytes.len() as u64).expect("its head");
        let origin = Origin { log: (12, 1_700_000_000_000_000_007), dir: (11, 1_700_000_000_000_000_003) };
        assert_eq!((head.version, head.origin), (WITH_CONTENT, Some(origin)));
        assert_eq!(head.to_bytes(), bytes[..HEAD]);
        assert_eq!((&bytes[HEAD..], bytes[16]), (&before[HEAD..], 7));
        let old = Head::checked(&before[..HEAD], before.len() as u64).expect("its head");
        assert_eq!(Head { origin: None, ..head }, old);
        // A corrupt twin of it is refused.
        for at in FOLDER_AT..HEAD {
            let mut foul = bytes[..HEAD].to_vec();
            foul[at] ^= 1;
            assert!(Head::checked(&foul, bytes.len() as u64).is_err(), "byte {at}");
        }
    }

    /// Something of everything: `d/a` is written to and moves to the new directory `n`, in which a file is made.
    fn summary() -> Summary {
        let mut summary = Summary::default();
        let stat = |ino: u64, mode: u32| Stat {
            ino,
            btime_ns: 5,
            mode,
            size: 100,
            mtime_ns: 6,
            ctime_ns: 7,
            nlink: 1,
            ..Stat::default()
        };
        let settled = |ino, mode, place, base| Known::Settled(Box::new(Settled { stat: stat(ino, mode), place, base }));
        let born = |mode: u32| {
            let (uid, gid, rdev, btime_ns, atime_ns, mtime_ns) = (1, 2, 0, 3, 4, 5);
            Known::Born(Arc::new(Birth { mode, uid, gid, rdev, btime_ns, atime_ns, mtime_ns, target: Vec::new() }))
        };
        for number in [1, 2] {
            let place = |path: &str| path.as_bytes().to_vec();
            let (inode, absolute, relative) = ((3, 4), place("/other"), place("../other"));
            summary.parts.push(Neighbour { volume_id: [number as u8; 16], number, inode, absolute, relative });
        }
        summary.objects.insert(30, settled(11, 0o040755, (ROOT, b"d"[..].into()), None));
        // What is in it has a lower number.
        summary.objects.insert(20, settled(12, 0o100644, (30, b"a"[..].into()), Some(Base::Sum(77))));
        summary.objects.insert(40, born(0o040700));
        summary.objects.insert(41, born(0o100600));
        for (name, before, after) in [((ROOT, "n"), 0, 40), ((30, "a"), 20, 0), ((40, "a"), 0, 20), ((40, "b"), 0, 41)]
        {
            summary.add_name((name.0, name.1.as_bytes().into()), before, after);
        }
        let piece = |offset, position| Piece { offset, length: 10, position, checksum: 99 };
        let content = |limit, size, space, pieces| Content { limit, size, space, pieces, file: None };
        let space = vec![(0..4096, Fallocate::Punch), (4096..12288, Fallocate::Zero), (16384..20480, Fallocate::Keep)];
        summary.contents.insert(20, content(50, 9000, space, vec![piece(0, 4096), piece(40, 4106)]));
        summary.contents.insert(41, content(0, 10, Vec::new(), vec![piece(0, 4116)]));
        let before = AttributesBefore { mode: 0o644, ..AttributesBefore::default() };
        let attributes =
            Attributes { mode: Some(0o600), uid: None, gid: None, atime_ns: None, mtime_ns: Some(8), before };
        let mut set = Set::of_attributes(&attributes);
        set.put(&Set::of_xattr(Xattr { name: b"user.a".to_vec(), value: Some(b"v".to_vec()), before: Some(4) }));
        set.put(&Set::of_xattr(Xattr { name: b"user.b".to_vec(), value: None, before: None }));
        summary.sets.insert(20, (set, Some(8)));
        summary
    }

    fn read(bytes: &[u8]) -> Option<Summary> {
        Reading { bytes, end: Some(4126), summary: Summary::default(), open: None }.all()
    }

    /// A file that the version before wrote, which knew of no other parts: `a` of four bytes, to which four more were
    /// appended, is made 0600; `sub/b` and the symbolic link `l` are new.
    #[test]
    fn what_version_2_has_written_reads_the_same() {
        let bytes = include_bytes!("../tests/fixtures/parked-version-2");
        let head = Head::checked(&bytes[..HEAD], bytes.len() as u64).expect("its head");
        assert_eq!((head.id, head.files, head.names, head.version), (1 << 40 | 1, 2, 2, OLDEST));
        assert_eq!(head.to_bytes(), bytes[..HEAD], "what has no other parts is written as it was");
        let all = &bytes[head.catalogue as usize..];
        assert_eq!(checksum(head.seed(), all), head.catalogue_checksum);
        let reading = Reading { bytes: all, end: Some(head.catalogue), summary: Summary::default(), open: None };
        let summary = reading.all().expect("its catalogue");
        assert_eq!(catalogue(&summary), all);
        let names: Vec<_> = summary.names().keys().map(|(_, name)| &**name).collect();
        assert_eq!((names, summary.sets.len()), (vec![&b"l"[..], b"b"], 3));
    }

    /// A file of version 4: the bytes of `large` are in a content file, those of `a` in this one.
    #[test]
    fn version_4_reads_the_same() {
        let bytes = include_bytes!("../tests/fixtures/parked-version-4");
        let head = Head::checked(&bytes[..HEAD], bytes.len() as u64).expect("its head");
        assert_eq!((head.id, head.files, head.names, head.version), (1 << 40 | 1, 2, 2, WITH_CONTENT));
        assert_eq!((head.bytes, head.content_files, head.content_bytes), (600_005, 1, 602_112));
        assert_eq!(head.to_bytes(), bytes[..HEAD]);
        let all = &bytes[head.catalogue as usize..];
        assert_eq!(checksum(head.seed(), all), head.catalogue_checksum);
        let reading = Reading { bytes: all, end: Some(head.catalogue), summary: Summary::default(), open: None };
        let summary = reading.all().expect("its catalogue");
        assert_eq!(catalogue(&summary), all);
        let large = summary.contents.values().find(|content| content.file.is_some()).expect("it is large");
        let pieces: u64 = large.pieces.iter().map(|piece| u64::from(piece.length)).sum();
        assert_eq!((large.size, pieces), (600_000, 600_000));
        // A corrupt twin of it is refused.
        for at in [16, 112, 120, head.catalogue as usize] {
            let mut foul = bytes.to_vec();
            foul[at] ^= 1;
            let is_sound = Head::checked(&foul[..HEAD], foul.len() as u64).is_ok();
            assert!(!is_sound || checksum(head.seed(), &foul[head.catalogue as usize..]) != head.catalogue_checksum);
        }
    }

    #[test]
    fn a_head_stands_where_the_format_has_it() {
        let bytes = head().to_bytes();
        assert_eq!((bytes.len(), &bytes[8..16], bytes[16], bytes[20]), (4096, &b"WHOLLYPG"[..], 6, 4));
        assert_eq!((&bytes[24..40], bytes[40], bytes[48], bytes[56]), (&[9; 16][..], 7, 1, 2));
        assert_eq!((bytes[65], bytes[72], bytes[80], bytes[88], bytes[96], bytes[100]), (16, 6, 8, 3, 4, 5));
        assert_eq!(&bytes[128..133], b"note\0");
        let inodes = [1, -2, 3, -4i64].map(i64::to_le_bytes).concat();
        assert_eq!((&bytes[4063..4064], &bytes[4064..]), (&[0][..], &inodes[..]));
        assert_eq!(Head::checked(&bytes, 4102), Ok(head()));
        assert!(Head::checked(&bytes, 4103).is_err() && Head::checked(&bytes[..4000], 4102).is_err());
        for at in 0..bytes.len() {
            let mut foul = bytes.clone();
            foul[at] ^= 1;
            assert!(Head::checked(&foul, 4102).is_err(), "byte {at}");
        }
        // Versions before tell no folder.
        let old = Head { origin: None, ..head() };
        assert_eq!((old.to_bytes()[16], &old.to_bytes()[4064..]), (3, &[0; 32][..]));
        assert_eq!(Head::checked(&old.to_bytes(), 4102), Ok(old));
        // However many groups there are, what they take can be summed up.
        for (content_bytes, is_sound) in [(MOST_CONTENT, true), (MOST_CONTENT + 1, false), (u64::MAX, false)] {
            let head = Head { version: WITH_CONTENT, content_files: 1, content_bytes, ..head() };
            assert_eq!(Head::checked(&head.to_bytes(), 4102).is_ok(), is_sound, "{content_bytes}");
        }
    }

    #[test]
    fn a_catalogue_reads_back() {
        let (summary, bytes) = (summary(), catalogue(&summary()));
        let again = read(&bytes).expect("it was just written");
        assert_eq!(
            (&again.objects, again.names(), &again.contents),
            (&summary.objects, summary.names(), &summary.contents)
        );
        assert_eq!((&again.sets, &again.parts), (&summary.sets, &summary.parts));
        assert_eq!(catalogue(&again), bytes);
        assert_eq!(again.path_after(41).unwrap(), b"n/b");
        assert_eq!((again.path_before(20).unwrap(), again.path_after(20).unwrap()), (b"d/a".to_vec(), b"n/a".to_vec()));
    }

    /// What several parts tell is read as what one tells, and each object once, however many parts speak of it.
    #[test]
    fn a_catalogue_in_parts_is_read_as_one() {
        let whole = summary();
        for most in [1, 2, 3] {
            let (mut all, mut catalogue) = (Vec::new(), Catalogue::default());
            let mut first = Summary::default();
            (first.parts, first.contents, first.sets) =
                (whole.parts.clone(), whole.contents.clone(), whole.sets.clone());
            let mut parts = vec![first];
            for (i, (name, (before, after))) in whole.names().iter().enumerate() {
                if i % most == 0 {
                    parts.push(Summary::default());
                }
                parts.last_mut().expect("there is one").add_name(name.clone(), *before, *after);
            }
            for part in &mut parts {
                part.objects = whole.objects.clone();
                let add = &mut |bytes: &[u8]| {
                    all.extend_from_slice(bytes);
                    Ok(())
                };
                catalogue.add_all(part, add).expect("memory takes it");
            }
            all.extend_from_slice(&catalogue.bytes);
            assert_eq!(all.len(), super::catalogue(&whole).len());
            let again = read(&all).expect("it was just written");
            assert_eq!(super::catalogue(&again), super::catalogue(&whole), "{most} names in a part");
        }
    }

    /// One piece is written after the other, and their checksums add up, also where the last one is full.
    #[test]
    fn a_catalogue_is_written_in_pieces() {
        let file = || {
            let mut summary = Summary::default();
            let (mode, target) = (0o100_600, Vec::new());
            let birth = Birth { mode, uid: 1, gid: 2, rdev: 0, btime_ns: 3, atime_ns: 4, mtime_ns: 5, target };
            summary.objects.insert(40, Known::Born(Arc::new(birth)));
            summary
        };
        // So many names fill the first piece that take 64 and 72 bytes.
        let left = AT_A_TIME - catalogue(&file()).len();
        let long = left / 8 % 8;
        let short = (left - long * 72) / 64;
        let world = wholly_sim::World::new(wholly_sim::SimConfig::disk());
        let host = world.host();
        for (short, pieces) in [(0, 1), (short - 1, 1), (short, 1), (short + 1, 2), (short * 2, 2)] {
            let mut summary = file();
            let names = (0..short).map(|n| format!("{n:08}")).chain((0..long).map(|n| format!("{n:09}")));
            names.for_each(|name| summary.add_name((ROOT, name.into_bytes().into()), 0, 40));
            assert_eq!(catalogue(&summary).len().div_ceil(AT_A_TIME), pieces);
            let mut writing = Writing::new(&*host, b"parked", (&[9; 16], 7, "note"), (1, 2)).unwrap();
            writing.add(&summary).unwrap();
            writing.finish().unwrap();
            let again = ParkedFile::read(&*host, b"parked").unwrap();
            assert_eq!(again.summary.names(), summary.names(), "{short} names");
            let (_, outline) = Outline::read(&*host, b"parked").unwrap();
            assert_eq!(outline.changes(), summary.names().len() as u64);
        }
    }

    #[test]
    fn an_outline_says_what_the_whole_does() {
        let mut summary = summary();
        let gone = Settled { stat: Stat { ino: 13, mode: 0o100644, ..Stat::default() }, ..settled_at(b"z") };
        summary.objects.insert(50, Known::Settled(Box::new(gone)));
        summary.add_name((ROOT, b"z"[..].into()), 50, 0);
        let world = wholly_sim::World::new(wholly_sim::SimConfig::disk());
        let host = world.host();
        let mut writing = Writing::new(&*host, b"parked", (&[9; 16], 7, "note"), (1, 2)).unwrap();
        writing.add(&summary).unwrap();
        writing.finish().unwrap();
        let (head, outline) = Outline::read(&*host, b"parked").unwrap();
        assert_eq!((head.id, outline.changes()), (7, 5));
        assert!(outline.lost().eq([50]) && outline.objects().iter().eq([ROOT, 20, 30, 40, 41, 50]));
        assert!([20, 41].into_iter().all(|id| outline.is_changed(id)) && !outline.is_changed(50));
        assert_eq!(outline.xattrs[&20], [b"user.a", b"user.b"]);
        let file = host.open(b"parked", true).unwrap();
        for at in head.catalogue..head.catalogue + head.catalogue_length {
            let mut byte = [0];
            file.read_at(at, &mut byte).unwrap();
            file.write_at(site::PARK_WRITE, at, &[byte[0] ^ 0x10]).unwrap();
            assert!(Outline::read(&*host, b"parked").is_err(), "byte {at}");
            file.write_at(site::PARK_WRITE, at, &byte).unwrap();
        }
    }

    #[test]
    fn space_that_no_group_asks_for_is_refused() {
        let with = |space: &[(std::ops::Range<u64>, Fallocate)]| {
            let mut summary = summary();
            summary.contents.get_mut(&20).expect("it is there").space = space.to_vec();
            read(&catalogue(&summary)).map(|again| again.contents == summary.contents)
        };
        use Fallocate::{Extend, Keep, Punch, Zero, ZeroExtend};
        assert_eq!(with(&[(0..4096, Punch), (8192..12288, Punch)]), Some(true));
        assert_eq!(with(&[(LARGEST_FILE - 4096..LARGEST_FILE, Keep)]), Some(true));
        for (wrong, why) in [
            (vec![(8192..12288, Punch), (0..4096, Punch)], "out of order"),
            (vec![(0..8192, Punch), (4096..12288, Zero)], "one over the other"),
            (vec![(0..4096, Punch), (4096..8192, Punch)], "one in two pieces"),
            (vec![(1..4096, Punch)], "it begins within a block"),
            (vec![(0..4095, Punch)], "it ends within a block"),
            (vec![(0..4096, Extend)], "the length is told elsewhere"),
            (vec![(0..4096, ZeroExtend)], "the length is told elsewhere"),
            (vec![(LARGEST_FILE..LARGEST_FILE + 4096, Keep)], "no file is so long"),
        ] {
            assert_eq!(with(&wrong), None, "{why}");
        }
        // Behind the bytes, and of a file that is not open.
        let space = Space { length: 4096, how: Keep }.to_bytes();
        let mut all = Catalogue::default();
        all.add_at(SPACE, 20, 0, &space);
        assert!(read(&all.bytes).is_none());
    }

    /// What is read would be written the same, or it is refused; nothing panics.
    #[test]
    fn a_catalogue_has_one_reading() {
        let bytes = catalogue(&summary());
        let mut refused = 0;
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut foul = bytes.clone();
                foul[at] ^= change;
                match read(&foul) {
                    Some(summary) => {
                        summary.objects.keys().for_each(|id| _ = (summary.path_after(*id), summary.after(*id)));
                        assert_eq!(catalogue(&summary).len(), foul.len(), "byte {at}");
                    }
                    None => refused += 1,
                }
            }
            assert!(at == 0 || read(&bytes[..at]).is_none_or(|summary| catalogue(&summary).len() == at));
        }
        assert!(refused > bytes.len(), "{refused}");
    }
}
