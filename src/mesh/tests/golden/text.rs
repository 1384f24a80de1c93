//! Envoy's messages as text for people: the fields that are set, by name, with the content of each `Any`.
//!
//! The field names come from the `Debug` output of the generated types. `envoy-types` derives neither
//! serde nor reflection and exports no descriptors; to have them, tests would compile Envoy's 500
//! proto files once more, for a text that nothing but a person reads. The output is parsed into a
//! tree, stripped of unset fields, sorted where it comes from a hash map, and laid out. A message or
//! oneof with a single field becomes a path, `a.b.c`.
//!
//! What is pinned does not pass through `Debug`: a version is a hash of the encoded bytes, and
//! [`super::snapshots`] checks that it is that of the message shown. A prost that prints otherwise
//! moves lines of text and no version, so that the difference shows what it is. A field that is set
//! to its default is not shown; only its version tells it from one that is not set.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write};

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::config::trace::v3::ZipkinConfig;
use envoy_types::pb::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;
use envoy_types::pb::envoy::extensions::access_loggers::open_telemetry::v3::OpenTelemetryAccessLogConfig;
use envoy_types::pb::envoy::extensions::access_loggers::stats::v3::Config as StatsAccessLog;
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::StdoutAccessLog;
use envoy_types::pb::envoy::extensions::clusters::dns::v3::DnsCluster;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::ExtAuthz;
use envoy_types::pb::envoy::extensions::filters::http::local_ratelimit::v3::LocalRateLimit;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3 as http_rbac;
use envoy_types::pb::envoy::extensions::filters::http::router::v3::Router;
use envoy_types::pb::envoy::extensions::filters::listener::original_dst::v3::OriginalDst;
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::direct_response::v3 as direct_response;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use envoy_types::pb::envoy::extensions::filters::network::local_ratelimit::v3 as local_ratelimit;
use envoy_types::pb::envoy::extensions::filters::network::rbac::v3 as network_rbac;
use envoy_types::pb::envoy::extensions::filters::network::set_filter_state::v3 as set_filter_state;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::network::dns_resolver::cares::v3::CaresDnsResolverConfig;
use envoy_types::pb::envoy::extensions::rate_limit_descriptors::expr::v3 as rate_limit_expression;
use envoy_types::pb::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use envoy_types::pb::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as tls;
use envoy_types::pb::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use prost::{Message, Name};
use smc_xds::resource::Version;

/// The name of the first field of the content of an `Any`: its type, and the beginning of its version.
const ANY: &str = "@any";

/// Decodes a message of one type and formats it with `Debug`.
type Reader = fn(&[u8]) -> String;

fn reader<T: Message + Name + Default + Debug>() -> (String, Reader) {
    (T::type_url(), |bytes| format!("{:?}", T::decode(bytes).unwrap()))
}

/// Every type that the translation puts into an `Any`.
fn readers() -> Vec<(String, Reader)> {
    vec![
        reader::<Cluster>(),
        reader::<ClusterLoadAssignment>(),
        reader::<Listener>(),
        reader::<RouteConfiguration>(),
        reader::<TypedExtensionConfig>(),
        reader::<rate_limit_expression::Descriptor>(),
        reader::<tls::Secret>(),
        reader::<tls::DownstreamTlsContext>(),
        reader::<tls::UpstreamTlsContext>(),
        reader::<HttpConnectionManager>(),
        reader::<HttpProtocolOptions>(),
        reader::<StdoutAccessLog>(),
        reader::<OpenTelemetryAccessLogConfig>(),
        reader::<StatsAccessLog>(),
        reader::<ExpressionFilter>(),
        reader::<Router>(),
        reader::<http_rbac::Rbac>(),
        reader::<http_rbac::RbacPerRoute>(),
        reader::<LocalRateLimit>(),
        reader::<local_ratelimit::LocalRateLimit>(),
        reader::<ExtAuthz>(),
        reader::<ZipkinConfig>(),
        reader::<UuidRequestIdConfig>(),
        reader::<network_rbac::Rbac>(),
        reader::<TcpProxy>(),
        reader::<direct_response::Config>(),
        reader::<set_filter_state::Config>(),
        reader::<OriginalDst>(),
        reader::<TlsInspector>(),
        reader::<PreviousHostsPredicate>(),
        reader::<DnsCluster>(),
        reader::<CaresDnsResolverConfig>(),
    ]
}

