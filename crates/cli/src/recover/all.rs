//! `wholly recover --all`: each store that is registered, one after the other. What one of them lacks keeps nobody from
//! the next.

use super::{How, Recovered, open_on, recover};
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, name};
use crate::registry::{Entry, Registry, VARIABLE};
use crate::survey::{medium_of, volume_id_of};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use wholly_host::mount::Served;
use wholly_host::{HostDir, HostOptions};

#[derive(Serialize)]
struct All {
    registry: Name,
    stores: Vec<Told>,
}

/// A store, and what became of it.
#[derive(Serialize)]
struct Told {
    volume_id: String,
    dir: Name,
    outcome: Outcome,
    /// Why it was not recovered, and what to do.
    why: Option<String>,
    recovered: Option<Recovered>,
    #[serde(skip)]
    exit: Exit,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// Everything was home.
    Current,
    /// Something was taken home.
    Recovered,
    /// Another program changed a file: everything is as it was.
    Conflict,
    /// It is not there.
    Skipped,
    /// A program has it open, and so has recovered it.
    Busy,
    /// It could not be opened, or not all was taken home.
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Current => "current",
            Outcome::Recovered => "recovered",
            Outcome::Conflict => "with a conflict",
            Outcome::Skipped => "skipped",
            Outcome::Busy => "in use",
            Outcome::Failed => "failed",
        }
    }
}

/// Recovers all registered stores.
pub fn run(how: How, ui: &Ui) -> Result<Exit, Failure> {
    let what = "recover --all";
    let registry = Registry::of_user().ok_or_else(|| no_registry(what))?;
    let entries =
        registry.entries().map_err(|error| Failure::new(what, format!("{}: {error}", registry.dir().display())))?;
    let stores: Vec<Told> = entries.into_iter().map(|entry| recover_one(entry, how, ui)).collect();
    let exit = stores.iter().fold(Exit::DONE, |exit, told| exit | told.exit);
    ui.emit("recover", &All { registry: registry.dir().into(), stores }, text)?;
    Ok(exit)
}

/// The user has no registry.
pub fn no_registry(what: impl Into<String>) -> Failure {
    Failure::new(what, "there is no registry of stores").advice(format!("set {VARIABLE} to its directory"))
}

fn recover_one(entry: Entry, how: How, ui: &Ui) -> Told {
    let told = |outcome, exit, why, recovered| Told {
        volume_id: entry.volume_id.clone(),
        dir: Name::from(&*entry.dir),
        outcome,
        why,
        recovered,
        exit,
    };
    let host = HostDir::open(&entry.dir, HostOptions::default());
    if host.is_ok_and(|host| host.served() == Some(Served::Mount)) {
        let why = "it is mounted over its own directory: the mount has recovered it";
        return told(Outcome::Busy, Exit::FAILED, Some(why.into()), None);
    }
    if let Some(why) = absence(&entry) {
        let advice = format!(
            "when it is back, run `wholly recover --register DIR`; if it is gone for good, remove {}",
            entry.file.display()
        );
        return told(Outcome::Skipped, Exit::DONE, Some(format!("{why}; {advice}")), None);
    }
    let start = Instant::now();
    let failed = |failure: Failure| told(Outcome::Failed, failure.exit, Some(failure.why()), None);
    let medium = match medium_of(&entry.dir, &format!("recover {}", entry.dir.display())) {
        Ok(medium) => medium,
        Err(failure) => return failed(failure),
    };
    let store = match open_on(medium, &entry.dir, how, ui) {
        Ok(store) => store,
        Err(wholly::Error::Busy(_, who)) => return told(Outcome::Busy, Exit::FAILED, Some(who), None),
        Err(error) => return failed(Failure::of_store("recover", &entry.dir, error)),
    };
    match recover(store, &entry.dir, start, ui) {
        Ok(recovered) => {
            let outcome = match recovered.exit() {
                Exit::DONE => Outcome::Current,
                Exit::REPAIRED => Outcome::Recovered,
                _ => Outcome::Conflict,
            };
            told(outcome, recovered.exit(), None, Some(recovered))
        }
        Err(failure) => failed(failure),
    }
}

/// Why the store is not where it was, if so. Its id tells it from another that is there now; where no superblock is
/// valid, opening it will say what is wrong.
fn absence(entry: &Entry) -> Option<&'static str> {
    let is_missing = |path: &Path| matches!(path.try_exists(), Ok(false));
    if is_missing(&entry.dir) {
        return Some("no such directory, or not mounted");
    }
    if is_missing(&entry.dir.join(".wholly")) {
        return Some("there is no store in it, or it is not mounted");
    }
    match volume_id_of(&entry.dir, "recover") {
        Ok(Some(id)) if id != entry.volume_id => Some("another store is there now"),
        _ => None,
    }
}

fn text(all: &All) -> String {
    if all.stores.is_empty() {
        return format!("no store is registered in {}\n", all.registry);
    }
    let mut text = String::new();
    for told in &all.stores {
        text += &match (&told.recovered, &told.why) {
            (Some(recovered), _) => super::text(recovered),
            (None, why) => {
                let why = name(why.as_deref().unwrap_or_default().as_bytes());
                format!("{}: {}: {why}\n", told.dir, told.outcome.word())
            }
        };
    }
    let outcomes =
        [Outcome::Current, Outcome::Recovered, Outcome::Conflict, Outcome::Skipped, Outcome::Busy, Outcome::Failed];
    let counts =
        outcomes.map(|outcome| (all.stores.iter().filter(|told| told.outcome == outcome).count(), outcome.word()));
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    text + &format!("{}: {}\n", count(all.stores.len() as u64, "store"), counts.join(", "))
}
