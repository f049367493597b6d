//! Replies with names and values: maps, or arrays of alternating names and values from servers without
//! maps.

use redis::Value;

pub(crate) struct Fields<'a>(Vec<(&'a Value, &'a Value)>);

impl<'a> Fields<'a> {
    /// None for any other reply.
    pub(crate) fn of(reply: &'a Value) -> Option<Self> {
        match reply {
            Value::Map(pairs) => {
                Some(Self(pairs.iter().map(|(name, value)| (name, value)).collect()))
            }
            Value::Array(flat) => {
                let (names, values) = (flat.iter().step_by(2), flat.iter().skip(1).step_by(2));
                Some(Self(names.zip(values).collect()))
            }
            _ => None,
        }
    }

    /// The fields of each item of an array; empty for any other reply.
    pub(crate) fn of_each(list: &'a Value) -> Vec<Self> {
        let Value::Array(items) = list else { return Vec::new() };
        items.iter().filter_map(Self::of).collect()
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        bytes(self.value(name)?)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn signed(&self, name: &str) -> Option<i64> {
        match self.value(name) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        }
    }

    /// None also for a negative number, which the module uses for "without end".
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.signed(name).and_then(|number| u64::try_from(number).ok())
    }

    fn value(&self, wanted: &str) -> Option<&'a Value> {
        let is_it = |name: &Value| bytes(name).is_some_and(|name| name == wanted.as_bytes());
        self.0.iter().find(|(name, _)| is_it(name)).map(|(_, value)| *value)
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_flat_arrays_say_the_same() {
        let name = |name: &str| Value::BulkString(name.as_bytes().to_vec());
        let pairs = [(name("owner"), name("alice")), (name("ttl"), Value::Int(-1))];
        let flat = pairs.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
        for reply in [Value::Map(pairs.to_vec()), Value::Array(flat)] {
            let fields = Fields::of(&reply).unwrap();
            assert_eq!(fields.text("owner").as_deref(), Some("alice"));
            assert_eq!((fields.signed("ttl"), fields.number("ttl")), (Some(-1), None));
            assert_eq!(fields.text("fence"), None);
        }
        assert!(Fields::of(&Value::Nil).is_none());
    }
}
