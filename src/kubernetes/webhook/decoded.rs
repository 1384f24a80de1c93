//! Objects of a review as JSON values, within a bound on the memory that they take.
//!
//! Owns what a value counts. A few bytes of text can be a hundred times as many in memory: `{"":0}` makes a
//! node of a tree that has places for eleven fields. So a text is weighed before anything is allocated for
//! it, and what is too heavy is never decoded. Pure.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use thiserror::Error;

/// The most that the objects of one review may count, in bytes. Objects of Kubernetes count some ten times
/// their text, of which etcd stores 1.5 MiB; the largest in practice have long texts and count little more
/// than these. What is made of them, such as a changed copy, takes a few times as much, in each turn of
/// [`super::body`].
pub(crate) const MAX_DECODED: usize = 32 << 20;

/// What an element of a list counts, in bytes: the value, twice when the list has just grown, and once more
/// while it grows.
const ELEMENT: usize = 96;

/// What a list counts beside its elements: the smallest has places for four.
const LIST: usize = 128;

/// What a text counts beside its bytes: where it begins, and the allocator's rounding.
const TEXT: usize = 32;

/// What a node of an object's tree counts, with its edges. An empty object counts as one, too, since it may
/// be read into a type of many optional fields.
const NODE: usize = 736;

/// The fields of one node, and the fewest that a node has for each node of a larger tree, those above it
/// included.
const FULL_NODE: usize = 11;
const FIELDS_PER_NODE: usize = 4;

/// Why a text is not decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Undecodable {
    /// It would take too much memory.
    #[error("it would take more than {} MiB of memory", MAX_DECODED >> 20)]
    TooLarge,
    /// It is no JSON, or too deep.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
}

/// What the objects of one review may still count, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Budget(usize);

impl Budget {
    /// The whole of it.
    pub(crate) fn new() -> Self {
        Self(MAX_DECODED)
    }

    /// The value that this text is.
    pub(crate) fn decode(&mut self, json: &str) -> Result<Value, Undecodable> {
        self.weigh(json)?.map_err(|error| unreadable(&error))?;
        serde_json::from_str(json).map_err(|error| unreadable(&error))
    }

    /// Charges for a text that something else is about to decode, whether it can be read or not.
    pub(crate) fn charge(&mut self, json: &str) -> Result<(), Undecodable> {
        self.weigh(json).map(drop)
    }

    /// `Ok(Err(_))` if the text is no JSON: until there it has been charged.
    fn weigh(&mut self, json: &str) -> Result<Result<(), serde_json::Error>, Undecodable> {
        let mut left = Some(self.0);
        let read = Weigher(&mut left).deserialize(&mut serde_json::Deserializer::from_str(json));
        self.0 = left.ok_or(Undecodable::TooLarge)?;
        Ok(read)
    }
}

fn unreadable(error: &serde_json::Error) -> Undecodable {
    Undecodable::Unreadable(smc_types::text::truncated(&error.to_string(), 200))
}

/// Takes what a value counts from the bytes that are left; `None` once there are not enough. Allocates
/// nothing but what one text with escapes takes.
struct Weigher<'a>(&'a mut Option<usize>);

impl Weigher<'_> {
    fn take<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        *self.0 = self.0.and_then(|left| left.checked_sub(bytes));
        if self.0.is_some() { Ok(()) } else { Err(E::custom("too large")) }
    }

    fn again(&mut self) -> Weigher<'_> {
        Weigher(self.0)
    }
}

impl<'de> DeserializeSeed<'de> for Weigher<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weigher<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        self.take(TEXT + text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        self.take(LIST)?;
        while list.next_element_seed(self.again())?.is_some() {
            self.take(ELEMENT)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        self.take(NODE)?;
        let mut fields = 0;
        while object.next_key_seed(self.again())?.is_some() {
            fields += 1;
            // The second node comes with one above both.
            if fields > FULL_NODE && (fields - FULL_NODE) % FIELDS_PER_NODE == 1 {
                self.take(if fields == FULL_NODE + 1 { 2 * NODE } else { NODE })?;
            }
            object.next_value_seed(self.again())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_decoded_if_its_values_fit_whatever_its_length() {
        let mut budget = Budget::new();
        assert_eq!(budget.decode(r#"{"a": [1, "\u0062"]}"#), Ok(json!({"a": [1, "b"]})));
        let many = |value: &str, bytes: usize| {
            format!("[{value}{}]", format!(",{value}").repeat(bytes / value.len()))
        };
        for value in [r#"{"":0}"#, "{}", "[]", "0", r#"["",{"a":{}}]"#] {
            assert_eq!(Budget::new().decode(&many(value, 2 << 20)), Err(Undecodable::TooLarge), "{value}");
        }
        let fields = (0..200_000).map(|n| format!("\"{n}\":0,")).collect::<Vec<_>>().concat();
        assert_eq!(Budget::new().decode(&format!("{{{fields}\"\":0}}")), Err(Undecodable::TooLarge));
        let long = format!("\"{}\"", "x".repeat(8 << 20));
        assert!(Budget::new().decode(&long).is_ok());
        let deep = "[".repeat(200) + &"]".repeat(200);
        for unreadable in [&*deep, "", "{", "1 2", "{\"a\"}"] {
            let read = Budget::new().decode(unreadable);
            assert!(matches!(read, Err(Undecodable::Unreadable(_))), "{unreadable:.20}: {read:?}");
        }
    }

    #[test]
    fn the_objects_of_a_review_share_its_bound() {
        let mut budget = Budget::new();
        let half = format!("\"{}\"", "x".repeat(MAX_DECODED / 2));
        assert!(budget.decode(&half).is_ok());
        assert_eq!(budget.decode(&half), Err(Undecodable::TooLarge));
        // What breaks off is decoded until there.
        let mut budget = Budget::new();
        assert_eq!(budget.charge("[0,0,"), Ok(()));
        assert!(budget.0 < MAX_DECODED - 2 * ELEMENT);
        assert_eq!(budget.charge(&"{\"\":".repeat(60_000)), Ok(()), "deep");
        assert_eq!(budget.charge(&format!("[{}", "{},".repeat(60_000))), Err(Undecodable::TooLarge));
    }
}
