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

pub fn reply(released: usize) -> Reply<'static> {
    Reply::count(released)
}

#[cfg(test)]
mod tests {
    use super::super::testing::words;
    use super::*;

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        for (line, error) in [
            ("release k a 1 2", Error::WrongArity),
            ("release k ALSO 1 2", Error::WrongArity),
            ("release k a x", Error::FenceNotANumber),
        ] {
            assert_eq!(Request::parse(&words(line)).unwrap_err(), error, "{line}");
        }
    }

    #[test]
    fn only_a_release_without_a_fence_gives_up_a_ticket() {
        for (line, fence, also) in [
            ("release k a ALSO 2 x y", None, "x y"),
            ("release k ALSO 7 ALSO 1 x", Some(7), "x"),
            ("release ALSO ALSO ALSO 1 also", None, "also"),
            ("release ALSO ALSO", None, ""),
        ] {
            let request = Request::parse(&words(line)).unwrap();
            assert_eq!((request.proof.fence, request.gives_up_ticket()), (fence, fence.is_none()));
            let keys: Vec<_> = request.also().iter().flat_map(|also| also.keys.clone()).collect();
            assert_eq!(keys.join(&b' '), also.as_bytes(), "{line}");
        }
    }
}
