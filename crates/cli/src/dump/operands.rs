//! What an entry asks for beyond offset and length, for programs and in words.

use crate::output::{Name, size};
use crate::survey::{Told, number};
use rustix::fs::FileType;
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};
use wholly::Fallocate;
use wholly_changes::records::{Attributes, Baseline, Birth, Identity, Shadow, Space, Value, Xattr};

/// The fields of a payload.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Operands {
    /// Of `identify`.
    Identity {
        /// None: the object has no inode yet.
        inode: Option<u64>,
        birth_ns: i64,
        handle: Option<String>,
        baseline: Option<DumpedBaseline>,
        /// The object that is its directory.
        directory: Option<u64>,
        name: Option<Name>,
        #[serde(rename = "type")]
        kind: &'static str,
        mode: u32,
        owner: u32,
        group: u32,
        links: u32,
    },
    /// Of `create`.
    Birth {
        #[serde(rename = "type")]
        kind: &'static str,
        mode: u32,
        owner: u32,
        group: u32,
        device: Option<u64>,
        birth_ns: i64,
        access_ns: i64,
        modification_ns: i64,
        target: Option<Name>,
    },
    /// Of `name`.
    Value {
        name: Name,
        before: Option<u64>,
        after: Option<u64>,
    },
    /// Of `attributes`.
    Attributes {
        mode: Option<Change<u32>>,
        owner: Option<Change<u32>>,
        group: Option<Change<u32>>,
        access_ns: Option<Change<i64>>,
        modification_ns: Option<Change<i64>>,
    },
    /// Of `xattr`.
    Xattr {
        name: Name,
        removed: bool,
        bytes: u64,
        checksum_before: Option<String>,
    },
    /// Of `space`: its bytes begin at the entry's offset.
    Space {
        becomes: &'static str,
        bytes: u64,
    },
    /// Of `shadow`: its bytes begin at the entry's offset.
    Shadow {
        shadow: String,
        from: u64,
        bytes: u64,
    },
    /// Of `clock`.
    Clock {
        time_ns: u64,
    },
    Applied {
        parked: String,
    },
}

#[derive(Serialize)]
pub struct DumpedBaseline {
    size: u64,
    modification_ns: i64,
    change_ns: i64,
}

#[derive(Serialize)]
pub struct Change<T> {
    before: T,
    after: T,
}

impl Operands {
    /// Those of a payload.
    pub fn of(told: &Told) -> Option<Operands> {
        Some(match told {
            Told::Identity(identity) => of_identity(identity),
            Told::Birth(birth) => of_birth(birth),
            Told::Value(Value { before, after, name: of }) => {
                Operands::Value { name: Name::from(&**of), before: given(*before), after: given(*after) }
            }
            Told::Attributes(Attributes { mode, uid, gid, atime_ns, mtime_ns, before }) => Operands::Attributes {
                mode: change(before.mode, *mode),
                owner: change(before.uid, *uid),
                group: change(before.gid, *gid),
                access_ns: change(before.atime_ns, *atime_ns),
                modification_ns: change(before.mtime_ns, *mtime_ns),
            },
            Told::Xattr(Xattr { name: of, value, before }) => Operands::Xattr {
                name: Name::from(&**of),
                removed: value.is_none(),
                bytes: value.as_ref().map_or(0, Vec::len) as u64,
                checksum_before: before.map(hex),
            },
            Told::Space(Space { length, how }) => Operands::Space { becomes: becomes(*how), bytes: *length },
            Told::Shadow(Shadow { number, from, length }) => {
                Operands::Shadow { shadow: format!("{number:x}"), from: *from, bytes: *length }
            }
            Told::Impossible => return None,
        })
    }
}

fn becomes(how: Fallocate) -> &'static str {
    match how {
        Fallocate::Keep => "reserved",
        Fallocate::Extend => "reserved, within the file",
        Fallocate::Punch => "a hole",
        Fallocate::Zero => "zeros",
        Fallocate::ZeroExtend => "zeros, within the file",
        Fallocate::Collapse | Fallocate::Insert => "bytes that move",
    }
}

