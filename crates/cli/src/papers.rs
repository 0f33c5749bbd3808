//! `wholly completions` and `wholly man`, for packagers; `wholly candidates`, which completions call.

use crate::args::{CandidatesArgs, Cli, CompletionsArgs, ManArgs};
use crate::crash;
use crate::error::{Exit, Failure};
use crate::list::parked;
use crate::output::{name, print};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Asks `wholly candidates` first: it knows names that only this machine has. `_wholly_words` is what clap generates.
const BASH: &str = r#"
_wholly() {
    local words=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    local names=$(wholly candidates -- "${words[@]//[\\\"\']/}" 2>/dev/null | cut -f1)
    COMPREPLY=($(compgen -W "$names" -- "${COMP_WORDS[COMP_CWORD]}"))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || _wholly_words "$@"
}
"#;

const ZSH: &str = r#"
_wholly() {
    local -a names=("${(@f)$(wholly candidates -- "${(@Q)words[2,CURRENT-1]}" 2>/dev/null)}")
    if [[ -n $names[1] ]]; then
        names=("${(@)names//:/\\:}")
        names=("${(@)names/$'\t'/:}")
        _describe name names
    else
        _wholly_words "$@"
    fi
}
"#;

const FISH: &str = r#"
complete -c wholly -n "__fish_wholly_using_subcommand diff apply discard crash" -k \
    -a "(wholly candidates -- (commandline -opc)[2..-1] 2>/dev/null)"
"#;

/// Prints the completions for a shell.
pub fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(), "wholly", &mut script);
    let script = String::from_utf8(script).expect("its texts are ours");
    let renamed = |names: &str| {
        let (head, rest) = script.split_once("_wholly() {").expect("the function that completes");
        // What makes it known to the shell stands at the end.
        let (words, register) = rest.rsplit_once("\nif [").expect("its registration");
        format!("{head}_wholly_words() {{{words}{names}\nif [{register}")
    };
    let script = match args.shell {
        Shell::Bash => renamed(BASH),
        Shell::Zsh => renamed(ZSH),
        Shell::Fish => script + FISH,
        _ => script,
    };
    print(script.as_bytes())?;
    Ok(Exit::DONE)
}

/// The command without hidden verbs, which are not offered.
fn visible() -> Command {
    let all = Cli::command();
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("wholly").version(env!("CARGO_PKG_VERSION")).args(all.get_arguments().cloned()).subcommands(verbs)
}

/// Prints the names that may follow these words, a line each: the name, a tab, what it stands for.
pub fn candidates(args: &CandidatesArgs) -> Result<Exit, Failure> {
    let words: Vec<_> = args.words.iter().map(|word| word.to_string_lossy()).collect();
    let mut plain = words.iter().filter(|word| !word.starts_with('-'));
    let verb = plain.next().map(|verb| &**verb);
    let named: Vec<_> = plain.collect();
    let names = match (verb, named.as_slice()) {
        (Some("crash"), _) => crash::names(words.last().map(|word| &**word)),
        (Some("diff" | "discard"), [dir]) => groups(dir),
        (Some("undo"), [dir]) => undos(dir),
        // DIR ID DIR ID ...
        (Some("apply"), [.., dir]) if named.len() % 2 == 1 => groups(dir),
        _ => Vec::new(),
    };
    let lines: String = names.iter().map(|(word, about)| format!("{word}\t{}\n", name(about.as_bytes()))).collect();
    print(lines.as_bytes())?;
    Ok(Exit::DONE)
}

/// The parked groups of a store, if there is one: a shell passes the directory as it was typed.
fn groups(dir: &str) -> Vec<(String, String)> {
    let parked = parked(&as_typed(dir), "list").unwrap_or_default();
    parked.into_iter().map(|group| (group.id, group.note)).collect()
}

/// The commands that can be taken back.
fn undos(dir: &str) -> Vec<(String, String)> {
    let undos = wholly::undos(as_typed(dir)).unwrap_or_default();
    undos.into_iter().filter(|undo| undo.gone.is_none()).map(|undo| (undo.id.to_string(), undo.note)).collect()
}

fn as_typed(dir: &str) -> PathBuf {
    match (dir.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(dir),
    }
}

/// Verbs on the same matter: the page of each names those of the others.
const MATTERS: [&[&str]; 5] = [
    &["run", "list", "diff", "apply", "discard", "log", "undo"],
    &["init", "mount", "stat", "recover", "check", "salvage", "deinit", "dump"],
    &["mkfs", "mount", "tune", "fsck", "import", "export", "stat", "dump", "flash"],
    &["check", "crash"],
    &["bench", "crash"],
];

/// Pages of the system that call a verb, or that it does the work of.
const SYSTEM: [(&str, &str); 3] = [("mount", "mount(8)"), ("mkfs", "mkfs(8)"), ("fsck", "fsck(8)")];

/// Where a page refers to: the command, what makes a store and a volume, and what else is about the same. A part of a
/// verb refers to the verb, too.
fn see_also(verb: Option<&str>, is_part: bool) -> String {
    let matters = MATTERS.iter().filter(|matter| verb.is_some_and(|verb| matter.contains(&verb)));
    let others = ["init", "mkfs"].iter().chain(matters.copied().flatten()).copied();
    let others: BTreeSet<&str> = others.filter(|other| is_part || Some(*other) != verb).collect();
    let mut pages: Vec<String> = verb.map(|_| "wholly(1)".to_owned()).into_iter().collect();
    pages.extend(others.iter().map(|other| format!("wholly\\-{other}(1)")));
    pages.extend(SYSTEM.iter().filter(|(of, _)| Some(*of) == verb).map(|(_, page)| page.to_string()));
    let pages = pages.join(",\n");
    format!(
        ".SH \"SEE ALSO\"\n{pages}\n.PP\nrun.md, store.md, mount.md and volume.md, in the folder share/doc/wholly\n"
    )
}

/// Writes `wholly.1` and a page for each verb.
pub fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let what = || format!("man {}", args.dir.display());
    let failed = |error| Failure::new(what(), error).advice("the directory must exist");
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)?;
    let append = |page: &str, text: String| {
        let page = OpenOptions::new().append(true).open(args.dir.join(format!("wholly{page}.1")));
        page.and_then(|mut page| page.write_all(text.as_bytes())).map_err(failed)
    };
    append("", see_also(None, false))?;
    for command in visible().get_subcommands() {
        let verb = command.get_name();
        append(&format!("-{verb}"), see_also(Some(verb), false))?;
        for part in command.get_subcommands() {
            append(&format!("-{verb}-{}", part.get_name()), see_also(Some(verb), true))?;
        }
    }
    Ok(Exit::DONE)
}
