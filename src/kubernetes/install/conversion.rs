//! The conversion of TrafficSplits between their versions, when the control plane that converts goes.
//!
//! Owns the steps. The definition stays, and with it objects that an earlier definition stored in another
//! version: the API server reads none of them while their converter does not answer, so no namespace that
//! holds one could be deleted. They are stored in the present version while the converter still answers.
//! Then the definition asks for none: what is left in an earlier version is read as it is, and an
//! installation converts it again.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use smc_types::ids::MeshNamespace;
use smc_types::object_ref::Kind;
use thiserror::Error;

use super::settings::converting;
use crate::api_resource::{api_resource, next_page};

/// The definition.
pub const DEFINITION: &str = "trafficsplits.split.smi-spec.io";

/// Objects of one answer of the API server.
const PAGE: u32 = 500;

/// The conversion cannot be ended.
#[derive(Debug, Error)]
#[error("cannot {action} the CustomResourceDefinition {DEFINITION}")]
pub struct ConversionError {
    action: &'static str,
    #[source]
    source: Box<kube::Error>,
}

/// What became of the conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Another control plane converts, or none.
    NotOurs,
    /// It has ended. So many objects are stored in the present version; `None` if not all could be read.
    Ended(Option<usize>),
}

/// Ends the conversion if it is that of the control plane in `own`, after everything is stored in the
/// version that needs none. An object that changes meanwhile was stored by that change.
///
/// # Errors
///
/// The definition cannot be read or changed. That objects cannot be rewritten is no error: their converter
/// may be lost, and then this is what frees their namespaces.
pub async fn end(client: Client, own: &MeshNamespace) -> Result<Conversion, ConversionError> {
    let failed = |action| move |source| ConversionError { action, source: Box::new(source) };
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get_opt(DEFINITION).await.map_err(failed("read"))?;
    let found = found.and_then(|found| serde_json::to_value(found).ok());
    if found.as_ref().and_then(converting).as_ref() != Some(own) {
        return Ok(Conversion::NotOurs);
    }
    let rewritten = rewrite(&client).await.ok();
    let none = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
    let patched = definitions.patch(DEFINITION, &PatchParams::default(), &Patch::Merge(none)).await;
    patched.map_err(failed("change"))?;
    Ok(Conversion::Ended(rewritten))
}

/// Writes every TrafficSplit as it is, upon which the API server stores it in the present version. Returns
/// how many there are.
async fn rewrite(client: &Client) -> kube::Result<usize> {
    let Some(resource) = api_resource(Kind::TrafficSplit) else { return Ok(0) };
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut page = ListParams::default().limit(PAGE);
    let mut count = 0;
    loop {
        let listed = all.list(&page).await?;
        for object in listed.items {
            let namespace = object.namespace().unwrap_or_default();
            let of_namespace: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &namespace, &resource);
            match of_namespace.replace(&object.name_any(), &PostParams::default(), &object).await {
                // It is gone, or was written meanwhile.
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
                replaced => drop(replaced?),
            }
            count += 1;
        }
        match next_page(page, &listed.metadata) {
            Some(next) => page = next,
            None => return Ok(count),
        }
    }
}
