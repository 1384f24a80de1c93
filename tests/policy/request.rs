//! One request, and whether it matches.

use crate::objects::Match;

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path and the query.
    pub target: String,
    /// The lines of the header in their order, without white space around the values.
    pub headers: Vec<(String, Vec<u8>)>,
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
        let lines: Vec<Vec<u8>> = self
            .headers
            .iter()
            .filter(|(line, _)| line.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.clone())
            .collect();
        if !joined_header(name) || lines.is_empty() {
            return lines;
        }
        let filled: Vec<Vec<u8>> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        vec![filled.join(&b","[..])]
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

/// A path as access is decided on it (RFC 3986 §6.2.2): encoded unreserved characters are decoded, a
/// backslash is a slash, and dot segments are resolved, also those with a parameter (`..;v=1`). The
/// application sees this path.
pub fn normalized_path(path: &str) -> String {
    let decoded = decode_unreserved(&path.replace('\\', "/"));
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

    #[test]
    fn a_path_is_normalized_as_the_rfc_says() {
        for (sent, expected) in [
            ("/a/b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/../../a", "/a"),
            ("/a/..", "/"),
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
