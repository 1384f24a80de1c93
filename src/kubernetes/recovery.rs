//! A new group of controllers in a cluster, in place of one that cannot work any more.
//!
//! Owns the order of the steps, for a person's program: the controllers are stopped, a pod works on one
//! volume after another as `smc cluster restore` and `smc cluster recover` do on a machine, the volumes of
//! the former group go, and the controllers start again and join the one with the new group. Nothing is
//! deleted before all that can be known is known; until then a failure starts the controllers again. Each
//! step may be repeated, so a run that was interrupted is simply run again.

mod error;
mod older_disks;
mod work_pod;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{AttachParams, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use smc_raft::{DiskSummary, Remains, remains};
use smc_types::ids::MeshNamespace;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use crate::install::apply::{is_not_found, replicas};
use crate::install::controllers::SELECTOR;
use crate::install::settings::other_key_secret;
use crate::stateful_set::MAX_REPLICAS;
pub use error::RecoveryError;
pub use older_disks::accept_older_disks;
use work_pod::{
    CONTAINER, DATA_DIR, KEY_FILE, OTHER_KEY_FILE, Volume, claim, claim_name, hindrance, work_pod,
};

/// The StatefulSet of the controllers.
const SET: &str = "smc-controller";

/// The annotation with the number of replicas that the installation was given.
const REPLICAS: &str = "mesh.smc.dev/replicas";

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);

/// How long controllers may take to end: their grace period is 75 seconds.
const STOPPING: Duration = Duration::from_mins(3);

/// How long a volume may take to go, once no pod has it.
const DELETING: Duration = Duration::from_mins(2);

/// How long a pod may take to its end: its volume is attached, its image may be pulled, and a ledger of the
/// largest size is written.
const WORKING: Duration = Duration::from_mins(10);

/// How long a pod may wait for something that mostly stays as it is: a node for its volume, or its image. A
/// new node of a cluster that grows by itself takes as long.
const HINDERED: Duration = Duration::from_mins(2);

/// How long a pod may take to start until it is said what it waits for.
const STARTING: Duration = Duration::from_secs(5);

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// The controllers of one namespace, to be given a new group.
pub struct Recovery {
    client: Client,
    namespace: MeshNamespace,
    set: Value,
    /// How many controllers there are to be at the end.
    pub replicas: u64,
    progress: fn(&str),
}

