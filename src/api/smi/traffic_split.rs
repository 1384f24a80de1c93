//! `split.smi-spec.io` TrafficSplit, v1alpha1 to v1alpha4: traffic to a root service goes to leaf services
//! by weight.
//!
//! Owns its fields and the conversion of weights. A backend that cannot be read is left out, as if it had
//! no weight; a split whose `matches` cannot be read is left out whole, or it would split everything.

pub mod schema;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use smc_types::ids::{NamespacedName, ServiceId, check_label};
use smc_types::object_ref::Kind;
use smc_types::problem::Reading;
use smc_types::text::truncated;

use crate::kind::{Column, CustomKind, effective, schema as schema_of};
use crate::object::Object;
use crate::reading::{Findings, Node, mismatch};
use crate::service_name::FullName;

/// The kind.
pub const KIND: CustomKind = CustomKind {
    schemas: &[
        schema_of::<schema::TrafficSplitSpec>,
        schema_of::<schema::TrafficSplitSpec>,
        schema_of::<schema::TrafficSplitV1Alpha2Spec>,
        schema_of::<schema::TrafficSplitV1Alpha1Spec>,
    ],
    example: |_| json!({"service": "web", "backends": [{"service": "web-v1", "weight": 1}]}),
    read: |object| {
        let Some(version) = SplitVersion::named(object.version) else {
            return Reading { object: None, problems: Vec::new() };
        };
        effective(read_traffic_split(object.id, version, object.spec), Object::TrafficSplit)
    },
    short_name: Some("ts"),
    category: "smi",
    columns: &[Column::text("Service", ".spec.service")],
    is_converted: true,
    ..CustomKind::new(Kind::TrafficSplit)
};

/// The most backends and HTTPRouteGroups of one split.
const MAX_BACKENDS: usize = 256;
const MAX_MATCHES: usize = 32;
/// The largest weight. Envoy demands that the sum stays within 32 bits: 256 backends of this do.
pub(super) const MAX_WEIGHT: u32 = 10_000_000;

/// A split of a root service's traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficSplit {
    /// The name of the object.
    pub id: NamespacedName,
    /// The service that clients speak to, in the split's namespace.
    pub root: ServiceId,
    /// Where the traffic goes, in declared order; names are unique.
    pub backends: Vec<Backend>,
    /// HTTPRouteGroups in the split's namespace: only requests that match any of their matches are split,
    /// the rest goes to the root itself. Empty: everything is split.
    pub matches: Vec<NamespacedName>,
    /// The domains of services' full names in it, other than Kubernetes' usual `cluster.local`. Reading takes
    /// any; the split has an effect only if they are the mesh's own (`Catalog::new` of `smc_mesh`).
    pub domains: BTreeSet<String>,
}

/// One leaf of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// The leaf service, in the split's namespace. It may not exist (yet), and may be the root itself.
    pub service: ServiceId,
    /// Its share, relative to the sum of all; at most ten million. Zero is legal.
    pub weight: u32,
}

/// The API version a split was written in: its weights differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SplitVersion {
    /// Weights are Kubernetes quantities (`500m`, `1`).
    V1Alpha1,
    /// Weights are whole numbers.
    V1Alpha2,
    /// Weights are whole numbers; `matches` appears.
    V1Alpha3,
    /// As v1alpha3.
    V1Alpha4,
}

impl SplitVersion {
    /// The version of this name, such as `v1alpha2`.
    pub fn named(version: &str) -> Option<Self> {
        match version {
            "v1alpha1" => Some(Self::V1Alpha1),
            "v1alpha2" => Some(Self::V1Alpha2),
            "v1alpha3" => Some(Self::V1Alpha3),
            "v1alpha4" => Some(Self::V1Alpha4),
            _ => None,
        }
    }
}

/// Reads the `spec` of a TrafficSplit of the given version.
pub fn read_traffic_split(id: NamespacedName, version: SplitVersion, spec: Value) -> Reading<TrafficSplit> {
    let mut findings = Findings::new(Kind::TrafficSplit, id.clone());
    let split = read(id, version, Node::spec(spec), &mut findings);
    findings.into_reading(split)
}

