//! One object, read as far as it is kept and under bounds of its own.
//!
//! Owns the bounds of one object. What [`FieldFilter`] does not name is skipped without recursion and
//! counts for nothing, however deep or long it is. Pure.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::map::{Entry, Map};
use serde_json::{Number, Value};
use thiserror::Error as ThisError;

use super::field_filter::FieldFilter;

/// Levels of lists and objects within each other. The schemas that are read have fewer than 20. What reads,
/// compares and drops a value later may use the stack for each level; `serde_json` itself refuses 128.
pub(super) const MAX_DEPTH: usize = 64;

/// Values of one object, where an object within counts as [`OBJECT_VALUES`]. The largest that mean something
/// are an `EndpointSlice` of 1,000 endpoints, with 50,000, and an `HTTPRouteGroup` of 8,192 headers, with
/// 120,000. A value takes 32 bytes, and up to 120 in small lists and with its name in large objects: 200,000
/// take 24 MiB at most.
pub(super) const MAX_VALUES: usize = 200_000;

/// What an object counts: its memory has room for eleven fields from the start. `{"":0}` is 7 bytes of text
/// and 650 of memory.
pub(super) const OBJECT_VALUES: usize = 12;

/// Bytes of text of one object, the names of fields included: the most that an API server takes.
pub(super) const MAX_TEXT_BYTES: usize = 3 * 1024 * 1024;

/// Why an object that has a name cannot be read. Prints as its problem says it.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub(super) enum Unreadable {
    /// It has too many levels.
    #[error("nested deeper than {MAX_DEPTH} levels; the object has no effect until it is flatter")]
    TooDeep,
    /// It has too much text.
    #[error(
        "its text is longer than {} MiB; the object has no effect until it is shorter",
        MAX_TEXT_BYTES / 1024 / 1024
    )]
    TooLong,
    /// It has too many values.
    #[error(
        "has more than {MAX_VALUES} values (an object within counts as {OBJECT_VALUES}); the object has no \
         effect until it has fewer"
    )]
    TooManyValues,
    /// It has what no value is made of, such as a number that no double holds.
    #[error("{0}; the object has no effect until that is corrected")]
    Malformed(String),
}

/// Reads of `json`, the text of one object, what is kept. Of a field that is there twice, the first one
/// counts.
pub(super) fn read(json: &[u8], keep: &FieldFilter) -> Result<Value, Unreadable> {
    let spent = Spent::default();
    let reading = Reading { keep, depth: 0, spent: &spent };
    let read = reading.deserialize(&mut serde_json::Deserializer::from_slice(json));
    read.map_err(|error| spent.over.take().unwrap_or_else(|| Unreadable::Malformed(error.to_string())))
}

/// What an object has taken so far.
#[derive(Default)]
struct Spent {
    values: Cell<usize>,
    text: Cell<usize>,
    /// The bound that was reached.
    over: RefCell<Option<Unreadable>>,
}

impl Spent {
    fn values<E: Error>(&self, count: usize) -> Result<(), E> {
        self.values.set(self.values.get() + count);
        if self.values.get() > MAX_VALUES { Err(self.refuse(Unreadable::TooManyValues)) } else { Ok(()) }
    }

    fn text<E: Error>(&self, text: &[u8]) -> Result<(), E> {
        self.text.set(self.text.get().saturating_add(text.len()));
        if self.text.get() > MAX_TEXT_BYTES { Err(self.refuse(Unreadable::TooLong)) } else { Ok(()) }
    }

    fn refuse<E: Error>(&self, why: Unreadable) -> E {
        let error = E::custom(&why);
        self.over.replace(Some(why));
        error
    }
}

/// The reading of one value.
#[derive(Clone, Copy)]
struct Reading<'a> {
    keep: &'a FieldFilter,
    /// The lists and objects around the value.
    depth: usize,
    spent: &'a Spent,
}

impl Reading<'_> {
    /// One level down, in a list or an object that counts as so many values.
    fn enter<E: Error>(self, count: usize) -> Result<Self, E> {
        self.spent.values(count)?;
        if self.depth == MAX_DEPTH {
            return Err(self.spent.refuse(Unreadable::TooDeep));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.spent.values(1).map(|()| Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.spent.values(1).map(|()| Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.spent.values(1).map(|()| Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.spent.values(1).map(|()| Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.spent.values(1)?;
        self.spent.text(value.as_bytes())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.spent.values(1).map(|()| Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let item = Reading { keep: self.keep.item(), ..self.enter(1)? };
        let mut items = Vec::new();
        while let Some(value) = sequence.next_element_seed(item)? {
            items.push(value);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let within = self.enter(OBJECT_VALUES)?;
        let mut fields = Map::new();
        while let Some(field) = map.next_key_seed(Name(self))? {
            match field.map(|(name, keep)| (fields.entry(name), keep)) {
                Some((Entry::Vacant(place), keep)) => {
                    place.insert(map.next_value_seed(Reading { keep, ..within })?);
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Value::Object(fields))
    }
}

/// The reading of a field's name; `None` if the field is skipped, and then the name may be anything.
struct Name<'a>(Reading<'a>);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<(String, &'a FieldFilter)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<(String, &'a FieldFilter)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        let Some(keep) = self.0.keep.field(name) else { return Ok(None) };
        self.0.spent.text(name)?;
        let name = std::str::from_utf8(name).map_err(|_| E::custom("the name of a field is no Unicode"))?;
        Ok(Some((name.to_owned(), keep)))
    }
}
