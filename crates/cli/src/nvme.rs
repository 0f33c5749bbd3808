//! NVMe controllers with a persistent memory region: `wholly nvme probe`, `unfinished` and `tx`. The controller is a
//! model in this process, or QEMU's; each report says which.

use crate::args::{NvmeArgs, NvmeDevice, NvmeDeviceArgs, NvmeTxArgs, NvmeVerb};
use crate::error::{Exit, Failure};
use crate::output::{Ui, count, print, size};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use wholly::Error;
use wholly_blocks::{BLOCK, Lba, Txid};
use wholly_nvme::model::{Model, RegionFile};
use wholly_nvme::qtest::{Qemu, QemuOptions};
use wholly_nvme::{Controller, DmaPage, Lease, Life, Options, Ticket, Transport, Window};

/// Volume id of raw transactions. No volume has it.
const RAW: [u8; 16] = *b"raw transactions";

/// Blocks that a script may fill at once.
const MOST_FILLED: u64 = 1 << 16;

/// Runs `wholly nvme`.
pub fn run(args: &NvmeArgs, ui: &Ui) -> Result<Exit, Failure> {
    match &args.verb {
        NvmeVerb::Probe(args) => probe(args, ui),
        NvmeVerb::Unfinished(args) => unfinished(args, ui),
        NvmeVerb::Tx(args) => transactions(args, ui),
    }
}

fn failure(verb: &str, device: &NvmeDevice, error: Error) -> Failure {
    let what = format!("nvme {verb} {device}");
    match error {
        Error::Invalid(why) | Error::Unsupported(why) | Error::Busy(_, why) | Error::NotFound(why) => {
            Failure::new(what, why)
        }
        error => Failure::new(what, error),
    }
}

fn open(device: &NvmeDevice) -> Result<Controller, Error> {
    let transport: Arc<dyn Transport> = match device.is_qemu {
        true => Qemu::start(&device.directory, &QemuOptions::default())?,
        false => Model::in_directory(&device.directory)?,
    };
    Controller::open(transport, Options::default())
}

/// What stands for hardware here.
fn kind(device: &NvmeDevice) -> &'static str {
    if device.is_qemu { "QEMU's controller, no hardware" } else { "a model in this process, no hardware" }
}

#[derive(Serialize)]
struct Probed {
    device: String,
    /// `model` or `qemu`: no figure of either is one of hardware.
    kind: &'static str,
    controller: String,
    blocks: u64,
    logical_block_bytes: u32,
    volatile_write_cache: bool,
    largest_transfer_bytes: u64,
    queue_pairs: u16,
    largest_queue_entries: u32,
    region_bytes: u64,
    /// `region`: queues for transactions stand in the persistent memory region. `none`: there are none.
    mode: &'static str,
    /// Why there are none.
    why: Option<String>,
    window: ShownWindow,
}

fn probe(args: &NvmeDeviceArgs, ui: &Ui) -> Result<Exit, Failure> {
    let device = &args.device;
    let controller = open(device).map_err(|error| failure("probe", device, error))?;
    let info = controller.info();
    let probed = Probed {
        device: device.to_string(),
        kind: if device.is_qemu { "qemu" } else { "model" },
        controller: info.controller.model.clone(),
        blocks: info.blocks,
        logical_block_bytes: info.lba_bytes,
        volatile_write_cache: info.controller.has_write_cache,
        largest_transfer_bytes: info.most_transfer,
        queue_pairs: info.granted,
        largest_queue_entries: info.most_entries,
        region_bytes: info.region_bytes,
        mode: if info.no_queues.is_none() { "region" } else { "none" },
        why: info.no_queues.clone(),
        window: ShownWindow::of(controller.window()),
    };
    ui.emit("nvme", &probed, |probed| {
        let mode = match &probed.why {
            None => "queues in the persistent memory region: a commit is two stores".into(),
            Some(why) => format!("none: {why}"),
        };
        let cache = if probed.volatile_write_cache { "volatile: writes of transactions are forced" } else { "none" };
        let lines = [
            ("controller", format!("{} ({})", probed.controller, kind(device))),
            ("blocks", format!("{} of 4 KiB, {}", probed.blocks, size(probed.blocks * BLOCK as u64))),
            ("logical blocks", format!("{} bytes", probed.logical_block_bytes)),
            ("write cache", cache.into()),
            ("transfers", format!("up to {}", size(probed.largest_transfer_bytes))),
            ("queues", format!("{} pairs, up to {} entries", probed.queue_pairs, probed.largest_queue_entries)),
            ("region", size(probed.region_bytes)),
            ("transactions", mode),
            ("window", probed.window.in_short()),
        ];
        let text: String = lines.iter().map(|(name, value)| format!("  {name:<16}{value}\n")).collect();
        format!("{}\n{text}", probed.device)
    })?;
    Ok(Exit::DONE)
}

