//! From a path to an object, as Linux walks (path_resolution(7)): part by part, through symbolic links.

use std::borrow::Cow;

use super::{Errno, FileType};

/// The most symbolic links that one walk follows (`ELOOP`).
pub const LINKS_MAX: u32 = 40;

/// Where a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At what the path names, or what that links to.
    Followed,
    /// At what the path names. Slashes at the end follow it all the same.
    Itself,
}

/// How a walk gets from one object to the next.
pub trait Steps {
    /// An object.
    type Object;
    /// Why there is no way.
    type Error;

    /// The type of an object.
    fn kind(&self, object: &Self::Object) -> FileType;

    /// The object that has the name `name` in the directory `dir`. `.` is the directory itself, `..` its parent.
    ///
    /// # Errors
    /// If there is none.
    fn step(&self, dir: &Self::Object, name: &[u8]) -> Result<Self::Object, Self::Error>;

    /// The target of a symbolic link; `None` if the link is gone: then the step to it is made again.
    ///
    /// # Errors
    /// If it may not be followed.
    fn target(&self, link: &Self::Object) -> Result<Option<Vec<u8>>, Self::Error>;

    /// Where absolute symbolic links begin.
    ///
    /// # Errors
    /// If they lead nowhere.
    fn root(&self) -> Result<Self::Object, Self::Error>;

    /// What is said when the walk itself finds no way.
    fn refused(&self, errno: Errno) -> Self::Error;
}

/// Returns the target of a link that is followed, and counts it.
///
/// # Errors
/// `ELOOP` for too many; `ENOENT` for an empty one.
pub fn target<S: Steps>(steps: &S, links: &mut u32, link: &S::Object) -> Result<Option<Vec<u8>>, S::Error> {
    *links += 1;
    if *links > LINKS_MAX {
        return Err(steps.refused(Errno::LOOP));
    }
    match steps.target(link)? {
        Some(target) if target.is_empty() => Err(steps.refused(Errno::NOENT)),
        target => Ok(target),
    }
}

/// Follows `path` from `start`, whether or not it begins with a slash. `links` counts the links of one call.
///
/// # Errors
/// `ENOTDIR` for a part behind another object than a directory; `ELOOP`; those of the steps.
pub fn follow<S: Steps>(
    steps: &S,
    links: &mut u32,
    start: S::Object,
    path: &[u8],
    end: End,
) -> Result<S::Object, S::Error> {
    let (mut here, mut rest, mut at) = (start, Cow::Borrowed(path), 0);
    while let Some((name, after)) = split(&rest[at..]) {
        if steps.kind(&here) != FileType::Directory {
            return Err(steps.refused(Errno::NOTDIR));
        }
        let next = steps.step(&here, name)?;
        let kind = steps.kind(&next);
        if kind == FileType::Symlink && (end == End::Followed || !after.is_empty()) {
            let Some(target) = target(steps, links, &next)? else { continue };
            if target.starts_with(b"/") {
                here = steps.root()?;
            }
            (rest, at) = (Cow::Owned([&target, after].concat()), 0);
            continue;
        }
        if kind != FileType::Directory && !after.is_empty() {
            return Err(steps.refused(Errno::NOTDIR));
        }
        at = rest.len() - after.len();
        here = next;
    }
    Ok(here)
}

/// The first name of a path, and what follows it: nothing, or a slash and more.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = &path[path.iter().position(|&byte| byte != b'/')?..];
    Some(path.split_at(path.iter().position(|&byte| byte == b'/').unwrap_or(path.len())))
}
