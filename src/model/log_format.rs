//! The format of a line in a sidecar's access log, as people write it: a text with Envoy's operators, or a
//! JSON object of such texts.
//!
//! Owns what of it is read. An operator that Envoy does not know makes it refuse the listener, so that the
//! sidecar keeps older policy. What is read here, every Envoy takes: operators are those of a list
//! ([`operator`]), and nothing else with a `%` is.

mod operator;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use operator::{InvalidLine, LONGEST, Line};

/// The most bytes that a format takes in Envoy's configuration, and as many for the attributes of a record.
/// Each filter chain has a copy of it, in the place of SMC's own fields, which take as much.
pub const MAX_FORMAT: usize = 1024;

/// How deep objects and lists may be in each other. Envoy reads a hundred levels of messages, of which each
/// of these takes three.
pub const MAX_DEPTH: usize = 8;

/// What a member of an object, or an element of a list, takes beside its name and its text: tags and lengths
/// of three messages, and a number of eight bytes.
const MEMBER: usize = 16;

/// A text that can be read as a format. A clone shares it. It is kept as it is: what is made of it takes a
/// hundred times its memory at worst.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogFormat(Arc<str>);

/// The attributes of a record for a collector of OpenTelemetry: names and texts with operators. A clone
/// shares them. They are kept as they are, like a [`LogFormat`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LogAttributes(Arc<BTreeMap<String, String>>);

/// What a format says.
#[derive(Debug, Clone, PartialEq)]
pub enum LogLine {
    /// A text, which ends in a line feed.
    Text(Line),
    /// The members of a JSON object.
    Json(BTreeMap<String, LogValue>),
}

/// A value in a JSON object.
#[derive(Debug, Clone, PartialEq)]
pub enum LogValue {
    /// A text with operators. One that is an operator and nothing else gives a value of the operator's type.
    Line(Line),
    /// A number.
    Number(f64),
    /// A boolean.
    Bool(bool),
    /// Nothing.
    Null,
    /// An object.
    Object(BTreeMap<String, LogValue>),
    /// A list.
    List(Vec<LogValue>),
}

/// Why a format cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFormat {
    /// It says nothing.
    #[error("is empty")]
    Empty,
    /// It is longer than [`MAX_FORMAT`].
    #[error("takes {0} bytes in the configuration of a sidecar; {MAX_FORMAT} are the most")]
    TooLong(usize),
    /// It is deeper than [`MAX_DEPTH`].
    #[error("has more than {MAX_DEPTH} objects and lists in each other")]
    TooDeep,
    /// A text in it cannot be read.
    #[error(transparent)]
    Line(#[from] InvalidLine),
}

impl LogFormat {
    /// Checks a format.
    pub fn parse(text: &str) -> Result<Self, InvalidFormat> {
        // An operator may be printed longer than it is written, and never shorter.
        if text.len() > 2 * MAX_FORMAT {
            return Err(InvalidFormat::TooLong(text.len()));
        }
        let bytes = LogLine::parse(text)?.bytes();
        if bytes > MAX_FORMAT {
            return Err(InvalidFormat::TooLong(bytes));
        }
        Ok(Self(text.into()))
    }

    /// What it says. `None` never comes: the text was checked.
    pub fn line(&self) -> Option<LogLine> {
        LogLine::parse(&self.0).ok()
    }
}

impl LogAttributes {
    /// Checks attributes.
    pub fn of(texts: BTreeMap<String, String>) -> Result<Self, InvalidFormat> {
        let mut bytes = 0;
        for (name, text) in &texts {
            bytes += name.len() + MEMBER + Line::parse(text)?.bytes();
        }
        if bytes > MAX_FORMAT {
            return Err(InvalidFormat::TooLong(bytes));
        }
        Ok(Self(Arc::new(texts)))
    }

    /// What they say, by name.
    pub fn lines(&self) -> impl Iterator<Item = (&str, Line)> {
        // None is left out: the texts were checked.
        self.0.iter().filter_map(|(name, text)| Some((name.as_str(), Line::parse(text).ok()?)))
    }