/// What a window tells.
#[derive(Serialize)]
struct ShownWindow {
    /// Why nothing is known.
    unknown: Option<String>,
    /// The volume that it is of, in hexadecimal digits, and its incarnation.
    volume: Option<String>,
    incarnation: Option<u64>,
    queues: Vec<ShownQueue>,
}

#[derive(Serialize)]
struct ShownQueue {
    queue: usize,
    transactions: Vec<ShownTransaction>,
    /// Entries that had not arrived: nothing of them is on the medium.
    unreadable: u32,
}

#[derive(Serialize)]
struct ShownTransaction {
    number: u64,
    /// Whether its commit is there.
    committed: bool,
    /// First block and count of each run.
    blocks: Vec<(u64, u64)>,
}

impl ShownWindow {
    fn of(window: &Window) -> ShownWindow {
        let (life, found) = match window {
            Window::Unknown(why) => {
                let unknown = Some(why.clone());
                return ShownWindow { unknown, volume: None, incarnation: None, queues: Vec::new() };
            }
            Window::Known { life, queues } => (life, queues),
        };
        let transaction = |tx: &wholly_nvme::Unfinished| ShownTransaction {
            number: tx.txid.0,
            committed: tx.is_committed,
            blocks: tx.runs.iter().map(|run| (run.start.0, run.count)).collect(),
        };
        let queues = found.iter().enumerate().map(|(queue, window)| ShownQueue {
            queue,
            transactions: window.transactions.iter().map(transaction).collect(),
            unreadable: window.unreadable,
        });
        ShownWindow {
            unknown: None,
            volume: Some(life.volume.iter().map(|byte| format!("{byte:02x}")).collect()),
            incarnation: Some(life.incarnation),
            queues: queues.collect(),
        }
    }

    fn unfinished(&self) -> usize {
        self.queues.iter().map(|queue| queue.transactions.len()).sum()
    }

    fn in_short(&self) -> String {
        match &self.unknown {
            Some(why) => format!("unknown: {why}"),
            None => count(self.unfinished() as u64, "unfinished transaction"),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for queue in &self.queues {
            for tx in &queue.transactions {
                let run = |(start, count): &(u64, u64)| match count {
                    1 => format!("{start}"),
                    count => format!("{start}-{}", start + count - 1),
                };
                let blocks: Vec<String> = tx.blocks.iter().map(run).collect();
                let part = if tx.committed { "" } else { ", without its commit" };
                text +=
                    &format!("queue {}: transaction {}{part}: blocks {}\n", queue.queue, tx.number, blocks.join(" "));
            }
            if queue.unreadable > 0 {
                let (queue, entries) = (queue.queue, queue.unreadable);
                text += &format!(
                    "queue {queue}: {entries} slots whose entries had not arrived: nothing of these is on the medium\n"
                );
            }
        }
        text + &self.in_short() + "\n"
    }
}

fn unfinished(args: &NvmeDeviceArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error| failure("unfinished", &args.device, error);
    let region = RegionFile::open(&args.device.directory).map_err(failed)?;
    let window = ShownWindow::of(&Window::read(&region).map_err(failed)?);
    ui.emit("nvme", &window, ShownWindow::text)?;
    Ok(if window.unknown.is_none() && window.unfinished() == 0 { Exit::DONE } else { Exit::DAMAGED })
}

/// A line of a script.
enum Line {
    Write(u64, Box<[u8; BLOCK]>),
    Fill(u64, u64, u8),
    Queue(u16),
    Commit,
    Wait,
    Read(u64),
}

/// # Errors
/// What is wrong with the line.
fn parse(line: &str) -> Result<Option<Line>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
    let words: Vec<&str> = rest.split_whitespace().collect();
    Ok(Some(match (verb, &words[..]) {
        ("write", [block, ..]) => {
            let text = rest.trim_start().strip_prefix(block).unwrap_or_default();
            let text = text.strip_prefix(' ').unwrap_or(text).as_bytes();
            if text.len() > BLOCK {
                return Err(format!("{} bytes: a block has {BLOCK}", text.len()));
            }
            let mut bytes = Box::new([0; BLOCK]);
            bytes[..text.len()].copy_from_slice(text);
            Line::Write(number(block)?, bytes)
        }
        ("fill", [block, count, byte]) => {
            let byte = u8::try_from(number(byte)?).map_err(|_| format!("{byte} is no byte"))?;
            match number(count)? {
                count @ 1..=MOST_FILLED => Line::Fill(number(block)?, count, byte),
                count => return Err(format!("{count} blocks: from 1 to {MOST_FILLED} at once")),
            }
        }
        ("queue", [queue]) => Line::Queue(u16::try_from(number(queue)?).map_err(|_| format!("{queue} is no queue"))?),
        ("commit", []) => Line::Commit,
        ("wait", []) => Line::Wait,
        ("read", [block]) => Line::Read(number(block)?),
        _ => return Err(format!("{line:?} is no command; `wholly nvme tx --help` lists them")),
    }))
}

