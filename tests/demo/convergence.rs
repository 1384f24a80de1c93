//! Whether a sidecar has taken new routes, as `smc proxy config NAMESPACE/POD -o json` tells: everything sent is
//! acknowledged, and its routes are not the ones it had before. Pure; the caller asks again and again.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The types of resources that carry routes, and so a split. A certificate or an endpoint that changes meanwhile is not
/// what we wait for.
const ROUTE_TYPES: [&str; 2] = ["rds", "lds"];

/// What a sidecar was sent and has acknowledged. Fields that we don't need are left out.
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
    /// Reads the command's output.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Whether this sidecar has acknowledged all it was sent, and that has other routes than `before`. A sidecar that is
    /// not connected, or has no routes, has not.
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

    /// The versions of what carries routes, by name.
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
    fn what_is_no_proxy_config_is_an_error() {
        for text in ["nothing", "{}", "{\"streams\": [{}]}"] {
            assert!(ProxyConfig::parse(text).is_err(), "{text}");
        }
    }
}
