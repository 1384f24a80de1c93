//! Which resource of the API server holds each kind, and in which version.
//!
//! Owns the choice of the version, and when a kind counts as missing. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use smc_types::ids::MeshNamespace;
use smc_types::kind::{Extent, Kind};
use tokio::time::Instant;

/// How long a kind that was never served must be missing before it counts as missing. An API server that has
/// just started may not know all of its custom resources yet.
const MISSING_AT_START: Duration = Duration::from_secs(2);

/// How long a kind that was served must be missing. If its definition was deleted, all of its objects were
/// deleted first, and the watch has said so; the wait costs nothing then.
const MISSING_LATER: Duration = Duration::from_secs(30);

/// What an API server serves: the plural names that can be listed and watched, by `apiVersion` and kind.
pub(super) type Served = BTreeMap<String, BTreeMap<String, String>>;

/// A resource of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    /// The version in which it is read, such as `split.smi-spec.io/v1alpha4`.
    pub(super) api_version: String,
    /// Its plural name.
    plural: String,
    /// The only namespace that is read.
    namespace: Option<MeshNamespace>,
}

impl Resource {
    /// The path of all objects that are watched.
    pub(super) fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => self.path_in(namespace.as_str()),
            None => format!("{}/{}", base(&self.api_version), self.plural),
        }
    }

    /// The path of the objects in a namespace.
    pub(super) fn path_in(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", base(&self.api_version), self.plural)
    }
}

/// The path of a group and version.
pub(super) fn base(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

/// The resource of a kind, in the best version that is served.
pub(super) fn choose(kind: Kind, served: &Served, mesh_namespace: &MeshNamespace) -> Option<Resource> {
    let found = kind.spec().api_versions().find_map(|api_version| {
        let plural = served.get(&api_version)?.get(kind.as_str())?.clone();
        Some((api_version, plural))
    });
    let namespace = (kind.spec().extent == Extent::Own).then(|| mesh_namespace.clone());
    found.map(|(api_version, plural)| Resource { api_version, plural, namespace })
}

/// Where each kind is, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// It is this resource.
    Served(Resource),
    /// The API server does not serve it in a version that is read. These versions of its group are served.
    Missing(BTreeSet<String>),
}

/// The places of all kinds as of the last look, and since when kinds are missing.
#[derive(Debug, Default)]
pub(super) struct Places {
    known: BTreeMap<Kind, Place>,
    missing_since: BTreeMap<Kind, Instant>,
}

impl Places {
    /// The places that are certain.
    pub(super) fn known(&self) -> &BTreeMap<Kind, Place> {
        &self.known
    }

    /// Whether a kind's place is not certain yet.
    pub(super) fn doubtful(&self) -> bool {
        !self.missing_since.is_empty()
    }

    /// Whether a kind is missing.
    pub(super) fn incomplete(&self) -> bool {
        self.known.values().any(|place| matches!(place, Place::Missing(_)))
    }

    /// Takes note of a look at `now`. What the API server does not serve is missing only if it says
    /// that it serves the `whole` of what it knows.
    pub(super) fn looked(
        &mut self,
        kinds: &[Kind],
        served: &Served,
        whole: bool,
        mesh_namespace: &MeshNamespace,
        now: Instant,
    ) {
        for kind in kinds.iter().copied() {
            if let Some(resource) = choose(kind, served, mesh_namespace) {
                self.missing_since.remove(&kind);
                self.known.insert(kind, Place::Served(resource));
                continue;
            }
            if !whole && !matches!(self.known.get(&kind), Some(Place::Missing(_))) {
                self.missing_since.insert(kind, now);
                continue;
            }
            let others = served.keys().filter(|version| {
                version.split_once('/').is_some_and(|(group, _)| group == kind.spec().group)
            });
            let missing = Place::Missing(others.cloned().collect());
            let wait = match self.known.get(&kind) {
                Some(Place::Missing(_)) => Duration::ZERO,
                Some(Place::Served(_)) => MISSING_LATER,
                None => MISSING_AT_START,
            };
            if now.duration_since(*self.missing_since.entry(kind).or_insert(now)) >= wait {
                self.missing_since.remove(&kind);
                self.known.insert(kind, missing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(resources: &[(&str, &str, &str)]) -> Served {
        let mut served = Served::new();
        for (version, kind, plural) in resources {
            served.entry((*version).to_owned()).or_default().insert((*kind).to_owned(), (*plural).to_owned());
        }
        served
    }

    fn path(kind: Kind, resources: &[(&str, &str, &str)]) -> Option<String> {
        choose(kind, &served(resources), &MeshNamespace::new("own").unwrap()).map(|found| found.path())
    }

    #[test]
    fn the_best_version_that_is_served_is_read() {
        let split = |version: &'static str| (version, "TrafficSplit", "trafficsplits");
        let all = "/apis/split.smi-spec.io/v1alpha4/trafficsplits";
        for (kind, resources, expected) in [
            (Kind::Pod, &[("v1", "Pod", "pods")][..], Some("/api/v1/pods")),
            (Kind::Pod, &[], None),
            (
                Kind::TrafficSplit,
                &[split("split.smi-spec.io/v1alpha2"), split("split.smi-spec.io/v1alpha4")],
                Some(all),
            ),
            (Kind::TrafficSplit, &[split("split.smi-spec.io/v1beta1")], None),
            (
                Kind::MeshConfig,
                &[("config.openservicemesh.io/v1alpha1", "MeshConfig", "meshconfigs")],
                Some("/apis/config.openservicemesh.io/v1alpha1/namespaces/own/meshconfigs"),
            ),
        ] {
            assert_eq!(path(kind, resources).as_deref(), expected, "{kind} {resources:?}");
        }
    }

    #[test]
    fn a_kind_is_missing_only_after_a_while() {
        let there = served(&[("split.smi-spec.io/v1alpha4", "TrafficSplit", "trafficsplits")]);
        let other = served(&[("split.smi-spec.io/v1beta1", "TrafficSplit", "trafficsplits")]);
        let (mut places, start) = (Places::default(), Instant::now());
        let mut look = |second: u64, served: &Served| {
            // Until the third second, it says that it is not ready.
            let now = start + Duration::from_secs(second);
            places.looked(&[Kind::TrafficSplit], served, second > 2, &MeshNamespace::default(), now);
            let missing = match places.known().get(&Kind::TrafficSplit) {
                None => "unknown".to_owned(),
                Some(Place::Served(_)) => "served".to_owned(),
                Some(Place::Missing(others)) => format!("missing {others:?}"),
            };
            (missing, places.doubtful())
        };
        let missing = |others: &str, doubtful| (format!("missing {{{others}}}"), doubtful);
        assert_eq!(look(0, &Served::new()), ("unknown".to_owned(), true));
        assert_eq!(look(1, &Served::new()), ("unknown".to_owned(), true));
        assert_eq!(look(2, &Served::new()), ("unknown".to_owned(), true));
        assert_eq!(look(3, &Served::new()), ("unknown".to_owned(), true));
        assert_eq!(look(4, &Served::new()), missing("", false));
        assert_eq!(look(5, &other), missing("\"split.smi-spec.io/v1beta1\"", false));
        assert_eq!(look(10, &there), ("served".to_owned(), false));
        assert_eq!(look(20, &Served::new()), ("served".to_owned(), true));
        assert_eq!(look(30, &there), ("served".to_owned(), false));
        assert_eq!(look(40, &Served::new()), ("served".to_owned(), true));
        assert_eq!(look(69, &Served::new()), ("served".to_owned(), true));
        assert_eq!(look(70, &Served::new()), missing("", false));
    }
}
