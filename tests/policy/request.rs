//! One request, and whether it matches.

use crate::objects::{Match, Name};

/// The version of HTTP in which a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0, in which a request may have no host.
    Http10,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, with prior knowledge.
    Http2,
}

/// The name of the line with the authority of an HTTP/2 request.
pub const AUTHORITY: &str = ":authority";

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The version.
    pub version: Version,
    /// The method.
    pub method: String,
    /// The path and the query; `*` for the server, and host and port for a tunnel.
    pub target: String,
    /// The lines of the header in their order. HTTP/2 has [`AUTHORITY`] among them.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The lines after the body. They come after the decision, and no condition is about
    /// them.
    pub trailers: Vec<(String, Vec<u8>)>,
}

/// Whether the lines of this header are one value, joined by commas (RFC 9110 §5.3) without those that are
/// empty, before anybody reads it: policy and the application see the joined value. The lines of every other
/// header stay apart.
pub fn joined_header(name: &str) -> bool {
    ["accept", "authorization", "content-type", "host", "user-agent"].contains(&name)
}

impl Request {
    /// The path as it was sent, without the query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Whether the sidecar that decides takes a request of this form, whatever policy says: HTTP/1.1 or
    /// HTTP/2, a path, and no offer of another protocol than a websocket. It takes off the offer of HTTP/2.
    pub(crate) fn is_decided_on(&self) -> bool {
        let offers = ["websocket", "h2c"];
        self.version != Version::Http10
            && self.has_path()
            && self.offered().iter().all(|name| offers.contains(&&**name))
    }

    fn has_path(&self) -> bool {
        self.target.starts_with('/') && self.method != "CONNECT"
    }

    /// The names in small letters of the protocols to which the client would change, if the header says
    /// that it would.
    fn offered(&self) -> Vec<String> {
        let names = |header: &str| -> Vec<String> {
            let lines = self.lines(header);
            let text = lines.iter().map(|line| String::from_utf8_lossy(line).to_ascii_lowercase());
            text.flat_map(|line| line.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>())
                .collect()
        };
        if names("connection").iter().any(|name| name == "upgrade") { names("upgrade") } else { Vec::new() }
    }

    /// The request as the sidecar of a caller sends it to a service, in HTTP/1.1 at least, with a host, and
    /// with no offer but of a websocket; `None` if it has no path, and goes nowhere.
    pub fn sent_on(&self, (namespace, name): &Name) -> Option<Self> {
        if !self.has_path() {
            return None;
        }
        let mut sent = self.clone();
        if sent.version == Version::Http10 {
            sent.version = Version::Http1;
            if sent.lines("host").is_empty() {
                let host = format!("{name}.{namespace}.svc.cluster.local");
                sent.headers.push(("host".to_owned(), host.into_bytes()));
            }
        }
        if sent.version == Version::Http1 && !self.offered().iter().any(|name| name == "websocket") {
            sent.headers
                .retain(|(name, _)| !["connection", "upgrade"].contains(&&*name.to_ascii_lowercase()));
        }
        Some(sent)
    }

    /// Whether the client offers a websocket.
    pub fn offers_websocket(&self) -> bool {
        self.offered().iter().any(|name| name == "websocket")
    }

    fn values(&self, name: &str) -> Vec<Vec<u8>> {
        if self.version == Version::Http2 && name == "host" {
            // RFC 9113 §8.3.1: a host beside the authority says nothing.
            let authority = self.lines(AUTHORITY);
            if !authority.is_empty() {
                return authority;
            }
        }
        let lines = self.lines(name);
        let separator: &[u8] = match (self.version, name) {
            // RFC 9113 §8.2.3: HTTP/2 may cut one cookie into lines.
            (Version::Http2, "cookie") => b"; ",
            _ if joined_header(name) => b",",
            _ => return lines,
        };
        if lines.is_empty() {
            return lines;
        }
        let filled: Vec<Vec<u8>> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        vec![filled.join(separator)]
    }

    /// The values of the lines of a name. White space around them is no part of a value in HTTP/1.1 (RFC 9112
    /// §5.1).
    fn lines(&self, name: &str) -> Vec<Vec<u8>> {
        let lines = self.headers.iter().filter(|(line, _)| line.eq_ignore_ascii_case(name));
        let values = lines.map(|(_, value)| match self.version {
            Version::Http10 | Version::Http1 => value.trim_ascii().to_vec(),
            Version::Http2 => value.clone(),
        });
        values.collect()
    }

    /// Whether this request, with this path, fulfils all conditions of a match.
    pub(crate) fn fulfils(&self, path: &str, wanted: &Match) -> bool {
        let path = wanted.path.as_ref().is_none_or(|expression| expression.is_match(path.as_bytes()));
        let method = wanted.methods.is_empty() || wanted.methods.contains(&self.method);
        let headers = wanted.headers.iter().all(|(name, expression)| {
            let values = self.values(name);
            !values.is_empty() && values.iter().all(|value| expression.is_match(value))
        });
        path && method && headers
    }
}

