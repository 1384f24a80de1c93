//! The administration API of one replica: gRPC over a unix socket, for the `smc` subcommands.
//!
//! Owns the socket and the service of `proto/smc/admin/v1/admin.proto`. File permissions (mode 0600) are the
//! only access control: a process that may open the socket may make every call, which includes issuing a
//! proxy certificate.

mod backup;
pub mod client;
mod egress_report;
mod ingress_report;
mod policy_report;
mod report;
mod service;
mod shards;
mod socket;
mod starting;

pub use service::{AdminService, Administration};
pub(crate) use socket::AdminSocket;
pub use socket::SocketError;
pub use starting::StartingAdmin;

use smc_host::tasks::Tasks;
use smc_proto::admin::v1::admin_client::AdminClient;
use smc_proto::admin::v1::admin_server::AdminServer;

/// Starts the administration, on `socket` if there is one. Returns a client within the process.
pub(crate) fn start(service: AdminService, socket: Option<AdminSocket>, tasks: &mut Tasks) -> Administration {
    let service = AdminServer::new(service);
    let client = AdminClient::new(service.clone());
    if let Some(socket) = socket {
        tasks.spawn_fallible("administration", |stopping| socket::serve(socket, service, stopping));
    }
    client
}
