//! What a case assumes of the world: how it is set up, what may go wrong, and how much of it.

/// The assumptions of a case. All durations are seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What the two servers are to each other.
    pub topology: Topology,
    /// The lease that clients ask for.
    pub ttl: u8,
    /// `leasehold.quarantine-ms`.
    pub quarantine: u8,
    /// `leasehold.fence-margin`.
    pub margin: u8,
    /// By how much the clocks of the two servers may differ.
    pub clocks_differ: u8,
    /// Which differences there are.
    pub differences: Differences,
    /// What becomes of servers that have died.
    pub returns: Returns,
    /// For how long a primary that was replaced may go on granting. 0: it is dead before it is replaced.
    pub goes_on: u8,
    /// What a death or a takeover may take along.
    pub loss: Loss,
    /// When a server may take over from another one.
    pub takeovers: Takeovers,
    /// How slots move.
    pub moves: &'static [Way],
    /// What may disturb the move of a slot.
    pub disturbed: Disturbed,
    /// As whom clients ask.
    pub owners: Owners,
    /// When clients hear of their grants.
    pub answers: Answers,
    /// How often leases are extended, altogether.
    pub extends: u8,
    /// How many deaths of servers there are.
    pub deaths: u8,
    /// When the story ends.
    pub seconds: u8,
    /// What is done otherwise than by the code that ships, to see that the search finds it.
    pub mistake: Option<Mistake>,
}

/// How many grants there are.
pub const GRANTS: u8 = 3;

/// What the two servers are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A primary and its replica.
    Pair,
    /// Two nodes of a cluster, one of which has the slot of the lock.
    Cluster,
}

/// Which differences of clocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differences {
    /// All, up to the largest, and a server that starts may have another one.
    All,
    /// The largest, all the time: for stories.
    Largest,
}

/// What becomes of servers that have died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// They start again in every way.
    InEveryWay,
    /// Of a pair, they come back as replicas: for stories.
    AsReplicas,
}

/// What a death or a takeover may take along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the file has every write, and a replica takes over when it has heard of every write.
    Nothing,
    /// The tail: a file has any number of the last writes not, and a replica takes over whatever it has heard of.
    Tail,
}

/// When a server may take over from another one: by a start, a promotion, or as the next home of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeovers {
    /// At any time.
    AtAnyTime,
    /// Not before more time has passed since the last takeover than clocks may differ by.
    Settled,
    /// The same, but a replica also as soon as it has received one grant of its primary, or how far its fence clock is.
    SettledOrHeard,
    /// As soon as it has received that. Nobody else takes over.
    Heard,
}

/// How a slot moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Key by key: `CLUSTER SETSLOT`, `MIGRATE`. What is left of the lease goes along.
    ByHand,
    /// At once (Redis 8.4 and Valkey 9.0 on). The end of the lease goes along.
    AtOnce,
}

/// What may disturb the move of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbed {
    /// It may leave a node that is in quarantine.
    ByQuarantine,
    /// Nodes may die meanwhile.
    ByDeaths,
    /// Nothing.
    Never,
}

/// As whom clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Each request has a new owner.
    New,
    /// A client has the same owner in all its requests.
    Same,
}

/// When clients hear of their grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// At once.
    AtOnce,
    /// At any time after the grant.
    Late,
}

/// One thing that is done otherwise than by the code that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A server that starts does not lift its fence clock.
    BeginDoesNotLift,
    /// A server that starts is in no quarantine.
    BeginDoesNotRest,
    /// A replica that takes over does not lift its fence clock.
    TakeOverDoesNotLift,
    /// It is in no quarantine.
    TakeOverDoesNotRest,
    /// It lifts its fence clock by the margin only, and not above the fences that it knows.
    TakeOverForgetsKnown,
    /// A replica does not learn fences from the grants that it applies.
    ReplicaLearnsNothing,
    /// The fence clock is not lifted for a slot that has come.
    SlotDoesNotLift,
    /// Nor for one that is on its way.
    ComingSlotDoesNotLift,
    /// The server ends leases a second early.
    LeaseEndsEarly,
    /// A client counts its lease from the answer, and not from before it asked.
    CountedFromAnswer,
}

impl Setting {
    /// A world in which nothing goes wrong.
    pub const QUIET: Self = Self {
        topology: Topology::Pair,
        ttl: 2,
        quarantine: 0,
        margin: 0,
        clocks_differ: 0,
        differences: Differences::All,
        returns: Returns::InEveryWay,
        goes_on: 0,
        loss: Loss::Nothing,
        takeovers: Takeovers::AtAnyTime,
        moves: &[],
        disturbed: Disturbed::Never,
        owners: Owners::New,
        answers: Answers::AtOnce,
        extends: 1,
        deaths: 2,
        seconds: 6,
        mistake: None,
    };

    /// Whether the code is as it ships, as far as this mistake goes.
    pub(crate) fn is_without(&self, mistake: Mistake) -> bool {
        self.mistake != Some(mistake)
    }

    /// When a takeover may follow another one, for the table of cases.
    pub const fn pace(&self) -> &'static str {
        match self.takeovers {
            Takeovers::AtAnyTime => "takeovers at any time",
            Takeovers::Settled => "takeovers further apart than clocks differ",
            Takeovers::SettledOrHeard => {
                "takeovers further apart than clocks differ, or a replica that has received a grant"
            }
            Takeovers::Heard => "takeovers at any time by a replica that has received a grant",
        }
    }

    /// In one line, for whoever reads a timeline.
    pub fn in_words(&self) -> String {
        let Self { ttl, quarantine, margin, clocks_differ, .. } = self;
        let differ = match (clocks_differ, self.differences) {
            (0, _) => "clocks agree".to_owned(),
            (by, Differences::All) => format!("clocks differ by up to {by} s"),
            (by, Differences::Largest) => format!("clocks differ by {by} s"),
        };
        format!("ttl {ttl} s, quarantine {quarantine} s, margin {margin} s, {differ}")
    }
}
