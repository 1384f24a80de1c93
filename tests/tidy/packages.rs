//! Which package may use which (ARCHITECTURE.md, docs/design/packages.md).

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::sources::read;

/// Every package of which the program is made, and the oracle: where it is, and what it may use. Tests of a
/// package may use `smc-testkit` as well.
const MAY_USE: &[(&str, &str, &[&str])] = &[
    ("smc-proto", "proto", &[]),
    ("smc-types", "src/types", &[]),
    ("smc-host", "src/host", &["smc-types"]),
    ("smc-authority", "src/authority", &["smc-types"]),
    ("smc-model", "src/model", &["smc-types"]),
    ("smc-xds", "src/xds", &["smc-types"]),
    ("smc-api", "src/api", &["smc-types", "smc-authority", "smc-model"]),
    ("smc-sidecar", "src/sidecar", &["smc-types", "smc-model", "smc-xds"]),
    ("smc-mesh", "src/mesh", &["smc-types", "smc-authority", "smc-model", "smc-xds", "smc-api"]),
    ("smc-raft", "raft", &["smc-types", "smc-host", "smc-authority", "smc-proto"]),
    ("base2histogram", "src/histogram", &[]),
    // The oracle judges the others, and shares nothing with them.
    ("smc-policy", "tests/policy", &[]),
    ("smc-decode", "src/decode", &["smc-types", "smc-model", "smc-api", "smc-sidecar"]),
    ("smc-issuing", "src/issuing", &["smc-types", "smc-host", "smc-authority", "smc-raft"]),
    // No platform: neither a directory nor Kubernetes.
    (
        "smc-server",
        "src/server",
        &[
            "smc-types",
            "smc-host",
            "smc-authority",
            "smc-model",
            "smc-xds",
            "smc-api",
            "smc-sidecar",
            "smc-mesh",
            "smc-raft",
            "smc-proto",
            "smc-decode",
            "smc-issuing",
        ],
    ),
    ("smc-directory", "src/directory", &["smc-types", "smc-host", "smc-api", "smc-decode", "smc-server"]),
    (
        "smc-kubernetes",
        "src/kubernetes",
        &[
            "smc-types",
            "smc-host",
            "smc-authority",
            "smc-model",
            "smc-xds",
            "smc-api",
            "smc-sidecar",
            "smc-mesh",
            "smc-raft",
            "smc-proto",
            "smc-decode",
            "smc-issuing",
            "smc-server",
        ],
    ),
    (
        "smc",
        ".",
        &[
            "smc-types",
            "smc-host",
            "smc-authority",
            "smc-model",
            "smc-xds",
            "smc-api",
            "smc-sidecar",
            "smc-mesh",
            "smc-raft",
            "smc-proto",
            "smc-decode",
            "smc-issuing",
            "smc-server",
            "smc-directory",
            "smc-kubernetes",
        ],
    ),
];

/// What only one part of the workspace may depend on.
const AT_HOME: &[(&str, &[&str])] = &[
    ("openraft", &["smc-raft"]),
    ("rocksdb", &["smc-raft"]),
    ("k8s-openapi", &["smc-decode", "smc-kubernetes", "smc", "smc-lab", "smc-test-kubernetes"]),
    ("kube", &["smc-kubernetes", "smc", "smc-simulation", "smc-test-kubernetes", "smc-benches"]),
    ("axum", &["smc-kubernetes"]),
    ("notify", &["smc-directory"]),
    // The lab has a server of Envoy's service for external authorization.
    ("envoy-types", &["smc-mesh", "smc-testkit", "smc-tests", "smc-lab", "smc-simulation", "smc-benches"]),
];

/// Packages that decide: no runtime, no network, no randomness.
const PURE: [&str; 7] =
    ["smc-types", "smc-authority", "smc-model", "smc-xds", "smc-api", "smc-sidecar", "smc-mesh"];

const OF_THE_SHELL: [&str; 8] = ["tokio", "tonic", "hyper", "rustls", "rcgen", "ring", "rand", "nix"];

/// The packages named in `[dependencies]` of the manifest in `directory`.
fn dependencies(directory: &str) -> BTreeSet<String> {
    let manifest = read(&format!("{directory}/Cargo.toml"));
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if section == "dependencies" {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if !name.is_empty() && !name.starts_with('#') {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// The directories of all members of the workspace, with their names.
pub(crate) fn members() -> BTreeMap<String, String> {
    let manifest = read("Cargo.toml");
    let list = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
    let directories = list.split(',').map(|directory| directory.trim().trim_matches('"'));
    let named = directories.filter(|directory| !directory.is_empty()).map(|directory| {
        let manifest = read(&format!("{directory}/Cargo.toml"));
        let package = manifest.split_once("[package]").unwrap().1;
        let name = package.split_once("name = \"").and_then(|(_, rest)| rest.split_once('"')).unwrap().0;
        (name.to_owned(), directory.to_owned())
    });
    named.collect()
}

#[test]
fn packages_use_only_those_to_their_left() {
    let members = members();
    let mut wrong = Vec::new();
    for (package, directory, may_use) in MAY_USE {
        assert_eq!(members.get(*package).map(String::as_str), Some(*directory), "{package} has moved");
        for used in dependencies(directory).iter().filter(|used| members.contains_key(*used)) {
            if !may_use.contains(&used.as_str()) {
                wrong.push(format!("{package} uses {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_packages_have_no_runtime_and_libraries_stay_at_home() {
    let members = members();
    let mut wrong = Vec::new();
    for (package, directory) in &members {
        let used = dependencies(directory);
        if PURE.contains(&package.as_str()) {
            let shell = OF_THE_SHELL.into_iter().filter(|library| used.contains(*library));
            wrong.extend(shell.map(|library| format!("{package} decides, and uses {library}")));
        }
        for (library, homes) in AT_HOME {
            if used.contains(*library) && !homes.contains(&package.as_str()) {
                wrong.push(format!("{package} uses {library}, which is for {} alone", homes.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_package_stands_in_the_folder_of_another() {
    let members = members();
    let directories: Vec<&String> = members.values().filter(|directory| *directory != ".").collect();
    let mut wrong = Vec::new();
    for inner in &directories {
        // `tests` is a package of tests alone: the programs that they use stand in folders of its
        // own beside them.
        for outer in directories.iter().filter(|outer| outer.as_str() != "tests") {
            if inner.starts_with(&format!("{outer}/")) {
                wrong.push(format!("{inner} is in {outer}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The packages that programs, and with `edges` tests as well, are made of, each with its features.
fn features(edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let tree = ["tree", "--workspace", "--locked", "--prefix=none", "--format={p}|{f}"];
    let output = Command::new("cargo").args(tree).args(["--edges", edges]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        if let Some((package, of)) = line.split_once('|') {
            // What was printed before is marked, and printed once with each set of features.
            let of = of.trim_end_matches(" (*)");
            features.entry(package.to_owned()).or_default().insert(of.to_owned());
        }
    }
    features
}

/// Otherwise it is compiled for programs, and once more for programs and tests together.
#[test]
fn tests_give_no_feature_to_what_programs_are_made_of() {
    let (of_programs, of_all) = (features("normal,no-proc-macro"), features("normal,dev,no-proc-macro"));
    assert!(of_programs.len() > 100, "{of_programs:?}");
    let differ: Vec<_> = of_programs
        .iter()
        .filter(|(package, of)| of_all.get(*package) != Some(of))
        .map(|(of, _)| of)
        .collect();
    assert!(differ.is_empty(), "other features with tests, so name them in [dependencies]: {differ:#?}");
}
