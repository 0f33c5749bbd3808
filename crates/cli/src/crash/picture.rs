//! The picture of a crash, drawn.

use super::panel::Panel;
use super::svg::{STYLE, Svg, escaped, shortened, width_of};
use super::timeline::{Act, Column, Fate, Half, Picture, Stores};
use crate::output::size;
use std::collections::BTreeSet;
use wholly_crash::{Crash, Replay};
use wholly_sim::Pick;

const MARGIN: i32 = 16;
const LANE: i32 = 42;
const BOX: (i32, i32) = (54, 26);
/// Between boxes.
const GAP: i32 = 8;
const WALL: i32 = 6;
/// Where the lanes begin, and what acts are called.
const TOP: i32 = 104;
const HEAD: i32 = 28;
/// Room for the crash.
const CRASH: i32 = 56;
/// Characters of an act, a lane and a box at most.
const LONGEST: [usize; 3] = [22, 26, 9];

/// All pictures of a replay in one file, one below the other.
pub fn alone(replay: &Replay) -> String {
    let pictures: Vec<Drawing> = replay.crashes.iter().map(|crash| Drawing::new(replay, crash)).collect();
    let width = pictures.iter().map(|picture| picture.width).max().unwrap_or(0);
    let (mut all, mut height) = (String::new(), 0);
    for picture in pictures {
        all += &format!("<g transform=\"translate(0 {height})\">\n{}</g>\n", picture.svg.0);
        height += picture.height + MARGIN;
    }
    let head = format!("<title>{}</title>\n<style>\n{STYLE}</style>\n", escaped(&replay.name));
    whole(width, (height - MARGIN).max(0), &(head + &all))
}

/// The picture of one crash, for a page that has the style sheet.
pub fn of(replay: &Replay, crash: &Crash) -> String {
    let Drawing { svg, width, height, .. } = Drawing::new(replay, crash);
    whole(width, height, &svg.0)
}

fn whole(width: i32, height: i32, inner: &str) -> String {
    let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"");
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} role=\"img\">\n{inner}</svg>\n")
}

/// A picture in the making.
struct Drawing {
    svg: Svg,
    width: i32,
    height: i32,
    /// Where lanes end.
    bottom: i32,
    fates: BTreeSet<Fate>,
}

fn top_of(lane: usize) -> i32 {
    TOP + LANE * lane as i32
}

impl Drawing {
    fn new(replay: &Replay, crash: &Crash) -> Drawing {
        let picture = Picture::new(replay, crash);
        let panel = Panel::new(replay, crash);
        let is_kill = crash.choice.pick == Pick::Kill;
        let what = if is_kill { "process dies" } else { "power fails" };
        let title = format!("The {what} {}", crash.moment);
        let name = match &replay.crashes[..] {
            [_] => replay.name.clone(),
            _ => format!("{}: crash {}", replay.name, crash.choice),
        };
        let labels: Vec<String> = picture.lanes.iter().map(|label| shortened(label, LONGEST[1])).collect();
        let left = MARGIN + labels.iter().map(|label| width_of(label)).max().unwrap_or(0).max(48) + 14;
        let crash_x = left + width_of_half(&picture.before) + CRASH / 2;
        let reads_x = crash_x + CRASH / 2;
        let after_x = reads_x + if picture.reads.is_empty() { 0 } else { BOX.0 + 2 * GAP + 8 };
        let end = after_x + width_of_half(&picture.after);
        let width = (end.max(MARGIN + panel.width())).max(MARGIN + width_of(&title) * 5 / 4) + MARGIN;
        let bottom = top_of(picture.lanes.len());
        let mut all = Drawing { svg: Svg::default(), width, height: 0, bottom, fates: BTreeSet::new() };

        all.svg.text("big", (MARGIN, 32), &title);
        all.svg.text("quiet small", (MARGIN, 50), &shortened(&name, (width / 8) as usize));
        all.svg.text("quiet small", (MARGIN, TOP - 10), "time →");
        for (lane, label) in labels.iter().enumerate() {
            all.svg.text("mono", (MARGIN, top_of(lane) + LANE / 2 + 4), label);
        }
        all.half(&picture.before, left, Some(crash_x));
        all.reads(&picture, reads_x, after_x);
        all.half(&picture.after, after_x, None);
        for lane in 0..=picture.lanes.len() {
            all.svg.path("lane", format_args!("M{MARGIN} {}H{end}", top_of(lane)));
        }
        let jag = " 7 10-7 10".repeat((bottom - TOP + HEAD) as usize / 20 + 1);
        all.svg.path("crash", format_args!("M{crash_x} {}l{jag}", TOP - HEAD));
        all.svg.middle("crash-label", (crash_x, TOP - HEAD - 6), what);
        let y = bottom + 24 + walls(&picture).map(width_of).max().unwrap_or(0);
        let y = panel.draw(&mut all.svg, (MARGIN, y)) + 14;
        all.height = all.legend(&picture, y) + MARGIN;
        let mut ground = Svg::default();
        ground.rect("ground", (1, 1), (width - 2, all.height - 2), 8);
        all.svg.0.insert_str(0, &ground.0);
        all
    }

