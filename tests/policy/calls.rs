//! Where the connections and requests of a caller go.

use std::collections::BTreeSet;

use crate::objects::{Name, Port, Service, World};
use crate::request::Request;

/// The service that takes a request, or a connection, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leaf {
    /// The service.
    pub service: Name,
    /// Where it ends.
    pub to: To,
}

/// Where in a service something ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// At the address that the caller dialled.
    Dialled,
    /// At one of these addresses and ports. It fails if there are none.
    OneOf(BTreeSet<(String, u16)>),
}

impl World {
    /// All addresses and ports that a caller may think of: those of services, and those of workloads.
    pub fn addresses(&self) -> BTreeSet<(String, u16)> {
        let virtual_ones = self.services.values().flat_map(|service| {
            let ports = service.ports.iter().map(|port| port.port);
            ports.flat_map(move |port| service.address.iter().map(move |address| (address.clone(), port)))
        });
        let own = self.workloads.iter().flat_map(|workload| {
            let ports = self.served(workload).into_keys();
            ports.map(move |port| (workload.address.clone(), port))
        });
        virtual_ones.chain(own).collect()
    }

    /// The service port that takes a connection of workloads of `source` to an address; `None` if it is
    /// closed. Of several, the first service by name takes it, and of its ports the first.
    pub fn taken_by(&self, source: &Name, address: &str, number: u16) -> Option<(&Name, &Port)> {
        self.services.iter().filter(|(name, _)| self.callable(source, name)).find_map(|(name, service)| {
            let port = service.ports.iter().find(|port| self.is_at(name, service, port, address, number));
            port.map(|port| (name, port))
        })
    }

    /// Whether a service port is dialled at this address. Nothing translates ports on the way to the
    /// pods of a headless service.
    fn is_at(&self, name: &Name, service: &Service, port: &Port, address: &str, number: u16) -> bool {
        if let Some(own) = &service.address {
            return own == address && port.port == number;
        }
        self.behind(name)
            .any(|workload| workload.address == address && workload.port(&port.target) == Some(number))
    }

    /// Whether a caller's sidecar knows a service: it may reach a workload behind it, or behind a
    /// service that a split of it names, whatever the weight.
    fn callable(&self, source: &Name, service: &Name) -> bool {
        let leads = |name: &Name| self.behind(name).any(|workload| self.reaches(source, &workload.account));
        let splits = self.splits.iter().filter(|(id, split)| id.0 == service.0 && split.root == service.1);
        let mut leaves = splits.flat_map(|(_, split)| &split.backends);
        leads(service) || leaves.any(|(leaf, _)| leads(&(service.0.clone(), leaf.clone())))
    }

    /// Where a request of workloads of `source` to a service port may go, as their sidecar sends it on, or a
    /// connection to one that is not HTTP.
    pub fn goes_to(
        &self,
        source: &Name,
        service: &Name,
        port: &Port,
        request: Option<&Request>,
    ) -> BTreeSet<Leaf> {
        let leaves = self.split(service, port.port, request).into_iter();
        leaves.map(|leaf| self.leaf(source, service, leaf, port.port)).collect()
    }

    /// A caller of a headless service means the pod that it dialled, also where a split leaves its
    /// request with the service. Any other service is reached at all that are behind it, if the caller
    /// may reach them.
    fn leaf(&self, source: &Name, root: &Name, service: Name, number: u16) -> Leaf {
        if service == *root && self.services.get(root).is_some_and(|root| root.address.is_none()) {
            return Leaf { service, to: To::Dialled };
        }
        let port = self.service_ports(&service).iter().find(|port| port.port == number);
        let serving = self.behind(&service).filter(|workload| !workload.drained);
        let reached = serving.filter(|workload| self.reaches(source, &workload.account));
        let ends =
            reached.filter_map(|workload| Some((workload.address.clone(), workload.port(&port?.target)?)));
        let to = To::OneOf(ends.collect());
        Leaf { service, to }
    }
}
