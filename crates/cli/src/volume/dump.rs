//! `wholly dump` of a volume: superblocks, and one inode with its map, names and attributes.

use super::stat::uuid;
use super::{failure, patiently};
use crate::args::DumpArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui};
use rustix::fs::FileType;
use serde::Serialize;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use wholly::Error;
use wholly_volume::Volume;
use wholly_volume::format::inode::{Time, Times};
use wholly_volume::format::superblock::Superblock;
use wholly_volume::{DumpedEntry, DumpedInode, DumpedMap, Extent, MapNode, Object, SuperblockCopy};

#[derive(Serialize)]
struct Dump {
    volume: Name,
    superblocks: Vec<Slot>,
    inode: Option<Inode>,
}

#[derive(Serialize)]
struct Slot {
    block: u64,
    current: bool,
    fault: Option<&'static str>,
    volume_id: Option<String>,
    label: Option<Name>,
    blocks: Option<u64>,
    generation: Option<u64>,
    incarnation: Option<u64>,
    engine: Option<u32>,
    clean: Option<bool>,
    inodes: Option<u64>,
    inode_file_depth: Option<u8>,
    inode_file_blocks: Option<u64>,
    /// The block of the table of saved allocators.
    saved: Option<u64>,
}

#[derive(Serialize)]
struct Inode {
    inode: u64,
    /// Where its record is; null for the inode file.
    block: Option<u64>,
    offset: Option<usize>,
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    /// Permission bits.
    mode: Option<u32>,
    owner: Option<u32>,
    group: Option<u32>,
    links: Option<u32>,
    generation: Option<u32>,
    size: Option<u64>,
    access: Option<String>,
    modification: Option<String>,
    change: Option<String>,
    birth: Option<String>,
    parent: Option<u64>,
    device: Option<u64>,
    target: Option<Name>,
    content: Map,
    xattr_map: Map,
    xattrs: Vec<Xattr>,
    entries: Vec<Entry>,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Map {
    nodes: Vec<Node>,
    extents: Vec<Run>,
}

#[derive(Serialize)]
struct Node {
    level: u8,
    index: u64,
    block: u64,
}

#[derive(Serialize)]
struct Run {
    first: u64,
    block: u64,
    count: u64,
    reserved: bool,
}

#[derive(Serialize)]
struct Xattr {
    name: Name,
    bytes: usize,
}

#[derive(Serialize)]
struct Entry {
    name: Name,
    inode: u64,
    #[serde(rename = "type")]
    kind: &'static str,
    /// As text: programs that read numbers as floating point would lose bits of it.
    key: String,
    leaf: u64,
    block: u64,
    slot: usize,
}

/// Prints what stands on a volume that is not mounted.
pub fn dump(args: &DumpArgs, ui: &Ui) -> Result<Exit, Failure> {
    let what = || format!("dump {}", args.dir.display());
    if args.all || args.segment.is_some() {
        return Err(
            Failure::new(what(), "a volume has no segments; --all and --segment are for stores").exit(Exit::USAGE)
        );
    }
    let object = match (&args.path, args.inode) {
        (Some(path), _) => Some(Object::Path(path.as_os_str().as_bytes())),
        (None, Some(number)) => Some(Object::Inode(number)),
        (None, None) => None,
    };
    let dumped = patiently(|| Volume::dump(&args.dir, object)).map_err(|error| match error {
        Error::NotFound(missing) => Failure::new(what(), format!("{missing} is not there")),
        error => failure("dump", &args.dir, error),
    })?;
    let current = dumped.superblocks.iter().filter_map(|copy| copy.decoded.as_ref().ok()).map(|it| it.generation).max();
    let dump = Dump {
        volume: Name::from(&*args.dir),
        superblocks: dumped.superblocks.iter().map(|copy| slot(copy, current)).collect(),
        inode: dumped.inode.map(inode),
    };
    ui.emit("dump", &dump, text)?;
    let is_sound = dump.superblocks.iter().all(|slot| slot.fault.is_none())
        && dump.inode.as_ref().is_none_or(|inode| inode.faults.is_empty());
    Ok(if is_sound { Exit::DONE } else { Exit::DAMAGED })
}

fn slot(copy: &SuperblockCopy, current: Option<u64>) -> Slot {
    let it = copy.decoded.as_ref();
    let label = |it: &Superblock| Name::from(it.label.split(|byte| *byte == 0).next().unwrap_or_default());
    Slot {
        block: copy.block,
        current: it.is_ok_and(|it| Some(it.generation) == current),
        fault: it.err().map(|fault| fault.0),
        volume_id: it.ok().map(|it| uuid(&it.volume_id)),
        label: it.ok().map(label),
        blocks: it.ok().map(|it| it.blocks),
        generation: it.ok().map(|it| it.generation),
        incarnation: it.ok().map(|it| it.incarnation),
        engine: it.ok().map(|it| it.engine),
        clean: it.ok().map(|it| it.is_clean),
        inodes: it.ok().map(|it| it.inodes),
        inode_file_depth: it.ok().map(|it| it.inode_tree.depth),
        inode_file_blocks: it.ok().map(|it| it.inode_tree.blocks),
        saved: it.ok().and_then(|it| it.saved).map(|(at, _)| at.0),
    }
}

fn inode(it: DumpedInode) -> Inode {
    let time = |of: fn(&Times) -> Time| it.times.as_ref().map(|times| shown(of(times)));
    Inode {
        inode: it.ino,
        block: it.at.map(|(block, _)| block),
        offset: it.at.map(|(_, offset)| offset),
        kind: it.owned.map(|owned| if owned.mode == 0 { "free" } else { kind(owned.mode) }),
        mode: it.owned.map(|owned| owned.mode & 0o7777),
        owner: it.owned.map(|owned| owned.uid),
        group: it.owned.map(|owned| owned.gid),
        links: it.owned.map(|owned| owned.links),
        generation: it.owned.map(|owned| owned.generation),
        size: it.owned.map(|owned| owned.size),
        access: time(|times| times.atime),
        modification: time(|times| times.mtime),
        change: time(|times| times.ctime),
        birth: time(|times| times.btime),
        parent: it.more.map(|more| more.parent).filter(|parent| *parent != 0),
        device: it.more.map(|more| more.rdev).filter(|rdev| *rdev != 0),
        target: it.target.as_deref().map(Name::from),
        content: map(&it.content),
        xattr_map: map(&it.xattr_map),
        xattrs: it.xattrs.iter().map(|(name, value)| Xattr { name: Name::from(&**name), bytes: value.len() }).collect(),
        entries: it.entries.iter().map(entry).collect(),
        faults: it.faults,
    }
}

fn map(map: &DumpedMap) -> Map {
    let node = |MapNode { level, index, block }: &MapNode| Node { level: *level, index: *index, block: *block };
    let run = |it: &Extent| Run { first: it.first, block: it.block, count: it.count, reserved: it.reserved };
    Map { nodes: map.nodes.iter().map(node).collect(), extents: map.extents.iter().map(run).collect() }
}

fn entry(entry: &DumpedEntry) -> Entry {
    Entry {
        name: Name::from(&*entry.name),
        inode: entry.ino,
        kind: kind(u32::from(entry.kind) << 12),
        key: format!("{:016x}", entry.key),
        leaf: entry.leaf,
        block: entry.block,
        slot: entry.slot,
    }
}

fn kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "unknown",
    }
}

