package leasehold

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Quorum is locks on most of several independent servers, three or five: such a lock outlives the loss of a few of them. It
// has one fence, larger than that of every earlier grant. Whoever waits asks again and again: there is no queue. Each client
// is of another server, and none of these is a replica of another. docs/redlock.md of the project says what that rests on.
//
//	a  ACQUIRE ► 17   RAISE 18 ► 18        The lock is held once most servers have granted it, and the fence is the
//	b  ACQUIRE ► 18   RAISE 18 ► 18        largest of theirs. Most are raised to it: any later majority has one of
//	c  ACQUIRE ┈ no answer                 these among it, so its fence is larger.
//
// The options Owner, Confirm, Ephemeral and Replicas are of one server.
type Quorum struct{ *client }

// NewQuorum returns locks on most of the servers of these clients.
func NewQuorum(clients []redis.UniversalClient, settings *Settings) (*Quorum, error) {
	if len(clients) == 0 {
		return nil, &SettingError{"clients", "there must be at least one"}
	}
	l, err := newClient(settings)
	if err != nil {
		return nil, err
	}
	m := &majority{settings: &l.settings, runIDs: map[*remote]identity{}}
	for _, client := range clients {
		backend, err := backendOf(client)
		if err != nil {
			return nil, err
		}
		m.peers = append(m.peers, newRemote(backend, &l.settings))
	}
	l.server = m
	return &Quorum{l}, nil
}

// longestLimit is how long one server may take to answer at the most, and leastGrace is for how long those are waited for who
// are a little slower than most.
const (
	longestLimit = 500 * time.Millisecond
	leastGrace   = 10 * time.Millisecond
)

// A majority is one server for whoever holds a lock: it says what most of them say.
type majority struct {
	settings *Settings
	peers    []*remote
	mu       sync.Mutex
	// runIDs say which server it is. One that is named twice would count twice: two majorities could have no server in common.
	runIDs map[*remote]identity
}

// An identity is the run id of the server that a line leads to. Another line may lead to another server of the same address.
type identity struct {
	of    *line
	runID string
}

type said struct {
	peer   *remote
	number int64
	isNil  bool
	err    error
}

func (s said) isGranted() bool { return s.err == nil && !s.isNil }
func (s said) is(number int64) bool {
	return s.isGranted() && s.number == number
}

func count(all []said, is func(said) bool) (found int) {
	for _, one := range all {
		if is(one) {
			found++
		}
	}
	return found
}

func (m *majority) most() int         { return len(m.peers)/2 + 1 }
func (m *majority) isPlain() bool     { return false }
func (m *majority) learns(error) bool { return false }
func (m *majority) moved()            {}

func (m *majority) told(err error) error {
	for _, peer := range m.peers {
		if trouble := peer.trouble(); trouble != nil {
			return told(err, trouble)
		}
	}
	return told(err, nil)
}

func (m *majority) close() {
	for _, peer := range m.peers {
		peer.close()
	}
}

// once answers 1 if most did it, and 0 if too many said that it is not held.
func (m *majority) once(h halt, _ moment, _ limits, c *claim, q question, f fate) (Reply, *line, error) {
	isRelease := q.asks == asksRelease
	if !isRelease && q.asks != asksExtend {
		return nil, nil, &SettingError{"share", "a quorum has exclusive locks"}
	}
	// Each server has granted it by a fence of its own, before that was raised.
	if isRelease {
		q.fence = 0
	}
	did := func(s said) bool { return s.is(1) }
	answers := m.askAll(h, m.peers, c, q, did)
	agreed := count(answers, did)
	isHeldByMost := len(m.peers)-count(answers, func(s said) bool { return s.is(0) }) >= m.most()
	switch {
	case agreed >= m.most() || isRelease && isHeldByMost && agreed > 0:
		return int64(1), nil, nil
	case !isHeldByMost:
		return int64(0), nil, nil
	}
	if f != nil {
		f.left(nil)
	}
	if err := h.err(); err != nil {
		return nil, nil, err
	}
	if err := m.tooFew(answers); err != nil {
		return nil, nil, err
	}
	return nil, nil, errors.New("most servers have not answered in time")
}

