//! What a tenant, a stranger or a peer sends is decoded in the places of `docs/design/bounds.md`, and nowhere
//! else: each of them says whose share pays, and what happens beyond.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ExprMethodCall, ExprPath, ImplItemFn, ItemFn, ItemMod};

use crate::documents::quoted;
use crate::sources::{files, is_for_tests, is_test_file, read, test_names};

/// The table.
const TABLE: &str = "docs/design/bounds.md";

/// What decodes bytes or values, by the last two parts of its path; `*` stands for anything. Protobuf, JSON,
/// YAML, X.509 and PEM, what compiles an expression, and the services that tonic generates.
const DECODERS: [(&str, &[&str]); 12] = [
    ("serde_json", &["from_str", "from_slice", "from_reader", "from_value"]),
    ("serde_saphyr", &["from_str", "from_slice", "from_reader", "from_str_with_options", "from_multiple"]),
    ("Deserializer", &["from_str", "from_slice", "from_reader", "new"]),
    ("StreamDeserializer", &["new"]),
    ("*", &["decode", "decode_length_delimited", "deserialize"]),
    ("*", &["from_der", "from_pem", "pem_slice_iter", "from_pem_slice"]),
    ("*", &["parse_x509_certificate", "parse_x509_pem"]),
    ("fs", &["read", "read_to_string"]),
    ("Regex", &["new"]),
    ("Hir", &["parse"]),
    ("Parser", &["new", "parse"]),
    ("*Server", &["new"]),
];

/// Methods that read to an end which the other side chooses, or decode.
const METHODS: [&str; 5] =
    ["read_to_end", "read_to_string", "read_line", "deserialize", "max_decoding_message_size"];

/// The calls of a file that decode.
#[derive(Default)]
struct Decoding(BTreeSet<String>);

impl<'ast> Visit<'ast> for Decoding {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_expr_path(&mut self, called: &'ast ExprPath) {
        let names: Vec<_> = called.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let [.., of, name] = names.as_slice()
            && decodes(of, name)
        {
            self.0.insert(format!("{of}::{name}"));
        }
        visit::visit_expr_path(self, called);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let name = call.method.to_string();
        if METHODS.contains(&name.as_str()) && !call.args.is_empty() {
            self.0.insert(format!(".{name}"));
        }
        visit::visit_expr_method_call(self, call);
    }
}

fn decodes(of: &str, name: &str) -> bool {
    let is = |expected: &str| match expected.strip_prefix('*') {
        Some(end) => of.ends_with(end),
        None => of == expected,
    };
    DECODERS.iter().any(|(expected, names)| is(expected) && names.contains(&name))
}

/// The decoding calls in a text.
fn decoding(text: &str) -> BTreeSet<String> {
    let mut found = Decoding::default();
    found.visit_file(&syn::parse_file(text).unwrap());
    found.0
}

/// The files of the program that decode, with what they call.
fn places() -> BTreeMap<String, BTreeSet<String>> {
    let all = ["src", "raft"].into_iter().flat_map(|directory| files(directory, "rs"));
    let all = all.filter(|file| !is_test_file(file) && !file.ends_with("/fuzzing.rs"));
    let all = all.map(|file| (decoding(&read(&file)), file));
    all.filter(|(found, _)| !found.is_empty()).map(|(found, file)| (file, found)).collect()
}

/// The section of the table with what is decoded.
fn decoded(text: &str) -> &str {
    let section = text.split("\n## What is decoded\n").nth(1).unwrap_or_default();
    section.split("\n## ").next().unwrap_or_default()
}

#[test]
fn what_decodes_input_stands_in_the_table_of_bounds() {
    let text = read(TABLE);
    let named: BTreeSet<_> =
        quoted(decoded(&text)).into_iter().filter(|name| name.contains('/')).map(str::to_owned).collect();
    let places = places();
    assert!(places.len() > 20, "the files are read: {places:#?}");
    let missing: Vec<_> = places.iter().filter(|(file, _)| !named.contains(*file)).collect();
    assert!(missing.is_empty(), "{TABLE} says nothing of what these decode: {missing:#?}");
    let idle: Vec<_> = named.iter().filter(|file| !places.contains_key(*file)).collect();
    assert!(idle.is_empty(), "{TABLE} names files that decode nothing: {idle:#?}");
}

#[test]
fn each_bound_is_shown_by_a_test_that_exists() {
    let (text, existing) = (read(TABLE), test_names());
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.contains(" test |"));
    let mut wrong = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let tests = quoted(cells.last().unwrap());
        if tests.is_empty() || !tests.iter().all(|test| existing.contains(*test)) {
            wrong.push(format!("{}: {tests:?}", cells[0]));
        }
    }
    assert!(wrong.is_empty(), "{TABLE}: no such tests: {wrong:#?}");
}

#[test]
fn a_call_that_decodes_is_found_and_one_of_a_test_is_not() {
    for (text, expected) in [
        ("fn f() { serde_json::from_str::<Value>(text) }", &["serde_json::from_str"][..]),
        (
            "fn f() { let x = [pb::Entry::decode(bytes)?, other::decode(bytes)]; }",
            &["Entry::decode", "other::decode"],
        ),
        ("impl A { fn f() { file.take(8).read_to_end(&mut all) } }", &[".read_to_end"]),
        ("fn f() { tokio::fs::read(path).await }", &["fs::read"]),
        ("fn f() { AdminServer::new(service) }", &["AdminServer::new"]),
        ("fn f() { map.map(Any::decode) }", &["Any::decode"]),
        ("fn f() { lock.read(); Server::started(); Room::new() }", &[]),
        ("#[cfg(test)] mod tests { fn f() { serde_json::from_str(text) } }", &[]),
    ] {
        assert_eq!(decoding(text).iter().map(String::as_str).collect::<Vec<_>>(), expected, "{text}");
    }
}
