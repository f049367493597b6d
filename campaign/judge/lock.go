package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"
)

// The model of one lock, from docs/commands: who holds it, by which fence, and until when.
//
//	grant ├──t──┤                 t: no earlier than the request, nor than what came before it
//	lease       ├──── ttl ────┤   surely until t + ttl; at most until the reply + ttl
//
// A lease ends by itself, so an end is no operation: from t + ttl on, the model lets others in. Where a reply was
// lost, or a connection ended, it lets them in from the moment at which that may have ended the hold.

const forever = int64(math.MaxInt64 / 4_000_000)

// A grant is what the transcript knows of one fence.
type grant struct {
	owner, fence int64
	rank         int // in the order of fences, from 1; 0: there are no fences
	asked, told  int64
	until        int64 // the last reply
	ops          []*op
	tightest     int64
	loosest      int64
	several      bool
	unheard      bool  // a request whose reply was lost may have made the grant or lengthened the lease
	ends         int64 // the moment, in milliseconds, at which something else than the lease may have ended it
	closed       int64 // when its connection may have ended
	successes    int   // the steps that need the hold
}

type action int

const (
	granted action = iota
	renewed
	extended
	checked
	released
	refused
	deleted
	stranger
)

// A step is an operation, as the model sees it.
type step struct {
	action
	*grant
	op    *op
	asked int64
	nth   int // of the successes of this grant
}

func (s *step) String() string {
	if s.grant == nil {
		return fmt.Sprintf("%s by %d", s.op.f, s.op.Owner)
	}
	return fmt.Sprintf("%s %s by %d with fence %d", s.op.f, s.op.kind, s.owner, s.fence)
}

// A hold is the state of a grant: the moments, in milliseconds, before which it has surely not ended, and surely has.
type hold struct {
	*grant
	nth       int
	sure, may int64
	share     int64
}

func (h hold) String() string {
	return fmt.Sprintf("fence %d of %d, step %d of %d, surely until %d, at most until %d ms, share %d", h.fence, h.owner, h.nth, h.successes, h.sure, h.may, h.share)
}

type state struct {
	now   int64 // in microseconds
	rank  int
	holds []hold
}

// tolerance returns a share as a number that grows with it.
func tolerance(share int64) int64 {
	if share == 0 {
		return forever
	}
	return share
}

func millis(micros int64) int64 { return micros / 1000 }

func lockModel(late int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(now, input, _ any) (bool, any) { return take(now.(state), input.(*step), late) },
		Equal: func(one, other any) bool {
			a, b := one.(state), other.(state)
			return a.now == b.now && a.rank == b.rank && slices.Equal(a.holds, b.holds)
		},
	}
}

// take returns whether the lock can answer so, and its next state.
func take(s state, by *step, late int64) (bool, state) {
	at := max(s.now, by.asked)
	holds := slices.Clone(s.holds)
	mine := slices.IndexFunc(holds, func(one hold) bool { return one.grant == by.grant })
	done := func() (bool, state) { return at <= by.op.told, state{at, s.rank, holds} }
	no := func() (bool, state) { return false, s }
	// Whoever is to succeed once more has not lost its hold.
	leaves := func(one hold) bool { return one.nth == one.successes }
	switch by.action {
	case deleted:
		if !slices.ContainsFunc(holds, func(one hold) bool { return !leaves(one) }) {
			holds = nil
			return done()
		}
		return no()
	case stranger:
		if slices.ContainsFunc(holds, func(one hold) bool { return one.owner == by.op.Owner }) {
			return done()
		}
		return no()
	case granted:
		if by.rank > 0 && by.rank != s.rank+1 {
			return no()
		}
		own := slices.IndexFunc(holds, func(one hold) bool { return one.owner == by.owner })
		if own >= 0 {
			former := holds[own]
			if !leaves(former) {
				return no()
			}
			// Another fence in place of this one only for one who tolerates fewer, or asks for several.
			if by.tightest >= former.share && !by.several {
				at = max(at, former.sure*1000)
			}
			holds = slices.Delete(holds, own, own+1)
		}
		for !fits(holds, by.loosest, at) {
			next := int64(math.MaxInt64)
			for _, one := range holds {
				if one.sure*1000 > at {
					next = min(next, one.sure*1000)
				}
			}
			if at = next; at > by.op.told {
				return no()
			}
		}
		for _, one := range holds {
			if (by.loosest == 1 || one.share == 1) && !leaves(one) {
				return no()
			}
		}
		holds = slices.DeleteFunc(holds, func(one hold) bool { return by.loosest == 1 || one.share == 1 })
		one := hold{by.grant, 1, millis(at) + by.op.TTL, millis(by.op.told) + by.op.TTL + late, by.loosest}
		if by.unheard {
			one.may = forever
		}
		one.sure = min(one.sure, by.ends)
		holds = append(holds, one)
		s.rank = by.rank
		return done()
	case refused:
		if s.rank < by.rank {
			return no()
		}
		if mine >= 0 {
			if !leaves(holds[mine]) {
				return no()
			}
			at = max(at, holds[mine].sure*1000)
			holds = slices.Delete(holds, mine, mine+1)
		}
		return done()
	}
	if mine < 0 || holds[mine].nth+1 != by.nth || by.op.Owner != by.owner || at >= holds[mine].may*1000 {
		return no()
	}
	one := &holds[mine]
	one.nth++
	others := slices.Delete(slices.Clone(holds), mine, mine+1)
	if !fits(others, one.share, at) {
		return no()
	}
	// The millisecond in which a lease ends belongs to it.
	sure, may := millis(at)+by.op.TTL+1, millis(by.op.told)+by.op.TTL+late
	switch by.action {
	case renewed:
		if share := tolerance(by.op.Share); share < one.share && !by.unheard {
			return no()
		} else {
			one.share = max(one.share, share)
		}
		one.sure, one.may = max(one.sure, sure), max(one.may, may)
	case extended:
		one.sure, one.may = sure, may
	case released:
		holds = others
		return done()
	}
	if by.unheard {
		one.may = forever
	}
	one.sure = min(one.sure, by.ends)
	return done()
}

