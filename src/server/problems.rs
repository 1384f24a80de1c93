//! The problems of the mesh, as this replica knows them.
//!
//! Owns the one list of them. Each writer replaces its own part: sources the objects that they cannot
//! read, the compiler the problems between objects, each xDS stream the resources that its proxy rejected,
//! the watch over the sidecars the one problem of those that are connected to no replica, and the keeper of
//! gateways' certificates what it could not do, and the keeper of the CA what declared roots wait for.
//! The metric `smc_problems` and `smc mesh problems` read the whole list.
//!
//! A rejected resource is reported on the objects that it is made of, since one of them must
//! change. Many proxies reject the same resource for the same reason; that is one problem for each
//! object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use smc_host::sync::lock;
use smc_issuing::ca_keeper::RootObstacles;
use smc_types::ids::WorkloadId;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Subject};
use tokio::sync::Notify;

/// Rejected resources of one proxy that are kept, on all its streams together, so that a proxy that
/// rejects everything leaves room for the others.
pub(crate) const MAX_REJECTIONS_PER_PROXY: usize = 64;

/// Rejected resources of all proxies together that are kept: at about 1 KiB each, 4 MiB. A stream
/// whose rejections find no room reports them at its next step for which there is room.
const MAX_REJECTIONS: usize = 4096;

/// Objects that a rejected resource is reported on. A listener may be made of every service of the mesh.
const MAX_OBJECTS: usize = 16;

/// Problems that rejections are reported as.
const MAX_REJECTION_PROBLEMS: usize = 1024;

/// The problems of the mesh. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    parts: Arc<Mutex<Parts>>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Parts {
    sources: Vec<Problem>,
    compiler: Vec<Problem>,
    injection: Vec<Problem>,
    /// Of the sidecars together.
    sidecars: Option<Problem>,
    /// Of the certificates of gateways.
    gateways: Option<Problem>,
    /// Of the roots that are declared.
    roots: Vec<Problem>,
    /// By the pod of the proxy, then by stream. Shared, so that a reader holds the lock for a moment only.
    rejections: BTreeMap<WorkloadId, BTreeMap<u64, Arc<[Rejection]>>>,
    /// How many rejections there are in all streams.
    rejection_count: usize,
    latest_stream: u64,
}

/// A resource that a proxy rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// Type and name of the resource, as in `rds/outbound_shop/store_80`.
    pub(crate) resource: String,
    /// Envoy's reason.
    pub(crate) reason: String,
    /// The objects that the resource is made of.
    pub(crate) made_of: Arc<[ObjectRef]>,
}

impl Problems {
    /// Replaces the problems of the sources.
    pub(crate) fn set_sources(&self, problems: Vec<Problem>) {
        self.parts().sources = problems;
    }

    /// Replaces the problems that the compiler found.
    pub(crate) fn set_compiler(&self, problems: Vec<Problem>) {
        self.parts().compiler = problems;
    }

    /// Replaces the problems of pods without a sidecar.
    pub fn set_injection(&self, problems: Vec<Problem>) {
        self.parts().injection = problems;
    }

    /// Replaces the problem of the sidecars together.
    pub(crate) fn set_sidecars(&self, problem: Option<Problem>) {
        self.set(problem, |parts| &mut parts.sidecars);
    }

    /// Replaces the problem of the certificates of gateways.
    pub(crate) fn set_gateways(&self, problem: Option<Problem>) {
        self.set(problem, |parts| &mut parts.gateways);
    }

    /// Replaces what declared roots wait for.
    pub(crate) fn set_roots(&self, obstacles: RootObstacles) {
        let roots = obstacles.into_iter().map(|(object, obstacle)| {
            let subject = ObjectRef::Namespaced(Kind::MeshRootCertificate, object);
            Problem::warning(subject, "spec.role", format!("the root {obstacle}"))
        });
        let roots = roots.collect();
        let mut parts = self.parts();
        if parts.roots != roots {
            parts.roots = roots;
            self.changed.notify_one();
        }
    }

    fn set(&self, problem: Option<Problem>, part: fn(&mut Parts) -> &mut Option<Problem>) {
        let mut parts = self.parts();
        let part = part(&mut parts);
        if *part != problem {
            *part = problem;
            self.changed.notify_one();
        }
    }

    /// The part of a new stream of the proxy of this pod.
    pub(crate) fn stream(&self, workload: WorkloadId) -> StreamProblems {
        let mut parts = self.parts();
        parts.latest_stream += 1;
        StreamProblems { problems: self.clone(), workload, stream: parts.latest_stream, reported: false }
    }