    /// The most bytes that they take in Envoy's configuration.
    pub fn bytes(&self) -> usize {
        self.lines().map(|(name, line)| name.len() + MEMBER + line.bytes()).sum()
    }
}

impl LogLine {
    /// Reads a format. What is a JSON object is one, as in OSM; all else is text.
    fn parse(text: &str) -> Result<Self, InvalidFormat> {
        if text.trim().is_empty() {
            return Err(InvalidFormat::Empty);
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(members)) => Ok(Self::Json(object(members, 1)?)),
            _ if text.ends_with('\n') => Ok(Self::Text(Line::parse(text)?)),
            // Lines would stand behind each other.
            _ => Ok(Self::Text(Line::parse(&format!("{text}\n"))?)),
        }
    }

    /// Whether it begins as a JSON object does, and is none.
    pub fn is_nearly_json(&self) -> bool {
        matches!(self, Self::Text(line) if line.begins_with('{'))
    }

    /// The header with credentials that it logs, if it does.
    pub fn logged_credentials(&self) -> Option<&'static str> {
        match self {
            Self::Text(line) => line.logged_credentials(),
            Self::Json(members) => members.values().find_map(LogValue::logged_credentials),
        }
    }

    /// The most bytes that it takes in Envoy's configuration.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(line) => MEMBER + line.bytes(),
            Self::Json(members) => bytes_of(members),
        }
    }
}

impl LogValue {
    fn logged_credentials(&self) -> Option<&'static str> {
        match self {
            Self::Line(line) => line.logged_credentials(),
            Self::Object(members) => members.values().find_map(Self::logged_credentials),
            Self::List(values) => values.iter().find_map(Self::logged_credentials),
            Self::Number(_) | Self::Bool(_) | Self::Null => None,
        }
    }

    fn bytes(&self) -> usize {
        let inside = match self {
            Self::Line(line) => line.bytes(),
            Self::Object(members) => bytes_of(members),
            Self::List(values) => values.iter().map(Self::bytes).sum(),
            Self::Number(_) | Self::Bool(_) | Self::Null => 0,
        };
        MEMBER + inside
    }
}

/// A number as JSON writes it, in 24 bytes at most. JSON has no infinite one.
pub fn number_text(number: f64) -> String {
    serde_json::Number::from_f64(number).map(|number| number.to_string()).unwrap_or_default()
}

fn bytes_of(members: &BTreeMap<String, LogValue>) -> usize {
    members.iter().map(|(name, value)| name.len() + value.bytes()).sum()
}

/// The members of an object that stands in so many others, with itself.
fn object(
    members: serde_json::Map<String, Value>,
    depth: usize,
) -> Result<BTreeMap<String, LogValue>, InvalidFormat> {
    if depth > MAX_DEPTH {
        return Err(InvalidFormat::TooDeep);
    }
    members.into_iter().map(|(name, member)| Ok((name, value(member, depth)?))).collect()
}

fn list(values: Vec<Value>, depth: usize) -> Result<Vec<LogValue>, InvalidFormat> {
    if depth > MAX_DEPTH {
        return Err(InvalidFormat::TooDeep);
    }
    values.into_iter().map(|one| value(one, depth)).collect()
}

