//! The commands of the suites `run` and `volume`, what they find, and what they must leave.

use crate::place::{command, path_str};
use crate::workload::Case;
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use wholly_sim::Random;

/// Files of one directory, where a case spreads them over several.
const FILES_OF_DIRECTORY: u32 = 500;

/// A command, and the directory in which it runs.
pub(crate) struct Job {
    words: Vec<String>,
    pub dir: PathBuf,
    /// Whether what it does by itself is not durable when it has ended.
    pub needs_sync: bool,
    /// Makes the directory what it is when a turn begins.
    pub prepare: Box<dyn Fn() -> Result<()>>,
    /// That the command has done what it is for.
    pub judge: Box<dyn Fn() -> Result<()>>,
    /// Whether it is also measured with its undo kept.
    pub is_kept: bool,
    /// That the command was undone, where that is measured.
    pub undone: Option<Box<dyn Fn() -> Result<()>>>,
}

impl Job {
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }
}

/// The program that a case takes and that is not here, in words.
pub(crate) fn missing(case: &str) -> Option<String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| std::env::split_paths(&paths).any(|path| path.join(name).exists());
    let missing = programs(case).iter().find(|name| !is_there(name))?;
    Some(format!("{missing} is not installed (scripts/setup installs what is missing)"))
}

/// The programs that a case takes.
fn programs(case: &str) -> &'static [&'static str] {
    match case {
        "true_100k" => &["true"],
        "change_15" => &["sh", "rm"],
        "tar_10k" | "tar_30k" => &["tar"],
        "rm_rf" => &["tar", "rm"],
        "sed_1k" => &["find", "sed"],
        "git_clone" => &["git"],
        "make_j2" => &["make", "gcc"],
        "dpkg_5k" => &["dpkg", "dpkg-deb"],
        _ => &["dd"],
    }
}

