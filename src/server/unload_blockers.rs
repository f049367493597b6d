//! What the server would keep of our commands when the module is unloaded, and die of later.
//!
//! - A rule of the ACL that names one, such as `+lock.acquire`. It makes no sense any more, and the server dies
//!   of that: at once (Redis from 7.2 on, Valkey 8.0), or when the rules are next listed (before that). Valkey 8.1
//!   sees it coming and refuses.
//! - The last command of each client. `CLIENT LIST` reads its name from memory that was freed, on every
//!   server, and Redis from 8.0 on does at the client's next request.
//! - What is queued in a transaction: it would be executed where there is no code any more. Nobody tells what
//!   is queued, so any transaction counts.
//! - A command that was parsed, and not executed yet. The server has looked it up already, and keeps a pointer to what is
//!   freed. Redis 8.6 and Valkey from 9.0 on parse all that a client sent at once. What follows a command that makes
//!   its client wait is executed when the wait ends; what follows `MODULE UNLOAD` itself is executed next; and threads parse
//!   for every client, at any time. Nobody tells what has been parsed, so whoever may have sent something counts.
//!
//! So the module stays as long as there is any of them. It stays too if the server does not tell, because the command
//! that would ask was renamed: nobody unloads in a hurry.

use super::ffi::call_reply::CallReply;
use super::ffi::server_flavor;
use leasehold_core::command::{ALL, parse_integer};
use redis_module::raw::RedisModuleCtx;

/// The request to unload this module, as a client sends it.
const REQUEST: &[u8] = b"*3\r\n$6\r\nMODULE\r\n$6\r\nUNLOAD\r\n$9\r\nleasehold\r\n";

/// Its words.
const WORDS_OF_REQUEST: &[u8] = b"MODULEUNLOADleasehold";

/// The first thing found, in words.
pub(super) fn find(ctx: *mut RedisModuleCtx) -> Option<String> {
    let (Some(rules), Some(clients), Some(threads)) = (
        CallReply::to(ctx, c"ACL", &[c"LIST"]),
        CallReply::to(ctx, c"CLIENT", &[c"LIST"]),
        CallReply::to(ctx, c"CONFIG", &[c"GET", c"io-threads"]),
    ) else {
        let renamed = "ACL, CLIENT or CONFIG is renamed, so the server cannot be asked who uses it";
        return Some(renamed.to_owned());
    };
    let clients = lines(&clients);
    let counts_all = !server_flavor::parses_uncounted(ctx);
    lines(&rules)
        .into_iter()
        .find_map(rule_about_us)
        .or_else(|| clients.iter().find_map(|line| Client(line).may_need_us(counts_all)))
        .or_else(|| read_by_threads(threads.text_at(1), clients.len()))
}

/// Whether a client is loading a module right now.
pub(super) fn is_loading(ctx: *mut RedisModuleCtx) -> bool {
    let clients = CallReply::to(ctx, c"CLIENT", &[c"LIST"]);
    clients.is_some_and(|clients| lines(&clients).iter().any(|line| Client(line).is_loading()))
}

fn lines(reply: &CallReply) -> Vec<&[u8]> {
    let lines = reply.texts().into_iter().flat_map(|text| text.split(|&byte| byte == b'\n'));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Looks through `user worker on nopass ~* -@all +lock.acquire (~x -@all +lock.check)`.
fn rule_about_us(line: &[u8]) -> Option<String> {
    let mut words = line.split(|&byte| b" ()".contains(&byte));
    let user = words.nth(1)?;
    let rule = words.find(|rule| match rule {
        // It may be about one first argument: `+lock.acquire|key`.
        [b'+' | b'-', command @ ..] => {
            command.split(|&byte| byte == b'|').next().is_some_and(is_ours)
        }
        _ => false,
    })?;
    Some(format!("user {} has the rule {}", user.escape_ascii(), rule.escape_ascii()))
}

/// One more client than the one that asks for this is enough.
fn read_by_threads(threads: Option<&[u8]>, clients: usize) -> Option<String> {
    (threads != Some(b"1") && clients > 1).then(|| {
        "io-threads is not 1, and threads may be parsing what other clients send".to_owned()
    })
}

/// A line of `CLIENT LIST`:
/// `id=7 addr=127.0.0.1:50000 … flags=N … multi=-1 … argv-mem=0 … cmd=lock.acquire user=default …`.
#[derive(Clone, Copy)]
struct Client<'l>(&'l [u8]);

impl<'l> Client<'l> {
    /// `counts_all` if the server counts the words of all that it has parsed for a client.
    fn may_need_us(self, counts_all: bool) -> Option<String> {
        let id = self.field("id").unwrap_or_default().escape_ascii();
        let command = self.field("cmd").unwrap_or_default();
        if is_ours(command) {
            let command = command.escape_ascii();
            return Some(format!("the last command of client id={id} is {command}"));
        }
        // -1 is outside of any transaction.
        if self.field("multi").is_some_and(|queued| queued != b"-1" && queued != b"0") {
            return Some(format!("client id={id} is in a transaction"));
        }
        // `u` is for one that is not blocked any more, and has not gone on yet.
        if self.field("flags").unwrap_or_default().iter().any(|flag| b"bu".contains(flag)) {
            return Some(format!("client id={id} is blocked, and may have sent more commands"));
        }
        let words = self.number("argv-mem");
        if words == 0 {
            return None;
        }
        // Now it can only be the client that asks for this. It is not if a script or another module asks.
        if !is_request(command) || words != WORDS_OF_REQUEST.len() {
            return Some(format!(
                "client id={id} has sent more than MODULE UNLOAD, or something else"
            ));
        }
        (!counts_all && self.number("tot-net-in") > REQUEST.len()).then(|| {
            format!(
                "client id={id} has sent more than MODULE UNLOAD, which on this server must be all that \
                 its connection ever sent"
            )
        })
    }