fn read(
    id: NamespacedName,
    version: SplitVersion,
    spec: Node,
    findings: &mut Findings,
) -> Option<TrafficSplit> {
    let mut spec = spec.object(findings)?;
    let mut domains = BTreeSet::new();
    let root = spec.require("service", findings);
    let root = root.and_then(|node| read_service(&id, node, &mut domains, findings));
    let backends_path = spec.path("backends");
    let nodes = spec.require("backends", findings).and_then(|node| node.list(MAX_BACKENDS, findings));
    let mut backends: Vec<Backend> = Vec::new();
    let mut seen = BTreeSet::new();
    for node in nodes.into_iter().flatten() {
        let path = node.path.clone();
        let Some(backend) = read_backend(&id, version, node, &mut domains, findings) else { continue };
        if seen.insert(backend.service.clone()) {
            backends.push(backend);
        } else {
            let message = format!("is {} again; only its first entry counts", backend.service);
            findings.error(&format!("{path}.service"), message);
        }
    }
    let matches = match (version, spec.take("matches")) {
        (_, None) => Some(Vec::new()),
        (SplitVersion::V1Alpha1 | SplitVersion::V1Alpha2, Some(node)) => {
            // The author meant only some requests, which those versions cannot express.
            findings.error(&node.path, "belongs to v1alpha3 and later; the split has no effect");
            None
        }
        (_, Some(node)) => read_matches(&id, node, findings),
    };
    spec.finish(findings);
    if backends.is_empty() {
        findings.error(&backends_path, "names no backend that can be used; the split has no effect");
        return None;
    }
    Some(TrafficSplit { root: root?, backends, matches: matches?, domains, id })
}

/// A service in the split's namespace: its bare name, or one of its host names. OSM's documents list
/// `NAME.NAMESPACE`, and that with `.svc`, `.svc.cluster` and `.svc.cluster.local`. Where the mesh has
/// another domain, OSM takes `.svc.DOMAIN`.
fn read_service(
    split: &NamespacedName,
    node: Node,
    domains: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> Option<ServiceId> {
    let path = node.path.clone();
    let text = node.text(findings)?;
    let own = split.namespace();
    let in_own = |full: &FullName<'_>| full.namespace == own;
    let found = match text.split_once('.') {
        None => Some((&*text, None)),
        Some((name, namespace)) if namespace == own => Some((name, None)),
        Some(_) => FullName::parse(&text).filter(in_own).map(|full| (full.name, full.domain)),
    };
    let Some((name, domain)) = found else {
        let message = format!(
            "is {:?}, which is no service of namespace {own}: NAME, NAME.{own} or NAME.{own}.svc.cluster.local",
            truncated(&text, 80)
        );
        findings.error(&path, message);
        return None;
    };
    domains.extend(domain.map(str::to_owned));
    let service = check_label("service name", name).and_then(|()| ServiceId::new(split.namespace(), name));
    service.map_err(|error| findings.error(&path, error.to_string())).ok()
}

fn read_backend(
    split: &NamespacedName,
    version: SplitVersion,
    node: Node,
    domains: &mut BTreeSet<String>,
    findings: &mut Findings,
) -> Option<Backend> {
    let mut fields = node.object(findings)?;
    let service = fields.require("service", findings);
    let service = service.and_then(|node| read_service(split, node, domains, findings));
    let weight = fields.require("weight", findings).and_then(|node| match version {
        SplitVersion::V1Alpha1 => read_quantity(&node, findings),
        _ => read_weight(&node, findings),
    });
    fields.finish(findings);
    Some(Backend { service: service?, weight: weight? })
}

/// A whole number. JSON writers that know only floating point write `50.0`, which is one too.
fn read_weight(node: &Node, findings: &mut Findings) -> Option<u32> {
    let whole = node.value.as_u64().or_else(|| {
        let weight = node.value.as_f64().filter(|weight| weight.fract() == 0.0)?;
        (0.0..=f64::from(MAX_WEIGHT)).contains(&weight).then(|| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the range was checked"
            )]
            let weight = weight as u64;
            weight
        })
    });
    let weight = whole.and_then(|weight| u32::try_from(weight).ok()).filter(|&weight| weight <= MAX_WEIGHT);
    let wanted = || format!("a whole number from 0 to {MAX_WEIGHT}");
    weight.or_else(|| mismatch(findings, &node.path, &wanted(), &node.value))
}

/// A Kubernetes quantity, in thousandths: `1` is 1000, `500m` is 500. Finer shares are refused rather than
/// rounded to nothing.
fn read_quantity(node: &Node, findings: &mut Findings) -> Option<u32> {
    let text = match &node.value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => return mismatch(findings, &node.path, "a quantity such as 500m or 1", other),
    };
    let weight = milli(&text).and_then(|weight| u32::try_from(weight).ok()).filter(|&w| w <= MAX_WEIGHT);
    let wanted = || format!("a quantity from 0 to {} in steps of 1m", MAX_WEIGHT / 1000);
    weight.or_else(|| mismatch(findings, &node.path, &wanted(), &node.value))
}

