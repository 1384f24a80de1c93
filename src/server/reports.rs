//! What this replica tells the leader: which objects it serves, and how far its proxies have taken them in.
//!
//! Owns the answer to `ProxyReportsQuestion`. Objects come as the API server has them, since replicas number
//! what they serve each for themselves. What a proxy has answered is compared with the generation that this
//! replica served when it was first asked about the object; so the answer is about this object, and not about
//! what changed after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use smc_decode::kinds::read_custom;
use smc_host::sync::lock;
use smc_mesh::catalog::{Catalog, Object};
use smc_proto::peer::v1::{ObjectReport, ProxyReportsAnswer, ProxyReportsQuestion, RejectedObject};
use smc_raft::NotAnswered;
use smc_types::ids::WorkloadId;
use smc_types::object_ref::ObjectRef;
use smc_types::problem::{Problem, Subject};
use smc_types::text::truncated;
use smc_xds::served_state::ServedState;
use tokio::sync::watch;

use crate::problems::Problems;
use crate::publisher::{Mesh, MeshHandle, PublisherStopped};
use crate::xds::proxies::Proxies;

/// Objects of one question. Each costs a look into the catalog, during which nothing is published.
pub const MAX_OBJECTS: usize = 64;

/// Rejections of one answer, and the length of one in characters.
const MAX_REJECTIONS: usize = 256;
const MAX_MESSAGE: usize = 1000;

/// Objects whose first generation is remembered. Beyond it, all are asked about as if for the first time,
/// which only delays their status.
const MAX_REMEMBERED: usize = 4096;

/// Reports on this replica.
pub(crate) struct Reports {
    pub(crate) mesh: MeshHandle,
    pub(crate) proxies: Proxies,
    pub(crate) problems: Problems,
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    pub(crate) since: Arc<Since>,
}

/// Since which generation objects are served, by the first question about each.
#[derive(Debug, Default)]
pub(crate) struct Since(Mutex<BTreeMap<ObjectRef, (Object, u64)>>);

impl Since {
    /// Notes which of the objects are served in this generation, and since when each is; `None` for one that
    /// is not.
    fn note(&self, asked: &[Option<Object>], catalog: &Catalog, generation: u64) -> Vec<Option<u64>> {
        let mut known = lock(&self.0);
        let mut since = |object: &Object| {
            let reference = object.reference();
            if !catalog.holds(object) {
                known.remove(&reference);
                return None;
            }
            if let Some((same, since)) = known.get(&reference)
                && same == object
            {
                return Some(*since);
            }
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
            known.insert(reference, (object.clone(), generation));
            Some(generation)
        };
        asked.iter().map(|object| object.as_ref().and_then(&mut since)).collect()
    }
}

impl Reports {
    /// Answers the leader, as long as the replica runs.
    pub(crate) fn answered(
        self: Arc<Self>,
        question: ProxyReportsQuestion,
    ) -> BoxFuture<'static, Result<ProxyReportsAnswer, NotAnswered>> {
        Box::pin(async move { self.answer(question).await.map_err(|_stopped| NotAnswered::NotNow) })
    }

    /// Answers the leader.
    async fn answer(&self, question: ProxyReportsQuestion) -> Result<ProxyReportsAnswer, PublisherStopped> {
        let texts = question.objects.iter().take(MAX_OBJECTS);
        let asked: Vec<_> = texts.map(|text| object(text)).collect();
        // Before the sources have synced, nothing is served.
        let serves = self.served.borrow().is_some();
        let known = Arc::clone(&self.since);
        let ask = move |mesh: &Mesh| {
            let state = mesh.compiler.served_state();
            let since = if serves {
                known.note(&asked, mesh.compiler.catalog(), state.generation)
            } else {
                vec![None; asked.len()]
            };
            (since, state)
        };
        let (since, state) = self.mesh.about(ask).await?;
        let answered = self.proxies.answered_up_to(&state);
        let objects = since.into_iter().map(|since| report(since, &answered)).collect();
        Ok(ProxyReportsAnswer { objects, rejected: rejected(self.problems.rejected()) })
    }
}

/// An object as this replica's own source would read it.
fn object(text: &str) -> Option<Object> {
    read_custom(text)?.1
}

