//! Tests by the suite of calls, and by random calls, on stores, on volumes and on file systems of the host.

mod differ;
mod host;
mod one_file;
mod paths;
mod places;
mod store;
mod store_differ;
mod volume;
mod volume_differ;
