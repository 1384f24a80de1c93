//! The RPCs of the administration.
//!
//! Owns finding out; [`super::report`] puts it into messages. Every call looks at one consistent state of the
//! catalog, the ledger and the connections each, not at one moment across the three.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smc_mesh::bootstrap::{Bootstrap, ControllerAddress};
use smc_mesh::ids::{NamespacedName, ProxyName, ServiceAccountId, WorkloadId};
use smc_mesh::session::Variant;
use smc_mesh::world::World;
use smc_proto::admin::v1::admin_client::AdminClient;
use smc_proto::admin::v1::admin_server::{Admin, AdminServer};
use smc_proto::admin::v1::{self as pb};
use smc_raft::{Group, MembershipError, ReplicaId};
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tracing::info;

use super::{backup, report};
use crate::ca::{CaError, CertificateManager, Rotate};
use crate::error::causes;
use crate::publisher::{Ask, Gone, Mesh};
use crate::xds::proxies::Proxies;

/// The administration's calls, made from within the process.
pub type Administration = AdminClient<AdminServer<AdminService>>;

/// Answers the administration's calls.
pub struct AdminService {
    /// The catalog, by question.
    pub(crate) ask: Ask,
    /// The certificate authority and its ledger.
    pub(crate) ca: Arc<dyn CertificateManager>,
    /// The replicas.
    pub(crate) group: Arc<Group>,
    /// Who is connected.
    pub(crate) proxies: Proxies,
    /// The latest world.
    pub(crate) worlds: watch::Receiver<Option<Arc<World>>>,
    /// Where bootstraps send proxies: the replicas, by ordinal.
    pub(crate) controllers: BTreeMap<u64, ControllerAddress>,
    /// The name that the controller's certificate proves.
    pub(crate) controller_name: String,
}

/// A pod that the catalog knows.
struct KnownPod {
    proxy: ProxyName,
    account: ServiceAccountId,
    in_mesh: bool,
}

impl AdminService {
    async fn pod(&self, name: &str) -> Result<KnownPod, Status> {
        let id: WorkloadId = name.parse().map_err(|error| invalid(&error))?;
        let found = self
            .ask
            .about(move |mesh| {
                let catalog = mesh.compiler.catalog();
                let workload = catalog.workload(&id)?;
                let proxy = workload.proxy_name();
                let account = workload.service_account.clone();
                Some(KnownPod { proxy, account, in_mesh: catalog.in_mesh(workload) })
            })
            .await
            .map_err(|gone| shutting_down(&gone))?;
        found.ok_or_else(|| Status::not_found(format!("there is no Pod {name}")))
    }

