//! What gets in from outside of the mesh, as messages of the administration API.
//!
//! Owns the reading of the questions. [`smc_mesh::policy`] judges.

use std::collections::BTreeSet;
use std::net::IpAddr;

use smc_authority::ledger::MAX_NAMES;
use smc_mesh::catalog::Catalog;
use smc_mesh::policy::{DENIED, IngressAttempt, IngressCheck};
use smc_model::inbound_intent::HttpAccess;
use smc_model::ingress::IngressTransport;
use smc_proto::admin::v1 as pb;
use smc_types::ids::{ServiceId, WorkloadId};
use tonic::Status;

use super::policy_report::http_match;
use super::service::invalid;

/// From where a connection comes.
enum Source {
    Service(ServiceId),
    Address(IpAddr),
}

/// A question whether a connection gets in.
pub(super) struct Question {
    workload: WorkloadId,
    source: Source,
    attempt: IngressAttempt,
}

impl TryFrom<pb::VerifyIngressRequest> for Question {
    type Error = Status;

    fn try_from(request: pb::VerifyIngressRequest) -> Result<Self, Status> {
        let pb::VerifyIngressRequest {
            workload,
            port,
            source_service,
            source_address,
            tls,
            certificate_names,
            server_name,
        } = request;
        let source = match (source_service.as_str(), source_address.as_str()) {
            ("", "") => return Err(Status::invalid_argument("no source is named")),
            (service, "") => Source::Service(service.parse().map_err(|error| invalid(&error))?),
            ("", address) => Source::Address(address.parse().map_err(|error| invalid(&error))?),
            _ => return Err(Status::invalid_argument("two sources are named")),
        };
        let port = u16::try_from(port).ok().filter(|port| *port > 0);
        let names: BTreeSet<_> = certificate_names.into_iter().take(MAX_NAMES).collect();
        let attempt = IngressAttempt {
            port: port.ok_or_else(|| Status::invalid_argument("the port is none from 1 to 65535"))?,
            from: BTreeSet::new(),
            transport: if tls { IngressTransport::Tls } else { IngressTransport::ClearText },
            certificate: Some(names).filter(|names| !names.is_empty()),
            server_name: Some(server_name).filter(|name| !name.is_empty()),
        };
        Ok(Self { workload: workload.parse().map_err(|error| invalid(&error))?, source, attempt })
    }
}

/// The answer; `None` if the workload is not known.
pub(super) fn verified(catalog: &Catalog, question: Question) -> Option<pb::VerifyIngressResponse> {
    let Question { workload, source, mut attempt } = question;
    catalog.workload(&workload)?;
    let obstacle = |seen_as: &str, reason: String| pb::VerifyIngressResponse {
        obstacles: vec![pb::IngressObstacle { seen_as: seen_as.to_owned(), reason }],
        ..pb::VerifyIngressResponse::default()
    };
    match source {
        Source::Address(address) => attempt.from = [address].into(),
        Source::Service(service) => {
            attempt.from = catalog.ingress_source(&service);
            if attempt.from.is_empty() {
                let namespace = service.namespace();
                let reason = format!(
                    "Service {service} has no endpoints that the mesh knows: it has none, or its namespace is in no mesh \
                     (smc namespace add {namespace} --disable-sidecar-injection)"
                );
                return Some(obstacle(DENIED, reason));
            }
        }
    }
    let Some(check) = catalog.check_ingress(&workload, &attempt) else {
        let reason = format!("{workload} has no sidecar of the mesh: no IngressBackend concerns it");
        return Some(obstacle("what the application answers", reason));
    };
    Some(answer(&check))
}

fn answer(check: &IngressCheck) -> pb::VerifyIngressResponse {
    let requests = |http: &HttpAccess| match http {
        HttpAccess::Any => Vec::new(),
        HttpAccess::Only(routes) => routes.iter().map(http_match).collect(),
    };
    let admissions = check.admitted.iter().map(|(backend, http)| pb::IngressAdmission {
        backend: backend.to_string(),
        requests: requests(http),
    });
    let obstacles = check.obstacles.iter().map(|obstacle| pb::IngressObstacle {
        seen_as: obstacle.seen_as().to_owned(),
        reason: obstacle.to_string(),
    });
    pb::VerifyIngressResponse { admissions: admissions.collect(), obstacles: obstacles.collect() }
}

/// The requests that get in to a service, by host; `None` if it is not known.
pub(super) fn routes_per_host(
    catalog: &Catalog,
    service: &ServiceId,
) -> Option<pb::GetIngressRoutesPerHostResponse> {
    catalog.service(service)?;
    let hosts = catalog
        .ingress_routes_per_host(service)
        .into_iter()
        .map(|(host, routes)| pb::IngressHost { host, routes: routes.iter().map(http_match).collect() });
    Some(pb::GetIngressRoutesPerHostResponse { hosts: hosts.collect() })
}
