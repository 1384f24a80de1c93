//! Owns the `/etc/hosts` of a Pod, which replaces the cluster's DNS. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use smc_types::ids::NamespacedName;

use super::kube_proxy::ServiceView;

/// Renders the whole file for a Pod: the Pod itself, then every service. A headless service has one
/// line per ready Pod.
pub(super) fn hosts(
    pod: &NamespacedName,
    addresses: &[IpAddr],
    services: &BTreeMap<NamespacedName, ServiceView>,
) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    for address in addresses {
        let _ = writeln!(text, "{address} {}", pod.name());
    }
    for (service, view) in services {
        let (namespace, name) = (service.namespace(), service.name());
        let forms = |name: &str| {
            format!("{name}.{namespace}.svc.cluster.local {name}.{namespace}.svc {name}.{namespace}")
        };
        let mut names = forms(name);
        if namespace == pod.namespace() {
            // The bare name, as with the search path of the cluster's DNS. It comes last: the first
            // name is the canonical one.
            names = format!("{names} {name}");
        }
        if !view.virtual_ips.is_empty() {
            for address in &view.virtual_ips {
                let _ = writeln!(text, "{address} {names}");
            }
            continue;
        }
        for backend in &view.backends {
            for address in &backend.addresses {
                let _ = writeln!(text, "{address} {names}");
                if let Some(host) = &backend.host_name {
                    let _ = writeln!(text, "{address} {}", forms(&format!("{host}.{name}")));
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::kube_proxy::Backend;
    use super::*;

    #[test]
    fn own_namespace_has_the_bare_name_and_headless_services_their_pods() {
        let name = |text: &str| text.parse::<NamespacedName>().unwrap();
        let backend = |address: &str, host_name: Option<&str>| Backend {
            addresses: vec![address.parse().unwrap()],
            host_name: host_name.map(str::to_owned),
            ..Backend::default()
        };
        let services = BTreeMap::from([
            (
                name("bank/vault"),
                ServiceView { virtual_ips: vec!["10.96.0.10".parse().unwrap()], ..ServiceView::default() },
            ),
            (
                name("shop/db"),
                ServiceView {
                    backends: vec![backend("10.244.0.3", Some("db-0")), backend("10.244.0.4", None)],
                    ..ServiceView::default()
                },
            ),
        ]);
        let text = hosts(&name("shop/web"), &["10.244.0.2".parse().unwrap()], &services);
        assert_eq!(
            text.lines().skip(2).collect::<Vec<_>>(),
            [
                "10.244.0.2 web",
                "10.96.0.10 vault.bank.svc.cluster.local vault.bank.svc vault.bank",
                "10.244.0.3 db.shop.svc.cluster.local db.shop.svc db.shop db",
                "10.244.0.3 db-0.db.shop.svc.cluster.local db-0.db.shop.svc db-0.db.shop",
                "10.244.0.4 db.shop.svc.cluster.local db.shop.svc db.shop db",
            ]
        );
    }
}
