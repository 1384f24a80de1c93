//! What an API server says: events of a watch, pages of a list, refusals.
//!
//! Owns their form. Pure: bytes in, values out. Of objects, only what [`Keep`] names is read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::keep::Keep;

/// The annotation of the bookmark that ends the first objects of a streaming list (KEP-3157).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An event of a watch.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// An object was added, or is another now.
    Applied(Value),
    /// An object is gone; this is what it was.
    Deleted(Value),
    /// Nothing up to this version is missing. It may end the first objects of a streaming list.
    Bookmark {
        /// The version.
        version: String,
        /// Whether all objects that there were at the beginning have been sent.
        initial_end: bool,
    },
    /// The watch cannot go on.
    Error(Status),
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
    /// The objects.
    pub(super) items: Vec<Value>,
}

static STATUS: Keep = Keep::Fields(&[("code", Keep::All), ("reason", Keep::All), ("message", Keep::All)]);
static BOOKMARK: Keep = Keep::Fields(&[(
    "metadata",
    Keep::Fields(&[
        ("resourceVersion", Keep::All),
        ("annotations", Keep::Fields(&[(INITIAL_EVENTS_END, Keep::All)])),
    ]),
)]);
static LIST: Keep = Keep::Fields(&[("resourceVersion", Keep::All), ("continue", Keep::All)]);

/// Reads an event of a watch of objects of which `keep` is kept.
pub(super) fn event(line: &[u8], keep: &Keep) -> Result<Event, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let (kind, object) = EventSeed(keep).deserialize(&mut json)?;
    json.end()?;
    match kind.as_str() {
        "ADDED" | "MODIFIED" => Ok(Event::Applied(object)),
        "DELETED" => Ok(Event::Deleted(object)),
        "BOOKMARK" => {
            let end = object.pointer("/metadata/annotations").and_then(|all| all.get(INITIAL_EVENTS_END));
            let version = text(&object, "/metadata/resourceVersion").to_owned();
            Ok(Event::Bookmark { version, initial_end: end.and_then(Value::as_str) == Some("true") })
        }
        "ERROR" => Ok(Event::Error(read_status(&object))),
        other => Err(serde_json::Error::custom(format!("an event of the unknown type {other:?}"))),
    }
}

/// Reads a page of a list of objects of which `keep` is kept.
pub(super) fn page(body: &[u8], keep: &Keep) -> Result<Page, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let page = PageSeed(keep).deserialize(&mut json)?;
    json.end()?;
    Ok(page)
}

/// Reads the body of a refusal, which may be anything: proxies send text.
pub(super) fn status(code: u16, body: &[u8]) -> Status {
    match STATUS.deserialize(&mut serde_json::Deserializer::from_slice(body)) {
        Ok(value @ Value::Object(_)) => Status { code, ..read_status(&value) },
        _ => Status { code, ..Status::default() },
    }
}

fn read_status(value: &Value) -> Status {
    let code = value.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    Status {
        code: code.unwrap_or_default(),
        reason: text(value, "/reason").to_owned(),
        message: text(value, "/message").to_owned(),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// An event's type, and its object. The API server writes the type first.
struct EventSeed<'a>(&'a Keep);

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = (String, Value);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = (String, Value);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kind: Option<String> = None;
        let mut object = None;
        while let Some(name) = map.next_key::<String>()? {
            match (name.as_str(), kind.as_deref()) {
                ("type", _) => kind = Some(map.next_value()?),
                ("object", Some("BOOKMARK")) => object = Some(map.next_value_seed(&BOOKMARK)?),
                ("object", Some("ERROR")) => object = Some(map.next_value_seed(&STATUS)?),
                ("object", Some(_)) => object = Some(map.next_value_seed(self.0)?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        kind.zip(object).ok_or_else(|| A::Error::custom("an event without type and object"))
    }
}

struct PageSeed<'a>(&'a Keep);

impl<'de> DeserializeSeed<'de> for PageSeed<'_> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageSeed<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let mut page = Page { version: String::new(), next: None, items: Vec::new() };
        let mut listed = false;
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "metadata" => {
                    let metadata = map.next_value_seed(&LIST)?;
                    text(&metadata, "/resourceVersion").clone_into(&mut page.version);
                    page.next = Some(text(&metadata, "/continue").to_owned()).filter(|next| !next.is_empty());
                }
                "items" => {
                    listed = true;
                    match map.next_value_seed(Items(self.0))? {
                        Value::Array(items) => page.items = items,
                        Value::Null => {}
                        _ => return Err(A::Error::custom("items is no list")),
                    }
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        // What is no list must not be taken for an empty one: it would remove every object.
        if !listed || page.version.is_empty() {
            return Err(A::Error::custom("not a list with a resourceVersion and items"));
        }
        Ok(page)
    }
}

