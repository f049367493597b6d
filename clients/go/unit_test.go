package leasehold

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRepliesAreRead(t *testing.T) {
	for text, want := range map[string]Reply{
		":-17\r\n":                            int64(-17),
		"$5\r\na\r\nbc\r\n":                   "a\r\nbc",
		"$-1\r\n":                             nil,
		"_\r\n":                               nil,
		"*-1\r\n":                             nil,
		"+OK\r\n":                             "OK",
		"-ERR no\r\n":                         ServerError("ERR no"),
		"!6\r\nERR no\r\n":                    ServerError("ERR no"),
		"=6\r\ntxt:ab\r\n":                    "ab",
		"#t\r\n":                              true,
		",1.5\r\n":                            1.5,
		"%1\r\n+a\r\n:1\r\n":                  []Reply{"a", int64(1)},
		"|1\r\n+a\r\n:1\r\n*1\r\n~1\r\n_\r\n": []Reply{[]Reply{nil}},
	} {
		reply, isPush, err := readReply(bufio.NewReader(strings.NewReader(text)))
		if err != nil || isPush || !reflect.DeepEqual(reply, want) {
			t.Errorf("%q: %#v %v", text, reply, err)
		}
	}
	for _, text := range []string{">1\r\n+a\r\n", "|1\r\n+a\r\n:1\r\n>1\r\n+a\r\n"} {
		_, isPush, err := readReply(bufio.NewReader(strings.NewReader(text)))
		if !isPush || err != nil {
			t.Errorf("%q: %v %v", text, isPush, err)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add([]byte("*2\r\n$1\r\na\r\n:7\r\n"))
	f.Add([]byte("|1\r\n+a\r\n_\r\n>0\r\n"))
	f.Add([]byte("$99999999999\r\n"))
	f.Add([]byte("*1000000\r\n*1\r\n"))
	f.Add([]byte("%5000000000000000000\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := bufio.NewReaderSize(bytes.NewReader(data), 16)
		for {
			reply, _, err := readReply(reader)
			if err != nil {
				return
			}
			_, _, _ = number(reply)
			_, _ = fields(reply)
		}
	})
}

func FuzzCommand(f *testing.F) {
	f.Add("LOCK.ACQUIRE", "x\r\n", "")
	f.Fuzz(func(t *testing.T, one, two, three string) {
		words := []string{one, two, three}
		reply, _, err := readReply(bufio.NewReader(bytes.NewReader(appendCommand(nil, words))))
		if err != nil || !reflect.DeepEqual(reply, []Reply{one, two, three}) {
			t.Fatalf("%q: %v %v", words, reply, err)
		}
	})
}

func TestMessagesAreRead(t *testing.T) {
	name, fence, isOne := grantIn("1763942400000000 7 a owner some key")
	if name != (placeName{"some key", "a owner"}) || fence != 1763942400000000 || !isOne {
		t.Fatal(name, fence, isOne)
	}
	for _, wrong := range []string{"", "7", "7 1", "x 1 a k", "7 -1 a k", "7 99 a k", "7 1 a", "7 1 abc", "0 1 a k", "-7 1 a k", "17639424000000000 1 a k"} {
		if _, _, isOne := grantIn(wrong); isOne {
			t.Errorf("%q", wrong)
		}
	}
}

func FuzzGrant(f *testing.F) {
	f.Add(int64(7), "owner", "key", "7 5 owner key")
	f.Fuzz(func(t *testing.T, fence int64, owner, key, message string) {
		_, _, _ = grantIn(message)
		if fence <= 0 || fence >= 1e16 {
			return
		}
		found, number, isOne := grantIn(fmt.Sprintf("%d %d %s %s", fence, len(owner), owner, key))
		if found != (placeName{key, owner}) || number != fence || !isOne {
			t.Fatal(found, number, isOne)
		}
	})
}

func FuzzDetached(f *testing.F) {
	f.Add("a,b", "o:w", int64(7), "leasehold:a,b:o:7")
	f.Fuzz(func(t *testing.T, key, owner string, fence int64, text string) {
		_, _ = ParseDetached(text)
		if owner == "" || fence < 0 || fence >= 1e16 {
			return
		}
		held := Detached{[]string{key, owner}, owner, fence}
		read, err := ParseDetached(held.String())
		if err != nil || !reflect.DeepEqual(read, held) {
			t.Fatalf("%s: %v %v", held, read, err)
		}
	})
}

func TestALeaseIsCountedFromTheAskingLessTheDrift(t *testing.T) {
	if end := validUntil(5, 10*time.Second); end != moment(5+10*time.Second-102*time.Millisecond) {
		t.Fatal(end)
	}
	if end := validUntil(5, time.Millisecond); end != 5 {
		t.Fatal(end)
	}
	if moment(1).add(Forever) != never || never.add(1) != never {
		t.Fatal("it has passed for ever")
	}
}

func TestTheClockDoesNotStepBack(t *testing.T) {
	last := now()
	for range 1000 {
		here := now()
		if here < last {
			t.Fatal(here, last)
		}
		last = here
	}
	before := now()
	time.Sleep(20 * time.Millisecond)
	if took := now().sub(before); took < 20*time.Millisecond || took > 2*time.Second {
		t.Fatal(took)
	}
}

func TestAShortExtensionThatMayStillComeLimitsALongerOne(t *testing.T) {
	var all extensions
	begin := func(ttl time.Duration) *extension { return all.begin(&hold{}, question{asks: asksExtend, ttl: ttl}) }
	short, long := begin(time.Second), begin(time.Minute)
	short.left(nil)
	short.underWay--
	long.underWay--
	if counted, counts := all.counted(long); counted != time.Second || !counts {
		t.Fatal(counted, counts)
	}
	short.late(nil, errSurprise)
	if _, counts := all.counted(short); counts {
		t.Fatal("an earlier one counts")
	}
	next := begin(time.Minute)
	next.underWay--
	if counted, _ := all.counted(next); counted != time.Minute {
		t.Fatal(counted)
	}
}

func TestSlotsAndKeysBeside(t *testing.T) {
	for key, slot := range map[string]uint16{"": 0, "123456789": 12739, "{user}:a": SlotOf("user"), "{}a": SlotOf("{}a"), "foo": 12182} {
		if SlotOf(key) != slot {
			t.Error(key, SlotOf(key))
		}
	}
	for key, other := range map[string]string{"x": "{x}:fence", "{a}x": "{a}x:fence", "x}": "x}:fence"} {
		if beside(key) != other {
			t.Error(beside(key))
		}
	}
}

func TestVerdicts(t *testing.T) {
	for text, want := range map[string]verdict{
		"READONLY You can't": elsewhere, "TRYAGAIN later": again, "NOSCRIPT no": unknownScript, "LEASEHOLD loaded": hasModule,
		"ERR unknown command 'LOCK.ACQUIRE'": unknownCommand, "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't": elsewhere,
		"ERR max number of clients reached": again, "NOPERM no": refused,
	} {
		if found := judge(fmt.Errorf("it said: %w", ServerError(text))); found != want {
			t.Error(text, found)
		}
	}
	if judge(errors.New("EOF")) != broken || judge(&BusyError{}) != refused {
		t.Error("errors that no server has said")
	}
}

func TestAContextEndsWithTheHoldThoughNobodyHasToldIt(t *testing.T) {
	reason := errors.New("lost")
	lease := &Lease{hold: &hold{validUntil: never}, values: t.Context()}
	ctx := lease.Context()
	if ctx.Err() != nil {
		t.Fatal(ctx.Err())
	}
	lease.hold.mu.Lock()
	lease.hold.loss, lease.hold.reason = LossTaken, reason
	lease.hold.mu.Unlock()
	if ctx.Err() == nil || context.Cause(ctx) != reason {
		t.Fatal(ctx.Err(), context.Cause(ctx))
	}
	<-ctx.Done()
}

// A puppet is a cluster whose nodes answer as the test says.
type puppet struct {
	answer func(place string, words []Reply) string
}

func (puppet) Place(context.Context, string) (string, error) { return "node:1", nil }
func (puppet) Moved(context.Context)                         {}
func (p puppet) Endpoint(_ context.Context, place string) (Endpoint, error) {
	return Endpoint{Protocol: 2, Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			reader := bufio.NewReader(theirs)
			for {
				reply, _, err := readReply(reader)
				if err != nil {
					return
				}
				words, _ := reply.([]Reply)
				_, _ = io.WriteString(theirs, p.answer(place, words))
			}
		}()
		return ours, nil
	}}, nil
}

