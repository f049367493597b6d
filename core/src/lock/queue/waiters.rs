//! The ways into a queue, and out of it. A waiter that leaves waits no more; the caller must tell it.

use super::contended::Queue;
use super::places::Places;
use super::{
    Cause, Departed, Joined, Place, PlaceId, QueueId, Queues, Renewed, SlabIndex, Waiter, WaiterId,
    Waiting,
};
use crate::lock::decision::Wanted;
use crate::lock::ephemeral::Ephemeral;
use crate::lock::lease::Monotonic;
use crate::lock::name::{KeptName, Name, Names};
use crate::lock::owner::{KeptOwner, Owner};
use crate::lock::wait::{KeptWait, Ticket, WaitKind};
use slab::Slab;
use std::mem;
use std::rc::Rc;

impl<C> Queues<C> {
    /// An owner waits once for a lock: a second request for the same locks takes over the places of the first, and a
    /// request for other locks ends the first. A client that lost its connection and asks again must neither queue up
    /// behind its own former request nor be granted the lock twice.
    pub fn join<'n>(&mut self, names: impl Into<Names<'n>>, waiter: Waiter<C>) -> Joined<C> {
        let names = names.into();
        let formers = self.formers(names, waiter.owner.as_owner().as_bytes());
        match formers[..] {
            [] => Joined::Queued(self.append(names, waiter)),
            [former] if self.is_for(former, names) => self.replace(former, waiter),
            _ => {
                let given_up = formers.into_iter().filter_map(|id| self.leave(id)).collect();
                Joined::Anew(self.append(names, waiter), given_up)
            }
        }
    }

    /// The requests of this owner that wait for any of these locks.
    fn formers(&self, names: Names<'_>, owner: &[u8]) -> Vec<WaiterId> {
        let places = names.iter().filter_map(|name| self.waiting_as(self.id_of(name)?, owner));
        let mut formers: Vec<_> = places.collect();
        formers.sort_unstable();
        formers.dedup();
        formers
    }

    /// Puts the new request in the places of the former, with the time waited so far.
    fn replace(&mut self, former: WaiterId, waiter: Waiter<C>) -> Joined<C> {
        let Some(waiting) = self.waiters.get_mut(former.0.get()) else {
            return Joined::Queued(former);
        };
        let since = waiting.waiter.since;
        let (kind, share) = (waiter.wait.kind(), waiter.share);
        let left = mem::replace(&mut waiting.waiter, Waiter { since, ..waiter });
        self.channels.remove(former, left.wait.channel());
        self.channels.add(former, waiting.waiter.wait.channel_mut());
        self.expect_patience(former);
        if kind != left.wait.kind() {
            self.count(former, left.wait.kind(), usize::saturating_sub);
            self.count(former, kind, usize::saturating_add);
            if kind == WaitKind::Blocked {
                self.see_connections(former);
            }
        }
        if share != left.share {
            // The waiter may be admitted with its new share.
            for queue in self.queues_of(former) {
                self.mark_queue(queue, Cause::Due);
            }
        }
        Joined::InPlaceOf(former, left)
    }

    /// Keeps the places of an owner that asks again for its ticket, for the same locks and with the same share, until
    /// the ticket would end. Nearly every request for a ticket ends here, and nothing but the place changes.
    pub fn renew<'n>(
        &mut self,
        names: impl Into<Names<'n>>,
        wanted: &Wanted<'_>,
        ticket: Ticket<'_>,
        client: u64,
        bound_to: Option<Ephemeral>,
        now: Monotonic,
    ) -> Renewed {
        let names = names.into();
        let owner = wanted.owner.as_bytes();
        let former = self.id_of(names.first).and_then(|id| self.waiting_as(id, owner));
        let former = former.filter(|&id| self.is_for(id, names));
        let Some((id, waiting)) =
            former.and_then(|id| Some((id, self.waiters.get_mut(id.0.get())?)))
        else {
            return Renewed::No;
        };
        match &mut waiting.waiter {
            Waiter { wait: KeptWait::Ticket(kept), share, ttl, gives_up, ephemeral, .. }
                if *share == wanted.share =>
            {
                (*ttl, *gives_up) = (wanted.ttl, Some(ticket.ends(now)));
                *ephemeral = bound_to.map(Box::new);
                (kept.lasts, kept.client) = (ticket.lasts, client);
                if kept.channel.as_deref() != ticket.channel {
                    self.channels.remove(id, kept.channel.as_ref());
                    kept.channel = ticket.channel.map(Rc::from);
                    self.channels.add(id, kept.channel.as_mut());
                }
            }
            _ => return Renewed::No,
        }
        let asked_at = waiting.asked_at;
        self.expect_patience(id);
        let is_as_before =
            self.waiters.get(id.0.get()).is_some_and(|waiting| waiting.asked_at == asked_at);
        if is_as_before { Renewed::Yes } else { Renewed::Sooner }
    }

    fn append(&mut self, names: Names<'_>, waiter: Waiter<C>) -> WaiterId {
        let (kind, since) = (waiter.wait.kind(), waiter.since);
        let first = Places::One(PlaceId(self.places.vacant_key().into()));
        let earlier = self.newest;
        let waiting = Waiting { waiter, places: first, asked_at: None, earlier, later: None };
        grow(&mut self.waiters);
        let id = WaiterId(self.waiters.insert(waiting).into());
        match earlier.and_then(|earlier| self.waiters.get_mut(earlier.0.get())) {
            Some(earlier) => earlier.later = Some(id),
            None => self.oldest = Some(id),
        }
        self.newest = Some(id);
        if let Some(waiting) = self.waiters.get_mut(id.0.get()) {
            self.channels.add(id, waiting.waiter.wait.channel_mut());
        }
        self.latest_monotonic = self.latest_monotonic.max(since);
        let place = self.take_place(names.first, id);
        if !names.also.is_empty() {
            let also = names.iter().skip(1).map(|name| self.take_place(name, id));
            let places = std::iter::once(place).chain(also).collect();
            if let Some(waiting) = self.waiters.get_mut(id.0.get()) {
                waiting.places = Places::several(places);
            }
        }
        self.count(id, kind, usize::saturating_add);
        self.expect_patience(id);
        if kind == WaitKind::Blocked {
            self.see_connections(id);
        }
        id
    }

    /// Marks locks for which the first connection waits: the look moves them to the front of the routine.
    fn see_connections(&mut self, id: WaiterId) {
        for queue in self.queues_of(id) {
            let is_first = |queue: &Queue| {
                queue.tickets > 0 && queue.length == queue.tickets.saturating_add(1)
            };
            if self.queues.get(queue.0.get()).is_some_and(is_first) {
                self.mark_queue(queue, Cause::Due);
            }
        }
    }

    fn take_place(&mut self, name: Name<'_>, waiter: WaiterId) -> PlaceId {
        let queue = self.id_of(name).unwrap_or_else(|| self.open(name));
        let tail = self.queues.get(queue.0.get()).and_then(|queue| queue.tail);
        let place = Place { waiter, queue, before: tail, behind: None };
        grow(&mut self.places);
        let id = PlaceId(self.places.insert(place).into());
        match tail.and_then(|tail| self.places.get_mut(tail.0.get())) {
            Some(last) => last.behind = Some(id),
            None => self.with_queue(queue, |queue| queue.head = Some(id)),
        }
        self.with_queue(queue, |queue| queue.tail = Some(id));
        self.index(queue, id);
        id
    }

    /// Opens a queue. It is marked: nobody has looked at the key for its waiters yet.
    fn open(&mut self, name: Name<'_>) -> QueueId {
        let name = KeptName::from(name);
        let (db, key) = (name.db, Rc::clone(&name.key));
        grow(&mut self.queues);
        let id = QueueId(self.queues.insert(Queue::new(name)).into());
        self.names.insert(db, key, id);
        self.rechecks.add(&mut self.queues, id, self.latest_monotonic);
        self.mark_queue(id, Cause::Due);
        id
    }

    /// Counts one waiter of this kind more, or fewer.
    fn count(&mut self, id: WaiterId, kind: WaitKind, change: impl Fn(usize, usize) -> usize) {
        match kind {
            WaitKind::Blocked => {
                let places =
                    self.waiters.get(id.0.get()).map_or(0, |waiting| waiting.places.count());
                self.blocked = change(self.blocked, 1);
                self.blocked_places = change(self.blocked_places, places);
            }
            WaitKind::Ticket => {
                for queue in self.queues_of(id) {
                    self.tickets = change(self.tickets, 1);
                    self.with_queue(queue, |queue| queue.tickets = change(queue.tickets, 1));
                }
            }
        }
    }

    /// Takes a waiter out, wherever it stands. `None` if it has left already.
    pub fn leave(&mut self, id: WaiterId) -> Option<Departed<C>> {
        let Waiting { waiter, places, mut asked_at, earlier, later } =
            self.waiters.try_remove(id.0.get())?;
        match earlier.and_then(|earlier| self.waiters.get_mut(earlier.0.get())) {
            Some(neighbour) => neighbour.later = later,
            None => self.oldest = later,
        }
        match later.and_then(|later| self.waiters.get_mut(later.0.get())) {
            Some(neighbour) => neighbour.earlier = earlier,
            None => self.newest = earlier,
        }
        self.patience.set(id, &mut asked_at, None);
        self.channels.remove(id, waiter.wait.channel());
        let name = self.name_at(places.first()?)?.clone();
        let kind = waiter.wait.kind();
        if kind == WaitKind::Blocked {
            self.blocked = self.blocked.saturating_sub(1);
            self.blocked_places = self.blocked_places.saturating_sub(places.count());
        }
        for &place in places.all() {
            self.give_up_place(place, &waiter.owner, kind);
        }
        Some(Departed { name, waiter })
    }

    fn give_up_place(&mut self, id: PlaceId, owner: &KeptOwner, kind: WaitKind) {
        let Some(Place { queue: queue_id, before, behind, .. }) =
            self.places.try_remove(id.0.get())
        else {
            return;
        };
        match before.and_then(|before| self.places.get_mut(before.0.get())) {
            Some(neighbour) => neighbour.behind = behind,
            None => self.with_queue(queue_id, |queue| queue.head = behind),
        }
        match behind.and_then(|behind| self.places.get_mut(behind.0.get())) {
            Some(neighbour) => neighbour.before = before,
            None => self.with_queue(queue_id, |queue| queue.tail = before),
        }
        if kind == WaitKind::Ticket {
            self.tickets = self.tickets.saturating_sub(1);
        }
        let Some(queue) = self.queues.get_mut(queue_id.0.get()) else { return };
        if kind == WaitKind::Ticket {
            queue.tickets = queue.tickets.saturating_sub(1);
        }
        queue.unindex(owner);
        if queue.head.is_none() {
            self.close(queue_id);
        } else if before.is_none() {
            // Another waiter is the head now, and may be admitted although the former head was not.
            self.mark_queue(queue_id, Cause::Due);
        }
    }

    /// Takes out the owner of a ticket that does not want the lock any more.
    pub fn leave_by_ticket(&mut self, name: Name<'_>, owner: Owner<'_>) -> Option<Departed<C>> {
        let waiter = self.waiting_as(self.id_of(name)?, owner.as_bytes())?;
        if self.waiter(waiter)?.wait.kind() != WaitKind::Ticket {
            return None;
        }
        self.leave(waiter)
    }

    pub fn leave_all(&mut self) -> Vec<Departed<C>> {
        let all = std::mem::replace(
            self,
            Self { latest: self.latest, latest_monotonic: self.latest_monotonic, ..Self::new() },
        );
        let name_at = |id: PlaceId| {
            let place = all.places.get(id.0.get())?;
            Some(all.queues.get(place.queue.0.get())?.name.clone())
        };
        let left = |Waiting { waiter, places, .. }: Waiting<C>| {
            let name = places.first().and_then(name_at)?;
            Some(Departed { name, waiter })
        };
        all.waiters.into_iter().filter_map(|(_, waiting)| left(waiting)).collect()
    }

    pub fn leave_first(&mut self, name: Name<'_>) -> Option<Departed<C>> {
        let (_, queue) = self.queue_named(name)?;
        let (first, _) = self.waiting_at(queue.head?)?;
        self.leave(first)
    }
}