/// A path as access is decided on it (RFC 3986 §6.2.2): encoded unreserved characters are decoded, what no
/// path may hold is encoded, a backslash is a slash, and dot segments are resolved, also those with a
/// parameter (`..;v=1`). The application sees this path.
pub fn normalized_path(path: &str) -> String {
    let decoded = decode_unreserved(&encode_forbidden(&path.replace('\\', "/")));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = decoded.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        let name = segment.split(';').next().unwrap_or_default();
        match name {
            "." | ".." => {
                if name == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Encodes what is neither a character of a path (RFC 3986 §3.3) nor a percent sign.
fn encode_forbidden(path: &str) -> String {
    let encoded = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/%[]".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    path.bytes().map(encoded).collect()
}

fn decode_unreserved(path: &str) -> String {
    let mut out = String::new();
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) if code.is_ascii_alphanumeric() || b"-._~".contains(&code) => {
                out.push(char::from(code));
                rest = &rest[at + 3..];
            }
            _ => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

/// Whether an application may read another path than policy does: there is an encoded slash or backslash,
/// or a dot segment with a parameter.
pub(crate) fn ambiguous(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ["%2f", "%5c", "/..;"].iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, headers: &[(&str, &str)]) -> Request {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
        Request {
            version,
            method: "GET".to_owned(),
            target: "/".to_owned(),
            headers: headers.collect(),
            trailers: Vec::new(),
        }
    }

    #[test]
    fn the_lines_of_a_header_are_the_values_that_the_version_makes_of_them() {
        for (version, headers, name, expected) in [
            (Version::Http1, &[("a", " x "), ("A", "y")][..], "a", &["x", "y"][..]),
            (Version::Http2, &[("a", " x ")], "a", &[" x "]),
            (Version::Http1, &[("accept", "x"), ("accept", ""), ("accept", "y")], "accept", &["x,y"]),
            (Version::Http2, &[("accept", "x"), ("accept", "y")], "accept", &["x,y"]),
            (Version::Http1, &[("cookie", "x"), ("cookie", "y")], "cookie", &["x", "y"]),
            (Version::Http2, &[("cookie", "x"), ("cookie", "y")], "cookie", &["x; y"]),
            (Version::Http2, &[(":authority", "x"), ("host", "y")], "host", &["x"]),
            (Version::Http2, &[("host", "y")], "host", &["y"]),
            (Version::Http1, &[], "host", &[]),
        ] {
            let values = request(version, headers).values(name);
            assert_eq!(
                values,
                expected.iter().map(|text| text.as_bytes()).collect::<Vec<_>>(),
                "{headers:?}"
            );
        }
    }

    #[test]
    fn a_request_of_an_old_form_is_decided_on_after_the_callers_sidecar_alone() {
        let web = ("shop".to_owned(), "web".to_owned());
        let upgrade = |to| [("connection", "keep-alive, Upgrade"), ("upgrade", to)];
        for (version, headers, decided_on, sent) in [
            (Version::Http1, &[("host", "a")][..], true, &["host"][..]),
            (Version::Http10, &[("host", "a")], false, &["host"]),
            (Version::Http10, &[], false, &["host"]),
            (Version::Http1, &upgrade("WebSocket"), true, &["connection", "upgrade"]),
            (Version::Http1, &upgrade("h2c"), true, &[]),
            (Version::Http1, &upgrade("TLS/1.2, h2c"), false, &[]),
            (Version::Http1, &[("upgrade", "TLS/1.2")], true, &[]),
        ] {
            let request = request(version, headers);
            assert_eq!(request.is_decided_on(), decided_on, "{version:?} {headers:?}");
            let sent_on = request.sent_on(&web).unwrap();
            assert!(sent_on.is_decided_on(), "{version:?} {headers:?}");
            assert_eq!(
                sent_on.headers.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
                sent,
                "{headers:?}"
            );
        }
        let none = request(Version::Http10, &[]).sent_on(&web).unwrap();
        assert_eq!(none.headers[0].1, b"web.shop.svc.cluster.local");
        for (method, target) in [("OPTIONS", "*"), ("CONNECT", "a:443")] {
            let (method, target) = (method.to_owned(), target.to_owned());
            let request = Request { method, target, ..request(Version::Http1, &[]) };
            assert!(!request.is_decided_on() && request.sent_on(&web).is_none(), "{request:?}");
        }
    }

    #[test]
    fn a_path_is_normalized_as_the_rfc_says() {
        for (sent, expected) in [
            ("/a/b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
            ("/{é|^}", "/%7B%C3%A9%7C%5E%7D"),
            ("/a/.", "/a/"),
            ("/a//../b", "/a/b"),
            ("/a/..;/b", "/b"),
            ("/a/.;v=1/b", "/a/b"),
            ("/a/...;/b", "/a/...;/b"),
            (r"/a\..\b", "/b"),
            ("/%41%2f%7e%zz%", "/A%2f~%zz%"),
            ("/", "/"),
        ] {
            assert_eq!(normalized_path(sent), expected, "{sent}");
        }
    }
}