/// What a case runs in the directory `dir`. What it reads, which is made in `scratch`, and a directory that no turn
/// changes, are made here.
pub(crate) fn job(case: &Case, scratch: &Path, dir: &Path) -> Result<Job> {
    let source = scratch.join("source");
    let (case, dir) = (*case, dir.to_path_buf());
    let job = |words: &[&str], prepare: Box<dyn Fn() -> Result<()>>, judge: Box<dyn Fn() -> Result<()>>| Job {
        words: words.iter().map(|&word| word.to_owned()).collect(),
        dir: dir.clone(),
        needs_sync: true,
        prepare,
        judge,
        is_kept: false,
        undone: None,
    };
    let last = case.files - 1;
    let empty = || -> Box<dyn Fn() -> Result<()>> {
        let dir = dir.clone();
        Box::new(move || make_empty(&dir))
    };
    let has = |path: PathBuf, bytes: u64| -> Box<dyn Fn() -> Result<()>> {
        Box::new(move || match path.metadata() {
            Ok(found) if found.len() == bytes => Ok(()),
            Ok(found) => Err(format!("{} has {} bytes", path.display(), found.len()).into()),
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        })
    };
    Ok(match case.name {
        "true_100k" => {
            std::fs::create_dir(&dir)?;
            let text = text(0, case.file_bytes);
            (0..case.files).try_for_each(|n| std::fs::write(dir.join(n.to_string()), &text))?;
            let judge = has(dir.join(last.to_string()), case.file_bytes);
            Job { needs_sync: false, ..job(&["true"], Box::new(|| Ok(())), judge) }
        }
        "change_15" => {
            std::fs::create_dir(&dir)?;
            let old = text(0, case.file_bytes);
            (0..case.files).try_for_each(|n| std::fs::write(dir.join(n.to_string()), &old))?;
            let script = "for n in 0 1 2 3 4; do echo new > $n; echo new > new$n; done; rm 5 6 7 8 9";
            let (at, is) = (dir.clone(), old.clone());
            let prepare = move || {
                (0..10).try_for_each(|n: u32| std::fs::write(at.join(n.to_string()), &is))?;
                for name in (0..5).map(|n| format!("new{n}")).filter(|name| at.join(name).exists()) {
                    std::fs::remove_file(at.join(name))?;
                }
                Ok(())
            };
            let at = dir.clone();
            let is_new = move || Ok(std::fs::read(at.join("0"))? == b"new\n" && !at.join("9").exists());
            let at = dir.clone();
            let is_old =
                move || Ok(std::fs::read(at.join("0"))? == old && at.join("9").exists() && !at.join("new4").exists());
            let judge = |is: Box<dyn Fn() -> Result<bool>>, what: &'static str| -> Box<dyn Fn() -> Result<()>> {
                Box::new(move || if is()? { Ok(()) } else { Err(what.into()) })
            };
            let changed = judge(Box::new(is_new), "it has not changed all of it");
            let undone = Some(judge(Box::new(is_old), "it is not as it was"));
            Job { is_kept: true, undone, ..job(&["sh", "-c", script], Box::new(prepare), changed) }
        }
        "tar_10k" | "tar_30k" => {
            make_tree(&source, &case)?;
            let archive = scratch.join("archive.tar");
            command("tar", &["cf", path_str(&archive)?, "-C", path_str(&source)?, "."])?;
            let judge = has(dir.join(file(last)), case.file_bytes);
            Job { is_kept: true, ..job(&["tar", "xf", path_str(&archive)?], empty(), judge) }
        }
        "rm_rf" => {
            make_tree(&source, &case)?;
            let archive = scratch.join("archive.tar");
            command("tar", &["cf", path_str(&archive)?, "-C", path_str(&source)?, "."])?;
            let tree = dir.join("tree");
            let prepare = move || {
                std::fs::create_dir_all(&tree)?;
                command("tar", &["xf", path_str(&archive)?, "-C", path_str(&tree)?])
            };
            let tree = dir.join("tree");
            let judge = move || match tree.exists() {
                false => Ok(()),
                true => Err(format!("{} is still there", tree.display()).into()),
            };
            Job { is_kept: true, ..job(&["rm", "-rf", "tree"], Box::new(prepare), Box::new(judge)) }
        }
        "sed_1k" => {
            make_tree(&dir, &case)?;
            let (path, old) = (dir.join(file(last)), text(last, case.file_bytes));
            let new: Vec<u8> = old.iter().map(|&byte| if byte == b'1' { b'2' } else { byte }).collect();
            let at = path.clone();
            let prepare = move || Ok(std::fs::write(&at, &old)?);
            let judge = move || match std::fs::read(&path)? == new {
                true => Ok(()),
                false => Err(format!("{} is not edited", path.display()).into()),
            };
            let words = ["find", ".", "-name", "file*", "-exec", "sed", "-i", "s/1/2/g", "{}", "+"];
            Job { is_kept: true, ..job(&words, Box::new(prepare), Box::new(judge)) }
        }
        "git_clone" => {
            make_tree(&source, &case)?;
            let git = |words: &[&str]| {
                let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
                command("git", &[&["-C", path_str(&source)?][..], &who, words].concat())
            };
            git(&["init", "-q", "-b", "main"])?;
            git(&["add", "."])?;
            git(&["commit", "-q", "-m", "all"])?;
            git(&["repack", "-a", "-d", "-q"])?;
            let judge = has(dir.join("clone").join(file(last)), case.file_bytes);
            // Links to the objects of the repository would not be a copy.
            job(&["git", "clone", "-q", "--no-hardlinks", path_str(&source)?, "clone"], empty(), judge)
        }
        "make_j2" => {
            let (in_dir, program) = (dir.clone(), dir.join("program"));
            let prepare = move || {
                make_empty(&in_dir)?;
                make_project(&in_dir, &case)
            };
            let judge = move || command(path_str(&program)?, &[]);
            job(&["make", "-s", "-j2"], Box::new(prepare), Box::new(judge))
        }
        "dpkg_5k" => {
            let package = scratch.join("bench.deb");
            make_tree(&source.join("opt/bench"), &case)?;
            std::fs::create_dir(source.join("DEBIAN"))?;
            let control = "Package: bench\nVersion: 1\nArchitecture: all\nMaintainer: bench <bench@localhost>\n\
                           Description: many files\n";
            std::fs::write(source.join("DEBIAN/control"), control)?;
            command("dpkg-deb", &["--root-owner-group", "-Znone", "--build", path_str(&source)?, path_str(&package)?])?;
            let root = dir.clone();
            let prepare = move || {
                make_empty(&root)?;
                for part in ["info", "updates", "triggers"] {
                    std::fs::create_dir_all(root.join("var/lib/dpkg").join(part))?;
                }
                ["status", "available"]
                    .iter()
                    .try_for_each(|name| Ok(std::fs::write(root.join("var/lib/dpkg").join(name), "")?))
            };
            let root = format!("--root={}", path_str(&dir)?);
            let judge = has(dir.join("opt/bench").join(file(last)), case.file_bytes);
            let words = ["dpkg", &root, "--log=/dev/null", "-i", path_str(&package)?];
            Job { needs_sync: false, ..job(&words, Box::new(prepare), judge) }
        }
        "write_1g" => {
            let judge = has(dir.join("file"), case.file_bytes);
            let count = format!("count={}", case.file_bytes >> 20);
            let words = ["dd", "if=/dev/zero", "of=file", "bs=1M", &count];
            Job { is_kept: true, ..job(&words, empty(), judge) }
        }
        "change_1g" => {
            std::fs::create_dir(&dir)?;
            let path = dir.join("file");
            write_large(&path, case.file_bytes)?;
            let judge = has(path, case.file_bytes);
            let seek = format!("seek={}", case.file_bytes / 4096 / 2);
            let words = ["dd", "if=/dev/urandom", "of=file", "bs=4096", "count=1", &seek, "conv=notrunc"];
            job(&words, Box::new(|| Ok(())), judge)
        }
        other => return Err(Error::from(format!("no command for the case {other}"))),
    })
}

