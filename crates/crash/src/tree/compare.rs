//! Whether two states are the same for who can only look, and where they differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kind, Object, ROOT, State, Time};
use crate::workload::mix;

impl State {
    /// A hash of all that can be seen.
    pub fn hash(&self) -> u64 {
        let mut order = BTreeMap::new();
        let of_root = hash_detail(u64::from(self.guest), &self.objects[&ROOT]);
        let parked = self.parked().into_iter().fold(of_root, |h, number| mix(h ^ u64::from(number)));
        self.paths().into_iter().fold(parked, |h, (path, number)| {
            let first = order.len() as u64;
            let known = *order.entry(number).or_insert(first);
            let h = hash_bytes(mix(h ^ known), path.as_bytes());
            if known != first {
                return h;
            }
            let object = &self.objects[&number];
            let h = hash_attributes(mix(h ^ u64::from(object.mode)), object);
            match &object.kind {
                Kind::File(content) => hash_bytes(h, content),
                Kind::Dir(_) => mix(h ^ 1),
                Kind::Symlink(target) => hash_bytes(mix(h ^ 2), target.as_bytes()),
                Kind::Fifo => mix(h ^ 3),
            }
        })
    }

    /// Where two states differ, in words; none if they do not.
    pub fn difference(&self, other: &State) -> Option<String> {
        let (mine, theirs): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (self.paths().into_iter().collect(), other.paths().into_iter().collect());
        if self.parked() != other.parked() {
            return Some(format!("{:?} are parked instead of {:?}", other.parked(), self.parked()));
        }
        if self.guest != other.guest {
            return Some(format!("it is {} guest", if other.guest { "a" } else { "no" }));
        }
        if let Some(difference) = differ_in_detail(".", &self.objects[&ROOT], &other.objects[&ROOT]) {
            return Some(difference);
        }
        let (mut there, mut here) = (BTreeMap::new(), BTreeMap::new());
        let missing = mine.iter().find(|(path, _)| !theirs.contains_key(*path));
        if let Some((path, number)) = missing {
            return Some(format!("{path} is missing ({})", self.objects[number].describe()));
        }
        for (path, &is) in &theirs {
            let object = &other.objects[&is];
            let Some(&should) = mine.get(path) else {
                return Some(format!("{path} should not exist ({})", object.describe()));
            };
            if let Some(difference) = differ(path, &self.objects[&should], object) {
                return Some(difference);
            }
            // One object here is one there, whatever their numbers.
            let (there, path_there) = *there.entry(should).or_insert((is, path));
            let (here, path_here) = *here.entry(is).or_insert((should, path));
            if there != is {
                return Some(format!("{path} and {path_there} should be one object"));
            }
            if here != should {
                return Some(format!("{path} and {path_here} should not be one object"));
            }
        }
        None
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.difference(other).is_none()
    }
}

impl Eq for State {}

/// Whether an object looks as one that should be there: of directories, whatever is in them.
pub(crate) fn looks_as(should: Option<&Object>, is: Option<&Object>) -> bool {
    match (should, is) {
        (Some(should), Some(is)) => differ("", should, is).is_none(),
        (should, is) => should.is_none() && is.is_none(),
    }
}

/// How an object that is at `path` differs from the one that should be.
fn differ(path: &str, should: &Object, is: &Object) -> Option<String> {
    match (&should.kind, &is.kind) {
        (Kind::Dir(_), Kind::Dir(_)) => {}
        (Kind::File(should), Kind::File(is)) if should.len() == is.len() => {
            if let Some(at) = should.iter().zip(is.iter()).position(|(a, b)| a != b) {
                let count = should.iter().zip(is.iter()).filter(|(a, b)| a != b).count();
                return Some(format!("{count} bytes of {path} differ, the first at {at}"));
            }
        }
        (Kind::File(should), Kind::File(is)) => {
            return Some(format!("{path} has {} bytes instead of {}", is.len(), should.len()));
        }
        (a, b) if a == b => {}
        _ => return Some(format!("{path} is {} instead of {}", is.describe(), should.describe())),
    }
    let differs = |what: &str, is: String, should: String| Some(format!("{path} has {what} {is} instead of {should}"));
    if should.mode != is.mode {
        return differs("mode", format!("{:o}", is.mode), format!("{:o}", should.mode));
    }
    if should.owner != is.owner {
        return differs("owner", format!("{:?}", is.owner), format!("{:?}", should.owner));
    }
    for (what, is, should) in [("atime", is.atime, should.atime), ("mtime", is.mtime, should.mtime)] {
        if !should.may_be(is) {
            return differs(what, format!("{is:?}"), format!("{should:?}"));
        }
    }
    let names = should.xattrs.keys().chain(is.xattrs.keys());
    let mut values = names.map(|name| (name, is.xattrs.get(name), should.xattrs.get(name)));
    if let Some((name, is, should)) = values.find(|(_, is, should)| is != should) {
        return differs(name, value(is), value(should));
    }
    differ_in_detail(path, should, is)
}

/// The same in what only some ask for.
fn differ_in_detail(path: &str, should: &Object, is: &Object) -> Option<String> {
    let (should, is) = (should.exact.as_ref()?, is.exact.as_ref()?);
    (should != is).then(|| format!("{path} is {is:?} instead of {should:?}"))
}

/// The value of an extended attribute, in words.
fn value(value: Option<&Arc<[u8]>>) -> String {
    match value {
        Some(value) => format!("{} bytes, {:02x?}", value.len(), &value[..value.len().min(8)]),
        None => "nothing".into(),
    }
}

fn hash_attributes(h: u64, object: &Object) -> u64 {
    let time = |time: Time| match time {
        Time::Clock => 0,
        Time::Either => 1,
        Time::Set(time_ns) => mix(time_ns as u64) | 2,
    };
    let owner = object.owner.map_or(0, |(uid, gid)| u64::from(uid) << 32 | u64::from(gid) | 1 << 63);
    let h = hash_detail(mix(mix(mix(h ^ owner) ^ time(object.atime)) ^ time(object.mtime)), object);
    object.xattrs.iter().fold(h, |h, (name, value)| hash_bytes(hash_bytes(h, name.as_bytes()), value))
}

fn hash_detail(h: u64, object: &Object) -> u64 {
    object.exact.map_or(h, |exact| hash_bytes(h, format!("{exact:?}").as_bytes()))
}

fn hash_bytes(h: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(mix(h ^ (1 + bytes.len() as u64)), |h, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        mix(h.rotate_left(5) ^ u64::from_le_bytes(word))
    })
}
