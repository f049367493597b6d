package leasehold_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/go-redis/v9"
)

func acquired(s *scene, lease *leasehold.Lease, err error) *leasehold.Lease {
	s.Helper()
	s.must(err)
	return lease
}

func released(s *scene, lease *leasehold.Lease) {
	s.Helper()
	if outcome, err := lease.Release(s.ctx); outcome != leasehold.OutcomeReleased || err != nil {
		s.Fatalf("%s, %v", outcome, err)
	}
}

func TestFencesGrowAndATryIsBusy(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	first, err := locks.Acquire(s.ctx, "x")
	first = acquired(s, first, err)
	if _, err := locks.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	released(s, first)
	second, err := locks.TryAcquire(s.ctx, "x")
	second = acquired(s, second, err)
	if second.Fence() <= first.Fence() || first.Err() == nil || second.Err() != nil {
		t.Fatal(first.Fence(), second.Fence(), first.Err(), second.Err())
	}
	released(s, second)
}

func TestAContendedGrantIsTwoCommands(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	const workers, turns = 8, 50
	ran := func() int64 {
		info := s.redis.Info(s.ctx, "commandstats").Val()
		var count int64
		for line := range strings.Lines(info) {
			if strings.HasPrefix(line, "cmdstat_lock.") {
				_, calls, _ := strings.Cut(line, "calls=")
				digits, _, _ := strings.Cut(calls, ",")
				var n int64
				_ = json.Unmarshal([]byte(digits), &n)
				count += n
			}
		}
		return count
	}
	before := ran()
	var group sync.WaitGroup
	held := 0
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for range turns {
				lease, err := locks.Acquire(s.ctx, "x")
				if err != nil {
					t.Error(err)
					return
				}
				held++
				if _, err := lease.Release(s.ctx); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	// The race detector says whether two had it at a time.
	if held != workers*turns {
		t.Fatal(held)
	}
	if count := float64(ran()-before) / (workers * turns); count > 2.2 {
		t.Fatal(count)
	}
}

func TestACancelledWaitLeavesNothing(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	lease, err := locks.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	ctx, cancel := context.WithCancelCause(s.ctx)
	waiting := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(ctx, "x")
		waiting <- err
	}()
	s.eventually("it waits", func() bool { return s.waiters("x") == 1 })
	enough := errors.New("enough")
	cancel(enough)
	if err := <-waiting; !errors.Is(err, context.Canceled) || !errors.Is(err, enough) {
		t.Fatal(err)
	}
	s.eventually("nobody waits", func() bool { return s.waiters("x") == 0 })
	ctx, end := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer end()
	if _, err := locks.Acquire(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	released(s, lease)
	s.eventually("it is free", func() bool { return !s.isHeld("x") && s.waiters("x") == 0 })
}

func TestPatienceIsHardAtASilentServer(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	s.must(s.redis.Do(s.ctx, "LOCK.ACQUIRE", "x", "somebody", "60000").Err())
	begun := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(s.ctx, "x", leasehold.Wait(700*time.Millisecond))
		done <- err
	}()
	s.eventually("it waits", func() bool { return s.waiters("x") == 1 })
	s.must(s.server.process.Process.Signal(syscall.SIGSTOP))
	err := <-done
	took := time.Since(begun)
	s.must(s.server.process.Process.Signal(syscall.SIGCONT))
	if !errors.Is(err, leasehold.ErrBusy) && !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	if took < 600*time.Millisecond || took > 2*time.Second {
		t.Fatal(took)
	}
	s.eventually("nobody waits", func() bool { return s.waiters("x") == 0 })
}

func TestALossEndsTheContextWithItsCause(t *testing.T) {
	s := newScene(t)
	logger, log := logged()
	locks := s.locks(&leasehold.Settings{TTL: 600 * time.Millisecond, Logger: logger})
	lease, err := locks.Acquire(context.WithValue(s.ctx, key{}, "value"), "x")
	lease = acquired(s, lease, err)
	ctx := lease.Context()
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	if same, isOne := leasehold.FromContext(child); !isOne || same != lease || child.Value(key{}) != "value" {
		t.Fatal("the context has lost its values")
	}
	s.must(s.redis.Del(s.ctx, "x").Err())
	<-child.Done()
	var lost *leasehold.LostError
	if !errors.As(context.Cause(child), &lost) || lost.Loss != leasehold.LossTaken || lost.Lock != "x" {
		t.Fatal(context.Cause(child))
	}
	if err := lease.Extend(s.ctx, time.Second); !errors.Is(err, leasehold.ErrLost) || lease.ValidFor() != 0 {
		t.Fatal(err)
	}
	if outcome, err := lease.Release(s.ctx); outcome != leasehold.OutcomeLate || err != nil {
		t.Fatal(outcome, err)
	}
	s.eventually("it is logged", func() bool { return log.has(`"leasehold: a lock was lost" lock=x`) })
}

