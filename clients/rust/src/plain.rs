//! A server without the module: scripts do the work of the module, with its keys and values.
//!
//! A fence is the larger of the server's clock in microseconds plus a margin, and the last fence of the lock plus one. A key
//! beside the lock keeps the last fence for a day; after that the clock is far ahead of it. The module's fences are ahead of
//! the clock by this margin after its start. So fences grow from a server with the module to one without, and back.
//!
//! A running server may load the module. After that, a lock granted by a script would bypass the queue, and its fence would
//! be ahead of the module's. So the script checks first: with Redis 7 and Valkey it asks whether this user may run the
//! module's command, which fails if the command does not exist.

use crate::question::{Claim, EXCLUSIVE, Question, millis};
use redis::{Cmd, RedisError, cmd, make_extension_error};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

pub(crate) const DAY_MILLIS: u64 = 86_400_000;

/// The module's default for `leasehold.fence-margin`.
pub(crate) const MARGIN_MICROS: u64 = 15_000_000;

/// `KEYS`: the locks, then the key of the last fence of each. `ARGV`: owner, ttl, lifetime of the last fence, margin.
const ACQUIRE: &str = r"
if redis.acl_check_cmd then
  local is_known, may = pcall(redis.acl_check_cmd, 'LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2])
  if is_known and may then return redis.error_reply('LEASEHOLD the module has been loaded') end
end
local locks, same = #KEYS / 2, nil
for at = 1, locks do
  local held = redis.call('GET', KEYS[at])
  local fence = false
  if held then
    fence = string.match(held, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):')
    if not (fence and string.sub(held, 18) == ARGV[1]) then
      if held ~= ARGV[1] then return false end
      fence = '0'
    end
  end
  if at == 1 then same = fence elseif same ~= fence then same = false end
end
if same then
  for at = 1, locks do
    local left = redis.call('PTTL', KEYS[at])
    if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[at], ARGV[2]) end
  end
  return same
end
local now = redis.call('TIME')
local fence = now[1] * 1000000 + now[2] + ARGV[4]
for at = locks + 1, 2 * locks do
  local last = tonumber(redis.call('GET', KEYS[at]) or '0')
  if last and last >= fence then fence = last + 1 end
end
fence = string.format('%016.0f', fence)
for at = 1, locks do
  redis.call('SET', KEYS[at], fence .. ':' .. ARGV[1], 'PX', ARGV[2])
  redis.call('SET', KEYS[locks + at], fence, 'PX', ARGV[3])
end
return fence";

/// `ARGV`: the value, ttl.
const EXTEND: &str = r"
for at = 1, #KEYS do
  if redis.call('GET', KEYS[at]) ~= ARGV[1] then return 0 end
end
for at = 1, #KEYS do redis.call('PEXPIRE', KEYS[at], ARGV[2]) end
return 1";

/// `ARGV`: the value.
const RELEASE: &str = r"
local released = 0
for at = 1, #KEYS do
  if redis.call('GET', KEYS[at]) == ARGV[1] then released = released + redis.call('DEL', KEYS[at]) end
end
return released";

/// `ARGV`: the owner.
const RELEASE_ANY: &str = r"
local released = 0
for at = 1, #KEYS do
  local held = redis.call('GET', KEYS[at])
  if held and (string.sub(held, 17) == ':' .. ARGV[1] or held == ARGV[1]) then
    released = released + redis.call('DEL', KEYS[at])
  end
end
return released";

/// `KEYS`: the lock, the key of its last fence. `ARGV`: owner, fence in 16 digits, lifetime of the last fence, how far ahead
/// of the clock the fence may be. The replies are those of the module.
const RAISE: &str = r"
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
return ARGV[2]";

const DAY_MICROS: u64 = 86_400_000_000;

static DIGESTS: LazyLock<[String; 5]> = LazyLock::new(|| {
    [ACQUIRE, EXTEND, RELEASE, RELEASE_ANY, RAISE]
        .map(|text| redis::Script::new(text).get_hash().to_owned())
});

/// A call of a script. `words` has the number of keys, the keys and the arguments.
pub(crate) struct Call {
    script: usize,
    text: &'static str,
    words: Vec<Vec<u8>>,
}

/// The scripts that a server has cached. The client sends each in full until then and by its digest afterwards, because the
/// server counts an unknown digest as an error.
#[derive(Debug, Default)]
pub(crate) struct Known(AtomicU8);

impl Known {
    pub(crate) fn knows(&self, call: &Call) -> bool {
        self.0.load(Relaxed) & (1 << call.script) != 0
    }

    pub(crate) fn learn(&self, call: &Call) {
        self.0.fetch_or(1 << call.script, Relaxed);
    }