fn make_empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(std::fs::create_dir(dir)?)
}

/// The path of a file of a tree.
fn file(n: u32) -> String {
    format!("d{:03}/file{n:05}", n / FILES_OF_DIRECTORY)
}

/// The case's files, spread over directories.
fn make_tree(dir: &Path, case: &Case) -> Result<()> {
    for n in 0..case.files {
        let path = dir.join(file(n));
        if n % FILES_OF_DIRECTORY == 0 {
            std::fs::create_dir_all(path.parent().unwrap_or(dir))?;
        }
        std::fs::write(path, text(n, case.file_bytes))?;
    }
    Ok(())
}

/// Lines of digits, which compress about as well as sources do and are others in each file.
fn text(seed: u32, bytes: u64) -> Vec<u8> {
    let mut random = Random(u64::from(seed) << 32);
    let mut text = String::new();
    while (text.len() as u64) < bytes {
        text.push_str(&format!("{:020}\n", random.draw()));
    }
    text.truncate(bytes as usize);
    text.into_bytes()
}

/// A program in C: each file has functions, and `main` calls one of each.
fn make_project(dir: &Path, case: &Case) -> Result<()> {
    const FUNCTIONS: u32 = 40;
    let (mut objects, mut declared, mut called) = (String::new(), String::new(), String::new());
    for n in 0..case.files {
        let functions = (0..FUNCTIONS).map(|f| {
            format!(
                "static int part_{f}(int *at, int n)\n{{\n    int sum = {f};\n    for (int i = 0; i < n; i++)\n        \
                 sum += at[i] * {n} + (at[i] >> {});\n    return sum;\n}}\n",
                f % 31
            )
        });
        let calls: String = (0..FUNCTIONS).map(|f| format!("    sum += part_{f}(at, n);\n")).collect();
        let whole = format!("int unit_{n}(int *at, int n)\n{{\n    int sum = 0;\n{calls}    return sum;\n}}\n");
        std::fs::write(dir.join(format!("unit{n}.c")), functions.collect::<String>() + &whole)?;
        objects.push_str(&format!(" unit{n}.o"));
        declared.push_str(&format!("int unit_{n}(int *, int);\n"));
        called.push_str(&format!("    sum += unit_{n}(at, 2);\n"));
    }
    let main = format!(
        "{declared}int main(void)\n{{\n    int at[2] = {{1, 2}};\n    int sum = 0;\n{called}    return sum == 1;\n}}\n"
    );
    std::fs::write(dir.join("main.c"), main)?;
    let makefile = format!(
        "CC = gcc\nCFLAGS = -O1\nall: program\nprogram: main.o{objects}\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) \
         $(CFLAGS) -c -o $@ $<\n"
    );
    Ok(std::fs::write(dir.join("Makefile"), makefile)?)
}

/// A file without holes.
fn write_large(path: &Path, bytes: u64) -> Result<()> {
    let piece = text(1, 1 << 20);
    let mut file = std::fs::File::create_new(path)?;
    (0..bytes / piece.len() as u64).try_for_each(|_| Ok(std::io::Write::write_all(&mut file, &piece)?))
}
