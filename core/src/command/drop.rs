//! `LOCK.DROP owner [CURSOR cursor] [COUNT n]`: frees what the module remembers of an owner that is gone, step by step.

use super::{Access, Arg, Decide, Error, Reply, Spec, args};
use crate::lock::{Decision, FenceClock, Moment, Owner, Proof, Standing};

pub static SPEC: Spec = Spec {
    name: c"lock.drop",
    summary: c"Frees the holds and places of an owner that is gone, as far as the module remembers them, step by step.",
    complexity: c"O(1) for each step; O(N) for all with N contended locks, bound holds and events in the log",
    since: c"0.3.0",
    history: &[],
    tips: Some(c"request_policy:special response_policy:special nondeterministic_output"),
    access: Access::Owner,
    args: &[Arg::OWNER, Arg::CURSOR, Arg::COUNT],
};

#[derive(Debug)]
pub struct Request<'a> {
    owner: Owner<'a>,
    pub cursor: u64,
    /// How many holds and places are freed at most. Of an owner that waits for several locks at once, all places are
    /// freed together.
    pub count: usize,
}

impl<'a> Request<'a> {
    const USUAL_COUNT: usize = 1_000;

    pub fn parse(words: &[&'a [u8]]) -> Result<Self, Error> {
        let [_, owner, options @ ..] = words else { return Err(Error::WrongArity) };
        let owner = args::owner(owner)?;
        let (mut cursor, mut count) = (None, None);
        for option in options.chunks(2) {
            let &[name, value] = option else { return Err(Error::NeitherCursorNorCount) };
            let is_new = if name.eq_ignore_ascii_case(b"CURSOR") {
                let value = args::parse_integer(value).ok_or(Error::NeitherCursorNorCount)?;
                cursor.replace(value).is_none()
            } else if name.eq_ignore_ascii_case(b"COUNT") {
                let value = args::count(value).ok_or(Error::NeitherCursorNorCount)?;
                count.replace(value).is_none()
            } else {
                false
            };
            if !is_new {
                return Err(Error::NeitherCursorNorCount);
            }
        }
        let count = count.unwrap_or(Self::USUAL_COUNT);
        Ok(Self { owner, cursor: cursor.unwrap_or(0), count })
    }
}

/// The release of each hold that is found.
impl Decide for Request<'_> {
    fn owner(&self) -> Result<Owner<'_>, Error> {
        Ok(self.owner)
    }

    fn decide(
        &self,
        _standings: &[Standing],
        _now: Moment,
        _fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        Ok(Decision::Released(Proof { owner: self.owner, fence: None }))
    }
}

/// The cursor of the next step, 0 after the last, and how many holds and places this step has freed.
pub fn reply(next: u64, freed: usize) -> Reply<'static> {
    Reply::Array(vec![Reply::number(next), Reply::count(freed)])
}

#[cfg(test)]
mod tests {
    use super::super::testing::words;
    use super::*;

    #[test]
    fn options_come_in_any_order_and_each_at_most_once() {
        for (line, cursor, count) in [
            ("drop a", 0, 1_000),
            ("drop a COUNT 7", 0, 7),
            ("drop a count -1 cursor 9", 9, usize::MAX),
            ("drop CURSOR CURSOR 281474976710656 COUNT 1", 1 << 48, 1),
        ] {
            let words = words(line);
            let request = Request::parse(&words).unwrap();
            assert_eq!((request.cursor, request.count), (cursor, count), "{line}");
            assert_eq!(request.owner.as_bytes(), words[1], "{line}");
        }
    }

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        for (line, error) in [
            ("drop", Error::WrongArity),
            ("drop  x", Error::OwnerLength),
            ("drop a COUNT", Error::NeitherCursorNorCount),
            ("drop a COUNT 0", Error::NeitherCursorNorCount),
            ("drop a CURSOR -1", Error::NeitherCursorNorCount),
            ("drop a COUNT 1 COUNT 1", Error::NeitherCursorNorCount),
            ("drop a CURSOR 1 CURSOR 1", Error::NeitherCursorNorCount),
            ("drop a MATCH x", Error::NeitherCursorNorCount),
        ] {
            assert_eq!(Request::parse(&words(line)).unwrap_err(), error, "{line}");
        }
    }
}
