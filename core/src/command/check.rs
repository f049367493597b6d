//! `LOCK.CHECK key owner [fence]`: whether this owner holds the lock now.

pub use super::args::proof as parse;
use super::{Access, Arg, Reply, Spec};
use crate::lock::Checked;

pub static SPEC: Spec = Spec {
    name: c"lock.check",
    summary: c"Returns the fence if the owner holds the lock, by this fence if one is given.",
    complexity: Spec::O_OF_HOLDERS,
    since: c"0.1.0",
    history: &[],
    tips: None,
    access: Access::Read,
    args: &[Arg::KEY, Arg::OWNER, Arg::FENCE],
};

pub fn reply(checked: Checked) -> Reply<'static> {
    match checked {
        Checked::Holds { fence_number } => Reply::number(fence_number),
        Checked::NotHolder => Reply::Nil,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Error;
    use super::super::testing::*;
    use super::*;
    use crate::lock::{self, FenceClock, Stored};

    #[test]
    fn the_holder_gets_its_fence_and_nobody_else_anything() {
        let held = Held::by("a", 5_000);
        let fence = || Ok(Reply::number(held.fence_number));
        let by_fence = format!("check k a {}", held.fence_number);
        for (line, stored, expected) in [
            ("check k a", held.stored(), fence()),
            (&*by_fence, held.stored(), fence()),
            ("check k 12:ab", foreign("12:ab"), Ok(Reply::Integer(0))),
            ("check k b", held.stored(), Ok(Reply::Nil)),
            ("check k a 1", held.stored(), Ok(Reply::Nil)),
            ("check k a", Stored::Nothing, Ok(Reply::Nil)),
            ("check k a", Stored::OtherType, Err(Error::WrongType)),
            ("check k", Stored::Nothing, Err(Error::WrongArity)),
            ("check k a 1 2", Stored::Nothing, Err(Error::WrongArity)),
            ("check k  x", Stored::Nothing, Err(Error::OwnerLength)),
            ("check k a x", Stored::Nothing, Err(Error::FenceNotANumber)),
        ] {
            let reply = parse(&words(line)).and_then(|proof| {
                let holders = stored.holders(proof.owner, NOW, &mut FenceClock::new())?;
                Ok(reply(lock::check(&holders, &proof)))
            });
            assert_eq!(reply, expected, "{line}");
        }
    }
}
