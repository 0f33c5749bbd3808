//! What a running group does to names.

use wholly_media::{DirEntry, Rename, Stat};

use super::Running;
use crate::error::{Error, Result};

impl Running {
    pub fn mkdir(&mut self, _path: &[u8], _mode: u32) -> Result<()> {
        Err(Error::unsupported("mkdir"))
    }
    pub fn mknod(&mut self, _path: &[u8], _mode: u32, _rdev: u64) -> Result<()> {
        Err(Error::unsupported("mknod"))
    }
    pub fn symlink(&mut self, _target: &[u8], _path: &[u8]) -> Result<()> {
        Err(Error::unsupported("symlink"))
    }
    pub fn link(&mut self, _from: &[u8], _to: &[u8]) -> Result<()> {
        Err(Error::unsupported("link"))
    }
    pub fn unlink(&mut self, _path: &[u8]) -> Result<()> {
        Err(Error::unsupported("unlink"))
    }
    pub fn rmdir(&mut self, _path: &[u8]) -> Result<()> {
        Err(Error::unsupported("rmdir"))
    }
    pub fn rename(&mut self, _from: &[u8], _to: &[u8], _how: Rename) -> Result<()> {
        Err(Error::unsupported("rename"))
    }
    pub fn metadata(&mut self, _path: &[u8]) -> Result<Stat> {
        Err(Error::unsupported("metadata"))
    }
    pub fn read_link(&mut self, _path: &[u8]) -> Result<Vec<u8>> {
        Err(Error::unsupported("read_link"))
    }
    pub fn read_dir(&mut self, _path: &[u8]) -> Result<Vec<DirEntry>> {
        Err(Error::unsupported("read_dir"))
    }
}
