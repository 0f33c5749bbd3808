//! The driver and the model beside QEMU's controller.

mod as_real;
mod common;
mod fixtures;
mod journal;
mod qemu;
