//! How the cases are run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wholly_vfs::{Ino, Vfs};

use crate::check::Outcome;
use crate::tree::Tree;

/// What a case takes besides a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// To make calls as several users, among them the superuser.
    Users,
}

/// One behaviour that every file system must have.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is about, and what must be so: `rename::moves_a_file`.
    pub name: &'static str,
    /// What it takes.
    pub needs: Needs,
    pub(crate) run: fn(&Tree<'_>) -> Outcome,
}

/// A case that a file system fails, and why that is no mistake of it.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The case's name.
    pub case: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// How many cases did as they must.
    pub passed: usize,
    /// Those that did not, and were not expected to.
    pub failed: Vec<(&'static str, String)>,
    /// Exceptions whose cases did as they must: the line is to go.
    pub idle: Vec<&'static str>,
    /// Cases that were not run, because what they need is not there.
    pub skipped: Vec<&'static str>,
}

impl Report {
    /// # Panics
    /// Where a case failed, or an exception has nothing to excuse, with all of it.
    pub fn expect_passed(&self) {
        let failed: String = self.failed.iter().map(|(case, what)| format!("\n{case}: {what}")).collect();
        let idle: String =
            self.idle.iter().map(|case| format!("\n{case}: passed, though it is an exception")).collect();
        assert!(failed.is_empty() && idle.is_empty(), "{failed}{idle}");
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    crate::cases::all()
}

/// Runs all cases, each in a new directory of the root that is removed again. `users` says whether calls can be made as
/// any user.
///
/// # Panics
/// Where an exception names no case.
pub fn run(vfs: &dyn Vfs, users: bool, exceptions: &[Exception]) -> Report {
    let cases = cases();
    for exception in exceptions {
        assert!(cases.iter().any(|case| case.name == exception.case), "no case is called {}", exception.case);
    }
    let mut report = Report::default();
    for case in cases {
        if case.needs == Needs::Users && !users {
            report.skipped.push(case.name);
            continue;
        }
        let expected = exceptions.iter().any(|exception| exception.case == case.name);
        match (run_one(vfs, case), expected) {
            (Ok(()), false) => report.passed += 1,
            (Ok(()), true) => report.idle.push(case.name),
            (Err(_), true) => {}
            (Err(failure), false) => report.failed.push((case.name, failure)),
        }
    }
    report
}

/// Runs one case, in a new directory of the root that is removed again.
///
/// # Errors
/// Where it failed, and how.
pub fn run_one(vfs: &dyn Vfs, case: Case) -> Result<(), String> {
    const DIR: &[u8] = b"case";
    let root = Tree::new(vfs, Ino::ROOT);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        root.mkdir(DIR, 0o777)?;
        let place = root.find(DIR)?;
        (case.run)(&Tree { at: place.ino(), ..root.clone() })
    }));
    let removed = root.remove(DIR);
    match outcome {
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panicked: {}", text.or_else(|| panic.downcast_ref().copied()).unwrap_or("?")))
        }
        Ok(Err(failure)) => Err(failure.to_string()),
        // What it leaves must be as it can be removed.
        Ok(Ok(())) => removed.map_err(|errno| format!("what it left cannot be removed: {errno}")),
    }
}

/// A table of cases: `table!("rename"; moves_a_file, ..; users: needs_two_users, ..)`.
macro_rules! table {
    ($about:literal; $($name:ident),* $(,)? $(; users: $($user:ident),* $(,)?)?) => {
        pub(super) const CASES: &[$crate::Case] = &[
            $($crate::Case { name: concat!($about, "::", stringify!($name)), needs: $crate::Needs::Nothing, run: $name },)*
            $($($crate::Case { name: concat!($about, "::", stringify!($user)), needs: $crate::Needs::Users, run: $user },)*)?
        ];
    };
}
pub(crate) use table;
