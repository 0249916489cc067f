//! The examples, and what Kubernetes knows of them.

use std::{fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The items of a file in examples/kubernetes.
pub(crate) fn manifests(name: &str) -> Vec<Value> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = tests.join("../../../examples/kubernetes").join(name);
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// An item as Kubernetes parses it, without unknown fields.
pub(crate) fn understood<T: DeserializeOwned + Serialize>(item: &Value) -> Value {
    let typed: T = serde_json::from_value(item.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

/// Fails if `given` has a field that `known` lacks.
#[track_caller]
pub(crate) fn assert_within(given: &Value, known: &Value, at: &str) {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            for (name, value) in given {
                let of = known.get(name);
                let of = of.unwrap_or_else(|| panic!("{at}.{name} is no field of Kubernetes"));
                assert_within(value, of, &format!("{at}.{name}"));
            }
        }
        (Value::Array(given), Value::Array(known)) => {
            assert_eq!(given.len(), known.len(), "{at}");
            for (place, (given, known)) in given.iter().zip(known).enumerate() {
                assert_within(given, known, &format!("{at}[{place}]"));
            }
        }
        // A quantity may be a number and becomes a string.
        (Value::Number(number), Value::String(text)) => {
            assert_eq!(&number.to_string(), text, "{at}")
        }
        _ => assert_eq!(given, known, "{at}"),
    }
}
