//! The rights that the control plane needs for the custom kinds, as the chart has them.
//!
//! Owns what follows for the chart from the kinds: which of them the roles let it list and watch, whose
//! status it writes, and which groups the validating webhook is asked about. The chart includes the result, a
//! file that `make generate` writes and a test compares.

use std::collections::BTreeMap;
use std::fmt::Write;

use smc_types::kind::{Extent, KindSpec};

/// The file `charts/smc/templates/_kinds.tpl` for these kinds.
pub(super) fn helm_template(kinds: &[&KindSpec]) -> String {
    let custom = || kinds.iter().copied().filter(|kind| kind.custom);
    let (own, others): (Vec<_>, Vec<_>) = custom().partition(|kind| kind.extent == Extent::Own);
    let groups = grouped(custom()).into_keys().fold(String::new(), |mut text, group| {
        _ = writeln!(text, "- {group}");
        text
    });
    let parts = [
        ("smc.kinds.read", rules(&others, "", "[list, watch]")),
        ("smc.kinds.status", rules(&others, "/status", "[patch]")),
        ("smc.kinds.own.read", rules(&own, "", "[list, watch]")),
        ("smc.kinds.own.status", rules(&own, "/status", "[patch]")),
        ("smc.kinds.groups", groups),
    ];
    let mut text = "{{- /* What follows from the kinds. `make generate` writes it. */ -}}\n".to_owned();
    for (name, part) in parts {
        // A String takes every write.
        _ = writeln!(text, "{{{{- define \"{name}\" -}}}}\n{}\n{{{{- end }}}}", part.trim_end());
    }
    text
}

/// The names of the resources by group.
fn grouped<'a>(kinds: impl Iterator<Item = &'a KindSpec>) -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for kind in kinds {
        groups.entry(kind.group).or_default().push(kind.plural);
    }
    groups
}

/// One rule for each group.
fn rules(kinds: &[&KindSpec], subresource: &str, verbs: &str) -> String {
    let mut text = String::new();
    for (group, plurals) in grouped(kinds.iter().copied()) {
        let resources: Vec<_> = plurals.iter().map(|plural| format!("{plural}{subresource}")).collect();
        let resources = resources.join(", ");
        _ = writeln!(text, "- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: {verbs}");
    }
    text
}
