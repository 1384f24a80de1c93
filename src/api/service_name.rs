//! Full names of services, as Kubernetes' DNS spells them.

use smc_types::ids::TrustDomain;

/// The parts of `NAME.NAMESPACE.svc`, and of that with `.cluster`, `.cluster.local` or another domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FullName<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    /// The domain, other than Kubernetes' usual one. In OSM it is that of the mesh.
    pub(crate) domain: Option<&'a str>,
}

impl<'a> FullName<'a> {
    /// Reads one. `None` for a text of another form; the name and the namespace may still be none.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, '.');
        let (name, namespace) = (parts.next()?, parts.next()?);
        parts.next().filter(|part| *part == "svc")?;
        let domain = match parts.next() {
            None | Some("cluster" | "cluster.local") => None,
            Some(other) => Some(TrustDomain::new(other).is_ok().then_some(other)?),
        };
        Some(Self { name, namespace, domain })
    }
}
