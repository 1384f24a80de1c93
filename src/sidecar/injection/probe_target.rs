//! What a probe asks for, and the path under which the sidecar answers for it.
//!
//! Owns the correspondence, both ways: the path of a rewritten probe says everything about the original one.
//! So a Pod that is injected again, as a copy of a running one is, gets the same probes.

use std::fmt::Write as _;

use super::drawn::ProbeToken;

/// What is probed. Ports are those of the application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// A path over HTTP.
    Http {
        port: u16,
        /// Path and query, encoded.
        path: String,
    },
    /// A path over HTTPS. The certificate of the application is not verified, as by the kubelet.
    Https {
        port: u16,
        /// Path and query, encoded.
        path: String,
    },
    /// A port that takes connections.
    Tcp { port: u16 },
    /// The health service of gRPC, which answers for a service by name; without a name for the server.
    Grpc {
        port: u16,
        /// The name, encoded.
        service: String,
    },
}

impl Target {
    /// The port of the application.
    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Http { port, .. }
            | Self::Https { port, .. }
            | Self::Tcp { port }
            | Self::Grpc { port, .. } => *port,
        }
    }

    /// Whether Envoy checks it by itself. Otherwise the kubelet's request is passed on.
    pub(super) fn is_checked(&self) -> bool {
        match self {
            Self::Http { .. } | Self::Https { .. } => false,
            Self::Tcp { .. } | Self::Grpc { .. } => true,
        }
    }

    /// The path, and the query if there is one, at which the sidecar answers. It consists of characters that
    /// an HTTP client sends as they are.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Http { port, path } => format!("/http/{port}{path}"),
            Self::Https { port, path } => format!("/https/{port}{path}"),
            Self::Tcp { port } => format!("/tcp/{port}"),
            Self::Grpc { port, service } => format!("/grpc/{port}/{service}"),
        }
    }

    /// Reads such a path, as [`Self::path`] writes it, below the token of any pod and the number of headers
    /// ([`super::probes::Targets`]), or without them, as former versions wrote it. One with characters that
    /// are not sent as they are is none.
    pub(super) fn from_path(text: &str) -> Option<Self> {
        if encoded(text) != text {
            return None;
        }
        let (first, rest) = text.strip_prefix('/')?.split_once('/')?;
        let (kind, rest) = match ProbeToken::parse(first) {
            None => (first, rest),
            Some(_) => match rest.split_once('/')? {
                (number, rest) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    rest.split_once('/')?
                }
                below => below,
            },
        };
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (port, rest) = rest.split_at(end);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        match kind {
            "http" if rest.starts_with('/') => Some(Self::Http { port, path: rest.to_owned() }),
            "https" if rest.starts_with('/') => Some(Self::Https { port, path: rest.to_owned() }),
            "tcp" if rest.is_empty() => Some(Self::Tcp { port }),
            "grpc" => Some(Self::Grpc { port, service: rest.strip_prefix('/')?.to_owned() }),
            _ => None,
        }
    }
}

/// A path as an HTTP client sends it: every byte that stands in neither a path nor a query is encoded
/// (RFC 3986 §3.3, §3.4). A path begins with a slash.
pub(super) fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    // A fragment is not sent.
    for byte in path.split('#').next().unwrap_or_default().bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"/?-._~!$&'()*+,;=:@%[]".contains(&byte);
        if plain {
            out.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_says_everything_about_the_target() {
        let text = str::to_owned;
        for (target, path) in [
            (Target::Http { port: 8080, path: text("/") }, "/http/8080/"),
            (Target::Http { port: 8080, path: text("/healthz?full=1") }, "/http/8080/healthz?full=1"),
            (Target::Https { port: 443, path: text("/a/b") }, "/https/443/a/b"),
            (Target::Tcp { port: 5432 }, "/tcp/5432"),
            (Target::Grpc { port: 9, service: text("") }, "/grpc/9/"),
            (Target::Grpc { port: 9, service: text("shop.Store") }, "/grpc/9/shop.Store"),
        ] {
            assert_eq!(target.path(), path);
            for before in ["", "/0123456789abcdef0123456789abcdef", "/0123456789abcdef0123456789abcdef/12"] {
                assert_eq!(Target::from_path(&format!("{before}{path}")), Some(target.clone()));
            }
        }
    }

    #[test]
    fn other_paths_are_no_target() {
        for path in [
            "",
            "/",
            "/ready",
            "/http",
            "/http/8080",
            "/http/x/",
            "/tcp/0",
            "/tcp/70000",
            "/tcp/1/",
            "/grpc/1",
            "/udp/1",
            "http/8080/",
            "/0123456789abcdef0123456789abcdef/ready",
            "/0123456789abcdef0123456789abcdef/12",
            "/0123456789abcdef/http/8080/",
            "/12/http/8080/",
            // No client sends these, and the sidecar's configuration takes what a path says as it is.
            "/http/8080/a b",
            "/http/8080/\\u0001",
            "/grpc/1/\"",
        ] {
            assert_eq!(Target::from_path(path), None, "{path}");
        }
    }

    #[test]
    fn a_path_is_encoded_as_a_client_sends_it() {
        for (path, sent) in [
            ("/healthz", "/healthz"),
            ("healthz", "/healthz"),
            ("", "/"),
            ("/a b", "/a%20b"),
            ("/a%20b?x=(1)#top", "/a%20b?x=(1)"),
            ("/\u{e9}\"", "/%C3%A9%22"),
        ] {
            assert_eq!(encoded(path), sent, "{path}");
            assert_eq!(encoded(sent), sent, "{path}");
        }
    }
}
