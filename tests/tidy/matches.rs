//! A match over the kinds of objects has an arm for each: what a new kind leaves open, the compiler names.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Arm, ExprMatch, ItemMod, Pat, Path};

use crate::sources::{files, is_for_tests, is_test_file, read};

/// A match that names so many kinds is over all of them. One that names fewer is about these.
const ALL: usize = 3;

/// The enums with a variant for each kind.
const ENUMS: [&str; 2] = ["Kind", "Object"];

/// The matches of a file.
#[derive(Default)]
struct Matches {
    wrong: Vec<String>,
}

impl<'ast> Visit<'ast> for Matches {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_match(&mut self, of: &'ast ExprMatch) {
        let mut kinds = Kinds::default();
        of.arms.iter().for_each(|arm| kinds.visit_pat(&arm.pat));
        if kinds.0.len() >= ALL && of.arms.iter().any(is_default) {
            self.wrong.push(kinds.0.into_iter().collect::<Vec<_>>().join(", "));
        }
        visit::visit_expr_match(self, of);
    }
}

/// The kinds that patterns name.
#[derive(Default)]
struct Kinds(BTreeSet<String>);

impl<'ast> Visit<'ast> for Kinds {
    fn visit_path(&mut self, path: &'ast Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [.., of, kind] = names.as_slice()
            && ENUMS.contains(&of.as_str())
        {
            self.0.insert(kind.clone());
        }
        visit::visit_path(self, path);
    }
}

fn is_default(arm: &Arm) -> bool {
    let anything = match &arm.pat {
        Pat::Wild(_) => true,
        Pat::Ident(ident) => ident.subpat.is_none(),
        _ => false,
    };
    anything && arm.guard.is_none()
}

/// The wrong matches in a text.
fn wrong(text: &str) -> Vec<String> {
    let mut matches = Matches::default();
    matches.visit_file(&syn::parse_file(text).unwrap());
    matches.wrong
}

#[test]
fn no_match_over_kinds_has_a_default_arm() {
    let mut found = Vec::new();
    for file in files("src", "rs") {
        if is_test_file(&file) {
            continue;
        }
        found.extend(wrong(&read(&file)).into_iter().map(|kinds| format!("{file}: {kinds}")));
    }
    assert!(found.is_empty(), "write out the other kinds: {found:#?}");
}

#[test]
fn a_default_arm_is_found_in_a_match_over_kinds() {
    for (arms, expected) in [
        ("Kind::A => 1, Kind::B => 2, Kind::C => 3, _ => 4", &["A, B, C"][..]),
        ("Object::A(_) | Object::B(_) => 1, Object::C { .. } => 2, other => 3", &["A, B, C"]),
        ("(Kind::A, _) => 1, (Kind::B, 2) => 2, (kind::Kind::C, _) => 3, _ => 4", &["A, B, C"]),
        ("Kind::A => 1, Kind::B => 2, Kind::C => 3", &[]),
        ("Kind::A => 1, _ => 4", &[]),
        ("Kind::A => 1, Kind::B => 2, Kind::C => 3, _ if x => 4", &[]),
        ("Other::A => 1, Other::B => 2, Other::C => 3, _ => 4", &[]),
    ] {
        assert_eq!(wrong(&format!("fn f() {{ match x {{ {arms} }} }}")), expected, "{arms}");
    }
}
