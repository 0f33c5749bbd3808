//! Imports point down. The picture of the layers in `docs/architecture.md` lists what each crate may import, and each
//! module of a crate that has several layers; here it is compared with the manifests and the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Packages that take the place of the package without this suffix, for a scheduler, a memory model, and virtual time.
const SUFFIXES: [&str; 3] = ["-shuttle", "-loom", "-events"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A line of the picture: the folder of a crate, or a module of the crate above it.
#[derive(Clone)]
struct Row {
    name: String,
    imports: BTreeSet<String>,
    modules: Vec<Row>,
}

/// The picture, from the top down.
fn picture() -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let lines = page.lines().skip_while(|line| !line.starts_with(" crate ")).skip(1);
    let mut rows: Vec<Row> = Vec::new();
    for line in lines.take_while(|line| *line != "```").filter(|line| !line.starts_with(" ──")) {
        let columns: Vec<&str> = line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
        let [name, _, imports] = columns[..] else { panic!("a line has three columns: {line}") };
        let name = name.trim_end_matches('/').to_string();
        let imports = imports.split(' ').filter(|import| *import != "-").map(str::to_string).collect();
        let row = Row { name, imports, modules: Vec::new() };
        match line.starts_with("   ") {
            true => rows.last_mut().expect("a crate stands above its modules").modules.push(row),
            false => rows.push(row),
        }
    }
    rows
}

/// A package of the workspace, by its folder.
#[derive(Clone)]
struct Package {
    name: String,
    is_published: bool,
    /// The folder in which its library is.
    sources: PathBuf,
    imports: BTreeSet<String>,
}

impl Package {
    /// The folder of the package in whose place this one stands, and its suffix.
    fn original(&self) -> Option<(&str, &'static str)> {
        SUFFIXES.iter().find_map(|suffix| Some((self.name.strip_suffix(suffix)?, *suffix)))
    }
}

fn packages() -> Vec<Package> {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(root()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = |path: &Value| Path::new(path.as_str().unwrap()).file_name().unwrap().to_str().unwrap().to_string();
    let package = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let is_first = |target: &&Value| {
            ["lib", "rlib", "cdylib", "staticlib", "bin"].iter().any(|kind| target["kind"][0] == *kind)
        };
        let target = package["targets"].as_array().unwrap().iter().find(is_first).unwrap();
        let source = Path::new(target["src_path"].as_str().unwrap()).canonicalize().unwrap();
        let imports = package["dependencies"].as_array().unwrap().iter();
        let imports = imports.filter(|import| import["kind"] != "dev" && !import["path"].is_null());
        Package {
            name: manifest.parent().unwrap().file_name().unwrap().to_str().unwrap().to_string(),
            is_published: package["publish"].is_null(),
            sources: source.parent().unwrap().to_path_buf(),
            imports: imports.map(|import| folder(&import["path"])).collect(),
        }
    };
    all["packages"].as_array().unwrap().iter().map(package).collect()
}

/// A name without the suffix of a scheduler or a memory model.
fn plain(name: &str) -> &str {
    SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// What the lines of the picture, from the top down, say that points up.
fn arrows_up(rows: &[Row], of: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let is_above = |import: &&String| !rows[i + 1..].iter().any(|below| below.name == **import);
        faults.extend(row.imports.iter().filter(is_above).map(|up| format!("{of}{} → {up} points up", row.name)));
        faults.extend(arrows_up(&row.modules, &format!("{of}{}/", row.name)));
    }
    faults
}

/// What of the manifests is not in the picture.
fn of_manifests(rows: &[Row], packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        let name = &package.name;
        if let Some((original, suffix)) = package.original() {
            if package.is_published {
                faults.push(format!("{name} is published"));
            }
            let original = packages.iter().find(|other| other.name == *original).expect("what it stands for");
            // Each has the same imports; where there is a package of the same suffix, it takes that.
            let of_suffix = |import: &String| {
                let other = format!("{import}{suffix}");
                if packages.iter().any(|package| package.name == other) { other } else { import.clone() }
            };
            let expected: BTreeSet<String> = original.imports.iter().map(of_suffix).collect();
            if package.sources == original.sources && package.imports != expected {
                faults.push(format!("{name} imports {:?}, its original {expected:?}", package.imports));
            }
            continue;
        }
        let Some(row) = rows.iter().find(|row| row.name == *name) else {
            faults.push(format!("{name} has no line"));
            continue;
        };
        let imports = package.imports.iter().map(|import| plain(import));
        faults.extend(imports.filter(|import| !row.imports.contains(*import)).map(|up| format!("{name} → {up}")));
    }
    let is_gone = |row: &&Row| !packages.iter().any(|package| package.name == row.name);
    faults.extend(rows.iter().filter(is_gone).map(|row| format!("{} is no crate", row.name)));
    faults
}

/// The text of a source up to its tests, without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// The sources in a folder but tests, with the module below `crate` that each is in.
fn sources(folder: &Path) -> Vec<(String, PathBuf)> {
    let (mut found, mut todo) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(at) = todo.pop() {
        for path in fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()) {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if stem == "tests" || stem.ends_with("_tests") {
                continue;
            }
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let first = path.strip_prefix(folder).unwrap().components().next().unwrap().as_os_str();
                found.push((first.to_str().unwrap().trim_end_matches(".rs").to_string(), path));
            }
        }
    }
    found
}

