//! A replayed crash as a page that needs nothing but a browser: one row for each store, flush and fence, coloured by
//! what became of it.

use crate::crash::verdict;
use std::fmt::Write;
use wholly_crash::Replay;
use wholly_sim::{DEAD, KERNEL, RowState};

const STYLE: &str = "\
body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222;background:#fff}
table{border-collapse:collapse;font:12px/1.3 ui-monospace,monospace;margin:1em 0}
td,th{padding:1px 10px;text-align:left}td.n,th.n{text-align:right}
tr.kept{background:#dff3df}tr.lost{background:#f8d7d5}tr.torn{background:#fde9c4}tr.broken{background:#e3d5f5}
tr.order{color:#06c;border-bottom:1px solid #9bd}tr.mark{color:#777;font-style:italic}
.bad{color:#a00;font-weight:bold}.good{color:#070;font-weight:bold}
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
    writeln!(out, "<!doctype html><meta charset=\"utf-8\"><title>{name}</title><style>{STYLE}</style>")?;
    writeln!(out, "<h1>{name}</h1><p class=\"{class}\">{}</p>", escaped(&verdict(replay)))?;
    writeln!(
        out,
        "<p>Every event up to the crash. Green: pending, and the crash kept it. Red: pending, and lost. Orange: kept \
         in part. White: it was durable by then. Blue: what makes others durable. Violet: broken on purpose.</p>"
    )?;
    for crash in &replay.crashes {
        writeln!(out, "<h2>crash {} ({})</h2>", escaped(&crash.choice.to_string()), escaped(&crash.moment))?;
        writeln!(
            out,
            "<table><tr><th class=\"n\">time<th class=\"n\">thread<th>operation<th>site<th>what<th>place<th \
             class=\"n\">offset<th class=\"n\">bytes<th>state"
        )?;
        for row in &crash.timeline.rows {
            let class = match row.state {
                RowState::Survived(_) => "kept",
                RowState::Lost(_) => "lost",
                RowState::Torn { .. } | RowState::Pending(_) => "torn",
                RowState::Broken => "broken",
                RowState::Durable => "",
                RowState::Plain if row.site.is_empty() => "mark",
                RowState::Plain => "order",
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
        writeln!(out, "</table>")?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
