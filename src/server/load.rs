//! Loading the module. It is never unloaded.
//!
//! A module that cannot keep its promises on this server does not load, and the log says why: half a lock is worse
//! than none.
//!
//! After an unload the server would keep pointers into the module and follow them later: from ACL rules, from the last
//! commands of clients, from commands queued in transactions, and from commands that are parsed but not yet executed.

use super::{cron, info, lifecycle, patches, settings};
use crate::clients::{capacity, wait};
use crate::cluster::slots;
use crate::commands::register;
use crate::ffi::{
    Ctx, MainThread, RawString, Words, api, context, flag, log, main_thread, server_flavor, status,
};
use crate::keys::fence_observer::{self, Loading};
use crate::keys::{command_filter, eviction, flushes};
use crate::replication::{fence_clock, listeners, replicate};
use crate::{clock, config, guard};
use leasehold_core::lock::Moment;
use redis_module::raw;
use std::cell::Cell;
use std::ffi::{CStr, c_int};

const NAME: &CStr = c"leasehold";

/// When the command that loaded this module began.
static LOADED_BY: MainThread<Cell<Option<Moment>>> = MainThread::new(Cell::new(None));

/// The server calls this, by name, when it loads the module.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn RedisModule_OnLoad(ctx: Ctx, argv: *mut RawString, argc: c_int) -> c_int {
    // First, and outside the guard: before the server's functions are known, no memory can be allocated, and a panic
    // allocates.
    // SAFETY: the context is the one that the server loads the module with, and the name is a C string.
    let outcome = unsafe {
        raw::Export_RedisModule_Init(
            ctx,
            NAME.as_ptr(),
            info::VERSION,
            flag(raw::REDISMODULE_APIVER_1),
        )
    };
    if outcome != status(true) {
        return outcome;
    }
    guard::listen_to_panics();
    guard::value("load", status(false), || {
        begin_anew();
        // SAFETY: the server keeps the arguments until this function returns.
        match load(ctx, &unsafe { Words::new(argv, argc) }) {
            Ok(()) => status(true),
            Err(reason) => {
                log::warning(ctx, &format!("cannot load: {reason}"));
                guard::stop_listening();
                status(false)
            }
        }
    })
}

/// Forgets a failed load, because the C library may keep the module in memory.
fn begin_anew() {
    main_thread::remember();
    LOADED_BY.set(clock::beginning_of_command());
    cron::begin();
    wait::begin();
    command_filter::reset();
    eviction::reset();
    fence_observer::reset();
}

/// The server calls this, by name, when it is asked to unload the module. It refuses by itself while a client waits
/// for a lock. Valkey also calls this when it ends.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn RedisModule_OnUnload(ctx: Ctx) -> c_int {
    guard::value("unload", status(false), || {
        if lifecycle::is_ending() || is_taken_back() {
            context::free();
            guard::stop_listening();
            return status(true);
        }
        // The reply to MODULE UNLOAD is the server's own, and gives no reason.
        log::warning(ctx, "cannot be unloaded: restart the server without its loadmodule line");
        status(false)
    })
}

/// Whether the server takes back what it has just loaded, for example after `MODULE LOADEX` with an unknown setting.
/// It does so within that command, so nobody has used the module yet, and Redis 8.6 crashes if the module refuses.
/// Redis 7.0 does not tell, and keeps the module.
fn is_taken_back() -> bool {
    LOADED_BY.get().is_some() && LOADED_BY.get() == clock::beginning_of_command()
}

fn load(ctx: Ctx, arguments: &Words) -> Result<(), String> {
    let missing = api::missing();
    if !missing.is_empty() {
        return Err(format!("this server is too old, it lacks {}", missing.join(", ")));
    }
    if let Some(obstacle) = replicate::obstacle(ctx) {
        return Err(obstacle);
    }
    // Arguments before settings: the arguments are the settings' defaults.
    config::from_arguments(&arguments.bytes())?;
    config::register(ctx)?;
    register::commands(ctx).map_err(|name| format!("the server refused the command {name}"))?;
    if !(info::register(ctx)
        && flushes::subscribe(ctx)
        && lifecycle::subscribe(ctx)
        && cron::subscribe(ctx)
        && fence_clock::subscribe(ctx))
    {
        return Err("the server refused a callback".to_owned());
    }
    // SAFETY: the context is the one that the server loads the module with.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx, options(ctx)) };
    fence_observer::update_subscriptions(ctx, Loading::Nothing);
    settings::subscribe(ctx);
    settings::follow(ctx);
    patches::warn(ctx);
    settings::warn_if_evicting(ctx);
    capacity::look(ctx);
    capacity::warn(ctx);
    slots::subscribe(ctx);
    command_filter::install_in_cluster(ctx);
    fence_clock::look_for_replicas(ctx);
    listeners::begin(ctx);
    fence_clock::begin();
    log::notice(ctx, concat!("version ", env!("CARGO_PKG_VERSION"), " is ready"));
    Ok(())
}

/// What the module promises the server.
fn options(ctx: Ctx) -> c_int {
    let of_valkey = slots::HANDLE_ATOMIC_SLOT_MIGRATION | replicate::SKIP_COMMAND_VALIDATION;
    // All state is in the keyspace, so a replica may serve the old data while it loads the new. The module itself
    // reports which keys it modifies, see `open_key`.
    flag(raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD)
        | flag(raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED)
        | server_flavor::options_of_valkey(ctx, of_valkey)
}
