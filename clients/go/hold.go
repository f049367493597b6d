package leasehold

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// An Outcome is what a release came to.
type Outcome string

const (
	// Released: it was held until now, and is free or the next one's.
	Released Outcome = "released"
	// Late: it was lost before. Somebody else may have had it while the work was going on.
	Late Outcome = "late"
	// Later: it was held until now, and the server frees it when the time of [HoldAtLeast] is over.
	Later Outcome = "later"
)

// settlesWithin: most are released before, and cost less for it.
const settlesWithin = time.Second

type terms struct{ renewUntil, holdUntil moment }

// A hold is a lock that is held, from its grant until it is released, detached or lost. Programs have a Lease, which refers
// to this; it does not refer to the lease, so that the garbage collector tells when the program has none any more.
type hold struct {
	locks *Locks
	at    *attempt
	terms terms
	// next is that of deadlines.
	next due

	mu          sync.Mutex
	fence       int64
	ttl, agreed time.Duration
	validUntil  moment
	renewAt     moment
	// isUnclaimed: the server does not know yet that somebody has heard of the grant.
	isUnclaimed bool
	// isUnsure: an upgrade is not answered, and the server may have it by another fence.
	isUnsure   bool
	asking     int
	extensions extensions
	failure    error
	loss       Loss
	reason     error
	tells      []func(Loss, error)
	unbind     func()
	// young is the lease, until it has been held for a while.
	young *Lease

	isReleased atomic.Bool
	// released is closed when it is known what that came to.
	released chan struct{}
	outcome  Outcome
	err      error
}

// newLease returns the lease of a new hold. Its context has the values of this one.
func newLease(ctx context.Context, a *attempt, g *grant, t terms) *Lease {
	h := &hold{
		locks: a.locks, at: a, terms: t, fence: g.fence, ttl: a.ttl, agreed: a.ttl, renewAt: never,
		validUntil: validUntil(g.asked, g.lasts), isUnclaimed: g.isUnclaimed, released: make(chan struct{}),
	}
	if h.locks.settings.OnEvent != nil {
		a.mu.Lock()
		a.since = now()
		a.mu.Unlock()
	}
	lease := &Lease{hold: h, shared: a.claim.share, values: ctx}
	if lease.shared == exclusive || lease.shared == unknown {
		lease.shared = anyNumber
	}
	h.young = lease
	h.bind()
	h.locks.keep(h)
	// Who does not renew it claims it all the same, to have it for its ttl.
	if g.isUnclaimed && t.renewUntil < g.asked.add(h.ttl) {
		h.schedule(now())
	} else {
		h.schedule(renewAt(g.asked, g.lasts))
	}
	return lease
}

func (h *hold) when() *due    { return &h.next }
func (h *hold) name() string  { return h.at.name }
func (h *hold) owner() string { return h.claim().owner }

// claim is how it is held at this moment: a downgrade changes it.
func (h *hold) claim() *claim {
	h.at.mu.Lock()
	defer h.at.mu.Unlock()
	return h.at.claim
}

func (h *hold) fenceNow() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fence
}

// whenOver is told once when it is held no more; with the reason, unless the program has given it up itself.
func (h *hold) whenOver(tell func(Loss, error)) {
	h.look()
	h.mu.Lock()
	if h.loss == "" {
		h.tells = append(h.tells, tell)
		h.mu.Unlock()
		return
	}
	loss, reason := h.loss, h.reason
	h.mu.Unlock()
	tell(loss, reason)
}

// look says whether it is held: it looks at the clock.
func (h *hold) look() bool {
	h.mu.Lock()
	isHeld := h.loss == ""
	isOver := isHeld && now() >= h.validUntil
	h.mu.Unlock()
	if isOver {
		h.lose(Expired)
	}
	return isHeld && !isOver
}

func (h *hold) validFor() time.Duration {
	if !h.look() {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.validUntil.left()
}

func (h *hold) lostError() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reason != nil {
		return h.reason
	}
	return &LostError{h.name(), h.loss, h.failure}
}

func (h *hold) reasonNow() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}

