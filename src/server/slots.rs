//! Slots of a cluster that come and go.
//!
//! A slot that **comes** brings locks that another node granted until a moment ago, and locks that
//! are free and leave no trace. What is granted here from then on must have a higher fence than
//! both (L2), although that node's clock may be ahead of ours by up to the margin. So the fence
//! clock is lifted by the margin for slots that came, and for no others: a node that gives slots
//! away must not be ahead of its own clock, or the margin of the node that gets them would be used
//! up.
//!
//! The filter hears the commands that move slots before the server asks whether their client may
//! send them. So nothing follows from a command alone. A slot is **expected** once such a command
//! names it while the server does not serve it, and what matters is whether the server does serve
//! it later:
//!
//! ```text
//!   CLUSTER SETSLOT n IMPORTING         is n served here,      no     n is expected
//!   CLUSTER SETSLOT n NODE <us>    ──►  and not on its way   ──────►   │
//!   CLUSTER SETSLOT n STABLE            out? (RM_Call)                 │ a lock is to be granted
//!   CLUSTER ADDSLOTS(RANGE) n             │ yes                        │ in n, or n is settled
//!                                         ▼                            ▼
//!                              nothing can come by this       the fence clock is lifted
//! ```
//!
//! Slots that the server has open are expected too: those being imported, in which it grants locks
//! to clients that come with `ASKING`, and those being migrated, in which the other node may grant
//! locks before the slot is called back. Which slots are open and which are settled is read from
//! `CLUSTER NODES`: before the first grant after a start or a change of role, shortly after each
//! command that moves slots, and shortly after each grant in an expected slot. Once the server has
//! an expected slot settled, the fence clock is lifted for the last time, and the slot is expected
//! no longer.
//!
//! Slots that are moved **at once** (Redis 8.4 and Valkey 9 on) come with an event of the server,
//! which means that the server let it happen. Then the fence clock is lifted right away.
//!
//! A slot that **goes** takes locks with it for which clients wait here. They are looked at right
//! away, found to be somebody else's, and sent on: see [`authority`].

use super::ffi::api::api;
use super::ffi::main_thread::MainThread;
use super::ffi::{context, server_flavor, subscription};
use super::locks::LOCKS;
use super::slot_probe::{self, SlotProbe};
use super::throttle::Throttle;
use super::{authority, clock, fence_lift, guard};
use leasehold_core::cluster::{self, OwnSlots, Said, Slot, SlotSet};
use leasehold_core::lock::Monotonic;
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::slice;

/// `ATOMIC_SLOT_MIGRATION` of Valkey, for which the bindings have no name.
const VALKEY_SLOT_MIGRATION: u64 = 19;
const VALKEY_EXPORT_STARTED: u64 = 1;
const VALKEY_IMPORT_COMPLETED: u64 = 4;

/// How long the name of a node is.
const ID_LENGTH: usize = 40;

