//! Results as text for people or JSON for programs; sizes; names made safe for a terminal, and exact in JSON; progress.

use crate::error::{Exit, Failure};
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version of all JSON that the command prints but that of `bench`, which has its own. Raised when a field changes its
/// meaning or goes.
pub const OUTPUT_VERSION: u32 = 7;

/// How this run speaks to its user.
pub struct Ui {
    /// Whether JSON is wanted.
    pub json: bool,
    said: RefCell<Said>,
}

/// The state of the JSON output.
enum Said {
    Nothing,
    /// The result, which is printed when the verb has ended: an error may still join it.
    Result(Map<String, Value>),
    /// An object is printed already.
    Printed,
}

impl Ui {
    /// With JSON or text on stdout.
    pub fn new(json: bool) -> Ui {
        Ui { json, said: RefCell::new(Said::Nothing) }
    }

    /// Prints the result of a verb as text; as JSON it is kept for [`finish`](Self::finish), which may add an error.
    pub fn emit<T: Serialize>(&self, verb: &str, result: &T, text: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if !self.json {
            return print(text(result).as_bytes());
        }
        let mut object = envelope(Some(verb));
        if let Value::Object(fields) = serde_json::to_value(result).map_err(|error| Failure::new(verb, error))? {
            object.extend(fields);
        }
        self.said.replace(Said::Result(object));
        Ok(())
    }

    /// Prints the JSON result now: the verb goes on for long.
    pub fn flush(&self) -> Result<(), Failure> {
        match self.said.replace(Said::Printed) {
            Said::Result(object) => print_object(object),
            said => {
                self.said.replace(said);
                Ok(())
            }
        }
    }

    /// The verb has printed a JSON object by other means.
    pub fn has_printed(&self) {
        self.said.replace(Said::Printed);
    }

    /// Reports how the verb ended: a failure goes to stderr, and with `--json` exactly one object goes to stdout.
    pub fn finish(&self, verb: Option<&str>, result: Result<Exit, Failure>) -> Exit {
        let exit = match &result {
            Ok(exit) => *exit,
            Err(failure) => {
                eprintln!("wholly: {failure}");
                failure.exit
            }
        };
        if !self.json {
            return exit;
        }
        let mut object = match self.said.replace(Said::Printed) {
            Said::Printed => return exit,
            Said::Nothing => envelope(verb),
            Said::Result(object) => object,
        };
        if let Err(failure) = &result {
            put_error(&mut object, failure);
        }
        match print_object(object) {
            Ok(()) => exit,
            Err(failure) => {
                eprintln!("wholly: {failure}");
                // The exit code of `run` tells what has become of the directories.
                if verb == Some("run") { exit } else { failure.exit }
            }
        }
    }

    /// The colours of stdout.
    pub fn paint(&self) -> Paint {
        Paint::on(&std::io::stdout())
    }

    /// Prints a failure as JSON.
    pub fn print_failure(verb: Option<&str>, failure: &Failure) -> Result<(), Failure> {
        let mut object = envelope(verb);
        put_error(&mut object, failure);
        print_object(object)
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

/// Colours of texts for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// No colours.
    pub fn none() -> Paint {
        Paint(false)
    }

    /// Colours, if the stream is a terminal that has them and `NO_COLOR` is not set.
    pub fn on(stream: &impl anstream::stream::RawStream) -> Paint {
        Paint(anstream::AutoStream::choice(stream) != anstream::ColorChoice::Never)
    }

    /// A text in a colour.
    pub fn text(self, color: AnsiColor, text: &str) -> String {
        let style = if self.0 { color.on_default() } else { Style::new() };
        format!("{style}{text}{style:#}")
    }
}

fn envelope(verb: Option<&str>) -> Map<String, Value> {
    Map::from_iter([("output_version".into(), OUTPUT_VERSION.into()), ("verb".into(), verb.into())])
}

fn put_error(object: &mut Map<String, Value>, failure: &Failure) {
    object.insert("error".into(), serde_json::to_value(failure).expect("texts and a number"));
}

fn print_object(object: Map<String, Value>) -> Result<(), Failure> {
    print((exact(Value::Object(object)).to_string() + "\n").as_bytes())
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
        _ => return Err(format!("{unit:?} is not a unit; a size is a number with K, M, G or T, such as 64M")),
    };
    let number: u64 = number.parse().map_err(|_| "a size is a number with K, M, G or T, such as 64M".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "that is more than any disk can hold".into())
}

/// A path or another name from outside: escaped where it is printed for people, exact in JSON. A name that is not UTF-8
/// gets a second JSON field, `FIELD_hex`, with its bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Vec<u8>);

/// The fields by which [`exact`] knows a name that is not UTF-8: no other field is called so.
const LOSSY: &str = "\0text";
const HEX: &str = "\0hex";

impl Name {
    /// Where the directory really is, or as it was named if that cannot be found out.
    pub fn of_dir(dir: &Path) -> Name {
        dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf()).into()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path that it is.
    pub fn as_path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.0))
    }

    /// A path in this directory.
    pub fn join(&self, path: &Name) -> Name {
        Path::new(OsStr::from_bytes(&self.0)).join(OsStr::from_bytes(&path.0)).into()
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Name {
        Name(bytes.into())
    }
}

impl From<&std::ffi::OsStr> for Name {
    fn from(text: &std::ffi::OsStr) -> Name {
        text.as_bytes().into()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        text.as_bytes().into()
    }
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Name {
        path.as_os_str().as_bytes().into()
    }
}

