//! How each step is taken: by a person who types what the documents say, or by an accident.
//!
//! Owns the commands and the accidents. What follows is `settle`'s.

use nix::sys::signal::Signal;
use serde_json::json;
use smc_test_kubernetes::{ENVOY_IMAGE, MESH_NAMESPACE, SMC_IMAGE, create_all};

use super::calls::{Calls, SHOP, sidecars};
use super::steps::Step;
use super::ways::Wait;
use super::{OTHER_ENVOY_IMAGE, OTHER_IMAGE, Walk};
use crate::mesh::SETTLE;

/// An image that no registry has.
const NO_IMAGE: &str = "nowhere.invalid/smc:none";

/// What keeps a memory of the API server beside what it reads, and has to be restarted when etcd is put back.
const REMEMBERING: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// How many versions pass after etcd was put back: more than before, since the copy.
const VERSIONS: usize = 400;

/// The one of the two that is not in use.
fn other(in_use: &str, [one, another]: [&str; 2]) -> String {
    if in_use == one { another.to_owned() } else { one.to_owned() }
}

/// Another odd number of controllers.
fn another(replicas: u64) -> u64 {
    if replicas == 1 { 3 } else { 1 }
}

impl Walk<'_> {
    pub(super) async fn take(&mut self, step: Step) {
        let replicas = self.chosen.replicas;
        let of_one = |drawn: u64| drawn % replicas;
        match step {
            Step::Scale => self.scale(another(replicas)).await,
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
            Step::Install(way) if way == self.chosen.way => self.take_over(way.next()).await,
            Step::Install(way) => self.take_over(way).await,
            Step::Reinstall(way, replicas) => {
                self.uninstall().await;
                self.chosen.way = way;
                self.chosen.replicas = replicas;
                self.install().await;
            }
            Step::Upgrade => {
                self.chosen.image = other(&self.chosen.image, [SMC_IMAGE, OTHER_IMAGE]);
                self.upgrade(Wait::Ready).await;
            }
            Step::RollBack => self.upgrade_in_vain().await,
            Step::ChangeFlag => {
                self.chosen.envoy = other(&self.chosen.envoy, [ENVOY_IMAGE, OTHER_ENVOY_IMAGE]);
                self.upgrade(Wait::Ready).await;
            }
            Step::LoseNamespace => self.lose_namespace().await,
            Step::LeaveAndJoin => self.leave_and_join().await,
            Step::ChangeKey => self.change_key().await,
            Step::PutEtcdBack => self.put_etcd_back().await,
            Step::RestartApiServer => self.restart("kube-apiserver").await,
        }
    }

    async fn scale(&mut self, replicas: u64) {
        let count = format!("--replicas={replicas}");
        self.kubectl(&["scale", "statefulset", "smc-controller", &count]).await;
        self.chosen.replicas = replicas;
    }

    async fn lose_volumes(&self, lost: impl Fn(u64) -> bool) {
        for ordinal in (0..self.chosen.replicas).filter(|ordinal| lost(*ordinal)) {
            let claim = format!("data-smc-controller-{ordinal}");
            self.kubectl(&["delete", "pvc", &claim, "--wait=false"]).await;
        }
        for ordinal in (0..self.chosen.replicas).filter(|ordinal| lost(*ordinal)) {
            let pod = format!("smc-controller-{ordinal}");
            self.kubectl(&["delete", "pod", &pod, "--force", "--grace-period=0", "--ignore-not-found"]).await;
        }
    }

    async fn upgrade_in_vain(&mut self) {
        let former = self.chosen.clone();
        NO_IMAGE.clone_into(&mut self.chosen.image);
        self.upgrade(Wait::No).await;
        let found = self.smc.cluster.wait("the image to be named", SETTLE * 2, || async {
            let check = self.smc.run(&["check"]).await;
            let named = check.code == Some(79) && check.output.contains(NO_IMAGE);
            if named { Ok(()) } else { Err(format!("{check:#?}")) }
        });
        found.await.unwrap_or_else(|error| panic!("{}", error.chain()));
        self.roll_back(former).await;
    }

    /// What docs/operation.md says of a namespace that was lost.
    async fn lose_namespace(&mut self) {
        let cluster = self.smc.cluster;
        assert!(cluster.kubectl(&["delete", "namespace", MESH_NAMESPACE]).await.unwrap().success());
        self.install().await;
        let replicas = self.chosen.replicas;
        self.scale(0).await;
        self.chosen.replicas = replicas;
        let pods =
            ["wait", "pod", "-l", "app.kubernetes.io/component=controller", "--for=delete", "--timeout=2m"];
        self.kubectl(&pods).await;
        self.kubectl(&["delete", "secret", &self.chosen.key, "--ignore-not-found"]).await;
        cluster.apply(&self.secret.to_string()).await.unwrap();
        let count = replicas.to_string();
        let flags = ["cluster", "restore", &self.backup(), "--confirm", "--replicas", &count];
        self.smc.succeed(&flags).await;
    }

    /// The steps of docs/install.md.
    async fn leave_and_join(&mut self) {
        let cluster = self.smc.cluster;
        let leaving = self.smc.run(&["namespace", "remove", SHOP]).await;
        assert_eq!(leaving.code, Some(79), "{leaving:#?}");
        self.calls = Calls::of_restarted(cluster).await;
        self.smc.succeed(&["namespace", "remove", SHOP, "--wait", "2m"]).await;
        assert_eq!(sidecars(cluster).await, 0);
        self.smc.succeed(&["namespace", "add", SHOP]).await;
        self.calls = Calls::of_restarted(cluster).await;
        assert_eq!(sidecars(cluster).await, 2);
    }

    /// The steps of docs/operation.md.
    async fn change_key(&mut self) {
        self.keys += 1;
        let next = format!("walk-kek-{}", self.keys);
        let digits = format!("{:064x}", self.keys);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": { "kek": digits },
            "metadata": { "name": next, "namespace": MESH_NAMESPACE },
        });
        self.smc.cluster.apply(&secret.to_string()).await.unwrap();
        self.chosen.other_key.clone_from(&next);
        self.upgrade(Wait::Ready).await;
        self.chosen.other_key = std::mem::replace(&mut self.chosen.key, next);
        self.upgrade(Wait::Ready).await;
        self.smc.succeed(&["ca", "rekey"]).await;
        self.chosen.other_key.clear();
        self.upgrade(Wait::Ready).await;
    }

    /// A copy is made, the controllers are scaled, and then the copy is all that there is. As with
    /// etcdutl's `--bump-revision` and `--mark-compacted`, versions become higher than before, and the API
    /// server knows none of before, so that every reader lists again. A kubelet that is restarted instead
    /// takes pods with probes for unready for some seconds (KEP-4781), and no sidecar calls a pod that is
    /// not ready.
    async fn put_etcd_back(&mut self) {
        let cluster = self.smc.cluster;
        let former = self.chosen.replicas;
        let copy = cluster.copy_etcd().await.unwrap();
        self.scale(another(former)).await;
        self.rolled_out().await;
        cluster.put_back(&copy).await.unwrap();
        self.chosen.replicas = former;
        self.copies += 1;
        let copies = self.copies;
        let version = |number| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("version-{copies}-{number}"), "namespace": "default"}})
        };
        create_all(&cluster.client().await.unwrap(), (0..VERSIONS).map(version).collect()).await.unwrap();
        self.restart("kube-apiserver").await;
        for component in REMEMBERING {
            self.restart(component).await;
        }
    }

    async fn restart(&self, component: &str) {
        let cluster = self.smc.cluster;
        // Without an API server a component may have ended by itself.
        let _ = cluster.signal(component, Signal::SIGKILL).await;
        cluster.wait_ended(component).await.unwrap();
        cluster.start_again(component).await.unwrap();
    }
}
