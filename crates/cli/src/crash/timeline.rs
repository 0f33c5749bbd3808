//! What the picture of a crash shows, without places on paper: lanes, and what happens in them in columns of time.
//!
//! A *lane* is the log, a volume or a file, of one thread each. An *act* is an operation, with a column for each store
//! and each wall. Stores of one kind that follow each other are one box; acts that are long over are one column.

use crate::output::{count, size};
use std::collections::BTreeSet;
use std::ops::Range;
use wholly_crash::{Crash, Read, Replay};
use wholly_sim::{DEAD, KERNEL, Row, RowState};

/// Columns that each half of a picture has at most.
const MOST: [usize; 2] = [22, 10];

/// Lanes of files at most; the others share one.
const MOST_FILES: usize = 8;

/// Stores that a box names in its title.
const MOST_NAMED: usize = 8;

/// What became of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Durable,
    Kept,
    Torn,
    Lost,
    Broken,
    Pending,
}

impl Fate {
    /// The fate of a store; none if the event is no store.
    pub fn of(state: RowState) -> Option<Fate> {
        match state {
            RowState::Plain => None,
            RowState::Durable => Some(Fate::Durable),
            RowState::Survived(_) => Some(Fate::Kept),
            RowState::Torn { .. } => Some(Fate::Torn),
            RowState::Lost(_) => Some(Fate::Lost),
            RowState::Broken => Some(Fate::Broken),
            RowState::Pending(_) => Some(Fate::Pending),
        }
    }

    /// The class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Fate::Durable => "durable",
            Fate::Kept => "kept",
            Fate::Torn => "torn",
            Fate::Lost => "lost",
            Fate::Broken => "broken",
            Fate::Pending => "pending",
        }
    }

    /// What the legend says.
    pub fn about(self) -> &'static str {
        match self {
            Fate::Durable => "durable by then",
            Fate::Kept => "not durable yet, kept",
            Fate::Torn => "kept in part",
            Fate::Lost => "lost",
            Fate::Broken => "broken on purpose",
            Fate::Pending => "not durable yet",
        }
    }
}

/// Stores of one kind.
pub struct Stores {
    pub lane: usize,
    pub fate: Fate,
    /// What is written in the box.
    pub label: String,
    /// Whether recovery read any of it.
    pub is_read: bool,
    /// The event that made it durable.
    pub durable_by: Option<u64>,
    /// One line for each.
    named: Vec<String>,
    count: u64,
    what: String,
}

impl Stores {
    /// Everything about them.
    pub fn title(&self) -> String {
        let more = self.count - self.named.len() as u64;
        let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
        format!("{}{more}", self.named.join("\n"))
    }

    fn take(&mut self, other: Stores) {
        self.count += other.count;
        self.is_read |= other.is_read;
        self.label = count(self.count, "store");
        self.named.extend(other.named);
        self.named.truncate(MOST_NAMED);
        if self.durable_by != other.durable_by {
            self.durable_by = None;
        }
    }
}

/// What makes stores durable.
pub struct Wall {
    pub event: u64,
    /// The lanes whose stores it made durable, and its own.
    pub lanes: BTreeSet<usize>,
    pub label: &'static str,
    pub title: String,
}

/// What happens at one time; of acts that are over, in all of their time.
#[derive(Default)]
pub struct Column {
    pub stores: Vec<Stores>,
    pub wall: Option<Wall>,
}

/// An operation.
pub struct Act {
    pub label: String,
    pub columns: Vec<Column>,
}

/// Up to the crash, or from there on.
pub struct Half {
    pub acts: Vec<Act>,
}

/// All of it.
pub struct Picture {
    pub lanes: Vec<String>,
    pub before: Half,
    /// Bytes that recovery reads, by lane, and which.
    pub reads: Vec<(usize, u64, String)>,
    pub after: Half,
}

/// The lanes, each a place and a thread.
struct Lanes {
    places: Vec<(String, u64)>,
    /// Files that have a lane.
    files: Vec<String>,
    region: &'static str,
}

const LOG: &str = "log";
const OWN: &str = ".wholly";
const OTHERS: &str = "other files";

