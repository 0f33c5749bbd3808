//! The figures of the paper as CSV and SVG, from the counts of a run, with its claims beside ours.
//!
//! Throughput is bytes of records by model time, in MB/s; `6-wall` and `7-wall` are the same by wall time. The paper
//! shows no numbers in its figures: its values are those of the text.

use super::{EXT4, PERCENT, SHARED, sizes};
use crate::Result;
use crate::figures::{self, Axis, Claim, Figure};
use crate::report::{CountRow, Report};
use std::path::Path;

/// Systems that are durable when a call returns, but for `none`.
const OTHERS: [&str; 2] = ["shadow", "shortcut_jfs"];
/// The paper's names of the systems.
const NAMES: [(&str, &str); 7] = [
    ("none", "ramfs"),
    ("undo", "MinL2R"),
    (SHARED, "MinL2R, not durable"),
    ("shadow", "BPFS, copies up to the root"),
    ("shortcut_jfs", "Shortcut-JFS"),
    (EXT4[0].1, "Ext4, journal"),
    (EXT4[1].1, "Ext4, ordered"),
];
/// What iozone does, and the largest records of both.
const IOZONE: [&str; 3] = ["iozone_in_order", "iozone_random", "iozone_fwrite"];
const FIO_UPTO: u64 = 32;
const IOZONE_UPTO: u64 = 512;

/// The threshold with the fewest bytes, in percent of a block.
pub(super) fn best_threshold(rows: &[CountRow]) -> Result<f64, String> {
    let of = |percent: u32| {
        let name = format!("threshold_{percent}");
        let row = rows.iter().find(|row| row.case == name);
        row.map(|row| (percent, row.all(|count| count.bytes))).ok_or_else(|| format!("{name} was not counted"))
    };
    let all = PERCENT.into_iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let best = all.into_iter().min_by(|one, other| one.1.total_cmp(&other.1));
    best.map(|(percent, _)| f64::from(percent)).ok_or_else(|| "there is none".into())
}

struct Measured<'r>(&'r Report);

impl Measured<'_> {
    fn row(&self, case: &str, system: &str) -> Result<&CountRow, String> {
        let found = self.0.counts.iter().find(|row| row.case == case && row.system == system);
        found.ok_or_else(|| format!("{system} was not counted in {case}"))
    }

    /// MB/s of model time.
    fn model(&self, case: &str, system: &str) -> Result<f64, String> {
        let row = self.row(case, system)?;
        Ok(row.value_bytes as f64 * 1e3 / row.model_ns)
    }

    /// MB/s of wall time.
    fn wall(&self, case: &str, system: &str) -> Result<f64, String> {
        let found = self.0.rows.iter().find(|row| row.case == case && row.system == system);
        let row = found.ok_or_else(|| format!("{system} was not measured in {case}"))?;
        Ok(row.value_bytes as f64 * 1e3 / row.ns_per_group)
    }

    fn backup(&self, kib: u64, system: &str) -> Result<f64, String> {
        Ok(self.row(&format!("backup_{kib}k"), system)?.phases["backup"].bytes)
    }

    /// How many times as fast `undo` is as another system, for each size.
    fn over(&self, prefix: &str, upto: u64, system: &str) -> Result<Vec<f64>, String> {
        let ratio = |kib: u64| {
            let case = format!("{prefix}_{kib}k");
            Ok(self.model(&case, "undo")? / self.model(&case, system)?)
        };
        sizes(upto).map(ratio).collect()
    }
}

fn most(all: Vec<f64>) -> f64 {
    all.into_iter().fold(0.0, f64::max)
}

fn least(all: Vec<f64>) -> f64 {
    all.into_iter().fold(f64::INFINITY, f64::min)
}

/// Writes the figures and the claims of a report into a directory. Gives the names of the files.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(report: &Report, dir: &Path) -> Result<Vec<String>> {
    let measured = Measured(report);
    figures::write("minl2r", &figures_of(&measured), &claims(&measured), dir)
}

