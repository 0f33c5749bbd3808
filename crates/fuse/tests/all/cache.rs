//! The kernel's pages: they stay when something else of the file changes, and nobody reads a stale byte, whoever writes
//! how, and whoever reads by what.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::time::Duration;

use crate::common::or_skip;
use crate::common::served::Served;
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use wholly::MountGroup;
use wholly_vfs::Policy;
use wholly_volume::EngineKind;

const PAGE: usize = 4096;
/// Three pages and a part of one.
const LENGTH: usize = 3 * PAGE + 1000;
/// No file here becomes longer.
const LONGEST: usize = 16 * PAGE;
const O_DIRECT: i32 = 0o40000;

fn shared() -> Policy {
    Policy::Shared { interval: Duration::from_secs(3600) }
}

/// A file through mapped memory, shared and writable.
pub(crate) struct Mapped(*mut u8);

impl Mapped {
    pub(crate) fn new(file: &File) -> Mapped {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which only the methods below use.
        let at = unsafe { mmap(std::ptr::null_mut(), LONGEST, protection, MapFlags::SHARED, file, 0) };
        Mapped(at.expect("map").cast())
    }

    fn read(&self, length: usize) -> Vec<u8> {
        assert!(length <= LONGEST);
        // SAFETY: inside of the mapping, and of the file, whose length the caller knows.
        (0..length).map(|at| unsafe { self.0.add(at).read_volatile() }).collect()
    }

    pub(crate) fn write(&self, at: usize, byte: u8) {
        assert!(at < LONGEST);
        // SAFETY: inside of the mapping, and of the file.
        unsafe { self.0.add(at).write_volatile(byte) };
    }

    pub(crate) fn sync(&self) {
        // SAFETY: the whole mapping.
        unsafe { msync(self.0.cast(), LONGEST, MsyncFlags::SYNC) }.expect("msync");
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        let _ = unsafe { munmap(self.0.cast(), LONGEST) };
    }
}

/// Who changes the file, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Byte,
    Pages,
    Append,
    Second,
    OtherName,
    Direct,
    Mapping,
    SyncedMapping,
    Cut,
    CutByPath,
    CutAndGrown,
    Replaced,
    Punched,
    Zeroed,
    Allocated,
    CopiedInto,
    CopiedWithin,
}

const WRITERS: [Writer; 17] = [
    Writer::Byte,
    Writer::Pages,
    Writer::Append,
    Writer::Second,
    Writer::OtherName,
    Writer::Direct,
    Writer::Mapping,
    Writer::SyncedMapping,
    Writer::Cut,
    Writer::CutByPath,
    Writer::CutAndGrown,
    Writer::Replaced,
    Writer::Punched,
    Writer::Zeroed,
    Writer::Allocated,
    Writer::CopiedInto,
    Writer::CopiedWithin,
];

/// By what the file is read.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Open,
    New,
    Mapping,
    OtherName,
    Direct,
    Process,
}

const READERS: [Reader; 6] =
    [Reader::Open, Reader::New, Reader::Mapping, Reader::OtherName, Reader::Direct, Reader::Process];

/// Whether the change is in an explicit group, and how that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    None,
    Committed,
    Aborted,
}

/// A file that has been read by what reads it again later.
struct Case<'m> {
    mounted: &'m Served,
    file: File,
    second: File,
    mapped: Mapped,
    model: Vec<u8>,
}

fn open(mounted: &Served, name: &str) -> File {
    OpenOptions::new().read(true).write(true).open(mounted.at(name)).expect("open")
}

