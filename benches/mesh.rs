//! The mesh of the benchmarks, as catalog events and as the YAML of the same objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use smc_api::smi::{HttpRouteGroup, Rule, RuleKind, TrafficTarget};
use smc_authority::pki::{ServiceCertificate, TrustBundle};
use smc_mesh::catalog::{Object, SourceEvent};
use smc_mesh::translate::Input;
use smc_model::http_match::{HttpMatch, MethodSet};
use smc_model::topology::{
    Namespace, Readiness, Service, ServicePort, SessionAffinity, TargetPort, Workload,
};
use smc_types::ids::{InvalidName, NamespacedName, ProxyUuid, ServiceAccountId, ServiceId, WorkloadId};
use smc_types::proxy_class::AppProtocol;

/// Namespaces of a mesh, where their number is not what is measured.
const NAMESPACES: usize = 10;
const PORT: u16 = 8080;

/// A mesh of some size.
#[derive(Debug, Clone, Copy)]
pub struct Mesh {
    /// Namespaces, over which the services are distributed in turn.
    pub namespaces: usize,
    /// Services, each with its own identity.
    pub services: usize,
    /// Proxies, distributed over the services.
    pub proxies: usize,
    /// How many services each identity may call.
    pub reach: usize,
    /// Whether every identity may call service 0 besides.
    pub hub: bool,
}

impl Mesh {
    /// A mesh of [`NAMESPACES`] without a hub.
    pub fn new(services: usize, proxies: usize, reach: usize) -> Self {
        Self { namespaces: NAMESPACES, services, proxies, reach, hub: false }
    }

    fn namespace(&self, i: usize) -> String {
        format!("n{}", i % self.namespaces)
    }

    /// The identity of service `i`, and its name.
    pub fn account(&self, i: usize) -> Result<ServiceAccountId, InvalidName> {
        let i = i % self.services;
        ServiceAccountId::new(&self.namespace(i), &format!("s{i}"))
    }

    /// Service `i`.
    pub fn service(&self, i: usize) -> Result<ServiceId, InvalidName> {
        let i = i % self.services;
        ServiceId::new(&self.namespace(i), &format!("s{i}"))
    }

    /// The service of which proxy `p` is an endpoint.
    pub fn service_of(&self, p: usize) -> usize {
        p % self.services
    }

    /// The pod of proxy `p`.
    pub fn workload(&self, p: usize) -> Result<WorkloadId, InvalidName> {
        WorkloadId::new(&self.namespace(self.service_of(p)), &format!("p{p}"))
    }

    /// The address of proxy `p`'s pod, the same in both forms of the mesh.
    fn pod_ip(p: usize) -> Ipv4Addr {
        let [_, b, c, d] = u32::try_from(p).unwrap_or(u32::MAX).to_be_bytes();
        Ipv4Addr::new(10, b, c, d)
    }

    fn cluster_ip(i: usize) -> Ipv4Addr {
        let [_, b, c, d] = u32::try_from(i).unwrap_or(u32::MAX).to_be_bytes();
        Ipv4Addr::new(172, 16 | (b & 15), c, d)
    }

    /// The pod of proxy `p`.
    pub fn pod(&self, p: usize, ready: bool) -> Result<SourceEvent, InvalidName> {
        let i = self.service_of(p);
        let id = self.workload(p)?;
        Ok(SourceEvent::Upsert(Object::from(Workload {
            proxy: ProxyUuid::derived(&id),
            id,
            service_account: self.account(i)?,
            labels: BTreeMap::from([("app".to_owned(), format!("s{i}"))]),
            services: Vec::new(),
            ips: vec![IpAddr::V4(Self::pod_ip(p))],
            ports: BTreeMap::new(),
            readiness: Readiness::of(ready, false),
            injection: None,
        })))
    }

    /// The HTTPRouteGroup that all TrafficTargets of namespace `n` name, with one match of these methods.
    pub fn route_group(&self, n: usize, methods: MethodSet) -> Result<SourceEvent, InvalidName> {
        let one = HttpMatch { path: None, methods, headers: BTreeMap::new() };
        Ok(SourceEvent::Upsert(Object::HttpRouteGroup(HttpRouteGroup {
            id: NamespacedName::new(&self.namespace(n), "any")?,
            matches: BTreeMap::from([("any".to_owned(), one)]),
        })))
    }