/// When to check each waiter's patience. Blocked waiters come first: they get a reply, and a ticket's owner gets none.
impl<C> Queues<C> {
    pub(super) fn first_patience(&self, kind: WaitKind) -> Option<(Monotonic, WaiterId)> {
        let first = ((kind, Monotonic::default()), WaiterId(SlabIndex::FIRST));
        let ((of, end), id) = self.patience.first_from(first)?;
        (of == kind).then_some((end, id))
    }

    fn first_impatient(&self, now: Monotonic) -> Option<(Monotonic, WaiterId)> {
        let mut kinds = [WaitKind::Blocked, WaitKind::Ticket].into_iter();
        kinds.find_map(|kind| self.first_patience(kind).filter(|(end, _)| *end <= now))
    }

    pub fn is_patience_due(&self, now: Monotonic) -> bool {
        self.first_impatient(now).is_some()
    }

    /// Takes the first waiter whose patience may have ended by now.
    pub(super) fn take_impatient(&mut self, now: Monotonic) -> Option<(Monotonic, WaiterId)> {
        let (asked_at, id) = self.first_impatient(now)?;
        self.patience.set(id, &mut self.waiters.get_mut(id.0.get())?.asked_at, None);
        Some((asked_at, id))
    }

    /// Makes sure that this waiter's patience is checked no later than it ends.
    pub(super) fn expect_patience(&mut self, id: WaiterId) {
        let Some(Waiting { waiter, asked_at, .. }) = self.waiters.get_mut(id.0.get()) else {
            return;
        };
        let kind = waiter.wait.kind();
        let end = waiter.gives_up.map(|end| (kind, end));
        let is_in_time = |at: (WaitKind, _)| at.0 == kind && end.is_some_and(|end| at <= end);
        if !asked_at.is_some_and(is_in_time) {
            self.patience.set(id, asked_at, end);
        }
    }
}

/// The first entry of a slab from this index on, and its index. Behind a large gap, which a crowd has left, only an index.
pub(crate) fn from_index<T>(slab: &Slab<T>, index: usize) -> Option<(usize, Option<&T>)> {
    const GAP: usize = 500;
    let mut places = index..slab.capacity().min(index.saturating_add(GAP));
    let last = places.clone().next_back()?;
    Some(places.find_map(|index| Some((index, Some(slab.get(index)?)))).unwrap_or((last, None)))
}

/// Makes a full slab larger by a quarter. By itself it would double, and half of it could stay empty.
fn grow<T>(slab: &mut Slab<T>) {
    if slab.len() == slab.capacity() {
        slab.reserve_exact(slab.len().div_euclid(4).max(4));
    }
}
