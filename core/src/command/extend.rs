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

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        for (line, error) in [
            ("extend k a", Error::WrongArity),
            ("extend k a 1 2 3", Error::WrongArity),
            ("extend k  0 x", Error::OwnerLength),
            ("extend k a 0 x", Error::TtlNotPositive),
            ("extend k a 1 x", Error::FenceNotANumber),
            ("extend k a 0 1 2 ALSO 1 x", Error::WrongArity),
            ("extend k a 0 1 ALSO 0", Error::TtlNotPositive),
            ("extend k a 1 ALSO 1 x y", Error::WrongArity),
            ("extend k a 1 ALSO 1 k", Error::KeyTwice),
        ] {
            assert_eq!(Request::parse(&words(line), &LIMITS).unwrap_err(), error, "{line}");
        }
        let request = Request::parse(&words("extend ALSO ALSO 1 2 ALSO 1 also"), &LIMITS).unwrap();
        assert_eq!(request.proof.fence, Some(2));
        assert_eq!(request.also().unwrap().keys, [b"also"]);
    }
}
