package leasehold

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// news is what somebody who waits is told. Without any the lock may have been granted, or lost.
type news struct {
	grant *grant
	// isCut: the connection is lost, and so may be what was to be told.
	isCut bool
	// isQueued: it has a place, which is to be told of before it sleeps.
	isQueued bool
	err      error
}

// A place in a queue, from the first request for it until the lock is granted or nobody wants it any more. Whoever is told of
// no grants waits on a connection as well, for a slice at a time: it takes the place over from the ticket, and the next ticket
// takes it back.
type place struct {
	places *places
	at     *attempt
	limits limits
	told   chan news

	mu sync.Mutex
	// isWaiting: the caller waits for what it is told.
	isWaiting bool
	// current is what was asked last, until it is answered.
	current *ticket
	line    *line
	// isAsking: the line is to a node that the lock is on its way to, which has to be told so each time.
	isAsking bool
	// dueAt is when it is to be asked for again, while somebody sleeps.
	dueAt moment
	// ear is what told of grants when it was last asked for.
	ear *ear
	// since is before the last request that was answered with nil, or the first one.
	since moment
	// kept is the shortest time for which a request since then keeps it, and keeps is for how long the latest does.
	kept, keeps time.Duration
	isNil       bool
	// isUnsure: a message may be that of an earlier grant.
	isUnsure bool
	// heard is what a message told that nobody has looked at, and who heard it.
	heard   int64
	heardBy *ear

	// Of the caller alone.
	failures    int
	silentSince moment
	// refusal is what the server said last, unless it has answered since.
	refusal  error
	isQueued bool
	// asksAt is the node that the lock is on its way to, for the next request.
	asksAt string
	// hasRoom: one of the connections that may wait is this one's.
	hasRoom bool
	blocked *line
}

func newPlace(ps *places, a *attempt, lim limits) *place {
	return &place{
		places: ps, at: a, limits: lim, told: make(chan news, 1),
		dueAt: never, since: always, kept: longest, silentSince: never,
	}
}

// A ticket is one request for a place.
type ticket struct {
	place *place
	asked moment
	kept  time.Duration
	ear   *ear
	on    *line
	// isRenewal: whoever waits sleeps meanwhile, and asks by himself when it fails.
	isRenewal bool
	// heardBy is what would have told of a grant by the time that this is answered.
	heardBy *ear
}

// wait returns nil if others have it and patience has ended. isQueued: false if there is no queue.
func (p *place) wait() (granted *grant, isQueued bool, err error) {
	ps, r, until := p.places, p.places.r, p.limits.until
	ps.enter(p)
	defer p.leave()
	for {
		if err := p.at.halt.err(); err != nil {
			return nil, true, err
		}
		asked := now()
		// The lock was busy, unless the server had no place.
		if asked >= until {
			if p.refusal != nil {
				return nil, true, r.told(p.refusal)
			}
			return nil, true, nil
		}
		came, q, err := p.ask(asked)
		if err == nil && came.isQueued {
			if p.at.queued(); !p.isDeaf() {
				came, err = p.sleep(until)
			}
		}
		if err == nil {
			if came.grant != nil {
				return came.grant, true, nil
			}
			if r.isPlain() {
				return nil, false, nil
			}
			p.at.queued()
			p.failures, p.silentSince, p.refusal, p.isQueued = 0, never, nil, true
		} else {
			if errors.Is(err, errStopped) {
				return nil, true, err
			}
			isNews := r.learns(err) || q.asks == asksTicket && ps.learns(err)
			if r.isPlain() {
				return nil, false, nil
			}
			if !isNews {
				if mayAsk, err := p.mayAskAgain(err, asked); !mayAsk {
					return nil, true, err
				}
			}
			continue
		}
		if p.isDeaf() {
			// What was granted meanwhile was not told.
			if p.listens() {
				continue
			}
			p.mu.Lock()
			p.dueAt = never
			p.mu.Unlock()
			if ps.mute.isOn() {
				hasWaited, err := p.waitsOnConnection()
				if err != nil {
					return nil, true, err
				}
				if hasWaited {
					continue
				}
			}
			resting := min(r.settings.Slice, max(unheard, time.Duration(ps.size())*time.Millisecond))
			came, err = p.sleep(min(until, now().add(resting)))
			if errors.Is(err, errStopped) || came.grant != nil {
				return came.grant, true, err
			}
		}
		// What was told meanwhile is lost: so all ask, and not all at once.
		if came.isCut {
			resting := rand.N(time.Duration(ps.size()+1) * time.Millisecond)
			if err := p.at.halt.sleep(min(resting, until.left())); err != nil {
				return nil, true, err
			}
		}
	}
}

