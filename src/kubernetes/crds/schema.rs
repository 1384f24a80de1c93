//! What CustomResourceDefinitions demand of a schema beyond what the Rust types say.
//!
//! Owns the correction of generated schemas.

use serde_json::{Map, Value};

/// Formats that the API server knows; it warns about others, such as Rust's `uint16`.
const KNOWN_FORMATS: [&str; 5] = ["int32", "int64", "float", "double", "date-time"];

/// Makes a generated schema structural, and as strict as the readers: an absent field is not `null`.
pub(super) fn corrected(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => Value::Object(corrected_object(fields)),
        other => other,
    }
}

fn corrected_object(mut fields: Map<String, Value>) -> Map<String, Value> {
    // `Option` becomes nullable; the readers refuse null.
    fields.remove("nullable");
    if fields.get("default") == Some(&Value::Null) {
        fields.remove("default");
    }
    let unknown = |format: &Value| !format.as_str().is_some_and(|name| KNOWN_FORMATS.contains(&name));
    if fields.get("format").is_some_and(unknown) {
        fields.remove("format");
    }
    for key in ["items", "additionalProperties"] {
        if let Some(schema) = fields.remove(key) {
            fields.insert(key.to_owned(), corrected(schema));
        }
    }
    if let Some(Value::Object(properties)) = fields.remove("properties") {
        let properties = properties.into_iter().map(|(name, schema)| (name, corrected(schema))).collect();
        fields.insert("properties".to_owned(), Value::Object(properties));
    }
    if let Some(Value::String(text)) = fields.remove("description") {
        fields.insert("description".to_owned(), Value::String(one_line(&text)));
    }
    fields
}

/// A doc comment's lines as one: they are wrapped for the source.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_as_strict_as_the_readers_and_has_known_formats() {
        let generated = json!({
            "type": "object",
            "description": "two\nlines",
            "properties": {
                "nullable": {"type": "integer", "format": "uint16", "nullable": true, "maximum": 65535.0},
                "list": {"type": "array", "items": {"type": "string", "nullable": true}, "default": null},
                "format": {"type": "integer", "format": "int64"},
            },
        });
        let expected = json!({
            "type": "object",
            "description": "two lines",
            "properties": {
                "nullable": {"type": "integer", "maximum": 65535.0},
                "list": {"type": "array", "items": {"type": "string"}},
                "format": {"type": "integer", "format": "int64"},
            },
        });
        assert_eq!(corrected(generated), expected);
    }
}
