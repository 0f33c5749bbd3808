//! Tests by threads in many schedules.

mod blocks;
mod journal;
mod mistakes;
mod oracle;
mod ordered;
mod queues;
mod schedules;
mod spills;
mod stories;
mod volumes;