func (p *place) name() placeName { return placeName{p.at.claim.key, p.at.claim.owner} }

func (p *place) leave() {
	p.mu.Lock()
	p.isWaiting, p.current, p.dueAt = false, nil, never
	p.mu.Unlock()
	p.places.leave(p)
	if p.blocked != nil {
		p.blocked.close(errHungUp)
	}
	if p.hasRoom {
		p.places.blocked.Add(-1)
	}
}

func (p *place) isDeaf() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ear == nil
}

// ask asks for it, or asks again, and sleeps where somebody tells of its grant.
func (p *place) ask(asked moment) (news, question, error) {
	limit := p.limits.next(asked)
	var l *line
	var err error
	to := p.asksAt
	p.asksAt = ""
	if to != "" {
		l, err = p.places.r.lineTo(p.at.halt, limit, to)
	} else {
		l, err = p.places.r.lineFor(p.at.halt, limit, p.at.claim.key)
	}
	if err != nil {
		return news{}, question{asks: asksTicket}, &unsent{err}
	}
	p.mu.Lock()
	p.isAsking = to != ""
	// The answer says whether it was granted, whatever was heard before.
	p.heard, p.isNil, p.isWaiting = 0, false, true
	p.mu.Unlock()
	_, q := p.request(asked, l, false)
	came, err := p.await(limit)
	return came, q, err
}

// request asks on this line. It holds no lock while it sends: whoever sends may be told that the line is lost.
func (p *place) request(asked moment, l *line, isRenewal bool) (*ticket, question) {
	kept := p.places.kept()
	ear := p.places.earOf(l)
	q := p.places.question(p.at.ttl, kept)
	t := &ticket{place: p, asked: asked, kept: kept, ear: ear, on: l, isRenewal: isRenewal}
	p.mu.Lock()
	if p.heard == 0 {
		t.heardBy = p.ear
	}
	p.dueAt = never
	if p.since == always {
		p.since = asked
	}
	p.keeps, p.kept = kept, min(p.kept, kept)
	p.ear, p.current, p.line = ear, t, l
	isAsking := p.isAsking
	p.mu.Unlock()
	if err := l.sendAsking(isAsking, t, p.at.claim.words(q)); err != nil {
		t.arrive(nil, &unsent{err})
	}
	return t, q
}

// arrive is told by the line what came of a request.
func (t *ticket) arrive(reply Reply, err error) {
	p := t.place
	p.mu.Lock()
	isHeard := err == nil || codeOf(err) != ""
	if p.current != t {
		p.mu.Unlock()
		if isHeard {
			p.at.late(reply, err)
		}
		return
	}
	p.current = nil
	if err != nil {
		p.mu.Unlock()
		if !isHeard && !isUnsent(err) {
			p.at.left(t.on)
		}
		if t.isRenewal {
			p.wake(news{})
		} else {
			p.wake(news{err: err})
		}
		return
	}
	came, isTold, deaf := p.answered(reply, t)
	p.mu.Unlock()
	p.at.unknown()
	if deaf != nil {
		deaf.close(errSilent)
	}
	if isTold {
		p.wake(came)
		return
	}
	if p.at.isToQueue() {
		p.wake(news{isQueued: true})
		return
	}
	p.places.watch()
	p.look()
}

