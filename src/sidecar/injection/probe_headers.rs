//! The headers of a request that the sidecar makes for a probe.
//!
//! Owns which these are: those that the probe declares, and what the kubelet adds to every probe. None comes
//! from the request at the probes' port.

use serde_json::Value;
use smc_types::header_name::{is_header_name, is_of_a_connection};

/// The most bytes of a value that Envoy's configuration takes.
const MAX_VALUE: usize = 16_384;

/// What the kubelet sends with every probe that does not declare another value. The version of the kubelet is
/// not known here.
const PRESET: [(&str, &str); 2] = [("user-agent", "kube-probe/smc"), ("accept", "*/*")];

/// The headers of a probe, by name in lower case, in the order in which the probe declares them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Headers {
    declared: Vec<(String, String)>,
}

impl Headers {
    /// The `httpHeaders` of an `httpGet`. Of what no HTTP client sends, nothing. The kubelet's sends some of
    /// what belongs to its connection to the sidecar; to the application, Envoy decides on that.
    pub(super) fn read(get: &Value) -> Self {
        let declared = get["httpHeaders"].as_array().into_iter().flatten().filter_map(|header| {
            let name = header["name"].as_str()?.to_ascii_lowercase();
            let value = header["value"].as_str().unwrap_or_default().trim_matches([' ', '\t']);
            (name.len() <= MAX_VALUE
                && is_header_name(&name)
                && is_value(value)
                && !is_of_a_connection(&name))
            .then(|| (name, value.to_owned()))
        });
        Self { declared: declared.collect() }
    }

    /// The host that the probe declares.
    pub(super) fn host(&self) -> Option<&str> {
        self.values("host").next().filter(|host| !host.is_empty())
    }

    /// All others of the request.
    pub(super) fn others(&self) -> impl Iterator<Item = (&str, &str)> {
        let preset = PRESET.into_iter().filter(|(name, _)| self.values(name).next().is_none());
        let declared = self.declared.iter().map(|(name, value)| (&**name, &**value));
        // The kubelet's way to say that a header of its own is not sent.
        let unset = |(name, value): &(&str, &str)| {
            PRESET.iter().any(|(preset, _)| preset == name) && value.is_empty()
        };
        declared.filter(|(name, _)| *name != "host").filter(move |header| !unset(header)).chain(preset)
    }

    /// How many bytes the kubelet sends for those that are declared, about.
    pub(super) fn len(&self) -> usize {
        self.declared.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
    }

    fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.declared.iter().filter(move |(declared, _)| declared == name).map(|(_, value)| &**value)
    }
}

/// The value of a header (RFC 9110 §5.5).
fn is_value(text: &str) -> bool {
    text.len() <= MAX_VALUE && text.bytes().all(|byte| byte == b'\t' || byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_application_gets_what_the_probe_declares_and_what_every_probe_has() {
        let preset = "user-agent: kube-probe/smc, accept: */*";
        for (declared, host, others) in [
            (json!([]), None, preset.to_owned()),
            (json!([["X-Probe", "1"]]), None, format!("x-probe: 1, {preset}")),
            (json!([["A", "1"], ["a", "2"]]), None, format!("a: 1, a: 2, {preset}")),
            (json!([["Host", "shop"], ["host", "other"]]), Some("shop"), preset.to_owned()),
            (
                json!([["Accept", " text/html "]]),
                None,
                "accept: text/html, user-agent: kube-probe/smc".to_owned(),
            ),
            (json!([["Accept", ""], ["X", ""]]), None, "x: , user-agent: kube-probe/smc".to_owned()),
            // What would say where the request ends, and what no client sends.
            (
                json!([["Transfer-Encoding", "chunked"], ["Content-Length", "5"], ["Upgrade", "h2c"]]),
                None,
                preset.to_owned(),
            ),
            (
                json!([
                    ["a b", "1"],
                    ["", "1"],
                    [":path", "/x"],
                    ["b", "1\r\nc: 2"],
                    ["c", "x".repeat(20_000)]
                ]),
                None,
                preset.to_owned(),
            ),
            (json!(7), None, preset.to_owned()),
        ] {
            let list: Value = declared.as_array().map_or(Value::Null, |list| {
                list.iter().map(|one| json!({"name": one[0], "value": one[1]})).collect()
            });
            let headers = Headers::read(&json!({"httpHeaders": list}));
            let said: Vec<_> = headers.others().map(|(name, value)| format!("{name}: {value}")).collect();
            assert_eq!((headers.host(), said.join(", ")), (host, others), "{declared}");
        }
    }
}
