//! What led to a crash, for people: rows of plain data, and a table of them.

use super::choice::{Choice, Pick};
use super::config::{ANY, DEAD, KERNEL};
use super::event::{EventKind, Fate, Mark, NameChange, Trace};
use super::explore::Explorer;
use super::point::Point;
use super::state::{LOG, ObjId};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use wholly_blocks::BLOCK;
use wholly_nvme::model::Rung;

/// What became of the effect of an event at a crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    /// It changes nothing: a mark, a fence, a sync.
    Plain,
    /// A mutation took the call away, or its ordering.
    Broken,
    /// All of it is certain to survive.
    Durable,
    /// Some of it is not: so many parts.
    Pending(u32),
    /// In the given choice, all that was pending of it survives.
    Survived(u32),
    /// In the given choice, none of what was pending of it survives.
    Lost(u32),
    /// In the given choice, some of what was pending of it survives.
    Torn {
        /// Parts that do.
        survived: u32,
        /// Parts that do not.
        lost: u32,
    },
}

impl fmt::Display for RowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowState::Plain => Ok(()),
            RowState::Broken => f.write_str("BROKEN"),
            RowState::Durable => f.write_str("durable"),
            RowState::Pending(n) => write!(f, "pending ({n})"),
            RowState::Survived(n) => write!(f, "survived ({n})"),
            RowState::Lost(n) => write!(f, "LOST ({n})"),
            RowState::Torn { survived, lost } => write!(f, "TORN ({survived} of {})", survived + lost),
        }
    }
}

/// One event before a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of the event.
    pub time: u64,
    /// The thread.
    pub thread: u64,
    /// The place in the code, empty for marks.
    pub site: String,
    /// The operation it belongs to.
    pub op: Option<u64>,
    /// The label of that operation.
    pub op_label: String,
    /// What happened: `store`, `fence`, ...
    pub what: &'static str,
    /// To what: `log`, a path, a label.
    pub place: String,
    /// Where in it.
    pub offset: Option<u64>,
    /// How many bytes.
    pub len: Option<u64>,
    /// What became of it.
    pub state: RowState,
    /// The event that made all of it durable, where it was pending before that.
    pub durable_by: Option<u64>,
}

/// What happened up to a crash point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The crash point: the number of events before it.
    pub point: u64,
    /// The choice that states are told for; none: they tell what a crash may choose.
    pub choice: Option<String>,
    /// The pending units at the point, in words, by number.
    pub units: Vec<String>,
    /// One for each event that was asked for.
    pub rows: Vec<Row>,
}

impl Trace {
    /// What happened in these events, and what had become of it at the point after them: by a choice of that point, or
    /// what may become of it.
    ///
    /// # Panics
    /// If the trace has no such point or the choice is one of another point.
    pub fn timeline(&self, shown: Range<u64>, choice: Option<&Choice>) -> Timeline {
        let point = shown.end;
        let (at, durable_by) = self.pass(&shown);
        let fates = fates(&at, choice);
        let (mut names, mut labels) = (BTreeMap::new(), BTreeMap::new());
        for (path, id) in self.initial.seen().paths() {
            names.entry(id).or_insert_with(|| String::from_utf8_lossy(&path).into_owned());
        }
        for event in &self.events[..point as usize] {
            match &event.kind {
                EventKind::Names { changes, .. } => {
                    for change in &**changes {
                        let Some(obj) = change.is else { continue };
                        names.insert(obj, path_of(change, &names));
                    }
                }
                EventKind::Mark(Mark::Begin { op, label }) => {
                    labels.insert(*op, label.clone());
                }
                _ => {}
            }
        }
        let has_region = self.config.device.is_some();
        let row = |(time, event): (u64, &super::event::Event)| {
            let (place, offset, len) = match &event.kind {
                EventKind::Done { begun } => {
                    (place(&self.events[*begun as usize].kind, &names, has_region).0, None, None)
                }
                kind => place(kind, &names, has_region),
            };
            let broken = matches!(event.fate, Fate::Mutated(_));
            let (survived, lost) = fates.get(&(time as i64)).copied().unwrap_or_default();
            let state = match &event.kind {
                _ if broken && survived + lost == 0 => RowState::Broken,
                EventKind::Fence { .. }
                | EventKind::HandOver { .. }
                | EventKind::Sync { .. }
                | EventKind::SyncDir { .. }
                | EventKind::SyncAll
                | EventKind::Done { .. }
                | EventKind::Create { .. }
                | EventKind::BlockWrite { .. }
                | EventKind::BlockDiscard { .. }
                | EventKind::BlockCommit { .. }
                | EventKind::BlockCommitted { .. }
                | EventKind::BlockAbort { .. }
                | EventKind::Flush
                | EventKind::Reset { .. }
                | EventKind::Mark(_) => RowState::Plain,
                _ if survived + lost == 0 => RowState::Durable,
                _ if choice.is_none() => RowState::Pending(survived + lost),
                _ if lost == 0 => RowState::Survived(survived),
                _ if survived == 0 => RowState::Lost(lost),
                _ => RowState::Torn { survived, lost },
            };
            Row {
                time,
                thread: event.thread,
                site: event.site.map_or_else(String::new, |site| site.0.to_owned()),
                op: event.op,
                op_label: event.op.and_then(|op| labels.get(&op).cloned()).unwrap_or_default(),
                what: event.kind.name(),
                place,
                offset,
                len,
                state,
                durable_by: durable_by.get(&time).copied(),
            }
        };
        Timeline {
            point,
            choice: choice.map(Choice::to_string),
            units: (0..at.units()).map(|unit| at.describe(unit)).collect(),
            rows: shown.clone().zip(&self.events[shown.start as usize..point as usize]).map(row).collect(),
        }
    }

