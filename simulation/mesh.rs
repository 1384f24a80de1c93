//! The mesh that a simulation declares, in the YAML that the directory source reads as well.

use std::collections::BTreeMap;

use smc::sources::{Batch, Source, SourceError, manifest};
use smc_mesh::catalog::{Object, ObjectRef, SourceEvent};
use smc_raft::Pending;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Tells one replica what is declared, whenever that changes.
pub struct DeclaredMesh(watch::Receiver<String>);

impl DeclaredMesh {
    /// Follows `text`, a sequence of YAML documents.
    pub fn new(text: watch::Receiver<String>) -> Self {
        Self(text)
    }
}

impl Source for DeclaredMesh {
    fn run(
        mut self: Box<Self>,
        batches: mpsc::Sender<Batch>,
        shutdown: CancellationToken,
    ) -> Pending<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let mut told = BTreeMap::new();
            loop {
                let batch = step(&mut told, &self.0.borrow_and_update());
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    sent = batches.send(batch) => if sent.is_err() {
                        return Ok(());
                    },
                }
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    changed = self.0.changed() => if changed.is_err() {
                        // It will never change again.
                        shutdown.cancelled().await;
                        return Ok(());
                    },
                }
            }
        })
    }
}

/// From what was told to what is declared.
fn step(told: &mut BTreeMap<ObjectRef, Object>, text: &str) -> Batch {
    let read = manifest::read("mesh.yaml", text.as_bytes());
    let declared: BTreeMap<_, _> = read
        .declarations
        .iter()
        .filter_map(|declaration| Some((declaration.reference.clone(), declaration.object.clone()?)))
        .collect();
    let gone = told.keys().filter(|reference| !declared.contains_key(reference));
    let removals = gone.map(|reference| SourceEvent::Remove(reference.clone()));
    let changed = declared.iter().filter(|(reference, object)| told.get(reference) != Some(object));
    let upserts = changed.map(|(_, object)| SourceEvent::Upsert(object.clone()));
    let events = removals.chain(upserts).collect();
    *told = declared;
    Batch { events, problems: read.problems, synced: true }
}
