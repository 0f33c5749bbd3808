//! Stores over real directories: making one, opening one.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use wholly_changes::origin_of;
use wholly_host::{
    Claim, HOME, HomeError, HostDir, HostOptions, Inherit, Level, OwnerBits, StoreHome, Support, Trust, mount::Served,
};

use crate::error::{Error, Result};
use crate::hostdir::{ByPath, Options, Ownership, Store, is_temporary};

/// The log's file in the store's folder.
pub(crate) const LOG: &str = "log";
/// The file in the store's folder that says that it is a guest.
pub(crate) const GUEST: &str = "guest";

impl Store {
    /// Makes the directory `dir` a store: creates the folder `.wholly` in it. When this returns, the store survives a
    /// power failure; a crash before that leaves none. The files in the directory stay as they are, and are synced. If
    /// the directory is a [temporary store](Self::init_temporary), that store is recovered and becomes a
    /// [permanent](Self::keep) one, with the log that it has.
    ///
    /// # Errors
    /// - [`Error::AlreadyAStore`].
    /// - [`Error::Unsupported`]: the file system cannot carry a store, or the directory is in a mount of a store.
    ///   [`Support`] has the reasons, and lists what is weaker than promised on file systems that are accepted.
    /// - Errors of the file system, `ENOSPC` among them.
    pub fn init(dir: impl AsRef<Path>, options: &Options) -> Result<()> {
        Self::init_with(dir, options, HostOptions::default())
    }

    /// Like [`init`](Self::init), with a choice of the medium.
    ///
    /// # Errors
    /// Those of [`init`](Self::init).
    pub fn init_with(dir: impl AsRef<Path>, options: &Options, host: HostOptions) -> Result<()> {
        let dir = dir.as_ref();
        if Self::is_temporary_in(dir)? {
            let options = Options { background: false, ..options.clone() };
            return Self::open_with(dir, options, host)?.keep();
        }
        Self::make(dir, options, host, false)
    }

    /// Makes the directory `dir` a *temporary store*. It is for a program that needs a store only while it runs, and
    /// [removes](Self::remove) the store at its end. If the program dies first, [`is_temporary`](Self::is_temporary)
    /// tells the next one that it may recover and remove the store, unless it has [parked groups](Self::parked).
    ///
    /// When this returns, the temporary store survives a power failure. A crash before that leaves no store, or a
    /// temporary one.
    ///
    /// # Errors
    /// Those of [`init`](Self::init). [`Error::AlreadyAStore`] also if there is a temporary store already.
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("wholly-doc-guest-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// wholly::Store::init_temporary(&dir, &wholly::Options::default())?;
    /// let store = wholly::Store::open(&dir)?;
    /// let mut group = store.begin();
    /// group.mkdir("a", 0o755)?;
    /// group.commit()?;
    /// if store.is_temporary()? && store.parked()?.is_empty() {
    ///     store.remove()?; // an ordinary directory again
    /// }
    /// # assert!(!dir.join(".wholly").exists() && dir.join("a").exists());
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn init_temporary(dir: impl AsRef<Path>, options: &Options) -> Result<()> {
        Self::make(dir.as_ref(), options, HostOptions::default(), true)
    }

    /// Whether the directory `dir` is a [temporary store](Self::init_temporary). A process may have it open.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn is_temporary_in(dir: impl AsRef<Path>) -> Result<bool> {
        let host = HostDir::open(dir.as_ref(), HostOptions::default())?;
        is_temporary(&host)
    }

