//! Which of the states that a crash allows: a short text from which the state can be rebuilt.

use std::fmt;
use std::str::FromStr;

/// One state that a crash at one point may leave. Prints as, and parses from:
///
/// | text | units |
/// |---|---|
/// | `p17:none` | each keeps its durable version |
/// | `p17:all` | each keeps its newest version |
/// | `p17:set:0,3` | 0 and 3 the newest, the others the durable one |
/// | `p17:not:0,3` | 0 and 3 the durable one, the others the newest |
/// | `p17:num:123` | versions are the digits of 123 in mixed radix, unit 0 the lowest |
/// | `p17:mix:-:0=1,3=2` | 0 keeps version 1 and 3 version 2, the others the durable one (`+`: the newest) |
/// | `p17:seed:42:137` | sample 137 of seed 42 |
/// | `p17:only:12` | what event 12 wrote survives (negative: a dead process's), with what came before it in the same units, and nothing else |
/// | `p17:but:12` | all survives but what event 12 wrote, and what came after it in the same units |
/// | `p17:kill` | not a power failure: the process dies, all stays pending |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The number of events that had happened.
    pub point: u64,
    /// What became of each unit.
    pub pick: Pick,
}

/// What becomes of each pending unit at a point; units are numbered by the point. See [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pick {
    /// None survives.
    None,
    /// All survive.
    All,
    /// Only these survive.
    Set(Vec<u32>),
    /// All but these survive.
    Not(Vec<u32>),
    /// A number in mixed radix.
    Number(u64),
    /// These versions, and for the others the newest (`true`) or the durable one.
    Mix(bool, Vec<(u32, u32)>),
    /// A sample drawn by seed and number.
    Seed(u64, u64),
    /// What this event wrote survives, and nothing else.
    Only(i64),
    /// All survives but what this event wrote.
    But(i64),
    /// The process dies and the power stays.
    Kill,
}

fn list(f: &mut fmt::Formatter<'_>, items: impl IntoIterator<Item = impl fmt::Display>) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { "," })?;
    }
    Ok(())
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}:", self.point)?;
        match &self.pick {
            Pick::None => f.write_str("none"),
            Pick::All => f.write_str("all"),
            Pick::Set(units) => {
                f.write_str("set:")?;
                list(f, units)
            }
            Pick::Not(units) => {
                f.write_str("not:")?;
                list(f, units)
            }
            Pick::Number(n) => write!(f, "num:{n}"),
            Pick::Mix(newest, units) => {
                write!(f, "mix:{}:", if *newest { '+' } else { '-' })?;
                list(f, units.iter().map(|(unit, version)| format!("{unit}={version}")))
            }
            Pick::Seed(seed, n) => write!(f, "seed:{seed}:{n}"),
            Pick::Only(event) => write!(f, "only:{event}"),
            Pick::But(event) => write!(f, "but:{event}"),
            Pick::Kill => f.write_str("kill"),
        }
    }
}

/// The text is not a [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a choice: expected such as p17:none, p17:set:0,3 or p17:seed:42:137")]
pub struct ParseChoiceError(String);

impl FromStr for Choice {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Choice, ParseChoiceError> {
        parse(text).ok_or_else(|| ParseChoiceError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Choice> {
    let (point, rest) = text.strip_prefix('p')?.split_once(':')?;
    let (kind, rest) = rest.split_once(':').unwrap_or((rest, ""));
    let units = |text: &str| -> Option<Vec<u32>> {
        if text.is_empty() { Some(Vec::new()) } else { text.split(',').map(|n| n.parse().ok()).collect() }
    };
    let pick = match kind {
        "set" => Pick::Set(units(rest)?),
        "not" => Pick::Not(units(rest)?),
        "num" => Pick::Number(rest.parse().ok()?),
        "only" => Pick::Only(rest.parse().ok()?),
        "but" => Pick::But(rest.parse().ok()?),
        "mix" => {
            let (sign, rest) = rest.split_once(':')?;
            let pair = |text: &str| {
                let (unit, version) = text.split_once('=')?;
                Some((unit.parse().ok()?, version.parse().ok()?))
            };
            let pairs: Option<Vec<(u32, u32)>> =
                if rest.is_empty() { Some(Vec::new()) } else { rest.split(',').map(pair).collect() };
            Pick::Mix(
                match sign {
                    "+" => true,
                    "-" => false,
                    _ => return None,
                },
                pairs?,
            )
        }
        "seed" => {
            let (seed, n) = rest.split_once(':')?;
            Pick::Seed(seed.parse().ok()?, n.parse().ok()?)
        }
        _ if !rest.is_empty() => return None,
        "none" => Pick::None,
        "all" => Pick::All,
        "kill" => Pick::Kill,
        _ => return None,
    };
    Some(Choice { point: point.parse().ok()?, pick })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_printed_and_parsed_back() {
        let forms = [
            "p0:none",
            "p17:all",
            "p17:set:0,3,9",
            "p17:set:",
            "p17:not:4",
            "p9:num:123456789012",
            "p17:mix:-:0=1,3=2",
            "p17:mix:+:",
            "p17:seed:42:137",
            "p17:only:12",
            "p17:but:-3",
            "p3:kill",
        ];
        for form in forms {
            assert_eq!(form.parse::<Choice>().unwrap().to_string(), form);
        }
        for wrong in ["", "17:all", "p17", "px:all", "p1:set:a", "p1:all:3", "p1:seed:4", "p1:mix:0=1", "p1:num:"] {
            assert!(wrong.parse::<Choice>().is_err(), "{wrong}");
        }
    }
}
