//! What overlayfs has written on an entry of its upper layer: extended attributes below its own prefix
//! (`fs/overlayfs/overlayfs.h`, `Documentation/filesystems/overlayfs.rst`).
//!
//! | attribute | what it says |
//! |---|---|
//! | `opaque` | `y`: a directory hides what lies below it; `x`: there may be files in it that are whiteouts by attribute |
//! | `whiteout` | an empty file is a whiteout (in directories with `opaque` = `x`) |
//! | `redirect` | the path of what is below, from the root of the layer (`/a/b`), or another name in the same directory |
//! | `origin` | the file handle of what it was copied from |
//! | `metacopy` | only attributes were copied: the bytes are those below |
//! | `overlay.NAME` | a program of the view has set an attribute of this prefix and name: it is escaped |
//!
//! The others (`impure`, `nlink`, `upper`, `uuid`, `protattr`) say nothing of names or content.

use std::collections::BTreeMap;

use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lremovexattr, lsetxattr};
use rustix::io::Errno;
use wholly_host::FileHandle;

use crate::error::{OnHost, Result};
use crate::host::{OpenDir, Tree};

/// Bytes of the longest list of names, and of the longest value (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MOST: usize = 64 << 10;
/// Bytes for most lists of names and values.
const MANY: usize = 512;

/// `struct ovl_fb`: a version and a magic number, then length, flags, type, 16 bytes of a UUID, and the handle.
const HEAD: usize = 21;
const VERSION: u8 = 0;
const MAGIC: u8 = 0xfb;

/// What an entry was copied from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Handle(FileHandle),
    /// The file system below has no handles.
    Unknown,
}

impl Origin {
    /// Reads a `struct ovl_fb`.
    fn read(value: &[u8]) -> Origin {
        match value {
            [VERSION, MAGIC, length, _, kind, ..] if value.len() > HEAD && usize::from(*length) == value.len() => {
                Origin::Handle(FileHandle { kind: i32::from(*kind), bytes: value[HEAD..].to_vec() })
            }
            _ => Origin::Unknown,
        }
    }

    pub fn is(&self, handle: Option<&FileHandle>) -> bool {
        matches!((self, handle), (Origin::Handle(origin), Some(handle)) if origin == handle)
    }
}

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    pub origin: Option<Origin>,
    pub is_opaque: bool,
    pub is_whiteout: bool,
    pub redirect: Option<Vec<u8>>,
    pub is_metacopy: bool,
    /// The attributes of overlayfs, by their whole names: in no view.
    pub own: Vec<Vec<u8>>,
    /// Escaped ones, by their whole names.
    pub escaped: Vec<Vec<u8>>,
}

impl Marks {
    pub fn are_none(&self) -> bool {
        self.own.is_empty() && self.escaped.is_empty()
    }
}

/// Reads the extended attributes of entries.
pub(crate) struct Reader {
    /// Such as `trusted.overlay.`.
    prefix: Vec<u8>,
}

impl Reader {
    /// `namespace` is `trusted` or, of a layer that was mounted with `userxattr`, `user`.
    pub fn new(namespace: &str) -> Self {
        Reader { prefix: format!("{namespace}.overlay.").into_bytes() }
    }

    /// Whether a view never shows an attribute of this name as what it is in a layer.
    pub fn is_own(&self, name: &[u8]) -> bool {
        name.starts_with(&self.prefix)
    }

    /// The name that the view shows.
    fn shown<'n>(&self, name: &'n [u8]) -> Option<std::borrow::Cow<'n, [u8]>> {
        match name.strip_prefix(&self.prefix[..]) {
            None => Some(name.into()),
            Some(rest) => rest.strip_prefix(b"overlay.").map(|rest| [&self.prefix, rest].concat().into()),
        }
    }

    /// What overlayfs has written on an entry.
    pub fn marks(&self, dir: &OpenDir, name: &[u8]) -> Result<Marks> {
        let mut marks = Marks::default();
        for attribute in names(dir, name)? {
            let Some(rest) = attribute.strip_prefix(&self.prefix[..]) else { continue };
            if rest.starts_with(b"overlay.") {
                marks.escaped.push(attribute);
                continue;
            }
            let value = || value(dir, name, &attribute).map(Option::unwrap_or_default);
            match rest {
                b"origin" => marks.origin = Some(Origin::read(&value()?)),
                b"opaque" => marks.is_opaque = value()? == b"y",
                b"redirect" => marks.redirect = Some(value()?),
                b"metacopy" => marks.is_metacopy = true,
                b"whiteout" => marks.is_whiteout = true,
                _ => {}
            }
            marks.own.push(attribute);
        }
        Ok(marks)
    }

    /// The extended attributes that the view shows.
    pub fn shown_attributes(&self, dir: &OpenDir, name: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let mut all = BTreeMap::new();
        for attribute in names(dir, name)? {
            if let Some(shown) = self.shown(&attribute)
                && let Some(value) = value(dir, name, &attribute)?
            {
                all.insert(shown.into_owned(), value);
            }
        }
        Ok(all)
    }

    /// Makes the attributes of an entry, whose path in the layer is `path`, those that the view shows. Gives what they
    /// were, where they were others.
    pub fn clear(&self, dir: &OpenDir, path: &[u8], name: &[u8], marks: &Marks) -> Result<Option<Cleared>> {
        if marks.are_none() {
            return Ok(None);
        }
        let link = dir.link(name);
        let mut cleared = Cleared { path: path.to_vec(), had: Vec::new(), shown: Vec::new() };
        for attribute in marks.own.iter().chain(&marks.escaped) {
            let Some(value) = value(dir, name, attribute)? else { continue };
            if let Some(shown) = self.shown(attribute) {
                lsetxattr(&link[..], &shown[..], &value, XattrFlags::empty()).on("setxattr", &dir.path_of(name))?;
                cleared.shown.push(shown.into_owned());
            }
            lremovexattr(&link[..], &attribute[..]).on("removexattr", &dir.path_of(name))?;
            cleared.had.push((attribute.clone(), value));
        }
        Ok(Some(cleared))
    }
}

