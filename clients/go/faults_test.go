package leasehold_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/go-redis/v9"
)

// A wire is the connections that a program makes, of which the test says what they carry.
type wire struct {
	addr string
	// dials are all connections, the latest last.
	mu    sync.Mutex
	dials []*conn
	// isMute: what servers answer on new connections arrives when they are heard.
	isMute bool
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	addr := w.addr
	w.mu.Unlock()
	made, err := new(net.Dialer).DialContext(ctx, "unix", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: made, wire: w, heard: make(chan struct{}), closed: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = append(w.dials, c)
	c.isMute, c.isNew = w.isMute, w.isMute
	return c, nil
}

// mute has all connections, also new ones, carry no answers.
func (w *wire) mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isMute = true
	for _, c := range w.dials {
		c.isMute = true
	}
}

// heal has connections carry answers again: those that were made before they were mute only if they are to be heard, too.
func (w *wire) heal(hears bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isMute = false
	for _, c := range w.dials {
		if c.isMute && (hears || c.isNew) {
			close(c.heard)
			c.isMute, c.heard = false, make(chan struct{})
		}
	}
}

// A conn does not know of deadlines, as those of some dialers do not.
type conn struct {
	net.Conn
	wire   *wire
	isMute bool
	// isNew: it was made while all were mute.
	isNew  bool
	heard  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Read(buf []byte) (int, error) {
	size, err := c.Conn.Read(buf)
	c.wire.mu.Lock()
	isMute, heard := c.isMute, c.heard
	c.wire.mu.Unlock()
	if isMute {
		select {
		case <-heard:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return size, err
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (*conn) SetDeadline(time.Time) error      { return errors.New("not supported") }
func (*conn) SetReadDeadline(time.Time) error  { return errors.New("not supported") }
func (*conn) SetWriteDeadline(time.Time) error { return errors.New("not supported") }

func (s *scene) wired(settings *leasehold.Settings) (*leasehold.Locks, *wire) {
	w := &wire{addr: s.server.addr}
	return s.locksOn(&redis.Options{Addr: s.server.addr, Dialer: w.dial}, settings), w
}

// hasty are settings for servers that do not answer.
var hasty = leasehold.Settings{Response: 300 * time.Millisecond, Within: time.Second}

func TestAHoldThatCouldNotBeBoundAgainIsHeldAndBoundLater(t *testing.T) {
	s := newScene(t)
	logger, log := logged()
	locks := s.locks(&leasehold.Settings{TTL: 900 * time.Millisecond, Logger: logger})
	lease, err := locks.Acquire(s.ctx, "x", leasehold.Ephemeral(500*time.Millisecond))
	lease = acquired(s, lease, err)
	// A server that is out of memory refuses to acquire, and not to extend.
	s.must(s.redis.ConfigSet(s.ctx, "maxmemory", "1").Err())
	s.must(s.redis.ClientKillByFilter(s.ctx, "TYPE", "pubsub").Err())
	s.eventually("it is refused", func() bool { return log.has("not bound to another connection yet") })
	stays := time.Now().Add(1500 * time.Millisecond)
	s.eventually("it has been held for longer than its ttl", func() bool {
		s.must(lease.Err())
		return time.Now().After(stays)
	})
	s.must(s.redis.ConfigResetStat(s.ctx).Err())
	s.must(s.redis.ConfigSet(s.ctx, "maxmemory", "0").Err())
	s.eventually("it is bound", func() bool {
		return strings.Contains(s.redis.Info(s.ctx, "commandstats").Val(), "cmdstat_lock.acquire:calls=1")
	})
	released(s, lease)
}

func TestAnExtensionThatIsAnsweredLateCountsAgain(t *testing.T) {
	s := newScene(t)
	locks, wire := s.wired(&hasty)
	lease, err := locks.Acquire(s.ctx, "x", leasehold.RenewFor(0))
	lease = acquired(s, lease, err)
	wire.mute()
	if err := lease.Extend(s.ctx, 10*time.Second); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	wire.heal(false)
	s.must(lease.Extend(s.ctx, time.Minute))
	if left := lease.ValidFor(); left > 10*time.Second {
		t.Fatal("an earlier one may still be carried out", left)
	}
	wire.heal(true)
	// When nothing is under way any more, the next one counts in full.
	s.eventually("it is extended", func() bool {
		s.must(lease.Extend(s.ctx, time.Minute))
		return lease.ValidFor() > 50*time.Second
	})
	released(s, lease)
}

func TestAnExtensionCountsThoughItsAnswerIsLate(t *testing.T) {
	s := newScene(t)
	locks, wire := s.wired(&hasty)
	lease, err := locks.Acquire(s.ctx, "x", leasehold.TTL(10*time.Second), leasehold.RenewFor(0))
	lease = acquired(s, lease, err)
	wire.mute()
	if err := lease.Extend(s.ctx, time.Minute); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	if left := lease.ValidFor(); left > 10*time.Second {
		t.Fatal(left)
	}
	wire.heal(true)
	s.eventually("it is extended", func() bool { return lease.ValidFor() > 50*time.Second })
	wire.mute()
	s.must(s.redis.Del(s.ctx, "x").Err())
	if err := lease.Extend(s.ctx, time.Minute); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	wire.heal(true)
	s.eventually("it is lost", func() bool { return errors.Is(lease.Err(), leasehold.ErrLost) })
}

func TestAGuardedCommandIsRunAfterAnUpgradeThatWasNotAnswered(t *testing.T) {
	for name, hears := range map[string]bool{"never": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			locks, wire := s.wired(&hasty)
			lease, err := locks.Read("{a}x").Acquire(s.ctx)
			lease = acquired(s, lease, err)
			fence := lease.Fence()
			wire.mute()
			if err := lease.Upgrade(s.ctx); !errors.Is(err, leasehold.ErrUnreachable) {
				t.Fatal(err)
			}
			wire.heal(hears)
			if hears {
				s.eventually("its fence is known", func() bool { return lease.Fence() > fence })
			}
			if reply, err := lease.Guard(s.ctx, "INCR", "{a}n"); reply != int64(1) || err != nil {
				t.Fatal(reply, err)
			}
			if lease.Fence() <= fence {
				t.Fatal(lease.Fence())
			}
			s.must(lease.Downgrade(s.ctx))
			other, err := locks.Read("{a}x").TryAcquire(s.ctx)
			released(s, acquired(s, other, err))
			s.must(s.redis.Del(s.ctx, "{a}x").Err())
			if _, err := lease.Guard(s.ctx, "INCR", "{a}n"); !errors.Is(err, leasehold.ErrLost) {
				t.Fatal(err)
			}
		})
	}
}

func TestCloseWaitsForLastWordsOnSilentConnections(t *testing.T) {
	s := newScene(t)
	locks, wire := s.wired(&hasty)
	lease, err := locks.Acquire(s.ctx, "y")
	released(s, acquired(s, lease, err))
	wire.mute()
	if _, err := locks.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	wire.heal(false)
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	err = locks.Close(ctx)
	var held *leasehold.HeldError
	if !errors.As(err, &held) || len(held.Locks) != 1 || held.Locks[0] != "x" {
		t.Fatal(err)
	}
}

func TestCloseEndsWhenLastWordsAreAnswered(t *testing.T) {
	s := newScene(t)
	locks, wire := s.wired(&hasty)
	wire.mute()
	if _, err := locks.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	wire.heal(true)
	s.must(locks.Close(s.ctx))
	if s.isHeld("x") {
		t.Fatal("it is held")
	}
}

func TestAWaitIsToldOfItsGrantAfterAFailoverWithoutRESP3(t *testing.T) {
	s := newScene(t)
	other, err := start(s.server.words[len(s.server.words)-2:]...)
	s.must(err)
	t.Cleanup(other.stop)
	w := &wire{addr: s.server.addr}
	locks := s.locksOn(&redis.Options{Addr: s.server.addr, Dialer: w.dial, Protocol: 2}, &leasehold.Settings{Slice: time.Minute})
	here, there := s.redis, redis.NewClient(&redis.Options{Addr: other.addr})
	t.Cleanup(func() { _ = there.Close() })
	for _, client := range []*redis.Client{here, there} {
		s.must(client.Do(s.ctx, "LOCK.ACQUIRE", "x", "somebody", "60000").Err())
	}
	got := make(chan *leasehold.Lease, 1)
	go func() {
		lease, err := locks.Acquire(s.ctx, "x")
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	s.eventually("it waits", func() bool { return s.waiters("x") == 1 })
	w.mu.Lock()
	w.addr = other.addr
	w.mu.Unlock()
	// The server is a replica from now on, and the connection on which is asked is lost. That of messages stays.
	s.must(here.SlaveOf(s.ctx, "127.0.0.1", "1").Err())
	s.must(here.Do(s.ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	s.eventually("it waits elsewhere", func() bool {
		waiters, _ := there.Do(s.ctx, "LOCK.WAITERS", "x", "COUNT", "-1").Slice()
		return len(waiters) == 1
	})
	time.Sleep(200 * time.Millisecond)
	s.must(there.Do(s.ctx, "LOCK.RELEASE", "x", "somebody").Err())
	select {
	case lease := <-got:
		released(s, lease)
	case <-time.After(patience):
		t.Fatal("it is not told")
	}
}

func TestAnObserverSaysWhatItMayNotDo(t *testing.T) {
	s := newScene(t, "--notify-keyspace-events", "KA")
	s.must(s.redis.Do(s.ctx, "ACL", "SETUSER", "poor", "on", ">secret", "~*", "+hello", "+ping", "+lock.info").Err())
	logger, log := logged()
	locks := s.locksOn(&redis.Options{Addr: s.server.addr, Username: "poor", Password: "secret"}, &leasehold.Settings{Logger: logger})
	told := make(chan *leasehold.Leader, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- locks.Election("chair", "").Observe(s.ctx, func(leader *leasehold.Leader) bool {
			told <- leader
			return true
		})
	}()
	if leader := <-told; leader != nil {
		t.Fatal(leader)
	}
	if !log.has("looking every second") || !log.has("NOPERM") {
		t.Fatal("it says nothing")
	}
	term, err := s.locks(nil).Election("chair", "anna").Campaign(s.ctx)
	acquired(s, term, err)
	if leader := <-told; leader == nil || leader.Candidate != "anna" {
		t.Fatal(leader)
	}
	s.must(s.redis.Do(s.ctx, "ACL", "SETUSER", "poor", "-lock.info").Err())
	if err := <-ended; !errors.Is(err, leasehold.ErrPermission) {
		t.Fatal(err)
	}
}

func TestAnObserverEndsWhileNobodyAnswers(t *testing.T) {
	s := newScene(t, "--notify-keyspace-events", "KA")
	locks, wire := s.wired(nil)
	_, err := locks.Info(s.ctx, "chair")
	s.must(err)
	connections := func() int {
		wire.mu.Lock()
		defer wire.mu.Unlock()
		// New ones, and not the one that there is.
		wire.isMute = true
		return len(wire.dials)
	}
	known := connections()
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- locks.Election("chair", "").Observe(ctx, func(*leasehold.Leader) bool { return true })
	}()
	s.eventually("it connects", func() bool { return connections() > known })
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Second):
		t.Fatal("it goes on")
	}
}

func TestCloseEndsConnectionsThatKnowNoDeadlines(t *testing.T) {
	s := newScene(t)
	locks, wire := s.wired(nil)
	wire.mute()
	acquires := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(s.ctx, "x")
		acquires <- err
	}()
	s.eventually("it connects", func() bool {
		wire.mu.Lock()
		defer wire.mu.Unlock()
		return len(wire.dials) > 0
	})
	s.must(locks.Close(s.ctx))
	if err := <-acquires; !errors.Is(err, leasehold.ErrClosed) {
		t.Fatal(err)
	}
	select {
	case <-wire.dials[0].closed:
	case <-time.After(patience):
		t.Fatal("the connection is open")
	}
}
