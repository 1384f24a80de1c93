//! What runs where, without policy.
//!
//! Owns the part of the catalog that translation may read beside an intent.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Catalog, Endpoint};
use smc_model::topology::{Service, ServicePort};
use smc_types::ids::{ServiceAccountId, ServiceId};

/// The services, and what stands behind them. It leads to no policy.
#[derive(Debug, Clone, Copy)]
pub struct Topology<'a>(&'a Catalog);

impl Catalog {
    /// What runs where.
    pub fn topology(&self) -> Topology<'_> {
        Topology(self)
    }
}

impl<'a> Topology<'a> {
    /// The service of this name.
    pub fn service(self, id: &ServiceId) -> Option<&'a Service> {
        self.0.service(id)
    }

    /// The identities behind a service, ready or not ([`Catalog::accounts_behind`]).
    pub fn accounts_behind(self, service: &ServiceId) -> BTreeSet<ServiceAccountId> {
        self.0.accounts_behind(service)
    }

    /// The addresses and ports at which callers reach a port of a service ([`Catalog::dialled`]).
    pub fn dialled(self, service: &Service, port: &ServicePort) -> Vec<(IpAddr, u16)> {
        self.0.dialled(service, port)
    }

    /// The endpoints of a service port ([`Catalog::endpoints`]).
    pub fn endpoints(
        self,
        service: &ServiceId,
        port: &ServicePort,
    ) -> impl Iterator<Item = &'a Endpoint> + use<'a> {
        self.0.endpoints(service, port)
    }
}
