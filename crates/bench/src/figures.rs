//! Figures of papers as CSV and SVG, and what the papers claim of them.

use crate::{Error, Result};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Write;
use std::path::Path;

/// A ratio is held from this part of the paper's value on; an overhead, a time or a distance up to its inverse.
const HOLDS_FROM: f64 = 0.9;

/// How numbers lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// An axis: what it shows, with the unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub label: &'static str,
    pub scale: Scale,
}

impl Axis {
    pub const fn linear(label: &'static str) -> Axis {
        Axis { label, scale: Scale::Linear }
    }

    /// A logarithmic axis: for numbers that differ by many times.
    pub const fn log(label: &'static str) -> Axis {
        Axis { label, scale: Scale::Log }
    }

    fn place(&self, number: f64) -> f64 {
        if self.scale == Scale::Log { number.max(1e-9).log2() } else { number }
    }

    fn number(&self, place: f64) -> f64 {
        if self.scale == Scale::Log { place.exp2() } else { place }
    }
}

/// A figure: points of systems.
#[derive(Clone)]
pub(crate) struct Figure {
    pub name: &'static str,
    pub title: &'static str,
    /// What the paper says of it.
    pub about: &'static str,
    /// `None`: each system has a bar, and no line.
    pub x: Option<Axis>,
    pub y: Axis,
    /// By system, in the order in which they are drawn. One without points was not measured.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// The paper's values, by system.
    pub marks: Vec<(&'static str, f64, f64)>,
    /// What the marks are.
    pub marked: &'static str,
    /// Our names of systems, and the paper's.
    pub names: &'static [(&'static str, &'static str)],
}

/// How a claim is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// So many times as good: nine tenths of it are enough.
    Ratio,
    /// A ratio above 1: what is above 1 may be ten ninths of the paper's.
    Overhead,
    /// A time: ten ninths of it are not too much.
    AtMost,
    /// 1, whether more or less by a tenth.
    Constant,
    /// More than 1. Nothing is tolerated.
    More,
    /// At most the paper's value. Nothing is tolerated.
    Upto,
}

/// What the paper says of a figure.
pub(crate) struct Claim {
    pub figure: &'static str,
    pub what: String,
    /// As the paper has it.
    pub paper: f64,
    /// As it is here.
    pub ours: Result<f64, String>,
    /// What the wall clock says, if it says anything of it.
    pub wall: String,
    rule: Rule,
}

impl Claim {
    fn new(figure: &'static str, what: &str, (rule, paper): (Rule, f64), ours: Result<f64, String>) -> Claim {
        Claim { figure, what: what.into(), paper, ours, wall: String::new(), rule }
    }

    /// Something is so many times as good as something else.
    pub fn ratio(figure: &'static str, what: &str, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim::new(figure, what, (Rule::Ratio, paper), ours)
    }

    /// A claim by [`Rule::Overhead`]: 1.06 are 6 % more.
    pub fn overhead(figure: &'static str, what: &str, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim::new(figure, what, (Rule::Overhead, paper), ours)
    }

    /// Something takes so long.
    pub fn at_most(figure: &'static str, what: &str, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim::new(figure, what, (Rule::AtMost, paper), ours)
    }

    /// Something stays as it is.
    pub fn constant(figure: &'static str, what: &str, ours: Result<f64, String>) -> Claim {
        Claim::new(figure, what, (Rule::Constant, 1.0), ours)
    }

    /// Something is better, or rises: a ratio of more than 1.
    pub fn more(figure: &'static str, what: &str, ours: Result<f64, String>) -> Claim {
        Claim::new(figure, what, (Rule::More, 1.0), ours)
    }

    /// Something is at most the paper's value.
    pub fn upto(figure: &'static str, what: &str, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim::new(figure, what, (Rule::Upto, paper), ours)
    }

    /// The same, with what the wall clock says.
    pub fn beside(self, wall: String) -> Claim {
        Claim { wall, ..self }
    }

