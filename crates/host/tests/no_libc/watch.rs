//! For programs that run under `interposer.c`: how many of libc's file functions were called.
//!
//! Included by `#[path]` into the programs that are watched, in whatever crate.

use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};

use wholly_host::HostMedium;

/// `wholly_calls` of the interposer.
type Calls = unsafe extern "C" fn(names: *mut c_char, size: usize) -> usize;

/// The whole program: does `work` on each of these media, in a new and prepared directory at each of these places, and,
/// where the interposer is preloaded, panics if it made a file call through libc.
pub fn run(
    name: &str,
    places: impl IntoIterator<Item = (PathBuf, HostMedium)>,
    prepare: impl Fn(&Path),
    work: impl Fn(&Path, HostMedium),
) {
    let watch = Watch::find();
    if let Some(watch) = &watch {
        watch.prove_that_it_sees();
    }
    for (place, medium) in places {
        let path = place.join(format!("wholly-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("make a directory");
        prepare(&path);
        match &watch {
            Some(watch) => watch.none_during(&format!("{medium:?} in {}", place.display()), || work(&path, medium)),
            None => work(&path, medium),
        }
        std::fs::remove_dir_all(&path).expect("remove the directory");
    }
    match watch {
        Some(_) => println!("watched: no file call through libc"),
        None => println!("not watched: the interposer is not preloaded"),
    }
}

/// The interposer's counter.
struct Watch {
    calls: Calls,
}

impl Watch {
    /// `None` where the interposer is not preloaded.
    fn find() -> Option<Watch> {
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
    fn calls(&self) -> (usize, String) {
        let mut names = [0u8; 4096];
        // SAFETY: the function writes at most `size` bytes, the last of them zero.
        let calls = unsafe { (self.calls)(names.as_mut_ptr().cast(), names.len()) };
        let names = CStr::from_bytes_until_nul(&names).expect("ends in zero").to_string_lossy();
        (calls, names.into_owned())
    }

    /// Does `work` and panics if it made a file call through libc.
    fn none_during<T>(&self, what: &str, work: impl FnOnce() -> T) -> T {
        self.calls();
        let result = work();
        let (calls, names) = self.calls();
        assert!(calls == 0, "{what}: {calls} file calls through libc: {names}");
        result
    }

    /// Panics unless the interposer sees what it should: a call of std's that is known to go through libc.
    fn prove_that_it_sees(&self) {
        self.calls();
        drop(std::fs::File::open("/dev/null").expect("open /dev/null"));
        let (calls, names) = self.calls();
        assert!(calls >= 2 && names.contains("open") && names.contains("close"), "blind: {calls} calls: {names}");
    }
}
