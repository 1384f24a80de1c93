//! Problems of the declared mesh: what a person has to correct.
//!
//! Owns the shape of a problem and its subject. The reader or check that finds a problem has already chosen
//! the safe reading: deny, or skip the one bad object.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::ids::WorkloadId;
use crate::object_ref::{Kind, ObjectRef};

/// How much a problem matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object, or the named part of it, has no effect.
    Error,
    /// The object has an effect, but not all that its author may expect.
    Warning,
}

/// What a problem is about. Prints as problems show it to people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An object, such as `TrafficTarget shop/buyers`.
    Object(ObjectRef),
    /// An object whose name Kubernetes refuses, such as `Pod "_"`.
    Misnamed {
        /// Its kind.
        kind: Kind,
        /// The refused name.
        name: String,
    },
    /// A file or a directory, such as `shop.yaml`, or a place in a file: `shop.yaml:7`, `shop.yaml:7:3`.
    File {
        /// Its path.
        path: Arc<str>,
        /// The line and the column, from 1.
        place: Option<(usize, Option<u64>)>,
    },
    /// The sidecar of a workload, such as `Proxy shop/buyer`.
    Proxy(WorkloadId),
    /// The sidecars of the mesh together: `sidecars`.
    Sidecars,
    /// The declared mesh as a whole: `mesh directory`.
    Mesh,
    /// The API server that declares the mesh: `Kubernetes API`.
    ApiServer,
}

impl Subject {
    /// A file or a directory as a whole.
    pub fn file(path: impl Into<Arc<str>>) -> Self {
        Self::File { path: path.into(), place: None }
    }

    /// A line of a file, from 1.
    pub fn line(path: impl Into<Arc<str>>, line: usize) -> Self {
        Self::File { path: path.into(), place: Some((line, None)) }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => fmt::Display::fmt(object, f),
            Self::Misnamed { kind, name } => write!(f, "{kind} {name:?}"),
            Self::File { path, place: None } => f.write_str(path),
            Self::File { path, place: Some((line, None)) } => write!(f, "{path}:{line}"),
            Self::File { path, place: Some((line, Some(column))) } => write!(f, "{path}:{line}:{column}"),
            Self::Proxy(workload) => write!(f, "Proxy {workload}"),
            Self::Sidecars => f.write_str("sidecars"),
            Self::Mesh => f.write_str("mesh directory"),
            Self::ApiServer => f.write_str("Kubernetes API"),
        }
    }
}

impl From<ObjectRef> for Subject {
    fn from(object: ObjectRef) -> Self {
        Self::Object(object)
    }
}

impl From<&ObjectRef> for Subject {
    fn from(object: &ObjectRef) -> Self {
        Self::Object(object.clone())
    }
}

impl From<&Path> for Subject {
    fn from(path: &Path) -> Self {
        Self::file(path.to_string_lossy())
    }
}

/// One problem: its subject, the field, what is wrong and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The severity.
    pub severity: Severity,
    /// The object, file or proxy that has the problem.
    pub subject: Subject,
    /// The field, as a path (`spec.rules[0].name`); empty when the whole subject is meant.
    pub field: String,
    /// What is wrong, and its effect.
    pub message: String,
}

impl Problem {
    /// A problem that takes the subject or the field out of effect.
    pub fn error(subject: impl Into<Subject>, field: impl Into<String>, message: impl Into<String>) -> Self {
        let (subject, field, message) = (subject.into(), field.into(), message.into());
        Self { severity: Severity::Error, subject, field, message }
    }

    /// A problem that leaves the subject in effect.
    pub fn warning(
        subject: impl Into<Subject>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(subject, field, message) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}: {}", self.subject)?;
        if !self.field.is_empty() {
            write!(f, ": {}", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// What was read from one object's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading<T> {
    /// The object; `None` if it has no effect at all. In that case `problems` say why.
    pub object: Option<T>,
    /// What is wrong with the object. An error in one part takes that part out of effect.
    pub problems: Vec<Problem>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_prints_as_its_author_knows_it() {
        let pod = ObjectRef::Namespaced(Kind::Pod, "shop/buyer".parse().unwrap());
        for (subject, text) in [
            (pod.into(), "Pod shop/buyer"),
            (ObjectRef::Namespace("shop".to_owned()).into(), "Namespace shop"),
            (Subject::Misnamed { kind: Kind::Pod, name: "_".to_owned() }, "Pod \"_\""),
            (Path::new("/mesh").into(), "/mesh"),
            (Subject::file("shop.yaml"), "shop.yaml"),
            (Subject::line("shop.yaml", 7), "shop.yaml:7"),
            (Subject::File { path: "shop.yaml".into(), place: Some((7, Some(3))) }, "shop.yaml:7:3"),
            (Subject::Proxy("shop/buyer".parse().unwrap()), "Proxy shop/buyer"),
            (Subject::Sidecars, "sidecars"),
            (Subject::Mesh, "mesh directory"),
            (Subject::ApiServer, "Kubernetes API"),
        ] {
            assert_eq!(subject.to_string(), text);
        }
    }

    #[test]
    fn a_problem_prints_on_one_line_and_leaves_an_empty_field_out() {
        let whole = Problem::error(Subject::file("a.yaml"), "", "cannot be read");
        assert_eq!(whole.to_string(), "error: a.yaml: cannot be read");
        let part = Problem::warning(Subject::Mesh, "spec", "odd");
        assert_eq!(part.to_string(), "warning: mesh directory: spec: odd");
    }
}