fn of_identity(identity: &Identity) -> Operands {
    let baseline =
        |Baseline { size, mtime_ns, ctime_ns }| DumpedBaseline { size, modification_ns: mtime_ns, change_ns: ctime_ns };
    Operands::Identity {
        inode: given(identity.ino),
        birth_ns: identity.btime_ns,
        handle: given(identity.handle).map(hex),
        baseline: identity.baseline.map(baseline),
        directory: given(identity.parent),
        name: given(identity.parent).map(|_| Name::from(&*identity.name)),
        kind: kind(identity.mode),
        mode: identity.mode & 0o7777,
        owner: identity.uid,
        group: identity.gid,
        links: identity.nlink,
    }
}

fn of_birth(birth: &Birth) -> Operands {
    let is_device = matches!(FileType::from_raw_mode(birth.mode), FileType::CharacterDevice | FileType::BlockDevice);
    Operands::Birth {
        kind: kind(birth.mode),
        mode: birth.mode & 0o7777,
        owner: birth.uid,
        group: birth.gid,
        device: is_device.then_some(birth.rdev),
        birth_ns: birth.btime_ns,
        access_ns: birth.atime_ns,
        modification_ns: birth.mtime_ns,
        target: (!birth.target.is_empty()).then(|| Name::from(&*birth.target)),
    }
}

impl Display for Operands {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Operands::Identity { inode, birth_ns, kind, mode, owner, group, links, baseline, .. } => {
                match inode {
                    Some(inode) => write!(f, "inode {inode} created {}", time(*birth_ns))?,
                    None => write!(f, "no inode yet")?,
                }
                write!(f, ", {kind} {mode:04o} of {owner}:{group}, names {links}")?;
                match baseline {
                    Some(baseline) => write!(f, ", {} in the file", size(baseline.size)),
                    None => Ok(()),
                }
            }
            Operands::Birth { kind, mode, owner, group, device, target, .. } => {
                write!(f, "{kind} {mode:04o} of {owner}:{group}")?;
                if let Some(device) = device {
                    write!(f, ", {}:{}", rustix::fs::major(*device), rustix::fs::minor(*device))?;
                }
                target.iter().try_for_each(|target| write!(f, " -> {target}"))
            }
            Operands::Value { before, after, .. } => write!(f, "was {}, is {}", object(*before), object(*after)),
            Operands::Attributes { mode, owner, group, access_ns, modification_ns } => {
                let octal = |mode: u32| format!("{mode:04o}");
                let changes = [
                    words("mode", mode.as_ref(), octal),
                    words("owner", owner.as_ref(), |id| id.to_string()),
                    words("group", group.as_ref(), |id| id.to_string()),
                    words("access", access_ns.as_ref(), time),
                    words("modification", modification_ns.as_ref(), time),
                ];
                let changes: Vec<String> = changes.into_iter().flatten().collect();
                f.write_str(if changes.is_empty() { "nothing" } else { "" })?;
                f.write_str(&changes.join(", "))
            }
            Operands::Xattr { name, removed: true, .. } => write!(f, "{name} removed"),
            Operands::Xattr { name, bytes, .. } => write!(f, "{name} set to {bytes} B"),
            Operands::Space { becomes, bytes } => write!(f, "{bytes} B {becomes}"),
            Operands::Shadow { shadow, from, bytes } => write!(f, "{bytes} B, from byte {from} of shadow {shadow}"),
            Operands::Applied { parked } => f.write_str(parked),
            Operands::Clock { time_ns } => f.write_str(&time(*time_ns as i64)),
        }
    }
}

fn words<T: Copy>(what: &str, change: Option<&Change<T>>, shown: impl Fn(T) -> String) -> Option<String> {
    change.map(|Change { before, after }| format!("{what} {} was {}", shown(*after), shown(*before)))
}

