//! Domain values as messages of the administration API.
//!
//! Owns plain conversions, without lookups: the caller passes all that a message needs.

use std::collections::BTreeSet;

use smc_authority::ledger::{ProxyCertificateRecord, ProxyCertificateState};
use smc_authority::pki::{SerialNumber, TrustBundle, Validity};
use smc_issuing::{
    AuthorityStatus, CaState, CaStatus, ClockError, Introduction, Issued, IssuedKind, RootRotation,
};
use smc_mesh::catalog::{Catalog, Endpoint};
use smc_proto::admin::v1 as pb;
use smc_raft::{Group, Member, ReplicatedLedger};
use smc_types::ids::{ProxyName, ServiceAccountId, WorkloadId};
use smc_types::problem::{Problem, Severity};
use smc_xds::session::{Scope, TypeStatus, Variant};

use crate::xds::open_stream::{OpenStream, StreamReport};

/// One proxy according to the ledger, the catalog and the open streams.
#[derive(Default)]
pub(super) struct ProxyFacts {
    pub(super) certificates: Vec<pb::ProxyCertificate>,
    pub(super) known: Option<(WorkloadId, ServiceAccountId)>,
    pub(super) streams: Vec<pb::Stream>,
}

impl ProxyFacts {
    pub(super) fn proxy(mut self, name: &ProxyName) -> pb::Proxy {
        self.certificates.sort_by(|a, b| (a.issued_at, &a.serial).cmp(&(b.issued_at, &b.serial)));
        let issued = self.certificates.iter().any(|c| c.state() != pb::CertificateState::Released);
        let discovered = self.known.is_some();
        let (workload, account) = self
            .known
            .map(|(workload, account)| (workload.to_string(), account.to_string()))
            .unwrap_or_default();
        pb::Proxy {
            uuid: name.uuid.to_string(),
            namespace: name.namespace.to_string(),
            service: name.service.as_deref().unwrap_or_default().to_owned(),
            workload,
            service_account: account,
            discovered,
            participant: issued && discovered && !self.streams.is_empty(),
            certificates: self.certificates,
            streams: self.streams,
        }
    }
}

/// What `group` says about itself, to a replica that has seen this shard epoch.
pub(super) fn cluster_status(group: &Group, shard_epoch: u64) -> pb::GetClusterStatusResponse {
    let (status, heard, time) = (group.status(), group.heard(), group.time());
    let problem = ClockError::check(&time).err().filter(|problem| problem.is_known());
    let replica = |member: Member| pb::Replica {
        id: member.id.0,
        address: member.address,
        voter: member.voter,
        matched: member.matched,
        heard: heard.contains(&member.id),
    };
    pb::GetClusterStatusResponse {
        replica: status.replica.0,
        group: status.group.map(|group| group.to_string()).unwrap_or_default(),
        leader: status.heard_leader(&heard).map(|leader| leader.0),
        term: status.term,
        last: status.last,
        applied: status.applied,
        snapshot: status.snapshot,
        shard_epoch,
        clock_offset: time.offset(),
        clock_problem: problem.map(|problem| problem.to_string()).unwrap_or_default(),
        replicas: status.members.into_iter().map(replica).collect(),
        waits_for: String::new(),
    }
}

