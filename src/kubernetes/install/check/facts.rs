//! What `smc check` looks at.
//!
//! Owns the requests. What a person may not see stays unknown, which is not the same as missing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use smc_proto::admin::v1::{
    GetCaStatusRequest, GetCaStatusResponse, GetClusterStatusRequest, ListPolicyRequest, ListProblemsRequest,
    ListProxiesRequest, ListServicesRequest, Service,
};
use smc_server::admin::client::{CALL_TIMEOUT, Client};
use smc_types::causes::causes;
use smc_types::ids::{MeshName, MeshNamespace};
use smc_types::object_ref::Kind;

use super::key::{Key, key, sealed};
use super::members::{Members, members};
use super::rights::{Right, expected, rights};
use crate::crds::definitions;
use crate::install::apply::{ApplyError, Cluster, reason};
use crate::install::controllers::{ControllerError, Controllers, SELECTOR};
use crate::install::manifests::ManifestError;
use crate::install::settings::{key_secret, other_key_secret};
use crate::names::INJECTOR;
use crate::stateful_set::CONFIRMATION;

/// What an installation creates: group, resource, and whether it is in the control plane's namespace.
const CREATED: [(&str, &str, bool); 15] = [
    ("", "namespaces", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", false),
    ("rbac.authorization.k8s.io", "roles", true),
    ("rbac.authorization.k8s.io", "rolebindings", true),
    ("", "serviceaccounts", true),
    ("", "services", true),
    ("apps", "statefulsets", true),
    ("policy", "poddisruptionbudgets", true),
    ("networking.k8s.io", "networkpolicies", true),
    ("", "pods", true),
    ("config.openservicemesh.io", "meshconfigs", true),
];

/// The label of a namespace of a mesh.
pub const MONITORED_BY: &str = "openservicemesh.io/monitored-by";

/// How the name of the MutatingWebhookConfiguration of a mesh of OSM begins, whose namespaces have the same
/// label.
const INJECTOR_OF_OSM: &str = "osm-webhook-";

/// An object, `None` if there is none, or why the person cannot see it.
pub type Found = Result<Option<Value>, String>;

/// What may be called within the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Whether any identity may call another one.
    pub any: bool,
    /// Ports of services that every sidecar may call, and so holds: in permissive mode all that have pods of
    /// the mesh, else those of permissive namespaces.
    pub open_ports: usize,
}

/// What is known about a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The name of the mesh.
    pub mesh: String,
    /// The namespace of the control plane.
    pub namespace: String,
    /// The version of the API server, or why it does not answer.
    pub version: Result<String, String>,
    /// What the person may not create.
    pub denied: Vec<String>,
    /// Whether there is a default StorageClass, as far as the person may see.
    pub default_storage_class: Option<bool>,
    /// The definitions that SMC needs.
    pub definitions: BTreeMap<String, Found>,
    /// The StatefulSet.
    pub set: Option<Value>,
    /// The configuration of the injector.
    pub injector: Found,
    /// The configuration of the validator.
    pub validator: Found,
    /// What gives the controllers their rights.
    pub rights: Vec<Right>,
    /// The pods of the controllers.
    pub pods: Vec<Value>,
    /// The Secret of the key-encryption key.
    pub key: Key,
    /// That of another key, where one is accepted.
    pub other_key: Option<Key>,
    /// The ids of the keys that the mesh's private keys are sealed with, as far as anything says so.
    pub sealed_with: Vec<String>,
    /// The group as a controller sees it, or why none answers.
    pub group: Result<Group, String>,
    /// The namespaces of the mesh.
    pub members: Members,
    /// The UUIDs of the proxies that the controllers know, and whether they are connected; or why that is
    /// unknown.
    pub proxies: Result<BTreeMap<String, bool>, String>,
    /// The problems of the mesh, or why they are unknown.
    pub problems: Result<Vec<String>, String>,
    /// What the controllers allow within the mesh, or why that is unknown.
    pub granted: Result<Granted, String>,
    /// The mesh's configuration.
    pub config: Found,
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// What a controller says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// The id of its group; empty if it has none.
    pub id: String,
    /// The ids of the groups that the controllers which answer belong to, sorted.
    pub groups: Vec<String>,
    /// The leader, if there is one.
    pub leader: Option<u64>,
    /// The voters, sorted.
    pub voters: Vec<u64>,
    /// The members that do not answer the controller that was asked, sorted.
    pub silent: Vec<u64>,
    /// What that controller waits for before it serves.
    pub waits_for: Option<String>,
    /// What is wrong with the clock.
    pub clock_problem: Option<String>,
    /// The certificate authorities, and when they end.
    pub authorities: Vec<(String, i64)>,
    /// The ids of the key-encryption keys that private keys are sealed with.
    pub sealed_with: Vec<String>,
    /// Conditions that an operator should act on.
    pub warnings: Vec<String>,
}

