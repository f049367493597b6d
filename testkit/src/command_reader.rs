//! Commands as a server writes them into its append-only file and to its replicas.

use std::io::BufRead;

/// The words of the next command, or `None` at the end.
pub(crate) fn next_command(from: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = number(&line(from)?, '*');
    Some((0..count).map(|_| word(from)).collect())
}

/// The next line without its end, or `None` at the end of the input.
pub(crate) fn line(from: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let length = from.read_line(&mut line).unwrap();
    (length > 0).then(|| line.trim_end().to_owned())
}

/// The number in a line like `$5`.
pub(crate) fn number(line: &str, sign: char) -> usize {
    let number = line.strip_prefix(sign).and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("{line:?} instead of {sign} and a number"))
}

fn word(from: &mut impl BufRead) -> Vec<u8> {
    let length = number(&line(from).expect("a command has all of its words"), '$');
    let mut word = vec![0; length + 2];
    from.read_exact(&mut word).unwrap();
    assert!(word.ends_with(b"\r\n"), "a word ends with its line");
    word.truncate(length);
    word
}
