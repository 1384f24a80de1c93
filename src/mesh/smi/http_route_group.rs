//! `specs.smi-spec.io/v1alpha4` HTTPRouteGroup: named matches on path, method and headers.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NamespacedName;

/// A group of named HTTP matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRouteGroup {
    /// Its name.
    pub id: NamespacedName,
    /// The matches by name.
    pub matches: BTreeMap<String, HttpMatch>,
}

/// One match: all that it names must hold (AND); what it leaves out matches everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpMatch {
    /// `pathRegex`, already in the form Envoy full-matches against the path without its query; `None`
    /// matches every path.
    pub path: Option<Pattern>,
    /// The methods.
    pub methods: MethodSet,
    /// Header names (lower case) and the pattern each value must match.
    pub headers: BTreeMap<String, Pattern>,
}

/// A regular expression that was checked to compile within bounds, in the form that is to be matched
/// against the **whole** text, as Envoy's `safe_regex` does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(pub(crate) String);

impl Pattern {
    /// The expression, for a full match.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// HTTP methods a match allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MethodSet {
    /// Absent, or `*` among them.
    Any,
    /// These, upper case; never empty.
    Only(BTreeSet<String>),
}
