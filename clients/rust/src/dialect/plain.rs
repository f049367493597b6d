//! A server without the module: scripts, and commands that compare where the server has some.
//!
//! A fence is the larger of the server's clock in microseconds plus a margin and the last fence of this lock plus
//! one. The last one is kept in a key beside the lock for a day: after that the clock is far ahead of it. The margin
//! is that of the module, whose fences are ahead of the clock by as much after it has started: so fences grow when a
//! server without the module takes over from one that has it, and when it is the other way round.
//!
//! A server may be given the module while it runs. From then on a lock that a script granted would pass by the queue,
//! and its fence would be ahead of those of the module. So the script looks first: by Redis 7 and Valkey it can ask
//! whether this user may run a command, which fails for one that there is not.

use super::scripts::Script;
use super::{Compares, Question, millis};
use redis::{Cmd, Value, cmd};
use std::sync::LazyLock;

/// How long the last fence is remembered.
const DAY_MILLIS: u64 = 86_400_000;

/// What the module is set to unless somebody changed it: `leasehold.fence-margin`.
const MARGIN_MICROS: u64 = 15_000_000;

/// `KEYS`: the lock, its last fence. `ARGV`: owner, ttl, how long to remember the fence, margin.
static ACQUIRE: LazyLock<Lua> = LazyLock::new(|| {
    Lua::new(
        r"
if redis.acl_check_cmd then
  local is_known, may = pcall(redis.acl_check_cmd, 'LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2])
  if is_known and may then return redis.error_reply('LEASEHOLD the module has been loaded') end
end
local held = redis.call('GET', KEYS[1])
if held then
  local fence = string.match(held, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):')
  if not (fence and string.sub(held, 18) == ARGV[1]) then
    if held ~= ARGV[1] then return false end
    fence = '0'
  end
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return fence
end
local now = redis.call('TIME')
local fence = now[1] * 1000000 + now[2] + ARGV[4]
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if last and last >= fence then fence = last + 1 end
fence = string.format('%016.0f', fence)
redis.call('SET', KEYS[1], fence .. ':' .. ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], fence, 'PX', ARGV[3])
return fence",
    )
});

/// `ARGV`: the value, ttl.
static EXTEND: LazyLock<Lua> = LazyLock::new(|| {
    Lua::new(
        r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    )
});

/// `ARGV`: the value.
static RELEASE: LazyLock<Lua> = LazyLock::new(|| {
    Lua::new(
        r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])",
    )
});

/// `ARGV`: the owner.
static RELEASE_ANY: LazyLock<Lua> = LazyLock::new(|| {
    Lua::new(
        r"
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 17) ~= ':' .. ARGV[1] and held ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])",
    )
});

/// `KEYS`: the lock, its last fence. `ARGV`: owner, fence in sixteen digits, how long to remember it, how far ahead of
/// the clock it may be. What the module says in each case, this says too.
static RAISE: LazyLock<Lua> = LazyLock::new(|| {
    Lua::new(
        r"
local held = redis.call('GET', KEYS[1])
if not held then return false end
local fence = string.match(held, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):')
if not (fence and string.sub(held, 18) == ARGV[1]) then
  if held ~= ARGV[1] then return false end
  return '0'
end
local now = redis.call('TIME')
if tonumber(ARGV[2]) > now[1] * 1000000 + now[2] + ARGV[4] then
  return redis.error_reply('ERR fence must be at most a day ahead of the server\'s clock')
end
if tonumber(fence) >= tonumber(ARGV[2]) then return fence end
redis.call('SET', KEYS[1], ARGV[2] .. ':' .. ARGV[1], 'KEEPTTL')
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if not last or last < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return ARGV[2]",
    )
});

struct Lua {
    text: &'static str,
    digest: String,
}

impl Lua {
    fn new(text: &'static str) -> Self {
        Self { text, digest: redis::Script::new(text).get_hash().to_owned() }
    }
}

/// How a script is named: by its digest, which is short, or by itself.
#[derive(Clone, Copy)]
enum By {
    Digest,
    Text,
}

/// The script that this question takes, if the server has no command for it.
pub(crate) fn script_for(compares: Compares, question: Question<'_>) -> Option<Script> {
    match (question, compares) {
        (Question::Acquire { .. } | Question::Wait { .. } | Question::Ticket { .. }, _) => {
            Some(Script::Acquire)
        }
        (Question::Extend { .. }, Compares::Scripts) => Some(Script::Extend),
        (Question::Release { .. }, Compares::Scripts | Compares::Set) => Some(Script::Release),
        (Question::Extend { .. } | Question::Release { .. }, _) => None,
        (Question::ReleaseAny { .. }, _) => Some(Script::ReleaseAny),
        (Question::Raise { .. }, _) => Some(Script::Raise),
    }
}

pub(crate) fn command(compares: Compares, key: &str, question: Question<'_>) -> Cmd {
    written(compares, By::Digest, key, question)
}

pub(crate) fn command_in_full(compares: Compares, key: &str, question: Question<'_>) -> Cmd {
    written(compares, By::Text, key, question)
}