fn figures_of(measured: &Measured<'_>) -> Vec<Figure> {
    type Of<'f> = &'f dyn Fn(&str, &str) -> Result<f64, String>;
    let line = |prefix: &str, upto: u64, system: &str, of: Of<'_>| {
        let points = sizes(upto).filter_map(|kib| Some((kib as f64, of(&format!("{prefix}_{kib}k"), system).ok()?)));
        points.collect::<Vec<_>>()
    };
    let systems = ["none", "undo", SHARED, "shadow", "shortcut_jfs", EXT4[0].1, EXT4[1].1];
    let all = |prefix: &str, upto: u64, of: Of<'_>| {
        let lines = systems.iter().map(|system| (system.to_string(), line(prefix, upto, system, of)));
        lines.collect::<Vec<_>>()
    };
    let model: Of<'_> = &|case, system| measured.model(case, system);
    let wall: Of<'_> = &|case, system| measured.wall(case, system);
    let figure = Figure {
        name: "",
        title: "",
        about: "",
        x: Some(Axis::log("record, KiB")),
        y: Axis::log("MB/s"),
        lines: Vec::new(),
        marks: Vec::new(),
        marked: "",
        names: &NAMES,
    };
    let throughput = |name, title, about, lines| Figure { name, title, about, lines, ..figure.clone() };
    let thresholds = PERCENT.into_iter().filter_map(|percent| {
        Some((f64::from(percent), measured.model(&format!("threshold_{percent}"), "undo").ok()?))
    });
    let thresholds: Vec<(f64, f64)> = thresholds.collect();
    let at_half = thresholds.iter().find(|(percent, _)| *percent == 50.0);
    let marks = at_half.map(|(percent, value)| ("undo", *percent, *value)).into_iter().collect();
    let backup = |system: &str| {
        let points = sizes(IOZONE_UPTO).filter_map(|kib| Some((kib as f64, measured.backup(kib, system).ok()?)));
        (system.to_owned(), points.collect())
    };
    const FIO: &str = "The paper: MinL2R is up to 286 % above BPFS, 291 % above Shortcut-JFS, 395 % and 115 % above \
                       Ext4 with data=journal and data=ordered; ramfs is above all.";
    const IOZONE_SAYS: &str = "The paper: MinL2R is above all but ramfs at each size, up to 750 % above BPFS with large \
                               records; the gap grows with the record.";
    vec![
        Figure {
            name: "5",
            title: "MinL2R, figure 5: throughput by threshold (model time)",
            about: "The paper: half of a block is the best threshold.",
            x: Some(Axis::linear("threshold, percent of a block")),
            y: Axis::linear("MB/s"),
            lines: vec![("undo".into(), thresholds)],
            marks,
            marked: "the paper's best threshold",
            ..figure.clone()
        },
        throughput("6", "MinL2R, figure 6: fio, random writes (model time)", FIO, all("fio", FIO_UPTO, model)),
        throughput("6-wall", "MinL2R, figure 6: fio, random writes (wall time)", FIO, all("fio", FIO_UPTO, wall)),
        throughput(
            "7a",
            "MinL2R, figure 7: iozone, in order (model time)",
            IOZONE_SAYS,
            all(IOZONE[0], IOZONE_UPTO, model),
        ),
        throughput(
            "7b",
            "MinL2R, figure 7: iozone, at random (model time)",
            IOZONE_SAYS,
            all(IOZONE[1], IOZONE_UPTO, model),
        ),
        throughput(
            "7c",
            "MinL2R, figure 7: iozone, fwrite (model time)",
            IOZONE_SAYS,
            all(IOZONE[2], IOZONE_UPTO, model),
        ),
        throughput(
            "7b-wall",
            "MinL2R, figure 7: iozone, at random (wall time)",
            IOZONE_SAYS,
            all(IOZONE[1], IOZONE_UPTO, wall),
        ),
        Figure {
            name: "8",
            title: "MinL2R, figure 8: backup of a record (counted)",
            about: "The paper: BPFS backs up more bytes than MinL2R at each size.",
            y: Axis::log("bytes of backup"),
            lines: vec![backup("undo"), backup("shadow")],
            ..figure
        },
    ]
}

fn claims(measured: &Measured<'_>) -> Vec<Claim> {
    let fio = |system: &str| measured.over("fio", FIO_UPTO, system);
    let all_of_iozone = |system: &str| {
        let all = IOZONE.iter().map(|prefix| measured.over(prefix, IOZONE_UPTO, system));
        Ok::<_, String>(all.collect::<Result<Vec<_>, _>>()?.concat())
    };
    let against_others = || {
        let others = OTHERS.iter().chain(EXT4.iter().map(|(_, system)| system));
        let all = others.map(|system| all_of_iozone(system).map(least));
        Ok(least(all.collect::<Result<Vec<_>, String>>()?))
    };
    let gap = || {
        let over = measured.over(IOZONE[1], IOZONE_UPTO, "shadow")?;
        Ok(over[over.len() - 1] / over[0])
    };
    let backup = || {
        let ratio = |kib: u64| Ok::<_, String>(measured.backup(kib, "shadow")? / measured.backup(kib, "undo")?);
        Ok(least(sizes(IOZONE_UPTO).map(ratio).collect::<Result<Vec<_>, _>>()?))
    };
    let off_half = best_threshold(&measured.0.counts).map(|percent| (percent - 50.0).abs());
    vec![
        Claim::upto("5", "distance of the best threshold from half of a block, percent", 0.0, off_half),
        Claim::ratio(
            "6",
            "undo / shadow (copies up to the root; by count 1.83 at best), best size",
            2.86,
            fio("shadow").map(most),
        ),
        Claim::ratio("6", "undo / shortcut_jfs, best size", 2.91, fio("shortcut_jfs").map(most)),
        Claim::ratio("6", "undo / ext4 data=journal, best size", 3.95, fio(EXT4[0].1).map(most)),
        Claim::ratio("6", "undo / ext4 data=ordered, best size", 1.15, fio(EXT4[1].1).map(most)),
        Claim::upto("6", "undo / none, each size", 1.0, fio("none").map(most)),
        Claim::ratio("7", "undo / shadow (copies up to the root), best size", 7.5, all_of_iozone("shadow").map(most)),
        Claim::more("7", "undo / each other but none, each size", against_others()),
        Claim::more("7", "undo / shadow, 512 KiB over 1 KiB", gap()),
        Claim::more("8", "shadow / undo, bytes of backup, each size", backup()),
    ]
}