    /// All problems, sorted, without duplicates. At most [`MAX_REJECTION_PROBLEMS`] are of rejected
    /// resources; one problem more says so where there are others.
    pub(crate) fn all(&self) -> Vec<Problem> {
        let (mut all, rejections) = {
            let parts = self.parts();
            let all = parts.sources.iter().chain(&parts.compiler).chain(&parts.injection);
            let all: BTreeSet<_> =
                all.chain(&parts.sidecars).chain(&parts.gateways).chain(&parts.roots).cloned().collect();
            let streams = parts.rejections.iter().flat_map(|(workload, streams)| {
                streams.values().map(|rejections| (workload.clone(), Arc::clone(rejections)))
            });
            (all, streams.collect::<Vec<_>>())
        };
        let mut rejected = rejected(&rejections);
        all.extend(rejected.by_ref().take(MAX_REJECTION_PROBLEMS));
        if rejected.next().is_some() {
            let message = "proxies rejected more resources, on more objects, than are shown";
            all.insert(Problem::warning(Subject::Mesh, "", message));
        }
        all.into_iter().collect()
    }

    /// The problems of objects that show in none of them alone: those between objects, as the compiler found
    /// them last, and what became of the certificate that one asks for.
    pub fn beyond_reading(&self) -> Vec<Problem> {
        let parts = self.parts();
        parts.compiler.iter().chain(&parts.gateways).chain(&parts.roots).cloned().collect()
    }

    /// The problems of resources that proxies rejected, at most [`MAX_REJECTION_PROBLEMS`].
    pub(crate) fn rejected(&self) -> Vec<Problem> {
        let streams: Vec<_> = {
            let parts = self.parts();
            let streams = parts.rejections.iter().flat_map(|(workload, streams)| {
                streams.values().map(|rejections| (workload.clone(), Arc::clone(rejections)))
            });
            streams.collect()
        };
        rejected(&streams).take(MAX_REJECTION_PROBLEMS).collect()
    }

    /// Returns once a stream, or what is known of the sidecars together, has changed its part since the last
    /// call. For one waiter.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        lock(&self.parts)
    }
}

/// The part of one stream, removed when dropped.
#[derive(Debug)]
pub(crate) struct StreamProblems {
    problems: Problems,
    workload: WorkloadId,
    stream: u64,
    reported: bool,
}

impl StreamProblems {
    /// Whether the stream has reported rejections that it has not withdrawn.
    pub(crate) fn reported(&self) -> bool {
        self.reported
    }

    /// Replaces the rejections of the stream.
    pub(crate) fn set(&mut self, mut rejections: Vec<Rejection>) {
        self.reported = !rejections.is_empty();
        let mut guard = self.problems.parts();
        let parts = &mut *guard;
        let mut streams = parts.rejections.remove(&self.workload).unwrap_or_default();
        let before = streams.remove(&self.stream).unwrap_or_default();
        parts.rejection_count -= before.len();
        let of_proxy: usize = streams.values().map(|rejections| rejections.len()).sum();
        let room = (MAX_REJECTIONS_PER_PROXY - of_proxy).min(MAX_REJECTIONS - parts.rejection_count);
        rejections.truncate(room);
        let changed = *rejections != *before;
        parts.rejection_count += rejections.len();
        if !rejections.is_empty() {
            streams.insert(self.stream, rejections.into());
        }
        if !streams.is_empty() {
            parts.rejections.insert(self.workload.clone(), streams);
        }
        if changed {
            self.problems.changed.notify_one();
        }
    }
}

impl Drop for StreamProblems {
    fn drop(&mut self) {
        if self.reported {
            self.set(Vec::new());
        }
    }
}

