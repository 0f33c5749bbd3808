//! Names: a directory and one part of a path. All that know a name share its bytes. They are known by one pointer, to
//! how many share them, their length and themselves: of a million names each is in several tables.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::{Debug, Formatter};
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use triomphe::ThinArc;

/// See the head of this file.
#[derive(Clone)]
pub struct NameBytes(ThinArc<(), u8>);

const _: () = assert!(size_of::<Option<NameBytes>>() == 8);

impl Deref for NameBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.slice
    }
}

impl Borrow<[u8]> for NameBytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for NameBytes {
    fn from(bytes: &[u8]) -> Self {
        NameBytes(ThinArc::from_header_and_slice((), bytes))
    }
}

impl<const N: usize> From<[u8; N]> for NameBytes {
    fn from(bytes: [u8; N]) -> Self {
        bytes[..].into()
    }
}

impl From<Vec<u8>> for NameBytes {
    fn from(bytes: Vec<u8>) -> Self {
        bytes[..].into()
    }
}

// As bytes are compared, since tables are asked by bytes.

impl PartialEq for NameBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for NameBytes {}

impl PartialOrd for NameBytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NameBytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

impl Hash for NameBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Debug for NameBytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// The store's directory.
pub const ROOT: u64 = 1;

/// A directory and one part of a path. All that know a name share its bytes.
pub type Name = (u64, NameBytes);

/// A path of a directory and a part.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// The object that has this name in the store's own folders, or one that begins so, followed by a dot; 0 for none.
pub fn id_of(entry: &[u8]) -> u64 {
    let id = entry.split(|&byte| byte == b'.').next().and_then(|id| std::str::from_utf8(id).ok());
    id.and_then(|id| u64::from_str_radix(id, 16).ok()).unwrap_or(0)
}

/// The name of an object in the store's own folders.
pub fn id_name(id: u64) -> Vec<u8> {
    format!("{id:x}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::NameBytes;

    #[test]
    fn they_are_ordered_as_bytes() {
        let all: [&[u8]; 5] = [b"", b"a", b"aaa", b"ab", b"b"];
        let mut names = all.map(NameBytes::from).to_vec();
        names.reverse();
        names.sort();
        assert!(names.iter().map(|name| &**name).eq(all));
        assert!(names.binary_search_by(|name| (**name).cmp(b"ab")).is_ok());
    }
}
