//! Owns the meshes of the tests, as the YAML that a user would write.

use std::fmt::Write as _;
use std::path::Path;

/// The files of a mesh directory, by name.
#[derive(Default)]
pub(crate) struct Mesh {
    files: Vec<(String, String)>,
}

impl Mesh {
    /// Two clients, `clients/alice` and `clients/bob`; a server in two versions, `servers/web-v1`
    /// and `servers/web-v2`, behind the services `web` (both), `web-v1`, `web-v2`, on the ports 80
    /// (HTTP), 90 (gRPC), 443 and 444 (the application's own TLS), 7000 (TCP), 7001, 7002 and 3306
    /// (TCP, the server speaks first; one says so, one has the name of such a protocol, one its
    /// number); a headless service `peers` for the same servers, which clients reach at the pods' own
    /// ports 8080 and 7000; a pod outside the mesh, `outside/stranger`. No policy: every call is denied.
    pub(crate) fn web() -> Self {
        let mut mesh = Self::default();
        for (namespace, monitored) in [("clients", true), ("servers", true), ("outside", false)] {
            mesh.add(&format!("namespace-{namespace}.yaml"), &self::namespace(namespace, monitored));
        }
        for (namespace, name, app) in [
            ("clients", "alice", "alice"),
            ("clients", "bob", "bob"),
            ("servers", "web-v1", "web"),
            ("servers", "web-v2", "web"),
            ("outside", "stranger", "stranger"),
        ] {
            mesh.add(&format!("pod-{name}.yaml"), &pod(namespace, name, app));
        }
        mesh.add("service-web.yaml", &service("servers", "web", "app: web"));
        mesh.add("service-web-v1.yaml", &service("servers", "web-v1", "version: web-v1"));
        mesh.add("service-web-v2.yaml", &service("servers", "web-v2", "version: web-v2"));
        mesh.add("service-peers.yaml", PEERS);
        mesh.add("service-alice.yaml", &service("clients", "alice", "app: alice"));
        mesh
    }

    /// [`Self::web`], of which alice may use every HTTP route, and port 7000.
    pub(crate) fn open_to_alice() -> Self {
        // Two targets: in one, the TCPRoute's ports would also limit the HTTP routes.
        Self::web()
            .with("any.yaml", &any_route())
            .with("lines.yaml", &tcp_route("lines", &[7000]))
            .with("alice.yaml", &allow("alice", "alice", &["HTTPRouteGroup/any"]))
            .with("alice-tcp.yaml", &allow("alice-tcp", "alice", &["TCPRoute/lines"]))
    }

    /// Adds a file, or replaces it.
    pub(crate) fn add(&mut self, file: &str, yaml: &str) -> &mut Self {
        self.files.retain(|(name, _)| name != file);
        self.files.push((file.to_owned(), yaml.to_owned()));
        self
    }

    /// Adds a file; returns the mesh.
    pub(crate) fn with(mut self, file: &str, yaml: &str) -> Self {
        self.add(file, yaml);
        self
    }

    /// Writes all files.
    pub(crate) fn write(&self, directory: &Path) {
        for (name, text) in &self.files {
            std::fs::write(directory.join(name), text).unwrap();
        }
    }
}

pub(crate) fn namespace(name: &str, monitored: bool) -> String {
    let label = if monitored { "  labels:\n    openservicemesh.io/monitored-by: smc\n" } else { "" };
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n{label}")
}

/// A pod that serves every protocol, with a service account of its own name.
pub(crate) fn pod(namespace: &str, name: &str, app: &str) -> String {
    format!(
        "apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}, namespace: {namespace}}}
---
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{app: {app}, version: {name}}}
spec:
  serviceAccountName: {name}
  containers:
    - name: echo
      command: [smc-lab, echo, --http, '8080', --grpc, '9090', --https, '8443', --tcp, '7000', --tcp-server-first, '7001', --name, {name}]
      ports:
        - {{name: web, containerPort: 8080}}
      readinessProbe:
        tcpSocket: {{port: 8080}}
"
    )
}

pub(crate) fn service(namespace: &str, name: &str, selector: &str) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {{{selector}}}
  ports:
    - {{name: http, port: 80, targetPort: web}}
    - {{name: grpc, port: 90, targetPort: 9090}}
    - {{name: https-own, port: 443, targetPort: 8443}}
    - {{name: tls, port: 444, targetPort: 8443}}
    - {{name: tcp-lines, port: 7000}}
    - {{name: greeting, port: 7001, appProtocol: tcp-server-first}}
    - {{name: mysql, port: 7002, targetPort: 7001}}
    - {{name: db, port: 3306, targetPort: 7001}}
