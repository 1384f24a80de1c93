//! A match of HTTP requests: path, methods and headers.

use std::collections::{BTreeMap, BTreeSet};

use crate::regex::{HeaderPattern, Pattern};

/// One match: all that it names must hold (AND); what it leaves out matches everything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpMatch {
    /// `pathRegex`, already in the form Envoy full-matches against the path without its query; `None`
    /// matches every path.
    pub path: Option<Pattern>,
    /// The methods.
    pub methods: MethodSet,
    /// Header names (lower case) and the pattern each value must match.
    pub headers: BTreeMap<String, HeaderPattern>,
}

/// HTTP methods a match allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MethodSet {
    /// Absent, or `*` among them.
    Any,
    /// These, upper case; never empty.
    Only(BTreeSet<String>),
}
