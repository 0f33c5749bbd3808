//! The measurements of Wholly.

#![warn(missing_docs)]
