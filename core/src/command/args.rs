//! Checks what clients send: bytes. Every argument is checked here, and every mistake is named here.

use super::{ALSO, Error};
use crate::lock::{Fence, Grace, Limits, Owner, Patience, Proof, Share, Ttl};

/// Each ticket stores the name of its channel.
pub(super) const LONGEST_CHANNEL: usize = 255;

/// Each queue stores the name of its lock while it has waiters, and each look at the lock reads the whole name. With a
/// name of this length, a look takes about twice as long as with a short name.
pub(super) const LONGEST_KEY_TO_WAIT_FOR: usize = 4_096;

pub(super) fn owner(bytes: &[u8]) -> Result<Owner<'_>, Error> {
    Owner::new(bytes).ok_or(Error::OwnerLength)
}

pub(super) fn ttl(bytes: &[u8], limits: &Limits) -> Result<Ttl, Error> {
    let millis = parse_integer(bytes).filter(|&millis| millis > 0).ok_or(Error::TtlNotPositive)?;
    Ttl::from_millis(millis)
        .filter(|&ttl| ttl <= limits.max_ttl)
        .ok_or(Error::TtlAboveLimit { limit: limits.max_ttl })
}

/// Checks that nothing follows but a fence and the names of other locks. A wrong number of words is found before any
/// other mistake.
pub(super) fn count_behind(words: &[&[u8]], at: usize) -> Result<(), Error> {
    let behind = words.get(at..).ok_or(Error::WrongArity)?;
    match behind {
        [] | [_] => Ok(()),
        [one, other, ..] if [one, other].into_iter().any(|word| Also::is_begun_by(word)) => Ok(()),
        _ => Err(Error::WrongArity),
    }
}

/// The optional fence at this place, and the optional other locks after it.
pub(super) fn fence_and_also<'a>(
    words: &[&'a [u8]],
    at: usize,
) -> Result<(Option<u64>, Option<Also<'a>>), Error> {
    match words.get(at) {
        None => Ok((None, None)),
        Some(word) if Also::is_begun_by(word) => Ok((None, Also::at_the_end(words, at)?)),
        Some(fence) => {
            let fence = self::fence(fence)?;
            Ok((Some(fence), Also::at_the_end(words, at.saturating_add(1))?))
        }
    }
}

/// What `key owner [fence]` proves: the owner and, if the client is exact, the fence of its grant.
pub fn proof<'a>(words: &[&'a [u8]]) -> Result<Proof<'a>, Error> {
    let (owner, fence) = match *words {
        [_, _, owner] => (owner, None),
        [_, _, owner, fence] => (owner, Some(fence)),
        _ => return Err(Error::WrongArity),
    };
    Ok(Proof { owner: self::owner(owner)?, fence: fence.map(self::fence).transpose()? })
}

pub(super) fn patience(bytes: &[u8]) -> Result<Patience, Error> {
    parse_integer(bytes).and_then(Patience::from_millis).ok_or(Error::PatienceOutOfRange)
}

/// How long a ticket lasts. At most the longest lease, because the lock is kept for the ticket's owner for as long.
pub(super) fn ticket(bytes: &[u8], limits: &Limits) -> Result<Ttl, Error> {
    let lasts = parse_integer(bytes).and_then(Ttl::from_millis);
    lasts
        .filter(|&lasts| lasts <= limits.max_ttl)
        .ok_or(Error::TicketOutOfRange { limit: limits.max_ttl })
}

/// The channel must not be `ALSO`: the server takes the first such word for the start of the other locks, finds no
/// keys after it, and checks the permissions of none. The server compares words only up to a zero byte.
pub(super) fn channel(bytes: &[u8]) -> Result<&[u8], Error> {
    let has_length = (1..=LONGEST_CHANNEL).contains(&bytes.len());
    let compared = bytes.split(|&byte| byte == 0).next();
    if compared.is_some_and(Also::is_begun_by) {
        return Err(Error::ChannelReserved);
    }
    has_length.then_some(bytes).ok_or(Error::ChannelLength)
}

pub(super) fn grace(bytes: &[u8]) -> Result<Grace, Error> {
    parse_integer(bytes).and_then(Grace::from_millis).ok_or(Error::GraceOutOfRange)
}

pub(super) fn share(bytes: &[u8]) -> Result<Share, Error> {
    let number = parse_integer(bytes).and_then(|number| u32::try_from(number).ok());
    number.and_then(Share::new).ok_or(Error::ShareOutOfRange)
}

