//! A replayed crash as a page that needs nothing but a browser: a picture of each crash, and below it a row for each
//! store, flush and fence.

use super::picture;
use super::svg::{self, escaped};
use super::timeline::Fate;
use super::verdict;
use std::fmt::Write;
use wholly_crash::Replay;
use wholly_sim::{DEAD, KERNEL, Timeline};

const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#1f2328;background:#fff}
h1{font-size:22px}h2{font-size:17px;margin-top:2em}.picture{overflow-x:auto;margin-bottom:1em}summary{cursor:pointer}
table{border-collapse:collapse;font:12px/1.3 ui-monospace,monospace;margin:1em 0}
td,th{padding:1px 10px;text-align:left}td.n,th.n{text-align:right}
tr.kept{background:#c9ecdf}tr.lost{background:#fbdccb}tr.torn,tr.pending{background:#fbeac0}tr.broken{background:#f1dcec}
tr.order{color:#0550ae}tr.mark{color:#59636e;font-style:italic}
.bad{color:#c2410c;font-weight:bold}.good{color:#00724f;font-weight:bold}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}
tr.kept{background:#0f4435}tr.lost{background:#5c2a12}tr.torn,tr.pending{background:#4a3a0c}tr.broken{background:#45213e}
tr.order{color:#58a6ff}tr.mark{color:#9198a1}.bad{color:#ff8f5c}.good{color:#3fcf9c}}
";

/// The page.
pub fn page(replay: &Replay) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, replay);
    out
}

fn write(out: &mut String, replay: &Replay) -> std::fmt::Result {
    let class = if replay.violation.is_some() { "bad" } else { "good" };
    let name = escaped(&replay.name);
    writeln!(out, "<!doctype html><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}{}</style>", svg::STYLE)?;
    writeln!(out, "<h1>{name}</h1><p class=\"{class}\">{}</p>", escaped(&verdict(replay)))?;
    for crash in &replay.crashes {
        writeln!(out, "<h2>crash {} ({})</h2>", escaped(&crash.choice.to_string()), escaped(&crash.moment))?;
        writeln!(out, "<div class=\"picture\">{}</div>", picture::of(replay, crash))?;
        table(out, "Every event up to the crash", &crash.timeline)?;
        table(out, "Every event of the recovery", &crash.recovery.timeline)?;
    }
    Ok(())
}

fn table(out: &mut String, about: &str, timeline: &Timeline) -> std::fmt::Result {
    writeln!(
        out,
        "<details><summary>{about}</summary><table><tr><th class=\"n\">time<th \
         class=\"n\">thread<th>operation<th>site<th>what<th>place<th class=\"n\">offset<th class=\"n\">bytes<th>state"
    )?;
    for row in &timeline.rows {
        let class = match Fate::of(row.state) {
            Some(fate) => fate.class(),
            None if row.site.is_empty() => "mark",
            None => "order",
        };
        let thread = match row.thread {
            KERNEL => "kernel".into(),
            DEAD => "dead".into(),
            thread => thread.to_string(),
        };
        let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
        writeln!(
            out,
            "<tr class=\"{class}\"><td class=\"n\">{}<td class=\"n\">{thread}<td>{}<td>{}<td>{}<td>{}<td \
             class=\"n\">{}<td class=\"n\">{}<td>{}",
            row.time,
            escaped(&row.op_label),
            escaped(&row.site),
            row.what,
            escaped(&row.place),
            number(row.offset),
            number(row.len),
            escaped(&row.state.to_string())
        )?;
    }
    writeln!(out, "</table></details>")
}
