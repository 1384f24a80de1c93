//! A match of HTTP requests: path, methods and headers.

use std::collections::{BTreeMap, BTreeSet};

use crate::regex::{HeaderPattern, Pattern};

/// One match: all that it names must hold (AND); what it leaves out matches everything. One that is declared
/// has its headers' expressions as a [`Pattern`] each, without their complements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpMatch<Header = HeaderPattern> {
    /// `pathRegex`, already in the form Envoy full-matches against the path without its query; `None`
    /// matches every path.
    pub path: Option<Pattern>,
    /// The methods.
    pub methods: MethodSet,
    /// Header names (lower case) and the expression that each value must match.
    pub headers: BTreeMap<String, Header>,
}

/// HTTP methods a match allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MethodSet {
    /// Absent, or `*` among them.
    Any,
    /// These, upper case; never empty.
    Only(BTreeSet<String>),
}
