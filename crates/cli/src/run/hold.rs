//! `wholly hold`: the process in whose namespace the command runs.
//!
//! It mounts the views, hands their devices to the server, runs the command, ends what that has left and takes the
//! views away. It is not the server: whoever takes a mount away waits for the server's last answers, and could not be
//! killed if it had to give them itself. The end of either process ends both: the holder dies with the server, by the
//! kernel's doing, and the server hears that nobody speaks any more.

use super::channel::{Channel, Said};
use super::command;
use super::family::Family;
use super::interrupts::Interrupts;
use super::namespace;
use super::user;
use super::views::Views;
use crate::args::HoldArgs;
use crate::error::{Exit, Failure};
use std::os::fd::AsFd;

/// Runs the verb. What goes wrong is told to the server, which tells it to the person.
pub fn hold(args: &HoldArgs) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::new("run", error).exit(Exit::NOT_RUN);
    if !command::dies_with(args.parent).map_err(|errno| failed(errno.into()))? {
        return Ok(Exit::NOT_RUN);
    }
    // As it was started it has another one.
    rustix::thread::set_name(c"wholly").map_err(|errno| failed(errno.into()))?;
    let channel = Channel::of_stdin().map_err(failed)?;
    let said = match attempt(args, &channel) {
        Ok((status, interrupt)) => Said::Ended { status, interrupt },
        Err(failure) => Said::Failed(failure),
    };
    channel.say(&said, &[]).map_err(failed)?;
    Ok(Exit::DONE)
}

fn attempt(args: &HoldArgs, channel: &Channel) -> Result<(u8, Option<i32>), Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("run {}", args.command[0].to_string_lossy()), error);
    match args.ordinary {
        true => user::enter()?,
        false => namespace::enter().map_err(|error| failed(error).advice("it needs a mount namespace of its own"))?,
    }
    let interrupts = Interrupts::begin_for_command(args.parent).map_err(failed)?;
    // Nothing of ours stays in use where the mounts will be.
    std::env::set_current_dir("/").map_err(failed)?;
    if !args.overlay.is_empty() {
        // Till then the server makes them.
        channel.hear().map_err(failed)?;
    }
    let (mut views, mounted, devices) = Views::mount(args)?;
    if args.ordinary {
        user::renounce().map_err(failed)?;
    }
    let handed: Vec<_> = devices.iter().map(AsFd::as_fd).collect();
    channel.say(&Said::Mounted(mounted), &handed).map_err(failed)?;
    // From here on the server alone has them, so that its end is the end of the mounts.
    drop(handed);
    drop(devices);
    channel.hear().map_err(failed)?;
    views.pass_through()?;
    let family = Family::begin()?;
    let status = command::run(args, &interrupts);
    let ended = family.end().and_then(|()| views.settle_inner());
    let synced = views.sync();
    channel.say(&Said::Quiet { is_success: matches!(status, Ok(0)) }, &[]).map_err(failed)?;
    channel.hear().map_err(failed)?;
    views.take_away()?;
    ended.and(synced)?;
    Ok((status?, interrupts.first()))
}