impl<'m> Case<'m> {
    fn new(mounted: &'m Served, seed: usize) -> Case<'m> {
        let model: Vec<u8> = (0..LENGTH).map(|at| (at / 7 + at / PAGE + seed) as u8 | 1).collect();
        for name in ["file", "other-name"] {
            let _ = std::fs::remove_file(mounted.at(name));
        }
        std::fs::write(mounted.at("file"), &model).expect("write");
        std::fs::write(mounted.at("source"), vec![0xee; LENGTH]).expect("write");
        std::fs::hard_link(mounted.at("file"), mounted.at("other-name")).expect("link");
        let (file, second) = (open(mounted, "file"), open(mounted, "file"));
        let mapped = Mapped::new(&file);
        Case { mounted, file, second, mapped, model }
    }

    fn read(&self, reader: Reader) -> Vec<u8> {
        let all = |file: &File| {
            let mut bytes = vec![0; LONGEST];
            let length = file.read_at(&mut bytes, 0).expect("read");
            bytes.truncate(length);
            bytes
        };
        match reader {
            Reader::Open => all(&self.file),
            Reader::New => std::fs::read(self.mounted.at("file")).expect("read"),
            Reader::Mapping => self.mapped.read(self.file.metadata().expect("stat").len() as usize),
            Reader::OtherName => std::fs::read(self.mounted.at("other-name")).expect("read"),
            Reader::Direct => {
                let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(self.mounted.at("file"));
                let (file, aligned) = (file.expect("open"), Mapped::anonymous());
                let length = rustix::io::pread(&file, aligned.bytes(), 0).expect("read");
                aligned.read(length)
            }
            Reader::Process => Command::new("cat").arg(self.mounted.at("file")).output().expect("run cat").stdout,
        }
    }

    fn check(&self, reader: Reader, what: &str) {
        let read = self.read(reader);
        let differs = read.iter().zip(&self.model).position(|(one, other)| one != other);
        assert_eq!((read.len(), differs), (self.model.len(), None), "{what}");
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if self.model.len() < at + bytes.len() {
            self.model.resize(at + bytes.len(), 0);
        }
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn change(&mut self, writer: Writer) {
        let at_name = |name: &str| self.mounted.at(name);
        match writer {
            Writer::Byte => {
                self.file.write_all_at(&[2], 5000).expect("write");
                self.put(5000, &[2]);
            }
            Writer::Pages => {
                self.file.write_all_at(&[4; 6000], 3000).expect("write");
                self.put(3000, &[4; 6000]);
            }
            Writer::Append => {
                let mut log = OpenOptions::new().append(true).open(at_name("file")).expect("open");
                std::io::Write::write_all(&mut log, &[6; 5000]).expect("append");
                self.put(self.model.len(), &[6; 5000]);
            }
            Writer::Second => {
                self.second.write_all_at(&[8; 10], 4090).expect("write");
                self.put(4090, &[8; 10]);
            }
            Writer::OtherName => {
                open(self.mounted, "other-name").write_all_at(&[10; 10], 8190).expect("write");
                self.put(8190, &[10; 10]);
            }
            Writer::Direct => {
                let file = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(at_name("file"));
                let (file, aligned) = (file.expect("open"), Mapped::anonymous());
                (0..PAGE).for_each(|at| aligned.write(at, 12));
                assert_eq!(rustix::io::pwrite(&file, &aligned.bytes()[..PAGE], PAGE as u64), Ok(PAGE));
                self.put(PAGE, &[12; PAGE]);
            }
            Writer::Mapping | Writer::SyncedMapping => {
                self.mapped.write(9000, 14);
                if writer == Writer::SyncedMapping {
                    self.mapped.sync();
                }
                self.put(9000, &[14]);
            }
            Writer::Cut => {
                self.file.set_len(5000).expect("cut");
                self.model.truncate(5000);
            }
            Writer::CutByPath => {
                let output = Command::new("truncate").args(["-s", "6000"]).arg(at_name("file")).output();
                // In a group another process may not.
                match output.expect("run truncate").status.success() {
                    true => self.model.truncate(6000),
                    false => {
                        rustix::fs::ftruncate(&self.second, 6000).map(|()| self.model.truncate(6000)).expect("cut")
                    }
                }
            }
            Writer::CutAndGrown => {
                self.second.set_len(5000).and_then(|()| self.file.set_len(9000)).expect("cut");
                self.model.truncate(5000);
                self.model.resize(9000, 0);
            }
            Writer::Replaced => {
                std::fs::write(at_name("file"), [16; 4500]).expect("write");
                self.model = vec![16; 4500];
            }
            Writer::Punched => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.second, how, 3000, 6000).expect("punch");
                self.put(3000, &[0; 6000]);
            }
            Writer::Zeroed => {
                fallocate(&self.second, FallocateFlags::ZERO_RANGE, 12_000, 5000).expect("zero");
                self.put(12_000, &[0; 5000]);
            }
            Writer::Allocated => {
                fallocate(&self.second, FallocateFlags::empty(), 0, 20_000).expect("allocate");
                self.model.resize(20_000, 0);
            }
            Writer::CopiedInto => {
                let source = File::open(at_name("source")).expect("open");
                let copied = copy_file_range(&source, Some(&mut 0), &self.second, Some(&mut 3000), 6000);
                assert_eq!(copied, Ok(6000));
                self.put(3000, &[0xee; 6000]);
            }
            Writer::CopiedWithin => {
                let copied = copy_file_range(&self.file, Some(&mut 0), &self.second, Some(&mut 9000), 2000);
                assert_eq!(copied, Ok(2000));
                let bytes = self.model[..2000].to_vec();
                self.put(9000, &bytes);
            }
        }
    }
}

