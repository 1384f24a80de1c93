//! Enrolment of one workload: a new proxy certificate, and the Envoy bootstrap that carries it.
//!
//! Owns the step from an identity to a bootstrap. Does not look the workload up: a Pod under admission has
//! no name yet (`generateName`), so the caller decides whether the workload is in the mesh and what its
//! proxy is called.

use std::sync::Arc;

use smc_authority::pki::{CONTROLLER_IDENTITY, SerialNumber, TrustBundle};
use smc_sidecar::bootstrap::{Bootstrap, Controllers};
use smc_types::ids::{ProxyName, ServiceAccountId};
use smc_xds::session::Variant;

use crate::ca::{CaError, IssuedProxy, Issuer};

/// The workload to enrol, and what its Envoy is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applicant {
    /// The name of its proxy.
    pub(crate) proxy: ProxyName,
    /// The identity of its pod.
    pub(crate) account: ServiceAccountId,
    /// The variant of xDS that its Envoy speaks.
    pub(crate) variant: Variant,
}

/// An enrolled workload.
pub(crate) struct Enrolled<'a> {
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
    pub(crate) fn bootstrap(&self) -> Bootstrap<'_> {
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
pub(crate) struct Enroller {
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
    pub(crate) async fn enroll<'a>(&'a self, applicant: &'a Applicant) -> Result<Enrolled<'a>, CaError> {
        let issued = self.issuer.issue_proxy(&applicant.proxy, &applicant.account).await?;
        Ok(Enrolled { enroller: self, applicant, issued, roots: self.issuer.bundle() })
    }
}

#[cfg(test)]
mod tests {
    use smc_types::ids::{ProxyUuid, ReplicaId, WorkloadId};

    use super::*;
    use crate::ca::tests::fake::FakeIssuer;

    fn enroller() -> (Arc<FakeIssuer>, Enroller) {
        let issuer = Arc::new(FakeIssuer::new());
        let controllers = Controllers::new([(ReplicaId(0), "10.0.0.9:15128".parse().unwrap())].into());
        let enroller = Enroller {
            issuer: Arc::<FakeIssuer>::clone(&issuer),
            controllers: Arc::new(controllers),
            controller_name: "controller.smc".to_owned(),
            inbound_connections: 100,
        };
        (issuer, enroller)
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
        let (issuer, enroller) = enroller();
        let applicant = applicant(Variant::Delta);
        let enrolled = enroller.enroll(&applicant).await.unwrap();
        let issued = issuer.proxies.lock().unwrap().clone();
        let [(proxy, account, certificate)] = issued.as_slice() else { panic!("{issued:?}") };
        assert_eq!((proxy, account), (&applicant.proxy, &applicant.account));
        assert_eq!(enrolled.serial(), &certificate.serial);
        let bootstrap = serde_json::to_value(enrolled.bootstrap()).unwrap();
        assert_eq!(bootstrap["node"]["id"], applicant.proxy.to_string());
        let tls = &bootstrap["static_resources"]["clusters"][0]["transport_socket"]["typed_config"]["common_tls_context"];
        let own = &tls["tls_certificates"][0];
        assert_eq!(own["certificate_chain"]["inline_string"], certificate.chain_pem);
        assert_eq!(own["private_key"]["inline_string"], certificate.key_pem.as_str());
        assert_eq!(tls["validation_context"]["trusted_ca"]["inline_string"], issuer.bundle().pem);
        let text = bootstrap.to_string();
        assert!(text.contains("10.0.0.9") && text.contains("controller.smc"));
    }

    #[tokio::test]
    async fn the_variant_of_the_envoy_decides_the_api_type() {
        let (_, enroller) = enroller();
        for (variant, api) in [(Variant::Delta, "DELTA_GRPC"), (Variant::Sotw, "GRPC")] {
            let applicant = applicant(variant);
            let enrolled = enroller.enroll(&applicant).await.unwrap();
            let bootstrap = serde_json::to_value(enrolled.bootstrap()).unwrap();
            assert_eq!(bootstrap["dynamic_resources"]["ads_config"]["api_type"], api);
        }
    }

    #[tokio::test]
    async fn every_enrolment_issues_another_certificate() {
        let (_, enroller) = enroller();
        let applicant = applicant(Variant::Delta);
        let first = enroller.enroll(&applicant).await.unwrap();
        assert_ne!(first.serial(), enroller.enroll(&applicant).await.unwrap().serial());
    }
}
