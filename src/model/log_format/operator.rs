//! A text with Envoy's operators, such as `%REQ(:PATH)%`.
//!
//! Owns the list of operators, with what each takes in parentheses: operators that Envoy 1.40 knows without
//! an extension, but for those that print what a log must not have. What a peer chooses is cut.

use std::fmt::Write as _;

use smc_types::text::truncated;

/// The most bytes that an operator prints of what a peer chose, such as a header. A format has room for 80 of
/// these operators, with their lengths: a line has 160 KiB of what peers chose at most.
pub const LONGEST: u32 = 2048;

/// A text with operators.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    /// As it is.
    Literal(String),
    /// What Envoy puts there.
    Operator {
        name: &'static str,
        /// What stands in parentheses; empty without them.
        arguments: String,
        /// The most bytes of it, where Envoy takes a length.
        length: Option<u32>,
    },
}

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLine {
    /// A `%` that begins no operator.
    #[error("has a % before {0:?} that begins no operator; %% is the sign itself")]
    Sign(String),
    /// An operator that is not on the list.
    #[error("has the operator {0}, which is not on the list of SMC")]
    Unknown(String),
    /// An operator whose output does not belong in a log.
    #[error("has the operator {name}, which is refused: {reason}")]
    Refused {
        /// Its name.
        name: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// What stands in the parentheses of an operator.
    #[error("has the operator {name} with {arguments:?}, and it {needs}")]
    Arguments {
        /// Its name.
        name: &'static str,
        /// What stands there.
        arguments: String,
        /// What it takes.
        needs: &'static str,
    },
    /// A character that would change what a terminal shows.
    #[error("has the control character {0:?}")]
    Control(char),
}

/// What an operator takes in parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    /// A header, and one that is printed where it is missing; and a length.
    Header,
    /// Whether with the query, and of which path; and a length.
    Path,
    /// A place in the metadata that filters leave; and a length.
    Metadata,
    /// The form of a point in time, or nothing.
    Time,
    /// The form of a status of gRPC, or nothing.
    Status,
    /// Whether with spaces.
    Details,
    /// Two time points in the life of a request, and a unit.
    Duration,
}

use Takes::{Details, Duration, Header, Metadata, Nothing, Path, Status, Time};

