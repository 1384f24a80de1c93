//! What the parts of one replica share.
//!
//! Owns the order in which it is made: the addresses of the replicas, then the CA, then the controller's own
//! certificate, which the CA issues. Starts no task.

use std::net::SocketAddr;
use std::sync::Arc;

use smc_authority::pki::Lifetimes;
use smc_host::env::Env;
use smc_issuing::group_time::corrected;
use smc_issuing::seal::KeyEncryption;
use smc_issuing::tls::ServerTls;
use smc_issuing::{BuiltinCa, CaSettings, ClockError, Issuer, ProxyCertificates, until_available};
use smc_model::replica_settings::ReplicaSettings;
use smc_raft::{Group, ReplicatedLedger};
use smc_sidecar::bootstrap::Controllers;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::StartError;
use super::addresses::{addresses_for_proxies, certificate_names};
use crate::config::Config;
use crate::enroll::Enroller;
use crate::metrics::Metrics;
use crate::sidecars::Refusals;
use crate::xds::proxies::Proxies;

/// The parts of a replica that others are made of. A clone shares all of them.
#[derive(Clone)]
pub(super) struct Replica {
    /// Clock, randomness and network; the clock is the group's.
    pub(super) env: Env,
    /// This replica's member of the Raft group.
    pub(super) group: Arc<Group>,
    /// The certificate authority.
    pub(super) ca: Arc<BuiltinCa>,
    /// The TLS of the xDS port.
    pub(super) tls: Arc<ServerTls>,
    /// The proxy certificates in the ledger.
    pub(super) certificates: ProxyCertificates,
    /// The addresses of the replicas.
    pub(super) controllers: Arc<Controllers>,
    /// Makes certificate and bootstrap of a workload.
    pub(super) enroller: Enroller,
    /// The connected proxies.
    pub(super) proxies: Proxies,
    /// What it obeys of the MeshConfig.
    pub(super) settings: watch::Sender<ReplicaSettings>,
    /// The peers that it refused since they have another CA.
    pub(super) refusals: Refusals,
    pub(super) metrics: Metrics,
}

impl Replica {
    /// Opens the CA, and issues the controller's own certificate, as soon as the group commits both. Proxies
    /// reach the replica at `xds`.
    pub(super) async fn open(
        config: &Config,
        env: Env,
        group: Arc<Group>,
        keys: Arc<dyn KeyEncryption>,
        xds: SocketAddr,
    ) -> Result<Self, StartError> {
        let lifetimes = Lifetimes::with_service(config.service_cert_lifetime)?;
        let (me, replicas) = (group.status().replica, config.xds_replicas.clone());
        let addresses = addresses_for_proxies(me, replicas, config.xds_address.clone(), xds)?;
        let env = corrected(env, Arc::<Group>::clone(&group));

        let ledger: Arc<dyn ReplicatedLedger> = Arc::<Group>::clone(&group);
        let certificates = ProxyCertificates::new(Arc::clone(&ledger), env.clone());
        let settings = CaSettings { trust_domain: config.trust_domain.clone(), lifetimes };
        let open = || BuiltinCa::open(Arc::clone(&ledger), Arc::clone(&keys), env.clone(), settings.clone());
        let ca = Arc::new(until_available(&env, open).await.map_err(StartError::Authority)?);
        let issuer: Arc<dyn Issuer> = Arc::<BuiltinCa>::clone(&ca);
        let names = certificate_names(addresses.values());
        let start = || ServerTls::start(Arc::clone(&issuer), env.clone(), names.clone());
        let tls = Arc::new(until_available(&env, start).await.map_err(StartError::OwnCertificate)?);

        let controllers = Arc::new(Controllers::new(addresses));
        let connections = config.sidecars.inbound_connections;
        let enroller = Enroller::new(issuer, Arc::clone(&controllers), connections);
        let metrics = Metrics::new();
        let (settings, obeyed) = watch::channel(ReplicaSettings::default());
        let proxies = Proxies::new(config.max_connections, obeyed, metrics.clone());
        let refusals = Refusals::default();
        Ok(Self {
            env,
            group,
            ca,
            tls,
            certificates,
            controllers,
            enroller,
            proxies,
            settings,
            refusals,
            metrics,
        })
    }

    /// The CA, as those see it that only ask for certificates.
    pub(super) fn issuer(&self) -> Arc<dyn Issuer> {
        Arc::<BuiltinCa>::clone(&self.ca)
    }

    /// The Raft group, as those see it that only read and propose.
    pub(super) fn ledger(&self) -> Arc<dyn ReplicatedLedger> {
        Arc::<Group>::clone(&self.group)
    }

    /// Whether the replica is ready, at the moment of a call: it takes proxies, serves its sources' mesh, and
    /// its clock is not known to be wrong.
    pub(super) fn readiness(
        &self,
        draining: CancellationToken,
    ) -> impl Fn() -> bool + Clone + Send + Sync + 'static {
        let (proxies, group) = (self.proxies.clone(), Arc::clone(&self.group));
        move || {
            let clock_is_wrong = ClockError::check(&group.time()).is_err_and(ClockError::is_known);
            !draining.is_cancelled() && proxies.accepts() && proxies.is_open() && !clock_is_wrong
        }
    }
}
