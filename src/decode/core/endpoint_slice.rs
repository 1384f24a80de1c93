//! `discovery.k8s.io/v1` EndpointSlice: endpoints of a service that another controller has found.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1 as discovery;
use smc_api::address::read_address;
use smc_model::topology::{EndpointSlice, Readiness, SliceEndpoint, SlicePort};
use smc_types::ids::{NamespacedName, ServiceId, WorkloadId};
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::problem::{Problem, Reading};
use smc_types::text::truncated;

use super::{namespaced, port};

/// The label that names a slice's service.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The label that names the controller of a slice, and its value of Kubernetes' own that follows pods.
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const FOLLOWS_PODS: &str = "endpointslice-controller.k8s.io";

/// Endpoints of one slice (the API's own limit).
const MAX_ENDPOINTS: usize = 1_000;
/// Ports of one slice, and addresses of one endpoint (the API's own limits).
const MAX_PORTS: usize = 100;
const MAX_ADDRESSES: usize = 100;

/// Reads an EndpointSlice.
///
/// A slice with an unknown service or address type is refused; single ports, endpoints and addresses that
/// cannot be used are left out.
pub fn read_endpoint_slice(slice: &discovery::EndpointSlice) -> Reading<EndpointSlice> {
    let (id, subject) = match namespaced(Kind::EndpointSlice, &slice.metadata) {
        Ok(named) => named,
        Err(unusable) => return unusable,
    };
    let mut reader = Reader { subject, problems: Vec::new() };
    let object = reader.read(id, slice);
    Reading { object, problems: reader.problems }
}

struct Reader {
    subject: ObjectRef,
    problems: Vec<Problem>,
}

impl Reader {
    fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::error(&self.subject, field, message));
    }

    fn warning(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::warning(&self.subject, field, message));
    }

    fn read(&mut self, id: NamespacedName, slice: &discovery::EndpointSlice) -> Option<EndpointSlice> {
        let service = self.read_service(&id, slice)?;
        let label = |name: &str| slice.metadata.labels.as_ref().and_then(|labels| labels.get(name));
        let follows_pods = label(MANAGED_BY_LABEL).is_some_and(|manager| manager == FOLLOWS_PODS);
        let ipv4 = match slice.address_type.as_str() {
            "IPv4" => true,
            "IPv6" => false,
            "FQDN" => {
                self.warning("addressType", "the mesh does not resolve FQDN endpoints; left out");
                return None;
            }
            other => {
                let shown = truncated(other, 40);
                self.error("addressType", format!("{shown:?} is neither IPv4 nor IPv6; left out"));
                return None;
            }
        };
        let ports = self.read_ports(slice.ports.as_deref().unwrap_or_default());
        let declared = slice.endpoints.as_deref().unwrap_or_default();
        if declared.len() > MAX_ENDPOINTS {
            self.error("endpoints", format!("more than {MAX_ENDPOINTS} endpoints; the rest is left out"));
        }
        let endpoints = declared
            .iter()
            .take(MAX_ENDPOINTS)
            .enumerate()
            .filter_map(|(index, endpoint)| self.read_endpoint(&id, ipv4, index, endpoint))
            .collect();
        Some(EndpointSlice { id, service, follows_pods, ports, endpoints })
    }

    fn read_service(&mut self, id: &NamespacedName, slice: &discovery::EndpointSlice) -> Option<ServiceId> {
        let field = format!("metadata.labels[{SERVICE_NAME_LABEL}]");
        let Some(name) = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME_LABEL))
        else {
            self.error(field, "missing, so the slice belongs to no service; left out");
            return None;
        };
        match ServiceId::new(id.namespace(), name) {
            Ok(service) => Some(service),
            Err(error) => {
                self.error(field, format!("{error}; left out"));
                None
            }
        }
    }

    fn read_ports(&mut self, declared: &[discovery::EndpointPort]) -> Vec<SlicePort> {
        if declared.len() > MAX_PORTS {
            self.error("ports", format!("more than {MAX_PORTS} ports; the rest is left out"));
        }
        let mut ports: Vec<SlicePort> = Vec::new();
        for (index, declared) in declared.iter().take(MAX_PORTS).enumerate() {
            // UDP and SCTP are reported where a Service declares them.
            if !port::is_tcp(declared.protocol.as_deref()) {
                continue;
            }
            let Some(number) = declared.port else {
                self.warning(format!("ports[{index}].port"), "missing, which means every port; left out");
                continue;
            };
            let Some(port) = port::read_number(number) else {
                self.error(
                    format!("ports[{index}].port"),
                    format!("{number} is not a port number (1 to 65535); left out"),
                );
                continue;
            };
            let name = declared.name.clone().filter(|name| !name.is_empty());
            if ports.iter().any(|other| other.name == name) {
                self.error(format!("ports[{index}].name"), "is used by an earlier port; left out");
                continue;
            }
            ports.push(SlicePort { name, port });
        }
        ports
    }

    fn read_endpoint(
        &mut self,
        slice: &NamespacedName,
        ipv4: bool,
        index: usize,
        endpoint: &discovery::Endpoint,
    ) -> Option<SliceEndpoint> {
        if endpoint.addresses.len() > MAX_ADDRESSES {
            let message = format!("more than {MAX_ADDRESSES} addresses; the rest is left out");
            self.error(format!("endpoints[{index}].addresses"), message);
        }
        let mut addresses = Vec::new();
        for (i, text) in endpoint.addresses.iter().take(MAX_ADDRESSES).enumerate() {
            let refusal = match read_address(text) {
                Ok(address) if address.is_ipv4() != ipv4 => "is not of the slice's addressType",
                Ok(address) => {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                    continue;
                }
                Err(refusal) => refusal,
            };
            let shown = truncated(text, 60);
            self.error(
                format!("endpoints[{index}].addresses[{i}]"),
                format!("{shown:?} {refusal}; left out"),
            );
        }
        if addresses.is_empty() {
            return None;
        }
        let readiness = endpoint.conditions.as_ref().map_or(Readiness::Ready, read_conditions);
        let workload = endpoint.target_ref.as_ref().and_then(|target| self.read_target(slice, index, target));
        Some(SliceEndpoint { addresses, readiness, workload })
    }

    /// The pod behind an endpoint. A pod of another namespace is refused: otherwise a namespace could put its
    /// own address under the identity of another one, or the pod of another one behind its service.
    fn read_target(
        &mut self,
        slice: &NamespacedName,
        index: usize,
        target: &ObjectReference,
    ) -> Option<WorkloadId> {
        if target.kind.as_deref() != Some("Pod") {
            return None;
        }
        let field = format!("endpoints[{index}].targetRef");
        let namespace = target.namespace.as_deref().filter(|namespace| !namespace.is_empty());
        if namespace.is_some_and(|namespace| namespace != slice.namespace()) {
            self.error(field, "names a pod of another namespace; the endpoint has no identity");
            return None;
        }
        match WorkloadId::new(slice.namespace(), target.name.as_deref().unwrap_or_default()) {
            Ok(workload) => Some(workload),
            Err(error) => {
                self.error(field, format!("{error}; the endpoint has no identity"));
                None
            }
        }
    }
}

