//! The requests that are asked of a mesh.
//!
//! Owns their choice: two thirds are made to fulfil a match of the mesh, most of them whole and the others
//! but for one thing, so that both answers are given often; the rest is anything.

use http::uri::Authority;
use serde_json::Value;
use smc_policy::{AUTHORITY, Request, Version};

use smc_testkit::random::Random;

/// Expressions of paths, each with paths that match it.
pub(crate) const PATHS: &[(&str, &[&str])] = &[
    ("", &["/", "/a/b"]),
    ("/", &["/", "/x1"]),
    (".*", &["/", "/admin"]),
    ("/.*", &["/a", "/b/17"]),
    ("/a", &["/a", "/a/b", "/admin"]),
    ("/a/b", &["/a/b", "/a/b/"]),
    ("^/a$", &["/a"]),
    ("/a$|/b", &["/a", "/b", "/b/17"]),
    ("/(a|b)/[0-9]+", &["/a/17", "/b/17/x1"]),
    ("/[^/]+/admin", &["/x1/admin", "/b/admin/a"]),
    ("/a.*b", &["/a/b", "/a%2Fb"]),
    ("(?i)/A", &["/a", "/A/b"]),
    ("/a(/.*)?$", &["/a", "/a/17"]),
    ("/public/", &["/public/", "/public/a"]),
    (r"/x\d+\b", &["/x1", "/x1/a"]),
    (".*/admin", &["/admin", "/a/b/admin"]),
    ("/a//b", &["/a//b"]),
    (r"/\.", &["/...", "/..."]),
    ("/%2[fF]", &["/%2f", "/%2Fa"]),
    ("/[A-Z]", &["/A", "/A/17"]),
];

/// Expressions of header values, each with a value that matches it.
pub(crate) const VALUES: &[(&str, &[u8])] = &[
    ("t[0-9]+", b"t1"),
    (".*", b"evil"),
    ("", b""),
    ("a", b"a"),
    ("b", b"b"),
    ("a|b", b"b"),
    ("(?i)yes", b"YES"),
    (".*Android.*", b"an Android 4"),
    (".+", b"t1,evil"),
    ("[^,]*", b"a;b"),
    ("t1(,t2)?", b"t1,t2"),
    (".*t1", b"xt1"),
    ("t1.*", b"t1x"),
    ("(a|b)*", b"ab"),
    ("[^a].*", b"b"),
    (r"\w+", b"t22"),
    ("(.*a.){2}", b"abab"),
    ("(?:t1)?", b"t1"),
];

/// A request for a mesh of these objects.
pub(crate) fn request(random: &mut Random, objects: &[Value], version: Version) -> Request {
    let request = in_http1(random, objects);
    match version {
        Version::Http10 | Version::Http1 => request,
        Version::Http2 => in_http2(random, request),
    }
}

/// A request that not every sidecar takes, or with lines after its body, which say what a condition would
/// like to hear.
pub(crate) fn odd(random: &mut Random, objects: &[Value]) -> Request {
    let mut request = in_http1(random, objects);
    match random.below(6) {
        0 => request.version = Version::Http10,
        1 => {
            request.version = Version::Http10;
            request.headers.retain(|(name, _)| name != "host");
        }
        2 => (request.method, request.target) = ("OPTIONS".to_owned(), "*".to_owned()),
        3 => (request.method, request.target) = ("CONNECT".to_owned(), "a:443".to_owned()),
        4 => {
            let to = random.pick(&["websocket", "WebSocket", "h2c", "TLS/1.2", "TLS/1.2, HTTP/3.0", "web"]);
            request.headers.push(("Connection".to_owned(), b"Upgrade".to_vec()));
            request.headers.push(("Upgrade".to_owned(), to.as_bytes().to_vec()));
        }
        _ => request.trailers = vec![trailer(random)],
    }
    request
}

fn trailer(random: &mut Random) -> (String, Vec<u8>) {
    let name = random.pick(&["x-tenant", "x-role", "x_role", "user-agent"]).to_owned();
    (name, VALUES[random.below(VALUES.len())].1.to_vec())
}

/// The request in HTTP/2: its host is mostly the authority, and sometimes another host stands beside it. What
/// follows the body says what a condition would like to hear.
fn in_http2(random: &mut Random, request: Request) -> Request {
    let mut headers = request.headers;
    let host = headers.iter().position(|(name, _)| name == "host").expect("every request has one");
    if Authority::try_from(&*headers[host].1).is_ok() && !random.one_in(4) {
        let (_, value) = headers.remove(host);
        headers.push((AUTHORITY.to_owned(), value));
        if random.one_in(6) {
            headers.push(("host".to_owned(), random.pick(&["a", "b", "t1", "web.n1"]).as_bytes().to_vec()));
        }
    }
    let mut trailers = Vec::new();
    if random.one_in(6) {
        trailers.push(trailer(random));
    }
    Request { version: Version::Http2, headers, trailers, ..request }
}

