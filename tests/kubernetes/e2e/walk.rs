//! A walk at random through what may happen to an installation under traffic: what a person does, and what is
//! lost. After each step everything is as meant again, or `smc check` names the command that mends it, which
//! the walk then types. No call of the application fails meanwhile, unless the step concerns the application.
//!
//! Owns the walk. `SMC_SEED` names it, and `SMC_STEPS` its length; `make walk` takes many.

mod calls;
mod settle;
mod steps;
mod take;
mod ways;

use serde_json::{Value, json};
use smc_test_kubernetes::{Cluster, ClusterOptions, ENVOY_IMAGE, MESH_NAMESPACE, SMC_IMAGE};
use smc_testkit::setting::setting;
use tempfile::TempDir;
use tokio::time::Instant;

use self::calls::{Calls, SHOP, sidecars};
use self::steps::{Way, drawn};
use self::ways::Chosen;
use crate::mesh;
use crate::program::Program;
use crate::shared::{self, programs};

/// Other names of the two images, for upgrades.
const OTHER_IMAGE: &str = "smc:next";
const OTHER_ENVOY_IMAGE: &str = "envoy:next";

/// The walk of `make test`: as many steps as it has minutes for.
const SEED: u64 = 658;
const STEPS: u64 = 4;

/// A walk.
struct Walk<'a> {
    smc: Program<'a>,
    chosen: Chosen,
    /// A copy of the Secret of the key.
    secret: Value,
    /// Keys that were made.
    keys: u64,
    /// Copies of etcd that were put back.
    copies: u64,
    calls: Calls,
    directory: TempDir,
}

impl<'a> Walk<'a> {
    /// Starts the application, installs SMC, and takes the application into the mesh.
    async fn begin(cluster: &'a Cluster, way: Way) -> Self {
        for (image, other) in [(SMC_IMAGE, OTHER_IMAGE), (ENVOY_IMAGE, OTHER_ENVOY_IMAGE)] {
            cluster.tag(image, other).await.unwrap();
        }
        let mut walk = Self {
            smc: Program { cluster, mesh: "smc", namespace: MESH_NAMESPACE },
            chosen: Chosen::new(way),
            secret: Value::Null,
            keys: 0,
            copies: 0,
            calls: Calls::begin(cluster).await,
            directory: tempfile::tempdir().unwrap(),
        };
        walk.install().await;
        walk.smc.succeed(&["check", "--wait", "3m"]).await;
        walk.smc.succeed(&["namespace", "add", SHOP]).await;
        walk.calls = Calls::of_restarted(cluster).await;
        assert_eq!(sidecars(cluster).await, 2);
        walk
    }

    async fn kubectl(&self, args: &[&str]) -> String {
        let output = self.smc.cluster.kubectl(&[args, &["-n", MESH_NAMESPACE]].concat()).await.unwrap();
        assert!(output.success(), "{args:?}: {}", output.stderr);
        output.stdout
    }

    fn backup(&self) -> String {
        self.directory.path().join("backup").display().to_string()
    }

    /// What a careful person keeps: a backup, and a copy of the key.
    async fn keep(&mut self) {
        let _ = std::fs::remove_file(self.backup());
        self.smc.succeed(&["cluster", "backup", &self.backup()]).await;
        let name = &self.chosen.key;
        let secret = self.kubectl(&["get", "secret", name, "-o", "json"]).await;
        self.secret = serde_json::from_str(&secret).unwrap();
        self.secret["metadata"] = json!({ "name": name, "namespace": MESH_NAMESPACE });
    }
}

#[tokio::test]
async fn after_each_step_of_a_walk_all_is_well_or_the_check_says_what_to_type() {
    let Some(programs) = programs() else { return };
    let (seed, count) = (setting("SMC_SEED").unwrap_or(SEED), setting("SMC_STEPS").unwrap_or(STEPS));
    let (way, steps) = drawn(seed, count);
    eprintln!("SMC_SEED={seed}, installed by {way:?}: {steps:?}");
    let options = ClusterOptions::new(programs, shared::images());
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let mut walk = Walk::begin(&cluster, way).await;
    let begun = Instant::now();
    for (number, step) in steps.iter().enumerate() {
        let begun = Instant::now();
        eprintln!("SMC_SEED={seed}, step {number} {step:?} of {:?}", walk.chosen);
        walk.keep().await;
        walk.take(*step).await;
        let taken = begun.elapsed().as_secs();
        let judged = match walk.settle().await {
            Ok(typed) => walk.calls.judge(&cluster, *step, begun).await.map(|calls| (typed, calls)),
            Err(said) => Err(said),
        };
        let took = begun.elapsed().as_secs();
        match judged {
            Ok((typed, calls)) => eprintln!("  {took} s, taken after {taken} s, typed {typed:?}, {calls}"),
            Err(said) => panic!(
                "SMC_SEED={seed}, step {number} {step:?} of {steps:?}: {said}\n{}",
                mesh::state(&cluster, MESH_NAMESPACE).await
            ),
        }
    }
    eprintln!("SMC_SEED={seed}: {count} steps in {} s", begun.elapsed().as_secs());
    cluster.stop().await.unwrap();
}
