//! What the server replied to a command that the module had it execute.

use super::api::api;
use redis_module::raw;
use std::ptr::NonNull;
use std::slice;

/// Freed with its last use.
pub(super) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    /// `None` if the server did not execute it.
    ///
    /// # Safety
    /// It is what a call just made came to, and nobody else frees it.
    pub(super) unsafe fn of_call(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Self)
    }

    /// The text that it is.
    pub(super) fn text(&self) -> Option<&[u8]> {
        self.text_of(self.0)
    }

    /// The text at this position of those that it lists.
    pub(super) fn text_at(&self, position: usize) -> Option<&[u8]> {
        // SAFETY: the reply lives as long as this does; the server answers null for what is not there.
        let item = unsafe { api!(RedisModule_CallReplyArrayElement)(self.0.as_ptr(), position) };
        self.text_of(NonNull::new(item)?)
    }

    /// The text that it is, or those that it lists.
    pub(super) fn texts(&self) -> Vec<&[u8]> {
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
