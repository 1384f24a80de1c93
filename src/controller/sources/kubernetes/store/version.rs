//! Versions of objects, as an API server numbers them.

use serde_json::Value;

/// A `resourceVersion`. Those of one kind can be compared (KEP-5504); a text that is no number cannot, and
/// then every event is news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sources::kubernetes) struct Version(Option<u64>);

impl Version {
    /// No version: earlier than all others.
    pub(in crate::sources::kubernetes) const NONE: Self = Self(None);

    /// The version with this text.
    pub(in crate::sources::kubernetes) fn new(text: &str) -> Self {
        Self(text.parse().ok())
    }

    /// The version of an object.
    pub(super) fn of(object: &Value) -> Self {
        Self::new(object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default())
    }

    /// The number; 0 without one. Those of all kinds count in one sequence, that of the API server's store.
    pub(super) fn number(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// Whether this version is part of what is known at `known`.
    pub(super) fn is_known_at(self, known: Self) -> bool {
        matches!((self.0, known.0), (Some(version), Some(known)) if version <= known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_where_they_are_numbers() {
        for (version, known, expected) in
            [("9", "10", true), ("10", "10", true), ("11", "10", false), ("x", "10", false), ("9", "", false)]
        {
            assert_eq!(Version::new(version).is_known_at(Version::new(known)), expected, "{version} {known}");
        }
        assert!(Version::NONE < Version::new("0"));
    }
}
