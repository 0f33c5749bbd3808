//! Tests of what reaches the host.

mod no_libc_file_calls;
