//! The world: two servers, the link between them, the slot, and two clients who want one lock.

use crate::both::{Both, Which};
use crate::server::{Answer, Held, OwnerId, Role, Server, Told};
use crate::setting::{
    Answers, Differences, Disturbed, GRANTS, Loss, Mistake, Owners, Returns, Setting, Takeovers,
    Topology,
};
use crate::step::Step;
use leasehold_core::lock::Fence;
use std::iter;

mod slots;

/// Everything, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub(crate) now: u8,
    pub(crate) servers: Both<Server>,
    /// What the replica is still to receive. `None` while it follows nobody.
    pub(crate) link: Option<Vec<Told>>,
    slot: Slot,
    pub(crate) clients: Both<Client>,
    pub(crate) granted: u8,
    extended: u8,
    died: u8,
    /// When the fence clock of a server that grants was last lifted.
    lifted: Option<u8>,
    /// The primary that was replaced and goes on, and since when.
    pub(crate) replaced: Option<(Which, u8)>,
    /// The highest fence that was ever granted.
    pub(crate) highest: Option<Fence>,
    fence_went_back: bool,
}

/// Where the slot of the lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Slot {
    /// There are no slots.
    None,
    At(Which),
    /// It is moved by hand, from here.
    Leaves(Which),
}

/// A grant, as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) fence: Fence,
    owner: OwnerId,
}

/// What a client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// It holds nothing.
    Idle,
    /// It has asked, and the answer is on its way.
    Asks { grant: Grant, asked: u8 },
    /// It believes to hold the lock, for as long as its own clock is below this.
    Holds { grant: Grant, until: u8 },
}

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// L1: no two clients believe to hold the lock at one time.
    OneHolder,
    /// L2: the fence of a later grant is above that of each earlier one.
    FencesGrow,
}

impl Promise {
    /// By this number the code and the docs cite it.
    pub const fn number(self) -> &'static str {
        match self {
            Self::OneHolder => "L1",
            Self::FencesGrow => "L2",
        }
    }
}

impl World {
    /// How stories begin: with a server that has been up for long, or has just started; and with any difference of clocks.
    pub fn beginnings(setting: &Setting) -> Vec<Self> {
        let least = match setting.differences {
            Differences::All => 0,
            Differences::Largest => setting.clocks_differ,
        };
        let ahead = (least..=setting.clocks_differ).map(|by| (by, 0));
        let behind = (least.max(1)..=setting.clocks_differ).map(|by| (0, by));
        let mut worlds = Vec::new();
        for (first, second) in ahead.chain(behind) {
            let (other, link, slot) = match setting.topology {
                Topology::Pair => (Role::Replica, Some(Vec::new()), Slot::None),
                Topology::Cluster => (Role::Primary, None, Slot::At(Which::First)),
            };
            let servers = Both::new(Server::new(Role::Primary, first), Server::new(other, second));
            let settled = Self {
                now: 0,
                servers,
                link,
                slot,
                clients: Both::new(Client::Idle, Client::Idle),
                granted: 0,
                extended: 0,
                died: 0,
                lifted: None,
                replaced: None,
                highest: None,
                fence_went_back: false,
            };
            let mut anew = settled.clone();
            anew.servers.get_mut(Which::First).begin(0, setting);
            anew.note_lift(setting);
            worlds.extend([settled, anew]);
        }
        worlds
    }

    /// Whether the fence clock of a is ahead, or its quarantine lasts: it has just started.
    pub(crate) fn is_anew(&self) -> bool {
        let server = self.servers.get(Which::First);
        let ahead = server.fences.ahead_micros(server.wall(self.now));
        ahead > 0 || server.fences.is_quarantined()
    }

    /// Whether the slot is there.
    pub(crate) fn is_home(&self, server: Which) -> bool {
        self.slot == Slot::At(server)
    }

    /// Whether the promise is kept in this world, and on the way to it.
    pub fn keeps(&self, promise: Promise) -> bool {
        match promise {
            Promise::OneHolder => self.holders().count() < 2,
            Promise::FencesGrow => !self.fence_went_back,
        }
    }