type key struct{}

func TestWorkUnderALock(t *testing.T) {
	s := newScene(t)
	locks := s.locks(&leasehold.Settings{TTL: 600 * time.Millisecond})
	broken := errors.New("broken")
	if err := locks.Do(s.ctx, "x", func(context.Context) error { return broken }); err != broken {
		t.Fatal(err)
	}
	if s.isHeld("x") {
		t.Fatal("it is not released")
	}
	func() {
		defer func() { _ = recover() }()
		_ = locks.Do(s.ctx, "x", func(context.Context) error { panic("broken") })
	}()
	if s.isHeld("x") {
		t.Fatal("it is not released")
	}
	exits := make(chan bool)
	go func() {
		defer close(exits)
		_ = locks.Do(s.ctx, "x", func(context.Context) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-exits
	if s.isHeld("x") {
		t.Fatal("it is not released")
	}
	err := locks.Do(s.ctx, "x", func(ctx context.Context) error {
		s.must(s.redis.Del(s.ctx, "x").Err())
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, leasehold.ErrLost) || !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	err = locks.Do(ctx, "x", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return nil
	})
	if err != nil || s.isHeld("x") {
		t.Fatal(err, "or it is not released though the context had ended")
	}
}

func TestOneOwnerWaitsForTwoLocks(t *testing.T) {
	s := newScene(t)
	locks, others := s.locks(nil), s.locks(nil)
	one, err := others.Acquire(s.ctx, "one")
	one = acquired(s, one, err)
	two, err := others.Acquire(s.ctx, "two")
	two = acquired(s, two, err)
	got := make(chan *leasehold.Lease, 2)
	for at, name := range []string{"one", "two"} {
		go func() {
			lease, err := locks.Acquire(s.ctx, name, leasehold.Owner("me"))
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		s.eventually("a waiter", func() bool { return s.waiters(name) == 1 })
		if at == 1 {
			released(s, one)
		}
	}
	if lease := <-got; lease.Name() != "one" || two.Err() != nil {
		t.Fatal(lease.Name(), two.Err())
	}
	released(s, two)
	if lease := <-got; lease.Name() != "two" {
		t.Fatal(lease.Name())
	}
}

func TestOptionsAndNamesStayTheCallers(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	opts := make([]leasehold.Option, 1, 2)
	opts[0] = leasehold.Wait(time.Second)
	_, err := locks.Election("e", "c").Campaign(s.ctx, opts...)
	s.must(err)
	if opts[:2][1] != nil {
		t.Fatal("it was written behind them")
	}
	names := []string{"{a}1", "{a}2"}
	several := locks.Several(names...)
	names[0] = "{a}3"
	_, err = several.Acquire(s.ctx)
	s.must(err)
	if !s.isHeld("{a}1") || s.isHeld("{a}3") {
		t.Fatal("another lock is held")
	}
}

func TestAReleaseWhoseContextHasEndedIsCarriedOut(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	lease, err := locks.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := lease.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s.eventually("it is free", func() bool { return !s.isHeld("x") })
}

func TestWhoeverReleasesWaitsAsLongAsItWants(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	lease, err := locks.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	if _, err := lease.Release(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	released(s, lease)
	lease, err = locks.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	s.must(s.server.process.Process.Signal(syscall.SIGSTOP))
	first := make(chan error, 1)
	go func() {
		_, err := lease.Release(s.ctx)
		first <- err
	}()
	s.eventually("it is being released", func() bool { return lease.Err() != nil })
	if _, err := lease.Release(ended); !errors.Is(err, context.Canceled) || len(first) > 0 {
		t.Error(err)
	}
	s.must(s.server.process.Process.Signal(syscall.SIGCONT))
	s.must(<-first)
	released(s, lease)
}

func TestAnObserverThatPanicsDoesNotHoldUpARelease(t *testing.T) {
	s := newScene(t)
	locks := s.locks(&leasehold.Settings{OnEvent: func(event leasehold.Event) {
		if event.Step == leasehold.StepReleased {
			panic("observer")
		}
	}})
	lease, err := locks.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	func() {
		defer func() { _ = recover() }()
		_, _ = lease.Release(s.ctx)
	}()
	released(s, lease)
}

func TestAWaitIsToldOfBeforeItsGrant(t *testing.T) {
	s := newScene(t)
	steps := make(chan leasehold.Step, 10)
	locks := s.locks(&leasehold.Settings{OnEvent: func(event leasehold.Event) { steps <- event.Step }})
	s.must(s.redis.Do(s.ctx, "LOCK.ACQUIRE", "x", "somebody", "60000").Err())
	got := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(s.ctx, "x")
		got <- err
	}()
	for _, want := range []leasehold.Step{leasehold.StepAsked, leasehold.StepQueued, leasehold.StepGranted} {
		select {
		case step := <-steps:
			if step != want {
				t.Fatal(step)
			}
		case <-time.After(patience):
			t.Fatal("it is not told: " + want)
		}
		if want == leasehold.StepQueued {
			s.must(s.redis.Do(s.ctx, "LOCK.RELEASE", "x", "somebody").Err())
		}
	}
	s.must(<-got)
}

func TestWhatIsAskedForIsGivenBackThoughAnObserverPanics(t *testing.T) {
	for _, step := range []leasehold.Step{leasehold.StepQueued, leasehold.StepGranted} {
		t.Run(string(step), func(t *testing.T) {
			s := newScene(t)
			locks := s.locks(&leasehold.Settings{OnEvent: func(event leasehold.Event) {
				if event.Step == step {
					panic("observer")
				}
			}})
			if step == leasehold.StepQueued {
				s.must(s.redis.Do(s.ctx, "LOCK.ACQUIRE", "x", "somebody", "60000").Err())
			}
			func() {
				defer func() { _ = recover() }()
				_, _ = locks.Acquire(s.ctx, "x")
			}()
			s.eventually("nothing stays", func() bool {
				owner, _ := s.redis.Get(s.ctx, "x").Result()
				return s.waiters("x") == 0 && (owner == "" || strings.HasSuffix(owner, ":somebody"))
			})
		})
	}
}

func TestALossIsToldOnce(t *testing.T) {
	s := newScene(t)
	var losses atomic.Int32
	locks := s.locks(&leasehold.Settings{OnEvent: func(event leasehold.Event) {
		if event.Step == leasehold.StepLost {
			losses.Add(1)
		}
	}})
	const leases = 200
	var group sync.WaitGroup
	for at := range leases {
		lease, err := locks.Acquire(s.ctx, fmt.Sprint(at), leasehold.TTL(30*time.Millisecond), leasehold.RenewFor(0))
		lease = acquired(s, lease, err)
		for range 4 {
			group.Add(1)
			go func() {
				defer group.Done()
				for lease.Err() == nil {
					runtime.Gosched()
				}
			}()
		}
	}
	group.Wait()
	if told := losses.Load(); told != leases {
		t.Fatal(told)
	}
}

func TestALockIsHeldAtLeastThoughTheContextHasEnded(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	lease, err := locks.Acquire(s.ctx, "x", leasehold.TTL(300*time.Millisecond), leasehold.HoldAtLeast(time.Minute))
	lease = acquired(s, lease, err)
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := lease.Release(ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if outcome, err := lease.Release(s.ctx); outcome != leasehold.OutcomeLater || err != nil {
		t.Fatal(outcome, err)
	}
	if left := s.redis.PTTL(s.ctx, "x").Val(); left < 50*time.Second {
		t.Fatal(left)
	}
}

func TestWhatIsGrantedDuringCloseIsGivenBack(t *testing.T) {
	s := newScene(t)
	granted, goesOn := make(chan bool), make(chan bool)
	locks := s.locks(&leasehold.Settings{OnEvent: func(event leasehold.Event) {
		if event.Step == leasehold.StepGranted {
			close(granted)
			<-goesOn
		}
	}})
	acquires := make(chan error, 1)
	go func() {
		_, err := locks.Acquire(s.ctx, "x")
		acquires <- err
	}()
	<-granted
	time.AfterFunc(100*time.Millisecond, func() { close(goesOn) })
	s.must(locks.Close(s.ctx))
	if err := <-acquires; !errors.Is(err, leasehold.ErrClosed) || s.isHeld("x") {
		t.Fatal(err, s.isHeld("x"))
	}
}

func TestASlowObserverHoldsUpNobodyElse(t *testing.T) {
	s := newScene(t)
	goesOn := make(chan bool)
	t.Cleanup(func() { close(goesOn) })
	locks := s.locks(&leasehold.Settings{OnEvent: func(event leasehold.Event) {
		if event.Step == leasehold.StepLost {
			<-goesOn
		}
	}})
	_, err := locks.Acquire(s.ctx, "x", leasehold.TTL(100*time.Millisecond), leasehold.RenewFor(0))
	s.must(err)
	other, err := locks.Acquire(s.ctx, "y", leasehold.TTL(600*time.Millisecond))
	other = acquired(s, other, err)
	time.Sleep(1200 * time.Millisecond)
	s.must(other.Err())
}

func TestCloseLeavesNoGoroutineAndNoConnection(t *testing.T) {
	s := newScene(t)
	client := redis.NewClient(&redis.Options{Addr: s.server.addr})
	before := stacks()
	locks, err := leasehold.New(client, nil)
	s.must(err)
	lease, err := locks.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	var group sync.WaitGroup
	for range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := locks.Acquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrClosed) {
				t.Error(err)
			}
		}()
	}
	s.eventually("they wait", func() bool { return s.waiters("x") == 20 })
	s.must(locks.Close(s.ctx))
	group.Wait()
	if s.isHeld("x") || s.waiters("x") > 0 || !errors.Is(lease.Err(), leasehold.ErrClosed) {
		t.Fatal("something stays", lease.Err())
	}
	if _, err := locks.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrClosed) {
		t.Fatal(err)
	}
	s.must(client.Close())
	s.eventually("no goroutine stays", func() bool { return stacks() <= before })
}

