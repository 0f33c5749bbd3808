//! The suite `mqfs`.

mod counts;
mod device;
mod ordinary;
mod systems;
#[cfg(test)]
mod tests;
