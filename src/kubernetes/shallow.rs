//! Fields of a JSON object as their own text, whatever the rest of the object is.
//!
//! Owns the shallow reading with which messages are taken apart. Values that are not asked for are skipped
//! without recursion, so neither their depth nor their shape matters. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The values of these fields of the JSON object `json`, or of the one in its field `within`. `None` for a
/// field that is not there. Of a field that is there twice, the first one counts. Reads no further than to
/// the last field that is asked for, so that what follows costs nothing.
pub(crate) fn fields<'a, const N: usize>(
    json: &'a str,
    within: Option<&str>,
    names: [&str; N],
) -> [Option<&'a RawValue>; N] {
    let mut found = [None; N];
    let wanted = Wanted { within, names: &names, found: &mut found };
    // Breaking off before the end is an error, as is another shape: what was found until then is the answer.
    let _ = wanted.deserialize(&mut serde_json::Deserializer::from_str(json));
    found
}

/// The text that a value is; `None` if it is none, or is no Unicode.
pub(crate) fn text(value: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(value?.get()).ok()
}

struct Wanted<'a, 'de> {
    within: Option<&'a str>,
    names: &'a [&'a str],
    found: &'a mut [Option<&'de RawValue>],
}

impl<'de> DeserializeSeed<'de> for Wanted<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if let Some(within) = self.within {
            while let Some(place) = map.next_key_seed(Place(&[within]))? {
                if place.is_some() {
                    return map.next_value_seed(Wanted { within: None, ..self });
                }
                map.next_value::<IgnoredAny>()?;
            }
            return Ok(());
        }
        while let Some(place) = map.next_key_seed(Place(self.names))? {
            match place.and_then(|place| self.found.get_mut(place)) {
                Some(found @ None) => *found = Some(map.next_value()?),
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
            if self.found.iter().all(Option::is_some) {
                break;
            }
        }
        Ok(())
    }
}

/// The place of a field's name in a list of names. Takes names as bytes: an escape that is no Unicode in the
/// name of another field is no error.
struct Place<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Place<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| wanted.as_bytes() == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, within: Option<&str>) -> [Option<String>; 2] {
        fields(json, within, ["a", "b"]).map(|value| value.map(|value| value.get().to_owned()))
    }

    #[test]
    fn fields_are_found_whatever_stands_beside_them() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for (json, within, expected) in [
            (r#"{"b":"2","a":1}"#.to_owned(), None, [Some("1"), Some("\"2\"")]),
            (r#"{"x":{"b":2},"a":[1, 2]}"#.to_owned(), None, [Some("[1, 2]"), None]),
            (r#"{"x":{"b":2},"a":1}"#.to_owned(), Some("x"), [None, Some("2")]),
            (r#"{"a":1,"a":2,"b":3}"#.to_owned(), None, [Some("1"), Some("3")]),
            (r#"{"x":7,"x":{"a":1}}"#.to_owned(), Some("x"), [None, None]),
            (r#"{"\u0061":1,"\ud800":2,"b":3}"#.to_owned(), None, [Some("1"), Some("3")]),
            (format!(r#"{{"d":{deep},"x":{{"d":{deep},"a":1}}}}"#), Some("x"), [Some("1"), None]),
            (r#"{"n":1e999,"s":"\udfff","a":1}"#.to_owned(), None, [Some("1"), None]),
            ("[]".to_owned(), None, [None, None]),
            ("7".to_owned(), Some("x"), [None, None]),
            (String::new(), None, [None, None]),
        ] {
            let expected = expected.map(|value| value.map(str::to_owned));
            assert_eq!(found(&json, within), expected, "{}", json.get(..30).unwrap_or(&json));
        }
    }

    #[test]
    fn a_text_is_a_value_that_is_unicode() {
        let read = |json: &str| text(fields(json, None, ["a"])[0]);
        for (json, expected) in [
            (r#"{"a":"x\u0079"}"#, Some("xy")),
            (r#"{"a":"\ud83d\ude00"}"#, Some("\u{1f600}")),
            (r#"{"a":"\ud83d"}"#, None),
            (r#"{"a":7}"#, None),
            (r#"{"a":null}"#, None),
            ("{}", None),
        ] {
            assert_eq!(read(json).as_deref(), expected, "{json}");
        }
    }
}
