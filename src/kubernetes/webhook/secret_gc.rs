//! The Secrets of sidecars whose pods are gone, or never came.
//!
//! Owns the task of the Raft leader that deletes them. The ledger says which Secrets there may be: it has
//! every certificate, and SMC reads no Secrets. The certificates of pods that are gone are released by the
//! server (`registry/orphan_releaser.rs` there), those of pods that never came here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::Client;
use smc_authority::ledger::{Ledger, ProxyCertificateState};
use smc_authority::rules::TIME_TO_APPEAR;
use smc_host::env::Env;
use smc_host::tasks::Tasks;
use smc_issuing::ProxyCertificates;
use smc_raft::Group;
use smc_types::ids::ProxyName;
use smc_types::time::Timestamp;
use smc_xds::served_state::ServedState;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::bootstrap_secret;
use crate::api::MetadataOnly;
use crate::secret_requests::SecretError;
use crate::source::sidecar_pods::with_pods;

/// The pause between two looks. A Secret without a pod costs nothing meanwhile.
const PERIOD: Duration = Duration::from_secs(30);

/// The pause between two notes of what the ledger has, while Secrets are being deleted. With a request that
/// hangs for half a minute it is still less than [`smc_authority::rules::UNCLAIMED_KEPT`].
const NOTE_PERIOD: Duration = Duration::from_secs(15);

/// Certificates that were released longer ago were dealt with by this leader or the one before.
const REMEMBERED: Duration = Duration::from_hours(24);

/// The pause until it is looked again for a pod that is there and that the mesh does not know, as in a
/// namespace that has left it. Each time costs a list of all pods with a sidecar.
const LOOK_AGAIN: Duration = Duration::from_mins(10);

/// Proxies that the ledger has forgotten and whose Secrets a leader remembers to delete: as many as pods
/// of a replica may be on their way. They are more than a few only where the API is away or slow for longer
/// than the ledger waits for pods. The Secrets of others stay until Kubernetes deletes them after what made
/// the pods.
const MAX_FORGOTTEN: usize = 20_000;

/// Requests to the API at a time. There is no hurry.
const CONCURRENT: usize = 8;

/// The task.
pub(crate) struct Collector {
    pub(crate) client: Client,
    pub(crate) certificates: ProxyCertificates,
    pub(crate) served: watch::Receiver<Option<Arc<ServedState>>>,
    pub(crate) group: Arc<Group>,
    pub(crate) env: Env,
}

/// What this leader knows of a proxy. Another leader begins with nothing, which repeats requests and nothing
/// else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// Its pod may still come.
    Awaited,
    /// Its pod was there.
    Came,
    /// Its Secret goes if its pod is not there. That may have to wait for the API, for longer than the
    /// ledger has a certificate that was never used.
    Suspect {
        /// Whether the pod was never seen.
        never_came: bool,
    },
    /// Its pod is there, and unknown to the mesh: the next look is at this time.
    Again(Timestamp),
    /// Its Secret is deleted.
    Deleted,
}

/// A Secret to delete.
#[derive(Debug, PartialEq, Eq)]
struct Deletion {
    proxy: ProxyName,
    /// Whether the pod never came, so that the certificate is released as well, if there is a Secret.
    never_came: bool,
}

impl Deletion {
    /// Deletes the Secret. Returns whether the certificate is to be released then: that of a pod which never
    /// came, since a reader of Secrets may have copied it. Without a Secret, a person made the bootstrap
    /// (`smc proxy bootstrap`): its pod has the time that the releaser of orphans gives.
    async fn delete_secret(&self, client: &Client) -> Result<bool, SecretError> {
        let deleted = bootstrap_secret::delete(client, &self.proxy).await?;
        Ok(deleted && self.never_came)
    }
}

#[derive(Debug, Default)]
struct Memory(BTreeMap<ProxyName, Known>);

