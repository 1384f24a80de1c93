//! Looks at what the API server serves, again and again.
//!
//! Owns the requests of discovery and when they are made. The choice is in `resources`, and the judgement of
//! the API server's clock, which each look reads, in `clock_offset`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use smc_host::env::Env;
use smc_types::ids::MeshNamespace;
use smc_types::object_ref::Kind;
use smc_types::problem::Problem;
use smc_types::time::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::clock_offset;
use super::failure::Failure;
use super::reader::Reader;
use super::resources::{Place, Places, Served, base, choose};

/// How often to look. Costs some ten small requests.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How often to look while a kind is missing: a definition that is installed takes effect within this time.
const LOOK_OFTEN: Duration = Duration::from_secs(10);

/// How long an answer may take. The API server holds what is asked in memory.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// How soon to look again while a place is not certain, or another look was asked for.
const LOOK_SOON: Duration = Duration::from_secs(1);

/// Looks at what the API server serves.
pub(super) struct Discovery {
    /// Asks the API server.
    pub(super) reader: Reader,
    /// The control plane's namespace.
    pub(super) mesh_namespace: MeshNamespace,
    /// Takes the places.
    pub(super) places: watch::Sender<BTreeMap<Kind, Place>>,
    /// Takes the problem of clocks that differ.
    pub(super) clocks: watch::Sender<Option<Problem>>,
    /// Another look is wanted soon.
    pub(super) again: Arc<Notify>,
    /// Whether the API server answers, as far as is known.
    pub(super) reachable: watch::Receiver<bool>,
    /// Draws the jitter of waits.
    pub(super) env: Env,
}

/// The groups of an API server (`v1` APIGroupList).
#[derive(Deserialize)]
struct GroupList {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

/// The resources of a group and version (`v1` APIResourceList).
#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<ListedResource>,
}

#[derive(Deserialize)]
struct ListedResource {
    name: String,
    kind: String,
    #[serde(default)]
    verbs: Vec<String>,
}

impl ListedResource {
    fn can_be_followed(&self) -> bool {
        ["list", "watch"].iter().all(|verb| self.verbs.iter().any(|allowed| allowed == verb))
    }
}

impl Discovery {
    /// Looks for ever, until the receiver of places is gone.
    pub(super) async fn run(mut self) {
        let (mut places, mut attempt) = (Places::default(), 0);
        while !self.places.is_closed() {
            let random = self.env.random_u64().unwrap_or_default();
            let wait = match self.look().await {
                Ok(served) => {
                    attempt = 0;
                    let lacks =
                        Kind::ALL.iter().any(|of| choose(*of, &served, &self.mesh_namespace).is_none());
                    let whole = !lacks || self.says_whole().await;
                    places.looked(Kind::ALL, &served, whole, &self.mesh_namespace, Instant::now());
                    self.places.send_if_modified(|known| {
                        let differ = known != places.known();
                        if differ {
                            known.clone_from(places.known());
                        }
                        differ
                    });
                    match (places.doubtful(), places.incomplete()) {
                        (true, _) => LOOK_SOON,
                        (false, true) => LOOK_OFTEN.mul_f64(spread(random)),
                        (false, false) => LOOK_EVERY.mul_f64(spread(random)),
                    }
                }
                Err(failure) => {
                    debug!(%failure, attempt, "cannot ask the API server what it serves");
                    attempt += 1;
                    failure.wait(attempt, random)
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                Ok(()) = self.reachable.changed(), if attempt > 0 => {}
                () = self.again.notified(), if attempt == 0 => sleep(LOOK_SOON).await,
            }
        }
    }

    /// What the API server serves now, of the groups that are read.
    async fn look(&self) -> Result<Served, Failure> {
        let groups: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.spec().group).collect();
        let (list, date): (GroupList, _) = self.read("/apis").await?;
        if let Some(date) = date {
            let problem = clock_offset::problem(self.env.now(), date);
            self.clocks.send_if_modified(|known| {
                let differ = *known != problem;
                *known = problem;
                differ
            });
        }
        let wanted = list.groups.into_iter().filter(|group| groups.contains(group.name.as_str()));
        let mut versions: Vec<String> =
            wanted.flat_map(|group| group.versions).map(|version| version.group_version).collect();
        versions.push("v1".to_owned());
        let mut served = Served::new();
        for version in versions {
            let (list, _): (ResourceList, _) = match self.read(&base(&version)).await {
                Err(failure) if failure.is_missing() => continue,
                list => list?,
            };
            let resources = list.resources.into_iter().filter(ListedResource::can_be_followed);
            // A name with a slash is a part of another resource.
            let whole = resources.filter(|resource| !resource.name.contains('/'));
            served.insert(version, whole.map(|resource| (resource.kind, resource.name)).collect());
        }
        Ok(served)
    }

    /// Whether the API server serves all that it will. One that has just started may not know all custom
    /// resources yet, and says so; one that does not say counts as one that does.
    async fn says_whole(&self) -> bool {
        match timeout(LOOK_LIMIT, self.reader.dated_body("/readyz")).await {
            Ok(Ok(_)) => true,
            Ok(Err(Failure::Refused { status, .. })) => matches!(status.code, 401..=404),
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// What is at `path`, and the time by the API server's clock.
    async fn read<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Option<Timestamp>), Failure> {
        let read = timeout(LOOK_LIMIT, self.reader.dated_body(path)).await;
        let (body, date) = read.map_err(|_| Failure::NoAnswer)??;
        let read = serde_json::from_slice(&body);
        Ok((read.map_err(|error| Failure::Malformed(format!("{path}: {error}")))?, date))
    }
}

/// A factor from 0.8 to 1.2.
fn spread(random: u64) -> f64 {
    0.8 + f64::from(u32::try_from(random % 401).unwrap_or_default()) / 1000.0
}
