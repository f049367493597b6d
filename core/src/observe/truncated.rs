//! A key or an owner, truncated for an operator.

/// The first 128 bytes, and the number of bytes left out, as SLOWLOG shows a long argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truncated(Box<[u8]>);

impl Truncated {
    const MOST: usize = 128;

    pub(super) fn new(bytes: &[u8]) -> Self {
        match bytes.split_at_checked(Self::MOST) {
            Some((kept, rest)) if !rest.is_empty() => {
                let more = format!("... ({} more bytes)", rest.len());
                Self([kept, more.as_bytes()].concat().into())
            }
            _ => Self(bytes.into()),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_cut_and_says_by_how_much() {
        for len in [0, 1, 127, 128] {
            assert_eq!(Truncated::new(&vec![0xff; len]).as_bytes(), vec![0xff; len]);
        }
        let kept = "k".repeat(128);
        let one_more = format!("{kept}... (1 more bytes)");
        assert_eq!(Truncated::new("k".repeat(129).as_bytes()).as_bytes(), one_more.as_bytes());
        let many_more = format!("{kept}... (1000000 more bytes)");
        assert_eq!(
            Truncated::new("k".repeat(1_000_128).as_bytes()).as_bytes(),
            many_more.as_bytes()
        );
    }
}