impl Memory {
    /// Notes what the ledger has, `issued`, with the time of the latest certificate of each proxy. What it
    /// had at an earlier note, and has not any more, is as gone as what the mesh does not know any more: a
    /// certificate that was never used leaves no record.
    fn note(
        &mut self,
        issued: &BTreeMap<ProxyName, Timestamp>,
        in_mesh: impl Fn(&ProxyName) -> bool,
        now: Timestamp,
    ) {
        let mut forgotten = 0;
        self.0.retain(|proxy, known| {
            if issued.contains_key(proxy) {
                return true;
            }
            match known {
                Known::Deleted => return false,
                Known::Again(at) if now < *at => {}
                Known::Suspect { .. } => {}
                Known::Awaited | Known::Came | Known::Again(_) if in_mesh(proxy) => *known = Known::Came,
                Known::Awaited | Known::Came | Known::Again(_) => {
                    *known = Known::Suspect { never_came: false }
                }
            }
            forgotten += 1;
            forgotten <= MAX_FORGOTTEN
        });
        for (proxy, at) in issued {
            let has_come = in_mesh(proxy);
            let known = match self.0.get(proxy) {
                _ if has_come => Known::Came,
                None | Some(Known::Awaited) if now.since(*at) < TIME_TO_APPEAR => Known::Awaited,
                None | Some(Known::Awaited) => Known::Suspect { never_came: true },
                Some(Known::Came) => Known::Suspect { never_came: false },
                Some(Known::Again(at)) if now >= *at => Known::Suspect { never_came: false },
                Some(Known::Again(_) | Known::Suspect { .. } | Known::Deleted) => continue,
            };
            self.0.insert(proxy.clone(), known);
        }
    }

    /// The proxies whose pods have to be looked for.
    fn suspects(&self) -> BTreeSet<ProxyName> {
        let suspects = self.0.iter().filter(|(_, known)| matches!(known, Known::Suspect { .. }));
        suspects.map(|(proxy, _)| proxy.clone()).collect()
    }

    /// What follows for suspects from the pods that exist.
    fn judge(
        &mut self,
        suspects: BTreeSet<ProxyName>,
        pods: &BTreeSet<ProxyName>,
        now: Timestamp,
    ) -> Vec<Deletion> {
        let mut deletions = Vec::new();
        for proxy in suspects {
            if pods.contains(&proxy) {
                self.0.insert(proxy, Known::Again(now.plus(LOOK_AGAIN)));
            } else {
                let never_came = self.0.get(&proxy) == Some(&Known::Suspect { never_came: true });
                deletions.push(Deletion { proxy, never_came });
            }
        }
        deletions
    }
}

/// The proxies of pods that may have a Secret, and when the latest certificate of each was issued.
fn issued(ledger: &Ledger, now: Timestamp) -> BTreeMap<ProxyName, Timestamp> {
    let mut issued = BTreeMap::new();
    for (_, record) in ledger.proxy_certificates() {
        let forgotten =
            matches!(record.state, ProxyCertificateState::Released { at } if now.since(at) >= REMEMBERED);
        if record.proxy.service.is_none() && !forgotten {
            let latest = issued.entry(record.proxy.clone()).or_insert(record.issued_at);
            *latest = (*latest).max(record.issued_at);
        }
    }
    issued
}

impl Collector {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("bootstrap Secrets", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let collecting = async {
            let mut memory = Memory::default();
            loop {
                if self.group.status().leads() {
                    self.sweep(&mut memory).await;
                } else {
                    memory = Memory::default();
                }
                sleep(PERIOD).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = collecting => {}
        }
    }

    /// Notes what the ledger has, once the mesh is known.
    fn note(&self, memory: &mut Memory) {
        let now = self.env.now();
        let Some(served) = self.served.borrow().clone() else { return };
        let issued = self.certificates.ledger().read(|ledger| issued(ledger, now));
        memory.note(&issued, |proxy| served.proxies.contains_key(proxy), now);
    }

    async fn sweep(&self, memory: &mut Memory) {
        self.note(memory);
        let suspects = memory.suspects();
        if suspects.is_empty() {
            return;
        }
        let api = Arc::new(MetadataOnly(self.client.clone()));
        let pods = match with_pods(api, &suspects).await {
            Ok(pods) => pods,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                warn!(
                    error,
                    "cannot list the pods with a sidecar; Secrets of those that are gone stay meanwhile"
                );
                return;
            }
        };
        let deleting =
            stream::iter(memory.judge(suspects, &pods, self.env.now())).map(|deletion| async move {
                let deleted = self.delete(&deletion).await;
                (deletion.proxy, deleted)
            });
        let mut done = deleting.buffer_unordered(CONCURRENT).boxed();
        let (mut failed, mut latest) = (0_usize, None);
        let mut noted = Instant::now();
        while let Some((proxy, result)) = done.next().await {
            if noted.elapsed() >= NOTE_PERIOD {
                noted = Instant::now();
                self.note(memory);
            }
            match result {
                Ok(()) => drop(memory.0.insert(proxy, Known::Deleted)),
                Err(error) => (failed, latest) = (failed + 1, Some(error)),
            }
        }
        if let Some(error) = latest {
            let error = &error as &dyn std::error::Error;
            warn!(error, failed, "cannot delete the Secrets of pods that are gone; will retry");
        }
    }

