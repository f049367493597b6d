package leasehold

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A moment is what the clock of this package shows. It is of no account but for its differences.
//
// The clock never steps, and it goes on while the machine is suspended, as the server's clock does.
type moment time.Duration

const (
	never  = moment(1<<63 - 1)
	always = moment(-1 << 62)
)

func (m moment) add(d time.Duration) moment {
	if m == never || d >= time.Duration(never)-time.Duration(m) {
		return never
	}
	return m + moment(d)
}

func (m moment) sub(other moment) time.Duration { return time.Duration(m - other) }

// left is how long it is until then: 0 if it has passed.
func (m moment) left() time.Duration {
	if m == never {
		return time.Duration(never)
	}
	return max(0, m.sub(now()))
}

// A spell is a time in which something holds.
type spell struct{ end atomic.Int64 }

func (s *spell) begin(d time.Duration) { s.end.Store(int64(now().add(d))) }
func (s *spell) stop()                 { s.end.Store(0) }
func (s *spell) isOn() bool {
	end := s.end.Load()
	return end != 0 && now() < moment(end)
}

// A rest between tries grows with them. Half of it is left to chance, so that many do not try at once.
type rest struct{ first, longest time.Duration }

var (
	retry    = rest{50 * time.Millisecond, 500 * time.Millisecond}
	poll     = rest{20 * time.Millisecond, 250 * time.Millisecond}
	fullRest = rest{100 * time.Millisecond, 2 * time.Second}
)

func (r rest) after(tries int) time.Duration {
	full := min(r.longest, r.first<<min(tries, 16))
	return full/2 + rand.N(full/2+1)
}

// A lease is counted from before it was asked for, less what two clocks may differ by meanwhile.
//
//	asked              granted, by the server's clock                    its lease ends
//	  ├────────────────────┼────────────────────── ttl ─────────────────────┤
//	  ├────────────────────── ttl ──────────────────────┤
//	                                       valid until ┤ drift ┤
func validUntil(asked moment, ttl time.Duration) moment {
	return asked.add(max(0, ttl-drift(ttl)))
}

func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

func renewAt(asked moment, ttl time.Duration) moment { return asked.add(ttl / 3) }

// patienceForAnswer is how long to wait for each answer: less where the lease is short.
func patienceForAnswer(response, ttl time.Duration) time.Duration {
	return min(response, max(ttl/5, min(ttl/2, 100*time.Millisecond)))
}