func (h *hold) extend(halt halt, ttl time.Duration) error {
	if err := checkDuration("ttl", ttl, time.Millisecond); err != nil {
		return err
	}
	if !h.look() {
		return h.lostError()
	}
	h.mu.Lock()
	h.ttl = ttl
	until := min(h.validUntil, now().add(h.locks.settings.Within))
	h.mu.Unlock()
	h.watch()
	err := h.doExtend(halt, ttl, until, asksExtend)
	if err == nil || errors.Is(err, ErrLost) {
		return err
	}
	h.mu.Lock()
	// To renew it by as much would be refused each time.
	if errors.Is(err, ErrRefused) && h.ttl == ttl {
		h.ttl = h.agreed
	}
	h.mu.Unlock()
	// It is held on, and may have little time left.
	if now() < h.terms.renewUntil {
		go h.renew()
	}
	return err
}

// doExtend asks until then. A lost lease is an ErrLost.
func (h *hold) doExtend(halt halt, ttl time.Duration, until moment, how asks) error {
	h.mu.Lock()
	number := h.extensions.begin(ttl)
	fence := h.fence
	if h.isUnsure {
		fence = 0
	}
	h.asking++
	h.mu.Unlock()
	h.expect(validUntil(now(), ttl))
	q := question{asks: how, ttl: ttl, fence: fence}
	f := fate(noMatter{})
	if how == asksAcquire {
		q.fence, f = 0, h.at
	}
	came, err := ask(h.locks.server, halt, h.limits(until, ttl), h.claim(), q, f)
	h.mu.Lock()
	h.asking--
	h.mu.Unlock()
	if !h.look() {
		return h.lostError()
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	// It has another fence by now, or may have.
	isOther := how == asksExtend && (h.isUnsure || fence != h.fence)
	wants := int64(1)
	if how == asksAcquire {
		wants = h.fence
	}
	h.mu.Unlock()
	if came.number == 0 && !came.isNil && isOther && fence != 0 {
		return h.doExtend(halt, ttl, until, asksExtend)
	}
	if came.isNil || came.number != wants {
		h.lose(Taken)
		// A later grant of the same owner is nobody's.
		if how == asksAcquire {
			h.at.late()
		}
		return h.lostError()
	}
	h.mu.Lock()
	h.agreed, h.isUnclaimed, h.failure = ttl, false, nil
	if counted, counts := h.extensions.counted(number, came, ttl); counts {
		h.validUntil = validUntil(came.asked, counted)
	}
	// It may count for less than its ttl, and is renewed in time for that.
	next := min(renewAt(came.asked, h.ttl), renewAt(now(), h.validUntil.left()))
	h.mu.Unlock()
	if !h.look() {
		return h.lostError()
	}
	h.schedule(next)
	h.tell(Event{Step: Renewed})
	return nil
}

func (h *hold) limits(until moment, ttl time.Duration) limits {
	return limits{patienceForAnswer(h.locks.settings.Response, ttl), until}
}

// background goes on until the hold is over.
func (h *hold) background() halt { return halt{ctx: h.locks.background, closed: nil} }

func (h *hold) renew() {
	h.mu.Lock()
	ttl := h.ttl
	h.mu.Unlock()
	for tries := 0; h.look(); tries++ {
		h.mu.Lock()
		isOther, until := ttl != h.ttl, h.validUntil
		h.mu.Unlock()
		if isOther {
			return
		}
		err := h.doExtend(h.background(), ttl, until, asksExtend)
		if err == nil || errors.Is(err, ErrLost) {
			return
		}
		h.mu.Lock()
		h.failure = err
		h.mu.Unlock()
		// Each further one would come to the same. The program may need what is left of the lease.
		if isFinal(err) {
			h.warn("leasehold: a renewal was refused", err)
			return
		}
		time.Sleep(min(retry.after(tries), h.validFor()))
	}
}

// expect: the server may have it end as early as that from now on, whether or not that is heard of.
func (h *hold) expect(end moment) {
	h.mu.Lock()
	isEarlier := end < h.validUntil
	if isEarlier {
		h.validUntil = end
	}
	h.mu.Unlock()
	if isEarlier {
		h.watch()
	}
}

// watch waits for the end of the lease.
func (h *hold) watch() {
	h.mu.Lock()
	h.renewAt = never
	until, isHeld := h.validUntil, h.loss == ""
	if h.young != nil {
		until = min(until, now().add(settlesWithin))
	}
	h.mu.Unlock()
	if isHeld {
		h.locks.deadlines.set(h, until)
	}
}

func (h *hold) schedule(renewal moment) {
	h.mu.Lock()
	if !h.isUnclaimed && renewal >= h.terms.renewUntil {
		h.mu.Unlock()
		h.watch()
		return
	}
	h.renewAt = renewal
	if h.young != nil {
		renewal = min(renewal, now().add(settlesWithin))
	}
	isHeld := h.loss == ""
	h.mu.Unlock()
	if isHeld {
		h.locks.deadlines.set(h, renewal)
	}
}

func (h *hold) due() {
	h.mu.Lock()
	if h.loss != "" || now() >= h.validUntil {
		h.mu.Unlock()
		// Whoever is told of it may take long, and others are due.
		go h.look()
		return
	}
	lease := h.young
	h.young = nil
	isDue := now() >= h.renewAt
	next := min(h.renewAt, h.validUntil)
	h.mu.Unlock()
	// To watch each of them costs more than all the rest of a lease that is released in a moment.
	if lease != nil {
		runtime.AddCleanup(lease, (*hold).forgotten, h)
	}
	if isDue {
		h.watch()
		go h.renew()
	} else {
		h.locks.deadlines.set(h, next)
	}
}

// lose: it is not held any more, and nobody has given it up.
func (h *hold) lose(loss Loss) {
	h.mu.Lock()
	failure := h.failure
	// It may be under way, and nobody has answered.
	if failure == nil && h.asking > 0 && loss == Expired {
		failure = h.locks.server.told(errSilent)
	}
	if loss != Expired {
		failure = nil
	}
	isUnclaimed := h.isUnclaimed
	h.mu.Unlock()
	err := &LostError{h.name(), loss, failure}
	if !h.end(loss, err) {
		return
	}
	h.locks.drop(h)
	if isUnclaimed {
		h.at.giveUp()
	} else {
		h.at.over()
		h.at.lastWords()
	}
	h.tell(Event{Step: Lost, Outcome: string(loss), Err: err})
	h.warn("leasehold: a lock was lost", err)
}

func (h *hold) end(loss Loss, reason error) bool {
	h.mu.Lock()
	if h.loss != "" {
		h.mu.Unlock()
		return false
	}
	h.loss, h.reason, h.young = loss, reason, nil
	tells, unbind := h.tells, h.unbind
	h.tells, h.unbind = nil, nil
	h.mu.Unlock()
	h.locks.deadlines.cancel(h)
	if unbind != nil {
		unbind()
	}
	for _, tell := range tells {
		tell(loss, reason)
	}
	return true
}

// share has another share of it: by a new fence if that is tighter. nil: there are too many others for that.
func (h *hold) share(halt halt, to share) (isHeld bool, err error) {
	if !h.look() {
		return false, h.lostError()
	}
	was := h.claim()
	if was.share == to {
		return true, nil
	}
	as := *was
	as.share = to
	isUpgrade := to == exclusive
	h.mu.Lock()
	h.isUnsure = h.isUnsure || isUpgrade
	ttl, until := h.ttl, min(h.validUntil, now().add(h.locks.settings.Within))
	h.mu.Unlock()
	came, err := ask(h.locks.server, halt, h.limits(until, ttl), &as, question{asks: asksAcquire, ttl: ttl}, h.at)
	if !h.look() {
		return false, h.lostError()
	}
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	h.isUnsure = false
	isOther := came.isNil || !isUpgrade && came.number != h.fence
	h.mu.Unlock()
	if came.isNil && isUpgrade {
		return false, nil
	}
	if isOther {
		h.lose(Taken)
		h.at.late()
		return false, h.lostError()
	}
	h.mu.Lock()
	h.fence, h.isUnclaimed = came.number, false
	h.mu.Unlock()
	h.at.mu.Lock()
	h.at.claim = &as
	h.at.mu.Unlock()
	return true, nil
}

// leave stops the renewal, and leaves the lock to its lease.
func (h *hold) leave() {
	if !h.look() {
		return
	}
	if h.isReleased.CompareAndSwap(false, true) {
		h.outcome = Later
		close(h.released)
	}
	h.tell(Event{Step: Freed, Outcome: string(Later)})
	h.mu.Lock()
	isUnclaimed, ttl, end, fence := h.isUnclaimed, h.ttl, h.validUntil, h.fence
	h.mu.Unlock()
	h.end(Given, nil)
	h.locks.drop(h)
	if !isUnclaimed {
		return
	}
	// Otherwise it would not stay for its ttl.
	h.locks.await(h.name(), end, func() error {
		lim := h.limits(now().add(h.locks.settings.Within), ttl)
		q := question{asks: asksExtend, ttl: ttl, fence: fence}
		_, err := ask(h.locks.server, h.background(), lim, h.claim(), q, noMatter{})
		return err
	})
}

// giveBack releases it once. Others who ask are told the same, and wait no longer than they want to.
func (h *hold) giveBack(halt halt) (Outcome, error) {
	if h.isReleased.CompareAndSwap(false, true) {
		if err := h.doRelease(halt); err != nil {
			return "", err
		}
	}
	select {
	case <-h.released:
		return h.outcome, h.err
	default:
	}
	select {
	case <-h.released:
		return h.outcome, h.err
	case <-halt.ctx.Done():
	case <-halt.closed:
	}
	return "", halt.err()
}

// doRelease returns an error only if it was stopped: then it goes on in the background.
func (h *hold) doRelease(caller halt) error {
	begun := now()
	h.look()
	h.mu.Lock()
	end, fence := h.validUntil, h.fence
	// A message may have been forged: then the owner has a place in the queue, which only this gives back.
	if h.isUnclaimed || h.isUnsure {
		fence = 0
	}
	ttl := h.ttl
	h.mu.Unlock()
	h.end(Given, nil)
	h.mu.Lock()
	loss := h.loss
	h.mu.Unlock()
	claim := h.claim()
	// The server has said so: of one of them, if there are several.
	if loss == Taken && len(claim.also) == 0 {
		h.settle(Late, nil)
		return nil
	}
	wasLost := loss == Expired || loss == Taken
	if wasLost {
		h.locks.keep(h)
	}
	defer h.locks.drop(h)
	all, outcome, q := int64(len(claim.also)+1), Released, question{asks: asksRelease, fence: fence}
	if h.terms.holdUntil > begun && !wasLost {
		all, outcome, q.asks = 1, Later, asksExtend
	} else {
		h.at.over()
	}
	try := func(by halt, from moment) (answer, error) {
		if outcome == Later {
			q.ttl = max(time.Millisecond, h.terms.holdUntil.left())
		}
		came, err := ask(h.locks.server, by, h.limits(from.add(h.locks.settings.Within), ttl), claim, q, noMatter{})
		if outcome == Released {
			h.at.lastWords()
		}
		return came, err
	}
	ends := func(came answer, err error) {
		// An earlier try may have been heard and its answer lost. Before the end of the lease nobody else can have had the lock.
		isInTime := came.number == all || came.isRepeated && came.asked < end
		switch {
		case err != nil:
			defer h.settle("", err)
			h.locks.stays(h.name(), end)
			if !errors.Is(err, errStopped) {
				h.warn("leasehold: a release failed, and the lock stays until its lease ends", err)
			}
		case wasLost || !isInTime:
			h.settle(Late, nil)
		default:
			h.settle(outcome, nil)
		}
	}
	came, err := try(caller, begun)
	if !errors.Is(err, errStopped) {
		ends(came, err)
		return nil
	}
	// Whoever asked for it does not wait for it. It is given back all the same, and others may wait for that.
	h.locks.returns(claim, h.at.wanted, func() error {
		came, err := try(h.background(), now())
		came.isRepeated = true
		ends(came, err)
		return err
	})
	return err
}

// settle: it is released, or not to be.
func (h *hold) settle(outcome Outcome, err error) {
	defer close(h.released)
	h.outcome, h.err = outcome, err
	h.tell(Event{Step: Freed, Outcome: string(outcome), Err: err})
}

// shut gives it back, because the Locks were closed.
func (h *hold) shut() {
	if h.look() {
		h.end(Shut, &LostError{Lock: h.name(), Loss: Shut})
	}
	go func() { _, _ = h.giveBack(h.background()) }()
}

func (h *hold) forgotten() {
	if !h.look() {
		return
	}
	h.warn("leasehold: a lease was dropped, and not released before", nil)
	go func() { _, _ = h.giveBack(h.background()) }()
}

func (h *hold) bind() {
	claim := h.claim()
	h.at.mu.Lock()
	bond := h.at.bond
	h.at.mu.Unlock()
	if bond == nil || !claim.isBound {
		return
	}
	unbind := bond.whenEnded(func() { go h.bindAgain(claim.grace) })
	h.mu.Lock()
	former := h.unbind
	h.unbind = unbind
	h.mu.Unlock()
	if former != nil {
		former()
	}
}

// bindAgain asks within the grace, which binds it to another connection. One that is not renewed lasts no longer for that.
func (h *hold) bindAgain(grace time.Duration) {
	if !h.look() {
		return
	}
	h.mu.Lock()
	ttl := h.ttl
	h.mu.Unlock()
	if now() >= h.terms.renewUntil {
		ttl = h.validFor()
	}
	h.expect(validUntil(now(), grace))
	if !h.look() {
		return
	}
	h.mu.Lock()
	until := h.validUntil
	h.mu.Unlock()
	err := h.doExtend(h.background(), ttl, until, asksAcquire)
	if err == nil && h.look() {
		h.bind()
	} else if err != nil {
		h.mu.Lock()
		h.failure = err
		h.mu.Unlock()
	}
}

func (h *hold) tell(event Event) {
	if h.locks.settings.OnEvent != nil {
		event.Fence = h.fenceNow()
		h.at.tell(event)
	}
}

func (h *hold) warn(what string, err error) {
	h.locks.warn(what, h.name(), h.owner(), err)
}

func (l *Locks) warn(what, name, owner string, err error) {
	attrs := []any{slog.String("lock", name), slog.String("owner", owner)}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	l.settings.Logger.Warn(what, attrs...)
}

// Extensions that the server may carry out after others.
//
//	EXTEND 1 s  ──► no answer, given up
//	EXTEND 60 s ───────────────────────────► answered
//	                    EXTEND 1 s ─────────────► carried out late: the lease ends a second from then
//
// So an extension counts for no more than a shorter one that was given up and may still be on its way; and one that was asked
// for earlier counts for nothing after a later one was answered.
type extensions struct {
	next, answered int
	open           []extension
}

type extension struct {
	number int
	ttl    time.Duration
	since  moment
}

// longestWay is how long a request may be on its way after it was given up.
const longestWay = time.Minute

func (e *extensions) begin(ttl time.Duration) int {
	e.next++
	open := e.open[:0]
	for _, one := range e.open {
		if now().sub(one.since) <= longestWay {
			open = append(open, one)
		}
	}
	e.open = append(open, extension{e.next, ttl, now()})
	return e.next
}

// counted is for how much of its ttl it counts from when it was asked for, if no later one was answered.
func (e *extensions) counted(number int, came answer, ttl time.Duration) (time.Duration, bool) {
	open := e.open[:0]
	for _, one := range e.open {
		// An earlier try of it that was not answered may still be carried out.
		if one.number != number || came.isRepeated {
			open = append(open, one)
		}
	}
	e.open = open
	if number < e.answered {
		return 0, false
	}
	e.answered = number
	for _, one := range open {
		ttl = min(ttl, one.ttl)
	}
	return ttl, true
}
