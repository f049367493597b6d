//! `LOCK.ACQUIRE key owner ttl`: the lock, if it is free.

use super::{Access, Answer, Arg, Change, Error, Limits, Reply, Spec, Stored, args};
use crate::lock::{self, Acquired, FenceClock, Moment, Owner, Ttl};

pub(crate) static SPEC: Spec = Spec {
    name: c"lock.acquire",
    summary: c"Acquires a lock if it is free, and returns the fence of the grant.",
    complexity: c"O(1)",
    since: c"0.1.0",
    arity: -4,
    access: Access::Insert,
    args: &[Arg::KEY, Arg::OWNER, Arg::TTL],
};

/// The owner that asks for an owner of its own to be made up.
const MINT: &[u8] = b"*";

/// The length of a UUID as text, hyphens included.
pub(crate) type MintedOwner = [u8; 36];

#[derive(Debug)]
pub(crate) struct Request<'a> {
    owner: Asked<'a>,
    ttl: Ttl,
}

#[derive(Debug)]
enum Asked<'a> {
    Named(Owner<'a>),
    Minted(MintedOwner),
}

impl<'a> Request<'a> {
    pub(crate) fn parse(
        words: &[&'a [u8]],
        limits: &Limits,
        mint: impl FnOnce() -> MintedOwner,
    ) -> Result<Self, Error> {
        let &[_, _, owner, ttl, ref options @ ..] = words else { return Err(Error::WrongArity) };
        let owner =
            if owner == MINT { Asked::Minted(mint()) } else { Asked::Named(args::owner(owner)?) };
        let ttl = args::ttl(ttl, limits)?;
        if !options.is_empty() {
            return Err(Error::UnknownOption);
        }
        Ok(Self { owner, ttl })
    }

    pub(crate) fn answer(
        &self,
        stored: Stored<'_>,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Answer<'_>, Error> {
        let current = stored.hold(now, fences)?;
        let owner = match &self.owner {
            Asked::Named(owner) => *owner,
            Asked::Minted(bytes) => args::owner(bytes)?,
        };
        Ok(match lock::acquire(current.as_ref(), owner, self.ttl, now, fences) {
            Acquired::Granted(grant) => {
                Answer { change: Change::Grant(grant), reply: self.reply(grant.fence.number()) }
            }
            Acquired::Again { fence_number, longer } => Answer {
                change: longer.map_or(Change::Nothing, Change::Lease),
                reply: self.reply(fence_number),
            },
            Acquired::Busy => Answer::unchanged(Reply::Nil),
            Acquired::NoFenceLeft => return Err(Error::NoFenceLeft),
        })
    }

    /// The fence; with the owner in front of it when the client does not know that yet.
    fn reply(&self, fence_number: u64) -> Reply<'_> {
        let fence = Reply::number(fence_number);
        match &self.owner {
            Asked::Named(_) => fence,
            Asked::Minted(owner) => Reply::Array(vec![Reply::Bytes(owner), fence]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::Deadline;

    const UUID: MintedOwner = *b"00000000-0000-4000-8000-000000000001";

    fn parse(line: &str) -> Result<Request<'_>, Error> {
        Request::parse(&words(line), &LIMITS, || UUID)
    }

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        let parse = |line| parse(line);
        assert_eq!(parse("lock.acquire k a").unwrap_err(), Error::WrongArity);
        assert_eq!(parse("lock.acquire k  x FOO").unwrap_err(), Error::OwnerLength);
        assert_eq!(parse("lock.acquire k a x FOO").unwrap_err(), Error::TtlNotPositive);
        assert_refused(
            parse("lock.acquire k a 5 FOO"),
            "ERR unknown option, expected nothing after ttl",
        );
    }

    #[test]
    fn a_free_lock_is_granted_and_the_fence_is_the_reply() {
        let request = parse("lock.acquire k a 5000").unwrap();
        let answer = request.answer(Stored::Nothing, NOW, &mut FenceClock::new()).unwrap();
        let Change::Grant(grant) = answer.change else { panic!("no grant: {answer:?}") };
        assert_eq!(grant.owner.as_bytes(), b"a");
        assert_eq!(grant.deadline.millis(), NOW.millis() + 5_000);
        assert_eq!(answer.reply, Reply::number(grant.fence.number()));
    }

    #[test]
    fn a_minted_owner_comes_back_with_the_fence() {
        let request = parse("lock.acquire k * 5000").unwrap();
        let answer = request.answer(Stored::Nothing, NOW, &mut FenceClock::new()).unwrap();
        let Change::Grant(grant) = answer.change else { panic!("no grant: {answer:?}") };
        assert_eq!(grant.owner.as_bytes(), UUID);
        let fence = Reply::number(grant.fence.number());
        assert_eq!(answer.reply, Reply::Array(vec![Reply::Bytes(&UUID), fence]));
    }

    #[test]
    fn another_owners_lock_is_nil_for_a_named_and_a_minted_owner() {
        let held = Held::by("a", 5_000);
        for line in ["lock.acquire k b 5000", "lock.acquire k * 5000"] {
            let request = parse(line).unwrap();
            let answer = request.answer(held.stored(), NOW, &mut FenceClock::new()).unwrap();
            assert_eq!(answer, Answer::unchanged(Reply::Nil));
        }
    }

    #[test]
    fn a_retry_gets_the_same_fence_and_the_longer_lease() {
        let held = Held::by("a", 5_000);
        let reply = || Reply::number(held.fence_number);
        let shorter = parse("lock.acquire k a 4000").unwrap();
        let answer = shorter.answer(held.stored(), NOW, &mut FenceClock::new()).unwrap();
        assert_eq!(answer, Answer::unchanged(reply()));
        let longer = parse("lock.acquire k a 6000").unwrap();
        let answer = longer.answer(held.stored(), NOW, &mut FenceClock::new()).unwrap();
        let end = Deadline::from_millis(NOW.millis() + 6_000);
        assert_eq!(answer, Answer { change: Change::Lease(end), reply: reply() });
    }

    #[test]
    fn the_holder_of_a_foreign_lock_gets_fence_0() {
        let request = parse("lock.acquire k 12:ab 5000").unwrap();
        let answer = request.answer(foreign("12:ab"), NOW, &mut FenceClock::new()).unwrap();
        assert_eq!(answer, Answer::unchanged(Reply::Integer(0)));
    }

    #[test]
    fn another_type_of_key_is_refused() {
        let request = parse("lock.acquire k a 5000").unwrap();
        let outcome = request.answer(Stored::OtherType, NOW, &mut FenceClock::new());
        assert_eq!(outcome, Err(Error::WrongType));
    }
}