/// The contents of `Any` in the texts so far, by type and version. Each is shown in full the first time only.
pub(crate) type Seen = BTreeSet<String>;

/// The text of a message.
pub(crate) fn of(type_url: &str, bytes: &[u8], seen: &mut Seen) -> String {
    let mut tree = read(type_url, bytes);
    tree.abridge(seen);
    let mut text = String::new();
    lay_out(&tree, 0, &mut text);
    text.push('\n');
    text
}

fn read(type_url: &str, bytes: &[u8]) -> Tree {
    let known = readers().into_iter().find(|(url, _)| url == type_url);
    let (_, reader) =
        known.unwrap_or_else(|| panic!("{type_url} is to be added to the types that can be read"));
    let text = reader(bytes);
    let mut rest = text.as_str();
    let tree = parse(&mut rest);
    assert_eq!(rest, "", "all of the text is read");
    tree
}

/// A parsed debug text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Tree {
    /// A number, a string, an identifier.
    Leaf(String),
    /// An enum variant with content: a oneof.
    Choice(String, Box<Tree>),
    /// A repeated field.
    List(Vec<Tree>),
    /// The fields of a message, or the entries of a map.
    Fields(Vec<(String, Tree)>),
}

impl Tree {
    /// Whether this is the value of an unset field. An empty message is set.
    fn is_unset(&self) -> bool {
        match self {
            Self::Leaf(leaf) => matches!(leaf.as_str(), "None" | "0" | "0.0" | "false" | "\"\""),
            Self::List(list) => list.is_empty(),
            Self::Choice(..) | Self::Fields(_) => false,
        }
    }

    /// Reduces every `Any` that was seen before to its type and version.
    fn abridge(&mut self, seen: &mut Seen) {
        match self {
            Self::Leaf(_) => {}
            Self::Choice(_, content) => content.abridge(seen),
            Self::List(items) => items.iter_mut().for_each(|item| item.abridge(seen)),
            Self::Fields(fields) => {
                if let Some((ANY, Self::Leaf(any))) =
                    fields.first().map(|(name, value)| (name.as_str(), value))
                    && !seen.insert(any.clone())
                {
                    fields.truncate(1);
                }
                for (_, value) in fields {
                    value.abridge(seen);
                }
            }
        }
    }
}

/// Parses one value at the front of a debug text.
fn parse(rest: &mut &str) -> Tree {
    match rest.as_bytes().first() {
        Some(b'"') => Tree::Leaf(quoted(rest)),
        Some(b'[') => Tree::List(sequence(rest, ']', parse)),
        Some(b'{') => {
            let mut entries = sequence(rest, '}', |rest| (key(rest), parse(rest)));
            entries.sort();
            if entries.is_empty() { Tree::List(Vec::new()) } else { Tree::Fields(entries) }
        }
        _ => {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c))).unwrap_or(rest.len());
            let word = rest[..end].to_owned();
            assert!(!word.is_empty(), "not a debug text: {rest:.40}");
            *rest = &rest[end..];
            named(word, rest)
        }
    }
}

/// Parses what follows an identifier: the fields of a message, the content of a variant, or nothing.
fn named(word: String, rest: &mut &str) -> Tree {
    if rest.starts_with('(') {
        let content = sequence(rest, ')', parse).remove(0);
        return if word == "Some" { content } else { Tree::Choice(word, Box::new(content)) };
    }
    if !rest.starts_with(" {") {
        return Tree::Leaf(word);
    }
    *rest = &rest[1..];
    let mut fields = sequence(rest, '}', |rest| (key(rest), parse(rest)));
    if word == "Any" {
        return any(&fields);
    }
    fields.retain(|(_, value)| !value.is_unset());
    Tree::Fields(fields)
}

