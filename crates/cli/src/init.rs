//! `wholly init`: makes a directory a store, and says what its file system offers.

use crate::args::{InitArgs, Medium};
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, size};
use crate::registry::Registry;
use crate::survey;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use wholly::{Options, Store};
use wholly_host::{HostDir, HostFs, HostOptions, Level, StoreHome, Support};

#[derive(Serialize)]
struct Made {
    dir: Name,
    made: bool,
    file_system: String,
    /// `supported`, `degraded` or `refused`.
    support: String,
    /// What is less than promised, or what it is refused for.
    reasons: Vec<&'static str>,
    medium: String,
    emulated: bool,
    log_bytes: u64,
    segment_bytes: u64,
    /// Whether `wholly recover --all` knows of it.
    registered: bool,
}

/// Makes a store.
pub fn run(args: &InitArgs, ui: &Ui) -> Result<Exit, Failure> {
    let what = || format!("init {}", args.dir.display());
    let host_options = HostOptions { medium: args.medium.into(), ..HostOptions::default() };
    let host = HostDir::open(&args.dir, host_options.clone()).map_err(|error| opening(&args.dir, error))?;
    let host = Arc::new(host);
    let options = options(args).map_err(|why| Failure::new(what(), why).exit(Exit::USAGE))?;
    let is_temporary =
        Store::is_temporary_in(&args.dir).map_err(|error| Failure::of_store("init", &args.dir, error))?;
    if is_temporary && args.log_size.is_some() {
        let why = "it is already a temporary store of `wholly run`; the size of its log cannot be changed";
        return Err(Failure::new(what(), why).advice(
            "without --log-size it becomes a permanent store; or remove it first: `wholly recover`, if nothing is \
             parked in it",
        ));
    }
    if !is_temporary && StoreHome::exists(&host).map_err(|error| Failure::of_media(what(), error))? {
        // One that cannot be opened is not called a store without saying that.
        let error = match survey::volume_id_of(&args.dir, "init")? {
            Some(_) => wholly::Error::AlreadyAStore(String::new()),
            None => wholly::Error::Corrupt {
                place: "superblock".into(),
                fault: "there is a store here, but neither superblock is valid".into(),
            },
        };
        return Err(Failure::of_store("init", &args.dir, error));
    }
    let support = Support::probe(&host).map_err(|error| Failure::of_media(what(), error))?;
    if !args.dry_run {
        if support.level == Level::Refused {
            let why = format!("{} is {support}", support.file_system);
            return Err(Failure::new(what(), why).advice(Support::advice()));
        }
        Store::init_with(&args.dir, &options, host_options).map_err(|error| match (error, host.served()) {
            (wholly::Error::Unsupported(_), Some(served)) => Failure::served(what(), served),
            (error, _) => Failure::of_store("init", &args.dir, error),
        })?;
    }
    // The store is made, and as good as any: that nobody remembers it is said, and no failure.
    let registered = !args.dry_run
        && !args.no_register
        && register("init", &args.dir).unwrap_or_else(|failure| {
            eprintln!("wholly: {failure}");
            false
        });
    let segments = options.log_min_bytes.div_ceil(options.segment_bytes).max(2);
    let made = Made {
        dir: Name::of_dir(&args.dir),
        made: !args.dry_run,
        file_system: support.file_system,
        support: support.level.to_string(),
        reasons: support.reasons,
        medium: host.guarantees().description.clone(),
        emulated: host.guarantees().emulated,
        log_bytes: segments * options.segment_bytes,
        segment_bytes: options.segment_bytes,
        registered,
    };
    ui.emit("init", &made, |made| text(made, support.level, args.medium))?;
    Ok(Exit::DONE)
}

/// Remembers the store for `wholly recover --all`; returns whether there is a registry to do that.
pub fn register(verb: &str, dir: &Path) -> Result<bool, Failure> {
    let Some(registry) = Registry::of_user() else { return Ok(false) };
    let failed = |why: String| {
        let what = format!("{verb} {}", dir.display());
        Failure::new(what, format!("not registered for `wholly recover --all`: {why}"))
    };
    let place = dir.canonicalize().map_err(|error| failed(error.to_string()))?;
    let id = survey::volume_id_of(dir, verb)?.ok_or_else(|| failed("no superblock is valid".into()))?;
    registry.add(&id, &place).map_err(|error| failed(format!("{}: {error}", registry.dir().display())))?;
    Ok(true)
}

fn opening(dir: &Path, error: wholly_media::Error) -> Failure {
    let what = format!("init {}", dir.display());
    if error.raw_os_error() == 2 {
        return Failure::new(what, "no such directory").advice("create it with mkdir");
    }
    Failure::of_media(what, error)
}

/// Segments of the default size, smaller ones where the log is to be smaller.
fn options(args: &InitArgs) -> Result<Options, String> {
    const SMALLEST: u64 = 64 << 10;
    let mut options = Options::default();
    let Some(bytes) = args.log_size else { return Ok(options) };
    if bytes < SMALLEST {
        return Err(format!("a log of {} is too small: the minimum is {}", size(bytes), size(SMALLEST)));
    }
    options.log_min_bytes = bytes;
    options.log_max_bytes = options.log_max_bytes.max(bytes);
    // A log has some segments, so that some can be filled while others are taken home.
    while options.segment_bytes > SMALLEST / 4 && options.segment_bytes * 4 > bytes {
        options.segment_bytes /= 2;
    }
    Ok(options)
}

fn text(made: &Made, level: Level, asked: Medium) -> String {
    let dir = &made.dir;
    let emulated = match (made.emulated, made.medium.contains("emulated")) {
        (true, false) => " (emulated)",
        _ => "",
    };
    let forced = if asked == Medium::Auto { "" } else { ", as you asked" };
    let facts = format!(
        "{}  medium       {}{emulated}{forced}\n",
        verdict(&made.file_system, &made.support, &made.reasons),
        made.medium
    );
    if !made.made {
        return format!("{dir} can{} become a store\n{facts}", if level == Level::Refused { "not" } else { "" });
    }
    format!("{dir} is a store now\n{facts}  log          {} in .wholly\n", size(made.log_bytes))
}

/// What a file system is called, and whether it can carry a store: a line, and one more for each reason.
pub fn verdict(file_system: &str, support: &str, reasons: &[&str]) -> String {
    let mut text = format!("  file system  {file_system}: {support}\n");
    for reason in reasons {
        text += &format!("               {reason}\n");
    }
    text
}
