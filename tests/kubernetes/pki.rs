//! Owns the keys and certificates of one cluster: a CA, and a certificate for each component.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::ClusterError;
use crate::config::{API_SERVICE, NODE, NODE_ADDRESS};

/// A certificate to make: name of its files, common name, organisation, subject alternative names.
struct Leaf(&'static str, &'static str, Option<&'static str>, &'static [&'static str]);

/// Every component has a certificate that serves and connects. Kubernetes takes the user from the
/// common name and the groups from the organisation.
const LEAVES: [Leaf; 11] = [
    Leaf(
        "apiserver",
        "kube-apiserver",
        None,
        &[
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "localhost",
            // Relays listen there.
            "127.0.0.1",
            NODE_ADDRESS,
            API_SERVICE,
        ],
    ),
    Leaf("etcd", "etcd", None, &["localhost"]),
    Leaf("etcd-client", "kube-apiserver", None, &[]),
    Leaf("admin", "admin", Some("system:masters"), &[]),
    Leaf("controller-manager", "system:kube-controller-manager", None, &[]),
    Leaf("scheduler", "system:kube-scheduler", None, &[]),
    Leaf("proxy", "system:kube-proxy", None, &[]),
    Leaf("kubelet", "system:node:node", Some("system:nodes"), &[NODE, NODE_ADDRESS]),
    Leaf("apiserver-kubelet", "apiserver-kubelet", Some("system:masters"), &[]),
    Leaf("front-proxy", "front-proxy", None, &[]),
    Leaf("coredns", "coredns", None, &[]),
];

/// The directory of keys and certificates.
#[derive(Clone, Debug)]
pub(crate) struct Keys(pub(crate) PathBuf);

impl Keys {
    /// Makes all of them, in files that this user alone can read, for an API server and an etcd that listen
    /// at `host`.
    #[expect(clippy::disallowed_methods, reason = "keys of a test cluster, outside the mesh's own CA")]
    pub(crate) fn make(directory: PathBuf, host: Ipv4Addr) -> Result<Self, ClusterError> {
        let keys = Self(directory);
        let key = |subject: &str| KeyPair::generate().map_err(failed(subject));
        let ca_key = key("the CA")?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "kubernetes");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        let certificate = ca.self_signed(&ca_key).map_err(failed("the CA"))?;
        keys.write("ca.crt", &certificate.pem())?;
        keys.write("ca.key", &ca_key.serialize_pem())?;
        // Tokens of service accounts: a key without a certificate.
        let tokens = key("service accounts")?;
        keys.write("service-accounts.key", &tokens.serialize_pem())?;
        keys.write("service-accounts.pub", &tokens.public_key_pem())?;
        let issuer = Issuer::new(ca, ca_key);
        for Leaf(name, common_name, organisation, names) in &LEAVES {
            let leaf_key = key(name)?;
            let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            if ["apiserver", "etcd"].contains(name) {
                names.push(host.to_string());
            }
            let mut leaf = CertificateParams::new(names).map_err(failed(name))?;
            // In place of the default name of the library.
            leaf.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(organisation) = organisation {
                leaf.distinguished_name.push(DnType::OrganizationName, *organisation);
            }
            leaf.distinguished_name.push(DnType::CommonName, *common_name);
            leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            leaf.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let certificate = leaf.signed_by(&leaf_key, &issuer).map_err(failed(name))?;
            keys.write(&format!("{name}.crt"), &certificate.pem())?;
            keys.write(&format!("{name}.key"), &leaf_key.serialize_pem())?;
        }
        Ok(keys)
    }

    fn write(&self, file: &str, pem: &str) -> Result<(), ClusterError> {
        let path = self.0.join(file);
        // A start that failed half-way may have left one.
        let _ = fs::remove_file(&path);
        let opened = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
        opened.and_then(|mut file| file.write_all(pem.as_bytes())).map_err(ClusterError::file("write", &path))
    }

    /// The certificate of the CA.
    pub(crate) fn ca(&self) -> PathBuf {
        self.0.join("ca.crt")
    }

    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.crt"))
    }

    pub(crate) fn key(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.key"))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }
}

fn failed(subject: &str) -> impl FnOnce(rcgen::Error) -> ClusterError {
    let subject = subject.to_owned();
    move |source| ClusterError::Certificate { subject, source }
}
