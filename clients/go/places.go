package leasehold

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The places that a client has in the queues of servers, and what it is told of them. Where the server speaks RESP3 it is
// told on the connection that it asks on, and else on one beside it.
//
//	line                        ACQUIRE … TICKET                ACQUIRE … TICKET
//	                            nil                             nil: a slice later     message: granted
//	the lease, for certain                                      ├───────────── min(ttl, kept) ─────────────┤
//
// The message is the grant. The server made it after it had answered the last request with nil, so the lease is counted from
// before that: it ends before the server's, however late the message is. That holds unless an earlier grant of this owner may
// have run out unheard, whose message may still be on its way: then it is a reason to ask, as anything else is.
//
// Asking again keeps a place. All that is due is asked for together, once a second, by one for all.
type places struct {
	r *remote
	// Nobody else knows it.
	channel string
	blocked atomic.Int32
	// mute: this user is told of no grants, as far as is known.
	mute spell
	// noTickets: the module is older than tickets.
	noTickets atomic.Bool
	// longest is for how long the server keeps a place at the most, as far as it has said.
	longest atomic.Int64

	mu   sync.Mutex
	all  map[placeName]*place
	look *time.Timer
}

// One owner may wait for several locks at a time.
type placeName struct{ key, owner string }

// An ear is a subscription to the grants that are asked for on one line, until it is lost, or that line is. Another line may be
// to another server of the same name, after a failover.
type ear struct {
	of, line *line
	isUp     atomic.Bool
	// opening is that of a line of its own.
	opening *later[*line]
	begun   moment
}

const (
	// keptTimes is how many times a place is kept for as long as nobody asks for it.
	keptTimes = 3
	keptLeast = time.Second
	lookEvery = time.Second
	// refusedFor is after how long tickets that were refused are asked for again.
	refusedFor = time.Minute
	// unheard is how often a place is asked for while nobody tells of grants, unless there are many.
	unheard = 250 * time.Millisecond
)

func newPlaces(r *remote) *places {
	ps := &places{r: r, channel: "leasehold:" + randomName(), all: map[placeName]*place{}}
	ps.longest.Store(math.MaxInt64)
	return ps
}

func randomName() string {
	var random [16]byte
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:])
}

func (ps *places) size() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.all)
}

func (ps *places) kept() time.Duration {
	kept := keptTimes * max(ps.r.settings.Slice, time.Duration(ps.size())*time.Millisecond)
	return min(time.Duration(ps.longest.Load()), max(keptLeast, kept))
}

func (ps *places) question(ttl, kept time.Duration) question {
	isMute := ps.mute.isOn()
	switch {
	case isMute && ps.noTickets.Load():
		return question{asks: asksAcquire, ttl: ttl}
	case isMute:
		return question{asks: asksTicket, ttl: ttl, kept: kept}
	}
	return question{asks: asksTicket, ttl: ttl, kept: kept, channel: ps.channel}
}

// learns says whether it is to be asked for in another way.
func (ps *places) learns(err error) bool {
	var said ServerError
	if !errors.As(err, &said) {
		return false
	}
	text := string(said)
	var millis int64
	isTooLong, _ := fmt.Sscanf(text, "ERR TICKET must be an integer from 1 to %d", &millis)
	switch {
	case isTooLong == 1:
		isNews := millis < ps.longest.Load()/int64(time.Millisecond)
		if isNews {
			ps.longest.Store(millis * int64(time.Millisecond))
		}
		return isNews
	case strings.HasPrefix(text, "ERR unknown option"):
		ps.noTickets.Store(true)
	case codeOf(err) == "NOPERM" && strings.Contains(text, "channel"), strings.HasPrefix(text, "ERR NOTIFY is not possible"):
		ps.noTickets.Store(false)
	default:
		return false
	}
	ps.mute.begin(refusedFor)
	return true
}

func (ps *places) enter(p *place) {
	ps.mu.Lock()
	ps.all[p.name()] = p
	ps.mu.Unlock()
}

func (ps *places) leave(p *place) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.all[p.name()] == p {
		delete(ps.all, p.name())
	}
}

