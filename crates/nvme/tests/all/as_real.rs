//! One script on the model and on QEMU's controller: the same statuses, registers and blocks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wholly_blocks::Txid;
use wholly_media::Site;
use wholly_nvme::model::{Config, InMemory, Model};
use wholly_nvme::spec::{Command, Completion, Status, admin, cc, csts, io, pmr, register};
use wholly_nvme::{Memory, Transport};
use zerocopy::{FromBytes, IntoBytes};

use super::common::{device, has_qemu, start};

const STEP: Site = Site("test.step");
const IMAGE: u64 = 8 << 20;
const REGION: u64 = 64 << 10;

/// A ring pair, driven by hand.
struct Queue {
    id: u16,
    ring: Ring,
    completions: Arc<dyn Memory>,
    depth: u32,
    tail: u32,
    head: u32,
    phase: bool,
}

enum Ring {
    Memory(Arc<dyn Memory>),
    /// At this offset of the region.
    Region(u64),
}

/// A host that does what the script says, and writes down what it sees.
struct Host {
    transport: Arc<dyn Transport>,
    admin: Queue,
    seen: Vec<String>,
}

impl Queue {
    fn new(transport: &dyn Transport, id: u16, depth: u32) -> Queue {
        let ring = Ring::Memory(transport.memory(2).unwrap());
        Queue { id, ring, completions: transport.memory(2).unwrap(), depth, tail: 0, head: 0, phase: true }
    }

    fn address(&self, transport: &dyn Transport) -> u64 {
        match &self.ring {
            Ring::Memory(memory) => memory.address(),
            Ring::Region(offset) => transport.region().address() + offset,
        }
    }

    /// Puts an entry into its slot.
    fn put(&mut self, transport: &dyn Transport, command: &Command) {
        let at = u64::from(self.tail) * 64;
        match &self.ring {
            Ring::Memory(memory) => memory.write(at as usize, command.as_bytes()),
            Ring::Region(offset) => transport.region().store(STEP, offset + at, command.as_bytes()).unwrap(),
        }
        self.tail = (self.tail + 1) % self.depth;
    }

    fn ring(&self, transport: &dyn Transport) {
        transport.region().order(STEP);
        transport.write32(STEP, 0x1000 + 8 * u32::from(self.id), self.tail).unwrap();
    }

    /// The next completion, if it comes in time.
    fn next(&mut self, transport: &dyn Transport, patience: Duration) -> Option<Completion> {
        let begun = Instant::now();
        let deadline = transport.now() + patience;
        loop {
            let mut bytes = [0; 16];
            self.completions.read(16 * self.head as usize, &mut bytes);
            let completion = Completion::read_from_bytes(&bytes).unwrap();
            if completion.has_phase(self.phase) {
                self.head = (self.head + 1) % self.depth;
                self.phase ^= self.head == 0;
                transport.write32(STEP, 0x1004 + 8 * u32::from(self.id), self.head).unwrap();
                return Some(completion);
            }
            if transport.now() >= deadline && begun.elapsed() < Duration::from_secs(60) {
                return None;
            }
            transport.pause(self.id, deadline).unwrap();
        }
    }
}

/// As long as a real controller may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

impl Host {
    fn new(transport: Arc<dyn Transport>) -> Host {
        let admin = Queue::new(&*transport, 0, 32);
        Host { transport, admin, seen: Vec::new() }
    }

    fn note(&mut self, step: &str, seen: impl std::fmt::Display) {
        self.seen.push(format!("{step}: {seen}"));
    }

    fn register(&mut self, name: &str, at: u32) {
        let value = self.transport.read32(at).unwrap();
        self.note(name, format_args!("{value:#x}"));
    }

    fn write(&self, at: u32, value: u32) {
        self.transport.write32(STEP, at, value).unwrap();
    }

    /// Disables the controller.
    fn disable(&mut self) {
        self.write(register::CC, 0);
        self.until(csts::RDY, 0);
    }

