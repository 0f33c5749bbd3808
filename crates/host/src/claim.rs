//! Who goes on with what was opened before a `fork`: the process that opened it, or one of its children.
//!
//! # Terms
//!
//! - *maker*: the process that made the claim. *Heir*: a process that has it by `fork`, from the maker or from another
//!   heir.
//! - *use*: a call of the maker, from [`enter`](Claim::enter) to [`leave`](Claim::leave).
//! - *seizure*: an heir becomes the owner. *Contest*: what it does first; the maker's next use ends it.
//!
//! # Invariants
//!
//! 1. While the maker is the owner no heir is, and the other way round: an heir contests, makes every core pass a
//!    barrier, then looks at the maker's uses; a use is noted before the owner is looked at. One of the two sees the
//!    other, and both then decide by one compare-and-swap of [`Shared::owner`].
//! 2. An heir seizes only what the maker has not used since the fork, what the maker gave up, or what a dead process
//!    left. What threads work at in the background is no use: an heir waits for its end.
//! 3. A use costs stores and loads of lines that its thread has for itself: no locked instruction, no system call.
//!
//! # States of the owner's word
//!
//! ```text
//!              contest               seize
//!   maker ----------------> contest ---------> heir
//!     |    <---------------    |                ^
//!     |     the maker's use                     |
//!     `------------> free ----------------------'
//!       release                   seize
//! ```

use super::owner::Busy;
use crate::sys::{OrFail, PageContent, SharedPage, WipedPage};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use rustix::thread::{MembarrierCommand, membarrier};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};
use std::time::Duration;
use wholly_media::Result;

/// Places in which uses are noted.
const SLOTS: usize = 63;
/// That of work in the background.
const BACKGROUND: usize = 0;
/// That of all threads that found none to have for themselves.
const OVERFLOW: usize = SLOTS - 1;
/// In [`OVERFLOW`] the lower half counts uses under way, the upper one those that began.
const ONE_BEGAN: u64 = 1 << 32;

/// In the owner's word: an heir has it. Below are the owner's process id, and from bit 32 on that of an heir that
/// contests it.
const HEIR: u64 = 1 << 63;
const CONTENDER_SHIFT: u32 = 32;
/// In its place: the maker gave it up.
const FREE: u64 = 1 << 62;

/// A word that shares its cache line with no other.
#[repr(align(64))]
struct Line(AtomicU64);

/// What maker and heirs have in common.
#[repr(C)]
struct Shared {
    owner: Line,
    /// Of each slot: uses that began and uses that ended, odd during a use.
    uses: [Line; SLOTS],
}
const _: () = assert!(size_of::<Shared>() == 4096);

/// What is zero in a child after `fork`.
#[repr(C)]
struct Here {
    /// The owner's word as long as the maker owns it.
    maker: AtomicU64,
    /// Not 0 once this process has seized it.
    seized: AtomicU64,
}

// SAFETY: atomics only.
unsafe impl PageContent for Shared {}
// SAFETY: as above.
unsafe impl PageContent for Here {}

/// Why a process may not use what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It has it by `fork`: see [`Claim::seize`].
    Inherited,
    /// The child with this process id has it now.
    Seized(u32),
}

/// Proof of a use that has begun.
#[derive(Debug)]
#[must_use = "a use that is not left never ends"]
pub struct Use {
    slot: usize,
}

impl Use {
    /// Of what has no claim.
    pub const NONE: Use = Use { slot: BACKGROUND };
}

/// See the head of this module.
pub struct Claim {
    shared: SharedPage<Shared>,
    here: WipedPage<Here>,
    /// What the maker's slots hold between uses; a child has them as they were at the fork.
    seen: Box<[Line; SLOTS]>,
    /// Whether the kernel makes [`heavy_fence`] stand for the fences of the maker's threads.
    is_light: bool,
    pid: u32,
    /// Tells when the maker is dead. `None` where the kernel does not.
    life: Option<OwnedFd>,
}

impl Claim {
    /// A claim of the calling process.
    ///
    /// # Errors
    /// Those of `mmap`, and of `madvise` on a kernel that does not wipe pages at `fork` (before Linux 4.14).
    pub fn new() -> Result<Claim> {
        let pid = own_pid();
        let here: WipedPage<Here> = WipedPage::new().or_fail("map", || "a page that fork wipes")?;
        let shared: SharedPage<Shared> = SharedPage::new().or_fail("map", || "a page that children share")?;
        here.maker.store(u64::from(pid), Ordering::Relaxed);
        shared.owner.0.store(u64::from(pid), Ordering::Relaxed);
        let is_light = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok();
        let life = Pid::from_raw(pid as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Claim { shared, here, seen: Box::new([const { Line(AtomicU64::new(0)) }; SLOTS]), is_light, pid, life })
    }