    fn make(dir: &Path, options: &Options, host: HostOptions, is_temporary: bool) -> Result<()> {
        let host = Arc::new(HostDir::open(dir, host)?);
        if StoreHome::exists(&host)? {
            return Err(Error::AlreadyAStore(dir.display().to_string()));
        }
        let support = Support::probe(&host)?;
        if support.level == Level::Refused {
            let Support { file_system, reasons, .. } = &support;
            let why = format!("a store on {file_system}: {}; {}", reasons.join("; "), Support::advice());
            return Err(Error::unsupported(why));
        }
        let mut volume_id = [0u8; 16];
        rustix::rand::getrandom(&mut volume_id[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| wholly_media::Error::new("getrandom", "volume id", errno))?;
        let mut failed = None;
        // What is there already is to survive, too, and does: what a power failure took back of a file would be a
        // conflict with the log's updates.
        let made = StoreHome::create(&host, |home| {
            if is_temporary {
                home.create_mark(GUEST)?;
            }
            let region = home.create_region(LOG)?;
            let made =
                origin_of(&**home.dir()).and_then(|origin| Store::format_in(&*region, options, volume_id, origin));
            made.map_err(|error| {
                let errno = Errno::from_raw_os_error(error.errno());
                failed = Some(error);
                wholly_media::Error::new("format", LOG, errno)
            })
        });
        match (made, failed) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(error)) => Err(error),
            (Err(HomeError::Media(error)), None) if error.errno == Errno::EXIST => {
                Err(Error::AlreadyAStore(dir.display().to_string()))
            }
            // There is no such name to be had.
            (Err(HomeError::Media(error)), None) if error.errno == Errno::PERM && host.served().is_some() => {
                Err(mounted(&host, dir))
            }
            (Err(error), None) => Err(home_error(error, dir)),
        }
    }

    /// Opens the store in `dir`, recovers it, and keeps it for this process. When this returns, everything that was
    /// committed before a crash is there again, and survives the next one.
    ///
    /// # Errors
    /// - [`Error::NotAStore`].
    /// - [`Error::Busy`]: another process has the store open, and the text names it; or the store waits for the
    ///   decision of another store that cannot be found ([`Store::commit_together`]).
    /// - [`Error::Untrusted`]: another user can have written to the store's folder.
    /// - [`Error::Copied`]: the store is a copy with updates in its log.
    /// - [`Error::Corrupt`].
    /// - [`Error::Unsupported`]: another version of Wholly made the store; or `dir` is in a mount of a store, or in the
    ///   view of `wholly run`. Use [`MountGroup`](crate::MountGroup) there.
    pub fn open(dir: impl AsRef<Path>) -> Result<Store> {
        Self::open_with(dir, Options::default(), HostOptions::default())
    }

    /// Opens the store in `dir` as [`open`](Self::open) does. Where there is none it is made first, and the directory
    /// too if only that is missing: both survive a crash when this returns. After a crash before, there may be the
    /// directory without a store.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), [`init`](Self::init) and `mkdir`.
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly::Result<()> {
    /// # let above = std::env::temp_dir().join(format!("wholly-doc-open-or-create-{}", std::process::id()));
    /// # std::fs::create_dir_all(&above).unwrap();
    /// # let dir = above.join("accounts");
    /// let store = wholly::Store::open_or_create(&dir)?;
    /// let mut group = store.begin();
    /// let alice = group.open_or_create("alice", 0o640)?;
    /// group.append(&alice, b"+ 30\n")?;
    /// group.commit()?;
    /// store.close()?;
    /// # std::fs::remove_dir_all(&above).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_or_create(dir: impl AsRef<Path>) -> Result<Store> {
        Self::open_or_create_with(dir, Options::default(), HostOptions::default())
    }

    /// Like [`open_or_create`](Self::open_or_create), with options, on a medium of the caller's choice.
    ///
    /// # Errors
    /// Those of [`open_or_create`](Self::open_or_create).
    pub fn open_or_create_with(dir: impl AsRef<Path>, options: Options, host: HostOptions) -> Result<Store> {
        let dir = dir.as_ref();
        let failed = |errno| wholly_media::Error::new("mkdir", dir.to_string_lossy(), errno);
        match rustix::fs::mkdir(dir.as_os_str().as_bytes(), Mode::from_raw_mode(0o777)) {
            Ok(()) => sync_parent(dir).map_err(failed)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno).into()),
        }
        match Self::init_with(dir, &options, host.clone()) {
            Ok(()) | Err(Error::AlreadyAStore(_)) => Self::open_with(dir, options, host),
            Err(error) => Err(error),
        }
    }

    /// Like [`open`](Self::open), with options, on a medium of the caller's choice. The segment size is the one that
    /// the store was made with.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_with(dir: impl AsRef<Path>, options: Options, host: HostOptions) -> Result<Store> {
        let dir = dir.as_ref();
        let host = Arc::new(HostDir::open(dir, host)?);
        let home = StoreHome::open(&host, trust_of(&options)).map_err(|error| match home_error(error, dir) {
            Error::NotAStore(_) if host.served().is_some() => mounted(&host, dir),
            // There is a store, of which something is missing.
            Error::NotAStore(_) if StoreHome::exists(&host).unwrap_or(false) => gone("lock"),
            error => error,
        })?;
        Owned::open(home, dir, options)
    }
}

