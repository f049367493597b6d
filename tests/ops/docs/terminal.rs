//! What a person sees of redis-cli: how it reads a line, and how it shows a reply.

use redis::Value;

/// The words of a line: split at spaces, with "…" around what has some, and \" and \\ in there.
pub(super) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' if !is_quoted => words.extend(word.take()),
            '\\' if is_quoted => word.get_or_insert_default().extend(letters.next()),
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

pub(super) fn shown(reply: &Value) -> String {
    indented(reply, "")
}

/// `indent` stands before every line but the first, which follows the number of the item it belongs to.
fn indented(reply: &Value, indent: &str) -> String {
    match reply {
        Value::Nil => "(nil)".to_owned(),
        Value::Okay => "OK".to_owned(),
        Value::Int(number) => format!("(integer) {number}"),
        Value::BulkString(bytes) => format!("\"{}\"", escaped(bytes)),
        Value::SimpleString(text) => text.clone(),
        Value::Boolean(yes) => format!("({yes})"),
        Value::ServerError(error) => {
            format!("(error) {} {}", error.code(), error.details().unwrap_or_default())
        }
        Value::Array(items) if items.is_empty() => "(empty array)".to_owned(),
        Value::Array(items) => numbered(items.len(), ')', indent, |position, indent| {
            indented(&items[position], indent)
        }),
        Value::Map(pairs) => numbered(pairs.len(), '#', indent, |position, indent| {
            let (name, value) = &pairs[position];
            format!("{} => {}", indented(name, indent), indented(value, indent))
        }),
        other => panic!("no transcript has shown one of these yet: {other:?}"),
    }
}

fn numbered(
    count: usize,
    mark: char,
    indent: &str,
    item: impl Fn(usize, &str) -> String,
) -> String {
    let width = count.to_string().len();
    let deeper = format!("{indent}{}", " ".repeat(width + 2));
    let lines = (0..count).map(|position| {
        let number = position + 1;
        format!("{number:width$}{mark} {}", item(position, &deeper))
    });
    lines.collect::<Vec<_>>().join(&format!("\n{indent}"))
}

fn escaped(bytes: &[u8]) -> String {
    let escape = |&byte: &u8| match byte {
        b'\\' | b'"' => format!("\\{}", char::from(byte)),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    bytes.iter().map(escape).collect()
}
