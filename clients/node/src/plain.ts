/**
 * A server without the module: scripts do what the module does, on the same keys with the same values.
 *
 * A fence is the larger of the server's clock in microseconds plus a margin and the last fence of this lock plus one.
 * The last one is kept in a key beside the lock for a day: after that the clock is far ahead of it. The margin is that of
 * the module, whose fences are ahead of the clock by as much after it has started: so fences grow when a server without
 * the module takes over from one that has it, and when it is the other way round.
 *
 * A server may be given the module while it runs. From then on a lock that a script granted would pass by the queue, and its
 * fence would be ahead of those of the module. So the script looks first: by Redis 7 and Valkey it can ask whether this user
 * may run a command, which fails for one that there is not.
 */
import { createHash } from 'node:crypto';
import type { Word } from './connection.js';
import { NeedsModuleError } from './errors.js';
import { type Claim, EXCLUSIVE, millis, type Question } from './questions.js';

export const DAY = '86400000';

/** What the module is set to unless somebody changed it: `leasehold.fence-margin`. */
export const MARGIN_MICROS = '15000000';

export type Script = ReturnType<typeof script>;

/** `KEYS`: the locks, their last fences. `ARGV`: owner, ttl, how long to remember the fence, margin. */
const ACQUIRE = script(`
if redis.acl_check_cmd then
  local is_known, may = pcall(redis.acl_check_cmd, 'LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2])
  if is_known and may then return redis.error_reply('LEASEHOLD the module has been loaded') end
end
local count = #KEYS / 2
local same
for i = 1, count do
  local held = redis.call('GET', KEYS[i])
  local fence = held and string.match(held, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):') or false
  if held and not (fence and string.sub(held, 18) == ARGV[1]) then
    if held ~= ARGV[1] or count > 1 then return false end
    fence = '0'
  end
  if i == 1 then same = fence elseif same ~= fence then same = false end
end
if same then
  for i = 1, count do
    local left = redis.call('PTTL', KEYS[i])
    if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
  end
  return same
end
local now = redis.call('TIME')
local fence = now[1] * 1000000 + now[2] + ARGV[4]
for i = count + 1, 2 * count do
  local last = tonumber(redis.call('GET', KEYS[i]) or '0')
  if last and last >= fence then fence = last + 1 end
end
fence = string.format('%016.0f', fence)
for i = 1, count do
  redis.call('SET', KEYS[i], fence .. ':' .. ARGV[1], 'PX', ARGV[2])
  redis.call('SET', KEYS[count + i], fence, 'PX', ARGV[3])
end
return fence`);

/** `ARGV`: the value, ttl. All or none. */
const EXTEND = script(`
for _, key in ipairs(KEYS) do if redis.call('GET', key) ~= ARGV[1] then return 0 end end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return 1`);

/** `KEYS`: the lock, its last fence. `ARGV`: owner, fence, how long to remember it. */
const RAISE = script(`
local held = redis.call('GET', KEYS[1])
if not held or string.sub(held, 17) ~= ':' .. ARGV[1] then return false end
local fence = string.sub(held, 1, 16)
if fence >= ARGV[2] then return fence end
local now = redis.call('TIME')
if tonumber(ARGV[2]) > (now[1] + 86400) * 1000000 + now[2] then
  return redis.error_reply('ERR fence must be at most a day ahead of the clock of this server')
end
redis.call('SET', KEYS[1], ARGV[2] .. ':' .. ARGV[1], 'KEEPTTL')
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return ARGV[2]`);

/** `ARGV`: the value, and how it may end instead. How many were released. */
const RELEASE = script(`
local count = 0
for _, key in ipairs(KEYS) do
  local held = redis.call('GET', key)
  if held and (held == ARGV[1] or string.sub(held, 17) == ARGV[2]) then count = count + redis.call('DEL', key) end
end
return count`);

function script(text: string) {
  return { text, digest: createHash('sha1').update(text).digest('hex') };
}

/** The script for a question, and what is said to it: the number of keys, the keys, the arguments. */
export function plainly(claim: Claim, question: Question): { script: Script; args: Word[] } {
  const { key, also, owner } = claim;
  const keys = [key, ...also];
  const count = String(keys.length);
  switch (question.ask) {
    case 'extend':
      return { script: EXTEND, args: [count, ...keys, value(question.fence ?? 0, owner), millis(question.ttl)] };
    case 'raise':
      return { script: RAISE, args: ['2', key, beside(key), owner, padded(question.fence), DAY] };
    case 'release': {
      const held = question.fence === undefined ? [owner, `:${owner}`] : [value(question.fence, owner)];
      return { script: RELEASE, args: [count, ...keys, ...held] };
    }
  }
  // Nobody waits here. Whoever asks in this way is told of the present.
  refuseShares(claim);
  const all = [String(2 * keys.length), ...keys, ...keys.map(beside)];
  return { script: ACQUIRE, args: [...all, owner, millis(question.ttl), DAY, MARGIN_MICROS] };
}

export function refuseShares({ share, grace }: Claim): void {
  if (grace !== undefined) throw new NeedsModuleError('a lock that ends with a connection');
  if (share !== EXCLUSIVE) throw new NeedsModuleError('a lock with several holders');
}

/** What the key holds. A fence of 0 is that of a lock that another kind of client wrote. */
export function value(fence: number, owner: string): string {
  return fence === 0 ? owner : `${padded(fence)}:${owner}`;
}

/** What the value of a key says. A lock that another kind of client wrote has the fence 0, and its whole value is the owner. */
export function grantOf(written: string): { owner: string; fence: number } {
  const [, fence, owner = written] = /^(\d{16}):(.*)$/s.exec(written) ?? [];
  return { owner, fence: Number(fence ?? 0) };
}

function padded(fence: number): string {
  return String(fence).padStart(16, '0');
}

/**
 * The key of the last fence, in the slot of the lock. A name with a closing brace that closes nothing has none there: a
 * cluster refuses it.
 */
export function beside(key: Word): Word {
  const open = key.indexOf('{');
  const close = open < 0 ? -1 : key.indexOf('}', open + 1);
  const hasTag = close > open + 1;
  const [before, after] = hasTag || key.includes('}') ? ['', ':fence'] : ['{', '}:fence'];
  return typeof key === 'string' ? before + key + after : Buffer.concat([Buffer.from(before), key, Buffer.from(after)]);
}