impl Group {
    /// What the controllers wait for, if that is the word of a person about disks that are older than their
    /// group was.
    pub fn waits_for_older_disks(&self) -> Option<&str> {
        self.waits_for.as_deref().filter(|what| what.starts_with(CONFIRMATION))
    }
}

/// Looks at a cluster.
pub async fn gather(
    cluster: &Cluster,
    mesh: &MeshName,
    namespace: &MeshNamespace,
    now: i64,
) -> Result<Facts, ManifestError> {
    let client = cluster.client();
    let version = client.apiserver_version().await;
    let not_asked = "no controller was asked".to_owned();
    let mut facts = Facts {
        mesh: mesh.to_string(),
        namespace: namespace.to_string(),
        version: version.map(|version| version.git_version).map_err(|error| causes(&error)),
        denied: Vec::new(),
        default_storage_class: None,
        definitions: BTreeMap::new(),
        set: None,
        injector: Ok(None),
        validator: Ok(None),
        rights: Vec::new(),
        pods: Vec::new(),
        key: Key::Unknown,
        other_key: None,
        sealed_with: Vec::new(),
        group: Err(not_asked.clone()),
        members: Members::default(),
        proxies: Err(not_asked.clone()),
        problems: Err(not_asked.clone()),
        granted: Err(not_asked),
        config: Ok(None),
        now,
    };
    if facts.version.is_err() {
        return Ok(facts);
    }
    for definition in definitions(namespace)? {
        facts.definitions.insert(definition.name().to_owned(), found(cluster, definition.as_json()).await);
    }
    let named = |version: &str, kind: &str, name: String, namespace: Option<&MeshNamespace>| {
        let namespace = namespace.map(MeshNamespace::as_str);
        json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": namespace } })
    };
    let set = named("apps/v1", "StatefulSet", "smc-controller".to_owned(), Some(namespace));
    facts.set = found(cluster, &set).await.ok().flatten();
    let configuration = |kind, name| named("admissionregistration.k8s.io/v1", kind, name, None);
    let injector = configuration("MutatingWebhookConfiguration", format!("{INJECTOR}{mesh}"));
    facts.injector = found(cluster, &injector).await;
    let validator = configuration("ValidatingWebhookConfiguration", format!("smc-validator-{mesh}"));
    facts.validator = found(cluster, &validator).await;
    facts.denied = denied(cluster, namespace).await;
    facts.default_storage_class = default_storage_class(cluster).await;
    if let Some(set) = &facts.set {
        facts.pods = controllers(cluster, namespace).await;
        facts.key = key(cluster, namespace, key_secret(set)).await;
        if let Some(other) = other_key_secret(set) {
            facts.other_key = Some(key(cluster, namespace, other).await);
        }
        facts.group = group(cluster, namespace).await;
        facts.sealed_with = sealed(cluster, namespace, &facts.group).await;
        facts.members = members(&client, mesh, &meshes(&client).await, now).await;
        facts.config = found(cluster, &mesh_config(namespace)).await;
        facts.rights = rights(cluster, expected(mesh, namespace, set)?).await;
        if facts.group.as_ref().is_ok_and(|group| group.waits_for.is_none()) {
            match ready(cluster, namespace).await {
                Ok(mut controllers) => {
                    facts.proxies = proxies(&mut controllers).await;
                    facts.problems = problems(&mut controllers).await;
                    facts.granted = granted(&mut controllers).await;
                }
                Err(reason) => {
                    (facts.proxies, facts.problems) = (Err(reason.clone()), Err(reason.clone()));
                    facts.granted = Err(reason);
                }
            }
        }
    }
    Ok(facts)
}

