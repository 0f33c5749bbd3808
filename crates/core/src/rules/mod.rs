//! Rules of Linux that a store and a volume share. Nothing here knows where attributes are kept.
//!
//! | file | idea |
//! |---|---|
//! | `acl.rs` | access control lists |
//! | `permit.rs` | permission bits |
//! | `set_id.rs` | when set-user-id and set-group-id go |
//! | `xattr.rs` | names of extended attributes, and who may see them |

#![allow(missing_docs, reason = "for the volume's crate only")]

pub mod acl;
pub mod permit;
pub mod set_id;
pub mod xattr;
