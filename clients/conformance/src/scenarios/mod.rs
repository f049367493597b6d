//! The scenarios, by what they are about.

mod causes;
mod closing;
mod guarded;
mod handing;
mod holding;
mod losing;
mod messages;
mod places;
mod plain;
mod quorum_storm;
mod quorums;
mod racing;
mod refusals;
mod releasing;
mod several;
mod sharing;
mod stopping;
mod waiting;

use crate::scene::Scene;

/// How long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speed {
    /// About a second: a part of every run.
    Quick,
    Slow,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What must be seen, at the server and at the client.
    pub(crate) what: &'static str,
    pub(crate) speed: Speed,
    pub(crate) run: fn(&Scene<'_>),
}

const fn quick(name: &'static str, what: &'static str, run: fn(&Scene<'_>)) -> Scenario {
    Scenario { name, what, speed: Speed::Quick, run }
}

const fn slow(name: &'static str, what: &'static str, run: fn(&Scene<'_>)) -> Scenario {
    Scenario { name, what, speed: Speed::Slow, run }
}

pub(crate) fn all() -> Vec<Scenario> {
    let parts: [&[Scenario]; 18] = [
        racing::ALL,
        holding::ALL,
        losing::ALL,
        releasing::ALL,
        waiting::ALL,
        stopping::ALL,
        sharing::ALL,
        closing::ALL,
        plain::ALL,
        places::ALL,
        refusals::ALL,
        causes::ALL,
        messages::ALL,
        several::ALL,
        handing::ALL,
        guarded::ALL,
        quorums::ALL,
        quorum_storm::ALL,
    ];
    parts.concat()
}