/// The operators.
const OPERATORS: &[(&str, Takes)] = &[
    ("ACCESS_LOG_TYPE", Nothing),
    ("BYTES_RECEIVED", Nothing),
    ("BYTES_RETRANSMITTED", Nothing),
    ("BYTES_SENT", Nothing),
    ("COMMON_DURATION", Duration),
    ("CONNECTION_ID", Nothing),
    ("CONNECTION_TERMINATION_DETAILS", Nothing),
    ("CUSTOM_FLAGS", Nothing),
    ("DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", Nothing),
    ("DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", Nothing),
    ("DOWNSTREAM_DETECTED_CLOSE_TYPE", Nothing),
    ("DOWNSTREAM_DIRECT_LOCAL_ADDRESS", Nothing),
    ("DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT", Nothing),
    ("DOWNSTREAM_DIRECT_LOCAL_PORT", Nothing),
    ("DOWNSTREAM_DIRECT_REMOTE_ADDRESS", Nothing),
    ("DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", Nothing),
    ("DOWNSTREAM_DIRECT_REMOTE_PORT", Nothing),
    ("DOWNSTREAM_HANDSHAKE_DURATION", Nothing),
    ("DOWNSTREAM_HEADER_BYTES_RECEIVED", Nothing),
    ("DOWNSTREAM_HEADER_BYTES_SENT", Nothing),
    ("DOWNSTREAM_LOCAL_ADDRESS", Nothing),
    ("DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", Nothing),
    ("DOWNSTREAM_LOCAL_CLOSE_REASON", Nothing),
    ("DOWNSTREAM_LOCAL_DNS_SAN", Nothing),
    ("DOWNSTREAM_LOCAL_IP_SAN", Nothing),
    ("DOWNSTREAM_LOCAL_PORT", Nothing),
    ("DOWNSTREAM_LOCAL_SUBJECT", Nothing),
    ("DOWNSTREAM_LOCAL_URI_SAN", Nothing),
    ("DOWNSTREAM_PEER_CERT_V_END", Time),
    ("DOWNSTREAM_PEER_CERT_V_START", Time),
    ("DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1", Nothing),
    ("DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256", Nothing),
    ("DOWNSTREAM_PEER_CHAIN_SERIALS", Nothing),
    ("DOWNSTREAM_PEER_DNS_SAN", Nothing),
    ("DOWNSTREAM_PEER_FINGERPRINT_1", Nothing),
    ("DOWNSTREAM_PEER_FINGERPRINT_256", Nothing),
    ("DOWNSTREAM_PEER_IP_SAN", Nothing),
    ("DOWNSTREAM_PEER_ISSUER", Nothing),
    ("DOWNSTREAM_PEER_SERIAL", Nothing),
    ("DOWNSTREAM_PEER_SUBJECT", Nothing),
    ("DOWNSTREAM_PEER_URI_SAN", Nothing),
    ("DOWNSTREAM_REMOTE_ADDRESS", Nothing),
    ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", Nothing),
    ("DOWNSTREAM_REMOTE_PORT", Nothing),
    ("DOWNSTREAM_TLS_CIPHER", Nothing),
    ("DOWNSTREAM_TLS_VERSION", Nothing),
    ("DOWNSTREAM_TRANSPORT_FAILURE_REASON", Nothing),
    ("DOWNSTREAM_WIRE_BYTES_RECEIVED", Nothing),
    ("DOWNSTREAM_WIRE_BYTES_SENT", Nothing),
    ("DURATION", Nothing),
    ("DYNAMIC_METADATA", Metadata),
    ("EMIT_TIME", Time),
    ("EMIT_TIME_LOCAL", Time),
    ("FILTER_CHAIN_NAME", Nothing),
    ("GRPC_STATUS", Status),
    ("GRPC_STATUS_NUMBER", Nothing),
    ("HOSTNAME", Nothing),
    ("LISTENER_NAME", Nothing),
    ("LOCAL_REPLY_BODY", Nothing),
    ("PACKETS_RETRANSMITTED", Nothing),
    ("PATH", Path),
    ("PROTOCOL", Nothing),
    ("REQ", Header),
    ("REQUESTED_SERVER_NAME", Nothing),
    ("REQUEST_DURATION", Nothing),
    ("REQUEST_HEADERS_BYTES", Nothing),
    ("REQUEST_TX_DURATION", Nothing),
    ("RESP", Header),
    ("RESPONSE_CODE", Nothing),
    ("RESPONSE_CODE_DETAILS", Details),
    ("RESPONSE_DURATION", Nothing),
    ("RESPONSE_FLAGS", Nothing),
    ("RESPONSE_FLAGS_LONG", Nothing),
    ("RESPONSE_HEADERS_BYTES", Nothing),
    ("RESPONSE_TRAILERS_BYTES", Nothing),
    ("RESPONSE_TX_DURATION", Nothing),
    ("ROUNDTRIP_DURATION", Nothing),
    ("ROUTE_NAME", Nothing),
    ("START_TIME", Time),
    ("START_TIME_LOCAL", Time),
    ("TRACE_ID", Nothing),
    ("TRAILER", Header),
    ("UNIQUE_ID", Nothing),
    ("UPSTREAM_CLUSTER", Nothing),
    ("UPSTREAM_CLUSTER_RAW", Nothing),
    ("UPSTREAM_CONNECTION_ID", Nothing),
    ("UPSTREAM_CONNECTION_IDS_ATTEMPTED", Nothing),
    ("UPSTREAM_CONNECTION_POOL_READY_DURATION", Nothing),
    ("UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED", Nothing),
    ("UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT", Nothing),
    ("UPSTREAM_DETECTED_CLOSE_TYPE", Nothing),
    ("UPSTREAM_HEADER_BYTES_RECEIVED", Nothing),
    ("UPSTREAM_HEADER_BYTES_SENT", Nothing),
    ("UPSTREAM_HOST", Nothing),
    ("UPSTREAM_HOSTS_ATTEMPTED", Nothing),
    ("UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT", Nothing),
    ("UPSTREAM_HOST_NAME", Nothing),
    ("UPSTREAM_HOST_NAMES_ATTEMPTED", Nothing),
    ("UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT", Nothing),
    ("UPSTREAM_HOST_NAME_WITHOUT_PORT", Nothing),
    ("UPSTREAM_LOCAL_ADDRESS", Nothing),
    ("UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", Nothing),
    ("UPSTREAM_LOCAL_CLOSE_REASON", Nothing),
    ("UPSTREAM_LOCAL_PORT", Nothing),
    ("UPSTREAM_LOCAL_URI_SAN", Nothing),
    ("UPSTREAM_PEER_CERT_V_END", Time),
    ("UPSTREAM_PEER_CERT_V_START", Time),
    ("UPSTREAM_PEER_DNS_SAN", Nothing),
    ("UPSTREAM_PEER_ISSUER", Nothing),
    ("UPSTREAM_PEER_SUBJECT", Nothing),
    ("UPSTREAM_PEER_URI_SAN", Nothing),
    ("UPSTREAM_PROTOCOL", Nothing),
    ("UPSTREAM_REMOTE_ADDRESS", Nothing),
    ("UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", Nothing),
    ("UPSTREAM_REMOTE_PORT", Nothing),
    ("UPSTREAM_REQUEST_ATTEMPT_COUNT", Nothing),
    ("UPSTREAM_TLS_CIPHER", Nothing),
    ("UPSTREAM_TLS_VERSION", Nothing),
    ("UPSTREAM_TRANSPORT_FAILURE_REASON", Nothing),
    ("UPSTREAM_WIRE_BYTES_RECEIVED", Nothing),
    ("UPSTREAM_WIRE_BYTES_SENT", Nothing),
    ("VIRTUAL_CLUSTER_NAME", Nothing),
];

