//! Owns the assignment of virtual IPs to services that declare none. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use smc_types::ids::NamespacedName;

use super::addresses::Pool;

/// Returns the virtual IPs of every service, in order of names: the declared ones, none if it is
/// headless or external, otherwise an allocation from `pool`.
pub(super) fn assign(
    pool: &mut Pool,
    services: &BTreeMap<NamespacedName, Service>,
    dual_stack: bool,
) -> BTreeMap<NamespacedName, Vec<IpAddr>> {
    // Declared addresses are reserved first, so that none of them is handed out.
    let reserved: BTreeSet<IpAddr> = services.values().filter_map(declared).flatten().collect();
    pool.reserve(reserved);
    pool.retain(|name| services.contains_key(name));
    let mut assigned = BTreeMap::new();
    for (name, service) in services {
        let external = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
        let addresses = match declared(service) {
            Some(addresses) => addresses,
            None if external => Vec::new(),
            None => match pool.get(name) {
                Some((v4, v6)) => families(service, dual_stack, v4, v6),
                None => Vec::new(),
            },
        };
        assigned.insert(name.clone(), addresses);
    }
    assigned
}

/// The addresses that the service declares. Empty for a headless service (`None`).
fn declared(service: &Service) -> Option<Vec<IpAddr>> {
    let spec = service.spec.as_ref()?;
    let list = spec.cluster_ips.clone().filter(|list| !list.is_empty());
    let list = list.or_else(|| spec.cluster_ip.clone().map(|ip| vec![ip]))?;
    let list: Vec<String> = list.into_iter().filter(|ip| !ip.is_empty()).collect();
    (!list.is_empty()).then(|| list.iter().filter_map(|ip| ip.parse().ok()).collect())
}

/// The address families of a service by Kubernetes' rules; one family unless it asks for two.
fn families(service: &Service, dual_stack: bool, v4: IpAddr, v6: IpAddr) -> Vec<IpAddr> {
    if !dual_stack {
        return vec![v4];
    }
    let spec = service.spec.as_ref();
    let asked = spec.and_then(|spec| spec.ip_families.clone()).unwrap_or_default();
    let mut list: Vec<IpAddr> = asked.iter().map(|family| if family == "IPv6" { v6 } else { v4 }).collect();
    if list.is_empty() {
        list.push(v4);
    }
    let policy = spec.and_then(|spec| spec.ip_family_policy.as_deref());
    if list.len() == 1 && matches!(policy, Some("PreferDualStack" | "RequireDualStack")) {
        list.push(if list[0] == v4 { v6 } else { v4 });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(dual_stack: bool, specs: &[(&str, &str)]) -> Vec<String> {
        let services = specs.iter().map(|(name, spec)| {
            let text = format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n");
            (NamespacedName::new("shop", name).unwrap(), serde_saphyr::from_str(&text).unwrap())
        });
        let services = services.collect();
        let ips = assign(&mut Pool::of_services(), &services, dual_stack);
        ips.values().map(|ips| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")).collect()
    }

    #[test]
    fn services_get_addresses_in_order_unless_they_declare_or_decline_them() {
        assert_eq!(
            assigned(
                false,
                &[
                    ("a", "{}"),
                    ("b", "{clusterIP: 10.96.0.11}"),
                    ("c", "{clusterIP: None}"),
                    ("d", "{type: ExternalName, externalName: example.org}"),
                    ("e", "{clusterIP: ''}"),
                ]
            ),
            ["10.96.0.10", "10.96.0.11", "", "", "10.96.0.12"]
        );
    }

    #[test]
    fn a_dual_stack_service_gets_a_second_address_family() {
        let specs = [
            ("a", "{}"),
            ("b", "{ipFamilyPolicy: PreferDualStack}"),
            ("c", "{ipFamilies: [IPv6]}"),
            ("d", "{ipFamilies: [IPv6], ipFamilyPolicy: RequireDualStack}"),
        ];
        assert_eq!(
            assigned(true, &specs),
            ["10.96.0.10", "10.96.0.11,fd00:10:96::b", "fd00:10:96::c", "fd00:10:96::d,10.96.0.13"]
        );
        assert_eq!(assigned(false, &specs), ["10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13"]);
    }
}
