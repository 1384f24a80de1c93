//! Objects as the server sends them.
//!
//! Owns names and content. What tells two contents of a kind apart is a number, the mark; [`shown`] is as
//! much of it as the mesh reads.

use smc_types::kind::Kind;

use super::history::{Form, Held, Key, OWN};

/// The name of a namespace.
pub fn namespace_name(number: u16) -> String {
    if number == OWN { "own".to_owned() } else { format!("n{number}") }
}

/// The number of the namespace of this name.
pub fn namespace_number(name: &str) -> Option<u16> {
    if name == "own" { Some(OWN) } else { name.strip_prefix('n')?.parse().ok() }
}

/// The name of an object.
pub fn object_name(kind: Kind, key: Key) -> String {
    match kind {
        Kind::Namespace => namespace_name(key.0),
        // No other one counts.
        Kind::MeshConfig => "osm-mesh-config".to_owned(),
        _ => format!("o{}", key.1),
    }
}

/// The key of an object of this namespace and name.
pub fn key(kind: Kind, namespace: &str, name: &str) -> Option<Key> {
    let object = if kind == Kind::MeshConfig { 0 } else { name.strip_prefix('o')?.parse().ok()? };
    Some((namespace_number(namespace)?, object))
}

/// What the mesh reads of a mark. A Namespace says little, and a ServiceAccount nothing but its name.
pub fn shown(kind: Kind, mark: u32) -> u32 {
    match kind {
        Kind::Namespace => mark % 3,
        Kind::ServiceAccount => 0,
        _ => mark,
    }
}

/// An address that shows a mark.
fn address(mark: u32) -> String {
    let [_, a, b, c] = mark.to_be_bytes();
    format!("10.{a}.{b}.{c}")
}

