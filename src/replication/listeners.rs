//! Listeners: replicas and the append-only file, and when there are none.
//!
//! Telling listeners of a change costs up to a fifth of a grant, even if there are none and the server drops the
//! message. So a change is not told while nobody listens. It is never told later either: a new listener begins with a
//! snapshot, which must contain the change.
//!
//! ## The rule
//!
//! 1. At first, and after each [`expect`], there may be listeners, and every change is told.
//! 2. After changes, at most ten times a second, the server's cron lets the module [look].
//!    Nobody listens if the server is a primary outside a cluster, has no append-only file, loads nothing, and has no
//!    child process, no replica and no backlog.
//! 3. From then on no change is told, until the next event that is listed below, or the next look that finds a
//!    listener. Each change checks all conditions except replicas and the backlog. So a file or a child is noticed at
//!    once, even if another module hears of the fork first and writes locks.
//!
//! ## How somebody begins to listen, and why nothing is missed
//!
//! The server itself drops what it is told if it has no file, no backlog and no replica, or follows a primary
//! (`shouldPropagate`, Redis 7.0 on and Valkey). So nobody misses anything before the server gets one of these:
//!
//! - **A file.** `aof_state` changes at `CONFIG SET appendonly yes`, before the child forks that writes the existing
//!   data, even if that fork waits for another child. The module sees the same variable.
//! - **A replica of a primary without a backlog** gets a full copy. `SYNC` and `PSYNC` make the backlog, with a new
//!   replication ID, and queue the replica. The replica gets nothing until its snapshot begins, with a fork: to a disk
//!   or to sockets, on one channel or two (`repl-rdb-channel`, `dual-channel-replication-enabled`). The module hears
//!   of the fork in the same step, before any other command is executed. A replica knows the ID and an offset only
//!   once its snapshot has begun. Every change that the stream lacks is before that offset, and in the snapshot.
//! - **A second replica** joins the snapshot of another replica, which was a listener all the time, or waits for the
//!   next fork.
//! - **A partial copy** needs a backlog. A look sees a backlog left by former replicas. A new backlog, made for a
//!   replica that still waits for its fork, has an ID that was sent to nobody. A client that reads the ID from `INFO`
//!   and asks for the stream without a snapshot gets every change from then on, because the server reports the new
//!   replica to the module.
//! - **A restart.** An RDB file with a replication ID and offset gives a primary a backlog. The module looks again
//!   after the load. A `SAVE`, which does not fork, might store an offset between `SYNC` and the fork. The replica's
//!   snapshot would then contain later untold changes at the same offset. So every save also makes the module tell
//!   changes.
//! - **A promotion** leaves a backlog, and other replicas continue with it. A replica never counts as without
//!   listeners, and a role change makes the module look again. A primary that becomes a replica offers its ID and
//!   offset to the new primary, which knows them only if it was a listener.
//! - **Slots that move** are streamed only in a cluster.
//!
//! Nothing else reads the replication stream: `MONITOR`, keyspace events and client tracking do not, and `WAIT` counts
//! replicas.
//!
//! | server                | read in                                                                             |
//! |-----------------------|-------------------------------------------------------------------------------------|
//! | Redis 7.0, 8.0, 8.6   | `server.c`, `replication.c`, `rdb.c`, `aof.c`, `module.c` of 7.0.15, 8.0.6 and 8.6.3 |
//! | Valkey 8.0, 8.1, 9.1  | these files of 8.0.1, 8.1.1 and 9.1.2                                               |
//! | every other           | every change is told: Redis 6.2 queues it, an unknown server may copy data without a fork |
//!
//! ## Changes that a save counts
//!
//! Telling a change also counts it for the `save` rules. Changes that were not told are counted at the next look,
//! without being told. If nobody listens, `RM_ReplicateVerbatim` does that, and then does nothing else. Otherwise an
//! `RM_Replicate` to neither replicas nor the file does. It looks up a command each time, so a look counts only some
//! thousands. After 100,000 changes a second, counting takes a few moments, and delays a save by as long. A change
//! just before a save may be counted after it: then the server saves once more than necessary.
//!
//! ## What is deliberately not done
//!
//! - No command is replicated verbatim where it is executed: between `SYNC` and the fork, this would put the module's
//!   command into the backlog.
//! - No filter watches for `SYNC`: it would slow all commands.
//! - No change is stored to be told later.

