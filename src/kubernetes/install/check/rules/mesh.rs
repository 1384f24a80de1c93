//! The rules of `smc check` about the namespaces of the mesh.
//!
//! Owns what is a finding in their labels, their pods, the sidecars of these, and what they may call.

use std::collections::BTreeMap;

use super::{Check, MESH, Verdict, caution, check, mesh_flag, unless};
use crate::install::check::facts::{Facts, MONITORED_BY, permits_all};
use crate::install::check::members::{Members, Stray, either, restart, some_of};

/// What a sidecar holds for a port of a service that it may call, in KiB (`cargo bench --bench requests`).
const KIB_OF_A_PORT: usize = 100;

/// What the sidecars of a mesh may hold together before `smc check` mentions it, in KiB: 4 GiB.
const WORTH_MENTIONING: usize = 4 << 20;

/// The rules.
pub(super) fn mesh(facts: &Facts) -> Vec<Check> {
    let Members {
        unseen,
        namespaces,
        strays,
        leaving,
        without_sidecar,
        with_sidecar,
        left_sidecars,
        stuck_sidecars,
        ..
    } = &facts.members;
    let flag = mesh_flag(facts);
    let none = match unseen {
        Some(reason) => Some(format!("unknown: {reason}")),
        None if namespaces.is_empty() => {
            Some(format!("no namespace is in the mesh yet: smc namespace add NAMESPACE{flag}"))
        }
        None => None,
    };
    let leaving = (!leaving.is_empty()).then(|| {
        let all: Vec<_> = leaving.iter().map(|(name, pods)| format!("{name} ({pods})")).collect();
        let first = &leaving[0].0;
        format!(
            "new pods get no sidecar, and pods that run have one, in {}: {}, then smc namespace remove {first}{flag}; smc \
             namespace add {first}{flag} keeps it",
            some_of(&all),
            restart(first)
        )
    });
    let without = (!without_sidecar.is_empty()).then(|| {
        let (count, names) = (without_sidecar.len(), some_of(without_sidecar));
        format!("{count} pods started without one: {names}: {}", restart_of(without_sidecar))
    });
    let not_started = (!stuck_sidecars.is_empty())
        .then(|| format!("{} do not: {}", stuck_sidecars.len(), some_of(stuck_sidecars)));
    let mut checks = vec![
        check(MESH, "namespaces take part", "namespaces", caution(none)),
        check(MESH, "every namespace names a mesh that is there", "namespaces", strayed(facts, strays)),
        check(MESH, "no namespace is about to leave", "take-a-namespace-out-of-the-mesh", caution(leaving)),
        check(MESH, "their pods have sidecars", "without-sidecar", caution(without)),
        check(MESH, "their sidecars start", "sidecars-that-do-not-start", unless(not_started)),
    ];
    let connection = match &facts.proxies {
        Ok(proxies) => connection(with_sidecar, proxies),
        Err(problem) => Verdict::Warning(format!("unknown: {problem}")),
    };
    checks.push(check(MESH, "their sidecars are connected", "not-connected", connection));
    if let Ok(proxies) = &facts.proxies {
        let ours = left_sidecars.iter().filter(|(_, uuid)| proxies.contains_key(uuid));
        let left: Vec<_> = ours.map(|(pod, _)| pod.clone()).collect();
        let left = (!left.is_empty()).then(|| {
            let (count, names) = (left.len(), some_of(&left));
            format!("{count} pods have one in namespaces of no mesh: {names}: {}", restart_of(&left))
        });
        checks.push(check(MESH, "no sidecar is left behind", "left-behind", unless(left)));
    }
    let problems = match &facts.problems {
        Ok(problems) if problems.is_empty() => None,
        Ok(problems) => Some(format!("{} problems: {}", problems.len(), some_of(problems))),
        Err(problem) => Some(format!("unknown: {problem}")),
    };
    checks.push(check(MESH, "it has no problems", "problems", caution(problems)));
    // Without a namespace, there is nothing to allow.
    if let Some(first) = namespaces.first() {
        let closed = match allowed(facts) {
            Some(true) => Verdict::Pass,
            Some(false) => Verdict::Warning(format!(
                "no TrafficTarget and no IngressBackend allows a call, and the mesh is not permissive: the sidecars refuse \
                 every one. smc namespace add {first} --permissive{flag} opens one namespace"
            )),
            None => Verdict::Warning("unknown: neither the controllers nor the API server say".to_owned()),
        };
        checks.push(check(MESH, "some traffic is allowed", "allow-traffic-first-then-close", closed));
        let held = caution(held_by_all(facts, &flag));
        checks.push(check(MESH, "sidecars hold what their pods call", "what-permissive-mode-costs", held));
    }
    checks
}