/// What overlayfs had written on an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cleared {
    path: Vec<u8>,
    had: Vec<(Vec<u8>, Vec<u8>)>,
    /// What was written in the place of some.
    shown: Vec<Vec<u8>>,
}

impl Cleared {
    /// Writes it again.
    pub fn restore(&self, upper: &Tree<'_>) -> Result<()> {
        let (above, name) = crate::host::split(&self.path);
        let Some(dir) = upper.dir(above)? else { return Ok(()) };
        let link = dir.link(name);
        for attribute in &self.shown {
            lremovexattr(&link[..], &attribute[..]).on("removexattr", &dir.path_of(name))?;
        }
        for (attribute, value) in &self.had {
            lsetxattr(&link[..], &attribute[..], value, XattrFlags::empty()).on("setxattr", &dir.path_of(name))?;
        }
        Ok(())
    }
}

/// Makes a call that says so where the buffer is too small.
fn whole(mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut few = [0; MANY];
    match call(&mut few) {
        Ok(length) => Ok(few[..length].to_vec()),
        Err(Errno::RANGE) => {
            let mut most = vec![0; MOST];
            let length = call(&mut most)?;
            most.truncate(length);
            Ok(most)
        }
        Err(errno) => Err(errno),
    }
}

fn names(dir: &OpenDir, name: &[u8]) -> Result<Vec<Vec<u8>>> {
    let link = dir.link(name);
    let list = match whole(|buf| llistxattr(&link[..], buf)) {
        Err(Errno::OPNOTSUPP) => Vec::new(),
        list => list.on("listxattr", &dir.path_of(name))?,
    };
    Ok(list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

fn value(dir: &OpenDir, name: &[u8], attribute: &[u8]) -> Result<Option<Vec<u8>>> {
    let link = dir.link(name);
    match whole(|buf| lgetxattr(&link[..], attribute, buf)) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(errno).on("getxattr", &dir.path_of(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_read() {
        let value = b"\x00\xfb\x1d\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xbf\x86R\x005\xd4\x15\x86";
        let handle = FileHandle { kind: 1, bytes: b"\xbf\x86R\x005\xd4\x15\x86".to_vec() };
        let origin = Origin::read(value);
        assert_eq!(origin, Origin::Handle(handle.clone()));
        assert!(origin.is(Some(&handle)));
        assert!(!origin.is(None));
        assert!(!origin.is(Some(&FileHandle { kind: 2, ..handle })));
    }

    #[test]
    fn what_is_no_handle_is_unknown() {
        for value in [&b""[..], b"\x00\xfb\x15\x00\x01", b"\x01\xfb\x05\x00\x01", &[0; 29], &[0xfb; 300]] {
            assert_eq!(Origin::read(value), Origin::Unknown, "{value:?}");
        }
        assert!(!Origin::Unknown.is(None));
    }

    #[test]
    fn names_are_shown_as_the_view_shows_them() {
        let reader = Reader::new("trusted");
        assert_eq!(reader.shown(b"user.a").as_deref(), Some(&b"user.a"[..]));
        assert_eq!(reader.shown(b"trusted.overlay.opaque"), None);
        assert_eq!(reader.shown(b"trusted.overlay.overlay.opaque").as_deref(), Some(&b"trusted.overlay.opaque"[..]));
        assert_eq!(reader.shown(b"user.overlay.opaque").as_deref(), Some(&b"user.overlay.opaque"[..]));
    }
}
