//! Owns requests between pods: one at a time, and a stream of them that goes on while a test breaks
//! something.

use std::cell::RefCell;
use std::path::PathBuf;

use serde_json::Value;
use smc_test_kubernetes::Cluster;

use crate::mesh::{self, SETTLE};
use crate::stage::{complete_lines, log, received};

/// A server and its caller in a namespace of their own: two Deployments, whose pods a person restarts. The
/// log of the caller has a line for each call.
pub(crate) fn application(namespace: &str) -> String {
    include_str!("traffic.yaml").replace("NAMESPACE", namespace)
}

/// The outcome of one request.
#[derive(Clone, Debug)]
pub(crate) struct Fetched(pub(crate) Value);

impl Fetched {
    pub(crate) fn status(&self) -> Option<u64> {
        self.0["status"].as_u64()
    }

    /// The identity of the caller, as the server's sidecar stated it.
    pub(crate) fn caller(&self) -> &str {
        self.0["body"]["headers"]["x-forwarded-client-cert"].as_str().unwrap_or_default()
    }

    /// Whether the sidecars let the request not pass, so that no server answered.
    pub(crate) fn is_denied(&self) -> bool {
        let failure = self.0["failure"].as_str().unwrap_or_default();
        matches!(failure, "refused" | "closed") || self.status() == Some(404)
    }

    /// The pod that answered.
    pub(crate) fn pod(&self) -> &str {
        self.0["body"]["pod"].as_str().unwrap_or_default()
    }
}

/// Runs `smc-lab` in a container of a pod (`NAMESPACE/NAME`, and the flags that name a container). Returns
/// its results.
pub(crate) async fn lab(
    cluster: &Cluster,
    pod: &str,
    container: &[&str],
    args: &[&str],
) -> Result<Vec<Fetched>, String> {
    let (namespace, name) = pod.split_once('/').unwrap();
    let exec = [&["exec", "-n", namespace, name], container, &["--", "smc-lab"], args].concat();
    let output = cluster.kubectl(&exec).await.map_err(|error| error.chain())?;
    let results: Vec<Value> =
        serde_json::from_str(&output.stdout).map_err(|error| format!("{error}: {output:?}"))?;
    Ok(results.into_iter().map(Fetched).collect())
}

/// Sends a request from a pod, in the container `client`.
pub(crate) async fn fetch(cluster: &Cluster, pod: &str, url: &str) -> Result<Fetched, String> {
    let fetched = lab(cluster, pod, &["-c", "client"], &["fetch", "--url", url]).await?;
    fetched.into_iter().next().ok_or_else(|| "no result".to_owned())
}

/// Waits until a pod gets this status from a URL, and returns the outcome of that request; `None` is a
/// denial.
pub(crate) async fn expect(cluster: &Cluster, from: &str, url: &str, status: Option<u64>) -> Fetched {
    let last = RefCell::new(None);
    let waited = cluster
        .wait(&format!("{status:?} from {url} for {from}"), SETTLE, || async {
            let fetched = fetch(cluster, from, url).await?;
            let is_expected = if status.is_some() { fetched.status() == status } else { fetched.is_denied() };
            let said = format!("{fetched:?}");
            *last.borrow_mut() = Some(fetched);
            if is_expected { Ok(()) } else { Err(said) }
        })
        .await;
    if let Err(error) = waited {
        let (namespace, _) = from.split_once('/').unwrap();
        panic!("{}\n{}", error.chain(), mesh::state(cluster, namespace).await);
    }
    last.into_inner().unwrap()
}

/// Requests that a pod sends for as long as it lives, read from its log.
pub(crate) struct Steady {
    log: PathBuf,
    /// The log of the sidecar, which has a line for each request that failed.
    sidecar: PathBuf,
    /// Lines that were judged already.
    judged: usize,
}

impl Steady {
    /// Follows the container `client` of a pod that runs `smc-lab fetch --lines`.
    pub(crate) async fn of(cluster: &Cluster, pod: &str) -> Self {
        let (log, sidecar) = (log(cluster, pod, "client").await, log(cluster, pod, "envoy").await);
        Self { log, sidecar, judged: 0 }
    }

    fn lines(&self) -> Vec<String> {
        complete_lines(&self.log).iter().map(|line| received(line).1.to_owned()).collect()
    }

    /// Forgets what happened so far.
    pub(crate) fn start(&mut self) {
        self.judged = self.lines().len();
    }

    /// How many requests there were since the last judgement.
    pub(crate) fn count(&self) -> usize {
        self.lines().len().saturating_sub(self.judged)
    }

    /// How many requests there were since the last judgement, and those of them that were not answered with
    /// 200.
    pub(crate) fn take(&mut self) -> (usize, Vec<String>) {
        let lines = self.lines();
        let new = lines.get(self.judged..).unwrap_or_default();
        self.judged = lines.len();
        let failed = new.iter().filter(|line| !line.contains("\"status\":200")).cloned();
        (new.len(), failed.collect())
    }

    /// Asserts that there were at least `least` requests since the last judgement, and that each was
    /// answered with 200.
    pub(crate) fn assert_no_failure(&mut self, least: usize, during: &str) {
        let (count, failed) = self.take();
        assert!(count >= least, "{during}: only {count} requests");
        let logged = || {
            let lines = complete_lines(&self.sidecar);
            let said = lines.iter().map(|line| received(line).1).filter(|text| text.starts_with('{'));
            said.map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(
            failed.is_empty(),
            "{during}: {} of {count} failed: {failed:#?}\nits sidecar logged: {:#?}",
            failed.len(),
            logged()
        );
    }
}
