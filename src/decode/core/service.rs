//! `v1` Service: a name, virtual addresses, ports and what each speaks.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use smc_api::address::check_port_name;
use smc_model::topology::{Service, ServicePort, SessionAffinity, TargetPort};
use smc_types::ids::check_label;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading};
use smc_types::text::truncated;

use super::address::one_per_family;
use super::{coverage, namespaced, port, protocol};

/// Ports of one service. Each becomes a listener and a cluster in every sidecar that may reach it; the API
/// sets no limit, and ordinary services stay far below this one.
const MAX_PORTS: usize = 256;

/// Reads a Service. An `ExternalName` service has neither addresses nor pods: it is reported and refused.
pub fn read_service(service: &core::Service) -> Reading<Service> {
    let (id, subject) = match namespaced(Kind::Service, &service.metadata) {
        Ok(named) => named,
        Err(unusable) => return unusable,
    };
    let empty = core::ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&empty);
    let mut problems = Vec::new();
    match spec.type_.as_deref() {
        None | Some("ClusterIP" | "NodePort" | "LoadBalancer") => {}
        Some("ExternalName") => {
            let message = "ExternalName services have no endpoints in the mesh; left out";
            problems.push(Problem::warning(subject, "spec.type", message));
            return Reading { object: None, problems };
        }
        Some(other) => {
            let shown = truncated(other, 40);
            problems.push(Problem::error(subject, "spec.type", format!("unknown type {shown:?}; left out")));
            return Reading { object: None, problems };
        }
    }
    let (cluster_ips, headless) = read_cluster_ips(&subject, spec, &mut problems);
    let ports = read_ports(&subject, spec.ports.as_deref().unwrap_or_default(), headless, &mut problems);
    let selector = spec.selector.clone().unwrap_or_default();
    let affinity = read_affinity(&subject, spec, &mut problems);
    coverage::report(&subject, spec, &mut problems);
    let service = Service { id: id.into(), cluster_ips, headless, selector, ports, affinity };
    Reading { object: Some(service), problems }
}

fn read_affinity(
    subject: &ObjectRef,
    spec: &core::ServiceSpec,
    problems: &mut Vec<Problem>,
) -> SessionAffinity {
    match spec.session_affinity.as_deref() {
        None | Some("" | "None") => SessionAffinity::None,
        Some("ClientIP") => SessionAffinity::ClientIp,
        Some(other) => {
            let shown = truncated(other, 40);
            let message = format!("{shown:?} is none of None, ClientIP; callers are spread over all pods");
            problems.push(Problem::error(subject, "spec.sessionAffinity", message));
            SessionAffinity::None
        }
    }
}

/// The virtual addresses, and whether the service asks to have none.
fn read_cluster_ips(
    subject: &ObjectRef,
    spec: &core::ServiceSpec,
    problems: &mut Vec<Problem>,
) -> (Vec<IpAddr>, bool) {
    let single = spec.cluster_ip.as_deref().filter(|text| !text.is_empty());
    let list: Vec<&str> = spec.cluster_ips.iter().flatten().map(String::as_str).collect();
    let (field, texts) = if list.is_empty() {
        ("spec.clusterIP", single.into_iter().collect())
    } else {
        if single.is_some_and(|single| list.first() != Some(&single)) {
            let message = "differs from the first of spec.clusterIPs, which is used";
            problems.push(Problem::warning(subject, "spec.clusterIP", message));
        }
        ("spec.clusterIPs", list)
    };
    if texts.first() == Some(&"None") {
        if texts.len() > 1 {
            let message = "None must be alone: the service is headless and the addresses are left out";
            problems.push(Problem::error(subject, field, message));
        }
        return (Vec::new(), true);
    }
    (one_per_family(subject, field, texts.into_iter(), problems), false)
}