// acquire: where there is no queue that all servers share, whoever waits asks again.
func (m *majority) acquire(a *attempt) (*grant, error) {
	for tries := 0; ; tries++ {
		// A new owner each time: what is still to be released for an earlier try does not hit this one.
		claim := *a.claim
		claim.owner = newOwner()
		a.mu.Lock()
		a.claim = &claim
		a.mu.Unlock()
		g, err := m.stand(a.halt, &claim, a.ttl)
		stopped := a.halt.err()
		// Whoever gives up from now on gives it back, and whoever did not wait for the answers.
		if g != nil || stopped != nil {
			a.unknown()
		}
		if stopped != nil {
			return nil, stopped
		}
		left := a.begun.add(a.wait).left()
		if g != nil || err == nil && left == 0 {
			return g, nil
		}
		if err != nil {
			isFinal := isOurs(err) && !mayPass(err) && !isUnreachable(err)
			if left == 0 || isFinal {
				return nil, m.told(err)
			}
		}
		// At random, or those who split the servers between them would do so again.
		if err := a.halt.sleep(min(poll.after(tries), left)); err != nil {
			return nil, err
		}
	}
}

func isUnreachable(err error) bool { return errors.Is(err, ErrUnreachable) }

func (m *majority) stand(h halt, c *claim, ttl time.Duration) (granted *grant, err error) {
	asked := now()
	defer func() {
		if granted == nil {
			m.releaseAll(h, c)
		}
	}()
	answers := m.askAll(h, m.peers, c, question{asks: asksAcquire, ttl: ttl}, said.isGranted)
	for _, each := range answers {
		if errors.Is(each.err, ErrSetting) {
			return nil, each.err
		}
	}
	fence, err := m.raise(h, c, answers)
	if err != nil {
		return nil, err
	}
	if fence == 0 {
		return nil, m.tooFew(answers)
	}
	if now() >= validUntil(asked, ttl) {
		return nil, nil
	}
	return &grant{fence: fence, asked: asked, lasts: ttl}, nil
}

// raise has most of them have one fence: the largest of those that were granted. 0: it cannot be done.
func (m *majority) raise(h halt, c *claim, answers []said) (int64, error) {
	var left []said
	for _, each := range answers {
		if each.isGranted() {
			left = append(left, each)
		}
	}
	for len(left) >= m.most() {
		var fence int64
		var whom []*remote
		for _, each := range left {
			fence = max(fence, each.number)
			whom = append(whom, each.peer)
		}
		isRaised := func(s said) bool { return s.is(fence) }
		raised := m.askAll(h, whom, c, question{asks: asksRaise, fence: fence}, isRaised)
		if count(raised, isRaised) >= m.most() {
			return fence, nil
		}
		err := m.tooFew(raised)
		if err == nil {
			return 0, nil
		}
		// A clock that is far ahead of most is left out, and its server does not count: any majority will do.
		if !errors.Is(err, ErrRefused) || len(left) == m.most() {
			return 0, err
		}
		var others []said
		for _, each := range left {
			if each.number < fence {
				others = append(others, each)
			}
		}
		left = others
	}
	return 0, nil
}

// releaseAll releases everywhere: it may have been granted by a server that was not heard.
func (m *majority) releaseAll(h halt, c *claim) {
	m.askAll(h, m.peers, c, question{asks: asksRelease}, func(s said) bool { return s.is(1) })
}