func TestAWaitThatEndsLeavesNoGoroutine(t *testing.T) {
	s := newScene(t)
	s.must(s.redis.Do(s.ctx, "LOCK.ACQUIRE", "x", "somebody", "600000").Err())
	const waits = 20
	for name, options := range map[string]redis.Options{"told": {}, "told on another connection": {Protocol: 2}, "not told": {Username: "deaf", Password: "secret"}} {
		s.must(s.redis.Do(s.ctx, "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "-subscribe").Err())
		// Goroutines have the labels of those who have started them.
		pprof.Do(s.ctx, pprof.Labels("wait", name), func(ctx context.Context) {
			options.Addr = s.server.addr
			locks := s.locksOn(&options, nil)
			all := func(ctx context.Context, opts ...leasehold.Option) {
				var group sync.WaitGroup
				for range waits {
					group.Add(1)
					go func() {
						defer group.Done()
						if lease, err := locks.Acquire(ctx, "x", opts...); err == nil {
							t.Error(lease)
						}
					}()
				}
				group.Wait()
			}
			all(ctx, leasehold.Wait(300*time.Millisecond))
			var before int
			s.eventually("they have ended", func() bool {
				before = labelled(name)
				return s.waiters("x") == 0 && before < waits
			})
			ending, cancel := context.WithCancel(ctx)
			go all(ending)
			s.eventually("they wait", func() bool { return s.waiters("x") == waits })
			cancel()
			s.eventually("no goroutine stays: "+name, func() bool { return s.waiters("x") == 0 && labelled(name) <= before })
		})
	}
}

// labelled is how many goroutines have this label.
func labelled(name string) (count int) {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf(`{"wait":%q}`, name)) {
			number, _, _ := strings.Cut(stack, " ")
			alike, _ := strconv.Atoi(number)
			count += alike
		}
	}
	return count
}

