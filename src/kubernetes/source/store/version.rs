//! Versions of objects, as an API server numbers them.

/// A `resourceVersion`. Those of one kind can be compared (KEP-5504, which API servers promise from 1.35 on
/// and keep before). A text that is no number cannot be compared: it proves neither that something is known
/// nor that the API server went back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::source) struct Version(Option<u64>);

impl Version {
    /// No version: earlier than all others.
    pub(in crate::source) const NONE: Self = Self(None);

    /// The version with this text.
    pub(in crate::source) fn new(text: &str) -> Self {
        Self(text.parse().ok())
    }

    /// The number; 0 without one.
    pub(in crate::source) fn number(self) -> u64 {
        self.0.unwrap_or(0)
    }

    /// Whether this version is certainly earlier than `other`.
    pub(in crate::source) fn is_before(self, other: Self) -> bool {
        matches!((self.0, other.0), (Some(version), Some(other)) if version < other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_where_they_are_numbers() {
        for (version, other, expected) in [
            ("9", "10", true),
            ("10", "10", false),
            ("11", "10", false),
            ("x", "10", false),
            ("9", "", false),
            ("", "9", false),
        ] {
            assert_eq!(Version::new(version).is_before(Version::new(other)), expected, "{version} {other}");
        }
        assert!(Version::NONE < Version::new("0"));
    }
}
