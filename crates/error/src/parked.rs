//! What an error says of parked groups.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, Result};

/// The id of a parked group, printed such as `5-18`. No other group of the store ever has the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParkedId(pub u64);

/// Below them stand the group's number in the life of the store in which it began.
const LIFE_BITS: u32 = 40;

impl fmt::Display for ParkedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0 >> LIFE_BITS, self.0 & ((1 << LIFE_BITS) - 1))
    }
}

impl FromStr for ParkedId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('-').and_then(|(life, number)| Some((life.parse().ok()?, number.parse().ok()?)));
        let fits =
            parts.filter(|&(life, number): &(u64, u64)| life >> (64 - LIFE_BITS) == 0 && number >> LIFE_BITS == 0);
        let (life, number) =
            fits.ok_or_else(|| Error::Invalid(format!("{text:?} is not the id of a parked group, such as 5-18")))?;
        Ok(ParkedId(life << LIFE_BITS | number))
    }
}

/// Something that a group relies on and that has changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mismatch {
    /// The path, as it was when the group was parked.
    pub path: PathBuf,
    /// What is otherwise, in words.
    pub what: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_back() {
        let id = ParkedId(5 << LIFE_BITS | 18);
        assert_eq!(id.to_string(), "5-18");
        assert_eq!("5-18".parse::<ParkedId>().unwrap(), id);
        for wrong in ["", "5", "5-", "-18", "x-1", "5-1099511627776", "16777216-1", "5-18-1"] {
            assert!(wrong.parse::<ParkedId>().is_err(), "{wrong}");
        }
    }
}
