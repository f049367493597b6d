//! Output. Results go to standard output in one piece. Everything else goes to standard error, and begins with the name
//! of the program.

use crate::exit_code::Failure;
use crate::writer;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether a changing line is shown, which other messages must replace.
static LINE: Mutex<bool> = Mutex::new(false);
static QUIET: AtomicBool = AtomicBool::new(false);
/// Why the first output that failed could not be written.
static UNPRINTED: Mutex<Option<Failure>> = Mutex::new(None);

/// From now on only errors are printed.
pub(crate) fn be_quiet() {
    QUIET.store(true, Relaxed);
}

pub(crate) fn is_quiet() -> bool {
    QUIET.load(Relaxed)
}

pub(crate) fn is_at_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Writes a line to standard error.
pub(crate) fn say(text: &str) {
    let Ok(mut shown) = LINE.lock() else { return };
    let clear = if std::mem::take(&mut *shown) { "\r\x1b[K" } else { "" };
    writer::write(format!("{clear}leasehold: {text}\n"));
}

/// Writes a line to standard error, unless --quiet was given.
pub(crate) fn tell(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// Replaces the line shown before. The line does not wrap: the terminal cuts off what does not fit.
pub(crate) fn show_line(text: &str) {
    let Ok(mut shown) = LINE.lock() else { return };
    *shown = true;
    writer::write(format!("\r\x1b[?7lleasehold: {text}\x1b[K\x1b[?7h"));
}

pub(crate) fn clear_line() {
    let Ok(mut shown) = LINE.lock() else { return };
    if std::mem::take(&mut *shown) {
        writer::write("\r\x1b[K".to_owned());
    }
}

/// Writes to standard output. A failure is reported at the end of the program: see [`all_was_printed`].
pub(crate) fn print(text: &str) {
    if let Err(failure) = print_whole(text)
        && let Ok(mut first) = UNPRINTED.lock()
    {
        first.get_or_insert(failure);
    }
}

/// Fails if any output failed, because an incomplete result looks complete.
pub(crate) fn all_was_printed() -> Result<(), Failure> {
    let failure = UNPRINTED.lock().ok().and_then(|mut first| first.take());
    failure.map_or(Ok(()), Err)
}

/// Writes to standard output, and fails at once. For contents of a file, which are of no use if incomplete.
pub(crate) fn print_whole(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has closed the pipe: it needs no more.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::of_system("it cannot be written", &error)),
    }
}

/// Columns as wide as their contents.
pub(crate) fn print_table(head: &[&str], rows: &[Vec<String>]) {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let width_of = |column: usize| {
        let cells = std::iter::once(&head).chain(rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width_of).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    print(&text);
}

/// Escapes the characters that a terminal would act on.
pub(crate) fn printable(text: &str) -> String {
    // Characters that change the direction of writing could make a name look like another.
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let acts = |c: char| c.is_control() || turns(c);
    let shown = |c: char| if acts(c) { c.escape_default().to_string() } else { c.into() };
    text.chars().map(shown).collect()
}

pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(u64),
    Signed(i64),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(&'static str, Self)>),
}

impl Json {
    pub(crate) fn optional(number: Option<u64>) -> Self {
        number.map_or(Self::Null, Self::Number)
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn print(&self) {
        let mut text = String::new();
        self.write(&mut text);
        text.push('\n');
        print(&text);
    }

    fn write(&self, to: &mut String) {
        match self {
            Self::Null => to.push_str("null"),
            Self::Bool(is_so) => to.push_str(if *is_so { "true" } else { "false" }),
            Self::Number(number) => to.push_str(&number.to_string()),
            Self::Signed(number) => to.push_str(&number.to_string()),
            Self::Text(text) => write_text(text, to),
            Self::List(items) => {
                to.push('[');
                for (index, item) in items.iter().enumerate() {
                    to.push_str(if index > 0 { "," } else { "" });
                    item.write(to);
                }
                to.push(']');
            }
            Self::Object(fields) => {
                to.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    to.push_str(if index > 0 { "," } else { "" });
                    write_text(name, to);
                    to.push(':');
                    value.write(to);
                }
                to.push('}');
            }
        }
    }
}

fn write_text(text: &str, to: &mut String) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            // A terminal acts on the control characters beyond the first 32 too.
            c if c.is_control() => to.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => to.push(c),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_the_standard_has_it() {
        let value = Json::Object(vec![
            ("name", Json::text("a\"b\\c\nd\u{1b}\u{9b}é")),
            ("list", Json::List(vec![Json::Null, Json::Number(7)])),
        ]);
        let mut text = String::new();
        value.write(&mut text);
        assert_eq!(text, "{\"name\":\"a\\\"b\\\\c\\u000ad\\u001b\\u009bé\",\"list\":[null,7]}");
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("a\u{202e}b\u{2067}é"), "a\\u{202e}b\\u{2067}é");
        assert_eq!(printable("a\u{200e}b\u{200f}\u{61c}"), "a\\u{200e}b\\u{200f}\\u{61c}");
    }
}
