//! What the server replied to a command that the module had it execute.

use super::api::api;
use redis_module::raw::{self, RedisModuleCtx};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::slice;

/// Freed with its last use.
pub(crate) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    /// `None` if the server did not execute it.
    ///
    /// # Safety
    /// It is what a call just made came to, and nobody else frees it.
    pub(crate) unsafe fn of_call(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Self)
    }

    /// Has the server execute a command with one, two or three arguments. `None` if it does not, as where the command was
    /// renamed.
    pub(crate) fn to(
        ctx: *mut RedisModuleCtx,
        command: &CStr,
        arguments: &[&CStr],
    ) -> Option<Self> {
        let (call, command) = (api!(RedisModule_Call), command.as_ptr());
        // SAFETY: each format takes so many C strings; the reply goes nowhere else.
        unsafe {
            Self::of_call(match *arguments {
                [only] => call(ctx, command, c"c".as_ptr(), only.as_ptr()),
                [one, two] => call(ctx, command, c"cc".as_ptr(), one.as_ptr(), two.as_ptr()),
                [one, two, three] => {
                    let format = c"ccc".as_ptr();
                    call(ctx, command, format, one.as_ptr(), two.as_ptr(), three.as_ptr())
                }
                _ => return None,
            })
        }
    }

    /// The text that it is.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        self.text_of(self.0)
    }

    /// The text at this position of those that it lists.
    pub(crate) fn text_at(&self, position: usize) -> Option<&[u8]> {
        // SAFETY: the reply lives as long as this does; the server answers null for what is not there.
        let item = unsafe { api!(RedisModule_CallReplyArrayElement)(self.0.as_ptr(), position) };
        self.text_of(NonNull::new(item)?)
    }

    /// The text that it is, or those that it lists.
    pub(crate) fn texts(&self) -> Vec<&[u8]> {
        if let Some(text) = self.text() {
            return vec![text];
        }
        // SAFETY: the reply lives as long as this does.
        let len = unsafe { api!(RedisModule_CallReplyLength)(self.0.as_ptr()) };
        (0..len).filter_map(|position| self.text_at(position)).collect()
    }

    /// Of the reply itself or of an item of it.
    fn text_of(&self, part: NonNull<raw::RedisModuleCallReply>) -> Option<&[u8]> {
        let mut len = 0;
        // SAFETY: the server answers null for what is no text; else it points to so many bytes, which live as
        // long as the whole reply.
        unsafe {
            let text = api!(RedisModule_CallReplyStringPtr)(part.as_ptr(), &raw mut len);
            (!text.is_null()).then(|| slice::from_raw_parts(text.cast(), len))
        }
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: nobody else frees it, and this happens once.
        unsafe { api!(RedisModule_FreeCallReply)(self.0.as_ptr()) };
    }
}
