//! Listeners: replicas and the append-only file, and when there are none.
//!
//! Telling listeners of a change costs up to a fifth of a grant, also where there are none and the server throws away
//! what it is told. So a change is not told while nobody listens. It is never told later either: whoever begins to
//! listen begins with a snapshot, and the change must be in that.
//!
//! ## The rule
//!
//! 1. At first, and after each [`expect`], there may be listeners, and every change is told.
//! 2. After changes, at most ten times a second, the server's routine lets the module [look](super::listener_watch). If the server is a primary
//!    outside a cluster, has no append-only file, loads nothing, has no child, no replica and no backlog, nobody listens.
//! 3. From then on no change is told, until the next event that is listed below, or the next look that finds a listener.
//!    All but replicas and the backlog is asked for each change, so a file is noticed at once, and so is a child, also
//!    by a module that writes locks when it hears of the fork before this one does.
//!
//! ## How somebody begins to listen, and why nothing is missed
//!
//! The server itself throws away what it is told if it has no file, no backlog and no replica, or follows a primary
//! (`shouldPropagate`, Redis 7.0 on and Valkey). So nobody misses anything before the server has one of these:
//!
//! - **A file.** `aof_state` says so from the moment of `CONFIG SET appendonly yes`, before the child is born that
//!   writes the data so far, also where that has to wait for another child. The module sees the same variable.
//! - **A replica of a primary without a backlog** gets a full copy. `SYNC` and `PSYNC` make the backlog, with a new
//!   replication ID, and queue the replica. It is sent nothing until its snapshot is begun, and that is a fork: to a
//!   disk or to sockets, on one channel or two (`repl-rdb-channel`, `dual-channel-replication-enabled`). The fork tells the
//!   module in the same step, before any other command is executed, and only a replica whose snapshot has
//!   begun knows the ID and a place in the stream. What the stream lacks is before that place, and in the snapshot.
//! - **A second replica** joins a snapshot that was begun for another one, which was a listener all the time, or waits for the next fork.
//! - **A partial copy** needs a backlog. A backlog that is left over from former replicas is one that a look sees. One
//!   that was made a moment ago, by a replica that still waits for its fork, has an ID that nobody was sent. Who reads it
//!   off `INFO` and asks for the stream without a snapshot is told from then on: the server tells the module of it.
//! - **A restart.** A file of data in which a save noted an ID and a place gives a primary a backlog. The module asks after the load. A
//!   `SAVE`, which does not fork, might note a place between `SYNC` and the fork, and the snapshot of the replica would
//!   have what is not told after that, at the same place: so every save, too, makes the module tell changes.
//! - **A promotion** leaves a backlog, and siblings that go on with it. A replica never counts as without listeners, and a change
//!   of the role makes the module ask anew. A primary that becomes a replica offers its ID and place to the new one, which knows
//!   them only if it was a listener.
//! - **Slots that move** are streamed in a cluster alone.
//!
//! Nothing else reads what is replicated: `MONITOR`, key events and client tracking do not, and `WAIT` counts on replicas.
//!
//! | server                | read in                                                                             |
//! |-----------------------|-------------------------------------------------------------------------------------|
//! | Redis 7.0, 8.0, 8.6   | `server.c`, `replication.c`, `rdb.c`, `aof.c`, `module.c` of 7.0.15, 8.0.6 and 8.6.3 |
//! | Valkey 8.0, 8.1, 9.1  | the same of 8.0.1, 8.1.1 and 9.1.2                                                  |
//! | every other           | every change is told: on Redis 6.2 the server queues all it is told, and a server that is not known may copy its data without a fork |
//!
//! ## Changes that a save counts
//!
//! Telling a change also counts it for the `save` rules. Those that were not told are counted at the next look, without
//! being told: where nobody listens, by `RM_ReplicateVerbatim`, which then does nothing but count; else by an
//! `RM_Replicate` to neither replicas nor the file, which looks up a command each time, so some thousands at a look:
//! where 100,000 changes a second were made, some moments pass until all are counted, and a save that they call for is
//! so much later. A change of the last moments before a save may be counted after it: then the server saves once more
//! than it needs to.
//!
//! ## What is deliberately not done
//!
//! - No command is replicated verbatim where it is executed: between `SYNC` and the fork, that would put a command of ours
//!   into the backlog.
//! - No filter waits for `SYNC`: everybody's commands would pay for it.
//! - Nothing is remembered to be told later.

use super::authority;
use super::ffi::main_thread::MainThread;
use super::ffi::server_flavor;
use redis_module::raw::RedisModuleCtx;
use std::cell::Cell;

#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    Nobody,
    /// There may be listeners.
    Somebody,
}

static AUDIENCE: MainThread<Cell<Audience>> = MainThread::new(Cell::new(Audience::Somebody));
/// Whether a change was told since the last look.
static HAS_TOLD: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));
/// Changes that were not told, and that the server has not counted yet.
static UNCOUNTED: MainThread<Cell<u64>> = MainThread::new(Cell::new(0));

/// Who has to be told of a change that is about to be made. Asked once for each: the answer `Nobody` notes that the change is
/// to be counted.
pub(super) fn of_change(ctx: *mut RedisModuleCtx) -> Audience {
    if AUDIENCE.get() == Audience::Nobody && authority::excludes_listeners(ctx) {
        UNCOUNTED.set(UNCOUNTED.get().saturating_add(1));
        return Audience::Nobody;
    }
    HAS_TOLD.set(true);
    Audience::Somebody
}

/// Somebody may begin to listen. Called first of all in each event that may mean that, and before whatever else the
/// [guard](super::guard) guards there, so that no panic comes between.
pub(super) fn expect() {
    AUDIENCE.set(Audience::Somebody);
}

/// Asks the server who listens from now on.
pub(super) fn look(ctx: *mut RedisModuleCtx) -> Audience {
    HAS_TOLD.set(false);
    let audience = if authority::excludes_listeners(ctx) && has_nobody(ctx) {
        Audience::Nobody
    } else {
        Audience::Somebody
    };
    AUDIENCE.set(audience);
    audience
}

fn has_nobody(ctx: *mut RedisModuleCtx) -> bool {
    let fields = [c"role", c"connected_slaves", c"repl_backlog_active"];
    let found = server_flavor::info_fields(ctx, c"replication", fields);
    found.each_ref().map(Option::as_deref) == [Some("master"), Some("0"), Some("0")]
}

/// Whether a change was told since the last look, perhaps in vain.
pub(super) fn has_told() -> bool {
    HAS_TOLD.get()
}

/// How many changes are to be counted.
pub(super) fn uncounted() -> u64 {
    UNCOUNTED.get()
}

/// So many of them were counted.
pub(super) fn counted(changes: u64) {
    UNCOUNTED.set(UNCOUNTED.get().saturating_sub(changes));
}
