//! The RPCs of the administration API.
//!
//! Owns the lookups; [`super::report`] makes the messages. A call reads a consistent state of the catalog, of
//! the ledger and of the open streams, but not the three at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_authority::ledger::ProxyCertificateState;
use smc_authority::rules::IngressGateway;
use smc_issuing::{BuiltinCa, CaError, Issuer, ProxyCertificates, Rotate};
use smc_proto::admin::v1 as pb;
use smc_proto::admin::v1::admin_client::AdminClient;
use smc_proto::admin::v1::admin_server::{Admin, AdminServer};
use smc_raft::{Group, MembershipError};
use smc_sidecar::bootstrap::Controllers;
use smc_types::causes::causes;
use smc_types::host_port::{HostPort, ReplicaAddress};
use smc_types::ids::{ProxyName, ReplicaId, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::object_ref::ObjectRef;
use smc_xds::served_state::ServedState;
use smc_xds::session::Variant;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tracing::info;

use super::{backup, egress_report, ingress_report, policy_report, report, shards};
use crate::enroll::{Applicant, Enroller};
use crate::publisher::{Mesh, MeshHandle, PublisherStopped};
use crate::shards::Shards;
use crate::xds::proxies::Proxies;

/// An in-process client of the administration API.
pub type Administration = AdminClient<AdminServer<AdminService>>;

/// The administration API of one replica.
pub struct AdminService {
    /// The catalog.
    pub(crate) mesh: MeshHandle,
    /// The CA, for its state and its rotation.
    pub(crate) ca: Arc<BuiltinCa>,
    /// The proxy certificates, for releases.
    pub(crate) certificates: ProxyCertificates,
    /// Makes bootstraps.
    pub(crate) enroller: Enroller,
    /// The Raft group.
    pub(crate) group: Arc<Group>,
    pub(crate) shards: Shards,
    /// The connected proxies.
    pub(crate) proxies: Proxies,
    /// The latest served state.
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
}

/// The most addresses of replicas in one request: more than a group has. Each takes a millisecond
/// or two on the ring.
const MAX_CONTROLLERS: usize = 16;

/// A workload that the catalog knows.
struct Known {
    object: ObjectRef,
    proxy: ProxyName,
    account: ServiceAccountId,
    in_mesh: bool,
}

impl AdminService {
    async fn workload(&self, id: WorkloadId) -> Result<Known, Status> {
        let object = ObjectRef::from(&id);
        let missing = format!("there is no {object}");
        let found = self
            .mesh
            .about(move |mesh| {
                let catalog = mesh.compiler.catalog();
                let workload = catalog.workload(&id)?;
                let proxy = workload.proxy_name();
                let account = workload.service_account.clone();
                Some(Known { object, proxy, account, in_mesh: catalog.in_mesh(workload) })
            })
            .await
            .map_err(|gone| shutting_down(&gone))?;
        found.ok_or_else(|| Status::not_found(missing))
    }

    /// The service accounts whose key a proxy may have: those of its unreleased certificates that a proxy has
    /// connected with, if they have a key.
    fn accounts_of(&self, proxy: &ProxyName) -> BTreeSet<ServiceAccountId> {
        self.certificates.ledger().read(|ledger| {
            let claimed = ledger.certificates_of(proxy).map(|(_, record)| record);
            let claimed =
                claimed.filter(|record| matches!(record.state, ProxyCertificateState::Claimed { .. }));
            let accounts = claimed.filter_map(|record| record.service_account.clone());
            accounts.filter(|account| ledger.service_certificate(account).is_some()).collect()
        })
    }

    /// Every proxy that was issued a certificate, is in the mesh or is connected.
    fn proxy_facts(&self) -> BTreeMap<ProxyName, report::ProxyFacts> {
        let mut found: BTreeMap<ProxyName, report::ProxyFacts> = BTreeMap::new();
        self.certificates.ledger().read(|ledger| {
            for (serial, record) in ledger.proxy_certificates() {
                let facts = found.entry(record.proxy.clone()).or_default();
                facts.certificates.push(report::proxy_certificate(serial, record));
            }
        });
        if let Some(state) = self.served.borrow().as_ref() {
            for (proxy, known) in &state.proxies {
                let facts = found.entry(proxy.clone()).or_default();
                facts.known = Some((known.workload.clone(), known.class.account.clone()));
            }
        }
        for (proxy, streams) in self.proxies.streams() {
            let facts = found.entry(proxy).or_default();
            facts.streams = streams.iter().map(|stream| report::stream(stream, &stream.report())).collect();
        }
        found
    }

    fn proxy_list(&self) -> Vec<pb::Proxy> {
        let mut proxies: Vec<_> =
            self.proxy_facts().into_iter().map(|(proxy, facts)| facts.proxy(&proxy)).collect();
        proxies
            .sort_by(|a, b| (&a.namespace, &a.workload, &a.uuid).cmp(&(&b.namespace, &b.workload, &b.uuid)));
        proxies
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn list_proxies(
        &self,
        _: Request<pb::ListProxiesRequest>,
    ) -> Result<Response<pb::ListProxiesResponse>, Status> {
        Ok(Response::new(pb::ListProxiesResponse { proxies: self.proxy_list() }))
    }

    async fn get_proxy_config(
        &self,
        request: Request<pb::GetProxyConfigRequest>,
    ) -> Result<Response<pb::GetProxyConfigResponse>, Status> {
        let Known { object, proxy: name, .. } = self.workload(named(&request.into_inner().workload)?).await?;
        let streams: Vec<_> =
            self.proxies.streams_of(&name).iter().map(|s| report::stream_config(s)).collect();
        if streams.is_empty() {
            return Err(Status::failed_precondition(format!("the proxy of {object} is not connected")));
        }
        let proxy = self.proxy_facts().remove(&name).map(|facts| facts.proxy(&name));
        Ok(Response::new(pb::GetProxyConfigResponse { proxy, streams }))
    }

    async fn bootstrap(
        &self,
        request: Request<pb::BootstrapRequest>,
    ) -> Result<Response<pb::BootstrapResponse>, Status> {
        let request = request.into_inner();
        let variant = match request.variant() {
            pb::Variant::Sotw => Variant::Sotw,
            pb::Variant::Delta | pb::Variant::Unspecified => Variant::Delta,
        };
        let workload = self.workload(named(&request.workload)?).await?;
        if !workload.in_mesh {
            let text = format!(
                "{} is not in the mesh: its Namespace lacks the label openservicemesh.io/monitored-by, or \
                 injection is disabled",
                workload.object
            );
            return Err(Status::failed_precondition(text));
        }
        let controllers = controllers(&request.controllers)?;
        let enroller = if controllers.is_empty() {
            self.enroller.clone()
        } else {
            Enroller { controllers: Arc::new(Controllers::new(controllers)), ..self.enroller.clone() }
        };
        let applicant = Applicant { proxy: workload.proxy, account: workload.account, variant };
        let enrolled = enroller.enroll(&applicant).await.map_err(|error| authority(&error))?;
        info!(workload = request.workload, serial = %enrolled.serial(), "proxy certificate issued");
        let serial = enrolled.serial().to_string();
        let proxy = applicant.proxy.to_string();
        let bootstrap = serde_json::to_string_pretty(&enrolled.bootstrap());
        let bootstrap = bootstrap.map_err(|error| Status::internal(error.to_string()))? + "\n";
        Ok(Response::new(pb::BootstrapResponse { bootstrap, serial, proxy }))
    }

    async fn release_proxy(
        &self,
        request: Request<pb::ReleaseProxyRequest>,
    ) -> Result<Response<pb::ReleaseProxyResponse>, Status> {
        let pb::ReleaseProxyRequest { proxy: text, keep_keys } = request.into_inner();
        let proxy = match text.parse::<WorkloadId>() {
            Ok(workload) => self.workload(workload).await?.proxy,
            Err(_) => text.parse().map_err(|error| invalid(&error))?,
        };
        let accounts = if keep_keys { BTreeSet::new() } else { self.accounts_of(&proxy) };
        let serials = self.certificates.release(&proxy).await.map_err(|error| authority(&error))?;
        info!(%proxy, released = serials.len(), "proxy released");
        let released = u32::try_from(serials.len()).unwrap_or(u32::MAX);
        let mut replaced = Vec::new();
        for account in accounts {
            let issued = self.ca.replace_service(&account).await.map_err(|error| {
                let text = format!("{proxy} is released, but the key of {account} is not replaced");
                Status::unavailable(format!("{text}: {}", causes(&error)))
            })?;
            info!(%account, serial = %issued.serial, "service key replaced");
            let earlier_until = self.certificates.ledger().read(|ledger| {
                let earlier = ledger.superseded_certificates(&account).iter();
                earlier.map(|old| old.validity.not_after.0).max().unwrap_or_default()
            });
            replaced.push(pb::ReplacedKey { service_account: account.to_string(), earlier_until });
        }
        Ok(Response::new(pb::ReleaseProxyResponse { released, replaced }))
    }

    async fn list_problems(
        &self,
        _: Request<pb::ListProblemsRequest>,
    ) -> Result<Response<pb::ListProblemsResponse>, Status> {
        let problems = self.mesh.about(Mesh::problems).await.map_err(|gone| shutting_down(&gone))?;
        Ok(Response::new(pb::ListProblemsResponse { problems: report::problems(problems.into_iter()) }))
    }

    async fn list_services(
        &self,
        _: Request<pb::ListServicesRequest>,
    ) -> Result<Response<pb::ListServicesResponse>, Status> {
        let services = self.mesh.about(|mesh| report::services(mesh.compiler.catalog())).await;
        let services = services.map_err(|gone| shutting_down(&gone))?;
        Ok(Response::new(pb::ListServicesResponse { services }))
    }

    async fn list_policy(
        &self,
        _: Request<pb::ListPolicyRequest>,
    ) -> Result<Response<pb::ListPolicyResponse>, Status> {
        let policy = self.mesh.about(|mesh| policy_report::policy(mesh.compiler.catalog())).await;
        Ok(Response::new(policy.map_err(|gone| shutting_down(&gone))?))
    }

    async fn get_ca_status(
        &self,
        _: Request<pb::GetCaStatusRequest>,
    ) -> Result<Response<pb::GetCaStatusResponse>, Status> {
        let group = self.group.status();
        let members: Vec<_> = group.members.iter().map(|member| member.id.0).collect();
        let status = self.ca.status();
        let root = status.root_unacknowledged_by(group.replica.0);
        let distrustful = root.map(|root| self.proxies.distrustful(root)).unwrap_or_default();
        let answer = report::ca_status(status, self.ca.bundle(), &self.ca.list(), &members, &distrustful);
        Ok(Response::new(answer))
    }

    async fn rotate_ca(
        &self,
        request: Request<pb::RotateCaRequest>,
    ) -> Result<Response<pb::RotateCaResponse>, Status> {
        let pb::RotateCaRequest { root, cancel, hasten } = request.into_inner();
        let rotated = match (cancel, hasten) {
            (false, false) => self.ca.rotate(if root { Rotate::Root } else { Rotate::Issuing }).await,
            (true, false) => self.ca.cancel_root().await,
            (false, true) => self.ca.hasten_root().await,
            (true, true) => {
                return Err(Status::invalid_argument("a rotation is either given up or hastened"));
            }
        };
        let serial = rotated.map_err(|error| match &error {
            CaError::Rejected { .. } | CaError::NoNextRoot => Status::failed_precondition(causes(&error)),
            _ => authority(&error),
        })?;
        Ok(Response::new(pb::RotateCaResponse { serial: serial.to_string() }))
    }

    async fn rekey_ca(
        &self,
        _: Request<pb::RekeyCaRequest>,
    ) -> Result<Response<pb::RekeyCaResponse>, Status> {
        let keys = self.ca.rekey().await.map_err(|error| authority(&error))?;
        info!(keys, "rekeyed the private keys");
        Ok(Response::new(pb::RekeyCaResponse { keys: u32::try_from(keys).unwrap_or(u32::MAX) }))
    }

    async fn get_cluster_status(
        &self,
        _: Request<pb::GetClusterStatusRequest>,
    ) -> Result<Response<pb::GetClusterStatusResponse>, Status> {
        Ok(Response::new(report::cluster_status(&self.group, self.shards.placement().epoch)))
    }

    async fn get_shards(
        &self,
        _: Request<pb::GetShardsRequest>,
    ) -> Result<Response<pb::GetShardsResponse>, Status> {
        let proxies = self.served.borrow().as_ref().map(|state| state.proxies.keys().cloned().collect());
        Ok(Response::new(shards::report(&self.group, &self.shards, proxies.unwrap_or_default()).await))
    }

    async fn drain_replica(
        &self,
        request: Request<pb::DrainReplicaRequest>,
    ) -> Result<Response<pb::DrainReplicaResponse>, Status> {
        let drain = self.shards.drain(&self.proxies);
        let done = if request.into_inner().cancel {
            drain.cancel().await
        } else if self.shards.placement().ready.iter().all(|replica| *replica == self.shards.me()) {
            return Err(Status::failed_precondition("no other replica is ready to serve the proxies"));
        } else {
            drain.begin().await
        };
        done.map_err(|error| Status::unavailable(causes(&error)))?;
        let streams = *self.proxies.stream_count().borrow();
        Ok(Response::new(pb::DrainReplicaResponse { streams: u64::try_from(streams).unwrap_or(u64::MAX) }))
    }

    async fn list_egress(
        &self,
        request: Request<pb::ListEgressRequest>,
    ) -> Result<Response<pb::ListEgressResponse>, Status> {
        let account: ServiceAccountId =
            request.into_inner().service_account.parse().map_err(|error| invalid(&error))?;
        let about = move |mesh: &Mesh| egress_report::egress(mesh.compiler.catalog(), &account);
        self.mesh.about(about).await.map(Response::new).map_err(|gone| shutting_down(&gone))
    }

    async fn get_ingress_routes_per_host(
        &self,
        request: Request<pb::GetIngressRoutesPerHostRequest>,
    ) -> Result<Response<pb::GetIngressRoutesPerHostResponse>, Status> {
        let service: ServiceId = request.into_inner().service.parse().map_err(|error| invalid(&error))?;
        let missing = format!("there is no Service {service}");
        let about = move |mesh: &Mesh| ingress_report::routes_per_host(mesh.compiler.catalog(), &service);
        let answer = self.mesh.about(about).await.map_err(|gone| shutting_down(&gone))?;
        answer.map(Response::new).ok_or_else(|| Status::not_found(missing))
    }

    async fn verify_ingress(
        &self,
        request: Request<pb::VerifyIngressRequest>,
    ) -> Result<Response<pb::VerifyIngressResponse>, Status> {
        let request = request.into_inner();
        let missing = format!("there is no pod {}", request.workload);
        let question = ingress_report::Question::try_from(request)?;
        let about = move |mesh: &Mesh| ingress_report::verified(mesh.compiler.catalog(), question);
        let answer = self.mesh.about(about).await.map_err(|gone| shutting_down(&gone))?;
        answer.map(Response::new).ok_or_else(|| Status::not_found(missing))
    }

    async fn get_gateway_certificate(
        &self,
        _: Request<pb::GetGatewayCertificateRequest>,
    ) -> Result<Response<pb::GetGatewayCertificateResponse>, Status> {
        if self.served.borrow().is_none() {
            return Err(Status::unavailable("the mesh is not read yet"));
        }
        let asked = self.mesh.about(|mesh| mesh.compiler.catalog().mesh_config().ingress_gateway).await;
        let wanted = match asked.map_err(|gone| shutting_down(&gone))? {
            IngressGateway::Wanted(wanted) => wanted,
            IngressGateway::Absent => {
                let text = "the MeshConfig asks for no certificate of a gateway (certificate.ingressGateway)";
                return Err(Status::failed_precondition(text));
            }
            IngressGateway::Unreadable => {
                let text =
                    "certificate.ingressGateway of the MeshConfig cannot be read; see `smc mesh problems`";
                return Err(Status::failed_precondition(text));
            }
        };
        let issued = self.ca.gateway(&wanted).map_err(|error| authority(&error))?;
        let Some(issued) = issued else {
            let text = "the certificate that the MeshConfig asks for is not issued yet";
            return Err(Status::failed_precondition(text));
        };
        Ok(Response::new(pb::GetGatewayCertificateResponse {
            secret: wanted.secret.to_string(),
            serial: issued.serial.to_string(),
            chain_pem: issued.certificate.chain_pem,
            key_pem: issued.certificate.key_pem.to_string(),
            roots_pem: self.ca.bundle().pem,
        }))
    }

    async fn add_replica(&self, request: Request<pb::AddReplicaRequest>) -> ClusterChanged {
        let pb::AddReplicaRequest { id, address } = request.into_inner();
        changed(self.group.add(ReplicaId(id), address).await)
    }

    async fn remove_replica(&self, request: Request<pb::RemoveReplicaRequest>) -> ClusterChanged {
        changed(self.group.remove(ReplicaId(request.into_inner().id)).await)
    }

    async fn transfer_leadership(&self, request: Request<pb::TransferLeadershipRequest>) -> ClusterChanged {
        changed(self.group.transfer(ReplicaId(request.into_inner().to)).await)
    }

    type BackupStream = backup::Parts;

    async fn backup(&self, _: Request<pb::BackupRequest>) -> Result<Response<backup::Parts>, Status> {
        Ok(Response::new(backup::parts(Arc::clone(&self.group))))
    }

    async fn take_snapshot(&self, _: Request<pb::TakeSnapshotRequest>) -> ClusterChanged {
        changed(self.group.snapshot().await)
    }
}

type ClusterChanged = Result<Response<pb::ChangeClusterResponse>, Status>;

fn changed(result: Result<(), MembershipError>) -> ClusterChanged {
    match result {
        Ok(()) => Ok(Response::new(pb::ChangeClusterResponse {})),
        Err(error @ MembershipError::Refused(_)) => Err(Status::failed_precondition(causes(&error))),
        Err(error @ MembershipError::Failed(_)) => Err(Status::unavailable(causes(&error))),
    }
}

/// The workload of this name.
fn named(text: &str) -> Result<WorkloadId, Status> {
    text.parse().map_err(|error| invalid(&error))
}

/// The replicas of these texts, each once.
fn controllers(texts: &[String]) -> Result<BTreeMap<ReplicaId, HostPort>, Status> {
    if texts.len() > MAX_CONTROLLERS {
        return Err(Status::invalid_argument(format!("more than {MAX_CONTROLLERS} addresses of replicas")));
    }
    let mut controllers = BTreeMap::new();
    for text in texts {
        let ReplicaAddress { replica, address } = text.parse().map_err(|error| invalid(&error))?;
        if controllers.insert(replica, address).is_some() {
            return Err(Status::invalid_argument(format!("replica {replica} has two addresses")));
        }
    }
    Ok(controllers)
}

pub(super) fn invalid(error: &dyn std::error::Error) -> Status {
    Status::invalid_argument(causes(error))
}

fn authority(error: &CaError) -> Status {
    Status::unavailable(format!("certificate authority: {}", causes(error)))
}

fn shutting_down(gone: &PublisherStopped) -> Status {
    Status::unavailable(causes(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_replicas_for_one_bootstrap_are_bounded_and_distinct() {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let two = controllers(&texts(&["1=b.example:15128", "0=[fd00::1]:15128"])).unwrap();
        assert_eq!(two.keys().copied().collect::<Vec<_>>(), [ReplicaId(0), ReplicaId(1)]);
        assert!(controllers(&[]).unwrap().is_empty());
        let many: Vec<_> = (0..=MAX_CONTROLLERS).map(|n| format!("{n}=a:1")).collect();
        for (bad, reason) in [
            (texts(&["0=a:1", "0=b:1"]), "replica 0 has two addresses"),
            (texts(&["a:1"]), "is not of the form N=HOST:PORT"),
            (texts(&["0=a"]), "is not HOST:PORT"),
            (many, "more than 16 addresses"),
        ] {
            let refused = controllers(&bad).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(reason), "{refused}");
        }
    }
}
