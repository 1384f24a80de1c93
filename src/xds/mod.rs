//! The xDS server: the thin shell around [`smc_mesh::session`].
//!
//! ```text
//! acceptor → connection (TLS, HTTP/2) → service (which RPC) → stream (the driver) ⇄ mesh::session
//!                                                                  ↑ worlds          ↕ proxies (who is here)
//! ```
//!
//! Owns sockets, streams and their bounds. Refuses to decide: who is admitted is [`smc_mesh::pki`]'s, what is
//! sent is the session's, what there is to send is the world's.

pub(crate) mod acceptor;
mod admission;
mod codec;
pub(crate) mod connection;
mod ending;
mod pace;
pub mod proxies;
pub(crate) mod service;
pub(crate) mod stream;
