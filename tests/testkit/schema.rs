//! The fields of a JSON schema, beside a list of those that are known.

use std::collections::BTreeSet;

use serde_json::Value;

/// The schema at `value`, which may be a reference into the document `root`, or a list of one.
fn resolved<'a>(root: &'a Value, value: &'a Value) -> &'a Value {
    let mut value = value;
    while let Some(next) = value["$ref"]
        .as_str()
        .map(|pointer| root.pointer(pointer.trim_start_matches('#')).unwrap())
        .or_else(|| value["allOf"].get(0))
    {
        value = next;
    }
    value
}

/// The fields of `schema`, a part of the document `root`, that are not `known`, and the known ones that are
/// none of it. A known field stands for all below it; `[]` is each element of a list.
pub fn differences<'a>(
    root: &Value,
    schema: &Value,
    known: impl Iterator<Item = &'a str>,
) -> (Vec<String>, Vec<&'a str>) {
    let mut unseen: BTreeSet<&str> = known.collect();
    let all = unseen.clone();
    let mut lacking = Vec::new();
    let mut open = vec![(String::new(), schema)];
    while let Some((path, value)) = open.pop() {
        let value = resolved(root, value);
        if value["type"] == "array" {
            open.push((format!("{path}[]"), &value["items"]));
            continue;
        }
        let properties = value["properties"].as_object().filter(|properties| !properties.is_empty());
        let Some(properties) = properties else {
            lacking.push(path);
            continue;
        };
        for (name, below) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if all.contains(&*path) {
                unseen.remove(&*path);
            } else {
                open.push((path, below));
            }
        }
    }
    (lacking, unseen.into_iter().collect())
}
