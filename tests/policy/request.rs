//! One request, and whether it matches.

use crate::objects::Match;

/// The version of HTTP in which a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
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
    /// The path and the query.
    pub target: String,
    /// The lines of the header in their order. HTTP/2 has [`AUTHORITY`] among them.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The lines after the body, only of HTTP/2. They come after the decision, and no condition is about
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
            Version::Http1 => value.trim_ascii().to_vec(),
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