// fits returns whether one more holder, who tolerates so many, has room beside those who surely hold the lock.
func fits(holds []hold, most, at int64) bool {
	count := int64(1)
	for _, one := range holds {
		if one.sure*1000 > at {
			count, most = count+1, min(most, one.share)
		}
	}
	return count <= most
}

// grantsOf returns the grants of a lock in the order of their fences, and the requests that succeeded without any.
func grantsOf(ops []*op) (grants []*grant, strangers []*op) {
	byFence, unheard := map[int64]*grant{}, map[int64][]*op{}
	add := func(fence, owner int64, first *op) *grant {
		one := &grant{owner: owner, fence: fence, asked: first.asked, told: first.told, tightest: forever, ends: forever, closed: math.MaxInt64}
		grants = append(grants, one)
		return one
	}
	held := map[int64]*grant{} // where there are no fences
	for _, one := range ops {
		if one.kind == "info" || one.f == "closed" {
			unheard[one.Owner] = append(unheard[one.Owner], one)
			continue
		}
		isAcquire := one.f == "acquire"
		grant := byFence[one.Fence]
		switch {
		case one.f == "delete" || one.f == "seen":
			continue
		case one.TTL == forever && isAcquire && one.kind == "ok":
			grant = add(0, one.Owner, one)
			held[one.Owner] = grant
		case one.TTL == forever && one.kind == "ok":
			if grant = held[one.Owner]; grant == nil {
				strangers = append(strangers, one)
			}
			delete(held, one.Owner)
		case one.Fence == 0 && one.kind == "ok":
			strangers = append(strangers, one)
		case one.Fence > 0 && one.kind == "ok" && grant == nil:
			grant = add(one.Fence, one.Owner, one)
			byFence[one.Fence] = grant
		}
		if grant != nil {
			grant.ops = append(grant.ops, one)
			grant.until = max(grant.until, one.told)
		}
	}
	slices.SortStableFunc(grants, func(a, b *grant) int { return int(a.fence - b.fence) })
	for _, one := range grants {
		one.bounds(unheard[one.owner])
	}
	strangers = slices.DeleteFunc(strangers, func(one *op) bool {
		return slices.ContainsFunc(unheard[one.Owner], func(lost *op) bool { return lost.f == "acquire" })
	})
	return grants, strangers
}

// bounds notes what the requests of its owner whose replies were lost, and the ends of its connections, may have done.
func (g *grant) bounds(unheard []*op) {
	first := g.ops[0]
	if first.f == "acquire" {
		g.tightest, g.loosest = tolerance(first.Share), tolerance(first.Share)
		g.several = first.Set != 0
	}
	for _, one := range unheard {
		if one.Fence != 0 && one.Fence != g.fence && one.f != "acquire" {
			continue
		}
		switch one.f {
		case "acquire":
			g.unheard, g.several = true, g.several || one.Set != 0
			share := tolerance(one.Share)
			if one.order < first.order {
				g.asked, g.ends = min(g.asked, one.asked), 0
			} else if share < g.loosest || one.Set != 0 {
				g.ends = min(g.ends, millis(one.asked))
			}
			g.tightest, g.loosest = min(g.tightest, share), max(g.loosest, share)
		case "extend":
			g.unheard = true
			g.ends = min(g.ends, millis(one.asked)+one.TTL)
		case "closed":
			g.ends, g.closed = min(g.ends, millis(one.asked)+one.TTL), min(g.closed, one.asked)
		case "release":
			g.ends = min(g.ends, millis(one.asked))
		}
	}
}

// loosestEver returns how many its owner tolerated at most, then or later.
func (g *grant) loosestEver() int64 {
	most := g.loosest
	for _, one := range g.ops {
		if one.f == "acquire" {
			most = max(most, tolerance(one.Share))
		}
	}
	return most
}

// steps returns the operations of a grant. next is the next grant of its owner, which may have ended it.
func (g *grant) steps(next *grant, spans map[string][]span) []*step {
	var all []*step
	loosest := g.loosest
	g.successes = 0
	if g.unheard && g.asked < g.ops[0].asked || g.unheard && g.ops[0].f != "acquire" {
		// The grant itself, and then what told of it.
		all = append(all, &step{action: granted, grant: g, op: &op{told: g.told}, asked: g.asked})
		g.successes++
	}
	for _, one := range g.ops {
		kind := map[string]action{"acquire": renewed, "extend": extended, "check": checked, "release": released}[one.f]
		if one.kind == "ok" {
			if g.successes == 0 && kind == renewed {
				kind = granted
			}
			g.successes++
			if one.f == "acquire" {
				loosest = max(loosest, tolerance(one.Share))
			}
		} else {
			_, isForgotten := within(spans["forgotten"], g.asked, one.told)
			// Where the slot goes, a hold whose connection ended lasts as long as its lease.
			if _, mayMove := within(spans["standstill"], g.asked, one.told); mayMove && g.closed <= one.told {
				continue
			}
			isTighter := one.f == "acquire" && tolerance(one.Share) < loosest
			if isForgotten || isTighter || one.order < g.ops[0].order || next != nil && next.asked <= one.told {
				continue
			}
			kind = refused
		}
		all = append(all, &step{kind, g, one, one.asked, g.successes})
	}
	return all
}
