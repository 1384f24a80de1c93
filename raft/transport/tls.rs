//! Mutual TLS between replicas.
//!
//! All replicas of a group hold the same secret, derived from the key-encryption key, whose holder can
//! unseal the mesh's root key anyway. From the secret each replica derives the same certificate authority,
//! used within the group only, and issues itself a certificate that names its ordinal. So no certificate
//! has to be distributed before the group exists, and none renewed; the mesh's own CA, and so any proxy
//! certificate, is not trusted here.
//!
//! A replica's private key is generated at its start and never leaves its memory. Certificates do not
//! expire: an expiry would not help against an attacker who read that memory, which holds the secret as
//! well.

use std::sync::Arc;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use smc_types::ids::ReplicaId;
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// The domain of replica names. They are never looked up.
const DOMAIN: &str = "replica.smc.internal";

/// The prefix of a 32-byte Ed25519 private key in PKCS#8 version 1 (RFC 8410, section 7).
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The secret of one group, known to its replicas only.
#[derive(Clone)]
pub struct GroupSecret(Zeroizing<[u8; 32]>);

impl GroupSecret {
    /// Takes 32 random bytes.
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Derives the secret from a key that the replicas of the group hold. The key cannot be derived from it.
    pub fn derived_from(key: &[u8; 32], purpose: &[u8]) -> Result<Self, NotDerived> {
        derive(key, b"", purpose).map(Self)
    }

    /// Derives a key for another purpose. The secret cannot be derived from it.
    pub(crate) fn derive(&self, salt: &[u8], purpose: &[u8]) -> Result<Zeroizing<[u8; 32]>, NotDerived> {
        derive(&self.0, salt, purpose)
    }
}

/// Derives a key from another one (HKDF-SHA-256, RFC 5869).
fn derive(key: &[u8; 32], salt: &[u8], purpose: &[u8]) -> Result<Zeroizing<[u8; 32]>, NotDerived> {
    let mut derived = Zeroizing::new([0; 32]);
    // Fails only for lengths that HKDF-SHA-256 cannot give.
    Salt::new(HKDF_SHA256, salt)
        .extract(key)
        .expand(&[purpose], HKDF_SHA256)
        .and_then(|key| key.fill(&mut *derived))
        .map_err(|_| NotDerived)?;
    Ok(derived)
}

impl std::fmt::Debug for GroupSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupSecret")
    }
}

/// No key could be derived. Cannot happen with keys of this length.
#[derive(Debug, Error)]
#[error("a key cannot be derived")]
pub struct NotDerived;

/// Why a replica has no certificate. Cannot happen with a secret of the right length.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The certificate could not be made.
    #[error("cannot make the replica's own certificate")]
    Certificate(#[from] rcgen::Error),
    /// It could not be put to use.
    #[error("cannot set up TLS between replicas")]
    Rustls(#[from] rustls::Error),
    /// Its verifier could not be made.
    #[error("cannot set up the verification of replicas")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Both sides of TLS for one replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReplicaTls {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl ReplicaTls {
    /// The certificate of `replica` under `secret`, and trust in certificates under it or one of `others`.
    pub(crate) fn new(
        secret: &GroupSecret,
        others: &[GroupSecret],
        replica: ReplicaId,
    ) -> Result<Self, TlsError> {
        let params = authority_params();
        let mut roots = RootCertStore::empty();
        for trusted in std::iter::once(secret).chain(others) {
            let key = Zeroizing::new(authority_key(trusted)?);
            roots.add(params.self_signed(&*key)?.der().clone())?;
        }
        let authority_key = Zeroizing::new(authority_key(secret)?);
        let issuer = Issuer::from_params(&params, &*authority_key);
        #[expect(clippy::disallowed_methods, reason = "the replica's own key, for one run")]
        let key = Zeroizing::new(KeyPair::generate_for(&rcgen::PKCS_ED25519)?);
        let certificate = replica_params(replica)?.signed_by(&*key, &issuer)?;

        let roots = Arc::new(roots);
        let chain = vec![certificate.der().clone()];
        let key = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = &[&rustls::version::TLS13];
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider)).build()?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key())?;
        server.alpn_protocols = vec![b"h2".to_vec()];
        // Connections are long-lived, and a resumed one would skip the verification of the certificate.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key())?;
        client.alpn_protocols = vec![b"h2".to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

fn authority_key(secret: &GroupSecret) -> Result<KeyPair, rcgen::Error> {
    let mut pkcs8 = Zeroizing::new(PKCS8_ED25519.to_vec());
    pkcs8.extend_from_slice(&*secret.0);
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()), &rcgen::PKCS_ED25519)
}

