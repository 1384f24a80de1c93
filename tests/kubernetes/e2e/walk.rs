//! A walk at random through what may happen to an installation: what a person does, and what is lost. After
//! each step everything is as meant again, or `smc check` names the command that mends it, which the walk
//! then types.
//!
//! Owns the steps. `SMC_SEED` names the walk, and `SMC_STEPS` its length; `make walk` takes many.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use smc_host::env::fixed::SeededEntropy;
use smc_test_kubernetes::{Cluster, ClusterOptions, ENVOY_IMAGE, SMC_IMAGE};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::mesh::{self, wait_ready};
use crate::program::{Program, Said};
use crate::shared::{self, number, programs};

const NAMESPACE: &str = "walk-system";
const SHOP: &str = "walk-shop";
const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: walk-shop}, spec: {containers: \
                   [{name: web, image: 'tools:test', command: [smc-lab, echo, --http, '8080']}]}}";

/// How long a step may take to its end by itself: a controller ends within 75 seconds, and starts within ten.
const BY_ITSELF: Duration = Duration::from_mins(3);

/// How long a finding has to stand until its command is typed. In the first seconds after a step much is in
/// passing.
const STANDS: Duration = Duration::from_secs(20);

const LOOK: Duration = Duration::from_secs(2);

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// `kubectl scale`, to this number.
    Scale(u64),
    /// The pod of one controller is deleted.
    LosePod(u64),
    /// The pods of all are.
    LosePods,
    /// The volume of one controller is lost, with its pod.
    LoseVolume(u64),
    /// The volumes of all controllers but this one are.
    LoseVolumesBut(u64),
    /// All volumes are.
    LoseVolumes,
    /// `smc uninstall`, and an installation of this number of controllers over what it keeps.
    Reinstall(u64),
    /// `smc upgrade`.
    Upgrade,
    /// The namespace of the control plane is deleted, and all that is in it.
    LoseNamespace,
    /// The key-encryption key takes the place of another, step by step.
    ChangeKey,
    /// The API server ends, and starts again.
    RestartApiServer,
}

/// The steps of a walk, as its seed draws them.
fn drawn(seed: u64, count: u64) -> Vec<Step> {
    let random = SeededEntropy::new(seed);
    let step = |_| match random.draw() % 11 {
        0 => Step::Scale(1 + 2 * (random.draw() % 2)),
        1 => Step::LosePod(random.draw()),
        2 => Step::LosePods,
        3 => Step::LoseVolume(random.draw()),
        4 => Step::LoseVolumesBut(random.draw()),
        5 => Step::LoseVolumes,
        6 => Step::Reinstall(1 + 2 * (random.draw() % 2)),
        7 => Step::Upgrade,
        8 => Step::LoseNamespace,
        9 => Step::ChangeKey,
        _ => Step::RestartApiServer,
    };
    (0..count).map(step).collect()
}

/// A walk.
struct Walk<'a> {
    smc: Program<'a>,
    /// How many controllers are asked for.
    replicas: u64,
    /// The Secret of the key: its name, and a copy of it.
    key: (String, Value),
    /// Keys that were made.
    keys: u64,
    directory: TempDir,
}

