//! A picture of what led to a crash: one page without anything from outside. Logical time goes to the right; a row for each thread;
//! each store a box in the colour of what became of it; fences and syncs are lines.

use std::fmt::Write;

use wholly_media::sim::{Row, RowState, Timeline};

use crate::replay::{Crash, Replay};

const STEP: usize = 22;
const LEFT: usize = 96;
const ROW: usize = 46;
const TOP: usize = 44;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--faint:#d7dce2;--durable:#2f7d4f;--pending:#d9a21b;--survived:#3b7dd8;--lost:#c8372d;--torn:#8a3fb0;--plain:#8b949e}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--paper:#14171b;--faint:#353b43;--durable:#58b27c;--survived:#6aa5f0;--lost:#ee6a5f;--torn:#bf7fe0}}
body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem;max-width:none}
h1{font-size:1.25rem}h2{font-size:1rem;margin-top:2rem}code,td,th{font-family:ui-monospace,monospace;font-size:12px}
.scroll{overflow-x:auto;border:1px solid var(--faint);border-radius:6px}
svg text{fill:var(--ink);font:11px ui-monospace,monospace}
.durable{fill:var(--durable)}.pending{fill:var(--pending)}.survived{fill:var(--survived)}.lost{fill:var(--lost)}.torn{fill:var(--torn)}.broken{fill:none;stroke:var(--lost);stroke-dasharray:3 2}
.order{stroke:var(--ink);stroke-width:2}.brokenorder{stroke:var(--lost);stroke-width:2;stroke-dasharray:4 3}
.op{fill:var(--faint)}.lane{stroke:var(--faint)}.crash{stroke:var(--lost);stroke-width:3}
table{border-collapse:collapse;margin-top:1rem}td,th{padding:1px 10px 1px 0;text-align:left;white-space:nowrap}td.n{text-align:right}
.key span{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1.1em;border-radius:2px}
.verdict{font-weight:600}.bad{color:var(--lost)}.good{color:var(--durable)}";

/// The page for a replayed state.
pub fn page(replay: &Replay) -> String {
    let mut page = String::new();
    let title = escape(&replay.name);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         <h1>What led to <code>{title}</code></h1>"
    );
    let _ = match &replay.violation {
        Some(what) => write!(page, "<p class=\"verdict bad\">Violation: {}</p>", escape(what)),
        None => write!(page, "<p class=\"verdict good\">Recovered as it should.</p>"),
    };
    page += "<p class=\"key\">A store is ";
    for (class, word) in [
        ("durable", "durable"),
        ("pending", "pending at the crash"),
        ("survived", "pending, and survived"),
        ("torn", "pending, and partly survived"),
        ("lost", "pending, and lost"),
    ] {
        let _ = write!(page, "<span style=\"background:var(--{class})\"></span>{word}");
    }
    page += ". A vertical line is a fence, a sync or the return of a synchronous call.</p>";
    for (n, crash) in replay.crashes.iter().enumerate() {
        let what = if n == 0 { "The run" } else { "The recovery from it" };
        let _ = write!(
            page,
            "<h2>{what}, up to the crash <code>{}</code> ({})</h2>",
            escape(&crash.choice.to_string()),
            escape(&crash.moment)
        );
        picture(&mut page, crash);
        table(&mut page, &crash.timeline);
    }
    page += "</html>\n";
    page
}

fn class(state: RowState) -> &'static str {
    match state {
        RowState::Plain | RowState::Durable => "durable",
        RowState::Broken => "broken",
        RowState::Pending(_) => "pending",
        RowState::Survived(_) => "survived",
        RowState::Lost(_) => "lost",
        RowState::Torn { .. } => "torn",
    }
}

/// Whether the row orders rather than changes.
fn orders(row: &Row) -> bool {
    matches!(row.what, "fence" | "sync file" | "sync directory" | "sync all" | "returns")
}

fn is_mark(row: &Row) -> bool {
    matches!(row.what, "begin" | "return" | "note")
}

fn tip(row: &Row) -> String {
    let range = match (row.offset, row.len) {
        (Some(offset), Some(len)) => format!(" {offset}+{len}"),
        (None, Some(len)) => format!(" {len}"),
        _ => String::new(),
    };
    escape(&format!("time {}: {} {}{range} {} {}", row.time, row.what, row.place, row.site, row.state))
}

