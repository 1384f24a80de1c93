//! Owns the dialogues that are drawn from a seed: one to three requests on one connection, with every form
//! of HTTP/1 that sidecars are to pass on as it is, in any combination.
//!
//! What a row of `docs/traffic.md` says to differ is not drawn; `dialogues.rs` has it.

use std::fmt::Write as _;

use smc_lab::tools::{Dialogue, Step};
use smc_testkit::random::Random;

use super::dialogues::{Case, Expected};

/// How long, in milliseconds, a client listens for what must not come.
const A_WHILE: u64 = 100;

/// How long, in milliseconds, a sender pauses within a message.
const A_MOMENT: u64 = 15;

/// The end of every body without a length, a byte that is nowhere else.
const LAST: &str = "\u{a7}";

/// The header by which an end knows the message that it waits for.
const ROUND: &str = "x-round";

type Header = (String, String);

/// The requests and answers of one connection of a client.
#[derive(Debug, Clone)]
pub(super) struct Drawn {
    seed: u64,
    rounds: Vec<Round>,
    /// Whether the client sends all requests before it reads an answer.
    hurries: bool,
}

#[derive(Debug, Clone)]
struct Round {
    request: Half,
    method: &'static str,
    target: String,
    /// An informational answer before the answer.
    hint: Option<&'static str>,
    answer: Half,
    status: u16,
}

