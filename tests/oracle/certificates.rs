//! A certificate authority for one run, and the certificates of the identities of all meshes.

use std::collections::BTreeMap;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::generate::ACCOUNTS;

/// A certificate and its key, PEM.
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

pub(crate) struct Certificates {
    pub(crate) root: String,
    /// By `namespace/account`.
    pub(crate) identities: BTreeMap<String, Identity>,
}

impl Certificates {
    #[expect(clippy::disallowed_methods, reason = "keys of this test's own, which decide nothing")]
    pub(crate) fn new() -> Self {
        let root_key = KeyPair::generate().unwrap();
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_pem = root.self_signed(&root_key).unwrap().pem();
        let issuer = Issuer::new(root, root_key);
        let identities = ACCOUNTS.iter().map(|(namespace, account)| {
            let key = KeyPair::generate().unwrap();
            let mut leaf = CertificateParams::default();
            let id = format!("spiffe://cluster.local/ns/{namespace}/sa/{account}");
            leaf.distinguished_name.push(DnType::CommonName, format!("{account}.{namespace}"));
            leaf.subject_alt_names = vec![SanType::URI(id.as_str().try_into().unwrap())];
            let chain = leaf.signed_by(&key, &issuer).unwrap().pem();
            (format!("{namespace}/{account}"), Identity { chain, key: key.serialize_pem() })
        });
        Self { root: root_pem, identities: identities.collect() }
    }
}
