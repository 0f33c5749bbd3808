//! Results as text for people or JSON for programs; sizes; names from media made safe for a terminal; progress.

use crate::error::{Exit, Failure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Version of all JSON that the command prints but that of `bench`, which has its own. Raised when a field changes its meaning or goes.
pub const OUTPUT_VERSION: u32 = 2;

/// How this run speaks to its user.
pub struct Ui {
    /// Whether JSON is wanted.
    pub json: bool,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    output_version: u32,
    verb: &'a str,
    #[serde(flatten)]
    result: &'a T,
}

impl Ui {
    /// With JSON or text on stdout.
    pub fn new(json: bool) -> Ui {
        Ui { json }
    }

    /// Prints what a verb found: one JSON object on a line, or `text` of it.
    pub fn emit<T: Serialize>(&self, verb: &str, result: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        let text = if self.json {
            let envelope = Envelope { output_version: OUTPUT_VERSION, verb, result };
            serde_json::to_string(&envelope).map_err(|error| Failure::new(verb, error))? + "\n"
        } else {
            text(result)
        };
        print(text.as_bytes())
    }

    /// A progress bar over `len` steps on stderr, if that is a terminal and people read the output.
    pub fn bar(&self, message: &'static str, len: u64) -> ProgressBar {
        self.shown(ProgressBar::new(len), "{msg:24} [{bar:32}] {pos}/{len} {eta:>4}", message)
    }

    /// Something that takes its time, nobody knows how much.
    pub fn spinner(&self, message: &'static str) -> ProgressBar {
        let bar = self.shown(ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}", message);
        bar.enable_steady_tick(Duration::from_millis(100));
        bar
    }

    fn shown(&self, bar: ProgressBar, template: &str, message: &'static str) -> ProgressBar {
        if self.json || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("a template of our own").progress_chars("=> ");
        bar.with_style(style).with_message(message)
    }
}

/// Writes to stdout. Who reads no further, as `head` does, is no failure.
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::new("stdout", error).exit(Exit::FAILED)),
    }
}

/// A number of bytes as people say it: `3 B`, `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    // What would be rounded to 1024.0 is 1.0 of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 group`, `2 groups`.
pub fn count(n: u64, thing: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {thing}{plural}")
}

/// Bytes as a user types them: `65536`, `64K`, `64KiB`, `2M`, `1G`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("{unit:?} is no unit; a size is a number with K, M or G, such as 64M")),
    };
    let number: u64 = number.parse().map_err(|_| "a size is a number with K, M or G, such as 64M".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "that is more than any disk holds".into())
}

/// A name read from media: what is not printable is escaped, so that it cannot do anything to a terminal.
pub fn name(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_and_read() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.0 KiB");
        assert_eq!(size(1536 << 10), "1.5 MiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64K", 64 << 10), ("2 MiB", 2 << 20), ("1gb", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1.5M", "-1", "3 parsecs", "99999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_cannot_drive_a_terminal() {
        assert_eq!(name(b"a/b \xc3\xa9"), "a/b é");
        assert_eq!(name(b"a\x1b[2J\n"), "a\\u{1b}[2J\\n");
    }
}