// answered reads an answer. Nothing is told if it has a place, and somebody tells of its grant. deaf is a line that should
// have told of it before.
func (p *place) answered(reply Reply, t *ticket) (came news, isTold bool, deaf *line) {
	ttl := p.at.ttl
	fence, isNil, err := number(reply)
	if err != nil {
		return news{err: err}, true, nil
	}
	if !isNil {
		// The connection may be dead without having said so.
		if p.heard == 0 && t.heardBy != nil && t.heardBy.line != t.on {
			deaf = t.heardBy.line
		}
		return news{grant: &grant{fence: fence, asked: t.asked, lasts: ttl, on: t.on}}, true, deaf
	}
	lasts := min(ttl, p.kept)
	// A grant that nobody has heard of would still be there.
	here := now()
	if here >= p.since.add(lasts-drift(lasts)) {
		p.isUnsure = true
	}
	p.since, p.kept, p.isNil = t.asked, min(t.kept, p.keeps), true
	between := t.kept / keptTimes
	p.dueAt = here.add(between - rand.N(between/4+1))
	if p.ear != nil && !p.ear.isUp.Load() {
		p.ear = nil
	}
	return news{}, p.ear == nil, nil
}

func (p *place) hear(fence int64, by *ear) {
	p.mu.Lock()
	p.heard, p.heardBy = fence, by
	p.mu.Unlock()
	p.look()
}

// look tells whoever waits what a message comes to, unless the answer to the request under way has to come first.
func (p *place) look() {
	p.mu.Lock()
	if p.heard == 0 || !p.isNil {
		p.mu.Unlock()
		return
	}
	lasts := min(p.at.ttl, p.kept)
	came := news{grant: &grant{fence: p.heard, asked: p.since, lasts: lasts, on: p.line, isUnclaimed: true}}
	// A server that was not heard when it was asked does not leave much time.
	isLate := validUntil(p.since, lasts).left() < lasts/4
	if p.at.confirm || p.isUnsure || p.heardBy != p.ear || isLate {
		came = news{}
	}
	p.mu.Unlock()
	p.wake(came)
}

func (p *place) cut(e *ear) {
	p.mu.Lock()
	isIts := p.ear == e
	if isIts {
		p.ear = nil
	}
	// Otherwise the answer to the request under way comes first.
	sleeps := p.isNil
	p.mu.Unlock()
	if isIts && sleeps {
		p.wake(news{isCut: true})
	}
}

func (p *place) wake(came news) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isWaiting {
		p.isWaiting = false
		p.told <- came
	}
}

// await waits until it is told something. With neither news nor an error patience has ended.
func (p *place) await(limit moment) (news, error) {
	t := time.NewTimer(limit.left())
	defer t.Stop()
	for {
		var err error
		select {
		case came := <-p.told:
			return came, came.err
		case <-t.C:
		case <-p.at.halt.ctx.Done():
			err = p.at.halt.err()
		case <-p.at.halt.closed:
			err = p.at.halt.err()
		}
		p.mu.Lock()
		if !p.isWaiting {
			p.mu.Unlock()
			came := <-p.told
			if err != nil {
				return news{}, err
			}
			return came, came.err
		}
		if err == nil && p.isNil && p.limits.until.left() > 0 && limit != p.limits.until && p.ear != nil {
			// It was answered, and sleeps.
			p.mu.Unlock()
			limit = p.limits.until
			t.Reset(limit.left())
			continue
		}
		p.isWaiting = false
		missing := p.current
		p.current = nil
		isAnswered := p.isNil
		p.mu.Unlock()
		if missing != nil {
			p.at.left(missing.on)
		}
		if err == nil && !isAnswered {
			if missing != nil && limit < p.limits.until {
				p.places.r.silent(missing.on)
			}
			return news{}, errSilent
		}
		return news{}, err
	}
}

// sleep waits though nobody tells of grants.
func (p *place) sleep(until moment) (news, error) {
	p.mu.Lock()
	p.isWaiting, p.isNil = true, true
	p.mu.Unlock()
	p.places.watch()
	p.look()
	return p.await(until)
}

// dueOn returns the line to ask on, if it is time. Who has none asks by himself, as does who has slept for long enough.
func (p *place) dueOn(here moment) *line {
	p.mu.Lock()
	l := p.line
	isDue := p.dueAt <= here
	isOver := here >= p.limits.until
	p.mu.Unlock()
	if isOver || isDue && l.usable.Err() != nil {
		p.wake(news{})
		return nil
	}
	if isDue {
		return l
	}
	return nil
}