    fn is_loading(self) -> bool {
        self.field("cmd").is_some_and(|command| command.starts_with(b"module|load"))
            && self.number("argv-mem") > 0
    }

    /// The largest there is if the server does not say.
    fn number(self, name: &str) -> usize {
        let number = self.field(name).and_then(parse_integer);
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(usize::MAX)
    }

    /// The last of this name: an address, which comes first, may contain anything.
    fn field(self, name: &str) -> Option<&'l [u8]> {
        let mut words = self.0.rsplit(|&byte| byte == b' ');
        words.find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }
}

fn is_ours(name: &[u8]) -> bool {
    ALL.iter().any(|spec| spec.name.to_bytes().eq_ignore_ascii_case(name))
}

/// Redis 6.2 does not name subcommands.
fn is_request(command: &[u8]) -> bool {
    [&b"module|unload"[..], b"module"].iter().any(|name| name.eq_ignore_ascii_case(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_about_a_command_of_ours_is_found_with_its_user() {
        for (line, rule) in [
            ("user w on nopass ~* &* -@all +lock.acquire", "+lock.acquire"),
            ("user w on #ab12 ~* resetchannels +@all -lock.help", "-lock.help"),
            ("user w on +@all (~x* resetchannels -@all +lock.info) (~y)", "+lock.info"),
            ("user w off -@all +LOCK.ACQUIRE|k", "+LOCK.ACQUIRE|k"),
        ] {
            let found = format!("user w has the rule {rule}");
            assert_eq!(rule_about_us(line.as_bytes()), Some(found), "{line}");
        }
    }

    #[test]
    fn other_rules_are_not() {
        for line in [
            "",
            "user",
            "user default on nopass ~* &* +@all",
            "user w on nopass ~* -@all +@lock",
            "user w on nopass ~lock.acquire %R~+lock.acquire &lock.info -@all",
            "user +lock.acquire on nopass ~* -@all +get",
            "user w on nopass ~* -@all +lock.acquired +lock +lock.",
        ] {
            assert_eq!(rule_about_us(line.as_bytes()), None, "{line}");
        }
    }

    /// What is said of a client with these fields, after those that are as usual.
    fn said(fields: &str, counts_all: bool) -> Option<String> {
        let usual = "id=7 addr=/tmp/s:0 name= flags=U multi=-1 argv-mem=0 tot-net-in=900 cmd=get";
        Client(format!("{usual} {fields} user=default").as_bytes()).may_need_us(counts_all)
    }

    #[test]
    fn a_client_that_may_need_us_is_found() {
        for (fields, why) in [
            ("cmd=lock.info", "the last command of client id=7 is lock.info"),
            ("multi=3 cmd=lock.info", "the last command of client id=7 is lock.info"),
            ("multi=1", "client id=7 is in a transaction"),
            ("flags=b", "client id=7 is blocked, and may have sent more commands"),
            ("flags=UtbP", "client id=7 is blocked, and may have sent more commands"),
            ("flags=u", "client id=7 is blocked, and may have sent more commands"),
            ("argv-mem=5", "client id=7 has sent more than MODULE UNLOAD, or something else"),
            ("argv-mem=21", "client id=7 has sent more than MODULE UNLOAD, or something else"),
            (
                "argv-mem=29 cmd=module|unload",
                "client id=7 has sent more than MODULE UNLOAD, or something else",
            ),
        ] {
            for counts_all in [true, false] {
                assert_eq!(said(fields, counts_all).as_deref(), Some(why), "{fields}");
            }
        }
    }

    #[test]
    fn other_clients_are_not() {
        for fields in
            ["", "multi=0", "cmd=NULL", "cmd=client|list user=lock.info", "cmd=module|unload"]
        {
            assert_eq!(said(fields, false), None, "{fields}");
        }
        let elsewhere = b"id=7 addr=/tmp/a cmd=lock.info flags=b /s:0 name=lock.info flags=U multi=-1 argv-mem=0 cmd=get";
        assert_eq!(Client(elsewhere).may_need_us(true), None);
    }

    #[test]
    fn the_client_that_asks_has_sent_nothing_else() {
        assert_eq!(WORDS_OF_REQUEST.len(), 21);
        for command in ["module|unload", "module"] {
            let asks = |bytes| format!("argv-mem=21 tot-net-in={bytes} cmd={command}");
            assert_eq!(said(&asks(43), false), None);
            assert_eq!(said(&asks(44), true), None, "a server that counts what it has parsed");
            let why = said(&asks(44), false).unwrap();
            assert!(why.ends_with("must be all that its connection ever sent"), "{why}");
        }
    }

    #[test]
    fn threads_are_in_the_way_of_other_clients() {
        assert_eq!(read_by_threads(Some(b"1"), 9), None);
        assert_eq!(read_by_threads(Some(b"4"), 1), None);
        assert!(read_by_threads(Some(b"4"), 2).is_some());
        assert!(read_by_threads(None, 2).is_some());
    }
}
