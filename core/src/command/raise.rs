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
    use super::super::testing::*;
    use super::*;
    use crate::lock::{Deadline, Fence, Share, Stored, Write};

    fn answer(
        line: &str,
        stored: Stored<'_>,
        fences: &mut FenceClock,
    ) -> Result<Answer<'static>, Error> {
        let request = Request::parse(&words(line));
        Answer::to(request, stored, fences, |decision, _| reply(decision))
    }

    #[test]
    fn a_larger_fence_takes_the_place_of_the_grants_and_the_lease_stays() {
        let held = Held::by("a", 5_000);
        let fence = Fence::new(held.fence_number + 7).unwrap();
        let mut fences = FenceClock::new();
        let line = format!("raise k a {}", fence.number());
        let deadline = Some(Deadline::from_millis(NOW.millis() + 5_000));
        let (owner, share) = (Owner::new(b"a").unwrap(), Share::EXCLUSIVE);
        let write = Write::Hold { owner, fence, deadline, share };
        let raised = Answer { write, reply: Reply::number(fence.number()) };
        assert_eq!(answer(&line, held.stored(), &mut fences), Ok(raised));
        assert!(fences.mint(NOW).fence().unwrap() > fence, "later grants are above it");
    }

    #[test]
    fn nothing_else_changes_anything() {
        let held = Held::by("a", 5_000);
        let in_force = || Ok(Answer::unchanged(Reply::number(held.fence_number)));
        let nil = || Ok(Answer::unchanged(Reply::Nil));
        let [smaller, same, larger] =
            [0, 1, 2].map(|more| format!("raise k a {}", held.fence_number - 1 + more));
        let of_another = larger.replace("k a", "k b");
        let of_foreign = larger.replace("k a", "k 12:ab");
        let edge = NOW.micros() + FenceClock::HORIZON_MILLIS * 1_000;
        let too_far = format!("raise k a {}", edge + 1);
        let too_far_of_another = too_far.replace("k a", "k b");
        for (line, stored, expected) in [
            ("raise k a 0", held.stored(), in_force()),
            (&*smaller, held.stored(), in_force()),
            (&*same, held.stored(), in_force()),
            (&*of_foreign, foreign("12:ab"), Ok(Answer::unchanged(Reply::Integer(0)))),
            (&*of_another, held.stored(), nil()),
            (&*larger, Stored::Nothing, nil()),
            // More than a day ahead is refused, whoever asks.
            (&*too_far, held.stored(), Err(Error::FenceTooFarAhead)),
            (&*too_far, Stored::Nothing, Err(Error::FenceTooFarAhead)),
            (&*too_far_of_another, held.stored(), Err(Error::FenceTooFarAhead)),
            ("raise k a", Stored::Nothing, Err(Error::WrongArity)),
            ("raise k a 1 2", Stored::Nothing, Err(Error::WrongArity)),
            ("raise k  x", Stored::Nothing, Err(Error::OwnerLength)),
            ("raise k a x", Stored::OtherType, Err(Error::FenceNotANumber)),
            ("raise k a 1", Stored::OtherType, Err(Error::WrongType)),
        ] {
            assert_eq!(answer(line, stored, &mut FenceClock::new()), expected, "{line}");
        }
        let at_the_edge =
            answer(&format!("raise k a {edge}"), held.stored(), &mut FenceClock::new());
        assert_eq!(at_the_edge.unwrap().reply, Reply::number(edge));
    }
}