/// The group's authority, equal on every replica.
fn authority_params() -> CertificateParams {
    let mut params = unexpiring(1);
    params.distinguished_name.push(DnType::CommonName, "SMC replicas");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn replica_params(replica: ReplicaId) -> Result<CertificateParams, rcgen::Error> {
    let mut params = unexpiring(replica.0.saturating_add(2));
    params.subject_alt_names = vec![SanType::DnsName(Ia5String::try_from(dns_name(replica))?)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn unexpiring(serial: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serial_number = Some(SerialNumber::from(serial));
    params.not_before = rcgen::date_time_ymd(1975, 1, 1);
    params.not_after = rcgen::date_time_ymd(4096, 1, 1);
    params
}

fn dns_name(replica: ReplicaId) -> String {
    format!("{replica}.{DOMAIN}")
}

/// The name that a client requires in the certificate of the replica it connects to.
pub(crate) fn server_name(replica: ReplicaId) -> Result<ServerName<'static>, InvalidDnsNameError> {
    ServerName::try_from(dns_name(replica))
}

/// The replica that a certificate names. The handshake has verified that the group's authority signed it.
pub(crate) fn replica_of(certificate: &CertificateDer<'_>) -> Option<ReplicaId> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let [GeneralName::DNSName(name)] = names.value.general_names[..] else { return None };
    name.strip_suffix(DOMAIN)?.strip_suffix('.')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    fn tls(secret: u8, replica: u64) -> ReplicaTls {
        tls_of(secret, &[], replica)
    }

    fn tls_of(secret: u8, others: &[u8], replica: u64) -> ReplicaTls {
        let secret_of = |byte: &u8| GroupSecret::new(Zeroizing::new([*byte; 32]));
        let others: Vec<_> = others.iter().map(secret_of).collect();
        ReplicaTls::new(&secret_of(&secret), &others, ReplicaId(replica)).unwrap()
    }

    /// Connects `client` to `server`, expecting replica `wanted`. Returns the replica that the server sees.
    async fn connect(client: &ReplicaTls, server: &ReplicaTls, wanted: u64) -> io::Result<Option<ReplicaId>> {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = server_name(ReplicaId(wanted)).unwrap();
        let connecting = TlsConnector::from(Arc::clone(&client.client)).connect(name, near);
        let accepting = TlsAcceptor::from(Arc::clone(&server.server)).accept(far);
        let (connected, accepted) = tokio::join!(connecting, accepting);
        connected?;
        let accepted = accepted?;
        Ok(accepted.get_ref().1.peer_certificates().and_then(|chain| replica_of(chain.first()?)))
    }

    #[tokio::test]
    async fn replicas_of_one_group_recognise_each_other_by_ordinal() {
        assert_eq!(connect(&tls(1, 0), &tls(1, 12), 12).await.unwrap(), Some(ReplicaId(0)));
        assert_eq!(connect(&tls(1, 12), &tls(1, 0), 0).await.unwrap(), Some(ReplicaId(12)));
    }

    #[tokio::test]
    async fn a_replica_of_another_group_is_refused_by_both_sides() {
        connect(&tls(1, 0), &tls(2, 1), 1).await.unwrap_err();
        connect(&tls(2, 0), &tls(1, 1), 1).await.unwrap_err();
    }

    /// A client that trusts the group's authority and shows this certificate, or none.
    fn outsider(shown: Option<(CertificateDer<'static>, KeyPair)>) -> ClientConfig {
        let secret = GroupSecret::new(Zeroizing::new([1; 32]));
        let authority = authority_params().self_signed(&authority_key(&secret).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        match shown {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        }
    }

    #[tokio::test]
    async fn the_server_refuses_a_proxy_and_a_client_without_certificate() {
        #[expect(clippy::disallowed_methods, reason = "any keys do")]
        let [mesh, proxy] = [(); 2].map(|()| KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap());
        // Even one whose certificate names a replica.
        let params = authority_params();
        let issuer = Issuer::from_params(&params, &mesh);
        let certificate = replica_params(ReplicaId(0)).unwrap().signed_by(&proxy, &issuer).unwrap();
        let shown = Some((certificate.der().clone(), proxy));
        for (shown, reason) in [(None, "NoCertificates"), (shown, "InvalidCertificate")] {
            let client = ReplicaTls { client: Arc::new(outsider(shown)), ..tls(1, 0) };
            let refused = connect(&client, &tls(1, 1), 1).await.unwrap_err();
            assert!(format!("{refused:?}").contains(reason), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn while_a_secret_is_replaced_each_step_trusts_the_one_before() {
        // Only the old secret; the old one, and the new one is trusted; the reverse; only the new one.
        let steps: [(u8, &[u8]); 4] = [(1, &[]), (1, &[2]), (2, &[1]), (2, &[])];
        for pair in steps.windows(2) {
            let [(a, trusted_by_a), (b, trusted_by_b)] = pair else { unreachable!() };
            for (a, b) in [((a, trusted_by_a), (b, trusted_by_b)), ((b, trusted_by_b), (a, trusted_by_a))] {
                let (a, b) = (tls_of(*a.0, a.1, 0), tls_of(*b.0, b.1, 1));
                assert_eq!(connect(&a, &b, 1).await.unwrap(), Some(ReplicaId(0)));
            }
        }
        // Two steps at once are too many.
        connect(&tls_of(1, &[], 0), &tls_of(2, &[1], 1), 1).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_replica_in_the_place_of_another_is_refused() {
        connect(&tls(1, 0), &tls(1, 1), 2).await.unwrap_err();
    }

    #[test]
    fn a_certificate_that_names_no_replica_is_not_accepted_as_one() {
        let named = |name: &str| {
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            #[expect(clippy::disallowed_methods, reason = "any key does")]
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().der().clone()
        };
        for name in ["example.com", "replica.smc.internal", ".replica.smc.internal", "x.replica.smc.internal"]
        {
            assert_eq!(replica_of(&named(name)), None, "{name}");
        }
        assert_eq!(replica_of(&named("7.replica.smc.internal")), Some(ReplicaId(7)));
        assert_eq!(replica_of(&CertificateDer::from(vec![0x30, 0x80])), None);
    }
}
