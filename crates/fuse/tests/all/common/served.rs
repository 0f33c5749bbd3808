//! Any [`Vfs`] that is mounted, and the volumes that tests mount.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Scratch;
use super::counting::Counting;
use wholly::{Options, Store, StoreVfs};
use wholly_fuse::{Mount, MountOptions, Unmounter};
use wholly_vfs::{Groups, Policy};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

/// What is below a mount, and closes after it.
enum Below {
    Volume(Volume),
    Store(Store),
}

/// See the module.
pub struct Served {
    below: Option<Below>,
    server: Option<JoinHandle<std::io::Result<()>>>,
    unmounter: Unmounter,
    point: Scratch,
    home: Scratch,
    reads: Arc<AtomicU64>,
}

/// The kernel believes what it knows for as long as a test takes: what it is not told to forget it goes on telling.
fn for_long() -> MountOptions {
    MountOptions { threads: 3, valid: Duration::from_secs(3600), suid: true, dev: true, ..MountOptions::default() }
}

impl Served {
    fn new(vfs: Arc<dyn Groups>, below: Below, home: Scratch, options: &MountOptions) -> Result<Served, String> {
        let point = Scratch::new();
        let (vfs, reads) = Counting::over(vfs);
        let mount = Mount::new(vfs, point.path(), options).map_err(|error| format!("mount: {error}"))?;
        let unmounter = mount.unmounter();
        let server = std::thread::spawn(move || mount.serve());
        Ok(Served { below: Some(below), server: Some(server), unmounter, point, home, reads })
    }

    /// A volume in a file in memory. Each call is whole if the policy is given, as with `wholly mount`.
    pub fn volume(engine: EngineKind, policy: Option<Policy>) -> Result<Served, String> {
        let home = Scratch::new();
        let image = home.path().join("volume");
        let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
        Volume::format(&image, 96 << 20, &options).expect("make a volume");
        Served::volume_again(home, policy)
    }

    /// A volume that is there.
    pub fn volume_again(home: Scratch, policy: Option<Policy>) -> Result<Served, String> {
        let volume = Volume::open(&home.path().join("volume"), &VolumeOptions::default()).expect("open it");
        let vfs: Arc<dyn Groups> = match policy {
            None | Some(Policy::PerOp) => Arc::new(VolumeVfs::new(&volume)),
            Some(policy) => Arc::new(PolicyVfs::new(&volume, policy).expect("its engine has groups")),
        };
        let (syncs_on_close, whole_writes) = (policy == Some(Policy::PerSync), policy == Some(Policy::PerOp));
        let options = MountOptions { owns_content: true, syncs_on_close, whole_writes, ..for_long() };
        Served::new(vfs, Below::Volume(volume), home, &options)
    }

    /// A store, mounted elsewhere.
    pub fn store(policy: Policy) -> Result<Served, String> {
        let (home, options) = (Scratch::new(), Options { policy, ..Options::default() });
        Store::init(home.path(), &options).expect("make a store");
        let store = Store::open_with(home.path(), options, Default::default()).expect("open a store");
        let vfs = Arc::new(StoreVfs::new(&store));
        let (syncs_on_close, whole_writes) = (policy == Policy::PerSync, policy == Policy::PerOp);
        Served::new(vfs, Below::Store(store), home, &MountOptions { syncs_on_close, whole_writes, ..for_long() })
    }

    pub fn point(&self) -> &Path {
        self.point.path()
    }

    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.path().join(name)
    }

    /// Read requests of the kernel so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Unmounts it, and sees that what was below is sound.
    pub fn end(mut self) -> Scratch {
        let mut tries = 0..12_000;
        while let Err(error) = self.unmounter.unmount() {
            assert!(error.raw_os_error() == Some(16) && tries.next().is_some(), "nobody uses it: {error}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server.take().expect("it serves").join().expect("a thread").expect("the kernel was answered to the end");
        match self.below.take().expect("it is there until the end") {
            Below::Store(store) => store.close().expect("nothing stands against it"),
            Below::Volume(volume) => {
                volume.close().expect("nothing stands against it");
                let checked = Volume::check(&self.home.path().join("volume")).expect("check it");
                assert_eq!((&checked.findings[..], checked.is_clean, checked.orphans), (&[][..], true, 0));
            }
        }
        std::mem::replace(&mut self.home, Scratch::new())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A test has failed: whoever waits for it is not to wait for ever.
            let _ = rustix::mount::unmount(self.point.path(), rustix::mount::UnmountFlags::DETACH);
            if !std::thread::panicking() {
                let _ = server.join();
            }
        }
    }
}
