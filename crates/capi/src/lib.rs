//! The C library `libwholly`: the store's Rust interface by `wholly_*` functions over opaque handles.
//!
//! What stands in the comments of exported items stands in the header, and is written for its readers;
//! `tests/all/header.rs` sees to it that `include/wholly.h` is what these sources say. What holds for all functions is
//! told once, at the header's head (`cbindgen.toml`).
//!
//! | module | holds |
//! |---|---|
//! | `answer` | from results to numbers and texts; panics end here |
//! | `arguments` | from pointers to references, with all that can be told of them |
//! | `sized` | structs that may grow in later versions |
//! | `options` | how a store is made and opened |
//! | `store`, `file`, `group`, `writer` | the functions of that handle |
//! | `names` | what groups and stores change of names |
//! | `attributes` | mode, owner, times, extended attributes |
//! | `look`, `dir` | what names name, and what names there are, as groups and stores see them |
//! | `mount` | groups of plain system calls on a mount |
//! | `compat` | the same by the calls of FCFS, as `include/wholly/compat.h` has them |
//! | `parked` | groups that are set aside |
//! | `together` | groups of several stores that survive together |
//! | `version` | which library this is |

#![warn(missing_docs)]
#![allow(non_camel_case_types, reason = "C's names")]
#![allow(clippy::missing_safety_doc, reason = "the header's head says what callers see to, once for all")]

mod answer;
mod arguments;
mod attributes;
mod compat;
mod dir;
mod file;
mod group;
mod look;
mod mount;
mod names;
mod options;
mod parked;
mod sized;
mod store;
mod together;
mod version;
mod writer;

// C programs may hand a handle from one thread to another, and share those of stores and files.
const _: () = {
    const fn moves<T: Send>() {}
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<store::wholly_store>();
    is_shared::<file::wholly_file>();
    moves::<group::wholly_group>();
    moves::<wholly::Writer>();
    is_shared::<mount::wholly_mount_group>();
    moves::<dir::wholly_dir>();
    moves::<parked::wholly_parked_list>();
    moves::<parked::wholly_review>();
};
