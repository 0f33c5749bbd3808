//! The figures of the paper as CSV and SVG, and its claims beside what was measured.

use std::path::Path;

use super::systems::{
    CLASSIC, CLASSIC_LOCKED, HORAE, HORAE_LOCKED, MQFS, MQFS_ATOMIC, NAMES, NONE_PARALLEL, NONE_SERIAL, ONE_AREA,
    System,
};
use super::{
    ALL_OF_2, ALL_OF_11, ALL_OF_12, ALL_OF_13, KV_THREADS, SIZES, THREADS, UNLIMITED, VARMAIL_THREADS, found, over,
    over_sizes,
};
use crate::Result;
use crate::figures::{self, Axis, Claim, Figure};
use crate::report::{QueueRow, Report, StageRow, TransferRow};

/// The case of figures 11a and 11b with appends of so many KiB.
pub(super) fn of_size(kib: u64) -> &'static str {
    match kib {
        4 => "fig11ab_4k",
        8 => "fig11ab_8k",
        16 => "fig11ab_16k",
        32 => "fig11ab_32k",
        _ => "fig11ab_64k",
    }
}

/// Thousands of calls a second.
fn calls(row: &QueueRow) -> f64 {
    1e6 / row.ns_per_call
}

fn latency(row: &QueueRow) -> f64 {
    row.latency_ns / 1e3
}

/// Writes the figures and the claims of a report into a directory. Gives the names of the files.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(report: &Report, dir: &Path) -> Result<Vec<String>> {
    figures::write("mqfs", &figures_of(report), &claims(report), dir)
}

type Points = Vec<(f64, f64)>;

fn by_threads(
    report: &Report,
    of: (&str, &str),
    threads: &[u16],
    systems: &[System],
    value: fn(&QueueRow) -> f64,
) -> Vec<(String, Points)> {
    let points = |system: System| {
        let point = |count: &u16| Some((f64::from(*count), value(found(report, of, *count, system).ok()?)));
        threads.iter().filter_map(point).collect()
    };
    systems.iter().map(|system| (system.name.to_owned(), points(*system))).collect()
}