pub(super) fn fence(bytes: &[u8]) -> Result<u64, Error> {
    parse_integer(bytes)
        .filter(|&number| number <= Fence::LAST.number())
        .ok_or(Error::FenceNotANumber)
}

/// How many of a lock's holders or waiters to list: `key [COUNT n]`. The default is small enough that no list holds up
/// the server.
pub fn count_of_rows(words: &[&[u8]]) -> Result<usize, Error> {
    match *words {
        [_, _] => Ok(100),
        [_, _, option, limit] if option.eq_ignore_ascii_case(b"COUNT") => {
            count(limit).ok_or(Error::CountNotPositive)
        }
        [_, _, ..] => Err(Error::CountNotPositive),
        _ => Err(Error::WrongArity),
    }
}

/// How many to list: positive, or -1 for all, as in SLOWLOG GET.
pub(super) fn count(bytes: &[u8]) -> Option<usize> {
    if bytes == b"-1" {
        return Some(usize::MAX);
    }
    let count = parse_integer(bytes).filter(|&count| count > 0)?;
    Some(usize::try_from(count).unwrap_or(usize::MAX))
}

/// What an operator asks of a command that lists something: `[count | RESET]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    Show { count: usize },
    Reset,
}

impl Listing {
    const USUAL_COUNT: usize = 10;

    pub fn parse(words: &[&[u8]]) -> Result<Self, Error> {
        let count = match *words {
            [_] => Self::USUAL_COUNT,
            [_, option] if option.eq_ignore_ascii_case(b"RESET") => return Ok(Self::Reset),
            [_, count] => self::count(count).ok_or(Error::NeitherCountNorReset)?,
            _ => return Err(Error::WrongArity),
        };
        Ok(Self::Show { count })
    }
}

/// The other locks of a request for several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Also<'a> {
    /// The position of the first of these keys among the request's words.
    pub at: usize,
    pub keys: Vec<&'a [u8]>,
}

impl<'a> Also<'a> {
    /// The limit that keeps a request from holding up the server.
    pub const MOST_KEYS: u64 = 128;

    /// Whether this word precedes the names of other locks.
    pub(super) fn is_begun_by(word: &[u8]) -> bool {
        word.eq_ignore_ascii_case(ALSO.to_bytes())
    }

