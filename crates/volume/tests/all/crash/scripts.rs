//! What is done while the power fails. Each step is one call that changes something, and one group (besides changes of
//! structure, which nobody sees).

use wholly_posix::Tree;
use wholly_vfs::{Fallocate, FileType, OFlags, Rename, Result};

pub type Step = fn(&Tree<'_>) -> Result<()>;

/// A sequence of calls.
#[derive(Debug)]
pub struct Script {
    pub name: &'static str,
    /// Made before anything is recorded.
    pub before: Step,
    pub steps: &'static [Step],
}

pub fn nothing(_: &Tree<'_>) -> Result<()> {
    Ok(())
}

/// Two files, one of which has whole blocks of content, a hole, and a block that was reserved.
pub fn files(t: &Tree<'_>) -> Result<()> {
    t.file("a", 0o644, &[1; 9000])?;
    let b = t.file("b", 0o600, &[2; 4096])?;
    b.write(8 * 4096, &[3; 4096])?;
    b.allocate(Fallocate::Keep, 12 * 4096, 8192)
}

/// Three files with three whole blocks of content each, or nearly.
fn three_blocks(t: &Tree<'_>) -> Result<()> {
    t.file("a", 0o644, &[1; 9000])?;
    t.file("b", 0o644, &[2; 12_000])?;
    t.file("c", 0o644, &[3; 9000]).map(drop)
}

/// An access control list: tag, permissions and id of each entry.
fn set_list(t: &Tree<'_>, path: &str, entries: &[(u16, u16, u32)]) -> Result<()> {
    let entry = |(tag, permissions, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let entries: Vec<u8> = entries.iter().flat_map(entry).collect();
    t.set_xattr(path, "system.posix_acl_access", &[&2u32.to_le_bytes()[..], &entries].concat())
}

const NO_ID: u32 = u32::MAX;

/// A directory whose only leaf is nearly full, with names that are long.
pub fn full_leaf(t: &Tree<'_>) -> Result<()> {
    t.mkdir("d", 0o755)?;
    for i in 0..12 {
        t.file(format!("d/{i}-{}", "n".repeat(240)), 0o644, b"")?;
    }
    Ok(())
}

/// A map of two nodes, so that the ends of a hole are in both.
fn two_nodes(t: &Tree<'_>) -> Result<()> {
    let a = t.file("a", 0o644, b"")?;
    for block in [0, 1, 2, 510, 511, 512, 513, 514] {
        a.write(block * 4096, &[block as u8 | 1; 4096])?;
    }
    t.file("small", 0o644, &[5; 4096]).map(drop)
}

pub const SCRIPTS: &[Script] = &[
    // Data that does not fit into a half of a lane: each group goes on in a block of its own, which is the one that the
    // group before has just given back. That one is of another lane and has the same sequence. A file that grows has
    // more undo entries than one that does not: those of the group before stand behind the fewer ones, or in the place
    // of those that did not survive.
    Script {
        name: "links",
        before: three_blocks,
        steps: &[
            |t| t.open("a", OFlags::RDWR)?.write(0, &[4; 12_000]).map(drop),
            |t| t.open("b", OFlags::RDWR)?.write(0, &[5; 12_000]).map(drop),
            |t| t.open("b", OFlags::RDWR)?.write(0, &[6; 12_000]).map(drop),
            |t| t.open("c", OFlags::RDWR)?.write(0, &[7; 12_000]).map(drop),
        ],
    },
    Script {
        name: "data",
        before: files,
        steps: &[
            |t| t.open("a", OFlags::RDWR)?.write(100, &[7; 5000]).map(drop),
            |t| t.open("a", OFlags::RDWR)?.write(4000, &[8; 9000]).map(drop),
            |t| t.open("b", OFlags::RDWR)?.write(13 * 4096 + 5, &[9; 10]).map(drop),
            |t| t.open("b", OFlags::RDWR)?.write(4095, &[10; 4 * 4096]).map(drop),
            |t| t.open("a", OFlags::RDWR)?.append(&[11; 100]).map(drop),
            |t| t.open("b", OFlags::RDWR)?.write(8 * 4096, &[12; 100]).map(drop),
            // The same bytes once more, by the other thread.
            |t| t.open("b", OFlags::RDWR)?.write(8 * 4096, &[13; 100]).map(drop),
            |t| t.open("a", OFlags::RDWR)?.write(0, &[14; 20_000]).map(drop),
        ],
    },
    Script {
        name: "names",
        before: nothing,
        steps: &[
            |t| t.create("a", 0o644).map(drop),
            |t| t.mkdir("d", 0o755).map(drop),
            |t| t.rename("a", "d/b"),
            |t| t.link("d/b", "c").map(drop),
            |t| t.symlink("short", "d/b").map(drop),
            |t| t.symlink("long", "x".repeat(100)).map(drop),
            |t| t.rename_with("short", "d", Rename::Exchange),
            |t| t.mknod("fifo", FileType::Fifo, 0o600).map(drop),
            |t| t.rename("c", "long"),
            |t| t.unlink("short/b"),
            |t| t.rmdir("short"),
            |t| t.unlink("long"),
        ],
    },
    Script {
        name: "space",
        before: files,
        steps: &[
            |t| t.truncate("a", 5000).map(drop),
            |t| t.truncate("a", 100).map(drop),
            |t| t.truncate("b", 40_000).map(drop),
            |t| {
                let flags = Fallocate::Punch;
                t.open("b", OFlags::RDWR)?.allocate(flags, 100, 8 * 4096 + 50)
            },
            |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::ZeroExtend, 8 * 4096 + 60, 9000),
            |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Insert, 4096, 8192),
            |t| t.open("b", OFlags::RDWR)?.allocate(Fallocate::Collapse, 0, 4096),
            |t| t.truncate("b", 0).map(drop),
            |t| t.unlink("b"),
        ],
    },
    Script {
        name: "attributes",
        before: files,
        steps: &[
            |t| t.set_xattr("a", "user.one", b"value"),
            |t| t.set_xattr("a", "user.two", &[5; 6000]),
            |t| t.set_xattr("a", "user.one", b"another"),
            // A list and the permission bits that go with it: of the one without the other, some would have rights
            // that they had neither before nor after.
            |t| set_list(t, "a", &[(1, 6, NO_ID), (2, 7, 1000), (4, 4, NO_ID), (16, 7, NO_ID), (32, 0, NO_ID)]),
            |t| t.chmod("a", 0o640).map(drop),
            |t| set_list(t, "a", &[(1, 6, NO_ID), (4, 0, NO_ID), (32, 0, NO_ID)]),
            |t| t.chmod("a", 0o4755).map(drop),
            |t| t.chown("a", Some(7), Some(8)).map(drop),
            |t| t.remove_xattr("a", "user.two"),
            |t| t.unlink("a"),
        ],
    },
    Script {
        name: "leaves",
        before: full_leaf,
        steps: &[
            |t| t.create(format!("d/more-{}", "m".repeat(240)), 0o644).map(drop),
            |t| t.rename(format!("d/3-{}", "n".repeat(240)), format!("d/3-{}", "o".repeat(250))),
            |t| t.unlink(format!("d/4-{}", "n".repeat(240))),
            |t| t.rename("d", "e"),
        ],
    },
    Script {
        name: "nodes",
        before: two_nodes,
        steps: &[
            |t| {
                let flags = Fallocate::Punch;
                t.open("a", OFlags::RDWR)?.allocate(flags, 511 * 4096 - 50, 3 * 4096)
            },
            |t| t.open("a", OFlags::RDWR)?.write(512 * 4096, &[1; 100]).map(drop),
            |t| t.open("a", OFlags::RDWR)?.write(600 * 4096 + 5, &[2; 100]).map(drop),
            |t| t.truncate("a", 511 * 4096).map(drop),
            |t| t.open("small", OFlags::RDWR)?.write(513 * 4096, &[6; 5000]).map(drop),
            |t| t.unlink("a"),
        ],
    },
    Script {
        name: "inodes",
        // All but a few of the inodes of a new volume.
        before: |t| (0..44).try_for_each(|i| t.create(format!("{i}"), 0o644).map(drop)),
        steps: &[
            |t| t.create("one", 0o644).map(drop),
            |t| t.create("two", 0o644).map(drop),
            |t| t.create("three", 0o644).map(drop),
            |t| t.create("four", 0o644).map(drop),
            |t| t.create("five", 0o644).map(drop),
            |t| t.unlink("one"),
        ],
    },
];
