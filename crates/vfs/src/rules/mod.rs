//! Rules of Linux that a store and a volume share. Nothing here knows where attributes are kept.
//!
//! | file | idea |
//! |---|---|
//! | `acl.rs` | access control lists |
//! | `attributes.rs` | mode, owner and times |
//! | `names.rs` | names, and what may have one |
//! | `permit.rs` | permission bits |
//! | `set_id.rs` | when set-user-id and set-group-id go |
//! | `xattr.rs` | names of extended attributes, and who may see them |

#![allow(missing_docs, reason = "for the crates of stores and volumes only")]

pub mod acl;
pub mod attributes;
pub mod names;
pub mod permit;
pub mod set_id;
pub mod xattr;

/// The type bits of a mode.
pub const TYPE: u32 = 0o170_000;
pub const REGULAR: u32 = 0o100_000;
pub const DIRECTORY: u32 = 0o040_000;
pub const SYMLINK: u32 = 0o120_000;
/// The bits of a mode that a call can change.
pub const PERMISSIONS: u32 = 0o7777;
