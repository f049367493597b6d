//! Replies on the wire. The server speaks RESP2 or RESP3, as the client asked. Only maps need help.

use crate::ffi::{Ctx, api, optional};
use leasehold_core::command::{Error, Reply};
use std::ffi::{CString, c_long, c_longlong};

/// Inlined: most callers have a number, or none, and nothing to drop.
#[inline(always)]
pub(crate) fn respond(ctx: Ctx, reply: Reply<'_>) {
    match reply {
        Reply::Nil => nil(ctx),
        Reply::Integer(number) => integer(ctx, number),
        reply => respond_at_length(ctx, &reply),
    }
}

#[inline(never)]
fn respond_at_length(ctx: Ctx, reply: &Reply<'_>) {
    match reply {
        Reply::Nil => nil(ctx),
        Reply::Ok => status_line(ctx, "OK"),
        Reply::Integer(number) => integer(ctx, *number),
        Reply::Bytes(bytes) => string(ctx, bytes),
        Reply::Array(items) => {
            array(ctx, items.len());
            items.iter().for_each(|item| respond_at_length(ctx, item));
        }
        Reply::Map(fields) => {
            map(ctx, fields.len());
            for (name, value) in fields {
                string(ctx, name.as_bytes());
                respond_at_length(ctx, value);
            }
        }
        Reply::Lines(lines) => {
            array(ctx, lines.len());
            lines.iter().for_each(|line| status_line(ctx, line));
        }
        Reply::Error(error) => refuse(ctx, *error),
    }
}

fn nil(ctx: Ctx) {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_ReplyWithNull)(ctx) };
}

fn integer(ctx: Ctx, number: c_longlong) {
    // SAFETY: takes a valid context and a number.
    unsafe { api!(RedisModule_ReplyWithLongLong)(ctx, number) };
}

fn string(ctx: Ctx, bytes: &[u8]) {
    // SAFETY: the server copies the bytes.
    unsafe { api!(RedisModule_ReplyWithStringBuffer)(ctx, bytes.as_ptr().cast(), bytes.len()) };
}

fn array(ctx: Ctx, len: usize) {
    // SAFETY: takes a valid context and a length.
    unsafe { api!(RedisModule_ReplyWithArray)(ctx, length(len)) };
}

fn map(ctx: Ctx, len: usize) {
    match optional!(RedisModule_ReplyWithMap) {
        // SAFETY: takes a valid context and a length.
        Some(reply_with_map) => unsafe {
            reply_with_map(ctx, length(len));
        },
        // Redis 6.2 has no maps: a flat array, in RESP3 too.
        None => array(ctx, len.saturating_mul(2)),
    }
}

fn status_line(ctx: Ctx, line: &str) {
    let line = CString::new(line).unwrap_or_default();
    // SAFETY: the server copies the line.
    unsafe { api!(RedisModule_ReplyWithSimpleString)(ctx, line.as_ptr()) };
}

fn refuse(ctx: Ctx, error: Error) {
    if error == Error::WrongArity {
        // SAFETY: takes the context of the command being answered, and the server names that command.
        unsafe { api!(RedisModule_WrongArity)(ctx) };
        return;
    }
    let text = CString::new(error.to_string()).unwrap_or_default();
    // SAFETY: the server copies the text.
    unsafe { api!(RedisModule_ReplyWithError)(ctx, text.as_ptr()) };
}

fn length(len: usize) -> c_long {
    c_long::try_from(len).unwrap_or(c_long::MAX)
}
