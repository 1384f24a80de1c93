//! Enrolment of one workload: a new proxy certificate, and the Envoy bootstrap that carries it.
//!
//! Owns the step from an identity to a bootstrap. Does not look the workload up: a Pod under admission has
//! no name yet (`generateName`), so the caller decides whether the workload is in the mesh and what its
//! proxy is called.

use std::sync::Arc;

use smc_authority::pki::{CONTROLLER_IDENTITY, SerialNumber, TrustBundle};
use smc_issuing::{CaError, IssuedProxy, Issuer};
use smc_sidecar::bootstrap::{Bootstrap, Controllers};
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_xds::session::Variant;

/// The workload to enrol, and what its Envoy is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicant {
    /// The name of its proxy.
    pub proxy: ProxyName,
    /// The identity of its pod.
    pub account: ServiceAccountId,
    /// The variant of xDS that its Envoy speaks.
    pub variant: Variant,
}

/// An enrolled workload.
pub struct Enrolled<'a> {
    enroller: &'a Enroller,
    applicant: &'a Applicant,
    /// The certificate, with the only copy of the proxy's private key.
    issued: IssuedProxy,
    roots: TrustBundle,
}

impl Enrolled<'_> {
    /// The serial number of the proxy certificate.
    pub(crate) fn serial(&self) -> &SerialNumber {
        &self.issued.serial
    }

    /// The Envoy bootstrap.
    pub fn bootstrap(&self) -> Bootstrap<'_> {
        let Applicant { proxy, account, variant } = self.applicant;
        Bootstrap {
            proxy,
            account,
            controllers: &self.enroller.controllers,
            controller_name: &self.enroller.controller_name,
            chain_pem: &self.issued.chain_pem,
            key_pem: &self.issued.key_pem,
            roots_pem: &self.roots.pem,
            variant: *variant,
            inbound_connections: self.enroller.inbound_connections,
        }
    }
}

/// Enrols workloads with one issuer.
#[derive(Clone)]
pub struct Enroller {
    /// Issues the proxy certificates.
    pub(crate) issuer: Arc<dyn Issuer>,
    /// The controller's replicas.
    pub(crate) controllers: Arc<Controllers>,
    /// The DNS name in the controllers' certificates.
    pub(crate) controller_name: String,
    /// The most connections to a sidecar's inbound port.
    pub(crate) inbound_connections: u32,
}

impl Enroller {
    /// An enroller with the controllers' own name.
    pub(crate) fn new(
        issuer: Arc<dyn Issuer>,
        controllers: Arc<Controllers>,
        inbound_connections: u32,
    ) -> Self {
        Self { issuer, controllers, controller_name: CONTROLLER_IDENTITY.to_owned(), inbound_connections }
    }

    /// Issues a proxy certificate. Each call issues another one.
    pub async fn enroll<'a>(&'a self, applicant: &'a Applicant) -> Result<Enrolled<'a>, CaError> {
        let issued = self.issuer.issue_proxy(&applicant.proxy, &applicant.account).await?;
        Ok(Enrolled { enroller: self, applicant, issued, roots: self.issuer.bundle() })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PublicKeyData};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use smc_authority::pki::Lifetimes;
    use smc_host::env::Env;
    use smc_issuing::seal::LocalKey;
    use smc_issuing::{BuiltinCa, CaSettings};
    use smc_raft::{Group, MemoryDisk, ReplicatedLedger, Storage};
    use smc_types::ids::{ProxyUuid, ReplicaId, TrustDomain, WorkloadId};
    use x509_parser::parse_x509_certificate;

    use super::*;

    async fn enroller() -> (Arc<Group>, Enroller) {
        let env = Env::system();
        let directory = tempfile::tempdir().unwrap();
        let keys = Arc::new(LocalKey::create(&directory.path().join("kek"), &env).unwrap());
        let group = Group::alone(ReplicaId(0), Storage::Memory(MemoryDisk::default()), &env).await.unwrap();
        let group = Arc::new(group);
        let trust_domain = TrustDomain::new("cluster.local").unwrap();
        let settings = CaSettings { trust_domain, lifetimes: Lifetimes::default() };
        let ledger = Arc::<Group>::clone(&group);
        let ca = BuiltinCa::open(ledger, keys, env, settings).await.unwrap();
        let controllers = Controllers::new([(ReplicaId(0), "10.0.0.9:15128".parse().unwrap())].into());
        let enroller = Enroller {
            issuer: Arc::new(ca),
            controllers: Arc::new(controllers),
            controller_name: "controller.smc".to_owned(),
            inbound_connections: 100,
        };
        (group, enroller)
    }

    fn applicant(variant: Variant) -> Applicant {
        let workload = WorkloadId::new("shop", "buyer").unwrap();
        Applicant {
            proxy: ProxyName::new(ProxyUuid::derived(&workload), "shop").unwrap(),
            account: ServiceAccountId::new("shop", "buyer").unwrap(),
            variant,
        }
    }

    #[tokio::test]
    async fn a_bootstrap_carries_the_certificate_that_was_issued_for_it() {
        let (group, enroller) = enroller().await;
        let applicant = applicant(Variant::Delta);
        let enrolled = enroller.enroll(&applicant).await.unwrap();
        let serial = *enrolled.serial();
        let record = group.local().read(|ledger| ledger.proxy_certificate(&serial).cloned()).unwrap();
        assert_eq!(
            (&record.proxy, &record.service_account),
            (&applicant.proxy, &Some(applicant.account.clone()))
        );
        let bootstrap = serde_json::to_value(enrolled.bootstrap()).unwrap();
        assert_eq!(bootstrap["node"]["id"], applicant.proxy.to_string());
        let tls = &bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"]["common_tls_context"];
        let own = &tls["tls_certificates"][0];
        let pem = |value: &serde_json::Value| value["inline_string"].as_str().unwrap().to_owned();
        let chain = CertificateDer::from_pem_slice(pem(&own["certificate_chain"]).as_bytes()).unwrap();
        let (_, certificate) = parse_x509_certificate(&chain).unwrap();
        assert_eq!(certificate.raw_serial(), serial.as_bytes());
        let key = KeyPair::from_pem(&pem(&own["private_key"])).unwrap();
        assert_eq!(certificate.public_key().raw, key.subject_public_key_info());
        assert_eq!(pem(&tls["validation_context"]["trusted_ca"]), enroller.issuer.bundle().pem);
        let text = bootstrap.to_string();
        assert!(text.contains("10.0.0.9") && text.contains("controller.smc"));
    }

    #[tokio::test]
    async fn the_variant_of_the_envoy_decides_the_api_type() {
        let (_, enroller) = enroller().await;
        for (variant, api) in [(Variant::Delta, "DELTA_GRPC"), (Variant::Sotw, "GRPC")] {
            let applicant = applicant(variant);
            let enrolled = enroller.enroll(&applicant).await.unwrap();
            let bootstrap = serde_json::to_value(enrolled.bootstrap()).unwrap();
            assert_eq!(bootstrap["dynamic_resources"]["ads_config"]["api_type"], api);
        }
    }

    #[tokio::test]
    async fn every_enrolment_issues_another_certificate() {
        let (_, enroller) = enroller().await;
        let applicant = applicant(Variant::Delta);
        let first = enroller.enroll(&applicant).await.unwrap();
        assert_ne!(first.serial(), enroller.enroll(&applicant).await.unwrap().serial());
    }
}