// stacks is how many goroutines of the package there are, those of tests beside this one among them.
func stacks() int {
	buf := make([]byte, 1<<20)
	all := string(buf[:runtime.Stack(buf, true)])
	return strings.Count(all, "clients/go.(*line).read(") + strings.Count(all, "clients/go.(*line).flush(")
}

func TestCloseNamesWhatStays(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	_, err := locks.Acquire(s.ctx, "x")
	s.must(err)
	s.must(s.server.process.Process.Signal(syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
	defer cancel()
	err = locks.Close(ctx)
	s.must(s.server.process.Process.Signal(syscall.SIGCONT))
	var held *leasehold.HeldError
	if !errors.As(err, &held) || len(held.Locks) != 1 || held.Locks[0] != "x" {
		t.Fatal(err)
	}
}

func TestCloseDoesNotNameWhatWasNeverSent(t *testing.T) {
	s := newScene(t)
	s.server.stop()
	logger, log := logged()
	locks := s.locks(&leasehold.Settings{Within: 300 * time.Millisecond, Logger: logger})
	if _, err := locks.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	if _, err := locks.Acquire(s.ctx, "x", leasehold.Wait(100*time.Millisecond)); !errors.Is(err, leasehold.ErrUnreachable) {
		t.Fatal(err)
	}
	if err := locks.Close(s.ctx); err != nil || log.has("stays") {
		t.Fatal(err)
	}
}

func TestADroppedLeaseIsReleased(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	func() {
		_, err := locks.Acquire(s.ctx, "x")
		s.must(err)
	}()
	s.eventually("it is free", func() bool {
		runtime.GC()
		return !s.isHeld("x")
	})
}

func TestReadersAndWriters(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	one, err := locks.Read("x").Acquire(s.ctx)
	one = acquired(s, one, err)
	two, err := locks.Read("x").TryAcquire(s.ctx)
	two = acquired(s, two, err)
	if err := one.Upgrade(s.ctx); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	holders, err := locks.Holders(s.ctx, "x")
	if err != nil || len(holders) != 2 || holders[0].Fence != one.Fence() || holders[0].Share != 0 {
		t.Fatal(holders, err)
	}
	released(s, two)
	fence := one.Fence()
	s.must(one.Upgrade(s.ctx))
	if one.Fence() <= fence {
		t.Fatal(one.Fence())
	}
	s.must(one.Downgrade(s.ctx))
	three, err := locks.Semaphore("x", 5).TryAcquire(s.ctx)
	released(s, acquired(s, three, err))
	released(s, one)
}

func TestAnAdoptedReaderIsUpgraded(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	one, err := locks.Read("x").Acquire(s.ctx)
	one = acquired(s, one, err)
	two, err := locks.Read("x").Acquire(s.ctx)
	two = acquired(s, two, err)
	adopted, err := locks.Adopt(s.ctx, one.Detach().String())
	adopted = acquired(s, adopted, err)
	if err := adopted.Upgrade(s.ctx); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	released(s, two)
	s.must(adopted.Upgrade(s.ctx))
	if _, err := locks.Read("x").TryAcquire(s.ctx); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	released(s, adopted)
}

func TestAnOwnerAsksAgainAfterItHasGivenUp(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	held, err := s.locks(nil).Acquire(s.ctx, "x")
	held = acquired(s, held, err)
	opts := []leasehold.Option{leasehold.Owner("me"), leasehold.Ephemeral(time.Second), leasehold.Wait(100 * time.Millisecond)}
	if _, err := locks.Acquire(s.ctx, "x", opts...); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	released(s, held)
	lease, err := locks.Acquire(s.ctx, "x", opts[:2]...)
	lease = acquired(s, lease, err)
	time.Sleep(400 * time.Millisecond)
	if !s.isHeld("x") {
		t.Fatal("an earlier release has freed it")
	}
	released(s, lease)
}

func TestAnExtensionThatCountsForLessIsRenewedInTime(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	lease, err := locks.Acquire(s.ctx, "x", leasehold.TTL(1500*time.Millisecond))
	lease = acquired(s, lease, err)
	s.must(s.server.process.Process.Signal(syscall.SIGSTOP))
	// A renewal is asked for twice, and nobody knows of the first one.
	time.Sleep(time.Second)
	s.must(s.server.process.Process.Signal(syscall.SIGCONT))
	s.eventually("it is renewed", func() bool { return lease.ValidFor() > time.Second })
	s.must(lease.Extend(s.ctx, time.Minute))
	time.Sleep(1700 * time.Millisecond)
	s.must(lease.Err())
	released(s, lease)
}

func TestGuardedCommands(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	lease, err := locks.Several("{a}1", "{a}2").Acquire(s.ctx)
	lease = acquired(s, lease, err)
	if reply, err := lease.Guard(s.ctx, "INCRBY", "{a}n", 7); reply != int64(7) || err != nil {
		t.Fatal(reply, err)
	}
	if _, err := lease.Guard(s.ctx, "GET", true); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(err)
	}
	s.must(s.redis.Del(s.ctx, "{a}1").Err())
	if _, err := lease.Guard(s.ctx, "INCRBY", "{a}n", 7); !errors.Is(err, leasehold.ErrLost) {
		t.Fatal(err)
	}
	if s.redis.Get(s.ctx, "{a}n").Val() != "7" {
		t.Fatal("it was run")
	}
}

func TestALeaseIsHandedOnInJSON(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	lease, err := locks.Acquire(s.ctx, "a/b", leasehold.Owner("me"))
	lease = acquired(s, lease, err)
	text, err := json.Marshal(map[string]any{"lock": lease.Detach()})
	s.must(err)
	var job struct{ Lock leasehold.Detached }
	s.must(json.Unmarshal(text, &job))
	next, err := locks.Adopt(s.ctx, job.Lock.String())
	next = acquired(s, next, err)
	if next.Fence() != lease.Fence() || next.Owner() != "me" || !strings.Contains(string(text), "leasehold:a%2Fb:me:") {
		t.Fatal(string(text))
	}
	released(s, next)
}

func TestServersOfEachKind(t *testing.T) {
	module := os.Getenv("LEASEHOLD_MODULE")
	for name, words := range map[string][]string{
		"without the module": {},
		"without RESP3":      {"--loadmodule", module, "--rename-command", "HELLO", ""},
		"with the module":    {"--loadmodule", module},
	} {
		t.Run(name, func(t *testing.T) {
			s := sceneOf(t, words...)
			locks := s.locks(&leasehold.Settings{TTL: 900 * time.Millisecond})
			first, err := locks.Acquire(s.ctx, "x")
			first = acquired(s, first, err)
			waiting := make(chan *leasehold.Lease, 1)
			go func() {
				lease, err := locks.Acquire(s.ctx, "x")
				if err != nil {
					t.Error(err)
				}
				waiting <- lease
			}()
			time.Sleep(1200 * time.Millisecond)
			// It is renewed meanwhile.
			released(s, first)
			second := <-waiting
			if second.Fence() <= first.Fence() {
				t.Fatal(first.Fence(), second.Fence())
			}
			info, err := locks.Info(s.ctx, "x")
			if err != nil || info == nil || info.Owner != second.Owner() || info.Fence != second.Fence() {
				t.Fatal(info, err)
			}
			released(s, second)
		})
	}
}

func TestAQuorum(t *testing.T) {
	s := newScene(t)
	var clients []redis.UniversalClient
	for range 3 {
		other, err := start("--loadmodule", os.Getenv("LEASEHOLD_MODULE"))
		s.must(err)
		t.Cleanup(other.stop)
		clients = append(clients, redis.NewClient(&redis.Options{Addr: other.addr}))
	}
	var told []leasehold.Event
	quorum, err := leasehold.NewQuorum(clients, &leasehold.Settings{OnEvent: func(event leasehold.Event) {
		told = append(told, event)
	}})
	s.must(err)
	lease, err := quorum.Acquire(s.ctx, "x")
	lease = acquired(s, lease, err)
	if _, err := quorum.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrBusy) {
		t.Fatal(err)
	}
	if _, err := quorum.TryAcquire(s.ctx, "x", leasehold.Owner("me")); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(err)
	}
	released(s, lease)
	s.must(quorum.Close(s.ctx))
	// Of the lease, and of what was refused. Each try has another owner.
	for at, want := range []leasehold.Step{"asked", "granted", "asked", "refused", "released"} {
		isOfLease := told[at].Request == told[0].Request
		if told[at].Step != want || isOfLease != (at < 2 || at == 4) {
			t.Fatal(at, told[at])
		}
	}
	twice, err := leasehold.NewQuorum([]redis.UniversalClient{clients[0], clients[0], clients[1]}, nil)
	s.must(err)
	if _, err := twice.Acquire(s.ctx, "x", leasehold.Wait(5*time.Second)); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(err)
	}
	s.must(twice.Close(s.ctx))
}

