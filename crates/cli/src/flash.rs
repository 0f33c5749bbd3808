//! Simulated flash disks in files: `wholly flash init`, `stat`, `check` and `salvage`. Every figure is a model's.

use crate::args::{FlashArgs, FlashInitArgs, FlashSalvageArgs, FlashVerb};
use crate::error::{Exit, Failure};
use crate::new_file::NewFile;
use crate::output::{Name, Ui, count, size};
use rustix::io::Errno;
use serde::Serialize;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wholly::Error;
use wholly_blocks::xftl::{self, Device, Flash, OverRegion, PAGE, Profile, Programs};
use wholly_blocks::{Lba, Tag, TxDevice};
use wholly_media::disk::DiskRegion;
use wholly_media::{Region, Site};
use wholly_volume::FlashFile;

const MADE: Site = Site("flash.init.length");

/// Runs `wholly flash`.
pub fn run(args: &FlashArgs, ui: &Ui) -> Result<Exit, Failure> {
    match &args.verb {
        FlashVerb::Init(args) => init(args, ui),
        FlashVerb::Stat(args) => {
            let flash = look("flash stat", &args.file)?;
            let found = xftl::stat(flash.chip()).map_err(|error| failure("flash stat", &args.file, error))?;
            ui.emit("flash", &Stat::of(&args.file, &found), text)?;
            Ok(if found.damage.is_empty() { Exit::DONE } else { Exit::DAMAGED })
        }
        FlashVerb::Check(args) => {
            let flash = look("flash check", &args.file)?;
            let report = xftl::check(flash.chip()).map_err(|error| failure("flash check", &args.file, error))?;
            let exit = if report.faults.is_empty() { Exit::DONE } else { Exit::DAMAGED };
            let checked = Checked { file: Name::from(&*args.file), pages: report.right, faults: report.faults };
            ui.emit("flash", &checked, |checked| {
                let faults: String = checked.faults.iter().map(|fault| format!("{fault}\n")).collect();
                let pages = count(checked.pages, "page");
                format!("{faults}{}: {pages} right, {}\n", checked.file, count(checked.faults.len() as u64, "fault"))
            })?;
            Ok(exit)
        }
        FlashVerb::Salvage(args) => salvage(args, ui),
    }
}

/// These verbs take the file itself.
fn check_name(verb: &str, path: &Path) -> Result<(), Failure> {
    match path.as_os_str().as_bytes().strip_prefix(b"flash:") {
        None => Ok(()),
        Some(file) => {
            let file = Path::new(std::ffi::OsStr::from_bytes(file)).display();
            Err(Failure::new(format!("{verb} {}", path.display()), "flash: names the volume in a flash file")
                .advice(format!("name the file itself, {file}, or ./{} if that is its name", path.display()))
                .exit(Exit::USAGE))
        }
    }
}