func TestANodeThatDoesNotKnowItsAddressIsAskedWhereItWas(t *testing.T) {
	locks, err := NewOn(puppet{func(string, []Reply) string { return "-MOVED 1 :7001\r\n" }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	if _, err := locks.Acquire(t.Context(), "x", Wait(100*time.Millisecond)); err == nil {
		t.Fatal("it is held")
	}
	moved := ServerError("MOVED 1 :7001")
	for place, want := range map[string]string{"node:1": "node:7001", "": ":7001"} {
		if to, _ := locks.remote.redirected("x", place, moved); to != want {
			t.Error(place, to)
		}
	}
}

func TestAWaitFollowsALockOnItsWay(t *testing.T) {
	isAsking := false
	locks, err := NewOn(puppet{func(place string, words []Reply) string {
		switch {
		case place == "node:1" && words[0] == "LOCK.ACQUIRE":
			return "-ASK 1 node:2\r\n"
		case words[0] == "ASKING":
			isAsking = true
			return "+OK\r\n"
		case words[0] == "LOCK.ACQUIRE" && !isAsking:
			return "-MOVED 1 node:1\r\n"
		case words[0] == "LOCK.ACQUIRE":
			isAsking = false
			return ":7\r\n"
		}
		return ":1\r\n"
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	lease, err := locks.Acquire(t.Context(), "x", Wait(time.Second))
	if err != nil || lease.Fence() != 7 {
		t.Fatal(err)
	}
}

func TestAGuardedCommandThatWasSentMayHaveBeenRun(t *testing.T) {
	sent := make(chan bool, 1)
	locks, err := NewOn(puppet{func(_ string, words []Reply) string {
		if words[0] == "LOCK.GUARD" {
			sent <- true
			return ""
		}
		return ":1\r\n"
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locks.TryAcquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-sent
		locks.remote.mu.Lock()
		l := locks.remote.lines["node:1"].value
		locks.remote.mu.Unlock()
		locks.remote.silent(l)
	}()
	if _, err := lease.Guard(t.Context(), "INCR", "n"); !errors.Is(err, ErrUnanswered) {
		t.Fatal(err)
	}
	_ = locks.Close(t.Context())
}

func TestALossIsNoticedWhenTheMachineWasSuspended(t *testing.T) {
	locks, err := NewOn(puppet{func(string, []Reply) string { return ":1\r\n" }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	lease, err := locks.TryAcquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ctx := lease.Context()
	// As if the timer would be late by a minute.
	lease.hold.mu.Lock()
	lease.hold.timer.Stop()
	lease.hold.validUntil = now()
	lease.hold.mu.Unlock()
	locks.mu.Lock()
	locks.ahead -= time.Minute
	locks.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it is not noticed")
	}
}

func TestWhatIsBoundAnewAfterItsReleaseIsGivenBack(t *testing.T) {
	steps := make(chan string, 100)
	var isReleased atomic.Bool
	locks, err := NewOn(puppet{func(_ string, words []Reply) string {
		switch words[0] {
		case "LOCK.ACQUIRE":
			switch {
			case isReleased.Load():
				steps <- "granted"
				return ":8\r\n"
			case len(steps) > 0:
				steps <- "not yet"
				return "-LOADING not yet\r\n"
			}
			steps <- "first"
			return ":7\r\n"
		case "LOCK.RELEASE":
			isReleased.Store(true)
			steps <- "released"
		}
		return ":1\r\n"
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(t.Context()) }()
	lease, err := locks.TryAcquire(t.Context(), "x", Ephemeral(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	locks.remote.mu.Lock()
	l := locks.remote.lines["node:1"].value
	locks.remote.mu.Unlock()
	l.close(errHungUp)
	await := func(step string) {
		for end := time.After(10 * time.Second); ; {
			select {
			case came := <-steps:
				if came == step {
					return
				}
			case <-end:
				t.Fatal("it has not come: " + step)
			}
		}
	}
	for len(steps) < 2 {
		time.Sleep(time.Millisecond)
	}
	if outcome, err := lease.Release(t.Context()); outcome != OutcomeReleased || err != nil {
		t.Fatal(outcome, err)
	}
	await("released")
	await("granted")
	await("released")
}
