//! What the crates that programs depend on offer, item by item: `api.txt` in the folder of each. A change of it is seen
//! in review, and is the next release's to announce.

use std::path::Path;
use std::process::Command;

/// The folders of the crates whose items programs meet. Those that none of these names are not here.
const CRATES: [&str; 7] = ["changes", "core", "error", "host", "media", "vfs", "volume"];

/// rustdoc writes what it knows as JSON only under the switch of unstable features. The library that reads it knows
/// one format, which rustc 1.95 writes.
const FORMAT: u32 = 57;

/// Whether a line depends on the crates alone: which of the traits that types have by themselves there are depends on
/// the compiler. Of these, programs rely on two.
fn is_ours(line: &str) -> bool {
    let Some((head, _)) = line.split_once(" for ").filter(|_| line.starts_with("impl")) else { return true };
    let of = head.rsplit([' ', '!']).next().unwrap_or_default();
    let by_itself = ["core::marker::", "core::panic::unwind_safe::"].iter().any(|path| of.starts_with(path));
    !by_itself || ["core::marker::Copy", "core::marker::Send", "core::marker::Sync"].contains(&of)
}

#[test]
fn it_is_as_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api");
    let name = |folder: &str| if folder == "core" { "wholly".into() } else { format!("wholly-{folder}") };
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["doc", "--quiet", "--offline", "--lib", "--no-deps", "--target-dir"]).arg(&target).current_dir(&root);
    cargo.args(CRATES.map(|folder| format!("--package={}", name(folder))));
    cargo.env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json --cap-lints=allow").env("RUSTC_BOOTSTRAP", "1");
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let renew = std::env::var_os("WHOLLY_RENEW").is_some();
    let mut changed = Vec::new();
    for folder in CRATES {
        let json = target.join("doc").join(format!("{}.json", name(folder).replace('-', "_")));
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let format = &read["format_version"];
        if *format != FORMAT {
            let why = format!("rustdoc writes format {format}, and {FORMAT} can be read");
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}: take another `public-api`");
            return println!("skipped: {why}");
        }
        let api = public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).build().unwrap();
        let lines = api.to_string();
        let text: String = lines.lines().filter(|line| is_ours(line)).map(|line| format!("{line}\n")).collect();
        let file = root.join("crates").join(folder).join("api.txt");
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        if renew {
            std::fs::write(file, text).unwrap();
        } else if text != written {
            let differs = |a: &str, b: &str, sign: char| -> Vec<String> {
                let known: std::collections::HashSet<&str> = b.lines().collect();
                a.lines().filter(|line| !known.contains(line)).map(|line| format!("{sign} {line}")).collect()
            };
            changed.push(format!("crates/{folder}/api.txt:"));
            changed.extend([differs(&written, &text, '-'), differs(&text, &written, '+')].concat());
        }
    }
    assert!(
        changed.is_empty(),
        "{}\n`WHOLLY_RENEW=1 cargo test -p wholly --test all api::` writes it down",
        changed.join("\n")
    );
}

#[test]
fn lines_that_depend_on_the_compiler_are_left_out() {
    assert!(!is_ours("impl core::marker::Freeze for wholly::File"));
    assert!(!is_ours("impl<T> core::panic::unwind_safe::UnwindSafe for wholly::Group<T>"));
    assert!(!is_ours("impl !core::marker::Unpin for wholly::File"));
    assert!(is_ours("impl core::marker::Send for wholly::File"));
    assert!(is_ours("impl !core::marker::Sync for wholly::Group<'_>"));
    assert!(is_ours("impl core::clone::Clone for wholly::File"));
    assert!(is_ours("pub fn wholly::Group::commit(self) -> wholly_error::Result<()>"));
}