/// A script that is being done.
struct Script<'s> {
    controller: &'s Controller,
    lease: Option<Lease>,
    /// What was written and not committed.
    written: Vec<(u64, Vec<DmaPage>)>,
    waiting: Vec<Ticket>,
    next: u64,
    committed: u64,
}

impl Script<'_> {
    fn take(&mut self, queue: u16) -> Result<&mut Lease, Error> {
        if self.lease.as_ref().is_none_or(|lease| lease.queue() != queue) {
            self.lease = None;
            self.lease = self.controller.try_lease(queue)?;
        }
        Ok(self.lease.as_mut().expect("nobody else leases"))
    }

    fn page(&self, bytes: &[u8; BLOCK]) -> Result<DmaPage, Error> {
        let page = self.controller.page()?;
        page.write(0, bytes);
        Ok(page)
    }

    /// Does a line; returns what there is to tell.
    fn line(&mut self, line: &Line) -> Result<Option<String>, Error> {
        match line {
            Line::Write(block, bytes) => {
                let page = self.page(bytes)?;
                self.written.push((*block, vec![page]));
            }
            Line::Fill(block, count, byte) => {
                let page = self.page(&[*byte; BLOCK])?;
                self.written.push((*block, vec![page; *count as usize]));
            }
            Line::Queue(queue) => _ = self.take(*queue)?,
            Line::Commit => {
                let Some((last, pages)) = self.written.pop() else {
                    return Err(Error::Invalid("a commit without writes".into()));
                };
                let others = std::mem::take(&mut self.written);
                let blocks = others.iter().map(|(_, pages)| pages.len()).sum::<usize>() + pages.len();
                let number = self.next;
                let queue = self.lease.as_ref().map_or(0, Lease::queue);
                let lease = self.take(queue)?;
                others.iter().try_for_each(|(block, pages)| lease.write(Lba(*block), pages))?;
                let ticket = lease.commit(Txid(number), Lba(last), &pages)?;
                self.next += 1;
                self.committed += 1;
                self.waiting.push(ticket);
                let blocks = count(blocks as u64, "block");
                return Ok(Some(format!("transaction {number} on queue {queue}: {blocks}, atomic")));
            }
            Line::Wait => {
                let all = self.waiting.len() as u64;
                self.waiting.drain(..).try_for_each(|ticket| self.controller.wait(ticket))?;
                return Ok(Some(format!("{}: durable", count(all, "transaction"))));
            }
            Line::Read(block) => {
                let page = self.controller.page()?;
                self.controller.read(Lba(*block), std::slice::from_ref(&page))?;
                let mut bytes = [0; BLOCK];
                page.read(0, &mut bytes);
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                return Ok(Some(format!("block {block}: {}", bytes[..end].escape_ascii())));
            }
        }
        Ok(None)
    }
}