    /// Who believes to hold the lock.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Which> {
        let holds = |who: &Which| matches!(self.clients.get(*who), Client::Holds { .. });
        Which::ALL.into_iter().filter(holds)
    }

    /// Every step that is possible, and where it leads.
    pub fn steps(&self, setting: &Setting) -> Vec<(Step, Self)> {
        // Nobody comes to believe to hold the lock any more, and no fence is to come: nothing can be broken.
        let asks = |client: &Client| matches!(client, Client::Asks { .. });
        if self.granted >= GRANTS && !self.clients.iter().any(asks) {
            return Vec::new();
        }
        let mut candidates = vec![Step::Learn];
        for client in Which::ALL {
            candidates.push(Step::Hear { client });
            for server in Which::ALL {
                candidates.push(Step::Acquire { client, server });
                candidates.push(Step::Extend { client, server });
                candidates.push(Step::Release { client, server });
            }
        }
        for server in Which::ALL {
            candidates.extend([Step::Die { server }, Step::TakeOver { server }]);
            let Server { key, history, .. } = self.servers.get(server);
            for clock in 0..=setting.clocks_differ {
                let before = history.iter().filter(|before| *before != key);
                let kept = iter::once(key).chain(before);
                candidates.extend(kept.map(|&kept| Step::Begin { server, kept, clock }));
                candidates.push(Step::Join { server, clock });
            }
        }
        candidates.extend([Step::MovedAtOnce, Step::Expect, Step::Migrate, Step::ReadSlots]);
        candidates.push(Step::Tick);
        let possible = candidates.into_iter();
        possible.filter_map(|step| Some((step, self.after(step, setting)?))).collect()
    }

    /// The world after this step, if that is possible.
    fn after(&self, step: Step, setting: &Setting) -> Option<Self> {
        let next = match step {
            Step::Tick => self.tick(setting),
            Step::Acquire { client, server } => self.acquire(client, server, setting),
            Step::Hear { client } => self.hear(client, setting),
            Step::Extend { client, server } => self.extend(client, server, setting),
            Step::Release { client, server } => self.release(client, server, setting),
            Step::Learn => self.learn(setting),
            Step::Die { server } => self.die(server, setting),
            Step::Begin { server, kept, clock } => self.begin(server, kept, clock, setting),
            Step::Join { server, clock } => self.join(server, clock, setting),
            Step::TakeOver { server } => self.take_over(server, setting),
            Step::MovedAtOnce => self.moved_at_once(setting),
            Step::Expect => self.expect(setting),
            Step::Migrate => self.migrate(),
            Step::ReadSlots => self.read_slots(setting),
        }?;
        (next != *self).then(|| next.forgetting(setting))
    }

    /// Forgets what makes no difference any more, so that fewer worlds differ.
    fn forgetting(mut self, setting: &Setting) -> Self {
        for server in Which::ALL {
            let server = self.servers.get_mut(server);
            if setting.loss == Loss::Nothing || (server.is_up && self.died == setting.deaths) {
                server.history.clear();
            }
        }
        if setting.takeovers == Takeovers::Heard || self.may_take_over(setting) {
            self.lifted = None;
        }
        self
    }

    // Time.

    fn tick(&self, setting: &Setting) -> Option<Self> {
        let is_overdue =
            |(_, since): (Which, u8)| self.now >= since.saturating_add(setting.goes_on);
        if self.now >= setting.seconds || self.replaced.is_some_and(is_overdue) {
            return None;
        }
        let mut next = self.clone();
        next.now = self.now.saturating_add(1);
        for which in Which::ALL {
            next.servers.get_mut(which).tick(next.now, setting);
            let client = next.clients.get_mut(which);
            match *client {
                Client::Holds { until, .. } if next.now >= until => *client = Client::Idle,
                _ => {}
            }
        }
        Some(next)
    }

    /// Whether enough time has passed since a fence clock was lifted for another server to take over.
    fn may_take_over(&self, setting: &Setting) -> bool {
        let settled = |lifted: u8| self.now > lifted.saturating_add(setting.clocks_differ);
        match setting.takeovers {
            Takeovers::AtAnyTime => true,
            Takeovers::Settled | Takeovers::SettledOrHeard => self.lifted.is_none_or(settled),
            Takeovers::Heard => false,
        }
    }

    fn note_lift(&mut self, setting: &Setting) {
        if setting.takeovers != Takeovers::AtAnyTime {
            self.lifted = Some(self.now);
        }
    }

    // Clients.

    /// Whether a client that asks this server for the lock is not sent elsewhere.
    fn accepts(&self, which: Which) -> bool {
        let server = self.servers.get(which);
        let has_slot = match self.slot {
            Slot::None => true,
            Slot::At(home) => home == which,
            // Who asks for a key that has left, or for none, is sent on with `ASK`.
            Slot::Leaves(from) => {
                let former = self.servers.get(from);
                former.is_up && former.is_held(self.now) == (from == which)
            }
        };
        server.is_up && server.role == Role::Primary && has_slot
    }

    fn acquire(&self, client: Which, server: Which, setting: &Setting) -> Option<Self> {
        let is_idle = |client| matches!(self.clients.get(client), Client::Idle);
        // Of two who are nobody yet, and will have new names, it makes no difference which one asks.
        let is_like_alice =
            client == Which::Second && setting.owners == Owners::New && is_idle(Which::First);
        if !is_idle(client) || is_like_alice || self.granted >= GRANTS || !self.accepts(server) {
            return None;
        }
        let mut next = self.clone();
        let owner = match setting.owners {
            Owners::New => OwnerId(self.granted),
            Owners::Same => OwnerId(u8::from(client == Which::Second)),
        };
        next.about_to_grant(server, setting);
        let asked = next.servers.get_mut(server);
        let (answer, told) = asked.acquire(owner, self.now, setting);
        next.tell(server, told);
        let (fence, went_back) = match answer {
            Answer::Granted(fence) => {
                next.granted = self.granted.saturating_add(1);
                (fence, self.highest >= Some(fence))
            }
            // A retry; but not if somebody else was granted the lock since.
            Answer::Again(fence) => (fence, self.highest > Some(fence)),
            _ => return Some(next),
        };
        next.fence_went_back |= went_back;
        next.highest = self.highest.max(Some(fence));
        let grant = Grant { fence, owner };
        *next.clients.get_mut(client) = Client::Asks { grant, asked: self.now };
        match setting.answers {
            Answers::AtOnce => next.hear(client, setting),
            Answers::Late => Some(next),
        }
    }

    /// The holder counts on its lease from before it asked, by a clock of its own.
    fn hear(&self, client: Which, setting: &Setting) -> Option<Self> {
        let Client::Asks { grant, asked } = *self.clients.get(client) else { return None };
        let begins = if setting.is_without(Mistake::CountedFromAnswer) { asked } else { self.now };
        let until = begins.saturating_add(setting.ttl);
        let mut next = self.clone();
        *next.clients.get_mut(client) =
            if self.now < until { Client::Holds { grant, until } } else { Client::Idle };
        Some(next)
    }

    fn extend(&self, client: Which, server: Which, setting: &Setting) -> Option<Self> {
        let Client::Holds { grant, .. } = *self.clients.get(client) else { return None };
        if self.extended >= setting.extends || !self.accepts(server) {
            return None;
        }
        let mut next = self.clone();
        let asked = next.servers.get_mut(server);
        let (answer, told) = asked.extend((grant.owner, grant.fence), self.now, setting);
        next.tell(server, told);
        *next.clients.get_mut(client) = match answer {
            Answer::Extended => {
                next.extended = self.extended.saturating_add(1);
                Client::Holds { grant, until: self.now.saturating_add(setting.ttl) }
            }
            _ => Client::Idle,
        };
        Some(next)
    }

    fn release(&self, client: Which, server: Which, setting: &Setting) -> Option<Self> {
        let Client::Holds { grant, .. } = *self.clients.get(client) else { return None };
        if !self.accepts(server) {
            return None;
        }
        let mut next = self.clone();
        let asked = next.servers.get_mut(server);
        let (_, told) = asked.release((grant.owner, grant.fence), self.now, setting);
        next.tell(server, told);
        *next.clients.get_mut(client) = Client::Idle;
        Some(next)
    }

    // Replication.

    /// The replica that follows this server, if there is one, is told.
    fn tell(&mut self, server: Which, told: Option<Told>) {
        let follows = self.servers.get(server.other()).role == Role::Replica;
        if let (true, Some(link)) = (follows, &mut self.link) {
            link.extend(told);
        }
    }

    fn replica(&self) -> Option<Which> {
        let is_replica = |which: &Which| {
            let server = self.servers.get(*which);
            server.is_up && server.role == Role::Replica
        };
        Which::ALL.into_iter().find(is_replica)
    }

    fn learn(&self, setting: &Setting) -> Option<Self> {
        let (replica, told) = (self.replica()?, *self.link.as_ref()?.first()?);
        // Nobody sees what a replica has before it takes over. So it receives nothing until somebody could see it.
        if self.servers.get(replica.other()).is_up && setting.goes_on == 0 {
            return None;
        }
        let mut next = self.clone();
        next.link.as_mut()?.remove(0);
        next.servers.get_mut(replica).apply(told, self.now, setting);
        Some(next)
    }

    // What becomes of servers.

    /// Replicas do not die here: one that lags behind is no better off.
    fn die(&self, which: Which, setting: &Setting) -> Option<Self> {
        let server = self.servers.get(which);
        let is_primary = server.is_up && server.role == Role::Primary;
        // Who is replaced and goes on hears of its successor in the end, so that is there.
        let is_successor = self.replaced.is_some_and(|(former, _)| former != which);
        let is_moving = matches!(self.slot, Slot::Leaves(_));
        let is_needed = is_successor || (is_moving && setting.disturbed != Disturbed::ByDeaths);
        if !is_primary || is_needed || self.died >= setting.deaths {
            return None;
        }
        let mut next = self.clone();
        next.servers.get_mut(which).die();
        next.died = self.died.saturating_add(1);
        next.replaced = None;
        Some(next)
    }

    fn begin(
        &self,
        which: Which,
        kept: Option<Held>,
        clock: u8,
        setting: &Setting,
    ) -> Option<Self> {
        let other = self.servers.get(which.other());
        let server = self.servers.get(which);
        let is_replaced = self.slot == Slot::None && other.is_up && other.role == Role::Primary;
        // It has not what its successor was written.
        let lacks = server.role == Role::Replica && setting.loss == Loss::Nothing;
        let may_return = setting.returns == Returns::InEveryWay || self.slot != Slot::None;
        let is_told = server.is_up || is_replaced || lacks || !may_return;
        if is_told || !server.may_have(clock, setting) || !self.may_take_over(setting) {
            return None;
        }
        let mut next = self.clone();
        next.servers.get_mut(which).start(clock, kept, self.now, setting);
        next.note_lift(setting);
        // Its replica has to come anew, and has heard nothing of it yet.
        next.link = None;
        next.servers.get_mut(which.other()).has_heard = false;
        Some(next)
    }

    fn join(&self, which: Which, clock: u8, setting: &Setting) -> Option<Self> {
        let (server, primary) = (self.servers.get(which), self.servers.get(which.other()));
        let was_replaced = self.replaced.is_some_and(|(former, _)| former == which);
        let follows_nobody = server.role == Role::Replica && self.link.is_none();
        let may_join = if server.is_up {
            (was_replaced || follows_nobody) && clock == server.clock
        } else {
            server.may_have(clock, setting)
        };
        let has_primary = primary.is_up && primary.role == Role::Primary;
        if self.slot != Slot::None || !may_join || !has_primary {
            return None;
        }
        let mut next = self.clone();
        let primary = next.servers.get_mut(which.other());
        primary.expire(self.now, setting);
        let (key, told) = (primary.key, primary.broadcast());
        let server = next.servers.get_mut(which);
        if !server.is_up {
            server.start(clock, None, self.now, setting);
        }
        server.follow(key, self.now, setting);
        next.link = Some(told.into_iter().collect());
        next.replaced = None;
        Some(next)
    }

    fn take_over(&self, which: Which, setting: &Setting) -> Option<Self> {
        let (server, former) = (self.servers.get(which), self.servers.get(which.other()));
        let goes_on = former.is_up && former.role == Role::Primary;
        let has_all = self.link.as_ref().is_some_and(Vec::is_empty);
        let counts = matches!(setting.takeovers, Takeovers::SettledOrHeard | Takeovers::Heard);
        let has_heard = counts && server.has_heard;
        if !server.is_up
            || server.role != Role::Replica
            || (goes_on && setting.goes_on == 0)
            || (setting.loss == Loss::Nothing && !has_all)
            || !(has_heard || self.may_take_over(setting))
        {
            return None;
        }
        let mut next = self.clone();
        next.servers.get_mut(which).take_over(self.now, setting);
        next.note_lift(setting);
        next.link = None;
        if !goes_on {
            next.servers.get_mut(which.other()).role = Role::Replica;
        }
        next.replaced = goes_on.then_some((which.other(), self.now));
        Some(next)
    }
}
