//! Reading a `spec` field by field, so that every problem names its field.
//!
//! Owns the path in a problem, the bounds on problems, and two rules that keep reading safe: `null` is a
//! wrong type, not an absent field (a half-written line must not mean "all"), and an unknown field is
//! reported.

use serde_json::{Map, Value};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading};
use smc_types::text::truncated;

/// The most problems of one object, so that a garbage object does not flood the list.
const MAX_PROBLEMS: usize = 32;

/// The longest field path and message, in characters: both may quote what was read.
const MAX_FIELD: usize = 200;
const MAX_MESSAGE: usize = 400;

/// What was found wrong with the object being read.
pub(super) struct Findings {
    object: ObjectRef,
    problems: Vec<Problem>,
    left_out: usize,
}

impl Findings {
    pub(super) fn new(kind: Kind, id: NamespacedName) -> Self {
        Self { object: ObjectRef::Namespaced(kind, id), problems: Vec::new(), left_out: 0 }
    }

    pub(super) fn error(&mut self, field: &str, message: impl Into<String>) {
        self.add(Problem::error(
            &self.object,
            truncated(field, MAX_FIELD),
            truncated(&message.into(), MAX_MESSAGE),
        ));
    }

    pub(super) fn warning(&mut self, field: &str, message: impl Into<String>) {
        self.add(Problem::warning(
            &self.object,
            truncated(field, MAX_FIELD),
            truncated(&message.into(), MAX_MESSAGE),
        ));
    }

    fn add(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn into_reading<T>(mut self, object: Option<T>) -> Reading<T> {
        if self.left_out > 0 {
            let message = format!("{} more findings are left out", self.left_out);
            self.problems.push(Problem::warning(&self.object, "", message));
        }
        Reading { object, problems: self.problems }
    }
}

/// A value and its path.
pub(super) struct Node {
    pub(super) path: String,
    pub(super) value: Value,
}

impl Node {
    /// The object's `spec`.
    pub(super) fn spec(value: Value) -> Self {
        Self { path: "spec".to_owned(), value }
    }

    /// The value as an object.
    pub(super) fn object(self, findings: &mut Findings) -> Option<Fields> {
        match self.value {
            Value::Object(fields) => Some(Fields { path: self.path, fields }),
            other => mismatch(findings, &self.path, "an object", &other),
        }
    }

    /// The value as a list of at most `most` elements.
    pub(super) fn list(self, most: usize, findings: &mut Findings) -> Option<Vec<Node>> {
        let path = self.path;
        match self.value {
            Value::Array(values) if values.len() > most => {
                findings.error(&path, format!("has {} entries; {most} is the most", values.len()));
                None
            }
            Value::Array(values) => {
                let node = |(index, value)| Node { path: format!("{path}[{index}]"), value };
                Some(values.into_iter().enumerate().map(node).collect())
            }
            other => mismatch(findings, &path, "a list", &other),
        }
    }

    /// The value as text.
    pub(super) fn text(self, findings: &mut Findings) -> Option<String> {
        match self.value {
            Value::String(text) => Some(text),
            other => mismatch(findings, &self.path, "text", &other),
        }
    }

    /// The value as true or false.
    pub(super) fn boolean(self, findings: &mut Findings) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            other => mismatch(findings, &self.path, "true or false", &other),
        }
    }

    /// The value as a port, 1 to 65535.
    pub(super) fn port(self, findings: &mut Findings) -> Option<u16> {
        let port = self.value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0);
        port.or_else(|| mismatch(findings, &self.path, "a port from 1 to 65535", &self.value))
    }
}

/// Reports a value that is not what it must be.
pub(super) fn mismatch<T>(findings: &mut Findings, path: &str, wanted: &str, found: &Value) -> Option<T> {
    findings.error(path, format!("must be {wanted}, not {}", describe(found)));
    None
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", truncated(text, 40)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The fields of an object, taken one by one.
pub(super) struct Fields {
    path: String,
    fields: Map<String, Value>,
}

impl Fields {
    /// The path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// Whether a field is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Takes a field out; `None` if it is absent.
    pub(super) fn take(&mut self, name: &str) -> Option<Node> {
        let value = self.fields.remove(name)?;
        Some(Node { path: self.path(name), value })
    }

    /// Takes a field out; its absence is an error.
    pub(super) fn require(&mut self, name: &str, findings: &mut Findings) -> Option<Node> {
        let node = self.take(name);
        if node.is_none() {
            findings.error(&self.path(name), "is missing");
        }
        node
    }

    /// Takes all remaining fields out, sorted by name.
    pub(super) fn rest(self) -> impl Iterator<Item = (String, Node)> {
        let path = self.path;
        self.fields.into_iter().map(move |(name, value)| {
            let node = Node { path: format!("{path}.{name}"), value };
            (name, node)
        })
    }

    /// Reports the fields that were not taken.
    pub(super) fn finish(self, findings: &mut Findings) {
        for (_, node) in self.rest() {
            findings.warning(&node.path, "is no field that SMC knows; it has no effect");
        }
    }
}