    /// Whether the calling process has it by `fork`.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.here.maker.load(Ordering::Relaxed) == 0
    }

    /// Whether the calling process made it and has lost it for ever: see [`Refused::Seized`].
    #[inline]
    pub fn is_seized(&self) -> bool {
        !self.is_inherited() && self.shared.owner.0.load(Ordering::Relaxed) & (HEIR | FREE) != 0
    }

    /// Whether the calling process made it and no child is known to have it.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.shared.owner.0.load(Ordering::Relaxed) == self.here.maker.load(Ordering::Relaxed)
    }

    /// A use begins. Uses of one thread do not nest.
    ///
    /// # Errors
    /// See [`Refused`].
    #[inline]
    pub fn enter(&self) -> Result<Use, Refused> {
        let maker = self.here.maker.load(Ordering::Relaxed);
        if maker == 0 {
            return Err(Refused::Inherited);
        }
        let began = self.begin(own_slot());
        if self.shared.owner.0.load(Ordering::Relaxed) == maker { Ok(began) } else { self.end_contest(began) }
    }

    /// Work in the background begins, of one thread at a time.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn enter_background(&self) -> Result<Use, Refused> {
        /// An heir is not robbed of what it is about to have, unless it died on the way.
        const PATIENCE: u32 = 100;
        if self.is_inherited() {
            return Err(Refused::Inherited);
        }
        for _ in 0..PATIENCE {
            let began = self.begin(BACKGROUND);
            if self.is_mine() {
                return Ok(began);
            }
            self.leave(began);
            let owner = self.shared.owner.0.load(Ordering::Relaxed);
            if owner & HEIR != 0 || owner == FREE {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.end_contest(self.begin(BACKGROUND))
    }

    /// The use ends.
    #[inline]
    pub fn leave(&self, began: Use) {
        if began.slot >= OVERFLOW {
            return self.leave_overflow();
        }
        let seen = self.seen[began.slot].0.load(Ordering::Relaxed);
        self.shared.uses[began.slot].0.store(seen, Ordering::Release);
    }

    #[cold]
    fn leave_overflow(&self) {
        self.shared.uses[OVERFLOW].0.fetch_sub(1, Ordering::Release);
    }

    #[inline]
    fn begin(&self, slot: usize) -> Use {
        if slot >= OVERFLOW {
            return self.begin_uncommon(slot);
        }
        let (seen, uses) = (&self.seen[slot].0, &self.shared.uses[slot].0);
        let before = seen.load(Ordering::Relaxed);
        // In this order: a child that is forked between the two takes the use for one that is later than its fork.
        seen.store(before.wrapping_add(2), Ordering::Relaxed);
        uses.store(before.wrapping_add(1), Ordering::Release);
        // The maker's half of invariant 1. It costs nothing where the kernel helps.
        if self.is_light {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        Use { slot }
    }

    #[cold]
    fn begin_uncommon(&self, slot: usize) -> Use {
        if slot == usize::from(NONE) {
            return self.begin(usize::from(ask_for_slot()));
        }

        self.seen[OVERFLOW].0.fetch_add(ONE_BEGAN, Ordering::Relaxed);
        self.shared.uses[OVERFLOW].0.fetch_add(ONE_BEGAN + 1, Ordering::SeqCst);
        Use { slot: OVERFLOW }
    }

    /// The maker meets an owner's word that is not its own.
    #[cold]
    fn end_contest(&self, began: Use) -> Result<Use, Refused> {
        let maker = self.here.maker.load(Ordering::Relaxed);
        loop {
            let owner = self.shared.owner.0.load(Ordering::SeqCst);
            if owner == maker {
                return Ok(began);
            }
            if owner & HEIR != 0 || owner == FREE {
                self.leave(began);
                return Err(Refused::Seized(owner as u32));
            }
            let _ = self.shared.owner.0.compare_exchange(owner, maker, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// The maker gives it up, with what `give_up` does while nobody else can have it. Nothing happens where it is not
    /// the calling process's.
    pub fn release(&self, give_up: impl FnOnce()) {
        let Ok(began) = self.enter() else { return };
        give_up();
        // Only contests can change it meanwhile, and they fail: this is a use.
        self.shared.owner.0.store(FREE, Ordering::SeqCst);
        self.leave(began);
    }

    /// An heir becomes the owner, if nobody was faster (invariant 2). Threads of one process do not call it at once.
    ///
    /// # Errors
    /// Who owns it.
    pub fn seize(&self) -> Result<(), Busy> {
        self.seize_from(true)
    }

    /// The same where the maker's memory has what an heir cannot go on without: only if the maker gave it up or is
    /// dead.
    ///
    /// # Errors
    /// Who owns it.
    pub fn seize_left(&self) -> Result<(), Busy> {
        self.seize_from(false)
    }

    /// `living`: also from a maker that is alive.
    fn seize_from(&self, living: bool) -> Result<(), Busy> {
        /// Rounds of a millisecond in which work in the background may end.
        const PATIENCE: u32 = 10_000;
        let me = u64::from(own_pid());
        let word = &self.shared.owner.0;
        let take = |from: u64| word.compare_exchange(from, HEIR | me, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let mut owner = FREE;
        for _ in 0..PATIENCE {
            if self.here.seized.load(Ordering::Relaxed) != 0 {
                return Ok(());
            }
            owner = word.load(Ordering::SeqCst);
            if owner & HEIR != 0 {
                break;
            }
            let maker = owner & u64::from(u32::MAX);
            if owner == FREE || self.is_maker_dead() {
                if take(owner) {
                    self.here.seized.store(1, Ordering::Relaxed);
                }
                continue;
            }
            if !living {
                break;
            }
            let contest = maker | me << CONTENDER_SHIFT;
            // In the place of another heir's contest too: whoever swaps last decides.
            if word.compare_exchange(owner, contest, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            heavy_fence();
            let used = (1..SLOTS).any(|slot| self.differs(slot));
            let at_work = self.differs(BACKGROUND) && self.shared.uses[BACKGROUND].0.load(Ordering::SeqCst) % 2 == 1;
            if !used && !at_work && take(contest) {
                self.here.seized.store(1, Ordering::Relaxed);
                return Ok(());
            }
            let _ = word.compare_exchange(contest, maker, Ordering::SeqCst, Ordering::SeqCst);
            if used {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Busy { pid: Some(owner as u32).filter(|pid| *pid != 0) })
    }

    /// Whether the maker has begun or ended a use since the fork, or is in one.
    fn differs(&self, slot: usize) -> bool {
        self.shared.uses[slot].0.load(Ordering::SeqCst) != self.seen[slot].0.load(Ordering::Relaxed)
    }

    /// Its process and all threads of it: nothing of them is under way any more.
    fn is_maker_dead(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some(life) = &self.life else { return false };
        let mut fds = [PollFd::new(life, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("pid", &self.pid).finish_non_exhaustive()
    }
}

fn own_pid() -> u32 {
    getpid().as_raw_nonzero().get() as u32
}

/// The heir's half: every core on which a thread of the maker runs passes a barrier.
fn heavy_fence() {
    fence(Ordering::SeqCst);
    // Where this fails the maker was not registered either, and makes its own.
    let _ = membarrier(MembarrierCommand::GlobalExpedited);
}

/// Slots that threads of this process have, a bit each.
static TAKEN: AtomicU64 = AtomicU64::new(1 << BACKGROUND);

/// No slot was asked for.
const NONE: u8 = u8::MAX;

/// Gives the thread's slot back when the thread ends.
struct Lease(u8);

impl Drop for Lease {
    fn drop(&mut self) {
        SLOT.with(|slot| slot.set(OVERFLOW as u8));
        if usize::from(self.0) != OVERFLOW {
            TAKEN.fetch_and(!(1 << self.0), Ordering::AcqRel);
        }
    }
}

thread_local! {
    static SLOT: Cell<u8> = const { Cell::new(NONE) };
    static LEASE: Lease = take_slot();
}

/// [`NONE`] if the thread has asked for none.
#[inline]
fn own_slot() -> usize {
    usize::from(SLOT.with(Cell::get))
}

#[cold]
fn ask_for_slot() -> u8 {
    // A thread that is ending has none any more.
    let slot = LEASE.try_with(|lease| lease.0).unwrap_or(OVERFLOW as u8);
    SLOT.with(|own| own.set(slot));
    slot
}

fn take_slot() -> Lease {
    let free = |taken: u64| (!taken).trailing_zeros() as usize;
    let took = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
        (free(taken) < OVERFLOW).then(|| taken | 1 << free(taken))
    });
    Lease(took.map_or(OVERFLOW as u8, |before| free(before) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `child` in a forked process and returns what it returned.
    fn in_child(child: impl FnOnce() -> u8) -> impl FnOnce() -> u8 {
        unsafe extern "C" {
            fn fork() -> i32;
            fn _exit(code: i32) -> !;
            fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        }
        // SAFETY: the child calls only code of this module, which allocates nothing and takes no lock, and ends without
        // running anything else.
        let pid = unsafe { fork() };
        if pid == 0 {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(99);
            // SAFETY: as above.
            unsafe { _exit(i32::from(code)) }
        }
        move || {
            let mut status = 0;
            // SAFETY: the status lives until the call returns.
            assert_eq!(unsafe { waitpid(pid, &raw mut status, 0) }, pid);
            (status >> 8) as u8
        }
    }

    fn use_once(claim: &Claim) -> bool {
        claim.enter().map(|began| claim.leave(began)).is_ok()
    }

    #[test]
    fn a_child_that_comes_first_has_it() {
        let claim = Claim::new().unwrap();
        assert!(use_once(&claim));
        let child = in_child(|| {
            let refused = claim.enter().err() == Some(Refused::Inherited);
            u8::from(refused && claim.seize().is_ok() && claim.seize().is_ok())
        });
        assert_eq!(child(), 1);
        assert!(matches!(claim.enter(), Err(Refused::Seized(_))));
        assert!(matches!(claim.enter_background(), Err(Refused::Seized(_))));
        // What another has is not given up by us.
        claim.release(|| panic!("it is not ours"));
        assert_eq!(in_child(|| u8::from(claim.seize().is_err()))(), 1);
    }

    #[test]
    fn a_maker_that_comes_first_keeps_it() {
        let claim = Claim::new().unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        let child = in_child(|| {
            let _ = std::io::Read::read(&mut read, &mut [0]);
            let me = std::os::unix::process::parent_id();
            u8::from(claim.seize() == Err(Busy { pid: Some(me) }))
        });
        assert!(use_once(&claim));
        std::io::Write::write_all(&mut &write, b"x").unwrap();
        assert_eq!(child(), 1);
        assert!(use_once(&claim) && claim.is_mine());
    }

    #[test]
    fn a_use_under_way_is_a_use_and_background_work_is_waited_for() {
        let claim = Claim::new().unwrap();
        let began = claim.enter().unwrap();
        assert_eq!(in_child(|| u8::from(claim.seize().is_err()))(), 1);
        claim.leave(began);
        let began = claim.enter_background().unwrap();
        let child = in_child(|| u8::from(claim.seize().is_ok()));
        std::thread::sleep(Duration::from_millis(30));
        assert!(claim.is_mine() || claim.shared.owner.0.load(Ordering::SeqCst) & HEIR == 0);
        claim.leave(began);
        assert_eq!(child(), 1);
    }

    #[test]
    fn what_the_maker_has_not_left_can_be_kept_from_heirs() {
        let claim = Claim::new().unwrap();
        let me = own_pid();
        assert_eq!(in_child(|| u8::from(claim.seize_left() == Err(Busy { pid: Some(me) })))(), 1);
        assert!(use_once(&claim));
        let (mut read, write) = std::io::pipe().unwrap();
        let child = in_child(|| {
            let _ = std::io::Read::read(&mut read, &mut [0]);
            u8::from(claim.seize_left().is_ok())
        });
        claim.release(|| {});
        std::io::Write::write_all(&mut &write, b"x").unwrap();
        assert_eq!(child(), 1);
    }

    #[test]
    fn what_was_given_up_is_free() {
        let claim = Claim::new().unwrap();
        let (mut read, write) = std::io::pipe().unwrap();
        let child = in_child(|| {
            let _ = std::io::Read::read(&mut read, &mut [0]);
            u8::from(claim.seize().is_ok())
        });
        let mut gave_up = false;
        claim.release(|| gave_up = true);
        assert!(gave_up);
        std::io::Write::write_all(&mut &write, b"x").unwrap();
        assert_eq!(child(), 1);
    }

    /// A thousand times both go for it at once: never both, and never neither.
    #[test]
    fn of_two_that_come_at_once_one_has_it() {
        for round in 0..1000u32 {
            let claim = Claim::new().unwrap();
            let start: SharedPage<AtomicU64> = SharedPage::new().unwrap();
            let child = in_child(|| {
                start.store(1, Ordering::Release);
                (0..round % 50).for_each(|_| std::hint::spin_loop());
                u8::from(claim.seize().is_ok())
            });
            while start.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            (0..round / 50).for_each(|_| std::hint::spin_loop());
            let mine = use_once(&claim);
            let theirs = child() == 1;
            assert!(mine != theirs, "round {round}: {mine} and {theirs}");
        }
    }

    #[test]
    fn many_threads_share_the_last_slot() {
        let claim = Claim::new().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..80 {
                scope.spawn(|| {
                    assert!(use_once(&claim));
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(use_once(&claim));
                });
            }
        });
        assert_eq!(in_child(|| u8::from(claim.seize().is_ok()))(), 1);
    }
}
