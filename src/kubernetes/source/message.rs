//! What an API server says: events of a watch, pages of a list, refusals.
//!
//! Owns their form. Pure: bytes in, values out. A message is taken apart before any of its objects is read,
//! so that no object decides whether another one arrives.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::object::Object;
use crate::shallow::{fields, text};

/// The annotation of the bookmark that ends the first objects of a streaming list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// An object was added, or is another now.
    Applied(Object),
    /// An object is gone; this is what it was.
    Deleted(Object),
    /// Nothing up to this version is missing. It may end the first objects of a streaming list.
    Bookmark {
        version: String,
        /// Whether all objects that there were at the beginning have been sent.
        initial_end: bool,
    },
    /// The watch cannot go on.
    Error(Status),
    /// An event of an object that has no readable name.
    Unnamed,
}

/// A refusal of the API server (`v1` Status).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Status {
    /// The HTTP status.
    pub(super) code: u16,
    /// The reason, as one word.
    pub(super) reason: String,
    /// The reason, as a sentence.
    pub(super) message: String,
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Page {
    /// The version that a watch continues from.
    pub(super) version: String,
    /// What the next page is asked for with, if there is one.
    pub(super) next: Option<String>,
    pub(super) items: Vec<Object>,
    /// How many objects have no readable name.
    pub(super) unnamed: usize,
}

/// An event as it is written. Its fields may be in any order.
#[derive(Deserialize)]
struct WatchEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// A list as it is written.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
    /// `null` is an empty list. What has no items is no list: it would remove every object.
    #[serde(borrow, deserialize_with = "items")]
    items: Vec<&'a RawValue>,
}

fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'de RawValue>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads an event of a watch.
pub(super) fn event(line: &Bytes) -> Result<Event, serde_json::Error> {
    as_text(line, |line, json| {
        let WatchEvent { kind, object } = serde_json::from_str(json)?;
        let named = |event: fn(Object) -> Event| Object::new(line, object).map_or(Event::Unnamed, event);
        match &*kind {
            "ADDED" | "MODIFIED" => Ok(named(Event::Applied)),
            "DELETED" => Ok(named(Event::Deleted)),
            "BOOKMARK" => bookmark(object.get()),
            "ERROR" => Ok(Event::Error(read_status(object.get()))),
            other => Err(serde_json::Error::custom(format!("an event of the unknown type {other:?}"))),
        }
    })
}

/// Reads a page of a list.
pub(super) fn page(body: &Bytes) -> Result<Page, serde_json::Error> {
    as_text(body, |body, json| {
        let list: List<'_> = serde_json::from_str(json)?;
        let [version, next] = fields(list.metadata.get(), None, ["resourceVersion", "continue"]);
        let version = text(version).filter(|version| !version.is_empty());
        let version = version.ok_or_else(|| serde_json::Error::custom("a list without a resourceVersion"))?;
        let next = text(next).filter(|next| !next.is_empty());
        let items: Vec<Object> = list.items.iter().filter_map(|item| Object::new(body, item)).collect();
        let unnamed = list.items.len() - items.len();
        Ok(Page { version, next, items, unnamed })
    })
}

/// Reads the version of a list, and nothing else of it.
pub(super) fn list_version(body: &Bytes) -> Result<String, serde_json::Error> {
    as_text(body, |_, json| {
        let [version] = fields(json, Some("metadata"), ["resourceVersion"]);
        let version = text(version).filter(|version| !version.is_empty());
        version.ok_or_else(|| serde_json::Error::custom("a list without a resourceVersion"))
    })
}

/// Reads the body of a refusal, which may be anything: proxies send text.
pub(super) fn status(code: u16, body: &[u8]) -> Status {
    Status { code, ..std::str::from_utf8(body).map(read_status).unwrap_or_default() }
}

fn bookmark(object: &str) -> Result<Event, serde_json::Error> {
    let [version, annotations] = fields(object, Some("metadata"), ["resourceVersion", "annotations"]);
    let version = text(version).filter(|version| !version.is_empty());
    let version = version.ok_or_else(|| serde_json::Error::custom("a bookmark without a resourceVersion"))?;
    let end = annotations.and_then(|all| fields(all.get(), None, [INITIAL_EVENTS_END])[0]);
    Ok(Event::Bookmark { version, initial_end: text(end).as_deref() == Some("true") })
}

fn read_status(object: &str) -> Status {
    let [code, reason, message] = fields(object, None, ["code", "reason", "message"]);
    let code = code.and_then(|code| serde_json::from_str(code.get()).ok());
    Status {
        code: code.unwrap_or_default(),
        reason: text(reason).unwrap_or_default(),
        message: text(message).unwrap_or_default(),
    }
}