/// That no block is written by a transaction while another one that writes it may be in flight: the device does not
/// keep their order.
fn check_order(lines: &[(usize, Line)]) -> Result<(), String> {
    let (mut in_flight, mut own) = (BTreeSet::new(), BTreeSet::new());
    for (number, line) in lines {
        let (from, count) = match line {
            Line::Write(block, _) => (*block, 1),
            Line::Fill(block, count, _) => (*block, *count),
            Line::Commit => {
                in_flight.append(&mut own);
                continue;
            }
            Line::Wait => {
                in_flight.clear();
                continue;
            }
            Line::Queue(_) | Line::Read(_) => continue,
        };
        for block in from..from.saturating_add(count) {
            if in_flight.contains(&block) || !own.insert(block) {
                return Err(format!("line {number}: block {block} is written again; `commit` and `wait` come before"));
            }
        }
    }
    match own.is_empty() {
        true => Ok(()),
        false => Err("the script ends without a `commit` of what it has written".into()),
    }
}

fn transactions(args: &NvmeTxArgs, ui: &Ui) -> Result<Exit, Failure> {
    let device = &args.device;
    let failed = |error| failure("tx", device, error);
    let wrong = |why: String| Failure::new(format!("nvme tx {device}"), why).exit(Exit::USAGE);
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::new("nvme tx: the script", error))?;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let parsed = parse(line).map_err(|why| wrong(format!("line {number}: {why}")))?;
        lines.extend(parsed.map(|line| (number, line)));
    }
    check_order(&lines).map_err(wrong)?;
    let controller = open(device).map_err(failed)?;
    let blocks = controller.info().blocks;
    for (number, line) in &lines {
        let (Line::Write(block, _) | Line::Fill(block, ..) | Line::Read(block)) = line else { continue };
        let count = if let Line::Fill(_, count, _) = line { *count } else { 1 };
        if block.checked_add(count).is_none_or(|end| end > blocks) {
            return Err(wrong(format!("line {number}: block {block}+{count}: the device has {blocks}")));
        }
    }
    let incarnation = match controller.window() {
        Window::Known { life, queues } => {
            let left: usize = queues.iter().map(|queue| queue.transactions.len()).sum();
            let why = match left {
                _ if life.volume != RAW => Some("its region is in use by a volume".to_string()),
                0 => None,
                left => Some(format!("it has {}", count(left as u64, "unfinished transaction"))),
            };
            if let Some(why) = why.filter(|_| !args.forget) {
                let advice = format!("`wholly nvme unfinished {device}` lists them; --forget goes on without");
                return Err(Failure::new(format!("nvme tx {device}"), why).advice(advice));
            }
            life.incarnation + 1
        }
        Window::Unknown(_) => 1,
    };
    controller.start(Life { volume: RAW, incarnation }).map_err(failed)?;
    let mut script = Script {
        controller: &controller,
        lease: None,
        written: Vec::new(),
        waiting: Vec::new(),
        next: 1,
        committed: 0,
    };
    let mut done = lines.iter().try_for_each(|(number, line)| {
        // The line is of the script, not of the device.
        let told = script.line(line);
        let told = told.map_err(|error| failure(&format!("tx, line {number} of the script, on"), device, error))?;
        told.filter(|_| !ui.json).map_or(Ok(()), |told| print(format!("{told}\n").as_bytes()))
    });
    // What was committed before a line that failed is waited for, too.
    done = done.and(script.line(&Line::Wait).map(|_| ()).map_err(failed));
    let committed = script.committed;
    drop(script);
    done.and(controller.close().map_err(failed))?;
    let done = Done { device: device.to_string(), kind: if device.is_qemu { "qemu" } else { "model" }, committed };
    ui.emit("nvme", &done, |done| format!("{} durable ({})\n", count(done.committed, "transaction"), kind(device)))?;
    Ok(Exit::DONE)
}

#[derive(Serialize)]
struct Done {
    device: String,
    kind: &'static str,
    committed: u64,
}