fn value(value: Value, depth: usize) -> Result<LogValue, InvalidFormat> {
    Ok(match value {
        Value::String(text) => LogValue::Line(Line::parse(&text)?),
        // Of a number that no double has, the nearest.
        Value::Number(number) => LogValue::Number(number.as_f64().unwrap_or_default()),
        Value::Bool(switch) => LogValue::Bool(switch),
        Value::Null => LogValue::Null,
        Value::Object(members) => LogValue::Object(object(members, depth + 1)?),
        Value::Array(values) => LogValue::List(list(values, depth + 1)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> LogValue {
        LogValue::Line(Line::parse(text).unwrap())
    }

    fn read(text: &str) -> Result<LogLine, InvalidFormat> {
        LogFormat::parse(text).map(|format| format.line().unwrap())
    }

    #[test]
    fn a_json_object_is_one_and_all_else_is_text() {
        for text in ["%PROTOCOL% %DURATION%", "[%PROTOCOL%]", "{ %PROTOCOL% }", "\"%PROTOCOL%\"", "7", "[]"] {
            let ended = Line::parse(&format!("{text}\n")).unwrap();
            assert_eq!(read(text), Ok(LogLine::Text(ended.clone())), "{text}");
            assert_eq!(read(&format!("{text}\n")), Ok(LogLine::Text(ended)), "{text}");
        }
        let json = r#" {"b": "%PROTOCOL%", "a": {"n": [1.5, true, null, "x"]}, "": {}} "#;
        let list = [LogValue::Number(1.5), LogValue::Bool(true), LogValue::Null, line("x")];
        let members = [
            ("a".to_owned(), LogValue::Object([("n".to_owned(), LogValue::List(list.into()))].into())),
            ("b".to_owned(), line("%PROTOCOL%")),
            (String::new(), LogValue::Object(BTreeMap::new())),
        ];
        assert_eq!(read(json), Ok(LogLine::Json(members.into())));
    }

    #[test]
    fn what_is_empty_or_too_long_or_too_deep_is_no_format() {
        for text in ["", " ", "\n"] {
            assert_eq!(read(text), Err(InvalidFormat::Empty), "{text:?}");
        }
        let long = "x".repeat(MAX_FORMAT - MEMBER - 1);
        assert!(read(&long).is_ok());
        assert_eq!(read(&format!("{long}x")), Err(InvalidFormat::TooLong(MAX_FORMAT + 1)));
        assert!(matches!(
            read(&format!("{{\"a\":[0{}]}}", ",0".repeat(100))),
            Err(InvalidFormat::TooLong(_))
        ));
        let nested =
            |depth: usize, inside: &str| format!("{}{inside}{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        assert!(read(&nested(MAX_DEPTH, "1")).is_ok());
        for inside in ["{}", "[]", "{\"a\":1}"] {
            assert!(read(&nested(MAX_DEPTH - 1, inside)).is_ok());
            assert_eq!(read(&nested(MAX_DEPTH, inside)), Err(InvalidFormat::TooDeep));
        }
    }

    #[test]
    fn attributes_are_texts_with_operators_that_take_no_more_than_a_format() {
        let of = |texts: &[(&str, &str)]| {
            LogAttributes::of(
                texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            )
        };
        let read = of(&[("code", "%RESPONSE_CODE%"), ("", "")]).unwrap();
        let lines: Vec<_> = read.lines().map(|(name, line)| (name, line.print(9))).collect();
        assert_eq!(lines, [("", String::new()), ("code", "%RESPONSE_CODE%".to_owned())]);
        assert!(matches!(of(&[("a", "%BOGUS%")]), Err(InvalidFormat::Line(_))));
        let long = "x".repeat(MAX_FORMAT - MEMBER - 1);
        assert_eq!(of(&[("a", &long)]).map(|read| read.bytes()), Ok(MAX_FORMAT));
        assert_eq!(of(&[("ab", &long)]), Err(InvalidFormat::TooLong(MAX_FORMAT + 1)));
    }

    #[test]
    fn credentials_are_found_wherever_they_are() {
        for (text, header) in [
            ("%REQ(X-A)% %RESP(Cookie-Policy)%", None),
            ("%REQ(Authorization)%", Some("authorization")),
            ("%REQ(X-A?COOKIE):9%", Some("cookie")),
            ("%RESP(set-cookie)%", Some("set-cookie")),
            (r#"{"a": ["%PROTOCOL%", {"b": "%REQ(PROXY-AUTHORIZATION)%"}]}"#, Some("proxy-authorization")),
        ] {
            assert_eq!(read(text).unwrap().logged_credentials(), header, "{text}");
        }
    }
}
