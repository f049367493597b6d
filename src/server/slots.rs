//! Slots of a cluster that come and go.
//!
//! A slot that **comes** brings locks that another node granted until a moment ago, and locks that are free and
//! leave no trace. Whatever is granted here from then on must have a higher fence than both (L2), although that node's
//! clock may be ahead of ours by up to the margin. So the fence clock is lifted by the margin at each moment from which on
//! this node may grant locks that another one granted before, and at no other: a node that gives slots away must not
//! be ahead of its own clock, or the margin of the one that gets them would be used up.
//!
//! A slot that **goes** takes locks with it for which clients wait here. They are looked at right away, found to be
//! somebody else's, and sent on: see [`authority`](super::authority).
//!
//! ```text
//!                   by hand                                   at once (Redis 8.4 and Valkey 9 on)
//!   comes    ASKING: a client was sent here, although       the import is completed
//!            the slot is not ours yet
//!            CLUSTER SETSLOT … NODE, with our name
//!            CLUSTER SETSLOT … STABLE: it stays, but the
//!            other node may have granted locks of it
//!            CLUSTER ADDSLOTS
//!   goes     any other CLUSTER SETSLOT or …SLOTS            any other event
//!   told by  the commands themselves, which the             the server, whose events mean one thing
//!            lookout sees                                    to Redis and another to Valkey
//! ```

use super::api::api;
use super::soon::Soon;
use super::state::STATE;
use super::{alarm, clock, guard, lifecycle, product, subscription};
use crate::lock::{Moment, Monotonic, Queues};
use crate::observe::Observer;
use crate::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_void;
use std::slice;

/// `ATOMIC_SLOT_MIGRATION` of Valkey, for which the bindings have no name.
const VALKEY_SLOT_MIGRATION: u64 = 19;
const VALKEY_IMPORT_COMPLETED: u64 = 4;

/// Longer than Valkey waits for replicas as a rule.
const MILLIS_UNTIL_EXECUTED: u64 = 5_000;

/// How long the name of a node is.
const ID_LENGTH: usize = 40;

/// Of Valkey: the module can follow when slots are moved at once. Without it Valkey refuses to move them.
pub(super) const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// What a command, or an event, means for slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Movement {
    None,
    /// Locks that another node may have granted may be granted here.
    Comes,
    /// Locks may have gone, or their keys.
    Goes,
    Both,
    /// The same, but perhaps only after a while: Valkey tells its replicas first.
    BothLater,
}

/// Of the words of a command. `us` says the name of this node, and is rarely asked.
pub(super) fn movement<'w>(
    mut words: impl Iterator<Item = &'w [u8]>,
    us: impl FnOnce() -> &'w [u8],
) -> Movement {
    let name = words.next().unwrap_or_default();
    if is(name, b"asking") {
        return Movement::Comes;
    }
    if is(name, b"sflush") {
        return Movement::Goes;
    }
    if !is(name, b"cluster") {
        return Movement::None;
    }
    let subcommand = words.next().unwrap_or_default();
    if is(subcommand, b"setslot") {
        let (what, whose) = (words.nth(1).unwrap_or_default(), words.next().unwrap_or_default());
        let is_ours = is(what, b"stable") || (is(what, b"node") && is(whose, us()));
        return if is_ours { Movement::BothLater } else { Movement::Goes };
    }
    if is(subcommand, b"addslots") || is(subcommand, b"addslotsrange") {
        return Movement::Both;
    }
    // `flushslot` is of Valkey, and deletes the keys of one slot.
    let goes: [&[u8]; 4] = [b"delslots", b"delslotsrange", b"flushslots", b"flushslot"];
    if goes.iter().any(|command| is(subcommand, command)) {
        return Movement::Goes;
    }
    Movement::None
}

fn is(word: &[u8], known: &[u8]) -> bool {
    word.eq_ignore_ascii_case(known)
}

/// The name by which the nodes of the cluster know this one.
pub(super) fn us<'s>() -> &'s [u8] {
    // SAFETY: takes nothing; in a cluster, a name that lives as long as the server.
    let us = unsafe { api!(RedisModule_GetMyClusterID)() };
    // SAFETY: null outside a cluster; else so many characters.
    if us.is_null() { &[] } else { unsafe { slice::from_raw_parts(us.cast(), ID_LENGTH) } }
}