impl From<PathBuf> for Name {
    fn from(path: PathBuf) -> Name {
        Name(path.into_os_string().into_vec())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&name(&self.0))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                let mut fields = serializer.serialize_struct("Name", 2)?;
                fields.serialize_field(LOSSY, &String::from_utf8_lossy(&self.0))?;
                fields.serialize_field(HEX, &hex)?;
                fields.end()
            }
        }
    }
}

/// A value in which each name that is not UTF-8 has become two fields.
fn exact(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(exact).collect(),
        Value::Object(fields) => {
            let mut all = Map::new();
            for (field, value) in fields {
                match value {
                    Value::Object(mut name) if name.contains_key(HEX) => {
                        let hex = name.remove(HEX).unwrap_or_default();
                        all.insert(field.clone(), name.remove(LOSSY).unwrap_or_default());
                        all.insert(field + "_hex", hex);
                    }
                    value => _ = all.insert(field, exact(value)),
                }
            }
            Value::Object(all)
        }
        value => value,
    }
}

/// A name as it is printed for people. Escaped are control characters, bidirectional controls, zero-width and blank
/// characters, line separators, and bytes that are not UTF-8. Escaping twice changes nothing.
pub fn name(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in bytes.utf8_chunks() {
        push_escaped(&mut shown, chunk.valid());
        chunk.invalid().iter().for_each(|byte| shown += &format!("\\x{byte:02x}"));
    }
    shown
}

/// A path, as [`name`] shows it.
pub fn shown(path: &Path) -> String {
    name(path.as_os_str().as_bytes())
}

/// Letters and marks that show nothing, which the standard library takes for printable.
const BLANK: [(char, char); 9] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{e0100}', '\u{e01ef}'),
];

fn push_escaped(shown: &mut String, text: &str) {
    let is_blank = |c: char| BLANK.iter().any(|(first, last)| (*first..=*last).contains(&c));
    // They do nothing to a terminal, and names are full of them.
    let is_plain = |c: char| matches!(c, '"' | '\'' | '\\');
    for piece in text.split_inclusive(|c| is_blank(c) || is_plain(c)) {
        let last = piece.chars().next_back().filter(|last| is_blank(*last) || is_plain(*last));
        // A combining character is escaped at the beginning alone, where there is no letter to which it belongs.
        shown.extend(piece[..piece.len() - last.map_or(0, char::len_utf8)].escape_debug());
        match last {
            Some(blank) if is_blank(blank) => shown.extend(blank.escape_unicode()),
            plain => shown.extend(plain),
        }
    }
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
    fn names_are_read_as_they_are() {
        let table: [(&[u8], &str); 8] = [
            (b"a/b \xc3\xa9", "a/b é"),
            (b"it's \"a\\x2d\".txt", "it's \"a\\x2d\".txt"),
            (b"a\x1b[2J\n\x7f", "a\\u{1b}[2J\\n\\u{7f}"),
            (b"bad\xff\xe2\x80", "bad\\xff\\xe2\\x80"),
            ("\u{202e}gpj.exe".as_bytes(), "\\u{202e}gpj.exe"),
            ("e\u{301} \u{301}".as_bytes(), "e\u{301} \u{301}"),
            ("\u{301}".as_bytes(), "\\u{301}"),
            ("日本 ж 🦀".as_bytes(), "日本 ж 🦀"),
        ];
        for (bytes, shown) in table {
            assert_eq!(name(bytes), shown);
            assert_eq!(name(shown.as_bytes()), shown, "once more");
        }
    }

    #[test]
    fn nothing_changes_how_a_name_is_read() {
        // Directions, joiners, spaces that are none, ends of lines, blank letters, marks, tags, private and unassigned
        // ones.
        let ranges = [
            (0, 0x1f),
            (0x7f, 0xa0),
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x1680, 0x1680),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x2000, 0x200f),
            (0x2028, 0x202f),
            (0x205f, 0x206f),
            (0x2800, 0x2800),
            (0x3000, 0x3000),
            (0x3164, 0x3164),
            (0xe000, 0xe000),
            (0xfe00, 0xfe0f),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff9, 0xfffb),
            (0x1d173, 0x1d17a),
            (0xe0001, 0xe007f),
            (0xe0100, 0xe01ef),
            (0x10ffff, 0x10ffff),
        ];
        for c in ranges.into_iter().flat_map(|(first, last)| first..=last).filter_map(char::from_u32) {
            let shown = name(format!("a{c}b").as_bytes());
            assert!(shown.starts_with("a\\") && shown.is_ascii(), "{:x}: {shown}", u32::from(c));
        }
    }

    #[test]
    fn json_has_each_byte_of_a_name() {
        #[derive(serde::Serialize)]
        struct Told {
            path: Name,
            from: Option<Name>,
            inner: Vec<Inner>,
        }
        #[derive(serde::Serialize)]
        struct Inner {
            dir: Name,
        }
        let told = |bytes: &[u8]| {
            let told = Told { path: bytes.into(), from: None, inner: vec![Inner { dir: bytes.into() }] };
            exact(serde_json::to_value(told).unwrap()).to_string()
        };
        assert_eq!(told(b"a\x1b"), r#"{"path":"a\u001b","from":null,"inner":[{"dir":"a\u001b"}]}"#);
        let lossy = "a\u{fffd}";
        let expected = format!(
            r#"{{"path":"{lossy}","path_hex":"61ff","from":null,"inner":[{{"dir":"{lossy}","dir_hex":"61ff"}}]}}"#
        );
        assert_eq!(told(b"a\xff"), expected);
    }
}
