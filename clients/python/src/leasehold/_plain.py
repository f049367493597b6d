"""A server without the module: scripts on the same keys, with the same values, as the Rust client has them, too.

A fence is the larger of the server's clock in microseconds plus a margin and the last fence of this lock plus one, kept
beside the lock for a day. The margin is that of the module: so fences grow when a server without the module
takes over from one that has it, and the other way round. A server may be given the module while it runs. Then a lock
that a script granted would pass by the queue, so the script looks first whether this user may run such a command.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import List, Tuple

from ._resp import Word

DAY_MILLIS = 86_400_000
MARGIN_MICROS = 15_000_000


@dataclass(frozen=True)
class Script:
    text: str

    @property
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

# What it holds, and what is left of it, in one step.
LOOK = Script("""
local held = redis.call('GET', KEYS[1])
if not held then return false end
return {held, redis.call('PTTL', KEYS[1])}""")


def acquire(keys: Tuple[bytes, ...], owner: bytes, ttl: int) -> Tuple[Script, List[Word]]:
    return ACQUIRE, [2 * len(keys), *keys, *map(beside, keys), owner, ttl, DAY_MILLIS, MARGIN_MICROS]


def value(owner: bytes, fence: int) -> bytes:
    return owner if fence == 0 else b"%016d:%s" % (fence, owner)


def parse(held: bytes) -> Tuple[int, bytes]:
    fence, colon, owner = held[:16], held[16:17], held[17:]
    if colon == b":" and len(fence) == 16 and fence.isdigit():
        return int(fence), owner
    return 0, held


def beside(key: bytes) -> bytes:
    """The key of the last fence, in the slot of the lock; a cluster refuses a closing brace that closes nothing."""
    if _has_tag(key) or b"}" in key:
        return key + b":fence"
    return b"{" + key + b"}:fence"


def _has_tag(key: bytes) -> bool:
    _, opening, rest = key.partition(b"{")
    tag, closing, _ = rest.partition(b"}")
    return bool(opening and closing and tag)
