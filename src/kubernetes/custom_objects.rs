//! The custom objects of the mesh as a source holds them, for the writer of their status.
//!
//! Owns what such a source makes known beside its batches: what the API server says of an object and the mesh
//! does not read, and its bound. A change of it is no news to the mesh, so no batch says it.

use std::sync::Arc;

use imbl::OrdMap;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::Problem;

use crate::crds::status::{COMMITTED, Condition, ERROR, ObjectStatus};

/// Bytes of what is held of a status, as JSON. The longest that SMC writes takes 48 KiB: two messages of
/// 4,000 characters, each of six bytes. What is longer SMC did not write, and writes over.
pub(crate) const MAX_WRITTEN_BYTES: usize = 64 * 1024;

/// All of them. A persistent map: a reader keeps one while the source goes on, at the cost of what differs.
pub type CustomObjects = OrdMap<ObjectRef, Arc<CustomObject>>;

/// One of them. It costs a replica that does not lead no more than this: what the mesh reads in the object is
/// read again by the one that leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomObject {
    /// What the API server says of it.
    pub marks: Marks,
    /// What its author says.
    pub content: Content,
}

/// What the API server says of an object beside its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// What SMC wrote into `status`, as JSON, which takes less memory than an [`ObjectStatus`]. Empty for
    /// nothing.
    written: Box<str>,
}

impl Marks {
    /// The marks of an object with this status, of which no more is held than what SMC wrote.
    pub fn new(generation: i64, uid: &str, status: ObjectStatus) -> Self {
        let ObjectStatus { observed_generation, mut conditions, mut current_status, reason: _ } = status;
        conditions.retain(Condition::is_ours);
        current_status = current_status.filter(|said| [COMMITTED, ERROR].contains(&said.as_str()));
        let written = ObjectStatus { observed_generation, conditions, current_status, reason: None };
        let written = Some(written).filter(|written| *written != ObjectStatus::default());
        let json = written.and_then(|written| serde_json::to_string(&written).ok());
        let json = json.filter(|json| json.len() <= MAX_WRITTEN_BYTES);
        Self { generation, uid: uid.into(), written: json.unwrap_or_default().into() }
    }

    /// The bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.uid.len() + self.written.len()
    }

    /// What SMC wrote into `status`; nothing, if that could not be read.
    pub(crate) fn written(&self) -> ObjectStatus {
        serde_json::from_str(&self.written).unwrap_or_default()
    }
}

/// What the author of an object says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Its own JSON, reduced to the fields that the mesh reads: the very text that the source holds.
    Json(Arc<str>),
    /// What cannot be read, for these reasons.
    Unreadable(Vec<Problem>),
}