/// The object of the kind and name of `object`.
pub(super) async fn found(cluster: &Cluster, object: &Value) -> Found {
    cluster.find(object).await.map_err(|error| match error {
        ApplyError::Failed { action, object, source } => {
            format!("cannot {action} {object}: {}", reason(&source))
        }
        error => causes(&error),
    })
}

/// The names of the meshes in the cluster, by their injectors, or why they are unknown.
pub async fn meshes(client: &kube::Client) -> Result<BTreeSet<String>, String> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let listed = injectors.list_metadata(&ListParams::default()).await.map_err(|error| reason(&error))?;
    let mesh = |name: &str| {
        let prefixes = [INJECTOR, INJECTOR_OF_OSM];
        prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned)
    };
    Ok(listed.items.iter().filter_map(|injector| mesh(injector.metadata.name.as_deref()?)).collect())
}

async fn denied(cluster: &Cluster, namespace: &MeshNamespace) -> Vec<String> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client());
    let mut denied = Vec::new();
    for (group, resource, namespaced) in CREATED {
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some("create".to_owned()),
            namespace: namespaced.then(|| namespace.to_string()),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..Default::default() };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let allowed = answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed));
        if !allowed {
            denied.push(format!("create {resource}"));
        }
    }
    denied
}

async fn default_storage_class(cluster: &Cluster) -> Option<bool> {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let classes: Api<StorageClass> = Api::all(cluster.client());
    let classes = classes.list(&ListParams::default()).await.ok()?;
    let is_default = |class: &StorageClass| {
        class
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|all| all.get(DEFAULT).is_some_and(|value| value == "true"))
    };
    Some(classes.items.iter().any(is_default))
}

/// The pods of the controllers in `namespace`.
pub async fn controllers(cluster: &Cluster, namespace: &MeshNamespace) -> Vec<Value> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace.as_str());
    let listed = pods.list(&ListParams::default().labels(SELECTOR)).await;
    let listed = listed.map(|pods| pods.items).unwrap_or_default();
    listed.iter().filter_map(|pod| serde_json::to_value(pod).ok()).collect()
}

/// What the controllers of `namespace` say about their group, or why none answers.
pub async fn group(cluster: &Cluster, namespace: &MeshNamespace) -> Result<Group, String> {
    let answers = answers(cluster, namespace).await.map_err(|error| match error {
        ControllerError::NoneRuns(_) => {
            format!("no controller runs: kubectl get statefulset,pods -n {namespace}")
        }
        error => causes(&error),
    });
    chosen(answers?)
}

/// The leader that any controller knows, or why that is unknown. That none runs is no reason.
pub async fn leader(cluster: &Cluster, namespace: &MeshNamespace) -> Result<Option<u64>, String> {
    let answers = match answers(cluster, namespace).await {
        Err(ControllerError::NoneRuns(_)) => return Ok(None),
        answers => answers.map_err(|error| causes(&error))?,
    };
    let groups = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(groups.into_iter().find_map(|group| group.leader))
}

/// What each controller that runs says about its group, or why it does not. Also those that are not ready:
/// one of another group is not.
async fn answers(
    cluster: &Cluster,
    namespace: &MeshNamespace,
) -> Result<Vec<Result<Group, String>>, ControllerError> {
    let controllers = Controllers::new(cluster.client(), namespace.clone());
    let mut answers = Vec::new();
    for client in controllers.all(CALL_TIMEOUT).await? {
        answers.push(match client {
            Ok(mut client) => asked(&mut client).await.map_err(|status| status.message().to_owned()),
            Err(error) => Err(causes(&error)),
        });
    }
    Ok(answers)
}

