//! The hand-off: a lock passes to the oldest waiter in one step.
//!
//! Commands settle the lock they changed before they return, so that release and grant are one
//! transaction for replicas and the append-only file. Everything else (deletion by others, expiry, a flush)
//! only marks the lock, and [`work`] settles it right after, in the timer, before other clients have their next turn.
//! Writing inside a notification would put the grant before the deletion that made it possible, and replicas
//! would lose the lock.

use super::api::api;
use super::authority::{self, Account, Authority};
use super::key::{Key, Mode, OwnedString};
use super::park::{self, Outcome};
use super::state::STATE;
use super::witness::{Happened, Witness};
use super::{alarm, clock, config, eviction, fence_broadcast, slots};
use leasehold_core::command::{Change, Error};
use leasehold_core::lock::{
    self, Cause, Fence, Grant, KeptOwner, Left, Look, Lost, Marked, Moment, Monotonic, Name, Next,
    Ownership, Proof, Released, Settled,
};
use leasehold_core::observe::{Given, Lock};
use leasehold_core::plant::{Bug, planted};
use redis_module::raw::RedisModuleCtx;

/// A grant that nobody heard of.
#[derive(Debug)]
pub(super) struct GiveBack {
    pub(super) name: Name,
    pub(super) owner: KeptOwner,
    pub(super) fence: Fence,
    /// When to try.
    pub(super) due: Monotonic,
}

impl GiveBack {
    pub(super) fn is_of(&self, db: i32, key: &[u8]) -> bool {
        self.name.db == db && *self.name.key == *key
    }
}

/// How long to wait before asking again whether the module may write.
const PAUSE_MILLIS: u64 = 10;

/// The same where it is refused, which may last.
const REFUSAL_MILLIS: u64 = 100;

/// How many waiters are told, and how many locks settled for each cause, before other clients have their turn
/// again.
const AT_ONCE: usize = 500;

/// How many locks are looked at for each cause. Nearly all of them are held as before, and a look costs a tenth of a
/// hand-off.
const LOOKS_AT_ONCE: usize = 5_000;

/// Does what is due: sends away those whose patience has ended, takes back what nobody heard of, settles what
/// is dirty. Called from contexts of the module's own, whose selected database is nobody's.
pub(super) fn work(ctx: *mut RedisModuleCtx) {
    STATE.movements.look();
    let ended = STATE.with_queues(|queues| queues.wake(clock::both(), AT_ONCE));
    for Left { name, waiter } in ended {
        park::answer(Lock { db: name.db, key: &name.key }, waiter, Outcome::GaveUp);
    }
    let now = clock::monotonic();
    for grant in STATE.take_given_back(|grant| grant.due <= now) {
        if select(ctx, grant.name.db) {
            take_back(ctx, grant);
        }
    }
    eviction::work(ctx);
    // Each cause has its own share of the turn, so that neither keeps the other waiting.
    serve(ctx, Cause::Due);
    serve(ctx, Cause::Suspected);
    fence_broadcast::broadcast(ctx);
    alarm::set(ctx);
}

/// Looks at the locks that are marked for this cause, and settles those that need it.
fn serve(ctx: *mut RedisModuleCtx, cause: Cause) {
    let mut settled = 0;
    for _ in 0..LOOKS_AT_ONCE {
        if settled == AT_ONCE {
            return;
        }
        let Some(marked) = STATE.with_queues(|queues| queues.take_marked(cause)) else { return };
        let Marked { name, ownership } = marked;
        if select(ctx, name.db)
            && settle(ctx, name.db, &name.key, Account::Own, ownership) == Done::More
        {
            settled = settled.saturating_add(1);
        }
    }
}

/// What those are told who wait at a server that became a replica. In a cluster it is what its clients heed by
/// themselves: they ask again, and are sent to the new primary.
pub(super) fn demoted() -> Error {
    if STATE.in_cluster.get() { Error::GrantedElsewhere } else { Error::Demoted }
}

