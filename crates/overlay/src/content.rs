//! Bytes of regular files: of a new one all that are in no hole, of one that was there those blocks that differ.

use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread};
use wholly_host::{reserved_extents, shared, shared_extents};
use wholly_vfs::{Context, Fallocate, Handle, Ino, OFlags, Seek, SetAttr, Vfs};

use crate::error::{OnHost, Result};
use crate::group::{Group, OnGroup};

/// Bytes that are compared as one: those of a block.
const BLOCK: usize = 4096;
/// Bytes that are read at a time.
const AT_ONCE: usize = 1 << 20;

/// What is read: a regular file of the layer.
pub(crate) struct Bytes<'f> {
    pub fd: BorrowedFd<'f>,
    pub size: u64,
    pub path: &'f [u8],
}

impl Bytes<'_> {
    /// The next range of data at or behind `at`; empty at the end of the file where there is none.
    fn next(&self, at: u64) -> Result<(u64, u64)> {
        let begin = match seek(self.fd, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok((self.size, self.size)),
            // The file system knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((at, self.size)),
            begin => begin.on("lseek", self.path)?,
        };
        let end = seek(self.fd, SeekFrom::Hole(begin)).on("lseek", self.path)?;
        Ok((begin.min(self.size), end.min(self.size)))
    }

    /// Fills a buffer as far as the file goes.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match pread(self.fd, &mut buf[done..], at + done as u64).on("read", self.path)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }
}

/// A regular file of the group that is open.
struct Open<'g, 'v> {
    group: &'g Group<'v>,
    ctx: Context,
    handle: &'g Handle,
    path: &'g [u8],
}

impl Open<'_, '_> {
    fn write(&self, mut at: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let written = self.group.vfs.write(&self.ctx, self.handle, at, data).of("write", self.path)?;
            (at, data) = (at + written as u64, &data[written..]);
        }
        Ok(())
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &mut buf[done..];
            match self.group.vfs.read(&self.ctx, self.handle, at + done as u64, rest).of("read", self.path)? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    /// Makes a range a hole, where it is none. Gives whether it changed anything, or `None` where the store punches no
    /// holes.
    fn punch(&self, begin: u64, end: u64) -> Result<Option<bool>> {
        let (mut at, mut changed) = (begin, false);
        let seek = |what| match self.group.vfs.seek(&self.ctx, self.handle, what) {
            Err(Errno::NXIO) => Ok(end),
            found => found.of("lseek", self.path),
        };
        while at < end {
            at = seek(Seek::Data(at))?;
            if at >= end {
                break;
            }
            let until = seek(Seek::Hole(at))?.clamp(at + 1, end);
            let mode = Fallocate::Punch;
            match self.group.vfs.fallocate(&self.ctx, self.handle, mode, at, until - at) {
                Err(Errno::OPNOTSUPP) => return Ok(None),
                punched => punched.of("fallocate", self.path)?,
            }
            (at, changed) = (until, true);
        }
        Ok(Some(changed))
    }

    /// Writes the blocks of a range that differ. Gives whether there were any.
    fn compare(&self, bytes: &Bytes<'_>, begin: u64, end: u64) -> Result<bool> {
        let most = usize::try_from(end - begin).unwrap_or(AT_ONCE).min(AT_ONCE);
        let (mut new, mut old) = (vec![0; most], vec![0; most]);
        let (mut at, mut changed) = (begin, false);
        while at < end {
            // Blocks are those of the file: what is read ends where one does.
            let until = ((at + most as u64).min(end)).max(at + 1);
            let until = if until < end && until > at + BLOCK as u64 { until - until % BLOCK as u64 } else { until };
            let want = (until - at) as usize;
            let got = bytes.read(at, &mut new[..want])?;
            let had = self.read(at, &mut old[..got])?;
            old[had..got].fill(0);
            for (from, to) in differences(&new[..got], &old[..got], had) {
                self.write(at + from as u64, &new[from..to])?;
                changed = true;
            }
            if got < want {
                break;
            }
            at = until;
        }
        Ok(changed)
    }
}

/// The ranges of blocks that differ, or that only one has; neighbours are one range.
fn differences(new: &[u8], old: &[u8], had: usize) -> Vec<(usize, usize)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for from in (0..new.len()).step_by(BLOCK) {
        let to = (from + BLOCK).min(new.len());
        if to <= had && new[from..to] == old[from..to] {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => ranges.push((from, to)),
        }
    }
    ranges
}

/// Writes a new file, and closes it.
pub(crate) fn write(group: &Group<'_>, handle: Handle, ino: Ino, bytes: &Bytes<'_>, path: &[u8]) -> Result<()> {
    let open = Open { group, ctx: group.superuser(), handle: &handle, path };
    let written = write_all(&open, bytes);
    let ctx = open.ctx;
    group.vfs.release(&ctx, handle).of("release", path)?;
    let end = written?;
    if end < bytes.size {
        group.set(ino, &SetAttr { size: Some(bytes.size), ..SetAttr::default() }, path)?;
    }
    Ok(())
}

/// Gives where the last byte was written.
fn write_all(open: &Open<'_, '_>, bytes: &Bytes<'_>) -> Result<u64> {
    let mut buf = vec![0; usize::try_from(bytes.size).unwrap_or(AT_ONCE).min(AT_ONCE)];
    let (mut at, mut last) = (0, 0);
    while at < bytes.size {
        let (begin, end) = bytes.next(at)?;
        at = begin;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(AT_ONCE).min(buf.len());
            let got = bytes.read(at, &mut buf[..want])?;
            if got == 0 {
                return Ok(last);
            }
            open.write(at, &buf[..got])?;
            at += got as u64;
            last = at;
        }
    }
    Ok(last)
}

