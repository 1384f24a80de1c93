//! `sidecar.tlsMinProtocolVersion`, `tlsMaxProtocolVersion`, `cipherSuites` and `ecdhCurves`.
//!
//! Owns the values that Envoy takes and the mesh's certificates can use. Envoy takes a least version above
//! the highest and suites that no certificate of the mesh has, and refuses every listener for one name that
//! it does not know. What cannot be read narrows, to what all sidecars can speak: TLS 1.3.

use std::sync::Arc;

use smc_model::tls_parameters::{COMMON_CURVE, TlsParameters, TlsVersion};
use smc_types::text::truncated;

use crate::reading::{Fields, Findings};

/// The most entries of a list. All names that Envoy knows are fewer.
pub(super) const MAX_ENTRIES: usize = 64;

/// The longest entry. All names that can be chosen fit in one group.
pub(super) const MAX_ENTRY: usize = 253;

/// The suites of TLS 1.2 for ECDSA certificates that HTTP/2 may use (RFC 9113, section 9.2.2), as Envoy names
/// them, with their names by IANA. The first two are in the list for clients of every build of Envoy.
const SUITES: [(&str, &str); 3] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
];

/// The suite that every list ends up with. RFC 9113, section 9.2.2, makes its equal for RSA mandatory.
const COMMON_SUITE: &str = SUITES[0].0;

/// Suites that Envoy knows and no connection of the mesh can use, with the reason.
const UNUSED_SUITES: [(&[&str], &str); 2] = [
    (
        &[
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305",
            "ECDHE-RSA-AES128-SHA256",
            "ECDHE-RSA-AES128-SHA",
            "ECDHE-RSA-AES256-SHA",
            "AES128-GCM-SHA256",
            "AES256-GCM-SHA384",
            "AES128-SHA",
            "AES256-SHA",
            "DES-CBC3-SHA",
        ],
        "is for RSA certificates, and those of the mesh are ECDSA",
    ),
    (
        &["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA"],
        "must not be used for HTTP/2 (RFC 9113, appendix A), which sidecars speak",
    ),
];

/// The curves that every build of Envoy knows, with their other names. One that a build does not know would
/// make it refuse every listener.
const CURVES: [(&str, &str); 4] =
    [("X25519", "x25519"), (COMMON_CURVE, "prime256v1"), ("P-384", "secp384r1"), ("P-521", "secp521r1")];

/// What holds where nothing can be read.
pub(super) fn narrowest() -> TlsParameters {
    TlsParameters { minimum: TlsVersion::Tls13, ..TlsParameters::default() }
}

/// Reads the fields. `None` means those that sidecars have anyway.
pub(super) fn read(fields: &mut Fields, findings: &mut Findings) -> Option<Arc<TlsParameters>> {
    let path = fields.path("tlsMinProtocolVersion");
    let minimum = version(fields, "tlsMinProtocolVersion", TlsVersion::Tls12, findings);
    let maximum = version(fields, "tlsMaxProtocolVersion", TlsVersion::Tls13, findings);
    let maximum = maximum.unwrap_or(TlsVersion::Tls13);
    if minimum.is_some_and(|minimum| minimum > maximum) {
        findings.error(&path, "is above tlsMaxProtocolVersion; TLS 1.3 alone is accepted");
    }
    let cipher_suites = cipher_suites(fields, findings);
    let curves = curves(fields, findings);
    let read = match (minimum, cipher_suites) {
        (Some(minimum), Some(cipher_suites)) if minimum <= maximum => {
            TlsParameters { minimum, maximum, cipher_suites, curves }
        }
        _ => TlsParameters { curves, ..narrowest() },
    };
    (read != TlsParameters::default()).then(|| Arc::new(read))
}

