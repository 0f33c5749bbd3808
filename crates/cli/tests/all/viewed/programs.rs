//! Real programs as one group: each is compared with the same program in an ordinary directory, is made to fail at its
//! end, and is struck at random moments. What is left is what the program makes, or what was there before; nothing
//! between, and nothing else.

use super::common::is_long;
use super::common::programs::{self, Program};
use super::common::proof;

fn wholly_or_not_at_all(program: &'static Program) {
    proof::wholly_or_not_at_all(program, if is_long() { 12 } else { 1 });
}

#[test]
fn make_install() {
    wholly_or_not_at_all(&programs::PACKAGE);
}

#[test]
fn tar() {
    wholly_or_not_at_all(&programs::TAR);
}

#[test]
fn sed() {
    wholly_or_not_at_all(&programs::SED);
}

#[test]
fn git() {
    wholly_or_not_at_all(&programs::GIT);
}

#[test]
fn a_static_program() {
    wholly_or_not_at_all(&programs::STATIC);
}

#[test]
fn a_program_in_go() {
    wholly_or_not_at_all(&programs::GO);
}

#[test]
fn vim() {
    wholly_or_not_at_all(&programs::VIM);
}

#[test]
fn python() {
    wholly_or_not_at_all(&programs::PYTHON);
}

#[test]
fn a_shell_with_jobs() {
    wholly_or_not_at_all(&programs::SHELL);
}

#[test]
fn make() {
    wholly_or_not_at_all(&programs::MAKE);
}

#[test]
fn rsync() {
    wholly_or_not_at_all(&programs::RSYNC);
}

#[test]
fn cp_of_special_files() {
    wholly_or_not_at_all(&programs::CP);
}
