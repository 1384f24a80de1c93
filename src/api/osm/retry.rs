//! `policy.openservicemesh.io` Retry.

use schemars::JsonSchema;
use serde_json::{Value, json};
use smc_types::ids::NamespacedName;
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;

use super::policy::{MAX_ENTRIES, Reference, account, duration_of, entries, number, read, reference};
use crate::kind::{CustomKind, schema, without_effect};

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[schema::<RetrySpec>],
    example: |namespace| {
        json!({
            "source": {"kind": "ServiceAccount", "name": "web", "namespace": namespace},
            "destinations": [{"kind": "Service", "name": "web", "namespace": namespace}],
            "retryPolicy": {"retryOn": "5xx"},
        })
    },
    read: |object| without_effect(read_retry(&object.id, object.spec)),
    ..CustomKind::new(Kind::Retry)
};

/// When a service account's requests are sent again. Not enforced yet.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct RetrySpec {
    /// The service account.
    pub source: Reference,
    /// The services that it calls.
    #[schemars(length(max = MAX_ENTRIES))]
    pub destinations: Vec<Reference>,
    /// What is sent again, and how.
    pub retry_policy: RetryPolicy,
}

/// What is sent again, and how.
#[derive(Debug, JsonSchema)]
#[schemars(rename_all = "camelCase")]
pub struct RetryPolicy {
    /// Envoy's conditions, separated by commas.
    pub retry_on: String,
    /// How long one try may take, as a duration.
    pub per_try_timeout: Option<String>,
    /// How often, at most.
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub num_retries: Option<u32>,
    /// The first pause, as a duration.
    pub retry_backoff_base_interval: Option<String>,
}

/// Reads the `spec` of a Retry.
pub fn read_retry(id: &NamespacedName, spec: Value) -> Reading<()> {
    read(Kind::Retry, id, spec, |id, spec, findings| {
        if let Some(node) = spec.require("source", findings) {
            account(node, Some(id.namespace()), findings);
        }
        for node in entries(spec, "destinations", MAX_ENTRIES, true, findings) {
            reference(node, &["Service"], findings);
        }
        let policy = spec.require("retryPolicy", findings).and_then(|node| node.object(findings));
        let Some(mut policy) = policy else { return };
        if let Some(node) = policy.require("retryOn", findings) {
            node.text(findings);
        }
        for name in ["perTryTimeout", "retryBackoffBaseInterval"] {
            duration_of(&mut policy, name, findings);
        }
        number(&mut policy, "numRetries", 0, u64::from(u32::MAX), findings);
        policy.finish(findings);
    })
}
