package leasehold

import (
	"slices"
	"time"
)

// Extensions that the server may carry out after others.
//
//	EXTEND 1 s  ──► no answer, given up
//	EXTEND 60 s ───────────────────────────► answered
//	                    EXTEND 1 s ─────────────► carried out late: the lease ends a second from then
//
// So an extension counts for no more than a shorter one that was given up and may still be on its way; and one that was asked
// for earlier counts for nothing after a later one was answered. An answer that comes late says that it is not on its way any
// more, and counts as any other.
type extensions struct {
	next, answered int
	// open are those that may still be carried out.
	open []*extension
}

// An extension is the fate of its requests, of which there may be several.
type extension struct {
	question
	hold   *hold
	number int
	since  moment
	// underWay is how many requests may still be carried out, one more while somebody asks.
	underWay int
}

// longestWay is how long a request may be on its way after it was given up.
const longestWay = time.Minute

// It is called with the lock of the hold, as the next one.
func (all *extensions) begin(h *hold, q question) *extension {
	here := now()
	all.open = slices.DeleteFunc(all.open, func(e *extension) bool { return e.underWay <= 0 || here.sub(e.since) > longestWay })
	all.next++
	e := &extension{question: q, hold: h, number: all.next, since: here, underWay: 1}
	all.open = append(all.open, e)
	return e
}

// counted is for how much of its ttl it counts from when it was asked for, if no later one was answered.
func (all *extensions) counted(e *extension) (counted time.Duration, counts bool) {
	if e.number < all.answered {
		return 0, false
	}
	all.answered = e.number
	counted = e.ttl
	for _, one := range all.open {
		if one.underWay > 0 {
			counted = min(counted, one.ttl)
		}
	}
	return counted, true
}

func (e *extension) left(on *line) {
	e.hold.mu.Lock()
	e.underWay++
	e.hold.mu.Unlock()
	if e.asks == asksAcquire {
		e.hold.at.left(on)
	}
}

func (e *extension) late(reply Reply, err error) {
	h, acquires := e.hold, e.asks == asksAcquire
	h.mu.Lock()
	e.underWay--
	h.mu.Unlock()
	if acquires {
		h.at.late(reply, err)
	}
	found, isNil, other := number(reply)
	if err != nil || other != nil {
		return
	}
	// Whoever is told of a loss may take long, and others are answered on this line.
	go func() {
		if !h.look() {
			return
		}
		_, err := h.extended(e, answer{number: found, isNil: isNil, asked: e.since})
		// It is bound to the connection that this was asked on, which is of no use any more.
		if err == nil && acquires {
			h.bindAgain(longest)
		}
	}()
}