// askAll returns those who have answered in time, or until the halt. Nobody is waited for who cannot change what most have said.
func (m *majority) askAll(h halt, whom []*remote, c *claim, q question, agrees func(said) bool) (heard []said) {
	asked := now()
	each := min(longestLimit, m.settings.Response)
	if q.ttl > 0 {
		each = max(time.Millisecond, min(each, q.ttl/10))
	}
	came, over := make(chan said), make(chan struct{})
	defer close(over)
	for _, peer := range whom {
		go func() {
			one := m.askOne(peer, c, q, asked, each)
			select {
			case came <- one:
			case <-over:
				// What was granted too late is nobody's.
				if q.asks == asksAcquire && one.isGranted() {
					m.askOne(peer, c, question{asks: asksRelease}, now(), each)
				}
			}
		}()
	}
	end := asked.add(each)
	t := time.NewTimer(end.left())
	defer t.Stop()
	for agreed := 0; len(heard) < len(whom); {
		select {
		case one := <-came:
			heard = append(heard, one)
			if agrees(one) {
				agreed++
			}
		case <-t.C:
			return heard
		case <-h.ctx.Done():
			return heard
		case <-h.closed:
			return heard
		}
		isOut := len(whom)-(len(heard)-agreed) < m.most()
		if grace := now().add(max(leastGrace, now().sub(asked))); (agreed >= m.most() || isOut) && grace < end {
			end = grace
			t.Reset(end.left())
		}
	}
	return heard
}

// peerFate gives back what a server grants when nobody waits for it any more.
type peerFate func()

func (f peerFate) left(*line)        {}
func (f peerFate) late(Reply, error) { go f() }

func (m *majority) askOne(peer *remote, c *claim, q question, asked moment, each time.Duration) said {
	h := halt{ctx: peer.ctx}
	until := asked.add(each)
	var f fate
	switch q.asks {
	case asksRelease:
		// It is asked for until somebody hears it.
		until = asked.add(m.settings.UnreachableAfter)
	case asksAcquire:
		f = peerFate(func() { m.askOne(peer, c, question{asks: asksRelease}, now(), each) })
		if err := m.learn(peer, h, until, c.key); err != nil {
			return said{peer: peer, err: err}
		}
	}
	came, err := ask(peer, h, limits{each, until}, c, q, f)
	if q.asks == asksAcquire && err == nil && !came.isNil {
		// The connection may have been lost meanwhile.
		if err = m.learn(peer, h, until, c.key); err != nil {
			// It does not count. What a server has granted by another address stays.
			if !errors.Is(err, ErrSetting) {
				f.late(nil, nil)
			}
		}
	}
	if err == nil && q.asks == asksRelease && came.isRepeated && came.number == 0 {
		// An earlier try may have done it.
		err = errSilent
	}
	return said{peer, came.number, came.isNil, err}
}

var runIDPattern = regexp.MustCompile(`run_id:(\w+)`)

func (m *majority) learn(peer *remote, h halt, until moment, key string) error {
	l, err := peer.lineFor(h, until, key)
	if err != nil {
		return peer.told(err)
	}
	m.mu.Lock()
	isKnown := m.runIDs[peer].of == l
	m.mu.Unlock()
	if isKnown {
		return nil
	}
	reply, l, err := peer.do(h, now(), limits{until.left(), until}, key, nil, "INFO", "server")
	if err != nil {
		return peer.told(err)
	}
	id := ""
	if found := runIDPattern.FindStringSubmatch(text(reply)); found != nil {
		id = found[1]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, known := range m.runIDs {
		if other != peer && known.runID == id {
			return &SettingError{"clients", "two of them lead to one server, which has the run id " + id}
		}
	}
	m.runIDs[peer] = identity{l, id}
	return nil
}

// tooFew says why not enough of them agreed; nil if most of them have answered.
func (m *majority) tooFew(answers []said) error {
	var last error
	failed := 0
	for _, each := range answers {
		if each.err == nil {
			continue
		}
		failed++
		last = each.err
	}
	if len(answers)-failed >= m.most() {
		return nil
	}
	for _, each := range answers {
		if each.err != nil && isOurs(each.err) && !isUnreachable(each.err) {
			return each.err
		}
	}
	because := ""
	if last != nil {
		because = ": " + last.Error()
	}
	return fmt.Errorf("%d of %d servers answered in time%s", len(answers)-failed, len(m.peers), because)
}
