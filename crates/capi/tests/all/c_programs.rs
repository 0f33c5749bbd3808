//! C and C++ programs against the installed library: what `make install` copies is found by pkg-config, compiled with
//! and run.

#[path = "../../../host/tests/no_libc/harness.rs"]
#[allow(dead_code, reason = "it also runs programs in Rust")]
mod no_libc;

use std::sync::Arc;

use crate::installed::{self, Installed, Language, Place};
use wholly::{Options, Store, StoreVfs};
use wholly_fuse::{Mount, MountOptions};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

const PROGRAMS: [&str; 11] =
    ["files", "groups", "names", "attributes", "errors", "refused", "threads", "killed", "parked", "together", FORKED];

/// The one that forks while threads run.
const FORKED: &str = "forked";

fn each_program(language: Language, flags: &[&str]) {
    these_programs(&PROGRAMS, language, flags);
}

fn these_programs(programs: &[&str], language: Language, flags: &[&str]) {
    let Some(installed) = Installed::get() else { return };
    for name in programs {
        let program = installed.compile(&format!("tests/c/{name}.c"), language, flags);
        for place in Place::on_media(name) {
            installed.run(&program, &place);
        }
    }
}

#[test]
fn programs_in_c() {
    each_program(Language::C, &[]);
}

#[test]
fn programs_in_cpp() {
    each_program(Language::Cpp, &[]);
}

/// The library itself is not instrumented: what is found is what programs and library do to each other, and handles
/// that leak. Not of the one that forks: `fork` does not take the sanitizer's own locks (GCC 12), so that a child may
/// wait for ever for one that a thread of the parent had.
#[test]
fn programs_under_sanitizers() {
    const FLAGS: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];
    let Some(installed) = Installed::get() else { return };
    if installed.can_compile(&FLAGS) {
        let programs: Vec<&str> = PROGRAMS.into_iter().filter(|name| *name != FORKED).collect();
        these_programs(&programs, Language::C, &FLAGS);
    } else {
        installed::skip("the compiler has no sanitizers");
    }
}

/// A program that has plain descriptors of a mount.
#[test]
fn groups_on_a_mount() {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile("tests/c/mounted.c", Language::C, &[]);
    let cpp = installed.compile("tests/c/mounted.c", Language::Cpp, &[]);
    for (program, [home, point]) in [(program, Place::on_media("mounted")), (cpp, Place::on_media("mounted"))] {
        Store::init(&*home, &Options::default()).unwrap();
        let store = Store::open(&*home).unwrap();
        let view = Arc::new(StoreVfs::new(&store));
        let mount = match Mount::new(view, &point, &MountOptions { syncs_on_close: true, ..MountOptions::default() }) {
            Ok(mount) => mount,
            Err(error) => return installed::skip(&format!("mount: {error}")),
        };
        let unmounter = mount.unmounter();
        let server = std::thread::spawn(move || mount.serve());
        let run = std::panic::catch_unwind(|| installed.run(&program, &point));
        unmounter.detach().unwrap();
        run.unwrap();
        server.join().unwrap().unwrap();
        store.close().unwrap();
        let content = |name| std::fs::read_to_string(home.join(name)).unwrap();
        assert_eq!([content("a"), content("dir/moved"), content("child")], ["changed", "b", "child"]);
        assert!(!home.join("never").exists());
    }
}

/// Runs a program on the mount of a volume with groups, in which these files are.
fn on_a_volume(
    engine: EngineKind,
    files: &[(&str, &str)],
    run: impl FnOnce(&Place) + std::panic::UnwindSafe,
) -> Option<Volume> {
    let [home, point] = Place::on_media("volume");
    let image = home.join("v.img");
    let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
    Volume::format(&image, 16 << 20, &options).unwrap();
    let volume = Volume::open(&image, &options).unwrap();
    for (name, content) in files {
        volume.create_file(name, 0o644).unwrap().write_at(0, content.as_bytes()).unwrap();
    }
    let mount = match Mount::new(Arc::new(VolumeVfs::new(&volume)), &point, &MountOptions::default()) {
        Ok(mount) => mount,
        Err(error) => {
            installed::skip(&format!("mount: {error}"));
            return None;
        }
    };
    let unmounter = mount.unmounter();
    let server = std::thread::spawn(move || mount.serve());
    let ran = std::panic::catch_unwind(|| run(&point));
    unmounter.detach().unwrap();
    ran.unwrap();
    server.join().unwrap().unwrap();
    Some(volume)
}