/// The name of a directory that was just made survives when this returns.
fn sync_parent(dir: &Path) -> rustix::io::Result<()> {
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::open(above.as_os_str().as_bytes(), flags, Mode::empty())?)
}

/// The folder of a store that is open, and what it takes to open it once more.
struct Owned {
    home: StoreHome,
    dir: PathBuf,
    options: Options,
}

impl Owned {
    /// Opens the store whose folder is `home`, and gives that up where it cannot.
    fn open(home: StoreHome, dir: &Path, options: Options) -> Result<Store> {
        home.clear_unnamed()?;
        if options.accept_copy {
            home.make_private()?;
        }
        let region = home.open_region(LOG).map_err(|error| match error.errno {
            Errno::NOENT => gone(LOG),
            _ => error.into(),
        })?;
        let host = Arc::new(OwnerBits::open(home.dir().clone())?);
        let owned = Owned { home, dir: dir.to_path_buf(), options: options.clone() };
        let neighbours = Arc::new(ByPath::of(owned.home.dir().clone(), trust_of(&options)));
        Store::open_among(region, host, options, Some(Box::new(owned)), Some(neighbours))
    }
}

impl Inherit for Owned {
    type Heir = Store;

    fn what(&self) -> &'static str {
        "the store"
    }

    fn claim(&self) -> &Arc<Claim> {
        self.home.owner().claim()
    }

    fn take_over(&self) -> Result<Store> {
        let home = self.home.inherit().map_err(|error| home_error(error, &self.dir))?;
        // Whoever opened it has asked for that once.
        Self::open(home, &self.dir, Options { release: false, ..self.options.clone() })
    }
}

impl Ownership for Owned {
    fn dir(&self) -> &Arc<HostDir> {
        self.home.dir()
    }

    fn remove(self: Box<Self>) -> Result<()> {
        let Owned { home, dir, .. } = *self;
        home.remove().map_err(|error| home_error(error, &dir))
    }
}

pub(crate) fn trust_of(options: &Options) -> Trust {
    if options.trust_owner { Trust::Anybody } else { Trust::Own }
}

/// The directory `dir` and the folder of the store in it, for calls that only look.
pub(crate) fn look(dir: &Path) -> Result<Arc<HostDir>> {
    let host = HostDir::open(dir, HostOptions::default())?;
    Ok(Arc::new(StoreHome::look(&host).map_err(|error| home_error(error.into(), dir))?))
}

/// What a store's folder lacks.
fn gone(name: &str) -> Error {
    Error::corrupt(format!("{HOME}/{name}"), "it is gone")
}

/// Why a directory that a mount shows cannot be opened, or made a store: that store has a process already.
fn mounted(host: &HostDir, dir: &Path) -> Error {
    let what = match host.served() {
        Some(Served::View) => "in a view of `wholly run`: all changes of that command are one group",
        _ => "a mount of a store, which another process has open",
    };
    Error::Unsupported(format!(
        "{} is {what}; for groups there, use `MountGroup` (in C, `wholly_mount_begin`) on a descriptor",
        dir.display()
    ))
}

pub(crate) fn home_error(error: HomeError, dir: &Path) -> Error {
    match error {
        HomeError::Busy(busy) => Error::Busy(
            dir.display().to_string(),
            match busy.pid {
                Some(pid) => format!("process {pid} has the store open"),
                None => "another process has the store open".into(),
            },
        ),
        HomeError::Untrusted(why) => Error::Untrusted { dir: dir.display().to_string(), why },
        HomeError::Media(error) if error.errno == Errno::NOENT => Error::NotAStore(dir.display().to_string()),
        HomeError::Media(error) => Error::Media(error),
    }
}