fn in_http1(random: &mut Random, objects: &[Value]) -> Request {
    let matches: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "HTTPRouteGroup")
        .flat_map(|group| group["spec"]["matches"].as_array().unwrap())
        .collect();
    let anything = any(random);
    if matches.is_empty() || random.one_in(3) {
        return anything;
    }
    let matching = matches[random.below(matches.len())];
    let mut request = fulfilling(random, matching);
    if random.one_in(4) {
        // But for one thing.
        match random.below(3) {
            0 => request.method = anything.method,
            1 => request.target = anything.target,
            _ => request.headers.extend(anything.headers.into_iter().filter(|(name, _)| name != "host")),
        }
    }
    request
}

/// A request that fulfils a match, as far as the tables have examples for it.
fn fulfilling(random: &mut Random, matching: &Value) -> Request {
    let method = match matching["methods"].as_array().and_then(|methods| methods.first()?.as_str()) {
        None | Some("*") => "GET",
        Some(method) => method,
    };
    let expression = matching["pathRegex"].as_str().unwrap_or_default();
    let target = match PATHS.iter().find(|(known, _)| *known == expression) {
        Some((_, examples)) => random.pick(examples).to_owned(),
        None => path(random),
    };
    let written = &matching["headers"];
    let maps = written.as_array().into_iter().flatten().chain(written.is_object().then_some(written));
    let mut headers: Vec<(String, Vec<u8>)> = maps
        .flat_map(|map| map.as_object().unwrap())
        .filter_map(|(name, expression)| {
            let (_, example) = VALUES.iter().find(|(known, _)| expression == known)?;
            Some((name.to_lowercase(), example.to_vec()))
        })
        .collect();
    headers.dedup_by(|(one, _), (other, _)| one == other);
    if !headers.iter().any(|(name, _)| name == "host") {
        headers.push(("host".to_owned(), b"web.n1".to_vec()));
    }
    Request { version: Version::Http1, method: method.to_owned(), target, headers, trailers: Vec::new() }
}

/// A request of any kind, without regard to policy.
fn any(random: &mut Random) -> Request {
    let mut headers = Vec::new();
    // Almost always one host.
    let hosts = if random.one_in(16) { 2 } else { 1 };
    for _ in 0..hosts {
        headers.push(("host".to_owned(), random.pick(&["a", "b", "t1", "web.n1"]).as_bytes().to_vec()));
    }
    let values: [&[u8]; 19] = [
        b"t1",
        b"t22",
        b"evil",
        b"",
        b"a",
        b"b",
        b"ab",
        b"YES",
        b"an Android 4",
        b"t1,t2",
        b"t1,evil",
        b"a;b",
        b"\xc3\xa9",
        b"\xff",
        b"xt1",
        b"t1x",
        b" t1",
        b"b ",
        b"\ta",
    ];
    for _ in 0..random.below(4) {
        // Often the same header again.
        let name = random.pick(&[
            "x-tenant",
            "x-tenant",
            "X-Tenant",
            "x-role",
            "X_Role",
            "user-agent",
            "Accept",
            "cookie",
        ]);
        for _ in 0..[1, 1, 2, 3][random.below(4)] {
            headers.push((name.to_owned(), random.pick(&values).to_vec()));
        }
    }
    let at = random.below(headers.len());
    headers.rotate_left(at);
    let methods =
        ["GET", "GET", "GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "get", "PURGE", "GETS"];
    let (method, target) = (random.pick(&methods).to_owned(), path(random));
    Request { version: Version::Http1, method, target, headers, trailers: Vec::new() }
}

fn path(random: &mut Random) -> String {
    let segments = [
        "a",
        "b",
        "admin",
        "public",
        "A",
        "17",
        "x1",
        "",
        ".",
        "..",
        "%2e",
        "%2E%2e",
        ".%2e",
        "..;",
        "..;x=1",
        "%2f",
        "a%2Fb",
        "..%2fadmin",
        "%5c",
        r"..\admin",
        "%41",
        "%61",
        "%7e",
        "a;v=1",
        "%zz",
        "a%",
        "%252e%252e",
        "...",
        "a,b",
        "+",
        "$a",
        "a=b",
        "%00",
        "%20",
        "%0d%0a",
        "%25",
        "%252f",
        "%c0%af",
        "%c3%a9",
        "%uff0f",
        "\u{e9}",
        "{a}",
        "a|b",
        "^",
        "[a]",
        "%2e%2e%2fadmin",
        r"..%5cadmin",
    ];
    let mut path = String::new();
    for _ in 0..=random.below(4) {
        path.push('/');
        path.push_str(if random.one_in(3) { random.pick(&segments) } else { random.pick(&segments[..7]) });
    }
    if random.one_in(5) {
        path.push('/');
    }
    if random.one_in(5) {
        path.push_str(random.pick(&["?", "?/a", "?x=/../admin", "?a?b", "?%2f"]));
    }
    path
}
