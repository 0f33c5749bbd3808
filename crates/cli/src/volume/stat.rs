//! The state of a volume, for people and for udev: nothing is changed, and it may be mounted.

use super::failure;
use crate::error::{Exit, Failure};
use crate::mounted::{self, Mount};
use crate::output::{Name, Ui, count, print, size};
use serde::Serialize;
use std::path::Path;
use wholly_volume::{DataMode, Free, Volume, VolumeInfo};

#[derive(Serialize)]
pub struct Stat {
    volume: Name,
    /// The UUID.
    volume_id: String,
    label: String,
    /// The version of the format.
    version: u32,
    engine: &'static str,
    /// What the engine does with content; null where there is one way.
    data: Option<&'static str>,
    medium: String,
    pub emulated: bool,
    /// How often it was opened, by whatever command.
    opens: u64,
    /// Whether it was unmounted.
    clean: bool,
    in_use_by: Option<String>,
    /// Where it is mounted.
    mount: Option<Mount>,
    block_bytes: u64,
    pub blocks: u64,
    /// What is free; null where only the process that has it open knows, or the next one.
    free_blocks: Option<u64>,
    inodes: Option<u64>,
    free_inodes: Option<u64>,
}

impl Stat {
    /// Looks at a volume, for a verb.
    pub fn of(verb: &str, path: &Path) -> Result<Stat, Failure> {
        let info = Volume::look(path).map_err(|error| failure(verb, path, error))?;
        let VolumeInfo { volume_id, label, version, engine, data, medium, emulated, .. } = info;
        let VolumeInfo { block_bytes, blocks, opens, is_clean, in_use_by, free, .. } = info;
        let mount = mounted::mount_of(path);
        let free = free.or_else(|| {
            let mount = mount.as_ref()?;
            Some(Free { blocks: mount.free_bytes / block_bytes, inodes: mount.inodes, free_inodes: mount.free_inodes })
        });
        Ok(Stat {
            volume: Name::from(path),
            volume_id: uuid(&volume_id),
            label,
            version,
            engine: engine.name(),
            data: data.map(DataMode::name),
            medium,
            emulated,
            opens,
            clean: is_clean,
            in_use_by,
            mount,
            block_bytes,
            blocks,
            free_blocks: free.map(|free| free.blocks),
            inodes: free.map(|free| free.inodes),
            free_inodes: free.map(|free| free.free_inodes),
        })
    }

    /// Bytes of the volume.
    pub fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    pub fn engine(&self) -> &'static str {
        self.engine
    }

    /// The first line of what its maker is told.
    pub fn made(&self) -> String {
        let Stat { volume, engine, medium, .. } = self;
        format!("{volume} is a volume of {}, engine {engine}, on {medium}\n", size(self.bytes()))
    }
}

/// A volume id as it is written: five groups of hexadecimal digits.
pub fn uuid(id: &[u8; 16]) -> String {
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]).join("-")
}

/// Shows a volume.
pub fn stat(path: &Path, ui: &Ui) -> Result<Exit, Failure> {
    ui.emit("stat", &Stat::of("stat", path)?, text)?;
    Ok(Exit::DONE)
}

fn text(stat: &Stat) -> String {
    let label = if stat.label.is_empty() { "none" } else { &stat.label };
    let data = stat.data.map(|mode| format!(", data {mode}")).unwrap_or_default();
    let mut text = format!(
        "{}\n  volume id    {}\n  label        {label}\n  engine       {}{data}\n  medium       {}\n",
        stat.volume, stat.volume_id, stat.engine, stat.medium
    );
    let user = match &stat.in_use_by {
        Some(process) => format!("{process}; the figures are of this moment"),
        None => "no process".into(),
    };
    text += &format!("  in use by    {user}\n");
    if let Some(mount) = &stat.mount {
        text += &format!("  mounted at   {}\n{}", mount.mount, mount.text());
    }
    text += &format!("  opened       {}\n", count(stat.opens, "time"));
    let [free, inodes] = match (stat.free_blocks, stat.inodes, stat.free_inodes) {
        (Some(blocks), Some(inodes), Some(free)) => {
            [format!("{} free", size(blocks * stat.block_bytes)), format!("{inodes}, {free} free")]
        }
        _ if stat.in_use_by.is_some() => ["only that process knows how much is free".into(), "not known".into()],
        _ => ["what is free is known once a mount has recovered it".into(), "not known".into()],
    };
    text + &format!("  size         {}, {free}\n  inodes       {inodes}\n", size(stat.bytes()))
}

/// Prints what udev's own rules import of file systems that libblkid knows.
pub fn udev(path: &Path) -> Result<Exit, Failure> {
    let Stat { volume_id, label, version, .. } = Stat::of("stat", path)?;
    let mut text = format!("ID_FS_TYPE=wholly\nID_FS_USAGE=filesystem\nID_FS_VERSION={version}\n");
    for (key, value) in [("ID_FS_UUID", &volume_id), ("ID_FS_LABEL", &label)].into_iter().filter(|it| !it.1.is_empty())
    {
        text += &format!("{key}={}\n{key}_ENC={}\n", encoded(value, |_| "_".into()), encoded(value, hex));
    }
    print(text.as_bytes()).map(|()| Exit::DONE)
}

/// A value as udev has it in names of links: but for characters that are harmless there, each byte is replaced.
fn encoded(value: &str, other: impl Fn(u8) -> String) -> String {
    let is_harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&byte);
    value.bytes().map(|byte| if is_harmless(byte) { char::from(byte).into() } else { other(byte) }).collect()
}

fn hex(byte: u8) -> String {
    format!("\\x{byte:02x}")
}
