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
    use crate::lock::{Deadline, Stored, Write};

    #[test]
    fn the_lease_ends_ttl_from_now_and_mistakes_are_found_from_left_to_right() {
        let held = Held::by("a", 5_000);
        let until = |ttl| {
            let write = Write::Expire(Deadline::from_millis(NOW.millis() + ttl));
            Ok(Answer { write, reply: Reply::Integer(1) })
        };
        let kept = || Ok(Answer::unchanged(Reply::Integer(0)));
        let by_fence = format!("extend k a 1000 {}", held.fence_number);
        for (line, stored, expected) in [
            ("extend k a 9000", held.stored(), until(9_000)),
            (&*by_fence, held.stored(), until(1_000)),
            ("extend k b 9000", held.stored(), kept()),
            ("extend k a 9000 1", held.stored(), kept()),
            ("extend k a 9000", Stored::Nothing, kept()),
            ("extend k a 1", Stored::OtherType, Err(Error::WrongType)),
            ("extend k a", Stored::Nothing, Err(Error::WrongArity)),
            ("extend k a 1 2 3", Stored::Nothing, Err(Error::WrongArity)),
            ("extend k  0 x", Stored::Nothing, Err(Error::OwnerLength)),
            ("extend k a 0 x", Stored::Nothing, Err(Error::TtlNotPositive)),
            ("extend k a 1 x", Stored::Nothing, Err(Error::FenceNotANumber)),
            ("extend k a 0 1 2 ALSO 1 x", Stored::Nothing, Err(Error::WrongArity)),
            ("extend k a 0 1 ALSO 0", Stored::Nothing, Err(Error::TtlNotPositive)),
            ("extend k a 1 ALSO 1 x y", Stored::Nothing, Err(Error::WrongArity)),
            ("extend k a 1 ALSO 1 k", Stored::Nothing, Err(Error::KeyTwice)),
        ] {
            let request = Request::parse(&words(line), &LIMITS);
            let answer =
                Answer::to(request, stored, &mut FenceClock::new(), |decision, _| reply(decision));
            assert_eq!(answer, expected, "{line}");
        }
        let request = Request::parse(&words("extend ALSO ALSO 1 2 ALSO 1 also"), &LIMITS).unwrap();
        assert_eq!(request.proof.fence, Some(2));
        assert_eq!(request.also().unwrap().keys, [b"also"]);
    }

    #[test]
    fn of_several_locks_all_are_extended_or_none() {
        let request = Request::parse(&words("extend k a 9000 ALSO 1 l"), &LIMITS).unwrap();
        let (held, others) = (Held::by("a", 5_000), Held::by("b", 5_000));
        let mut fences = FenceClock::new();
        for (second, told) in [(held.stored(), 1), (others.stored(), 0), (Stored::Nothing, 0)] {
            let standings = [held.stored(), second].map(|stored| {
                let holders = stored.holders(request.owner().unwrap(), NOW, &mut fences).unwrap();
                request.stand(&holders, 0)
            });
            let decision = request.decide(&standings, NOW, &mut fences).unwrap();
            assert_eq!(reply(&decision), Reply::Integer(told));
        }
    }
}
