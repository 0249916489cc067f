//! Parsing of a plugin's options: one JSON object, whose numbers may be strings.
//!
//! The command line passes only strings (`slots=4`), and only the plugin's type defines whether `4` is a number or a name.
//! So this module converts strings where the type is known.

use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor, value::MapDeserializer},
    forward_to_deserialize_any,
};
use serde_json::{Error, Value};

use crate::PluginError;

/// Parses options. Converts a string to a number or a boolean (`true`, `false`) where the type requires one. An error names
/// the option.
pub fn from_options<T: DeserializeOwned>(json: &[u8]) -> Result<T, PluginError> {
    let bad = |error: Error| PluginError::bad_config(error.to_string());
    let options: serde_json::Map<String, Value> = match json {
        [] => serde_json::Map::new(),
        json => serde_json::from_slice(json).map_err(bad)?,
    };
    let options = options.into_iter().map(|(name, value)| {
        let lenient = Lenient {
            name: name.clone(),
            value,
        };
        (name, lenient)
    });
    T::deserialize(MapDeserializer::new(options)).map_err(bad)
}

struct Lenient {
    name: String,
    value: Value,
}

impl Lenient {
    fn with_name(name: &str, error: &Error) -> Error {
        Error::custom(format!("{name}: {error}"))
    }

    /// The value, or the number or boolean in its string.
    fn parsed(self) -> (String, Value) {
        let parsed = match &self.value {
            Value::String(text) => serde_json::from_str(text)
                .ok()
                .filter(|parsed: &Value| parsed.is_number() || parsed.is_boolean()),
            _ => None,
        };
        (self.name, parsed.unwrap_or(self.value))
    }
}

impl IntoDeserializer<'_, Error> for Lenient {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! parse_first {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let (name, value) = self.parsed();
            value.$method(visitor).map_err(|error| Self::with_name(&name, &error))
        }
    )*};
}

impl<'de> Deserializer<'de> for Lenient {
    type Error = Error;

    parse_first! {
        deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.value
            .deserialize_any(visitor)
            .map_err(|error| Self::with_name(&self.name, &error))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value
            .deserialize_enum(name, variants, visitor)
            .map_err(|error| Self::with_name(&self.name, &error))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Options {
        name: String,
        #[serde(default)]
        slots: Option<u32>,
        #[serde(default)]
        share: f64,
        #[serde(default)]
        strict: bool,
        #[serde(default)]
        mode: Mode,
        #[serde(default)]
        list: Vec<u32>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        #[default]
        Fast,
        Slow,
    }

    #[test]
    fn strings_are_converted_to_the_type() {
        let json = br#"{"name":"4","slots":"4","share":"0.5","strict":"true","mode":"slow"}"#;
        let options: Options = from_options(json).unwrap();
        let expected = Options {
            name: "4".into(),
            slots: Some(4),
            share: 0.5,
            strict: true,
            mode: Mode::Slow,
            list: vec![],
        };
        assert_eq!(options, expected);
        let json = br#"{"name":"a","slots":4,"strict":false,"list":[1,2]}"#;
        let options: Options = from_options(json).unwrap();
        assert_eq!((options.slots, options.list), (Some(4), vec![1, 2]));
    }

    fn refused(json: &str) -> String {
        from_options::<Options>(json.as_bytes())
            .unwrap_err()
            .message
    }

    #[test]
    fn an_error_names_the_option() {
        assert_eq!(
            refused(r#"{"name":"a","slots":"many"}"#),
            r#"slots: invalid type: string "many", expected u32"#
        );
        assert_eq!(
            refused(r#"{"name":"a","slots":"-1"}"#),
            "slots: invalid value: integer `-1`, expected u32"
        );
        assert!(refused(r#"{"name":"a","mode":"odd"}"#).starts_with("mode: unknown variant `odd`"));
        assert!(refused(r#"{"name":1}"#).starts_with("name: invalid type"));
        assert!(
            refused(r#"{"nam":"a"}"#).starts_with("unknown field `nam`, expected one of `name`")
        );
        assert_eq!(refused(""), "missing field `name`");
        assert!(refused("[]").contains("expected a map"));
    }
}
