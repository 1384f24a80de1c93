//! Owns the mesh of the restarts: a few pods that the lab runs, and many services that are in the API alone.

use serde_json::{Value, json};

/// How large the mesh is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) namespaces: usize,
    /// Services beside those of the lab's pods, each with its own account, pod and TrafficTarget.
    pub(super) services: usize,
    /// The lab's pods, three at least: the first namespaces have one each.
    pub(super) sidecars: usize,
}

/// A change of who may call the lab's pod in a namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    /// The namespaces of the caller and of the called one.
    pub(super) from: usize,
    pub(super) to: usize,
}

/// A grant that is there from the beginning, and that nothing else needs.
pub(super) const OLD: Grant = Grant { from: 0, to: 2 };

/// A grant that is not there at the beginning.
pub(super) const NEW: Grant = Grant { from: 1, to: 0 };

/// How many of the services the lab's pods may call, one in so many: their clusters are from all namespaces.
const CALLABLE: usize = 4;

fn namespace(number: usize) -> String {
    format!("n{number}")
}

fn account(name: &str, namespace: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
}

/// Lets these accounts call an account of a namespace.
fn target(name: &str, namespace: &str, sources: &[Value]) -> Value {
    json!({"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"destination": account(name, namespace), "sources": sources,
            "rules": [{"kind": "HTTPRouteGroup", "name": "all"}]}})
}

fn group(namespace: &str) -> Value {
    json!({"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup",
        "metadata": {"name": "all", "namespace": namespace}, "spec": {"matches": [{"name": "all"}]}})
}

fn service(name: &str, namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
}

fn space(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"openservicemesh.io/monitored-by": "smc"}}})
}

impl Size {
    /// The accounts of the lab's pods.
    fn callers(&self) -> Vec<Value> {
        (0..self.sidecars).map(|number| account("web", &namespace(number))).collect()
    }

    /// What lets the pod before one call it, and those of these grants.
    pub(super) fn target(&self, number: usize, grants: &[Grant]) -> Value {
        let before = (number + self.sidecars - 1) % self.sidecars;
        let granted = grants.iter().filter(|grant| grant.to == number).map(|grant| grant.from);
        let sources: Vec<Value> =
            std::iter::once(before).chain(granted).map(|from| account("web", &namespace(from))).collect();
        target("web", &namespace(number), &sources)
    }

    /// The mesh directory of the lab.
    pub(super) fn in_the_lab(&self) -> String {
        let mut objects: Vec<Value> = (0..self.sidecars).map(|number| space(&namespace(number))).collect();
        for number in 0..self.sidecars {
            let namespace = namespace(number);
            objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "web", "namespace": namespace}}));
            objects.push(group(&namespace));
            objects.push(service("web", &namespace));
            objects.push(self.target(number, &[OLD]));
            objects.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "web", "namespace": namespace, "labels": {"app": "web"}},
                "spec": {"serviceAccountName": "web", "automountServiceAccountToken": false,
                    "containers": [{"name": "echo", "image": "lab", "command": ["smc-lab", "echo", "--http", "8080"],
                        "readinessProbe": {"tcpSocket": {"port": 8080}}}]}}));
        }
        objects.iter().flat_map(|object| ["---\n".to_owned(), object.to_string(), "\n".to_owned()]).collect()
    }

    /// What is in the API alone: the namespaces, and their objects.
    pub(super) fn in_the_api(&self) -> [Vec<Value>; 2] {
        let mut namespaces: Vec<Value> =
            (self.sidecars..self.namespaces).map(|number| space(&namespace(number))).collect();
        namespaces.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "smc-system"}}));
        let mut objects: Vec<Value> =
            (self.sidecars..self.namespaces).map(|number| group(&namespace(number))).collect();
        for number in 0..self.services {
            let (name, namespace) = (format!("s{number}"), self.home(number));
            let [low, high] = [number % 250 + 1, number / 250];
            objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": namespace}}));
            let mut service = service(&name, &namespace);
            // The lab gives its own services the first addresses of the range.
            service["spec"]["clusterIP"] = format!("10.96.{}.{low}", 128 + high).into();
            objects.push(service);
            let before = (number + self.services - 1) % self.services;
            let mut sources = vec![account(&format!("s{before}"), &self.home(before))];
            if number.is_multiple_of(CALLABLE) {
                sources.extend(self.callers());
            }
            objects.push(target(&name, &namespace, &sources));
            let ip = format!("10.200.{high}.{low}");
            objects.push(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
                "spec": {"serviceAccountName": name, "automountServiceAccountToken": false,
                    "containers": [{"name": "app", "image": "app"}]},
                "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                    "conditions": [{"type": "Ready", "status": "True"}]}}));
        }
        [namespaces, objects]
    }

    /// The namespace of a service, which is none of the lab's.
    fn home(&self, service: usize) -> String {
        namespace(self.sidecars + service % (self.namespaces - self.sidecars))
    }

    /// A lab's pod, and what it calls: the service of the next one.
    pub(super) fn call(&self, number: usize) -> (String, String) {
        Grant { from: number, to: (number + 1) % self.sidecars }.call()
    }
}

impl Grant {
    /// The pod that calls, and what it calls.
    pub(super) fn call(&self) -> (String, String) {
        (format!("{}/web", namespace(self.from)), format!("http://web.{}/", namespace(self.to)))
    }
}
