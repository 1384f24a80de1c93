//! Owns the dialogues that are compared: every line is one member of a kind that applications are known to
//! speak.

use smc_lab::tools::{Dialogue, Step};

/// What becomes of a dialogue with sidecars.
pub(super) enum Expected {
    /// Both ends hear the same.
    Same,
    /// The same, which is every request and an answer to each.
    SameAndWhole,
    /// A row of `docs/traffic.md` says how it differs; the client gets answers of these statuses.
    Differs { row: &'static str, answers: &'static [&'static str] },
}

/// A dialogue with what is expected of it.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) dialogue: Dialogue,
    /// The methods of the client's requests.
    pub(super) methods: Vec<String>,
    pub(super) expected: Expected,
}

/// How long, in milliseconds, an end listens for what must not come, and for a connection to be closed.
const A_WHILE: u64 = 300;

const OK: &str = "HTTP/1.1 200 OK|content-length: 2||ok";

/// Text of a message: a bar is the end of a line.
fn say(text: &str) -> Step {
    Step::Send(text.replace('|', "\r\n"), 1)
}

fn hear(text: &str) -> Step {
    Step::Await(text.replace('|', "\r\n"))
}

/// A client that sends one request, and hears what comes.
fn asks(request: &str) -> Vec<Step> {
    vec![say(request), Step::Listen(A_WHILE)]
}

/// An application that hears one request without a body, and gives this answer.
fn answers(answer: &str) -> Vec<Step> {
    vec![hear("||"), say(answer), Step::Listen(10_000)]
}

fn case(name: &str, client: Vec<Step>, application: Vec<Step>) -> Case {
    let methods = client.iter().filter_map(|step| match step {
        Step::Send(text, _) => {
            text.split_once(' ').filter(|(_, rest)| rest.contains("HTTP/")).map(|(m, _)| m)
        }
        _ => None,
    });
    Case {
        name: name.to_owned(),
        methods: methods.map(str::to_owned).collect(),
        dialogue: Dialogue { client: vec![client], application: vec![application] },
        expected: Expected::Same,
    }
}

impl Case {
    /// The case differs as a row of the document says.
    fn but(self, row: &'static str, answers: &'static [&'static str]) -> Self {
        Self { expected: Expected::Differs { row, answers }, ..self }
    }
}

/// One request and its answer.
pub(super) fn plain() -> Dialogue {
    case("a request", asks("GET / HTTP/1.1|host: a||"), answers(OK)).dialogue
}

/// Two requests on one connection of the client, with a pause that is shorter than servers of applications
/// keep a connection.
pub(super) fn with_a_pause() -> Dialogue {
    let get = || say("GET / HTTP/1.1|host: a||");
    let client = vec![get(), hear("ok"), Step::Listen(1900), get(), hear("ok")];
    case("a pause", client, answers(OK)).dialogue
}

pub(super) fn cases() -> Vec<Case> {
    let all = [
        upgrades(),
        old_clients(),
        sizes(),
        expectations(),
        trailers(),
        connections(),
        methods(),
        targets(),
        headers(),
        bodies(),
        odd_answers(),
    ];
    all.into_iter().flatten().collect()
}

fn upgrades() -> Vec<Case> {
    let upgrade = |to: &str| asks(&format!("GET / HTTP/1.1|host: a|connection: Upgrade|upgrade: {to}||"));
    let switching =
        |to: &str| answers(&format!("HTTP/1.1 101 Switching|upgrade: {to}|connection: Upgrade||hello"));
    vec![
        case("TLS, as a Java client offers it", upgrade("TLS/1.2"), answers(OK)),
        case("several protocols", upgrade("TLS/1.2, HTTP/3.0"), answers(OK)),
        case(
            "clear-text HTTP/2",
            asks(
                "GET / HTTP/1.1|host: a|connection: Upgrade, HTTP2-Settings|upgrade: h2c|http2-settings: AAMAAABkAAR||",
            ),
            answers(OK),
        ),
        case("a name that begins like another", upgrade("websockets"), answers(OK)),
        case("an empty name", upgrade(""), answers(OK)),
        case("a websocket", upgrade("websocket"), switching("websocket")),
        case("a websocket in other letters", upgrade("WebSocket"), switching("WebSocket")),
        case(
            "a websocket that is refused",
            upgrade("websocket"),
            answers("HTTP/1.1 403 No|content-length: 2||no"),
        ),
        case("a websocket that is ignored", upgrade("websocket"), answers(OK))
            .but("A websocket that is answered without one", &["200"]),
        case("another protocol, to which the application would change", upgrade("spdy"), switching("spdy"))
            .but("Another protocol than websocket", &["101"]),
    ]
}

fn old_clients() -> Vec<Case> {
    let chunks = "HTTP/1.1 200 OK|transfer-encoding: chunked||2|ok|0||";
    vec![
        case("HTTP/1.0", asks("GET /a HTTP/1.0|host: a||"), answers(OK)),
        case("HTTP/1.0 as a reverse proxy", asks("GET /a HTTP/1.0|host: a|connection: close||"), answers(OK)),
        case("HTTP/1.0 without a host", asks("GET /a HTTP/1.0||"), answers(OK)),
        case(
            "HTTP/1.0 with a body",
            asks("POST /a HTTP/1.0|content-length: 2||hi"),
            vec![hear("hi"), say(OK), Step::Listen(10_000)],
        ),
        case(
            "HTTP/1.0 that keeps the connection",
            vec![
                say("GET /a HTTP/1.0|host: a|connection: keep-alive||"),
                hear("ok"),
                say("GET /b HTTP/1.0|host: a|connection: keep-alive||"),
                Step::Listen(A_WHILE),
            ],
            vec![
                hear("||"),
                say("HTTP/1.1 200 OK|content-length: 2|connection: keep-alive||ok"),
                hear("||"),
                say("HTTP/1.1 200 OK|content-length: 2|connection: keep-alive||ok"),
                Step::Listen(10_000),
            ],
        ),
        case(
            "HTTP/1.0 that would keep the connection, without content",
            vec![
                say("GET /a HTTP/1.0|host: a|connection: keep-alive||"),
                Step::Listen(A_WHILE),
                say("GET /b HTTP/1.0|host: a|connection: keep-alive||"),
                Step::Listen(A_WHILE),
            ],
            vec![
                hear("||"),
                say("HTTP/1.1 204 No|connection: keep-alive||"),
                hear("||"),
                say("HTTP/1.1 204 No|connection: keep-alive||"),
                Step::Listen(10_000),
            ],
        )
        .but("HTTP/1.0 that keeps its connection after a 204", &["204"]),
        case("HTTP/1.0, answered in chunks", asks("GET /a HTTP/1.0|host: a||"), answers(chunks)),
        case(
            "an application of HTTP/1.0",
            asks("GET /a HTTP/1.1|host: a||"),
            vec![hear("||"), say("HTTP/1.0 200 OK||until the end")],
        ),
    ]
}

fn sizes() -> Vec<Case> {
    let ask = |lines: &str, times: u32| {
        vec![
            say("GET / HTTP/1.1|host: a|"),
            Step::Send(lines.replace('|', "\r\n"), times),
            say("|"),
            Step::Listen(A_WHILE),
        ]
    };
    let answer = |lines: &str, times: u32| {
        vec![
            hear("||"),
            say("HTTP/1.1 200 OK|content-length: 2|"),
            Step::Send(lines.replace('|', "\r\n"), times),
            say("|ok"),
            Step::Listen(10_000),
        ]
    };
    vec![
        case("120 lines in a request", ask("x-line: some value|", 120), answers(OK)),
        case("120 lines in an answer", asks("GET / HTTP/1.1|host: a||"), answer("x-line: some value|", 120)),
        case("900 lines in a request", ask("x-line: v|", 900), answers(OK)),
        case(
            "a cookie of 70 KB",
            {
                let mut steps = ask("c", 70_000);
                steps[0] = say("GET / HTTP/1.1|host: a|cookie: ");
                steps[2] = say("||");
                steps
            },
            answers(OK),
        ),
        case(
            "an answer with a line of 100 KB",
            asks("GET / HTTP/1.1|host: a||"),
            vec![
                hear("||"),
                say("HTTP/1.1 200 OK|content-length: 2|x-line: "),
                Step::Send("c".to_owned(), 100_000),
                say("||ok"),
                Step::Listen(10_000),
            ],
        ),
        case("2,000 lines in a request", ask("x-line: v|", 2000), answers(OK))
            .but("Larger headers than 256 KiB, or more than 1,000 lines", &["431"]),
    ]
}

fn expectations() -> Vec<Case> {
    let put = "PUT / HTTP/1.1|host: a|expect: 100-continue|content-length: 5||";
    vec![
        case(
            "a body that the application refuses",
            asks(put),
            answers("HTTP/1.1 401 No|content-length: 2||no"),
        ),
        case(
            "a body that the application asks for",
            vec![say(put), hear("||"), say("hello"), Step::Listen(A_WHILE)],
            vec![hear("||"), say("HTTP/1.1 100 Continue||"), hear("hello"), say(OK), Step::Listen(10_000)],
        ),
        case(
            "early hints",
            asks("GET / HTTP/1.1|host: a||"),
            answers("HTTP/1.1 103 Early Hints|link: </a>||HTTP/1.1 200 OK|content-length: 2||ok"),
        ),
        case(
            "early hints after another answer before the answer",
            vec![say(put), hear("||"), say("hello"), Step::Listen(A_WHILE)],
            vec![
                hear("||"),
                say("HTTP/1.1 100 Continue||HTTP/1.1 103 Early Hints|link: </a>||"),
                hear("hello"),
                say(OK),
                Step::Listen(10_000),
            ],
        )
        .but("More than one answer before the answer", &["100", "200"]),
    ]
}

fn trailers() -> Vec<Case> {
    vec![
        case(
            "an answer with a trailer",
            asks("GET / HTTP/1.1|host: a|te: trailers||"),
            answers("HTTP/1.1 200 OK|trailer: x-sum|transfer-encoding: chunked||2|ok|0|x-sum: 7||"),
        ),
        case(
            "a trailer that was not announced",
            asks("GET / HTTP/1.1|host: a||"),
            answers("HTTP/1.1 200 OK|transfer-encoding: chunked||2|ok|0|x-sum: 7||"),
        ),
        case(
            "a request with a trailer",
            asks("POST / HTTP/1.1|host: a|trailer: x-sum|transfer-encoding: chunked||2|hi|0|x-sum: 7||"),
            vec![hear("x-sum: 7||"), say(OK), Step::Listen(10_000)],
        ),
    ]
}

fn connections() -> Vec<Case> {
    let get = |path: &str| say(&format!("GET {path} HTTP/1.1|host: a||"));
    let four = || vec![get("/1"), hear("ok"), get("/2"), hear("ok"), Step::Listen(A_WHILE)];
    let two = vec![hear("||"), say(OK), hear("||"), say(OK)];
    let mut closing = case("a connection is closed after each second answer", four(), two);
    closing.dialogue.client.push(four());
    closing.methods = vec!["GET".to_owned(); 4];
    let mut asking = case(
        "a connection is closed when a second request is read",
        vec![get("/1"), hear("ok"), get("/2"), Step::Listen(A_WHILE)],
        vec![hear("||"), say(OK), hear("||")],
    );
    asking.methods = vec!["GET".to_owned(); 2];
    vec![
        closing,
        asking.but("A connection that the application closes without an answer", &["200", "503"]),
        case(
            "requests that do not wait",
            vec![say("GET /1 HTTP/1.1|host: a||GET /2 HTTP/1.1|host: a||"), Step::Listen(A_WHILE)],
            vec![hear("||"), say(OK), hear("||"), say(OK), Step::Listen(10_000)],
        ),
    ]
}

fn methods() -> Vec<Case> {
    let ask = |method: &str| asks(&format!("{method} /a HTTP/1.1|host: a|content-length: 0||"));
    let unknown = "A method that Envoy does not know";
    vec![
        case("a method of WebDAV", ask("PROPFIND"), answers(OK)),
        case("a method of UPnP", ask("M-SEARCH"), answers(OK)).but(unknown, &["400"]),
        case("TRACE", ask("TRACE"), answers(OK)),
        case("PURGE", ask("PURGE"), answers(OK)),
        case("QUERY", ask("QUERY"), answers(OK)).but(unknown, &["400"]),
        case("a method that nothing registers", ask("FROB"), answers(OK)).but(unknown, &["400"]),
    ]
}

fn targets() -> Vec<Case> {
    let get = |target: &str| asks(&format!("GET {target} HTTP/1.1|host: a||"));
    let proxy = "A forward proxy on a port for HTTP";
    let normalized = "A path that is not normalized";
    vec![
        case("slashes and a query", get("/a//b/?x=/../y&z=%2F?"), answers(OK)),
        case("an encoded slash", get("/a%2Fb"), answers(OK)),
        case("dots in a path", get("/a/../b"), answers(OK)).but(normalized, &["200"]),
        case("a letter that is encoded", get("/%41"), answers(OK)).but(normalized, &["200"]),
        case("the server", asks("OPTIONS * HTTP/1.1|host: a||"), answers(OK)).but("`OPTIONS *`", &["404"]),
        case("a fragment", get("/a#b"), answers(OK)).but("A `#` in the target", &["400"]),
        case("a request without a host", asks("GET / HTTP/1.1||"), answers(OK))
            .but("HTTP/1.1 without `Host`", &["400"]),
        case("a whole URL", asks("GET http://other/a HTTP/1.1|host: other||"), answers(OK))
            .but(proxy, &["200"]),
        case(
            "a tunnel",
            vec![say("CONNECT other:443 HTTP/1.1|host: other:443||"), Step::Listen(A_WHILE)],
            answers("HTTP/1.1 200 Connected||hello"),
        )
        .but(proxy, &["404"]),
    ]
}

fn headers() -> Vec<Case> {
    let get = |lines: &str| asks(&format!("GET / HTTP/1.1|host: a|{lines}||"));
    vec![
        case(
            "empty, odd and repeated values",
            get("x-a:|x_b: \u{e9}\u{ff}|x-c: 1|x-c:  2 |X-D: A\tb"),
            answers(OK),
        ),
        case(
            "what reverse proxies say",
            get(
                "x-forwarded-for: 192.0.2.1, 10.0.0.1|x-forwarded-proto: https|x-forwarded-host: b|via: 1.1 c|\
                 forwarded: for=192.0.2.1|x-request-id: 2f2d9a4b-7a3c-4f8e-9d0e-4c1b7d1c9a55|x-real-ip: 192.0.2.1",
            ),
            answers(OK),
        ),
        case(
            "traces",
            get("traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01|b3: 0"),
            answers(OK),
        ),
        case("cookies apart", get("cookie: a=1|cookie: b=2"), answers(OK)),
        case("a referer", get("referer: http://a/b?c"), answers(OK)),
        case("a referer that is no URL", get("referer: a b"), answers(OK))
            .but("A `referer` that is no URL", &["200"]),
        case("a header in two lines", get("accept: a|accept: b|x-c: 1"), answers(OK))
            .but("Some headers in more than one line", &["200"]),
        case("a line that is folded", get("x-a: 1| 2"), answers(OK)).but("A line that is folded", &["200"]),
        case(
            "cookies in an answer",
            get("x-a: 1"),
            answers(
                "HTTP/1.1 200 OK|set-cookie: a=1|set-cookie: b=2|Server: x|date: today|content-length: 2||ok",
            ),
        ),
        case(
            "offers in an answer, as Apache makes them",
            get("x-a: 1"),
            answers("HTTP/1.1 200 OK|upgrade: h2,h2c|connection: Upgrade, Keep-Alive|content-length: 2||ok"),
        ),
    ]
}

fn bodies() -> Vec<Case> {
    let with_body = |request: &str| {
        (
            asks(&format!("{request} / HTTP/1.1|host: a|content-length: 5||hello")),
            vec![hear("hello"), say(OK), Step::Listen(10_000)],
        )
    };
    let ((get, getting), (delete, deleting)) = (with_body("GET"), with_body("DELETE"));
    let begun = || vec![say("POST / HTTP/1.1|host: a|content-length: 9||hello"), Step::Listen(A_WHILE)];
    vec![
        case("GET with a body", get, getting),
        case("DELETE with a body", delete, deleting),
        case(
            "an answer before the body ends",
            begun(),
            vec![
                hear("hello"),
                say("HTTP/1.1 413 No|content-length: 2|connection: close||no"),
                Step::Listen(10_000),
            ],
        ),
        case(
            "a body that comes without being asked for",
            vec![
                say("PUT / HTTP/1.1|host: a|expect: 100-continue|content-length: 5||"),
                Step::Listen(A_WHILE),
                say("hello"),
                Step::Listen(A_WHILE),
            ],
            vec![hear("hello"), say(OK), Step::Listen(10_000)],
        ),
        case("POST without a body", asks("POST / HTTP/1.1|host: a||"), answers(OK)),
        case(
            "a client that says no more after its request",
            vec![say("GET / HTTP/1.1|host: a||"), Step::Finish, Step::Listen(A_WHILE)],
            vec![hear("||"), Step::Listen(20), say(OK)],
        )
        .but("A client that ends its direction before the answer", &[]),
        case(
            "a body up to the end of the connection",
            asks("GET / HTTP/1.1|host: a||"),
            vec![hear("||"), say("HTTP/1.1 200 OK|connection: close||until the end")],
        ),
    ]
}

fn odd_answers() -> Vec<Case> {
    let get = || asks("GET / HTTP/1.1|host: a||");
    let twice = "HTTP/1.1 200 OK|transfer-encoding: chunked|transfer-encoding: chunked||2|ok|0||";
    vec![
        case("no content, in no chunks", get(), answers("HTTP/1.1 204 No|transfer-encoding: chunked||"))
            .but("204 with `transfer-encoding`", &["502"]),
        case("chunks, said twice", get(), answers(twice)).but("`transfer-encoding` twice", &["502"]),
        case(
            "chunks and a length",
            get(),
            answers("HTTP/1.1 200 OK|transfer-encoding: chunked|content-length: 2||2|ok|0||"),
        )
        .but("`transfer-encoding` beside `content-length`", &["502"]),
        case("no content of no length", get(), answers("HTTP/1.1 204 No|content-length: 0||")),
        case("not modified, with a length", get(), answers("HTTP/1.1 304 Same|content-length: 9|etag: x||")),
        case("a status without words", get(), answers("HTTP/1.1 200|content-length: 2||ok")),
        case("a status of no standard", get(), answers("HTTP/1.1 299 Odd|content-length: 2||ok")),
        case("processing", get(), answers("HTTP/1.1 102 Wait||HTTP/1.1 200 OK|content-length: 2||ok")),
        case(
            "an answer to HEAD",
            asks("HEAD / HTTP/1.1|host: a||"),
            answers("HTTP/1.1 200 OK|content-length: 9||"),
        ),
    ]
}