// earOf returns what tells of the grants that are asked for on this line. nil: there is no such thing at the moment.
func (ps *places) earOf(l *line) *ear {
	if ps.mute.isOn() {
		return nil
	}
	ps.mu.Lock()
	e := l.ear
	if e != nil || l.protocol == 2 {
		ps.mu.Unlock()
		if e != nil && e.isUp.Load() {
			return e
		}
		return nil
	}
	e = &ear{of: l, line: l}
	l.ear = e
	ps.mu.Unlock()
	e.isUp.Store(true)
	context.AfterFunc(l.usable, func() { ps.cut(e) })
	// What is asked behind that is told of.
	subscribed := func(_ Reply, err error) {
		if codeOf(err) != "" {
			ps.refused()
			ps.cut(e)
		}
	}
	if l.send(message{sinkFunc(subscribed), []string{"SUBSCRIBE", ps.channel}}) != nil {
		return nil
	}
	return e
}

// listen sees to it that grants are told of, where that takes a connection of its own.
func (ps *places) listen(h halt, limit time.Duration, l *line) error {
	ps.mu.Lock()
	e := l.ear
	if e == nil {
		e = &ear{of: l, begun: now()}
		e.opening = begin(func() (*line, error) { return ps.openEar(e) })
		l.ear = e
	}
	ps.mu.Unlock()
	// Where nobody answers, those who come later do not wait for it again.
	_, err := e.opening.wait(h, e.begun.add(limit))
	return err
}

func (ps *places) openEar(e *ear) (*line, error) {
	l, err := ps.r.subscribe(e.of.place, ps.channel, func(_ *line, push []Reply) { ps.hear(e, push) })
	if err != nil {
		if judge(err) != refused {
			// While the server is down this fails each time: not as fast as it is asked for.
			_ = halt{ctx: ps.r.ctx}.sleep(retry.first)
		}
		ps.cut(e)
		return nil, err
	}
	e.line = l
	e.isUp.Store(true)
	context.AfterFunc(l.usable, func() { ps.cut(e) })
	context.AfterFunc(e.of.usable, func() { l.close(errHungUp) })
	return l, nil
}

// cut: nobody tells of grants on this any more.
func (ps *places) cut(e *ear) {
	e.isUp.Store(false)
	ps.mu.Lock()
	if e.of.ear == e {
		e.of.ear = nil
	}
	all := slices.Collect(maps.Values(ps.all))
	ps.mu.Unlock()
	for _, p := range all {
		p.cut(e)
	}
}

// refused: this user may not subscribe.
func (ps *places) refused() {
	ps.noTickets.Store(false)
	ps.mute.begin(refusedFor)
}

// hearOn is told of everything that comes unasked on the line that is asked on.
func (ps *places) hearOn(l *line, push []Reply) {
	ps.mu.Lock()
	e := l.ear
	ps.mu.Unlock()
	if e != nil {
		ps.hear(e, push)
	}
}

func (ps *places) hear(e *ear, push []Reply) {
	if len(push) != 3 || push[0] != "message" || push[1] != ps.channel {
		return
	}
	message, _ := push[2].(string)
	name, fence, isOne := grantIn(message)
	if !isOne {
		return
	}
	ps.mu.Lock()
	p := ps.all[name]
	ps.mu.Unlock()
	if p != nil {
		p.hear(fence, e)
	}
}

// grantIn reads a message: <fence> <length of owner> <owner> <key>.
func grantIn(message string) (name placeName, fence int64, isOne bool) {
	digits, rest, _ := strings.Cut(message, " ")
	length, rest, isLong := strings.Cut(rest, " ")
	fence, err := strconv.ParseInt(digits, 10, 64)
	size, other := strconv.Atoi(length)
	if !isLong || err != nil || other != nil || fence <= 0 || len(digits) > 16 || size < 0 || size >= len(rest) || rest[size] != ' ' {
		return placeName{}, 0, false
	}
	return placeName{rest[size+1:], rest[:size]}, fence, true
}

// watch: somebody sleeps. From now on somebody looks after all who do.
func (ps *places) watch() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.look == nil {
		ps.look = time.AfterFunc(min(lookEvery, ps.r.settings.Slice/keptTimes), ps.lookAfter)
	}
}

func (ps *places) lookAfter() {
	ps.mu.Lock()
	ps.look = nil
	all := slices.Collect(maps.Values(ps.all))
	ps.mu.Unlock()
	if len(all) == 0 {
		return
	}
	ps.watch()
	here := now()
	due := map[*line][]*place{}
	for _, p := range all {
		if l := p.dueOn(here); l != nil {
			due[l] = append(due[l], p)
		}
	}
	for l, places := range due {
		var asked []*ticket
		l.together(func() {
			for _, p := range places {
				t, _ := p.request(now(), l, true)
				asked = append(asked, t)
			}
		})
		time.AfterFunc(ps.r.settings.Response, func() {
			for _, t := range asked {
				t.missed()
			}
		})
	}
}
