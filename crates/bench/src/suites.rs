//! The cases of each suite.

use crate::workload::{Case, Size};

/// Groups of small overwrites by one thread: the cost of making updates atomic and durable.
///
/// - `one_64`, `one_4k`: one aligned random overwrite in a file of 256 MiB.
/// - `two_files`: FCFS's microbenchmark: two unaligned random overwrites of 1 to 16 KiB in two of 1,000 files of 4 MiB.
/// - `two_files_4k`: the same with aligned overwrites of 4 KiB.
pub const GROUPS: [Case; 4] = [
    case("one_64", 1, 256 << 20, 1, Size::Aligned(64), false),
    case("one_4k", 1, 256 << 20, 1, Size::Aligned(4096), true),
    case("two_files", 1000, 4 << 20, 2, Size::Uniform(1 << 10, 16 << 10), true),
    case("two_files_4k", 1000, 4 << 20, 2, Size::Aligned(4096), true),
];

const fn case(name: &'static str, files: u32, file_bytes: u64, updates: usize, size: Size, on_disk: bool) -> Case {
    Case { suite: "groups", name, files, file_bytes, updates, size, on_disk }
}

/// Names of all suites.
pub const NAMES: [&str; 1] = ["groups"];

/// The cases of the suite `name`.
pub fn by_name(name: &str) -> Option<&'static [Case]> {
    match name {
        "groups" => Some(&GROUPS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_cases_that_name_it() {
        for name in NAMES {
            let cases = by_name(name).unwrap();
            assert!(!cases.is_empty());
            assert!(cases.iter().all(|case| case.suite == name));
        }
        assert!(by_name("nonsense").is_none());
    }
}