    fn until(&self, mask: u32, value: u32) {
        let begun = Instant::now();
        while self.transport.read32(register::CSTS).unwrap() & mask != value {
            assert!(begun.elapsed() < PATIENCE, "CSTS");
        }
    }

    fn enable(&mut self) {
        self.admin = Queue::new(&*self.transport, 0, 32);
        let ring = self.admin.address(&*self.transport);
        self.write(register::AQA, 31 | 31 << 16);
        for (at, address) in [(register::ASQ, ring), (register::ACQ, self.admin.completions.address())] {
            self.write(at, address as u32);
            self.write(at + 4, (address >> 32) as u32);
        }
        self.write(register::CC, cc::EN | cc::ENTRIES);
        self.until(csts::RDY, csts::RDY);
    }

    fn admin(&mut self, step: &str, command: Command) -> Completion {
        let transport = self.transport.clone();
        self.admin.put(&*transport, &command);
        self.admin.ring(&*transport);
        let completion = self.admin.next(&*transport, PATIENCE).expect("an answer");
        self.note(step, completion.status());
        completion
    }

    fn create(&mut self, step: &str, queue: &Queue, ring: u64, depth: u32, vector: u32) -> bool {
        let command = |opcode, address: u64, flags: u32| Command {
            prp1: address.into(),
            dword10: (u32::from(queue.id) | (depth - 1) << 16).into(),
            dword11: flags.into(),
            ..Command::new(opcode, 0)
        };
        let create = command(admin::CREATE_CQ, queue.completions.address(), vector << 16 | 3);
        let made = self.admin(&format!("{step}: completion queue"), create).status().is_success();
        let create = command(admin::CREATE_SQ, ring, u32::from(queue.id) << 16 | 1);
        self.admin(&format!("{step}: submission queue"), create).status().is_success() && made
    }

    fn delete(&mut self, step: &str, opcode: u8, id: u32) {
        self.admin(step, Command { dword10: id.into(), ..Command::new(opcode, 0) });
    }

    fn io(&mut self, step: &str, queue: &mut Queue, command: Command) -> Status {
        queue.put(&*self.transport, &command);
        queue.ring(&*self.transport);
        let completion = queue.next(&*self.transport, PATIENCE).expect("an answer");
        self.note(step, completion.status());
        completion.status()
    }

    fn blocks(&mut self, step: &str, queue: &mut Queue, start: u64, count: u32) {
        let page = self.transport.memory(1).unwrap();
        let command = Command { prp1: page.address().into(), ..Command::transfer(io::READ, 1, start, count) };
        self.io(step, queue, command);
        let mut bytes = vec![0; 512 * count as usize];
        page.read(0, &mut bytes);
        let each: Vec<String> = bytes.chunks(512).map(|block| format!("{:x}..{:x}", block[0], block[511])).collect();
        self.note(step, each.join(" "));
    }
}

fn filled(transport: &dyn Transport, pages: usize, byte: u8) -> Arc<dyn Memory> {
    let memory = transport.memory(pages).unwrap();
    for page in 0..pages {
        memory.write(4096 * page, &[byte.wrapping_add(page as u8); 4096]);
    }
    memory
}

