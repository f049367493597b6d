"""A server without the module: scripts on the same keys, with the same values, as the Rust client has them, too.

A fence is the larger of the server's clock in microseconds plus a margin and the last fence of this lock plus one, kept
beside the lock for a day. The margin is that of the module: so fences grow when a server without the module
takes over from one that has it, and the other way round. A server may be given the module while it runs. Then a lock
that a script granted would pass by the queue, so the script looks first whether this user may run such a command.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, Awaitable, Callable

from redis.exceptions import ResponseError

from ._resp import Reply, Word, number
from .errors import NeedsModule

DAY_MILLIS = 86_400_000
MARGIN_MICROS = 15_000_000


@dataclass(frozen=True)
class Script:
    text: str

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


# KEYS: the locks, and then the last fence of each. ARGV: owner, ttl, how long to remember the fence, margin.
ACQUIRE = Script("""
if redis.acl_check_cmd then
  local is_known, may = pcall(redis.acl_check_cmd, 'LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2])
  if is_known and may then return redis.error_reply('LEASEHOLD the module has been loaded') end
end
local locks, same = #KEYS / 2, nil
for at = 1, locks do
  local held, fence = redis.call('GET', KEYS[at]), false
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
return fence""")

# ARGV: the value, ttl.
EXTEND = Script("""
for at = 1, #KEYS do if redis.call('GET', KEYS[at]) ~= ARGV[1] then return 0 end end
for at = 1, #KEYS do redis.call('PEXPIRE', KEYS[at], ARGV[2]) end
return 1""")

# ARGV: the owner, and a value that it holds; without it any.
RELEASE = Script("""
local released = 0
for at = 1, #KEYS do
  local held = redis.call('GET', KEYS[at])
  local is_its = held and (string.sub(held, 17) == ':' .. ARGV[1] or held == ARGV[1])
  if is_its and (held == ARGV[2] or not ARGV[2]) then released = released + redis.call('DEL', KEYS[at]) end
end
return released""")

# ARGV: owner, fence in sixteen digits, how long to remember it, how far it may be ahead.
RAISE = Script("""
local held = redis.call('GET', KEYS[1])
if not held then return false end
local fence = string.match(held, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):')
if not (fence and string.sub(held, 18) == ARGV[1]) then
  if held ~= ARGV[1] then return false end
  return '0'
end
local now = redis.call('TIME')
if tonumber(ARGV[2]) > now[1] * 1000000 + now[2] + ARGV[4] then
  return redis.error_reply('ERR fence must be at most a day ahead of the server\\'s clock')
end
if tonumber(fence) >= tonumber(ARGV[2]) then return fence end
redis.call('SET', KEYS[1], ARGV[2] .. ':' .. ARGV[1], 'KEEPTTL')
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if not last or last < tonumber(ARGV[2]) then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return ARGV[2]""")

# What it holds, and what is left of it, in one step.
LOOK = Script("""
local held = redis.call('GET', KEYS[1])
if not held then return false end
return {held, redis.call('PTTL', KEYS[1])}""")


def acquire(keys: tuple[bytes, ...], owner: bytes, ttl: int) -> tuple[Script, list[Word]]:
    return ACQUIRE, [2 * len(keys), *keys, *map(beside, keys), owner, ttl, DAY_MILLIS, MARGIN_MICROS]


def value(owner: bytes, fence: int) -> bytes:
    return owner if fence == 0 else b"%016d:%s" % (fence, owner)


def parse(held: bytes) -> tuple[int, bytes]:
    fence, colon, owner = held[:16], held[16:17], held[17:]
    if colon == b":" and len(fence) == 16 and fence.isdigit():
        return int(fence), owner
    return 0, held


def beside(key: bytes) -> bytes:
    """The key of the last fence, in the slot of the lock; a cluster refuses a closing brace that closes nothing."""
    return key + b":fence" if b"}" in key else b"{" + key + b"}:fence"


Ask = Callable[..., Awaitable[Reply]]


async def without_scripts(ask: Ask, script: Script, rest: list[Any]) -> Reply:
    """The same for a user who may not run any, by ``SET … IFEQ``, and ``DELEX`` or ``DELIFEQ``: a lock is taken without
    a fence, which is made while the lock is held, and put in if it is held still. So fences grow with the clock."""
    count, key = rest[:2]
    words = rest[1 + count :]
    if count > (2 if script is ACQUIRE else 1):
        raise NeedsModule("NOPERM", "several locks at once need the module leasehold, or the right to run scripts")
    if script is ACQUIRE:
        return await _acquire(ask, key, rest[2], *words)
    if script is EXTEND:
        return int(await ask(b"SET", key, words[0], b"IFEQ", words[0], b"PX", words[1]) == b"OK")
    held = words[1] if len(words) > 1 else await ask(b"GET", key)
    if script is LOOK:
        return None if held is None else [held, await ask(b"PTTL", key)]
    if not isinstance(held, bytes) or words[0] not in (held, parse(held)[1]):
        return 0
    for command in ((b"DELEX", key, b"IFEQ", held), (b"DELIFEQ", key, held)):
        try:
            return await ask(*command)
        except ResponseError as error:
            if "unknown command" not in str(error) and not str(error).startswith("NOPERM"):
                raise
    return int(await ask(b"SET", key, held, b"IFEQ", held, b"PX", 1) == b"OK")


async def _acquire(ask: Ask, key: Word, beside: Word, owner: bytes, ttl: int, day: int, margin: int) -> Reply:
    taken = b"%016d:%b" % (0, owner)
    held = taken if await ask(b"SET", key, taken, b"NX", b"PX", ttl) == b"OK" else await ask(b"GET", key)
    if not isinstance(held, bytes) or owner not in (held, parse(held)[1]):
        return None
    if held != taken:
        left = number(await ask(b"PTTL", key)) or 0
        if 0 <= left < ttl:
            await ask(b"SET", key, held, b"IFEQ", held, b"PX", ttl)
        return parse(held)[0]
    time, last = await ask(b"TIME"), await ask(b"GET", beside)
    seconds, micros = time  # type: ignore[misc]
    fence = max(int(seconds) * 1_000_000 + int(micros) + margin, int(last or 0) + 1)  # type: ignore[arg-type]
    await ask(b"SET", beside, fence, b"PX", day)
    its_value = value(owner, fence)
    return fence if await ask(b"SET", key, its_value, b"IFEQ", held, b"PX", ttl) == b"OK" else None