/// One problem for each object of a rejected resource and reason, whichever proxies rejected it. A
/// resource that is made of no object is the proxy's problem. Resources of one name that proxies rejected
/// for the same reason are taken for the same if they have as many objects and the same first one.
///
/// A reason is in the words of a proxy, which may be compromised, and the problem of an object becomes its
/// status and an Event. So only objects of the namespaces of such proxies have it there. Others point to the
/// problem of the first of the proxies.
fn rejected(streams: &[(WorkloadId, Arc<[Rejection]>)]) -> impl Iterator<Item = Problem> {
    let mut alike: BTreeMap<_, (&Rejection, BTreeSet<&WorkloadId>)> = BTreeMap::new();
    let mut of_proxies = BTreeSet::new();
    let of_proxy = |workload: &WorkloadId, Rejection { resource, reason, .. }: &Rejection| {
        Problem::error(Subject::Proxy(workload.clone()), resource, format!("rejected: {reason}"))
    };
    for (workload, rejections) in streams {
        for rejection in rejections.iter() {
            let Rejection { resource, reason, made_of } = rejection;
            if let Some(first) = made_of.first() {
                let key = (resource, reason, first, made_of.len());
                alike.entry(key).or_insert_with(|| (rejection, BTreeSet::new())).1.insert(workload);
            } else {
                of_proxies.insert(of_proxy(workload, rejection));
            }
        }
    }
    let mut of_objects = Vec::new();
    for (rejection, workloads) in alike.into_values() {
        // No more of them are shown; one more says that there are.
        if of_objects.len() > MAX_REJECTION_PROBLEMS {
            break;
        }
        let Rejection { resource, reason, made_of } = rejection;
        let what = message(resource, made_of.len(), &workloads);
        let namespaces: BTreeSet<_> = workloads.iter().map(|workload| workload.namespace()).collect();
        for object in made_of.iter().take(MAX_OBJECTS) {
            let own =
                matches!(object, ObjectRef::Namespaced(_, name) if namespaces.contains(name.namespace()));
            if !own {
                of_proxies.extend(workloads.first().map(|first| of_proxy(first, rejection)));
            }
            let why = if own { reason } else { "its reason is among the problems of the proxy" };
            of_objects.push(Problem::error(object, "", format!("{what}: {why}")));
        }
    }
    of_proxies.into_iter().chain(of_objects)
}

fn message(resource: &str, objects: usize, workloads: &BTreeSet<&WorkloadId>) -> String {
    let first = workloads.first().map(|first| ObjectRef::from(*first));
    let proxies = match (first, workloads.len()) {
        (Some(first), 1) => format!("the proxy of {first}"),
        (Some(first), count) => format!("the proxies of {first} and {} others", count - 1),
        (None, _) => "a proxy".to_owned(),
    };
    let with = match objects {
        1 => String::new(),
        2 => " and 1 other object".to_owned(),
        count => format!(" and {} other objects", count - 1),
    };
    format!("{proxies} rejected {resource}, which is made of this{with}")
}

#[cfg(test)]
mod tests {
    use smc_types::object_ref::Kind;

    use super::*;

    fn object(kind: Kind, name: &str) -> ObjectRef {
        ObjectRef::Namespaced(kind, name.parse().unwrap())
    }

    fn rejection(resource: &str, made_of: &[ObjectRef]) -> Rejection {
        Rejection { resource: resource.to_owned(), reason: "too large".to_owned(), made_of: made_of.into() }
    }

    fn stream(problems: &Problems, pod: &str) -> StreamProblems {
        problems.stream(pod.parse().unwrap())
    }

