//! The three ways of installation, as docs/install.md has them: smc, helm, and plain manifests.
//!
//! Owns what a person types for each.

use std::path::Path;

use smc_test_kubernetes::{ENVOY_IMAGE, MESH_NAMESPACE, SMC_IMAGE};

use super::Walk;
use super::steps::Way;

/// The MeshConfig that a person adds where helm has installed SMC.
const PERMISSIVE: &str = "
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: { name: osm-mesh-config, namespace: smc-system }
spec: { traffic: { enablePermissiveTrafficPolicyMode: true, enableEgress: true } }
";

/// Where helm keeps the definitions.
const DEFINITIONS: &str = "smc-crds";

/// What was chosen about the installation.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) way: Way,
    /// How many controllers are asked for.
    pub(super) replicas: u64,
    pub(super) image: String,
    pub(super) envoy: String,
    /// The Secret of the key, and another one while one takes the place of the other.
    pub(super) key: String,
    pub(super) other_key: String,
}

/// Whether a command waits for the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Ready,
    No,
}

impl Chosen {
    pub(super) fn new(way: Way) -> Self {
        Self {
            way,
            replicas: 3,
            image: SMC_IMAGE.to_owned(),
            envoy: ENVOY_IMAGE.to_owned(),
            key: "smc-kek".to_owned(),
            other_key: String::new(),
        }
    }

    fn values(&self) -> Vec<String> {
        let (repository, tag) = self.image.rsplit_once(':').unwrap();
        vec![
            format!("--set=image.repository={repository},image.tag={tag},envoy.image={}", self.envoy),
            format!("--set=kek.secretName={},kek.alsoSecretName={}", self.key, self.other_key),
        ]
    }
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn chart(name: &str) -> String {
    // Cargo starts tests in the directory of their package.
    std::path::absolute(Path::new("../../charts").join(name)).unwrap().display().to_string()
}

impl Walk<'_> {
    async fn helm(&self, args: &[&str]) {
        let output = self.smc.cluster.helm(args).await.unwrap();
        assert!(output.success(), "helm {}: {}{}", args.join(" "), output.stdout, output.stderr);
    }

    /// Installs what is chosen, over what a former installation has kept, and waits for nothing.
    pub(super) async fn install(&self) {
        let Chosen { way, replicas, image, envoy, key, .. } = &self.chosen;
        let count = replicas.to_string();
        let flags = ["--permissive", "--replicas", &count, "--image", image, "--envoy-image", envoy];
        let flags = [&flags[..], &["--kek-secret", key]].concat();
        match way {
            Way::Smc => drop(self.smc.succeed(&[&["install", "--wait", "0s"], &flags[..]].concat()).await),
            Way::Helm => {
                let listed = self.smc.cluster.helm(&["list", "--short"]).await.unwrap();
                if !listed.stdout.contains(DEFINITIONS) {
                    self.helm(&["install", DEFINITIONS, &chart(DEFINITIONS), "--take-ownership"]).await;
                }
                let install = ["install", "smc", &chart("smc"), "--namespace", MESH_NAMESPACE];
                let (count, values) = (format!("--set=replicas={replicas}"), self.chosen.values());
                let flags = ["--create-namespace", "--take-ownership", &count];
                self.helm(&[&install[..], &flags, &words(&values)].concat()).await;
                self.smc.cluster.apply(PERMISSIVE).await.unwrap();
            }
            Way::Manifests => {
                let manifests = self.smc.succeed(&[&["install", "--dry-run"], &flags[..]].concat()).await;
                // The API server may not serve the kinds yet, whose definitions are among them.
                if self.smc.cluster.apply(&manifests).await.is_err() {
                    let defined = ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
                    self.kubectl(&defined).await;
                    self.smc.cluster.apply(&manifests).await.unwrap();
                }
            }
        }
    }

    /// Another way takes over what there is.
    pub(super) async fn take_over(&mut self, way: Way) {
        let former = std::mem::replace(&mut self.chosen.way, way);
        match (former, way) {
            (Way::Helm, Way::Smc | Way::Manifests) => {
                self.helm(&["uninstall", "smc", "--namespace", MESH_NAMESPACE]).await;
                self.helm(&["uninstall", DEFINITIONS]).await;
                self.install().await;
            }
            (_, Way::Smc) => self.upgrade(Wait::Ready).await,
            (_, Way::Helm | Way::Manifests) => self.install().await,
        }
    }

    /// Upgrades to what is chosen.
    pub(super) async fn upgrade(&self, wait: Wait) {
        let Chosen { way, image, envoy, key, other_key, .. } = &self.chosen;
        let flags = ["--image", image, "--envoy-image", envoy, "--kek-secret", key];
        let flags = [&flags[..], &["--also-kek-secret", other_key]].concat();
        match way {
            Way::Smc => {
                let wait = if wait == Wait::Ready { "5m" } else { "0s" };
                self.smc.succeed(&[&["upgrade", "--wait", wait], &flags[..]].concat()).await;
            }
            Way::Helm => {
                let upgrade = ["upgrade", "smc", &chart("smc"), "--namespace", MESH_NAMESPACE];
                let values = self.chosen.values();
                self.helm(&[&upgrade[..], &["--reuse-values"], &words(&values)].concat()).await;
            }
            Way::Manifests => {
                let manifests = self.smc.succeed(&[&["upgrade", "--dry-run"], &flags[..]].concat()).await;
                self.smc.cluster.apply(&manifests).await.unwrap();
            }
        }
        if wait == Wait::Ready {
            self.rolled_out().await;
        }
    }

    pub(super) async fn rolled_out(&self) {
        self.kubectl(&["rollout", "status", "statefulset/smc-controller", "--timeout=4m"]).await;
    }

    /// Goes back to what there was before the last upgrade.
    pub(super) async fn roll_back(&mut self, former: Chosen) {
        self.chosen = former;
        match self.chosen.way {
            Way::Smc => self.upgrade(Wait::Ready).await,
            Way::Helm => {
                self.helm(&["rollback", "smc", "--namespace", MESH_NAMESPACE]).await;
                // It takes back what `kubectl scale` did since.
                let count = ["get", "statefulset", "smc-controller", "-o", "jsonpath={.spec.replicas}"];
                self.chosen.replicas = self.kubectl(&count).await.parse().unwrap();
            }
            Way::Manifests => {
                self.kubectl(&["rollout", "undo", "statefulset/smc-controller"]).await;
            }
        }
    }

    pub(super) async fn uninstall(&self) {
        match self.chosen.way {
            Way::Smc | Way::Manifests => drop(self.smc.succeed(&["uninstall"]).await),
            Way::Helm => self.helm(&["uninstall", "smc", "--namespace", MESH_NAMESPACE]).await,
        }
    }
}