/// Seconds since the epoch, as `date -d` takes them.
fn shown(time: Time) -> String {
    format!("@{}.{:09}", time.sec, time.nsec)
}

fn text(dump: &Dump) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, dump);
    out
}

fn write_text(out: &mut String, dump: &Dump) -> std::fmt::Result {
    for slot in &dump.superblocks {
        write_slot(out, slot)?;
    }
    dump.inode.iter().try_for_each(|inode| write_inode(out, inode))
}

fn write_slot(out: &mut String, slot: &Slot) -> std::fmt::Result {
    write!(out, "superblock in block {}{}", slot.block, if slot.current { " (current)" } else { "" })?;
    let (None, Some(generation), Some(label)) = (slot.fault, slot.generation, &slot.label) else {
        return writeln!(out, ": {}", slot.fault.unwrap_or_default());
    };
    let number = |field: Option<u64>| field.unwrap_or_default();
    writeln!(out)?;
    writeln!(
        out,
        "  id {}  label {label:?}",
        slot.volume_id.as_deref().unwrap_or_default(),
        label = label.to_string()
    )?;
    writeln!(
        out,
        "  generation {generation}  incarnation {}  engine {}  {}",
        number(slot.incarnation),
        slot.engine.unwrap_or_default(),
        if slot.clean == Some(true) { "clean" } else { "not unmounted" },
    )?;
    writeln!(
        out,
        "  blocks {}  inodes {}  inode file of {} blocks, depth {}  saved allocators {}",
        number(slot.blocks),
        number(slot.inodes),
        number(slot.inode_file_blocks),
        slot.inode_file_depth.unwrap_or_default(),
        slot.saved.map_or("none".into(), |block| format!("in block {block}")),
    )
}

