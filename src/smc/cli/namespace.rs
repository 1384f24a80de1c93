//! `smc namespace`: which namespaces are in the mesh.

mod list;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Subcommand;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use smc_decode::core::PERMISSIVE_ANNOTATION;
use smc_kubernetes::install::apply::Cluster;
use smc_kubernetes::install::check::facts::{MONITORED_BY, is_permissive, lets_out};
use smc_kubernetes::install::check::members::{pods_with_sidecar, restart, some_of};
use smc_kubernetes::names::INJECTOR;
use smc_types::ids::{InvalidName, MeshName, MeshNamespace, check_label};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use super::duration;
use super::kube_access::KubeArgs;
use super::outcome::{Outcome, Verdict};
use super::output;

/// The annotation that lets pods of a namespace be injected; OSM's command sets it as well.
const INJECTION: &str = "openservicemesh.io/sidecar-injection";

/// Namespaces that every cluster has for itself. `default` is for pods of anyone.
const OF_KUBERNETES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The pause between two looks at the pods of a namespace that leaves.
const LOOK: Duration = Duration::from_secs(2);

/// Subcommands of `smc namespace`.
#[derive(Debug, Subcommand)]
pub(super) enum NamespaceCommand {
    /// Take namespaces into the mesh; their pods get sidecars when they start the next time.
    Add {
        /// The namespaces
        #[arg(value_name = "NAMESPACE", required = true, value_parser = named)]
        namespaces: Vec<String>,
        /// The name of the mesh
        #[arg(long, value_name = "NAME", default_value_t, value_parser = MeshName::new)]
        mesh_name: MeshName,
        /// Their pods get no sidecars, unless a pod asks for one
        #[arg(long)]
        disable_sidecar_injection: bool,
        /// Let every pod of the mesh call theirs, whatever TrafficTargets say; `=false` ends that
        ///
        /// Without this flag it stays as it is.
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        permissive: Option<bool>,
        #[command(flatten)]
        kube: KubeArgs,
    },
    /// Take namespaces out of the mesh: new pods get no sidecar, and when none has one the namespace is out.
    ///
    /// While pods have sidecars, the namespace stays in the mesh, so that these are kept up to date. Restart
    /// the pods, those that are called before those that call them, and run this again.
    Remove {
        /// The namespaces
        #[arg(value_name = "NAMESPACE", required = true, value_parser = named)]
        namespaces: Vec<String>,
        /// The name of the mesh
        #[arg(long, value_name = "NAME", default_value_t, value_parser = MeshName::new)]
        mesh_name: MeshName,
        /// How long to wait until no pod has a sidecar
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
        wait: Duration,
        /// Take them out at once; the sidecars that they have go on with what they know, which gets old
        #[arg(long, conflicts_with = "wait")]
        now: bool,
        #[command(flatten)]
        kube: KubeArgs,
    },
    /// List the namespaces of a mesh, or of all meshes, with their sidecars and what is left to do.
    List {
        /// The name of the mesh [default: all meshes]
        #[arg(long, value_name = "NAME", value_parser = MeshName::new)]
        mesh_name: Option<MeshName>,
        #[command(flatten)]
        kube: KubeArgs,
    },
}

fn named(text: &str) -> Result<String, InvalidName> {
    check_label("namespace", text).map(|()| text.to_owned())
}

/// A namespace cannot be changed.
#[derive(Debug, Error)]
enum NamespaceError {
    #[error("cannot {action} the namespace {namespace}")]
    Api {
        action: &'static str,
        namespace: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot list the pods of the namespace {namespace}")]
    Pods {
        namespace: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot list the namespaces")]
    List(#[source] Box<kube::Error>),
    #[error("there is no mesh {mesh} in this cluster, so no pod would get a sidecar: {}", others(.meshes))]
    NoMesh { mesh: MeshName, meshes: Vec<String> },
    #[error(
        "the namespace {namespace} is in the mesh {mesh}: take it out of that one first, by \
         smc namespace remove {namespace} --mesh-name {mesh}"
    )]
    Elsewhere { namespace: String, mesh: String },
    #[error("{0} is a namespace of Kubernetes itself, whose pods do without a sidecar")]
    OfKubernetes(String),
    #[error("{0} is the namespace of the control plane, whose pods do without a sidecar")]
    OfControlPlane(String),
}

fn others(meshes: &[String]) -> String {
    match meshes {
        [] => "install one first, or name the --context of another cluster".to_owned(),
        meshes => format!("--mesh-name names another, such as {}", meshes.join(", ")),
    }
}

/// The namespace of the control plane of `mesh`, by its injector; `None` if the person may not see that.
async fn control_plane_of(client: &Client, mesh: &MeshName) -> Result<Option<MeshNamespace>, NamespaceError> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let Ok(listed) = injectors.list(&ListParams::default()).await else { return Ok(None) };
    let mut meshes = BTreeMap::new();
    for injector in listed.items {
        let name = injector.metadata.name.as_deref().and_then(|name| name.strip_prefix(INJECTOR));
        let Some(name) = name.map(str::to_owned) else { continue };
        let service = injector.webhooks.iter().flatten().find_map(|hook| hook.client_config.service.clone());
        meshes.insert(name, service.and_then(|service| MeshNamespace::new(&service.namespace).ok()));
    }
    let found = meshes.get(mesh.as_str()).cloned();
    found.ok_or_else(|| NamespaceError::NoMesh { mesh: mesh.clone(), meshes: meshes.into_keys().collect() })
}