/// An object as JSON. The items of a list of Kubernetes' own kinds do not say what they are.
pub(super) fn json(kind: Kind, api_version: &str, key: Key, held: Held, whole: bool) -> String {
    let name = object_name(kind, key);
    let version = held.version;
    let head =
        if whole { format!(r#""kind":"{kind}","apiVersion":"{api_version}","#) } else { String::new() };
    let namespace = if kind == Kind::Namespace {
        String::new()
    } else {
        format!(r#""namespace":"{}","#, namespace_name(key.0))
    };
    let more = metadata(kind, held);
    let rest = rest(kind, key, held);
    format!(
        r#"{{{head}"metadata":{{"name":"{name}",{namespace}"uid":"u-{kind}-{name}","resourceVersion":"{version}","generation":{},"managedFields":[{{"manager":"m","fieldsV1":{{"f:spec":{{}}}}}}]{more}}}{rest}}}"#,
        held.mark
    )
}

/// Further metadata.
fn metadata(kind: Kind, held: Held) -> String {
    let refused = held.form == Form::Refused;
    match kind {
        Kind::Namespace => {
            let label = match (held.form, held.mark % 2) {
                (Form::Good, _) => r#","labels":{"openservicemesh.io/monitored-by":"smc","tier":"a"}"#,
                (_, 0) => r#","labels":{"openservicemesh.io/monitored-by":"osm"}"#,
                (_, _) => "",
            };
            let annotations = match shown(kind, held.mark) {
                0 => r#""note":"a""#,
                1 => r#""openservicemesh.io/sidecar-injection":"enabled""#,
                _ => r#""openservicemesh.io/sidecar-injection":"disabled""#,
            };
            format!(r#"{label},"annotations":{{{annotations}}}"#)
        }
        Kind::Pod if refused => r#","labels":{"osm-proxy-uuid":"none"}"#.to_owned(),
        Kind::Pod => r#","labels":{"app":"a"}"#.to_owned(),
        Kind::EndpointSlice if refused => String::new(),
        Kind::EndpointSlice => r#","labels":{"kubernetes.io/service-name":"o1"}"#.to_owned(),
        _ => String::new(),
    }
}

/// What follows the metadata.
fn rest(kind: Kind, key: Key, held: Held) -> String {
    match held.form {
        Form::Good | Form::Outside => good(kind, key, held.mark),
        Form::Refused => match kind {
            Kind::Service => r#","spec":{"type":"ExternalName","externalName":"a.example"}"#.to_owned(),
            Kind::Pod | Kind::EndpointSlice => good(kind, key, held.mark),
            Kind::TcpRoute | Kind::UdpRoute => r#","spec":{"matches":{"ports":[0]}}"#.to_owned(),
            Kind::MeshConfig => r#","spec":"none""#.to_owned(),
            _ => r#","spec":{}"#.to_owned(),
        },
        Form::Misshapen => r#","spec":7"#.to_owned(),
        Form::Deep(levels) => {
            let levels = usize::from(levels);
            format!(r#","spec":{}{}"#, "[".repeat(levels), "]".repeat(levels))
        }
        // It is not drawn.
        Form::Written(_) => String::new(),
        Form::Wide(values) => format!(r#","spec":[{}0]"#, r#"{"a":"b"},"#.repeat(usize::from(values))),
    }
}

/// A content that every reader takes.
fn good(kind: Kind, key: Key, mark: u32) -> String {
    let ip = address(mark);
    match kind {
        Kind::Namespace => r#","spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}"#.to_owned(),
        Kind::ServiceAccount => String::new(),
        Kind::Service => format!(
            r#","spec":{{"type":"ClusterIP","clusterIP":"{ip}","clusterIPs":["{ip}"],"selector":{{"app":"a"}},"ports":[{{"name":"http","port":80,"targetPort":8080}}]}}"#
        ),
        Kind::Pod => format!(
            r#","spec":{{"serviceAccountName":"o1","containers":[{{"name":"main","image":"i","ports":[{{"name":"http","containerPort":8080}}]}}],"volumes":[{{"name":"v"}}]}},"status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"conditions":[{{"type":"Ready","status":"True"}}]}}"#
        ),
        Kind::EndpointSlice => format!(
            r#","addressType":"IPv4","endpoints":[{{"addresses":["{ip}"],"conditions":{{"ready":true}}}}],"ports":[{{"name":"http","port":8080,"protocol":"TCP"}}]"#
        ),
        Kind::MeshWorkload => {
            format!(r#","spec":{{"serviceAccountName":"o1","services":["o1"],"addresses":["{ip}"]}}"#)
        }
        Kind::TrafficTarget => format!(
            r#","spec":{{"destination":{{"kind":"ServiceAccount","name":"o1"}},"sources":[{{"kind":"ServiceAccount","name":"s{mark}","namespace":"{}"}}],"rules":[{{"kind":"TCPRoute","name":"o1"}}]}}"#,
            namespace_name(key.0)
        ),
        Kind::HttpRouteGroup => {
            format!(r#","spec":{{"matches":[{{"name":"m{mark}","pathRegex":"/a","methods":["GET"]}}]}}"#)
        }
        Kind::TcpRoute | Kind::UdpRoute => {
            format!(r#","spec":{{"matches":{{"ports":[{mark}]}}}}"#)
        }
        Kind::TrafficSplit => {
            format!(r#","spec":{{"service":"o1","backends":[{{"service":"o2","weight":{mark}}}]}}"#)
        }
        Kind::Egress => format!(
            r#","spec":{{"sources":[{{"kind":"ServiceAccount","name":"o1","namespace":"{}"}}],"hosts":["a.example"],"ports":[{{"number":{mark},"protocol":"https"}}]}}"#,
            namespace_name(key.0)
        ),
        Kind::IngressBackend => format!(
            r#","spec":{{"backends":[{{"name":"o1","port":{{"number":{mark},"protocol":"http"}}}}],"sources":[{{"kind":"IPRange","name":"10.0.0.0/8"}}]}}"#
        ),
        Kind::Retry => format!(
            r#","spec":{{"source":{{"kind":"ServiceAccount","name":"o1","namespace":"{namespace}"}},"destinations":[{{"kind":"Service","name":"o1","namespace":"{namespace}"}}],"retryPolicy":{{"retryOn":"5xx","perTryTimeout":"{mark}ms"}}}}"#,
            namespace = namespace_name(key.0)
        ),
        Kind::UpstreamTrafficSetting => format!(
            r#","spec":{{"host":"o1.{}.svc.cluster.local","connectionSettings":{{"tcp":{{"maxConnections":{mark}}}}}}}"#,
            namespace_name(key.0)
        ),
        // Beside the sidecar, where nothing can be read on the way.
        Kind::MeshRootCertificate => {
            format!(r#","spec":{{"trustDomain":"m{mark}","provider":{{"tresor":{{}}}}}}"#)
        }
        Kind::ExtensionService => format!(r#","spec":{{"host":"127.0.0.1","port":{mark}}}"#),
        Kind::Telemetry => {
            format!(r#","spec":{{"selector":{{"mark":"{mark}"}},"accessLog":{{}}}}"#)
        }
        Kind::MeshConfig => {
            format!(r#","spec":{{"traffic":{{"outboundPortExclusionList":[{mark}]}}}}"#)
        }
    }
}