/// Operators that people may know, and why they are no part of a format.
const REFUSED: &[(&str, &str)] = &[
    ("CEL", "an expression reads everything that the sidecar has"),
    ("CLUSTER_METADATA", "UPSTREAM_CLUSTER_RAW names the service and its port"),
    ("COALESCE", "it takes operators that are on no list"),
    ("DOWNSTREAM_PEER_CERT", "it prints whole certificates; DOWNSTREAM_PEER_FINGERPRINT_256 names one"),
    ("DOWNSTREAM_TLS_SESSION_ID", "sessions are no subject of a log; CONNECTION_ID names a connection"),
    ("ENVIRONMENT", "the environment of a sidecar may hold secrets"),
    ("FILE_CONTENT", "files of a sidecar hold secrets"),
    ("FILTER_STATE", "it prints what filters keep for themselves"),
    (
        "METADATA",
        "Envoy knows it by an extension that sidecars do not have; DYNAMIC_METADATA has what filters leave",
    ),
    ("QUERY_PARAM", "it prints line feeds that a caller encodes; PATH has the query as it is"),
    ("REQ_WITHOUT_QUERY", "Envoy knows it by an extension that sidecars do not have; PATH(NQ) has no query"),
    ("STREAM_ID", "it prints as much as a caller wants; REQ(X-REQUEST-ID) is cut"),
    ("UPSTREAM_FILTER_STATE", "it prints what filters keep for themselves"),
    ("UPSTREAM_METADATA", "endpoints of the mesh have no metadata"),
    ("UPSTREAM_PEER_CERT", "it prints whole certificates; UPSTREAM_PEER_SUBJECT names one"),
    (
        "UPSTREAM_TLS_SESSION_ID",
        "sessions are no subject of a log; UPSTREAM_CONNECTION_ID names a connection",
    ),
];

/// Headers with credentials, in lower case.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