/// What sidecars hold in permissive mode, whatever they call, where that is much together.
fn held_by_all(facts: &Facts, flag: &str) -> Option<String> {
    let (granted, proxies) = (facts.granted.as_ref().ok()?, facts.proxies.as_ref().ok()?);
    let connected = proxies.values().filter(|connected| **connected).count();
    let each = granted.open_ports.checked_mul(KIB_OF_A_PORT)?;
    let all = each.checked_mul(connected)?;
    (all >= WORTH_MENTIONING).then(|| {
        format!(
            "where all may be called, each of {connected} sidecars holds {} ports of services, some {} MiB, {} GiB \
             in all. With policy it holds what its account may call: smc mesh policy --suggest{flag}",
            granted.open_ports,
            each >> 10,
            all >> 20
        )
    })
}

/// Whether anything may be called. What the controllers obey counts, and else the objects that they would.
/// It does not depend on pods: a mesh whose pods are about to start is as closed.
fn allowed(facts: &Facts) -> Option<bool> {
    let declared = either(permits_all(&facts.config), facts.members.any_rule);
    let granted = facts.granted.as_ref().ok().map(|granted| granted.any).or(declared);
    either(granted, facts.members.any_ingress)
}

/// Whether namespaces are labelled for meshes that are not in the cluster. Where their pods have sidecars, no
/// controller serves these; of several meshes, another one may just be replaced.
fn strayed(facts: &Facts, strays: &[Stray]) -> Verdict {
    let Some(first) = strays.first() else { return Verdict::Pass };
    let named = |Stray { namespace, mesh, sidecars }: &Stray| match sidecars {
        0 => format!("{namespace} for {mesh}"),
        count => format!("{namespace} for {mesh}, with {count} sidecars that no controller serves"),
    };
    let all: Vec<_> = strays.iter().map(named).collect();
    let problem = format!(
        "labelled for a mesh that is not in this cluster: {}. kubectl label namespace {} {MONITORED_BY}={} --overwrite \
         takes it into this one, {MONITORED_BY}- out of any",
        some_of(&all),
        first.namespace,
        facts.mesh
    );
    if !facts.members.other_meshes && strays.iter().any(|stray| stray.sidecars > 0) {
        return Verdict::Failure(problem);
    }
    Verdict::Warning(problem)
}

/// The command for the first of these pods, NAMESPACE/NAME.
fn restart_of(pods: &[String]) -> String {
    let first = pods.first().and_then(|pod| pod.split_once('/'));
    restart(first.map_or("NAMESPACE", |(namespace, _)| namespace))
}

/// Whether the sidecars that run are connected. Where none is, their certificates are of another mesh, or
/// nothing leads to the controllers; they go on with what they know until their certificates end.
pub(super) fn connection(sidecars: &[(String, String)], proxies: &BTreeMap<String, bool>) -> Verdict {
    let connected = |uuid: &String| proxies.get(uuid).copied().unwrap_or_default();
    let missing = sidecars.iter().filter(|(_, uuid)| !connected(uuid));
    let missing: Vec<_> = missing.map(|(pod, _)| pod.clone()).collect();
    let all = sidecars.len();
    let text = format!("{} of {all} are connected; not those of {}", all - missing.len(), some_of(&missing));
    match missing.len() {
        0 => Verdict::Pass,
        some if some < all => Verdict::Warning(text),
        _ => Verdict::Failure(text),
    }
}
