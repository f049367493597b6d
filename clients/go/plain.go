package leasehold

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A server without the module: scripts do what the module does, on the same keys with the same values.
//
// A fence is the larger of the server's clock in microseconds plus a margin and the last fence of this lock plus one. The
// last one is kept in a key beside the lock for a day: after that the clock is far ahead of it. The margin is that of the
// module, whose fences are ahead of the clock by as much after it has started: so fences grow when a server without the
// module takes over from one that has it, and when it is the other way round.
//
// A server may be given the module while it runs. From then on a lock that a script granted would pass by the queue, and its
// fence would be ahead of those of the module. So the script looks first: by Redis 7 and Valkey it can ask whether this user
// may run a command, which fails for one that there is not.

const (
	day = "86400000"
	// What the module is set to unless somebody changed it: leasehold.fence-margin.
	marginMicros = 15_000_000
)

type script struct{ text, digest string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// KEYS: the locks, their last fences. ARGV: owner, ttl, how long to remember the fence, margin.
var acquireScript = newScript(`
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
return fence`)

// ARGV: the value, ttl. All or none.
var extendScript = newScript(`
for _, key in ipairs(KEYS) do if redis.call('GET', key) ~= ARGV[1] then return 0 end end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
return 1`)

// KEYS: the lock, its last fence. ARGV: owner, fence, how long to remember it.
var raiseScript = newScript(`
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
return ARGV[2]`)

// ARGV: the value, and how it may end instead. How many were released.
var releaseScript = newScript(`
local count = 0
for _, key in ipairs(KEYS) do
  local held = redis.call('GET', key)
  if held and (held == ARGV[1] or string.sub(held, 17) == ARGV[2]) then count = count + redis.call('DEL', key) end
end
return count`)

// plainly returns the script for a question, and what comes behind it: the number of keys, the keys and the arguments.
func (c *claim) plainly(q question) (by *script, words []string, err error) {
	keys := append([]string{c.key}, c.also...)
	var args []string
	switch q.asks {
	case asksExtend:
		by, args = extendScript, []string{value(q.fence, c.owner), millis(q.ttl)}
	case asksRaise:
		by, args = raiseScript, []string{c.owner, padded(q.fence), day}
		keys = append(keys, beside(c.key))
	case asksRelease:
		by, args = releaseScript, []string{value(q.fence, c.owner)}
		if q.fence == 0 {
			args = append(args, ":"+c.owner)
		}
	default:
		// Nobody waits here. Whoever asks in this way is told of the present.
		by, args, err = acquireScript, []string{c.owner, millis(q.ttl), day, strconv.Itoa(marginMicros)}, c.refuseShares()
		for _, key := range keys {
			keys = append(keys, beside(key))
		}
	}
	return by, slices.Concat([]string{strconv.Itoa(len(keys))}, keys, args), err
}

func (c *claim) refuseShares() error {
	if c.isBound {
		return needsModule("a lock that ends with a connection")
	}
	if c.share != exclusive {
		return needsModule("a lock with several holders")
	}
	return nil
}

// value is what the key holds. A fence of 0 is that of a lock that another kind of client wrote.
func value(fence int64, owner string) string {
	if fence == 0 {
		return owner
	}
	return padded(fence) + ":" + owner
}

func padded(fence int64) string { return fmt.Sprintf("%016d", fence) }

// beside is the key of the last fence, in the slot of the lock. A name with a closing brace that closes nothing has none
// there: a cluster refuses it.
func beside(key string) string {
	open := strings.IndexByte(key, '{')
	hasTag := open >= 0 && strings.IndexByte(key[open+1:], '}') > 0
	if hasTag || strings.Contains(key, "}") {
		return key + ":fence"
	}
	return "{" + key + "}:fence"
}

// wording spells a question in full, for a server with the module or without it.
func (r *remote) wording(c *claim, q question) ([]string, error) {
	if !r.isPlain() {
		return c.words(q), nil
	}
	by, words, err := c.plainly(q)
	return append([]string{"EVAL", by.text}, words...), err
}

func (r *remote) askPlainly(h halt, asked moment, lim limits, c *claim, q question, f fate) (Reply, error) {
	bare := &bare{r, h, asked, lim, c, f}
	if r.bare.isOn() {
		return bare.ask(q)
	}
	reply, err := r.run(h, asked, lim, c, q, f)
	if !isWithoutScripts(err) {
		return reply, err
	}
	// It changes nothing. Where the server does not know IFEQ either, it is the script that counts.
	if _, probed := bare.send("SET", beside(c.key), "0", "IFEQ", "none", "PX", "1"); probed != nil {
		return nil, err
	}
	r.bare.begin(plainFor)
	return bare.ask(q)
}

// run has a script run by its digest only once the server has run it: a digest that it does not know is an error, which it
// counts.
func (r *remote) run(h halt, asked moment, lim limits, c *claim, q question, f fate) (Reply, error) {
	by, words, err := c.plainly(q)
	if err != nil {
		return nil, err
	}
	run := []string{"EVAL", by.text}
	_, isKnown := r.known.Load(by)
	if isKnown {
		run = []string{"EVALSHA", by.digest}
	}
	reply, _, err := r.do(h, asked, lim, c.key, f, append(run, words...)...)
	if err == nil && !isKnown {
		r.known.Store(by, true)
	}
	return reply, err
}

var aboutScripts = regexp.MustCompile(`(?i)\b(eval|evalsha)\b`)

// isWithoutScripts says whether a script was refused for what it is, and not for what it does.
func isWithoutScripts(err error) bool {
	var said ServerError
	isRefused := errors.As(err, &said) && (codeOf(err) == "NOPERM" || judge(err) == unknownCommand)
	return isRefused && aboutScripts.MatchString(string(said))
}

// bare asks a server without the module for a user without scripts: by SET … IFEQ, of Redis 8.4 and Valkey 8.1 and newer.
//
//	SET lock 0:owner NX   ──►   INCR fence   ──►   SET lock fence:owner IFEQ 0:owner
//
// The number is counted while nobody else can have the lock, so fences grow as with scripts, which they are ahead of or
// follow; at first it is the server's clock. If the lease runs out meanwhile, the last step fails, and the number is nobody's.
// There is no such thing for several locks. And a lock that is granted while the server is given the module passes by the
// queue, for as long as the server is taken to have none.
type bare struct {
	*remote
	h     halt
	asked moment
	lim   limits
	*claim
	f fate
}

const (
	// Smaller ones are no clocks: the last fence was forgotten.
	leastClock = 1e15
	mostLooks  = 3
)

func (b *bare) send(words ...string) (Reply, error) {
	reply, _, err := b.do(b.h, b.asked, b.lim, b.key, b.f, words...)
	// Another part of the question may have been sent before.
	var before *unsent
	if errors.As(err, &before) {
		err = before.error
	}
	return reply, err
}

func (b *bare) ask(q question) (Reply, error) {
	if len(b.also) > 0 {
		return nil, needsModule("several locks without scripts")
	}
	switch q.asks {
	case asksRaise:
		return nil, needsModule("one of several servers without scripts")
	case asksExtend:
		held := value(q.fence, b.owner)
		return b.setIf(b.key, held, held, millis(q.ttl))
	case asksRelease:
		held, err := value(q.fence, b.owner), error(nil)
		if q.fence == 0 {
			held, err = b.held()
		}
		if err != nil || held == "" {
			return int64(0), err
		}
		return b.remove(held)
	}
	if err := b.refuseShares(); err != nil {
		return nil, err
	}
	return b.take(millis(q.ttl))
}

func (b *bare) take(ttl string) (Reply, error) {
	pending := strings.Repeat("0", 16) + ":" + b.owner
	for range mostLooks {
		reply, err := b.send("SET", b.key, pending, "NX", "PX", ttl)
		if err != nil {
			return nil, err
		}
		held := pending
		if reply == nil {
			if held, err = b.held(); err != nil {
				return nil, err
			}
		}
		switch {
		case held == b.owner:
			return int64(0), nil
		case held == pending:
			fence, err := b.count()
			if err != nil {
				return nil, err
			}
			isSet, err := b.setIf(b.key, value(fence, b.owner), pending, ttl)
			if err != nil || isSet == int64(0) {
				return nil, err
			}
			return fence, nil
		case held != "":
			isSet, err := b.setIf(b.key, held, held, ttl)
			if err != nil || isSet == int64(0) {
				return nil, err
			}
			return held[:16], nil
		}
		if reply, err = b.send("GET", b.key); err != nil || reply != nil {
			return nil, err
		}
	}
	return nil, nil
}

// count returns a number larger than all before, unless the last one was a day ago: then the clock is ahead of it.
func (b *bare) count() (int64, error) {
	last := beside(b.key)
	for {
		reply, err := b.send("INCR", last)
		if err != nil {
			return 0, err
		}
		came, _, err := number(reply)
		if err != nil || came >= leastClock {
			return came, err
		}
		if reply, err = b.send("TIME"); err != nil {
			return 0, err
		}
		parts, _ := reply.([]Reply)
		if len(parts) != 2 {
			return 0, errSurprise
		}
		seconds, _, err := number(parts[0])
		micros, _, other := number(parts[1])
		if err != nil || other != nil {
			return 0, errSurprise
		}
		clock := seconds*1_000_000 + micros + marginMicros
		isSet, err := b.setIf(last, strconv.FormatInt(clock, 10), strconv.FormatInt(came, 10), day)
		if err != nil || isSet == int64(1) {
			return clock, err
		}
	}
}

func (b *bare) setIf(key, to, from, ttl string) (Reply, error) {
	reply, err := b.send("SET", key, to, "IFEQ", from, "PX", ttl)
	if err != nil || reply == nil {
		return int64(0), err
	}
	return int64(1), nil
}

var written = regexp.MustCompile(`(?s)^\d{16}:`)

// held returns what the key holds, if that is a lock of this owner.
func (b *bare) held() (string, error) {
	reply, err := b.send("GET", b.key)
	held, _ := reply.(string)
	if held == b.owner || written.MatchString(held) && held[17:] == b.owner {
		return held, err
	}
	return "", err
}

// remove deletes by the word that this server has for it, and this user may use; or else it ends in a moment.
func (b *bare) remove(held string) (Reply, error) {
	for _, command := range [][]string{{"DELEX", b.key, "IFEQ", held}, {"DELIFEQ", b.key, held}} {
		reply, err := b.send(command...)
		if err == nil || judge(err) != unknownCommand && codeOf(err) != "NOPERM" {
			return reply, err
		}
	}
	return b.setIf(b.key, held, held, "1")
}
