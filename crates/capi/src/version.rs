//! Which library this is.

use std::ffi::{CStr, c_char};

/// The version of this header: WHOLLY_VERSION_MAJOR.WHOLLY_VERSION_MINOR.WHOLLY_VERSION_PATCH. The library that the
/// program runs with may be another one: see wholly_version.
pub const WHOLLY_VERSION_MAJOR: u32 = 0;
/// See WHOLLY_VERSION_MAJOR.
pub const WHOLLY_VERSION_MINOR: u32 = 1;
/// See WHOLLY_VERSION_MAJOR.
pub const WHOLLY_VERSION_PATCH: u32 = 0;

const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!(),
};

/// Returns the version of the library that the program runs with, such as "0.1.0". The text is always valid.
#[unsafe(no_mangle)]
pub extern "C" fn wholly_version() -> *const c_char {
    TEXT.as_ptr()
}

/// Returns the version of the library that the program runs with as a number: major * 1000000 + minor * 1000 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn wholly_version_number() -> u32 {
    WHOLLY_VERSION_MAJOR * 1_000_000 + WHOLLY_VERSION_MINOR * 1000 + WHOLLY_VERSION_PATCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_of_the_packages_version() {
        let header = format!("{WHOLLY_VERSION_MAJOR}.{WHOLLY_VERSION_MINOR}.{WHOLLY_VERSION_PATCH}");
        assert_eq!(header, TEXT.to_str().unwrap());
    }
}