    /// The point after these events, and which of them made an earlier one durable that was pending.
    fn pass(&self, shown: &Range<u64>) -> (Point, BTreeMap<u64, u64>) {
        let mut explorer = Explorer::new(self);
        explorer.seek(shown.start);
        let (mut at, mut durable_by) = (explorer.point(), BTreeMap::new());
        while at.index() < shown.end {
            assert!(explorer.advance(), "the trace has no point {}", shown.end);
            let next = explorer.point();
            let pending = next.pending_events();
            let settled = at.pending_events().into_iter().filter(|event| pending.binary_search(event).is_err());
            durable_by.extend(settled.filter_map(|event| Some((u64::try_from(event).ok()?, at.index()))));
            at = next;
        }
        (at, durable_by)
    }

    /// The table for a violation: what happened up to the crash, and what this choice kept and lost of it, in at most
    /// `width` columns where that is possible.
    ///
    /// # Panics
    /// If this trace has no such choice.
    pub fn table(&self, choice: &Choice, width: usize) -> String {
        self.timeline(0..choice.point, Some(choice)).table(width)
    }
}

/// For each event, how many of its pending parts survive and are lost.
fn fates(at: &Point, choice: Option<&Choice>) -> BTreeMap<i64, (u32, u32)> {
    let versions = choice.map(|choice| {
        assert_eq!(choice.point, at.index(), "{choice} is a choice of another point");
        match choice.pick {
            Pick::Kill => at.versions_of(&Pick::All),
            _ => at.versions_of(&choice.pick),
        }
    });
    let mut fates: BTreeMap<i64, (u32, u32)> = BTreeMap::new();
    for (n, unit) in at.all_units().iter().enumerate() {
        let kept = versions.as_ref().map_or(0, |versions| versions[n] as usize);
        for (i, step) in unit.steps.iter().enumerate() {
            let fate = fates.entry(step.event).or_default();
            // Torn versions lie beyond the newest: part of it is there.
            let torn = kept > unit.steps.len() && i + 1 == unit.steps.len();
            fate.0 += u32::from(i < kept);
            fate.1 += u32::from(i >= kept || torn);
        }
    }
    fates
}

/// The path of a name.
fn path_of(change: &NameChange, names: &BTreeMap<ObjId, String>) -> String {
    let name = String::from_utf8_lossy(&change.name);
    names.get(&change.dir).map_or(name.to_string(), |dir| format!("{dir}/{name}"))
}