impl Mapped {
    fn anonymous() -> Mapped {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, which only the methods use.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), LONGEST, protection, MapFlags::PRIVATE) };
        Mapped(at.expect("map").cast())
    }

    /// Of an anonymous one, which nobody else has.
    #[expect(clippy::mut_from_ref, reason = "the mapping is this test's alone, and lent once at a time")]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: the whole mapping, which is private, initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.0, LONGEST) }
    }
}

fn matrix(mounted: Option<Served>) {
    let Some(mounted) = mounted else { return };
    let mut seed = 0;
    for writer in WRITERS {
        for group in [Group::None, Group::Committed, Group::Aborted] {
            for reader in READERS {
                seed += 1;
                let mut case = Case::new(&mounted, seed);
                let what = |when: &str| format!("{writer:?}, {group:?}, read by {reader:?} {when}");
                case.check(reader, &what("first"));
                let before = case.model.clone();
                if group == Group::None {
                    case.change(writer);
                    case.check(reader, &what("then"));
                    case.check(reader, &what("again"));
                    continue;
                }
                let running = MountGroup::begin(File::open(mounted.point()).expect("open")).expect("nobody has one");
                // So is what comes of its mapped memory, and what others do by these.
                running.add(&case.file).and_then(|()| running.add(&case.second)).expect("add");
                case.change(writer);
                case.check(reader, &what("in the group"));
                if group == Group::Committed {
                    running.commit().expect("commit");
                } else {
                    running.abort().expect("abort");
                    case.model = before;
                }
                case.check(reader, &what("after the group"));
                // What is cached now is good, too.
                case.check(reader, &what("again"));
                case.file.write_all_at(&[18], 4000).expect("write");
                case.put(4000, &[18]);
                case.check(reader, &what("after another write"));
            }
        }
    }
    mounted.end();
}

#[test]
fn nothing_stale_on_a_volume() {
    matrix(or_skip(Served::volume(EngineKind::HybridLog, None)));
}

#[test]
fn nothing_stale_on_a_volume_per_op() {
    matrix(or_skip(Served::volume(EngineKind::FineGrainedWal, Some(Policy::PerOp))));
}

#[test]
fn nothing_stale_on_a_volume_per_sync() {
    matrix(or_skip(Served::volume(EngineKind::HybridLog, Some(Policy::PerSync))));
}

#[test]
fn nothing_stale_on_a_shared_volume() {
    matrix(or_skip(Served::volume(EngineKind::PageCacheWal, Some(shared()))));
}

#[test]
fn nothing_stale_on_a_store() {
    matrix(or_skip(Served::store(Policy::PerSync)));
}

/// Bytes of a file that the kernel has in its pages.
const CACHED: usize = 8 << 20;

/// Read requests that `change` costs a file that was read before.
fn requests(mounted: &Served, change: impl FnOnce(&File)) -> u64 {
    std::fs::write(mounted.at("cached"), vec![7; CACHED]).expect("write");
    let file = open(mounted, "cached");
    let mut bytes = vec![0; CACHED];
    file.read_exact_at(&mut bytes, 0).expect("read");
    let before = mounted.reads();
    change(&file);
    file.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(std::fs::read(mounted.at("cached")).expect("read").len(), bytes.len());
    mounted.reads() - before
}

