//! The two ends of a mesh connection as transport sockets: mutual TLS, both ways, nothing else.
//!
//! Owns the TLS parameters. Certificates and trust come by SDS, see [`super::secret`].

use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::util::pack_any;
use tls::common_tls_context::ValidationContextType;
use tls::tls_parameters::TlsProtocol;

use super::{names, proto};
use crate::ids::ServiceId;

/// What the upstream end offers nothing of and the downstream end accepts for HTTP: Envoy itself offers
/// the one protocol of the connection pool.
const HTTP_ALPN: [&str; 2] = ["h2", "http/1.1"];

/// The longest host name that TLS can ask for (RFC 6066 §3 by way of RFC 1035 §2.3.4).
const LONGEST_HOST_NAME: usize = 253;

/// The client's end of a connection to `service`.
pub(super) fn upstream(service: &ServiceId) -> TransportSocket {
    socket(pack_any(tls::UpstreamTlsContext {
        common_tls_context: Some(common(&names::outbound_validation(service), false)),
        // Chooses among the protocols that services speak on one port of a pod.
        sni: Some(service.fqdn()).filter(|name| name.len() <= LONGEST_HOST_NAME).unwrap_or_default(),
        ..tls::UpstreamTlsContext::default()
    }))
}

/// The server's end: the client must show a certificate that the secret `validation` accepts.
pub(super) fn downstream(validation: &str, http: bool) -> TransportSocket {
    socket(pack_any(tls::DownstreamTlsContext {
        common_tls_context: Some(common(validation, http)),
        require_client_certificate: Some(proto::switch(true)),
        ..tls::DownstreamTlsContext::default()
    }))
}

fn common(validation: &str, http_alpn: bool) -> tls::CommonTlsContext {
    tls::CommonTlsContext {
        // Envoy's clients stop at 1.2 unless told.
        tls_params: Some(tls::TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
            ..tls::TlsParameters::default()
        }),
        tls_certificate_sds_secret_configs: vec![sds(names::SERVICE_CERTIFICATE)],
        alpn_protocols: if http_alpn { HTTP_ALPN.map(str::to_owned).to_vec() } else { Vec::new() },
        validation_context_type: Some(ValidationContextType::ValidationContextSdsSecretConfig(sds(
            validation,
        ))),
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