/// The answer that counts: that of a controller that serves, or at least has a group, and says what it
/// waits for. Of which groups the controllers are, all of them say.
fn chosen(answers: Vec<Result<Group, String>>) -> Result<Group, String> {
    let groups: BTreeSet<_> = answers.iter().flatten().map(|group| group.id.clone()).collect();
    let groups: Vec<_> = groups.into_iter().filter(|id| !id.is_empty()).collect();
    let best = answers.into_iter().min_by_key(|answer| match answer {
        // One that serves and is cut off knows no leader.
        Ok(group) if group.waits_for.is_none() => u8::from(group.leader.is_none()),
        Ok(group) if !group.id.is_empty() => 2,
        Ok(_) => 3,
        Err(_) => 4,
    });
    let best = best.unwrap_or_else(|| Err("no controller was asked".to_owned()))?;
    Ok(Group { groups, ..best })
}

/// The controllers that are ready, or why none can be called. Each costs a process in its pod.
async fn ready(cluster: &Cluster, namespace: &MeshNamespace) -> Result<Vec<Client>, String> {
    let controllers = Controllers::new(cluster.client(), namespace.clone());
    controllers.clients(CALL_TIMEOUT).await.map_err(|error| causes(&error))
}

/// The proxies that the controllers know, by their UUID, and whether they are connected to one of these.
async fn proxies(controllers: &mut [Client]) -> Result<BTreeMap<String, bool>, String> {
    let mut known = BTreeMap::new();
    for client in controllers {
        let listed = client.list_proxies(ListProxiesRequest {}).await;
        for proxy in listed.map_err(|status| status.message().to_owned())?.into_inner().proxies {
            *known.entry(proxy.uuid).or_default() |= !proxy.streams.is_empty();
        }
    }
    Ok(known)
}

/// The problems of the mesh that are to be noted, with the objects that have them; all controllers know all
/// but those of proxies, of which the one that serves them knows.
async fn problems(controllers: &mut [Client]) -> Result<Vec<String>, String> {
    let mut found = BTreeSet::new();
    for client in controllers {
        let listed = client.list_problems(ListProblemsRequest {}).await;
        let listed = listed.map_err(|status| status.message().to_owned())?.into_inner().problems;
        found.extend(listed.into_iter().map(|problem| match problem.object.as_str() {
            "" => problem.message,
            object => format!("{object}: {}", problem.message),
        }));
    }
    Ok(found.into_iter().collect())
}

/// What identities may call within the mesh. All controllers know that.
async fn granted(controllers: &mut [Client]) -> Result<Granted, String> {
    let Some(client) = controllers.first_mut() else { return Err("no controller was asked".to_owned()) };
    let failed = |status: tonic::Status| status.message().to_owned();
    let policy = client.list_policy(ListPolicyRequest {}).await.map_err(failed)?.into_inner();
    let any = policy.permissive || !policy.rules.is_empty() || !policy.permissive_namespaces.is_empty();
    if !policy.permissive && policy.permissive_namespaces.is_empty() {
        return Ok(Granted { any, open_ports: 0 });
    }
    let services = client.list_services(ListServicesRequest {}).await.map_err(failed)?.into_inner().services;
    let is_open = |service: &&Service| {
        let namespace = service.name.split('/').next().unwrap_or_default();
        let permissive =
            policy.permissive || policy.permissive_namespaces.iter().any(|open| open == namespace);
        permissive && !service.service_accounts.is_empty()
    };
    Ok(Granted { any, open_ports: services.iter().filter(is_open).map(|service| service.ports.len()).sum() })
}

