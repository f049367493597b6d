//! `LOCK.RELEASE key owner [fence] [ALSO numkeys key [key ...]]`: the holder gives back one lock or several.

use super::{Access, Also, Arg, Decide, Error, Reply, Spec, args};
use crate::lock::{Decision, FenceClock, Moment, Owner, Proof, Standing};

pub static SPEC: Spec = Spec {
    name: c"lock.release",
    summary: c"Releases a lock if the owner holds it, by this fence if one is given.",
    complexity: Spec::O_OF_HOLDERS,
    since: c"0.1.0",
    history: &[(
        c"0.2.0",
        c"Added the option ALSO. Without a fence it gives up the ticket of its owner, too.",
    )],
    tips: None,
    arity: -3,
    access: Access::Delete,
    args: &[Arg::KEY, Arg::OWNER, Arg::FENCE, Arg::ALSO],
};

#[derive(Debug)]
pub struct Request<'a> {
    proof: Proof<'a>,
    also: Option<Also<'a>>,
}

impl<'a> Request<'a> {
    pub fn parse(words: &[&'a [u8]]) -> Result<Self, Error> {
        args::count_behind(words, 3)?;
        let owner = args::owner(words.get(2).ok_or(Error::WrongArity)?)?;
        let (fence, also) = args::fence_and_also(words, 3)?;
        Ok(Self { proof: Proof { owner, fence }, also })
    }

    pub const fn also(&self) -> Option<&Also<'a>> {
        self.also.as_ref()
    }
}

impl Decide for Request<'_> {
    /// A release with a fence belongs to an earlier grant, and may be late.
    fn gives_up_ticket(&self) -> bool {
        self.proof.fence.is_none()
    }

    fn owner(&self) -> Result<Owner<'_>, Error> {
        Ok(self.proof.owner)
    }

    fn decide(
        &self,
        _standings: &[Standing],
        _now: Moment,
        _fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        Ok(Decision::Released(self.proof))
    }
}

/// How many locks were released.
pub fn reply(released: usize) -> Reply<'static> {
    Reply::count(released)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::{Stored, Write};

    fn answer(line: &str, stored: Stored<'_>) -> Result<Answer<'static>, Error> {
        let request = Request::parse(&words(line))?;
        let (_decision, write) = decide(&request, stored, 0, &mut FenceClock::new())?;
        let write = match write {
            Write::Keep => Write::Keep,
            Write::Expire(deadline) => Write::Expire(deadline),
            Write::Delete => Write::Delete,
            other => panic!("{other:?}"),
        };
        let released = usize::from(write == Write::Delete);
        Ok(Answer { write, reply: reply(released) })
    }

    #[test]
    fn it_takes_an_owner_at_most_a_fence_and_a_key_of_string_type() {
        assert_eq!(answer("lock.release k a 1 2", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.release k a x", Stored::Nothing), Err(Error::FenceNotANumber));
        assert_eq!(answer("lock.release k a", Stored::OtherType), Err(Error::WrongType));
    }

    #[test]
    fn the_holder_frees_the_lock() {
        let held = Held::by("a", 5_000);
        let freed = Answer { write: Write::Delete, reply: Reply::Integer(1) };
        assert_eq!(answer("lock.release k a", held.stored()).unwrap(), freed);
        let line = format!("lock.release k a {}", held.fence_number);
        assert_eq!(answer(&line, held.stored()).unwrap(), freed);
        assert_eq!(answer("lock.release k 12:ab 0", foreign("12:ab")).unwrap(), freed);
    }

    #[test]
    fn nobody_else_changes_anything() {
        let held = Held::by("a", 5_000);
        let nothing = Answer::unchanged(Reply::Integer(0));
        let other_fence = format!("lock.release k a {}", held.fence_number + 1);
        for line in ["lock.release k b", "lock.release k a 0", &other_fence] {
            assert_eq!(answer(line, held.stored()).unwrap(), nothing, "{line}");
        }
        assert_eq!(answer("lock.release k a", Stored::Nothing).unwrap(), nothing);
    }

    #[test]
    fn an_owner_may_be_called_as_the_word_before_other_locks() {
        let parse = |line: &'static str| Request::parse(&words(line));
        assert!(parse("lock.release ALSO ALSO").unwrap().also().is_none());
        let also = parse("lock.release ALSO ALSO ALSO 1 also").unwrap();
        assert_eq!(also.proof.fence, None);
        assert_eq!(also.also().unwrap().keys, [b"also"]);
        assert_eq!(parse("lock.release k ALSO 1 2").unwrap_err(), Error::WrongArity);
        assert_eq!(parse("lock.release k ALSO 7 ALSO 1 x").unwrap().proof.fence, Some(7));
    }

    #[test]
    fn only_a_release_without_a_fence_gives_up_a_ticket() {
        for (line, gives_up) in
            [("lock.release k a ALSO 1 x", true), ("lock.release k a 7 ALSO 1 x", false)]
        {
            assert_eq!(Request::parse(&words(line)).unwrap().gives_up_ticket(), gives_up);
        }
    }
}