fn picture(page: &mut String, crash: &Crash) {
    let rows = &crash.timeline.rows;
    let mut threads: Vec<u64> = rows.iter().map(|row| row.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let x = |time: u64| LEFT + time as usize * STEP;
    let width = x(rows.len() as u64) + STEP * 2;
    let height = TOP + threads.len().max(1) * ROW + 24;
    let _ = write!(
        page,
        "<div class=\"scroll\"><svg width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"timeline\">"
    );
    for (n, thread) in threads.iter().enumerate() {
        let y = TOP + n * ROW + ROW / 2;
        let _ = write!(
            page,
            "<text x=\"8\" y=\"{}\">thread {thread}</text><line class=\"lane\" x1=\"{LEFT}\" x2=\"{width}\" y1=\"{y}\" y2=\"{y}\"/>",
            y + 4
        );
    }
    // Operations, as far as they are told.
    let mut begun: Vec<(&Row, u64)> = Vec::new();
    for row in rows.iter().filter(|row| is_mark(row)) {
        if row.what == "begin" {
            begun.push((row, rows.len() as u64));
        } else if let Some(open) = begun.iter_mut().rev().find(|open| open.0.op == row.op) {
            open.1 = row.time;
        }
    }
    for (row, end) in &begun {
        let (from, to) = (x(row.time), x(*end));
        let label = if row.op_label.is_empty() { &row.place } else { &row.op_label };
        let _ = write!(
            page,
            "<rect class=\"op\" x=\"{from}\" y=\"8\" width=\"{}\" height=\"20\" rx=\"3\"><title>{}</title></rect>\
             <text x=\"{}\" y=\"22\">{}</text>",
            (to - from).max(STEP / 2),
            escape(label),
            from + 4,
            escape(&label.chars().take((to - from) / 7).collect::<String>())
        );
    }
    for row in rows.iter().filter(|row| !is_mark(row)) {
        let lane = threads.iter().position(|thread| *thread == row.thread).unwrap_or(0);
        let (at, y) = (x(row.time), TOP + lane * ROW);
        if orders(row) {
            let class = if row.state == RowState::Broken { "brokenorder" } else { "order" };
            let middle = at + STEP / 2 - 2;
            let _ = write!(
                page,
                "<line class=\"{class}\" x1=\"{middle}\" x2=\"{middle}\" y1=\"{}\" y2=\"{}\"><title>{}</title></line>",
                y + 2,
                y + ROW - 2,
                tip(row)
            );
        } else {
            let _ = write!(
                page,
                "<rect class=\"{}\" x=\"{at}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"2\"><title>{}</title></rect>",
                class(row.state),
                y + 10,
                STEP - 5,
                ROW - 20,
                tip(row)
            );
        }
    }
    let end = x(rows.len() as u64) + 4;
    let _ = write!(
        page,
        "<line class=\"crash\" x1=\"{end}\" x2=\"{end}\" y1=\"4\" y2=\"{}\"><title>crash</title></line>",
        height - 18
    );
    for time in (0..=rows.len() as u64).step_by(10) {
        let _ = write!(page, "<text x=\"{}\" y=\"{}\">{time}</text>", x(time), height - 4);
    }
    page.push_str("</svg></div>");
}

fn table(page: &mut String, timeline: &Timeline) {
    page.push_str(
        "<details><summary>Every event</summary><table><tr><th>time<th>thread<th>operation<th>site<th>what<th>place<th>offset<th>bytes<th>state</tr>",
    );
    for row in &timeline.rows {
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let _ = write!(
            page,
            "<tr><td class=\"n\">{}<td class=\"n\">{}<td>{}<td>{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td>{}</tr>",
            row.time,
            row.thread,
            escape(&row.op_label),
            escape(&row.site),
            row.what,
            escape(&row.place),
            number(row.offset),
            number(row.len),
            escape(&row.state.to_string())
        );
    }
    page.push_str("</table>");
    if !timeline.units.is_empty() {
        page.push_str("<p>Pending at the crash:</p><ol start=\"0\">");
        for unit in &timeline.units {
            let _ = write!(page, "<li><code>{}</code>", escape(unit));
        }
        page.push_str("</ol>");
    }
    page.push_str("</details>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_every_store_and_the_verdict() {
        let replay = crate::replay("small-commit:pmem:p20:none").expect("a state");
        let page = page(&replay);
        assert!(page.contains("Recovered as it should"));
        let stores = replay.crashes[0].timeline.rows.iter().filter(|row| row.what == "store").count();
        assert!(page.matches("<rect class=").count() >= stores && stores > 0);
        assert!(!page.contains("http"), "nothing comes from outside");
    }
}
