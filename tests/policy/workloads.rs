//! Who runs in the mesh, and what is spoken on the ports that services lead to.

use std::collections::{BTreeMap, BTreeSet};

use crate::objects::{Name, Port, Protocol, Service, Target, Workload, World};

impl World {
    /// All workloads, in the order of their declaration.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// The ports of a workload that services lead to, each with those services.
    pub fn served(&self, workload: &Workload) -> BTreeMap<u16, BTreeSet<&Name>> {
        let mut served: BTreeMap<u16, BTreeSet<&Name>> = BTreeMap::new();
        for (name, service) in self.services.iter().filter(|(name, _)| self.is_behind(workload, name)) {
            for port in service.ports.iter().filter_map(|port| workload.port(&port.target)) {
                served.entry(port).or_default().insert(name);
            }
        }
        served
    }

    /// What is spoken on a port of a workload with a client that called the service `called`; `None` if
    /// the connection leads nowhere. Where all services say the same, it does not matter which one was
    /// called, and a client may have called none. Of a service that says two things of a port, the first
    /// counts.
    pub fn speaks(&self, workload: &Workload, port: u16, called: Option<&Name>) -> Option<Protocol> {
        let said = |name: &Name| self.said(workload, port, name);
        let all: BTreeSet<Protocol> = self.services.keys().flat_map(said).collect();
        if all.len() < 2 { all.first().copied() } else { said(called?).first().copied() }
    }

    /// What a service declares of a port of a workload.
    pub(crate) fn said(&self, workload: &Workload, port: u16, name: &Name) -> BTreeSet<Protocol> {
        let service = self.services.get(name).filter(|_| self.is_behind(workload, name));
        let ports = service.into_iter().flat_map(|service| &service.ports);
        ports.filter(|own| workload.port(&own.target) == Some(port)).map(|own| own.protocol).collect()
    }

    /// The ports of a service.
    pub(crate) fn service_ports(&self, service: &Name) -> &[Port] {
        self.services.get(service).map(|service| &*service.ports).unwrap_or_default()
    }

    /// The workloads that a service leads to, if they have its port.
    pub(crate) fn behind(&self, service: &Name) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().filter(move |workload| self.is_behind(workload, service))
    }

    /// Whether a service leads to a workload, if it has a port. Only a machine says itself behind which
    /// it is, and a headless service leads to none: what its callers dial is the address of a pod.
    pub(crate) fn is_behind(&self, workload: &Workload, service: &Name) -> bool {
        let Some(found) = self.services.get(service).filter(|_| service.0 == workload.account.0) else {
            return false;
        };
        match &workload.named {
            Some(named) => named.contains(&service.1) && found.address.is_some(),
            None => selects(found, workload),
        }
    }
}

impl Workload {
    /// The number of a port of a service here; `None` if the workload has no port of the name.
    pub(crate) fn port(&self, target: &Target) -> Option<u16> {
        match target {
            Target::Number(number) => Some(*number),
            Target::Name(name) => self.ports.get(name).copied(),
        }
    }

    /// Its namespace and name, as one text, which says whether it is a machine.
    pub fn id(&self) -> String {
        let kind = if self.is_machine() { "machine/" } else { "" };
        format!("{kind}{}/{}", self.account.0, self.name)
    }

    /// Whether it is a machine without a pod.
    pub fn is_machine(&self) -> bool {
        self.named.is_some()
    }
}

impl Protocol {
    /// Whether requests are authorised one by one.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Http2)
    }
}

fn selects(service: &Service, workload: &Workload) -> bool {
    !service.selector.is_empty()
        && service.selector.iter().all(|(key, value)| workload.labels.get(key) == Some(value))
}
