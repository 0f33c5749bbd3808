//! A file that a command makes, and takes back if it fails.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat, unlinkat};

/// A new file, and where it was made. Only its owner may read or write it.
pub struct NewFile {
    /// Open to read and write.
    pub file: File,
    dir: OwnedFd,
    name: OsString,
}

impl NewFile {
    /// # Errors
    /// `AlreadyExists` if anything has the name, also a symbolic link to nothing; those of `open`.
    pub fn make(path: &Path) -> io::Result<NewFile> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name: &OsStr = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let dir = openat(CWD, above, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&dir, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(NewFile { file: file.into(), dir, name: name.to_owned() })
    }

    /// Removes it where it was made, wherever that directory is by now; what else has come to its name stays.
    pub fn remove(&self) {
        let (mine, there) = (fstat(&self.file), statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW));
        if let (Ok(mine), Ok(there)) = (mine, there)
            && (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
        {
            // What is left is told by the error that the command ends with.
            let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, read, rename, write};

    /// Whoever owns the directory may exchange it, or the file: what the command has not made is not touched.
    #[test]
    fn only_what_was_made_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        let is_there = |name: &str| path(name).exists();
        create_dir(path("dir")).expect("mkdir");
        NewFile::make(&path("dir/a")).expect("make it").remove();
        assert!(!is_there("dir/a"));

        let made = NewFile::make(&path("dir/a")).expect("make it");
        rename(path("dir"), path("old")).expect("rename");
        create_dir(path("dir")).expect("mkdir");
        write(path("dir/a"), "other").expect("write");
        made.remove();
        assert_eq!((is_there("old/a"), read(path("dir/a")).expect("read")), (false, b"other".to_vec()));

        let made = NewFile::make(&path("old/a")).expect("make it");
        rename(path("dir/a"), path("old/a")).expect("rename");
        made.remove();
        assert_eq!(read(path("old/a")).expect("read"), b"other");
        assert_eq!(NewFile::make(&path("old/a")).map(drop).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::os::unix::fs::symlink("nothing", path("link")).expect("symlink");
        assert_eq!(NewFile::make(&path("link")).map(drop).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