impl Recovery {
    /// Looks at the controllers. `replicas` is how many there are to be at the end; by default as many as are
    /// asked for, or as the installation was given where they are stopped. `progress` is given each step.
    pub async fn new(
        client: Client,
        namespace: MeshNamespace,
        replicas: Option<u64>,
        progress: fn(&str),
    ) -> Result<Self, RecoveryError> {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace.as_str());
        let action = format!("read the StatefulSet {namespace}/{SET}");
        let found = bounded(action, sets.get_opt(SET)).await?;
        let set = found.and_then(|set| serde_json::to_value(set).ok());
        let set = set.ok_or_else(|| RecoveryError::NotInstalled(namespace.clone()))?;
        claim(&set, 0).ok_or(RecoveryError::NoVolumes)?;
        let replicas = replicas.unwrap_or_else(|| asked_for(&set));
        Ok(Self { client, namespace, set, replicas, progress })
    }

    /// Puts `backup` in the place of all volumes. What the controllers hold is gone afterwards.
    pub async fn restore(&self, backup: &[u8], address: &str) -> Result<(), RecoveryError> {
        let tried = async {
            self.stop().await?;
            // With the same image and keys, onto a directory that goes with its pod.
            self.restore_onto(Volume::Scratch, backup, address).await
        };
        self.or_start(tried.await).await?;
        (self.progress)("tried     the backup can be restored");
        for ordinal in self.claims().await? {
            self.delete_claim(ordinal).await?;
        }
        let claim = claim(&self.set, 0).ok_or(RecoveryError::NoVolumes)?;
        let (claims, action) = (self.api::<PersistentVolumeClaim>(), "create the claim of controller 0");
        bounded(action.to_owned(), claims.create(&PostParams::default(), &object(claim)?)).await?;
        (self.progress)("created   an empty volume of controller 0");
        let said = self.restore_onto(Volume::Of(0), backup, address).await?;
        (self.progress)(&format!("restored  {}", indented(&said)));
        self.start(1).await
    }

    async fn restore_onto(
        &self,
        volume: Volume,
        backup: &[u8],
        address: &str,
    ) -> Result<String, RecoveryError> {
        let (length, kek) = (format!("--length={}", backup.len()), format!("--kek-file={KEY_FILE}"));
        let (data, address) = (format!("--data-dir={DATA_DIR}"), format!("--raft-address={address}"));
        let other = other_key_secret(&self.set).map(|_| format!("--also-kek-file={OTHER_KEY_FILE}"));
        let arguments = ["cluster", "restore", "/dev/stdin", &length, &kek, &data, &address];
        let arguments: Vec<_> = arguments.into_iter().chain(other.as_deref()).collect();
        self.work(volume, &arguments, Some(backup)).await
    }

    /// Makes a new group of the volume that has the most, and deletes the others. Leaves all as it is if a
    /// majority of the group is left, but for volumes of groups in whose place a person made that one.
    pub async fn recover(&self) -> Result<(), RecoveryError> {
        let looked = async {
            self.stop().await?;
            self.look().await
        };
        let planned = looked.await.and_then(|disks| plan(&disks));
        let Plan { recovered, surplus, least } = self.or_start(planned).await?;
        if let Some(ordinal) = recovered {
            let arguments = ["cluster", "recover", "--confirm", &format!("--data-dir={DATA_DIR}")];
            let said = self.work(Volume::Of(ordinal), &arguments, None).await?;
            (self.progress)(&format!("recovered {}", indented(&said)));
        }
        for ordinal in surplus {
            self.delete_claim(ordinal).await?;
        }
        self.start(least).await
    }

    /// What each volume holds; none for one that never held a ledger.
    async fn look(&self) -> Result<BTreeMap<u64, Option<DiskSummary>>, RecoveryError> {
        let mut disks = BTreeMap::new();
        for ordinal in self.claims().await? {
            let arguments = ["cluster", "recover", "--output=json", &format!("--data-dir={DATA_DIR}")];
            let said = self.work(Volume::Of(ordinal), &arguments, None).await?;
            let unreadable = || RecoveryError::Unreadable { ordinal, said: said.clone() };
            let disk = parsed(&said).map_err(|_| unreadable())?;
            match &disk {
                Some(disk) if disk.replica != ordinal => return Err(unreadable()),
                Some(DiskSummary { group, term, last, member, .. }) => (self.progress)(&format!(
                    "found     volume {ordinal}: group {group}, term {term}, entry {last}{}",
                    if *member { "" } else { ", of a controller that has left it" }
                )),
                None => (self.progress)(&format!("found     volume {ordinal}: no ledger")),
            }
            disks.insert(ordinal, disk);
        }
        Ok(disks)
    }

    /// Starts the controllers again where nothing was changed yet, as many as there were, or as a group
    /// that is left has.
    async fn or_start<T>(&self, done: Result<T, RecoveryError>) -> Result<T, RecoveryError> {
        let least = match &done {
            Ok(_) => return done,
            Err(RecoveryError::Majority { least, .. }) => *least,
            Err(_) => 0,
        };
        if self.start(least).await.is_err() {
            (self.progress)("stopped   the controllers could not be started again");
        }
        done
    }

    /// Scales to 0, and waits until no controller runs.
    async fn stop(&self) -> Result<(), RecoveryError> {
        self.scale(0).await?;
        let pods = self.api::<Pod>();
        until("the controllers did not end", STOPPING, async || {
            let action = format!("list the controllers in {}", self.namespace);
            let controllers = ListParams::default().labels(SELECTOR);
            Ok(bounded(action, pods.list_metadata(&controllers)).await?.items.is_empty())
        })
        .await
    }

    /// Starts as many controllers as are asked for, and `least` of them: those that have the group.
    async fn start(&self, least: u64) -> Result<(), RecoveryError> {
        self.scale(self.replicas.max(least)).await
    }

    async fn scale(&self, replicas: u64) -> Result<(), RecoveryError> {
        let sets = self.api::<StatefulSet>();
        let action = format!("scale the StatefulSet {}/{SET} to {replicas}", self.namespace);
        let change = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        bounded(action, sets.patch_scale(SET, &PatchParams::default(), &change)).await?;
        (self.progress)(&format!("scaled    the controllers to {replicas}"));
        Ok(())
    }

    /// The ordinals of the controllers that have a claim.
    async fn claims(&self) -> Result<Vec<u64>, RecoveryError> {
        let action = format!("list the volumes in {}", self.namespace);
        let listed = self.api::<PersistentVolumeClaim>();
        let listed = bounded(action, listed.list_metadata(&ListParams::default())).await?;
        let names: BTreeSet<_> = listed.items.into_iter().filter_map(|claim| claim.metadata.name).collect();
        Ok((0..MAX_REPLICAS).filter(|ordinal| names.contains(&claim_name(*ordinal))).collect())
    }

    async fn delete_claim(&self, ordinal: u64) -> Result<(), RecoveryError> {
        let name = claim_name(ordinal);
        delete(&self.api::<PersistentVolumeClaim>(), &name, "the volume").await?;
        (self.progress)(&format!("deleted   {name}"));
        Ok(())
    }

    /// Runs the program on the volume of a controller, and returns what it printed.
    async fn work(
        &self,
        volume: Volume,
        arguments: &[&str],
        input: Option<&[u8]>,
    ) -> Result<String, RecoveryError> {
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let pod = work_pod(&self.set, volume, &arguments, input.is_some());
        let pods = self.api::<Pod>();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        // One of a run that was interrupted.
        delete(&pods, &name, "the pod").await?;
        bounded(format!("create the pod {name}"), pods.create(&PostParams::default(), &object(pod)?)).await?;
        let worked = self.outcome(&pods, &name, input).await;
        delete(&pods, &name, "the pod").await?;
        worked
    }

    async fn outcome(
        &self,
        pods: &Api<Pod>,
        name: &str,
        input: Option<&[u8]>,
    ) -> Result<String, RecoveryError> {
        if let Some(input) = input {
            self.until_phase(pods, name, &["Running", "Succeeded", "Failed"]).await?;
            feed(pods, name, input).await?;
        }
        let phase = self.until_phase(pods, name, &["Succeeded", "Failed"]).await?;
        let of = LogParams { container: Some(CONTAINER.to_owned()), ..LogParams::default() };
        let said = bounded(format!("read the log of {name}"), pods.logs(name, &of)).await?;
        if phase == "Succeeded" { Ok(said) } else { Err(RecoveryError::Pod { pod: name.to_owned(), said }) }
    }

    /// Waits until the pod is in one of these phases, says what it waits for, and ends where that stays so.
    async fn until_phase(
        &self,
        pods: &Api<Pod>,
        name: &str,
        phases: &[&str],
    ) -> Result<String, RecoveryError> {
        let (mut found, mut hindered, started) = (String::new(), None, Instant::now());
        until(&format!("the pod {name} in {} did not run", self.namespace), WORKING, async || {
            let pod = bounded(format!("read the pod {name}"), pods.get(name)).await?;
            found = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            let Some(said) = hindrance(&serde_json::to_value(&pod).unwrap_or_default()) else {
                hindered = None;
                return Ok(phases.contains(&found.as_str()));
            };
            if started.elapsed() < STARTING {
                return Ok(false);
            }
            let (before, since) = hindered.take().unwrap_or_else(|| (String::new(), Instant::now()));
            if said != before {
                (self.progress)(&format!("waiting   {name}: {said}"));
            }
            if since.elapsed() >= HINDERED {
                return Err(RecoveryError::Pod { pod: name.to_owned(), said });
            }
            hindered = Some((said, since));
            Ok(false)
        })
        .await?;
        Ok(found)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), self.namespace.as_str())
    }
}