fn write_inode(out: &mut String, it: &Inode) -> std::fmt::Result {
    write!(out, "inode {}", it.inode)?;
    if let (Some(block), Some(offset)) = (it.block, it.offset) {
        write!(out, " in block {block}, byte {offset}")?;
    }
    writeln!(out)?;
    if let (Some(kind), Some(mode), Some(owner), Some(group)) = (it.kind, it.mode, it.owner, it.group) {
        writeln!(
            out,
            "  {kind} {mode:04o} of {owner}:{group}  links {}  generation {}  size {}",
            it.links.unwrap_or_default(),
            it.generation.unwrap_or_default(),
            it.size.unwrap_or_default(),
        )?;
    }
    if let (Some(access), Some(modification), Some(change), Some(birth)) =
        (&it.access, &it.modification, &it.change, &it.birth)
    {
        writeln!(out, "  access {access}  modification {modification}  change {change}  birth {birth}")?;
    }
    if let Some(parent) = it.parent {
        writeln!(out, "  parent {parent}")?;
    }
    if let Some(device) = it.device {
        writeln!(out, "  device {}:{}", rustix::fs::major(device), rustix::fs::minor(device))?;
    }
    if let Some(target) = &it.target {
        writeln!(out, "  -> {target}")?;
    }
    write_map(out, "content", &it.content)?;
    write_map(out, "attributes", &it.xattr_map)?;
    for Xattr { name, bytes } in &it.xattrs {
        writeln!(out, "  attribute {name}: {bytes} B")?;
    }
    let mut leaf = None;
    for entry in &it.entries {
        if leaf != Some(entry.leaf) {
            writeln!(out, "  leaf {:#x} in block {}", entry.leaf, entry.block)?;
            leaf = Some(entry.leaf);
        }
        writeln!(out, "    {:>2}  {}  {} {}  {}", entry.slot, entry.key, entry.kind, entry.inode, entry.name)?;
    }
    it.faults.iter().try_for_each(|fault| writeln!(out, "  damaged: {fault}"))
}

fn write_map(out: &mut String, what: &str, map: &Map) -> std::fmt::Result {
    for Node { level, index, block } in &map.nodes {
        writeln!(out, "  {what}: node {index} of level {level} in block {block}")?;
    }
    for Run { first, block, count, reserved } in &map.extents {
        let reserved = if *reserved { ", reserved" } else { "" };
        writeln!(
            out,
            "  {what}: blocks {first} to {} in {block} to {}{reserved}",
            first + count - 1,
            block + count - 1
        )?;
    }
    Ok(())
}