pub(super) async fn run(command: NamespaceCommand) -> Outcome {
    match command {
        NamespaceCommand::Add { namespaces, mesh_name, disable_sidecar_injection, permissive, kube } => {
            let client = kube.client().await?;
            let control_plane = control_plane_of(&client, &mesh_name).await?;
            let api: Api<Namespace> = Api::all(client.clone());
            let injection = if disable_sidecar_injection { "disabled" } else { "enabled" };
            for namespace in namespaces {
                if OF_KUBERNETES.contains(&namespace.as_str()) {
                    return Err(NamespaceError::OfKubernetes(namespace).into());
                }
                if control_plane.as_ref().is_some_and(|own| own.as_str() == namespace) {
                    return Err(NamespaceError::OfControlPlane(namespace).into());
                }
                match mesh_of(&api, &namespace).await? {
                    Some(mesh) if mesh != mesh_name.as_str() => {
                        return Err(NamespaceError::Elsewhere { namespace, mesh }.into());
                    }
                    _ => {}
                }
                let change = joining(&mesh_name, injection, permissive);
                patch(&api, &namespace, &change).await?;
                output::write(&format!(
                    "{namespace} is in the mesh {mesh_name}; pods that run get their sidecars when they restart\n"
                ))?;
            }
            if permissive != Some(true)
                && let Some(control_plane) = control_plane
                && is_permissive(&Cluster::new(client), &control_plane).await == Some(false)
            {
                output::write(
                    "the mesh is not permissive: sidecars refuse what no TrafficTarget allows; see \
                     docs/install.md#allow-traffic-first-then-close\n",
                )?;
            }
        }
        NamespaceCommand::Remove { namespaces, mesh_name, wait, now, kube } => {
            let client = kube.client().await?;
            let remover = Remover::new(client, mesh_name, now).await?;
            let deadline = Instant::now() + wait;
            let mut verdict = Verdict::Ok;
            for namespace in namespaces {
                if remover.remove(&namespace, deadline).await? == Verdict::Findings {
                    verdict = Verdict::Findings;
                }
            }
            return Ok(verdict);
        }
        NamespaceCommand::List { mesh_name, kube } => {
            let listed = list::listed(kube.client().await?, mesh_name.as_ref()).await;
            output::write(&listed.map_err(|error| NamespaceError::List(Box::new(error)))?)?;
        }
    }
    Ok(Verdict::Ok)
}

/// What makes a namespace one of the mesh.
fn joining(mesh: &MeshName, injection: &str, permissive: Option<bool>) -> serde_json::Value {
    let mut change = json!({ "metadata": {
        "labels": { MONITORED_BY: mesh.as_str() },
        "annotations": { INJECTION: injection },
    } });
    if let Some(permissive) = permissive {
        change["metadata"]["annotations"][PERMISSIVE_ANNOTATION] = permissive.then_some("true").into();
    }
    change
}

/// Takes namespaces out of a mesh.
struct Remover {
    client: Client,
    mesh: MeshName,
    /// Whether the namespaces are to stay while pods have sidecars.
    gradual: bool,
    /// Whether the mesh lets connections out of it, as far as the person may see.
    egress: Option<bool>,
}

impl Remover {
    async fn new(client: Client, mesh: MeshName, now: bool) -> Result<Self, NamespaceError> {
        let control_plane = match control_plane_of(&client, &mesh).await {
            Ok(control_plane) => control_plane,
            // Nothing keeps the sidecars of such a mesh up to date.
            Err(NamespaceError::NoMesh { .. }) => {
                return Ok(Self { client, mesh, gradual: false, egress: None });
            }
            Err(error) => return Err(error),
        };
        let egress = match control_plane {
            Some(namespace) => lets_out(&Cluster::new(client.clone()), &namespace).await,
            None => None,
        };
        Ok(Self { client, mesh, gradual: !now, egress })
    }

