//! `LOCK.HOLDERS key [COUNT n]`: the holders of the lock, oldest first. The default count is that of `LOCK.WAITERS`.

pub use super::args::count_of_rows as parse;
use super::{Access, Arg, Reply, Spec};
use crate::lock::{Hold, Moment};

pub static SPEC: Spec = Spec {
    name: c"lock.holders",
    summary: c"Lists the holders of a lock, oldest first.",
    complexity: c"O(N) with N holders of the lock, of whom at most 100 are returned without COUNT",
    since: c"0.2.0",
    history: &[],
    tips: Some(Spec::NONDETERMINISTIC),
    access: Access::List,
    args: &[Arg::KEY, Arg::COUNT],
};

/// The first `count` holds.
pub fn answer<'v>(count: usize, holds: impl Iterator<Item = Hold<'v>>, now: Moment) -> Reply<'v> {
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
    Reply::Array(holds.take(count).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Error;
    use super::super::testing::*;
    use super::*;
    use crate::lock::{FenceClock, Stored};

    #[test]
    fn each_hold_shows_its_grant_and_its_share() {
        let ask = |line, stored: Stored<'static>| -> Result<Reply<'static>, Error> {
            let count = parse(&words(line))?;
            Ok(answer(count, stored.holds(NOW, &mut FenceClock::new())?, NOW))
        };
        for share in [1, 5] {
            let held: &Held = Box::leak(Box::new(Held::sharing("a", 5_000, share)));
            let expected = Reply::Map(vec![
                ("owner", Reply::Bytes(b"a")),
                ("fence", Reply::number(held.fence_number)),
                ("ttl", Reply::Integer(5_000)),
                ("deadline", Reply::number(NOW.millis() + 5_000)),
                ("share", Reply::number(share.into())),
            ]);
            assert_eq!(ask("holders k", held.stored()), Ok(Reply::Array(vec![expected])));
        }
        assert_eq!(ask("holders k", Stored::Nothing), Ok(Reply::Array(Vec::new())));
        assert_eq!(ask("holders", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(ask("holders k", Stored::OtherType), Err(Error::WrongType));
        assert_eq!(ask("holders k COUNT 0", Stored::Nothing), Err(Error::CountNotPositive));
    }
}
