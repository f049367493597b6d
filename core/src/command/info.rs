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
    access: Access::Read,
    args: &[Arg::KEY],
};

pub fn parse(words: &[&[u8]]) -> Result<(), Error> {
    if let [_, _] = words { Ok(()) } else { Err(Error::WrongArity) }
}

pub fn answer<'v>(
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

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::{Deadline, Fence, Share};

    #[test]
    fn a_held_lock_shows_its_oldest_grant_and_a_free_one_is_nil() {
        assert_eq!(parse(&words("info k")), Ok(()));
        for line in ["info", "info k x"] {
            assert_eq!(parse(&words(line)), Err(Error::WrongArity), "{line}");
        }
        let (fence, share) = (Some(Fence::FIRST), Share::UNLIMITED);
        let deadline = Deadline::from_millis(NOW.millis() + 5_000);
        let grant = Hold { owner: b"a", fence, deadline: Some(deadline), share };
        let other = Hold { owner: b"b", share: Share::new(2).unwrap(), ..grant };
        let foreign = Hold { owner: b"c", fence: None, deadline: None, share: Share::EXCLUSIVE };
        let shown = |owner, fence, ttl, deadline, holders, share| {
            Reply::Map(vec![
                ("owner", Reply::Bytes(owner)),
                ("fence", Reply::number(fence)),
                ("ttl", Reply::Integer(ttl)),
                ("deadline", deadline),
                ("waiters", Reply::Integer(3)),
                ("holders", Reply::Integer(holders)),
                ("share", Reply::Integer(share)),
            ])
        };
        let deadline = Reply::number(deadline.millis());
        for (holds, expected) in [
            (&[grant, other][..], shown(b"a", Fence::FIRST.number(), 5_000, deadline, 2, 2)),
            (&[foreign], shown(b"c", 0, -1, Reply::Integer(-1), 1, 1)),
            (&[], Reply::Nil),
        ] {
            assert_eq!(answer(holds.iter().copied(), 3, NOW), expected);
        }
    }
}
