package leasehold

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A grant is one act of giving, as far as this program knows of it.
type grant struct {
	fence int64
	// asked is before the server was asked, and lasts is for how long it is held from then.
	asked moment
	lasts time.Duration
	// on is the line that a hold is bound to, if it is to one.
	on *line
	// isUnclaimed: a message has told it, and the server does not know that somebody has heard it.
	isUnclaimed bool
}

// stray is how long after it was closed here a connection may be read by the server.
const stray = 250 * time.Millisecond

// requests is how many have been told of.
var requests atomic.Int64

// An attempt is one try to get a lock, which has an owner of its own.
//
// Whoever gives up half-way, for whatever reason, gives back what the server may have granted or may still grant: no place in
// the queue and no lock stays behind.
type attempt struct {
	*options
	name  string
	locks *client
	halt  halt
	begun moment
	// request is numbered when there is anything to tell.
	request int64

	mu    sync.Mutex
	claim *claim
	// since is from when events are counted: the request, and later the grant.
	since moment
	// mayHold: the server may have granted the lock, or may keep a place in its queue.
	mayHold bool
	// wasCut: a connection was closed while a request waited on it.
	wasCut    bool
	isOver    bool
	wasQueued bool
	// unheard are the lines on which something was asked and not answered.
	unheard []*line
}

func newAttempt(l *client, h halt, name string, o *options, c *claim) *attempt {
	begun := now()
	return &attempt{options: o, name: name, locks: l, halt: h, begun: begun, claim: c, since: begun}
}

func (a *attempt) tell(event Event) {
	tell := a.locks.settings.OnEvent
	if tell == nil {
		return
	}
	a.mu.Lock()
	here := now()
	event.Context = a.halt.ctx
	if a.request == 0 {
		a.request = requests.Add(1)
	}
	event.Request = a.request
	event.Name, event.Owner, event.After = a.name, a.claim.owner, here.sub(a.since)
	if event.Step == StepGranted {
		a.since = here
	}
	a.mu.Unlock()
	tell(event)
}

// isToQueue: somebody is to be told that it is queued.
func (a *attempt) isToQueue() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.locks.settings.OnEvent != nil && !a.wasQueued
}

func (a *attempt) queued() {
	a.mu.Lock()
	isFirst := !a.wasQueued
	a.wasQueued = true
	a.mu.Unlock()
	if isFirst {
		a.tell(Event{Step: StepQueued})
	}
}

func (a *attempt) giveUp() {
	a.mu.Lock()
	a.isOver = true
	mayHold, wasCut, claim := a.mayHold, a.wasCut, a.claim
	a.mu.Unlock()
	if !mayHold {
		return
	}
	// Where a server has not read the request yet, the release comes behind it.
	areSaid := a.lastWords()
	a.locks.giveBack(claim, a, 0)
	// The server may read what was said on another connection after it has read this, and grant the lock in between.
	if wasCut || !areSaid || claim.isBound {
		a.locks.giveBack(claim, a, stray)
	}
}

// over: it was granted, and is held no more. What a request that was not answered is granted now is nobody's.
func (a *attempt) over() {
	a.mu.Lock()
	a.isOver = true
	a.mu.Unlock()
}

// lastWords are said behind requests that a silent server may still read: not before the release was answered, or it would
// find nothing to release. Close waits for their answers. false: a connection is closed by now.
func (a *attempt) lastWords() (areSaid bool) {
	a.mu.Lock()
	unheard, claim := a.unheard, a.claim
	a.unheard = nil
	a.mu.Unlock()
	areSaid = true
	for _, l := range unheard {
		done := a.locks.expects(a.name, now().add(a.ttl))
		answered := func(_ Reply, err error) {
			// A line that has fallen silent may still answer. Whatever else comes, nothing comes behind it.
			if err != errRetired {
				done(nil)
			}
		}
		words, err := a.locks.remote.wording(claim, question{asks: asksRelease})
		if err == nil {
			err = l.lastWord(sinkFunc(answered), words)
		}
		if err != nil {
			areSaid = false
			done(nil)
		}
	}
	return areSaid
}

// unknown: it is granted, or has a place.
func (a *attempt) unknown() {
	a.mu.Lock()
	a.mayHold = true
	a.mu.Unlock()
}

// cut says whether a connection was closed on which a request waits.
func (a *attempt) cut(wasCut bool) {
	a.mu.Lock()
	a.wasCut = wasCut
	a.mu.Unlock()
}

// late: also if it was not granted. Then it may have a place in the queue.
func (a *attempt) late(Reply, error) {
	a.mu.Lock()
	isOver, claim := a.isOver, a.claim
	a.mu.Unlock()
	if isOver {
		a.locks.giveBack(claim, a, 0)
	}
}

// left: it may have been heard.
func (a *attempt) left(on *line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mayHold = true
	if on != nil && !slices.Contains(a.unheard, on) {
		a.unheard = append(a.unheard, on)
	}
}

func (a *attempt) ask(lim limits) (*grant, error) {
	came, err := ask(a.locks.server, a.halt, lim, a.claim, question{asks: asksAcquire, ttl: a.ttl}, a)
	if err != nil || came.isNil {
		return nil, err
	}
	a.unknown()
	return &grant{fence: came.number, asked: came.asked, lasts: a.ttl, on: came.on}, nil
}

// acquire gets a lock in the server's queue, and where there is no queue, by asking again and again.
func (r *remote) acquire(a *attempt) (*grant, error) {
	until := a.begun.add(a.wait)
	if a.wait == 0 {
		until = a.begun.add(r.settings.Within)
	}
	each := patienceForAnswer(r.settings.Response, a.ttl)
	polls := func() bool { return r.settings.NoQueue || r.isPlain() }
	for tries := 0; ; tries++ {
		var granted *grant
		isQueued := a.wait > 0 && !polls()
		if isQueued {
			var err error
			if granted, isQueued, err = newPlace(r.places, a, limits{each, until}).wait(); err != nil {
				return nil, err
			}
		}
		if !isQueued {
			// It was busy when the server had time to answer.
			isLast := tries > 0 && until.left() < each
			var err error
			granted, err = a.ask(limits{each, min(until, now().add(r.settings.UnreachableAfter))})
			if err != nil && !(isLast && isUnreachable(err)) {
				return nil, err
			}
		}
		if granted != nil {
			if now() < validUntil(granted.asked, granted.lasts) {
				return granted, nil
			}
			// The answer took longer than the lease. Asked again, it is the same grant, or over.
			if until.left() == 0 {
				return nil, ErrTooLate
			}
		} else {
			if a.wait == 0 || until.left() == 0 {
				return nil, nil
			}
			if !polls() {
				continue
			}
		}
		rests := retry
		if granted == nil {
			rests = poll
		}
		if err := a.halt.sleep(min(rests.after(tries), until.left())); err != nil {
			return nil, err
		}
		if granted == nil && until.left() == 0 {
			return nil, nil
		}
	}
}