"
    )
}

const PEERS: &str = "apiVersion: v1
kind: Service
metadata: {name: peers, namespace: servers}
spec:
  clusterIP: None
  selector: {app: web}
  ports:
    - {name: http, port: 80, targetPort: web}
    - {name: tcp-lines, port: 70, targetPort: 7000}
";

/// MeshConfig with the permissive mode on or off.
pub(crate) fn mesh_config(permissive: bool) -> String {
    traffic(&format!("enablePermissiveTrafficPolicyMode: {permissive}"))
}

/// MeshConfig with egress on or off.
pub(crate) fn egress(enabled: bool) -> String {
    traffic(&format!("enableEgress: {enabled}"))
}

fn traffic(field: &str) -> String {
    settings(&format!("traffic: {{{field}}}"))
}

/// MeshConfig with this section.
pub(crate) fn settings(section: &str) -> String {
    format!(
        "apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: {{name: osm-mesh-config, namespace: smc-system}}
spec:
  {section}
"
    )
}

/// An HTTPRouteGroup in `servers` with the given matches.
pub(crate) fn routes(name: &str, matches: &str) -> String {
    format!(
        "apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {{name: {name}, namespace: servers}}
spec:
  matches:
{matches}
"
    )
}

/// A TCPRoute in `servers`.
pub(crate) fn tcp_route(name: &str, ports: &[u16]) -> String {
    format!(
        "apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {{name: {name}, namespace: servers}}
spec:
  matches: {{ports: {ports:?}}}
"
    )
}

/// A TrafficTarget in `servers` for each of the two versions of `web`: `client` may use `rules`,
/// each `Kind/name` or `Kind/name:match,match`.
pub(crate) fn allow(name: &str, client: &str, rules: &[&str]) -> String {
    let mut rule_text = String::new();
    for rule in rules {
        let (reference, matches) = rule.split_once(':').unwrap_or((rule, ""));
        let (kind, name) = reference.split_once('/').unwrap();
        let matches = if matches.is_empty() { String::new() } else { format!(", matches: [{matches}]") };
        writeln!(rule_text, "    - {{kind: {kind}, name: {name}{matches}}}").unwrap();
    }
    let mut text = String::new();
    for version in ["web-v1", "web-v2"] {
        write!(
            text,
            "---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {{name: {name}-{version}, namespace: servers}}
spec:
  destination: {{kind: ServiceAccount, name: {version}, namespace: servers}}
  sources:
    - {{kind: ServiceAccount, name: {client}, namespace: clients}}
  rules:
{rule_text}"
        )
        .unwrap();
    }
    text
}

/// A TrafficSplit of `web` in `servers`.
pub(crate) fn split(name: &str, backends: &[(&str, u32)], matches: &[&str]) -> String {
    let mut text = format!(
        "apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {{name: {name}, namespace: servers}}
spec:
  service: web
  backends:
"
    );
    for (service, weight) in backends {
        writeln!(text, "    - {{service: {service}, weight: {weight}}}").unwrap();
    }
    if !matches.is_empty() {
        writeln!(text, "  matches:").unwrap();
        for group in matches {
            writeln!(text, "    - {{kind: HTTPRouteGroup, name: {group}}}").unwrap();
        }
    }
    text
}

/// An HTTPRouteGroup of every path, method and header.
pub(crate) fn any_route() -> String {
    routes("any", "    - {name: any, pathRegex: '.*', methods: ['*']}")
}

/// A Retry of alice's calls to `web-v1`, with this policy.
pub(crate) fn retry(policy: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1
kind: Retry
metadata: {{name: retry, namespace: clients}}
spec:
  source: {{kind: ServiceAccount, name: alice, namespace: clients}}
  destinations: [{{kind: Service, name: web-v1, namespace: servers}}]
  retryPolicy: {{{policy}}}
"
    )
}

/// An UpstreamTrafficSetting of `web-v1` with these connection settings.
pub(crate) fn connection_settings(settings: &str) -> String {
    upstream_setting("web-v1", &format!("connectionSettings: {{{settings}}}"))
}

/// An UpstreamTrafficSetting of a service in `servers` with these lines of its `spec`.
pub(crate) fn upstream_setting(service: &str, lines: &str) -> String {
    format!(
        "apiVersion: policy.openservicemesh.io/v1alpha1
kind: UpstreamTrafficSetting
metadata: {{name: {service}, namespace: servers}}
spec:
  host: {service}.servers.svc.cluster.local
  {lines}
"
    )
}
