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
        says: "the same with takeovers at any time, without a margin or extensions",
        promises: L1,
        setting: Setting { takeovers: Takeovers::AtAnyTime, margin: 0, extends: 0, ..FAILOVER },
    },
    Case {
        says: "failovers and restarts without a quarantine or extensions: fences still grow",
        promises: L2,
        setting: Setting { quarantine: 0, extends: 0, ..FAILOVER },
    },
    Case {
        says: "takeovers at any time by a replica that has received a grant",
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
        says: "an old primary that goes on granting for a second, with a quarantine longer by that second, and no extensions",
        promises: BOTH,
        setting: Setting { goes_on: 1, quarantine: 3, margin: 3, extends: 0, ..FAILOVER },
    },
    Case {
        says: "nothing is lost and clocks agree: no quarantine is needed",
        promises: L1,
        setting: Setting { margin: 1, seconds: 4, ..Setting::QUIET },
    },
    Case {
        says: "a slot that moves key by key between nodes whose clocks differ, and nodes that lose their last writes",
        promises: BOTH,
        setting: CLUSTER,
    },
    Case {
        says: "a slot that moves in every way between nodes whose clocks agree, and nodes that die",
        promises: BOTH,
        setting: Setting { clocks_differ: 0, moves: EVERY_WAY, ..CLUSTER },
    },
    Case {
        says: "a slot that moves in every way between nodes whose clocks differ: fences still grow",
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
        says: "Without a quarantine, a replica that has not received the last grant takes over.",
        promises: L1,
        setting: Setting { quarantine: 0, ..STORY },
    },
    Case {
        says: "Without a quarantine, a server restarts without its last writes.",
        promises: L1,
        setting: Setting { quarantine: 0, clocks_differ: 0, ..FAILOVER },
    },
    Case {
        says: "The quarantine is a second shorter than the lease.",
        promises: L1,
        setting: Setting { quarantine: 1, ..STORY },
    },
    Case {
        says: "The quarantine is as long as the lease, and the old primary goes on granting for a second.",
        promises: L1,
        setting: Setting { goes_on: 1, extends: 0, ..STORY },
    },
    Case {
        says: "The quarantine is longer by that second, and a holder extends its lease at the new primary.",
        promises: L1,
        setting: Setting { goes_on: 1, quarantine: 3, ..STORY },
    },
    Case {
        says: "With a quarantine, an owner whose release was lost asks again.",
        promises: L1,
        setting: Setting { owners: Owners::Same, ..STORY },
    },
    Case {
        says: "Nothing is lost, but the clock of the replica that takes over is ahead.",
        promises: L1,
        setting: Setting { loss: Loss::Nothing, takeovers: Takeovers::AtAnyTime, ..CLOCKS },
    },
    Case {
        says: "A slot moves atomically to a node whose clock is ahead.",
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
        says: "A node dies while its slot moves key by key, and restarts without its last writes.",
        promises: L1,
        setting: Setting { clocks_differ: 0, disturbed: Disturbed::ByDeaths, ..CLUSTER },
    },
    Case {
        says: "Without a margin, a replica whose clock is behind takes over.",
        promises: L2,
        setting: Setting { margin: 0, ..CLOCKS },
    },
    Case {
        says: "Clocks differ by more than the margin.",
        promises: L2,
        setting: Setting { margin: 1, clocks_differ: 2, ..CLOCKS },
    },
    Case {
        says: "With a margin, the fence clock is not lifted for a slot that arrives.",
        promises: L2,
        setting: Setting { mistake: Some(Mistake::SlotDoesNotLift), ..SLOT },
    },
    Case {
        says: "With a margin, a replica that has received no grant takes over right after its primary has started.",
        promises: L2,
        setting: Setting { takeovers: Takeovers::AtAnyTime, ..CLOCKS },
    },
    Case {
        says: "With a margin, a slot moves from a node that has just started to one whose clock is behind.",
        promises: L2,
        setting: Setting { takeovers: Takeovers::AtAnyTime, ..SLOT },
    },
    Case {
        says: "With a margin, a replica that has received a grant takes over right after its primary has started; soon a server starts that has received none.",
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
