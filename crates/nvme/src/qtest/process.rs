//! QEMU as a child process, without a guest: its processor halts at once. It is asked for registers over its standard
//! input and output, by the protocol of its own tests.

#![allow(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use sync::Mutex;
use wholly_error::{Error, Result};
use wholly_media::Error as MediaError;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Bytes of the guest's memory.
pub(super) const RAM: usize = 64 << 20;

/// What QEMU is to write down.
const EVENTS: &str = "pci_nvme_create_sq\npci_nvme_mmio_doorbell_sq\npci_nvme_mmio_doorbell_cq\npci_nvme_io_cmd\n\
                      pci_nvme_write\npci_nvme_read\npci_nvme_flush_ns\npci_nvme_enqueue_req_completion\n\
                      pci_nvme_irq_msix\n";

/// A running QEMU. It is killed when this is dropped, and when the thread that has started it ends.
pub(super) struct Process {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    pub ram: OwnedFd,
    trace: OwnedFd,
    _files: [OwnedFd; 2],
}

pub(super) fn failed(what: &str, error: &std::io::Error) -> Error {
    let errno = error.raw_os_error().map_or(rustix::io::Errno::IO, rustix::io::Errno::from_raw_os_error);
    Error::Media(MediaError::new("run", format!("{PROGRAM}: {what}"), errno))
}

/// A file that has no name.
fn nameless(name: &str, content: &[u8]) -> Result<OwnedFd> {
    let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).and_then(|file| {
        // A file in memory takes all at once.
        match rustix::io::write(&file, content)? == content.len() {
            true => Ok(file),
            false => Err(Errno::NOSPC),
        }
    });
    made.map_err(|errno| failed(name, &in_std(errno)))
}

pub(super) fn in_std(errno: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.raw_os_error())
}

/// The name by which the child opens it.
fn by_name(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// A processor that halts: no operations up to the last 16 bytes, which are executed first.
fn firmware() -> Vec<u8> {
    let mut bytes = vec![0x90; 64 << 10];
    let at = bytes.len() - 16;
    bytes[at..at + 4].copy_from_slice(&[0xfa, 0xf4, 0xeb, 0xfd]);
    bytes
}

impl Process {
    /// Starts it with these arguments beside those of the machine.
    ///
    /// # Errors
    /// `Unsupported` if it is not installed; `Media` if it does not start, with what it says.
    pub fn start(arguments: &[String]) -> Result<Process> {
        let ram = nameless("ram", &[])?;
        rustix::fs::ftruncate(&ram, RAM as u64).map_err(|errno| failed("memory", &in_std(errno)))?;
        let files = [nameless("firmware", &firmware())?, nameless("events", EVENTS.as_bytes())?];
        let trace = nameless("trace", &[])?;
        let [firmware, events] = files.each_ref().map(by_name);
        let mut command = Command::new(PROGRAM);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-m", "64M"]);
        command.args(["-machine", "q35,memory-backend=ram", "-bios", &firmware]);
        command.args(["-object", &format!("memory-backend-file,id=ram,share=on,mem-path={},size=64M", by_name(&ram))]);
        command.args(["-qtest", "stdio", "-qtest-log", "none"]);
        command.args(["-trace", &format!("events={events},file={}", by_name(&trace))]);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let parent = std::process::id();
        // SAFETY: between fork and exec it makes two system calls, and takes no lock and no memory.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
                    .map_err(in_std)?;
                // The parent may be gone already.
                let is_ours = rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() as u32 == parent);
                if is_ours { Ok(()) } else { Err(in_std(Errno::SRCH)) }
            });
        }
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::Unsupported(format!("{PROGRAM} is not installed: `apt-get install qemu-system-x86`"))
            }
            _ => failed("start", &error),
        })?;
        let pipes = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        Ok(Process { child, pipes: Mutex::new(pipes), ram, trace, _files: files })
    }

    /// Sends a line, and returns the answer behind `OK`.
    ///
    /// # Errors
    /// `Media` if QEMU has ended, or refuses.
    pub fn ask(&self, line: &str) -> Result<String> {
        let (input, output) = &mut *self.pipes.lock().unwrap();
        let sent = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        let mut answer = String::new();
        let mut received = Ok(1);
        // What it tells of interrupts comes in between.
        while sent.is_ok() && matches!(received, Ok(1..)) && !answer.starts_with("OK") {
            answer.clear();
            received = output.read_line(&mut answer);
            if answer.starts_with("FAIL") || answer.starts_with("ERR") {
                break;
            }
        }
        match answer.strip_prefix("OK") {
            Some(rest) => Ok(rest.trim().to_string()),
            None => Err(failed(line, &std::io::Error::other(self.last_words(&answer)))),
        }
    }

    fn last_words(&self, answer: &str) -> String {
        if answer.is_empty() { "it has ended".into() } else { answer.trim().to_string() }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written down so far.
    pub fn trace(&self) -> String {
        let (mut text, mut part) = (Vec::new(), vec![0; 1 << 16]);
        while let Ok(read @ 1..) = rustix::io::pread(&self.trace, &mut part[..], text.len() as u64) {
            text.extend_from_slice(&part[..read]);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// What it has said of errors, once it has ended.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        text.trim().to_string()
    }

    /// Why it did not start, in its own words.
    pub fn why(mut self, error: Error) -> Error {
        let _ = self.child.kill();
        let _ = self.child.wait();
        match self.complaint() {
            text if text.is_empty() => error,
            text => Error::Unsupported(format!("{PROGRAM}: {text}")),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
