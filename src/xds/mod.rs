//! The xDS server: the thin shell around [`smc_mesh::session`].
//!
//! ```text
//! acceptor → connection (TLS, HTTP/2) → service (which RPC) → stream (the driver) ⇄ mesh::session
//!                    ↕ proxies (who is here)                       ↑ worlds
//! ```
//!
//! Owns sockets, streams and their bounds. Refuses to decide: who is admitted is [`smc_mesh::pki`]'s, what is kept is
//! [`smc_mesh::connections`]'s, what is sent is the session's, what there is to send is the world's.

pub(crate) mod acceptor;
mod admission;
mod codec;
pub(crate) mod connection;
mod ending;
pub mod open_stream;
mod pace;
pub mod proxies;
pub(crate) mod service;
pub(crate) mod stream;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock. A panic elsewhere while it was held leaves plain data behind, which is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
