//! What the server replied to a command that the module had it execute.

use super::api::{api, optional, status};
use super::call_filter;
use redis_module::raw::{self, RedisModuleCtx};
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::slice;

/// As in `REDISMODULE_REPLY_ERROR` and `_PROMISE`, which the crate has as another type than its functions.
const REPLY_ERROR: c_int = 1;
const REPLY_PROMISE: c_int = 12;

/// Freed with its last use.
pub(crate) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    /// What a call of the command of this name comes to. `None` if the server does not execute it.
    ///
    /// # Safety
    /// `call` calls that command, and returns what came of it, which nobody else frees.
    pub(crate) unsafe fn of_call(
        ctx: *mut RedisModuleCtx,
        name: &CStr,
        call: impl FnOnce() -> *mut raw::RedisModuleCallReply,
    ) -> Option<Self> {
        // SAFETY: the caller vouches for it.
        call_filter::unreplaced(ctx, name, || unsafe { Self::given(call()) }).flatten()
    }

    /// `None` for null.
    ///
    /// # Safety
    /// Nobody else frees it.
    pub(crate) unsafe fn given(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Self)
    }

    /// Has the server execute a command with one, two or three arguments. `None` if it does not, as where the command was
    /// renamed.
    pub(crate) fn to(
        ctx: *mut RedisModuleCtx,
        command: &CStr,
        arguments: &[&CStr],
    ) -> Option<Self> {
        let (call, name) = (api!(RedisModule_Call), command.as_ptr());
        // SAFETY: each format takes so many C strings; the reply goes nowhere else.
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

    /// The text that it is.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        self.whole().text()
    }

    /// The text at this position of those that it lists.
    pub(crate) fn text_at(&self, position: usize) -> Option<&[u8]> {
        self.whole().at(position)?.text()
    }

    /// The text that it is, or those that it lists.
    pub(crate) fn texts(&self) -> Vec<&[u8]> {
        self.whole().texts()
    }

    pub(crate) fn whole(&self) -> Part<'_> {
        Part { part: self.0, reply: PhantomData }
    }

    /// The text of the error that it is.
    pub(crate) fn error(&self) -> Option<&[u8]> {
        // SAFETY: the reply lives as long as this does.
        let kind = unsafe { api!(RedisModule_CallReplyType)(self.0.as_ptr()) };
        if kind == REPLY_ERROR { self.text() } else { None }
    }

    /// Whether it only says that the reply comes later: what was called is blocked.
    pub(crate) fn is_promise(&self) -> bool {
        // SAFETY: the reply lives as long as this does.
        unsafe { api!(RedisModule_CallReplyType)(self.0.as_ptr()) == REPLY_PROMISE }
    }

    /// Whether the server knows promises.
    pub(crate) fn may_be_promised() -> bool {
        optional!(RedisModule_CallReplyPromiseSetUnblockHandler).is_some()
    }

    /// Has the server call this with the reply, when that comes.
    pub(crate) fn when_kept(&self, call: raw::RedisModuleOnUnblocked, data: *mut c_void) {
        if let Some(when_unblocked) = optional!(RedisModule_CallReplyPromiseSetUnblockHandler) {
            // SAFETY: it is a promise, which lives until the reply has come; the function has the signature that the server
            // calls.
            unsafe { when_unblocked(self.0.as_ptr(), call, data) };
        }
    }

    /// Replies with it, as it is. False if the client does not speak its protocol.
    pub(crate) fn forward(&self, ctx: *mut RedisModuleCtx) -> bool {
        // SAFETY: the context is that of the command being answered. The server copies the reply, which lives as long as this
        // does.
        unsafe { api!(RedisModule_ReplyWithCallReply)(ctx, self.0.as_ptr()) == status(true) }
    }
}

/// A reply, or what it lists.
#[derive(Clone, Copy)]
pub(crate) struct Part<'r> {
    part: NonNull<raw::RedisModuleCallReply>,
    /// The server frees the parts of a reply with the reply.
    reply: PhantomData<&'r CallReply>,
}

impl<'r> Part<'r> {
    /// What it lists at this position.
    pub(crate) fn at(self, position: usize) -> Option<Self> {
        // SAFETY: the part lives as long as the reply; the server answers null for what is not there.
        let part = unsafe { api!(RedisModule_CallReplyArrayElement)(self.part.as_ptr(), position) };
        Some(Self { part: NonNull::new(part)?, reply: PhantomData })
    }

    /// How much it lists, or how long a text it is.
    pub(crate) fn len(self) -> usize {
        // SAFETY: the part lives as long as the reply.
        unsafe { api!(RedisModule_CallReplyLength)(self.part.as_ptr()) }
    }

    /// The number that it is; for anything else one that no server replies with.
    pub(crate) fn integer(self) -> i64 {
        // SAFETY: as for `len`.
        unsafe { api!(RedisModule_CallReplyInteger)(self.part.as_ptr()) }
    }

    pub(crate) fn text(self) -> Option<&'r [u8]> {
        let mut len = 0;
        // SAFETY: the server answers null for what is no text; else it points to so many bytes, which live as
        // long as the whole reply.
        unsafe {
            let text = api!(RedisModule_CallReplyStringPtr)(self.part.as_ptr(), &raw mut len);
            (!text.is_null()).then(|| slice::from_raw_parts(text.cast(), len))
        }
    }

    /// The text that it is, or those that it lists.
    pub(crate) fn texts(self) -> Vec<&'r [u8]> {
        if let Some(text) = self.text() {
            return vec![text];
        }
        (0..self.len()).filter_map(|position| self.at(position)?.text()).collect()
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: nobody else frees it, and this happens once.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}
