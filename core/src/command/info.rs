//! `LOCK.INFO key`: the oldest holder of the lock, its grant and lease, and the numbers of holders and waiters.

use super::{Access, Arg, Error, Reply, Spec};
use crate::lock::{Hold, Moment};

pub static SPEC: Spec = Spec {
    name: c"lock.info",
    summary: c"Returns the holder of a lock, its fence and what is left of its lease.",
    complexity: Spec::O_OF_HOLDERS,
    since: c"0.1.0",
    history: &[(c"0.2.0", c"Added the fields holders and share.")],
    tips: Some(Spec::NONDETERMINISTIC),
    arity: 2,
    access: Access::Read,
    args: &[Arg::KEY],
};

#[derive(Debug)]
pub struct Request;

impl Request {
    pub fn parse(words: &[&[u8]]) -> Result<Self, Error> {
        if let [_, _] = words { Ok(Self) } else { Err(Error::WrongArity) }
    }

    pub fn answer<'v>(
        &self,
        mut holds: impl Iterator<Item = Hold<'v>>,
        waiters: usize,
        now: Moment,
    ) -> Reply<'v> {
        let Some(hold) = holds.next() else { return Reply::Nil };
        let (holders, share) = holds.fold((1_usize, hold.share), |(holders, share), other| {
            (holders.saturating_add(1), share.min(other.share))
        });
        let (ttl, deadline) = Reply::lease(hold.deadline, now);
        Reply::Map(vec![
            ("owner", Reply::Bytes(hold.owner)),
            ("fence", Reply::number(hold.fence_number())),
            ("ttl", ttl),
            ("deadline", deadline),
            ("waiters", Reply::count(waiters)),
            ("holders", Reply::count(holders)),
            ("share", Reply::share(share)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::{FenceClock, Stored};

    fn answer<'v>(line: &str, stored: Stored<'v>) -> Result<Reply<'v>, Error> {
        let request = Request::parse(&words(line))?;
        Ok(request.answer(stored.holds(NOW, &mut FenceClock::new())?, 3, NOW))
    }

    #[test]
    fn it_takes_a_key_of_string_type() {
        assert_eq!(answer("lock.info", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.info k x", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.info k", Stored::OtherType), Err(Error::WrongType));
    }

    #[test]
    fn a_free_lock_is_nil() {
        assert_eq!(answer("lock.info k", Stored::Nothing).unwrap(), Reply::Nil);
    }

    #[test]
    fn a_held_lock_shows_its_grant() {
        let held = Held::by("a", 5_000);
        let Ok(Reply::Map(fields)) = answer("lock.info k", held.stored()) else {
            panic!("not a map")
        };
        let expected = vec![
            ("owner", Reply::Bytes(b"a")),
            ("fence", Reply::number(held.fence_number)),
            ("ttl", Reply::Integer(5_000)),
            ("deadline", Reply::number(NOW.millis() + 5_000)),
            ("waiters", Reply::Integer(3)),
            ("holders", Reply::Integer(1)),
            ("share", Reply::Integer(1)),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_foreign_lock_without_expiry_shows_0_and_minus_1() {
        let Ok(Reply::Map(fields)) = answer("lock.info k", foreign("old-client")) else {
            panic!("not a map")
        };
        assert_eq!(fields.first(), Some(&("owner", Reply::Bytes(b"old-client"))));
        assert_eq!(fields.get(1), Some(&("fence", Reply::Integer(0))));
        assert_eq!(fields.get(2), Some(&("ttl", Reply::Integer(-1))));
        assert_eq!(fields.get(3), Some(&("deadline", Reply::Integer(-1))));
    }
}
