//! The application protocol of a service port.
//!
//! Four rules, of which the first that applies wins: `appProtocol`; the port name, alone or as a prefix
//! before a hyphen; the number of the port, if it is that of a protocol other than HTTP; http. Kubernetes
//! leaves the meaning of an unknown `appProtocol` to implementations (Service API): an unknown one is
//! reported, and the next rule applies.
//!
//! Bytes that are taken for HTTP and are none make both ends wait, or fail, without a reason that anything
//! shows. HTTP that is taken for bytes works, but for rules about requests, which do not apply, so that no
//! access is given by mistake. So what is known to be no HTTP is carried as it is.

use smc_types::proxy_class::AppProtocol;

/// The names that say how bytes are carried; a longer one stands before its own prefix.
const CARRIAGES: [(&str, AppProtocol); 6] = [
    ("tcp-server-first", AppProtocol::TcpServerFirst),
    ("http", AppProtocol::Http),
    ("http2", AppProtocol::Http2),
    ("grpc", AppProtocol::Http2),
    ("https", AppProtocol::Https),
    ("tcp", AppProtocol::Tcp),
];

/// A protocol of applications other than HTTP: its names, of IANA's registry of services first, and its
/// port there, or the one that its servers listen on by default.
type Known = (&'static [&'static str], Option<u16>);

/// In these, the server speaks first.
const SERVER_FIRST: [Known; 9] = [
    (&["ftp"], Some(21)),
    (&["ssh", "sftp"], Some(22)),
    (&["telnet"], Some(23)),
    (&["smtp"], Some(25)),
    (&["pop3"], Some(110)),
    (&["imap"], Some(143)),
    (&["submission"], Some(587)),
    (&["mysql", "mariadb"], Some(3306)),
    (&["nats"], Some(4222)),
];

/// In these, the client speaks first.
const CLIENT_FIRST: [Known; 12] = [
    (&["ldap"], Some(389)),
    (&["ms-sql-s", "mssql"], Some(1433)),
    (&["oracle"], Some(1521)),
    (&["mqtt"], Some(1883)),
    (&["zookeeper"], Some(2181)),
    (&["postgresql", "postgres", "pgsql"], Some(5432)),
    (&["amqp"], Some(5672)),
    (&["redis"], Some(6379)),
    (&["cql", "cassandra"], Some(9042)),
    (&["kafka"], Some(9092)),
    (&["memcache", "memcached"], Some(11211)),
    (&["mongodb", "mongo"], Some(27017)),
];

/// In these, TLS comes first, which is the application's own.
const TLS_FIRST: [Known; 8] = [
    (&["tls", "ssl"], None),
    (&["https"], Some(443)),
    (&["submissions", "smtps"], Some(465)),
    (&["ldaps"], Some(636)),
    (&["imaps"], Some(993)),
    (&["pop3s"], Some(995)),
    (&["amqps"], Some(5671)),
    (&["secure-mqtt", "mqtts"], Some(8883)),
];

/// All of them, with how they are carried.
fn known() -> impl Iterator<Item = (Known, AppProtocol)> {
    let carried = |protocol| move |known: &Known| (*known, protocol);
    let server_first = SERVER_FIRST.iter().map(carried(AppProtocol::TcpServerFirst));
    let client_first = CLIENT_FIRST.iter().map(carried(AppProtocol::Tcp));
    server_first.chain(client_first).chain(TLS_FIRST.iter().map(carried(AppProtocol::Https)))
}

/// The protocol of an `appProtocol` that this mesh knows. Case does not matter.
fn from_app_protocol(text: &str) -> Option<AppProtocol> {
    let text = text.to_ascii_lowercase();
    Some(match text.as_str() {
        // WebSocket begins as an HTTP/1.1 upgrade (RFC 6455), over TLS in its `wss` form.
        "http" | "kubernetes.io/ws" => AppProtocol::Http,
        "http2" | "h2c" | "grpc" | "kubernetes.io/h2c" => AppProtocol::Http2,
        "https" | "kubernetes.io/wss" => AppProtocol::Https,
        "tcp" => AppProtocol::Tcp,
        "tcp-server-first" => AppProtocol::TcpServerFirst,
        other => {
            return known().find_map(|((names, _), protocol)| names.contains(&other).then_some(protocol));
        }
    })
}

