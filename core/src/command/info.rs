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
    use crate::lock::{FenceClock, Stored};

    #[test]
    fn a_held_lock_shows_its_grant_and_a_free_one_is_nil() {
        let held = Held::by("a", 5_000);
        let shown = |owner: &'static str, fence, ttl, deadline| {
            Ok(Reply::Map(vec![
                ("owner", Reply::Bytes(owner.as_bytes())),
                ("fence", Reply::number(fence)),
                ("ttl", Reply::Integer(ttl)),
                ("deadline", deadline),
                ("waiters", Reply::Integer(3)),
                ("holders", Reply::Integer(1)),
                ("share", Reply::Integer(1)),
            ]))
        };
        let deadline = Reply::number(NOW.millis() + 5_000);
        for (line, stored, expected) in [
            ("info k", held.stored(), shown("a", held.fence_number, 5_000, deadline)),
            ("info k", foreign("old-client"), shown("old-client", 0, -1, Reply::Integer(-1))),
            ("info k", Stored::Nothing, Ok(Reply::Nil)),
            ("info k", Stored::OtherType, Err(Error::WrongType)),
            ("info", Stored::Nothing, Err(Error::WrongArity)),
            ("info k x", Stored::Nothing, Err(Error::WrongArity)),
        ] {
            let holds =
                parse(&words(line)).and_then(|()| Ok(stored.holds(NOW, &mut FenceClock::new())?));
            assert_eq!(holds.map(|holds| answer(holds, 3, NOW)), expected, "{line}");
        }
    }
}
