//! Replies as tests write them, and the values in replies.

use redis::Value;

/// An integer reply.
pub fn int(number: impl TryInto<i64>) -> Value {
    Value::Int(number.try_into().ok().expect("replies are 64 bits wide"))
}

/// A bulk reply.
pub fn bulk(bytes: impl AsRef<[u8]>) -> Value {
    Value::BulkString(bytes.as_ref().to_vec())
}

/// The text of a string reply of any kind.
pub fn bulk_text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

/// An error reply, with its code first: `ERR owner must be …`.
pub fn error(text: &str) -> Value {
    redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap()
}

/// The code of an error reply.
#[track_caller]
pub fn code(reply: Value) -> String {
    match reply {
        Value::ServerError(told) => told.code().to_owned(),
        other => panic!("no error: {other:?}"),
    }
}

/// The items of a list or a set. RESP3 has some lists as sets.
pub fn items(value: &Value) -> &[Value] {
    let (Value::Array(items) | Value::Set(items)) = value else { panic!("no list: {value:?}") };
    items
}

/// A list of texts, bulk or simple strings.
pub fn strings(value: &Value) -> Vec<String> {
    items(value).iter().map(bulk_text).collect()
}

/// The time in Unix microseconds, from a reply to `TIME`. `None` for another reply.
pub fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = &parts[..] else { return None };
    let number = |digits| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    Some(number(seconds)? * 1_000_000 + number(micros)?)
}

/// The value of `name` in a map, or in a flat list of names and values as in RESP2.
pub fn field<'v>(map: &'v Value, name: &str) -> Option<&'v Value> {
    match map {
        Value::Map(pairs) => {
            pairs.iter().find(|(key, _)| bulk_text(key) == name).map(|(_, value)| value)
        }
        Value::Array(items) => {
            items.chunks_exact(2).find(|pair| bulk_text(&pair[0]) == name).map(|pair| &pair[1])
        }
        _ => panic!("no map: {map:?}"),
    }
}

/// The number of that name in such a map.
#[track_caller]
pub fn number(map: &Value, name: &str) -> i64 {
    match field(map, name) {
        Some(&Value::Int(number)) => number,
        other => panic!("{name} is {other:?} in {map:?}"),
    }
}