func TestAnAddressThatLeadsToAnotherServerByThenDoesNotCountTwice(t *testing.T) {
	s := newScene(t)
	var servers []*server
	var clients []redis.UniversalClient
	third := filepath.Join(t.TempDir(), "third")
	for at := range 3 {
		other, err := start("--loadmodule", os.Getenv("LEASEHOLD_MODULE"))
		s.must(err)
		t.Cleanup(other.stop)
		servers = append(servers, other)
		addr := other.addr
		if at == 2 {
			s.must(os.Symlink(addr, third))
			addr = third
		}
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	quorum, err := leasehold.NewQuorum(clients, nil)
	s.must(err)
	lease, err := quorum.Acquire(s.ctx, "x")
	released(s, acquired(s, lease, err))
	s.must(os.Remove(third))
	s.must(os.Symlink(servers[1].addr, third))
	servers[2].stop()
	servers[0].stop()
	// One server would be two of three.
	if lease, err := quorum.Acquire(s.ctx, "x", leasehold.Wait(5*time.Second)); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(lease, err)
	}
	s.must(quorum.Close(s.ctx))
	if held, err := clients[1].Exists(s.ctx, "x").Result(); held != 0 || err != nil {
		t.Fatal(held, err)
	}
}

func TestPatienceIsHardWhereNobodySpeaks(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var clients []redis.UniversalClient
	for range 3 {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: listener.Addr().String()}))
	}
	quorum, err := leasehold.NewQuorum(clients, nil)
	if err != nil {
		t.Fatal(err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{listener.Addr().String()}})
	locks, err := leasehold.New(cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	closing, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, try := range []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := quorum.TryAcquire(ctx, "x")
			return err
		},
		func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, "x")
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(closing, 50*time.Millisecond)
		begun := time.Now()
		err := try(ctx)
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 300*time.Millisecond {
			t.Error(err, took)
		}
		cancel()
	}
	cancel()
	_, _ = quorum.Close(closing), locks.Close(closing)
}