/// A version of TLS; `None` if it cannot be read.
fn version(
    fields: &mut Fields,
    name: &str,
    default: TlsVersion,
    findings: &mut Findings,
) -> Option<TlsVersion> {
    let Some(node) = fields.take(name) else { return Some(default) };
    let path = node.path.clone();
    match node.text(findings)?.as_str() {
        "" | "TLS_AUTO" => Some(default),
        "TLSv1_2" => Some(TlsVersion::Tls12),
        "TLSv1_3" => Some(TlsVersion::Tls13),
        "TLSv1_0" | "TLSv1_1" if default == TlsVersion::Tls12 => {
            findings.warning(&path, "must not be spoken (RFC 8996); TLS 1.2 is the least");
            Some(default)
        }
        other => {
            let other = truncated(other, 40);
            let message = format!("is {other:?}, which is neither TLSv1_2 nor TLSv1_3; TLSv1_3 holds");
            findings.error(&path, message);
            None
        }
    }
}

/// The suites that can be used, none of them for Envoy's own; `None` if the list has none.
fn cipher_suites(fields: &mut Fields, findings: &mut Findings) -> Option<Vec<String>> {
    let Some((list, entries)) = list(fields, "cipherSuites", findings) else { return Some(Vec::new()) };
    let mut seen: Vec<&'static str> = Vec::new();
    let mut suites = Vec::new();
    for (path, entry) in entries {
        let group = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let names = group.map_or_else(|| vec![&*entry], |group| group.split('|').collect());
        let first = seen.len();
        for name in names.into_iter().filter_map(|name| suite(name, &path, findings)) {
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
        match &seen[first..] {
            [] => {}
            [name] => suites.push((*name).to_owned()),
            names => suites.push(format!("[{}]", names.join("|"))),
        }
    }
    if suites.is_empty() {
        findings.error(&list, "has no suite that the mesh can use; TLS 1.3 alone is accepted");
        return None;
    }
    if !seen.iter().any(|name| name.contains("AES")) {
        let message = format!(
            "has no suite with AES, so that {COMMON_SUITE} comes last: builds of Envoy for FIPS have no other suites"
        );
        findings.warning(&list, message);
        suites.push(COMMON_SUITE.to_owned());
    }
    Some(suites)
}

/// A suite that can be used, as Envoy names it; the reason is reported if it cannot.
fn suite(name: &str, path: &str, findings: &mut Findings) -> Option<&'static str> {
    if let Some((suite, _)) = SUITES.iter().find(|names| names.0 == name || names.1 == name) {
        return Some(suite);
    }
    let shown = format!("{:?}", truncated(name, 60));
    if let Some((_, reason)) = UNUSED_SUITES.iter().find(|(names, _)| names.contains(&name)) {
        findings.warning(path, format!("{shown} {reason}; left out"));
    } else if name.starts_with("TLS_AES") || name.starts_with("TLS_CHACHA") {
        let reason = "is of TLS 1.3, whose suites Envoy does not let choose";
        findings.error(path, format!("{shown} {reason}; left out"));
    } else {
        findings.error(path, format!("{shown} is no suite that can be chosen; left out"));
    }
    None
}

/// The curves, with the one that all have; none for Envoy's own.
fn curves(fields: &mut Fields, findings: &mut Findings) -> Vec<&'static str> {
    let Some((list, entries)) = list(fields, "ecdhCurves", findings) else { return Vec::new() };
    let mut curves: Vec<&'static str> = Vec::new();
    for (path, name) in entries {
        match CURVES.iter().find(|names| names.0 == name || names.1 == name) {
            Some((curve, _)) if curves.contains(curve) => {}
            Some((curve, _)) => curves.push(curve),
            None => {
                let shown = truncated(&name, 40);
                findings.error(&path, format!("{shown:?} is no curve that can be chosen; left out"));
            }
        }
    }
    if !curves.contains(&COMMON_CURVE) {
        let message = format!(
            "has no {COMMON_CURVE}, which comes last: with it any two sidecars have a curve in common while a change \
             reaches one after the other, and TLS 1.3 makes it mandatory (RFC 8446, section 9.1)"
        );
        findings.warning(&list, message);
        curves.push(COMMON_CURVE);
    }
    curves
}

