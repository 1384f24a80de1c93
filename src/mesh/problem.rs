//! What is wrong with the declared mesh, in a form that a person can act on.
//!
//! Owns the shape of a finding. Refuses to decide what follows from it: the place that found it has
//! already chosen the safe reading (deny, or skip the one bad object).

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The object, or the named part of it, has no effect.
    Error,
    /// It has an effect, but not all that its author may expect.
    Warning,
}

/// One finding: which object, which field, what is wrong and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// How much it matters.
    pub severity: Severity,
    /// The object, as `Kind namespace/name`, or the file and line where it could not be read.
    pub object: String,
    /// The field, as a path (`spec.rules[0].name`); empty when the whole object is meant.
    pub field: String,
    /// What is wrong, and what it means.
    pub message: String,
}

impl Problem {
    /// A finding that takes the object or the field out of effect.
    pub fn error(object: impl fmt::Display, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            object: object.to_string(),
            field: field.into(),
            message: message.into(),
        }
    }

    /// A finding that leaves the object in effect.
    pub fn warning(object: impl fmt::Display, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            object: object.to_string(),
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.object)?;
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}