    fn ground_of_act(&mut self, x: i32, width: i32, class: &str, label: &str) {
        self.svg.rect("act", (x, TOP - HEAD), (width, self.bottom - TOP + HEAD), 4);
        self.svg.middle(class, (x + width / 2, TOP - 10), &shortened(label, LONGEST[0]));
    }

    /// Acts from `x` on; what is pending stays so up to the crash.
    fn half(&mut self, half: &Half, mut x: i32, crash: Option<i32>) {
        let (mut places, mut walls) = (Vec::new(), Vec::new());
        for act in &half.acts {
            let width = width_of_act(act);
            self.ground_of_act(x, width, "bold", &act.label);
            let mut at = x + (width - width_of_columns(act)) / 2 + GAP;
            for column in &act.columns {
                walls.extend(column.wall.iter().map(|wall| (wall, at)));
                for (stores, y, height) in shares(column) {
                    places.push((stores, (at, y), height));
                }
                at += GAP + if column.wall.is_some() { WALL } else { BOX.0 };
            }
            x += width + GAP;
        }
        // How long each was pending.
        for (stores, (x, _), _) in &places {
            let wall = walls.iter().find(|(wall, _)| Some(wall.event) == stores.durable_by).map(|(_, x)| *x);
            let until = match stores.fate {
                Fate::Durable => wall,
                Fate::Broken => None,
                _ => crash,
            };
            if let Some(until) = until {
                let y = top_of(stores.lane) + LANE / 2;
                self.svg.path("tail", format_args!("M{} {y}H{until}", x + BOX.0));
            }
        }
        for (wall, x) in walls {
            self.svg.titled(&wall.title, |svg| {
                for lane in &wall.lanes {
                    svg.rect("wall", (x, top_of(*lane)), (WALL, LANE), 0);
                }
                svg.upright("wall-label", (x + WALL, self.bottom + 6), wall.label);
            });
        }
        for (stores, at, height) in places {
            self.fates.insert(stores.fate);
            self.svg.titled(&stores.title(), |svg| draw_stores(svg, stores, at, height));
        }
    }

    fn reads(&mut self, picture: &Picture, x: i32, end: i32) {
        if !picture.reads.is_empty() {
            self.ground_of_act(x, end - x - GAP, "bold read", "reads");
        }
        for (lane, bytes, title) in &picture.reads {
            let (x, y) = (x + GAP / 2, top_of(*lane) + (LANE - BOX.1) / 2);
            self.svg.titled(title, |svg| {
                svg.rect("box reads", (x, y), (BOX.0 + 8, BOX.1), BOX.1 / 2);
                svg.middle("small", (x + BOX.0 / 2 + 4, y + 17), &size(*bytes));
            });
        }
    }