    fn verdict(&self) -> &'static str {
        let Ok(ours) = self.ours else { return "not measured" };
        let is_held = match self.rule {
            Rule::Ratio => ours >= self.paper * HOLDS_FROM,
            Rule::Overhead => (ours - 1.0) * HOLDS_FROM <= self.paper - 1.0,
            Rule::AtMost => ours * HOLDS_FROM <= self.paper,
            Rule::Constant => (HOLDS_FROM..=1.0 / HOLDS_FROM).contains(&ours),
            Rule::More => ours > 1.0,
            Rule::Upto => ours <= self.paper,
        };
        if is_held { "held" } else { "refuted" }
    }

    /// The paper's value, in words.
    fn of_paper(&self) -> String {
        match self.rule {
            Rule::More => "more than 1".into(),
            Rule::Upto => format!("at most {}", self.paper),
            _ => self.paper.to_string(),
        }
    }
}

/// Writes figures and claims of a suite into a directory, which is made if it is not there. Gives the names of files.
///
/// # Errors
/// Those of the file system.
pub(crate) fn write(suite: &str, figures: &[Figure], claims: &[Claim], dir: &Path) -> Result<Vec<String>> {
    std::fs::create_dir_all(dir)?;
    let mut written = Vec::new();
    for figure in figures {
        let name = format!("{suite}-{}", figure.name);
        std::fs::write(dir.join(format!("{name}.csv")), csv(figure))?;
        draw(figure, &dir.join(format!("{name}.svg")))?;
        written.extend([format!("{name}.csv"), format!("{name}.svg")]);
    }
    std::fs::write(dir.join(format!("{suite}-claims.csv")), table(claims))?;
    written.push(format!("{suite}-claims.csv"));
    Ok(written)
}

fn csv(figure: &Figure) -> String {
    let Figure { x, y, .. } = figure;
    // By system alone, the place on the axis says nothing.
    let mut out = match x {
        None => format!("system,{}\n", y.label),
        Some(x) => format!("system,{},{}\n", x.label, y.label),
    };
    let mut line = |system: &str, (at, value): (f64, f64)| {
        _ = match x {
            None => writeln!(out, "{system},{value}"),
            Some(_) => writeln!(out, "{system},{at},{value}"),
        };
    };
    for (system, points) in &figure.lines {
        points.iter().for_each(|point| line(system, *point));
    }
    figure.marks.iter().for_each(|(system, x, y)| line(&format!("paper:{system}"), (*x, *y)));
    out
}

fn table(claims: &[Claim]) -> String {
    let mut out = "figure,claim,paper,ours,verdict,wall time\n".to_owned();
    for claim in claims {
        let Claim { figure, what, ours, wall, .. } = claim;
        // Where nothing is tolerated, little may matter.
        let digits = if matches!(claim.rule, Rule::More | Rule::Upto) { 5 } else { 3 };
        let ours = ours.as_ref().map_or_else(ToString::to_string, |ours| format!("{ours:.digits$}"));
        _ = writeln!(out, "{figure},\"{what}\",{},\"{ours}\",{},\"{wall}\"", claim.of_paper(), claim.verdict());
    }
    out
}

/// Pixels of a picture, of the plot in it, and of what is above.
const PICTURE: (u32, u32) = (960, 600);
const PLOT: u32 = 720;
const HEAD: u32 = 76;
const GRAY: RGBColor = RGBColor(96, 96, 96);
/// Of systems, dark enough for paper.
const COLORS: [RGBColor; 7] = [
    RGBColor(31, 119, 180),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(230, 120, 10),
    RGBColor(140, 86, 75),
    RGBColor(20, 150, 165),
];

/// Places on an axis: from where to where, and those with a number.
fn places(axis: Axis, numbers: &[f64], from_zero: bool) -> (std::ops::Range<f64>, Vec<f64>) {
    let (low, high) = numbers.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), number| {
        (low.min(axis.place(*number)), high.max(axis.place(*number)))
    });
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let low = if from_zero && axis.scale == Scale::Linear { 0.0 } else { low };
    let room = if high > low { (high - low) / 16.0 } else { 0.5 };
    let (low, high) = (if from_zero && axis.scale == Scale::Linear { low } else { low - room }, high + room);
    // Steps of 1, 2 or 5 times a power of ten; of a power of two on the other scale.
    let rough: f64 = (high - low) / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = match axis.scale {
        Scale::Linear => [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough),
        Scale::Log => Some(rough.ceil()),
    };
    let step = step.unwrap_or(power);
    let first = (low / step).ceil() as i64;
    let all = (first..).map(|number| number as f64 * step).take_while(|place| *place <= high).take(64);
    (low..high, all.collect())
}