    /// Deletes the Secret of a Pod, and releases the certificate where that follows.
    async fn delete(&self, deletion: &Deletion) -> Result<(), SecretError> {
        let Deletion { proxy, .. } = deletion;
        if !deletion.delete_secret(&self.client).await? {
            return Ok(());
        }
        info!(%proxy, "deleted the Secret of a pod that never came");
        if let Err(error) = self.certificates.release(proxy).await {
            // The releaser of orphans gets to it.
            let error = &error as &dyn std::error::Error;
            warn!(%proxy, error, "cannot release the certificate of a pod that never came");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn proxy(number: u32) -> ProxyName {
        let uuid = format!("00000000-0000-4000-8000-{number:012}").parse().unwrap();
        ProxyName::new(uuid, "shop").unwrap()
    }

    /// The deletions of one look, as numbers, with whether the pod never came.
    fn look(
        memory: &mut Memory,
        issued: &[(u32, i64)],
        in_mesh: &[u32],
        pods: &[u32],
        now: i64,
    ) -> Vec<(u32, bool)> {
        let issued = issued.iter().map(|(number, at)| (proxy(*number), Timestamp(*at))).collect();
        let in_mesh: BTreeSet<_> = in_mesh.iter().copied().map(proxy).collect();
        memory.note(&issued, |proxy| in_mesh.contains(proxy), Timestamp(now));
        let suspects = memory.suspects();
        let pods = pods.iter().copied().map(proxy).collect();
        let deletions = memory.judge(suspects, &pods, Timestamp(now));
        let number = |proxy: &ProxyName| (0..10).find(|number| self::proxy(*number) == *proxy).unwrap();
        for deletion in &deletions {
            memory.0.insert(deletion.proxy.clone(), Known::Deleted);
        }
        deletions.iter().map(|deletion| (number(&deletion.proxy), deletion.never_came)).collect()
    }

    #[test]
    fn a_secret_is_deleted_after_its_pod_and_when_its_pod_does_not_come() {
        let mut memory = Memory::default();
        let issued = [(1, 0), (2, 0), (3, 100)];
        assert_eq!(look(&mut memory, &issued, &[1], &[1], 200), [], "they have their time to come");
        assert_eq!(look(&mut memory, &issued, &[1], &[1], 300), [(2, true)]);
        assert_eq!(look(&mut memory, &issued, &[1, 3], &[1, 3], 330), [], "once each");
        assert_eq!(
            look(&mut memory, &issued, &[3], &[3], 360),
            [(1, false)],
            "its certificate has its grace"
        );
        assert_eq!(look(&mut memory, &issued, &[3], &[3], 390), []);
    }

    #[test]
    fn a_pod_that_the_mesh_does_not_know_keeps_its_secret() {
        let mut memory = Memory::default();
        let again = i64::try_from(LOOK_AGAIN.as_secs()).unwrap();
        assert_eq!(look(&mut memory, &[(1, 0)], &[1], &[1], 10), []);
        assert_eq!(look(&mut memory, &[(1, 0)], &[], &[1], 20), [], "its namespace has left the mesh");
        assert_eq!(
            look(&mut memory, &[(1, 0)], &[], &[], 19 + again),
            [],
            "it is not looked for all the time"
        );
        assert_eq!(look(&mut memory, &[(1, 0)], &[], &[], 20 + again), [(1, false)]);
    }

    #[test]
    fn a_secret_is_deleted_also_after_its_certificate_was_forgotten() {
        let mut memory = Memory::default();
        let (issued, none) = (BTreeMap::from([(proxy(1), Timestamp(0))]), BTreeMap::new());
        let suspects = |memory: &mut Memory, issued| {
            memory.note(issued, |_| false, Timestamp(300));
            memory.suspects()
        };
        assert_eq!(suspects(&mut memory, &issued), [proxy(1)].into());
        // The API is away, and the releaser of orphans has let the certificate go meanwhile.
        for _ in 0..2 {
            assert_eq!(suspects(&mut memory, &none), [proxy(1)].into());
        }
        let deletions = memory.judge([proxy(1)].into(), &BTreeSet::new(), Timestamp(900));
        assert_eq!(deletions, [Deletion { proxy: proxy(1), never_came: true }]);
        memory.0.insert(proxy(1), Known::Deleted);
        assert_eq!(suspects(&mut memory, &none), BTreeSet::new());
        assert!(memory.0.is_empty());

        let many = (0..).map(proxy).take(MAX_FORGOTTEN + 10).map(|proxy| (proxy, Timestamp(0))).collect();
        assert_eq!(suspects(&mut memory, &many).len(), MAX_FORGOTTEN + 10);
        assert_eq!(suspects(&mut memory, &none).len(), MAX_FORGOTTEN);
    }

    /// A client of an API server that answers every request with this status.
    fn answering(code: u16) -> Client {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "", "reason": "", "code": code});
        let answer = move |_: Request<Body>| {
            ready(Response::builder().status(code).body(Body::from(body.to_string().into_bytes())))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn only_a_certificate_whose_secret_was_there_is_released_early() {
        for (sentence, never_came, code, releases) in [
            ("the Secret of a pod that never came", true, 200, Some(true)),
            ("the Secret of a pod that is gone", false, 200, Some(false)),
            ("a person made the bootstrap, and the pod has no label", true, 404, Some(false)),
            ("the API server does not say", true, 500, None),
        ] {
            let deletion = Deletion { proxy: proxy(1), never_came };
            let released = deletion.delete_secret(&answering(code)).await;
            assert_eq!(released.ok(), releases, "{sentence}");
        }
    }

    #[test]
    fn a_secret_is_deleted_also_where_its_pod_and_record_go_between_two_looks() {
        let mut memory = Memory::default();
        let issued = [(1, 0), (2, 0), (3, 0)];
        assert_eq!(look(&mut memory, &issued, &[1], &[1, 3], 10), []);
        // The second pod came and went, the third one has not come yet; all three records are gone.
        assert_eq!(look(&mut memory, &[], &[], &[3], 40), [(1, false), (2, false)]);
        assert_eq!(look(&mut memory, &[], &[], &[], 70), [], "it is not looked for all the time");
        let again = 40 + i64::try_from(LOOK_AGAIN.as_secs()).unwrap();
        assert_eq!(look(&mut memory, &[], &[], &[], again), [(3, false)]);
        assert_eq!(look(&mut memory, &[], &[], &[], again + 30), []);
        assert!(memory.0.is_empty());
        // A record that gives way to another says nothing about the pod.
        assert_eq!(look(&mut memory, &[(1, 0)], &[1], &[1], 0), []);
        assert_eq!(look(&mut memory, &[], &[1], &[1], 30), []);
        assert_eq!(look(&mut memory, &[], &[], &[], 60), [(1, false)]);
    }

    #[test]
    fn a_new_leader_knows_no_pod_and_looks_for_each_that_is_not_in_the_mesh() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[(1, 0), (2, 0), (3, 0)], &[1], &[1, 2], 1_000), [(3, true)]);
        assert_eq!(look(&mut memory, &[(1, 0)], &[1], &[1, 2], 1_030), []);
        assert_eq!(memory.0.len(), 2, "and forgets what has no certificate and no Secret");
    }
}