/// A command is heeded before it is executed; what is marked is settled after it.
pub(super) fn heed(ctx: *mut RedisModuleCtx, movement: Movement) {
    if matches!(movement, Movement::Comes | Movement::Both | Movement::BothLater)
        && !planted(Bug::SlotDoesNotLift)
    {
        lifecycle::raise_fences();
    }
    if movement == Movement::BothLater {
        STATE.movements.came.set(Some(clock::now()));
    }
    if matches!(movement, Movement::Goes | Movement::Both | Movement::BothLater) {
        STATE.movements.looks.want();
        alarm::set(ctx);
    }
}

/// What was heard of slots and is to be dealt with a little later.
pub(super) struct Movements {
    /// All locks are to be looked at.
    looks: Soon,
    /// When a slot was last about to come.
    came: Cell<Option<Moment>>,
}

impl Movements {
    pub(super) const fn new() -> Self {
        Self { looks: Soon::new(), came: Cell::new(None) }
    }

    pub(super) fn reset(&self) {
        self.looks.reset();
        self.came.set(None);
    }

    /// When to look at all locks. At once, but not each time that anybody names such a command: that is heard before
    /// the server asks whether they may.
    pub(super) fn due(&self, now: Monotonic) -> Option<Monotonic> {
        self.looks.due(now)
    }

    /// Marks all locks, if it is time to.
    pub(super) fn look(&self) {
        if self.looks.take(clock::monotonic()) {
            STATE.with_observer(Observer::doubt_grants);
            STATE.with_queues(Queues::doubt_all_slots);
        }
    }

    /// A command may be executed some time after it was heard: queued in a transaction, or held back by Valkey until
    /// the replicas know. The other node may grant locks until then.
    pub(super) fn goes_on(&self) {
        let now = clock::now();
        // Also over if the clock was set back.
        let is_late = |came: &Moment| now < *came || now > came.plus_millis(MILLIS_UNTIL_EXECUTED);
        match self.came.get() {
            Some(came) if is_late(&came) => self.came.set(None),
            Some(_) if planted(Bug::SlotDoesNotLift) => {}
            Some(_) => lifecycle::raise_fences(),
            None => {}
        }
    }
}

/// Subscribes to slots that are moved at once, where the server moves them so.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) {
    let (id, callback): (u64, raw::RedisModuleEventCallback) = if product::is_valkey(ctx) {
        (VALKEY_SLOT_MIGRATION, Some(moved_by_valkey))
    } else {
        (raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION, Some(moved_by_redis))
    };
    subscription::to_server_event(ctx, id, callback);
}

unsafe extern "C" fn moved_by_redis(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _info: *mut c_void,
) {
    let completed = raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED;
    guard::event("slots-moved", || heed(ctx, at_once(stage == completed)));
}

unsafe extern "C" fn moved_by_valkey(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _info: *mut c_void,
) {
    guard::event("slots-moved", || heed(ctx, at_once(stage == VALKEY_IMPORT_COMPLETED)));
}

/// Slots begin to come or go, have come or gone, or stay after all: it matters only when they have come, because until
/// then the node grants nothing.
const fn at_once(has_come: bool) -> Movement {
    if has_come { Movement::Both } else { Movement::Goes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: &[u8] = b"0123456789abcdef0123456789abcdef01234567";

    #[track_caller]
    fn assert_means(command: &str, expected: Movement) {
        assert_eq!(movement(command.split(' ').map(str::as_bytes), || US), expected, "{command}");
    }

    #[test]
    fn commands_that_move_slots_are_told_from_those_that_ask() {
        let us = String::from_utf8_lossy(US);
        assert_means("ASKING", Movement::Comes);
        assert_means("cluster addslots 1 2", Movement::Both);
        assert_means("CLUSTER ADDSLOTSRANGE 1 2", Movement::Both);
        assert_means("cluster delslots 1", Movement::Goes);
        assert_means("cluster delslotsrange 1 2", Movement::Goes);
        assert_means("cluster FlushSlots", Movement::Goes);
        assert_means("cluster flushslot 1", Movement::Goes);
        assert_means("SFLUSH 1 2", Movement::Goes);
        assert_means(&format!("CLUSTER SETSLOT 7 node {us}"), Movement::BothLater);
        assert_means("CLUSTER SETSLOT 7 STABLE", Movement::BothLater);
        assert_means("CLUSTER SETSLOT 7 NODE somebodyelse", Movement::Goes);
        assert_means(&format!("CLUSTER SETSLOT 7 IMPORTING {us}"), Movement::Goes);
        assert_means(&format!("CLUSTER SETSLOT 7 MIGRATING {us}"), Movement::Goes);
        assert_means("CLUSTER SETSLOT", Movement::Goes);
        for command in ["", "SET k v", "cluster", "cluster slots", "cluster nodes", "node setslot"]
        {
            assert_means(command, Movement::None);
        }
    }
}