/// Whether an endpoint gets traffic. An absent `ready` means ready (EndpointSlice API), but not of an
/// endpoint that is terminating. One that is both ready and terminating has a service that publishes
/// addresses that are not ready, and counts as ready.
fn read_conditions(conditions: &discovery::EndpointConditions) -> Readiness {
    let terminating = conditions.terminating == Some(true);
    if conditions.ready.unwrap_or(!terminating) {
        Readiness::Ready
    } else if terminating && conditions.serving == Some(true) {
        Readiness::Draining
    } else {
        Readiness::NotReady
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_types::problem::Severity::{Error, Warning};

    use super::super::testing::{fields, object};
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "every call passes a literal")]
    fn read(address_type: &str, endpoints: Value, ports: Value) -> Reading<EndpointSlice> {
        read_endpoint_slice(&object(json!({
            "metadata": {"name": "db-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": address_type, "endpoints": endpoints, "ports": ports,
        })))
    }

    /// The values are those of `k8s.io/api/discovery/v1`, and of Kubernetes' controllers.
    #[test]
    fn a_slice_follows_pods_where_kubernetes_made_it_from_them() {
        for (manager, follows_pods) in [
            (Some("endpointslice-controller.k8s.io"), true),
            (Some("endpointslicemirroring-controller.k8s.io"), false),
            (Some("example.com/own"), false),
            (None, false),
        ] {
            let mut slice: discovery::EndpointSlice = object(json!({
                "metadata": {"name": "db-1", "namespace": "shop"}, "addressType": "IPv4", "endpoints": [],
            }));
            let labels = slice.metadata.labels.get_or_insert_default();
            labels.insert(SERVICE_NAME_LABEL.to_owned(), "db".to_owned());
            labels.extend(manager.map(|manager| (MANAGED_BY_LABEL.to_owned(), manager.to_owned())));
            let read = read_endpoint_slice(&slice).object.unwrap();
            assert_eq!(read.follows_pods, follows_pods, "{manager:?}");
        }
    }

    #[test]
    fn a_slice_has_a_service_ports_and_endpoints() {
        let reading = read(
            "IPv4",
            json!([
                {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "db-0", "namespace": "shop"}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["10.0.0.3"], "conditions": {"ready": true}, "targetRef": {"kind": "Node", "name": "n"}},
            ]),
            json!([{"name": "sql", "port": 5432, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]),
        );
        assert_eq!(reading.problems, []);
        let slice = reading.object.unwrap();
        assert_eq!(slice.service.to_string(), "shop/db");
        assert_eq!(slice.ports, [SlicePort { name: Some("sql".to_owned()), port: 5432 }]);
        let endpoints: Vec<(bool, Option<String>)> = slice
            .endpoints
            .iter()
            .map(|e| (e.readiness.is_ready(), e.workload.as_ref().map(ToString::to_string)))
            .collect();
        assert_eq!(endpoints, [(true, Some("shop/db-0".to_owned())), (false, None), (true, None)]);
    }

    #[test]
    fn an_endpoint_that_terminates_drains_while_it_serves() {
        for (conditions, readiness) in [
            (json!({}), Readiness::Ready),
            (json!({"ready": true, "serving": true, "terminating": false}), Readiness::Ready),
            (json!({"ready": false, "serving": true, "terminating": true}), Readiness::Draining),
            (json!({"serving": true, "terminating": true}), Readiness::Draining),
            (json!({"ready": false, "serving": false, "terminating": true}), Readiness::NotReady),
            (json!({"ready": false, "terminating": true}), Readiness::NotReady),
            (json!({"ready": false, "serving": true}), Readiness::NotReady),
            (json!({"ready": true, "serving": true, "terminating": true}), Readiness::Ready),
        ] {
            let reading =
                read("IPv4", json!([{"addresses": ["10.0.0.1"], "conditions": conditions}]), json!([]));
            let endpoint = &reading.object.unwrap().endpoints[0];
            assert_eq!(endpoint.readiness, readiness, "{conditions}");
        }
    }

    #[test]
    fn a_slice_without_a_service_or_of_an_unknown_address_type_is_left_out() {
        let orphan = read_endpoint_slice(&object(json!({"metadata": {"name": "x"}, "addressType": "IPv4"})));
        assert_eq!(orphan.object, None);
        assert_eq!(fields(&orphan.problems), [(Error, "metadata.labels[kubernetes.io/service-name]")]);
        for (address_type, severity) in [("FQDN", Warning), ("ipv4", Error), ("", Error)] {
            let reading = read(address_type, json!([]), json!([]));
            assert_eq!((reading.object, fields(&reading.problems)), (None, vec![(severity, "addressType")]));
        }
    }

    #[test]
    fn what_cannot_be_used_is_left_out_piece_by_piece() {
        let reading = read(
            "IPv6",
            json!([
                {"addresses": ["fd00::1", "10.0.0.1", "fd00::1"]},
                {"addresses": ["nonsense"]},
                {"addresses": ["fd00::2"], "targetRef": {"kind": "Pod", "name": "db-0", "namespace": "bank"}},
                {"addresses": ["fd00::3"], "targetRef": {"kind": "Pod", "name": "DB"}},
            ]),
            json!([{"port": 80}, {"port": 81}, {"name": "a"}, {"name": "b", "port": 0}]),
        );
        let problems = [
            (Error, "ports[1].name"),
            (Warning, "ports[2].port"),
            (Error, "ports[3].port"),
            (Error, "endpoints[0].addresses[1]"),
            (Error, "endpoints[1].addresses[0]"),
            (Error, "endpoints[2].targetRef"),
            (Error, "endpoints[3].targetRef"),
        ];
        assert_eq!(fields(&reading.problems), problems);
        let slice = reading.object.unwrap();
        assert_eq!(slice.ports, [SlicePort { name: None, port: 80 }]);
        assert_eq!(slice.endpoints.len(), 3);
        assert!(
            slice
                .endpoints
                .iter()
                .all(|endpoint| endpoint.workload.is_none() && endpoint.addresses.len() == 1)
        );
    }

    #[test]
    fn a_slice_beyond_the_apis_own_limits_is_cut_off() {
        let endpoints: Vec<Value> =
            (0..1_001).map(|n| json!({"addresses": [format!("10.0.{}.{}", n / 256, n % 256)]})).collect();
        let ports: Vec<Value> = (1..=101).map(|n| json!({"name": format!("p{n}"), "port": n})).collect();
        let reading = read("IPv4", json!(endpoints), json!(ports));
        assert_eq!(fields(&reading.problems), [(Error, "ports"), (Error, "endpoints")]);
        let slice = reading.object.unwrap();
        assert_eq!((slice.ports.len(), slice.endpoints.len()), (MAX_PORTS, MAX_ENDPOINTS));
    }
}
