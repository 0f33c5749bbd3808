//! What a reader sees before a crash, between, and after recovery: the panel below the lanes of a picture.

use super::svg::{Svg, shortened, width_of};
use wholly_crash::{Crash, Replay, Version};

const GAP: i32 = 34;
const ROW: i32 = 28;

/// Characters of a path and of a note at most.
const LONGEST: [usize; 2] = [20, 70];

/// One of the three, with its states.
struct Cell {
    title: &'static str,
    states: Vec<Told>,
}

/// A state: versions, each with whether it is one that was promised; what there is to say, and in which class.
type Told = (Vec<(String, bool)>, String, &'static str);

/// The panel.
pub struct Panel(Vec<Cell>);

fn width_of_chip(chip: &str) -> i32 {
    width_of(chip) + 14
}

impl Cell {
    fn width(&self) -> i32 {
        let of_state = |(chips, note, _): &Told| {
            let chips: i32 = chips.iter().map(|(chip, _)| width_of_chip(chip) + 6).sum();
            chips + width_of(&shortened(note, LONGEST[1]))
        };
        self.states.iter().map(of_state).max().unwrap_or(0).max(width_of(self.title)) + 24
    }
}

impl Panel {
    pub fn new(replay: &Replay, crash: &Crash) -> Panel {
        let chip = |version: &Version| {
            let is_promised = crash.allowed.iter().any(|view| view.versions.contains(version));
            (format!("{} {}", shortened(&version.0, LONGEST[0]), version.1).trim_end().into(), is_promised)
        };
        let chips = |versions: &[Version]| -> Vec<(String, bool)> { versions.iter().map(chip).collect() };
        let mut promised: Vec<Told> =
            crash.allowed.iter().map(|view| (chips(&view.versions), view.made_by.clone(), "")).collect();
        match &mut promised[..] {
            [(_, one, _)] => *one = format!("all of {one}"),
            [(_, first, _), (_, second, _)] => {
                *first = format!("{first}, or");
                *second = format!("{second}: nothing between");
            }
            _ => {}
        }
        let mut cells = vec![Cell { title: "Promised before the crash", states: promised }];
        if !crash.files.is_empty() {
            let is_whole = crash.allowed.iter().any(|view| view.versions == crash.files);
            let note = if is_whole { "" } else { "not all written back" };
            let states = vec![(chips(&crash.files), note.into(), "")];
            cells.push(Cell { title: "In the files, after the crash", states });
        }
        let is_last = replay.crashes.last().is_some_and(|last| std::ptr::eq(last, crash));
        let served = crash.recovery.serves.as_ref();
        let versions = served.map_or(Vec::new(), |view| chips(&view.versions));
        let after = match (&replay.violation, served) {
            (Some(what), _) if is_last => (versions, format!("VIOLATION: {what}"), "bad"),
            (_, Ok(view)) => (versions, format!("all of {}", view.made_by), "good"),
            (_, Err(what)) => (versions, what.clone(), ""),
        };
        cells.push(Cell { title: "A reader sees after recovery", states: vec![after] });
        Panel(cells)
    }

    pub fn width(&self) -> i32 {
        self.0.iter().map(|cell| cell.width() + GAP).sum::<i32>() - GAP
    }

    /// Draws it from here on; gives where it ends.
    pub fn draw(&self, svg: &mut Svg, (mut x, y): (i32, i32)) -> i32 {
        let height = 40 + ROW * self.0.iter().map(|cell| cell.states.len()).max().unwrap_or(0) as i32;
        for (i, cell) in self.0.iter().enumerate() {
            if i > 0 {
                svg.path("arrow", format_args!("M{} {}h22m-7-6l7 6l-7 6", x - 28, y + height / 2));
            }
            svg.rect("panel", (x, y), (cell.width(), height), 6);
            svg.text("bold", (x + 12, y + 22), cell.title);
            for (row, (chips, note, class)) in (0..).zip(&cell.states) {
                let (mut x, y) = (x + 12, y + 34 + ROW * row);
                for (chip, is_promised) in chips {
                    svg.rect(if *is_promised { "chip" } else { "box lost" }, (x, y), (width_of_chip(chip), 22), 11);
                    svg.middle("mono", (x + width_of_chip(chip) / 2, y + 15), chip);
                    x += width_of_chip(chip) + 6;
                }
                svg.titled(note, |svg| svg.text(class, (x, y + 15), &shortened(note, LONGEST[1])));
            }
            x += cell.width() + GAP;
        }
        y + height
    }
}
