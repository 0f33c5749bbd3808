//! Panics as results: what a crash or a mutation made of the store must not end the explorer, nor print a page each
//! time.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs `body`; a panic in it becomes an error with its message and place.
pub fn catch<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = take_hook();
        set_hook(Box::new(move |info| {
            if QUIET.get() {
                // The first of several is the cause.
                let first = MESSAGE.take();
                MESSAGE.set(first.or_else(|| {
                    let payload = info.payload();
                    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
                    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
                    let place = info.location().map_or(String::new(), |at| format!(" ({}:{})", at.file(), at.line()));
                    Some(text + &place)
                }));
            } else {
                loud(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    MESSAGE.set(None);
    let result = catch_unwind(AssertUnwindSafe(body));
    QUIET.set(outer);
    result.map_err(|_| MESSAGE.take().unwrap_or_default())
}
