//! Owns kube-proxy's part: the backends of each service, and the node's NAT rules for virtual IPs.
//! Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use smc_types::ids::NamespacedName;
use smc_types::text::truncated;

use super::mesh_files::{MeshFiles, PodStatus};
use super::plan::container_port;

/// Longest comment that iptables takes, in bytes. `namespace/name` can have 317, all ASCII.
const MAX_COMMENT: usize = 255;

/// A service as its clients see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceView {
    /// Empty for a headless service.
    pub(super) virtual_ips: Vec<IpAddr>,
    pub(super) ports: Vec<ServicePort>,
    /// Ready backends only.
    pub(super) backends: Vec<Backend>,
}

/// One port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServicePort {
    /// `tcp` or `udp`.
    protocol: &'static str,
    port: u16,
}

/// A ready Pod, or an address of an EndpointSlice, behind a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) addresses: Vec<IpAddr>,
    /// The Pod's host name below a headless service.
    pub(super) host_name: Option<String>,
    /// Service port → backend port.
    pub(super) targets: BTreeMap<u16, u16>,
}

/// All services with their present backends.
pub(super) fn services(
    mesh: &MeshFiles,
    pods: &BTreeMap<NamespacedName, PodStatus>,
    virtual_ips: &BTreeMap<NamespacedName, Vec<IpAddr>>,
) -> BTreeMap<NamespacedName, ServiceView> {
    let view = |(name, service): (&NamespacedName, &Service)| {
        let mut backends: Vec<Backend> = mesh
            .pods
            .iter()
            .filter(|(pod_name, pod)| pod_name.namespace() == name.namespace() && selects(service, pod))
            .filter_map(|(pod_name, pod)| {
                let status = pods.get(pod_name).filter(|status| status.ready)?;
                Some(pod_backend(name, service, pod, status))
            })
            .collect();
        backends.extend(slice_backends(name, service, mesh));
        let view = ServiceView {
            virtual_ips: virtual_ips.get(name).cloned().unwrap_or_default(),
            ports: ports(service),
            backends,
        };
        (name.clone(), view)
    };
    mesh.services.iter().map(view).collect()
}

fn ports(service: &Service) -> Vec<ServicePort> {
    let spec = service.spec.as_ref();
    let ports = spec.into_iter().flat_map(|spec| spec.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let protocol = match port.protocol.as_deref().unwrap_or("TCP") {
                "TCP" => "tcp",
                "UDP" => "udp",
                _ => return None,
            };
            Some(ServicePort { protocol, port: number(port.port)? })
        })
        .collect()
}

/// A port number from 1 to 65535. iptables-restore refuses the whole table for one bad port.
fn number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|&port| port != 0)
}

fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return false };
    let labels = pod.metadata.labels.as_ref();
    selector.iter().all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value)))
}

fn pod_backend(name: &NamespacedName, service: &Service, pod: &Pod, status: &PodStatus) -> Backend {
    let pod_spec = pod.spec.as_ref();
    let targets = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).filter_map(|port| {
        let target = port.target_port.clone().unwrap_or(IntOrString::Int(port.port));
        let mut containers = pod_spec.into_iter().flat_map(|spec| &spec.containers);
        let number = containers.find_map(|container| container_port(&target, container).ok());
        Some((self::number(port.port)?, number?))
    });
    let in_subdomain = pod_spec.is_some_and(|spec| spec.subdomain.as_deref() == Some(name.name()));
    Backend {
        addresses: status.addresses.clone(),
        host_name: pod_spec.and_then(|spec| spec.hostname.clone()).filter(|_| in_subdomain),
        targets: targets.collect(),
    }
}

