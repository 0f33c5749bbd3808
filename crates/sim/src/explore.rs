//! Walking over the crash points of a trace, and over the images of each.

use super::choice::{Choice, Pick};
use super::coverage::Coverage;
use super::event::{Event, Trace};
use super::image::Image;
use super::point::Point;
use super::state::State;
use super::tracker::Tracker;
use std::fmt;
use std::ops::ControlFlow;

/// How far the images of one point are gone through.
#[derive(Clone, Debug)]
pub struct ExploreLimits {
    /// All combinations if they number at most two to the power of this.
    pub exhaustive_bits: u32,
    /// Beyond: each unit alone and all but it, and each older version, if there are at most this many units.
    pub single_units: usize,
    /// Beyond: all pairs of units, and their complements, if there are at most this many units.
    pub pair_units: usize,
    /// Beyond: so many samples.
    pub samples: u64,
    /// The seed of the samples.
    pub seed: u64,
    /// Beyond: all combinations of these units (such as those that recovery reads), the others all durable or all
    /// newest, as long as they number at most two to the power of `focus_bits`. See [`Point::units_read`].
    pub focus: Vec<u32>,
    /// See `focus`.
    pub focus_bits: u32,
}

impl Default for ExploreLimits {
    fn default() -> Self {
        ExploreLimits {
            exhaustive_bits: 16,
            single_units: usize::MAX,
            pair_units: 256,
            samples: 10_000,
            seed: 42,
            focus: Vec::new(),
            focus_bits: 16,
        }
    }
}

/// How the images of one point were gone through. Nothing is left out without being counted here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exploration {
    /// Images that were made.
    pub images: u64,
    /// Combinations that the host file system's model does not allow.
    pub forbidden: u64,
    /// All combinations, `u128::MAX` for more than that.
    pub combinations: u128,
    /// Pending units.
    pub units: usize,
    /// Whether all combinations were made.
    pub exhaustive: bool,
    /// Samples among the images.
    pub samples: u64,
    /// Units that were not tried alone, nor all but them.
    pub singles_left_out: u64,
    /// Pairs of units, and complements of pairs, that were left out.
    pub pairs_left_out: u64,
    /// Combinations of focused units that were left out.
    pub focus_left_out: u128,
    /// The caller stopped it.
    pub stopped: bool,
}

/// Sums over points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Crash points.
    pub points: u64,
    /// Images that were made.
    pub images: u64,
    /// Combinations that the host file system's model does not allow.
    pub forbidden: u64,
    /// Points of which not all combinations were made.
    pub sampled_points: u64,
    /// Samples among the images.
    pub samples: u64,
    /// Points at which not even each unit was tried alone.
    pub single_capped_points: u64,
    /// Units that were not.
    pub singles_left_out: u64,
    /// Points of which not even all pairs were made.
    pub pair_capped_points: u64,
    /// Pairs that were left out.
    pub pairs_left_out: u64,
    /// Points of which not all combinations of the focused units were made.
    pub focus_capped_points: u64,
    /// The largest number of units pending at once.
    pub most_units: usize,
}

impl Tally {
    /// Adds a point.
    pub fn add(&mut self, of: &Exploration) {
        self.points += 1;
        self.images += of.images;
        self.forbidden += of.forbidden;
        self.sampled_points += u64::from(!of.exhaustive);
        self.samples += of.samples;
        self.single_capped_points += u64::from(of.singles_left_out > 0);
        self.singles_left_out += of.singles_left_out;
        self.pair_capped_points += u64::from(of.pairs_left_out > 0);
        self.pairs_left_out = self.pairs_left_out.saturating_add(of.pairs_left_out);
        self.focus_capped_points += u64::from(of.focus_left_out > 0);
        self.most_units = self.most_units.max(of.units);
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: &Tally) {
        self.points += other.points;
        self.images += other.images;
        self.forbidden += other.forbidden;
        self.sampled_points += other.sampled_points;
        self.samples += other.samples;
        self.single_capped_points += other.single_capped_points;
        self.singles_left_out += other.singles_left_out;
        self.pair_capped_points += other.pair_capped_points;
        self.pairs_left_out = self.pairs_left_out.saturating_add(other.pairs_left_out);
        self.focus_capped_points += other.focus_capped_points;
        self.most_units = self.most_units.max(other.most_units);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} images at {} crash points; at most {} units pending; {} points sampled ({} samples)",
            self.images, self.points, self.most_units, self.sampled_points, self.samples
        )?;
        if self.single_capped_points > 0 {
            let (points, left_out) = (self.single_capped_points, self.singles_left_out);
            write!(f, "; single units capped at {points} points ({left_out} left out)")?;
        }
        if self.pair_capped_points > 0 {
            write!(f, "; pairs capped at {} points ({} left out)", self.pair_capped_points, self.pairs_left_out)?;
        }
        if self.focus_capped_points > 0 {
            write!(f, "; units that recovery reads capped at {} points", self.focus_capped_points)?;
        }
        Ok(())
    }
}

