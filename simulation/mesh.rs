//! The mesh that a simulation declares, in the YAML that the directory source also reads.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use smc_decode::manifest;
use smc_mesh::catalog::{Object, SourceEvent};
use smc_server::source::{Batch, Source, SourceError};
use smc_types::object_ref::ObjectRef;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// A source of one replica that follows the declared mesh.
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
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let mut sent = BTreeMap::new();
            loop {
                let batch = step(&mut sent, &self.0.borrow_and_update());
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    delivered = batches.send(batch) => if delivered.is_err() {
                        return Ok(());
                    },
                }
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    changed = self.0.changed() => if changed.is_err() {
                        // The sender is gone, so the mesh never changes again.
                        shutdown.cancelled().await;
                        return Ok(());
                    },
                }
            }
        })
    }
}

/// The batch that leads from the objects that were sent to those that `text` declares.
fn step(sent: &mut BTreeMap<ObjectRef, Object>, text: &str) -> Batch {
    let read = manifest::read("mesh.yaml", text.as_bytes());
    let declared: BTreeMap<_, _> = read
        .declarations
        .iter()
        .filter_map(|declaration| Some((declaration.reference.clone(), declaration.object.clone()?)))
        .collect();
    let gone = sent.keys().filter(|reference| !declared.contains_key(reference));
    let removals = gone.map(|reference| SourceEvent::Remove(reference.clone()));
    let changed = declared.iter().filter(|(reference, object)| sent.get(reference) != Some(object));
    let upserts = changed.map(|(_, object)| SourceEvent::Upsert(object.clone()));
    let events = removals.chain(upserts).collect();
    *sent = declared;
    Batch { events, problems: read.problems, synced: true, revision: None }
}
