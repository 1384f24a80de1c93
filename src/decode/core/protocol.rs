//! The application protocol of a service port.
//!
//! Three rules, of which the first that applies wins: `appProtocol`; the port name, alone or as a prefix
//! before a hyphen; http. Kubernetes leaves the meaning of an unknown `appProtocol` to implementations
//! (Service API): an unknown one is reported, and the next rule applies.

use smc_types::proxy_class::AppProtocol;

/// Names and prefixes of ports; a longer one stands before its own prefix.
const NAMES: [(&str, AppProtocol); 6] = [
    ("tcp-server-first", AppProtocol::TcpServerFirst),
    ("http", AppProtocol::Http),
    ("http2", AppProtocol::Http2),
    ("grpc", AppProtocol::Http2),
    ("https", AppProtocol::Https),
    ("tcp", AppProtocol::Tcp),
];

/// The protocol of an `appProtocol` that this mesh knows. Case does not matter.
fn from_app_protocol(text: &str) -> Option<AppProtocol> {
    Some(match text.to_ascii_lowercase().as_str() {
        // WebSocket begins as an HTTP/1.1 upgrade (RFC 6455), over TLS in its `wss` form.
        "http" | "kubernetes.io/ws" => AppProtocol::Http,
        "http2" | "h2c" | "grpc" | "kubernetes.io/h2c" => AppProtocol::Http2,
        "https" | "kubernetes.io/wss" => AppProtocol::Https,
        "tcp" => AppProtocol::Tcp,
        "tcp-server-first" => AppProtocol::TcpServerFirst,
        _ => return None,
    })
}

fn from_port_name(name: &str) -> Option<AppProtocol> {
    NAMES.into_iter().find_map(|(known, protocol)| {
        let rest = name.strip_prefix(known)?;
        (rest.is_empty() || rest.starts_with('-')).then_some(protocol)
    })
}

/// The protocol of a port, and whether its `appProtocol` is known (true without one).
pub(super) fn of_port(app_protocol: Option<&str>, name: Option<&str>) -> (AppProtocol, bool) {
    let stated = app_protocol.filter(|text| !text.is_empty());
    let known = stated.map(from_app_protocol);
    let protocol = known.flatten().or_else(|| from_port_name(name?)).unwrap_or(AppProtocol::Http);
    (protocol, known != Some(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_comes_from_app_protocol_then_the_port_name_then_http() {
        use AppProtocol::{Http, Http2, Https, Tcp, TcpServerFirst};
        for (app_protocol, name, expected) in [
            (None, None, Http),
            (None, Some("web"), Http),
            (None, Some("http"), Http),
            (None, Some("http-admin"), Http),
            (None, Some("httpx"), Http),
            (None, Some("http2"), Http2),
            (None, Some("http2-admin"), Http2),
            (None, Some("grpc"), Http2),
            (None, Some("grpc-store"), Http2),
            (None, Some("grpcx"), Http),
            (None, Some("https"), Https),
            (None, Some("https-a"), Https),
            (None, Some("tcp"), Tcp),
            (None, Some("tcp-db"), Tcp),
            (None, Some("tcpdump"), Http),
            (None, Some("tcp-server"), Tcp),
            (None, Some("tcp-server-first"), TcpServerFirst),
            (None, Some("tcp-server-first-mysql"), TcpServerFirst),
            (None, Some("tcp-server-firstly"), Tcp),
            (Some("http"), Some("tcp"), Http),
            (Some("HTTP"), Some("tcp"), Http),
            (Some("grpc"), None, Http2),
            (Some("http2"), None, Http2),
            (Some("h2c"), None, Http2),
            (Some("kubernetes.io/h2c"), Some("http"), Http2),
            (Some("kubernetes.io/ws"), Some("tcp"), Http),
            (Some("kubernetes.io/wss"), None, Https),
            (Some("https"), Some("http"), Https),
            (Some("tcp"), Some("http"), Tcp),
            (Some("tcp-server-first"), Some("http"), TcpServerFirst),
            (Some(""), Some("tcp"), Tcp),
        ] {
            assert_eq!(of_port(app_protocol, name), (expected, true), "{app_protocol:?} {name:?}");
        }
    }

    #[test]
    fn an_unknown_app_protocol_is_told_and_leaves_the_question_to_the_name() {
        assert_eq!(of_port(Some("mycompany.com/x"), Some("tcp-x")), (AppProtocol::Tcp, false));
        assert_eq!(of_port(Some("mysql"), None), (AppProtocol::Http, false));
    }
}
