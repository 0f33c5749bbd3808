//! Which root counts after a crash.

use wholly_error::Result;
use wholly_media::Region;

use crate::engine::{InodeMap, read_within};
use crate::format::log::{Entry, LINE, LogArea, LogSeed, decode};

/// The newest root record of an incarnation, if it has any. Only reads.
///
/// # Errors
/// The medium's, if neither copy of a record can be read.
pub fn newest_root(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<Option<InodeMap>> {
    let mut newest: Option<(u64, InodeMap)> = None;
    for parity in 0..2 {
        let (mut lost, mut has_read) = (Ok(()), false);
        for (at, number) in area.roots(parity) {
            let mut line = [0; LINE];
            if let Err(error) = read_within(region, at, &mut line) {
                lost = Err(error);
                continue;
            }
            has_read = true;
            let Some(read) = decode(seed.lane(0), at, &line) else { continue };
            if let Entry::Root(map) = read.entry
                && (read.sequence % 2, read.number) == (parity, number)
                && newest.is_none_or(|(sequence, _)| read.sequence > sequence)
            {
                newest = Some((read.sequence, map));
            }
        }
        if !has_read {
            lost?;
        }
    }
    Ok(newest.map(|(_, map)| map))
}
