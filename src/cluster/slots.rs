//! Cluster slots that come to this node and leave it.
//!
//! A slot that **comes** brings locks that another node has just granted, and released locks that leave no trace.
//! Later grants on this node must have higher fences than both (L2), although the other node's clock may be ahead of
//! ours by up to the margin. So the fence clock is lifted by the margin for slots that came, and only for those: a
//! node that gives slots away must not be ahead of its own clock, because that would use up the margin of the
//! receiving node.
//!
//! The filter sees the commands that move slots before the server checks their permissions. So a command alone proves
//! nothing. A slot is **expected** once such a command names it while the server does not serve it. What counts is
//! whether the server serves the slot later:
//!
//! ```text
//!   CLUSTER SETSLOT n IMPORTING         is n served here,      no     n is expected
//!   CLUSTER SETSLOT n NODE <us>    ──►  and not being        ──────►   │
//!   CLUSTER SETSLOT n STABLE            migrated? (RM_Call)            │ a lock may be granted
//!   CLUSTER ADDSLOTS(RANGE) n             │ yes                        │ in n, or n is settled
//!                                         ▼                            ▼
//!                              no slot can come by this       the fence clock is lifted
//! ```
//!
//! Open slots are expected too: slots being imported, where this server grants locks to clients that send `ASKING`,
//! and slots being migrated, where the other node may grant locks before the migration is cancelled. `CLUSTER NODES`
//! says which slots are open and which are settled. It is read before the first grant after a start or a role change,
//! shortly after each command that moves slots, and shortly after each grant in an expected slot. Once an expected
//! slot is settled on this server, the fence clock is lifted for the last time, and the slot is no longer expected.
//!
//! Slots that are moved **at once** (atomic slot migration, Redis 8.4 and Valkey 9 on) come with a server event, so
//! the server has allowed the move. Then the fence clock is lifted immediately.
//!
//! A slot that **leaves** takes locks with it that clients wait for here. The module looks at these locks immediately,
//! finds that another node owns them, and redirects their waiters: see [`authority`].

use super::slot_probe::{self, SlotProbe};
use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, api, context, server_flavor, subscription};
use crate::replication::fence_clock;
use crate::throttle::Throttle;
use crate::{authority, clock, guard};
use leasehold_core::cluster::{self, OwnSlots, Said, Slot, SlotSet};
use leasehold_core::lock::Monotonic;
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::slice;

const REDIS_SLOT_MIGRATION: u64 = raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION;
const REDIS_EXPORT_STARTED: u64 = raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_STARTED;
const REDIS_IMPORT_COMPLETED: u64 =
    raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED;
/// `ATOMIC_SLOT_MIGRATION` of Valkey, which the bindings lack.
const VALKEY_SLOT_MIGRATION: u64 = 19;
const VALKEY_EXPORT_STARTED: u64 = 1;
const VALKEY_IMPORT_COMPLETED: u64 = 4;

/// The length of a node's ID.
const ID_LENGTH: usize = 40;

/// A flag of Valkey: the module can follow atomic slot migrations. Without the flag Valkey refuses them.
pub(crate) const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// What is known of slots that may come, and what must soon be done about slots.
struct Movements {
    /// Whether any slot is expected.
    expects: Cell<bool>,
    /// Whether `CLUSTER NODES` must still be read for the first time after the start or a role change.
    unread: Cell<bool>,
    expected: RefCell<SlotSet>,
    /// The slots of this node, when they were last read.
    known: RefCell<Option<OwnSlots>>,
    /// Reads `CLUSTER NODES`.
    reading: Throttle,
    /// Looks at all locks: their slots may have left.
    looks: Throttle,
}

static IN_CLUSTER: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

static MOVEMENTS: MainThread<Movements> = MainThread::new(Movements {
    expects: Cell::new(false),
    unread: Cell::new(false),
    expected: RefCell::new(SlotSet::new()),
    known: RefCell::new(None),
    reading: Throttle::new(),
    looks: Throttle::new(),
});

pub(crate) fn is_in_cluster() -> bool {
    IN_CLUSTER.get()
}

/// Requires a read of `CLUSTER NODES`: the server may have open slots that the module has not heard of.
pub(crate) fn begin() {
    MOVEMENTS.unread.set(is_in_cluster());
}

/// When to call [`look`]. At once, but not for each command that moves slots: unauthenticated clients can send them.
pub(crate) fn due(now: Monotonic) -> Option<Monotonic> {
    let Movements { reading, looks, .. } = &*MOVEMENTS;
    [reading, looks].into_iter().filter_map(|throttle| throttle.due(now)).min()
}

/// Notes that a lock's slot has left unannounced. Other slots may have left too, so all locks are looked at soon.
pub(crate) fn has_gone() {
    MOVEMENTS.looks.want();
}