    /// What boxes mean, of those that there are; gives where it ends.
    fn legend(&mut self, picture: &Picture, mut y: i32) -> i32 {
        let mut signs: Vec<(&str, Sign)> = self.fates.iter().map(|fate| (fate.about(), Sign::Of(*fate))).collect();
        if walls(picture).next().is_some() {
            signs.push(("durable from here on", Sign::Wall));
        }
        if !picture.reads.is_empty() {
            signs.push(("what recovery reads", Sign::Reads));
        }
        if columns(picture).flat_map(|column| &column.stores).any(|stores| stores.is_read) {
            signs.push(("read by recovery", Sign::WasRead));
        }
        let mut x = MARGIN;
        for (about, sign) in signs {
            let width = 48 + width_of(about) * 7 / 8;
            if x + width > self.width && x > MARGIN {
                (x, y) = (MARGIN, y + 24);
            }
            match sign {
                Sign::Of(fate) => draw_box(&mut self.svg, fate, (x, y), (26, 16)),
                Sign::Wall => self.svg.rect("wall", (x + 16, y - 2), (WALL, 20), 0),
                Sign::Reads => self.svg.rect("box reads", (x, y), (26, 16), 8),
                Sign::WasRead => self.svg.rect("was-read", (x, y + 7), (26, 3), 0),
            }
            self.svg.text("small", (x + 36, y + 12), about);
            x += width;
        }
        y + 16
    }
}

/// What the legend explains.
enum Sign {
    Of(Fate),
    Wall,
    Reads,
    WasRead,
}

fn draw_stores(svg: &mut Svg, stores: &Stores, (x, y): (i32, i32), height: i32) {
    draw_box(svg, stores.fate, (x, y), (BOX.0, height));
    let class = if stores.fate == Fate::Durable { "small in-durable" } else { "small" };
    if height >= 12 {
        svg.middle(class, (x + BOX.0 / 2, y + height / 2 + 4), &shortened(&stores.label, LONGEST[2]));
    }
    if stores.is_read {
        svg.rect("was-read", (x, y + height + 3), (BOX.0, 3), 0);
    }
}

/// A box of this fate, without a text.
fn draw_box(svg: &mut Svg, fate: Fate, (x, y): (i32, i32), (width, height): (i32, i32)) {
    let class = fate.class();
    svg.rect(&format!("box {class}"), (x, y), (width, height), 3);
    if fate == Fate::Torn {
        let (upper, lower) = (x + width / 2 + 6, x + width / 2 - 6);
        svg.path("half", format_args!("M{} {}H{upper}L{lower} {}H{}z", x + 1, y + 1, y + height - 1, x + 1));
    }
    let (x, y) = (x + width - 3, y + 2);
    let sign = match fate {
        Fate::Durable | Fate::Pending => return,
        Fate::Kept => "m-4 0l3 3l4-6",
        Fate::Torn => "m-3 3l6-6",
        Fate::Lost => "m-3-3l6 6m0-6l-6 6",
        Fate::Broken => "m0-4v3m0 4v.1",
    };
    svg.circle(&format!("box disc {class}"), (x, y), 7);
    svg.path(&format!("sign {class}"), format_args!("M{x} {y}{sign}"));
}

/// Where the boxes of a column begin, and their heights: several fates at one time share the height of a lane.
fn shares(column: &Column) -> impl Iterator<Item = (&Stores, i32, i32)> {
    let in_lane = |stores: &[Stores], lane| stores.iter().filter(|it| it.lane == lane).count() as i32;
    column.stores.iter().enumerate().map(move |(i, stores)| {
        let (all, above) = (in_lane(&column.stores, stores.lane), in_lane(&column.stores[..i], stores.lane));
        let share = BOX.1.min((LANE - 4) / all);
        let y = top_of(stores.lane) + (LANE - all * share) / 2 + above * share;
        (stores, y, share - i32::from(all > 1))
    })
}

fn columns(picture: &Picture) -> impl Iterator<Item = &Column> {
    [&picture.before, &picture.after].into_iter().flat_map(|half| &half.acts).flat_map(|act| &act.columns)
}

/// What walls are called.
fn walls(picture: &Picture) -> impl Iterator<Item = &'static str> {
    columns(picture).filter_map(|column| column.wall.as_ref()).map(|wall| wall.label)
}

fn width_of_columns(act: &Act) -> i32 {
    let columns = act.columns.iter().map(|column| GAP + if column.wall.is_some() { WALL } else { BOX.0 });
    columns.sum::<i32>() + GAP
}

fn width_of_act(act: &Act) -> i32 {
    width_of_columns(act).max(width_of(&shortened(&act.label, LONGEST[0])) + 8)
}

fn width_of_half(half: &Half) -> i32 {
    half.acts.iter().map(|act| width_of_act(act) + GAP).sum()
}