fn read_ports(
    subject: &ObjectRef,
    declared: &[core::ServicePort],
    headless: bool,
    problems: &mut Vec<Problem>,
) -> Vec<ServicePort> {
    let carried = declared.iter().filter(|port| port::is_tcp(port.protocol.as_deref())).count();
    let mut numbers = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut ports = Vec::new();
    for (index, declared) in declared.iter().enumerate() {
        if ports.len() == MAX_PORTS {
            let message = format!("more than {MAX_PORTS} ports; those from here on are left out");
            problems.push(Problem::error(subject, format!("spec.ports[{index}]"), message));
            break;
        }
        let mut reader = PortReader { subject, index, problems };
        let Some(port) = reader.read(declared, headless) else { continue };
        if port.name.is_none() && carried > 1 {
            reader.error(
                "name",
                "missing, which is valid only for the single port of a service; left out".to_owned(),
            );
        } else if !numbers.insert(port.port) {
            reader.error("port", format!("{} is used by an earlier port; left out", port.port));
        } else if let Some(name) = port.name.as_ref().filter(|name| !names.insert((*name).clone())) {
            reader.error("name", format!("{name} is used by an earlier port; left out"));
        } else {
            ports.push(port);
        }
    }
    ports
}

/// Reads one port and reports under its path.
struct PortReader<'a> {
    subject: &'a ObjectRef,
    index: usize,
    problems: &'a mut Vec<Problem>,
}

