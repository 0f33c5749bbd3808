//! Attributes of objects: permission bits, owner, times, extended attributes.

use rustix::io::Errno;
use wholly_vfs::SetXattr;

use super::{Kind, Number, Object, State};
use crate::workload::Op;

/// Times that calls set lie below, and no clock shows any of them but 0.
const CLOCK_NS: i64 = 1_000_000_000;

/// An owner and a group that nobody has but by a call.
pub(crate) const OWNER: (u32, u32) = (70_003, 70_004);

/// A time of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// That of the clock, when something happened.
    #[default]
    Clock,
    /// It was set by a call.
    Set(i64),
    /// One of both: two groups changed it at the same time, or somebody has looked.
    Either,
}

impl Time {
    /// That of an object in ns since the epoch, as it shows.
    pub(crate) fn shown(time_ns: i64) -> Time {
        if time_ns == 0 || time_ns >= CLOCK_NS { Time::Clock } else { Time::Set(time_ns) }
    }

    /// Whether nobody can say that one is not the other.
    pub(crate) fn may_be(self, other: Time) -> bool {
        self == other || self == Time::Either || other == Time::Either
    }
}

/// The times of the last access and of the last change, in ns since the epoch, that these bytes stand for; before the
/// epoch some of them.
pub(crate) fn times(bytes: &[u8]) -> (i64, i64) {
    let word = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let time = |word: i64| if word < 0 { word % (1 << 50) - 1 } else { word % (CLOCK_NS - 1) + 1 };
    (time(word(0)), time(word(8)))
}

impl State {
    /// Sets or removes what an op on attributes says.
    pub(super) fn set_attributes(&mut self, op: &Op, bytes: &[u8]) -> Result<(), Errno> {
        let number = self.walk(op.file(), false)?;
        let object = self.objects.get_mut(&number).expect("it was found");
        let may_have_xattrs = matches!(object.kind, Kind::File(_) | Kind::Dir(_));
        match op {
            Op::SetMode { mode, .. } => {
                if matches!(object.kind, Kind::Symlink(_)) {
                    return Err(Errno::OPNOTSUPP);
                }
                object.mode = *mode;
            }
            Op::SetOwner(_) => object.owner = Some(OWNER),
            Op::SetTimes { atime, mtime, .. } => {
                let (accessed, changed) = times(bytes);
                if *atime {
                    object.atime = Time::Set(accessed);
                }
                if *mtime {
                    object.mtime = Time::Set(changed);
                }
            }
            Op::SetXattr { .. } | Op::RemoveXattr { .. } if !may_have_xattrs => return Err(Errno::PERM),
            Op::SetXattr { name, how, .. } => match (how, object.xattrs.contains_key(*name)) {
                (SetXattr::Create, true) => return Err(Errno::EXIST),
                (SetXattr::Replace, false) => return Err(Errno::NODATA),
                _ => drop(object.xattrs.insert((*name).into(), bytes.into())),
            },
            Op::RemoveXattr { name, .. } => drop(object.xattrs.remove(*name).ok_or(Errno::NODATA)?),
            _ => panic!("{op:?} sets no attribute"),
        }
        Ok(())
    }

    /// The bytes of a file change, or a name of a directory does.
    pub(super) fn changes(&mut self, number: Number) {
        self.objects.get_mut(&number).expect("it is there").mtime = Time::Clock;
    }
}

impl Object {
    /// Whether a call has set another attribute than this object had `before`.
    fn sets(&self, before: &Object) -> bool {
        let calls = |object: &Object| (object.mode, object.owner, object.atime, object.xattrs.clone());
        calls(self) != calls(before) || matches!(self.mtime, Time::Set(_)) && self.mtime != before.mtime
    }

    /// Whether its time of change is another one than it was `before`, or something in it is.
    pub(super) fn is_changed(&self, before: &Object) -> bool {
        self.kind != before.kind || self.mtime != before.mtime
    }

    /// Takes over what somebody has changed of the attributes between `before` and `after`.
    ///
    /// # Errors
    /// In words, where somebody else has changed some since.
    pub(super) fn merge_attributes(&mut self, before: &Object, after: &Object) -> Result<(), String> {
        if after.sets(before) && self.sets(before) {
            return Err("both have changed attributes of an object".into());
        }
        self.take_attributes(before, after);
        Ok(())
    }

    /// The same; what somebody else has changed meanwhile is overridden.
    pub(super) fn take_attributes(&mut self, before: &Object, after: &Object) {
        if after.sets(before) {
            let Object { kind: _, mode, owner, atime, mtime: _, xattrs, exact: _ } = after.clone();
            (self.mode, self.owner, self.atime, self.xattrs) = (mode, owner, atime, xattrs);
        }
        if after.mtime != before.mtime {
            self.mtime = after.mtime;
        }
    }
}