    /// Parses the names after the word at this place. Also returns the place of the first word after the names.
    pub(super) fn parse(words: &[&'a [u8]], word_at: usize) -> Result<(Self, usize), Error> {
        let number_at = word_at.saturating_add(1);
        let number = words.get(number_at).and_then(|word| parse_integer(word));
        let number = number.filter(|number| (1..=Self::MOST_KEYS).contains(number));
        let count = number.and_then(|number| usize::try_from(number).ok());
        let count = count.ok_or(Error::KeyNumberOutOfRange)?;
        let at = number_at.saturating_add(1);
        let end = at.saturating_add(count);
        let keys = words.get(at..end).ok_or(Error::FewerKeys)?.to_vec();
        let mut all: Vec<_> = keys.iter().chain(words.get(1)).collect();
        all.sort_unstable();
        let is_twice = |pair: &[&&[u8]]| matches!(pair, [one, other] if one == other);
        if all.windows(2).any(is_twice) {
            return Err(Error::KeyTwice);
        }
        Ok((Self { at, keys }, end))
    }

    /// The names of other locks from this word on, whatever else is wrong with the command.
    pub fn find(words: &[&'a [u8]], from: usize) -> Option<Self> {
        let word_at = (from..words.len())
            .find(|&at| words.get(at).is_some_and(|word| Self::is_begun_by(word)))?;
        let (also, _) = Self::parse(words, word_at).ok()?;
        Some(also)
    }

    /// The names of other locks at the end of a request that takes nothing after them.
    pub(super) fn at_the_end(words: &[&'a [u8]], word_at: usize) -> Result<Option<Self>, Error> {
        match words.get(word_at) {
            None => Ok(None),
            Some(word) if Self::is_begun_by(word) => {
                let (also, end) = Self::parse(words, word_at)?;
                if end == words.len() { Ok(Some(also)) } else { Err(Error::WrongArity) }
            }
            Some(_) => Err(Error::WrongArity),
        }
    }
}

/// A whole number as the server reads one: only digits, no sign, no leading zero. A number too large for 64 bits
/// becomes the largest, which exceeds every limit and so gives the better error.
pub fn parse_integer(bytes: &[u8]) -> Option<u64> {
    match bytes {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => bytes.iter().try_fold(0_u64, |number, digit| {
            let one = u64::from(digit.wrapping_sub(b'0'));
            digit.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(one))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn an_integer_is_digits_and_nothing_else() {
        for (text, number) in [
            ("0", 0),
            ("7", 7),
            ("18446744073709551615", u64::MAX),
            ("18446744073709551616", u64::MAX),
            ("99999999999999999999999999", u64::MAX),
        ] {
            assert_eq!(parse_integer(text.as_bytes()), Some(number), "{text}");
        }
        for text in ["", "-1", "+1", "01", "00", " 1", "1 ", "1e3", "1.0", "0x10", "1\0", "١"] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }

    /// What is wrong with an argument, if anything.
    type Check = fn(&[u8]) -> Result<(), Error>;

    #[test]
    fn every_argument_is_within_its_bounds() {
        const LIMIT: Ttl = LIMITS.max_ttl;
        let lasts: [Check; 2] =
            [|word| ttl(word, &LIMITS).map(drop), |word| ticket(word, &LIMITS).map(drop)];
        let above = "86400001 9223372036854775808 99999999999999999999";
        let checks: [(Check, &str, &str, Error); 9] = [
            (lasts[0], "1 86400000", "0 -1 a 1.5", Error::TtlNotPositive),
            (lasts[0], "1", above, Error::TtlAboveLimit { limit: LIMIT }),
            (lasts[1], "1 86400000", "0 86400001 x", Error::TicketOutOfRange { limit: LIMIT }),
            (
                |word| Listing::parse(&[b"cmd", word]).map(drop),
                "1 -1 Reset 18446744073709551616",
                "0 -2 x 1.5 01 RESETS COUNT",
                Error::NeitherCountNorReset,
            ),
            (
                |word| fence(word).map(drop),
                "0 9007199254740991",
                "9007199254740992 -1 x",
                Error::FenceNotANumber,
            ),
            (
                |word| patience(word).map(drop),
                "0 3153600000000",
                "3153600000001 -1 x",
                Error::PatienceOutOfRange,
            ),
            (
                |word| grace(word).map(drop),
                "0 3153600000000",
                "3153600000001 -1 x 05 18446744073709551616",
                Error::GraceOutOfRange,
            ),
            (
                |word| share(word).map(drop),
                "0 99999",
                "100000 -1 x 05 18446744073709551615",
                Error::ShareOutOfRange,
            ),
            (
                |word| channel(word).map(drop),
                "turn ALSOS",
                "ALSO also aLsO also\0x",
                Error::ChannelReserved,
            ),
        ];
        for (check, good, bad, error) in checks {
            for word in words(good) {
                assert_eq!(check(word), Ok(()), "{}", word.escape_ascii());
            }
            for word in words(bad) {
                assert_eq!(check(word), Err(error), "{}", word.escape_ascii());
            }
        }
        let longest = [b'c'; LONGEST_CHANNEL + 1];
        for (len, is_good) in [(0, false), (1, true), (255, true), (256, false)] {
            assert_eq!(channel(&longest[..len]).is_ok(), is_good, "{len}");
        }
    }

    #[test]
    fn a_number_is_what_it_says() {
        let listing = |line| Listing::parse(&words(line));
        assert_eq!(listing("cmd"), Ok(Listing::Show { count: 10 }));
        assert_eq!(listing("cmd 1"), Ok(Listing::Show { count: 1 }));
        assert_eq!(listing("cmd -1"), Ok(Listing::Show { count: usize::MAX }));
        assert_eq!(listing("cmd Reset"), Ok(Listing::Reset));
        assert_eq!(listing("cmd 1 RESET"), Err(Error::WrongArity));
        assert_eq!(ttl(b"1", &LIMITS).map(Ttl::millis), Ok(1));
        assert_eq!(fence(b"7"), Ok(7));
        assert_eq!(patience(b"0"), Ok(Patience::Unlimited));
        assert_eq!(grace(b"3").map(Grace::millis), Ok(3));
        assert_eq!(share(b"0"), Ok(Share::UNLIMITED));
    }

    fn keys<'a>(also: &Also<'a>) -> Vec<&'a str> {
        also.keys.iter().map(|key| str::from_utf8(key).unwrap()).collect()
    }

    #[test]
    fn other_locks_are_named_behind_their_number() {
        let also = |line| Also::parse(&words(line), 2);
        let (two, next) = also("cmd k ALSO 2 a b FOO").unwrap();
        assert_eq!((two.at, keys(&two), next), (4, vec!["a", "b"], 6));
        let (odd, next) = also("cmd k also 3 ALSO also 2").unwrap();
        assert_eq!((keys(&odd), next), (vec!["ALSO", "also", "2"], 7));
        for number in ["0", "129", "-1", "+1", "01", "", "x", "99999999999999999999"] {
            let parsed = Also::parse(&words(&format!("cmd k ALSO {number} a")), 2);
            assert_eq!(parsed.unwrap_err(), Error::KeyNumberOutOfRange, "{number}");
        }
        for (line, error) in [
            ("cmd k ALSO", Error::KeyNumberOutOfRange),
            ("cmd k ALSO 1", Error::FewerKeys),
            ("cmd k ALSO 2 a", Error::FewerKeys),
            ("cmd k ALSO 128 a", Error::FewerKeys),
            ("cmd k ALSO 1 k", Error::KeyTwice),
            ("cmd k ALSO 2 a a", Error::KeyTwice),
            ("cmd k ALSO 3 a b a", Error::KeyTwice),
            ("cmd k ALSO 2 a k", Error::KeyTwice),
        ] {
            assert_eq!(also(line).unwrap_err(), error, "{line}");
        }
        let numbers: Vec<_> = (0..128).map(|key| key.to_string()).collect();
        let line = format!("cmd k ALSO 128 {}", numbers.join(" "));
        let (most, next) = Also::parse(&words(&line), 2).unwrap();
        assert_eq!((most.keys.len(), next), (128, 132));
        assert!(also("cmd k ALSO 1 K").is_ok(), "keys are bytes");
        assert_eq!(keys(&also("cmd k ALSO 1 ").unwrap().0), [""], "the empty key is one");
    }

    #[test]
    fn the_server_finds_the_keys_that_the_page_does() {
        let find = |line, from| Also::find(&words(line), from).map(|also| keys(&also).join(" "));
        assert_eq!(find("cmd k o 5 SHARE 0 also 2 a b BLOCK 1", 4), Some("a b".to_owned()));
        assert_eq!(find("cmd ALSO ALSO 1 a", 3), None, "the owner is called so");
        assert_eq!(find("cmd k ALSO ALSO 1 a", 3), Some("a".to_owned()));
        assert_eq!(find("cmd k o", 3), None);
        assert_eq!(find("cmd k o ALSO", 3), None);
        assert_eq!(find("cmd k o ALSO 2 a", 3), None);
        // The first such word decides, as it does on servers that look for it themselves.
        assert_eq!(find("cmd k o 5 TICKET 9 NOTIFY ALSO ALSO 1 a", 4), None);
    }

    #[test]
    fn what_takes_a_fence_takes_other_locks_behind_it() {
        let behind = |line: &'static str| {
            let words = words(line);
            count_behind(&words, 3)?;
            let (fence, also) = fence_and_also(&words, 3)?;
            Ok::<_, Error>((fence, also.map(|also| keys(&also).join(" "))))
        };
        for (line, fence, also) in [
            ("cmd k o", None, None),
            ("cmd k o 7", Some(7), None),
            ("cmd k o ALSO 1 a", None, Some("a")),
            ("cmd k o 7 aLSO 2 a b", Some(7), Some("a b")),
        ] {
            assert_eq!(behind(line), Ok((fence, also.map(str::to_owned))), "{line}");
        }
        for (line, error) in [
            ("cmd k o 7 8", Error::WrongArity),
            ("cmd k o x y", Error::WrongArity),
            ("cmd k o ALSO 1 a b", Error::WrongArity),
            ("cmd k o 7 ALSO 1 a b", Error::WrongArity),
            ("cmd k o ALSO 1 a ALSO 1 b", Error::WrongArity),
            ("cmd k o x ALSO 0", Error::FenceNotANumber),
            ("cmd k o 7 ALSO 0", Error::KeyNumberOutOfRange),
            ("cmd k o ALSO 7", Error::FewerKeys),
            ("cmd k o ALSO ALSO 1 a", Error::KeyNumberOutOfRange),
        ] {
            assert_eq!(behind(line), Err(error), "{line}");
        }
        let other_word = fence_and_also(&words("cmd k o 7 BESIDE 1 a"), 3);
        assert_eq!(other_word.unwrap_err(), Error::WrongArity);
    }
}