fn written(compares: Compares, by: By, key: &str, question: Question<'_>) -> Cmd {
    let mut command;
    match question {
        // Nobody waits here; whoever asks in this way is told of the present.
        Question::Acquire { owner, ttl, .. }
        | Question::Wait { owner, ttl, .. }
        | Question::Ticket { owner, ttl, .. } => {
            command = script(&ACQUIRE, by, 2);
            command.arg(key).arg(beside(key)).arg(owner).arg(millis(ttl));
            command.arg(DAY_MILLIS).arg(MARGIN_MICROS);
        }
        Question::Extend { owner, fence, ttl } => {
            let value = value(fence, owner);
            if compares == Compares::Scripts {
                command = script(&EXTEND, by, 1);
                command.arg(key).arg(value).arg(millis(ttl));
            } else {
                command = cmd("SET");
                command.arg(key).arg(&value).arg("IFEQ").arg(&value).arg("PX").arg(millis(ttl));
            }
        }
        Question::Release { owner, fence } => {
            let value = value(fence, owner);
            match compares {
                Compares::Scripts | Compares::Set => {
                    command = script(&RELEASE, by, 1);
                    command.arg(key).arg(value);
                }
                Compares::Delex => {
                    command = cmd("DELEX");
                    command.arg(key).arg("IFEQ").arg(value);
                }
                Compares::Delifeq => {
                    command = cmd("DELIFEQ");
                    command.arg(key).arg(value);
                }
            }
        }
        Question::ReleaseAny { owner, .. } => {
            command = script(&RELEASE_ANY, by, 1);
            command.arg(key).arg(owner);
        }
        Question::Raise { owner, fence } => {
            command = script(&RAISE, by, 2);
            command.arg(key).arg(beside(key)).arg(owner).arg(format!("{fence:016}"));
            command.arg(DAY_MILLIS).arg(DAY_MILLIS.saturating_mul(1_000));
        }
    }
    command
}

fn script(script: &Lua, by: By, keys: u8) -> Cmd {
    let mut command;
    match by {
        By::Digest => {
            command = cmd("EVALSHA");
            command.arg(&script.digest);
        }
        By::Text => {
            command = cmd("EVAL");
            command.arg(script.text);
        }
    }
    command.arg(keys);
    command
}

/// What the key holds. A fence of 0 is that of a lock that another kind of client wrote.
fn value(fence: u64, owner: &str) -> String {
    if fence == 0 { owner.to_owned() } else { format!("{fence:016}:{owner}") }
}

/// The fence in what the key holds, if this owner has the lock: 0 if another kind of client wrote it.
pub(super) fn fence_in(held: &Value, owner: &str) -> Option<u64> {
    let Value::BulkString(held) = held else { return None };
    if held == owner.as_bytes() {
        return Some(0);
    }
    let (fence, holder) = std::str::from_utf8(held).ok()?.split_once(':')?;
    let is_fence = fence.len() == 16 && fence.bytes().all(|digit| digit.is_ascii_digit());
    if is_fence && holder == owner { fence.parse().ok() } else { None }
}

/// The key of the last fence, in the slot of the lock. A name with a closing brace that closes nothing has none there:
/// a cluster refuses it.
fn beside(key: &str) -> String {
    if has_tag(key) || key.contains('}') {
        format!("{key}:fence")
    } else {
        format!("{{{key}}}:fence")
    }
}

fn has_tag(key: &str) -> bool {
    let inside = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    inside.is_some_and(|(tag, _)| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::words;
    use crate::share::Share;
    use std::time::Duration;

    const TTL: Duration = Duration::from_secs(5);

    #[test]
    fn the_last_fence_is_kept_in_the_slot_of_the_lock() {
        assert_eq!(beside("printer"), "{printer}:fence");
        assert_eq!(beside("{order}.lock"), "{order}.lock:fence");
        assert_eq!(beside("a{b}c"), "a{b}c:fence");
    }

    #[test]
    fn the_fence_of_an_owner_is_in_what_the_key_holds() {
        let fence = |held: &str| fence_in(&Value::BulkString(held.as_bytes().to_vec()), "alice");
        assert_eq!(fence("0000000000000007:alice"), Some(7));
        assert_eq!(fence("0000000000000007:bob"), None);
        assert_eq!(fence("7:alice"), None);
        assert_eq!(fence("alice"), Some(0));
        assert_eq!(fence_in(&Value::Nil, "alice"), None);
    }

    #[test]
    fn a_server_that_compares_needs_no_script() {
        let asked = |compares, question| words(&command(compares, "printer", question));
        let release = Question::Release { owner: "alice", fence: 7 };
        let value = "0000000000000007:alice";
        assert_eq!(asked(Compares::Delex, release), format!("DELEX printer IFEQ {value}"));
        assert_eq!(asked(Compares::Delifeq, release), format!("DELIFEQ printer {value}"));
        assert!(asked(Compares::Set, release).starts_with("EVALSHA "));
        let extend = Question::Extend { owner: "alice", fence: 7, ttl: TTL };
        let set = format!("SET printer {value} IFEQ {value} PX 5000");
        assert_eq!(asked(Compares::Set, extend), set);
        assert!(asked(Compares::Scripts, extend).starts_with("EVALSHA "));
    }

    #[test]
    fn each_question_that_takes_a_script_is_known_by_it() {
        let owner = "alice";
        let questions = [
            Question::Acquire { owner, share: Share::Exclusive, ttl: TTL, grace: None, also: &[] },
            Question::Extend { owner, fence: 7, ttl: TTL },
            Question::Release { owner, fence: 7 },
            Question::ReleaseAny { owner, also: &[] },
            Question::Raise { owner, fence: 7 },
        ];
        use Compares::{Delex, Delifeq, Scripts, Set};
        for compares in [Scripts, Set, Delex, Delifeq] {
            for question in questions {
                let sent = words(&command(compares, "printer", question));
                let script = script_for(compares, question);
                assert_eq!(script.is_some(), sent.starts_with("EVALSHA "), "{sent}");
            }
        }
    }

    #[test]
    fn a_script_is_sent_in_full_when_it_is_not_known() {
        let question = Question::ReleaseAny { owner: "alice", also: &[] };
        let sent = words(&command_in_full(Compares::Scripts, "printer", question));
        assert!(sent.starts_with("EVAL ") && sent.ends_with("1 printer alice"), "{sent}");
    }
}
