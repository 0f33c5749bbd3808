//! Figures of papers as CSV and SVG, and what the papers claim of them.

use crate::{Error, Result};
use plotters::prelude::*;
use std::fmt::Write;
use std::path::Path;

/// A claim about how many times as good something is holds from this part of the paper's value on.
const HOLDS_FROM: f64 = 0.9;

/// A figure: points of systems.
pub(crate) struct Figure {
    pub name: &'static str,
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    /// By system, in the order in which they are drawn.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Figure {
    /// Whether each system has a bar, and no line.
    fn is_bars(&self) -> bool {
        self.x == "system"
    }
}

/// What the paper says of a figure.
pub(crate) struct Claim {
    pub figure: &'static str,
    pub what: String,
    /// As the paper has it.
    pub paper: f64,
    /// As it is here.
    pub ours: Result<f64, String>,
    /// Whether less is better.
    pub is_upper: bool,
}

impl Claim {
    pub fn at_least(figure: &'static str, what: impl Into<String>, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim { figure, what: what.into(), paper, ours, is_upper: false }
    }

    pub fn at_most(figure: &'static str, what: impl Into<String>, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim { figure, what: what.into(), paper, ours, is_upper: true }
    }

    fn verdict(&self) -> &'static str {
        match self.ours {
            Err(_) => "not measured",
            Ok(ours) if self.is_upper && ours * HOLDS_FROM <= self.paper => "held",
            Ok(ours) if !self.is_upper && ours >= self.paper * HOLDS_FROM => "held",
            Ok(_) => "refuted",
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
    let is_bars = figure.is_bars();
    let mut out = if is_bars { format!("system,{y}\n") } else { format!("system,{x},{y}\n") };
    for (system, points) in &figure.lines {
        for (x, y) in points {
            _ = if is_bars { writeln!(out, "{system},{y}") } else { writeln!(out, "{system},{x},{y}") };
        }
    }
    out
}

fn table(claims: &[Claim]) -> String {
    let mut out = "figure,claim,paper,ours,verdict\n".to_owned();
    for claim in claims {
        let Claim { figure, what, paper, ours, .. } = claim;
        let ours = ours.as_ref().map_or_else(ToString::to_string, |ours| format!("{ours:.3}"));
        _ = writeln!(out, "{figure},\"{what}\",{paper},\"{ours}\",{}", claim.verdict());
    }
    out
}

/// The bounds of some numbers, with room beyond the largest.
fn range(numbers: impl Iterator<Item = f64>, from_zero: bool) -> std::ops::Range<f64> {
    let (low, high) = numbers.fold((f64::INFINITY, 0.0f64), |(low, high), n| (low.min(n), high.max(n)));
    let low = if from_zero || !low.is_finite() { 0.0 } else { low };
    low..if high > low { high + (high - low) / 20.0 } else { low + 1.0 }
}

fn draw(figure: &Figure, path: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::from(format!("{}: {error}", path.display()));
    let points = || figure.lines.iter().flat_map(|(_, points)| points);
    let is_bars = figure.is_bars();
    let xs = match is_bars {
        true => -0.5..figure.lines.len() as f64 - 0.5,
        false => range(points().map(|point| point.0), false),
    };
    let root = SVGBackend::new(path, (800, 500)).into_drawing_area();
    let drawn = || -> std::result::Result<(), DrawingAreaErrorKind<_>> {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(figure.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(xs, range(points().map(|point| point.1), true))?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(figure.x).y_desc(figure.y);
        if is_bars {
            mesh.x_labels(0);
        }
        mesh.draw()?;
        for (at, (system, points)) in figure.lines.iter().enumerate() {
            let color = Palette99::pick(at).to_rgba();
            let drawn = match is_bars {
                true => chart.draw_series(
                    points.iter().map(|(x, y)| Rectangle::new([(x - 0.3, 0.0), (x + 0.3, *y)], color.filled())),
                )?,
                false => {
                    chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
                    chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                }
            };
            let mark = move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled());
            drawn.label(system.as_str()).legend(mark);
        }
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
        root.present()
    };
    drawn().map_err(|error| failed(&error))
}
