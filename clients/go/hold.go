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
	// OutcomeReleased: it was held until now, and is free or the next one's.
	OutcomeReleased Outcome = "released"
	// OutcomeLate: it was lost before. Somebody else may have had it while the work was going on.
	OutcomeLate Outcome = "late"
	// OutcomeLater: it was held until now, and the server frees it when the time of [HoldAtLeast] is over.
	OutcomeLater Outcome = "later"
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
	// isUnbound: it is bound to a connection that has ended.
	isUnbound bool
	// upgrading is how many upgrades are not answered: the server may have it by another fence.
	upgrading  int
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
		h.lose(LossExpired)
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
	ttlNow := h.ttl
	h.mu.Unlock()
	// It is held on, and may have little time left.
	if now() < h.terms.renewUntil {
		go h.renew(ttlNow)
	}
	return err
}

// doExtend asks until then. A lost lease is an ErrLost.
func (h *hold) doExtend(halt halt, ttl time.Duration, until moment, how asks) error {
	h.mu.Lock()
	q := question{asks: how, ttl: ttl, fence: h.fence}
	if how == asksAcquire || h.upgrading > 0 {
		q.fence = 0
	}
	e := h.extensions.begin(h, q)
	h.asking++
	h.mu.Unlock()
	h.expect(validUntil(now(), ttl))
	came, err := ask(h.locks.server, halt, h.locks.limits(ttl, until), h.claim(), q, e)
	h.mu.Lock()
	h.asking--
	h.extensions.end(e)
	h.mu.Unlock()
	if !h.look() {
		return h.lostError()
	}
	if err != nil {
		return err
	}
	isOther, err := h.extended(e, came)
	if isOther {
		return h.doExtend(halt, ttl, until, asksExtend)
	}
	return err
}

// extended: a server has answered. isOther: it has another fence by now, or may have.
func (h *hold) extended(e *extension, came answer) (isOther bool, err error) {
	acquires := e.asks == asksAcquire
	h.mu.Lock()
	isOther = e.fence != 0 && (h.upgrading > 0 || e.fence != h.fence)
	wants := int64(1)
	if acquires {
		wants = h.fence
	}
	h.mu.Unlock()
	if came.isNil || came.number != wants {
		if !came.isNil && isOther {
			return true, nil
		}
		h.lose(LossTaken)
		// A later grant of the same owner is nobody's.
		if acquires {
			h.at.late(nil, nil)
		}
		return false, h.lostError()
	}
	h.mu.Lock()
	h.isUnclaimed, h.failure = false, nil
	counted, counts := h.extensions.counted(e)
	if counts {
		// A later try may have been answered before. A shorter one was expected when it was asked for.
		h.agreed, h.validUntil = e.ttl, max(h.validUntil, validUntil(came.asked, counted))
	}
	// It may count for less than its ttl, and is renewed in time for that.
	next := min(renewAt(came.asked, h.ttl), renewAt(now(), h.validUntil.left()))
	h.mu.Unlock()
	if !h.look() {
		return false, h.lostError()
	}
	h.schedule(next)
	if counts {
		h.tell(Event{Step: StepRenewed})
	}
	return false, nil
}

// background goes on until the hold is over.
func (h *hold) background() halt { return halt{ctx: h.locks.background, closed: nil} }

