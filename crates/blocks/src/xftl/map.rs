//! The map: where the committed version of each logical page is. In memory as a whole; on flash as table pages, which
//! directory pages name, which the root names. The erases of each block are a table of the same kind behind it.

use super::flash::{PAGE, Ppn};
use crate::Page;

/// Entries of a table or directory page.
pub(super) const ENTRIES: usize = PAGE / 4;

/// Reads as zeros; of table pages and directories: not stored.
const NONE: u32 = u32::MAX;
/// Not known: the table page that had it is lost.
const LOST: u32 = u32::MAX - 1;

/// Where a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Nowhere: it reads as zeros.
    Zeros,
    /// There.
    At(Ppn),
    /// The table page with this number would know.
    Lost(u32),
}

/// The tables, and where their pages are on flash.
pub(super) struct Map {
    pages: Vec<u32>,
    /// Erases by block.
    erases: Vec<u32>,
    tables: Vec<Option<Ppn>>,
    directories: Vec<Option<Ppn>>,
    /// Tables that are not on flash as they are.
    changed: Vec<bool>,
}

/// Tables and directories for so many logical pages and blocks.
pub(super) fn counts(logical: u32, blocks: u32) -> (usize, usize) {
    let tables = (logical as usize).div_ceil(ENTRIES) + (blocks as usize).div_ceil(ENTRIES);
    (tables, tables.div_ceil(ENTRIES))
}

fn words(entries: impl Iterator<Item = u32>) -> Page {
    let mut bytes = [0xff; PAGE];
    for (bytes, entry) in bytes.chunks_exact_mut(4).zip(entries) {
        bytes.copy_from_slice(&entry.to_le_bytes());
    }
    Page::new(&bytes)
}

