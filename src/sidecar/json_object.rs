//! JSON objects that are written straight to text.
//!
//! Owns the macro [`object!`]. It reads like `serde_json::json!`, but makes a value of a type of its own that
//! implements [`Serialize`]. `json!` makes a tree of maps, and copies each value that it is given into it:
//! for a sidecar, whose two documents are made once and written once, that took a tenth of an injection's
//! processor time. The fields are written in the order of the source.

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Fields of an object.
pub(crate) trait Fields {
    /// Writes them into a map.
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

pub(crate) struct Field<K, V>(pub(crate) K, pub(crate) V);

/// An object with these fields.
pub(crate) struct Object<F>(pub(crate) F);

impl<K: Serialize, V: Serialize> Fields for Field<K, V> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry(&self.0, &self.1)
    }
}

impl Fields for () {
    fn write<M: SerializeMap>(&self, _: &mut M) -> Result<(), M::Error> {
        Ok(())
    }
}

impl<A: Fields, B: Fields> Fields for (A, B) {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.write(map)?;
        self.1.write(map)
    }
}

impl<F: Fields> Fields for Option<F> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.as_ref().map_or(Ok(()), |fields| fields.write(map))
    }
}

impl<F: Fields> Fields for Object<F> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.0.write(map)
    }
}

impl<F: Fields> Serialize for Object<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.0.write(&mut map)?;
        map.end()
    }
}

/// The JSON. Fails, and `to_string` panics, for a key that is no text and for a value that refuses; SMC's
/// objects have neither.
impl<F: Fields> fmt::Display for Object<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// An [`Object`] as `json!` has it: `object! { "key": value, KEY: value, (expression): value }`. A value is
/// an expression, an object in braces, or a list of one such object in brackets. `..fields` adds the fields
/// of another object, or of none (`Option`). A key that is given twice is written twice.
macro_rules! object {
    (@fields) => { () };
    (@fields .. $more:expr $(, $($rest:tt)*)?) => {
        ($more, $crate::json_object::object!(@fields $($($rest)*)?))
    };
    (@fields $key:tt : { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        $crate::json_object::object!(@field $key, $crate::json_object::object! { $($inner)* }, $($($rest)*)?)
    };
    (@fields $key:tt : [{ $($inner:tt)* }] $(, $($rest:tt)*)?) => {
        $crate::json_object::object!(@field $key, [$crate::json_object::object! { $($inner)* }], $($($rest)*)?)
    };
    (@fields $key:tt : $value:expr $(, $($rest:tt)*)?) => {
        $crate::json_object::object!(@field $key, $value, $($($rest)*)?)
    };
    (@field $key:tt, $value:expr, $($rest:tt)*) => {
        ($crate::json_object::Field($key, $value), $crate::json_object::object!(@fields $($rest)*))
    };
    (@ $($wrong:tt)*) => { compile_error!(concat!("not a field of an object: ", stringify!($($wrong)*))) };
    ($($fields:tt)*) => { $crate::json_object::Object($crate::json_object::object!(@fields $($fields)*)) };
}
pub(crate) use object;

#[cfg(test)]
mod tests {
    #[test]
    fn fields_are_written_in_the_order_of_the_source() {
        const KEY: &str = "b";
        let more = |here: bool| here.then_some(object! { "more": true });
        let number = 1;
        for (object, text) in [
            (object! {}.to_string(), "{}"),
            (object! { KEY: number, "a": "\"" }.to_string(), r#"{"b":1,"a":"\""}"#),
            (object! { (format!("{KEY}c")): [1, 2], }.to_string(), r#"{"bc":[1,2]}"#),
            (
                object! { "a": { "b": {} }, "c": [{ "d": ["x"] }], "e": [object! {}, object! {}] }
                    .to_string(),
                r#"{"a":{"b":{}},"c":[{"d":["x"]}],"e":[{},{}]}"#,
            ),
            (
                object! { ..more(true), "a": 1, ..more(false), ..object! { "z": 2 } }.to_string(),
                r#"{"more":true,"a":1,"z":2}"#,
            ),
        ] {
            assert_eq!(object, text);
        }
    }
}