/// What requests and answers have in common.
#[derive(Debug, Clone)]
struct Half {
    /// HTTP/1.0.
    old: bool,
    headers: Vec<Header>,
    body: Body,
    /// Whether the sender pauses between head and body, and within the body.
    pauses: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    /// None, and nothing is said of it.
    None,
    /// Of a length that the head says.
    Sized(String),
    /// In these chunks, with a trailer or without.
    Chunks(Vec<String>, Option<&'static str>),
    /// Up to the end of the connection.
    UntilTheEnd(String),
}

/// The dialogue of a seed.
pub(super) fn drawn(seed: u64) -> Drawn {
    let mut random = Random::new(seed);
    let count = if random.one_in(2) { 1 } else { 1 + random.below(3) };
    let rounds = (0..count).map(|number| round(&mut random, number, number + 1 == count)).collect();
    Drawn { seed, rounds, hurries: random.one_in(4) }
}

fn round(random: &mut Random, number: usize, last: bool) -> Round {
    let method = random
        .pick(&["GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "PROPFIND", "REPORT"]);
    // A client of HTTP/1.0 ends with its answer, as does an application.
    let old = last && random.one_in(5);
    let mut request = half(random, old, REQUEST_HEADERS);
    request.body = match method {
        "GET" | "HEAD" | "OPTIONS" | "DELETE" if !random.one_in(5) => Body::None,
        _ if old => Body::Sized(text(random)),
        _ => body(random, number),
    };
    let status = *random.pick(&[
        &200, &200, &200, &200, &201, &202, &203, &204, &205, &206, &207, &226, &300, &301, &302, &303, &304,
        &307, &308, &400, &401, &402, &404, &405, &406, &409, &410, &412, &415, &416, &418, &422, &423, &425,
        &428, &429, &451, &499, &500, &501, &502, &503, &504, &507, &511, &599,
    ]);
    let ends = last && random.one_in(8);
    let mut answer = half(random, ends, ANSWER_HEADERS);
    answer.body = match (method, status) {
        ("HEAD", _) | (_, 204 | 304) => Body::None,
        _ if last && (answer.old || random.one_in(6)) => Body::UntilTheEnd(text(random)),
        // Without a length it would go on until the end.
        _ => match body(random, number) {
            Body::None => Body::Sized(String::new()),
            // A client of HTTP/1.0 gets it up to the end of the connection, which has no trailer.
            Body::Chunks(chunks, _) if old => Body::Chunks(chunks, None),
            body => body,
        },
    };
    let hint = (!old && !answer.old && random.one_in(8))
        .then(|| random.pick(&["102 Processing", "103 Early Hints"]));
    for half in [&mut request, &mut answer] {
        half.headers.push((ROUND.to_owned(), number.to_string()));
    }
    Round { request, method, target: target(random), hint, answer, status }
}

fn half(random: &mut Random, old: bool, known: &[(&'static str, &[&'static str])]) -> Half {
    let mut headers = Vec::new();
    for _ in 0..random.below(6) {
        let (name, values) = known[random.below(known.len())];
        // Of some, two lines become one.
        if !headers.iter().any(|(other, _): &Header| other.eq_ignore_ascii_case(name))
            || ["cookie", "set-cookie", "x-a"].contains(&name)
        {
            headers.push((cased(random, name), random.pick(values).to_owned()));
        }
    }
    for number in 0..random.below(4) {
        let name = format!("x-{}{number}", random_name(random));
        headers.push((cased(random, &name), value(random)));
    }
    Half { old, headers, body: Body::None, pauses: random.one_in(3) }
}

/// Names are equal in any case.
fn cased(random: &mut Random, name: &str) -> String {
    match random.below(4) {
        0 => name.to_ascii_uppercase(),
        1 => name.split_inclusive('-').map(capitalized).collect(),
        _ => name.to_owned(),
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// Any characters of a token (RFC 9110 §5.6.2).
fn random_name(random: &mut Random) -> String {
    let few = random.some(
        1,
        6,
        &["a", "B", "7", "_", "-", ".", "!", "#", "$", "%", "&", "'", "*", "+", "^", "`", "|", "~"],
    );
    few.concat()
}

/// Visible characters, blanks within, and bytes that are no ASCII (`obs-text`).
fn value(random: &mut Random) -> String {
    let all = [
        "",
        "a",
        "Z",
        "0",
        " ",
        "\t",
        "\"",
        "\\",
        ",",
        ";",
        "=",
        ":",
        "/",
        "(",
        ")",
        "%0a",
        "{}",
        "$(x)",
        "\u{e9}",
        "\u{ff}",
        "\u{80}",
        "long-long-long-long-long-long-long-long-long-long-long-long-long-long-long-long",
    ];
    random.some(0, 12, &all).concat().trim().to_owned()
}

fn text(random: &mut Random) -> String {
    let few = ["a", "hello", "\r\n", "\n", "0\r\n", "{\"a\": [1]}", "\0", "\u{ff}", " ", "GET / HTTP/1.1"];
    let mut text = random.some(0, 8, &few).concat();
    if random.one_in(8) {
        // More than a packet.
        text.push_str(&"1234567890".repeat(300));
    }
    text
}

fn body(random: &mut Random, number: usize) -> Body {
    match random.below(3) {
        0 => Body::None,
        1 => Body::Sized(text(random)),
        _ => {
            let mut chunks: Vec<_> = (0..random.below(5)).map(|_| text(random)).collect();
            chunks.retain(|chunk| !chunk.is_empty());
            let trailer = random.one_in(3).then(|| ["x-sum: 7", "x-sum: 8", "x-sum: 9"][number % 3]);
            Body::Chunks(chunks, trailer)
        }
    }
}

/// Segments that are normal as they are, and a query of what queries may have.
fn target(random: &mut Random) -> String {
    let segments = ["a", "B-c", "d.e", "..f", "~", "%20", "%C3%A9", "%2F", "!$&'()*+,;=:@", "index.html", ""];
    let mut target = format!("/{}", random.some(0, 4, &segments).join("/"));
    if random.one_in(2) {
        let parts = [
            "a=1", "b", "&", "=", "?", "/", "/../", "%2F", "%00", "+", "c[]=2", "d=\"", "{}", "|", "^", "`",
            "<>",
        ];
        write!(target, "?{}", random.some(0, 6, &parts).concat()).unwrap();
    }
    target
}

const REQUEST_HEADERS: &[(&str, &[&str])] = &[
    ("accept", &["*/*", "text/html, */*;q=0.1", "application/grpc-web"]),
    ("accept-encoding", &["gzip, br", "identity", ""]),
    ("authorization", &["Basic YTpi", "Bearer a.b.c"]),
    ("cache-control", &["no-cache", "max-age=0"]),
    ("content-type", &["application/json", "multipart/form-data; boundary=a", "application/grpc-web+proto"]),
    ("content-encoding", &["gzip", "identity"]),
    ("cookie", &["a=1", "b=2; c=3", "d=\"e\"", ""]),
    ("date", &["Sun, 29 Nov 2026 00:00:00 GMT", "today"]),
    ("forwarded", &["for=192.0.2.1;proto=https", "for=\"[2001:db8::1]\""]),
    ("from", &["a@example.com"]),
    ("grpc-timeout", &["1S"]),
    ("if-match", &["*", "\"a\", \"b\""]),
    ("if-modified-since", &["Sun, 29 Nov 2026 00:00:00 GMT"]),
    ("if-none-match", &["W/\"a\""]),
    ("max-forwards", &["0", "10"]),
    ("origin", &["http://a", "null"]),
    ("priority", &["u=1, i"]),
    ("proxy-authorization", &["Basic YTpi"]),
    ("range", &["bytes=0-1", "bytes=-5, 3-"]),
    ("referer", &["http://a/b?c", "https://a:8443/"]),
    ("sec-fetch-mode", &["cors"]),
    ("sec-websocket-version", &["13"]),
    ("soapaction", &["\"urn:a\"", "\"\""]),
    ("traceparent", &["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]),
    ("user-agent", &["curl/8", "", "a (b; c) d/1"]),
    ("via", &["1.1 a"]),
    ("x-a", &["1", "2, 3", ""]),
    ("x-b3-traceid", &["463ac35c9f6413ad48485a3953bb6124"]),
    ("x-forwarded-for", &["192.0.2.1", "192.0.2.1, 10.0.0.1", "unknown"]),
    ("x-forwarded-host", &["a"]),
    ("x-forwarded-port", &["443"]),
    ("x-forwarded-proto", &["http", "https"]),
    ("x-http-method-override", &["DELETE"]),
    ("x-original-url", &["/admin"]),
    ("x-real-ip", &["192.0.2.1"]),
    ("x-request-id", &["2f2d9a4b-7a3c-4f8e-9d0e-4c1b7d1c9a55", "7"]),
    ("x-requested-with", &["XMLHttpRequest"]),
];

const ANSWER_HEADERS: &[(&str, &[&str])] = &[
    ("accept-ranges", &["bytes", "none"]),
    ("access-control-allow-origin", &["*"]),
    ("age", &["7"]),
    ("allow", &["GET, HEAD", ""]),
    ("alt-svc", &["h3=\":443\"; ma=86400"]),
    ("cache-control", &["no-store", "public, max-age=60"]),
    ("content-disposition", &["attachment; filename=\"a\""]),
    ("content-encoding", &["gzip", "br"]),
    ("content-language", &["de, en"]),
    ("content-location", &["/b"]),
    ("content-range", &["bytes 0-1/2", "bytes */2"]),
    ("content-type", &["text/html; charset=utf-8", "application/json", "text/event-stream"]),
    ("date", &["Sun, 29 Nov 2026 00:00:00 GMT", "today"]),
    ("etag", &["\"a\"", "W/\"a\"", ""]),
    ("expires", &["0", "-1"]),
    ("last-modified", &["Sun, 29 Nov 2026 00:00:00 GMT"]),
    ("link", &["</a>; rel=preload, </b>"]),
    ("location", &["/b", "http://other/c", "../d", ""]),
    ("pragma", &["no-cache"]),
    ("retry-after", &["120"]),
    ("server", &["nginx", "", "Apache/2 (x)"]),
    ("set-cookie", &["a=1; path=/", "b=2, c=3", "d=; expires=Thu, 01 Jan 1970 00:00:00 GMT"]),
    ("strict-transport-security", &["max-age=1"]),
    ("vary", &["*", "accept, origin"]),
    ("via", &["1.1 b"]),
    ("warning", &["199 - \"a\""]),
    ("www-authenticate", &["Basic realm=\"a\"", "Negotiate"]),
    ("x-a", &["1", "2, 3", ""]),
    ("x-forwarded-for", &["192.0.2.1"]),
    ("x-powered-by", &["PHP/5"]),
    ("x-request-id", &["7"]),
];

impl Half {
    /// What is sent, in pieces between which the sender pauses.
    fn pieces(&self, start: &str) -> Vec<String> {
        let mut head = format!("{start}\r\n");
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        let mut pieces = Vec::new();
        match &self.body {
            Body::None => pieces.push(head + "\r\n"),
            Body::Sized(text) => {
                // Its length in bytes, each of which is a character.
                write!(head, "content-length: {}\r\n\r\n", text.chars().count()).unwrap();
                let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
                pieces.extend([head, text[..half].to_owned(), text[half..].to_owned()]);
            }
            Body::Chunks(chunks, trailer) => {
                pieces.push(head + "transfer-encoding: chunked\r\n\r\n");
                let chunks = chunks.iter().map(String::as_str).chain([LAST]);
                pieces.extend(chunks.map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.chars().count())));
                let trailer = trailer.map(|line| format!("{line}\r\n")).unwrap_or_default();
                pieces.push(format!("0\r\n{trailer}\r\n"));
            }
            Body::UntilTheEnd(text) => pieces.extend([head + "\r\n", format!("{text}{LAST}")]),
        }
        pieces.retain(|piece| !piece.is_empty());
        if self.pauses { pieces } else { vec![pieces.concat()] }
    }

    fn says(&self, start: &str) -> Vec<Step> {
        let pieces = self.pieces(start).into_iter().map(|piece| Step::Send(piece, 1));
        pieces.flat_map(|piece| [piece, Step::Listen(A_MOMENT)]).collect()
    }

    /// What the other end waits for, to have heard all of it but what ends with the connection.
    fn heard(&self, number: usize) -> Vec<Step> {
        let mut steps = vec![Step::Await(format!("{ROUND}: {number}")), Step::Await("\r\n\r\n".to_owned())];
        match &self.body {
            Body::Sized(text) if !text.is_empty() => steps.push(Step::Await(text.clone())),
            Body::Chunks(_, Some(trailer)) => steps.push(Step::Await(format!("{trailer}\r\n\r\n"))),
            Body::Chunks(_, None) => steps.push(Step::Await(format!("{LAST}\r\n0\r\n\r\n"))),
            Body::UntilTheEnd(_) => steps.push(Step::Await(LAST.to_owned())),
            Body::None | Body::Sized(_) => {}
        }
        steps
    }

    /// The same with one thing less.
    fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for at in 0..self.headers.len() {
            let mut less = self.clone();
            if less.headers.remove(at).0 != ROUND {
                all.push(less);
            }
        }
        let bodies: Vec<Body> = match &self.body {
            Body::Sized(text) if text.is_empty() => vec![Body::None],
            Body::Sized(_) => vec![Body::None, Body::Sized(String::new()), Body::Sized("a".to_owned())],
            Body::Chunks(chunks, trailer) => [
                (!chunks.is_empty()).then(|| Body::Chunks(chunks[1..].to_vec(), *trailer)),
                trailer.map(|_| Body::Chunks(chunks.clone(), None)),
                Some(Body::Sized("a".to_owned())),
            ]
            .into_iter()
            .flatten()
            .collect(),
            Body::UntilTheEnd(text) if text != "a" => vec![Body::UntilTheEnd("a".to_owned())],
            Body::None | Body::UntilTheEnd(_) => vec![],
        };
        all.extend(bodies.into_iter().map(|body| Self { body, ..self.clone() }));
        if self.pauses {
            all.push(Self { pauses: false, ..self.clone() });
        }
        if self.old {
            all.push(Self { old: false, ..self.clone() });
        }
        all
    }
}

impl Round {
    fn request(&self) -> Vec<Step> {
        let version = if self.request.old { "1.0" } else { "1.1" };
        let host = if self.request.old { "" } else { "\r\nhost: a" };
        self.request.says(&format!("{} {} HTTP/{version}{host}", self.method, self.target))
    }

    fn answer(&self) -> Vec<Step> {
        let hint = self.hint.map(|hint| Step::Send(format!("HTTP/1.1 {hint}\r\nx-hint: 1\r\n\r\n"), 1));
        let version = if self.answer.old { "1.0" } else { "1.1" };
        let answer = self.answer.says(&format!("HTTP/{version} {} Words", self.status));
        hint.into_iter().chain(answer).collect()
    }

    /// Whether a client knows where the answer ends.
    fn is_legal(&self) -> bool {
        let bodiless = self.method == "HEAD" || [204, 304].contains(&self.status);
        bodiless == (self.answer.body == Body::None)
    }

    fn smaller(&self) -> Vec<Self> {
        let requests = self.request.smaller().into_iter().map(|request| Self { request, ..self.clone() });
        let answers = self.answer.smaller().into_iter().map(|answer| Self { answer, ..self.clone() });
        let mut all: Vec<Self> = requests.chain(answers).collect();
        if self.hint.is_some() {
            all.push(Self { hint: None, ..self.clone() });
        }
        if self.target != "/" {
            all.push(Self { target: "/".to_owned(), ..self.clone() });
        }
        if self.method != "GET" {
            all.push(Self { method: "GET", ..self.clone() });
        }
        if self.status != 200 {
            all.push(Self { status: 200, ..self.clone() });
        }
        all.retain(Self::is_legal);
        all
    }
}

impl Drawn {
    /// The scripts of both ends. Sidecars and the connection alone must say the same of it.
    pub(super) fn case(&self) -> Case {
        let (mut client, mut application) = (Vec::new(), Vec::new());
        for (number, round) in self.rounds.iter().enumerate() {
            client.extend(round.request());
            if !self.hurries {
                client.extend(round.answer.heard(number));
            }
            application.extend(round.request.heard(number));
            application.extend(round.answer());
        }
        if self.hurries {
            client.extend(
                self.rounds.iter().enumerate().flat_map(|(number, round)| round.answer.heard(number)),
            );
        }
        let ends = self.rounds.last().is_some_and(|round| matches!(round.answer.body, Body::UntilTheEnd(_)));
        client.push(Step::Listen(A_WHILE));
        if !ends {
            application.push(Step::Listen(10_000));
        }
        Case {
            name: format!("SMC_SEED={}: {self:?}", self.seed),
            dialogue: Dialogue { client: vec![client], application: vec![application] },
            methods: self.rounds.iter().map(|round| round.method.to_owned()).collect(),
            expected: Expected::SameAndWhole,
        }
    }

    /// The same with one thing less, what makes most of it first.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut all = Vec::new();
        if self.rounds.len() > 1 {
            // Numbers are in the order of rounds.
            all.push(Self { rounds: self.rounds[..self.rounds.len() - 1].to_vec(), ..self.clone() });
        }
        if self.hurries {
            all.push(Self { hurries: false, ..self.clone() });
        }
        for (at, round) in self.rounds.iter().enumerate() {
            for less in round.smaller() {
                let mut smaller = self.clone();
                smaller.rounds[at] = less;
                all.push(smaller);
            }
        }
        all
    }
}
