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

// A hold is a lock that is held, from its grant until it is released, detached or lost. Programs have a Lease, which refers
// to this; it does not refer to the lease, so that the garbage collector tells when the program has none any more.
type hold struct {
	locks                 *client
	at                    *attempt
	renewUntil, holdUntil moment

	mu          sync.Mutex
	fence       int64
	ttl, agreed time.Duration
	validUntil  moment
	renewAt     moment
	timer       *time.Timer
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
	tells      []context.CancelCauseFunc
	unbind     func() bool
	// young is the lease, until the timer has run: most are released before, and need not be watched.
	young *Lease

	isReleased atomic.Bool
	// released is closed when it is known what that came to.
	released chan struct{}
	outcome  Outcome
	err      error
}

// newLease returns the lease of a new hold. Its context has the values of this one.
func newLease(ctx context.Context, a *attempt, g *grant) (*Lease, error) {
	h := &hold{
		locks: a.locks, at: a, renewUntil: never, holdUntil: always, fence: g.fence, ttl: a.ttl, agreed: a.ttl,
		validUntil: validUntil(g.asked, g.lasts), isUnclaimed: g.isUnclaimed, released: make(chan struct{}),
	}
	if a.renewFor >= 0 {
		h.renewUntil = g.asked.add(a.renewFor)
	}
	if a.holdAtLeast > 0 {
		h.holdUntil = now().add(a.holdAtLeast)
	}
	lease := &Lease{hold: h, shared: a.claim.share, values: ctx}
	if lease.shared == exclusive || lease.shared == unknown {
		lease.shared = anyNumber
	}
	h.bind(g.on)
	h.locks.keep(h)
	h.mu.Lock()
	h.young = lease
	// Who does not renew it claims it all the same, to have it for its ttl.
	if g.isUnclaimed && h.renewUntil < g.asked.add(h.ttl) {
		h.schedule(now())
	} else {
		h.schedule(renewAt(g.asked, g.lasts))
	}
	h.mu.Unlock()
	if isDone(h.locks.closed) {
		// Close has looked at what is held, and may not have seen it.
		h.shut()
		return nil, &stopped{ErrClosed}
	}
	return lease, nil
}

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
func (h *hold) whenOver(tell context.CancelCauseFunc) {
	isHeld := h.look()
	h.mu.Lock()
	if isHeld = isHeld && h.loss == ""; isHeld {
		h.tells = append(h.tells, tell)
	}
	reason := h.reason
	h.mu.Unlock()
	if !isHeld {
		tell(reason)
	}
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
	h.schedule(never)
	h.mu.Unlock()
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
	if now() < h.renewUntil {
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
	h.expect(validUntil(now(), ttl))
	h.mu.Unlock()
	came, err := ask(h.locks.server, halt, h.locks.limits(ttl, until), h.claim(), q, e)
	h.mu.Lock()
	h.asking--
	e.underWay--
	h.mu.Unlock()
	if !h.look() {
		return h.tooLate(how, came, err)
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

// tooLate: it was over before the answer came. What was granted anew is nobody's.
func (h *hold) tooLate(how asks, came answer, err error) error {
	if how == asksAcquire && err == nil && !came.isNil {
		h.at.late(nil, nil)
	}
	return h.lostError()
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
		return false, h.tooLate(e.asks, came, nil)
	}
	if acquires {
		h.bind(came.on)
	}
	h.mu.Lock()
	h.isUnclaimed, h.failure = false, nil
	counted, counts := h.extensions.counted(e)
	if counts {
		// A later try may have been answered before. A shorter one was expected when it was asked for.
		h.agreed, h.validUntil = e.ttl, max(h.validUntil, validUntil(came.asked, counted))
	}
	// It may count for less than its ttl, and is renewed in time for that.
	h.schedule(min(renewAt(came.asked, h.ttl), renewAt(now(), h.validUntil.left())))
	h.mu.Unlock()
	if !h.look() {
		return false, h.lostError()
	}
	if counts {
		h.tell(Event{Step: StepRenewed})
	}
	return false, nil
}

// background goes on until the hold is over.
func (h *hold) background() halt { return halt{ctx: h.locks.background} }

// renew asks until it is answered. Who is bound to no connection asks for that, too; and if that is refused, the lock is held on
// without, and the next renewal asks for it again.
func (h *hold) renew(ttl time.Duration) {
	h.mu.Lock()
	was := h.ttl
	h.mu.Unlock()
	for tries := 0; h.look(); tries++ {
		h.mu.Lock()
		isOther, until, how := was != h.ttl, h.validUntil, asksExtend
		if h.isUnbound {
			how = asksAcquire
		}
		h.mu.Unlock()
		if isOther {
			return
		}
		err := h.doExtend(h.background(), ttl, until, how)
		if how == asksAcquire && errors.Is(err, ErrRefused) {
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

// expect: the server may have it end as early as that from now on, whether or not that is heard of. It is called with the
// lock, as the two that follow.
func (h *hold) expect(end moment) {
	if end < h.validUntil {
		h.validUntil = end
		h.schedule(never)
	}
}

func (h *hold) schedule(renewal moment) {
	if !h.isUnclaimed && renewal >= h.renewUntil {
		renewal = never
	}
	h.renewAt = renewal
	h.rest()
}

func (h *hold) rest() {
	resting := min(h.renewAt, h.validUntil).left()
	if h.young != nil {
		resting = min(resting, settlesWithin)
	}
	switch {
	case h.loss != "":
	case h.timer == nil:
		h.timer = time.AfterFunc(resting, h.due)
	default:
		h.timer.Reset(resting)
	}
}

func (h *hold) due() {
	if !h.look() {
		return
	}
	h.mu.Lock()
	lease, isDue, ttl := h.young, now() >= h.renewAt, h.ttl
	h.young = nil
	if isDue {
		h.renewAt = never
	}
	h.rest()
	h.mu.Unlock()
	if lease != nil {
		runtime.AddCleanup(lease, (*hold).forgotten, h)
	}
	if isDue {
		h.renew(ttl)
	}
}

// lose: it is not held any more, and nobody has given it up.
func (h *hold) lose(loss Loss) {
	h.mu.Lock()
	failure, isUnclaimed := h.failure, h.isUnclaimed
	// It may be under way, and nobody has answered.
	if failure == nil && h.asking > 0 {
		failure = h.locks.server.told(errSilent)
	}
	h.mu.Unlock()
	err := &LostError{Lock: h.name(), Loss: loss}
	if loss == LossExpired {
		err.Err = failure
	}
	if !h.end(loss, err) {
		return
	}
	h.locks.drop(h)
	if isUnclaimed {
		h.at.giveUp()
	} else {
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
	if h.wasLost() {
		h.at.over()
	}
	tells, unbind := h.tells, h.unbind
	h.tells, h.unbind = nil, nil
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	if unbind != nil {
		unbind()
	}
	for _, tell := range tells {
		tell(reason)
	}
	return true
}

func (h *hold) wasLost() bool { return h.loss == LossExpired || h.loss == LossTaken }

// leave stops the renewal, and leaves the lock to its lease.
func (h *hold) leave() {
	if !h.look() || !h.isReleased.CompareAndSwap(false, true) {
		return
	}
	h.mu.Lock()
	isUnclaimed, ttl, end, fence := h.isUnclaimed, h.ttl, h.validUntil, h.fence
	h.mu.Unlock()
	h.end(LossReleased, nil)
	h.locks.drop(h)
	if isUnclaimed {
		// Otherwise it would not stay for its ttl.
		h.locks.await(h.name(), end, func() error {
			lim := h.locks.limits(ttl, now().add(h.locks.settings.Within))
			q := question{asks: asksExtend, ttl: ttl, fence: fence}
			_, err := ask(h.locks.server, h.background(), lim, h.claim(), q, nil)
			return err
		})
	}
	h.settle(OutcomeLater, nil)
}

// giveBack releases it once. Others who ask are told the same, and wait no longer than they want to.
func (h *hold) giveBack(caller halt) (Outcome, error) {
	if h.isReleased.CompareAndSwap(false, true) {
		if err := h.release(caller); err != nil {
			return "", err
		}
	}
	if err := caller.wait(h.released, never); err != nil {
		return "", err
	}
	return h.outcome, h.err
}

// release returns an error only if it was stopped: then it goes on in the background.
func (h *hold) release(caller halt) error {
	stays := h.look() && h.holdUntil > now()
	if !stays {
		h.at.over()
	}
	h.end(LossReleased, nil)
	h.mu.Lock()
	loss, wasLost, end, ttl := h.loss, h.wasLost(), h.validUntil, h.ttl
	q := question{asks: asksRelease, fence: h.fence}
	// A message may have been forged: then the owner has a place in the queue, which only this gives back.
	if h.isUnclaimed || h.upgrading > 0 {
		q.fence = 0
	}
	h.mu.Unlock()
	claim := h.claim()
	// The server has said so: of one of them, if there are several.
	if loss == LossTaken && len(claim.also) == 0 {
		h.settle(OutcomeLate, nil)
		return nil
	}
	h.locks.keep(h)
	defer h.locks.drop(h)
	all, outcome := int64(len(claim.also)+1), OutcomeReleased
	if stays && !wasLost {
		all, outcome, q.asks = 1, OutcomeLater, asksExtend
	}
	try := func(by halt, isAgain bool) error {
		if outcome == OutcomeLater {
			q.ttl = max(time.Millisecond, h.holdUntil.left())
		}
		came, err := ask(h.locks.server, by, h.locks.limits(ttl, now().add(h.locks.settings.Within)), claim, q, nil)
		if outcome == OutcomeReleased {
			h.at.lastWords()
		}
		isStopped := errors.Is(err, errStopped)
		if isStopped && !isAgain {
			return err
		}
		if err != nil {
			h.locks.stays(h.name(), end)
			if !isStopped {
				h.warn("leasehold: a release failed, and the lock stays until its lease ends", err)
			}
			h.settle("", err)
			return err
		}
		// An earlier try may have been heard and its answer lost. Before the end of the lease nobody else can have had the lock.
		isInTime := came.number == all || (came.isRepeated || isAgain) && came.asked < end
		if wasLost || !isInTime {
			outcome = OutcomeLate
		}
		h.settle(outcome, nil)
		return nil
	}
	err := try(caller, false)
	if !errors.Is(err, errStopped) {
		return nil
	}
	// Whoever asked for it does not wait for it. It is given back all the same, and others may wait for that.
	h.locks.returns(claim, h.at, func() error { return try(h.background(), true) })
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
	go func() {
		if h.look() {
			h.warn("leasehold: a lease was dropped, and not released before", nil)
			_, _ = h.giveBack(h.background())
		}
	}()
}

// bind has it bound anew when this line ends.
func (h *hold) bind(to *line) {
	claim := h.claim()
	if to == nil || !claim.isBound {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unbind != nil {
		h.unbind()
	}
	if h.loss == "" {
		h.isUnbound = false
		h.unbind = context.AfterFunc(to.usable, func() { h.bindAgain(claim.grace) })
	}
}

// bindAgain asks for it within the grace, which binds it to another connection. One that is not renewed lasts no longer for that.
func (h *hold) bindAgain(grace time.Duration) {
	if !h.look() {
		return
	}
	h.mu.Lock()
	h.isUnbound = true
	ttl := h.ttl
	if now() >= h.renewUntil {
		ttl = max(time.Millisecond, h.validUntil.left())
	}
	h.expect(validUntil(now(), grace))
	h.mu.Unlock()
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

func (l *client) warn(what, name, owner string, err error) {
	attrs := []any{slog.String("lock", name), slog.String("owner", owner)}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	l.settings.Logger.Warn(what, attrs...)
}
