//! What the server says of a guarded command.
//!
//! The server is asked once for each of its own commands, since they never change. A module's command may be a
//! different one after `MODULE UNLOAD`, so the server is asked each time.

use crate::ffi::{CallReply, Ctx, MainThread, ShortText, api};
use leasehold_core::command::Error;
use leasehold_core::command::guard::{Described, Guarded};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The name of a command and its subcommand. No command of the server has a name of nearly that length.
pub(crate) type CommandName = ShortText<129>;

static KNOWN: MainThread<RefCell<BTreeMap<Box<[u8]>, Known>>> =
    MainThread::new(RefCell::new(BTreeMap::new()));

#[derive(Clone, Copy)]
enum Known {
    Command(Result<Guarded, Error>),
    /// Depends on the second word, as in `OBJECT ENCODING`.
    Container,
}

/// The command that begins with these words, if it can be guarded.
pub(crate) fn find(ctx: Ctx, name: &[u8], second: Option<&[u8]>) -> Result<Guarded, Error> {
    // The server would read `|` as the separator of a subcommand, but no command name contains it.
    if name.contains(&b'|') {
        return Err(Error::GuardedUnknown);
    }
    let name = CommandName::new().with(name).ok_or(Error::GuardedUnknown)?.in_lower_case();
    match look_up(ctx, name.as_bytes())? {
        Known::Command(guarded) => guarded,
        Known::Container => {
            let second = second.ok_or(Error::GuardedArity)?;
            let both = name.with(b"|").and_then(|name| name.with(second));
            let both = both.ok_or(Error::GuardedUnknown)?.in_lower_case();
            match look_up(ctx, both.as_bytes())? {
                Known::Command(guarded) => guarded,
                Known::Container => Err(Error::GuardedUnknown),
            }
        }
    }
}

fn look_up(ctx: Ctx, name: &[u8]) -> Result<Known, Error> {
    if let Some(&known) = KNOWN.borrow().get(name) {
        return Ok(known);
    }
    ask(ctx, name)
}

fn ask(ctx: Ctx, name: &[u8]) -> Result<Known, Error> {
    // SAFETY: the format takes a C string, then bytes and their number. Nobody else gets the reply.
    let reply = unsafe {
        let (call, command, format) = (api!(RedisModule_Call), c"COMMAND", c"cb".as_ptr());
        CallReply::of_call(ctx, command, || {
            call(ctx, command.as_ptr(), format, c"INFO".as_ptr(), name.as_ptr(), name.len())
        })
    };
    let reply = reply.ok_or(Error::CommandRenamed)?;
    let command = reply.whole().at(0).ok_or(Error::GuardedUnknown)?;
    let texts_at = |place| command.at(place).map(|part| part.texts()).unwrap_or_default();
    let described = Described {
        name: command.at(0).and_then(|name| name.text()).ok_or(Error::GuardedUnknown)?,
        arity: command.at(1).map_or(0, |arity| arity.integer()),
        flags: texts_at(2),
        categories: texts_at(6),
    };
    let has_subcommands = command.at(9).is_some_and(|subcommands| subcommands.len() > 0);
    let known =
        if has_subcommands { Known::Container } else { Known::Command(described.guarded()) };
    if !described.is_of_a_module() {
        KNOWN.borrow_mut().insert(name.into(), known);
    }
    Ok(known)
}
