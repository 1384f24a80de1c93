//! What tests of several packages share.
//!
//! Owns the spelling of small meshes ([`mesh`]), the files of a controller ([`shop`]), the places of replicas
//! ([`mod@loopback`]), a port that is held for a program ([`held_port`]), a client of the discovery service
//! ([`ads`]) and its [`subscriptions`], hostile ones ([`hostile`]), a [`relay`] to a server, the reading of
//! Envoy's log ([`envoy_log`]), of the report about [`shards`] and of a process's [`memory`], an allocator
//! that counts ([`allocations`]), a document as blocks of commands ([`page`]), choices from a seed
//! ([`random`]), the fields of a [`schema`], a number from the environment ([`mod@setting`]), and the wait
//! for what is to come ([`mod@eventually`]). Asserts nothing itself. Panics where a fixture is wrong: a test
//! fails then, which is what it is for.

#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "fixtures are right, or the test fails"
)]

pub mod ads;
pub mod allocations;
pub mod envoy_log;
pub mod eventually;
pub mod held_port;
pub mod hostile;
pub mod loopback;
pub mod memory;
pub mod mesh;
pub mod page;
pub mod random;
pub mod relay;
pub mod schema;
pub mod setting;
pub mod shards;
pub mod shop;
pub mod subscriptions;
