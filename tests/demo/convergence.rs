//! Decides whether a sidecar has converged to new routes, from `smc proxy config NAMESPACE/POD -o
//! json`: it has acknowledged everything sent, and its routes differ from those before. Pure; the
//! caller polls.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The resource types that carry routes, and so a TrafficSplit. Changes of certificates or
/// endpoints do not count.
const ROUTE_TYPES: [&str; 2] = ["rds", "lds"];

/// The resources that a sidecar was sent and has acknowledged. Unused fields are left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProxyConfig {
    streams: Vec<StreamConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct StreamConfig {
    types: Vec<TypeConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct TypeConfig {
    r#type: String,
    resources: Vec<ResourceConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ResourceConfig {
    name: String,
    sent: String,
    acked: String,
}

impl ProxyConfig {
    /// Parses the command's output.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Returns true if this sidecar has acknowledged everything sent to it, and has other routes
    /// than `before`. False for a sidecar that is not connected or has no routes.
    pub fn has_converged_since(&self, before: &Self) -> bool {
        let routes = self.routes();
        let mut resources = self.types().flat_map(|of_type| &of_type.resources);
        !routes.is_empty()
            && routes != before.routes()
            && resources.all(|resource| resource.sent == resource.acked)
    }

    fn types(&self) -> impl Iterator<Item = &TypeConfig> {
        self.streams.iter().flat_map(|stream| &stream.types)
    }

    /// The versions of the resources that carry routes, by name.
    fn routes(&self) -> BTreeMap<&str, &str> {
        self.types()
            .filter(|of_type| ROUTE_TYPES.contains(&of_type.r#type.as_str()))
            .flat_map(|of_type| &of_type.resources)
            .map(|resource| (resource.name.as_str(), resource.sent.as_str()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(routes: (&str, &str), endpoints: (&str, &str)) -> ProxyConfig {
        let of_type = |kind: &str, (sent, acked): (&str, &str)| {
            serde_json::json!({
                "type": kind, "wildcard": false, "subscribed": ["a"],
                "resources": [{ "name": "a", "sent": sent, "acked": acked, "rejected": "", "rejection": "" }],
            })
        };
        let streams = serde_json::json!([
            { "stream": { "variant": "delta" }, "types": [of_type("eds", endpoints), of_type("rds", routes)] },
        ]);
        ProxyConfig::parse(&serde_json::json!({ "proxy": {}, "streams": streams }).to_string()).unwrap()
    }

    #[test]
    fn converged_is_new_routes_and_everything_acknowledged() {
        let before = config(("1", "1"), ("1", "1"));
        for (now, converged) in [
            (config(("1", "1"), ("1", "1")), false),
            (config(("2", "1"), ("1", "1")), false),
            (config(("1", "1"), ("2", "2")), false),
            (config(("2", "2"), ("2", "1")), false),
            (config(("2", "2"), ("1", "1")), true),
            (config(("2", "2"), ("2", "2")), true),
            (ProxyConfig { streams: Vec::new() }, false),
        ] {
            assert_eq!(now.has_converged_since(&before), converged, "{now:?}");
        }
    }

    #[test]
    fn text_that_is_not_a_proxy_config_is_an_error() {
        for text in ["nothing", "{}", "{\"streams\": [{}]}"] {
            assert!(ProxyConfig::parse(text).is_err(), "{text}");
        }
    }
}
