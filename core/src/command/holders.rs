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
    use crate::lock::{Deadline, Fence, Share};

    #[test]
    fn each_hold_shows_its_grant_and_its_share() {
        assert_eq!(parse(&words("holders")), Err(Error::WrongArity));
        assert_eq!(parse(&words("holders k COUNT 0")), Err(Error::CountNotPositive));
        let (fence, share) = (Some(Fence::FIRST), Share::new(5).unwrap());
        let deadline = Some(Deadline::from_millis(NOW.millis() + 5_000));
        let holds = [Hold { owner: b"a", fence, deadline, share }; 2];
        let shown = Reply::Map(vec![
            ("owner", Reply::Bytes(b"a")),
            ("fence", Reply::number(Fence::FIRST.number())),
            ("ttl", Reply::Integer(5_000)),
            ("deadline", Reply::number(NOW.millis() + 5_000)),
            ("share", Reply::Integer(5)),
        ]);
        assert_eq!(answer(1, holds.into_iter(), NOW), Reply::Array(vec![shown]));
        assert_eq!(answer(9, [].into_iter(), NOW), Reply::Array(Vec::new()));
    }
}
