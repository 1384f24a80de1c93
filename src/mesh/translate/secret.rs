//! Secrets (SDS): the proxy's certificate, and the certificates that it accepts.
//!
//! Owns the two forms of a secret: a certificate with its key, and a validation context. A
//! validation context always names identities. With roots alone, every workload of the mesh could
//! impersonate every other.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::core::v3::{DataSource, data_source};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

use super::settings::Settings;
use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_types::ids::ServiceAccountId;
use smc_xds::names;
use smc_xds::resource::{Resource, ResourceType};

/// The proxy's own certificate and key.
pub(super) fn service_certificate(certificate: &ServiceCertificate) -> Resource {
    let name = names::SERVICE_CERTIFICATE;
    let message = tls::Secret {
        name: name.to_owned(),
        r#type: Some(tls::secret::Type::TlsCertificate(tls::TlsCertificate {
            certificate_chain: Some(inline(&certificate.chain_pem)),
            private_key: Some(inline(&certificate.key_pem)),
            ..tls::TlsCertificate::default()
        })),
    };
    Resource::encode(ResourceType::Secret, name, &message)
}

/// Any identity of the mesh.
pub(super) fn anyone_in_mesh(name: &str, settings: &Settings, bundle: &TrustBundle) -> tls::Secret {
    validation(name, bundle, vec![MatchPattern::Prefix(mesh_prefix(settings))])
}

/// Exactly these identities. Envoy reads an empty list as any identity, so for none it holds an
/// identity that is never issued: all issued identities are below `/ns/`.
pub(super) fn exactly(
    name: &str,
    settings: &Settings,
    bundle: &TrustBundle,
    accounts: &BTreeSet<ServiceAccountId>,
) -> tls::Secret {
    let mut patterns: Vec<_> = accounts
        .iter()
        .map(|account| MatchPattern::Exact(settings.trust_domain.spiffe_id(account)))
        .collect();
    if patterns.is_empty() {
        patterns.push(MatchPattern::Exact(format!("spiffe://{}/nobody", settings.trust_domain)));
    }
    validation(name, bundle, patterns)
}

/// Exactly these DNS names, of certificates of the mesh's CA. There is at least one.
pub(super) fn gateways(name: &str, bundle: &TrustBundle, names: &BTreeSet<String>) -> tls::Secret {
    let names = names.iter().map(|name| MatchPattern::Exact(name.clone()));
    context(name, bundle, tls::subject_alt_name_matcher::SanType::Dns, names)
}

/// Any certificate of the mesh's CA. What has one is not let in by it: rules decide by its names.
pub(super) fn issued_by_the_mesh(name: &str, bundle: &TrustBundle) -> tls::Secret {
    context(name, bundle, tls::subject_alt_name_matcher::SanType::Dns, [])
}

/// The prefix of every SPIFFE ID of the mesh.
pub(super) fn mesh_prefix(settings: &Settings) -> String {
    format!("spiffe://{}/ns/", settings.trust_domain)
}

fn validation(name: &str, bundle: &TrustBundle, identities: Vec<MatchPattern>) -> tls::Secret {
    context(name, bundle, tls::subject_alt_name_matcher::SanType::Uri, identities)
}

fn context(
    name: &str,
    bundle: &TrustBundle,
    of: tls::subject_alt_name_matcher::SanType,
    names: impl IntoIterator<Item = MatchPattern>,
) -> tls::Secret {
    let matchers = names.into_iter().map(|pattern| tls::SubjectAltNameMatcher {
        san_type: of.into(),
        matcher: Some(StringMatcher { match_pattern: Some(pattern), ignore_case: false }),
        ..tls::SubjectAltNameMatcher::default()
    });
    tls::Secret {
        name: name.to_owned(),
        r#type: Some(tls::secret::Type::ValidationContext(tls::CertificateValidationContext {
            trusted_ca: Some(inline(&bundle.pem)),
            match_typed_subject_alt_names: matchers.collect(),
            ..tls::CertificateValidationContext::default()
        })),
    }
}

fn inline(text: &str) -> DataSource {
    DataSource {
        specifier: Some(data_source::Specifier::InlineString(text.to_owned())),
        ..DataSource::default()
    }
}
