//! The server's reply to a command that the module called.

use super::api::{Ctx, api, optional, status};
use super::call_filter;
use redis_module::raw;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno;
#[cfg(target_os = "macos")]
use libc::__error as errno;

/// The values of `REDISMODULE_REPLY_ERROR` and `_PROMISE`, whose types in the crate do not match its functions.
const REPLY_ERROR: c_int = 1;
const REPLY_PROMISE: c_int = 12;

/// A reply, freed when it is dropped.
pub(crate) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    /// The reply to a call of the command of this name. `None` if the server does not execute the command.
    ///
    /// # Safety
    /// `call` calls that command, and returns its reply, which nobody else frees.
    pub(crate) unsafe fn of_call(
        ctx: Ctx,
        name: &CStr,
        call: impl FnOnce() -> *mut raw::RedisModuleCallReply,
    ) -> Option<Self> {
        // SAFETY: the caller guarantees that `call` returns a reply which nobody else frees.
        call_filter::unreplaced(ctx, name, || unsafe { Self::given(call()) }).flatten()
    }

    /// Like [`of_call`](Self::of_call), with the error number by which the server says why it refuses a call, or 0.
    ///
    /// # Safety
    /// As for `of_call`.
    pub(crate) unsafe fn or_refusal_of_call(
        ctx: Ctx,
        name: &CStr,
        call: impl FnOnce() -> *mut raw::RedisModuleCallReply,
    ) -> (Option<Self>, i32) {
        // SAFETY: the error number is this thread's own. For the call, see above.
        let reply = unsafe {
            *errno() = 0;
            Self::of_call(ctx, name, call)
        };
        (reply, io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// `None` for null.
    ///
    /// # Safety
    /// Nobody else frees the reply.
    pub(crate) unsafe fn given(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Self)
    }

    /// Calls a command with one, two or three arguments. `None` if the server does not execute it, for example because
    /// the command was renamed.
    pub(crate) fn to(ctx: Ctx, command: &CStr, arguments: &[&CStr]) -> Option<Self> {
        let (call, name) = (api!(RedisModule_Call), command.as_ptr());
        // SAFETY: each format takes as many C strings as are passed. Nobody else gets the reply.
        unsafe {
            Self::of_call(ctx, command, || match *arguments {
                [only] => call(ctx, name, c"c".as_ptr(), only.as_ptr()),
                [one, two] => call(ctx, name, c"cc".as_ptr(), one.as_ptr(), two.as_ptr()),
                [one, two, three] => {
                    let format = c"ccc".as_ptr();
                    call(ctx, name, format, one.as_ptr(), two.as_ptr(), three.as_ptr())
                }
                _ => ptr::null_mut(),
            })
        }
    }

    /// The reply, if it is a text.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        self.whole().text()
    }

    pub(crate) fn whole(&self) -> Part<'_> {
        Part { part: self.0, reply: PhantomData }
    }

    /// The text of an error reply.
    pub(crate) fn error(&self) -> Option<&[u8]> {
        // SAFETY: the reply lives as long as `self`.
        let kind = unsafe { api!(RedisModule_CallReplyType)(self.0.as_ptr()) };
        if kind == REPLY_ERROR { self.text() } else { None }
    }

    /// Whether the reply comes later, because the called command is blocked.
    pub(crate) fn is_promise(&self) -> bool {
        // SAFETY: the reply lives as long as `self`.
        unsafe { api!(RedisModule_CallReplyType)(self.0.as_ptr()) == REPLY_PROMISE }
    }

    /// Whether the server has promises.
    pub(crate) fn may_be_promised() -> bool {
        optional!(RedisModule_CallReplyPromiseSetUnblockHandler).is_some()
    }

    /// Makes the server call this function with the reply, when it arrives.
    pub(crate) fn when_kept(&self, call: raw::RedisModuleOnUnblocked, data: *mut c_void) {
        if let Some(when_unblocked) = optional!(RedisModule_CallReplyPromiseSetUnblockHandler) {
            // SAFETY: the reply is a promise, which lives until the reply has arrived. The function has the signature
            // that the server calls.
            unsafe { when_unblocked(self.0.as_ptr(), call, data) };
        }
    }

    /// Forwards the reply unchanged. False if the client does not speak the reply's protocol.
    pub(crate) fn forward(&self, ctx: Ctx) -> bool {
        // SAFETY: the context is that of the command being answered. The server copies the reply, which lives as long
        // as `self`.
        unsafe { api!(RedisModule_ReplyWithCallReply)(ctx, self.0.as_ptr()) == status(true) }
    }
}

/// A reply, or an element of it.
#[derive(Clone, Copy)]
pub(crate) struct Part<'r> {
    part: NonNull<raw::RedisModuleCallReply>,
    /// The server frees the elements of a reply with the reply.
    reply: PhantomData<&'r CallReply>,
}

impl<'r> Part<'r> {
    /// The element at this position of a list.
    pub(crate) fn at(self, position: usize) -> Option<Self> {
        // SAFETY: the part lives as long as the reply. The server returns null for a missing element.
        let part = unsafe { api!(RedisModule_CallReplyArrayElement)(self.part.as_ptr(), position) };
        Some(Self { part: NonNull::new(part)?, reply: PhantomData })
    }

    /// The number of elements, or the length of a text.
    pub(crate) fn len(self) -> usize {
        // SAFETY: the part lives as long as the reply.
        unsafe { api!(RedisModule_CallReplyLength)(self.part.as_ptr()) }
    }

    /// The number. For anything else, a number that no server replies with.
    pub(crate) fn integer(self) -> i64 {
        // SAFETY: the part lives as long as the reply.
        unsafe { api!(RedisModule_CallReplyInteger)(self.part.as_ptr()) }
    }

    pub(crate) fn text(self) -> Option<&'r [u8]> {
        let mut len = 0;
        // SAFETY: the server returns null for anything but a text, otherwise a pointer to `len` bytes, which live as
        // long as the whole reply.
        unsafe {
            let text = api!(RedisModule_CallReplyStringPtr)(self.part.as_ptr(), &raw mut len);
            (!text.is_null()).then(|| slice::from_raw_parts(text.cast(), len))
        }
    }

    /// The text, or the texts of a list.
    pub(crate) fn texts(self) -> Vec<&'r [u8]> {
        if let Some(text) = self.text() {
            return vec![text];
        }
        (0..self.len()).filter_map(|position| self.at(position)?.text()).collect()
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: nobody else frees the reply, and it is dropped once.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}