fn from_port_name(name: &str) -> Option<AppProtocol> {
    let applications = known().flat_map(|((names, _), protocol)| names.iter().map(move |of| (*of, protocol)));
    CARRIAGES.into_iter().chain(applications).find_map(|(known, protocol)| {
        let rest = name.strip_prefix(known)?;
        (rest.is_empty() || rest.starts_with('-')).then_some(protocol)
    })
}

fn from_number(number: u16) -> Option<AppProtocol> {
    known().find_map(|((_, port), protocol)| (port == Some(number)).then_some(protocol))
}

/// The protocol of a port, and whether its `appProtocol` is known (true without one).
pub(super) fn of_port(app_protocol: Option<&str>, name: Option<&str>, number: u16) -> (AppProtocol, bool) {
    let stated = app_protocol.filter(|text| !text.is_empty());
    let known = stated.map(from_app_protocol);
    let by_name = || from_port_name(name?);
    let protocol = known.flatten().or_else(by_name).or_else(|| from_number(number));
    (protocol.unwrap_or(AppProtocol::Http), known != Some(None))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
            (None, Some("mysql"), TcpServerFirst),
            (None, Some("mysql-primary"), TcpServerFirst),
            (None, Some("mysqlx"), Http),
            (None, Some("postgres"), Tcp),
            (None, Some("redis-cache"), Tcp),
            (None, Some("tls"), Https),
            (None, Some("ldaps"), Https),
            (None, Some("secure-mqtt"), Https),
            (None, Some("http-mysql"), Http),
            (Some("mysql"), None, TcpServerFirst),
            (Some("postgresql"), Some("http"), Tcp),
            (Some("http"), Some("mysql"), Http),
        ] {
            assert_eq!(of_port(app_protocol, name, 80), (expected, true), "{app_protocol:?} {name:?}");
        }
    }

    #[test]
    fn a_number_says_what_neither_app_protocol_nor_the_name_says() {
        use AppProtocol::{Http, Https, Tcp, TcpServerFirst};
        for (app_protocol, name, number, expected) in [
            (None, None, 3306, TcpServerFirst),
            (None, Some("db"), 3306, TcpServerFirst),
            (None, Some("http"), 3306, Http),
            (None, Some("tcp"), 3306, Tcp),
            (Some("http"), None, 3306, Http),
            (Some("tcp"), Some("http"), 3306, Tcp),
            (None, None, 25, TcpServerFirst),
            (None, None, 5432, Tcp),
            (None, None, 443, Https),
            (None, Some("web"), 443, Https),
            (None, Some("http"), 443, Http),
            (None, None, 80, Http),
            (None, None, 8080, Http),
            (None, None, 33060, Http),
        ] {
            let read = of_port(app_protocol, name, number);
            assert_eq!(read, (expected, true), "{app_protocol:?} {name:?} {number}");
        }
        assert_eq!(of_port(Some("mycompany.com/x"), None, 3306), (TcpServerFirst, false));
    }

    #[test]
    fn no_name_and_no_number_stands_for_two_protocols() {
        let names: Vec<_> = known().flat_map(|((names, _), _)| names).collect();
        let numbers: Vec<_> = known().filter_map(|((_, port), _)| port).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
    }

    #[test]
    fn an_unknown_app_protocol_is_told_and_leaves_the_question_to_the_name() {
        assert_eq!(of_port(Some("mycompany.com/x"), Some("tcp-x"), 80), (AppProtocol::Tcp, false));
        assert_eq!(of_port(Some("mycompany.com/x"), None, 80), (AppProtocol::Http, false));
    }
}