/// The time points of [`Takes::Duration`], and its units.
const POINTS: [&str; 12] = [
    "DS_RX_BEG",
    "DS_RX_END",
    "DS_TX_BEG",
    "DS_TX_END",
    "US_CX_BEG",
    "US_CX_END",
    "US_HS_END",
    "US_RX_BEG",
    "US_RX_BODY_BEG",
    "US_RX_END",
    "US_TX_BEG",
    "US_TX_END",
];
const UNITS: [&str; 3] = ["ms", "us", "ns"];

/// What may follow a `%` in the form of a point in time, with the digits of a fraction before `f`.
const TIME: &str = "YmdHMSzZsfTFDeyjaAbBpIuwc";

impl Line {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, InvalidLine> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(found) = rest.find('%') {
            literal.push_str(&rest[..found]);
            let after = &rest[found + 1..];
            if let Some(after) = after.strip_prefix('%') {
                literal.push('%');
                rest = after;
                continue;
            }
            let (piece, after) = operator(after)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        let literals = pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(text) => Some(text),
            Piece::Operator { .. } => None,
        });
        let control = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
        match literals.flat_map(|text| text.chars()).find(control) {
            Some(character) => Err(InvalidLine::Control(character)),
            None => Ok(Self(pieces)),
        }
    }

    /// The names of the operators that are read, sorted.
    pub fn operators() -> impl Iterator<Item = &'static str> {
        OPERATORS.iter().map(|(name, _)| *name)
    }

    /// As Envoy reads it, with this many bytes at most of each thing that a peer chose.
    pub fn print(&self, longest: u32) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => text.push_str(&literal.replace('%', "%%")),
                Piece::Operator { name, arguments, length } => {
                    let _ = write!(text, "%{name}");
                    if !arguments.is_empty() {
                        let _ = write!(text, "({arguments})");
                    }
                    if let Some(length) = length {
                        let _ = write!(text, ":{}", (*length).min(longest));
                    }
                    text.push('%');
                }
            }
        }
        text
    }

    pub(super) fn begins_with(&self, first: char) -> bool {
        matches!(self.0.first(), Some(Piece::Literal(text)) if text.trim_start().starts_with(first))
    }

    /// The header with credentials that it prints, if it does.
    pub fn logged_credentials(&self) -> Option<&'static str> {
        self.0.iter().find_map(|piece| match piece {
            Piece::Operator { name: "REQ" | "RESP" | "TRAILER", arguments, .. } => {
                let named = |known: &&&str| arguments.split('?').any(|name| name.eq_ignore_ascii_case(known));
                CREDENTIALS.iter().find(named).copied()
            }
            _ => None,
        })
    }

    /// The bytes of its text, at most.
    pub(super) fn bytes(&self) -> usize {
        self.print(LONGEST).len()
    }
}

/// Reads an operator after its first `%`, and returns what follows it.
fn operator(text: &str) -> Result<(Piece, &str), InvalidLine> {
    let sign = || InvalidLine::Sign(truncated(text, 20));
    let end = text.find(|c: char| !matches!(c, 'A'..='Z' | '0'..='9' | '_')).ok_or_else(sign)?;
    let (name, mut rest) = text.split_at(end);
    let mut arguments = "";
    if let Some(inside) = rest.strip_prefix('(') {
        (arguments, rest) = inside.split_once(')').ok_or_else(sign)?;
    }
    let mut length = None;
    if let Some(digits) = rest.strip_prefix(':') {
        let end = digits.find(|c: char| !c.is_ascii_digit()).ok_or_else(sign)?;
        length = Some(digits[..end].parse::<u32>().map_err(|_| sign())?);
        rest = &digits[end..];
    }
    let rest = rest.strip_prefix('%').filter(|_| !name.is_empty()).ok_or_else(sign)?;
    if let Some(&(name, reason)) = REFUSED.iter().find(|(known, _)| *known == name) {
        return Err(InvalidLine::Refused { name, reason });
    }
    let known = OPERATORS.iter().find(|(known, _)| *known == name);
    let &(name, takes) = known.ok_or_else(|| InvalidLine::Unknown(truncated(name, 40)))?;
    let wrong = |needs| {
        let arguments = truncated(arguments, 40);
        Err(InvalidLine::Arguments { name, arguments, needs })
    };
    if let Some(needs) = takes.lacks(arguments) {
        return wrong(needs);
    }
    let is_cut = matches!(takes, Header | Path | Metadata);
    if length.is_some() && !is_cut {
        return wrong("takes no length");
    }
    let length = is_cut.then(|| length.map_or(LONGEST, |length| length.min(LONGEST)));
    Ok((Piece::Operator { name, arguments: arguments.to_owned(), length }, rest))
}

