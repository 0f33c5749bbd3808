//! The time of one group, beside what people use today: the same updates of the same files, in turns.

use crate::kills::text;
use crate::scene::{Stop, Tree};
use indicatif::ProgressBar;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wholly::{Options, Store};
use wholly_bench::Result;
use wholly_sim::Random;

/// Files that a group changes, and bytes in each.
pub const FILES: usize = 4;
pub const BYTES: usize = 1000;
const TURNS: u32 = 3;

/// One way to change some files.
trait Way {
    /// Overwrites `data` in each of these files, given by number and offset.
    fn group(&mut self, updates: &[(usize, u64)], data: &[u8]) -> Result<()>;

    /// Brings home what it has put off.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The time per group of each of [`WAYS`]: median of the turns, in nanoseconds; none where it could not be tried.
pub type Times = [Option<f64>; WAYS.len()];

/// Each way, and what survives a crash.
pub const WAYS: [(&str, &str); 4] = [
    ("wholly", "the group, wholly or not at all"),
    ("SQLite (WAL)", "the group, wholly or not at all, in one database"),
    ("new file, fsync, rename", "each file by itself"),
    ("write, fsync", "nothing: a file may be half old, half new"),
];

/// Measures every way on copies of the tree in `dir`, for as long as `duration`.
pub fn run(tree: &Tree, dir: &Path, seed: u64, duration: Duration, bar: &ProgressBar, stop: &Stop) -> Result<Times> {
    let sizes: Vec<u64> = tree.files.0.values().map(|content| content.len() as u64).collect();
    // Files that a whole update fits into.
    let large: Vec<usize> = (0..sizes.len()).filter(|&file| sizes[file] >= BYTES as u64).collect();
    let copy = |name: &str| -> Result<PathBuf> {
        let copy = dir.join(name);
        std::fs::create_dir(&copy)?;
        tree.copy(&copy)?;
        Ok(copy)
    };
    let mut ways: [Option<Box<dyn Way>>; WAYS.len()] = [
        Some(Box::new(Wholly::new(tree, &copy("wholly")?)?)),
        sqlite(tree, &dir.join("database"))?,
        Some(Box::new(Rename::new(tree, copy("rename")?)?)),
        Some(Box::new(WriteSync::new(tree, &copy("write")?)?)),
    ];
    let turn = duration / TURNS / ways.len() as u32;
    let mut times = WAYS.map(|_| Vec::new());
    let data = Random(seed).bytes(BYTES as u64);
    for round in 0..TURNS {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            bar.inc(turn.as_millis() as u64);
            let Some(way) = way else { continue };
            // All ways get the same updates.
            let mut random = Random(seed ^ u64::from(round));
            let (start, mut groups) = (Instant::now(), 0);
            while start.elapsed() < turn {
                stop.check()?;
                let mut updates: Vec<(usize, u64)> = Vec::with_capacity(FILES);
                while updates.len() < FILES {
                    let file = large[random.below(large.len() as u64) as usize];
                    if updates.iter().all(|(other, _)| *other != file) {
                        updates.push((file, random.below(sizes[file] - BYTES as u64 + 1)));
                    }
                }
                way.group(&updates, &data)?;
                groups += 1;
            }
            way.settle()?;
            times.push(start.elapsed().as_nanos() as f64 / f64::from(groups));
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    }))
}

struct Wholly {
    store: Store,
    files: Vec<wholly::File>,
}

impl Wholly {
    fn new(tree: &Tree, dir: &Path) -> Result<Self> {
        Store::init(dir, &Options::default()).map_err(text)?;
        let store = Store::open(dir).map_err(text)?;
        let files =
            tree.files.0.keys().map(|name| store.open_file(name)).collect::<wholly::Result<_>>().map_err(text)?;
        Ok(Wholly { store, files })
    }
}

impl Way for Wholly {
    fn group(&mut self, updates: &[(usize, u64)], data: &[u8]) -> Result<()> {
        let mut group = self.store.begin();
        for &(file, offset) in updates {
            group.write_at(&self.files[file], offset, data).map_err(text)?;
        }
        group.commit().map_err(text)
    }

    /// Its checkpoint is inside the clock.
    fn settle(&mut self) -> Result<()> {
        self.store.checkpoint().map(|_| ()).map_err(text)
    }
}

struct WriteSync {
    files: Vec<File>,
}

impl WriteSync {
    fn new(tree: &Tree, dir: &Path) -> Result<Self> {
        let open = |name: &String| File::options().write(true).open(dir.join(name));
        Ok(WriteSync { files: tree.files.0.keys().map(open).collect::<std::io::Result<_>>()? })
    }
}

impl Way for WriteSync {
    fn group(&mut self, updates: &[(usize, u64)], data: &[u8]) -> Result<()> {
        for &(file, offset) in updates {
            self.files[file].write_all_at(data, offset)?;
            self.files[file].sync_all()?;
        }
        Ok(())
    }
}

/// Each file is made anew with its change, synced, and renamed over the old one; then its directory is synced.
struct Rename {
    paths: Vec<PathBuf>,
    contents: Vec<Vec<u8>>,
    dir: PathBuf,
}

impl Rename {
    fn new(tree: &Tree, dir: PathBuf) -> Result<Self> {
        let paths = tree.files.0.keys().map(|name| dir.join(name)).collect();
        Ok(Rename { paths, contents: tree.files.0.values().cloned().collect(), dir })
    }
}

impl Way for Rename {
    fn group(&mut self, updates: &[(usize, u64)], data: &[u8]) -> Result<()> {
        for &(file, offset) in updates {
            self.contents[file][offset as usize..][..data.len()].copy_from_slice(data);
            let temporary = self.paths[file].with_extension("demo-new");
            let new = File::create(&temporary)?;
            new.write_all_at(&self.contents[file], 0)?;
            new.sync_all()?;
            std::fs::rename(&temporary, &self.paths[file])?;
            File::open(self.paths[file].parent().unwrap_or(&self.dir))?.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(not(peer_sqlite))]
fn sqlite(_tree: &Tree, _path: &Path) -> Result<Option<Box<dyn Way>>> {
    Ok(None)
}

#[cfg(peer_sqlite)]
fn sqlite(tree: &Tree, path: &Path) -> Result<Option<Box<dyn Way>>> {
    use wholly_bench_peers::sqlite::{Database, ROW_BYTES};

    /// The same bytes, in rows.
    struct Sqlite {
        database: Database,
        first_rows: Vec<u64>,
    }

    impl Way for Sqlite {
        fn group(&mut self, updates: &[(usize, u64)], data: &[u8]) -> Result<()> {
            self.database.begin()?;
            for &(file, offset) in updates {
                self.database.update(self.first_rows[file], offset, data)?;
            }
            self.database.commit()
        }

        fn settle(&mut self) -> Result<()> {
            self.database.checkpoint()
        }
    }

    let (mut first_rows, mut rows) = (Vec::new(), 1);
    for content in tree.files.0.values() {
        first_rows.push(rows);
        rows += (content.len() as u64).div_ceil(ROW_BYTES);
    }
    let mut database = Database::create(path, rows - 1)?;
    database.begin()?;
    for (content, first_row) in tree.files.0.values().zip(&first_rows) {
        database.update(*first_row, 0, content)?;
    }
    database.commit()?;
    database.checkpoint()?;
    Ok(Some(Box::new(Sqlite { database, first_rows })))
}