/// The script.
fn script(transport: Arc<dyn Transport>) -> Vec<String> {
    let device = transport.clone();
    let mut host = Host::new(transport);
    // Registers of a controller that is off.
    host.disable();
    host.register("version", register::VS);
    let cap = host.transport.read32(register::CAP).unwrap();
    host.note("most entries", cap & 0xffff);
    host.register("PMRCAP", register::PMRCAP);
    host.register("CSTS, disabled", register::CSTS);
    host.register("PMRSTS, region off", register::PMRSTS);
    host.write(register::PMRCTL, pmr::EN);
    host.register("PMRCTL", register::PMRCTL);
    host.register("PMRSTS, region on", register::PMRSTS);
    host.enable();
    host.register("CSTS, enabled", register::CSTS);
    host.register("AQA", register::AQA);

    // Identify.
    let page = host.transport.memory(1).unwrap();
    let identify = |cns: u32, namespace| Command {
        prp1: page.address().into(),
        dword10: cns.into(),
        ..Command::new(admin::IDENTIFY, namespace)
    };
    host.admin("identify controller", identify(1, 0));
    let mut bytes = [0; 4096];
    page.read(0, &mut bytes);
    host.note("MDTS", bytes[77]);
    host.note("sizes of entries", format_args!("{:x} {:x}", bytes[512], bytes[513]));
    host.note("write cache", bytes[525]);
    host.note("atomic blocks", bytes[528]);
    host.admin("identify namespace 1", identify(0, 1));
    page.read(0, &mut bytes);
    host.note("blocks", u64::from_le_bytes(bytes[..8].try_into().unwrap()));
    host.note("format", format_args!("{:?}", &bytes[128..131]));
    host.admin("identify namespace 5", identify(0, 5));
    let queues = Command { dword10: 7.into(), dword11: 0x0007_0007.into(), ..Command::new(admin::SET_FEATURES, 0) };
    let granted = host.admin("number of queues", queues).result;
    host.note("granted", format_args!("{:#x}", granted.get()));
    host.admin("an unknown command", Command::new(0x7f, 0));

    // Queues that cannot be.
    let queue = |id| Queue::new(&*device, id, 16);
    let one = queue(1);
    let memory = one.address(&*device);
    host.create("queue 0", &queue(0), memory, 16, 1);
    host.create("queue 40", &queue(40), memory, 16, 1);
    host.create("an interrupt that is none", &one, memory, 16, 50);
    host.delete("delete what is not there", admin::DELETE_SQ, 1);
    host.delete("delete completions that are not there", admin::DELETE_CQ, 1);
    host.delete("delete queue 0", admin::DELETE_SQ, 0);
    host.create("queue 1", &one, memory, 16, 1);
    host.create("queue 1 again", &one, memory, 16, 1);
    host.delete("delete completions in use", admin::DELETE_CQ, 1);
    let mut one = one;

    // Reads and writes.
    let of = |memory: &Arc<dyn Memory>, start, count| Command {
        prp1: memory.address().into(),
        ..Command::transfer(io::WRITE, 1, start, count)
    };
    host.blocks("nothing yet", &mut one, 0, 2);
    let data = filled(&*device, 1, 0x11);
    host.io("a write of one block", &mut one, of(&data, 8, 1));
    host.io("a write of eight", &mut one, of(&data, 16, 8));
    host.blocks("what it wrote", &mut one, 7, 3);
    host.blocks("what they wrote", &mut one, 15, 8);
    host.io("a forced write", &mut one, of(&data, 30, 1).forced());
    host.io("a flush", &mut one, Command::new(io::FLUSH, 1));
    host.io("a write beyond the end", &mut one, of(&data, IMAGE / 512, 1));
    host.io("a write over the end", &mut one, of(&data, IMAGE / 512 - 1, 2));
    host.io("a write at the last block", &mut one, of(&data, IMAGE / 512 - 1, 1));
    host.io("a write of a wild block", &mut one, of(&data, u64::MAX - 3, 1));
    host.io("a read beyond the end", &mut one, Command { opcode: io::READ, ..of(&data, IMAGE / 512, 1) });
    host.io("another namespace", &mut one, Command { namespace: 3.into(), ..of(&data, 0, 1) });
    host.io("an unknown command of I/O", &mut one, Command::new(0x7f, 1));
    for pages in [2usize, 3, 8, 128] {
        let data = filled(&*device, pages, 0x40);
        let mut command = of(&data, 1024, 8 * pages as u32);
        let list = device.memory(1).unwrap();
        command.prp2 = (data.address() + 4096).into();
        if pages > 2 {
            (1..pages).for_each(|i| list.write(8 * (i - 1), &(data.address() + 4096 * i as u64).to_le_bytes()));
            command.prp2 = list.address().into();
        }
        host.io(&format!("a write of {pages} pages"), &mut one, command);
        host.blocks("its end", &mut one, 1024 + 8 * pages as u64 - 2, 3);
    }
    let large = Command { prp2: data.address().into(), ..of(&data, 0, 8 * 129) };
    host.io("more than it transfers at once", &mut one, large);

    // The bits of transactions are not in the way.
    for bit in 16..30 {
        let mut command = of(&data, 64, 1);
        command.dword12 = (command.dword12.get() | 1 << bit).into();
        host.io(&format!("bit {bit} of dword 12"), &mut one, command);
    }
    host.io("a number of a transaction", &mut one, of(&data, 64, 1).of_transaction(Txid(u64::MAX), true));

    // The ring goes round, and round.
    for round in 0..40u8 {
        let data = filled(&*device, 1, round);
        host.io("a write, round and round", &mut one, of(&data, 100 + u64::from(round), 1));
    }
    host.blocks("what they have left", &mut one, 100, 8);

    // Several under one doorbell: each completes once.
    let ids: Vec<u16> = (200..208).collect();
    for id in &ids {
        let command = Command { id: (*id).into(), ..of(&data, u64::from(*id), 1) };
        one.put(&*device, &command);
    }
    one.ring(&*device);
    let mut done: Vec<u16> = ids.iter().map(|_| one.next(&*device, PATIENCE).expect("one").id.get()).collect();
    done.sort_unstable();
    host.note("all of them", format_args!("{done:?}"));

    // A queue in the region.
    let region = device.region();
    host.write(register::PMRMSCU, (region.address() >> 32) as u32);
    host.write(register::PMRMSCL, region.address() as u32 | pmr::CMSE);
    host.register("PMRMSCL", register::PMRMSCL);
    let mut two = Queue { ring: Ring::Region(4096), ..queue(2) };
    let address = two.address(&*device);
    host.create("a queue in the region", &two, address, 16, 2);
    for i in 0..20u8 {
        let data = filled(&*device, 1, 0x80 + i);
        host.io("a write from the region", &mut two, of(&data, 300 + u64::from(i), 1));
    }
    host.blocks("what they wrote", &mut two, 300, 8);
    let mut entry = [0; 8];
    region.read(4096, &mut entry).unwrap();
    host.note("the region keeps its entries", format_args!("{entry:x?}"));
    host.delete("delete queue 2", admin::DELETE_SQ, 2);
    host.delete("delete its completions", admin::DELETE_CQ, 2);
    host.delete("delete it again", admin::DELETE_CQ, 2);

    // A reset forgets queues, and keeps the region and the blocks.
    host.disable();
    host.register("CSTS, after a reset", register::CSTS);
    host.register("PMRCTL, after a reset", register::PMRCTL);
    let mut entry = [0; 4];
    region.read(4096 + 4, &mut entry).unwrap();
    host.note("the region, after a reset", format_args!("{entry:x?}"));
    host.enable();
    let mut one = queue(1);
    let memory = one.address(&*device);
    host.create("queue 1, after a reset", &one, memory, 16, 1);
    host.blocks("blocks, after a reset", &mut one, 300, 4);

    // A queue in a region to which the controller is not led.
    host.write(register::PMRMSCL, region.address() as u32);
    let mut two = Queue { ring: Ring::Region(4096), ..queue(2) };
    host.create("a queue in the region, without CMSE", &two, address, 16, 2);
    two.put(&*device, &of(&data, 64, 1));
    two.ring(&*device);
    let silent = two.next(&*device, Duration::from_millis(50)).is_none();
    host.note("it does not answer", silent);
    host.register("CSTS, then", register::CSTS);
    host.disable();
    host.register("CSTS, at the end", register::CSTS);
    host.seen
}

#[test]
fn the_model_is_as_qemu_is() {
    let medium = Arc::new(InMemory::new(IMAGE, REGION));
    let model = script(Model::new("model", medium, Config::default()).unwrap());
    assert!(model.len() >= 100, "{} steps", model.len());
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    let qemu = script(start(directory.path()));
    let differ: Vec<String> = (model.iter().zip(&qemu))
        .filter(|(model, qemu)| model != qemu)
        .map(|(model, qemu)| format!("model {model}\n QEMU {qemu}"))
        .collect();
    assert!(differ.is_empty() && model.len() == qemu.len(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
