//! Replies with named fields.

use crate::error::{Error, surprise};
use crate::verdict::number;
use redis::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    Yes,
    No,
    /// The list was cut off.
    Unknown,
}

/// Looks for an owner in a list of at most `most` waiters.
pub(crate) fn lists(reply: &Value, owner: &str, most: usize) -> Listed {
    let Ok(waiters) = list(reply) else { return Listed::Unknown };
    let is_it = |waiter: &Value| field(waiter, "owner").is_ok_and(|value| text(value) == owner);
    match waiters.iter().any(is_it) {
        true => Listed::Yes,
        false if waiters.len() >= most => Listed::Unknown,
        false => Listed::No,
    }
}

pub(crate) fn list(reply: &Value) -> Result<&[Value], Error> {
    if let Value::Array(listed) = reply { Ok(listed) } else { Err(surprise()) }
}

/// Finds a field by name, because later versions add fields. Reads maps, and arrays of names and values in turn.
pub(crate) fn field<'r>(reply: &'r Value, wanted: &str) -> Result<&'r Value, Error> {
    let is_it = |name: &Value| text(name) == wanted;
    let found = match reply {
        Value::Map(pairs) => pairs.iter().find(|(name, _)| is_it(name)).map(|(_, value)| value),
        Value::Array(flat) => flat.chunks_exact(2).find_map(|pair| match pair {
            [name, value] if is_it(name) => Some(value),
            _ => None,
        }),
        _ => None,
    };
    found.ok_or_else(surprise)
}

/// Replaces invalid UTF-8.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

pub(crate) fn count(value: &Value) -> Result<u64, Error> {
    number(value).ok().flatten().ok_or_else(surprise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn whoever_is_listed_is_in_the_queue() {
        let waiter = |owner: &str| {
            Value::Array(vec![bulk("owner"), bulk(owner), bulk("client"), Value::Int(7)])
        };
        let reply = Value::Array(vec![waiter("alice"), waiter("client")]);
        assert_eq!(lists(&reply, "alice", 100), Listed::Yes);
        assert_eq!(lists(&reply, "owner", 100), Listed::No);
        assert_eq!(lists(&reply, "bob", 2), Listed::Unknown);
    }
}
