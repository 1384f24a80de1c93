//! Keeps what the API server and gateways trust equal to the roots of the mesh.
//!
//! Owns the Secret with the roots, and the field `caBundle` of the webhook configurations of this mesh and of
//! the CRDs that are converted here. The Raft leader writes it, and only where it differs, so a root that
//! rotates, or an upgrade of the installation that empties the field, is followed within seconds. Everything
//! else in these objects belongs to the installation.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use smc_authority::pki::TrustBundle;
use smc_host::log_limit::LogLimit;
use smc_host::tasks::Tasks;
use smc_issuing::Issuer;
use smc_issuing::issuer::authority_changed;
use smc_raft::{Group, ProposeError, ReplicatedLedger};
use smc_server::gateway_keeper::REWRITE;
use smc_types::ids::{MeshName, MeshNamespace};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::API_LIMIT;
use crate::gateway_secret;
use crate::names::{CONVERSION_SERVICE, FIELD_MANAGER, INJECTOR};
use crate::secret_requests::SecretError;

/// How often the objects are read. An upgrade of the installation may reset them.
const PERIOD: Duration = Duration::from_secs(10);

/// The CRDs with several versions, which the API server has converted by the webhook `/convert`.
const CONVERTED: [&str; 1] = ["trafficsplits.split.smi-spec.io"];

/// The roots for gateways were not written.
#[derive(Debug, Error)]
enum RootsError {
    /// This replica may not have the current ones.
    #[error("the group does not confirm the roots")]
    Group(#[from] ProposeError),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The task that keeps the field.
pub(crate) struct CaBundle {
    pub(crate) client: Client,
    pub(crate) issuer: Arc<dyn Issuer>,
    pub(crate) group: Arc<Group>,
    pub(crate) mesh: MeshName,
    pub(crate) namespace: MeshNamespace,
}

/// The webhooks of a configuration, as `(name, caBundle)`.
type Trusted<'a> = Vec<(&'a str, Option<&'a [u8]>)>;

impl CaBundle {
    pub(crate) fn start(self, tasks: &mut Tasks) {
        tasks.spawn("webhooks' CA bundle", |stopping| self.run(stopping));
    }

    async fn run(self, stopping: CancellationToken) {
        let mut announcements = self.issuer.announcements();
        let (failures, unwritten) = (LogLimit::default(), LogLimit::default());
        let keeping = async {
            let mut written = None;
            loop {
                // Read before the step, so that a change of leader during the step is not missed.
                let status = self.group.status();
                if status.leader == Some(status.replica)
                    && let Err(error) = self.step().await
                    && let Some(count) = failures.note()
                {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, count, "cannot tell the API server which roots to trust; will retry");
                }
                if status.leads()
                    && let Err(error) = self.write_roots(&mut written).await
                    && let Some(count) = unwritten.note()
                {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, count, "cannot write the roots for gateways; will retry");
                }
                tokio::select! {
                    () = authority_changed(&mut announcements) => {}
                    () = self.group.leader_changed(status.leader) => {}
                    () = sleep(PERIOD) => {}
                }
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            () = keeping => {}
        }
    }

    /// Writes the Secret with the roots if it may not have them.
    async fn write_roots(&self, written: &mut Option<(TrustBundle, Instant)>) -> Result<(), RootsError> {
        let is_written =
            |(roots, at): &(TrustBundle, Instant)| *roots == self.issuer.bundle() && at.elapsed() < REWRITE;
        if !written.as_ref().is_some_and(is_written) {
            // A replica that does not know yet that another one leads may have former roots.
            self.group.barrier().await?;
            let bundle = self.issuer.bundle();
            gateway_secret::write_roots(&self.client, &self.namespace, &bundle).await?;
            *written = Some((bundle, Instant::now()));
        }
        Ok(())
    }

    /// Keeps all of them, whatever fails; returns the first failure. The definitions come first: a replica
    /// may not be ready until the API server can have objects converted.
    async fn step(&self) -> Result<(), kube::Error> {
        let bundle = self.issuer.bundle().pem.into_bytes();
        let mut kept = Ok(());
        for name in CONVERTED {
            kept = kept
                .and(self.keep(name, |crd| conversion_patch(crd, self.namespace.as_str(), &bundle)).await);
        }
        let webhooks = |config: &MutatingWebhookConfiguration| {
            let all = config.webhooks.iter().flatten();
            let all = all.map(|hook| (hook.name.as_str(), bytes(hook.client_config.ca_bundle.as_ref())));
            webhooks_patch(&all.collect(), &bundle)
        };
        kept = kept.and(self.keep(&format!("{INJECTOR}{}", self.mesh), webhooks).await);
        let webhooks = |config: &ValidatingWebhookConfiguration| {
            let all = config.webhooks.iter().flatten();
            let all = all.map(|hook| (hook.name.as_str(), bytes(hook.client_config.ca_bundle.as_ref())));
            webhooks_patch(&all.collect(), &bundle)
        };
        kept.and(self.keep(&format!("smc-validator-{}", self.mesh), webhooks).await)
    }

    /// Reads the object, and patches it if `patch` says so. An object that does not exist is not wanted here.
    async fn keep<K>(&self, name: &str, patch: impl Fn(&K) -> Option<Patch<Value>>) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Serialize,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let limited = async {
            let Some(object) = api.get_opt(name).await? else { return Ok(()) };
            let Some(patch) = patch(&object) else { return Ok(()) };
            let parameters =
                PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(name, &parameters, &patch).await?;
            info!(kind = %K::kind(&()), name, "the API server trusts the current roots");
            Ok(())
        };
        match timeout(API_LIMIT, limited).await {
            Ok(kept) => kept,
            Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
        }
    }
}