    pub(crate) fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

impl Call {
    pub(crate) fn of(claim: &Claim, question: Question<'_>) -> Result<Self, RedisError> {
        let Claim { keys, owner, .. } = claim;
        let besides = || keys.iter().map(|key| beside(key));
        let arg = |number: u64| number.to_string().into_bytes();
        let (script, text, keys, args) = match question {
            // There is no queue here, so requests that would wait are tries.
            Question::Try { ttl } | Question::Block { ttl, .. } | Question::Ticket { ttl, .. } => {
                if claim.share != EXCLUSIVE || claim.grace.is_some() {
                    let why =
                        "and ephemeral holds need the module, which this server does not have";
                    return Err(make_extension_error("SHARE".to_owned(), Some(why.to_owned())));
                }
                let args = vec![
                    owner.as_bytes().to_vec(),
                    arg(millis(ttl)),
                    arg(DAY_MILLIS),
                    arg(MARGIN_MICROS),
                ];
                (0, ACQUIRE, keys.iter().cloned().chain(besides()).collect(), args)
            }
            Question::Extend { ttl, fence } => {
                (1, EXTEND, keys.clone(), vec![value(fence, owner), arg(millis(ttl))])
            }
            Question::Release { fence: Some(fence) } => {
                (2, RELEASE, keys.clone(), vec![value(fence, owner)])
            }
            Question::Release { fence: None } => {
                (3, RELEASE_ANY, keys.clone(), vec![owner.as_bytes().to_vec()])
            }
            Question::Raise { fence } => {
                let fence = format!("{fence:016}").into_bytes();
                let args = vec![owner.as_bytes().to_vec(), fence, arg(DAY_MILLIS), arg(DAY_MICROS)];
                (4, RAISE, keys.iter().cloned().chain(besides()).collect::<Vec<_>>(), args)
            }
        };
        let words =
            std::iter::once(keys.len().to_string().into_bytes()).chain(keys).chain(args).collect();
        Ok(Self { script, text, words })
    }

    pub(crate) fn in_full(&self) -> Cmd {
        self.command("EVAL", self.text)
    }

    pub(crate) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", DIGESTS.get(self.script).map_or("", String::as_str))
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(&self.words);
        command
    }
}

/// The value of the key. A fence of 0 stands for a lock of another kind of client.
pub(crate) fn value(fence: u64, owner: &str) -> Vec<u8> {
    if fence == 0 { owner.into() } else { format!("{fence:016}:{owner}").into_bytes() }
}

/// The fence and the owner in a value; none if another kind of client wrote it.
pub(crate) fn parts(held: &[u8]) -> Option<(u64, &[u8])> {
    let (fence, owner) = held.split_at_checked(16)?;
    let digits =
        std::str::from_utf8(fence).ok().filter(|_| fence.iter().all(u8::is_ascii_digit))?;
    Some((digits.parse().ok()?, owner.strip_prefix(b":")?))
}

/// The key of the last fence, in the lock's slot. A cluster refuses it if the name has a stray closing brace.
pub(crate) fn beside(key: &[u8]) -> Vec<u8> {
    let open = key.iter().position(|byte| *byte == b'{');
    let inside = open.and_then(|open| key.get(open.saturating_add(1)..)).unwrap_or_default();
    let has_tag = inside.iter().position(|byte| *byte == b'}').is_some_and(|close| close > 0);
    if has_tag || key.contains(&b'}') {
        [key, b":fence"].concat()
    } else {
        [b"{", key, b"}:fence"].concat()
    }
}

#[cfg(test)]
pub(crate) fn words(command: &Cmd) -> String {
    let words = command.args_iter().map(|arg| match arg {
        redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
        _ => "?".to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_script_is_sent_in_full_until_the_server_knows_it() {
        let claim =
            Claim { keys: vec![b"a".into()], owner: "me".into(), share: EXCLUSIVE, grace: None };
        let call =
            Call::of(&claim, Question::Extend { ttl: Duration::from_secs(5), fence: 7 }).unwrap();
        let known = Known::default();
        assert!(!known.knows(&call));
        known.learn(&call);
        assert!(known.knows(&call));
        known.forget();
        assert!(!known.knows(&call));
        assert!(words(&call.in_full()).ends_with("1 a 0000000000000007:me 5000"));
        assert!(words(&call.by_digest()).starts_with("EVALSHA "));
    }

    #[test]
    fn the_last_fence_is_in_the_slot_of_the_lock() {
        let beside = |key: &str| String::from_utf8(beside(key.as_bytes())).unwrap();
        assert_eq!(beside("a"), "{a}:fence");
        assert_eq!(beside("a{b}c"), "a{b}c:fence");
        assert_eq!(beside("a{}c"), "a{}c:fence");
        assert_eq!(beside("a{c"), "{a{c}:fence");
    }
}
