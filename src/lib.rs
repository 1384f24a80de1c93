//! The shell of SMC: everything that does I/O, around the pure core in `smc-mesh`.

pub mod ca;
pub mod env;
