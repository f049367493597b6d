//! What the server would keep of our commands when the module is unloaded, and die of later.
//!
//! - A rule of the ACL that names one, such as `+lock.acquire`. It makes no sense any more, and the server dies
//!   of that: at once (Redis from 7.2 on, Valkey 8.0), or when the rules are next listed (before that). Valkey 8.1
//!   sees it coming and refuses.
//! - The last command of each client. `CLIENT LIST` reads its name from memory that was freed, on every
//!   server, and Redis from 8.0 on does at the client's next request.
//! - What is queued in a transaction: it would be executed where there is no code any more. Nobody tells what
//!   is queued, so any transaction counts.
//!
//! So the module stays as long as there is any of them.

use super::api::api;
use super::reply::Reply;
use crate::command::ALL;
use redis_module::raw::RedisModuleCtx;
use std::ffi::CStr;

/// The first thing found, in words. `None` too where the server will not tell, because the command was renamed.
pub(super) fn find(ctx: *mut RedisModuleCtx) -> Option<String> {
    let in_lines_of = |command, argument, find: fn(&[u8]) -> Option<String>| {
        let reply = ask(ctx, command, argument)?;
        reply.texts().iter().flat_map(|text| text.split(|&byte| byte == b'\n')).find_map(find)
    };
    in_lines_of(c"ACL", c"LIST", rule_about_us)
        .or_else(|| in_lines_of(c"CLIENT", c"LIST", client_that_needs_us))
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

/// Looks through `id=7 addr=127.0.0.1:50000 … multi=-1 … cmd=lock.acquire user=default …`.
fn client_that_needs_us(line: &[u8]) -> Option<String> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = words.next()?.escape_ascii();
    words.find_map(|word| {
        let mut halves = word.splitn(2, |&byte| byte == b'=');
        match (halves.next()?, halves.next()?) {
            (b"cmd", command) if is_ours(command) => {
                Some(format!("the last command of client {id} is {}", command.escape_ascii()))
            }
            // -1 is outside of any transaction.
            (b"multi", queued) if queued != b"-1" && queued != b"0" => {
                Some(format!("client {id} is in a transaction"))
            }
            _ => None,
        }
    })
}

fn is_ours(name: &[u8]) -> bool {
    ALL.iter().any(|spec| spec.name.to_bytes().eq_ignore_ascii_case(name))
}

fn ask(ctx: *mut RedisModuleCtx, command: &CStr, argument: &CStr) -> Option<Reply> {
    // SAFETY: the format takes a C string; the reply goes nowhere else.
    unsafe {
        let format = c"c".as_ptr();
        let reply = api!(RedisModule_Call)(ctx, command.as_ptr(), format, argument.as_ptr());
        Reply::of_call(reply)
    }
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

    #[test]
    fn a_client_that_needs_us_is_found() {
        let line = |multi: &str, command: &str| {
            let line = format!("id=7 addr=/tmp/s:0 name= multi={multi} cmd={command} user=default");
            client_that_needs_us(line.as_bytes())
        };
        for multi in ["-1", "0", "3"] {
            assert!(line(multi, "lock.info").is_some(), "{multi}");
        }
        assert_eq!(
            line("-1", "lock.info").unwrap(),
            "the last command of client id=7 is lock.info"
        );
        assert_eq!(line("1", "get").unwrap(), "client id=7 is in a transaction");
        for multi in ["-1", "0"] {
            assert_eq!(line(multi, "client|list"), None);
        }
    }

    #[test]
    fn other_clients_are_not() {
        for line in
            ["", "id=7", "id=7 addr=127.0.0.1:9 name=lock.info multi=-1 cmd=NULL user=lock.info"]
        {
            assert_eq!(client_that_needs_us(line.as_bytes()), None, "{line}");
        }
    }
}
