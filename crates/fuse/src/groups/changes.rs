//! What a group has touched: so much the kernel may have of it, and so much others must leave alone.
//!
//! It grows with the group, by some bytes for each name and inode, as what the store itself keeps of a group does.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::{FileHandle, INodeNo};

/// What a change is about.
#[derive(Default)]
pub(crate) struct Touches<'a> {
    /// Names that are made, taken away or given to something else.
    pub names: &'a [(INodeNo, &'a OsStr)],
    /// The inode that is changed itself.
    pub node: Option<INodeNo>,
    /// Whether its content is.
    pub content: bool,
    /// The inode whose content is copied.
    pub from: Option<INodeNo>,
    /// The open file by which it is.
    pub handle: Option<FileHandle>,
}

/// What a call looks at.
#[derive(Clone, Copy)]
pub(crate) enum Look<'a> {
    /// An inode: its attributes or content, or the names in a directory.
    Node(INodeNo),
    /// What a name stands for.
    Name(INodeNo, &'a OsStr),
    /// The space of the file system.
    Space,
}

#[derive(Default)]
pub(super) struct Changes {
    names: HashSet<(u64, Vec<u8>)>,
    /// All that it may have changed anything of.
    nodes: HashSet<u64>,
    /// Those that there were not before.
    born: HashSet<u64>,
    /// Files whose content is the group's.
    content: HashSet<u64>,
}

impl Changes {
    pub fn note(&mut self, touches: &Touches<'_>) {
        for (parent, name) in touches.names {
            self.nodes.insert(parent.0);
            self.names.insert((parent.0, name.as_bytes().to_vec()));
        }
        if let Some(node) = touches.node {
            self.note_node(node.0);
            if touches.content {
                self.note_content(node.0);
            }
        }
    }

    pub fn note_node(&mut self, node: u64) {
        self.nodes.insert(node);
    }

    pub fn note_content(&mut self, node: u64) {
        self.content.insert(node);
    }

    pub fn note_born(&mut self, node: u64) {
        self.nodes.insert(node);
        self.born.insert(node);
        self.content.insert(node);
    }

    /// Whether others would change what only the group has, names that are the group's, or such in a directory that
    /// only the group has: the store does not show those to others, and would say that there is no such thing.
    pub fn hides(&self, touches: &Touches<'_>) -> bool {
        let is_born = touches.node.is_some_and(|node| self.born.contains(&node.0));
        is_born || touches.names.iter().any(|(parent, name)| self.has_name(*parent, name))
    }

    /// Whether the group has changed anything of what a call looks at.
    pub fn shows_in(&self, look: Look<'_>) -> bool {
        match look {
            Look::Node(node) => self.has(node.0),
            Look::Name(parent, name) => self.has_name(parent, name),
            Look::Space => false,
        }
    }

    /// Whether a change meets one of the group.
    pub fn meets(&self, touches: &Touches<'_>) -> bool {
        [touches.node, touches.from].into_iter().flatten().any(|node| self.has(node.0)) || self.hides(touches)
    }

    fn has_name(&self, parent: INodeNo, name: &OsStr) -> bool {
        self.born.contains(&parent.0) || self.names.contains(&(parent.0, name.as_bytes().to_vec()))
    }

    /// Whether the group has changed anything of an inode.
    pub fn has(&self, node: u64) -> bool {
        self.nodes.contains(&node) || self.content.contains(&node)
    }

    pub fn has_content(&self, node: u64) -> bool {
        self.content.contains(&node)
    }

    /// Whether pages of a file belong to the group, as its content does from then on.
    pub fn takes_pages_of(&mut self, node: u64) -> bool {
        let is_own = self.has(node);
        if is_own {
            self.note_content(node);
        }
        is_own
    }

    pub fn names(&self) -> impl Iterator<Item = (INodeNo, &OsStr)> {
        self.names.iter().map(|(parent, name)| (INodeNo(*parent), OsStr::from_bytes(name)))
    }

    pub fn nodes(&self) -> impl Iterator<Item = u64> {
        self.nodes.union(&self.content).copied()
    }
}
