//! The example of `docs/volume.md`: content that is whole and in order before it is durable.

use std::sync::Arc;

use wholly_vfs::{Calls, Policy, Rename};
use wholly_volume::{PolicyVfs, Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let volume = Volume::open("v.img".as_ref(), &VolumeOptions::default())?;
    let calls = Calls::new(Arc::new(PolicyVfs::new(&volume, Policy::PerSync)?));

    let file = calls.create_file("name.new", 0o644)?;
    file.append(b"Hello")?;
    file.append(b" SOSP")?;
    file.fatomic()?; // a crash leaves both words or neither
    calls.rename("name.new", "name", Rename::Replace)?; // and the name has both; on return all of it is durable

    let mut group = volume.begin();
    let log = group.open_or_create("log", 0o644)?;
    group.append(&log, b"name has changed\n")?;
    group.commit_atomic()?; // after the rename, also in a crash
    volume.sync()?; // durable
    Ok(())
}
