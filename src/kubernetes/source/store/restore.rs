//! The last known mesh, in place of what the API server has not said yet.

use std::collections::BTreeSet;

use serde_json::Value;
use smc_api::object::Object;
use smc_decode::kinds;
use smc_decode::manifest::Declaration;
use smc_types::object_ref::{Kind, ObjectRef};

use super::collection::{Known, Look};
use super::weight::held_bytes;
use super::{Store, reader};
use crate::source::last_known::MeshCopy;

impl Store {
    /// Takes the last known mesh for what the API server has not said yet. Kind by kind, a list
    /// ends it; of a kind that cannot be read, it stays.
    pub(in crate::source) fn restore(&mut self, mesh: MeshCopy<Declaration>) {
        self.completeness.restored = Some(Box::new(mesh.known));
        self.changed = true;
        let (namespaces, others): (Vec<_>, Vec<_>) =
            mesh.objects.into_iter().partition(|kept| matches!(kept.reference, ObjectRef::Namespace(_)));
        let mut whole = BTreeSet::new();
        for kept in namespaces {
            let name = kept.reference.namespace().to_owned();
            let monitored = matches!(&kept.object, Some(Object::Namespace(namespace)) if namespace.monitored);
            if !self.namespaces.are_listed() && monitored {
                self.enter(&name);
                self.take(Kind::Namespace, kept);
            }
            whole.insert(name);
        }
        for kept in others {
            let ObjectRef::Namespaced(kind, _) = &kept.reference else { continue };
            let kind = *kind;
            let unknown = self.kinds.get(&kind).is_some_and(|collection| collection.look == Look::None);
            if unknown && self.is_ours(kind, &kept.reference) {
                self.take(kind, kept);
            }
        }
        // The copy has all kinds, as of one moment.
        self.namespaces.admit_all(&whole);
    }

    fn take(&mut self, kind: Kind, kept: Declaration) {
        let Some(collection) = self.kinds.get(&kind) else { return };
        if collection.objects.contains_key(&kept.reference) {
            return;
        }
        // What the API server says equally is not read again, so the problems are those of the copy.
        let value = kept.json.as_deref().and_then(|json| serde_json::from_str::<Value>(json).ok());
        let problems = value.and_then(|value| {
            let (_, problems) = kinds::convert(reader(&value)?, &kept.reference, &value, &self.rules);
            Some(problems)
        });
        let problems = problems.unwrap_or_default();
        let bytes = held_bytes(kept.json.as_deref(), kept.object.as_ref(), &problems);
        // What was in effect fits, unless the bound was another one.
        if self.find_room(kind, &kept.reference, bytes, None) {
            self.findings.set(&kept.reference, problems);
            if let Some(collection) = self.kinds.get_mut(&kind) {
                collection.objects.insert(kept.reference.clone(), Known { list: 0, json: kept.json, bytes });
            }
            self.fresh.insert(kept.reference, kept.object);
        }
    }
}
