//! Tests of the measurements: what is counted is right, and each suite runs. No verdict depends on time.

mod fcfs;
mod harness;
mod minl2r;