/// Writes to the standard input of a pod's container.
async fn feed(pods: &Api<Pod>, name: &str, input: &[u8]) -> Result<(), RecoveryError> {
    let how = AttachParams { stdin: true, stdout: false, stderr: false, ..AttachParams::default() };
    let how = how.container(CONTAINER);
    let mut attached = bounded(format!("attach to the pod {name}"), pods.attach(name, &how)).await?;
    let broken = |source| RecoveryError::Api {
        action: format!("send the backup to the pod {name}"),
        source: Box::new(kube::Error::ReadEvents(source)),
    };
    if let Some(mut stdin) = attached.stdin() {
        let sent = timeout(WORKING, async {
            stdin.write_all(input).await?;
            stdin.shutdown().await
        });
        let late =
            |_| RecoveryError::Late { what: format!("{name} did not take the backup"), limit: WORKING };
        sent.await.map_err(late)?.map_err(broken)?;
    }
    // Until the container has ended, or the connection has.
    let _ = timeout(WORKING, attached.join()).await;
    Ok(())
}

/// Deletes what may be missing, and waits until it is gone.
async fn delete<K>(api: &Api<K>, name: &str, what: &str) -> Result<(), RecoveryError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match bounded(format!("delete {what} {name}"), api.delete(name, &DeleteParams::default())).await {
        Ok(_) => {}
        Err(RecoveryError::Api { source, .. }) if is_not_found(&source) => return Ok(()),
        Err(error) => return Err(error),
    }
    until(&format!("{what} {name} did not go"), DELETING, async || {
        Ok(bounded(format!("read {what} {name}"), api.get_metadata_opt(name)).await?.is_none())
    })
    .await
}

