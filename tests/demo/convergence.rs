//! Whether a sidecar has taken a new configuration, as `smc proxy config NAMESPACE/POD -o json` tells: everything sent is
//! acknowledged, and what was sent is not what was sent before. Pure; the caller asks again and again.
//!
//! Reads the objects `sent` and `acked` (resource name → version) wherever they stand side by side in the document, one
//! pair per resource type, and ignores all else.

use serde_json::Value;

/// The versions sent and acknowledged, in the order of the document.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyConfig {
    pairs: Vec<(Value, Value)>,
}

/// Why the output of `smc proxy config` could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProxyConfigError {
    /// Not JSON.
    #[error("`smc proxy config` did not print JSON")]
    Json(#[from] serde_json::Error),
    /// JSON, but not what we know.
    #[error("`smc proxy config` printed no object with both `sent` and `acked`")]
    Schema,
}

impl ProxyConfig {
    /// Reads the command's output.
    pub fn parse(json: &str) -> Result<Self, ProxyConfigError> {
        let document: Value = serde_json::from_str(json)?;
        let mut pairs = Vec::new();
        collect(&document, &mut pairs);
        if pairs.is_empty() {
            return Err(ProxyConfigError::Schema);
        }
        Ok(Self { pairs })
    }

    /// Whether this is a newer configuration than `before`, and the sidecar has acknowledged all of it.
    pub fn has_converged_since(&self, before: &Self) -> bool {
        let sent = |config: &Self| config.pairs.iter().map(|(sent, _)| sent.clone()).collect::<Vec<_>>();
        self.pairs.iter().all(|(sent, acked)| sent == acked) && sent(self) != sent(before)
    }
}

/// serde_json bounds the depth of a document, so this recursion is bounded too.
fn collect(value: &Value, pairs: &mut Vec<(Value, Value)>) {
    match value {
        Value::Object(fields) => {
            if let (Some(sent), Some(acked)) = (fields.get("sent"), fields.get("acked")) {
                pairs.push((sent.clone(), acked.clone()));
            }
            fields.values().for_each(|value| collect(value, pairs));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, pairs)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(routes_sent: &str, routes_acked: &str) -> ProxyConfig {
        ProxyConfig::parse(
            &serde_json::json!({ "proxy": "x", "types": {
                "clusters": { "sent": {"a": "1"}, "acked": {"a": "1"} },
                "routes": { "sent": {"rds": routes_sent}, "acked": {"rds": routes_acked}, "rejected": {} },
            }})
            .to_string(),
        )
        .unwrap()
    }

    #[test]
    fn converged_is_changed_and_acknowledged() {
        let before = config("1", "1");
        for (now, converged) in
            [(config("1", "1"), false), (config("2", "1"), false), (config("2", "2"), true)]
        {
            assert_eq!(now.has_converged_since(&before), converged, "{now:?}");
        }
    }

    #[test]
    fn what_is_no_proxy_config_is_an_error() {
        assert!(matches!(ProxyConfig::parse("nothing"), Err(ProxyConfigError::Json(_))));
        assert!(matches!(ProxyConfig::parse("{\"sent\": {}}"), Err(ProxyConfigError::Schema)));
    }
}
