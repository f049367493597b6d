//! `LOCK.HOLDERS key [COUNT n]`: the holders of the lock, oldest first. The default count is that of `LOCK.WAITERS`.

use super::{Access, Arg, Error, Reply, Spec, args};
use crate::lock::{Hold, Moment};

pub static SPEC: Spec = Spec {
    name: c"lock.holders",
    summary: c"Lists the holders of a lock, oldest first.",
    complexity: c"O(N) with N holders of the lock, of whom at most 100 are returned without COUNT",
    since: c"0.2.0",
    history: &[],
    tips: Some(Spec::NONDETERMINISTIC),
    arity: -2,
    access: Access::List,
    args: &[Arg::KEY, Arg::COUNT],
};

#[derive(Debug)]
pub struct Request {
    count: usize,
}

impl Request {
    pub fn parse(words: &[&[u8]]) -> Result<Self, Error> {
        Ok(Self { count: args::count_of_rows(words)? })
    }

    pub fn answer<'v>(&self, holds: impl Iterator<Item = Hold<'v>>, now: Moment) -> Reply<'v> {
        let row = |hold: Hold<'v>| {
            let (ttl, deadline) = Reply::lease(hold.deadline, now);
            Reply::Map(vec![
                ("owner", Reply::Bytes(hold.owner)),
                ("fence", Reply::number(hold.fence_number())),
                ("ttl", ttl),
                ("deadline", deadline),
                ("share", Reply::share(hold.share)),
            ])
        };
        Reply::Array(holds.take(self.count).map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::{FenceClock, Stored};

    fn answer<'v>(line: &str, stored: Stored<'v>) -> Result<Reply<'v>, Error> {
        let request = Request::parse(&words(line))?;
        Ok(request.answer(stored.holds(NOW, &mut FenceClock::new())?, NOW))
    }

    #[test]
    fn it_takes_a_key_of_string_type_and_a_positive_count_or_minus_1() {
        assert_eq!(answer("lock.holders", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.holders k", Stored::OtherType), Err(Error::WrongType));
        for line in ["COUNT", "COUNT 0", "COUNT -2", "COUNT x", "FOO 1", "COUNT 1 2"] {
            assert_refused(
                answer(&format!("lock.holders k {line}"), Stored::Nothing),
                "ERR unknown option, expected COUNT and a positive integer or -1",
            );
        }
    }

    #[test]
    fn nobody_holds_a_free_lock() {
        assert_eq!(answer("lock.holders k", Stored::Nothing), Ok(Reply::Array(Vec::new())));
    }

    #[test]
    fn each_hold_shows_its_grant_and_its_share() {
        for share in [1, 5] {
            let held = Held::sharing("a", 5_000, share);
            let expected = Reply::Map(vec![
                ("owner", Reply::Bytes(b"a")),
                ("fence", Reply::number(held.fence_number)),
                ("ttl", Reply::Integer(5_000)),
                ("deadline", Reply::number(NOW.millis() + 5_000)),
                ("share", Reply::number(share.into())),
            ]);
            assert_eq!(answer("lock.holders k", held.stored()), Ok(Reply::Array(vec![expected])));
        }
    }
}