use crate::ffi::{Ctx, MainThread, api, server_flavor, status, subscription};
use crate::{authority, clock, guard};
use leasehold_core::lock::Monotonic;
use redis_module::raw::{self, RedisModuleEvent};
use std::cell::Cell;
use std::ffi::c_void;

/// Time between two looks.
const MILLIS_BETWEEN: u64 = 100;

/// How many changes are counted at a look while somebody listens: this takes the server about two milliseconds.
const COUNTED_AT_A_LOOK: u64 = 5_000;

#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Nobody,
    /// There may be listeners.
    Somebody,
}

static AUDIENCE: MainThread<Cell<Audience>> = MainThread::new(Cell::new(Audience::Somebody));
/// Whether a change was told since the last look.
static HAS_TOLD: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));
/// Changes that were not told, and that the server has not counted yet.
static UNCOUNTED: MainThread<Cell<u64>> = MainThread::new(Cell::new(0));

/// Whether the rule was verified for this server.
static IS_KNOWN: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));
static LOOKED: MainThread<Cell<Option<Monotonic>>> = MainThread::new(Cell::new(None));

/// Subscribes to saves, and finds out whether the rule holds on this server. The other events that the rule needs are
/// the callers of [`expect`].
pub(crate) fn begin(ctx: Ctx) {
    let hears =
        subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_PERSISTENCE, Some(saving));
    IS_KNOWN.set(hears && server_flavor::forks_for_replicas(ctx));
}

/// Who must be told of the change that is about to be made. Called once for each change: the answer `Nobody` also
/// notes that the change must be counted.
pub(crate) fn of_change(ctx: Ctx) -> Audience {
    if AUDIENCE.get() == Audience::Nobody && authority::excludes_listeners(ctx) {
        UNCOUNTED.set(UNCOUNTED.get().saturating_add(1));
        return Audience::Nobody;
    }
    HAS_TOLD.set(true);
    Audience::Somebody
}

/// Notes that somebody may begin to listen. Called first in each event that may mean this, before the code that the
/// [guard] protects, so that no panic can prevent it.
pub(crate) fn expect() {
    AUDIENCE.set(Audience::Somebody);
}

/// Looks for listeners, and makes the server count the changes that were not told. Called by the server's cron. The
/// server is not asked while nobody changes locks.
pub(crate) fn look(ctx: Ctx) {
    let uncounted = UNCOUNTED.get();
    if !(HAS_TOLD.get() && IS_KNOWN.get()) && uncounted == 0 {
        return;
    }
    let now = clock::monotonic();
    if LOOKED.get().is_some_and(|last| now < last.plus_millis(MILLIS_BETWEEN)) {
        return;
    }
    LOOKED.set(Some(now));
    HAS_TOLD.set(false);
    // Counted in the same step, so nobody can begin to listen in between.
    let counted = if authority::excludes_listeners(ctx) && has_nobody(ctx) {
        AUDIENCE.set(Audience::Nobody);
        (0..uncounted).for_each(|_| count_where_nobody_listens(ctx));
        uncounted
    } else {
        AUDIENCE.set(Audience::Somebody);
        let most = uncounted.min(COUNTED_AT_A_LOOK);
        (0..most).for_each(|_| count(ctx));
        most
    };
    UNCOUNTED.set(UNCOUNTED.get().saturating_sub(counted));
}

fn has_nobody(ctx: Ctx) -> bool {
    let fields = [c"role", c"connected_slaves", c"repl_backlog_active"];
    let found = server_flavor::info_fields(ctx, c"replication", fields);
    found.each_ref().map(Option::as_deref) == [Some("master"), Some("0"), Some("0")]
}

/// Counts a change for the server's `save` rules, and tells nobody of it.
fn count(ctx: Ctx) {
    // SAFETY: the format takes no arguments. It excludes both replicas and the file.
    let outcome = unsafe { api!(RedisModule_Replicate)(ctx, c"DEL".as_ptr(), c"AR".as_ptr()) };
    debug_assert_eq!(outcome, status(true));
}

/// Like [`count`], but many times faster. Only if the server has just said that nobody listens: a listener would get
/// whatever command the context's client runs.
fn count_where_nobody_listens(ctx: Ctx) {
    // SAFETY: takes a context with a client, and the contexts of events have a client.
    unsafe { api!(RedisModule_ReplicateVerbatim)(ctx) };
}

/// Also called in a child that saves, on its copy of the memory.
unsafe extern "C" fn saving(_ctx: Ctx, _: RedisModuleEvent, _stage: u64, _data: *mut c_void) {
    guard::value("saving", (), expect);
}
