//! Whether the custom objects that a source makes known are those of the server.
//!
//! Owns which they must be: those of the mesh, refused or not, in the generation that the server has. The
//! number that tells contents apart, the mark, is the generation.

use std::collections::BTreeMap;

use smc_kubernetes::custom_objects::CustomObjects;
use smc_types::object_ref::Kind;

use super::cursor::is_of_mesh;
use super::{Judge, Rule, Violation, name};

/// Differences that are shown.
const SHOWN: usize = 4;

impl Judge {
    /// Whether these are the custom objects that the server has.
    pub fn has_custom(&self, custom: &CustomObjects) -> Result<(), Violation> {
        let state = self.server.state();
        let namespaces = &self.published[&Kind::Namespace];
        let mut expected = BTreeMap::new();
        for kind in Kind::ALL.iter().copied().filter(|kind| kind.spec().custom) {
            for (key, held) in state.history.objects(kind) {
                if is_of_mesh(kind, *key, namespaces) {
                    expected.insert(name(kind, *key), i64::from(held.mark));
                }
            }
        }
        let known = custom.iter().map(|(reference, object)| (reference.to_string(), object.marks.generation));
        let known: BTreeMap<String, i64> = known.collect();
        let names =
            known.keys().chain(expected.keys()).filter(|name| known.get(*name) != expected.get(*name));
        let differing =
            names.map(|name| format!("{name}: {:?}, not {:?}", known.get(name), expected.get(name)));
        let differing: Vec<String> = differing.take(SHOWN).collect();
        if differing.is_empty() { Ok(()) } else { Err(Violation::new(Rule::Custom, differing.join("; "))) }
    }
}
