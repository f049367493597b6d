//! `LOCK.RAISE key owner fence`: a larger fence for the holder's grant.

use super::{Access, Arg, Decide, Error, Reply, Spec, args};
use crate::lock::{self, Decision, FenceClock, Moment, Owner, Raised, Standing};

pub static SPEC: Spec = Spec {
    name: c"lock.raise",
    summary:
        c"Raises the fence of a grant if the owner holds the lock, and returns the fence in force.",
    complexity: Spec::O_OF_HOLDERS,
    since: c"0.1.0",
    history: &[],
    tips: None,
    access: Access::Update,
    args: &[Arg::KEY, Arg::OWNER, Arg::NEW_FENCE],
};

#[derive(Debug)]
pub struct Request<'a> {
    owner: Owner<'a>,
    fence_number: u64,
}

impl<'a> Request<'a> {
    pub fn parse(words: &[&'a [u8]]) -> Result<Self, Error> {
        let [_, _, owner, fence] = *words else { return Err(Error::WrongArity) };
        Ok(Self { owner: args::owner(owner)?, fence_number: args::fence(fence)? })
    }
}

impl Decide for Request<'_> {
    fn owner(&self) -> Result<Owner<'_>, Error> {
        Ok(self.owner)
    }

    fn decide(
        &self,
        standings: &[Standing],
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        let standing = standings.first().ok_or(Error::WrongArity)?;
        match lock::raise(standing, self.owner, self.fence_number, now, fences) {
            Raised::TooFarAhead => Err(Error::FenceTooFarAhead),
            raised => Ok(Decision::Raised(raised)),
        }
    }
}

pub fn reply(decision: &Decision<'_>) -> Reply<'static> {
    match *decision {
        Decision::Raised(Raised::To { fence, .. }) => Reply::number(fence.number()),
        Decision::Raised(Raised::Already { fence_number }) => Reply::number(fence_number),
        _ => Reply::Nil,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::words;
    use super::*;

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        for (line, error) in [
            ("raise k a", Error::WrongArity),
            ("raise k a 1 2", Error::WrongArity),
            ("raise k  x", Error::OwnerLength),
            ("raise k a x", Error::FenceNotANumber),
        ] {
            assert_eq!(Request::parse(&words(line)).unwrap_err(), error, "{line}");
        }
    }
}