pub(super) fn proxy_certificate(
    serial: &SerialNumber,
    record: &ProxyCertificateRecord,
) -> pb::ProxyCertificate {
    let state = match record.state {
        ProxyCertificateState::Unclaimed => pb::CertificateState::Unclaimed,
        ProxyCertificateState::Claimed { .. } => pb::CertificateState::Claimed,
        ProxyCertificateState::Released { .. } => pb::CertificateState::Released,
    };
    pb::ProxyCertificate {
        serial: serial.to_string(),
        state: state.into(),
        issued_at: record.issued_at.0,
        expires_at: record.validity.not_after.0,
        service_account: record.service_account.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

pub(super) fn stream(stream: &OpenStream, report: &StreamReport) -> pb::Stream {
    let variant = match stream.variant {
        Variant::Delta => pb::Variant::Delta,
        Variant::Sotw => pb::Variant::Sotw,
    };
    let scope = match stream.scope {
        Scope::Aggregated => "ads",
        Scope::Only(kind) => kind.short(),
    };
    pb::Stream {
        variant: variant.into(),
        scope: scope.to_owned(),
        peer: stream.peer.to_string(),
        opened_at: stream.opened_at.0,
        acked_at: report.acked_at.map_or(0, |at| at.0),
        rejections: report.rejections,
        user_agent: report.user_agent.clone(),
    }
}

pub(super) fn stream_config(open: &OpenStream) -> pb::StreamConfig {
    let report = open.report();
    let types = report.status.types.iter().map(|(kind, status)| pb::TypeConfig {
        r#type: kind.short().to_owned(),
        wildcard: status.wildcard,
        subscribed: status.subscribed.clone(),
        resources: resources(status),
    });
    pb::StreamConfig { types: types.collect(), stream: Some(stream(open, &report)) }
}

/// All resources that were sent or rejected on a stream, sorted by name.
fn resources(status: &TypeStatus) -> Vec<pb::ResourceConfig> {
    let mut names: Vec<_> =
        status.sent.keys().chain(status.acked.keys()).chain(status.rejected.keys()).collect();
    names.sort();
    names.dedup();
    let resource = |name: &String| {
        let rejected = status.rejected.get(name);
        pb::ResourceConfig {
            name: name.clone(),
            sent: status.sent.get(name).cloned().unwrap_or_default(),
            acked: status.acked.get(name).cloned().unwrap_or_default(),
            rejected: rejected.map(|rejected| rejected.version.clone()).unwrap_or_default(),
            rejection: rejected.map(|rejected| rejected.message.clone()).unwrap_or_default(),
        }
    };
    names.into_iter().map(resource).collect()
}

/// The problems, each once, sorted by severity and then as text.
pub(super) fn problems(problems: impl Iterator<Item = Problem>) -> Vec<pb::Problem> {
    let distinct: BTreeSet<_> = problems.collect();
    let mut printed: Vec<_> = distinct.into_iter().map(|found| (found.severity, problem(found))).collect();
    printed.sort_by(|(severity, a), (other, b)| {
        let key = (severity, &a.object, &a.field, &a.message);
        key.cmp(&(other, &b.object, &b.field, &b.message))
    });
    printed.into_iter().map(|(_, problem)| problem).collect()
}

fn problem(problem: Problem) -> pb::Problem {
    let severity = match problem.severity {
        Severity::Error => pb::Severity::Error,
        Severity::Warning => pb::Severity::Warning,
    };
    let Problem { subject, field, message, .. } = problem;
    pb::Problem { severity: severity.into(), object: subject.to_string(), field, message }
}

pub(super) fn services(catalog: &Catalog) -> Vec<pb::Service> {
    let mut services = Vec::new();
    for service in catalog.services() {
        let ports = service.ports.iter().map(|port| pb::ServicePort {
            name: port.name.clone().unwrap_or_default(),
            port: port.port.into(),
            protocol: port.protocol.as_str().to_owned(),
            endpoints: catalog
                .endpoints(&service.id, port)
                .map(|endpoint| std::net::SocketAddr::new(endpoint.ip, endpoint.port).to_string())
                .collect(),
            servers: port_servers(catalog.endpoints(&service.id, port)),
        });
        services.push(pb::Service {
            name: service.id.to_string(),
            cluster_ips: service.cluster_ips.iter().map(ToString::to_string).collect(),
            headless: service.headless,
            ports: ports.collect(),
            service_accounts: catalog.accounts_behind(&service.id).iter().map(ToString::to_string).collect(),
            splits: catalog.splits_of(&service.id).iter().map(|split| split.id.to_string()).collect(),
        });
    }
    services
}

/// Each identity and port of `endpoints` once, sorted.
fn port_servers<'a>(endpoints: impl Iterator<Item = &'a Endpoint>) -> Vec<pb::PortServer> {
    let distinct: BTreeSet<_> =
        endpoints.map(|endpoint| (&endpoint.service_account, endpoint.port)).collect();
    let server = |(account, port): (&ServiceAccountId, u16)| pb::PortServer {
        service_account: account.to_string(),
        port: port.into(),
    };
    distinct.into_iter().map(server).collect()
}

/// `members` are the replicas of the group. `unacknowledged_proxies` are the workloads connected to this
/// replica that have not ACKed a trust bundle with the new root, for which its rotation waits.
pub(super) fn ca_status(
    status: AuthorityStatus,
    bundle: TrustBundle,
    issued: &[Issued],
    members: &[u64],
    unacknowledged_proxies: &BTreeSet<WorkloadId>,
) -> pb::GetCaStatusResponse {
    let services = issued.iter().filter(|one| one.kind == IssuedKind::Service);
    let gateways = issued.iter().filter(|one| one.kind == IssuedKind::Gateway);
    let signing = |ca: &&CaStatus| !ca.root && ca.state == CaState::Signing;
    pb::GetCaStatusResponse {
        trust_domain: status.trust_domain.to_string(),
        roots_pem: bundle.pem,
        roots: status.cas.iter().filter(|ca| ca.root).map(authority).collect(),
        issuer: status.cas.iter().find(signing).map(authority),
        authorities: status.cas.iter().map(certificate_authority).collect(),
        root_rotation: status
            .root_rotation
            .map(|rotation| root_rotation(rotation, members, unacknowledged_proxies)),
        service_certificates: services
            .map(|one| pb::ServiceCertificate {
                service_account: one.name.clone(),
                serial: one.serial.to_string(),
                not_before: one.not_before.0,
                not_after: one.not_after.0,
            })
            .collect(),
        gateway_certificates: gateways
            .map(|one| pb::GatewayCertificate {
                secret: one.name.clone(),
                serial: one.serial.to_string(),
                not_before: one.not_before.0,
                not_after: one.not_after.0,
            })
            .collect(),
        proxy_certificates_unclaimed: count(status.proxy_unclaimed),
        proxy_certificates_claimed: count(status.proxy_claimed),
        proxy_certificates_released: count(status.proxy_released),
        key_encryption_keys: status
            .sealed_with
            .into_iter()
            .map(|(id, keys)| pb::KeyEncryptionKey { seals: id == status.seals_with, id, keys: count(keys) })
            .collect(),
        state_hash: status.state_hash,
        warnings: status.warnings,
        agreed_time: status.agreed_time.map_or(0, |time| time.0),
    }
}

fn authority(ca: &CaStatus) -> pb::Authority {
    let Validity { not_before, not_after } = ca.validity;
    pb::Authority { serial: ca.serial.to_string(), not_before: not_before.0, not_after: not_after.0 }
}

fn certificate_authority(ca: &CaStatus) -> pb::CertificateAuthority {
    let state = match ca.state {
        CaState::Next => pb::AuthorityState::Next,
        CaState::Signing => pb::AuthorityState::Signing,
        CaState::ControllerIssuer => pb::AuthorityState::ControllerIssuer,
        CaState::Former => pb::AuthorityState::Former,
    };
    pb::CertificateAuthority {
        root: ca.root,
        state: state.into(),
        serial: ca.serial.to_string(),
        issuer: ca.issuer.to_string(),
        not_before: ca.validity.not_before.0,
        not_after: ca.validity.not_after.0,
        service_certificates: count(ca.signed.services),
        superseded_certificates: count(ca.signed.superseded),
        proxy_certificates: count(ca.signed.proxies),
        controller_certificates: count(ca.signed.controllers),
        last_end: ca.signed.last_end.map_or(0, |end| end.0),
        declared_by: ca.declared_by.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn root_rotation(
    rotation: RootRotation,
    members: &[u64],
    unacknowledged_proxies: &BTreeSet<WorkloadId>,
) -> pb::RootRotation {
    let (root, signing) = (rotation.root.to_string(), rotation.introduction.is_none());
    let Some(Introduction { acknowledged, earliest }) = rotation.introduction else {
        return pb::RootRotation { root, signing, ..pb::RootRotation::default() };
    };
    pb::RootRotation {
        root,
        signing,
        unacknowledged: members.iter().copied().filter(|member| !acknowledged.contains(member)).collect(),
        acknowledged: acknowledged.into_iter().collect(),
        earliest: earliest.0,
        unacknowledged_proxies: unacknowledged_proxies.iter().map(ToString::to_string).collect(),
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_and_a_port_of_many_endpoints_are_listed_once() {
        let endpoint = |pod: &str, account: &str, port| Endpoint {
            ip: std::net::Ipv4Addr::LOCALHOST.into(),
            port,
            workload: pod.parse().unwrap(),
            service_account: account.parse().unwrap(),
        };
        let endpoints = [endpoint("s/a", "s/y", 80), endpoint("s/b", "s/y", 80), endpoint("s/c", "s/x", 81)];
        let servers = port_servers(endpoints.iter()).into_iter().map(|one| (one.service_account, one.port));
        assert_eq!(servers.collect::<Vec<_>>(), [("s/x".to_owned(), 81), ("s/y".to_owned(), 80)]);
    }
}