/// The items of a list.
struct Items<'a>(&'a Keep);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element_seed(self.0)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use smc_types::object_ref::Kind;

    use super::super::keep;
    use super::*;

    fn read(text: &str) -> Option<Event> {
        event(text.as_bytes(), keep::of(Kind::ServiceAccount)).ok()
    }

    #[test]
    fn events_of_a_watch_are_read() {
        let named = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
        let object =
            r#""object":{"kind":"ServiceAccount","metadata":{"name":"a","resourceVersion":"5","uid":"u"}}"#;
        for (text, expected) in [
            (format!(r#"{{"type":"ADDED",{object}}}"#), Event::Applied(named.clone())),
            (format!(r#"{{"type":"MODIFIED",{object}}}"#), Event::Applied(named.clone())),
            (format!(r#"{{"type":"DELETED",{object}}}"#), Event::Deleted(named)),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#.to_owned(),
                Event::Bookmark { version: "9".to_owned(), initial_end: false },
            ),
            (
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",
                    "annotations":{"k8s.io/initial-events-end":"true"}}}}"#
                    .to_owned(),
                Event::Bookmark { version: "9".to_owned(), initial_end: true },
            ),
            (
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#
                    .to_owned(),
                Event::Error(Status { code: 410, reason: "Expired".to_owned(), message: "too old".to_owned() }),
            ),
        ] {
            assert_eq!(read(&text), Some(expected), "{text}");
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
            r#"{"type":"MOVED","object":{}}"#,
            r#"{"type":"ADDED","object":{}}x"#,
            r#"{"type":"ADDED","object":{"#,
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        for text in
            ["{}", r#"{"items":[]}"#, r#"{"metadata":{"resourceVersion":"1"}}"#, r#"{"items":7}"#, "[]"]
        {
            assert!(page(text.as_bytes(), keep::of(Kind::Pod)).is_err(), "{text}");
        }
    }

    #[test]
    fn a_page_names_its_version_and_the_next_page() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"more"},
            "items":[{"metadata":{"name":"a"},"status":{"phase":"Running"}}]}"#;
        let items = vec![json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}})];
        let expected = Page { version: "9".to_owned(), next: Some("more".to_owned()), items };
        assert_eq!(page(text.as_bytes(), keep::of(Kind::Pod)).unwrap(), expected);
        let empty = r#"{"metadata":{"resourceVersion":"9","continue":""},"items":null}"#;
        let expected = Page { version: "9".to_owned(), next: None, items: Vec::new() };
        assert_eq!(page(empty.as_bytes(), keep::of(Kind::Pod)).unwrap(), expected);
    }

    #[test]
    fn a_refusal_is_read_from_any_body() {
        let expected = Status { code: 403, reason: "Forbidden".to_owned(), message: "no".to_owned() };
        assert_eq!(
            status(403, br#"{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}"#),
            expected
        );
        for body in ["", "<html>", "7", "null"] {
            assert_eq!(status(502, body.as_bytes()), Status { code: 502, ..Status::default() });
        }
    }
}
