//! `LOCK.EXTEND key owner ttl [fence] [ALSO numkeys key [key ...]]`: a new deadline for the holder's lease, or for
//! several.

use super::{Access, Also, Arg, Decide, Error, Reply, Spec, args};
use crate::lock::{self, Decision, FenceClock, Limits, Moment, Owner, Proof, Standing, Ttl};

pub static SPEC: Spec = Spec {
    name: c"lock.extend",
    summary: c"Makes the lease of a lock end ttl from now if the owner holds it.",
    complexity: Spec::O_OF_HOLDERS,
    since: c"0.1.0",
    history: &[(c"0.2.0", c"Added the option ALSO.")],
    tips: None,
    arity: -4,
    access: Access::Update,
    args: &[Arg::KEY, Arg::OWNER, Arg::TTL, Arg::FENCE, Arg::ALSO],
};

#[derive(Debug)]
pub struct Request<'a> {
    proof: Proof<'a>,
    ttl: Ttl,
    also: Option<Also<'a>>,
}

impl<'a> Request<'a> {
    pub fn parse(words: &[&'a [u8]], limits: &Limits) -> Result<Self, Error> {
        args::count_behind(words, 4)?;
        let &[_, _, owner, ttl, ..] = words else { return Err(Error::WrongArity) };
        let owner = args::owner(owner)?;
        let ttl = args::ttl(ttl, limits)?;
        let (fence, also) = args::fence_and_also(words, 4)?;
        Ok(Self { proof: Proof { owner, fence }, ttl, also })
    }

    pub const fn also(&self) -> Option<&Also<'a>> {
        self.also.as_ref()
    }
}

impl Decide for Request<'_> {
    fn owner(&self) -> Result<Owner<'_>, Error> {
        Ok(self.proof.owner)
    }

    fn decide(
        &self,
        standings: &[Standing],
        _now: Moment,
        _fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        Ok(lock::extend(standings, &self.proof, self.ttl))
    }
}

pub const fn reply(decision: &Decision<'_>) -> Reply<'static> {
    match decision {
        Decision::Extended { .. } => Reply::DONE,
        _ => Reply::NOT_HOLDER,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::Deadline;
    use crate::lock::{Stored, Write};

    fn answer(line: &str, stored: Stored<'_>) -> Result<Answer<'static>, Error> {
        let request = Request::parse(&words(line), &LIMITS)?;
        let (outcome, write) = decide(&request, stored, 0, &mut FenceClock::new())?;
        let write = match write {
            Write::Keep => Write::Keep,
            Write::Expire(deadline) => Write::Expire(deadline),
            Write::Delete => Write::Delete,
            other => panic!("{other:?}"),
        };
        Ok(Answer { write, reply: reply(&outcome) })
    }

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        let parse = |line: &'static str| Request::parse(&words(line), &LIMITS).unwrap_err();
        assert_eq!(parse("lock.extend k a"), Error::WrongArity);
        assert_eq!(parse("lock.extend k a 1 2 3"), Error::WrongArity);
        assert_eq!(parse("lock.extend k  0 x"), Error::OwnerLength);
        assert_eq!(parse("lock.extend k a 0 x"), Error::TtlNotPositive);
        assert_eq!(parse("lock.extend k a 1 x"), Error::FenceNotANumber);
        assert_eq!(parse("lock.extend k a 0 1 2 ALSO 1 x"), Error::WrongArity);
        assert_eq!(parse("lock.extend k a 0 1 ALSO 0"), Error::TtlNotPositive);
        assert_eq!(parse("lock.extend k a 1 ALSO 1 x y"), Error::WrongArity);
        assert_eq!(parse("lock.extend k a 1 ALSO 1 k"), Error::KeyTwice);
        assert_eq!(answer("lock.extend k a 1", Stored::OtherType), Err(Error::WrongType));
    }

    #[test]
    fn the_lease_ends_ttl_from_now_even_if_that_is_sooner() {
        let held = Held::by("a", 5_000);
        for ttl in [9_000, 1_000] {
            let end = Deadline::from_millis(NOW.millis() + ttl);
            let extended = Answer { write: Write::Expire(end), reply: Reply::Integer(1) };
            let line = format!("lock.extend k a {ttl} {}", held.fence_number);
            assert_eq!(answer(&line, held.stored()).unwrap(), extended);
        }
    }

    #[test]
    fn of_several_locks_all_are_extended_or_none() {
        let request = Request::parse(&words("lock.extend k a 9000 ALSO 1 l"), &LIMITS).unwrap();
        let (held, others) = (Held::by("a", 5_000), Held::by("b", 5_000));
        let mut fences = FenceClock::new();
        let mut reply_where = |second: Stored<'_>| {
            let standings = [held.stored(), second].map(|stored| {
                let holders = stored.holders(request.owner().unwrap(), NOW, &mut fences).unwrap();
                request.stand(&holders, 0)
            });
            reply(&request.decide(&standings, NOW, &mut fences).unwrap())
        };
        assert_eq!(reply_where(held.stored()), Reply::Integer(1));
        assert_eq!(reply_where(others.stored()), Reply::Integer(0));
        assert_eq!(reply_where(Stored::Nothing), Reply::Integer(0));
    }

    #[test]
    fn nobody_else_changes_anything() {
        let held = Held::by("a", 5_000);
        let nothing = Answer::unchanged(Reply::Integer(0));
        for line in ["lock.extend k b 9000", "lock.extend k a 9000 1"] {
            assert_eq!(answer(line, held.stored()).unwrap(), nothing, "{line}");
        }
        assert_eq!(answer("lock.extend k a 9000", Stored::Nothing).unwrap(), nothing);
    }

    #[test]
    fn an_owner_may_be_called_as_the_word_before_other_locks() {
        let parse = |line: &'static str| Request::parse(&words(line), &LIMITS).unwrap();
        assert!(parse("lock.extend ALSO ALSO 1").also().is_none());
        let also = parse("lock.extend ALSO ALSO 1 2 ALSO 1 also");
        assert_eq!(also.proof.fence, Some(2));
        assert_eq!(also.also().unwrap().keys, [b"also"]);
    }
}