fn figures_of(report: &Report) -> Vec<Figure> {
    let threads = Figure {
        name: "",
        title: "",
        about: "",
        x: Some(Axis::log("threads, a processor for each")),
        y: Axis::linear("thousand calls/s of model time"),
        lines: Vec::new(),
        marks: Vec::new(),
        marked: "",
        names: &NAMES,
    };
    const GAP: &str = "The paper: at 24 threads Ext4-NJ is 66 % above HoraeFS on the P5800X, and the gap grows with the \
                       SSD's speed.";
    let figure_2 = |name, title, profile: &str| Figure {
        name,
        title,
        about: GAP,
        lines: by_threads(report, ("fig2", profile), &THREADS, &ALL_OF_2, calls),
        ..threads.clone()
    };
    let by_size = |value: &dyn Fn(&QueueRow, u64) -> f64| {
        let points = |system: System| {
            let point = |kib: &u64| {
                let row = found(report, (of_size(*kib), "905p"), 1, system).ok()?;
                Some((*kib as f64, value(row, *kib)))
            };
            SIZES.iter().filter_map(point).collect()
        };
        ALL_OF_11.iter().map(|system| (system.name.to_owned(), points(*system))).collect::<Vec<_>>()
    };
    let figure_12 = |name, title, about, (case, profile): (&str, &str), all: &[u16]| Figure {
        name,
        title,
        about,
        lines: by_threads(report, (case, profile), all, &ALL_OF_12, calls),
        ..threads.clone()
    };
    const VARMAIL: &str = "The paper: MQFS has 2.4 and 2.6 times the throughput of Ext4 on the 905P and the P5800X, 1.2 \
                           and 1.1 times HoraeFS's, 0.9 and about 1 times Ext4-NJ's.";
    const KV: &str = "The paper, RocksDB with 24 threads: 40 % above Ext4-NJ and HoraeFS on the 905P; 66 %, 36 % and \
                      28 % above Ext4, HoraeFS and Ext4-NJ on the P5800X.";
    const STEPS: &str = "The paper: +ccNVMe is about 1.4 times the base on the 905P and up to 2.1 times on the P5800X, \
                         +MQJournal 47 % and 53 % above that, +MetaPaging another 23 % and 20 %.";
    let figure_13 = |name, title, (case, profile): (&str, &str)| Figure {
        name,
        title,
        about: STEPS,
        lines: by_threads(report, (case, profile), &THREADS, &ALL_OF_13, calls),
        ..threads.clone()
    };
    let stages = |profile: &str| {
        let of_row = |row: &StageRow| {
            let all = [row.data_ns, row.metadata_ns, row.parent_ns, row.description_ns, row.wait_ns];
            (row.system.clone(), (1..).map(f64::from).zip(all).collect::<Points>())
        };
        report.stages.iter().filter(|row| row.profile == profile).map(of_row).collect::<Vec<_>>()
    };
    let figure_14 = |name, title, profile: &str| Figure {
        name,
        title,
        about: "The paper: MQFS takes 42 % less than Ext4-NJ, and fatomic about 10 us; S-iM is over 1 us. Here the \
                stages 1 to 4 are by the real clock, and 5 is model time.",
        x: Some(Axis::linear("stage: 1 S-iD, 2 S-iM, 3 S-pM, 4 S-JH, 5 W-x")),
        y: Axis::log("ns"),
        lines: stages(profile),
        ..threads.clone()
    };
    vec![
        figure_2("2a", "MQFS, figure 2: append 4 KiB and fsync, times of the 750", "750"),
        figure_2("2b", "MQFS, figure 2: append 4 KiB and fsync, times of the 905P", "905p"),
        figure_2("2c", "MQFS, figure 2: append 4 KiB and fsync, times of the P5800X", "p5800x"),
        Figure {
            name: "11a",
            title: "MQFS, figure 11a: appends of one thread, times of the 905P",
            about: "The paper: on average 2.1 times Ext4, 1.9 times HoraeFS, 1.2 times Ext4-NJ.",
            x: Some(Axis::log("KiB of an append")),
            y: Axis::linear("MB/s of model time"),
            lines: by_size(&|row, kib| kib as f64 * 1024e3 / row.ns_per_call),
            ..threads.clone()
        },
        Figure {
            name: "11b",
            title: "MQFS, figure 11b: latency of appends of one thread, times of the 905P",
            about: "The paper: on average 56 % less than Ext4, 41 % less than HoraeFS, 24 % less than Ext4-NJ.",
            x: Some(Axis::log("KiB of an append")),
            y: Axis::linear("us of model time"),
            lines: by_size(&|row, _| latency(row)),
            ..threads.clone()
        },
        Figure {
            name: "11c",
            title: "MQFS, figure 11c: appends of 4 KiB, times of the 905P",
            about: "The paper: below 12 threads up to 2.4, 1.5 and 1.1 times Ext4, HoraeFS and Ext4-NJ; above 2, 1.5 \
                    and 0.68 times.",
            lines: by_threads(report, ("fig11cd", "905p"), &THREADS, &ALL_OF_11, calls),
            ..threads.clone()
        },
        Figure {
            name: "11d",
            title: "MQFS, figure 11d: latency of appends of 4 KiB, times of the 905P",
            about: "The paper: 55.6 % and 28 % less than Ext4 and HoraeFS, on average.",
            y: Axis::log("us of model time"),
            lines: by_threads(report, ("fig11cd", "905p"), &THREADS, &ALL_OF_11, latency),
            ..threads.clone()
        },
        figure_12(
            "12a-905p",
            "MQFS, figure 12a: varmail_like, times of the 905P",
            VARMAIL,
            ("fig12a", "905p"),
            &VARMAIL_THREADS,
        ),
        figure_12(
            "12a-p5800x",
            "MQFS, figure 12a: varmail_like, times of the P5800X",
            VARMAIL,
            ("fig12a", "p5800x"),
            &VARMAIL_THREADS,
        ),
        figure_12("12b-905p", "MQFS, figure 12b: kv, times of the 905P", KV, ("fig12b", "905p"), &KV_THREADS),
        figure_12("12b-p5800x", "MQFS, figure 12b: kv, times of the P5800X", KV, ("fig12b", "p5800x"), &KV_THREADS),
        figure_13("13a", "MQFS, figure 13a: 4 KiB and fsync, private files, 905P", ("fig13", "905p")),
        figure_13("13b", "MQFS, figure 13b: 4 KiB and fsync, private files, P5800X", ("fig13", "p5800x")),
        figure_13("13a-beside", "MQFS, figure 13a: inodes in one block, 905P", ("fig13_beside", "905p")),
        figure_13("13b-beside", "MQFS, figure 13b: inodes in one block, P5800X", ("fig13_beside", "p5800x")),
        figure_14("14a", "MQFS, figure 14: stages, with the wait of the 905P", "905p"),
        figure_14("14b", "MQFS, figure 14: stages, with the wait of the P5800X", "p5800x"),
    ]
}

