//! `sidecar.resources` of MeshConfig: what the containers of a sidecar request, and their limits.
//!
//! Owns what is taken of it. The API server refuses every new pod of the mesh whose sidecar has resources
//! that it cannot read, so such resources are left out whole.

use serde_json::{Map, Value};
use smc_types::text::truncated;

use crate::reading::{Findings, Node};
use crate::schema::{MAX_QUANTITY, MAX_RESOURCES};

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
        if is_quantity(&node.value) {
            amounts.insert(name, node.value);
        } else {
            let shown = truncated(&node.value.to_string(), 40);
            findings.error(&node.path, format!("is {shown}, which is no quantity; the preset holds"));
            readable = false;
        }
    }
    readable.then_some(amounts)
}

/// Whether Kubernetes reads this as a quantity that is not negative: a number, or digits with a suffix.
fn is_quantity(value: &Value) -> bool {
    const SUFFIXES: [&str; 15] =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let text = match value {
        Value::Number(number) => return number.as_f64().is_some_and(|number| number >= 0.0),
        Value::String(text) if text.len() <= MAX_QUANTITY => text.strip_prefix('+').unwrap_or(text),
        _ => return false,
    };
    let end = text.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).map(|rest| rest.strip_prefix(['+', '-']).unwrap_or(rest));
    let exponent =
        exponent.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.matches('.').count() <= 1 && digits.bytes().any(|byte| byte.is_ascii_digit());
    number && (exponent || suffix == "Ei" || SUFFIXES.contains(&suffix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quantity_is_what_kubernetes_reads_as_one() {
        for good in [
            json!("500m"),
            json!("64Mi"),
            json!("1"),
            json!("+1.5Gi"),
            json!(".5"),
            json!("1."),
            json!("1e3"),
            json!("1E-3"),
            json!("2E"),
            json!("2Ei"),
            json!(1),
            json!(0.5),
            json!(0),
        ] {
            assert!(is_quantity(&good), "{good}");
        }
        for bad in [
            json!(""),
            json!("lots"),
            json!("-1"),
            json!(-1),
            json!("1 Gi"),
            json!("1.2.3"),
            json!("."),
            json!("1KB"),
            json!("1e"),
            json!("m"),
            json!(null),
            json!(true),
            json!([1]),
            json!({}),
            json!("9".repeat(65)),
        ] {
            assert!(!is_quantity(&bad), "{bad}");
        }
    }
}
