//! For programs that run under `interposer.c`: how many of libc's file functions were called.
//!
//! Included by `#[path]` into the programs that are watched, in whatever crate.

use std::ffi::{CStr, c_char, c_void};

/// `wholly_calls` of the interposer.
type Calls = unsafe extern "C" fn(names: *mut c_char, size: usize) -> usize;

/// The interposer's counter.
pub struct Watch {
    calls: Calls,
}

impl Watch {
    /// `None` where the interposer is not preloaded.
    pub fn find() -> Option<Watch> {
        unsafe extern "C" {
            fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
        }
        // SAFETY: dlsym(RTLD_DEFAULT, name) with a string that ends in zero.
        let found = unsafe { dlsym(std::ptr::null_mut(), c"wholly_calls".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: only `interposer.c` defines the name, with this signature.
        Some(Watch { calls: unsafe { std::mem::transmute::<*mut c_void, Calls>(found) } })
    }

    /// How many calls there were since the last time, and their names.
    pub fn calls(&self) -> (usize, String) {
        let mut names = [0u8; 4096];
        // SAFETY: the function writes at most `size` bytes, the last of them zero.
        let calls = unsafe { (self.calls)(names.as_mut_ptr().cast(), names.len()) };
        let names = CStr::from_bytes_until_nul(&names).expect("ends in zero").to_string_lossy();
        (calls, names.into_owned())
    }

    /// Does `work` and panics if it made a file call through libc.
    pub fn none_during<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        self.calls();
        let result = work();
        let (calls, names) = self.calls();
        assert!(calls == 0, "{what}: {calls} file calls through libc: {names}");
        result
    }

    /// Panics unless the interposer sees what it should: a call of std's that is known to go through libc.
    pub fn prove_that_it_sees(&self) {
        self.calls();
        drop(std::fs::File::open("/dev/null").expect("open /dev/null"));
        let (calls, names) = self.calls();
        assert!(calls >= 2 && names.contains("open") && names.contains("close"), "blind: {calls} calls: {names}");
    }
}