/// An axis of a plot: from where to where, and the places that have a number.
struct Span(std::ops::Range<f64>, Vec<f64>);

impl Ranged for Span {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        from + ((place - self.0.start) / (self.0.end - self.0.start) * f64::from(to - from)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        self.1.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.clone()
    }
}

/// A number as one would write it.
fn written(number: f64) -> String {
    match number.abs() {
        size if size >= 1e5 => format!("{:.0}k", number / 1e3),
        size if size >= 100.0 || number.fract().abs() < 1e-9 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Lines of at most so many characters.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        match last.len() + word.len() {
            0 => last.push_str(word),
            len if last.is_empty() || len < most => _ = write!(last, " {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

fn text(size: i32, color: RGBColor, across: HPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color).pos(Pos::new(across, VPos::Top))
}

impl Figure {
    /// The paper's name of a system, and ours.
    fn names_of<'f>(&'f self, system: &'f str) -> (&'f str, &'f str) {
        let found = self.names.iter().find(|(ours, _)| *ours == system);
        (found.map_or(system, |(_, paper)| paper), system)
    }

    fn color(&self, system: &str) -> RGBAColor {
        let at = self.lines.iter().position(|(name, _)| name == system);
        COLORS[at.unwrap_or(self.lines.len()) % COLORS.len()].to_rgba()
    }
}

fn draw(figure: &Figure, path: &Path) -> Result<()> {
    let root = SVGBackend::new(path, PICTURE).into_drawing_area();
    let drawn = draw_on(figure, &root).and_then(|()| root.present());
    drawn.map_err(|error| Error::from(format!("{}: {error}", path.display())))
}

type Drawn<B> = std::result::Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw_on<B: DrawingBackend>(figure: &Figure, root: &DrawingArea<B, Shift>) -> Drawn<B> {
    root.fill(&WHITE)?;
    root.draw(&Text::new(figure.title, (16, 10), text(18, BLACK, HPos::Left)))?;
    for (line, words) in (0..).zip(wrapped(figure.about, 150)) {
        root.draw(&Text::new(words, (16, 36 + 16 * line), text(13, GRAY, HPos::Left)))?;
    }
    let points = || figure.lines.iter().flat_map(|(_, points)| points.iter().copied());
    let marks = || figure.marks.iter().map(|(_, x, y)| (*x, *y));
    let x_axis = figure.x.unwrap_or(Axis::linear(""));
    let xs: Vec<f64> = points().chain(marks()).map(|point| point.0).collect();
    let ys: Vec<f64> = points().chain(marks()).map(|point| point.1).collect();
    let (across, mut numbered) = match figure.x {
        None => (-0.5..figure.lines.len() as f64 - 0.5, Vec::new()),
        Some(axis) => places(axis, &xs, false),
    };
    // A few places have a number each.
    let mut few: Vec<f64> = xs.iter().map(|x| x_axis.place(*x)).collect();
    few.sort_by(f64::total_cmp);
    few.dedup();
    if figure.x.is_some() && few.len() <= 10 {
        numbered = few;
    }
    let (up, heights) = places(figure.y, &ys, true);
    let bottom = up.start;
    let (plot, _) = root.margin(HEAD, 8, 8, 8).split_horizontally(PLOT);
    let mut chart = ChartBuilder::on(&plot)
        .margin(6)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(Span(across, numbered), Span(up, heights))?;
    let of_x = |place: &f64| written(x_axis.number(*place));
    let of_y = |place: &f64| written(figure.y.number(*place));
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().x_label_formatter(&of_x).y_label_formatter(&of_y).y_desc(figure.y.label);
    mesh.x_desc(x_axis.label).label_style(("sans-serif", 12)).axis_desc_style(("sans-serif", 13)).draw()?;
    let place = |(x, y): (f64, f64)| (x_axis.place(x), figure.y.place(y));
    for (system, points) in &figure.lines {
        let (color, places) = (figure.color(system), points.iter().map(|point| place(*point)));
        match figure.x {
            None => {
                _ = chart.draw_series(
                    places.map(|(x, y)| Rectangle::new([(x - 0.3, bottom), (x + 0.3, y)], color.filled())),
                )?
            }
            Some(_) => {
                chart.draw_series(places.clone().map(|at| Circle::new(at, 3, color.filled())))?;
                chart.draw_series(LineSeries::new(places, color.stroke_width(2)))?;
            }
        }
    }
    let diamond = |(x, y): (i32, i32)| [(x - 6, y), (x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)];
    for (system, x, y) in &figure.marks {
        let at = chart.backend_coord(&place((*x, *y)));
        let color = if figure.x.is_some() { figure.color(system) } else { BLACK.to_rgba() };
        root.draw(&Polygon::new(diamond(at), WHITE.filled()))?;
        root.draw(&PathElement::new(diamond(at), color.stroke_width(2)))?;
        root.draw(&Text::new(written(*y), (at.0 + 10, at.1 - 7), text(12, BLACK, HPos::Left)))?;
    }
    if figure.x.is_none() {
        for (at, (system, points)) in figure.lines.iter().enumerate() {
            let (paper, ours) = figure.names_of(system);
            let (x, y) = chart.backend_coord(&(at as f64, bottom));
            root.draw(&Text::new(paper.to_owned(), (x, y + 8), text(14, BLACK, HPos::Center)))?;
            root.draw(&Text::new(ours.to_owned(), (x, y + 26), text(12, GRAY, HPos::Center)))?;
            for point in points {
                let (x, y) = chart.backend_coord(&place(*point));
                root.draw(&Text::new(written(point.1), (x - 34, y - 16), text(12, BLACK, HPos::Left)))?;
            }
        }
    }
    // Beside the plot: whose is what, and what is not there.
    let (left, mut top) = (PLOT as i32 + 24, HEAD as i32 + 12);
    for (system, points) in &figure.lines {
        let (paper, ours) = figure.names_of(system);
        let color = figure.color(system);
        root.draw(&Rectangle::new([(left, top + 3), (left + 14, top + 13)], color.filled()))?;
        root.draw(&Text::new(paper.to_owned(), (left + 22, top), text(14, BLACK, HPos::Left)))?;
        let is_missing = if points.is_empty() { ": not measured" } else { "" };
        root.draw(&Text::new(format!("{ours}{is_missing}"), (left + 22, top + 17), text(12, GRAY, HPos::Left)))?;
        top += 38;
    }
    if !figure.marks.is_empty() {
        let color = BLACK.stroke_width(2);
        root.draw(&PathElement::new(diamond((left + 7, top + 8)), color))?;
        for words in wrapped(figure.marked, 26) {
            root.draw(&Text::new(words, (left + 22, top), text(13, BLACK, HPos::Left)))?;
            top += 17;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_judged_by_their_rules() {
        let verdicts = |claim: fn(f64) -> Claim, values: &[f64]| {
            values.iter().map(|value| claim(*value).verdict() == "held").collect::<Vec<_>>()
        };
        assert_eq!(verdicts(|ours| Claim::ratio("1", "x", 2.0, Ok(ours)), &[1.8, 1.79, 9.0]), [true, false, true]);
        // 6 % are held by 6.6 %, not by 17 %, though 1.06 is nine tenths of 1.17.
        assert_eq!(
            verdicts(|ours| Claim::overhead("1", "x", 1.06, Ok(ours)), &[1.066, 1.17, 0.9]),
            [true, false, true]
        );
        assert_eq!(verdicts(|ours| Claim::at_most("1", "x", 9.0, Ok(ours)), &[10.0, 10.1]), [true, false]);
        assert_eq!(
            verdicts(|ours| Claim::constant("1", "x", Ok(ours)), &[0.89, 0.91, 1.1, 1.2]),
            [false, true, true, false]
        );
        assert_eq!(verdicts(|ours| Claim::more("1", "x", Ok(ours)), &[1.0, 1.001, 0.999]), [false, true, false]);
        assert_eq!(verdicts(|ours| Claim::upto("1", "x", 1.0, Ok(ours)), &[1.0, 1.001]), [true, false]);
        assert_eq!(Claim::ratio("1", "x", 2.0, Err("so".into())).verdict(), "not measured");
    }
}