    /// All objects as events.
    pub fn events(&self) -> Result<Vec<SourceEvent>, InvalidName> {
        let mut events = Vec::new();
        for n in 0..self.namespaces {
            let name = self.namespace(n);
            let namespace = Namespace {
                name: name.clone(),
                monitored: true,
                injection: None,
                metrics: false,
                permissive: false,
                access_log: None,
            };
            events.push(SourceEvent::Upsert(Object::Namespace(namespace)));
            events.push(self.route_group(n, MethodSet::Any)?);
        }
        for i in 0..self.services {
            events.push(SourceEvent::Upsert(Object::from(Service {
                id: self.service(i)?,
                cluster_ips: vec![IpAddr::V4(Self::cluster_ip(i))],
                headless: false,
                selector: BTreeMap::from([("app".to_owned(), format!("s{i}"))]),
                ports: vec![ServicePort {
                    name: Some("http".to_owned()),
                    port: PORT,
                    target: TargetPort::Number(PORT),
                    protocol: AppProtocol::Http,
                }],
                affinity: SessionAffinity::None,
            })));
            events.push(SourceEvent::Upsert(Object::from(self.target(i)?)));
        }
        for p in 0..self.proxies {
            events.push(self.pod(p, true)?);
        }
        Ok(events)
    }

    /// All inputs that a compiler needs to serve the mesh. The certificates have about the size of real ones;
    /// the compiler does not parse them.
    pub fn inputs(&self) -> Result<Vec<Input>, InvalidName> {
        let mut inputs = vec![Input::Bundle(TrustBundle { pem: "root ".repeat(140) })];
        for i in 0..self.services {
            let certificate =
                ServiceCertificate { chain_pem: "chain ".repeat(250), key_pem: "key ".repeat(60).into() };
            inputs.push(Input::Certificate(self.account(i)?, certificate));
        }
        inputs.extend(self.events()?.into_iter().map(Input::Source));
        Ok(inputs)
    }

    /// The services that may call service `i`: the `reach` before it, and all others if it is the hub.
    pub fn callers(&self, i: usize) -> BTreeSet<usize> {
        if self.hub && i == 0 {
            return (1..self.services).collect();
        }
        (1..=self.reach.min(self.services - 1))
            .map(|step| (i + self.services - step) % self.services)
            .collect()
    }

    fn target(&self, i: usize) -> Result<TrafficTarget, InvalidName> {
        let namespace = self.namespace(i);
        Ok(TrafficTarget {
            id: NamespacedName::new(&namespace, &format!("s{i}"))?,
            destination: self.account(i)?,
            sources: self
                .callers(i)
                .into_iter()
                .map(|caller| self.account(caller))
                .collect::<Result<_, _>>()?,
            rules: vec![Rule {
                kind: RuleKind::HttpRouteGroup,
                name: NamespacedName::new(&namespace, "any")?,
                matches: None,
            }],
        })
    }

    /// Everything but the pods as YAML.
    pub fn yaml(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let mut add = |args: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = text.write_fmt(args);
        };
        for n in 0..self.namespaces {
            add(format_args!(
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: n{n}, labels: \
                 {{openservicemesh.io/monitored-by: smc}}}}\n---\napiVersion: specs.smi-spec.io/v1alpha4\nkind: \
                 HTTPRouteGroup\nmetadata: {{name: any, namespace: n{n}}}\nspec: {{matches: [{{name: any}}]}}\n"
            ));
        }
        for i in 0..self.services {
            let (namespace, ip) = (self.namespace(i), Self::cluster_ip(i));
            add(format_args!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{i}, namespace: {namespace}}}\nspec: \
                 {{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: s{i}}}, ports: [{{name: http, port: \
                 {PORT}, targetPort: {PORT}}}]}}\n---\napiVersion: access.smi-spec.io/v1alpha3\nkind: \
                 TrafficTarget\nmetadata: {{name: s{i}, namespace: {namespace}}}\nspec:\n  destination: {{kind: \
                 ServiceAccount, name: s{i}, namespace: {namespace}}}\n  rules: [{{kind: HTTPRouteGroup, name: \
                 any}}]\n  sources:\n"
            ));
            for caller in self.callers(i) {
                let namespace = self.namespace(caller);
                add(format_args!(
                    "    - {{kind: ServiceAccount, name: s{caller}, namespace: {namespace}}}\n"
                ));
            }
        }
        text
    }

    /// The pod of proxy `p` as YAML.
    pub fn pod_yaml(&self, p: usize, ready: bool) -> String {
        let i = self.service_of(p);
        let (namespace, ip) = (self.namespace(i), Self::pod_ip(p));
        let ready = if ready { "True" } else { "False" };
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{p}, namespace: {namespace}, labels: {{app: \
             s{i}}}}}\nspec: {{serviceAccountName: s{i}, containers: [{{name: app}}]}}\nstatus: {{phase: Running, \
             podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: '{ready}'}}]}}\n"
        )
    }
}
