//! Owns objects that an API server takes and that are hard to read: deep, wide and huge, in fields that are
//! not flat, and in the metadata of every kind.
//!
//! Our own definitions have types for all of it. Those of OSM and of other versions of SMC have not, and an
//! object that they let in stays in the store.

use serde_json::{Value, json};
use smc_types::object_ref::Kind;

use super::every_kind::{api_version, in_namespaces, object, reference};
use super::witness;

/// Bytes of one object: etcd takes a write of 1.5 MiB, and the API server adds to each the names of its
/// fields.
pub(super) const OBJECT_BYTES: usize = 1024 * 1024;

/// What stands for the hostile value in the text of a spec.
const PLACE: &str = "HOSTILE";

/// An object with fields of which a lenient definition says nothing.
pub(super) struct Open {
    kind: Kind,
    /// The fields, as paths in the definition.
    fields: &'static [&'static str],
    /// The spec, with a place for the hostile value in each of the fields.
    spec: &'static str,
}

/// All of them. There is one MeshConfig of a mesh, so its object has all fields at once.
pub(super) const OPEN: [Open; 5] = [
    Open {
        kind: Kind::HttpRouteGroup,
        fields: &["spec.matches[].headers"],
        spec: r#"{"matches": [{"name": "all", "headers": HOSTILE}]}"#,
    },
    Open {
        kind: Kind::MeshConfig,
        fields: &[
            "spec.certificate.ingressGateway",
            "spec.featureFlags",
            "spec.observability.tracing",
            "spec.sidecar.resources",
            "spec.traffic.inboundExternalAuthorization",
        ],
        spec: r#"{"certificate": {"ingressGateway": {"x": HOSTILE}}, "featureFlags": {"x": HOSTILE},
            "observability": {"tracing": {"x": HOSTILE}}, "sidecar": {"resources": {"x": HOSTILE}},
            "traffic": {"inboundExternalAuthorization": {"x": HOSTILE}}}"#,
    },
    Open {
        kind: Kind::Telemetry,
        fields: &["spec.accessLog.openTelemetry"],
        spec: r#"{"accessLog": {"openTelemetry": {"x": HOSTILE,
            "extensionService": {"namespace": "shop", "name": "otel"}}}}"#,
    },
    Open {
        kind: Kind::UpstreamTrafficSetting,
        fields: &["spec.rateLimit.global"],
        spec: r#"{"host": "web.shop.svc.cluster.local", "rateLimit": {"global": {"x": HOSTILE}}}"#,
    },
    Open {
        kind: Kind::UpstreamTrafficSetting,
        fields: &["spec.httpRoutes[].rateLimit.global"],
        spec: r#"{"host": "web.shop.svc.cluster.local",
            "httpRoutes": [{"path": "/", "rateLimit": {"global": {"x": HOSTILE}}}]}"#,
    },
];

/// A way to be hard to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    /// Lists in lists.
    Lists(usize),
    /// Objects in objects.
    Objects(usize),
    /// Many times `{"":0}`, which is little text and much memory.
    Wide,
    /// One long text.
    Text,
    /// One long name.
    Name,
    /// Numbers at the edges of what numbers can be, and characters that some readers refuse.
    Odd,
}

/// All shapes. A reader of JSON commonly stops at 128 levels, and an API server at 10,000.
pub(super) const SHAPES: [Shape; 10] = [
    Shape::Lists(125),
    Shape::Lists(2_000),
    Shape::Lists(9_000),
    Shape::Objects(125),
    Shape::Objects(2_000),
    Shape::Objects(9_000),
    Shape::Wide,
    Shape::Text,
    Shape::Name,
    Shape::Odd,
];

impl Shape {
    /// Whether no reader with a bound on depth reads it.
    pub(super) fn is_deep(self) -> bool {
        matches!(self, Self::Lists(_) | Self::Objects(_))
    }

