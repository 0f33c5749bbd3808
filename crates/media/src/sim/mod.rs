//! Media in memory, recorded, yielding crash images.