impl Walk<'_> {
    async fn kubectl(&self, args: &[&str]) -> String {
        let output = self.smc.cluster.kubectl(&[args, &["-n", NAMESPACE]].concat()).await.unwrap();
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
        let secret = self.kubectl(&["get", "secret", &self.key.0, "-o", "json"]).await;
        let mut secret: Value = serde_json::from_str(&secret).unwrap();
        secret["metadata"] = json!({ "name": self.key.0, "namespace": NAMESPACE });
        self.key.1 = secret;
    }

    async fn install(&mut self, replicas: u64) -> Said {
        let count = replicas.to_string();
        let flags = ["install", "--permissive", "--replicas", &count, "--image", SMC_IMAGE];
        let flags = [&flags[..], &["--kek-secret", &self.key.0]].concat();
        self.replicas = replicas;
        self.smc.run(&[&flags[..], &["--envoy-image", ENVOY_IMAGE]].concat()).await
    }

    async fn lose_volumes(&self, lost: impl Fn(u64) -> bool) {
        for ordinal in (0..self.replicas).filter(|ordinal| lost(*ordinal)) {
            let claim = format!("data-smc-controller-{ordinal}");
            self.kubectl(&["delete", "pvc", &claim, "--wait=false"]).await;
        }
        for ordinal in (0..self.replicas).filter(|ordinal| lost(*ordinal)) {
            let pod = format!("smc-controller-{ordinal}");
            self.kubectl(&["delete", "pod", &pod, "--force", "--grace-period=0", "--ignore-not-found"]).await;
        }
    }

    async fn take(&mut self, step: Step) {
        let of_one = |drawn: u64| drawn % self.replicas;
        match step {
            Step::Scale(replicas) => {
                let count = format!("--replicas={replicas}");
                self.kubectl(&["scale", "statefulset", "smc-controller", &count]).await;
                self.replicas = replicas;
            }
            Step::LosePod(drawn) => {
                let pod = format!("smc-controller-{}", of_one(drawn));
                self.kubectl(&["delete", "pod", &pod]).await;
            }
            Step::LosePods => {
                let all = ["delete", "pod", "-l", "app.kubernetes.io/component=controller"];
                self.kubectl(&[&all[..], &["--force", "--grace-period=0"]].concat()).await;
            }
            Step::LoseVolume(drawn) => {
                let lost = of_one(drawn);
                self.lose_volumes(|ordinal| ordinal == lost).await;
            }
            Step::LoseVolumesBut(drawn) => {
                let kept = of_one(drawn);
                self.lose_volumes(|ordinal| ordinal != kept).await;
            }
            Step::LoseVolumes => self.lose_volumes(|_| true).await,
            Step::Reinstall(replicas) => {
                self.smc.succeed(&["uninstall"]).await;
                let _ = self.install(replicas).await;
            }
            Step::Upgrade => drop(self.smc.succeed(&["upgrade", "--image", SMC_IMAGE]).await),
            Step::LoseNamespace => self.lose_namespace().await,
            Step::ChangeKey => self.change_key().await,
            Step::RestartApiServer => {
                let cluster = self.smc.cluster;
                cluster.signal("kube-apiserver", Signal::SIGKILL).await.unwrap();
                cluster.wait_ended("kube-apiserver").await.unwrap();
                cluster.start_again("kube-apiserver").await.unwrap();
            }
        }
    }

    /// What docs/operation.md says of a namespace that was lost.
    async fn lose_namespace(&mut self) {
        let cluster = self.smc.cluster;
        assert!(cluster.kubectl(&["delete", "namespace", NAMESPACE]).await.unwrap().success());
        let replicas = self.replicas;
        let said = self.install(replicas).await;
        assert_eq!(said.code, Some(0), "{said:#?}");
        self.kubectl(&["scale", "statefulset", "smc-controller", "--replicas=0"]).await;
        let pods =
            ["wait", "pod", "-l", "app.kubernetes.io/component=controller", "--for=delete", "--timeout=2m"];
        self.kubectl(&pods).await;
        let (name, secret) = &self.key;
        self.kubectl(&["delete", "secret", name]).await;
        cluster.apply(&secret.to_string()).await.unwrap();
        let count = replicas.to_string();
        let flags = ["cluster", "restore", &self.backup(), "--confirm", "--replicas", &count];
        self.smc.succeed(&flags).await;
    }

    async fn change_key(&mut self) {
        self.keys += 1;
        let (former, next) = (self.key.0.clone(), format!("walk-kek-{}", self.keys));
        let digits = format!("{:064x}", self.keys);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": { "kek": digits },
            "metadata": { "name": next, "namespace": NAMESPACE },
        });
        self.smc.cluster.apply(&secret.to_string()).await.unwrap();
        self.smc.succeed(&["upgrade", "--also-kek-secret", &next]).await;
        self.smc.succeed(&["upgrade", "--kek-secret", &next, "--also-kek-secret", &former]).await;
        self.smc.succeed(&["ca", "rekey"]).await;
        self.smc.succeed(&["upgrade", "--also-kek-secret", ""]).await;
        self.key.0 = next;
    }

    /// Waits until all is as meant, and types what `smc check` says meanwhile.
    async fn settle(&mut self) -> Result<Vec<String>, String> {
        let (mut since, mut finding, mut typed) = (Instant::now(), String::new(), BTreeSet::new());
        let mut started = Instant::now();
        let mut did = Vec::new();
        loop {
            let check = self.smc.run(&["check"]).await;
            let said = format!("{}{}", check.output, check.errors);
            let connected = said.contains("√ their sidecars are connected");
            if check.code == Some(0) && connected && said.contains("√ every controller votes") {
                return Ok(did);
            }
            let command = mending(&said);
            if command.as_deref() != Some(&finding) {
                finding = command.clone().unwrap_or_default();
                since = Instant::now();
            }
            if let Some(command) = command.filter(|_| since.elapsed() >= STANDS)
                && typed.insert(command.clone())
            {
                self.types(&command).await?;
                did.push(command);
                started = Instant::now();
            }
            if started.elapsed() >= BY_ITSELF {
                return Err(said);
            }
            sleep(LOOK).await;
        }
    }

    async fn types(&mut self, command: &str) -> Result<(), String> {
        let words: Vec<_> = command.split(' ').collect();
        let backup = self.backup();
        match words[..] {
            ["kubectl", ..] => {
                self.kubectl(&words[1..]).await;
                // As the finding says: fewer afterwards.
                self.replicas = words.last().and_then(|last| last.rsplit('=').next()?.parse().ok()).unwrap();
            }
            ["smc", "cluster", "recover"] => {
                done_or_needless(&self.smc.run(&["cluster", "recover", "--confirm"]).await)?;
            }
            ["smc", "cluster", "restore"] => {
                done_or_needless(&self.smc.run(&["cluster", "restore", &backup, "--confirm"]).await)?;
            }
            _ => return Err(format!("no such command: {command}")),
        }
        Ok(())
    }
}

