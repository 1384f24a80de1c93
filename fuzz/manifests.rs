//! YAML of a tenant: read, compiled into a mesh that others use, and taken away again.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use smc::decode::manifest;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::resource::{ResourceType, Version};
use smc_mesh::translate::{Compiler, Input};
use smc_testkit::mesh::{self, meshes};
use smc_types::object_ref::ObjectRef;

/// Reads one file.
pub(crate) fn run(input: &[u8]) {
    let read = manifest::read("fuzz.yaml", input);
    assert!(read.declarations.len() <= manifest::MAX_OBJECTS);
    for problem in &read.problems {
        assert!(!problem.to_string().is_empty());
    }
    assert_eq!(manifest::read("fuzz.yaml", input), read, "two readings differ");
    for declaration in &read.declarations {
        let Some(json) = &declaration.json else { continue };
        let kept = manifest::read("kept.json", json.as_bytes());
        let [again] = &kept.declarations[..] else { panic!("a kept copy declares {:?}", kept.declarations) };
        assert_eq!(again.object, declaration.object, "a kept copy reads otherwise");
    }
    let objects: Vec<Object> = read.declarations.iter().filter_map(|one| one.object.clone()).collect();
    if objects.is_empty() {
        return;
    }
    let base = base();
    let gone: Vec<ObjectRef> = objects.iter().map(Object::reference).collect();
    let mut compiler = base.compile("roots", "chain", "key");
    compiler.apply(objects.into_iter().map(|object| Input::Source(SourceEvent::Upsert(object))));
    for problem in compiler.problems() {
        assert!(!problem.to_string().is_empty());
    }
    compiler.apply(gone.iter().cloned().map(mesh::remove));
    // What the file declared, and the mesh did too, is gone from both.
    let mut without = base.compile("roots", "chain", "key");
    without.apply(gone.into_iter().map(mesh::remove));
    for pod in &base.pods {
        assert_eq!(versions(&compiler, pod), versions(&without, pod), "{pod} is left with something");
    }
}

fn base() -> &'static meshes::Mesh {
    static BASE: OnceLock<meshes::Mesh> = OnceLock::new();
    BASE.get_or_init(|| {
        meshes::all().into_iter().find(|mesh| mesh.name == "splits_by_weight_and_by_match").unwrap()
    })
}

/// What a pod is served: the version of each resource.
fn versions(compiler: &Compiler, pod: &str) -> BTreeMap<(ResourceType, String), Version> {
    let view = mesh::view(compiler, pod);
    let resources =
        view.iter().flat_map(|view| ResourceType::ALL.into_iter().flat_map(|kind| view.all(kind)));
    resources.map(|resource| ((resource.kind, resource.name.to_string()), resource.version)).collect()
}
