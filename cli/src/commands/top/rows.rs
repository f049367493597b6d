//! The locks of all servers as one list: which are shown, and in which order.

use super::model::{Model, Watched};
use super::told::{Facts, Hold, Lock};
use clap::ValueEnum;
use std::cmp::{Ordering, Reverse};
use std::time::{Duration, Instant};

/// A wait of this length is highlighted.
pub(crate) const LONG_WAIT: Duration = Duration::from_secs(10);

/// What the list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The longest queue first
    #[default]
    Queue,
    /// The longest wait of those who wait now first
    Waited,
    /// The one that is held for longest first
    Held,
    /// The lease that ends next first
    Left,
    /// The one that most begin to wait for, or are refused, in a second first
    Rate,
    /// By name
    Name,
}

impl Sort {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Queue => Self::Waited,
            Self::Waited => Self::Held,
            Self::Held => Self::Left,
            Self::Left => Self::Rate,
            Self::Rate => Self::Name,
            Self::Name => Self::Queue,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Waited => "waited",
            Self::Held => "held",
            Self::Left => "left",
            Self::Rate => "rate",
            Self::Name => "name",
        }
    }
}

/// A lock: the address of its server, and its key.
pub(crate) type Id = (String, Vec<u8>);

/// A lock at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    /// The number of its server, from 1.
    pub(crate) number: usize,
    pub(crate) server: &'a str,
    pub(crate) lock: &'a Lock,
    /// How long it has been held. None if it is free or the time is unknown.
    pub(crate) held: Option<Duration>,
    /// None if its lease has no end, or it is free.
    pub(crate) left: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    pub(crate) waited: Option<Duration>,
    /// Tenths per second.
    pub(crate) rate: Option<u64>,
}

impl Row<'_> {
    pub(crate) fn id(&self) -> Id {
        (self.server.to_owned(), self.lock.key.clone())
    }

    pub(crate) fn waiters(&self) -> u64 {
        self.lock.waiters.unwrap_or_default()
    }

    /// Whether a waiter may wait in vain: it has waited long, or the lease has no end.
    pub(crate) fn is_stuck(&self) -> bool {
        let has_no_end = matches!(&self.lock.hold, Hold::Held { hold, .. } if hold.left.is_none());
        let is_long = self.waited.is_some_and(|waited| waited >= LONG_WAIT);
        self.waiters() > 0 && (has_no_end || is_long)
    }
}

/// All locks that match the filter, sorted.
pub(crate) fn rows<'a>(
    model: &'a Model,
    sort: Sort,
    is_reversed: bool,
    filter: &str,
    now: Instant,
) -> Vec<Row<'a>> {
    let numbered = (1_usize..).zip(&model.servers);
    let mut rows: Vec<_> = numbered
        .filter_map(|(number, server)| Some((number, server, server.round()?)))
        .flat_map(|(number, server, round)| {
            let age = now.saturating_duration_since(round.at);
            let row = move |lock| row(number, server, &round.facts, lock, age);
            round.locks.iter().map(row)
        })
        .filter(|row| matches(row.lock, filter))
        .collect();
    rows.sort_by(|one, other| {
        let order = compare(one, other, sort);
        let order = if is_reversed { order.reverse() } else { order };
        let name = |row: &Row<'_>| (row.lock.name.clone(), row.number);
        order.then_with(|| name(one).cmp(&name(other)))
    });
    rows
}

fn row<'a>(
    number: usize,
    server: &'a Watched,
    facts: &Facts,
    lock: &'a Lock,
    age: Duration,
) -> Row<'a> {
    let (held, left) = match &lock.hold {
        Hold::Held { hold, .. } => {
            let held = held_for(facts.clock, hold.fence);
            let left = hold.left.map(|left| left.saturating_sub(age));
            (held.map(|held| held.saturating_add(age)), left)
        }
        Hold::Free | Hold::Unknown(_) => (None, None),
    };
    Row {
        number,
        server: &server.address,
        lock,
        held,
        left,
        lease: server.lease(&lock.key),
        waited: lock.oldest.map(|waited| waited.saturating_add(age)),
        rate: server.contention(&lock.key),
    }
}