/// The message in an `Any`, after the name of its type.
fn any(fields: &[(String, Tree)]) -> Tree {
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let (Some(Tree::Leaf(url)), Some(Tree::List(bytes))) = (field("type_url"), field("value")) else {
        panic!("not an Any")
    };
    let byte = |tree: &Tree| match tree {
        Tree::Leaf(number) => number.parse::<u8>().unwrap(),
        _ => panic!("not a byte"),
    };
    let bytes: Vec<u8> = bytes.iter().map(byte).collect();
    let url = url.trim_matches('"');
    let mut fields = match read(url, &bytes) {
        Tree::Fields(fields) => fields,
        // A message without fields is an identifier.
        _ => Vec::new(),
    };
    let kind = url.rsplit('.').next().unwrap_or(url);
    fields.insert(0, (ANY.to_owned(), Tree::Leaf(format!("{kind}@{:.12}", Version::of(&bytes).to_string()))));
    Tree::Fields(fields)
}

/// The items up to and including `close`.
fn sequence<T>(rest: &mut &str, close: char, item: impl Fn(&mut &str) -> T) -> Vec<T> {
    let mut items = Vec::new();
    *rest = rest[1..].trim_start();
    while !rest.starts_with(close) {
        items.push(item(rest));
        *rest = rest.trim_start_matches([',', ' ']);
    }
    *rest = &rest[1..];
    items
}

/// The name of a field or an entry, before a colon.
fn key(rest: &mut &str) -> String {
    let key = if rest.starts_with('"') {
        quoted(rest)
    } else {
        let (key, _) = rest.split_once(':').unwrap();
        *rest = &rest[key.len()..];
        key.to_owned()
    };
    *rest = rest.strip_prefix(": ").unwrap();
    key
}

/// A string, with its quotation marks.
fn quoted(rest: &mut &str) -> String {
    let mut escaped = false;
    let end = rest[1..].find(|c: char| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let (text, after) = rest.split_at(end.unwrap() + 2);
    *rest = after;
    text.to_owned()
}

/// The width up to which a value stays on one line.
const WIDTH: usize = 140;

fn lay_out(tree: &Tree, indent: usize, out: &mut String) {
    let inline = inline(tree);
    let used = out.len() - out.rfind('\n').map_or(0, |at| at + 1);
    if used + inline.len() <= WIDTH {
        out.push_str(&inline);
        return;
    }
    let line = |out: &mut String, indent: usize| write!(out, "\n{}", "  ".repeat(indent)).unwrap();
    match tree {
        Tree::Leaf(leaf) => out.push_str(leaf),
        Tree::Choice(word, content) => {
            let (path, content) = path(word, content);
            write!(out, "{path}: ").unwrap();
            lay_out(content, indent, out);
        }
        Tree::List(items) => {
            out.push('[');
            for item in items {
                line(out, indent + 1);
                lay_out(item, indent + 1, out);
            }
            line(out, indent);
            out.push(']');
        }
        Tree::Fields(fields) => {
            out.push('{');
            for (name, value) in fields {
                let (path, value) = path(name, value);
                line(out, indent + 1);
                write!(out, "{path}: ").unwrap();
                lay_out(value, indent + 1, out);
            }
            line(out, indent);
            out.push('}');
        }
    }
}

fn inline(tree: &Tree) -> String {
    let named = |name: &str, value: &Tree| {
        let (path, value) = path(name, value);
        format!("{path}: {}", inline(value))
    };
    match tree {
        Tree::Leaf(leaf) => leaf.clone(),
        Tree::Choice(word, content) => named(word, content),
        Tree::List(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Tree::Fields(fields) if fields.is_empty() => "{}".to_owned(),
        Tree::Fields(fields) => {
            let fields: Vec<_> = fields.iter().map(|(name, value)| named(name, value)).collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

/// The path of a name whose value has a single field, and of that field in turn. `a: { b: C(…) }` is
/// `a.b.c`.
fn path<'a>(name: &str, mut value: &'a Tree) -> (String, &'a Tree) {
    let mut path = name.to_owned();
    loop {
        let (step, content) = match value {
            Tree::Choice(word, content) => (word, &**content),
            Tree::Fields(fields) => match &fields[..] {
                [(only, content)] => (only, content),
                _ => return (path, value),
            },
            Tree::Leaf(_) | Tree::List(_) => return (path, value),
        };
        write!(path, ".{step}").unwrap();
        value = content;
    }
}
