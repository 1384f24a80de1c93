//! The translation of the mesh to Envoy's configuration: listeners, routes, clusters, endpoints, secrets.
//!
//! Owns every Envoy message that SMC makes, one file for each xDS type, and the [`Compiler`] that
//! keeps them up to date. [`crate::policy`] decides access, [`smc_xds::session`] speaks the xDS
//! protocol. Equal meshes give equal bytes, whatever the order of events.
//!
//! ```text
//! listener ──► route ──► cluster ──► endpoint          outbound: the services that an identity may call
//!     └─────────────────────┴──► secret               inbound:  the ports of the application
//! ```
//!
//! Design:
//! - The destination address selects the service. No host name is matched on the outbound side.
//! - Both ends authenticate: a client accepts only the identities behind the service that it
//!   called, a server only identities of the mesh. The server decides what they may do.
//! - A connection without a matching rule is closed or refused. It passes through only if egress is on.

mod access_log;
mod affinity;
mod allotment;
mod cluster;
mod compiler;
mod connection_limit;
mod differences;
mod draft;
mod egress;
mod endpoint;
mod endpoints;
mod external_authorization;
mod http_match;
mod inbound;
mod intern;
mod listener;
mod liveness;
mod log_records;
mod messages;
mod ordered_struct;
mod outbound;
mod proto;
mod provenance;
mod rate_limit;
mod rbac;
mod reports;
mod request_metrics;
mod retry;
mod route;
mod secret;
mod settings;
mod tls;
mod tracing;

pub use compiler::{Compiler, Input};
pub use settings::{MAX_REQUEST_RETRIES, REQUEST_RETRIES, STREAM_DURATION, Settings};
pub use smc_authority::pki::{ServiceCertificate, TrustBundle};