    /// The text of such a value, of at most so many bytes.
    fn value(self, bytes: usize) -> String {
        match self {
            Self::Lists(levels) => format!("{}{}", "[".repeat(levels), "]".repeat(levels)),
            Self::Objects(levels) => format!("{}0{}", r#"{"":"#.repeat(levels), "}".repeat(levels)),
            Self::Wide => format!(r#"[{}{{"":0}}]"#, r#"{"":0},"#.repeat(bytes / 8)),
            Self::Text => format!(r#""{}""#, "x".repeat(bytes - 2)),
            // The API server notes the names of all fields beside the object.
            Self::Name => format!(r#"{{"{}": 0}}"#, "x".repeat(bytes / 3)),
            Self::Odd => r#"[1e308, -0.0, 5e-324, 18446744073709551615, 1.00000000000000000001,
                "\u0000\u001f\ud83d\ude00\ufffe\u202e", {"\u0000": null}]"#
                .to_owned(),
        }
    }
}

/// An object to create: where, as what, and what it is.
pub(super) struct Hostile {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) text: String,
}

impl Hostile {
    pub(super) fn reference(&self) -> String {
        reference(self.kind, &self.namespace, &self.name)
    }

    /// The path of all objects of its kind in its namespace.
    pub(super) fn path(&self) -> String {
        witness::path(self.kind, Some(&self.namespace))
    }
}

/// The objects of a shape in a namespace, one for each row of [`OPEN`], of at most so many bytes each.
pub(super) fn of_shape(shape: Shape, namespace: &str, bytes: usize) -> Vec<Hostile> {
    let object = |(number, open): (usize, &Open)| {
        // The configuration of another namespace is no one's.
        let (namespace, name) = match open.kind {
            Kind::MeshConfig if namespace == "inside" => ("own", "osm-mesh-config".to_owned()),
            Kind::MeshConfig => (namespace, "osm-mesh-config".to_owned()),
            _ => (namespace, format!("hostile-{number}")),
        };
        let value = shape.value(bytes / open.fields.len() - 256);
        let text = format!(
            r#"{{"apiVersion": "{}", "kind": "{}", "metadata": {{"name": "{name}", "namespace": "{namespace}"}},
                "spec": {}}}"#,
            api_version(open.kind),
            open.kind,
            open.spec.replace(PLACE, &value)
        );
        Hostile { kind: open.kind, namespace: namespace.to_owned(), name, text }
    };
    OPEN.iter().enumerate().map(object).collect()
}

/// An object of each kind with as many labels and annotations as an API server takes, and with what
/// else of it can be large.
pub(super) fn of_metadata(namespace: &str) -> Vec<Hostile> {
    let object = |kind: Kind| {
        let mut object = object(kind, namespace, "hostile");
        let labels = (0..2_000).map(|number| (format!("label-{number}"), json!("value")));
        object["metadata"]["labels"] = Value::Object(labels.collect());
        let many = (0..5_000).map(|number| (format!("annotation-{number}"), json!("")));
        let huge = ("huge".to_owned(), json!("x".repeat(100 * 1024)));
        object["metadata"]["annotations"] = Value::Object(many.chain([huge]).collect());
        enlarge(kind, &mut object);
        let (namespace, name) = (namespace.to_owned(), "hostile".to_owned());
        Hostile { kind, namespace, name, text: object.to_string() }
    };
    in_namespaces().map(object).collect()
}

/// What else can be large of a kind of Kubernetes.
fn enlarge(kind: Kind, object: &mut Value) {
    let many = |count: usize, value: Value| Value::Array(vec![value; count]);
    match kind {
        Kind::Pod => {
            object.as_object_mut().unwrap().remove("status");
            object["spec"]["containers"][0]["args"] = many(100_000, json!(""));
            object["spec"]["containers"][0]["env"] =
                json!([{"name": "HUGE", "value": "x".repeat(300 * 1024)}]);
        }
        Kind::ServiceAccount => object["secrets"] = many(20_000, json!({})),
        Kind::Service => {
            let port =
                |number: u16| json!({"name": format!("p{number}"), "port": number, "targetPort": number});
            object["spec"]["ports"] = (1..1_000).map(port).collect();
        }
        Kind::EndpointSlice => {
            let endpoint =
                |number: u16| json!({"addresses": [format!("192.0.{}.{}", number / 250, number % 250 + 1)]});
            object["endpoints"] = (0..1_000).map(endpoint).collect();
        }
        _ => {}
    }
}

/// The schema of a field.
fn schema_of<'a>(schema: &'a Value, path: &str) -> &'a Value {
    let step = |schema: &'a Value, name: &str| match name.strip_suffix("[]") {
        Some(list) => &schema["properties"][list]["items"],
        None => &schema["properties"][name],
    };
    path.split('.').fold(schema, step)
}

/// A field of that name would be dropped, and its object would try nothing.
#[test]
fn the_definitions_have_every_field_with_a_hostile_value() {
    let own = smc_types::ids::MeshNamespace::new("own").unwrap();
    let definitions = smc_kubernetes::crds::definitions(&own).unwrap();
    for Open { kind, fields, .. } in OPEN {
        let of = |definition: &&smc_kubernetes::crds::Definition| {
            definition.as_json()["spec"]["names"]["kind"] == kind.as_str()
        };
        let definition = definitions.iter().find(of).unwrap().as_json();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for field in fields {
            assert!(schema_of(schema, field).is_object(), "{kind} {field}");
        }
    }
}
