//! An open key: its value, and how it may change.
//!
//! A change is replicated first and made second. The server queues what it replicates until the command ends, so the
//! order does not show. But the server can refuse to replicate (see [`replicate`]), and then nothing must have changed
//! (L7).
//!
//! The module itself tells the server which keys it modified. By default every key opened for writing counts, and a
//! refused try would abort the transactions of clients that WATCH the lock.

use crate::ffi::{Ctx, OwnedString, RawString, api, flag, status};
use crate::replication::replicate;
use leasehold_core::command::Error;
use leasehold_core::engine::{self, Mode};
use leasehold_core::lock::{Deadline, Edit, Stored, Value, Write};
use redis_module::raw::{self, RedisModuleKey};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::{ptr, slice};

pub(crate) struct OpenKey<'c> {
    ctx: Ctx,
    name: RawString,
    /// Null for a missing key that was opened to be read.
    handle: *mut RedisModuleKey,
    /// The handle does not outlive the server's call of the module.
    command: PhantomData<&'c ()>,
}

impl OpenKey<'_> {
    #[inline(always)]
    pub(crate) fn open(ctx: Ctx, name: RawString, mode: Mode) -> Result<Self, Error> {
        let to_write = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
        let flags = match mode {
            Mode::Read => raw::REDISMODULE_READ,
            // On older servers, opening a key only to read counts as a hit or a miss.
            Mode::Look | Mode::Peek => to_write | raw::REDISMODULE_OPEN_KEY_NOTOUCH,
            Mode::Write => to_write,
        };
        let key = Self::open_with(ctx, name, flags);
        // A missing key has a handle to be written. Valkey 9.2 gives none for a key that it is saving.
        if key.handle.is_null() && mode != Mode::Read { Err(Error::NotNow) } else { Ok(key) }
    }

    /// Opens a key without access times, statistics or events: for keys that may not be locks.
    pub(crate) fn peek(ctx: Ctx, name: RawString) -> Self {
        Self::open_with(
            ctx,
            name,
            raw::REDISMODULE_READ
                | raw::REDISMODULE_OPEN_KEY_NOTOUCH
                | raw::REDISMODULE_OPEN_KEY_NONOTIFY
                | raw::REDISMODULE_OPEN_KEY_NOSTATS,
        )
    }

    fn open_with(ctx: Ctx, name: RawString, flags: u32) -> Self {
        let mode = flag(flags);
        // SAFETY: the callers pass a valid context and a valid string, and keep both until the key is closed.
        let handle = unsafe { api!(RedisModule_OpenKey)(ctx, name, mode) };
        Self { ctx, name, handle, command: PhantomData }
    }

    /// A key that the server has opened for reading, and closes itself.
    ///
    /// # Safety
    /// The handle stays open while the returned value is in use.
    pub(crate) unsafe fn lent(ctx: Ctx, handle: *mut RedisModuleKey) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self { ctx, name: ptr::null_mut(), handle, command: PhantomData })
    }

    /// What the key holds. The bytes belong to the server, and live until the key is changed. The borrow checker
    /// enforces this, because every change needs `&mut self`.
    fn read(&self) -> Stored<'_> {
        let kind = self.kind();
        if kind == kind_of(raw::REDISMODULE_KEYTYPE_EMPTY) {
            return Stored::Nothing;
        }
        if kind != kind_of(raw::REDISMODULE_KEYTYPE_STRING) {
            return Stored::OtherType;
        }
        let value = self.text();
        // SAFETY: the handle is open and not empty. Some servers crash here on an empty one.
        let deadline = unsafe { api!(RedisModule_GetAbsExpire)(self.handle) };
        // Negative means no expiry.
        let deadline = u64::try_from(deadline).ok().map(Deadline::from_millis);
        Stored::Text { value, deadline }
    }

    fn kind(&self) -> c_int {
        // SAFETY: the handle is open. Null is allowed, and means an empty key.
        unsafe { api!(RedisModule_KeyType)(self.handle) }
    }

    /// The bytes of a key that is known to be a string.
    fn text(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: the handle is open on a string, so the server returns `len` bytes of it, or a pointer to no bytes.
        // Nothing else runs on this thread while they are borrowed.
        unsafe {
            let mode = flag(raw::REDISMODULE_READ);
            let bytes = api!(RedisModule_StringDMA)(self.handle, &raw mut len, mode);
            if bytes.is_null() { &[] } else { slice::from_raw_parts(bytes.cast(), len) }
        }
    }

    /// The length of a string, or the number of elements of another type. 0 for a missing key.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the handle is open. Null is allowed, and means an empty key.
        unsafe { api!(RedisModule_ValueLength)(self.handle) }
    }

    pub(crate) fn has_expiry(&self) -> bool {
        // SAFETY: the handle is open. A null one, an empty key, on which some servers crash here, was excluded first.
        !self.handle.is_null() && unsafe { api!(RedisModule_GetAbsExpire)(self.handle) } >= 0
    }

    fn set(&mut self, value: &OwnedString) {
        // SAFETY: the handle is open for writing, and the server takes its own reference to the string.
        let outcome = unsafe { api!(RedisModule_StringSet)(self.handle, value.string()) };
        debug_assert_eq!(outcome, status(true));
    }

    fn signal(&self) {
        // SAFETY: context and name are those that the key was opened with.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.ctx, self.name) };
    }

    fn expire(&mut self, deadline: Deadline) -> Result<(), Error> {
        if self.kind() != kind_of(raw::REDISMODULE_KEYTYPE_STRING) {
            return Ok(());
        }
        // Replicates the whole value instead of its expiry alone, so that the command is complete whatever the
        // replicas missed.
        replicate::set_bytes(self.ctx, self.name, self.text(), deadline)?;
        self.expire_at(deadline);
        Ok(())
    }

    /// Writes a whole lock.
    fn put(&mut self, value: &[u8], deadline: Option<Deadline>) -> Result<(), Error> {
        let value = OwnedString::new(self.ctx, value);
        replicate::set(self.ctx, self.name, value.string(), deadline)?;
        self.set(&value);
        if let Some(deadline) = deadline {
            self.expire_at(deadline);
        }
        Ok(())
    }

    /// Changes one of several holds. The key's expiry is replicated too: a replica that has lost the key would
    /// otherwise create a key that never expires from the appended part.
    fn edit(&mut self, edit: &Edit<'_>) -> Result<(), Error> {
        if let Some(value) = edit.rewritten(self.text()) {
            return self.put(&value, Some(edit.expiry));
        }
        for (at, patch) in edit.ends(self.text()).chain(edit.over()) {
            replicate::set_range(self.ctx, self.name, at, patch.as_bytes())?;
        }
        let appended = edit.appended();
        if let Some(line) = &appended {
            replicate::append(self.ctx, self.name, line.as_bytes())?;
        }
        replicate::expire_at(self.ctx, self.name, edit.expiry)?;
        edit.patch(self.text_mut());
        if let Some(line) = &appended {
            let (line, begin) = (line.as_bytes(), self.len());
            let end = begin.saturating_add(line.len());
            self.resize(end);
            if let Some(place) = self.text_mut().get_mut(begin..end) {
                place.copy_from_slice(line);
            }
        }
        self.expire_at(edit.expiry);
        Ok(())
    }

    /// The bytes of a key that is known to be a string, to be overwritten.
    fn text_mut(&mut self) -> &mut [u8] {
        let mut len = 0;
        // SAFETY: the handle is open for writing on a string, so the server makes the string this key's own and
        // returns `len` bytes of it. They live until the key is changed otherwise, which needs `&mut self` too.
        unsafe {
            let mode = flag(raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
            let text = api!(RedisModule_StringDMA)(self.handle, &raw mut len, mode);
            if text.is_null() { &mut [] } else { slice::from_raw_parts_mut(text.cast(), len) }
        }
    }

    fn resize(&mut self, len: usize) {
        // SAFETY: the handle is open for writing on a string.
        let outcome = unsafe { api!(RedisModule_StringTruncate)(self.handle, len) };
        debug_assert_eq!(outcome, status(true));
    }

    fn delete(&mut self) -> Result<(), Error> {
        replicate::del(self.ctx, self.name)?;
        // SAFETY: the handle is open for writing.
        let outcome = unsafe { api!(RedisModule_DeleteKey)(self.handle) };
        debug_assert_eq!(outcome, status(true));
        Ok(())
    }

    fn expire_at(&mut self, deadline: Deadline) {
        let millis = replicate::signed_millis(deadline);
        // SAFETY: the handle is open for writing, on a key that holds a value.
        let outcome = unsafe { api!(RedisModule_SetAbsExpire)(self.handle, millis) };
        debug_assert_eq!(outcome, status(true));
    }
}

impl engine::Key for OpenKey<'_> {
    fn stored(&self) -> Stored<'_> {
        self.read()
    }

    fn write(&mut self, write: &Write<'_>) -> Result<(), Error> {
        match *write {
            Write::Keep => return Ok(()),
            Write::Hold { owner, fence, deadline, share } => {
                self.put(Value::of_hold(fence, owner, deadline, share).as_bytes(), deadline)?;
            }
            Write::Edit(ref edit) => self.edit(edit)?,
            Write::Restore(seen) => self.put(&seen.value, seen.deadline)?,
            Write::Expire(deadline) => self.expire(deadline)?,
            Write::Delete => self.delete()?,
        }
        self.signal();
        Ok(())
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        // SAFETY: opened once in `open`, closed once here. Null is allowed.
        unsafe { api!(RedisModule_CloseKey)(self.handle) };
    }
}

fn kind_of(kind: isize) -> c_int {
    c_int::try_from(kind).unwrap_or(c_int::MAX)
}
