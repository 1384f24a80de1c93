//! What the documents say of the repository is so: files that they name are there, the index of SMI's rules names code
//! and tests that exist, and the code map leaves nothing out.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

const DOCUMENTS: [&str; 9] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benches/README.md",
    "docs/lab.md",
    "docs/osm-differences.md",
    "docs/operation.md",
    "docs/smi.md",
];

fn root() -> PathBuf {
    PathBuf::from("..")
}

fn read(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between backticks, line by line, outside of blocks of code.
fn quoted(text: &str) -> Vec<&str> {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        code ^= line.starts_with("```");
        !code
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// A rule of `docs/smi.md`: its first line, and each `FILE::NAME` after "code:" and after "tests:".
#[derive(Default)]
struct Rule<'a> {
    title: &'a str,
    code: Vec<(&'a str, &'a str)>,
    tests: Vec<(&'a str, &'a str)>,
}

fn rules(text: &str) -> Vec<Rule<'_>> {
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut in_tests = false;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("- ") {
            rules.push(Rule { title, ..Rule::default() });
            in_tests = false;
        }
        let Some(rule) = rules.last_mut().filter(|_| line.starts_with("  ")) else { continue };
        if let Some((section @ ("code" | "tests"), _)) =
            line.strip_prefix("  - ").and_then(|line| line.split_once(':'))
        {
            in_tests = section == "tests";
        }
        let named = quoted(line).into_iter().filter_map(|text| text.split_once("::"));
        if in_tests { rule.tests.extend(named) } else { rule.code.extend(named) }
    }
    rules
}

/// The line that defines `name`, and those above it, nearest first.
fn definition<'a>(source: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let lines: Vec<&str> = source.lines().collect();
    let defines = |line: &&str| {
        ["fn ", "const "].iter().any(|keyword| {
            let rest = line.split_once(keyword).and_then(|(_, rest)| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with(['(', '<', ':']))
        })
    };
    let at = lines.iter().position(defines)?;
    Some(lines[..=at].iter().rev().copied().collect())
}

/// Whether attributes above a definition make it a test.
fn is_test(definition: &[&str]) -> bool {
    let above = definition.iter().skip(1).map(|line| line.trim_start());
    let mut above = above.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    above.any(|line| line == "#[test]" || line.starts_with("#[tokio::test"))
}

#[test]
fn every_rule_of_the_smi_index_names_code_and_tests_that_exist() {
    let index = read("docs/smi.md");
    let rules = rules(&index);
    assert!(rules.len() > 50, "the index is read: {} rules", rules.len());
    let mut wrong = Vec::new();
    for Rule { title, code, tests } in &rules {
        if code.is_empty() || tests.is_empty() {
            wrong.push(format!("{title}: names {} places and {} tests", code.len(), tests.len()));
        }
        for (names, must_be_test) in [(code, false), (tests, true)] {
            for (file, name) in names {
                let source = fs::read_to_string(root().join(file)).unwrap_or_default();
                match definition(&source, name) {
                    None => wrong.push(format!("{title}: there is no {file}::{name}")),
                    Some(lines) if must_be_test && !is_test(&lines) => {
                        wrong.push(format!("{title}: {file}::{name} is no test"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_that_a_document_names_is_there() {
    let mut wrong = Vec::new();
    for document in DOCUMENTS {
        let text = read(document);
        let directory = root().join(document).parent().unwrap().to_owned();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let path = link.split('#').next().unwrap_or_default();
            if !directory.join(path).exists() {
                wrong.push(format!("{document}: the link {link}"));
            }
        }
        let top = ["src/", "raft/", "proto/", "tests/", "benches/", "docs/", ".ci/", ".cargo/"];
        for name in quoted(&text).into_iter().filter(|name| top.iter().any(|top| name.starts_with(top))) {
            let path = name.split("::").next().unwrap_or_default();
            if !root().join(path).exists() {
                wrong.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_code_map_names_every_module_and_every_directory_of_tests() {
    let map = read("ARCHITECTURE.md");
    let named: BTreeSet<&str> =
        quoted(&map).into_iter().map(|name| name.trim_end_matches('/').trim_end_matches(".rs")).collect();
    let mut missing = Vec::new();
    for directory in ["src", "src/mesh", "tests"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{directory}/{}", name.trim_end_matches(".rs"));
            if name != "lib.rs" && name != "Cargo.toml" && !named.contains(path.as_str()) {
                missing.push(path);
            }
        }
    }
    missing.sort();
    missing.dedup();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {}", missing.join(", "));
}