// renew asks until it is answered. Who is bound to no connection asks for that, too; and if that is refused, the lock is held on
// without, and the next renewal asks for it again.
func (h *hold) renew(ttl time.Duration) {
	h.mu.Lock()
	was := h.ttl
	h.mu.Unlock()
	for tries := 0; h.look(); tries++ {
		h.mu.Lock()
		isOther, until, isUnbound := was != h.ttl, h.validUntil, h.isUnbound
		h.mu.Unlock()
		if isOther {
			return
		}
		how := asksExtend
		if isUnbound {
			how = asksAcquire
		}
		err := h.doExtend(h.background(), ttl, until, how)
		if err == nil && isUnbound {
			h.bind()
		}
		if isUnbound && errors.Is(err, ErrRefused) {
			h.warn("leasehold: a lock is not bound to another connection yet", err)
			err = h.doExtend(h.background(), ttl, until, asksExtend)
		}
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
		_ = h.background().sleep(min(retry.after(tries), h.validFor()))
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
	isDue, ttl := now() >= h.renewAt, h.ttl
	next := min(h.renewAt, h.validUntil)
	h.mu.Unlock()
	// To watch each of them costs more than all the rest of a lease that is released in a moment.
	if lease != nil {
		runtime.AddCleanup(lease, (*hold).forgotten, h)
	}
	if isDue {
		h.watch()
		go h.renew(ttl)
	} else {
		h.locks.deadlines.set(h, next)
	}
}

// lose: it is not held any more, and nobody has given it up.
func (h *hold) lose(loss Loss) {
	h.mu.Lock()
	failure := h.failure
	// It may be under way, and nobody has answered.
	if failure == nil && h.asking > 0 && loss == LossExpired {
		failure = h.locks.server.told(errSilent)
	}
	if loss != LossExpired {
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
	h.tell(Event{Step: StepLost, Outcome: string(loss), Err: err})
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

// leave stops the renewal, and leaves the lock to its lease.
func (h *hold) leave() {
	if !h.look() {
		return
	}
	if h.isReleased.CompareAndSwap(false, true) {
		h.outcome = OutcomeLater
		close(h.released)
	}
	h.tell(Event{Step: StepReleased, Outcome: string(OutcomeLater)})
	h.mu.Lock()
	isUnclaimed, ttl, end, fence := h.isUnclaimed, h.ttl, h.validUntil, h.fence
	h.mu.Unlock()
	h.end(LossReleased, nil)
	h.locks.drop(h)
	if !isUnclaimed {
		return
	}
	// Otherwise it would not stay for its ttl.
	h.locks.await(h.name(), end, func() error {
		lim := h.locks.limits(ttl, now().add(h.locks.settings.Within))
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
	default:
		if err := halt.wait(h.released, never); err != nil {
			return "", err
		}
	}
	return h.outcome, h.err
}

// doRelease returns an error only if it was stopped: then it goes on in the background.
func (h *hold) doRelease(caller halt) error {
	begun := now()
	h.look()
	h.mu.Lock()
	end, fence := h.validUntil, h.fence
	// A message may have been forged: then the owner has a place in the queue, which only this gives back.
	if h.isUnclaimed || h.upgrading > 0 {
		fence = 0
	}
	ttl := h.ttl
	h.mu.Unlock()
	h.end(LossReleased, nil)
	h.mu.Lock()
	loss := h.loss
	h.mu.Unlock()
	claim := h.claim()
	// The server has said so: of one of them, if there are several.
	if loss == LossTaken && len(claim.also) == 0 {
		h.settle(OutcomeLate, nil)
		return nil
	}
	wasLost := loss == LossExpired || loss == LossTaken
	if wasLost {
		h.locks.keep(h)
	}
	defer h.locks.drop(h)
	all, outcome, q := int64(len(claim.also)+1), OutcomeReleased, question{asks: asksRelease, fence: fence}
	if h.terms.holdUntil > begun && !wasLost {
		all, outcome, q.asks = 1, OutcomeLater, asksExtend
	} else {
		h.at.over()
	}
	try := func(by halt, from moment) (answer, error) {
		if outcome == OutcomeLater {
			q.ttl = max(time.Millisecond, h.terms.holdUntil.left())
		}
		came, err := ask(h.locks.server, by, h.locks.limits(ttl, from.add(h.locks.settings.Within)), claim, q, noMatter{})
		if outcome == OutcomeReleased {
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
			h.settle(OutcomeLate, nil)
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
	h.tell(Event{Step: StepReleased, Outcome: string(outcome), Err: err})
}

// shut gives it back, because the Locks were closed.
func (h *hold) shut() {
	if h.look() {
		h.end(LossClosed, &LostError{Lock: h.name(), Loss: LossClosed})
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
	h.mu.Lock()
	h.isUnbound = false
	h.mu.Unlock()
	unbind := bond.whenEnded(func() { go h.bindAgain(claim.grace) })
	h.mu.Lock()
	former := h.unbind
	h.unbind = unbind
	h.mu.Unlock()
	if former != nil {
		former()
	}
}

// bindAgain asks for it within the grace, which binds it to another connection. One that is not renewed lasts no longer for that.
func (h *hold) bindAgain(grace time.Duration) {
	h.mu.Lock()
	h.isUnbound = true
	ttl, end := h.ttl, h.validUntil
	h.mu.Unlock()
	h.expect(validUntil(now(), grace))
	if now() >= h.terms.renewUntil {
		ttl = max(time.Millisecond, end.left())
	}
	h.renew(ttl)
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
