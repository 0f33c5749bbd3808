//! Crashes of a volume with each engine that promises something, in simulated persistent memory: every word that was
//! stored and not fenced may survive or not. With the engine for disks, on simulated disks. After each crash the volume
//! must be sound, and be what it was before the call in flight or what it was to be after it. Crashes during recovery
//! are crashes, too. Explicit groups are there wholly once they are committed, and not at all before. The explorer is
//! that of `crash`.
//!
//! `WHOLLY_LONG=1` tries many more states.

mod behind;
mod costs;
mod groups;
mod hybrid;
mod multi_queue;
mod paged;
mod planted;
mod policies;
mod programs;
mod scripts;
mod shadow;
mod shortcut;
mod survival;
mod undo;
