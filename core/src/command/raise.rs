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
    arity: 4,
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
    use crate::lock::{Deadline, Fence, Stored, Write};

    fn answer_of<'l>(
        line: &'l str,
        stored: Stored<'_>,
        fences: &mut FenceClock,
    ) -> Result<Answer<'l>, Error> {
        let request = Request::parse(&words(line))?;
        let (outcome, write) = decide(&request, stored, 0, fences)?;
        let write = match write {
            Write::Keep => Write::Keep,
            Write::Hold { fence, deadline, share, .. } => {
                Write::Hold { owner: request.owner, fence, deadline, share }
            }
            other => panic!("{other:?}"),
        };
        Ok(Answer { write, reply: reply(&outcome) })
    }

    fn answer<'l>(line: &'l str, stored: Stored<'_>) -> Result<Answer<'l>, Error> {
        answer_of(line, stored, &mut FenceClock::new())
    }

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        assert_eq!(answer("lock.raise k a", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.raise k a 1 2", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.raise k  x", Stored::Nothing), Err(Error::OwnerLength));
        assert_eq!(answer("lock.raise k a x", Stored::OtherType), Err(Error::FenceNotANumber));
        assert_eq!(answer("lock.raise k a 1", Stored::OtherType), Err(Error::WrongType));
    }

    #[test]
    fn a_larger_fence_takes_the_place_of_the_grants_and_the_lease_stays() {
        let held = Held::by("a", 5_000);
        let fence = Fence::new(held.fence_number + 7).unwrap();
        let mut fences = FenceClock::new();
        let line = format!("lock.raise k a {}", fence.number());
        let raised = answer_of(&line, held.stored(), &mut fences).unwrap();
        assert_eq!(raised.reply, Reply::number(fence.number()));
        let Write::Hold { owner, fence: now_in_force, deadline, .. } = raised.write else {
            panic!("{raised:?}")
        };
        assert_eq!((owner.as_bytes(), now_in_force), (&b"a"[..], fence));
        assert_eq!(deadline, Some(Deadline::from_millis(NOW.millis() + 5_000)));
        assert!(fences.mint(NOW).fence().unwrap() > fence, "later grants are above it");
    }

    #[test]
    fn a_fence_that_is_no_larger_changes_nothing_and_the_one_in_force_is_told() {
        let held = Held::by("a", 5_000);
        let in_force = Answer::unchanged(Reply::number(held.fence_number));
        for number in [0, 1, held.fence_number - 1, held.fence_number] {
            let line = format!("lock.raise k a {number}");
            assert_eq!(answer(&line, held.stored()).unwrap(), in_force, "{number}");
        }
        let none = Answer::unchanged(Reply::Integer(0));
        let line = format!("lock.raise k 12:ab {}", held.fence_number);
        assert_eq!(answer(&line, foreign("12:ab")).unwrap(), none);
    }

    #[test]
    fn nobody_else_changes_anything() {
        let held = Held::by("a", 5_000);
        let nothing = Answer::unchanged(Reply::Nil);
        let line = format!("lock.raise k b {}", held.fence_number + 1);
        for stored in [held.stored(), Stored::Nothing] {
            let mut fences = FenceClock::new();
            let before = fences.mint(NOW).fence();
            assert_eq!(answer_of(&line, stored, &mut fences).unwrap(), nothing);
            assert!(before < fences.mint(NOW).fence());
        }
    }

    #[test]
    fn a_fence_of_more_than_a_day_ahead_is_refused_whoever_asks() {
        let held = Held::by("a", 5_000);
        let edge = NOW.micros() + FenceClock::HORIZON_MILLIS * 1_000;
        let line = |owner: &str, number: u64| format!("lock.raise k {owner} {number}");
        for (owner, stored) in [("a", held.stored()), ("b", held.stored()), ("a", Stored::Nothing)]
        {
            let line = line(owner, edge + 1);
            assert_eq!(answer(&line, stored), Err(Error::FenceTooFarAhead));
        }
        assert_eq!(answer(&line("a", edge), held.stored()).unwrap().reply, Reply::number(edge));
    }
}