/// The thousandths of a quantity with the suffixes a weight may sensibly have.
pub(super) fn milli(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix('m') {
        Some(digits) => (digits, 1),
        None => match text.strip_suffix('k') {
            Some(digits) => (digits, 1_000_000),
            None => (text, 1000),
        },
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    // Nine digits keep every product below within 64 bits.
    if whole.is_empty()
        || whole.len() > 9
        || fraction.len() > 9
        || !all_digits(whole)
        || !all_digits(fraction)
    {
        return None;
    }
    let scale = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let scaled = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let value = scaled.checked_add(fraction)?.checked_mul(unit)?;
    (value % scale == 0).then(|| value / scale)
}

/// `None` if any entry cannot be read.
fn read_matches(split: &NamespacedName, node: Node, findings: &mut Findings) -> Option<Vec<NamespacedName>> {
    let nodes = node.list(MAX_MATCHES, findings)?;
    let groups: Vec<_> = nodes.into_iter().map(|node| read_group(split, node, findings)).collect();
    let groups = groups.into_iter().collect::<Option<BTreeSet<NamespacedName>>>()?;
    Some(groups.into_iter().collect())
}

fn read_group(split: &NamespacedName, node: Node, findings: &mut Findings) -> Option<NamespacedName> {
    let path = node.path.clone();
    let mut fields = node.object(findings)?;
    let kind = fields.require("kind", findings).and_then(|node| node.text(findings));
    let name = fields.require("name", findings).and_then(|node| node.text(findings));
    // The published CRD takes the API group as well; it can be only one.
    if let Some(node) = fields.take("apiGroup") {
        node.text(findings)?;
    }
    fields.finish(findings);
    let (kind, name) = (kind?, name?);
    if kind != "HTTPRouteGroup" {
        findings.error(&format!("{path}.kind"), format!("must be HTTPRouteGroup, not {kind:?}"));
        return None;
    }
    let name = NamespacedName::new(split.namespace(), &name);
    name.map_err(|error| findings.error(&format!("{path}.name"), error.to_string())).ok()
}

#[cfg(test)]
mod tests {

    use super::*;

    fn read(version: SplitVersion, spec: Value) -> Reading<TrafficSplit> {
        read_traffic_split("shop/split".parse().unwrap(), version, spec)
    }

    fn weights(version: SplitVersion, one: &Value, two: &Value) -> Vec<u32> {
        let backends = json!([{"service": "v1", "weight": one}, {"service": "v2", "weight": two}]);
        let reading = read(version, json!({"service": "root", "backends": backends}));
        reading.object.map(|split| split.backends.iter().map(|b| b.weight).collect()).unwrap_or_default()
    }

    #[test]
    fn weights_of_every_version_are_converted_to_the_same_shares() {
        use SplitVersion::{V1Alpha1, V1Alpha2, V1Alpha3, V1Alpha4};
        for version in [V1Alpha2, V1Alpha3, V1Alpha4] {
            assert_eq!(weights(version, &json!(90), &json!(10.0)), [90, 10]);
            assert_eq!(weights(version, &json!(0), &json!(1)), [0, 1]);
        }
        assert_eq!(weights(V1Alpha1, &json!("900m"), &json!("0.1")), [900, 100]);
        assert_eq!(weights(V1Alpha1, &json!(1), &json!("1k")), [1000, 1_000_000]);
        assert_eq!(weights(V1Alpha1, &json!("0"), &json!("1.5")), [0, 1500]);
    }

    #[test]
    fn a_weight_that_is_no_weight_takes_its_backend_out_and_is_named() {
        for (version, bad) in [
            (SplitVersion::V1Alpha2, json!(-1)),
            (SplitVersion::V1Alpha2, json!(0.5)),
            (SplitVersion::V1Alpha2, json!("50")),
            (SplitVersion::V1Alpha4, json!(10_000_001)),
            (SplitVersion::V1Alpha4, json!(1e300)),
            (SplitVersion::V1Alpha4, json!(null)),
            (SplitVersion::V1Alpha1, json!("-1")),
            (SplitVersion::V1Alpha1, json!("0.5m")),
            (SplitVersion::V1Alpha1, json!("1e3")),
            (SplitVersion::V1Alpha1, json!("10.")),
            (SplitVersion::V1Alpha1, json!("m")),
            (SplitVersion::V1Alpha1, json!("99999999999")),
            (SplitVersion::V1Alpha1, json!([])),
        ] {
            let expected: &[u32] = match (version, &bad) {
                (_, Value::String(text)) if text == "10." => &[10_000, 1000],
                (SplitVersion::V1Alpha1, _) => &[1000],
                _ => &[1],
            };
            assert_eq!(weights(version, &bad, &json!(1)), expected, "{bad}");
        }
        let backends = json!([{"service": "v1", "weight": -1}, {"service": "v2", "weight": 1}]);
        let reading = read(SplitVersion::V1Alpha4, json!({"service": "root", "backends": backends}));
        assert_eq!(reading.problems[0].field, "spec.backends[0].weight");
        assert_eq!(reading.problems[0].subject.to_string(), "TrafficSplit shop/split");
    }

    #[test]
    fn a_split_names_a_service_by_any_host_name_in_its_namespace() {
        let root = |name: &str| {
            let backends = json!([{"service": "v1", "weight": 1}]);
            let reading = read(SplitVersion::V1Alpha4, json!({"service": name, "backends": backends}));
            let fields = reading.problems.into_iter().map(|problem| problem.field).collect::<Vec<_>>();
            (reading.object.map(|split| (split.root, split.domains)), fields)
        };
        let domains = |domain: &str| BTreeSet::from([domain.to_owned()]);
        for (good, expected) in [
            ("root", BTreeSet::new()),
            ("root.shop", BTreeSet::new()),
            ("root.shop.svc", BTreeSet::new()),
            ("root.shop.svc.cluster", BTreeSet::new()),
            ("root.shop.svc.cluster.local", BTreeSet::new()),
            ("root.shop.svc.mesh.example.com", domains("mesh.example.com")),
            ("root.shop.svc.example", domains("example")),
        ] {
            let split = ("shop/root".parse().unwrap(), expected);
            assert_eq!(root(good), (Some(split), vec![]), "{good}");
        }
        for bad in [
            "",
            "root.other",
            "root.",
            ".shop",
            "Root",
            "root.shop.shop",
            "root.shop.",
            "root.shop.svc.",
            "root.shop.svc.cluster.local.",
            "root.shop.svc.Example",
            "root.shop.svc.a..b",
            "root.other.svc",
            "root.shop.pod.cluster.local",
            "root.shop.cluster.local",
            "a.root.shop.svc.cluster.local",
        ] {
            assert_eq!(root(bad), (None, vec!["spec.service".to_owned()]), "{bad}");
        }
    }

    #[test]
    fn of_two_backends_with_one_name_only_the_first_counts() {
        let backends = json!([{"service": "v1", "weight": 1}, {"service": "v1.shop", "weight": 9}]);
        let reading = read(SplitVersion::V1Alpha4, json!({"service": "root", "backends": backends}));
        assert_eq!(reading.object.unwrap().backends.len(), 1);
        assert_eq!(reading.problems[0].field, "spec.backends[1].service");
    }

    /// Without its matches it would split every request.
    #[test]
    fn matches_that_cannot_be_read_take_the_split_out_of_effect() {
        let spec = |matches: &Value| {
            let backends = json!([{"service": "v1", "weight": 1}]);
            json!({"service": "root", "backends": backends, "matches": matches})
        };
        let good = json!({"kind": "HTTPRouteGroup", "name": "canary"});
        let reading = read(SplitVersion::V1Alpha4, spec(&json!([good, good])));
        assert_eq!(reading.object.unwrap().matches, ["shop/canary".parse().unwrap()]);
        for bad in [
            json!([good, {"kind": "TCPRoute", "name": "x"}]),
            json!([{"kind": "HTTPRouteGroup"}]),
            json!([{"kind": "HTTPRouteGroup", "name": "A B"}]),
            json!(null),
            json!("canary"),
        ] {
            assert_eq!(read(SplitVersion::V1Alpha4, spec(&bad)).object, None, "{bad}");
        }
        assert_eq!(read(SplitVersion::V1Alpha2, spec(&json!([good]))).object, None);
        assert_eq!(read(SplitVersion::V1Alpha3, spec(&json!([]))).object.unwrap().matches, []);
    }

    #[test]
    fn a_split_without_root_or_backends_has_no_effect() {
        for (spec, field) in [
            (json!({"backends": [{"service": "v1", "weight": 1}]}), "spec.service"),
            (json!({"service": "root"}), "spec.backends"),
            (json!({"service": "root", "backends": []}), "spec.backends"),
            (json!({"service": "root", "backends": [{"service": "v1"}]}), "spec.backends[0].weight"),
            (json!(null), "spec"),
        ] {
            let reading = read(SplitVersion::V1Alpha4, spec.clone());
            assert_eq!(reading.object, None, "{spec}");
            assert_eq!(reading.problems[0].field, field, "{spec}");
        }
    }
}
