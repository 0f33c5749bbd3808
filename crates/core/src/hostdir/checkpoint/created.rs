//! Files that groups create: their names are taken while the group runs, and durable before the tail passes it.

use std::sync::Arc;

use wholly_media::HostFs;

use super::Checkpointer;
use crate::error::{Error, Result};
use crate::hostdir::file::File;
use crate::hostdir::identity::Baseline;
use crate::hostdir::table::host_error;
use crate::site;

/// A file that a committed group created, until its name is durable.
pub(super) struct Created {
    pub file: Arc<File>,
    pub sequence: u64,
    pub linked: bool,
}

impl Created {
    /// Gives the file its name.
    pub fn link(&mut self, host: &dyn HostFs) -> Result<()> {
        host.link(site::CREATE_LINK, &*self.file.home, &self.file.path).map_err(|error| {
            if error.errno == rustix::io::Errno::EXIST {
                Error::Conflict { path: self.file.name(), change: "another file has taken its name".into() }
            } else {
                host_error(error, &self.file.path)
            }
        })?;
        self.linked = true;
        // The name was one more change of the file by us.
        self.file.home_state.lock().unwrap().baseline = Some(Baseline::of(&self.file.home.stat()?));
        Ok(())
    }
}

impl Checkpointer {
    /// A group is going to create `path`.
    pub fn claim_name(&self, path: &[u8], group: u64) -> Result<()> {
        let mut names = self.names.lock().unwrap();
        if let Some(owner) = names.get(path) {
            let owner = owner & 0xff_ffff_ffff;
            return Err(Error::Busy(
                String::from_utf8_lossy(path).into_owned(),
                format!("group {owner} has not ended"),
            ));
        }
        names.insert(path.to_vec(), group);
        Ok(())
    }

    pub fn release_name(&self, path: &[u8]) {
        self.names.lock().unwrap().remove(path);
    }

    /// A committed group created `file`: it gets its name now, and keeps it durably at the next checkpoint.
    pub fn add_created(&self, host: &Arc<dyn HostFs>, file: Arc<File>, sequence: u64) {
        let mut created = Created { file, sequence, linked: false };
        // The group is committed: where this fails, the next checkpoint tries again and reports it.
        let _ = created.link(&**host);
        self.release_name(&created.file.path);
        self.created.lock().unwrap().push(created);
    }

    /// Recovery found that a committed group created `file`.
    pub fn recover_created(&self, file: Arc<File>, sequence: u64, linked: bool) {
        self.created.lock().unwrap().push(Created { file, sequence, linked });
    }

    /// Created files that have no name yet.
    pub fn unlinked(&self) -> Vec<Arc<File>> {
        self.created
            .lock()
            .unwrap()
            .iter()
            .filter(|created| !created.linked)
            .map(|created| created.file.clone())
            .collect()
    }

    /// Gives created files that have no name yet their names.
    pub fn link_all(&self, host: &dyn HostFs) -> Result<()> {
        for created in self.created.lock().unwrap().iter_mut().filter(|created| !created.linked) {
            created.link(host)?;
        }
        Ok(())
    }
}