fn place(kind: &EventKind, names: &BTreeMap<ObjId, String>, has_region: bool) -> (String, Option<u64>, Option<u64>) {
    let name = |id: &ObjId| match *id {
        LOG => "log".to_owned(),
        super::state::REGION if has_region => "region".to_owned(),
        super::state::ROOT => ".".to_owned(),
        id => names.get(&id).cloned().unwrap_or_else(|| format!("inode {id}")),
    };
    match kind {
        EventKind::Store { obj, offset, data } | EventKind::Write { obj, offset, data, .. } => {
            (name(obj), Some(*offset), Some(data.len() as u64))
        }
        EventKind::Ring { commands } => {
            let blocks = |rung: &Rung| format!("{}+{}", rung.offset / BLOCK as u64, rung.bytes.len() / BLOCK);
            (commands.iter().map(blocks).collect::<Vec<_>>().join(" "), None, None)
        }
        EventKind::Flush | EventKind::Reset { .. } => ("device".into(), None, None),
        EventKind::Landed { offset, data, .. } | EventKind::Through { offset, data } => {
            (name(&LOG), Some(*offset), Some(data.len() as u64))
        }
        EventKind::Fence { obj }
        | EventKind::HandOver { obj }
        | EventKind::Create { obj, .. }
        | EventKind::Sync { obj } => (name(obj), None, None),
        EventKind::LogLen { new, .. } => (name(&LOG), None, Some(*new)),
        EventKind::SetLen { obj, new, .. } => (name(obj), None, Some(*new)),
        EventKind::Allocate { obj, offset, len, .. } | EventKind::Punch { obj, offset, len, .. } => {
            (name(obj), Some(*offset), Some(*len))
        }
        EventKind::Names { changes, .. } => {
            let paths: Vec<String> = changes.iter().map(|change| path_of(change, names)).collect();
            (paths.join(" > "), None, None)
        }
        EventKind::Attribute { obj, .. } => (name(obj), None, None),
        EventKind::SyncDir { dir } => (name(dir), None, None),
        EventKind::SyncAll => (name(&super::state::ROOT), None, None),
        EventKind::Mark(Mark::Begin { label, .. } | Mark::Note { label }) => (label.clone(), None, None),
        EventKind::BlockWrite { tx, at, .. } => {
            (format!("block {at} by {}", short(*tx)), Some(at * BLOCK as u64), Some(BLOCK as u64))
        }
        EventKind::BlockDiscard { tx, at, count } => {
            let bytes = |blocks: &u64| Some(blocks * BLOCK as u64);
            (format!("block {at} by {}", short(*tx)), bytes(at), bytes(count))
        }
        EventKind::BlockOrder { sequence, images, needs } => {
            let of: Vec<u64> = images.iter().map(|(at, _)| *at).collect();
            (format!("{sequence}: blocks {of:?}, after {needs:?}"), None, None)
        }
        EventKind::BlockCommit { sequences } | EventKind::BlockCommitted { sequences } => {
            (format!("{sequences:?}"), None, None)
        }
        EventKind::BlockAbort { tx } => (short(*tx).to_string(), None, None),
        EventKind::Done { .. } | EventKind::Mark(Mark::Return { .. }) => (String::new(), None, None),
    }
}

/// The number of a transaction in its life.
fn short(tx: u64) -> u64 {
    tx & ((1 << 40) - 1)
}

impl Timeline {
    /// The rows as text, at most `width` columns wide where that is possible: sites and places are cut short.
    pub fn table(&self, width: usize) -> String {
        let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
        let thread = |n: u64| match n {
            KERNEL => "kernel".to_owned(),
            DEAD => "dead".to_owned(),
            ANY => "any".to_owned(),
            n => n.to_string(),
        };
        let mut cells =
            vec![["time", "thread", "op", "site", "what", "place", "offset", "bytes", "state"].map(str::to_owned)];
        for row in &self.rows {
            cells.push([
                row.time.to_string(),
                thread(row.thread),
                number(row.op),
                row.site.clone(),
                row.what.to_owned(),
                row.place.clone(),
                number(row.offset),
                number(row.len),
                row.state.to_string(),
            ]);
        }
        let mut widths = [0; 9];
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        const SITE: usize = 3;
        const PLACE: usize = 5;
        let mut over = (widths.iter().sum::<usize>() + 2 * (widths.len() - 1)).saturating_sub(width);
        while over > 0 && widths[SITE].max(widths[PLACE]) > 8 {
            let column = if widths[SITE] >= widths[PLACE] { SITE } else { PLACE };
            widths[column] -= 1;
            over -= 1;
        }
        let mut text = String::new();
        for row in &cells {
            let mut line = String::new();
            for (i, (cell, width)) in row.iter().zip(widths).enumerate() {
                let cell = shortened(cell, width);
                match i {
                    0 | 1 | 2 | 6 | 7 => line.push_str(&format!("{cell:>width$}  ")),
                    _ => line.push_str(&format!("{cell:<width$}  ")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let choice = self.choice.clone().unwrap_or_else(|| format!("p{}", self.point));
        text.push_str(&format!("crash at {choice}, {} units pending\n", self.units.len()));
        text
    }
}

/// The end of a name tells more than its beginning.
fn shortened(cell: &str, width: usize) -> String {
    let len = cell.chars().count();
    if len <= width { cell.to_owned() } else { format!("~{}", cell.chars().skip(len + 1 - width).collect::<String>()) }
}
