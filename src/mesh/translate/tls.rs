//! The transport sockets of both ends of a mesh connection, and of the end that an ingress connects to.
//! Within the mesh, mutual TLS only.
//!
//! Owns the TLS parameters. Certificates and validation contexts come by SDS ([`super::secret`]).

use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::util::pack_any;
use tls::common_tls_context::ValidationContextType;
use tls::tls_parameters::TlsProtocol;

use super::proto;
use smc_types::ids::ServiceId;
use smc_xds::names;

/// The ALPN protocols that the server's end accepts for HTTP. The client's end configures none,
/// because Envoy offers the protocol of the connection pool.
const HTTP_ALPN: [&str; 2] = ["h2", "http/1.1"];

/// The longest host name in SNI (RFC 6066 §3 and RFC 1035 §2.3.4).
const LONGEST_HOST_NAME: usize = 253;

/// The client's end of a connection to `service`.
pub(super) fn upstream(service: &ServiceId) -> TransportSocket {
    socket(pack_any(tls::UpstreamTlsContext {
        common_tls_context: Some(common(Some(&names::outbound_validation(service)), false)),
        // The server selects by it among the protocols of one port.
        sni: Some(service.fqdn()).filter(|name| name.len() <= LONGEST_HOST_NAME).unwrap_or_default(),
        ..tls::UpstreamTlsContext::default()
    }))
}

/// The server's end: the client must show a certificate that the secret `validation` accepts.
pub(super) fn downstream(validation: &str, http: bool) -> TransportSocket {
    server(Some(validation), true, http)
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
pub(super) fn of_ingress(clients: &ClientCertificates) -> TransportSocket {
    match clients {
        ClientCertificates::None => server(None, false, true),
        ClientCertificates::Optional(validation) => server(Some(validation), false, true),
        ClientCertificates::Required(validation) => server(Some(validation), true, true),
    }
}

fn server(validation: Option<&str>, required: bool, http: bool) -> TransportSocket {
    socket(pack_any(tls::DownstreamTlsContext {
        common_tls_context: Some(common(validation, http)),
        require_client_certificate: Some(proto::switch(required)),
        ..tls::DownstreamTlsContext::default()
    }))
}

fn common(validation: Option<&str>, http_alpn: bool) -> tls::CommonTlsContext {
    tls::CommonTlsContext {
        // Envoy's default maximum for clients is TLS 1.2.
        tls_params: Some(tls::TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..tls::TlsParameters::default()
        }),
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
