//! Persistent memory: real (DAX) or emulated.