/// Does what is due.
pub(crate) fn look() {
    if MOVEMENTS.reading.take(clock::monotonic()) {
        read();
    }
    if MOVEMENTS.looks.take(clock::monotonic()) {
        ENGINE.slots_moved();
    }
}

/// Reads from the server which slots it has, and lifts the fence clock if one of them was expected. All locks are
/// looked at only if the slots have changed: unauthenticated clients can name slots as often as they like.
fn read() {
    MOVEMENTS.unread.set(false);
    let own = context::detached().and_then(slot_probe::own_slots);
    if own.is_none() || *MOVEMENTS.known.borrow() != own {
        MOVEMENTS.looks.want();
    }
    let mut expected = MOVEMENTS.expected.borrow_mut();
    // Unknown only if CLUSTER is renamed. Then expected slots stay expected.
    let has_come = own.as_ref().is_some_and(|own| {
        let has_come = expected.remove_all(&own.settled);
        expected.insert_all(&own.open);
        has_come
    });
    MOVEMENTS.expects.set(!expected.is_empty());
    drop(expected);
    MOVEMENTS.known.replace(own);
    if has_come {
        fence_clock::lift();
    }
}

/// Sees a client's command before it is executed.
pub(crate) fn hear<'w>(ctx: Ctx, words: impl Iterator<Item = &'w [u8]>) {
    match cluster::said(words, my_node_id) {
        Said::Nothing => return,
        Said::MayGo => {}
        Said::MayCome(slot) => {
            let _ = expect_all(&SlotProbe::new(ctx), slot, slot);
        }
        Said::MayComeTogether(mut ranges) => {
            // The server refuses to add slots if it already has one of them.
            let probe = SlotProbe::new(ctx);
            let _ = ranges.try_for_each(|(first, last)| expect_all(&probe, first, last));
        }
    }
    MOVEMENTS.reading.want();
}

/// Expects each of these slots, up to the first slot that the server serves.
///
/// Each slot is probed once while it is expected. So a client that may not move slots cannot cause more work.
fn expect_all(probe: &SlotProbe, first: Slot, last: Slot) -> ControlFlow<()> {
    let next = || MOVEMENTS.expected.borrow().first_missing(first, last);
    while let Some(slot) = next() {
        if probe.is_served(slot) {
            return ControlFlow::Break(());
        }
        MOVEMENTS.expected.borrow_mut().insert(slot);
        MOVEMENTS.expects.set(true);
    }
    ControlFlow::Continue(())
}

/// Whether the slot of this key is expected. Call [`lift_for_expected`] before a lock in the slot is granted. No key is
/// open, because the server must sometimes be asked which slots are open.
pub(crate) fn expects(key: &[u8]) -> bool {
    if MOVEMENTS.unread.get() {
        read();
    }
    MOVEMENTS.expects.get() && MOVEMENTS.expected.borrow().contains(Slot::of(key))
}

/// A lock in an expected slot may be granted now.
pub(crate) fn lift_for_expected() {
    fence_clock::lift();
    MOVEMENTS.reading.want();
}

/// This node's ID in the cluster.
fn my_node_id<'s>() -> &'s [u8] {
    // SAFETY: takes no arguments. In a cluster it returns a name that lives as long as the server.
    let us = unsafe { api!(RedisModule_GetMyClusterID)() };
    // SAFETY: null outside a cluster, otherwise a name of `ID_LENGTH` bytes.
    if us.is_null() { &[] } else { unsafe { slice::from_raw_parts(us.cast(), ID_LENGTH) } }
}

/// Subscribes to atomic slot migrations, on servers that have them.
pub(crate) fn subscribe(ctx: Ctx) {
    IN_CLUSTER.set(authority::is_in_cluster(ctx));
    begin();
    let id =
        if server_flavor::is_valkey(ctx) { VALKEY_SLOT_MIGRATION } else { REDIS_SLOT_MIGRATION };
    subscription::to_server_event(ctx, id, Some(moved_at_once));
}

/// A step of an atomic slot migration.
unsafe extern "C" fn moved_at_once(
    ctx: Ctx,
    event: RedisModuleEvent,
    stage: u64,
    _info: *mut c_void,
) {
    guard::event("slots-moved", ctx, || {
        match (event.id, stage) {
            // An evicted lock moves only if it is written again before the slots are copied, which the server does a
            // little later.
            (REDIS_SLOT_MIGRATION, REDIS_EXPORT_STARTED)
            | (VALKEY_SLOT_MIGRATION, VALKEY_EXPORT_STARTED) => ENGINE.slots_begin_to_go(),
            // Until now this node has granted nothing in these slots.
            (REDIS_SLOT_MIGRATION, REDIS_IMPORT_COMPLETED)
            | (VALKEY_SLOT_MIGRATION, VALKEY_IMPORT_COMPLETED) => fence_clock::lift(),
            // Slots begin to come, have left, or stay after all.
            _ => {}
        }
        MOVEMENTS.looks.want();
    });
}