func TestAnElectionIsObserved(t *testing.T) {
	s := newScene(t, "--notify-keyspace-events", "KA")
	locks := s.locks(nil)
	told := make(chan *leasehold.Leader, 10)
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- locks.Election("chair", "").Observe(ctx, func(leader *leasehold.Leader) bool {
			told <- leader
			return true
		})
	}()
	if leader := <-told; leader != nil {
		t.Fatal(leader)
	}
	term, err := locks.Election("chair", "anna").Campaign(s.ctx)
	term = acquired(s, term, err)
	if leader := <-told; leader == nil || leader.Candidate != "anna" || leader.Fence != term.Fence() {
		t.Fatal(leader)
	}
	released(s, term)
	if leader := <-told; leader != nil {
		t.Fatal(leader)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestWhatHasNoSenseIsRefused(t *testing.T) {
	s := newScene(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": s.server.addr}})
	t.Cleanup(func() { _ = ring.Close() })
	if _, err := leasehold.New(ring, nil); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(err)
	}
	if _, err := leasehold.New(s.redis, &leasehold.Settings{TTL: -1}); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(err)
	}
	locks := s.locks(nil)
	for _, option := range []leasehold.Option{
		leasehold.TTL(0), leasehold.Wait(-1), leasehold.Owner(""), leasehold.Owner(strings.Repeat("x", 256)),
		leasehold.HoldAtLeast(-1), leasehold.Ephemeral(-1), leasehold.Replicas(0, time.Second), leasehold.RenewFor(-1),
	} {
		if _, err := locks.Acquire(s.ctx, "x", option); !errors.Is(err, leasehold.ErrSetting) {
			t.Fatal(err)
		}
	}
	for _, lock := range []leasehold.Lock{locks.Semaphore("x", 0), locks.Several(), locks.Several("x", "x")} {
		if _, err := lock.Acquire(s.ctx); !errors.Is(err, leasehold.ErrSetting) {
			t.Fatal(err)
		}
	}
	if _, err := locks.TryAcquire(s.ctx, "x", leasehold.Wait(time.Second)); !errors.Is(err, leasehold.ErrSetting) {
		t.Fatal(err)
	}
}

func TestARefusalSaysWhy(t *testing.T) {
	s := newScene(t)
	locks := s.locks(nil)
	s.must(s.redis.RPush(s.ctx, "list", "1").Err())
	_, err := locks.TryAcquire(s.ctx, "list")
	var refused *leasehold.RefusedError
	if !errors.Is(err, leasehold.ErrWrongType) || !errors.Is(err, leasehold.ErrRefused) || !errors.As(err, &refused) || refused.Code != "WRONGTYPE" {
		t.Fatal(err)
	}
	if errors.Is(err, leasehold.ErrPermission) {
		t.Fatal(err)
	}
	s.server.kill()
	if _, err := locks.TryAcquire(s.ctx, "x"); !errors.Is(err, leasehold.ErrUnreachable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(err)
	}
}