    /// What is known of every proxy that was issued a certificate, is in the mesh or is connected.
    fn proxy_facts(&self) -> BTreeMap<ProxyName, report::ProxyFacts> {
        let mut found: BTreeMap<ProxyName, report::ProxyFacts> = BTreeMap::new();
        self.ca.ledger().read(|ledger| {
            for (serial, record) in ledger.proxy_certificates() {
                let facts = found.entry(record.proxy.clone()).or_default();
                facts.certificates.push(report::proxy_certificate(serial, record));
            }
        });
        if let Some(world) = self.worlds.borrow().as_ref() {
            for (proxy, known) in &world.proxies {
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

    fn bootstrap_json(&self, pod: &KnownPod, issued: &crate::ca::IssuedProxy, variant: Variant) -> String {
        let bootstrap = Bootstrap {
            proxy: &pod.proxy,
            account: &pod.account,
            controllers: &self.controllers,
            controller_name: &self.controller_name,
            chain_pem: &issued.chain_pem,
            key_pem: &issued.key_pem,
            roots_pem: &self.ca.bundle().pem,
            variant,
        };
        format!("{:#}\n", bootstrap.json())
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
        let workload = request.into_inner().workload;
        let name = self.pod(&workload).await?.proxy;
        let streams: Vec<_> =
            self.proxies.streams_of(&name).iter().map(|s| report::stream_config(s)).collect();
        if streams.is_empty() {
            return Err(Status::failed_precondition(format!("the proxy of Pod {workload} is not connected")));
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
        let pod = self.pod(&request.workload).await?;
        if !pod.in_mesh {
            let text = format!(
                "Pod {} is not in the mesh: its Namespace lacks the label openservicemesh.io/monitored-by, or \
                 injection is disabled",
                request.workload
            );
            return Err(Status::failed_precondition(text));
        }
        let issued =
            self.ca.issue_proxy(&pod.proxy, &pod.account).await.map_err(|error| authority(&error))?;
        info!(workload = request.workload, serial = %issued.serial, "proxy certificate issued");
        let bootstrap = self.bootstrap_json(&pod, &issued, variant);
        Ok(Response::new(pb::BootstrapResponse { bootstrap, serial: issued.serial.to_string() }))
    }

    async fn release_proxy(
        &self,
        request: Request<pb::ReleaseProxyRequest>,
    ) -> Result<Response<pb::ReleaseProxyResponse>, Status> {
        let text = request.into_inner().proxy;
        let proxy = match text.parse::<NamespacedName>() {
            Ok(_) => self.pod(&text).await?.proxy,
            Err(_) => text.parse().map_err(|error| invalid(&error))?,
        };
        let serials = self.ca.release(&proxy).await.map_err(|error| authority(&error))?;
        info!(%proxy, released = serials.len(), "proxy released");
        let released = u32::try_from(serials.len()).unwrap_or(u32::MAX);
        Ok(Response::new(pb::ReleaseProxyResponse { released }))
    }

    async fn list_problems(
        &self,
        _: Request<pb::ListProblemsRequest>,
    ) -> Result<Response<pb::ListProblemsResponse>, Status> {
        let declared = self.ask.about(Mesh::problems).await.map_err(|gone| shutting_down(&gone))?;
        let all: BTreeSet<_> = declared.into_iter().chain(self.proxies.problems()).collect();
        Ok(Response::new(pb::ListProblemsResponse {
            problems: all.into_iter().map(report::problem).collect(),
        }))
    }

    async fn list_services(
        &self,
        _: Request<pb::ListServicesRequest>,
    ) -> Result<Response<pb::ListServicesResponse>, Status> {
        let services = self.ask.about(|mesh| report::services(mesh.compiler.catalog())).await;
        let services = services.map_err(|gone| shutting_down(&gone))?;
        Ok(Response::new(pb::ListServicesResponse { services }))
    }

    async fn list_policy(
        &self,
        _: Request<pb::ListPolicyRequest>,
    ) -> Result<Response<pb::ListPolicyResponse>, Status> {
        let policy = self.ask.about(|mesh| report::policy(mesh.compiler.catalog())).await;
        Ok(Response::new(policy.map_err(|gone| shutting_down(&gone))?))
    }

    async fn get_ca_status(
        &self,
        _: Request<pb::GetCaStatusRequest>,
    ) -> Result<Response<pb::GetCaStatusResponse>, Status> {
        let group = self.group.status();
        let members: Vec<_> = group.members.iter().map(|member| member.id.0).collect();
        let status = self.ca.status();
        let root = status.awaited_from(group.replica.0);
        let distrustful = root.map(|root| self.proxies.distrustful(root)).unwrap_or_default();
        Ok(Response::new(report::ca_status(status, &self.ca.list(), &members, &distrustful)))
    }

    async fn rotate_ca(
        &self,
        request: Request<pb::RotateCaRequest>,
    ) -> Result<Response<pb::RotateCaResponse>, Status> {
        let what = if request.into_inner().root { Rotate::Root } else { Rotate::Issuing };
        let serial = self.ca.rotate(what).await.map_err(|error| match &error {
            CaError::Rejected { .. } => Status::failed_precondition(causes(&error)),
            _ => authority(&error),
        })?;
        Ok(Response::new(pb::RotateCaResponse { serial: serial.to_string() }))
    }

    async fn rekey_ca(
        &self,
        _: Request<pb::RekeyCaRequest>,
    ) -> Result<Response<pb::RekeyCaResponse>, Status> {
        let keys = self.ca.rekey().await.map_err(|error| authority(&error))?;
        info!(keys, "private keys were sealed anew");
        Ok(Response::new(pb::RekeyCaResponse { keys: u32::try_from(keys).unwrap_or(u32::MAX) }))
    }

    async fn get_cluster_status(
        &self,
        _: Request<pb::GetClusterStatusRequest>,
    ) -> Result<Response<pb::GetClusterStatusResponse>, Status> {
        Ok(Response::new(report::cluster_status(self.group.status())))
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

fn invalid(error: &dyn std::error::Error) -> Status {
    Status::invalid_argument(causes(error))
}

fn authority(error: &CaError) -> Status {
    Status::unavailable(format!("certificate authority: {}", causes(error)))
}

fn shutting_down(gone: &Gone) -> Status {
    Status::unavailable(causes(gone))
}
