//! The real controller in a simulation: several replicas in one thread, on turmoil's network and clock, with
//! disks in memory and randomness from a seed. The same seed gives the same run, down to each message.
//!
//! Owns the [`world`]: the [`network`], the [`clock`], [`replica`]s that run [`smc_server::Server`], model
//! [`envoy`]s, the [`mesh`] that is declared, which replicas get at once or read over HTTP from
//! [`api_server`]s, each a [`model_api`], and the [`trace`] of a run, down to its [`packets`]. The
//! [`workload`] and the [`faults`] act on it; the [`oracle`] says what must hold.
//!
//! What TLS draws for itself does not follow from the seed: the cryptographic library uses its own
//! randomness. It has the same length in each run, and so has each packet. The keys of certificates follow
//! from the seed.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a simulation that cannot be set up has to end, with the reason"
)]

#[cfg(not(tokio_unstable))]
compile_error!(
    "turmoil seeds tokio only with `--cfg tokio_unstable`; RUSTFLAGS took the place of .cargo/config.toml"
);

pub mod api_server;
pub mod clock;
mod entropy;
pub mod envoy;
pub mod faults;
pub mod mesh;
pub mod model_api;
pub mod network;
pub mod oracle;
pub mod packets;
pub mod replica;
mod system_clock;
pub mod trace;
pub mod workload;
pub mod world;