impl Takes {
    /// What it needs in place of these arguments; `None` if they are right.
    fn lacks(self, arguments: &str) -> Option<&'static str> {
        let of = |more: &str| arguments.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
        let (right, needs) = match self {
            Nothing => (arguments.is_empty(), "takes nothing in parentheses"),
            Header => {
                let is_name = |name: &str| {
                    let rest = name.strip_prefix(':').unwrap_or(name);
                    !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
                };
                let mut names = arguments.split('?');
                let named = names.by_ref().take(2).all(is_name) && names.next().is_none();
                (named, "takes a header, and with ? a second one")
            }
            Path => {
                let (query, path) = arguments.split_once(':').unwrap_or((arguments, "PATH"));
                let right = arguments.is_empty()
                    || ["NQ", "WQ"].contains(&query) && ["ORIG", "PATH", "ORIG_OR_PATH"].contains(&path);
                (right, "takes NQ or WQ, and with : PATH, ORIG or ORIG_OR_PATH")
            }
            Metadata => {
                let named = arguments.split(':').all(|name| !name.is_empty());
                (named && of("-_.:"), "takes a namespace, and names, with : between them")
            }
            Time => (is_time(arguments), "takes a form of strftime"),
            Status => {
                let forms = ["", "CAMEL_STRING", "SNAKE_STRING", "NUMBER"];
                (forms.contains(&arguments), "takes CAMEL_STRING, SNAKE_STRING or NUMBER")
            }
            Details => (["", "ALLOW_WHITESPACES"].contains(&arguments), "takes ALLOW_WHITESPACES"),
            Duration => {
                let mut parts = arguments.split(':');
                let points = parts.by_ref().take(2).filter(|point| POINTS.contains(point)).count() == 2;
                let unit = parts.next().is_some_and(|unit| UNITS.contains(&unit));
                (points && unit && parts.next().is_none(), "takes two time points and a unit")
            }
        };
        (!right).then_some(needs)
    }
}

