//! The transport sockets of both ends of a mesh connection, and of the end that an ingress connects to.
//! Within the mesh, mutual TLS only.
//!
//! Owns which end has which TLS parameters. Certificates and validation contexts come by SDS
//! ([`super::secret`]).

use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::util::pack_any;
use tls::common_tls_context::ValidationContextType;
use tls::tls_parameters::TlsProtocol;

use super::proto;
use smc_model::tls_parameters::{TlsParameters, TlsVersion};
use smc_types::ids::ServiceId;
use smc_xds::names;

/// The ALPN protocols that the server's end accepts for HTTP. The client's end configures none,
/// because Envoy offers the protocol of the connection pool.
const HTTP_ALPN: [&str; 2] = ["h2", "http/1.1"];

/// The longest host name in SNI (RFC 6066 §3 and RFC 1035 §2.3.4).
const LONGEST_HOST_NAME: usize = 253;

/// The client's end of a connection to `service`, with these curves or Envoy's own.
pub(super) fn upstream(service: &ServiceId, curves: &[&str]) -> TransportSocket {
    let curves = curves.iter().map(|&curve| curve.to_owned()).collect();
    // It offers what any choice can have, also while its server has another one.
    let offered = tls::TlsParameters { ecdh_curves: curves, ..of(&TlsParameters::default()) };
    socket(pack_any(tls::UpstreamTlsContext {
        common_tls_context: Some(common(Some(&names::outbound_validation(service)), false, offered)),
        // The server selects by it among the protocols of one port.
        sni: Some(service.fqdn()).filter(|name| name.len() <= LONGEST_HOST_NAME).unwrap_or_default(),
        ..tls::UpstreamTlsContext::default()
    }))
}

/// The server's end: the client must show a certificate that the secret `validation` accepts.
pub(super) fn downstream(validation: &str, http: bool, accepted: &TlsParameters) -> TransportSocket {
    server(Some(validation), true, http, accepted)
}

/// What is asked of a client outside of the mesh, with the name of the validation context.
pub(super) enum ClientCertificates {
    /// No certificate.
    None,
    /// A certificate that it accepts, or none.
    Optional(String),
    /// A certificate that it accepts.
    Required(String),
}

/// The server's end for an ingress.
pub(super) fn of_ingress(clients: &ClientCertificates, accepted: &TlsParameters) -> TransportSocket {
    match clients {
        ClientCertificates::None => server(None, false, true, accepted),
        ClientCertificates::Optional(validation) => server(Some(validation), false, true, accepted),
        ClientCertificates::Required(validation) => server(Some(validation), true, true, accepted),
    }
}

fn server(validation: Option<&str>, required: bool, http: bool, accepted: &TlsParameters) -> TransportSocket {
    socket(pack_any(tls::DownstreamTlsContext {
        common_tls_context: Some(common(validation, http, of(accepted))),
        require_client_certificate: Some(proto::switch(required)),
        ..tls::DownstreamTlsContext::default()
    }))
}

/// Envoy's form of a choice. Its default maximum for clients is TLS 1.2.
fn of(parameters: &TlsParameters) -> tls::TlsParameters {
    let version = |version: TlsVersion| match version {
        TlsVersion::Tls12 => TlsProtocol::TlSv12.into(),
        TlsVersion::Tls13 => TlsProtocol::TlSv13.into(),
    };
    tls::TlsParameters {
        tls_minimum_protocol_version: version(parameters.minimum),
        tls_maximum_protocol_version: version(parameters.maximum),
        cipher_suites: parameters.cipher_suites.clone(),
        ecdh_curves: parameters.curves.iter().map(|&curve| curve.to_owned()).collect(),
        ..tls::TlsParameters::default()
    }
}

fn common(
    validation: Option<&str>,
    http_alpn: bool,
    tls_params: tls::TlsParameters,
) -> tls::CommonTlsContext {
    tls::CommonTlsContext {
        tls_params: Some(tls_params),
        tls_certificate_sds_secret_configs: vec![sds(names::SERVICE_CERTIFICATE)],
        alpn_protocols: if http_alpn { HTTP_ALPN.map(str::to_owned).to_vec() } else { Vec::new() },
        validation_context_type: validation
            .map(|validation| ValidationContextType::ValidationContextSdsSecretConfig(sds(validation))),
        ..tls::CommonTlsContext::default()
    }
}

fn sds(name: &str) -> tls::SdsSecretConfig {
    tls::SdsSecretConfig { name: name.to_owned(), sds_config: Some(proto::ads()) }
}

fn socket(context: envoy_types::pb::google::protobuf::Any) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(context)),
    }
}
