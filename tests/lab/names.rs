//! Names of namespaced objects.

use std::fmt;
use std::str::FromStr;

/// `namespace/name`, each a DNS-like name. Safe as part of a file path and of a host name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl NamespacedName {
    /// `None` unless both are DNS names: a mesh directory may hold anything, and these become paths.
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        (is_dns_name(namespace) && is_dns_name(name))
            .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

fn is_dns_name(text: &str) -> bool {
    let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= 253
        && alphanumeric(bytes.first())
        && alphanumeric(bytes.last())
        && !text.contains("..")
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.'))
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for NamespacedName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('/')
            .and_then(|(namespace, name)| Self::new(namespace, name))
            .ok_or_else(|| format!("`{text}` is not NAMESPACE/NAME"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_leave_the_state_directory_is_no_name() {
        assert!("bookstore/bookstore-v1".parse::<NamespacedName>().is_ok());
        for text in ["a", "/", "a/", "../b", "a/..", "a/b/c", "A/b", "a/.b", "a/b c", "a/b\n", "a/b..c"] {
            assert!(text.parse::<NamespacedName>().is_err(), "{text:?}");
        }
    }
}