fn content_of(volume: &Volume, name: &str) -> String {
    let mut bytes = vec![0; volume.metadata(name).unwrap().size as usize];
    volume.open_file(name).unwrap().read_at(0, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// FCFS's calls, and their errors.
#[test]
fn transactions_by_number() {
    let Some(installed) = Installed::get() else { return };
    for language in [Language::C, Language::Cpp] {
        let program = installed.compile("tests/c/transactions.c", language, &[]);
        let files = [("one", "1"), ("two", "2")];
        let Some(volume) = on_a_volume(EngineKind::FineGrainedWal, &files, |point| _ = installed.run(&program, point))
        else {
            return;
        };
        assert_eq!([content_of(&volume, "one"), content_of(&volume, "two")], ["new", "two"]);
    }
}

/// Figure 1 of FCFS, as the page of volumes has it, by the command that stands there.
#[test]
fn the_program_of_the_papers_figure_runs() {
    let Some(installed) = Installed::get() else { return };
    let page = include_str!("../../../../docs/volume.md");
    let example = page.split("```c\n").nth(1).expect("the page has C").split("```").next().expect("it ends");
    let command = page.lines().find_map(|line| line.strip_prefix("    cc ")).expect("how it is compiled");
    let [scratch, _] = Place::on_media("figure");
    let files = [("file1", "-----old"), ("file2", "-----")];
    let volume = on_a_volume(EngineKind::FineGrainedWal, &files, |point| {
        std::fs::write(scratch.join("figure1.c"), example.replace("/mnt", point.to_str().unwrap())).unwrap();
        installed.shell(&format!("cc -Wall -Wextra -Werror {command}"), &scratch);
        installed.run(&scratch.join("figure1"), point);
    });
    let Some(volume) = volume else { return };
    assert_eq!([content_of(&volume, "file1"), content_of(&volume, "file2")], ["data1old", "data2"]);
    // On no mount there is no transaction, and nothing is written.
    files.iter().for_each(|(name, content)| std::fs::write(scratch.join(name), content).unwrap());
    std::fs::write(scratch.join("figure1.c"), example.replace("/mnt", scratch.to_str().unwrap())).unwrap();
    installed.shell(&format!("cc -Wall -Wextra -Werror {command}"), &scratch);
    let said = installed.fails(&scratch.join("figure1"), &scratch);
    assert!(said.contains("tx_begin: Operation not supported"), "{said}");
    files.iter().for_each(|(name, content)| assert_eq!(std::fs::read_to_string(scratch.join(name)).unwrap(), *content));
}

/// The example of `fatomic`, as the page of mounts has it.
#[test]
fn the_example_of_fatomic_runs() {
    let Some(installed) = Installed::get() else { return };
    let page = include_str!("../../../../docs/mount.md");
    let example = page.split("```c\n").nth(1).expect("the page has C").split("```").next().expect("it ends");
    let [scratch, _] = Place::on_media("fatomic");
    let volume = on_a_volume(EngineKind::PageCacheWal, &[("index", "old\n"), ("part", "")], |point| {
        let source = scratch.join("fatomic.c");
        std::fs::write(&source, example.replace("/mnt", point.to_str().unwrap())).unwrap();
        let program = installed.compile(source.to_str().unwrap(), Language::C, &[]);
        installed.run(&program, point);
    });
    let Some(volume) = volume else { return };
    assert_eq!([content_of(&volume, "part"), content_of(&volume, "index")], ["Hello SOSP", "part: 10 bytes\n"]);
    assert!(volume.metadata("index.new").is_err());
}

#[test]
fn the_example_moves_money() {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile("examples/transfer.c", Language::C, &[]);
    for place in Place::on_media("transfer") {
        std::fs::write(place.join("alice"), "balance 100\n").unwrap();
        std::fs::write(place.join("bob"), "balance 100\n").unwrap();
        installed.run(&program, &place);
        let content = |name| std::fs::read_to_string(place.join(name)).unwrap();
        assert_eq!([content("alice"), content("bob")], ["balance  70\n", "balance 130\n"]);
        assert_eq!(content("receipt"), "alice gave bob 30\n");
        // The second time there is a receipt already, and so nothing happens at all.
        std::fs::write(place.join("alice"), "balance 100\n").unwrap();
        let said = installed.fails(&program, &place);
        assert!(said.contains("file exists: receipt"), "{said}");
        assert_eq!(content("alice"), "balance 100\n");
    }
}

/// In a fresh directory, and once more in the same one.
#[test]
fn the_readmes_example_runs_twice() {
    let Some(installed) = Installed::get() else { return };
    let readme = include_str!("../../../../README.md");
    let example = readme.split("```c\n").nth(1).expect("README has C").split("```").next().expect("it ends");
    let source = installed.scratch("readme.c");
    std::fs::write(&source, example).unwrap();
    let program = installed.compile(source.to_str().unwrap(), Language::C, &[]);
    for place in Place::on_media("readme") {
        for _ in 0..2 {
            installed.run_with(&program, &place, |command| _ = command.current_dir(&*place));
            let content = |name| std::fs::read_to_string(place.join("accounts").join(name)).unwrap();
            assert_eq!([content("alice"), content("bob")], ["balance  70\n", "balance 130\n"]);
            assert_eq!(content("receipt"), "alice gave bob 30\n");
        }
    }
}

/// By the command that stands there.
#[test]
fn the_tutorials_example_is_compiled_and_runs() {
    let Some(installed) = Installed::get() else { return };
    let page = include_str!("../../../../docs/tutorial.md");
    let example = page.split("```c\n").nth(1).expect("the tutorial has C").split("```").next().expect("it ends");
    let command = page.lines().find_map(|line| line.strip_prefix("    cc ")).expect("how it is compiled");
    for place in Place::on_media("tutorial") {
        std::fs::write(place.join("notes.c"), example).unwrap();
        installed.shell(&format!("cc -Wall -Wextra -Werror {command}"), &place);
        for lines in 1..=2 {
            installed.run_with(&place.join("notes-c"), &place, |command| _ = command.current_dir(&*place));
            let content = |name| std::fs::read_to_string(place.join("notes").join(name)).unwrap();
            assert_eq!([content("notes"), content("index")].map(|text| text.lines().count()), [lines, lines]);
        }
        assert_eq!(std::fs::read_to_string(place.join("notes/index")).unwrap(), "note at byte 0\nnote at byte 10\n");
    }
}

/// The library alone: of the system's, static ones may not be there.
#[test]
fn the_static_library_links() {
    let Some(installed) = Installed::get() else { return };
    let program = installed.compile_static("tests/c/groups.c");
    for place in Place::on_media("static") {
        installed.run(&program, &place);
    }
}

/// As the page of installation has it: with the shared library, and with everything in the program.
#[test]
fn programs_link_both_ways_by_the_lines_of_the_page() {
    let Some(installed) = Installed::get() else { return };
    let page = include_str!("../../../../docs/install.md");
    let readme = include_str!("../../../../README.md");
    let example = readme.split("```c\n").nth(1).expect("README has C").split("```").next().expect("it ends");
    let lines: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("    cc ")).collect();
    assert_eq!(lines.iter().map(|line| line.contains("-static ")).collect::<Vec<_>>(), [false, true], "{lines:?}");
    for line in lines {
        if line.contains("-static ") && !installed.can_compile(&["-static"]) {
            return installed::skip("there is no static libc");
        }
        let [_, place] = Place::on_media("linked");
        std::fs::write(place.join("program.c"), example).unwrap();
        installed.shell(&format!("cc {line}"), &place);
        let program = place.join("a.out");
        let dynamic = installed.output("readelf", &["-d", program.to_str().unwrap()]);
        assert_eq!(dynamic.contains("[libwholly.so.0]"), !line.contains("-static "), "{line}: {dynamic}");
        installed.run_with(&program, &place, |command| _ = command.current_dir(&*place));
        assert_eq!(std::fs::read_to_string(place.join("accounts/receipt")).unwrap(), "alice gave bob 30\n");
    }
}

/// Programs see `wholly_*` and nothing else, and ask for the interface by its number.
#[test]
fn what_the_library_exports() {
    let Some(installed) = Installed::get() else { return };
    let library = installed.library();
    let symbols = installed.output("nm", &["-D", "--defined-only", "--format=posix", &library]);
    let mut exported: Vec<_> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    exported.sort();
    let header = include_str!("../../include/wholly.h");
    let declares = |line: &str| Some(line[..line.find('(')?].rsplit([' ', '*']).next()?.to_owned());
    let code = header.lines().filter(|line| !line.starts_with(" *") && !line.starts_with(' '));
    let mut declared: Vec<_> = code.filter_map(declares).filter(|name| name.starts_with("wholly_")).collect();
    declared.sort();
    assert_eq!(exported, declared);

    let dynamic = installed.output("readelf", &["-d", &library]);
    assert!(dynamic.contains("Library soname: [libwholly.so.0]"), "{dynamic}");
    let program = installed.compile("tests/c/files.c", Language::C, &[]);
    let dynamic = installed.output("readelf", &["-d", program.to_str().unwrap()]);
    assert!(dynamic.contains("Shared library: [libwholly.so.0]"), "{dynamic}");
}

/// Since the preload library, which replaces libc's file functions, is made of the same.
#[test]
fn it_makes_no_file_call_through_libc() {
    let Some(installed) = Installed::get() else { return };
    let interposer = no_libc::build_interposer(&installed.scratch("."));
    let program = installed.compile("tests/c/watched.c", Language::C, &[]);
    for place in Place::on_media("watched") {
        let said = installed.run_with(&program, &place, |command| {
            command.env("LD_PRELOAD", &interposer);
        });
        assert!(said.contains("watched: no file call through libc"), "the program did not look:\n{said}");
    }
}
