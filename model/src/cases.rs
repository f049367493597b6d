//! The cases: what must hold, under which assumptions, and what breaks without each of them.

use crate::setting::{
    Answers, Differences, Disturbed, Loss, Mistake, Owners, Returns, Setting, Takeovers, Topology,
    Way,
};
use crate::world::Promise::{self, FencesGrow, OneHolder};

/// One world to go through.
#[derive(Debug)]
pub struct Case {
    /// In a sentence.
    pub says: &'static str,
    /// What is looked at.
    pub promises: &'static [Promise],
    /// Under these assumptions.
    pub setting: Setting,
}

const L1: &[Promise] = &[OneHolder];
const L2: &[Promise] = &[FencesGrow];
const BOTH: &[Promise] = &[OneHolder, FencesGrow];
const EVERY_WAY: &[Way] = &[Way::ByHand, Way::AtOnce];

/// A primary and its replica, with all that helps: a quarantine as long as a lease, a margin as large as the difference of
/// clocks, and time between two takeovers.
pub const FAILOVER: Setting = Setting {
    quarantine: 2,
    margin: 2,
    clocks_differ: 1,
    loss: Loss::Tail,
    takeovers: Takeovers::Settled,
    seconds: 4,
    ..Setting::QUIET
};

/// Two nodes of a cluster, with the same.
pub const CLUSTER: Setting =
    Setting { topology: Topology::Cluster, moves: &[Way::ByHand], ..FAILOVER };

/// What must hold.
pub const KEPT: &[Case] = &[
    Case {
        says: "failovers and restarts that lose the last writes, with quarantine and margin",
        promises: BOTH,
        setting: FAILOVER,
    },
    Case {
        says: "the same, one takeover right after another; without a margin, and nobody extends",
        promises: L1,
        setting: Setting { takeovers: Takeovers::AtAnyTime, margin: 0, extends: 0, ..FAILOVER },
    },
    Case {
        says: "the same without a quarantine, and nobody extends: fences grow all the same",
        promises: L2,
        setting: Setting { quarantine: 0, extends: 0, ..FAILOVER },
    },
    Case {
        says: "replicas take over at any time that have received one grant",
        promises: L2,
        setting: Setting {
            quarantine: 0,
            takeovers: Takeovers::Heard,
            deaths: 3,
            extends: 0,
            seconds: 3,
            ..FAILOVER
        },
    },
    Case {
        says: "a primary that was replaced goes on for a second, with a quarantine longer by that, and nobody extends",
        promises: BOTH,
        setting: Setting { goes_on: 1, quarantine: 3, margin: 3, extends: 0, ..FAILOVER },
    },
    Case {
        says: "nothing is lost and clocks agree: no quarantine is needed",
        promises: L1,
        setting: Setting { margin: 1, seconds: 4, ..Setting::QUIET },
    },
    Case {
        says: "a slot moves by hand between clocks that differ, and nodes die without their last writes",
        promises: BOTH,
        setting: CLUSTER,
    },
    Case {
        says: "a slot moves in every way between clocks that agree, and nodes die",
        promises: BOTH,
        setting: Setting { clocks_differ: 0, moves: EVERY_WAY, ..CLUSTER },
    },
    Case {
        says: "a slot moves in every way between clocks that differ: fences grow all the same",
        promises: L2,
        setting: Setting {
            moves: EVERY_WAY,
            quarantine: 0,
            disturbed: Disturbed::ByDeaths,
            extends: 0,
            seconds: 3,
            ..CLUSTER
        },
    },
];

/// A failover that a story is told of: the primary that dies comes back as a replica.
const STORY: Setting = Setting { clocks_differ: 0, returns: Returns::AsReplicas, ..FAILOVER };

/// The same with clocks that differ, and without a quarantine.
const CLOCKS: Setting = Setting {
    quarantine: 0,
    clocks_differ: 1,
    differences: Differences::Largest,
    extends: 0,
    ..STORY
};

