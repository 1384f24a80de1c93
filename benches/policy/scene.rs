//! Owns the mesh: a chain of four pods, each of which may ask the next one, and the last one fails.

use std::fmt::Write as _;
use std::time::Duration;

use smc_benches::Result;
use smc_lab::tools::LoadResult;
use smc_lab::{Lab, LabOptions};
use tokio::time::{Instant, sleep};

/// The namespace.
const MESH: &str = include_str!("mesh.yaml");

/// The pods of the chain, which are accounts and services, too.
pub(crate) const CHAIN: [&str; 4] = ["caller", "first", "second", "last"];

/// The file with the MeshConfig.
const CONFIG: &str = "config.yaml";

/// How long an object may take to be in effect.
const PATIENCE: Duration = Duration::from_secs(30);

/// The running mesh.
pub(crate) struct Scene {
    lab: Lab,
}

impl Scene {
    pub(crate) async fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut text = MESH.to_owned();
        for name in CHAIN {
            writeln!(
                text,
                "---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: bench}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: bench, labels: {{app: {name}}}}}
spec:
  serviceAccountName: {name}
  containers: [{{name: echo, command: [smc-lab, echo, --http, '8080']}}]
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: bench}}
spec: {{selector: {{app: {name}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}"
            )?;
        }
        std::fs::write(directory.path().join("mesh.yaml"), text)?;
        std::fs::write(directory.path().join(CONFIG), config(true, "", ""))?;
        let lab = Lab::start(LabOptions::new(directory.path())).await?;
        let scene = Self { lab };
        scene
            .until(async || Ok(scene.load("/ok", 1, Duration::from_millis(100)).await?.failures == 0))
            .await?;
        Ok(scene)
    }

    pub(crate) async fn stop(self) -> Result<()> {
        Ok(self.lab.stop().await?)
    }

    /// Declares an object, in a file of this name, and waits until it is in effect.
    pub(crate) async fn apply(
        &self,
        file: &str,
        yaml: &str,
        in_effect: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.lab.apply(file, yaml).await?;
        self.until(in_effect).await
    }

    /// The same of an object that goes.
    pub(crate) async fn remove(
        &self,
        file: &str,
        in_effect: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        self.lab.remove(file).await?;
        self.until(in_effect).await
    }

    /// Switches the permissive mode.
    pub(crate) async fn set_permissive(&self, permissive: bool) -> Result<()> {
        Ok(self.lab.apply(CONFIG, &config(permissive, "", "")).await?)
    }

    /// Makes every sidecar ask its own application whether a request may pass, or nothing.
    pub(crate) async fn ask(&self, asked: bool, in_effect: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let server = "inboundExternalAuthorization: {enable: true, address: 127.0.0.1, port: 8080}";
        self.apply(CONFIG, &config(true, if asked { server } else { "" }, ""), in_effect).await
    }

    /// Makes every sidecar report each request to its own application, or none.
    pub(crate) async fn trace(&self, on: bool, in_effect: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let collector = "enable: true, address: 127.0.0.1, port: 8080";
        self.apply(CONFIG, &config(true, "", if on { collector } else { "" }), in_effect).await
    }

    /// Declares an object that nothing waits for.
    pub(crate) async fn declare(&self, file: &str, yaml: &str) -> Result<()> {
        Ok(self.lab.apply(file, yaml).await?)
    }

    async fn until(&self, mut in_effect: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !in_effect().await? {
            if Instant::now() > deadline {
                return Err("the mesh is not as it is declared, in time".into());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// What the sidecar of a pod says of itself.
    pub(crate) async fn sidecar(&self, name: &str, path: &str) -> Result<String> {
        Ok(self.lab.envoy_admin(&format!("bench/{name}"), path).await?.body)
    }

    /// The caller asks the last of the chain.
    pub(crate) async fn load(&self, path: &str, connections: u16, duration: Duration) -> Result<LoadResult> {
        self.load_at(&format!("http://last.bench{path}"), connections, duration).await
    }

    /// The caller asks.
    pub(crate) async fn load_at(
        &self,
        url: &str,
        connections: u16,
        duration: Duration,
    ) -> Result<LoadResult> {
        let (connections, duration) = (connections.to_string(), format!("{}ms", duration.as_millis()));
        // A server that is asked whether a request may pass says yes to this one.
        let allowed = "x-ext-authz: allow";
        let args = ["--url", url, "-H", allowed, "--timeout", "30s"];
        let args = [&args[..], &["--connections", &connections, "--duration", &duration]].concat();
        Ok(self.lab.load("bench/caller", &args).await?)
    }

    /// How often a pod's application is asked for one request of another that fails.
    pub(crate) async fn tries(&self, source: &str, destination: &str) -> Result<u64> {
        let (pod, to) = (format!("bench/{source}"), format!("http://{destination}.bench"));
        let before = self.answered(&pod, &format!("{to}/")).await?;
        Ok(self.answered(&pod, &format!("{to}/status/503")).await? - before)
    }

    /// How many requests the application has answered that a pod asks, this one included.
    pub(crate) async fn answered(&self, pod: &str, url: &str) -> Result<u64> {
        let results = self.lab.fetch(pod, &["--url", url]).await?;
        let number = results.first().and_then(|result| result.body["request"].as_u64());
        number.ok_or_else(|| format!("no number: {results:?}").into())
    }
}

/// The MeshConfig, with another field of `traffic`, and fields of the collector of traces.
fn config(permissive: bool, field: &str, collector: &str) -> String {
    format!(
        "apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {{name: osm-mesh-config, namespace: smc-system}}
spec:
  traffic: {{enablePermissiveTrafficPolicyMode: {permissive}, {field}}}
  observability: {{tracing: {{{collector}}}}}
"
    )
}

/// An UpstreamTrafficSetting of the last of the chain, with these lines of its `spec`.
pub(crate) fn setting(lines: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1
kind: UpstreamTrafficSetting
metadata: {{name: last, namespace: bench}}
spec:
  host: last.bench.svc.cluster.local
  {lines}
"
    )
}

/// A Retry of the calls of one pod of the chain to another, as often as OSM's guide has it.
pub(crate) fn retry(source: &str, destination: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1
kind: Retry
metadata: {{name: {source}, namespace: bench}}
spec:
  source: {{kind: ServiceAccount, name: {source}, namespace: bench}}
  destinations: [{{kind: Service, name: {destination}, namespace: bench}}]
  retryPolicy: {{retryOn: 5xx, numRetries: 5}}
"
    )
}