fn init(args: &FlashInitArgs, ui: &Ui) -> Result<Exit, Failure> {
    check_name("flash init", &args.file)?;
    let what = || format!("flash init {}", args.file.display());
    let profile = Profile::by_name(&args.profile).expect("the command line knows the profiles");
    let (geometry, config) = profile.plan(args.bytes).map_err(|error| failure("flash init", &args.file, error))?;
    let made = NewFile::make(&args.file).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            let is_file = std::fs::symlink_metadata(&args.file).is_ok_and(|found| found.is_file());
            let advice = match is_file {
                true => "remove it first",
                false => {
                    "name a file that does not exist; a flash disk is made in a file, which may be copied to a device"
                }
            };
            Failure::new(what(), "it is there already").advice(advice)
        }
        _ => Failure::new(what(), error),
    })?;
    let make = || -> wholly::Result<()> {
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| wholly_media::Error::new("getrandom", "id of the flash disk", errno))?;
        let name = args.file.display().to_string();
        let file = made.file.try_clone().map_err(|error| {
            wholly_media::Error::new("dup", &name, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        // The lock stands on the description that both have.
        if !wholly_media::lock_file(file.as_fd(), &name)? {
            return Err(Error::Busy(name, "another process has it open: it was made just now".into()));
        }
        let region: Arc<dyn Region> = Arc::new(DiskRegion::open(file.into(), name)?);
        region.extend(MADE, OverRegion::bytes(&geometry))?;
        let flash: Arc<dyn Flash> = OverRegion::create(region, geometry, id)?;
        Device::format(&flash, &config, id)
    };
    if let Err(error) = make() {
        made.remove();
        return Err(failure("flash init", &args.file, error));
    }
    drop(made);
    let flash = look("flash init", &args.file)?;
    let found = xftl::stat(flash.chip()).map_err(|error| failure("flash init", &args.file, error))?;
    ui.emit("flash", &Stat::of(&args.file, &found), text)?;
    Ok(Exit::DONE)
}

/// Copies what can be read, and makes holes of the rest: the copy has a volume that `fsck` repairs.
fn salvage(args: &FlashSalvageArgs, ui: &Ui) -> Result<Exit, Failure> {
    let what = || format!("flash salvage to {}", args.to.display());
    let failed = |error| failure("flash salvage", &args.file, error);
    let flash = look("flash salvage", &args.file)?;
    let device = Device::open_to_read(flash.chip()).map_err(failed)?;
    let made = NewFile::make(&args.to);
    let made = made.map_err(|error| Failure::new(what(), error).advice("name a file that does not exist"))?;
    let to = &made.file;
    let (blocks, done) = (device.guarantees().blocks, AtomicU64::new(0));
    let copy = || -> Result<Vec<Lost>, Failure> {
        let no_room = |error| Failure::new(what(), error);
        to.set_len(blocks * PAGE as u64).map_err(no_room)?;
        let (mut lost, mut page) = (Vec::new(), [0; PAGE]);
        for block in 0..blocks {
            done.store(block, Ordering::Relaxed);
            match device.read(None, Lba(block), &mut page) {
                Ok(()) if page.iter().all(|byte| *byte == 0) => {}
                Ok(()) => to.write_all_at(&page, block * PAGE as u64).map_err(no_room)?,
                Err(Error::Corrupt { place, fault }) => Lost::note(&mut lost, block, &place, fault),
                Err(error) => return Err(failed(error)),
            }
        }
        to.sync_all().map_err(no_room)?;
        Ok(lost)
    };
    let so_far = || format!("{} of {blocks} blocks", done.load(Ordering::Relaxed));
    let lost = ui.telling("copying the flash disk", so_far, copy).inspect_err(|_| made.remove())?;
    let exit = if lost.is_empty() { Exit::DONE } else { Exit::DAMAGED };
    let salvaged = Salvaged { file: Name::from(&*args.file), to: Name::from(&*args.to), blocks, lost };
    ui.emit("flash", &salvaged, |Salvaged { file, to, blocks, lost }| {
        let mut text: String = lost.iter().map(Lost::text).collect();
        let gone: u64 = lost.iter().map(|lost| lost.count).sum();
        text += &format!("{file}: {} of {blocks} copied to {to}\n", count(blocks - gone, "block"));
        if gone > 0 {
            text += &format!("the others are zeros there; `wholly fsck -y {to}` repairs a volume that is in it\n");
        }
        text
    })?;
    Ok(exit)
}

/// Opens a flash file that no process has open, to read it.
fn look(verb: &str, path: &Path) -> Result<FlashFile, Failure> {
    check_name(verb, path)?;
    FlashFile::open(path).map_err(|error| failure(verb, path, error))
}

fn failure(verb: &str, path: &Path, error: Error) -> Failure {
    let what = format!("{verb} {}", path.display());
    match error {
        Error::Corrupt { place, fault } => {
            Failure::new(what, format!("{place} is damaged: {fault}")).exit(Exit::DAMAGED)
        }
        Error::Invalid(why) | Error::Unsupported(why) | Error::Busy(_, why) => Failure::new(what, why),
        error => Failure::new(what, error),
    }
}

#[derive(Serialize)]
struct Checked {
    file: Name,
    pages: u64,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Salvaged {
    file: Name,
    to: Name,
    blocks: u64,
    lost: Vec<Lost>,
}

/// Blocks one after the other that cannot be read, for one reason.
#[derive(Serialize)]
struct Lost {
    first: u64,
    count: u64,
    /// Of the first.
    place: String,
    fault: String,
}

impl Lost {
    fn note(all: &mut Vec<Lost>, block: u64, place: &str, fault: String) {
        match all.last_mut() {
            Some(last) if last.first + last.count == block && last.fault == fault => last.count += 1,
            _ => all.push(Lost { first: block, count: 1, place: place.into(), fault }),
        }
    }

    fn text(&self) -> String {
        let Lost { count: pages, place, fault, .. } = self;
        match pages {
            1 => format!("{place}: {fault}\n"),
            more => format!("{place}, and {} after it: {fault}\n", count(more - 1, "page")),
        }
    }
}

#[derive(Serialize)]
struct Stat {
    file: Name,
    profile: String,
    /// No device has these commands: all figures are a model's.
    model: bool,
    bytes: u64,
    mapped_bytes: u64,
    channels: u32,
    erase_blocks: u32,
    pages_per_block: u32,
    opens: u32,
    programs: Causes,
    erases: u64,
    wear: Wear,
    /// What the last open has dropped of unfinished transactions, in blocks.
    dropped: Tags,
    /// What the next open would drop.
    unfinished: Tags,
    damage: Vec<String>,
}

#[derive(Serialize)]
struct Causes {
    data: u64,
    plain: u64,
    map: u64,
    chain: u64,
    collection: u64,
}

#[derive(Serialize)]
struct Wear {
    fewest: u32,
    most: u32,
}

#[derive(Serialize)]
struct Tags {
    data: u64,
    inode: u64,
    map: u64,
    directory: u64,
    bitmap: u64,
}

impl Tags {
    fn of(counts: &[u64; Tag::ALL.len()]) -> Tags {
        let [data, inode, map, directory, bitmap] = *counts;
        Tags { data, inode, map, directory, bitmap }
    }

    fn text(&self) -> String {
        let Tags { data, inode, map, directory, bitmap } = self;
        format!("{data} data, {inode} inode, {map} map, {directory} directory, {bitmap} bitmap")
    }
}

impl Stat {
    fn of(path: &Path, found: &xftl::Stat) -> Stat {
        let Programs { data, plain, map, chain, collection, erases } = found.programs;
        Stat {
            file: Name::from(path),
            profile: found.config.name(),
            model: true,
            bytes: u64::from(found.config.logical) * PAGE as u64,
            mapped_bytes: found.mapped * PAGE as u64,
            channels: found.geometry.channels,
            erase_blocks: found.geometry.blocks,
            pages_per_block: found.geometry.pages,
            opens: found.incarnation,
            programs: Causes { data, plain, map, chain, collection },
            erases,
            wear: Wear { fewest: found.wear.0, most: found.wear.1 },
            dropped: Tags::of(&found.dropped),
            unfinished: Tags::of(&found.unfinished),
            damage: found.damage.clone(),
        }
    }
}

fn text(stat: &Stat) -> String {
    let Causes { data, plain, map, chain, collection } = &stat.programs;
    let mut text = format!(
        "{}\n  profile      {}, a model: no device has these commands\n  size         {}, {} mapped\n",
        stat.file,
        stat.profile,
        size(stat.bytes),
        size(stat.mapped_bytes)
    );
    text += &format!(
        "  chip         {} channels, {} erase blocks of {} pages\n  opened       {}\n",
        stat.channels,
        stat.erase_blocks,
        stat.pages_per_block,
        count(stat.opens.into(), "time")
    );
    text += &format!(
        "  programs     {data} data, {plain} plain, {map} map, {chain} chain, {collection} collection (model)\n"
    );
    text += &format!("  erases       {}; of a block {} to {} (model)\n", stat.erases, stat.wear.fewest, stat.wear.most);
    text += &format!("  dropped      {} blocks, by the last open\n", stat.dropped.text());
    text += &format!("  unfinished   {} blocks\n", stat.unfinished.text());
    stat.damage.iter().for_each(|damage| text += &format!("  damage       {damage}\n"));
    text
}