/// What the sources of a crate import of its modules that is not in the picture, and what they take from other crates'
/// folders.
fn of_sources(row: &Row, package: &Package) -> Vec<String> {
    let mut faults = Vec::new();
    let sources = sources(&package.sources);
    let modules: BTreeSet<&str> = sources.iter().map(|(module, _)| module.as_str()).collect();
    faults.extend(row.modules.iter().filter(|row| !modules.contains(&*row.name)).map(|row| format!("no {}", row.name)));
    for (module, path) in &sources {
        let text = code(path);
        let shown = path.strip_prefix(root()).unwrap().display();
        if text.contains("#[path") {
            faults.push(format!("{shown} names the place of a source"));
        }
        let Some(row) = row.modules.iter().find(|row| row.name == *module) else { continue };
        for import in text.split("crate::").skip(1).flat_map(first_names) {
            if import != module && modules.contains(import) && !row.imports.contains(import) {
                faults.push(format!("{shown} → {import}"));
            }
        }
    }
    faults
}

/// The names that may stand behind `crate::`: one, or a list in braces.
fn first_names(text: &str) -> Vec<&str> {
    let name = |text: &'_ str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let Some(list) = text.strip_prefix('{') else { return vec![&text[..name(text)]] };
    let (mut depth, mut names, mut is_next) = (0, Vec::new(), true);
    for (i, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => is_next = true,
            c if is_next && c.is_alphanumeric() => {
                names.push(&list[i..][..name(&list[i..])]);
                is_next = false;
            }
            _ => {}
        }
    }
    names
}

fn faults(rows: &[Row], packages: &[Package]) -> Vec<String> {
    let mut faults = arrows_up(rows, "");
    faults.extend(of_manifests(rows, packages));
    for package in packages.iter().filter(|package| package.original().is_none()) {
        faults.extend(rows.iter().filter(|row| row.name == package.name).flat_map(|row| of_sources(row, package)));
    }
    faults
}

#[test]
fn imports_point_down() {
    assert_eq!(faults(&picture(), &packages()), [] as [String; 0]);
}

/// All that a package is built of.
fn all_below(packages: &[Package], name: &str) -> BTreeSet<String> {
    let (mut all, mut todo) = (BTreeSet::new(), vec![name.to_string()]);
    while let Some(name) = todo.pop() {
        if all.insert(name.clone()) {
            let package = packages.iter().find(|package| package.name == name).unwrap();
            todo.extend(package.imports.iter().cloned());
        }
    }
    all
}

/// A volume, mounts and the suite of calls are built without the store, by way of others too.
#[test]
fn file_systems_know_no_store() {
    let with_store = |packages: &[Package]| {
        let all = ["volume", "volume-shuttle", "volume-events", "fuse", "posix"].into_iter();
        let knows = |name: &&str| all_below(packages, name).iter().any(|below| plain(below) == "core");
        all.filter(knows).collect::<Vec<_>>()
    };
    let mut packages = packages();
    assert_eq!(with_store(&packages), [] as [&str; 0]);
    // One of those that all of them import.
    packages.iter_mut().find(|package| package.name == "vfs").unwrap().imports.insert("core".into());
    assert_eq!(with_store(&packages).len(), 5);
}

/// Each kind of fault, planted in the picture or in the manifests, is found.
#[test]
fn an_arrow_that_points_up_is_found() {
    let (rows, packages) = (picture(), packages());
    let planted = |change: &dyn Fn(&mut Vec<Row>, &mut Vec<Package>)| {
        let (mut rows, mut packages) = (rows.clone(), packages.clone());
        change(&mut rows, &mut packages);
        faults(&rows, &packages)
    };
    fn row<'a>(rows: &'a mut [Row], name: &str) -> &'a mut Row {
        rows.iter_mut().find(|row| row.name == name).unwrap()
    }
    fn package<'a>(packages: &'a mut [Package], name: &str) -> &'a mut Package {
        packages.iter_mut().find(|package| package.name == name).unwrap()
    }
    let index_knows_core = planted(&|rows, packages| {
        row(rows, "index").imports.insert("core".into());
        for index in ["index", "index-shuttle", "index-loom", "index-events"] {
            package(packages, index).imports.insert("core".into());
        }
    });
    assert!(index_knows_core.contains(&"index → core points up".to_string()), "{index_knows_core:?}");
    let not_in_the_picture = planted(&|rows, _| _ = row(rows, "index").imports.remove("sync"));
    assert_eq!(not_in_the_picture, ["index → sync"]);
    let twin_of_the_standard_library = planted(&|_, packages| {
        let imports = &mut package(packages, "index-loom").imports;
        imports.remove("sync-loom");
        imports.insert("sync".into());
    });
    assert_eq!(twin_of_the_standard_library.len(), 1, "{twin_of_the_standard_library:?}");
    let module = planted(&|rows, _| _ = row(&mut row(rows, "core").modules, "hostdir").imports.remove("site"));
    assert!(!module.is_empty() && module.iter().all(|fault| fault.ends_with(" → site")), "{module:?}");
    let upper_module = planted(&|rows, _| _ = row(&mut row(rows, "media").modules, "sys").imports.insert("sim".into()));
    assert_eq!(upper_module, ["media/sys → sim points up"]);
    assert_eq!(planted(&|rows, _| rows.retain(|row| row.name != "orders")), ["orders has no line"]);
}

#[test]
fn names_behind_a_root() {
    assert_eq!(first_names("log::{a, b};"), ["log"]);
    assert_eq!(first_names("{Error, log::{a, site}, vfs};\nuse x"), ["Error", "log", "vfs"]);
}