impl PortReader<'_> {
    fn field(&self, name: &str) -> String {
        format!("spec.ports[{}].{name}", self.index)
    }

    fn error(&mut self, field: &str, message: String) {
        let field = self.field(field);
        self.problems.push(Problem::error(self.subject, field, message));
    }

    fn warning(&mut self, field: &str, message: String) {
        let field = self.field(field);
        self.problems.push(Problem::warning(self.subject, field, message));
    }

    fn read(&mut self, declared: &core::ServicePort, headless: bool) -> Option<ServicePort> {
        match declared.protocol.as_deref() {
            None | Some("TCP") => {}
            Some(transport @ ("UDP" | "SCTP")) => {
                self.warning("protocol", format!("the mesh does not carry {transport}; left out"));
                return None;
            }
            Some(other) => {
                let shown = truncated(other, 40);
                self.error("protocol", format!("{shown:?} is none of TCP, UDP, SCTP; left out"));
                return None;
            }
        }
        let Some(port) = port::read_number(declared.port) else {
            self.error("port", format!("{} is not a port number (1 to 65535); left out", declared.port));
            return None;
        };
        let name = declared.name.as_deref().filter(|name| !name.is_empty());
        if let Some(name) = name
            && let Err(error) = check_label("port name", name)
        {
            self.error("name", format!("{error}; left out"));
            return None;
        }
        let target = self.read_target(declared.target_port.as_ref(), port)?;
        if headless
            && let TargetPort::Number(number) = target
            && number != port
        {
            let message = format!(
                "differs from port: nothing translates ports on the way to the pods of a headless service, so its \
                 clients connect to {number}"
            );
            self.warning("targetPort", message);
        }
        let (protocol, known) = protocol::of_port(declared.app_protocol.as_deref(), name, port);
        if !known {
            let shown: String = declared.app_protocol.iter().flat_map(|text| text.chars()).take(60).collect();
            let message = format!("{shown:?} is unknown; by the port's name and number it is {protocol:?}");
            self.warning("appProtocol", message);
        }
        Some(ServicePort { name: name.map(str::to_owned), port, target, protocol })
    }

    fn read_target(&mut self, declared: Option<&IntOrString>, port: u16) -> Option<TargetPort> {
        match declared {
            // 0 and "" are how the API encodes "not given" (Service API: identity with `port`).
            None | Some(IntOrString::Int(0)) => Some(TargetPort::Number(port)),
            Some(IntOrString::String(text)) if text.is_empty() => Some(TargetPort::Number(port)),
            Some(IntOrString::Int(number)) => {
                let target = port::read_number(*number).map(TargetPort::Number);
                if target.is_none() {
                    self.error("targetPort", format!("{number} is not a port number (1 to 65535); left out"));
                }
                target
            }
            Some(IntOrString::String(text)) => match check_port_name(text) {
                Ok(()) => Some(TargetPort::Name(text.clone())),
                Err(reason) => {
                    let shown = truncated(text, 60);
                    self.error("targetPort", format!("{shown:?} {reason}; left out"));
                    None
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_types::problem::Severity::{Error, Warning};
    use smc_types::proxy_class::AppProtocol;

    use super::super::testing::{fields, object};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "every call passes a literal")]
    fn read(spec: Value) -> Reading<Service> {
        read_service(&object(json!({"metadata": {"name": "store", "namespace": "shop"}, "spec": spec})))
    }

    fn tcp(name: Option<&str>, port: u16, target: TargetPort, protocol: AppProtocol) -> ServicePort {
        ServicePort { name: name.map(str::to_owned), port, target, protocol }
    }

    #[test]
    fn a_service_has_its_addresses_selector_and_ports() {
        let reading = read(json!({
            "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"],
            "selector": {"app": "store"},
            "ports": [
                {"name": "http", "port": 80, "targetPort": 8080},
                {"name": "grpc-api", "port": 81, "targetPort": "api"},
                {"name": "db", "port": 3306, "appProtocol": "tcp-server-first"},
            ],
        }));
        assert_eq!(reading.problems, []);
        let service = reading.object.unwrap();
        assert_eq!(service.id.to_string(), "shop/store");
        assert_eq!(service.cluster_ips, ["10.96.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]);
        assert!(!service.headless);
        assert_eq!(service.selector, [("app".to_owned(), "store".to_owned())].into());
        assert_eq!(
            service.ports,
            [
                tcp(Some("http"), 80, TargetPort::Number(8080), AppProtocol::Http),
                tcp(Some("grpc-api"), 81, TargetPort::Name("api".to_owned()), AppProtocol::Http2),
                tcp(Some("db"), 3306, TargetPort::Number(3306), AppProtocol::TcpServerFirst),
            ]
        );
    }

    #[test]
    fn cluster_ips_stand_over_cluster_ip_and_none_means_headless() {
        for (spec, addresses, headless, problems) in [
            (json!({}), vec![], false, vec![]),
            (json!({"clusterIP": ""}), vec![], false, vec![]),
            (json!({"clusterIP": "10.0.0.1"}), vec!["10.0.0.1"], false, vec![]),
            (json!({"clusterIP": "None"}), vec![], true, vec![]),
            (json!({"clusterIP": "None", "clusterIPs": ["None"]}), vec![], true, vec![]),
            (json!({"clusterIPs": ["None", "10.0.0.1"]}), vec![], true, vec![(Error, "spec.clusterIPs")]),
            (json!({"clusterIPs": ["fd00::1"]}), vec!["fd00::1"], false, vec![]),
            (
                json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]}),
                vec!["10.0.0.2"],
                false,
                vec![(Warning, "spec.clusterIP")],
            ),
            (json!({"clusterIP": "bookstore"}), vec![], false, vec![(Error, "spec.clusterIP[0]")]),
            (
                json!({"clusterIPs": ["10.0.0.1", "10.0.0.2"]}),
                vec!["10.0.0.1"],
                false,
                vec![(Error, "spec.clusterIPs[1]")],
            ),
        ] {
            let reading = read(spec.clone());
            assert_eq!(fields(&reading.problems), problems, "{spec}");
            let service = reading.object.unwrap();
            let read: Vec<String> = service.cluster_ips.iter().map(IpAddr::to_string).collect();
            assert_eq!(
                (read, service.headless),
                (addresses.into_iter().map(str::to_owned).collect(), headless),
                "{spec}"
            );
        }
    }

    #[test]
    fn a_port_that_cannot_be_carried_is_reported_and_the_others_stand() {
        let good = json!({"name": "good", "port": 80});
        for (bad, field, severity) in [
            (json!({"name": "x", "port": 0}), "spec.ports[1].port", Error),
            (json!({"name": "x"}), "spec.ports[1].port", Error),
            (json!({"name": "x", "port": 65536}), "spec.ports[1].port", Error),
            (json!({"name": "x", "port": -80}), "spec.ports[1].port", Error),
            (json!({"name": "x", "port": 80}), "spec.ports[1].port", Error),
            (json!({"name": "good", "port": 81}), "spec.ports[1].name", Error),
            (json!({"name": "Bad_Name", "port": 81}), "spec.ports[1].name", Error),
            (json!({"name": "x", "port": 81, "targetPort": 70000}), "spec.ports[1].targetPort", Error),
            (json!({"name": "x", "port": 81, "targetPort": "8080"}), "spec.ports[1].targetPort", Error),
            (json!({"name": "x", "port": 81, "targetPort": "Über"}), "spec.ports[1].targetPort", Error),
            (json!({"name": "x", "port": 81, "protocol": "tcp"}), "spec.ports[1].protocol", Error),
            (json!({"name": "x", "port": 81, "protocol": "UDP"}), "spec.ports[1].protocol", Warning),
            (json!({"name": "x", "port": 80, "protocol": "SCTP"}), "spec.ports[1].protocol", Warning),
        ] {
            let reading = read(json!({"ports": [good, bad]}));
            assert_eq!(fields(&reading.problems), [(severity, field)], "{bad}");
            let ports = reading.object.unwrap().ports;
            assert_eq!(ports, [tcp(Some("good"), 80, TargetPort::Number(80), AppProtocol::Http)], "{bad}");
        }
    }

    #[test]
    fn only_a_single_tcp_port_may_go_without_a_name() {
        assert_eq!(read(json!({"ports": [{"port": 80}]})).problems, []);
        let beside_udp = read(json!({"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}));
        assert_eq!(fields(&beside_udp.problems), [(Warning, "spec.ports[1].protocol")]);
        assert_eq!(beside_udp.object.unwrap().ports.len(), 1);
        let two = read(json!({"ports": [{"port": 80}, {"port": 81, "name": "b"}]}));
        assert_eq!(fields(&two.problems), [(Error, "spec.ports[0].name")]);
        assert_eq!(two.object.unwrap().ports.len(), 1);
    }

    #[test]
    fn an_unknown_app_protocol_is_a_warning_and_the_name_decides() {
        let reading =
            read(json!({"ports": [{"name": "tcp-db", "port": 80, "appProtocol": "example.com/x"}]}));
        assert_eq!(fields(&reading.problems), [(Warning, "spec.ports[0].appProtocol")]);
        assert_eq!(reading.object.unwrap().ports[0].protocol, AppProtocol::Tcp);
    }

    #[test]
    fn a_headless_service_whose_target_port_differs_is_told_so() {
        let differs = json!({"clusterIP": "None", "ports": [{"port": 80, "targetPort": 8080}]});
        assert_eq!(fields(&read(differs).problems), [(Warning, "spec.ports[0].targetPort")]);
        for same in [json!(80), json!("web"), json!(null)] {
            let spec = json!({"clusterIP": "None", "ports": [{"port": 80, "targetPort": same}]});
            assert_eq!(read(spec).problems, []);
        }
    }

    #[test]
    fn a_service_keeps_its_callers_at_a_pod_only_if_it_says_so() {
        use SessionAffinity::{ClientIp, None as Spread};
        for (spec, affinity, problems) in [
            (json!({}), Spread, vec![]),
            (json!({"sessionAffinity": ""}), Spread, vec![]),
            (json!({"sessionAffinity": "None"}), Spread, vec![]),
            (json!({"sessionAffinity": "ClientIP"}), ClientIp, vec![]),
            (json!({"sessionAffinity": "clientip"}), Spread, vec![(Error, "spec.sessionAffinity")]),
        ] {
            let reading = read(spec.clone());
            assert_eq!(fields(&reading.problems), problems, "{spec}");
            assert_eq!(reading.object.unwrap().affinity, affinity, "{spec}");
        }
    }

    #[test]
    fn external_name_and_unknown_types_are_left_out_and_said_to_be() {
        let external = read(json!({"type": "ExternalName", "externalName": "example.com"}));
        assert_eq!((external.object, fields(&external.problems)), (None, vec![(Warning, "spec.type")]));
        let unknown = read(json!({"type": "Magic"}));
        assert_eq!((unknown.object, fields(&unknown.problems)), (None, vec![(Error, "spec.type")]));
    }

    #[test]
    fn more_ports_than_a_sidecar_should_carry_are_cut_off() {
        let ports: Vec<Value> = (1..=300).map(|n| json!({"name": format!("p{n}"), "port": n})).collect();
        let reading = read(json!({ "ports": ports }));
        assert_eq!(fields(&reading.problems), [(Error, "spec.ports[256]")]);
        assert_eq!(reading.object.unwrap().ports.len(), MAX_PORTS);
    }
}