impl Lanes {
    fn new(replay: &Replay, crash: &Crash) -> Lanes {
        let region = if replay.name.starts_with("volume:") { "volume" } else { LOG };
        let mut lanes = Lanes { places: Vec::new(), files: Vec::new(), region };
        let rows = || crash.timeline.rows.iter().chain(&crash.recovery.timeline.rows);
        let stores = || rows().filter(|row| Fate::of(row.state).is_some());
        // Files with something to tell come first, if there are too many.
        let (durable, told): (Vec<&Row>, Vec<&Row>) = stores().partition(|row| row.state == RowState::Durable);
        let reads = || crash.recovery.reads.iter().map(|read| &read.place);
        for at in told.into_iter().chain(durable).map(|row| &row.place).chain(reads()) {
            let file = place(at);
            if file != LOG && file != OWN && !lanes.files.contains(&file) && lanes.files.len() < MOST_FILES {
                lanes.files.push(file);
            }
        }
        for row in stores().filter(|row| row.place == LOG).chain(stores()) {
            let lane = (lanes.place(&row.place), row.thread);
            if !lanes.places.contains(&lane) {
                lanes.places.push(lane);
            }
        }
        for at in reads() {
            let place = lanes.place(at);
            if lanes.places.iter().all(|(known, _)| *known != place) {
                let thread = lanes.places.first().map_or(0, |(_, thread)| *thread);
                lanes.places.push((place, thread));
            }
        }
        let order: Vec<String> = lanes.places.iter().map(|(place, _)| place.clone()).collect();
        lanes.places.sort_by_key(|(place, thread)| (order.iter().position(|it| it == place), *thread));
        lanes
    }

    /// What a lane is called by which this place goes.
    fn place(&self, at: &str) -> String {
        let file = place(at);
        if file == LOG || file == OWN || self.files.contains(&file) { file } else { OTHERS.into() }
    }

    fn of(&self, at: &str, thread: u64) -> Option<usize> {
        let lane = (self.place(at), thread);
        self.places.iter().position(|it| *it == lane)
    }

    fn labels(&self) -> Vec<String> {
        let threads: BTreeSet<u64> = self.places.iter().map(|(_, thread)| *thread).collect();
        let label = |(place, thread): &(String, u64)| {
            let place = match &**place {
                LOG => self.region.into(),
                OWN | OTHERS => place.clone(),
                file => format!("file {file}"),
            };
            match *thread {
                _ if threads.len() == 1 => place,
                KERNEL => format!("{place}, kernel"),
                DEAD => format!("{place}, dead"),
                thread => format!("{place}, thread {thread}"),
            }
        };
        self.places.iter().map(label).collect()
    }
}

/// What a place belongs to: of a rename, the new name.
fn place(at: &str) -> String {
    let last = at.rsplit(" > ").next().unwrap_or(at);
    if last.starts_with(OWN) { OWN.into() } else { last.into() }
}

impl Picture {
    pub fn new(replay: &Replay, crash: &Crash) -> Picture {
        let lanes = Lanes::new(replay, crash);
        let is_read = |row: &Row| {
            let Some(bytes) = bytes_of(row) else { return false };
            let mut reads = crash.recovery.reads.iter().filter(|read| read.place == row.place);
            reads.any(|Read { range, .. }| range.start < bytes.end && bytes.start < range.end)
        };
        let is_first = replay.crashes.first().is_some_and(|first| std::ptr::eq(first, crash));
        let unnamed = if is_first { "before the crash" } else { "after the last crash" };
        let mut before = Half { acts: acts(&crash.timeline.rows, unnamed, &lanes, is_read) };
        let after = acts(&crash.recovery.timeline.rows, "recovery", &lanes, |_| false);
        let mut after = Half { acts: after };
        let made_by = crash.allowed.first().map_or("", |view| &view.made_by);
        let told = before.acts.iter().rposition(|act| act.label == made_by);
        before.fold(told.unwrap_or(before.acts.len().saturating_sub(1)), MOST[0]);
        after.fold(0, MOST[1]);
        let mut reads: Vec<(usize, u64, String)> = Vec::new();
        for read in &crash.recovery.reads {
            let bytes = read.range.end.saturating_sub(read.range.start);
            let place = lanes.place(&read.place);
            let Some(lane) = lanes.places.iter().position(|(of, _)| *of == place) else { continue };
            let title = format!("{} of {} at {}", size(bytes), read.place, read.range.start);
            match reads.iter_mut().find(|(of, ..)| *of == lane) {
                Some((_, sum, titles)) => {
                    *sum += bytes;
                    *titles += &format!("\n{title}");
                }
                None => reads.push((lane, bytes, format!("recovery reads\n{title}"))),
            }
        }
        Picture { lanes: lanes.labels(), before, reads, after }
    }
}

