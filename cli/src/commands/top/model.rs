//! What is known about the servers now: the last round of each, the round before for rates, and what no single
//! round tells, such as the full length of a lease. The model asks no server and reads no clock.

use super::told::{Event, Facts, Hold, Opened, Part, Round};
use super::watching::News;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How many events of all servers are kept.
const EVENTS: usize = 256;

pub(crate) struct Model {
    /// In the order of the addresses.
    pub(crate) servers: Vec<Watched>,
    /// The newest last.
    pub(crate) events: VecDeque<Seen>,
    /// Addresses whose servers cannot be found out, and why.
    pub(crate) lost: BTreeMap<usize, String>,
    /// Losses since the view began, and events that came too fast to be received.
    pub(crate) losses: u64,
    pub(crate) missed: u64,
    names: Vec<String>,
}

pub(crate) struct Watched {
    pub(crate) address: String,
    place: usize,
    pub(crate) state: State,
    pub(crate) latest: Option<Round>,
    earlier: Option<Counted>,
    pub(crate) rates: Rates,
    leases: BTreeMap<Vec<u8>, Lease>,
    contended: BTreeMap<Vec<u8>, (u64, Option<u64>)>,
    last_event: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The server has not answered yet.
    Asked,
    Answers,
    Silent {
        since: Instant,
        why: String,
    },
}

/// An event, and the server that logged it.
pub(crate) struct Seen {
    pub(crate) address: String,
    pub(crate) event: Event,
    /// By the clock of this machine.
    pub(crate) at: Option<Instant>,
}

/// Counters, and when they were read.
struct Counted {
    at: Instant,
    run: String,
    grants: u64,
    hand_offs: u64,
    queue_full: u64,
}

/// Events that no earlier round had.
struct Fresh {
    /// The oldest first.
    events: Vec<Event>,
    /// Whether the events are new; false in the first round, whose events are from before the view began.
    came_meanwhile: bool,
    missed: u64,
}

/// Tenths per second. None until two rounds are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    pub(crate) grants: Option<u64>,
    pub(crate) hand_offs: Option<u64>,
    pub(crate) queue_full: Option<u64>,
}

/// The longest remaining time seen for a grant: the best estimate of its lease.
struct Lease {
    fence: u64,
    longest: Duration,
}

impl Model {
    /// `names` are the addresses without passwords.
    pub(crate) fn new(names: Vec<String>) -> Self {
        let (events, lost) = (VecDeque::new(), BTreeMap::new());
        Self { servers: Vec::new(), events, lost, losses: 0, missed: 0, names }
    }

    pub(crate) fn hear(&mut self, news: News, now: Instant) {
        match news {
            News::Servers { place, addresses } => self.place(place, addresses),
            News::Lost { place, why } => {
                self.lost.insert(place, why);
            }
            News::Silent { address, why } => {
                if let Some(server) = self.server_mut(&address) {
                    server.fall_silent(why, now);
                }
            }
            News::Answered { address, round } => self.answered(&address, *round),
            News::Broken => {}
        }
    }

    pub(crate) fn server(&self, address: &str) -> Option<&Watched> {
        self.servers.iter().find(|server| server.address == address)
    }

    /// How much of all keys is known.
    pub(crate) fn part(&self) -> Part {
        let parts = self.servers.iter().filter_map(Watched::round).map(|round| round.part);
        parts.fold(Part::default(), Part::add)
    }

    /// The addresses whose servers cannot be found out, and why.
    pub(crate) fn lost(&self) -> impl Iterator<Item = (&str, &str)> {
        let name = |place: &usize| self.names.get(*place).map(String::as_str);
        self.lost.iter().map(move |(place, why)| (name(place).unwrap_or_default(), why.as_str()))
    }

    fn server_mut(&mut self, address: &str) -> Option<&mut Watched> {
        self.servers.iter_mut().find(|server| server.address == address)
    }

    fn place(&mut self, place: usize, addresses: Vec<String>) {
        self.lost.remove(&place);
        self.servers.retain(|server| server.place != place || addresses.contains(&server.address));
        for address in addresses {
            if self.server(&address).is_none() {
                self.servers.push(Watched::new(address, place));
            }
        }
        self.servers.sort_by_key(|server| server.place);
    }

    fn answered(&mut self, address: &str, round: Round) {
        let Some(server) = self.server_mut(address) else { return };
        let fresh = server.fresh(&round);
        let (at, clock) = (round.at, round.facts.clock);
        server.take(round);
        self.missed = self.missed.saturating_add(fresh.missed);
        for event in fresh.events {
            let ago = Duration::from_micros(clock.saturating_sub(event.time.saturating_mul(1_000)));
            let counts = fresh.came_meanwhile && event.is_loss();
            self.losses = self.losses.saturating_add(u64::from(counts));
            let at = at.checked_sub(ago);
            self.events.push_back(Seen { address: address.to_owned(), event, at });
        }
        self.events.make_contiguous().sort_by_key(|seen| (seen.at, seen.event.id));
        while self.events.len() > EVENTS {
            self.events.pop_front();
        }
    }
}