/// Takes note of a grant to be taken back; not at once, because the server is in the middle of ending a
/// connection.
pub(super) fn give_back(ctx: *mut RedisModuleCtx, grant: GiveBack) {
    STATE.give_back(grant);
    alarm::set(ctx);
}

/// What it took to settle a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Done {
    /// One look: the lock is held, as it was.
    Look,
    More,
}

/// Gives the lock to whoever is next, until it is held or nobody waits. The database is the selected one.
///
/// The key is looked at first. Only if there is something to do is the server asked whether the module may
/// write.
pub(super) fn settle(
    ctx: *mut RedisModuleCtx,
    db: i32,
    key: &[u8],
    account: Account,
    ownership: Ownership,
) -> Done {
    let name = OwnedString::new(ctx, key);
    let authority = match authority::of_the_server(ctx) {
        Authority::Yes => match ownership {
            Ownership::Ours => Authority::Yes,
            Ownership::InDoubt => authority::to_read(ctx, name.string()),
        },
        _ => authority::over(ctx, name.string(), account),
    };
    if authority == Authority::Yes && look(ctx, db, key, &name) {
        return Done::Look;
    }
    let authority = match authority {
        Authority::Yes => authority::over(ctx, name.string(), account),
        refusal => refusal,
    };
    match authority {
        Authority::Yes => hand_on(ctx, db, key, &name),
        Authority::NotNow => postpone(db, key, PAUSE_MILLIS),
        Authority::Refused => postpone(db, key, REFUSAL_MILLIS),
        Authority::Replica => send_away(db, key, demoted()),
        Authority::NotOurs => {
            STATE.movements.has_gone();
            send_away(db, key, Error::GrantedElsewhere);
        }
        Authority::ClusterDown => send_all_away(Error::GrantedElsewhere),
    }
    Done::More
}

/// Whether the lock is held, as nearly every lock is that somebody names: then nothing is to be done.
fn look(ctx: *mut RedisModuleCtx, db: i32, key: &[u8], name: &OwnedString) -> bool {
    let opened = Key::open(ctx, name.string(), Mode::Look);
    let (stored, now) = (opened.stored(), clock::both());
    let look = STATE.with_queues(|queues| {
        STATE.with_fences(|fences| queues.look(db, key, stored, now, fences))
    });
    drop(opened);
    match look {
        Look::ToSettle => false,
        Look::Held { lost } => {
            let lock = Lock { db, key };
            let witness = Witness { ctx, name: name.string(), lock, now: now.wall };
            if let Some(Lost { seen, by }) = &lost {
                witness.lost(seen, *by);
            }
            true
        }
    }
}

/// Carries out what the queue decides.
fn hand_on(ctx: *mut RedisModuleCtx, db: i32, key: &[u8], name: &OwnedString) {
    let (lock, max_ttl) = (Lock { db, key }, config::limits().max_ttl);
    slots::prepare();
    eviction::put_back_first(ctx, name.string(), lock);
    // Each turn but the last takes one out of the queue.
    loop {
        let mut opened = Key::open(ctx, name.string(), Mode::Write);
        let (stored, now) = (opened.stored(), clock::both());
        if stored.is_free(now.wall) {
            slots::about_to_grant(key);
        }
        let held_until = stored.seen().and_then(|(_, deadline)| deadline);
        let Settled { lost, next } = STATE.with_queues(|queues| {
            STATE.with_fences(|fences| queues.settle(db, key, stored, now, max_ttl, fences))
        });
        let witness = Witness { ctx, name: name.string(), lock, now: now.wall };
        if let Some(Lost { seen, by }) = &lost {
            witness.lost(seen, *by);
        }
        match next {
            Next::Held | Next::Nobody => return,
            Next::GaveUp(waiter) => park::answer(lock, waiter, Outcome::GaveUp),
            Next::NoFenceLeft(waiter) => {
                park::answer(lock, waiter, Outcome::Refused(Error::NoFenceLeft));
            }
            Next::Again { waiter, fence_number, longer } => {
                STATE.heard(fence_number);
                let outcome = match opened.apply(longer.map_or(Change::Nothing, Change::Lease)) {
                    Ok(()) => {
                        witness.command(&Happened::Again { longer }, Fence::new(fence_number));
                        let name = Name { db, key: key.into() };
                        Outcome::Again { name, fence_number, deadline: longer.or(held_until) }
                    }
                    Err(error) => Outcome::Refused(error),
                };
                park::answer(lock, waiter, outcome);
            }
            Next::Grant { waiter, fence, deadline } => {
                let grant = Grant { owner: waiter.owner.as_owner(), fence, deadline };
                let outcome = match opened.apply(Change::Grant(grant)) {
                    Ok(()) => {
                        witness.grant(&grant, Given::HandedOff);
                        let name = Name { db, key: key.into() };
                        Outcome::Granted { name, fence, deadline }
                    }
                    Err(error) => Outcome::Refused(error),
                };
                park::answer(lock, waiter, outcome);
            }
        }
    }
}