/// Makes the bytes of a file that was there those of the layer. Gives whether any were others. `below` is the file
/// itself, where that is at hand: what the layer has by sharing its blocks need not be read.
pub(crate) fn update(
    group: &Group<'_>,
    ino: Ino,
    bytes: &Bytes<'_>,
    below: Option<BorrowedFd<'_>>,
    path: &[u8],
) -> Result<bool> {
    let ctx = group.superuser();
    let before = group.attributes(ino, path)?.size;
    if before != bytes.size {
        group.set(ino, &SetAttr { size: Some(bytes.size), ..SetAttr::default() }, path)?;
    }
    let handle = group.vfs.open(&ctx, ino, OFlags::RDWR | OFlags::NOATIME).of("open", path)?;
    let open = Open { group, ctx, handle: &handle, path };
    let same = below.map_or_else(|| Ok(Vec::new()), |below| same_blocks(bytes, below));
    let compared = same.and_then(|same| compare_all(&open, bytes, &same));
    let reserved = compared.and_then(|changed| Ok(changed | reserve(&open, bytes, below)?));
    let ctx = open.ctx;
    group.vfs.release(&ctx, handle).of("release", path)?;
    Ok(reserved? || before != bytes.size)
}

/// Reserves the space that the file has in the layer and does not have below. Gives whether there is any.
fn reserve(open: &Open<'_, '_>, bytes: &Bytes<'_>, below: Option<BorrowedFd<'_>>) -> Result<bool> {
    let reserved = |fd| match reserved_extents(fd) {
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        extents => extents.on("ioctl", bytes.path),
    };
    let new = reserved(bytes.fd)?;
    if new.is_empty() {
        return Ok(false);
    }
    let old = below.map_or_else(|| Ok(Vec::new()), reserved)?;
    let mut changed = false;
    for (from, to) in new.into_iter().flat_map(|range| without(range, &old)) {
        let reserved = open.group.vfs.fallocate(&open.ctx, open.handle, Fallocate::Keep, from, to - from);
        reserved.of("fallocate", open.path)?;
        changed = true;
    }
    Ok(changed)
}

/// The ranges of blocks that are those of another file.
fn same_blocks(bytes: &Bytes<'_>, other: BorrowedFd<'_>) -> Result<Vec<(u64, u64)>> {
    // To ask takes longer than to read a few.
    if bytes.size < AT_ONCE as u64 {
        return Ok(Vec::new());
    }
    let extents = |fd| match shared_extents(fd) {
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        extents => extents.on("ioctl", bytes.path),
    };
    // Of the layer's first: what it has written back shares nothing any more.
    let new = extents(bytes.fd)?;
    if new.is_empty() { Ok(Vec::new()) } else { Ok(shared(&new, &extents(other)?)) }
}

/// The parts of a range that lie in none of others, which are in order.
fn without(range: (u64, u64), others: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut at, mut parts) = (range.0, Vec::new());
    for &(from, to) in others.iter().filter(|(from, to)| *from < range.1 && *to > range.0) {
        if at < from {
            parts.push((at, from));
        }
        at = at.max(to);
    }
    if at < range.1 {
        parts.push((at, range.1));
    }
    parts
}

fn compare_all(open: &Open<'_, '_>, bytes: &Bytes<'_>, same: &[(u64, u64)]) -> Result<bool> {
    let (mut at, mut changed) = (0, false);
    while at < bytes.size {
        let (begin, end) = bytes.next(at)?;
        if at < begin {
            changed |= match open.punch(at, begin)? {
                Some(punched) => punched,
                None => open.compare(bytes, at, begin)?,
            };
        }
        for (from, to) in without((begin, end), same) {
            changed |= open.compare(bytes, from, to)?;
        }
        at = end.max(begin);
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_left_out() {
        let others = [(10, 20), (30, 40), (90, 95)];
        assert_eq!(without((0, 100), &others), [(0, 10), (20, 30), (40, 90), (95, 100)]);
        assert_eq!(without((12, 35), &others), [(20, 30)]);
        assert_eq!(without((40, 90), &others), [(40, 90)]);
        assert_eq!(without((10, 20), &others), []);
    }

    #[test]
    fn blocks_that_differ_are_found() {
        let old = vec![1; 4 * BLOCK];
        let with = |at: &[usize]| {
            let mut new = old.clone();
            at.iter().for_each(|at| new[*at] = 2);
            new
        };
        let found = |new: &[u8], had| differences(new, &old[..new.len()], had);
        assert_eq!(found(&old, old.len()), []);
        assert_eq!(found(&with(&[0]), old.len()), [(0, BLOCK)]);
        assert_eq!(found(&with(&[BLOCK, 3 * BLOCK - 1]), old.len()), [(BLOCK, 3 * BLOCK)]);
        assert_eq!(found(&with(&[0, 4 * BLOCK - 1]), old.len()), [(0, BLOCK), (3 * BLOCK, 4 * BLOCK)]);
        assert_eq!(found(&with(&[BLOCK + 7])[..BLOCK + 10], BLOCK + 10), [(BLOCK, BLOCK + 10)]);
        // What the old one does not have is written, zeros too.
        assert_eq!(found(&old, BLOCK + 1), [(BLOCK, 4 * BLOCK)]);
    }
}