/// The operations of these events, without those in which nothing is stored or made durable.
fn acts(rows: &[Row], unnamed: &str, lanes: &Lanes, is_read: impl Fn(&Row) -> bool) -> Vec<Act> {
    let mut acts: Vec<Act> = Vec::new();
    for row in rows.iter().filter(|row| !row.site.is_empty()) {
        let label = if row.op_label.is_empty() { unnamed } else { &row.op_label };
        if acts.last().is_none_or(|act| act.label != label) {
            acts.push(Act { label: label.into(), columns: Vec::new() });
        }
        let columns = &mut acts.last_mut().expect("one was just put there").columns;
        let title = |row: &Row| {
            let at = row.offset.map_or_else(String::new, |offset| format!(" at {offset}"));
            let bytes = row.len.map_or_else(String::new, |len| format!(", {len} bytes"));
            format!("{} {}: {} {}{at}{bytes} {}", row.time, row.site, row.what, row.place, row.state)
        };
        match (Fate::of(row.state), lanes.of(&row.place, row.thread)) {
            (Some(fate), Some(lane)) => {
                let what = || row.what.trim_start_matches("set ").trim_start_matches("log ").into();
                let stores = Stores {
                    lane,
                    fate,
                    label: bytes_of(row).map_or_else(what, |bytes| size(bytes.end - bytes.start)),
                    is_read: is_read(row),
                    durable_by: row.durable_by,
                    named: vec![title(row)],
                    count: 1,
                    what: format!("{} {}", row.site, row.what),
                };
                match columns.last_mut() {
                    Some(Column { stores: last, wall: None })
                        if last.last().is_some_and(|last| alike(last, &stores)) =>
                    {
                        last.last_mut().expect("it is alike").take(stores);
                    }
                    _ => columns.push(Column { stores: vec![stores], wall: None }),
                }
            }
            (None, lane) => {
                let settled = rows.iter().filter(|store| store.durable_by == Some(row.time));
                let lanes: BTreeSet<usize> =
                    settled.filter_map(|row| lanes.of(&row.place, row.thread)).chain(lane).collect();
                let is_wall = row.what != "create" && !lanes.is_empty();
                if is_wall {
                    let wall = Wall { event: row.time, lanes, label: row.what, title: title(row) };
                    columns.push(Column { stores: Vec::new(), wall: Some(wall) });
                }
            }
            (Some(_), None) => unreachable!("each store has a lane"),
        }
    }
    acts.retain(|act| !act.columns.is_empty());
    acts
}

/// The bytes that a store writes, where it writes any.
fn bytes_of(row: &Row) -> Option<Range<u64>> {
    let (offset, len) = row.offset.zip(row.len)?;
    (!["allocate", "punch"].contains(&row.what)).then_some(offset..offset + len)
}

/// Whether the second is more of the first.
fn alike(a: &Stores, b: &Stores) -> bool {
    (a.lane, a.fate, a.durable_by, a.is_read, &a.what) == (b.lane, b.fate, b.durable_by, b.is_read, &b.what)
}

impl Half {
    /// Makes the acts before this one a single column, as far as all of them is durable; and of others one column each,
    /// the first ones first, until there are no more columns than `most`.
    fn fold(&mut self, told: usize, most: usize) {
        let is_over =
            |act: &Act| act.columns.iter().flat_map(|column| &column.stores).all(|it| it.fate == Fate::Durable);
        let over = self.acts.iter().take(told).take_while(|act| is_over(act)).count();
        self.join(over.max((self.acts.len() + 1).saturating_sub(most / 2)));
        let columns = |acts: &[Act]| acts.iter().map(|act| act.columns.len()).sum::<usize>();
        for i in 0..self.acts.len() {
            if columns(&self.acts) <= most {
                break;
            }
            let stay = if i + 1 < self.acts.len() { 0 } else { most - self.acts.len() };
            let columns = &mut self.acts[i].columns;
            let late = columns.split_off(columns.len() - stay);
            *columns = together(std::mem::take(columns)).into_iter().chain(late).collect();
        }
    }

    /// Makes the first acts one.
    fn join(&mut self, first: usize) {
        let first: Vec<Act> = self.acts.drain(..first.min(self.acts.len())).collect();
        let label = match &first[..] {
            [] => return,
            [one] => one.label.clone(),
            several => format!("{} earlier", several.len()),
        };
        let columns = together(first.into_iter().flat_map(|act| act.columns).collect());
        self.acts.insert(0, Act { label, columns: columns.into_iter().collect() });
    }
}

/// One column instead of several, if they have stores: a box for each lane and fate, and no walls.
fn together(columns: Vec<Column>) -> Option<Column> {
    let mut all: Vec<Stores> = Vec::new();
    for stores in columns.into_iter().flat_map(|column| column.stores) {
        match all.iter_mut().find(|it| (it.lane, it.fate) == (stores.lane, stores.fate)) {
            Some(it) => it.take(stores),
            None => all.push(stores),
        }
    }
    all.sort_by_key(|stores| (stores.lane, stores.fate));
    (!all.is_empty()).then_some(Column { stores: all, wall: None })
}
