//! `LOCK.CHECK key owner [fence]`: whether this owner holds the lock now.

use super::{Access, Arg, Error, Reply, Spec, args};
use crate::lock::{Checked, Proof};

pub static SPEC: Spec = Spec {
    name: c"lock.check",
    summary: c"Returns the fence if the owner holds the lock, by this fence if one is given.",
    complexity: Spec::O_OF_HOLDERS,
    since: c"0.1.0",
    history: &[],
    tips: None,
    arity: -3,
    access: Access::Read,
    args: &[Arg::KEY, Arg::OWNER, Arg::FENCE],
};

#[derive(Debug)]
pub struct Request<'a> {
    proof: Proof<'a>,
}

impl<'a> Request<'a> {
    pub fn parse(words: &[&'a [u8]]) -> Result<Self, Error> {
        Ok(Self { proof: args::proof(words)? })
    }

    pub fn proof(&self) -> &Proof<'a> {
        &self.proof
    }
}

pub fn reply(checked: Checked) -> Reply<'static> {
    match checked {
        Checked::Holds { fence_number } => Reply::number(fence_number),
        Checked::NotHolder => Reply::Nil,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::{self, FenceClock, Stored};

    fn answer(line: &str, stored: Stored<'_>) -> Result<Reply<'static>, Error> {
        let request = Request::parse(&words(line))?;
        let proof = request.proof();
        let holders = stored.holders(proof.owner, NOW, &mut FenceClock::new())?;
        Ok(reply(lock::check(&holders, proof)))
    }

    #[test]
    fn it_takes_an_owner_at_most_a_fence_and_a_key_of_string_type() {
        assert_eq!(answer("lock.check k a 1 2", Stored::Nothing), Err(Error::WrongArity));
        assert_eq!(answer("lock.check k a x", Stored::Nothing), Err(Error::FenceNotANumber));
        assert_eq!(answer("lock.check k a", Stored::OtherType), Err(Error::WrongType));
    }

    #[test]
    fn the_holder_gets_its_fence() {
        let held = Held::by("a", 5_000);
        let fence = || Reply::number(held.fence_number);
        assert_eq!(answer("lock.check k a", held.stored()).unwrap(), fence());
        let line = format!("lock.check k a {}", held.fence_number);
        assert_eq!(answer(&line, held.stored()).unwrap(), fence());
        assert_eq!(answer("lock.check k 12:ab", foreign("12:ab")).unwrap(), Reply::Integer(0));
    }

    #[test]
    fn nobody_else_gets_anything() {
        let held = Held::by("a", 5_000);
        for line in ["lock.check k b", "lock.check k a 1"] {
            assert_eq!(answer(line, held.stored()).unwrap(), Reply::Nil, "{line}");
        }
        assert_eq!(answer("lock.check k a", Stored::Nothing).unwrap(), Reply::Nil);
    }
}
