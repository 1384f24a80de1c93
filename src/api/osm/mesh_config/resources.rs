//! `sidecar.resources` of MeshConfig: what the containers of a sidecar request, and their limits.
//!
//! Owns what is taken of it. The API server refuses every new pod of the mesh whose sidecar has resources
//! that it cannot read, so such resources are left out whole.

use serde_json::{Map, Value};
use smc_model::quantity::is_quantity;
use smc_types::text::truncated;

use crate::reading::{Findings, Node};
use crate::schema::MAX_RESOURCES;

/// The resources, in the form of Kubernetes' `ResourceRequirements`. `None` if there are none, or if any
/// cannot be read.
pub(super) fn read(node: Node, findings: &mut Findings) -> Option<Value> {
    let mut fields = node.object(findings)?;
    let mut resources = Map::new();
    let mut readable = true;
    for name in ["requests", "limits"] {
        let Some(node) = fields.take(name) else { continue };
        match amounts(node, findings) {
            Some(amounts) => _ = resources.insert(name.to_owned(), Value::Object(amounts)),
            None => readable = false,
        }
    }
    fields.finish(findings);
    (readable && !resources.is_empty()).then_some(Value::Object(resources))
}

fn amounts(node: Node, findings: &mut Findings) -> Option<Map<String, Value>> {
    let path = node.path.clone();
    let fields: Vec<_> = node.object(findings)?.rest().collect();
    if fields.len() > MAX_RESOURCES {
        findings.error(&path, format!("has {} entries; {MAX_RESOURCES} is the most", fields.len()));
        return None;
    }
    let mut amounts = Map::new();
    let mut readable = true;
    for (name, node) in fields {
        if is_amount(&node.value) {
            amounts.insert(name, node.value);
        } else {
            let shown = truncated(&node.value.to_string(), 40);
            findings.error(&node.path, format!("is {shown}, which is no quantity; the preset holds"));
            readable = false;
        }
    }
    readable.then_some(amounts)
}

/// A number, or text that is a quantity.
fn is_amount(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number >= 0.0),
        Value::String(text) => is_quantity(text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_amount_is_a_number_or_a_quantity() {
        for good in [json!("64Mi"), json!(1), json!(0.5), json!(0)] {
            assert!(is_amount(&good), "{good}");
        }
        for bad in [json!("lots"), json!(-1), json!(null), json!(true), json!([1]), json!({})] {
            assert!(!is_amount(&bad), "{bad}");
        }
    }
}
