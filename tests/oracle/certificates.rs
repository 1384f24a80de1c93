//! A certificate authority for one run, and the certificates of the identities of all meshes.

use std::collections::BTreeMap;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::generate::ACCOUNTS;
use crate::outsiders::GATEWAYS;

/// A certificate and its key, PEM.
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

pub(crate) struct Certificates {
    pub(crate) root: String,
    /// By `namespace/account`.
    pub(crate) identities: BTreeMap<String, Identity>,
    /// Of gateways, by the DNS name in each.
    pub(crate) gateways: BTreeMap<&'static str, Identity>,
    /// Of an identity that no workload in the mesh has.
    pub(crate) stranger: Identity,
}

impl Certificates {
    #[expect(clippy::disallowed_methods, reason = "keys of this test's own, which decide nothing")]
    pub(crate) fn new() -> Self {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let issuer = Issuer::new(root, root_key);
        let signed = |leaf: &CertificateParams| {
            let key = KeyPair::generate().unwrap();
            let chain = leaf.signed_by(&key, &issuer).unwrap().pem();
            Identity { chain, key: key.serialize_pem() }
        };
        let gateways = GATEWAYS.map(|name| {
            let mut leaf = CertificateParams::default();
            // Otherwise its subject is that of the root, and it passes for signed by itself.
            leaf.distinguished_name.push(DnType::CommonName, "gateway");
            leaf.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
            (name, signed(&leaf))
        });
        let workload = |namespace: &str, account: &str| {
            let mut leaf = CertificateParams::default();
            let id = format!("spiffe://cluster.local/ns/{namespace}/sa/{account}");
            leaf.distinguished_name.push(DnType::CommonName, format!("{account}.{namespace}"));
            leaf.subject_alt_names = vec![SanType::URI(id.as_str().try_into().unwrap())];
            signed(&leaf)
        };
        let stranger = workload("edge", "gateway");
        let identities = ACCOUNTS
            .iter()
            .map(|(namespace, account)| (format!("{namespace}/{account}"), workload(namespace, account)));
        Self { root: root_pem, identities: identities.collect(), gateways: gateways.into(), stranger }
    }
}
