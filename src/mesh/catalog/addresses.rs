//! The addresses at which a service can be dialled, where several objects claim one.
//!
//! Owns the answer to a clash, for the sake of a caller that dials the address and means one service:
//! - The virtual address of a service is never that of a pod, whatever a pod's status says.
//! - An address that services of two namespaces claim leads to neither. Any order between them, such as that
//!   of their names, would let one namespace take another's callers.
//! - Within a namespace, the first by name has the address: one author wrote both.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Catalog;
use smc_model::topology::{Service, ServicePort};
use smc_types::ids::ServiceId;

impl Catalog {
    /// The addresses and ports at which callers reach a port of a service, without those that another
    /// object has a better or equal claim to. Of a headless service they are those of its pods. Services of
    /// one namespace may still share some.
    pub fn dialled(&self, service: &Service, port: &ServicePort) -> Vec<(IpAddr, u16)> {
        if service.headless {
            let mut addresses = self.headless_addresses(&service.id, port);
            addresses.retain(|&at| self.rival_of_pods(&service.id, at).is_none());
            return addresses;
        }
        let own = service.cluster_ips.iter().filter(|ip| self.rival_of_address(&service.id, **ip).is_none());
        own.map(|&ip| (ip, port.port)).collect()
    }

    /// A service of another namespace with the same virtual address.
    pub(super) fn rival_of_address(&self, service: &ServiceId, ip: IpAddr) -> Option<&ServiceId> {
        let mut holders = self.index.services_at.get(&ip)?.iter();
        holders.find(|holder| holder.namespace() != service.namespace())
    }

    /// A service that keeps callers of a headless one from the address of a pod: one with this virtual
    /// address, or a headless one of another namespace that is dialled there.
    pub(super) fn rival_of_pods(&self, service: &ServiceId, at: (IpAddr, u16)) -> Option<&ServiceId> {
        let virtual_address = self.index.services_at.get(&at.0).and_then(BTreeSet::first);
        virtual_address.or_else(|| {
            let mut others = self.headless_at(at.0).filter(|id| id.namespace() != service.namespace());
            others.find(|id| {
                let backends = self.index.backends.get(*id);
                backends.is_some_and(|backends| backends.is_listening(at))
            })
        })
    }

    /// The services whose callers may be affected by who else has one of these addresses.
    pub(super) fn claiming(&self, addresses: &BTreeSet<IpAddr>) -> BTreeSet<ServiceId> {
        let claims =
            |ip: IpAddr| self.index.services_at.get(&ip).into_iter().flatten().chain(self.headless_at(ip));
        addresses.iter().flat_map(|&ip| claims(ip)).cloned().collect()
    }

    /// The headless services with a pod of this address.
    fn headless_at(&self, ip: IpAddr) -> impl Iterator<Item = &ServiceId> {
        let pods = self.index.workloads_at(ip);
        let services = pods.filter_map(|pod| self.index.services_of.get(pod)).flatten();
        services.filter(|id| self.services.get(*id).is_some_and(|service| service.headless))
    }
}

/// The virtual addresses that one of two states of a service has and the other has not.
pub(super) fn moved(old: Option<&Service>, new: Option<&Service>) -> BTreeSet<IpAddr> {
    let of = |service: Option<&Service>| -> BTreeSet<IpAddr> {
        let service = service.filter(|service| !service.headless);
        service.into_iter().flat_map(|service| service.cluster_ips.iter().copied()).collect()
    };
    &of(old) ^ &of(new)
}

#[cfg(test)]
mod tests;
