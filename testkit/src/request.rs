//! Requests in the wire format.

/// The words of a command. A text is split at spaces, and `""` in it is an empty word. Words with
/// spaces, and words that are not text, are given separately.
pub trait Words {
    /// The words.
    fn words(&self) -> Vec<Vec<u8>>;
}

impl Words for &str {
    fn words(&self) -> Vec<Vec<u8>> {
        let word = |word: &str| if word == "\"\"" { Vec::new() } else { word.as_bytes().to_vec() };
        self.split(' ').map(word).collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<Vec<u8>> {
        self.as_str().words()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(&self) -> Vec<Vec<u8>> {
        self.iter().map(|word| word.as_bytes().to_vec()).collect()
    }
}

impl<const N: usize> Words for [&[u8]; N] {
    fn words(&self) -> Vec<Vec<u8>> {
        self.iter().map(|word| word.to_vec()).collect()
    }
}

impl Words for Vec<Vec<u8>> {
    fn words(&self) -> Vec<Vec<u8>> {
        self.clone()
    }
}

/// A command as an array of bulk strings.
pub fn encoded(words: impl Words) -> Vec<u8> {
    let words = words.words();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Commands one after the other, to be sent in one write.
pub(crate) fn all_encoded<T: AsRef<str>>(commands: &[T]) -> Vec<u8> {
    commands.iter().flat_map(|command| encoded(command.as_ref())).collect()
}