/// The mesh's configuration, by its name.
pub fn mesh_config(namespace: &MeshNamespace) -> Value {
    json!({
        "apiVersion": Kind::MeshConfig.spec().api_versions().next(),
        "kind": Kind::MeshConfig.as_str(),
        "metadata": { "name": "osm-mesh-config", "namespace": namespace.as_str() },
    })
}

/// Whether the mesh of `namespace` allows all traffic; `None` if the person may not see that.
pub async fn is_permissive(cluster: &Cluster, namespace: &MeshNamespace) -> Option<bool> {
    permits_all(&found(cluster, &mesh_config(namespace)).await)
}

/// Whether the mesh of `namespace` lets connections out of it; `None` if the person may not see that.
pub async fn lets_out(cluster: &Cluster, namespace: &MeshNamespace) -> Option<bool> {
    switched_on(&found(cluster, &mesh_config(namespace)).await, "/spec/traffic/enableEgress")
}

/// Whether this configuration of a mesh allows all traffic; `None` if the person may not see it.
pub(super) fn permits_all(config: &Found) -> Option<bool> {
    switched_on(config, "/spec/traffic/enablePermissiveTrafficPolicyMode")
}

fn switched_on(config: &Found, switch: &str) -> Option<bool> {
    let config = config.as_ref().ok()?;
    Some(config.as_ref().is_some_and(|config| config.pointer(switch) == Some(&json!(true))))
}

async fn asked(client: &mut Client) -> Result<Group, tonic::Status> {
    let status = client.get_cluster_status(GetClusterStatusRequest {}).await?.into_inner();
    let waits_for = Some(status.waits_for).filter(|what| !what.is_empty());
    let authority = match &waits_for {
        // It has none, or cannot say.
        Some(_) => GetCaStatusResponse::default(),
        None => client.get_ca_status(GetCaStatusRequest {}).await?.into_inner(),
    };
    let roots = authority.roots.iter().map(|root| (format!("the root {}", root.serial), root.not_after));
    let issuer = authority.issuer.iter().map(|ca| (format!("the issuing CA {}", ca.serial), ca.not_after));
    let mut voters: Vec<_> =
        status.replicas.iter().filter(|replica| replica.voter).map(|replica| replica.id).collect();
    voters.sort_unstable();
    // A controller hears itself; one of an earlier version says of none that it does.
    let tells = status.replicas.iter().any(|replica| replica.heard);
    let silent = status.replicas.iter().filter(|replica| tells && !replica.heard).map(|replica| replica.id);
    let silent = silent.collect();
    let sealed_with = authority.key_encryption_keys.into_iter().filter(|key| key.keys > 0);
    let sealed_with = sealed_with.map(|key| key.id).collect();
    Ok(Group {
        id: status.group,
        groups: Vec::new(),
        sealed_with,
        leader: status.leader,
        voters,
        silent,
        waits_for,
        clock_problem: Some(status.clock_problem).filter(|problem| !problem.is_empty()),
        authorities: roots.chain(issuer).collect(),
        warnings: authority.warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_controller_that_knows_most_counts() {
        let group = |id: &str, leader, waits_for: Option<&str>| {
            let (id, waits_for) = (id.to_owned(), waits_for.map(str::to_owned));
            Ok(Group { id, leader, waits_for, ..Group::default() })
        };
        let silent = || Err("it does not answer".to_owned());
        let (empty, waits) = (group("", None, Some("a group")), group("b", None, Some("a leader")));
        let (cut_off, led) = (group("a", None, None), group("a", Some(1), None));
        let answers = [silent(), empty, waits, cut_off, led];
        for known in 1..answers.len() {
            let found = chosen(answers[..=known].to_vec()).unwrap();
            let expected = answers[known].clone().unwrap();
            assert_eq!((&found.id, found.leader), (&expected.id, expected.leader), "{known}");
        }
        assert_eq!(chosen(answers.to_vec()).unwrap().groups, ["a", "b"]);
        assert!(chosen(vec![silent()]).is_err());
    }
}