fn most(all: Vec<f64>) -> f64 {
    all.into_iter().fold(0.0, f64::max)
}

fn mean(all: Vec<f64>) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// How many times as long one system takes as another.
fn longer(report: &Report, of: (&str, &str), threads: u16, [fast, slow]: [System; 2]) -> Result<f64, String> {
    Ok(found(report, of, threads, slow)?.latency_ns / found(report, of, threads, fast)?.latency_ns)
}

fn claims(report: &Report) -> Vec<Claim> {
    let mut claims = of_table_1(report);
    // How much more Ext4-NJ does than HoraeFS.
    let gap = |profile: &str, threads: u16, none: System| over(report, ("fig2", profile), threads, [none, HORAE]);
    for none in [NONE_PARALLEL, NONE_SERIAL] {
        for threads in [24, 2] {
            let what = format!("{} / horae, {threads} threads, p5800x (model time)", none.name);
            claims.push(Claim::ratio("2", &what, 1.66, gap("p5800x", threads, none)));
            let growth = gap("p5800x", threads, none).and_then(|fast| Ok(fast / gap("750", threads, none)?));
            let what = format!("{} / horae, {threads} threads, p5800x over 750 (model time)", none.name);
            claims.push(Claim::more("2", &what, growth));
        }
    }
    let nj = [(NONE_SERIAL, "each block waited for"), (NONE_PARALLEL, "all at once")];
    let few = [1, 2, 4];
    let of_11 = ("fig11cd", "905p");
    let by_latency = |slow: System| {
        let all = SIZES.iter().map(|kib| longer(report, (of_size(*kib), "905p"), 1, [MQFS, slow]));
        all.collect::<Result<Vec<_>, _>>().map(mean)
    };
    let below = |slow: System, of: &dyn Fn(u16, [System; 2]) -> Result<f64, String>| {
        few.iter().map(|threads| of(*threads, [MQFS, slow])).collect::<Result<Vec<_>, _>>()
    };
    let rate = |threads: u16, systems: [System; 2]| over(report, of_11, threads, systems);
    let time = |threads: u16, systems: [System; 2]| longer(report, of_11, threads, systems);
    let mut claim = |figure, system: System, note: &str, paper: f64, what: &str, ours| {
        let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
        claims.push(Claim::ratio(figure, &format!("{what} {}{note}, model time", system.name), paper, ours));
    };
    let others = [(CLASSIC, ""), (HORAE, ""), nj[0], nj[1]];
    for ((system, note), paper) in others.into_iter().zip([2.1, 1.9, 1.2, 1.2]) {
        claim("11a", system, note, paper, "throughput of mqfs over", over_sizes(report, [MQFS, system]));
    }
    for ((system, note), paper) in others.into_iter().zip([0.56, 0.41, 0.24, 0.24]) {
        let paper: f64 = 1.0 / (1.0 - paper);
        claim("11b", system, note, (paper * 100.0).round() / 100.0, "mqfs's latency below that of", by_latency(system));
    }
    for ((system, note), paper) in others.into_iter().zip([2.4, 1.5, 1.1, 1.1]) {
        claim("11c", system, note, paper, "below 12 threads, at best, mqfs over", below(system, &rate).map(most));
    }
    for ((system, note), paper) in others.into_iter().zip([2.0, 1.5, 0.68, 0.68]) {
        claim("11c", system, note, paper, "with 24 threads, mqfs over", rate(24, [MQFS, system]));
    }
    for (system, paper) in [(CLASSIC, 2.25), (HORAE, 1.39)] {
        claim(
            "11d",
            system,
            "",
            paper,
            "below 12 threads, mqfs's latency below that of",
            below(system, &time).map(mean),
        );
    }
    for (profile, papers) in [("905p", [2.4, 1.2, 0.9]), ("p5800x", [2.6, 1.1, 1.0])] {
        let all = [CLASSIC_LOCKED, HORAE_LOCKED, NONE_SERIAL, NONE_PARALLEL];
        for (system, paper) in all.into_iter().zip([papers[0], papers[1], papers[2], papers[2]]) {
            let ours = over(report, ("fig12a", profile), 2, [MQFS, system]);
            claim("12a", system, profile, paper, "varmail_like, 2 threads: mqfs over", ours);
        }
    }
    for (profile, papers) in [("905p", [1.4, 1.4, 1.4]), ("p5800x", [1.66, 1.36, 1.28])] {
        let all = [CLASSIC_LOCKED, HORAE_LOCKED, NONE_SERIAL, NONE_PARALLEL];
        for (system, paper) in all.into_iter().zip([papers[0], papers[1], papers[2], papers[2]]) {
            // Of the 905P the paper says nothing of Ext4.
            if profile == "905p" && system == CLASSIC_LOCKED {
                continue;
            }
            let ours = over(report, ("fig12b", profile), 24, [MQFS, system]);
            claim("12b", system, profile, paper, "kv, 24 threads: mqfs over", ours);
        }
    }
    for (case, note) in [("fig13", "private files"), ("fig13_beside", "inodes in one block")] {
        for (figure, profile, papers) in [("13a", "905p", [1.4, 1.47, 1.23]), ("13b", "p5800x", [2.1, 1.53, 1.2])] {
            for (step, paper) in (1..).zip(papers) {
                let [slow, fast] = [ALL_OF_13[step - 1], ALL_OF_13[step]];
                let ratio = |threads: &u16| over(report, (case, profile), *threads, [fast, slow]);
                let all: Result<Vec<f64>, String> = THREADS.iter().map(ratio).collect();
                // Of the first step on the P5800X the paper has the best.
                let ours = if paper == 2.1 { all.map(most) } else { all.map(mean) };
                claim(figure, slow, note, paper, &format!("{} ({}) over", fast.name, fast.paper), ours);
            }
        }
    }
    let queues = over(report, ("fig13_queues", UNLIMITED), 24, [MQFS, ONE_AREA]);
    let what = "mqfs over one_area, 24 threads, p5800x of any bandwidth, model time";
    claims.push(Claim::more("13", what, queues));
    for base in [MQFS, NONE_PARALLEL] {
        let what = format!("mqfs_atomic over {}, one thread, model time", base.name);
        claims.push(Claim::more("11a", &what, over_sizes(report, [MQFS_ATOMIC, base])));
    }
    let stages = |profile: &str, system: System| {
        let is_it = |row: &&StageRow| row.profile == profile && row.system == system.name;
        report.stages.iter().find(is_it).ok_or_else(|| format!("{} was not measured in fig14", system.name))
    };
    for (profile, none) in [("p5800x", NONE_SERIAL), ("905p", NONE_SERIAL), ("p5800x", NONE_PARALLEL)] {
        let ours = stages(profile, none).and_then(|slow| Ok(slow.all_ns / stages(profile, MQFS)?.all_ns));
        let what = format!("{} over mqfs, all stages, real and model time of {profile}", none.name);
        claims.push(Claim::ratio("14", &what, 1.72, ours));
    }
    let told = stages("p5800x", MQFS_ATOMIC)
        .and_then(|row| row.told_ns.map(|ns| ns / 1e3).ok_or_else(|| "it was not measured".into()));
    claims.push(Claim::at_most("14", "fatomic, us of the processor, real time", 10.0, told));
    claims
}

/// Table 1: counts.
fn of_table_1(report: &Report) -> Vec<Claim> {
    let all = |system: &str, of: fn(&TransferRow) -> f64| {
        let rows: Vec<f64> = report.transfers.iter().filter(|row| row.system == system).map(of).collect();
        if rows.is_empty() { Err(format!("{system} was not counted")) } else { Ok(most(rows)) }
    };
    // Its formula has one block more: a file's inode.
    let blocks = |row: &TransferRow| row.block_ios as f64 / (row.n + 2) as f64;
    vec![
        Claim::upto("table 1", "MMIO of mqfs, each N", 4.0, all(MQFS.name, |row| row.mmio as f64)),
        Claim::upto("table 1", "MMIO of mqfs_atomic, each N", 2.0, all(MQFS_ATOMIC.name, |row| row.mmio as f64)),
        Claim::upto("table 1", "block I/O of mqfs / (N + 1), with the inode in N", 1.0, all(MQFS.name, blocks)),
        Claim::upto("table 1", "block I/O of mqfs_atomic", 0.0, all(MQFS_ATOMIC.name, |row| row.block_ios as f64)),
    ]
}