/// Hands a message to `read` as bytes and as text. Bytes that are no UTF-8 are replaced first, as Kubernetes'
/// own reader does it: they are then the matter of the one object that they are in.
fn as_text<T>(
    message: &Bytes,
    read: impl FnOnce(&Bytes, &str) -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    if let Ok(json) = std::str::from_utf8(message) {
        return read(message, json);
    }
    let replaced = Bytes::from(String::from_utf8_lossy(message).into_owned());
    let json = std::str::from_utf8(&replaced).map_err(serde_json::Error::custom)?;
    read(&replaced, json)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use smc_types::object_ref::Kind;

    use super::super::field_filter;
    use super::*;

    /// An event in words.
    fn read(text: &str) -> Option<String> {
        let at = |object: &Object| format!("{}/{} {}", object.namespace(), object.name(), object.version());
        Some(match event(&Bytes::from(text.to_owned())).ok()? {
            Event::Applied(object) => format!("applied {}", at(&object)),
            Event::Deleted(object) => format!("deleted {}", at(&object)),
            Event::Bookmark { version, initial_end } => format!("bookmark {version} {initial_end}"),
            Event::Error(status) => format!("{} {} {}", status.code, status.reason, status.message),
            Event::Unnamed => "unnamed".to_owned(),
        })
    }

    fn read_page(text: &str) -> Option<(String, Option<String>, usize, usize)> {
        let page = page(&Bytes::from(text.to_owned())).ok()?;
        Some((page.version, page.next, page.items.len(), page.unnamed))
    }

    #[test]
    fn events_of_a_watch_are_read() {
        let object = r#""object":{"kind":"ServiceAccount","metadata":{"name":"a","resourceVersion":"5"}}"#;
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for (text, expected) in [
            (format!(r#"{{"type":"ADDED",{object}}}"#), "applied /a 5"),
            (format!(r#"{{{object},"type":"MODIFIED"}}"#), "applied /a 5"),
            (format!(r#"{{"type":"DELETED",{object}}}"#), "deleted /a 5"),
            (
                format!(r#"{{"object":{{"x":{deep},"metadata":{{"x":{deep},"name":"a"}}}},"type":"ADDED"}}"#),
                "applied /a ",
            ),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#.to_owned(),
                "bookmark 9 false",
            ),
            (
                r#"{"object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},
                    "resourceVersion":"9"}},"type":"BOOKMARK"}"#
                    .to_owned(),
                "bookmark 9 true",
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}"#
                    .to_owned(),
                "410 Expired old",
            ),
            (r#"{"type":"ERROR","object":[]}"#.to_owned(), "0  "),
            (r#"{"type":"ADDED","object":{}}"#.to_owned(), "unnamed"),
            (r#"{"type":"DELETED","object":7}"#.to_owned(), "unnamed"),
        ] {
            assert_eq!(read(&text).as_deref(), Some(expected), "{}", text.get(..90).unwrap_or(&text));
        }
    }

    #[test]
    fn what_is_no_event_and_no_list_is_refused() {
        for text in [
            "",
            "{}",
            "7",
            r#"{"type":"ADDED"}"#,
            r#"{"object":{}}"#,
            r#"{"type":7,"object":{}}"#,
            r#"{"type":"MOVED","object":{}}"#,
            r#"{"type":"ADDED","object":{}}x"#,
            r#"{"type":"ADDED","object":{"#,
            r#"{"type":"BOOKMARK","object":{}}"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in [
            "{}",
            "[]",
            r#"{"items":[]}"#,
            r#"{"metadata":{},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":""},"items":[]}"#,
            r#"{"metadata":{"resourceVersion":"1"}}"#,
            r#"{"metadata":{"resourceVersion":"1"},"items":7}"#,
            r#"{"metadata":{"resourceVersion":"1"},"items":[{]}"#,
            r#"{"metadata":{"resourceVersion":"1"},"items":[]}]"#,
        ] {
            assert_eq!(read_page(text), None, "{text}");
        }
    }

    #[test]
    fn a_page_names_its_version_and_the_next_page() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"more"},
            "items":[{"metadata":{"name":"a"},"status":{"phase":"Running"}}, {"metadata":{}}, 7]}"#;
        assert_eq!(read_page(text), Some(("9".to_owned(), Some("more".to_owned()), 1, 2)));
        // Custom resources are listed so.
        let empty = r#"{"apiVersion":"v1","items":null,"metadata":{"resourceVersion":"9","continue":""}}"#;
        assert_eq!(read_page(empty), Some(("9".to_owned(), None, 0, 0)));
        for text in [text, empty] {
            assert_eq!(list_version(&Bytes::from(text)).unwrap(), "9");
        }
        assert!(list_version(&Bytes::from("{}")).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_the_matter_of_one_object() {
        let body = b"{\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[
            {\"metadata\":{\"name\":\"a\"}}, {\"metadata\":{\"name\":\"b\"},\"spec\":\"\xff\"}]}";
        let page = page(&Bytes::from(&body[..])).unwrap();
        let specs = page.items.iter().map(|item| {
            let value = item.read(field_filter::of(Kind::TrafficTarget), "v", Kind::TrafficTarget).unwrap();
            value.get("spec").cloned()
        });
        assert_eq!(specs.collect::<Vec<_>>(), [None, Some(json!("\u{fffd}"))]);
    }

    #[test]
    fn a_refusal_is_read_from_any_body() {
        let expected = Status { code: 403, reason: "Forbidden".to_owned(), message: "no".to_owned() };
        assert_eq!(
            status(403, br#"{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}"#),
            expected
        );
        for body in [&b""[..], b"<html>", b"7", b"null", b"\xff"] {
            assert_eq!(status(502, body), Status { code: 502, ..Status::default() });
        }
    }
}