/// Backends from EndpointSlices in the mesh directory, for a service without a selector.
fn slice_backends(name: &NamespacedName, service: &Service, mesh: &MeshFiles) -> Vec<Backend> {
    let of_service = mesh.slices.iter().filter(|slice| {
        let labels = slice.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get("kubernetes.io/service-name")).map(String::as_str);
        let namespace = slice.metadata.namespace.as_deref().unwrap_or("default");
        label == Some(name.name()) && namespace == name.namespace()
    });
    of_service
        .flat_map(|slice| {
            let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            let targets: BTreeMap<u16, u16> = ports
                .filter_map(|port| {
                    let same = slice.ports.iter().flatten().find(|slice_port| {
                        slice_port.name.as_deref().unwrap_or_default()
                            == port.name.as_deref().unwrap_or_default()
                    })?;
                    Some((number(port.port)?, number(same.port?)?))
                })
                .collect();
            let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
                endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
            });
            ready
                .map(|endpoint| Backend {
                    addresses: endpoint.addresses.iter().filter_map(|text| text.parse().ok()).collect(),
                    host_name: endpoint.hostname.clone(),
                    targets: targets.clone(),
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Renders the node's whole NAT table for one IP family, as input of `iptables-restore`. The lab
/// owns that table.
///
/// Connections are spread over the backends at random, as kube-proxy does it: rule i of n matches
/// with probability 1/(n-i). Without a backend there is no rule, and the virtual IP is unreachable.
pub(super) fn nat_table(services: &BTreeMap<NamespacedName, ServiceView>, ipv6: bool) -> String {
    let mut text =
        String::from("*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n");
    let mut hairpins = Vec::new();
    for (name, view) in services {
        let comment = truncated(&name.to_string(), MAX_COMMENT);
        for virtual_ip in view.virtual_ips.iter().filter(|ip| ip.is_ipv6() == ipv6) {
            for ServicePort { protocol, port } in &view.ports {
                let targets: Vec<(&IpAddr, u16)> = view
                    .backends
                    .iter()
                    .filter_map(|backend| {
                        let address = backend.addresses.iter().find(|ip| ip.is_ipv6() == ipv6)?;
                        Some((address, *backend.targets.get(port)?))
                    })
                    .collect();
                for (index, (address, target)) in targets.iter().enumerate() {
                    let left = targets.len() - index;
                    let chance = if left == 1 {
                        String::new()
                    } else {
                        // `probability` takes a decimal fraction; six digits are precise enough.
                        let millionths = 1_000_000 / left;
                        format!(" -m statistic --mode random --probability 0.{millionths:06}")
                    };
                    let destination = std::net::SocketAddr::new(**address, *target);
                    for chain in ["PREROUTING", "OUTPUT"] {
                        let _ = writeln!(
                            text,
                            "-A {chain} -d {virtual_ip} -p {protocol} --dport {port} -m comment --comment \
                             \"{comment}\"{chance} -j DNAT --to-destination {destination}"
                        );
                    }
                    hairpins.push(**address);
                }
            }
        }
    }
    hairpins.sort();
    hairpins.dedup();
    for address in hairpins {
        // A Pod that reaches itself through a service would see packets from its own address, and
        // drop them.
        let _ = writeln!(text, "-A POSTROUTING -s {address} -d {address} -j MASQUERADE");
    }
    text.push_str("COMMIT\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESH: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: http}, {port: 53, protocol: UDP, name: dns}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, command: [x], ports: [{name: http, containerPort: 8080}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, command: [x], ports: [{name: http, containerPort: 9090}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: c, namespace: other, labels: {app: web}}
spec: {containers: [{name: c, command: [x]}]}
";

    fn rules(ready: &[&str]) -> Vec<String> {
        let files = BTreeMap::from([("m.yaml".to_owned(), MESH.as_bytes().to_vec())]);
        let mesh = MeshFiles::parse(&files);
        let pods = mesh
            .pods
            .keys()
            .zip(2..)
            .map(|(name, number)| {
                let status = PodStatus {
                    addresses: vec![IpAddr::from([10, 244, 0, number])],
                    running: true,
                    ready: ready.contains(&name.name()),
                    proxy_uuid: None,
                };
                (name.clone(), status)
            })
            .collect();
        let web = NamespacedName::new("shop", "web").unwrap();
        let ips = BTreeMap::from([(web, vec![IpAddr::from([10, 96, 0, 10])])]);
        let text = nat_table(&services(&mesh, &pods, &ips), false);
        text.lines().filter(|line| line.starts_with("-A PREROUTING")).map(str::to_owned).collect()
    }

    #[test]
    fn ready_pods_of_the_namespace_share_the_virtual_ip_by_port_name() {
        let rules = rules(&["a", "b", "c"]);
        assert_eq!(rules.len(), 4, "{rules:#?}");
        assert_eq!(
            rules[0],
            "-A PREROUTING -d 10.96.0.10 -p tcp --dport 80 -m comment --comment \"shop/web\" -m statistic --mode \
             random --probability 0.500000 -j DNAT --to-destination 10.244.0.3:8080"
        );
        assert!(rules[1].ends_with("\"shop/web\" -j DNAT --to-destination 10.244.0.4:9090"), "{}", rules[1]);
        assert!(
            rules[3].contains("-p udp --dport 53") && rules[3].ends_with("10.244.0.4:53"),
            "{}",
            rules[3]
        );
    }

    #[test]
    fn objects_that_iptables_would_refuse_do_not_affect_other_rules() {
        let (namespace, name) = ("x".repeat(63), "x".repeat(253));
        let mesh = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec: {{ports: [{{port: 80, name: a}}, {{port: 81, name: b}}, {{port: 0, name: c}}, {{port: 70000, name: d}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: slice, namespace: {namespace}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: a, port: 0}}, {{name: b, port: 8081}}, {{name: c, port: 8082}}, {{name: d, port: 8083}}]
endpoints: [{{addresses: [10.1.2.3]}}]
"
        );
        let files = BTreeMap::from([("m.yaml".to_owned(), mesh.into_bytes())]);
        let mesh = MeshFiles::parse(&files);
        let name = NamespacedName::new(&namespace, &name).unwrap();
        let ips = BTreeMap::from([(name, vec![IpAddr::from([10, 96, 0, 10])])]);
        let text = nat_table(&services(&mesh, &BTreeMap::new(), &ips), false);
        let rules: Vec<&str> = text.lines().filter(|line| line.starts_with("-A PREROUTING")).collect();
        let [rule] = &rules[..] else { panic!("{text}") };
        assert!(rule.contains("--dport 81") && rule.ends_with("10.1.2.3:8081"), "{rule}");
        assert_eq!(rule.split('"').nth(1).map(str::len), Some(MAX_COMMENT), "{rule}");
    }

    #[test]
    fn a_pod_that_is_not_ready_gets_nothing() {
        assert!(rules(&["b"]).iter().all(|rule| rule.contains("10.244.0.4")));
        assert_eq!(rules(&[]), Vec::<String>::new());
    }
}