fn change<T>(before: T, after: Option<T>) -> Option<Change<T>> {
    after.map(|after| Change { before, after })
}

/// A number where 0 stands for none.
fn given(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// Checksums as text: programs that read numbers as floating point would lose bits of them.
fn hex(checksum: u64) -> String {
    format!("{checksum:016x}")
}

fn object(id: Option<u64>) -> String {
    id.map_or("nothing".into(), |id| format!("object {}", number(id)))
}

/// Seconds since the epoch, as `date -d` takes them.
fn time(ns: i64) -> String {
    let (seconds, ns) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    format!("@{seconds}.{ns:09}")
}

fn kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wholly_changes::records::AttributesBefore;

    fn shown(told: Told) -> String {
        Operands::of(&told).unwrap().to_string()
    }

    #[test]
    fn payloads_in_words() {
        let identity = Identity {
            ino: 7,
            btime_ns: 1_700_000_000_000_000_001,
            handle: 9,
            baseline: Some(Baseline { size: 3, mtime_ns: 4, ctime_ns: 5 }),
            parent: 1,
            mode: 0o100640,
            uid: 1000,
            gid: 100,
            nlink: 2,
            name: b"n\x1b".to_vec(),
        };
        let json = serde_json::to_value(Operands::of(&Told::Identity(identity.clone()))).unwrap();
        assert_eq!((&json["type"], &json["name"]), (&"file".into(), &"n\u{1b}".into()));
        assert_eq!(
            shown(Told::Identity(identity.clone())),
            "inode 7 created @1700000000.000000001, file 0640 of 1000:100, names 2, 3 B in the file"
        );
        let fresh = Identity { ino: 0, handle: 0, baseline: None, mode: 0o040755, ..identity };
        assert_eq!(shown(Told::Identity(fresh)), "no inode yet, directory 0755 of 1000:100, names 2");

        let file = Birth {
            mode: 0o104755,
            uid: 1,
            gid: 2,
            rdev: 0,
            btime_ns: 0,
            atime_ns: 0,
            mtime_ns: 0,
            target: Vec::new(),
        };
        assert_eq!(shown(Told::Birth(file.clone())), "file 4755 of 1:2");
        let link = Birth { mode: 0o120777, target: b"../b\xff".to_vec(), ..file.clone() };
        assert_eq!(shown(Told::Birth(link)), "symlink 0777 of 1:2 -> ../b\\xff");
        let null = Birth { mode: 0o020666, rdev: 0x103, ..file };
        assert_eq!(shown(Told::Birth(null)), "character device 0666 of 1:2, 1:3");

        let value = Value { before: 0, after: (3 << 40) + 5, name: b"a".to_vec() };
        assert_eq!(shown(Told::Value(value)), "was nothing, is object 3.5");

        let before = AttributesBefore { mode: 0o644, mtime_ns: -1, ..AttributesBefore::default() };
        let all = Attributes {
            mode: Some(0o600),
            uid: Some(5),
            gid: None,
            atime_ns: None,
            mtime_ns: Some(1_500_000_000),
            before,
        };
        assert_eq!(
            shown(Told::Attributes(all)),
            "mode 0600 was 0644, owner 5 was 0, modification @1.500000000 was @-1.999999999"
        );
        let none = Attributes { mode: None, uid: None, gid: None, atime_ns: None, mtime_ns: None, before };
        assert_eq!(shown(Told::Attributes(none)), "nothing");

        let xattr = Xattr { name: b"user.a".to_vec(), value: Some(vec![1; 5]), before: None };
        assert_eq!(shown(Told::Xattr(xattr.clone())), "user.a set to 5 B");
        assert_eq!(shown(Told::Xattr(Xattr { value: None, ..xattr })), "user.a removed");
        assert!(Operands::of(&Told::Impossible).is_none());
    }
}
