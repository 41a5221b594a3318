//! Request bodies that match their JSON schema, which serde alone does not ensure.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A request body that is a JSON object. Serde alone would also accept an array of the fields, and
/// would refuse `7.0` for an integer, which JSON Schema allows.
#[derive(Debug)]
pub(super) struct JsonObject<T>(pub(super) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        if !value.is_object() {
            return Err(D::Error::custom("the body is no object, expected a JSON object"));
        }
        make_whole(&mut value);
        serde_json::from_value(value).map(Self).map_err(D::Error::custom)
    }
}

/// Turns numbers without a fraction into integers, up to 2^53, where each is exact.
fn make_whole(value: &mut Value) {
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            if float.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&float) {
                *value = (float as u64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(members) => members.values_mut().for_each(make_whole),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::{PurgeRecords, ResolveRecord};
    use super::*;

    #[test]
    fn an_order_is_an_object_whose_integers_may_be_written_as_json_allows() {
        let read = |text: &str| serde_json::from_str::<JsonObject<PurgeRecords>>(text);
        assert_eq!(read("{\"limit\": 862.0}").unwrap().0.limit, Some(862));
        for wrong in ["[862]", "[]", "null", "7", "{\"limit\": 1.5}", "{\"limit\": -1.0}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let resolve = "{\"fence\": 7.0, \"reason\": \"r\", \"reply\": {\"status\": 2e2}}";
        let request = serde_json::from_str::<JsonObject<ResolveRecord>>(resolve).unwrap().0;
        assert_eq!((request.fence, request.reply.status), (7, 200));
    }
}
