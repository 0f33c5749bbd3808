//! The worlds by name: media, host file system, and what is broken on purpose.

use std::sync::Arc;

use wholly::site;
use wholly_media::PersistenceDomain;
use wholly_sim::{HostModel, Medium, Mutation, MutationKind, PmemMode, SimConfig};

/// A named world: `pmem`, or with a mutation `pmem@lane.commit-fence=drop-order`.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The name, the mutation included.
    pub name: String,
    /// The rules.
    pub sim: Arc<SimConfig>,
}

/// Broken on purpose: the host does not tell when an object was born.
pub(crate) const NO_BIRTHS: &str = "births=none";

/// Every world without a mutation, and what it is.
pub const ALL: &[(&str, &str)] = &[
    ("pmem", "persistent memory, every word by itself; weak host file system"),
    ("pmem-x86", "persistent memory as x86 orders its stores; weak host file system"),
    ("pmem-eadr", "persistent memory behind eADR as x86 orders its stores; weak host file system"),
    ("pmem-ext4", "persistent memory, every word by itself; ext4"),
    ("pmem-sync", "persistent memory, every word by itself; synchronous host file system"),
    ("disk", "a disk of 512-byte sectors; weak host file system"),
    ("disk-4k", "a disk of 4096-byte sectors; weak host file system"),
    ("disk-ext4", "a disk of 512-byte sectors; ext4"),
    ("disk-sync", "a disk of 512-byte sectors; synchronous host file system"),
    ("disk-sectors", "a disk of 512-byte sectors; weak host file system whose pages tear between sectors"),
    (
        "disk-torn",
        "the log on a disk of 512-byte sectors that tear, with old, zero or random tails; files on persistent memory",
    ),
    ("pmem-over-disk", "the log on persistent memory, files on a disk; weak host file system"),
];

impl Setting {
    /// The world with this name.
    pub fn find(name: &str) -> Option<Setting> {
        let (base, mutation) = match name.split_once('@') {
            Some((base, mutation)) => (base, Some(mutation)),
            None => (name, None),
        };
        let x86 = |domain| Medium::Pmem { domain, mode: PmemMode::X86 };
        let pmem = |host| SimConfig { host, ..SimConfig::pmem() };
        let disk = |host| SimConfig { host, ..SimConfig::disk() };
        let on = |medium| SimConfig { log: medium, home: medium, ..SimConfig::default() };
        let mut sim = match base {
            "pmem" => pmem(HostModel::Weak),
            "pmem-x86" => on(x86(PersistenceDomain::MemoryController)),
            "pmem-eadr" => on(x86(PersistenceDomain::CpuCaches)),
            "pmem-ext4" => pmem(HostModel::Ext4Ordered),
            "pmem-sync" => pmem(HostModel::Synchronous),
            "disk" => disk(HostModel::Weak),
            "disk-4k" => on(Medium::Disk { sector: 4096 }),
            "disk-ext4" => disk(HostModel::Ext4Ordered),
            "disk-sync" => disk(HostModel::Synchronous),
            "disk-sectors" => SimConfig { home_page: 512, ..disk(HostModel::Weak) },
            // Not the files: a home sector that tears into zeros takes bytes with it that no group wrote and no log
            // holds.
            "disk-torn" => SimConfig { tearing: true, log: Medium::DISK, ..pmem(HostModel::Weak) },
            "pmem-over-disk" => SimConfig { log: Medium::PMEM, ..disk(HostModel::Weak) },
            _ => return None,
        };
        sim.log_len = 0;
        match mutation {
            Some(NO_BIRTHS) => sim.births = false,
            Some(mutation) => sim.mutations.push(parse_mutation(mutation)?),
            None => {}
        }
        Some(Setting { name: name.into(), sim: Arc::new(sim) })
    }

    /// The world with this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> Setting {
        Setting::find(name).unwrap_or_else(|| panic!("no world is called {name:?}"))
    }

    /// Bytes of a log segment: the fewest that make sense.
    pub fn segment_bytes(&self) -> u64 {
        match self.sim.log {
            Medium::Disk { sector } => u64::from(sector * 4).max(4096),
            Medium::Pmem { .. } => 4096,
        }
    }

    /// This world with something broken.
    pub fn broken(&self, mutation: Mutation) -> Setting {
        let name = format!("{}@{}={}", self.name, mutation.site.0, word(mutation.kind));
        Setting { name, sim: Arc::new(SimConfig { mutations: vec![mutation], ..(*self.sim).clone() }) }
    }
}

/// The word for what is broken.
pub fn word(kind: MutationKind) -> &'static str {
    match kind {
        MutationKind::DropOrder => "drop-order",
        MutationKind::DropWrite => "drop-write",
        MutationKind::DelayWrite => "delay-write",
        MutationKind::Late => "late",
        MutationKind::Split => "split",
        MutationKind::Fail(_) => "fail",
    }
}

pub(crate) fn parse_mutation(text: &str) -> Option<Mutation> {
    let (site, kind) = text.split_once('=')?;
    let sites = site::ALL.iter().copied().chain(wholly_volume::sites());
    let sites = sites.chain(crate::blocks::Kind::ALL.into_iter().flat_map(crate::blocks::Kind::sites));
    let sites = sites.chain(crate::ccnvme::sites());
    let site = { sites }.find(|known| known.0 == site)?;
    use MutationKind::{DelayWrite, DropOrder, DropWrite, Late, Split};
    let kinds = [DropOrder, DropWrite, DelayWrite, Late, Split];
    let kind = kinds.into_iter().find(|known| word(*known) == kind)?;
    Some(Mutation::new(site, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for (name, _) in ALL {
            assert_eq!(&Setting::named(name).name, name);
        }
        let broken = Setting::named("disk").broken(Mutation::new(site::BATCH_WRITE, MutationKind::DropOrder));
        assert_eq!(broken.name, "disk@batch.write=drop-order");
        assert_eq!(Setting::named(&broken.name).sim.mutations, broken.sim.mutations);
        assert!(Setting::find("disk@nonsense=drop-order").is_none());
    }
}
