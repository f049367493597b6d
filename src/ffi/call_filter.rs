//! A command that the module calls is executed under its own name, or not at all.
//!
//! The command filters of every module can change a call of this module, even into another command. Nobody has checked
//! the replacement: if it blocks, the server crashes. So for each call the module installs its own filter after all
//! others. If the command has another name by then, the filter removes the name, and the server finds no such command.

use super::api::{Ctx, api, flag};
use super::main_thread::MainThread;
use super::string::{OwnedString, bytes_of};
use redis_module::raw::{self, RedisModuleCommandFilterCtx};
use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::{self, NonNull};

/// The function that the server calls, and that calls [`look`].
static ENTRY: MainThread<Cell<raw::RedisModuleCommandFilterFunc>> =
    MainThread::new(Cell::new(None));

/// The name of the called command, until the filter has seen it.
static CALLED: MainThread<Cell<Option<NonNull<CStr>>>> = MainThread::new(Cell::new(None));

static IS_REPLACED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

pub(crate) fn enter_by(entry: raw::RedisModuleCommandFilterFunc) {
    ENTRY.set(entry);
}

/// Calls the command of this name. `None` if a filter has replaced the command: then nothing was executed.
pub(crate) fn unreplaced<R>(ctx: Ctx, name: &CStr, call: impl FnOnce() -> R) -> Option<R> {
    // This call may be inside another call.
    let former = (CALLED.replace(Some(NonNull::from(name))), IS_REPLACED.replace(false));
    let filter = Filter::installed(ctx);
    let outcome = call();
    drop(filter);
    CALLED.set(former.0);
    if IS_REPLACED.replace(former.1) { None } else { Some(outcome) }
}

/// Checks whether the called command was replaced. Commands that pass after it come from its execution. A command that
/// passes before it is called by a filter: it cannot be told from a replacement, so it is not executed either.
///
/// # Safety
/// `filtered` is the context that the server has called the filter with.
pub(crate) unsafe fn look(filtered: *mut RedisModuleCommandFilterCtx) {
    let Some(name) = CALLED.get() else { return };
    // SAFETY: the name outlives the call, which has not returned. The context is valid, and has at least one word. The
    // server takes over the string, which belongs to no context.
    unsafe {
        let word = api!(RedisModule_CommandFilterArgGet)(filtered, 0);
        let is_it = bytes_of(word).eq_ignore_ascii_case(name.as_ref().to_bytes());
        IS_REPLACED.set(!is_it);
        if is_it {
            CALLED.set(None);
        } else {
            let nameless = OwnedString::new(ptr::null_mut(), b"").given_away();
            api!(RedisModule_CommandFilterArgReplace)(filtered, 0, nameless);
        }
    }
}

struct Filter {
    ctx: Ctx,
    filter: *mut raw::RedisModuleCommandFilter,
}

impl Filter {
    fn installed(ctx: Ctx) -> Self {
        const EVEN_FOR_OURSELVES: u32 = 0;
        let flags = flag(EVEN_FOR_OURSELVES);
        // SAFETY: takes a valid context, and a function with the signature that the server calls.
        let filter = unsafe { api!(RedisModule_RegisterCommandFilter)(ctx, ENTRY.get(), flags) };
        Self { ctx, filter }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: installed with this context and removed once. No filter is being called, except one that led to this
        // call, and the server continues after that one.
        unsafe { api!(RedisModule_UnregisterCommandFilter)(self.ctx, self.filter) };
    }
}