/// The report on an object that is served since this generation, if it is.
fn report(since: Option<u64>, answered: &BTreeMap<WorkloadId, u64>) -> ObjectReport {
    let Some(since) = since else { return ObjectReport::default() };
    let mut waiting = answered.iter().filter(|(_, answered)| **answered < since);
    let first = waiting.next();
    ObjectReport {
        held: true,
        waiting: u64::try_from(waiting.count() + usize::from(first.is_some())).unwrap_or(u64::MAX),
        first_waiting: first.map(|(workload, _)| workload.to_string()).unwrap_or_default(),
    }
}

fn rejected(problems: Vec<Problem>) -> Vec<RejectedObject> {
    let of_object = |problem: Problem| match problem.subject {
        Subject::Object(ObjectRef::Namespaced(kind, name)) => Some(RejectedObject {
            kind: kind.as_str().to_owned(),
            name: name.to_string(),
            message: truncated(&problem.message, MAX_MESSAGE),
        }),
        _ => None,
    };
    problems.into_iter().filter_map(of_object).take(MAX_REJECTIONS).collect()
}

#[cfg(test)]
mod tests {
    use smc_api::object::SourceEvent;
    use smc_types::object_ref::Kind;

    use super::*;

    const GROUP: &str = r#"{"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup",
        "metadata": {"name": "all", "namespace": "shop"}, "spec": {"matches": [{"name": "NAME"}]}}"#;

    fn group(name: &str) -> Object {
        object(&GROUP.replace("NAME", name)).unwrap()
    }

    #[test]
    fn an_object_is_served_since_it_was_first_asked_about_as_it_is() {
        let (since, mut catalog) = (Since::default(), Catalog::default());
        let mut note = |declared: Option<&str>, asked: &str, generation| {
            if let Some(declared) = declared {
                catalog.apply(SourceEvent::Upsert(group(declared)));
            }
            since.note(&[Some(group(asked))], &catalog, generation).remove(0)
        };
        assert_eq!(note(None, "one", 1), None);
        assert_eq!(note(Some("one"), "one", 5), Some(5));
        assert_eq!(note(None, "one", 9), Some(5), "what changed since is another object's");
        assert_eq!(note(Some("two"), "one", 10), None);
        assert_eq!(note(None, "two", 11), Some(11));
        assert_eq!(note(Some("one"), "one", 12), Some(12), "it came back");
    }

    #[test]
    fn proxies_wait_that_have_not_answered_since() {
        let answered = |pods: &[(&str, u64)]| -> BTreeMap<WorkloadId, u64> {
            pods.iter().map(|(pod, generation)| (pod.parse().unwrap(), *generation)).collect()
        };
        let all = answered(&[("shop/a", 7), ("shop/b", 6), ("shop/c", 5)]);
        for (since, held, waiting, first) in [
            (None, false, 0, ""),
            (Some(5), true, 0, ""),
            (Some(6), true, 1, "shop/c"),
            (Some(7), true, 2, "shop/b"),
        ] {
            let expected = ObjectReport { held, waiting, first_waiting: first.to_owned() };
            assert_eq!(report(since, &all), expected, "{since:?}");
        }
    }

    #[test]
    fn only_what_is_of_an_object_is_told_and_not_too_much() {
        let split = ObjectRef::Namespaced(Kind::TrafficSplit, "shop/canary".parse().unwrap());
        let mut problems = vec![Problem::error(Subject::Mesh, "", "no object")];
        problems.extend((0..300).map(|_| Problem::error(&split, "", "x".repeat(5000))));
        let told = rejected(problems);
        assert_eq!((told.len(), told[0].kind.as_str()), (MAX_REJECTIONS, "TrafficSplit"));
        assert_eq!((told[0].name.as_str(), told[0].message.chars().count()), ("shop/canary", MAX_MESSAGE));
    }

    #[test]
    fn what_is_no_object_is_not_served() {
        for text in ["", "{", "[]", "{}", "{\"kind\": \"Pod\"}", &GROUP.replace("\"all\"", "7")] {
            assert!(object(text).is_none(), "{text}");
        }
    }
}
