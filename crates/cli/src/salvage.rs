//! `wholly salvage`: what can be proven of a damaged store, in another directory.

use crate::args::SalvageArgs;
use crate::check::kind;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, name, size};
use crate::survey::number;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;
use wholly::{Error, Fate, Options, SalvagedGroup};

#[derive(Serialize)]
struct Salvaged {
    dir: PathBuf,
    out: PathBuf,
    /// Whether everything was proven, and is in the copy.
    whole: bool,
    files: u64,
    bytes: u64,
    /// Committed groups that were not written back, in commit order.
    groups: Vec<Group>,
    findings: Vec<Finding>,
    seconds: f64,
}

#[derive(Serialize)]
struct Group {
    /// Its place in commit order, as `wholly dump` shows it.
    sequence: String,
    /// The byte of the log at which its commit record stands.
    position: u64,
    /// `written`, `torn` (its commit had not returned) or `left-out`.
    fate: &'static str,
    /// Why it was left out.
    why: Option<String>,
    paths: Vec<String>,
    /// Whether the files may hold a part of what was left out: a checkpoint was writing it back.
    may_be_half_written_back: bool,
}

#[derive(Serialize)]
struct Finding {
    kind: &'static str,
    place: Name,
    what: String,
}

/// Salvages a store.
pub fn run(args: &SalvageArgs, ui: &Ui) -> Result<Exit, Failure> {
    let start = Instant::now();
    let options = Options { accept_copy: args.accept_copy, ..Options::default() };
    let bar = ui.bar("copying files", 0);
    let salvaged = wholly::salvage(&args.dir, &args.out, &options, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let found = salvaged.map_err(|error| {
        let what = format!("salvage {}", args.dir.display());
        match error {
            Error::Copied(holds) => Failure::new(what, format!("this may be a copy: {holds}"))
                .advice("salvage the original, or accept it: `wholly salvage --accept-copy`"),
            Error::Exists(why) => Failure::new(what, why).advice("name a directory that is empty or not there"),
            error => Failure::of_store("salvage", &args.dir, error),
        }
    })?;
    let salvaged = Salvaged {
        dir: args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone()),
        out: args.out.canonicalize().unwrap_or_else(|_| args.out.clone()),
        whole: found.is_whole(),
        files: found.files,
        bytes: found.bytes,
        groups: found.groups.iter().map(group).collect(),
        findings: found
            .findings
            .iter()
            .map(|f| Finding { kind: kind(f.kind), place: Name::from(&*f.place), what: name(f.what.as_bytes()) })
            .collect(),
        seconds: start.elapsed().as_secs_f64(),
    };
    ui.emit("salvage", &salvaged, text)?;
    Ok(if salvaged.whole { Exit::DONE } else { Exit::DAMAGED })
}

fn group(group: &SalvagedGroup) -> Group {
    let (fate, why) = match &group.fate {
        Fate::Written => ("written", None),
        Fate::Torn => ("torn", None),
        Fate::LeftOut(why) => ("left-out", Some(name(why.as_bytes()))),
    };
    Group {
        sequence: number(group.sequence),
        position: group.position,
        fate,
        why,
        paths: group.paths.iter().map(|path| name(path.as_bytes())).collect(),
        may_be_half_written_back: group.may_be_half_home,
    }
}

fn text(salvaged: &Salvaged) -> String {
    let mut text = String::new();
    for Finding { kind, place, what } in &salvaged.findings {
        text += &format!("{kind}: {place}: {what}\n");
    }
    for Group { sequence, position, fate, why, paths, may_be_half_written_back } in &salvaged.groups {
        text += &format!("group {sequence}, byte {position} of the log: {fate}");
        text += &why.as_ref().map_or(String::new(), |why| format!(": {why}"));
        text += if *may_be_half_written_back { "; its files may hold a part of it" } else { "" };
        text += &match paths.as_slice() {
            [] => "\n".into(),
            paths => format!(" ({})\n", paths.join(", ")),
        };
    }
    let of = |fate: &str| salvaged.groups.iter().filter(|group| group.fate == fate).count() as u64;
    text += &format!(
        "{}: {} of {} copied, {} written, {} left out{}\n",
        salvaged.out.display(),
        count(salvaged.files, "file"),
        size(salvaged.bytes),
        count(of("written"), "group"),
        of("left-out"),
        if salvaged.whole { "" } else { "; the items above could not be proven, read or kept" }
    );
    text
}
