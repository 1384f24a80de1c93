//! The CustomResourceDefinitions, assembled from the generated ones.
//!
//! Owns the list of kinds, their versions, the columns and rules that all kinds share, and the conversion of
//! TrafficSplit.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};
use smc_types::ids::MeshNamespace;
use thiserror::Error;

use super::access::TrafficTarget;
use super::config::MeshConfig;
use super::mesh_workload::MeshWorkload;
use super::policy::{Egress, IngressBackend, Retry, Telemetry, UpstreamTrafficSetting};
use super::schema::corrected;
use super::specs::{HTTPRouteGroup, TCPRoute, UDPRoute};
use super::split::{TrafficSplit, TrafficSplitV1Alpha1, TrafficSplitV1Alpha2};
use crate::webhook::CONVERSION_SERVICE;

/// The port of the webhooks' Services, and the path of conversion.
const WEBHOOK_PORT: u16 = 443;
const CONVERSION_PATH: &str = "/convert";

/// A definition cannot be written as JSON or YAML.
#[derive(Debug, Error)]
pub enum DefinitionError {
    /// As JSON.
    #[error("the definition of {kind} has no JSON form")]
    Json {
        /// The kind.
        kind: String,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// As YAML.
    #[error("the definition {name} has no YAML form")]
    Yaml {
        /// The name of the definition.
        name: String,
        /// The cause.
        #[source]
        source: serde_saphyr::ser::Error,
    },
}

/// One CustomResourceDefinition, with its fields in alphabetical order.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    name: String,
    value: Value,
}

impl Definition {
    /// The name, such as `trafficsplits.split.smi-spec.io`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its file in the chart.
    pub fn file(&self) -> String {
        format!("{}.yaml", self.name)
    }

    /// The definition as JSON.
    pub fn as_json(&self) -> &Value {
        &self.value
    }

    /// The definition as a YAML document, the same for every call.
    pub fn to_yaml(&self) -> Result<String, DefinitionError> {
        let yaml = serde_saphyr::to_string(&self.value);
        yaml.map_err(|source| DefinitionError::Yaml { name: self.name.clone(), source })
    }
}

/// All definitions, in the order of their names. The API server has TrafficSplits converted by the control
/// plane in `namespace`.
pub fn definitions(namespace: &MeshNamespace) -> Result<Vec<Definition>, DefinitionError> {
    let mut all = vec![
        definition(&[version(TrafficTarget::crd())])?,
        definition(&[version(HTTPRouteGroup::crd()), renamed(HTTPRouteGroup::crd(), "v1alpha3")])?,
        definition(&[version(TCPRoute::crd())])?,
        definition(&[version(UDPRoute::crd())])?,
        converted(
            definition(&[
                version(TrafficSplit::crd()),
                renamed(TrafficSplit::crd(), "v1alpha3"),
                version(TrafficSplitV1Alpha2::crd()),
                version(TrafficSplitV1Alpha1::crd()),
            ])?,
            namespace,
        ),
        singleton(definition(&[version(MeshConfig::crd()), renamed(MeshConfig::crd(), "v1alpha1")])?),
        definition(&[version(MeshWorkload::crd())])?,
        definition(&[version(Egress::crd())])?,
        definition(&[version(IngressBackend::crd())])?,
        definition(&[version(Retry::crd())])?,
        definition(&[version(Telemetry::crd())])?,
        definition(&[version(UpstreamTrafficSetting::crd())])?,
    ];
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// A generated definition and the name of its only version, where it is to have another.
struct Version {
    generated: CustomResourceDefinition,
    name: Option<&'static str>,
}

fn version(generated: CustomResourceDefinition) -> Version {
    Version { generated, name: None }
}

fn renamed(generated: CustomResourceDefinition, name: &'static str) -> Version {
    Version { generated, name: Some(name) }
}

/// One definition out of those of its versions. The first is stored.
fn definition(versions: &[Version]) -> Result<Definition, DefinitionError> {
    let mut parts = Vec::new();
    for Version { generated, name } in versions {
        let json = serde_json::to_value(generated).map_err(|source| {
            let kind = generated.spec.names.kind.clone();
            DefinitionError::Json { kind, source }
        })?;
        parts.push((json, *name));
    }
    let mut all = Vec::new();
    for (index, (json, name)) in parts.iter().enumerate() {
        let Some(mut version) = json.pointer("/spec/versions/0").cloned() else { continue };
        let mut schema = corrected(version["schema"]["openAPIV3Schema"].take());
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("title");
        }
        schema["description"] = schema["properties"]["spec"]["description"].clone();
        let mut columns = version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default();
        columns.extend(shared_columns());
        version["schema"]["openAPIV3Schema"] = schema;
        version["additionalPrinterColumns"] = columns.into();
        version["storage"] = (index == 0).into();
        version["served"] = true.into();
        if let Some(name) = name {
            version["name"] = (*name).into();
        }
        all.push(version);
    }
    let mut value = parts.into_iter().next().map(|(json, _)| json).unwrap_or_default();
    value["spec"]["versions"] = all.into();
    value["metadata"]["labels"] = json!({"app.kubernetes.io/part-of": "smc"});
    // Without it, `helm uninstall` would delete all objects of the kind.
    value["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(Definition { name, value })
}

/// What `kubectl get` shows of every kind.
fn shared_columns() -> [Value; 4] {
    let condition = |name: &str, field: &str| format!(".status.conditions[?(@.type==\"{name}\")].{field}");
    let column = |name: &str, path: String, priority: u8| json!({"name": name, "type": "string", "jsonPath": path, "priority": priority});
    [
        column("Accepted", condition("Accepted", "status"), 0),
        column("Programmed", condition("Programmed", "status"), 0),
        column("Reason", condition("Programmed", "reason"), 0),
        json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}),
    ]
}

/// The webhook that converts TrafficSplits. The leader writes the CA that is trusted. Until then only the
/// stored version can be used, which is better than a split whose weights or matches were misread.
fn converted(mut definition: Definition, namespace: &MeshNamespace) -> Definition {
    let service = json!({
        "namespace": namespace.as_str(),
        "name": CONVERSION_SERVICE,
        "path": CONVERSION_PATH,
        "port": WEBHOOK_PORT,
    });
    definition.value["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}},
    });
    definition
}

/// Only the one name has an effect, so an object of another name would be a mistake that is not noticed.
fn singleton(mut definition: Definition) -> Definition {
    let versions = definition.value.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([{
            "rule": "self.metadata.name == 'osm-mesh-config'",
            "message": "the name of a MeshConfig must be osm-mesh-config",
        }]);
    }
    definition
}