fn postpone(db: i32, key: &[u8], millis: u64) {
    let now = clock::now();
    STATE.with_queues(|queues| queues.postpone(db, key, now, millis));
}

fn send_away(db: i32, key: &[u8], error: Error) {
    while let Some(Left { waiter, .. }) = STATE.with_queues(|queues| queues.leave_first(db, key)) {
        park::answer(Lock { db, key }, waiter, Outcome::Refused(error));
    }
}

/// Sends everybody away: this server no longer decides.
pub(super) fn send_all_away(error: Error) {
    for Left { name, waiter } in STATE.with_queues(|queues| queues.leave_all()) {
        park::answer(Lock { db: name.db, key: &name.key }, waiter, Outcome::Refused(error));
    }
}

/// Takes back what nobody heard of before a command looks at the lock: otherwise its owner could come back, be
/// told that it holds the lock, and lose it. The database is the selected one.
pub(super) fn take_back_first(ctx: *mut RedisModuleCtx, db: i32, key: &[u8]) {
    for grant in STATE.take_given_back(|grant| grant.is_of(db, key)) {
        take_back(ctx, grant);
    }
}

fn take_back(ctx: *mut RedisModuleCtx, grant: GiveBack) {
    let name = OwnedString::new(ctx, &grant.name.key);
    match authority::over(ctx, name.string(), Account::Own) {
        Authority::Yes => {}
        Authority::NotNow | Authority::Refused => {
            let due = clock::monotonic().plus_millis(PAUSE_MILLIS);
            return STATE.give_back(GiveBack { due, ..grant });
        }
        // Whoever decides now has the grant too, if it got that far; the lease ends it.
        Authority::Replica | Authority::NotOurs | Authority::ClusterDown => return,
    }
    let Name { db, ref key } = grant.name;
    let mut opened = Key::open(ctx, name.string(), Mode::Write);
    let now: Moment = clock::now();
    let witness = Witness { ctx, name: name.string(), lock: Lock { db, key }, now };
    if eviction::put_back(&mut opened, &witness).is_err() {
        return;
    }
    let hold = STATE.with_fences(|fences| opened.stored().hold(now, fences)).ok().flatten();
    let proof = Proof { owner: grant.owner.as_owner(), fence: Some(grant.fence.number()) };
    if lock::release(hold.as_ref(), &proof) == Released::Released
        && opened.apply(Change::Free).is_ok()
    {
        drop(opened);
        witness.taken_back(grant.fence);
        STATE.with_queues(|queues| queues.changed(db, key));
        let _done = settle(ctx, db, key, Account::Own, Ownership::Ours);
    }
}

/// Makes the lock's database the selected one. Never in the context of a client's command: it would stay
/// selected for the client.
pub(super) fn select(ctx: *mut RedisModuleCtx, db: i32) -> bool {
    let db = if planted(Bug::WrongDatabase) { 0 } else { db };
    // SAFETY: takes a valid context and a number.
    unsafe { api!(RedisModule_SelectDb)(ctx, db) == super::guard::status(true) }
}
