//! A file or block device of today's disks.
