//! One object as it arrives: its name, and the text that the rest is read from when it is wanted.
//!
//! Owns what identifies an object before it is read. The name is found whatever the other fields are, so an
//! object that cannot be read costs itself alone, and one of another mesh is never read at all. Pure.

use std::fmt;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use smc_types::object_ref::Kind;

use super::field_filter::FieldFilter;
use super::kept::{self, Unreadable};
use super::marks;
use crate::custom_objects::Marks;
use crate::shallow::{fields, text};

/// An object that has not been read. Cheap to clone. Its text is a part of the message that it came in, which
/// stays in memory until the last object of it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Object {
    json: Bytes,
    namespace: Box<str>,
    name: Box<str>,
    version: Box<str>,
}

impl Object {
    /// The object that `value` is, which must be a part of `message`; `None` if it has no name, or a name or
    /// namespace that is no text.
    pub(super) fn new(message: &Bytes, value: &RawValue) -> Option<Self> {
        let [name, namespace, version] =
            fields(value.get(), Some("metadata"), ["name", "namespace", "resourceVersion"]);
        let name = text(name).filter(|name| !name.is_empty())?;
        let namespace = match namespace {
            Some(given) if given.get() != "null" => text(Some(given))?,
            _ => String::new(),
        };
        Some(Self {
            json: message.slice_ref(value.get().as_bytes()),
            namespace: namespace.into(),
            name: name.into(),
            version: text(version).unwrap_or_default().into(),
        })
    }

    /// Its namespace; empty for none.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name, which is not empty.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its `resourceVersion`; empty for none.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The value of a label; `None` if there is none, or if it is no text.
    pub(super) fn label(&self, label: &str) -> Option<String> {
        let [labels] = fields(std::str::from_utf8(&self.json).ok()?, Some("metadata"), ["labels"]);
        let [value] = fields(labels?.get(), None, [label]);
        text(value)
    }

    /// What is kept of it. Adds the version and the kind that it is of: the items of a list omit them.
    pub(super) fn read(
        &self,
        keep: &FieldFilter,
        api_version: &str,
        kind: Kind,
    ) -> Result<Value, Unreadable> {
        let mut value = kept::read(&self.json, keep)?;
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion".to_owned(), api_version.into());
            fields.insert("kind".to_owned(), kind.as_str().into());
        }
        Ok(value)
    }

    /// What the API server says of it beside its content; `None` if that is too little for a status.
    pub(super) fn marks(&self) -> Option<Marks> {
        marks::read(std::str::from_utf8(&self.json).ok()?)
    }
}

/// Its name only: the text may be long, and holds what the mesh does not read.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} at {:?}", self.namespace, self.name, self.version)
    }
}

#[cfg(test)]
mod tests;
