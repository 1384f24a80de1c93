//! Of any message, every good object is read as if it had come alone, and a hostile one costs itself.

use proptest::prelude::*;

use super::super::field_filter;
use super::super::kept::{MAX_DEPTH, MAX_TEXT_BYTES, MAX_VALUES, OBJECT_VALUES};
use super::super::message::{self, Event};
use super::*;
use crate::crds::status::ObjectStatus;

/// Every kind whose objects have an open field.
const KIND: Kind = Kind::HttpRouteGroup;

fn read(object: &Object) -> Result<Value, Unreadable> {
    object.read(field_filter::of(KIND), "specs.smi-spec.io/v1alpha4", KIND)
}

fn page(items: &[String]) -> Bytes {
    format!(r#"{{"items":[{}],"metadata":{{"resourceVersion":"9"}}}}"#, items.join(",")).into()
}

/// The objects of a page with these items.
fn objects(items: &[String]) -> Vec<Object> {
    let page = message::page(&page(items)).unwrap();
    assert_eq!(page.items.len() + page.unnamed, items.len());
    page.items
}

/// What is read of this item alone; `None` if it has no name.
fn alone(item: &str) -> Option<Result<Value, Unreadable>> {
    objects(&[item.to_owned()]).first().map(read)
}

/// Runs this where recursion by each level of a message would overflow the stack.
fn on_a_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap().join().unwrap()
}

