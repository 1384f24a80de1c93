//! Fuzz targets: what strangers and tenants send, passed to the code that reads it.
//!
//! Owns the list of targets, and what each checks of a reading besides that it returns: a panic is a
//! finding, and `make fuzz` adds a bound on time and memory. [`TARGETS`] names them; each has seeds and what
//! was found to reach new code in `fuzz/corpus/NAME`, which `make test` replays.

#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a target reports a finding"
)]

mod administration;
mod certificates;
mod expressions;
mod manifests;
mod names;
mod pods;
mod reviews;
mod split;
mod xds;

/// A target of the fuzzer.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and that of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Reads an input. Panics on a finding.
    pub run: fn(&[u8]),
}

/// All targets of packages whose interfaces are public.
pub const TARGETS: &[Target] = &[
    Target { name: "xds", run: xds::run },
    Target { name: "manifests", run: manifests::run },
    Target { name: "expressions", run: expressions::run },
    Target { name: "names", run: names::run },
    Target { name: "pods", run: pods::run },
    Target { name: "certificates", run: certificates::run },
    Target { name: "reviews", run: reviews::run },
    Target { name: "administration", run: administration::run },
    // The readers of Raft are private to their package, which replays these itself.
    #[cfg(fuzzing)]
    Target { name: "raft", run: smc_raft::fuzzing::message },
    #[cfg(fuzzing)]
    Target { name: "wal", run: smc_raft::fuzzing::log },
    #[cfg(fuzzing)]
    Target { name: "backups", run: smc_raft::fuzzing::backup },
];
