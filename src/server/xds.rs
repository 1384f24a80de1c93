//! The xDS server: the thin shell around [`smc_xds::session`].
//!
//! ```text
//! acceptor → connection (TLS, HTTP/2) → service (which RPC) → stream (the driver) ⇄ mesh::session
//!                    ↕ proxies (open connections, streams)        ↑ served states
//! ```
//!
//! Owns sockets, streams and their bounds. Rules are elsewhere: [`smc_authority::rules`] decides who is
//! admitted, [`smc_xds::connections`] which connections stay, the session what is sent.

mod acceptor;
mod codec;
mod connection;
pub(crate) mod context;
mod end_reason;
pub mod open_stream;
mod overhead;
pub mod proxies;
mod rate_limit;
mod reconnects;
mod request_body;
mod service;
mod stream;

use std::sync::Arc;

use smc_host::network::Bound;
use smc_host::tasks::Tasks;
use smc_issuing::tls::ServerTls;
use tokio_util::sync::CancellationToken;

use context::Context;

/// Starts the server. It accepts connections from when the sources have synced until the context is
/// draining, and closes them at `closing`.
pub(crate) fn start(
    port: Box<dyn Bound>,
    tls: Arc<ServerTls>,
    context: Context,
    closing: CancellationToken,
    tasks: &mut Tasks,
) {
    let draining = context.draining.clone();
    let handling = Arc::new(connection::Handling::new(tls, context));
    tasks.spawn("xDS", |_| acceptor::run(port, handling, draining, closing));
}