/// Of Valkey: the module can follow when slots are moved at once. Without it Valkey refuses to move
/// them.
pub(super) const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// What is known of slots that may come, and what is to be done about slots a little later.
struct Movements {
    /// Whether any slot is expected.
    expects: Cell<bool>,
    /// Which slots are open was not read since the start, or since the role changed.
    unread: Cell<bool>,
    expected: RefCell<SlotSet>,
    /// What the server said of its slots the last time.
    known: RefCell<Option<OwnSlots>>,
    /// What the server says of its slots is to be read.
    reading: Throttle,
    /// All locks are to be looked at: their slots may have gone.
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

pub(super) fn is_in_cluster() -> bool {
    IN_CLUSTER.get()
}

/// The server may have slots open from before that the module has heard nothing of.
pub(super) fn begin() {
    MOVEMENTS.unread.set(is_in_cluster());
}

/// When to call [`look`]. At once, but not each time that anybody sends such a command: unauthenticated
/// clients can.
pub(super) fn due(now: Monotonic) -> Option<Monotonic> {
    let Movements { reading, looks, .. } = &*MOVEMENTS;
    [reading, looks].into_iter().filter_map(|throttle| throttle.due(now)).min()
}

/// A lock turned out to be in a slot that has gone without a word. Others may be, too, and all of them are looked at
/// soon.
pub(super) fn has_gone() {
    MOVEMENTS.looks.want();
}

/// Does what is due.
pub(super) fn look() {
    if MOVEMENTS.reading.take(clock::monotonic()) {
        read();
    }
    if MOVEMENTS.looks.take(clock::monotonic()) {
        LOCKS.slots_moved();
    }
}

/// Learns from the server which slots it has, and lifts the fence clock if one of them was
/// expected. All locks are to be looked at if they are other slots than before: clients that have not logged in can name
/// slots as often as they like.
fn read() {
    MOVEMENTS.unread.set(false);
    let own = context::detached().and_then(slot_probe::own_slots);
    if own.is_none() || *MOVEMENTS.known.borrow() != own {
        MOVEMENTS.looks.want();
    }
    let mut expected = MOVEMENTS.expected.borrow_mut();
    // It is not known only where CLUSTER is renamed. Then whatever is expected stays so.
    let has_come = own.as_ref().is_some_and(|own| {
        let has_come = expected.remove_all(&own.settled);
        expected.insert_all(&own.open);
        has_come
    });
    MOVEMENTS.expects.set(!expected.is_empty());
    drop(expected);
    MOVEMENTS.known.replace(own);
    if has_come {
        fence_lift::lift();
    }
}

/// Before anybody's command is executed.
pub(super) fn hear<'w>(ctx: *mut RedisModuleCtx, words: impl Iterator<Item = &'w [u8]>) {
    match cluster::said(words, my_node_id) {
        Said::Nothing => return,
        Said::MayGo => {}
        Said::MayCome(slot) => {
            let _ = expect_all(&SlotProbe::new(ctx), slot, slot);
        }
        Said::MayComeTogether(mut ranges) => {
            // The server refuses to add slots if it has one of them.
            let probe = SlotProbe::new(ctx);
            let _ = ranges.try_for_each(|(first, last)| expect_all(&probe, first, last));
        }
    }
    MOVEMENTS.reading.want();
}

/// Expects each of these slots, up to the first that the server serves, if it serves one.
///
/// Each slot is asked about once, as long as it is expected: a client that may not move slots can
/// make the server do no more than that.
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

/// Before a key is opened in which a lock may be granted: once in a while the server has to be asked
/// which slots it has open.
pub(super) fn prepare() {
    if MOVEMENTS.unread.get() {
        read();
    }
}

/// A lock that is free may be granted. If its slot is expected, the fence clock is lifted first.
pub(super) fn about_to_grant(key: &[u8]) {
    if MOVEMENTS.expects.get() && MOVEMENTS.expected.borrow().contains(Slot::of(key)) {
        fence_lift::lift();
        MOVEMENTS.reading.want();
    }
}

/// The name by which the nodes of the cluster know this one.
fn my_node_id<'s>() -> &'s [u8] {
    // SAFETY: takes nothing; in a cluster, a name that lives as long as the server.
    let us = unsafe { api!(RedisModule_GetMyClusterID)() };
    // SAFETY: null outside a cluster; else so many characters.
    if us.is_null() { &[] } else { unsafe { slice::from_raw_parts(us.cast(), ID_LENGTH) } }
}

/// Subscribes to slots that are moved at once, where the server moves them so.
pub(super) fn subscribe(ctx: *mut RedisModuleCtx) {
    IN_CLUSTER.set(authority::is_in_cluster(ctx));
    begin();
    let (id, callback): (u64, raw::RedisModuleEventCallback) = if server_flavor::is_valkey(ctx) {
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
    guard::event("slots-moved", ctx, || {
        let step = match stage {
            raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_STARTED => Step::BeginToGo,
            raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED => Step::HaveCome,
            _ => Step::Other,
        };
        moved_at_once(step);
    });
}

unsafe extern "C" fn moved_by_valkey(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _info: *mut c_void,
) {
    guard::event("slots-moved", ctx, || {
        let step = match stage {
            VALKEY_EXPORT_STARTED => Step::BeginToGo,
            VALKEY_IMPORT_COMPLETED => Step::HaveCome,
            _ => Step::Other,
        };
        moved_at_once(step);
    });
}

/// How far slots are that are moved at once.
enum Step {
    BeginToGo,
    HaveCome,
    /// They begin to come, have gone, or stay after all.
    Other,
}

fn moved_at_once(step: Step) {
    match step {
        // What is evicted does not go with them, unless it is put back before they are copied, which
        // the server does a little later.
        Step::BeginToGo => LOCKS.slots_begin_to_go(),
        // Until then the node grants nothing.
        Step::HaveCome => fence_lift::lift(),
        Step::Other => {}
    }
    MOVEMENTS.looks.want();
}
