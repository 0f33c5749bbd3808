//! Maps by numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// By numbers that we give out: nobody can choose them so that they collide.
pub type ByNumber<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// One multiplication.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = super::mix(number, 0);
    }
}
