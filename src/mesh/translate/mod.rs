//! From the mesh to what each Envoy is told: listeners, routes, clusters, endpoints, secrets.
//!
//! Owns every Envoy message that SMC makes, one file for each xDS type, and the [`Compiler`] that keeps
//! them up to date change by change. Refuses to decide policy ([`crate::policy`]) and to speak the xDS
//! protocol ([`crate::session`]). Equal meshes give equal bytes, whatever the order of events.
//!
//! ```text
//! listener ──► route ──► cluster ──► endpoint          outbound: what a reach may call
//!     └─────────────────────┴──► secret               inbound:  what a class's application offers
//! ```
//!
//! Choices that hold throughout:
//! - The address that was dialled tells the service; no host name is looked at on the way out.
//! - Both ends authenticate: a client accepts only the identities behind the service that it called, a
//!   server only identities of the mesh, and what they may do is decided at the server.
//! - What has no answer is closed or refused, never passed through, unless egress is switched on.

mod access_log;
mod cluster;
mod compiler;
mod draft;
mod endpoint;
mod endpoints;
mod http_match;
mod inbound;
mod intern;
mod listener;
pub mod names;
mod outbound;
mod proto;
mod rbac;
mod route;
mod secret;
mod settings;
mod tls;

pub use crate::pki::{ServiceCertificate, TrustBundle};
pub use compiler::{Compiler, Input};
pub use settings::Settings;