/// Looks until it is so.
async fn until(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<bool, RecoveryError>,
) -> Result<(), RecoveryError> {
    let started = Instant::now();
    loop {
        match look().await {
            Ok(true) => return Ok(()),
            // The API server may be away for a moment.
            Ok(false) | Err(RecoveryError::Api { .. } | RecoveryError::Late { .. })
                if started.elapsed() < limit => {}
            Ok(false) => return Err(RecoveryError::Late { what: what.to_owned(), limit }),
            Err(error) => return Err(error),
        }
        sleep(LOOK).await;
    }
}

async fn bounded<T>(
    action: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, RecoveryError> {
    match timeout(REQUEST, request).await {
        Ok(answered) => answered.map_err(|source| RecoveryError::Api { action, source: Box::new(source) }),
        Err(_) => Err(RecoveryError::Late { what: format!("could not {action}"), limit: REQUEST }),
    }
}

fn object<K: DeserializeOwned>(value: Value) -> Result<K, RecoveryError> {
    let failed = |source| RecoveryError::Api {
        action: "make an object of the StatefulSet's template".to_owned(),
        source: Box::new(kube::Error::SerdeError(source)),
    };
    serde_json::from_value(value).map_err(failed)
}

/// What a pod printed, without lines of a log before it: the description of a disk, or `null`.
fn parsed(said: &str) -> serde_json::Result<Option<DiskSummary>> {
    let lines = said.lines().skip_while(|line| !line.starts_with('{') && *line != "null");
    serde_json::from_str(&lines.collect::<Vec<_>>().join("\n"))
}

/// What is done with the volumes, once all are known.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// The one that a new group is made of; none where a run before this one has made it.
    recovered: Option<u64>,
    /// Those that are deleted then.
    surplus: Vec<u64>,
    /// How many controllers there have to be, so that those with the group run.
    least: u64,
}

/// Decides what is done, by what each volume holds.
fn plan(disks: &BTreeMap<u64, Option<DiskSummary>>) -> Result<Plan, RecoveryError> {
    let summaries: Vec<_> = disks.values().flatten().cloned().collect();
    let but = |keeps: &dyn Fn(u64, &Option<DiskSummary>) -> bool| -> Vec<u64> {
        disks.iter().filter(|(ordinal, disk)| !keeps(**ordinal, disk)).map(|(ordinal, _)| *ordinal).collect()
    };
    match remains(&summaries).ok_or(RecoveryError::NothingLeft)? {
        Remains::Several(groups) => Err(RecoveryError::Several(groups.join(" and "))),
        Remains::Majority(best) => {
            let least = best.voters.last().map_or(0, |last| last + 1);
            let of_it = |disk: &DiskSummary| disk.group == best.group;
            // A run before this one made the group, and did not come to the end.
            if best.group_made_at.is_some() && !summaries.iter().all(of_it) {
                let surplus = but(&|_, disk| disk.as_ref().is_some_and(of_it));
                return Ok(Plan { recovered: None, surplus, least });
            }
            let volumes = summaries.iter().filter(|disk| of_it(disk)).map(|disk| disk.replica.to_string());
            let volumes = volumes.collect::<Vec<_>>().join(", ");
            Err(RecoveryError::Majority { group: best.group, volumes, least })
        }
        Remains::Best(DiskSummary { replica, .. }) => {
            let surplus = but(&|ordinal, _| ordinal == replica);
            Ok(Plan { recovered: Some(replica), surplus, least: replica + 1 })
        }
    }
}

