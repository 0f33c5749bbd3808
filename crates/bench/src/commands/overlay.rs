//! The kernel's overlayfs by itself, mounted over a directory as `wholly run` has it: what of the cost of such a view
//! is not ours.

use crate::Result;
use crate::place::path_str;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// See the head of this module.
pub(super) struct Overlay<'a> {
    dir: &'a Path,
    /// The directory of the layers, on the same file system.
    layers: PathBuf,
    is_mounted: bool,
}

impl<'a> Overlay<'a> {
    /// Over `dir`, with new layers beside it.
    pub fn mount(dir: &'a Path) -> Result<Overlay<'a>> {
        let mut overlay = Overlay { dir, layers: dir.with_extension("layers"), is_mounted: false };
        overlay.clear()?;
        let (upper, work) = (overlay.layers.join("upper"), overlay.layers.join("work"));
        std::fs::create_dir_all(&upper)?;
        std::fs::create_dir(&work)?;
        let (upper, work) = (path_str(&upper)?, path_str(&work)?);
        let options = "volatile,redirect_dir=on,index=on,metacopy=on,xino=auto";
        overlay.mount_as(&format!("lowerdir={},upperdir={upper},workdir={work},{options}", path_str(dir)?))?;
        Ok(overlay)
    }

    /// Nobody uses it any more.
    pub fn unmount(&mut self) -> Result<()> {
        rustix::mount::unmount(self.dir, UnmountFlags::empty())?;
        self.is_mounted = false;
        Ok(())
    }

    /// Has `judge` look at what it has shown, once more, and removes the layers.
    pub fn show_to(mut self, judge: impl FnOnce() -> Result<()>) -> Result<()> {
        // As two layers below: above, the kernel takes back none that was `volatile`.
        let layers = format!("lowerdir={}:{}", path_str(&self.layers.join("upper"))?, path_str(self.dir)?);
        self.mount_as(&format!("{layers},redirect_dir=follow,metacopy=on"))?;
        let judged = judge();
        self.unmount()?;
        self.clear()?;
        judged
    }

    fn mount_as(&mut self, options: &str) -> Result<()> {
        let data = CString::new(options)?;
        rustix::mount::mount("overlay", self.dir, "overlay", MountFlags::empty(), data.as_c_str())
            .map_err(|errno| format!("overlayfs on {}: {errno}", self.dir.display()))?;
        self.is_mounted = true;
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.layers) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Overlay<'_> {
    /// Where something has failed.
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = rustix::mount::unmount(self.dir, UnmountFlags::DETACH);
        }
    }
}