/// A slot that moves between such clocks.
const SLOT: Setting =
    Setting { differences: Differences::Largest, quarantine: 0, deaths: 0, ..CLUSTER };

/// What does not, with the shortest way to it.
pub const BROKEN: &[Case] = &[
    Case {
        says: "Without a quarantine, a replica takes over that has not received the last grant.",
        promises: L1,
        setting: Setting { quarantine: 0, ..STORY },
    },
    Case {
        says: "Without a quarantine, a server starts again without its last writes.",
        promises: L1,
        setting: Setting { quarantine: 0, clocks_differ: 0, ..FAILOVER },
    },
    Case {
        says: "With a quarantine that is a second shorter than the lease.",
        promises: L1,
        setting: Setting { quarantine: 1, ..STORY },
    },
    Case {
        says: "With a quarantine as long as the lease, where the former primary goes on granting for a second.",
        promises: L1,
        setting: Setting { goes_on: 1, extends: 0, ..STORY },
    },
    Case {
        says: "With a quarantine longer by that second, where a holder extends its lease at the new primary.",
        promises: L1,
        setting: Setting { goes_on: 1, quarantine: 3, ..STORY },
    },
    Case {
        says: "With a quarantine, where an owner asks again that has released the lock, and the release was lost.",
        promises: L1,
        setting: Setting { owners: Owners::Same, ..STORY },
    },
    Case {
        says: "Nothing is lost, but the clock of the replica that takes over is ahead.",
        promises: L1,
        setting: Setting { loss: Loss::Nothing, takeovers: Takeovers::AtAnyTime, ..CLOCKS },
    },
    Case {
        says: "A slot is moved at once to a node whose clock is ahead.",
        promises: L1,
        setting: Setting { moves: &[Way::AtOnce], takeovers: Takeovers::AtAnyTime, ..SLOT },
    },
    Case {
        says: "A slot leaves a node that is in quarantine.",
        promises: L1,
        setting: Setting {
            clocks_differ: 0,
            moves: &[Way::AtOnce],
            disturbed: Disturbed::ByQuarantine,
            ..CLUSTER
        },
    },
    Case {
        says: "A node dies while its slot moves by hand, and starts again without its last writes.",
        promises: L1,
        setting: Setting { clocks_differ: 0, disturbed: Disturbed::ByDeaths, ..CLUSTER },
    },
    Case {
        says: "Without a margin, a replica takes over whose clock is behind.",
        promises: L2,
        setting: Setting { margin: 0, ..CLOCKS },
    },
    Case {
        says: "With clocks that differ by more than the margin.",
        promises: L2,
        setting: Setting { margin: 1, clocks_differ: 2, ..CLOCKS },
    },
    Case {
        says: "With a margin, if the fence clock were not lifted for a slot that has come.",
        promises: L2,
        setting: Setting { mistake: Some(Mistake::SlotDoesNotLift), ..SLOT },
    },
    Case {
        says: "With a margin, a replica takes over right after the start of its primary, and has received none of its grants.",
        promises: L2,
        setting: Setting { takeovers: Takeovers::AtAnyTime, ..CLOCKS },
    },
    Case {
        says: "With a margin, a slot leaves a node that has just started, for one whose clock is behind.",
        promises: L2,
        setting: Setting { takeovers: Takeovers::AtAnyTime, ..SLOT },
    },
    Case {
        says: "With a margin, a replica takes over right after the start of its primary, and has received a grant; soon a server starts that has not.",
        promises: L2,
        setting: Setting {
            takeovers: Takeovers::SettledOrHeard,
            returns: Returns::InEveryWay,
            ..CLOCKS
        },
    },
];

/// The world in which it shows from where a client counts its lease.
pub const LATE_ANSWERS: Setting = Setting { answers: Answers::Late, margin: 1, ..Setting::QUIET };
