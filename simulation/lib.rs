//! The real controller in a simulated world: several replicas in one thread, on turmoil's network and clock, with disks in
//! memory and randomness from a seed. The same seed gives the same run, to the message.
//!
//! Owns that world: the [`network`], the [`clock`], the [`mesh`] that is declared in it, model [`envoy`]s, and the
//! [`trace`] of what happened, down to its [`packets`]. Refuses to model the controller: what runs is [`smc::server::Server`].
//!
//! Not in the seed's hands are private keys and signatures, which the cryptographic library draws by itself. Nothing in a
//! trace may depend on them.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a simulation that cannot be set up has to end, with the reason"
)]

#[cfg(not(tokio_unstable))]
compile_error!(
    "turmoil seeds tokio only with `--cfg tokio_unstable`; RUSTFLAGS took the place of .cargo/config.toml"
);

pub mod clock;
pub mod envoy;
pub mod mesh;
pub mod network;
pub mod packets;
pub mod replica;
pub mod trace;