// missed: what was asked was to be answered by now.
func (t *ticket) missed() {
	p := t.place
	p.mu.Lock()
	isMissing := p.current == t
	if isMissing {
		p.current = nil
	}
	p.mu.Unlock()
	if isMissing {
		p.at.left(t.on)
		p.places.r.silent(t.on)
		p.wake(news{})
	}
}

// mayAskAgain rests before the next try. false without an error: there is none, and the lock was busy.
func (p *place) mayAskAgain(err error, asked moment) (bool, error) {
	r, until := p.places.r, p.limits.until
	means := judge(err)
	if means == refused {
		return false, r.told(err)
	}
	if means == elsewhere {
		r.moved()
	}
	p.mu.Lock()
	l := p.line
	p.mu.Unlock()
	if l != nil {
		if to, asks := r.redirected(p.at.claim.key, l.place, err); asks {
			p.asksAt = to
		}
	}
	if means == broken {
		p.refusal, p.silentSince = nil, min(p.silentSince, asked)
	} else {
		p.refusal, p.silentSince = err, never
	}
	if p.silentSince != never && now().sub(p.silentSince) >= r.settings.UnreachableAfter {
		return false, r.told(err)
	}
	// At once, as long as it is not sent to and fro.
	if p.asksAt != "" && p.failures < mostMoves {
		p.failures++
		return true, nil
	}
	rests := retry
	if codeOf(err) == "QUEUEFULL" {
		rests = fullRest
	}
	resting := rests.after(p.failures)
	p.failures++
	hasTime := resting < until.left()
	if err := p.at.halt.sleep(min(resting, until.left())); err != nil {
		return false, err
	}
	if hasTime {
		return true, nil
	}
	// It was busy when the server had time to answer.
	if p.isQueued && means == broken && until.sub(asked) < p.limits.each {
		return false, nil
	}
	return false, r.told(err)
}

// listens says whether grants are told of from now on.
func (p *place) listens() bool {
	ps := p.places
	p.mu.Lock()
	l := p.line
	p.mu.Unlock()
	if ps.mute.isOn() || l == nil || l.usable.Err() != nil {
		return false
	}
	if l.protocol != 2 {
		return ps.earOf(l) != nil
	}
	// There has to be time to ask.
	err := ps.listen(p.at.halt, min(p.limits.each, p.limits.until.left())/2, l)
	if err != nil && judge(err) == refused && !errors.Is(err, errStopped) {
		ps.refused()
	}
	return err == nil
}

// waitsOnConnection: whatever comes of it, the next request tells. false: it has not waited.
func (p *place) waitsOnConnection() (bool, error) {
	ps, r, lim := p.places, p.places.r, p.limits
	if !p.hasRoom {
		if ps.blocked.Add(1) > int32(r.settings.WaitConnections) {
			ps.blocked.Add(-1)
			return false, nil
		}
		p.hasRoom = true
	}
	end, former := min(lim.until, now().add(r.settings.Slice)), p.blocked
	defer func() {
		if former != nil {
			former.close(errHungUp)
		}
	}()
	p.blocked = nil
	l, err := r.dedicated(p.at.halt, min(end, now().add(lim.each)), p.at.claim.key)
	if err != nil {
		return false, p.at.halt.err()
	}
	p.blocked = l
	p.at.cut(true)
	patience := 3*r.settings.Slice + lim.each
	c := newCall(nil)
	if l.send(message{c, p.at.claim.words(question{asks: asksWait, ttl: p.at.ttl, kept: patience})}) != nil {
		return false, nil
	}
	// A module without tickets hands the place from one connection to the next.
	if former != nil {
		former.close(errHungUp)
	}
	_, err = c.wait(p.at.halt, end, l)
	switch {
	case errors.Is(err, errStopped):
		return false, err
	case err == nil:
		p.at.cut(false)
		return true, nil
	}
	return err == errSilent && end.left() == 0, nil
}
