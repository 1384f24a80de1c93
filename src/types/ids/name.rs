//! The names of Kubernetes objects.
//!
//! Owns the check of labels and subdomains (DNS-1123), and the name of an object in a namespace.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::truncated;

/// A refused name, with the reason. The same text is always refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid {what} {text:?}: {reason}")]
pub struct InvalidName {
    /// The kind of name, for example `namespace`.
    pub what: &'static str,
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// The reason.
    pub reason: &'static str,
}

impl InvalidName {
    pub(super) fn new(what: &'static str, text: &str, reason: &'static str) -> Self {
        Self { what, text: truncated(text, 80), reason }
    }
}

/// Checks a DNS-1123 label: 1 to 63 of `a-z`, `0-9`, `-`, with an alphanumeric at both ends.
pub fn check_label(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() || text.len() > 63 {
        return Err(InvalidName::new(what, text, "must have 1 to 63 characters"));
    }
    check_characters(what, text)
}

/// Checks a DNS-1123 subdomain: labels joined by dots, 253 characters at most.
pub fn check_subdomain(what: &'static str, text: &str) -> Result<(), InvalidName> {
    if text.is_empty() || text.len() > 253 {
        return Err(InvalidName::new(what, text, "must have 1 to 253 characters"));
    }
    text.split('.').try_for_each(|label| {
        if label.is_empty() {
            return Err(InvalidName::new(what, text, "has an empty label"));
        }
        check_characters(what, label).map_err(|e| InvalidName::new(what, text, e.reason))
    })
}

fn check_characters(what: &'static str, label: &str) -> Result<(), InvalidName> {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    if !bytes.iter().all(|&b| alphanumeric(b) || b == b'-') {
        return Err(InvalidName::new(what, label, "may hold only a-z, 0-9 and '-'"));
    }
    let ends = bytes.first().zip(bytes.last());
    if !ends.is_some_and(|(&first, &last)| alphanumeric(first) && alphanumeric(last)) {
        return Err(InvalidName::new(what, label, "must begin and end with a letter or a digit"));
    }
    Ok(())
}

/// The name of an object in a Kubernetes namespace. Cheap to clone.
///
/// Sorted by namespace, then by name. It takes one pointer: the indexes of the catalog hold each name in many
/// sets, most of one element, and a set allocates room for eleven.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamespacedName(Arc<Parts>);

struct Parts {
    /// `NAMESPACE/NAME`.
    text: Box<str>,
    /// The length of the namespace, which is a label of 63 characters at most.
    namespace: u8,
}

impl NamespacedName {
    /// Takes a namespace (a DNS-1123 label) and a name (a DNS-1123 subdomain).
    pub fn new(namespace: &str, name: &str) -> Result<Self, InvalidName> {
        check_label("namespace", namespace)?;
        check_subdomain("name", name)?;
        let length = u8::try_from(namespace.len())
            .map_err(|_| InvalidName::new("namespace", namespace, "must have 1 to 63 characters"))?;
        let text = format!("{namespace}/{name}").into_boxed_str();
        Ok(Self(Arc::new(Parts { text, namespace: length })))
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.0.text.get(..usize::from(self.0.namespace)).unwrap_or_default()
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        self.0.text.get(usize::from(self.0.namespace) + 1..).unwrap_or_default()
    }
}

impl PartialEq for NamespacedName {
    fn eq(&self, other: &Self) -> bool {
        // No namespace has a slash, so equal texts are equal names.
        Arc::ptr_eq(&self.0, &other.0) || self.0.text == other.0.text
    }
}

impl Eq for NamespacedName {}

impl PartialOrd for NamespacedName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamespacedName {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        // Not the texts: a hyphen sorts before a slash, and `a` before `a-b`.
        (self.namespace(), self.name()).cmp(&(other.namespace(), other.name()))
    }
}

impl Hash for NamespacedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NamespacedName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (namespace, name) = text
            .split_once('/')
            .ok_or_else(|| InvalidName::new("namespaced name", text, "is not NAMESPACE/NAME"))?;
        Self::new(namespace, name)
    }
}

impl TryFrom<String> for NamespacedName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<NamespacedName> for String {
    fn from(name: NamespacedName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_refuses_are_refused() {
        for bad in ["", "A", "a_b", "-a", "a-", "a b", &"x".repeat(64)] {
            assert!(check_label("namespace", bad).is_err(), "{bad:?}");
        }
        for bad in ["", ".", "a..b", "a.", ".a", &"x.".repeat(200)] {
            assert!(check_subdomain("name", bad).is_err(), "{bad:?}");
        }
        assert!(NamespacedName::new("default", "a.b-c.d").is_ok());
        assert!("default".parse::<NamespacedName>().is_err());
        assert!("a/b/c".parse::<NamespacedName>().is_err());
    }

    #[test]
    fn names_sort_by_namespace_and_then_by_name() {
        let texts = ["a/a", "a/a-b", "a/a.b", "a/b", "a-b/a", "a0/a", "b/a"];
        let names: Vec<NamespacedName> = texts.iter().map(|text| text.parse().unwrap()).collect();
        for (i, left) in names.iter().enumerate() {
            for (k, right) in texts.iter().map(|text| text.parse().unwrap()).enumerate() {
                assert_eq!(left.cmp(&right), i.cmp(&k), "{left} {right}");
                assert_eq!(*left == right, i == k, "{left} {right}");
            }
            let (namespace, name) = texts[i].split_once('/').unwrap();
            assert_eq!(
                (left.namespace(), left.name(), left.to_string().as_str()),
                (namespace, name, texts[i])
            );
        }
    }

    #[test]
    fn a_name_takes_one_pointer() {
        assert_eq!(size_of::<NamespacedName>(), size_of::<usize>());
    }
}
