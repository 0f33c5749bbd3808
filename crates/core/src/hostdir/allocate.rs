//! Blocks of a host file, changed by the modes of `fallocate`; where its file system has none of them, by what comes to
//! the same.

use std::ops::Range;

use rustix::io::Errno;
use wholly_host::HostFile;
use wholly_media::{Result, Site};
use wholly_vfs::Fallocate;

use index::BLOCK;

/// Zeros that are written at a time.
const ZEROS: &[u8] = &[0; 64 << 10];

/// On whose behalf blocks change.
pub(super) struct Allocation {
    /// Where they become zeros.
    pub zeroes: Site,
    /// Where space is reserved for them.
    pub reserves: Site,
    /// Where zeros are written to them.
    pub writes: Site,
}

/// Changes what blocks a range of bytes of a file of `size` bytes has. The size stays. Space that cannot be reserved is
/// not; that there is none left is an error.
pub(super) fn fallocate(
    host: &dyn HostFile,
    allocation: &Allocation,
    how: Fallocate,
    range: Range<u64>,
    size: u64,
) -> Result<()> {
    let how = match how {
        Fallocate::Extend => Fallocate::Keep,
        Fallocate::ZeroExtend => Fallocate::Zero,
        how => how,
    };
    let Range { start: from, end: to } = range;
    let site = if how.zeroes() { allocation.zeroes } else { allocation.reserves };
    match host.fallocate(site, how, from, to - from) {
        Err(error) if error.errno == Errno::OPNOTSUPP => {}
        done => return done,
    }
    match how {
        Fallocate::Zero => {
            let inside = to.min(size.next_multiple_of(BLOCK));
            if from < inside {
                fallocate(host, allocation, Fallocate::Punch, from..inside, size)?;
            }
            fallocate(host, allocation, Fallocate::Keep, from..to, size)
        }
        Fallocate::Punch => write_zeros(host, allocation.writes, from..to.min(size)),
        _ => Ok(()),
    }
}

/// Where nothing else makes zeros: over what is no hole.
fn write_zeros(host: &dyn HostFile, site: Site, range: Range<u64>) -> Result<()> {
    let Range { start: mut at, end: to } = range;
    while let Some(data) = host.next_data(at)?.filter(|data| *data < to) {
        let end = host.next_hole(data)?.map_or(to, |hole| hole.min(to));
        at = end.min(data + ZEROS.len() as u64);
        host.write_at(site, data, &ZEROS[..(at - data) as usize])?;
    }
    Ok(())
}
