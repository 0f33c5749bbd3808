//! `docs/contract.md` has every rule of the contract, by its number. Each clause says for each of four places which
//! tests show it, or why none does, and each of these tests is there. Only the sources are read: what a test shows is
//! for people to judge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// So many rules there are. The code cites them by number.
const RULES: usize = 15;

/// Where a clause holds, in this order, as the page has it.
const PLACES: [&str; 4] = ["- store: ", "- volume: ", "- mount of a store: ", "- mount of a volume: "];

/// How a cell begins that names no test.
const REASONS: [&str; 3] = ["n/a: ", "same: ", "not tested: "];

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A clause: its number, and what stands for each place.
#[derive(Default)]
struct Clause {
    number: String,
    cells: Vec<(&'static str, String)>,
}

/// The clauses of a page by rule, and what is wrong with how they stand there.
fn read(page: &str) -> (Vec<(usize, Vec<Clause>)>, Vec<String>) {
    let (mut rules, mut faults): (Vec<(usize, Vec<Clause>)>, _) = (Vec::new(), Vec::new());
    let mut is_in_cell = false;
    for line in page.lines() {
        let last = rules.last_mut().and_then(|(_, clauses)| clauses.last_mut());
        let place = PLACES.iter().find(|place| line.starts_with(place.trim_end()));
        if let Some(rule) = line.strip_prefix("## ").and_then(|rest| rest.split_once(". ")) {
            match rule.0.parse() {
                Ok(number) => rules.push((number, Vec::new())),
                Err(_) => faults.push(format!("{line}: it has no number")),
            }
        } else if let Some((number, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("** ")) {
            match rules.last_mut() {
                Some((_, clauses)) => clauses.push(Clause { number: number.into(), cells: Vec::new() }),
                None => faults.push(format!("{number}: it stands before all rules")),
            }
        } else if let (Some(place), Some(clause)) = (place, last) {
            clause.cells.push((*place, line[place.trim_end().len()..].trim().into()));
            is_in_cell = true;
            continue;
        } else if let (true, Some(more), Some(clause)) =
            (is_in_cell, line.strip_prefix("  "), rules.last_mut().and_then(|(_, clauses)| clauses.last_mut()))
        {
            let (_, cell) = clause.cells.last_mut().expect("a cell goes on");
            *cell += " ";
            *cell += more.trim();
            continue;
        }
        is_in_cell = false;
    }
    (rules, faults)
}

/// The names of tests in a cell: what stands between backquotes and has a path.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|name| name.contains("::"))
}

/// What is wrong with a page.
fn faults(page: &str) -> Vec<String> {
    let (rules, mut faults) = read(page);
    let numbers: Vec<usize> = rules.iter().map(|(number, _)| *number).collect();
    if numbers != (1..=RULES).collect::<Vec<_>>() {
        faults.push(format!("its rules are {numbers:?}"));
    }
    for (rule, clauses) in &rules {
        if clauses.is_empty() {
            faults.push(format!("rule {rule} has no clause"));
        }
        for (clause, number) in clauses.iter().zip(1..) {
            let Clause { number: named, cells } = clause;
            if *named != format!("{rule}.{number}") {
                faults.push(format!("clause {named} stands where {rule}.{number} belongs"));
            }
            if !cells.iter().map(|(place, _)| *place).eq(PLACES) {
                faults.push(format!("clause {named} has not each of the four places, once and in order"));
            }
            for (place, cell) in cells {
                let where_it_is = format!("clause {named}, {}", place.trim_matches([' ', '-', ':']));
                let reason = REASONS.iter().find_map(|word| cell.strip_prefix(word));
                match reason {
                    Some(reason) if reason.len() < 20 || !reason.ends_with('.') => {
                        faults.push(format!("{where_it_is}: {cell:?} gives no reason"));
                    }
                    None if names(cell).next().is_none() => {
                        faults.push(format!("{where_it_is}: {cell:?} is neither a test nor a reason"));
                    }
                    _ => {}
                }
                let missing = names(cell).filter_map(|name| find(name).err());
                faults.extend(missing.map(|why| format!("{where_it_is}: {why}")));
            }
        }
    }
    faults
}

/// A module: its text, its file, and where the files of its own modules are.
struct Module {
    text: String,
    file: PathBuf,
    below: PathBuf,
}

impl Module {
    /// That of a file. The modules of a root are beside it.
    fn of(file: PathBuf, is_root: bool) -> Option<Module> {
        let text = std::fs::read_to_string(&file).ok()?;
        let below = match is_root || file.ends_with("mod.rs") {
            true => file.parent()?.to_path_buf(),
            false => file.with_extension(""),
        };
        Some(Module { text, file, below })
    }