fn is_time(form: &str) -> bool {
    let mut characters = form.chars();
    while let Some(character) = characters.next() {
        let right = if character == '%' {
            let next = characters.next();
            match next {
                Some('1'..='9') => characters.next() == Some('f'),
                next => next.is_some_and(|next| TIME.contains(next)),
            }
        } else {
            character == ' ' || character.is_ascii_graphic()
        };
        if !right {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        Line::parse(text).map(|line| line.print(LONGEST)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_envoy_knows_is_read_and_what_a_peer_chose_is_cut() {
        for (text, printed) in [
            ("", ""),
            ("100%% of it", "100%% of it"),
            ("%%PROTOCOL%%", "%%PROTOCOL%%"),
            ("%%%PROTOCOL%", "%%%PROTOCOL%"),
            ("a %PROTOCOL()% b\n", "a %PROTOCOL% b\n"),
            ("%REQ(:PATH)%", "%REQ(:PATH):2048%"),
            ("%REQ(X-A?x_b):7%", "%REQ(X-A?x_b):7%"),
            ("%RESP(a):99999%", "%RESP(a):2048%"),
            ("%TRAILER(a)%", "%TRAILER(a):2048%"),
            ("%PATH%%PATH(NQ)%", "%PATH:2048%%PATH(NQ):2048%"),
            ("%PATH(WQ:ORIG_OR_PATH):3%", "%PATH(WQ:ORIG_OR_PATH):3%"),
            ("%DYNAMIC_METADATA(a.b:c)%", "%DYNAMIC_METADATA(a.b:c):2048%"),
            ("%GRPC_STATUS%%GRPC_STATUS(NUMBER)%", "%GRPC_STATUS%%GRPC_STATUS(NUMBER)%"),
            ("%START_TIME%", "%START_TIME%"),
            ("%EMIT_TIME(%Y-%m-%dT%H:%M:%S.%3f%z)%", "%EMIT_TIME(%Y-%m-%dT%H:%M:%S.%3f%z)%"),
            ("%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:us)%", "%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:us)%"),
            ("%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%", "%RESPONSE_CODE_DETAILS(ALLOW_WHITESPACES)%"),
        ] {
            assert_eq!(read(text), Ok(printed.to_owned()), "{text}");
        }
        let cut = Line::parse("%REQ(a)% %REQ(a):7% %PROTOCOL%").unwrap().print(100);
        assert_eq!(cut, "%REQ(a):100% %REQ(a):7% %PROTOCOL%");
    }

    #[test]
    fn what_envoy_would_refuse_or_should_not_print_is_refused() {
        for (text, reason) in [
            ("100% done", "before \" done\""),
            ("a%", "before \"\""),
            ("%PROTOCOL", "before \"PROTOCOL\""),
            ("%protocol%", "before \"protocol%\""),
            ("%REQ(a%", "before \"REQ(a%\""),
            ("%REQ(a):%", "begins no operator"),
            ("%REQ(a):99999999999%", "begins no operator"),
            ("%(a)%", "begins no operator"),
            ("%BOGUS%", "the operator BOGUS, which is not on the list of SMC"),
            ("%ENVIRONMENT(TOKEN)%", "may hold secrets"),
            ("%FILE_CONTENT(/etc/passwd)%", "hold secrets"),
            ("%CEL(request.headers)%", "refused"),
            ("%FILTER_STATE(a)%", "refused"),
            ("%REQ_WITHOUT_QUERY(:PATH)%", "PATH(NQ)"),
            ("%REQ%", "takes a header"),
            ("%REQ()%", "takes a header"),
            ("%REQ(a b)%", "takes a header"),
            ("%REQ(a?b?c)%", "takes a header"),
            ("%REQ(a?)%", "takes a header"),
            ("%REQ(a/b)%", "takes a header"),
            ("%REQ(a:b)%", "takes a header"),
            ("%REQ(:)%", "takes a header"),
            ("%PROTOCOL(a)%", "takes nothing"),
            ("%PROTOCOL:5%", "takes no length"),
            ("%START_TIME:5%", "takes no length"),
            ("%START_TIME(%n)%", "strftime"),
            ("%START_TIME(%)%", "strftime"),
            ("%START_TIME(%0f)%", "strftime"),
            ("%START_TIME(ä)%", "strftime"),
            ("%GRPC_STATUS(x)%", "CAMEL_STRING"),
            ("%PATH(x)%", "NQ or WQ"),
            ("%PATH(NQ:x)%", "NQ or WQ"),
            ("%QUERY_PARAM(a)%", "PATH"),
            ("%STREAM_ID%", "REQ(X-REQUEST-ID)"),
            ("%DYNAMIC_METADATA(a::b)%", "a namespace"),
            ("%COMMON_DURATION(DS_RX_BEG:DS_RX_END)%", "two time points"),
            ("%COMMON_DURATION(DS_RX_BEG:x:ms)%", "two time points"),
            ("%COMMON_DURATION(DS_RX_BEG:DS_RX_END:ms:ms)%", "two time points"),
            ("\u{1b}[2J%PROTOCOL%", "control character"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn no_operator_is_on_the_list_twice_or_on_both() {
        assert!(OPERATORS.is_sorted_by(|one, other| one.0 < other.0));
        assert!(REFUSED.is_sorted_by(|one, other| one.0 < other.0));
        assert!(!OPERATORS.iter().any(|(name, _)| REFUSED.iter().any(|(refused, _)| refused == name)));
    }
}