/// The path of a list, and its texts with theirs; what is no text is reported. `None` where the list is
/// absent or empty.
fn list(fields: &mut Fields, name: &str, findings: &mut Findings) -> Option<(String, Vec<(String, String)>)> {
    let node = fields.take(name).filter(|node| !node.value.as_array().is_some_and(Vec::is_empty))?;
    let path = node.path.clone();
    let entries = node.list(MAX_ENTRIES, findings).unwrap_or_default().into_iter();
    Some((path, entries.filter_map(|node| Some((node.path.clone(), node.text(findings)?))).collect()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use smc_types::problem::Severity::{Error, Warning};

    use super::*;
    use crate::osm::mesh_config::read_mesh_config;

    /// What is read, and the fields with problems.
    fn read(sidecar: &Value) -> (TlsParameters, Vec<(String, bool)>) {
        let spec = json!({"sidecar": sidecar});
        let reading = read_mesh_config("smc-system/osm-mesh-config".parse().unwrap(), spec);
        let read = reading.object.unwrap().tls.map(|read| TlsParameters::clone(&read));
        let problems = reading.problems.into_iter().map(|problem| {
            assert!(matches!(problem.severity, Error | Warning));
            (problem.field.replace("spec.sidecar.", ""), problem.severity == Error)
        });
        (read.unwrap_or_default(), problems.collect())
    }

    #[test]
    fn the_versions_are_those_of_tls_that_may_be_spoken() {
        use TlsVersion::{Tls12, Tls13};
        const MIN: &str = "tlsMinProtocolVersion";
        const MAX: &str = "tlsMaxProtocolVersion";
        assert_eq!(read(&json!({})), (TlsParameters::default(), vec![]));
        for (minimum, maximum, expected, problems) in [
            (json!(""), json!(""), (Tls12, Tls13), vec![]),
            (json!("TLS_AUTO"), json!("TLS_AUTO"), (Tls12, Tls13), vec![]),
            (json!("TLSv1_2"), json!("TLSv1_3"), (Tls12, Tls13), vec![]),
            (json!("TLSv1_3"), json!("TLSv1_3"), (Tls13, Tls13), vec![]),
            (json!("TLSv1_2"), json!("TLSv1_2"), (Tls12, Tls12), vec![]),
            (json!("TLSv1_0"), json!("TLSv1_3"), (Tls12, Tls13), vec![(MIN, false)]),
            (json!("TLSv1_1"), json!(""), (Tls12, Tls13), vec![(MIN, false)]),
            (json!("TLSv1_0"), json!("TLSv1_1"), (Tls12, Tls13), vec![(MIN, false), (MAX, true)]),
            (json!("TLSv1_3"), json!("TLSv1_2"), (Tls13, Tls13), vec![(MIN, true)]),
            (json!("TLSv1.3"), json!(""), (Tls13, Tls13), vec![(MIN, true)]),
            (json!(null), json!(""), (Tls13, Tls13), vec![(MIN, true)]),
            (json!("TLSv1.3"), json!("TLSv1_2"), (Tls13, Tls13), vec![(MIN, true)]),
            (json!("tlsv1_2"), json!("1.3"), (Tls13, Tls13), vec![(MIN, true), (MAX, true)]),
            (json!(13), json!(["TLSv1_2"]), (Tls13, Tls13), vec![(MIN, true), (MAX, true)]),
        ] {
            let (read, found) = read(&json!({MIN: minimum, MAX: maximum}));
            let problems: Vec<_> = problems.into_iter().map(|(field, is)| (field.to_owned(), is)).collect();
            assert_eq!(((read.minimum, read.maximum), found), (expected, problems), "{minimum} {maximum}");
        }
    }

    #[test]
    fn where_the_section_cannot_be_read_tls_1_3_alone_is_accepted() {
        let (read, found) = read(&json!(["tlsMinProtocolVersion"]));
        assert_eq!((read, found), (narrowest(), vec![("spec.sidecar".to_owned(), true)]));
    }

    #[test]
    fn suites_are_those_that_certificates_of_the_mesh_have_over_http_2() {
        let [(first, by_iana), (second, _), (third, _)] = SUITES;
        let group = |names: &[&str]| format!("[{}]", names.join("|"));
        let mixed = group(&[first, "ECDHE-RSA-AES128-GCM-SHA256"]);
        for (list, expected, problems) in [
            (vec![], vec![], vec![]),
            (vec![second, first], vec![second.to_owned(), first.to_owned()], vec![]),
            (vec![first, first], vec![first.to_owned()], vec![]),
            (vec![by_iana, first], vec![first.to_owned()], vec![]),
            (vec![third], vec![third.to_owned(), first.to_owned()], vec![false]),
            (vec![&*group(&[first, third])], vec![group(&[first, third])], vec![]),
            (vec![&*mixed], vec![first.to_owned()], vec![false]),
            (vec![&*group(&[first])], vec![first.to_owned()], vec![]),
            (vec![&*group(&[first, third, first])], vec![group(&[first, third])], vec![]),
            (vec![second, &*group(&[first, second])], vec![second.to_owned(), first.to_owned()], vec![]),
            (vec![&*format!("{first}|{third}"), second], vec![second.to_owned()], vec![true]),
            (vec![first, "AES128-SHA"], vec![first.to_owned()], vec![false]),
            (vec![first, "ECDHE-ECDSA-AES128-SHA"], vec![first.to_owned()], vec![false]),
            (vec![first, "TLS_AES_128_GCM_SHA256"], vec![first.to_owned()], vec![true]),
            // Envoy takes these.
            (vec![first, "ALL"], vec![first.to_owned()], vec![true]),
            (vec![&*format!("{first}:{second}"), second], vec![second.to_owned()], vec![true]),
            (vec![first, ""], vec![first.to_owned()], vec![true]),
            (vec![first, "[]"], vec![first.to_owned()], vec![true]),
        ] {
            let (read, found) = read(&json!({"cipherSuites": list}));
            let found: Vec<_> = found.into_iter().map(|(_, error)| error).collect();
            assert_eq!((read.cipher_suites, found), (expected, problems), "{list:?}");
            assert_eq!(read.minimum, TlsVersion::Tls12);
        }
    }

    #[test]
    fn without_a_suite_that_can_be_used_tls_1_3_alone_is_accepted() {
        let (no_list, too_long) = ([json!(null), json!(""), json!(false), json!({})], json!(vec!["A"; 65]));
        let lists = [json!(["AES128-SHA"]), json!(["BOGUS"]), json!("ALL"), json!([1]), too_long];
        for list in lists.into_iter().chain(no_list) {
            for maximum in ["TLSv1_2", "TLSv1_3"] {
                let (read, found) = read(&json!({"cipherSuites": list, "tlsMaxProtocolVersion": maximum}));
                let closed = (TlsVersion::Tls13, TlsVersion::Tls13);
                assert_eq!((read.minimum, read.maximum, read.cipher_suites), (closed.0, closed.1, vec![]));
                assert_eq!(found.last(), Some(&("cipherSuites".to_owned(), true)), "{list}");
            }
        }
    }

    #[test]
    fn every_list_of_curves_has_the_one_that_all_have() {
        for (list, expected, problems) in [
            (json!([]), vec![], vec![]),
            (json!(["P-256"]), vec!["P-256"], vec![]),
            (json!(["P-384", "prime256v1"]), vec!["P-384", "P-256"], vec![]),
            (json!(["P-256", "prime256v1", "x25519"]), vec!["P-256", "X25519"], vec![]),
            // Older builds refuse it.
            (json!(["X25519MLKEM768", "P-256"]), vec!["P-256"], vec![true]),
            (json!(["P-521"]), vec!["P-521", "P-256"], vec![false]),
            (json!(["P-224", "P-256"]), vec!["P-256"], vec![true]),
            (json!(["p-256"]), vec!["P-256"], vec![true, false]),
            (json!("P-384"), vec!["P-256"], vec![true, false]),
            (json!(null), vec!["P-256"], vec![true, false]),
        ] {
            let (read, found) = read(&json!({"ecdhCurves": list}));
            let found: Vec<_> = found.into_iter().map(|(_, error)| error).collect();
            assert_eq!((read.curves, found), (expected, problems), "{list}");
        }
    }
}