/// The lines under each other after a word of progress.
fn indented(said: &str) -> String {
    said.trim_end().replace('\n', "\n          ")
}

/// How many controllers are asked for; where they are stopped, how many the installation was given.
fn asked_for(set: &Value) -> u64 {
    let present = replicas(set);
    let given = set["metadata"]["annotations"][REPLICAS].as_str().and_then(|given| given.parse().ok());
    if present > 0 { present } else { given.unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The volume of a voter, of the group `group`, which a person made if `made`.
    fn volume(replica: u64, group: &str, made: bool, voters: &[u64]) -> (u64, Option<DiskSummary>) {
        let disk = DiskSummary {
            member: true,
            group_made_at: made.then_some(1),
            term: 1,
            last: 9,
            group: group.to_owned(),
            replica,
            voters: voters.iter().copied().collect(),
        };
        (replica, Some(disk))
    }

    #[test]
    fn the_volumes_that_go_are_those_that_are_not_of_the_new_group() {
        let (three, five) = (&[0, 1, 2][..], &[0, 1, 2, 3, 4][..]);
        for (sentence, disks, recovered, surplus, least) in [
            ("one of three is left", vec![volume(2, "a", false, three), (0, None)], Some(2), vec![0], 3),
            (
                "two of five, of a group that a person had made: the other one is of the former group now",
                vec![volume(0, "b", true, five), volume(1, "b", true, five)],
                Some(1),
                vec![0],
                2,
            ),
            (
                "a run before this one was interrupted",
                vec![volume(0, "a", false, three), volume(1, "b", true, &[1]), (2, None)],
                None,
                vec![0, 2],
                2,
            ),
        ] {
            let expected = Plan { recovered, surplus, least };
            assert_eq!(plan(&disks.into_iter().collect()).unwrap(), expected, "{sentence}");
        }
        let left = [volume(0, "a", false, three), volume(2, "a", false, three)];
        let refused = plan(&left.into_iter().collect());
        assert!(matches!(refused, Err(RecoveryError::Majority { least: 3, .. })), "{refused:?}");
        let founded_twice = [volume(0, "a", false, three), volume(4, "c", false, five)];
        let refused = plan(&founded_twice.into_iter().collect());
        assert!(matches!(refused, Err(RecoveryError::Several(_))), "{refused:?}");
        assert!(matches!(plan(&BTreeMap::from([(0, None)])), Err(RecoveryError::NothingLeft)));
    }

    #[test]
    fn as_many_controllers_start_as_there_were() {
        for (sentence, present, given, expected) in [
            ("they run", Some(3), "1", 3),
            ("they are stopped, perhaps by a run of this before", Some(0), "5", 5),
            ("the annotation is not readable", Some(0), "many", 1),
            ("the API fills in one", None, "", 1),
        ] {
            let set = json!({ "metadata": { "annotations": { REPLICAS: given } }, "spec": { "replicas": present } });
            assert_eq!(asked_for(&set), expected, "{sentence}");
        }
    }

    #[test]
    fn a_description_is_found_after_lines_of_a_log() {
        let json =
            r#"{"member":true,"group_made_at":null,"term":1,"last":2,"group":"a","replica":0,"voters":[0]}"#;
        assert_eq!(parsed(&format!("INFO: reading\n{json}\n")).unwrap().unwrap().last, 2);
        assert_eq!(parsed("INFO: reading\nnull\n").unwrap(), None);
        assert!(parsed("nothing").is_err() && parsed("{").is_err());
    }
}