    /// A module of this one, in it or in a file of its own.
    fn module(&self, name: &str) -> Option<Module> {
        let lines: Vec<&str> = self.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let declared = line.trim_start();
            let declared =
                declared.split_once("mod ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
            let Some((_, declared)) = declared else { continue };
            if declared == format!("{name};") {
                let is_attribute = |line: &&&str| line.trim_start().starts_with("#[");
                let mut attributes = lines[..at].iter().rev().take_while(is_attribute);
                let path = attributes.find_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
                let files = match path {
                    Some(path) => vec![self.file.parent()?.join(path)],
                    None => vec![self.below.join(format!("{name}.rs")), self.below.join(name).join("mod.rs")],
                };
                return files.into_iter().find_map(|file| Module::of(file, false));
            }
            if declared == format!("{name} {{") {
                let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
                let inner: Vec<&str> = lines[at + 1..].iter().copied().take_while(|line| *line != end).collect();
                return Some(Module { text: inner.join("\n"), file: self.file.clone(), below: self.below.join(name) });
            }
        }
        None
    }
}

/// Whether a text has a function of this name that is a test. `None` if it has none of this name.
pub fn has_test(text: &str, name: &str) -> Option<bool> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_it = |line: &&str| {
        let rest = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let at = lines.iter().position(is_it)?;
    let mut above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    Some(above.any(|line| *line == "#[test]"))
}

/// Finds a test by its name: the folder of the crate, then the modules of its program `all`; or its other program and
/// the modules of that; or the modules of the crate itself.
fn find(name: &str) -> Result<(), String> {
    let is_path = name.split("::").all(|part| !part.is_empty() && part.bytes().all(is_of_a_name));
    let parts: Vec<&str> = name.split("::").collect();
    let [folder, modules @ .., function] = &parts[..] else { return Err(format!("{name} is no path")) };
    let dir = root().join("crates").join(folder);
    if !is_path || !dir.join("Cargo.toml").exists() {
        return Err(format!("{name}: there is no such crate"));
    }
    let mut roots = vec![("tests/all/main.rs".to_owned(), modules)];
    if let Some((program, modules)) = modules.split_first() {
        roots.push((format!("tests/{program}.rs"), modules));
    }
    roots.extend(["src/lib.rs", "src/main.rs"].map(|file| (file.to_owned(), modules)));
    let mut why = format!("{name}: there is no such module");
    for (file, modules) in roots {
        let root = Module::of(dir.join(file), true);
        let found = modules.iter().try_fold(root, |module, name| module.map(|module| module.module(name)));
        match found.flatten().map(|module| has_test(&module.text, function)) {
            Some(Some(true)) => return Ok(()),
            Some(Some(false)) => why = format!("{name} is no test"),
            Some(None) => why = format!("{name}: there is no such function"),
            None => {}
        }
    }
    Err(why)
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

#[test]
fn each_clause_has_its_tests_or_says_why_not() {
    let page = std::fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let wrong = faults(&page);
    assert!(wrong.is_empty(), "docs/contract.md:\n{}", wrong.join("\n"));
    let (rules, _) = read(&page);
    let cells = rules.iter().flat_map(|(_, clauses)| clauses).flat_map(|clause| &clause.cells);
    let tests: BTreeSet<&str> = cells.clone().flat_map(|(_, cell)| names(cell)).collect();
    println!("{} cells, {} tests", cells.count(), tests.len());
    assert!(tests.len() > 150, "{}", tests.len());
}

/// A page on which nothing is wrong. Its tests are those of this file, which are sure to be there.
fn sound() -> String {
    let rules = (1..=RULES).map(|rule| {
        let test = "`cli::contract::what_is_wrong_with_a_page_is_found`";
        format!(
            "## {rule}. A rule\n\nIts words.\n\n**{rule}.1** A clause.\n\n- store: {test},\n  {test}\n- volume: {test}\n\
             - mount of a store: n/a: a reason that is given in words.\n- mount of a volume: not tested: another\n  reason \
             in words.\n\n"
        )
    });
    rules.collect()
}

#[test]
fn what_is_wrong_with_a_page_is_found() {
    let sound = sound();
    assert_eq!(faults(&sound), [""; 0]);
    let first = "- store: `cli::contract::what_is_wrong_with_a_page_is_found`,\n";
    let mistakes: [(&str, &str, &str); 16] = [
        ("## 9. A rule\n", "## A rule\n", "its rules are [1, 2, 3, 4, 5, 6, 7, 8, 10"),
        ("## 15. A rule\n", "## 16. A rule\n", "its rules are"),
        ("## 3. A rule\n", "## 3. A rule\n\n## 3. A rule\n", "its rules are"),
        ("**5.1** ", "", "rule 5 has no clause"),
        ("**5.1** ", "**5.2** ", "clause 5.2 stands where 5.1 belongs"),
        ("**5.1** A", "**5.1** A clause.\n\n**5.2** A", "clause 5.1 has not each of the four places"),
        ("- volume: `cli::contract::what_is_wrong_with_a_page_is_found`\n", "", "has not each of the four places"),
        ("- mount of a store: n/a: a reason that is given in words.\n", "- mount of a store:\n", "\"\" is neither"),
        ("- mount of a store: n/a: a reason that is given in words.\n", "- mount of a store: n/a: no.\n", "no reason"),
        ("n/a: a reason that is given in words", "a reason that is given in words", "neither a test nor a reason"),
        ("not tested: another\n  reason in words.", "not tested: none.", "gives no reason"),
        (first, "- store: `cli::contract::what_is_not_there`,\n", "there is no such function"),
        (first, "- store: `cli::no_such_file::a_test`,\n", "there is no such module"),
        (first, "- store: `no_such_crate::file::a_test`,\n", "there is no such crate"),
        (first, "- store: `cli::contract::sound`,\n", "cli::contract::sound is no test"),
        (first, "- store: `cli::contract::What it does`,\n", "there is no such crate"),
    ];
    for (what, instead, found) in mistakes {
        assert!(sound.contains(what), "{what}");
        let wrong = faults(&sound.replacen(what, instead, 1));
        assert!(wrong.iter().any(|wrong| wrong.contains(found)), "{instead:?} is not found: {wrong:?}");
    }
}

/// Tests are found wherever they may be: in files, in folders, at paths that are said, in programs of their own, in the
/// crates themselves, in files and in the text of a module.
#[test]
fn tests_are_found_where_they_are() {
    for name in [
        "cli::mount::a_signal_ends_it",
        "cli::fuse::run::signals",
        "cli::overlay::run::signals",
        "cli::unprivileged::calls::what_differs_is_known",
        "volume::volume::groups::conflicts",
        "volume::large_group::a_group_is_bounded_by_free_space_only",
        "core::forked::both_at_once",
        "core::fuzz_recovery::pmem",
        "host::names_tests::no_call_leaves_the_directory",
        "host::tests::paths_cannot_leave",
        "media::disk::tests::opening_changes_no_byte",
        "sim::tests::pmem::another_threads_fence_does_not_drain",
        "volume::fs::group::noted::tests::runs_grow_together",
        "cli::args::tests::the_tree_is_sound",
    ] {
        assert_eq!(find(name), Ok(()));
    }
    assert!(find("core::forked::forked::both_at_once").is_err() && find("cli::viewed::run::signals").is_err());
}
