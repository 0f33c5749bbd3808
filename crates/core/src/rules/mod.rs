//! Rules of Linux that a store and a volume share: permissions and access control lists. Nothing here knows where
//! attributes are kept.

pub mod acl;
pub mod permit;