fn bytes(bundle: Option<&ByteString>) -> Option<&[u8]> {
    bundle.map(|bundle| bundle.0.as_slice())
}

/// The patch that makes every webhook trust `bundle`; `None` if all do. A strategic merge finds them by name.
fn webhooks_patch(webhooks: &Trusted<'_>, bundle: &[u8]) -> Option<Patch<Value>> {
    let encoded = data_encoding::BASE64.encode(bundle);
    let stale = webhooks.iter().filter(|(_, trusted)| *trusted != Some(bundle));
    let stale: Vec<_> =
        stale.map(|(name, _)| json!({ "name": name, "clientConfig": { "caBundle": encoded } })).collect();
    (!stale.is_empty()).then(|| Patch::Strategic(json!({ "webhooks": stale })))
}

/// The patch for a CRD whose conversion is this control plane's. In a cluster with two meshes it is one's
/// only.
fn conversion_patch(crd: &CustomResourceDefinition, namespace: &str, bundle: &[u8]) -> Option<Patch<Value>> {
    let config = crd.spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()?;
    let service = config.service.as_ref()?;
    if (service.namespace.as_str(), service.name.as_str()) != (namespace, CONVERSION_SERVICE)
        || bytes(config.ca_bundle.as_ref()) == Some(bundle)
    {
        return None;
    }
    let encoded = data_encoding::BASE64.encode(bundle);
    Some(Patch::Merge(json!({
        "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": encoded } } } },
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(patch: Option<Patch<Value>>) -> Option<Value> {
        patch.map(|patch| match patch {
            Patch::Strategic(value) | Patch::Merge(value) => value,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn only_webhooks_that_trust_something_else_are_patched() {
        let stale = vec![("a", Some(&b"old"[..])), ("b", Some(b"new")), ("c", None)];
        let patch = text(webhooks_patch(&stale, b"new")).unwrap();
        let names: Vec<_> = patch["webhooks"].as_array().unwrap().iter().map(|hook| &hook["name"]).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(patch["webhooks"][0]["clientConfig"]["caBundle"], "bmV3");
        assert_eq!(text(webhooks_patch(&vec![("b", Some(b"new"))], b"new")), None);
        assert_eq!(text(webhooks_patch(&Trusted::new(), b"new")), None);
    }

    #[test]
    fn the_conversion_of_another_mesh_is_left_alone() {
        let crd = |namespace: &str, bundle: &str| -> CustomResourceDefinition {
            serde_json::from_value(json!({"spec": {
                "group": "g", "names": {"kind": "K", "plural": "ks"}, "scope": "Namespaced", "versions": [],
                "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                    "clientConfig": {"caBundle": bundle,
                        "service": {"name": "smc-conversion", "namespace": namespace, "path": "/convert"}}}},
            }}))
            .unwrap()
        };
        assert_eq!(text(conversion_patch(&crd("other", ""), "smc-system", b"new")), None);
        assert_eq!(text(conversion_patch(&crd("smc-system", "bmV3"), "smc-system", b"new")), None);
        let patch = text(conversion_patch(&crd("smc-system", ""), "smc-system", b"new")).unwrap();
        assert_eq!(patch["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"], "bmV3");
    }
}
