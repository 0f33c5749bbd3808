//! A directory of an ordinary file system.
