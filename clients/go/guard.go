package leasehold

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// mostTurns is how often a guarded command follows its lock to another node.
const mostTurns = 8

// Guard has the server run a command of its own, such as "SET", key, value, if this lease holds the lock at that moment; if
// not, the error is [ErrLost], and nothing was run. It is sent once: after [ErrUnanswered] it may have been run. Of several
// locks the server checks the first alone. It needs the module. Words are strings, bytes or numbers; an answer is an int64, a
// string, nil or a slice of these, and, where the server speaks RESP3, a float64 or a bool.
func (l *Lease) Guard(ctx context.Context, command ...any) (Reply, error) {
	h, r := l.hold, l.hold.locks.remote
	if r == nil {
		return nil, &SettingError{"guard", "there is no one server that could run it"}
	}
	if len(command) == 0 {
		return nil, &SettingError{"command", "it must have at least one word"}
	}
	claim := h.claim()
	words := []string{"LOCK.GUARD", claim.key, claim.owner, ""}
	for _, word := range command {
		text, err := wordOf(word)
		if err != nil {
			return nil, err
		}
		words = append(words, text)
	}
	halt, response := halt{ctx: ctx}, h.locks.settings.Response
	for tries := 0; ; tries++ {
		if err := l.Err(); err != nil {
			return nil, err
		}
		fence := h.fenceNow()
		words[3] = strconv.FormatInt(fence, 10)
		asked := now()
		// It is not known to have been sent before there is a line.
		if _, err := r.lineFor(halt, asked.add(response), claim.key); err != nil {
			return nil, r.told(err)
		}
		reply, on, err := r.do(halt, asked, limits{response, never}, claim.key, nil, words...)
		if err == nil {
			return reply, nil
		}
		means := judge(err)
		if means == broken && on == nil {
			return nil, r.told(err)
		}
		if means == broken || errors.Is(err, errStopped) {
			return nil, fmt.Errorf("%w, and the command may have been run: %w", ErrUnanswered, err)
		}
		if codeOf(err) == "NOTHOLDER" {
			isOther, err := h.hasOther(halt, fence)
			if err != nil {
				return nil, err
			}
			if isOther && tries < mostTurns {
				continue
			}
			h.lose(LossTaken)
		}
		if err := l.Err(); err != nil {
			return nil, err
		}
		if means == unknownCommand && strings.Contains(strings.ToUpper(err.Error()), "LOCK.GUARD") {
			return nil, needsModule("a guarded command")
		}
		// Nothing was run: the slot of the lock is elsewhere, or on its way.
		if means != again && means != elsewhere || tries == mostTurns {
			return nil, r.told(err)
		}
		if means == elsewhere {
			r.moved()
		}
		if err := halt.sleep(retry.after(tries)); err != nil {
			return nil, err
		}
	}
}

func wordOf(word any) (string, error) {
	switch word := word.(type) {
	case string:
		return word, nil
	case []byte:
		return string(word), nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprint(word), nil
	}
	return "", &SettingError{"command", "its words must be strings, bytes or numbers"}
}

// acknowledged has replicas acknowledge a grant. WAIT stops all that comes behind it, and counts what was written on its own
// connection: so the grant is written once more, on a connection of its own, in one round trip with the wait.
func (r *remote) acknowledged(a *attempt, g *grant, by *replicas) (*grant, error) {
	asked := now()
	limit := asked.add(by.within + r.settings.Response)
	l, err := r.dedicated(a.halt, limit, a.claim.key)
	if err != nil {
		return nil, r.told(err)
	}
	defer l.close(errHungUp)
	wait := []string{"WAIT", strconv.Itoa(by.count), millis(by.within)}
	if by.isDurable {
		wait = []string{"WAITAOF", "1", strconv.Itoa(by.count), millis(by.within)}
	}
	extend, err := r.wording(a.claim, question{asks: asksExtend, ttl: a.ttl, fence: g.fence})
	if err != nil {
		return nil, err
	}
	extended, waited := newCall(nil), newCall(nil)
	if err := l.send(message{extended, extend}, message{waited, wait}); err != nil {
		return nil, r.told(err)
	}
	reply, err := extended.wait(a.halt, limit, l)
	if err != nil {
		return nil, r.told(err)
	}
	if held, _, err := number(reply); err != nil || held != 1 {
		return nil, &LostError{Lock: a.name, Loss: LossTaken}
	}
	if reply, err = waited.wait(a.halt, limit, l); err != nil {
		return nil, r.told(err)
	}
	local, theirs := int64(1), reply
	if both, isBoth := reply.([]Reply); isBoth && len(both) == 2 {
		local, _, _ = number(both[0])
		theirs = both[1]
	}
	count, _, err := number(theirs)
	if err != nil {
		return nil, err
	}
	if count < int64(by.count) || local == 0 {
		return nil, &TooFewReplicasError{a.name, int(count), by.count}
	}
	return &grant{fence: g.fence, asked: asked, lasts: a.ttl, on: g.on}, nil
}
