//! What the explorer does to a volume here: scripts, and what is done to a volume that is not open.

use std::sync::LazyLock;

use wholly_crash::volume::{BYTES, OnVolume, Program, Running, setting};
use wholly_crash::{FRESH, Op, Setting, State};
use wholly_posix::Tree;
use wholly_sim::SimConfig;
use wholly_vfs::{Context, Groups, Ino};
use wholly_volume::{EngineKind, Trial, Volume, VolumeVfs};

use super::groups::{Move, Story, stories};
use super::policies::Policed;
use super::scripts::{SCRIPTS, Script};

#[derive(Clone, Copy, Debug)]
pub enum Done {
    /// Each step is an operation.
    Script(&'static Script),
    /// The same, while the clock stands still.
    Still(&'static Script),
    /// The same, and after each third step the process dies.
    Mortal(&'static Script),
    /// So is each move.
    Story(&'static Story),
    /// The same, while the clock stands still.
    StillStory(&'static Story),
    /// A script, and a story, with a changed engine.
    Trial(&'static Script, Trial),
    TrialStory(&'static Story, Trial),
    /// So is each call, or what a policy makes of several.
    Policed(&'static Policed, Trial),
    /// The volume gets smaller, and larger again. Nothing of what there is changes.
    Resizing,
}

/// Few pages, so that they are stolen.
pub const FEW_PAGES: Trial = Trial { pages: Some(16), ..Trial::NONE };

/// Calls outside of groups, with the engine `fine_grained_wal`.
pub fn calls() -> Vec<OnVolume<Done>> {
    SCRIPTS.iter().map(Done::Script).chain([Done::Resizing]).map(on_volume).collect()
}

pub static STORIES: LazyLock<Vec<Story>> = LazyLock::new(stories);

/// Explicit groups, with the same engine.
pub fn groups() -> Vec<OnVolume<Done>> {
    STORIES.iter().map(Done::Story).map(on_volume).collect()
}

fn on_volume(program: Done) -> OnVolume<Done> {
    OnVolume { engine: EngineKind::FineGrainedWal, program }
}

pub fn world(name: &str) -> Setting {
    setting(name).expect("a world")
}

/// The same, with volumes of so many blocks.
pub fn large_world(name: &str, blocks: u64) -> Setting {
    let setting = world(name);
    Setting { sim: SimConfig { log_len: blocks * 4096, ..(*setting.sim).clone() }.into(), ..setting }
}

fn with_tree<T>(volume: &Volume, body: impl FnOnce(&Tree<'_>) -> T) -> T {
    body(&Tree::new(&VolumeVfs::new(volume), Ino::ROOT))
}

impl Program for Done {
    fn name(&self) -> String {
        match self {
            Done::Script(script) | Done::Still(script) | Done::Trial(script, _) => script.name.into(),
            Done::Mortal(script) => format!("{}, with deaths", script.name),
            Done::Story(story) | Done::StillStory(story) | Done::TrialStory(story, _) => story.name.clone(),
            Done::Policed(policed, _) => policed.name.into(),
            Done::Resizing => "resizing".into(),
        }
    }

    fn time_passes(&self) -> bool {
        !matches!(self, Done::Still(_) | Done::Mortal(_) | Done::StillStory(_))
            && !matches!(self, Done::Policed(policed, _) if policed.is_still)
    }

    fn orders(&self) -> bool {
        matches!(self, Done::Policed(policed, _) if policed.is_still)
    }

    fn trial(&self) -> Trial {
        match self {
            Done::Trial(_, trial) | Done::TrialStory(_, trial) | Done::Policed(_, trial) => *trial,
            _ => FEW_PAGES,
        }
    }

    fn prepare(&self, volume: &Volume) -> Result<(), String> {
        let prepared = with_tree(volume, |tree| match self {
            Done::Script(script) | Done::Still(script) | Done::Mortal(script) | Done::Trial(script, _) => {
                (script.before)(tree)
            }
            Done::Story(story) | Done::StillStory(story) | Done::TrialStory(story, _) => (story.before)(tree),
            Done::Policed(policed, _) => (policed.before)(tree),
            Done::Resizing => tree.file("a", 0o644, &[1; 9000]).map(drop),
        });
        prepared.map_err(|errno| errno.to_string())
    }

    fn perform(&self, running: &mut Running<'_>) -> Result<(), String> {
        let script = match self {
            Done::Script(script) | Done::Still(script) | Done::Mortal(script) | Done::Trial(script, _) => script,
            Done::Story(story) | Done::StillStory(story) | Done::TrialStory(story, _) => return tell(story, running),
            Done::Policed(policed, _) => return policed.perform(running),
            Done::Resizing => {
                running.close()?;
                running.offline("shrink", |region| Volume::resize_region(region, BYTES - 20 * 4096))?;
                running.offline("rename", |region| Volume::set_label_of_region(region, "another"))?;
                return running.offline("grow", |region| Volume::resize_region(region, BYTES));
            }
        };
        for (number, step) in script.steps.iter().enumerate() {
            let before = running.state().clone();
            let label = format!("step {number}");
            let done = running.step(&label, |volume| with_tree(volume, step))?;
            done.map_err(|errno| format!("{label}: {errno}"))?;
            if before == *running.state() {
                return Err(format!("{label} changes nothing"));
            }
            if matches!(self, Done::Mortal(_)) && number % 3 == 2 {
                running.die();
                running.open()?;
            }
        }
        Ok(())
    }

    /// Three groups, so that a lane of the log is used again.
    fn ops_after(&self, _state: &State) -> Vec<Op> {
        let write = |offset, length| Op::Write { file: FRESH, offset, length };
        vec![Op::Create(FRESH), write(0, 5000), write(10, 3000), write(10, 3000), Op::Unlink(FRESH)]
    }

    fn rules(&self) -> String {
        String::new()
    }
}

fn tell(story: &Story, running: &mut Running<'_>) -> Result<(), String> {
    let mut groups = [None; 2];
    for (number, step) in story.moves.iter().enumerate() {
        let before = running.state().clone();
        let label = format!("move {number}");
        if let Move::See(is_so) = step {
            if !is_so(&before) {
                return Err(format!("{label}: something else is there"));
            }
            continue;
        }
        let body = |volume: &Volume| {
            let vfs = VolumeVfs::new(volume);
            let tree = Tree::new(&vfs, Ino::ROOT);
            match *step {
                Move::Out(step) => step(&tree),
                Move::Begin(group) => vfs.begin().map(|id| groups[group] = Some(id)).map_err(wholly_vfs::Errno::from),
                Move::In(group, step) => {
                    step(&Tree { ctx: Context { group: groups[group], ..tree.ctx.clone() }, ..tree.clone() })
                }
                Move::Commit(group) => Ok(vfs.commit(groups[group].expect("it runs"))?),
                Move::Abort(group) => Ok(vfs.abort(groups[group].expect("it runs"))?),
                Move::See(_) => unreachable!("nothing is done"),
            }
        };
        let done = match step {
            // Durable when it returns, whatever the engine says of calls.
            Move::Commit(_) => running.sync_step(&label, body)?,
            _ => running.step(&label, body)?,
        };
        done.map_err(|errno| format!("{label}: {errno}"))?;
        match (step, before != *running.state()) {
            (Move::Out(_), false) => return Err(format!("{label} changes nothing")),
            (Move::Begin(_) | Move::In(..) | Move::Abort(_), true) => return Err(format!("{label} is seen")),
            _ => {}
        }
    }
    Ok(())
}
