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
    use super::super::testing::words;
    use super::*;

    #[test]
    fn mistakes_are_found_from_left_to_right() {
        for (line, error) in [
            ("check k", Error::WrongArity),
            ("check k a 1 2", Error::WrongArity),
            ("check k  x", Error::OwnerLength),
            ("check k a x", Error::FenceNotANumber),
        ] {
            assert_eq!(parse(&words(line)).unwrap_err(), error, "{line}");
        }
    }
}
