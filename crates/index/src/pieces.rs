//! Which bytes of a block come from which version.

use super::version::RunVersion;

/// A run of bytes of a block, and where the latest of them are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the block.
    pub start: u16,
    /// The byte after the last.
    pub end: u16,
    /// Where the first byte is, as in [`RunVersion::position`]; `None` for home.
    pub position: Option<u64>,
}

/// Splits the bytes `start..end` of a block by where the latest of them are, given its versions from newest to oldest.
/// The pieces do not overlap, cover the range, and come in no order.
pub fn pieces(versions: impl IntoIterator<Item = RunVersion>, start: u16, end: u16) -> Vec<Piece> {
    let mut found = Vec::with_capacity(4);
    let mut open = Vec::with_capacity(4);
    logged_pieces(versions, start, end, &mut open, &mut found);
    found.extend(open.into_iter().map(|(start, end)| Piece { start, end, position: None }));
    found
}

/// Like [`pieces`], into the caller's lists: `found` gets those that are not at home added, `open` becomes the ranges
/// that are.
pub fn logged_pieces(
    versions: impl IntoIterator<Item = RunVersion>,
    start: u16,
    end: u16,
    open: &mut Vec<(u16, u16)>,
    found: &mut Vec<Piece>,
) {
    open.clear();
    if start < end {
        open.push((start, end));
    }
    for version in versions {
        if open.is_empty() {
            break;
        }
        cover(open, version.start, version.end(), |start, end| {
            found.push(Piece { start, end, position: Some(version.position + u64::from(start - version.start)) });
        });
    }
}

/// Takes `start..end` out of the ranges `open`, and calls `found` for each part that was there. Whether there was any.
pub(super) fn cover(open: &mut Vec<(u16, u16)>, start: u16, end: u16, mut found: impl FnMut(u16, u16)) -> bool {
    let (mut i, mut any) = (0, false);
    while i < open.len() {
        let (from, to) = open[i];
        let (cut_from, cut_to) = (from.max(start), to.min(end));
        if cut_from >= cut_to {
            i += 1;
            continue;
        }
        any = true;
        found(cut_from, cut_to);
        match (from < cut_from, cut_to < to) {
            (true, true) => {
                open[i] = (from, cut_from);
                open.push((cut_to, to));
            }
            (true, false) => open[i] = (from, cut_from),
            (false, true) => open[i] = (cut_to, to),
            // Another takes its place, and is looked at next.
            (false, false) => {
                open.swap_remove(i);
                continue;
            }
        }
        i += 1;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a block painted byte by byte, oldest version first.
        #[test]
        fn as_if_painted(
            runs in proptest::collection::vec((0u16..4096, 1u16..=4096), 0..12),
            range in (0u16..=4096, 0u16..=4096),
        ) {
            let versions: Vec<RunVersion> = runs
                .iter()
                .enumerate()
                .map(|(i, &(start, length))| RunVersion {
                    position: (i as u64 + 1) << 20,
                    stamp: 0,
                    start,
                    length: length.min(4096 - start),
                    next: 0,
                    before_thinning: 0,
                })
                .collect();
            let mut painted = [None; 4096];
            for version in &versions {
                for byte in version.start..version.end() {
                    painted[usize::from(byte)] = Some(version.position + u64::from(byte - version.start));
                }
            }
            let (start, end) = (range.0.min(range.1), range.0.max(range.1));
            let mut seen = vec![false; 4096];
            for piece in pieces(versions.into_iter().rev(), start, end) {
                prop_assert!(start <= piece.start && piece.start < piece.end && piece.end <= end);
                for byte in piece.start..piece.end {
                    prop_assert!(!seen[usize::from(byte)], "pieces overlap");
                    seen[usize::from(byte)] = true;
                    let expected = painted[usize::from(byte)];
                    prop_assert_eq!(piece.position.map(|position| position + u64::from(byte - piece.start)), expected);
                }
            }
            prop_assert_eq!(seen.iter().filter(|&&seen| seen).count(), usize::from(end - start));
        }
    }
}
