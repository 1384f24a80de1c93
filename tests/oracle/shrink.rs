//! A disagreement made small: what can be left out is left out, one thing after the other.
//!
//! All smaller meshes of a step are tried at once, as sidecars of one Envoy.

use serde_json::Value;
use smc_policy::{AUTHORITY, Request, Version};

use crate::generate::Case;
use crate::judge::{self, Disagreement, Emission};
use crate::tally::Tally;

/// Steps at most, and smaller meshes in each: some seconds each.
const STEPS: usize = 60;
const TRIED: usize = 60;

/// Fields that may be left out of an object. It then says something else, but is well formed.
const OPTIONAL: [&str; 5] = ["pathRegex", "methods", "headers", "matches", "appProtocol"];

/// The smallest disagreement that leaving out leads to.
pub(crate) fn smallest(mut found: Disagreement, emission: Emission) -> Disagreement {
    for _ in 0..STEPS {
        let smaller = smaller(&found.case);
        let next = smaller.chunks(TRIED).find_map(|some| judge::judge(some, emission, &mut Tally::default()));
        match next {
            Some(next) => found = next,
            None => break,
        }
    }
    found
}

fn smaller(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let policy = |object: &Value| !["Namespace", "Pod"].iter().any(|kind| object["kind"] == *kind);
    for (at, object) in case.objects.iter().enumerate().filter(|(_, object)| policy(object)) {
        let mut objects = case.objects.clone();
        objects.remove(at);
        all.push(Case { objects, ..case.clone() });
        let mut parts = Vec::new();
        without_a_part(&object["spec"], &mut parts);
        for spec in parts {
            let mut objects = case.objects.clone();
            objects[at]["spec"] = spec;
            all.push(Case { objects, ..case.clone() });
        }
    }
    for request in case.requests.iter().take(1) {
        all.extend(
            smaller_requests(request)
                .into_iter()
                .map(|request| Case { requests: vec![request], ..case.clone() }),
        );
    }
    all
}

/// The value without one element of a list, or without one optional field, at any depth.
fn without_a_part(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Array(items) => {
            for at in 0..items.len() {
                let mut rest = items.clone();
                // An empty list means something else than a shorter one.
                if rest.len() > 1 {
                    rest.remove(at);
                    out.push(Value::Array(rest));
                }
                let mut inner = Vec::new();
                without_a_part(&items[at], &mut inner);
                out.extend(inner.into_iter().map(|item| {
                    let mut changed = items.clone();
                    changed[at] = item;
                    Value::Array(changed)
                }));
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                if OPTIONAL.contains(&name.as_str()) && fields.contains_key("name") {
                    let mut rest = fields.clone();
                    rest.remove(name);
                    out.push(Value::Object(rest));
                }
                let mut inner = Vec::new();
                without_a_part(field, &mut inner);
                out.extend(inner.into_iter().map(|field| {
                    let mut changed = fields.clone();
                    changed.insert(name.clone(), field);
                    Value::Object(changed)
                }));
            }
        }
        _ => {}
    }
}

/// The same request in HTTP/1.1, without a host beside the authority.
fn in_http1(request: &Request) -> Request {
    let has_authority = request.headers.iter().any(|(name, _)| name == AUTHORITY);
    let kept = request.headers.iter().filter(|(name, _)| !has_authority || name != "host");
    let headers = kept.map(|(name, value)| {
        (if name == AUTHORITY { "host".to_owned() } else { name.clone() }, value.clone())
    });
    Request { version: Version::Http1, headers: headers.collect(), ..request.clone() }
}

fn smaller_requests(request: &Request) -> Vec<Request> {
    let mut all = Vec::new();
    if request.method != "GET" {
        all.push(Request { method: "GET".to_owned(), ..request.clone() });
    }
    if request.version == Version::Http2 {
        all.push(Request { trailers: Vec::new(), ..in_http1(request) });
    }
    if request.version == Version::Http10 {
        all.push(Request { version: Version::Http1, ..request.clone() });
    }
    if !request.trailers.is_empty() {
        all.push(Request { trailers: Vec::new(), ..request.clone() });
    }
    let is_host = |(name, _): &(String, Vec<u8>)| name == "host" || name == AUTHORITY;
    let hosts = request.headers.iter().filter(|line| is_host(line)).count();
    for at in 0..request.headers.len() {
        if hosts > 1 || !is_host(&request.headers[at]) {
            let mut headers = request.headers.clone();
            headers.remove(at);
            all.push(Request { headers, ..request.clone() });
        }
    }
    let (path, query) =
        request.target.split_once('?').map_or((&*request.target, None), |(p, q)| (p, Some(q)));
    if query.is_some() {
        all.push(Request { target: path.to_owned(), ..request.clone() });
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for at in 0..segments.len().saturating_sub(1) {
        let mut rest = segments.clone();
        rest.remove(at);
        all.push(Request { target: format!("/{}", rest.join("/")), ..request.clone() });
    }
    all
}
