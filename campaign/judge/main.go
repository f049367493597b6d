// Judge reads transcripts of the campaign, or histories of a mutex from Knossos, and lets Porcupine decide whether a
// lock that keeps the promises of docs/commands can have answered so.
//
//	go run . alone.jsonl …        exit status 1: it cannot; 2: a transcript cannot be read
package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// Porcupine needs memory with the square of a history. Parts overlap, so that neighbours are compared.
	most    = 60
	overlap = 15
	// A part that takes so long is split, until it is too small for that.
	patience = 2 * time.Second
	smallest = 6
)

// A verdict is what became of all parts of a transcript.
type verdict struct {
	sync.Mutex
	operations, grants, held, parts int // held: grants that no loss of data excuses
	wrong, undecided                []string
}

// A part is a piece of the history of one lock, and the model that it is held against.
type part struct {
	law, where string
	model      porcupine.Model
	history    []porcupine.Operation
}

// inTurn is a model of what happens in a known order: each says its place.
var inTurn = porcupine.Model{
	Init: func() any { return -1 },
	Step: func(now, place, _ any) (bool, any) {
		return place.(int) == now.(int)+1, place
	},
}

func main() {
	status := 0
	for _, file := range os.Args[1:] {
		begun := time.Now()
		found, err := judge(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		fmt.Printf("%s: %d operations, %d grants, %d of them for L1 to L3, in %d parts: %d wrong, %d undecided, in %.1f s\n", file,
			found.operations, found.grants, found.held, found.parts, len(found.wrong), len(found.undecided), time.Since(begun).Seconds())
		if len(found.wrong) > 0 {
			status = 1
		}
	}
	os.Exit(status)
}

// judge decides about a file.
func judge(file string) (*verdict, error) {
	found, parts := &verdict{}, make(chan part)
	var judges sync.WaitGroup
	for range 2 {
		judges.Add(1)
		go func() {
			defer judges.Done()
			for one := range parts {
				found.decide(one)
			}
		}()
	}
	highest, number := map[int64]int64{}, 0
	err := rounds(file, func(r *round) {
		if r.isRun {
			clear(highest)
		}
		number++
		found.operations += len(r.ops)
		for lock, ops := range r.byLock() {
			grants, strangers := grantsOf(ops)
			found.grants += len(grants)
			where := fmt.Sprintf("of lock %d in round %d", lock, number)
			r.holds(ops, grants, strangers, func(from, to int64, history []porcupine.Operation) {
				where := fmt.Sprintf("%s, within %d ms of fences %d to %d", where, (history[len(history)-1].Return-history[0].Call)/1000, from, to)
				parts <- part{"L1 to L3", where, lockModel(r.late), history}
			})
			for _, one := range grants {
				if one.rank > 0 {
					found.held++
				}
			}
			r.turns(grants, highest[lock], func(history []porcupine.Operation) {
				parts <- part{"L2", where, inTurn, history}
			})
			r.queue(ops, grants, func(history []porcupine.Operation) {
				parts <- part{"L4", where, inTurn, history}
			})
			if len(grants) > 0 {
				highest[lock] = max(highest[lock], grants[len(grants)-1].fence)
			}
		}
	})
	close(parts)
	judges.Wait()
	return found, err
}

// decide lets Porcupine decide about a part. Where many operations are concurrent, the search may take very long, so halves of
// it are tried then, which overlap: a piece of a history that a lock can give is one, too.
func (v *verdict) decide(one part) {
	result, partial := porcupine.CheckOperationsVerbose(one.model, one.history, patience)
	first, last := one.ranks()
	if half := (last-first)/2 + 2; result == porcupine.Unknown && last-first >= smallest {
		v.decide(one.between(first, first+half))
		v.decide(one.between(last-half, last))
		return
	}
	v.Lock()
	defer v.Unlock()
	v.parts++
	switch what := one.law + " " + one.where; result {
	case porcupine.Illegal:
		v.wrong = append(v.wrong, what+": "+stuck(one, partial.PartialLinearizationsOperations()[0]))
		fmt.Println(v.wrong[len(v.wrong)-1])
	case porcupine.Unknown:
		v.undecided = append(v.undecided, "undecided: "+what)
		fmt.Println("undecided: " + what)
	}
}

// ranks returns those of the first grant and of the last.
func (p part) ranks() (first, last int) {
	for _, each := range p.history {
		if by, ok := each.Input.(*step); ok && by.grant != nil && by.rank > 0 {
			if first == 0 || by.rank < first {
				first = by.rank
			}
			last = max(last, by.rank)
		}
	}
	return first, last
}

// between returns the piece of a part with these grants.
func (p part) between(first, last int) part {
	from, to := int64(math.MaxInt64), int64(0)
	pick := func(picks func(porcupine.Operation, *step) bool) (picked []porcupine.Operation) {
		for _, each := range p.history {
			if picks(each, each.Input.(*step)) {
				picked = append(picked, each)
			}
		}
		return picked
	}
	history := pick(func(each porcupine.Operation, by *step) bool {
		if by.grant == nil || by.rank < first || by.rank > last {
			return false
		}
		from, to = min(from, each.Call), max(to, each.Return)
		return true
	})
	p.history = append(history, pick(func(each porcupine.Operation, by *step) bool {
		return by.grant == nil && each.Return >= from && each.Call <= to
	})...)
	p.model.Init = func() any { return state{rank: first - 1} }
	return p
}

// stuck returns the first operation that finds no place behind the longest order that there is.
func stuck(one part, orders [][]porcupine.Operation) string {
	var longest []porcupine.Operation
	for _, order := range orders {
		if len(order) > len(longest) {
			longest = order
		}
	}
	placed, now := map[any]bool{}, one.model.Init()
	for _, each := range longest {
		placed[each.Input] = true
		_, now = one.model.Step(now, each.Input, nil)
	}
	var first porcupine.Operation
	for _, one := range one.history {
		if !placed[one.Input] && (first.Input == nil || one.Return < first.Return) {
			first = one
		}
	}
	return fmt.Sprintf("%v, asked at %d and told at %d, has no place behind %d others: %v", first.Input, first.Call, first.Return, len(longest), now)
}

// byLock returns the operations of each lock, also those that are for all.
func (r *round) byLock() map[int64][]*op {
	for name, spans := range r.spans {
		r.spans[name] = joined(spans)
	}
	r.spans["standstill"] = joined(append(r.spans["standstill"], r.spans["loss"]...))
	locks := map[int64][]*op{}
	for _, one := range r.ops {
		if one.Lock != nil {
			locks[*one.Lock] = nil
		}
	}
	for _, one := range r.ops {
		for lock := range locks {
			if one.Lock == nil || *one.Lock == lock {
				locks[lock] = append(locks[lock], one)
			}
		}
	}
	return locks
}

// segments calls judge with runs of grants between such spans, in parts that overlap.
func segments(grants []*grant, spans []span, judge func([]*grant)) {
	of := map[int][]*grant{}
	for _, one := range grants {
		if nth, meets := within(spans, one.asked, one.until); !meets {
			of[nth] = append(of[nth], one)
		}
	}
	for _, all := range of {
		for at := 0; at == 0 || at+overlap < len(all); at += most - overlap {
			judge(all[at:min(at+most, len(all))])
		}
	}
}

// holds is about L1 to L3: who holds the lock.
func (r *round) holds(ops []*op, grants []*grant, strangers []*op, judge func(int64, int64, []porcupine.Operation)) {
	next, last := map[*grant]*grant{}, map[int64]*grant{}
	for _, one := range slices.Backward(grants) {
		next[one], last[one.owner] = last[one.owner], one
	}
	var deletes []*op
	for _, one := range ops {
		if one.f == "delete" {
			deletes = append(deletes, one)
		}
	}
	segments(grants, r.spans["loss"], func(part []*grant) {
		var history []porcupine.Operation
		from, to := part[0].asked, part[0].until
		for at, one := range part {
			from, to = min(from, one.asked), max(to, one.until)
			if one.rank = at + 1; one.fence == 0 {
				one.rank = 0
			}
			copied := *one
			for _, each := range copied.steps(next[one], r.spans) {
				history = append(history, porcupine.Operation{Input: each, Call: each.asked, Return: each.op.told})
			}
		}
		first := sort.Search(len(deletes), func(i int) bool { return deletes[i].asked >= from-1_000_000 })
		for _, one := range deletes[first:] {
			if one.told >= from && one.asked <= to {
				history = append(history, porcupine.Operation{Input: &step{action: deleted, op: one, asked: one.asked}, Call: one.asked, Return: one.told})
			}
		}
		judge(part[0].fence, part[len(part)-1].fence, history)
	})
	for _, one := range strangers {
		if nth, meets := within(r.spans["loss"], one.asked, one.told); nth == 0 && !meets {
			judge(0, 0, []porcupine.Operation{{Input: &step{action: stranger, op: one, asked: one.asked}, Call: one.asked, Return: one.told}})
		}
	}
}

// turns is about L2: fences grow, whatever was lost.
func (r *round) turns(grants []*grant, highest int64, judge func([]porcupine.Operation)) {
	if len(grants) == 0 || grants[0].fence == 0 {
		return
	}
	before := &grant{fence: highest}
	if grants[0].fence <= highest {
		// It was told before this round.
		before.asked = grants[0].told + 1
		before.told = before.asked
		judge([]porcupine.Operation{place(1, grants[0].asked, grants[0].told), place(0, before.asked, before.told)})
	}
	beside, behind := r.spans["beside"], r.spans["behind"]
	grants = slices.DeleteFunc(slices.Clone(grants), func(one *grant) bool {
		_, isBeside := within(beside, one.asked, one.asked)
		_, isBehind := within(behind, one.asked, one.told)
		return isBeside || isBehind
	})
	segments(grants, nil, func(part []*grant) {
		var history []porcupine.Operation
		for at, one := range part {
			history = append(history, place(at, one.asked, one.told))
		}
		judge(history)
	})
}

// queue is about L4: who was seen in the queue had come by then, and those who are granted the lock have come in that order.
func (r *round) queue(ops []*op, grants []*grant, judge func([]porcupine.Operation)) {
	seen := map[int64][]*op{}
	var deletes []span
	for _, one := range ops {
		switch one.f {
		case "seen":
			seen[one.Owner] = append(seen[one.Owner], one)
		case "delete":
			deletes = append(deletes, span{one.asked, one.told})
		}
	}
	deletes = joined(deletes)
	before := map[int64]*grant{}
	var queued []*grant
	for _, one := range grants {
		// One that holds the lock need not queue for another hold.
		former := before[one.owner]
		before[one.owner] = one
		if one.unheard || one.fence == 0 || one.ops[0].f != "acquire" || former != nil && (one.several || former.loosestEver() > one.tightest) {
			continue
		}
		queued = append(queued, one)
	}
	segments(queued, r.spans["standstill"], func(part []*grant) {
		var history []porcupine.Operation
		for at, one := range part {
			by, first := one.told, one.ops[0]
			// The turn of a ticket may have come, gone, and come again.
			_, isTorn := within(deletes, one.asked, one.told)
			isTorn = isTorn && first.Ticket > 0 || first.Ticket > 0 && first.Set > 0
			if first.Block > 0 && !isTorn {
				for _, look := range seen[one.owner] {
					if look.asked >= first.asked {
						by = min(by, look.told)
					}
				}
			}
			history = append(history, place(at, one.asked, by))
		}
		judge(history)
	})
}

func place(at int, asked, told int64) porcupine.Operation {
	return porcupine.Operation{Input: at, Call: asked, Return: told}
}