/// A write changes what it writes, and costs no other page; nor does a new descriptor, or a look at the attributes.
#[test]
fn pages_stay_when_a_byte_is_written_elsewhere() {
    for policy in [None, Some(Policy::PerSync), Some(shared())] {
        let Some(mounted) = or_skip(Served::volume(EngineKind::HybridLog, policy)) else { return };
        let written = requests(&mounted, |file| {
            file.write_all_at(&[9], 5).expect("write");
            assert_eq!(file.metadata().expect("stat").len(), CACHED as u64);
        });
        assert_eq!(written, 0, "read requests after a write of a byte, {policy:?}");
        let by_others = requests(&mounted, |_| {
            open(&mounted, "cached").write_all_at(&[9], 70_000).expect("write");
            let touched = Command::new("touch").arg(mounted.at("cached")).status();
            assert!(touched.expect("run touch").success());
        });
        assert_eq!(by_others, 0, "read requests after another's write, {policy:?}");
        mounted.end();
    }
}

/// What was just written is in the kernel's pages.
#[test]
fn what_was_just_written_is_not_asked_for() {
    let Some(mounted) = or_skip(Served::volume(EngineKind::HybridLog, None)) else { return };
    let before = mounted.reads();
    std::fs::write(mounted.at("new"), vec![7; CACHED]).expect("write");
    assert!(std::fs::read(mounted.at("new")).expect("read").iter().all(|byte| *byte == 7));
    assert_eq!(mounted.reads() - before, 0);
    mounted.end();
}

/// The kernel believes that the file ends where the aborted group has ended it, and appends there.
#[test]
fn what_is_appended_after_an_abort_is_read_where_it_is() {
    for mounted in [Served::volume(EngineKind::HybridLog, None), Served::store(Policy::PerSync)] {
        let Some(mounted) = or_skip(mounted) else { return };
        for (in_group, appended) in [(2 * PAGE, 2 * PAGE), (2 * PAGE, 3 * PAGE + 5), (7, 10), (PAGE, 5)] {
            let model = [vec![1; PAGE], vec![3; appended]].concat();
            std::fs::write(mounted.at("log"), &model[..PAGE]).expect("write");
            let mut log = OpenOptions::new().read(true).append(true).open(mounted.at("log")).expect("open");
            let running = MountGroup::begin(File::open(mounted.point()).expect("open")).expect("nobody has one");
            std::io::Write::write_all(&mut log, &vec![2; in_group]).expect("append");
            running.abort().expect("abort");
            std::io::Write::write_all(&mut log, &model[PAGE..]).expect("append");
            // Pieces that end before what the kernel takes for the end: it does not ask.
            let mut piece = [0; 5];
            for at in (0..in_group + appended).step_by(499) {
                let length = log.read_at(&mut piece, (PAGE + at) as u64).expect("read");
                let wanted = model.get(PAGE + at..model.len().min(PAGE + at + 5)).unwrap_or_default();
                assert_eq!(&piece[..length], wanted, "{in_group}, {appended}, at {at}");
            }
            assert_eq!(std::fs::read(mounted.at("log")).expect("read"), model);
        }
        mounted.end();
    }
}

/// The kernel has the bytes of a write in its pages before the write is refused.
#[test]
fn a_write_that_is_refused_leaves_no_byte() {
    for mounted in [Served::volume(EngineKind::HybridLog, None), Served::store(Policy::PerSync)] {
        let Some(mounted) = or_skip(mounted) else { return };
        for reader in READERS {
            let mut case = Case::new(&mounted, 0);
            let running = MountGroup::begin(File::open(mounted.point()).expect("open")).expect("nobody has one");
            case.change(Writer::Byte);
            case.check(reader, "in the group");
            let script = "printf XXX | dd of=file bs=1 seek=5000 conv=notrunc status=none";
            let output = Command::new("sh").args(["-c", script]).current_dir(mounted.point()).output().expect("run sh");
            assert!(String::from_utf8_lossy(&output.stderr).contains("busy"), "{output:?}");
            // What ends the group drops such pages first.
            running.commit().expect("commit");
            case.check(reader, &format!("by {reader:?} after a write that was refused"));
        }
        mounted.end();
    }
}
