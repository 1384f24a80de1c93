//! Owns how what an end received is read as messages of HTTP/1, and what two such lists have to agree on:
//! not on what belongs to one connection (RFC 9110 §7.6.1), nor on what sidecars may add.

use smc_lab::tools::Heard;

/// Headers that sidecars add where the sender had none.
pub(super) const ADDED: [&str; 7] = [
    "date",
    "host",
    "x-envoy-upstream-service-time",
    "x-forwarded-client-cert",
    "x-forwarded-proto",
    "x-request-id",
    "content-length",
];

/// Headers that sidecars may take away: they belong to one connection, and each has its own.
pub(super) const TAKEN: [&str; 8] = [
    "connection",
    "content-length",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Which end received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Answers.
    Client,
    /// Requests.
    Application,
}

/// A request or an answer, without what belongs to one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The method and the target, or the status.
    pub(super) start: String,
    headers: Vec<(String, String)>,
    body: String,
    trailers: Vec<(String, String)>,
}

/// The messages of all connections in their order. Answers to the methods `HEAD` and `CONNECT` among
/// `methods`, which are those of the client's requests, have no body.
pub(super) fn read(heard: &[Heard], side: Side, methods: &[String]) -> Vec<Message> {
    let mut methods = methods.iter();
    let mut messages = Vec::new();
    for connection in heard {
        let mut rest = &*connection.text;
        while !rest.is_empty() {
            let (message, after) = one(rest, side, &mut methods);
            messages.push(message);
            rest = after;
        }
    }
    messages
}

fn one<'a, 'm>(
    text: &'a str,
    side: Side,
    methods: &mut impl Iterator<Item = &'m String>,
) -> (Message, &'a str) {
    let Some((head, rest)) = text.split_once("\r\n\r\n") else {
        let start = format!("no message: {text}");
        return (Message { start, headers: Vec::new(), body: String::new(), trailers: Vec::new() }, "");
    };
    let (first, lines) = head.split_once("\r\n").unwrap_or((head, ""));
    let headers = fields(lines);
    let words: Vec<&str> = first.split(' ').collect();
    let start = match side {
        Side::Client => words.get(1).copied().unwrap_or_default().to_owned(),
        Side::Application => words[..words.len().min(2)].join(" "),
    };
    let informational = side == Side::Client && start.starts_with('1') && start != "101";
    let method = match side {
        Side::Client if informational => None,
        Side::Client => methods.next().map(String::as_str),
        Side::Application => None,
    };
    let tunnel =
        start == "101" || start.starts_with("CONNECT ") || method == Some("CONNECT") && start == "200";
    let bodiless = informational || method == Some("HEAD") || ["204", "304"].contains(&&*start);
    let value =
        |name: &str| headers.iter().filter(|(line, _)| line == name).map(|(_, value)| &**value).next_back();
    let (body, trailers, rest) = if tunnel {
        (rest.to_owned(), Vec::new(), "")
    } else if bodiless {
        (String::new(), Vec::new(), rest)
    } else if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        chunked(rest)
    } else if let Some(length) = value("content-length") {
        let (body, rest) = beginning(rest, length.parse().unwrap_or(0)).unwrap_or((rest, ""));
        (body.to_owned(), Vec::new(), rest)
    } else if side == Side::Client {
        (rest.to_owned(), Vec::new(), "")
    } else {
        (String::new(), Vec::new(), rest)
    };
    (Message { start, headers, body, trailers }, rest)
}

fn fields(lines: &str) -> Vec<(String, String)> {
    let fields = lines.split("\r\n").filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}

/// A body in chunks, its trailers, and what follows. One that ends early has the rest.
fn chunked(text: &str) -> (String, Vec<(String, String)>, &str) {
    let (mut body, mut rest) = (String::new(), text);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = size.split(';').next().unwrap_or_default();
        let Ok(size) = usize::from_str_radix(size, 16) else { break };
        if size == 0 {
            if let Some(after) = after.strip_prefix("\r\n") {
                return (body, Vec::new(), after);
            }
            let (trailers, after) = after.split_once("\r\n\r\n").unwrap_or((after, ""));
            return (body, fields(trailers), after);
        }
        let Some((chunk, after)) = beginning(after, size) else { break };
        body.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap_or(after);
    }
    (format!("{body} and no last chunk: {rest}"), Vec::new(), "")
}

/// So many bytes, each of which is a character, and what follows; `None` if there are fewer.
fn beginning(text: &str, length: usize) -> Option<(&str, &str)> {
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.nth(length).map(|at| text.split_at(at))
}

