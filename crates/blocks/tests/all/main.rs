//! The rules T1 to T12, for each implementation, and for wrong ones.

mod batch;
mod contract;
mod images;
mod log;
mod multi_queue;
mod multi_queue_kills;
mod ram;
mod random;
mod suite;
mod wrong;
mod xftl;