/// The entries of a table or directory page.
pub(super) fn entries(page: &Page) -> impl Iterator<Item = u32> {
    page.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

/// The pages that a directory page, or a table page of the map, names.
pub(super) fn named(page: &Page) -> impl Iterator<Item = Ppn> {
    entries(page).filter(|at| !matches!(*at, NONE | LOST)).map(Ppn)
}

impl Map {
    /// Of an empty device.
    pub fn new(logical: u32, blocks: u32) -> Map {
        let (tables, directories) = counts(logical, blocks);
        Map {
            pages: vec![NONE; logical as usize],
            erases: vec![0; blocks as usize],
            tables: vec![None; tables],
            directories: vec![None; directories],
            changed: vec![false; tables],
        }
    }

    pub fn logical(&self) -> u32 {
        self.pages.len() as u32
    }

    pub fn directories(&self) -> usize {
        self.directories.len()
    }

    /// Tables of the map itself; those behind them count erases.
    pub fn page_tables(&self) -> usize {
        self.pages.len().div_ceil(ENTRIES)
    }

    pub fn get(&self, lpn: u32) -> Home {
        match self.pages[lpn as usize] {
            NONE => Home::Zeros,
            LOST => Home::Lost(lpn / ENTRIES as u32),
            at => Home::At(Ppn(at)),
        }
    }

    /// Changes where a logical page is. Returns where it was.
    pub fn set(&mut self, lpn: u32, at: Option<Ppn>) -> Option<Ppn> {
        let old = std::mem::replace(&mut self.pages[lpn as usize], at.map_or(NONE, |at| at.0));
        self.changed[lpn as usize / ENTRIES] = true;
        (!matches!(old, NONE | LOST)).then_some(Ppn(old))
    }

    /// The pages that are somewhere.
    pub fn mapped(&self) -> impl Iterator<Item = (u32, Ppn)> {
        (0..).zip(&self.pages).filter(|(_, at)| !matches!(**at, NONE | LOST)).map(|(lpn, at)| (lpn, Ppn(*at)))
    }

    pub fn erases(&self, block: u32) -> u32 {
        self.erases[block as usize]
    }

    pub fn set_erases(&mut self, block: u32, erases: u32) {
        self.erases[block as usize] = erases;
        let table = self.page_tables() + block as usize / ENTRIES;
        self.changed[table] = true;
    }

    /// Where a table page is on flash.
    pub fn table_at(&self, table: usize) -> Option<Ppn> {
        self.tables[table]
    }

    /// Where the directory page of a table is, or was.
    pub fn directory_of(&self, table: u32) -> Ppn {
        self.directories[table as usize / ENTRIES].unwrap_or(Ppn(NONE))
    }

    /// All table and directory pages.
    pub fn system_pages(&self) -> impl Iterator<Item = Ppn> {
        self.tables.iter().chain(&self.directories).flatten().copied().filter(|at| at.0 != NONE)
    }

    /// Those of all directory pages, for the root.
    pub fn directory_list(&self) -> Vec<Ppn> {
        self.directories.iter().map(|at| at.unwrap_or(Ppn(NONE))).collect()
    }

    /// Tables that are not on flash as they are.
    pub fn changed(&self) -> Vec<usize> {
        (0..self.tables.len()).filter(|table| self.changed[*table]).collect()
    }

    /// All tables with something in them are to be stored anew.
    pub fn change_all(&mut self) {
        (0..self.tables.len()).for_each(|table| self.changed[table] |= self.tables[table].is_some());
    }

    /// A table as it is to be on flash.
    pub fn encode_table(&self, table: usize) -> Page {
        match table.checked_sub(self.page_tables()) {
            None => words(self.pages.iter().copied().skip(table * ENTRIES).take(ENTRIES)),
            Some(table) => words(self.erases.iter().copied().skip(table * ENTRIES).take(ENTRIES)),
        }
    }

    pub fn encode_directory(&self, directory: usize) -> Page {
        let tables = self.tables.iter().skip(directory * ENTRIES).take(ENTRIES);
        words(tables.map(|at| at.map_or(NONE, |at| at.0)))
    }

    /// A table is on flash. Returns where it was.
    pub fn stored_table(&mut self, table: usize, at: Ppn) -> Option<Ppn> {
        self.changed[table] = false;
        self.tables[table].replace(at)
    }

    /// A directory page is on flash. Returns where it was.
    pub fn stored_directory(&mut self, directory: usize, at: Ppn) -> Option<Ppn> {
        self.directories[directory].replace(at)
    }

    /// A directory page as it was found. Returns the tables that it names. `None`: it is lost, and all of them with it.
    pub fn load_directory(&mut self, directory: usize, at: Ppn, page: Option<&Page>) -> Vec<(usize, Ppn)> {
        self.directories[directory] = Some(at);
        let first = directory * ENTRIES;
        let Some(page) = page else {
            let all = first..self.tables.len().min(first + ENTRIES);
            all.for_each(|table| self.forget_table(table));
            return Vec::new();
        };
        let tables = (first..self.tables.len()).zip(entries(page)).filter(|(_, at)| *at != NONE);
        tables.map(|(table, at)| (table, Ppn(at))).collect()
    }

    /// A table page as it was found.
    pub fn load_table(&mut self, table: usize, at: Ppn, page: &Page) {
        self.tables[table] = Some(at);
        let entries = entries(page);
        match table.checked_sub(self.page_tables()) {
            None => self.pages.iter_mut().skip(table * ENTRIES).zip(entries).for_each(|(own, found)| *own = found),
            Some(table) => {
                self.erases.iter_mut().skip(table * ENTRIES).zip(entries).for_each(|(own, found)| *own = found)
            }
        }
    }

    /// A table page cannot be read.
    pub fn lose_table(&mut self, table: usize, at: Ppn) {
        self.tables[table] = Some(at);
        self.forget_table(table);
    }

    fn forget_table(&mut self, table: usize) {
        if table < self.page_tables() {
            self.pages.iter_mut().skip(table * ENTRIES).take(ENTRIES).for_each(|own| *own = LOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_directories_read_as_they_were_stored() {
        let mut map = Map::new(2500, 30);
        assert_eq!((map.tables.len(), map.directories(), map.page_tables()), (4, 1, 3));
        map.set(1024, Some(Ppn(7)));
        map.set(2499, Some(Ppn(9)));
        map.set_erases(29, 5);
        assert_eq!(map.changed(), [1, 2, 3]);
        let mut other = Map::new(2500, 30);
        for table in map.changed() {
            let page = map.encode_table(table);
            map.stored_table(table, Ppn(100 + table as u32));
            other.load_table(table, Ppn(100 + table as u32), &page);
        }
        assert!(map.changed().is_empty());
        let tables = other.load_directory(0, Ppn(50), Some(&map.encode_directory(0)));
        assert_eq!(tables, [(1, Ppn(101)), (2, Ppn(102)), (3, Ppn(103))]);
        assert_eq!(other.mapped().collect::<Vec<_>>(), [(1024, Ppn(7)), (2499, Ppn(9))]);
        assert_eq!((other.erases(29), other.erases(28), other.get(0)), (5, 0, Home::Zeros));
        other.lose_table(1, Ppn(101));
        assert_eq!((other.get(1024), other.get(2499)), (Home::Lost(1), Home::At(Ppn(9))));
        assert_eq!(other.set(1024, Some(Ppn(3))), None);
    }
}