    /// Takes a namespace out, or as far out as its sidecars let it go until the deadline.
    async fn remove(&self, namespace: &str, deadline: Instant) -> Outcome {
        let api: Api<Namespace> = Api::all(self.client.clone());
        match mesh_of(&api, namespace).await? {
            Some(mesh) if mesh == self.mesh.as_str() => {}
            Some(mesh) => {
                return Err(NamespaceError::Elsewhere { namespace: namespace.to_owned(), mesh }.into());
            }
            None => {
                output::write(&format!("{namespace} is in no mesh\n"))?;
                return Ok(Verdict::Ok);
            }
        }
        // Before the pods are counted, so that none gets a sidecar afterwards.
        patch(&api, namespace, &json!({ "metadata": { "annotations": { INJECTION: "disabled" } } })).await?;
        let sidecars = loop {
            let pods = pods_with_sidecar(&self.client, namespace).await;
            let pods = pods.map_err(|error| NamespaceError::Pods {
                namespace: namespace.to_owned(),
                source: Box::new(error),
            })?;
            if pods.is_empty() || !self.gradual || Instant::now() >= deadline {
                break pods;
            }
            sleep(LOOK).await;
        };
        if !sidecars.is_empty() && self.gradual {
            output::write(&leaving(namespace, &self.mesh, &sidecars, self.egress))?;
            return Ok(Verdict::Findings);
        }
        let change = json!({ "metadata": {
            "labels": { MONITORED_BY: null },
            "annotations": { INJECTION: null, PERMISSIVE_ANNOTATION: null },
        } });
        patch(&api, namespace, &change).await?;
        output::write(&left(namespace, &self.mesh, &sidecars))?;
        Ok(Verdict::Ok)
    }
}

/// What is to be done about the sidecars that keep a namespace in the mesh.
fn leaving(namespace: &str, mesh: &MeshName, sidecars: &[String], egress: Option<bool>) -> String {
    let closed = match egress {
        Some(false) => {
            "MeshConfig has no enableEgress: until then, pods with a sidecar do not reach those that lost theirs.\n"
        }
        _ => "",
    };
    format!(
        "{namespace} is leaving the mesh {mesh}: its new pods get no sidecar, and {} of its pods have one ({}). \
         Restart them, and run this again. Pods that lost their sidecar do not reach those that have one, so \
         restart what is called before what calls it. Pods that no Deployment or the like made have to be made \
         again:\n{}\n{closed}",
        sidecars.len(),
        some_of(sidecars),
        restart(namespace)
    )
}

/// What is to be done about the sidecars of a namespace that left.
fn left(namespace: &str, mesh: &MeshName, sidecars: &[String]) -> String {
    let gone = format!("{namespace} is no longer in the mesh {mesh}; ");
    match sidecars {
        [] => format!("{gone}no pod of it has a sidecar\n"),
        pods => format!(
            "{gone}{} of its pods still have sidecars ({}), and their calls fail until they restart:\n{}\n",
            pods.len(),
            some_of(pods),
            restart(namespace)
        ),
    }
}

async fn mesh_of(api: &Api<Namespace>, namespace: &str) -> Result<Option<String>, NamespaceError> {
    let found = api.get(namespace).await.map_err(|source| NamespaceError::Api {
        action: "read",
        namespace: namespace.to_owned(),
        source: Box::new(source),
    })?;
    Ok(found.metadata.labels.and_then(|mut labels| labels.remove(MONITORED_BY)))
}

async fn patch(
    api: &Api<Namespace>,
    namespace: &str,
    change: &serde_json::Value,
) -> Result<(), NamespaceError> {
    let patched = api.patch(namespace, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map(drop).map_err(|source| NamespaceError::Api {
        action: "change",
        namespace: namespace.to_owned(),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_stays_permissive_unless_it_is_told_otherwise() {
        let mesh = MeshName::default();
        for (flag, expected) in
            [(None, None), (Some(true), Some(json!("true"))), (Some(false), Some(json!(null)))]
        {
            let change = joining(&mesh, "enabled", flag);
            let annotations = &change["metadata"]["annotations"];
            assert_eq!(annotations.get(PERMISSIVE_ANNOTATION), expected.as_ref(), "{flag:?}");
            assert_eq!(annotations[INJECTION], "enabled");
        }
    }

    #[test]
    fn a_namespace_that_leaves_says_what_to_restart_and_what_is_not_reached() {
        let mesh = MeshName::default();
        let pods = |count: usize| (0..count).map(|number| format!("web-{number}")).collect::<Vec<_>>();
        for (egress, expected) in [(Some(true), false), (None, false), (Some(false), true)] {
            let text = leaving("shop", &mesh, &pods(7), egress);
            let named = "7 of its pods have one (web-0, web-1, web-2, web-3, web-4 and 2 more)";
            assert!(text.contains(named) && text.contains("rollout restart"), "{text}");
            assert_eq!(text.contains("enableEgress"), expected, "{text}");
        }
        assert!(left("shop", &mesh, &pods(2)).contains("their calls fail"));
        assert!(!left("shop", &mesh, &[]).contains("restart"));
    }
}
