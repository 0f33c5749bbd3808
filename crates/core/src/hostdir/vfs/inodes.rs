//! Which inodes somebody refers to, by which numbers, and what is kept of them when they lose their last name.

use wholly_changes::ROOT;
use wholly_vfs::Stat;

use crate::hostdir::StoreInner;
use crate::hostdir::handle::File;
use crate::hostdir::names::{Packed, UNMADE};
use sync::Mutex;
use wholly_vfs::{Errno, Ino, Result};

/// What is left of an object without a name: the host may have given its inode up.
pub(super) struct Kept {
    pub stat: Stat,
    /// Of a symbolic link.
    pub target: Vec<u8>,
    /// A regular file is open.
    _file: Option<File>,
}

impl Kept {
    pub fn new(stat: Stat, target: Vec<u8>, file: Option<File>) -> Self {
        Kept { stat, target, _file: file }
    }
}

struct Inode {
    id: u64,
    references: u64,
    /// Of few: most objects keep their names.
    kept: Option<Box<Kept>>,
}

/// Objects by the numbers that programs see. The root is always there.
#[derive(Default)]
pub(super) struct Inodes {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_number: Packed<u64, Inode>,
    numbers: Packed<u64, u64>,
}

impl Inodes {
    /// The object that a number stands for.
    pub fn id(&self, ino: Ino) -> Result<u64> {
        if ino == Ino::ROOT {
            return Ok(ROOT);
        }
        self.table.lock().unwrap().by_number.get(&ino.0).map(|inode| inode.id).ok_or(Errno::STALE)
    }

    /// One reference more to an object; `None` where it is not in the store's table any more.
    pub fn refer(&self, store: &StoreInner, id: u64) -> Option<Ino> {
        if id == ROOT {
            return Some(Ino::ROOT);
        }
        let mut table = self.table.lock().unwrap();
        if let Some(&number) = table.numbers.get(&id) {
            table.by_number.get_mut(&number).expect("both tables have it").references += 1;
            return Some(Ino(number));
        }
        let shown = store.names.with(|state| state.pin(id).then(|| state.shown(id)))?;
        // The host may have given the number of a file that is gone, and referred to still, to another one.
        let taken = shown == Ino::ROOT.0 || table.by_number.contains_key(&shown);
        let number = if taken { UNMADE | id } else { shown };
        table.numbers.insert(id, number);
        table.by_number.insert(number, Inode { id, references: 1, kept: None });
        Some(Ino(number))
    }

    /// The number that programs see, or would see, of an object.
    pub fn number(&self, store: &StoreInner, id: u64) -> Ino {
        if id == ROOT {
            return Ino::ROOT;
        }
        let known = self.table.lock().unwrap().numbers.get(&id).copied();
        Ino(known.unwrap_or_else(|| store.names.with(|state| state.shown(id))))
    }

    /// Gives references back. What was kept of the object comes out with the last one.
    pub fn forget(&self, store: &StoreInner, ino: Ino, references: u64) -> Option<Kept> {
        if ino == Ino::ROOT {
            return None;
        }
        let mut table = self.table.lock().unwrap();
        let inode = table.by_number.get_mut(&ino.0)?;
        inode.references = inode.references.saturating_sub(references);
        if inode.references > 0 {
            return None;
        }
        let inode = table.by_number.remove(&ino.0)?;
        table.numbers.remove(&inode.id);
        store.names.with(|state| state.unpin(inode.id));
        inode.kept.map(|kept| *kept)
    }

    /// Whether somebody refers to an object.
    pub fn is_referred_to(&self, id: u64) -> bool {
        self.table.lock().unwrap().numbers.contains_key(&id)
    }

    /// What is left of an object that has lost its last name. Gives it back where nobody refers to it any more.
    pub fn keep(&self, id: u64, kept: Kept) -> Option<Kept> {
        let mut table = self.table.lock().unwrap();
        let Table { by_number, numbers } = &mut *table;
        match numbers.get(&id).and_then(|number| by_number.get_mut(number)) {
            Some(inode) => inode.kept.replace(Box::new(kept)).map(|kept| *kept),
            None => Some(kept),
        }
    }

    /// Looks at what is left of an object, if it was kept.
    pub fn kept<T>(&self, id: u64, look: impl FnOnce(&Kept) -> T) -> Option<T> {
        let table = self.table.lock().unwrap();
        let number = table.numbers.get(&id)?;
        table.by_number.get(number)?.kept.as_deref().map(look)
    }

    /// All references, for tests.
    pub fn references(&self) -> u64 {
        self.table.lock().unwrap().by_number.values().map(|inode| inode.references).sum()
    }

    /// Nobody refers to anything any more.
    pub fn forget_all(&self, store: &StoreInner) {
        let mut table = self.table.lock().unwrap();
        let Table { by_number, numbers } = std::mem::take(&mut *table);
        store.names.with(|state| numbers.keys().for_each(|id| state.unpin(*id)));
        drop(table);
        drop(by_number);
    }
}