fn lists(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

fn maps(depth: usize) -> String {
    r#"{"a":"#.repeat(depth) + "0" + &"}".repeat(depth)
}

fn wide(count: usize) -> String {
    format!("[{}]", vec![r#"{"":0}"#; count].join(","))
}

fn with_spec(spec: &str) -> String {
    format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#)
}

#[test]
fn an_object_is_named_whatever_its_other_fields_are() {
    let deep = lists(100_000);
    for (item, expected) in [
        (
            r#"{"metadata":{"name":"a","namespace":"b","resourceVersion":"5"}}"#.to_owned(),
            Some("b/a at \"5\""),
        ),
        (r#"{"metadata":{"name":"a","namespace":null,"resourceVersion":5}}"#.to_owned(), Some("/a at \"\"")),
        (
            format!(r#"{{"x":{deep},"metadata":{{"labels":{deep},"resourceVersion":"5","name":"a"}}}}"#),
            Some("/a at \"5\""),
        ),
        (r#"{"\ud800":"\udc00","metadata":{"\ud800":1e999,"name":"\u0061"}}"#.to_owned(), Some("/a at \"\"")),
        (r#"{"metadata":{"name":"a","name":7}}"#.to_owned(), Some("/a at \"\"")),
        (r#"{"metadata":{"name":7,"name":"a"}}"#.to_owned(), None),
        (r#"{"metadata":{"name":""}}"#.to_owned(), None),
        (r#"{"metadata":{"name":"\ud800"}}"#.to_owned(), None),
        (r#"{"metadata":{"name":"a","namespace":7}}"#.to_owned(), None),
        (format!(r#"{{"metadata":{{"name":{deep}}}}}"#), None),
        (format!(r#"{{"metadata":{deep}}}"#), None),
        (r#"{"metadata":null}"#.to_owned(), None),
        ("{}".to_owned(), None),
        ("null".to_owned(), None),
        (deep, None),
    ] {
        let named = objects(std::slice::from_ref(&item));
        let named = named.first().map(|object| format!("{object:?}"));
        assert_eq!(named.as_deref(), expected, "{}", item.get(..60).unwrap_or(&item));
    }
}

#[test]
fn an_object_is_read_up_to_its_bounds_and_not_beyond() {
    // The object, its `metadata` and the name, then what is in `spec`.
    let levels = MAX_DEPTH - 1;
    let pairs = (MAX_VALUES - 2 * OBJECT_VALUES - 2) / (OBJECT_VALUES + 1);
    let values = MAX_VALUES - 2 * OBJECT_VALUES - 2;
    let text = MAX_TEXT_BYTES - "metadatanameaspec".len();
    for (spec, expected) in [
        (lists(levels), None),
        (lists(levels + 1), Some(Unreadable::TooDeep)),
        (maps(levels), None),
        (maps(levels + 1), Some(Unreadable::TooDeep)),
        (lists(9_000), Some(Unreadable::TooDeep)),
        (wide(pairs), None),
        (wide(pairs + 1), Some(Unreadable::TooManyValues)),
        (format!("[{}0]", "0,".repeat(values - 1)), None),
        (format!("[{}0]", "0,".repeat(values)), Some(Unreadable::TooManyValues)),
        (format!("\"{}\"", "x".repeat(text)), None),
        (format!("\"{}\"", "x".repeat(text + 1)), Some(Unreadable::TooLong)),
        (format!("{{\"{}\":0}}", "x".repeat(text)), None),
        (format!("{{\"{}\":0}}", "x".repeat(text + 1)), Some(Unreadable::TooLong)),
    ] {
        let read = alone(&with_spec(&spec)).unwrap();
        assert_eq!(read.err(), expected, "{}", spec.get(..40).unwrap_or(&spec));
    }
    for (spec, expected) in [
        ("1e999", "number out of range"),
        (r#""\ud800""#, "hex escape"),
        (r#"{"\ud800":0}"#, "no Unicode"),
        (r#"{"\udc00":0}"#, "no Unicode"),
    ] {
        let why = alone(&with_spec(spec)).unwrap().unwrap_err();
        assert!(matches!(&why, Unreadable::Malformed(_)), "{why}");
        assert!(why.to_string().contains(expected), "{spec}: {why}");
    }
}

#[test]
fn what_is_not_kept_costs_an_object_nothing() {
    let expected = serde_json::json!({"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup",
        "metadata": {"name": "a"}, "spec": {"x": 1}});
    let long = format!("\"{}\"", "x".repeat(MAX_TEXT_BYTES + 1));
    for hostile in [&lists(10_000), &maps(10_000), &wide(MAX_VALUES + 1), &long, "1e999", r#""\ud800""#] {
        let item = format!(
            r#"{{"status":{hostile},"\udc00":{hostile},"metadata":{{"managedFields":{hostile},"name":"a"}},
                "spec":{{"x":1}},"spec":{hostile},"metadata":{hostile}}}"#
        );
        assert_eq!(alone(&item), Some(Ok(expected.clone())), "{}", hostile.get(..40).unwrap_or(hostile));
    }
}

/// An item, and what is read of it if it is a good one.
#[derive(Debug, Clone)]
struct Item {
    json: String,
    good: Option<Value>,
}

fn good() -> impl Strategy<Value = Item> {
    ("[a-z]{1,8}", "\\PC{0,12}", any::<i64>(), 0..20_usize).prop_map(|(name, text, number, depth)| {
        let nested: Value = serde_json::from_str(&maps(depth)).unwrap();
        let mut good = serde_json::json!({"metadata": {"name": name, "namespace": "b", "resourceVersion": "5"},
            "spec": {"text": text, "number": number, "nested": nested, &text: [null, true, 1.5]}});
        let mut written = good.clone();
        written["status"] = nested;
        written["metadata"]["labels"] = serde_json::json!({"x": text});
        good["apiVersion"] = "specs.smi-spec.io/v1alpha4".into();
        good["kind"] = "HTTPRouteGroup".into();
        Item { json: written.to_string(), good: Some(good) }
    })
}

/// A value that an author may write into a field.
fn hostile_value() -> impl Strategy<Value = String> {
    let odd = [
        "7",
        "null",
        "[]",
        "{}",
        "\"\"",
        "true",
        "-0",
        "1e999",
        "-1e-999",
        "123456789012345678901234567890",
        r#""\ud800""#,
        r#""\udfff\ud800""#,
        r#""\u0000""#,
        "\"\u{2028}\u{feff}\u{10ffff}\"",
        r#"{"\ud800":0}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"name":{}}"#,
        r#"[{"metadata":[]}]"#,
    ];
    prop_oneof![
        2 => (125..10_000_usize).prop_map(lists),
        2 => (125..10_000_usize).prop_map(maps),
        1 => (1..3_000_usize).prop_map(wide),
        1 => (1..100_000_usize).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
        4 => prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
    ]
}

fn hostile() -> impl Strategy<Value = Item> {
    let shapes = [
        "@",
        r#"{"metadata":@}"#,
        r#"{"metadata":{"name":@}}"#,
        r#"{"metadata":{"name":"h","namespace":@},"spec":{}}"#,
        r#"{"metadata":{"name":"h","resourceVersion":@},"spec":{}}"#,
        r#"{"metadata":{"labels":@,"name":"h"},"spec":@}"#,
        r#"{"status":@,"metadata":{"name":"h","generation":@}}"#,
        r#"{"metadata":{"name":"h"},"metadata":@,"spec":1,"spec":@}"#,
        r#"{"spec":{"matches":[{"headers":@}]},"metadata":{"name":"h"}}"#,
        r#"{"\ud800":@,"metadata":{"\udfff":@,"name":"h"}}"#,
    ];
    (prop::sample::select(shapes.to_vec()), hostile_value())
        .prop_map(|(shape, value)| Item { json: shape.replace('@', &value), good: None })
}

/// A page or a line of a watch with a part of it replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop_oneof![good(), hostile()].prop_flat_map(|item| {
        let page = page(std::slice::from_ref(&item.json)).to_vec();
        let line = format!(r#"{{"type":"ADDED","object":{}}}"#, item.json).into_bytes();
        prop::sample::select(vec![page, line])
    });
    let part = prop::collection::vec(
        prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\u0e".to_vec())],
        0..8,
    );
    (whole, any::<prop::sample::Index>(), any::<prop::sample::Index>(), part).prop_map(
        |(mut whole, from, length, part)| {
            let from = from.index(whole.len());
            let to = from + length.index(whole.len() - from);
            whole.splice(from..to, part);
            whole
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_good_object_of_a_page_is_read_as_if_it_came_alone(
        items in prop::collection::vec(prop_oneof![good(), hostile()], 0..12)
    ) {
        let texts: Vec<String> = items.iter().map(|item| item.json.clone()).collect();
        let (read_together, read_alone) = on_a_small_stack(move || {
            let together: Vec<_> = objects(&texts).iter().map(read).collect();
            let alone: Vec<_> = texts.iter().filter_map(|item| alone(item)).collect();
            (together, alone)
        });
        prop_assert_eq!(&read_together, &read_alone);
        for (json, good) in items.into_iter().filter_map(|item| Some((item.json, item.good?))) {
            prop_assert_eq!(alone(&json), Some(Ok(good)));
        }
    }

    #[test]
    fn an_event_is_of_the_object_that_is_read_from_it(item in prop_oneof![good(), hostile()]) {
        let (event, expected) = on_a_small_stack(move || {
            let line = format!(r#"{{"object":{},"type":"MODIFIED"}}"#, item.json);
            let read = match message::event(&line.into()).unwrap() {
                Event::Applied(object) => {
                    if let Ok(value) = read(&object) {
                        assert_eq!(value["metadata"]["name"], object.name());
                        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default();
                        assert_eq!(text("namespace"), object.namespace());
                        assert_eq!(text("resourceVersion"), object.version());
                    }
                    Some(read(&object))
                }
                _ => None,
            };
            (read, alone(&item.json))
        });
        prop_assert_eq!(event, expected);
    }

    #[test]
    fn no_message_panics_or_overflows_the_stack(
        message in prop_oneof![4 => damaged(), 1 => prop::collection::vec(any::<u8>(), 0..64)]
    ) {
        on_a_small_stack(move || {
            let message = Bytes::from(message);
            let event = match message::event(&message) {
                Ok(Event::Applied(object) | Event::Deleted(object)) => Some(object),
                _ => None,
            };
            let items = message::page(&message).map(|page| page.items).unwrap_or_default();
            for object in items.iter().chain(&event) {
                let _ = read(object);
            }
            let _ = (message::status(500, &message), message::list_version(&message));
        });
    }
}

/// A right to write a status is none to take the object out of effect.
#[test]
fn no_status_makes_an_object_unreadable() {
    let (deep, wide) = (lists(100_000), wide(MAX_VALUES));
    let long = format!("\"{}\"", "x".repeat(MAX_TEXT_BYTES));
    for status in [deep, wide, long, "1e999".to_owned(), r#"{"conditions":7}"#.to_owned()] {
        let item = format!(
            r#"{{"metadata":{{"generation":2,"name":"a","uid":"u"}},"spec":{{"x":1}},"status":{status}}}"#
        );
        let object = &objects(std::slice::from_ref(&item))[0];
        let expected = read(&objects(&[with_spec(r#"{"x":1}"#)])[0]).map(|mut value| {
            value["metadata"]["generation"] = 2.into();
            value
        });
        assert_eq!(read(object), expected, "{item:.90}");
        let marks = object.marks().unwrap();
        assert_eq!((marks.generation, &*marks.uid), (2, "u"));
        assert_eq!(marks.written(), ObjectStatus::default(), "{item:.90}");
    }
}
