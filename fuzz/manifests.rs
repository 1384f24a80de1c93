//! YAML of a tenant: read, compiled into a mesh that others use, and taken away again.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use smc_decode::manifest;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::translate::{Compiler, Input};
use smc_testkit::mesh::{self, meshes};
use smc_types::object_ref::ObjectRef;
use smc_xds::resource::{ResourceType, Version};

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
    if !objects.is_empty() {
        // Taken out while it is in use: what a finding leaves is not used again.
        let mut mesh = lock(&MESH).take().unwrap_or_else(Mesh::compile);
        mesh.visit(objects);
        *lock(&MESH) = Some(mesh);
    }
}

/// The mesh that files come into and leave. Compiled once, since that takes longer than all else here.
static MESH: Mutex<Option<Mesh>> = Mutex::new(None);

fn lock(mesh: &Mutex<Option<Mesh>>) -> MutexGuard<'_, Option<Mesh>> {
    mesh.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Mesh {
    compiler: Compiler,
    own: BTreeMap<ObjectRef, Object>,
    pods: Vec<String>,
    served: Vec<Served>,
}

impl Mesh {
    fn compile() -> Self {
        let mesh =
            meshes::all().into_iter().find(|mesh| mesh.name == "splits_by_weight_and_by_match").unwrap();
        let compiler = mesh.compile("roots", "chain", "key");
        let own = mesh.inputs.into_iter().filter_map(|input| match input {
            Input::Source(SourceEvent::Upsert(object)) => Some((object.reference(), object)),
            _ => None,
        });
        let served = mesh.pods.iter().map(|pod| served(&compiler, pod)).collect();
        Self { own: own.collect(), served, compiler, pods: mesh.pods }
    }

    /// Takes objects, reports their problems, and is as before when they are gone.
    fn visit(&mut self, objects: Vec<Object>) {
        let gone: Vec<ObjectRef> = objects.iter().map(Object::reference).collect();
        self.compiler.apply(objects.into_iter().map(|object| Input::Source(SourceEvent::Upsert(object))));
        for problem in self.compiler.problems() {
            assert!(!problem.to_string().is_empty());
        }
        self.compiler.apply(gone.iter().cloned().map(mesh::remove));
        let replaced = gone.iter().filter_map(|gone| self.own.get(gone)).cloned();
        self.compiler.apply(replaced.map(mesh::upsert));
        for (pod, before) in self.pods.iter().zip(&self.served) {
            assert_eq!(&served(&self.compiler, pod), before, "{pod} is left with something");
        }
    }
}

/// What a pod is served: the version of each resource.
type Served = BTreeMap<(ResourceType, String), Version>;

fn served(compiler: &Compiler, pod: &str) -> Served {
    let view = mesh::view(compiler, pod);
    let resources =
        view.iter().flat_map(|view| ResourceType::ALL.into_iter().flat_map(|kind| view.all(kind)));
    resources.map(|resource| ((resource.kind, resource.name.to_string()), resource.version)).collect()
}