/// Walks over the crash points of a trace: point `n` is after `n` events, from 0 to the number of events.
pub struct Explorer<'t> {
    trace: &'t Trace,
    tracker: Tracker,
    coverage: Coverage,
    tally: Tally,
}

impl<'t> Explorer<'t> {
    /// Stands at point 0.
    pub fn new(trace: &'t Trace) -> Self {
        let tracker = Tracker::new(&trace.config, &trace.initial);
        Explorer { trace, tracker, coverage: Coverage::of(trace), tally: Tally::default() }
    }

    /// The number of the point where it stands.
    pub fn index(&self) -> u64 {
        self.tracker.now()
    }

    /// The event after which this point lies.
    pub fn event(&self) -> Option<&'t Event> {
        (self.index() as usize).checked_sub(1).map(|i| &self.trace.events[i])
    }

    /// Goes on to the next point; `false` at the end.
    pub fn advance(&mut self) -> bool {
        match self.trace.events.get(self.index() as usize) {
            Some(event) => {
                self.tracker.step(event);
                true
            }
            None => false,
        }
    }

    /// Goes to a point, from the beginning if it lies behind.
    ///
    /// # Panics
    /// If the trace is shorter.
    pub fn seek(&mut self, index: u64) {
        if index < self.index() {
            self.tracker = Tracker::new(&self.trace.config, &self.trace.initial);
        }
        while self.index() < index {
            assert!(self.advance(), "the trace has no point {index}");
        }
    }

    /// The point where it stands.
    pub fn point(&self) -> Point {
        Point::new(&self.tracker)
    }

    /// What the death of the process leaves at the point where it stands, while the power stays on: see
    /// [`World::kill`](super::World::kill).
    pub fn kill_image(&self) -> Image {
        self.tracker.kill()
    }

    /// Goes through the images of the point where it stands, counting.
    pub fn for_each_image(
        &mut self,
        limits: &ExploreLimits,
        f: impl FnMut(&Choice, &Image) -> ControlFlow<()>,
    ) -> Exploration {
        let done = self.point().for_each_image(limits, f);
        self.tally.add(&done);
        if let Some(site) = self.event().and_then(|event| event.site) {
            self.coverage.explored(site, done.images);
        }
        done
    }

    /// The sites of the trace, and which of them were crash points.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// What was gone through, and every cap that was hit.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl Trace {
    /// The point after `index` events.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn point(&self, index: u64) -> Point {
        let mut explorer = Explorer::new(self);
        explorer.seek(index);
        explorer.point()
    }

    /// Whether this trace has such a choice.
    pub fn has(&self, choice: &Choice) -> bool {
        choice.point <= self.events.len() as u64 && self.point(choice.point).has(&choice.pick)
    }

    /// Rebuilds the image that a choice stands for.
    ///
    /// # Panics
    /// If this trace [has](Self::has) no such choice.
    pub fn image_of(&self, choice: &Choice) -> Image {
        let mut explorer = Explorer::new(self);
        explorer.seek(choice.point);
        match choice.pick {
            Pick::Kill => explorer.kill_image(),
            _ => explorer.point().image_of(choice),
        }
    }
}

impl Point {
    /// Calls `f` for images that a crash here allows: for all if they number at most
    /// 2^[`exhaustive_bits`](ExploreLimits::exhaustive_bits), else for none, all, what each event wrote, one and two
    /// units and their complements, older versions, focused units and samples, as far as the limits go. `f` may stop
    /// it.
    pub fn for_each_image(
        &self,
        limits: &ExploreLimits,
        mut f: impl FnMut(&Choice, &Image) -> ControlFlow<()>,
    ) -> Exploration {
        let combinations = self.combinations();
        let mut done = Exploration { combinations, units: self.units(), ..Exploration::default() };
        done.exhaustive = combinations <= 1 << limits.exhaustive_bits.min(63);
        let flow = if done.exhaustive {
            let mut walk = Exhaustive { point: self, versions: vec![0; self.units()], f: &mut f, done: &mut done };
            walk.descend(self.units(), self.base().clone(), 0, combinations as u64)
        } else {
            self.sampled(limits, &mut f, &mut done)
        };
        done.stopped = flow.is_break();
        done
    }