impl Watched {
    fn new(address: String, place: usize) -> Self {
        Self {
            address,
            place,
            state: State::Asked,
            latest: None,
            earlier: None,
            rates: Rates::default(),
            leases: BTreeMap::new(),
            contended: BTreeMap::new(),
            last_event: None,
        }
    }

    /// The last round of a server that answers. What a silent server told may be out of date.
    pub(crate) fn round(&self) -> Option<&Round> {
        self.latest.as_ref().filter(|_| self.state == State::Answers)
    }

    pub(crate) fn opened(&self, key: &[u8]) -> Option<&Opened> {
        self.round()?.opened.as_ref().filter(|opened| opened.key == key)
    }

    /// The full length of the lease that this lock's grant has.
    pub(crate) fn lease(&self, key: &[u8]) -> Option<Duration> {
        self.leases.get(key).map(|lease| lease.longest)
    }

    /// Waits and refusals for this lock, in tenths per second.
    pub(crate) fn contention(&self, key: &[u8]) -> Option<u64> {
        self.contended.get(key)?.1
    }

    fn fall_silent(&mut self, why: String, now: Instant) {
        let since = match &self.state {
            State::Silent { since, .. } => *since,
            State::Asked => now,
            // What the server told is unconfirmed since its last round.
            State::Answers => self.latest.as_ref().map_or(now, |round| round.at),
        };
        self.state = State::Silent { since, why };
        self.earlier = None;
        self.rates = Rates::default();
        self.leases.clear();
        self.contended.clear();
    }

    /// The events that no earlier round had.
    fn fresh(&mut self, round: &Round) -> Fresh {
        // An empty log was reset. The ids go on counting.
        let newest = round.events.first().map(|event| event.id);
        let newest = newest.or(self.last_event).unwrap_or(0);
        let oldest = round.events.last().map_or(0, |event| event.id);
        let is_same_run =
            self.latest.as_ref().is_some_and(|latest| latest.facts.run == round.facts.run);
        let known = self.last_event.filter(|known| is_same_run && newest >= *known);
        let came_meanwhile = self.last_event.is_some();
        self.last_event = Some(newest);
        let missed = known.map_or(0, |known| oldest.saturating_sub(known.saturating_add(1)));
        let events = round.events.iter().filter(|event| event.id > known.unwrap_or(0));
        Fresh { events: events.rev().cloned().collect(), came_meanwhile, missed }
    }

    fn take(&mut self, round: Round) {
        let counted = Counted::of(&round.facts, round.at);
        let before = self.earlier.as_ref().filter(|before| before.run == counted.run);
        let elapsed = before.map(|before| counted.at.saturating_duration_since(before.at));
        let rate = |now: u64, before: Option<u64>| per_second(before?, now, elapsed?);
        self.rates = Rates {
            grants: rate(counted.grants, before.map(|before| before.grants)),
            hand_offs: rate(counted.hand_offs, before.map(|before| before.hand_offs)),
            queue_full: rate(counted.queue_full, before.map(|before| before.queue_full)),
        };
        let mut leases = BTreeMap::new();
        let mut contended = BTreeMap::new();
        for lock in &round.locks {
            let all = lock.contention.waits.saturating_add(lock.contention.refused);
            let before = self.contended.get(&lock.key).map(|(count, _)| *count);
            contended.insert(lock.key.clone(), (all, rate(all, before)));
            if let Hold::Held { hold, .. } = &lock.hold
                && let Some(left) = hold.left
            {
                let known = self.leases.get(&lock.key).filter(|lease| lease.fence == hold.fence);
                let longest = known.map_or(left, |lease| lease.longest.max(left));
                leases.insert(lock.key.clone(), Lease { fence: hold.fence, longest });
            }
        }
        (self.leases, self.contended) = (leases, contended);
        self.earlier = Some(counted);
        self.latest = Some(round);
        self.state = State::Answers;
    }
}

impl Counted {
    fn of(facts: &Facts, at: Instant) -> Self {
        let (grants, hand_offs, queue_full) = (facts.grants, facts.hand_offs, facts.queue_full);
        Self { at, run: facts.run.clone(), grants, hand_offs, queue_full }
    }
}

/// In tenths. None if a counter was reset, or no time has passed.
fn per_second(before: u64, now: u64, elapsed: Duration) -> Option<u64> {
    let more = now.checked_sub(before)?;
    let millis = u64::try_from(elapsed.as_millis()).ok()?;
    more.saturating_mul(10_000).checked_div(millis)
}

#[cfg(test)]
pub(super) mod tests;
