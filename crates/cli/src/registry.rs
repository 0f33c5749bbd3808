//! Which stores there are: what `wholly recover --all` goes through.
//!
//! A directory with a file for each store: its name is the store's volume id, it holds the store's absolute path and a
//! newline. A file appears and changes at once or not at all; what has another name is none of ours.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Names the directory; where it is empty, there is none.
pub const VARIABLE: &str = "WHOLLY_REGISTRY";

/// A user's registry of stores.
pub struct Registry {
    dir: PathBuf,
}

/// A registered store.
pub struct Entry {
    /// Which store it is.
    pub volume_id: String,
    /// Where it was when it was registered.
    pub dir: PathBuf,
    /// The file that says so.
    pub file: PathBuf,
}

impl Registry {
    /// The calling user's: the one that [`VARIABLE`] names; else the system's for the superuser, and the one below the
    /// user's state directory for others. `None` where there is none.
    pub fn of_user() -> Option<Registry> {
        let dir = dir_of(rustix::process::geteuid().is_root(), |name| std::env::var_os(name))?;
        Some(Registry { dir })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Remembers that the store is in `dir`, an absolute path, and no other store is. On return that survives a crash.
    pub fn add(&self, volume_id: &str, dir: &Path) -> io::Result<()> {
        // Its names are the ids of the stores, and its files tell where they are: no other user may read it.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700))?;
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.dir)?;
        file.write_all(&[dir.as_os_str().as_bytes(), b"\n"].concat())?;
        file.as_file().sync_all()?;
        file.persist(self.dir.join(volume_id))?;
        // What was here before was removed by other means than `wholly deinit`.
        for stale in self.entries()?.iter().filter(|entry| entry.dir == dir && entry.volume_id != volume_id) {
            fs::remove_file(&stale.file)?;
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Forgets the store, if it is known to be in `dir`: one that was copied is still where it was.
    pub fn remove(&self, volume_id: &str, dir: &Path) -> io::Result<()> {
        for entry in self.entries()?.iter().filter(|entry| entry.volume_id == volume_id && entry.dir == dir) {
            fs::remove_file(&entry.file)?;
            File::open(&self.dir)?.sync_all()?;
        }
        Ok(())
    }

    /// All stores, in the order of their paths.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let names = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            names => names?,
        };
        let mut entries = Vec::new();
        for name in names {
            let name = name?;
            let Some(volume_id) = name.file_name().to_str().filter(|name| is_volume_id(name)).map(str::to_owned) else {
                continue;
            };
            let file = name.path();
            let mut path = fs::read(&file)?;
            if path.pop_if(|last| *last == b'\n').is_some() && path.starts_with(b"/") {
                entries.push(Entry { volume_id, dir: OsString::from_vec(path).into(), file });
            }
        }
        entries.sort_by(|a, b| (&a.dir, &a.volume_id).cmp(&(&b.dir, &b.volume_id)));
        Ok(entries)
    }
}

fn dir_of(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(dir) = variable(VARIABLE) {
        return (!dir.is_empty()).then(|| dir.into());
    }
    if is_root {
        return Some("/var/lib/wholly/stores".into());
    }
    // A relative path is none, as the XDG directories have it.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("wholly/stores"))
}

fn is_volume_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn each_user_has_one() {
        let table: [(bool, Variables<'_>, Option<&str>); 7] = [
            (true, &[("HOME", "/root"), ("XDG_STATE_HOME", "/s")], Some("/var/lib/wholly/stores")),
            (false, &[("HOME", "/h")], Some("/h/.local/state/wholly/stores")),
            (false, &[("HOME", "/h"), ("XDG_STATE_HOME", "/s")], Some("/s/wholly/stores")),
            (false, &[("HOME", "/h"), ("XDG_STATE_HOME", "s")], Some("/h/.local/state/wholly/stores")),
            (false, &[], None),
            (true, &[("WHOLLY_REGISTRY", "r")], Some("r")),
            (true, &[("WHOLLY_REGISTRY", "")], None),
        ];
        for (is_root, variables, dir) in table {
            let variable = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).into());
            assert_eq!(dir_of(is_root, variable), dir.map(PathBuf::from), "{variables:?}");
        }
    }

    #[test]
    fn stores_are_known_by_id_and_place() {
        let scratch = tempfile::tempdir().expect("a directory");
        let registry = Registry { dir: scratch.path().join("not/there/yet") };
        let paths = || -> Vec<PathBuf> { registry.entries().expect("read").into_iter().map(|it| it.dir).collect() };
        assert!(paths().is_empty());
        let [one, two] = [1, 2].map(|n| format!("{n:032x}"));
        let odd = Path::new(std::ffi::OsStr::from_bytes(b"/new\n\xff\n"));
        registry.add(&one, Path::new("/b")).expect("add");
        registry.add(&two, odd).expect("add");
        assert_eq!(paths(), [Path::new("/b"), odd]);
        // Moved, over another that is gone.
        registry.add(&one, odd).expect("add");
        assert_eq!(paths(), [odd]);
        registry.remove(&one, Path::new("/b")).expect("a copy elsewhere is another matter");
        assert_eq!(paths(), [odd]);
        for (name, content) in [("README", "/a\n"), (".new-x", "/a\n"), (two.as_str(), "relative\n")] {
            fs::write(registry.dir().join(name), content).expect("write");
        }
        assert_eq!(paths(), [odd], "what is no entry is none");
        registry.remove(&one, odd).expect("remove");
        assert!(paths().is_empty());
    }
}
