//! The administration of one replica: what the `smc` subcommands ask, over a unix socket.
//!
//! Owns the socket, and the answers as `proto/smc/admin/v1/admin.proto` describes them. Whoever may open the
//! socket (mode 0600) may ask for anything, a proxy certificate included: there is no other check.

mod backup;
pub mod client;
mod report;
mod service;
mod socket;

pub use service::{AdminService, Administration};
pub use socket::SocketError;
pub(crate) use socket::{AdminSocket, serve};
