//! Strings of the server, and C strings for it.

use super::api::{Ctx, RawString, api};
use std::ffi::{CStr, c_int};
use std::mem::ManuallyDrop;
use std::slice;

/// The bytes of a server string.
///
/// # Safety
/// The string is valid, and neither freed nor changed while the bytes are in use.
pub(crate) unsafe fn bytes_of<'s>(string: RawString) -> &'s [u8] {
    let mut len = 0;
    // SAFETY: the caller guarantees that the string is valid. The server returns its bytes and their number.
    unsafe {
        let bytes = api!(RedisModule_StringPtrLen)(string, &raw mut len);
        slice::from_raw_parts(bytes.cast(), len)
    }
}

/// The words of a command, or of a loadmodule line, as the server passes them.
pub(crate) struct Words {
    argv: *mut RawString,
    argc: usize,
}

impl Words {
    /// # Safety
    /// These are `argc` valid strings, which the server keeps as long as the value is in use.
    pub(crate) unsafe fn new(argv: *mut RawString, argc: c_int) -> Self {
        Self { argv, argc: usize::try_from(argc).unwrap_or(0) }
    }

    pub(crate) fn strings(&self) -> &[RawString] {
        if self.argv.is_null() {
            return &[];
        }
        // SAFETY: see `new`.
        unsafe { slice::from_raw_parts(self.argv, self.argc) }
    }

    pub(crate) fn bytes(&self) -> Vec<&[u8]> {
        // SAFETY: see `new`.
        self.strings().iter().map(|&string| unsafe { bytes_of(string) }).collect()
    }
}

/// A server string that is ours to free.
pub(crate) struct OwnedString {
    ctx: Ctx,
    string: RawString,
}

impl OwnedString {
    pub(crate) fn new(ctx: Ctx, bytes: &[u8]) -> Self {
        // SAFETY: the server copies the bytes.
        let string =
            unsafe { api!(RedisModule_CreateString)(ctx, bytes.as_ptr().cast(), bytes.len()) };
        Self { ctx, string }
    }

    /// # Safety
    /// The string belongs to the server, and nobody else frees it.
    pub(crate) unsafe fn given(ctx: Ctx, string: RawString) -> Self {
        Self { ctx, string }
    }

    pub(crate) fn string(&self) -> RawString {
        self.string
    }

    /// Gives up ownership without freeing the string.
    pub(crate) fn given_away(self) -> RawString {
        ManuallyDrop::new(self).string
    }
}

impl Drop for OwnedString {
    fn drop(&mut self) {
        // SAFETY: created in `new` or handed over in `given`, and freed once here. Another user of the value holds its
        // own reference.
        unsafe { api!(RedisModule_FreeString)(self.ctx, self.string) };
    }
}

/// A C string on the stack, for names and formats that are made for one call. At most `ROOM` bytes, including the final
/// zero.
pub(crate) struct ShortText<const ROOM: usize> {
    /// Zero after the text.
    bytes: [u8; ROOM],
    len: usize,
}

impl<const ROOM: usize> ShortText<ROOM> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    /// Appends these bytes. `None` if they do not fit, or if one of them is zero.
    pub(crate) fn with(mut self, bytes: &[u8]) -> Option<Self> {
        let end = self.len.checked_add(bytes.len()).filter(|&end| end < ROOM)?;
        if bytes.contains(&0) {
            return None;
        }
        self.bytes.get_mut(self.len..end)?.copy_from_slice(bytes);
        self.len = end;
        Some(self)
    }

    pub(crate) fn in_lower_case(mut self) -> Self {
        self.bytes.make_ascii_lowercase();
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_ended_and_what_does_not_is_refused() {
        let text = ShortText::<6>::new().with(b"ab").unwrap().with(b"cde").unwrap();
        assert_eq!((text.as_c_str(), text.as_bytes()), (c"abcde", &b"abcde"[..]));
        assert!(text.with(b"f").is_none());
        assert!(ShortText::<6>::new().with(b"a\0b").is_none());
        assert_eq!(ShortText::<1>::new().as_c_str(), c"");
        let mixed = ShortText::<9>::new().with(b"Get|K-1").unwrap();
        assert_eq!(mixed.in_lower_case().as_bytes(), b"get|k-1");
    }
}
