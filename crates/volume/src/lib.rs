//! Wholly's own file system: the *volume*.
//!
//! A store keeps ordinary files, so a checkpoint copies what was logged. A volume has its own block maps: an engine can
//! swap a pointer instead. `docs/volume-format.md` describes the bytes on media, `docs/volume.md` what users see.
//!
//! # Terms
//!
//! - *core*: the file system (`fs/`): inodes, directories, maps, allocators. *Engine*: decides when and how changes
//!   become permanent (`engine/`): `none` gives no consistency after a crash, the others keep each group wholly or
//!   not at all.
//! - *operation*: a logical change of metadata ([`engine::Operation`]). *Mutator*: the function that makes the change
//!   in the bytes on the medium, through a [`engine::StorageView`] that the engine provides.
//! - *storage version*: metadata on the medium. *Memory version*: metadata as running calls see it.
//! - *group*: the operations of one call, or of an explicit group (`fs/explicit.rs`). *Reservation*: blocks set aside
//!   for a group. *Draft*: what a group has changed and the engine has not stored yet.
//! - *structure change*: growth of the inode file, split or merge of directory leaves: a group of its own.
//! - *stream*, *map*, *leaf*, *key*, *live word*: see `format/`.
//!
//! # Invariants
//!
//! 1. Metadata on the medium changes through mutators only (`fs/storage.rs`); each proves itself by a checksum.
//! 2. A group reserves, at its calls, all blocks that its mutators take: a mutator never meets `ENOSPC`.
//! 3. A block that a group frees is not given out before the group has ended (`Group::settle`).
//! 4. A structure change is complete before the operation that needs it is recorded, and is never undone.
//! 5. Each block below the volume's size is exactly one of: superblock, log, free, data of one (inode, block), map
//!    node, directory leaf, extended attributes, inode file. `check` proves it.
//! 6. An inode in use has a name, or a reference; one without either is freed, at the latest by the next mount.
//! 7. A directory has one name, in the directory that its inode calls its parent.
//! 8. Locks are taken in this order: rename, parent directories (ancestors first, else by number), other inodes by
//!    number, inode growth, shard of the inode cache (held while an inode is read), zone of an allocator, known leaves
//!    of a directory.
//! 9. Memory: the inode cache, what is known of leaves and maps, and the page cache have bounds in bytes; allocators
//!    take one bit a block or inode. No directory is ever held whole.
//! 10. `engine` imports nothing of `fs`, and `fs` no engine but through the trait (`tests/all/volume/borders.rs`).
//!
//! | module | contents |
//! |---|---|
//! | [`format`] | the bytes on media |
//! | [`engine`] | the trait, its words, and the engines |
//! | `fs` | the core |
//! | `vfs` | [`VolumeVfs`]: the trait `Vfs` over the core |
//! | `medium` | what a path names: a file, a device, or a flash disk in a file |
//! | `make` | [`Volume`]: making one, and over what |
//! | `open` | [`Volume`]: opening and checking volumes |
//! | `look` | [`Volume`]: what can be seen of one from outside |
//! | `owner` | which process has a volume open |
//! | `fork` | which one goes on with it after `fork` |
//! | `policy` | [`PolicyVfs`]: implicit groups of several calls; the crate `epochs` has the rules |
//!
//! ```
//! # fn main() -> wholly_error::Result<()> {
//! # let path = std::env::temp_dir().join(format!("wholly-doc-volume-{}", std::process::id()));
//! use wholly_volume::{Volume, VolumeOptions};
//!
//! Volume::format(&path, 1 << 20, &VolumeOptions::default())?;
//! let volume = Volume::open(&path, &VolumeOptions::default())?;
//! let file = volume.create_file("a", 0o644)?;
//! file.write_at(0, b"new")?; // durable
//! let mut group = volume.begin();
//! group.write_at(&file, 0, b"old")?;
//! group.rename("a", "b", wholly_vfs::Rename::NoReplace)?;
//! group.commit()?; // durable, both or nothing
//! # assert_eq!(volume.read_file("b")?, b"old");
//! # drop(file);
//! volume.close()?;
//! # assert_eq!(Volume::check(&path)?.findings, []);
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[doc(hidden)]
pub mod engine;
mod fork;
#[doc(hidden)]
pub mod format;
#[allow(missing_docs, reason = "internal")]
mod fs;
mod look;
mod make;
mod medium;
mod open;
mod owner;
mod policy;
mod vfs;

pub use engine::hybrid_log::WriteBack;
pub use engine::kind::{DataMode, EngineKind};
#[doc(hidden)]
pub use engine::{DurableAt, Holds, Reached};
pub use engine::{Mistake, Trial};
pub use fs::check::{Checked, Finding, Progress};
pub use fs::dump::{DumpedEntry, DumpedInode, DumpedMap, Extent, MapNode, SuperblockCopy};
pub use fs::repair::{Mended, Repair};
pub use look::{Free, VolumeInfo};
#[doc(hidden)]
pub use medium::FlashFile;
pub use medium::{Kind, Location, Medium};
pub use open::{Dumped, Object, Repaired, Volume, VolumeCalls, VolumeFile, VolumeGroup, VolumeOptions, VolumeStat};
pub use policy::PolicyVfs;
pub use vfs::VolumeVfs;

/// The places of a repair that change or order bytes on the medium.
pub fn repair_sites() -> Vec<wholly_media::Site> {
    fs::repair::SITES.to_vec()
}

/// All others.
pub fn sites() -> Vec<wholly_media::Site> {
    let mut sites = Vec::new();
    for site in EngineKind::ALL.iter().flat_map(|engine| [sites_of_core(*engine), engine.sites()].concat()) {
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    sites
}

/// Those of the core, on a volume with this engine.
pub fn sites_of_core(engine: EngineKind) -> Vec<wholly_media::Site> {
    let of_bitmaps = if engine.keeps_bitmaps() { fs::storage::BITMAP_SITES } else { &[] };
    [fs::sites(), of_bitmaps.to_vec()].concat()
}
