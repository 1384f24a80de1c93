//! What is excluded from interception, and which program sets it up: the flags of `smc init`, from MeshConfig
//! and a pod's annotations.

use std::collections::BTreeSet;

use serde_json::Value;
use smc_model::cidr::parse_cidr;
use smc_model::sidecar_settings::SidecarSettings;
use smc_types::text::truncated;

use super::annotation;
use super::error::InjectionError;
use crate::interception::{Interception, Parameters};
use ipnet::IpNet;

const OUTBOUND_PORTS: &str = "openservicemesh.io/outbound-port-exclusion-list";
pub(super) const INBOUND_PORTS: &str = "openservicemesh.io/inbound-port-exclusion-list";
const OUTBOUND_CIDRS: &str = "openservicemesh.io/outbound-ip-range-exclusion-list";
const INCLUDED_CIDRS: &str = "openservicemesh.io/outbound-ip-range-inclusion-list";
/// SMC's own: OSM has this list in MeshConfig only.
const INTERFACES: &str = "openservicemesh.io/network-interface-exclusion-list";
/// SMC's own: OSM has iptables only.
const BACKEND: &str = "openservicemesh.io/interception-backend";
/// What `smc init --backend` takes. The first is the default, and is not written.
const BACKENDS: [&str; 3] = ["auto", "iptables", "nftables"];

/// The arguments of `smc init`, and the ports at which anything reaches the application without the mesh.
pub(super) struct Exclusions {
    pub(super) arguments: Vec<String>,
    pub(super) inbound_ports: BTreeSet<u16>,
}

/// Merges the lists of MeshConfig with those of the pod's annotations. A list that cannot be read refuses the
/// pod: without it, the pod would work otherwise than its author thinks.
pub(super) fn read(pod: &Value, mesh: &SidecarSettings) -> Result<Exclusions, InjectionError> {
    let outbound_ports = list(pod, OUTBOUND_PORTS, &mesh.exclude_outbound_ports, port)?;
    let inbound_ports = list(pod, INBOUND_PORTS, &mesh.exclude_inbound_ports, port)?;
    let excluded = list(pod, OUTBOUND_CIDRS, &mesh.exclude_outbound_cidrs, cidr)?;
    let included = list(pod, INCLUDED_CIDRS, &mesh.include_outbound_cidrs, cidr)?;
    let interfaces = list(pod, INTERFACES, &mesh.exclude_interfaces, |text| Ok(text.to_owned()))?;
    let parameters = Parameters {
        exclude_outbound_ports: outbound_ports.iter().copied().collect(),
        exclude_inbound_ports: inbound_ports.iter().copied().collect(),
        exclude_outbound_cidrs: excluded.iter().copied().collect(),
        include_outbound_cidrs: included.iter().copied().collect(),
        exclude_interfaces: interfaces.iter().cloned().collect(),
        ..Parameters::default()
    };
    // What the init container would refuse is refused here, where the author sees it.
    Interception::new(parameters)?;
    let mut arguments = vec!["init".to_owned()];
    let mut add = |flag: &str, values: Vec<String>| {
        arguments.extend(values.into_iter().map(|value| format!("--{flag}={value}")));
    };
    add("exclude-outbound-port", strings(&outbound_ports));
    add("exclude-inbound-port", strings(&inbound_ports));
    add("exclude-outbound-cidr", strings(&excluded));
    add("include-outbound-cidr", strings(&included));
    add("exclude-interface", strings(&interfaces));
    let backend = annotation::word(pod, BACKEND, &BACKENDS)?.filter(|word| *word != BACKENDS[0]);
    add("backend", backend.into_iter().map(str::to_owned).collect());
    Ok(Exclusions { arguments, inbound_ports })
}

fn strings<T: ToString>(values: &BTreeSet<T>) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// The list of MeshConfig with that of an annotation: texts with commas between them.
fn list<T: Ord + Clone>(
    pod: &Value,
    annotation: &'static str,
    mesh: &[T],
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<BTreeSet<T>, InjectionError> {
    let mut merged: BTreeSet<T> = mesh.iter().cloned().collect();
    let own = pod["metadata"]["annotations"][annotation].as_str().unwrap_or_default();
    for text in own.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let refused = |reason| InjectionError::Annotation { annotation, text: truncated(text, 60), reason };
        merged.insert(read(text).map_err(refused)?);
    }
    Ok(merged)
}

fn port(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())
}

fn cidr(text: &str) -> Result<IpNet, String> {
    parse_cidr(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotated(annotation: &str, text: &str) -> Value {
        json!({"metadata": {"annotations": {annotation: text}}})
    }

    #[test]
    fn lists_of_the_mesh_and_of_the_pod_are_merged() {
        let mesh = SidecarSettings {
            exclude_outbound_ports: vec![25, 9],
            include_outbound_cidrs: vec![parse_cidr("10.96.0.0/12").unwrap()],
            ..SidecarSettings::default()
        };
        let read = read(&annotated(OUTBOUND_PORTS, " 5432, 25,,"), &mesh).ok().unwrap();
        assert_eq!(
            read.arguments,
            [
                "init",
                "--exclude-outbound-port=9",
                "--exclude-outbound-port=25",
                "--exclude-outbound-port=5432",
                "--include-outbound-cidr=10.96.0.0/12",
            ]
        );
        let pod = json!({"metadata": {"annotations": {
            INBOUND_PORTS: "9090", OUTBOUND_CIDRS: "fd00::/8,10.1.2.3/8", INTERFACES: "net1, net2",
        }}});
        let read = super::read(&pod, &SidecarSettings::default()).ok().unwrap();
        assert_eq!(read.inbound_ports, BTreeSet::from([9090]));
        assert_eq!(
            read.arguments,
            [
                "init",
                "--exclude-inbound-port=9090",
                "--exclude-outbound-cidr=10.0.0.0/8",
                "--exclude-outbound-cidr=fd00::/8",
                "--exclude-interface=net1",
                "--exclude-interface=net2",
            ]
        );
    }

    #[test]
    fn a_pod_chooses_the_program_that_sets_interception_up() {
        for (text, expected) in [("auto", &["init"][..]), ("nftables", &["init", "--backend=nftables"])] {
            let read = read(&annotated(BACKEND, text), &SidecarSettings::default()).ok().unwrap();
            assert_eq!(read.arguments, expected);
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_refuses_the_pod_and_is_named() {
        for (annotation, text, said) in [
            (OUTBOUND_PORTS, "80,http", "outbound-port-exclusion-list"),
            (INBOUND_PORTS, "0", "from 1 to 65535"),
            (INBOUND_PORTS, "15003", "belongs to the proxy"),
            (OUTBOUND_CIDRS, "10.0.0.0/33", "10.0.0.0/33"),
            (INTERFACES, "a b", "interface"),
            (INTERFACES, "-j", "interface"),
            (BACKEND, "nft", "auto, iptables, nftables"),
            (BACKEND, "", "auto, iptables, nftables"),
        ] {
            let error = read(&annotated(annotation, text), &SidecarSettings::default()).err().unwrap();
            let error = smc_types::causes::causes(&error);
            assert!(error.contains(said), "{annotation} {text}: {error}");
        }
    }
}