    fn shown(problems: &Problems) -> Vec<String> {
        problems.all().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rejected_resource_is_a_problem_of_each_object_and_names_the_proxy() {
        let problems = Problems::default();
        let objects = [object(Kind::Service, "shop/store"), object(Kind::TrafficSplit, "shop/canary")];
        let mut stream = stream(&problems, "shop/buyer");
        stream.set(vec![rejection("rds/web", &objects)]);
        let text = "the proxy of Pod shop/buyer rejected rds/web, which is made of this and 1 other object: too large";
        assert_eq!(
            shown(&problems),
            [
                format!("error: Service shop/store: {text}"),
                format!("error: TrafficSplit shop/canary: {text}")
            ]
        );
        stream.set(Vec::new());
        assert_eq!(shown(&problems), Vec::<String>::new());
    }

    #[test]
    fn the_words_of_a_proxy_stay_in_its_namespace() {
        let problems = Problems::default();
        let objects = [object(Kind::Service, "bank/vault"), object(Kind::TrafficTarget, "shop/may-call")];
        let mut evil = stream(&problems, "shop/buyer");
        evil.set(vec![Rejection {
            reason: "call 555 to repair".to_owned(),
            ..rejection("rds/web", &objects)
        }]);
        let rejected =
            "the proxy of Pod shop/buyer rejected rds/web, which is made of this and 1 other object";
        assert_eq!(
            shown(&problems),
            [
                format!(
                    "error: Service bank/vault: {rejected}: its reason is among the problems of the proxy"
                ),
                format!("error: TrafficTarget shop/may-call: {rejected}: call 555 to repair"),
                "error: Proxy shop/buyer: rds/web: rejected: call 555 to repair".to_owned(),
            ]
        );
        // One of its own that says the same is heard.
        let mut own = stream(&problems, "bank/teller");
        own.set(vec![Rejection {
            reason: "call 555 to repair".to_owned(),
            ..rejection("rds/web", &objects)
        }]);
        assert!(shown(&problems).iter().all(|problem| !problem.contains("among the problems")));
    }

    #[test]
    fn the_proxy_of_a_machine_is_named_as_its_mesh_workload() {
        let problems = Problems::default();
        let mut stream = stream(&problems, "machine/shop/db");
        stream.set(vec![rejection("cds/store", &[object(Kind::Service, "shop/store")])]);
        let text = "the proxy of MeshWorkload shop/db rejected cds/store, which is made of this: too large";
        assert_eq!(shown(&problems), [format!("error: Service shop/store: {text}")]);
    }

    #[test]
    fn a_resource_without_objects_is_a_problem_of_the_proxy() {
        let problems = Problems::default();
        let mut stream = stream(&problems, "shop/buyer");
        stream.set(vec![rejection("lds/statistics", &[])]);
        assert_eq!(shown(&problems), ["error: Proxy shop/buyer: lds/statistics: rejected: too large"]);
    }

    #[test]
    fn proxies_that_reject_the_same_for_the_same_reason_are_one_problem() {
        let problems = Problems::default();
        let split = [object(Kind::TrafficSplit, "shop/canary")];
        let mut streams: Vec<_> = (0..3).map(|n| stream(&problems, &format!("shop/p{n}"))).collect();
        for stream in &mut streams {
            stream.set(vec![rejection("rds/web", &split)]);
        }
        let text =
            "the proxies of Pod shop/p0 and 2 others rejected rds/web, which is made of this: too large";
        assert_eq!(shown(&problems), [format!("error: TrafficSplit shop/canary: {text}")]);
        drop(streams);
        assert_eq!(shown(&problems), Vec::<String>::new(), "a stream that ends withdraws its own");
    }

    #[test]
    fn all_writers_are_in_the_one_list_and_none_replaces_another() {
        let problems = Problems::default();
        let mut stream = stream(&problems, "shop/buyer");
        problems.set_sources(vec![Problem::error(Subject::line("a.yaml", 1), "", "unreadable")]);
        problems.set_compiler(vec![Problem::warning(
            object(Kind::Service, "shop/store"),
            "",
            "selects no pod",
        )]);
        stream.set(vec![rejection("cds/store", &[object(Kind::Service, "shop/store")])]);
        assert_eq!(shown(&problems).len(), 3);
        problems.set_sources(Vec::new());
        assert_eq!(shown(&problems).len(), 2);
    }

    #[test]
    fn what_proxies_reject_is_bounded() {
        let problems = Problems::default();
        let services: Vec<_> =
            (0..=MAX_OBJECTS).map(|n| object(Kind::Service, &format!("shop/s{n:02}"))).collect();
        let mut streams: Vec<_> = (0..=MAX_REJECTIONS / MAX_REJECTIONS_PER_PROXY)
            .map(|n| stream(&problems, &format!("shop/p{n}")))
            .collect();
        streams[0].set(vec![rejection("rds/0", &services)]);
        assert_eq!(problems.all().len(), MAX_OBJECTS);
        assert!(shown(&problems)[0].contains("and 16 other objects"), "{:?}", shown(&problems)[0]);
        for (proxy, stream) in streams.iter_mut().enumerate() {
            let of_proxy = |n| rejection(&format!("rds/{proxy}-{n}"), &services);
            stream.set((0..=MAX_REJECTIONS_PER_PROXY).map(of_proxy).collect());
        }
        assert_eq!(problems.parts().rejection_count, MAX_REJECTIONS);
        assert_eq!(problems.all().len(), MAX_REJECTION_PROBLEMS + 1);
        assert!(shown(&problems).iter().any(|problem| problem.contains("than are shown")));
        drop(streams);
        assert_eq!(problems.parts().rejection_count, 0);
        assert!(problems.parts().rejections.is_empty());
    }

    #[test]
    fn a_proxy_has_one_bound_for_all_its_streams() {
        let problems = Problems::default();
        let rejections: Vec<_> =
            (0..MAX_REJECTIONS_PER_PROXY).map(|n| rejection(&format!("rds/{n}"), &[])).collect();
        let mut streams: Vec<_> = (0..3).map(|_| stream(&problems, "shop/p")).collect();
        for stream in &mut streams {
            stream.set(rejections.clone());
        }
        assert_eq!(problems.parts().rejection_count, MAX_REJECTIONS_PER_PROXY);
        streams[0].set(rejections[..1].to_vec());
        streams[1].set(rejections[..2].to_vec());
        assert_eq!(problems.parts().rejection_count, 3, "room that one stream leaves is another's");
    }
}