/// A fence is the time of its grant in microseconds, unless it is ahead of the clock, as after a
/// start.
pub(crate) fn held_for(clock: u64, fence: u64) -> Option<Duration> {
    let micros = clock.checked_sub(fence).filter(|_| fence > 0)?;
    Some(Duration::from_micros(micros))
}

/// Whether the name or the holder contains the filter.
fn matches(lock: &Lock, filter: &str) -> bool {
    let wanted = filter.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let owner = match &lock.hold {
        Hold::Held { hold, .. } => hold.owner.as_str(),
        Hold::Free | Hold::Unknown(_) => "",
    };
    wanted.is_empty() || has(&lock.name) || has(owner)
}

fn compare(one: &Row<'_>, other: &Row<'_>, sort: Sort) -> Ordering {
    // Unknown values last; held locks before free ones.
    let most = |of: fn(&Row<'_>) -> Option<Duration>| Reverse(of(one)).cmp(&Reverse(of(other)));
    let by_left = |row: &Row<'_>| (row.left.is_none(), row.left);
    match sort {
        Sort::Queue => Reverse(one.waiters())
            .cmp(&Reverse(other.waiters()))
            .then(most(|row| row.waited))
            .then(Reverse(one.rate).cmp(&Reverse(other.rate)))
            .then(most(|row| row.held)),
        Sort::Waited => most(|row| row.waited),
        Sort::Held => most(|row| row.held),
        Sort::Left => by_left(one).cmp(&by_left(other)),
        Sort::Rate => Reverse(one.rate).cmp(&Reverse(other.rate)),
        Sort::Name => Ordering::Equal,
    }
}

/// What about a server needs attention now.
pub(crate) fn warnings(server: &Watched) -> Vec<String> {
    let Some(round) = server.round() else { return Vec::new() };
    let facts = &round.facts;
    let mut found = Vec::new();
    let limits = [
        ("waiters", facts.waiters, facts.most_waiters, 80, "leasehold.max-waiters"),
        ("tickets", facts.tickets, facts.most_tickets, 80, "leasehold.max-tickets"),
        ("clients", facts.clients, facts.most_clients, 75, "maxclients"),
        ("memory", facts.memory, facts.most_memory, 90, "maxmemory"),
    ];
    for (what, used, most, limit, setting) in limits {
        if let Some(percent) = percent(used, most).filter(|percent| *percent >= limit) {
            found.push(format!("{what}: {percent} % of what {setting} allows"));
        }
    }
    if !facts.quarantine.is_zero() {
        let left = crate::duration::show(facts.quarantine);
        found.push(format!("grants nothing for {left} more (quarantine)"));
    }
    if server.rates.queue_full.is_some_and(|rate| rate > 0) {
        found.push("refuses to let more wait (QUEUEFULL)".to_owned());
    }
    if facts.evictions_pending > 0 {
        found.push(format!("{} locks are evicted and not back yet", facts.evictions_pending));
    }
    if facts.panics > 0 {
        found.push(format!("{} errors of the module itself: see its log", facts.panics));
    }
    if facts.module.is_none() {
        found.push("no module: whoever waits polls, so queues and losses are not known".to_owned());
    }
    if facts.is_replica {
        found.push("a replica: it grants nothing, and knows no queues".to_owned());
    }
    found.extend(round.notes.iter().cloned());
    found
}

/// The percentage of a limit that is used.
pub(crate) fn percent(used: u64, most: Option<u64>) -> Option<u64> {
    match most? {
        // A limit of 0 is always reached.
        0 => Some(100),
        most => used.saturating_mul(100).checked_div(most),
    }
}