/// On a busy machine controllers may come back in the moment in which the command is typed; it refuses then.
fn done_or_needless(said: &Said) -> Result<(), String> {
    let needless = ["has a leader", "the volumes of a majority"];
    let refused = needless.iter().any(|reason| said.errors.contains(reason));
    if said.code == Some(0) || refused { Ok(()) } else { Err(format!("{said:#?}")) }
}

/// The command that a check names.
fn mending(said: &str) -> Option<String> {
    if let Some(at) = said.find("kubectl scale statefulset") {
        let command: Vec<_> = said[at..].split_whitespace().take(7).collect();
        let command: Vec<_> =
            command.into_iter().filter(|word| *word != "-n" && *word != NAMESPACE).collect();
        return Some(command.join(" "));
    }
    let known = ["smc cluster recover", "smc cluster restore"];
    known.iter().find(|command| said.contains(**command)).map(|command| (*command).to_owned())
}

#[test]
fn a_command_is_found_in_a_check() {
    let said = "make them as many: kubectl scale statefulset smc-controller -n walk-system --replicas=3\n";
    assert_eq!(mending(said).unwrap(), "kubectl scale statefulset smc-controller --replicas=3");
    assert_eq!(mending("`smc cluster restore BACKUP` makes").unwrap(), "smc cluster restore");
    assert_eq!(mending("√"), None);
}

#[tokio::test]
async fn after_each_step_of_a_walk_all_is_well_or_the_check_says_what_to_type() {
    let Some(programs) = programs() else { return };
    let options = ClusterOptions::new(programs, shared::images());
    let cluster = Cluster::start(options).await.unwrap_or_else(|error| panic!("{}", error.chain()));
    let seed = number("SMC_SEED").unwrap_or(4);
    let steps = drawn(seed, number("SMC_STEPS").unwrap_or(4));
    eprintln!("SMC_SEED={seed}: {steps:?}");
    let smc = Program { cluster: &cluster, mesh: "walk", namespace: NAMESPACE };
    let key = ("smc-kek".to_owned(), Value::Null);
    let mut walk = Walk { smc, replicas: 0, key, keys: 0, directory: tempfile::tempdir().unwrap() };
    let said = walk.install(3).await;
    assert_eq!(said.code, Some(0), "{said:#?}\n{}", mesh::state(&cluster, NAMESPACE).await);
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: walk-shop}}").await.unwrap();
    smc.succeed(&["namespace", "add", SHOP]).await;
    cluster.apply(POD).await.unwrap();
    wait_ready(&cluster, SHOP, &["pod/web"]).await;
    for (number, step) in steps.iter().enumerate() {
        let begun = Instant::now();
        walk.keep().await;
        walk.take(*step).await;
        let settled = walk.settle().await;
        let took = begun.elapsed().as_secs();
        match settled {
            Ok(typed) => eprintln!("step {number} {step:?}: {took} s, typed {typed:?}"),
            Err(said) => panic!(
                "SMC_SEED={seed}, step {number} {step:?} of {steps:?}: {said}\n{}",
                mesh::state(&cluster, NAMESPACE).await
            ),
        }
    }
    cluster.stop().await.unwrap();
}