    fn sampled(
        &self,
        limits: &ExploreLimits,
        f: &mut impl FnMut(&Choice, &Image) -> ControlFlow<()>,
        done: &mut Exploration,
    ) -> ControlFlow<()> {
        let point = self.index();
        let mut visit = |pick: Pick, done: &mut Exploration| {
            done.images += 1;
            let image = self.build(&self.versions_of(&pick));
            f(&Choice { point, pick }, &image)
        };
        visit(Pick::None, done)?;
        visit(Pick::All, done)?;
        let units = self.units() as u32;
        for event in self.pending_events() {
            visit(Pick::Only(event), done)?;
            visit(Pick::But(event), done)?;
        }
        let singles = if self.units() <= limits.single_units { units } else { 0 };
        done.singles_left_out = u64::from(units - singles);
        for a in 0..singles {
            visit(Pick::Set(vec![a]), done)?;
            visit(Pick::Not(vec![a]), done)?;
            let unit = &self.all_units()[a as usize];
            for version in (1..unit.radix).filter(|v| *v != unit.steps.len() as u32) {
                visit(Pick::Mix(false, vec![(a, version)]), done)?;
                visit(Pick::Mix(true, vec![(a, version)]), done)?;
            }
        }
        if self.units() <= limits.pair_units {
            for a in 0..units {
                for b in a + 1..units {
                    visit(Pick::Set(vec![a, b]), done)?;
                    visit(Pick::Not(vec![a, b]), done)?;
                }
            }
        } else {
            done.pairs_left_out = u64::from(units) * (u64::from(units) - 1);
        }
        if !limits.focus.is_empty() {
            let radix = |unit: &u32| u128::from(self.all_units()[*unit as usize].radix);
            let all = limits.focus.iter().fold(1u128, |n, unit| n.saturating_mul(radix(unit)));
            let made = all.min(1 << limits.focus_bits.min(63));
            done.focus_left_out = all - made;
            for number in 0..made {
                let mut rest = number;
                let mut digit = |unit: &u32| {
                    let digit = rest % radix(unit);
                    rest /= radix(unit);
                    (*unit, digit as u32)
                };
                let mix: Vec<(u32, u32)> = limits.focus.iter().map(&mut digit).collect();
                visit(Pick::Mix(false, mix.clone()), done)?;
                visit(Pick::Mix(true, mix), done)?;
            }
        }
        for n in 0..limits.samples {
            done.samples += 1;
            visit(Pick::Seed(limits.seed, n), done)?;
        }
        ControlFlow::Continue(())
    }
}

/// All combinations: a tree with a level for each unit, so that neighbours share what they have in common.
struct Exhaustive<'a, F> {
    point: &'a Point,
    versions: Vec<u32>,
    f: &'a mut F,
    done: &'a mut Exploration,
}

impl<F: FnMut(&Choice, &Image) -> ControlFlow<()>> Exhaustive<'_, F> {
    /// Chooses versions for the units below `units`; `weight` is the number of combinations of those.
    fn descend(&mut self, units: usize, state: State, number: u64, weight: u64) -> ControlFlow<()> {
        let Some(at) = units.checked_sub(1) else {
            if !self.point.allows(&self.versions) {
                self.done.forbidden += 1;
                return ControlFlow::Continue(());
            }
            self.done.images += 1;
            let image = if self.point.in_time() { self.point.build(&self.versions) } else { self.point.finish(state) };
            return (self.f)(&Choice { point: self.point.index(), pick: Pick::Number(number) }, &image);
        };
        let unit = &self.point.all_units()[at];
        let weight = weight / u64::from(unit.radix);
        for version in 0..unit.radix {
            let mut state = state.clone();
            if !self.point.in_time() {
                self.point.apply(unit, version, &mut state);
            }
            self.versions[at] = version;
            self.descend(at, state, number + u64::from(version) * weight, weight)?;
        }
        ControlFlow::Continue(())
    }
}
