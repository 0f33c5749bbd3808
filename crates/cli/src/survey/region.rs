//! A file as a region that nobody can write to.

use rustix::io::Errno;
use std::sync::Arc;
use wholly_host::HostFile;
use wholly_media::{Error, Guarantees, Kind, PersistenceDomain, Region, Result, Site};

/// The log, for reading.
pub struct ReadOnly {
    file: Arc<dyn HostFile>,
    len: u64,
    guarantees: Guarantees,
}

impl ReadOnly {
    /// The bytes that `file` has now.
    pub fn new(file: Arc<dyn HostFile>) -> Result<ReadOnly> {
        let len = file.stat()?.size;
        // Called a disk whatever it is on, so that readers fetch a segment at once.
        let guarantees = Guarantees {
            kind: Kind::Disk,
            atomic_unit: 512,
            block: 512,
            domain: PersistenceDomain::Device,
            emulated: false,
            description: "for reading only".into(),
        };
        Ok(ReadOnly { file, len, guarantees })
    }

    fn refused<T>(&self) -> Result<T> {
        Err(Error::new("write", ".wholly/log", Errno::ROFS))
    }
}

impl Region for ReadOnly {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.len
    }

    /// Zeros stand for what the file does not have any more: its owner may have made it shorter.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.file.read_at(offset, buf)?;
        buf[read..].fill(0);
        Ok(())
    }

    fn write(&self, _site: Site, _offset: u64, _data: &[u8]) -> Result<()> {
        self.refused()
    }

    fn fence(&self, _site: Site) -> Result<()> {
        self.refused()
    }

    fn write_through(&self, _site: Site, _offset: u64, _data: &[u8]) -> Result<()> {
        self.refused()
    }

    fn set_len(&self, _site: Site, _len: u64) -> Result<()> {
        self.refused()
    }
}
