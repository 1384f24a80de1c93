//! The custom objects that are held, with what the API server says of them.
//!
//! Owns which of the held objects are among them: those of custom kinds that the API server has named in this
//! run. What was restored is not among them before, since the last known mesh has contents alone. They change
//! without a batch: what the API server says beside the content is no news to the mesh.

use std::sync::Arc;

use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::Problem;

use super::Store;
use crate::custom_objects::{Content, CustomObject, CustomObjects, Marks};

impl Store {
    pub(in crate::source) fn custom(&self) -> &CustomObjects {
        &self.custom
    }

    /// Takes note of what the API server says of an object that is held; `unreadable` is why it cannot be
    /// read, if it cannot. Without marks it is none of the custom objects. Nor is an object that can be read
    /// and is too long to be held as JSON: it could not be shown to other replicas.
    pub(super) fn mark(
        &mut self,
        kind: Kind,
        reference: &ObjectRef,
        marks: Option<Box<Marks>>,
        unreadable: Option<&[Problem]>,
    ) {
        if !kind.spec().custom {
            return;
        }
        let held = self.kinds.get(&kind).and_then(|collection| collection.objects.get(reference));
        let content = held.and_then(|known| match &known.json {
            Some(json) => Some(Content::Json(Arc::clone(json))),
            None => unreadable.map(|problems| Content::Unreadable(problems.to_vec())),
        });
        let (Some(marks), Some(content)) = (marks, content) else { return self.unmark(kind, reference) };
        let object = CustomObject { marks: *marks, content };
        if self.custom.get(reference).is_none_or(|known| **known != object) {
            self.custom.insert(reference.clone(), Arc::new(object));
        }
    }

    /// An object is gone.
    pub(super) fn unmark(&mut self, kind: Kind, reference: &ObjectRef) {
        // Looking first keeps the map the same where it is, and costs most kinds nothing.
        if kind.spec().custom && self.custom.contains_key(reference) {
            self.custom.remove(reference);
        }
    }
}