/// What differs between the messages without sidecars and those with them.
pub(super) fn differences(direct: Vec<Message>, meshed: Vec<Message>) -> Vec<String> {
    if direct.len() != meshed.len() {
        let all = |messages: &[Message]| -> Vec<String> {
            messages.iter().map(|message| short(&message.start)).collect()
        };
        return vec![format!("directly {:?}, through sidecars {:?}", all(&direct), all(&meshed))];
    }
    let pairs = direct.into_iter().zip(meshed);
    pairs.filter_map(|(direct, meshed)| difference(direct, meshed)).collect()
}

fn difference(mut direct: Message, mut meshed: Message) -> Option<String> {
    let has = |headers: &[(String, String)], name: &str| headers.iter().any(|(line, _)| line == name);
    let (before, after) = (direct.headers.clone(), meshed.headers.clone());
    meshed.headers.retain(|(name, _)| has(&before, name) || !ADDED.contains(&&**name));
    meshed.headers.retain(|(name, _)| !TAKEN.contains(&&**name) || name == "upgrade");
    direct.headers.retain(|(name, _)| !TAKEN.contains(&&**name) || name == "upgrade" && has(&after, name));
    direct.headers.sort();
    meshed.headers.sort();
    let headers = lines("header", &direct.headers, &meshed.headers);
    let trailers = lines("trailer", &direct.trailers, &meshed.trailers);
    let mut found: Vec<String> = headers.chain(trailers).collect();
    for (what, before, after) in
        [("", &direct.start, &meshed.start), ("the body ", &direct.body, &meshed.body)]
    {
        if before != after {
            found.push(format!("{what}{:?} becomes {:?}", short(before), short(after)));
        }
    }
    (!found.is_empty()).then(|| format!("{}: {}", direct.start, found.join(", ")))
}

type Lines = [(String, String)];

/// The lines that are not on both sides the same number of times. Both are in order.
fn lines<'a>(what: &'a str, direct: &'a Lines, meshed: &'a Lines) -> impl Iterator<Item = String> + 'a {
    let count = |lines: &Lines, line: &(String, String)| lines.iter().filter(|other| *other == line).count();
    let without = move |lines: &'a Lines, others: &'a Lines, word: &'a str| {
        let missing = lines.iter().filter(move |line| count(lines, line) > count(others, line));
        missing.map(move |(name, value)| format!("{word} {what} {name}: {:?}", short(value)))
    };
    without(direct, meshed, "lost").chain(without(meshed, direct, "new"))
}

/// The beginning of a text, for people.
fn short(text: &str) -> String {
    let mut start: String = text.chars().take(60).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}

#[test]
fn messages_are_read_in_every_framing() {
    let heard = |text: &str| [Heard { text: text.to_owned(), ..Heard::default() }];
    let answers = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                   2\r\nok\r\n0\r\nx-sum: 7\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\
                   HTTP/1.1 204 No\r\n\r\nHTTP/1.0 404 No\r\n\r\nuntil the end";
    let methods = ["GET", "HEAD", "GET", "GET"].map(str::to_owned);
    let read = read(&heard(answers), Side::Client, &methods);
    let seen: Vec<_> = read.iter().map(|one| (&*one.start, &*one.body, one.trailers.len())).collect();
    assert_eq!(
        seen,
        [("100", "", 0), ("200", "ok", 1), ("200", "", 0), ("204", "", 0), ("404", "until the end", 0)]
    );
}

#[test]
fn what_belongs_to_a_connection_is_no_difference_and_all_else_is() {
    let message = |text: &str| {
        let heard = [Heard { text: text.replace('|', "\r\n"), ..Heard::default() }];
        read(&heard, Side::Application, &[])
    };
    let direct = || message("GET / HTTP/1.0|Connection: Upgrade|Upgrade: h2c|A: 1||");
    for (meshed, same) in [
        ("GET / HTTP/1.1|a: 1|x-request-id: 7|host: a||", true),
        ("GET / HTTP/1.1|a: 1|upgrade: x||", false),
        ("GET / HTTP/1.1|a: 2||", false),
        ("GET / HTTP/1.1|a: 1|a: 1||", false),
        ("GET /a HTTP/1.1|a: 1||", false),
        ("GET / HTTP/1.1|a: 1|x-new: 1||", false),
        ("GET / HTTP/1.1|a: 1|content-length: 1||x", false),
    ] {
        assert_eq!(differences(direct(), message(meshed)).is_empty(), same, "{meshed}");
    }
}
