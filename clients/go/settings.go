package leasehold

import (
	"fmt"
	"log/slog"
	"time"
)

// Settings are what [Locks] do unless a request says otherwise. What is zero has its default.
type Settings struct {
	// Prefix is what the name of every lock begins with on the server.
	Prefix string
	// TTL is how long a lease lasts unless it is renewed: 30 s.
	TTL time.Duration
	// Wait is how long Acquire waits: without limit unless it is set. A context ends a wait, too.
	Wait time.Duration
	// Response is how long to wait for each answer of a server: 1 s. For a short ttl it is less: a fifth of that.
	Response time.Duration
	// Within is how long a request that does not wait goes on trying when servers fail, and a release: 3 s.
	Within time.Duration
	// UnreachableAfter is how long a request that waits goes on while no server answers: 30 s.
	UnreachableAfter time.Duration
	// NoQueue has a wait try again and again instead of taking a place in the server's queue, so that it shares the lock with
	// clients that do the same.
	NoQueue bool
	// Slice is how often a place in the queue is asked for again: 5 s. It is kept for three times as long.
	Slice time.Duration
	// WaitConnections is how many connections may wait where the server tells this user of no grants: 16.
	WaitConnections int
	// Confirm has the server confirm a grant that a message tells before the work begins. Unless it is set, whoever may publish
	// on the channels leasehold:* and knows an owner can have a program believe that it holds a lock.
	Confirm bool
	// Logger is told of what nobody awaits: [slog.Default] unless it is set.
	Logger *slog.Logger
	// OnEvent is told of each step that a lock takes, for traces and measures. It is called while others wait for it.
	OnEvent func(Event)
}

const (
	// Nothing is left of a shorter lease when the drift is taken off.
	leastTTL = 3 * time.Millisecond
	longest  = 100 * 365 * 24 * time.Hour
	// As many holders as a server takes.
	most = 99_999
	// A server takes 128 beside the first one.
	mostNames    = 129
	longestOwner = 255
)

func (s *Settings) checked() (Settings, error) {
	var all Settings
	if s != nil {
		all = *s
	}
	for _, each := range []struct {
		name     string
		duration *time.Duration
		least    time.Duration
		usual    time.Duration
	}{
		{"TTL", &all.TTL, leastTTL, 30 * time.Second},
		{"Wait", &all.Wait, 0, longest},
		{"Response", &all.Response, time.Millisecond, time.Second},
		{"Within", &all.Within, 0, 3 * time.Second},
		{"UnreachableAfter", &all.UnreachableAfter, 0, 30 * time.Second},
		{"Slice", &all.Slice, time.Millisecond, 5 * time.Second},
	} {
		if *each.duration == 0 {
			*each.duration = each.usual
		}
		if err := checkDuration(each.name, *each.duration, each.least); err != nil {
			return all, err
		}
	}
	if all.WaitConnections == 0 {
		all.WaitConnections = 16
	}
	if all.Logger == nil {
		all.Logger = slog.Default()
	}
	return all, checkCount("WaitConnections", all.WaitConnections)
}

func checkDuration(setting string, duration, least time.Duration) error {
	if duration >= least && duration <= longest {
		return nil
	}
	return &SettingError{setting, fmt.Sprintf("it must be at least %v and at most a hundred years", least)}
}

func checkCount(setting string, count int) error {
	if count >= 1 && count <= most {
		return nil
	}
	return &SettingError{setting, fmt.Sprintf("it must be at least 1 and at most %d", most)}
}

// An Option is what one request wants otherwise than the [Settings] say.
type Option func(*options) error

type options struct {
	ttl, wait, holdAtLeast, renewFor time.Duration
	confirm, isBound, isTry          bool
	grace                            time.Duration
	owner                            string
	replicas                         *replicas
	// What a quorum does not have.
	single string
}

type replicas struct {
	count     int
	within    time.Duration
	isDurable bool
}

// TTL is how long the lease lasts unless it is renewed.
func TTL(ttl time.Duration) Option {
	return func(o *options) error {
		// Servers take whole milliseconds.
		o.ttl = (ttl + time.Millisecond - 1).Truncate(time.Millisecond)
		return checkDuration("TTL", ttl, leastTTL)
	}
}

// Wait is how long to wait: a hard deadline. TryAcquire does not wait.
func Wait(patience time.Duration) Option {
	return func(o *options) error {
		o.wait = patience
		if o.isTry {
			return &SettingError{"Wait", "TryAcquire does not wait: Acquire does"}
		}
		return checkDuration("Wait", patience, 0)
	}
}

// RenewFor has the lease renewed for so long at the most, and not until it is released. 0: it is not renewed.
func RenewFor(limit time.Duration) Option {
	return func(o *options) error {
		o.renewFor = limit
		return checkDuration("RenewFor", limit, 0)
	}
}

// Confirm has the server confirm the grant before the work begins: see [Settings].
func Confirm(confirm bool) Option {
	return func(o *options) error {
		o.confirm, o.single = confirm, "Confirm"
		return nil
	}
}

// HoldAtLeast has a release that comes earlier leave the lock held until then.
func HoldAtLeast(least time.Duration) Option {
	return func(o *options) error {
		o.holdAtLeast = least
		return checkDuration("HoldAtLeast", least, 0)
	}
}

// Ephemeral has the lock end with a connection to the server that the package keeps, and so long after that: others need
// not wait for the lease of a program that was killed. It needs the module.
func Ephemeral(grace time.Duration) Option {
	return func(o *options) error {
		o.isBound, o.grace, o.single = true, grace, "Ephemeral"
		return checkDuration("Ephemeral", grace, 0)
	}
}

// Owner is as whom the lock is held, 1 to 255 bytes. Each lease has an owner of its own unless this is set. Whoever asks with
// the owner that holds the lock has it, too, so no two requests may have the same owner at a time.
func Owner(owner string) Option {
	return func(o *options) error {
		o.owner, o.single = owner, "Owner"
		if len(owner) == 0 || len(owner) > longestOwner {
			return &SettingError{"Owner", fmt.Sprintf("it must have 1 to %d bytes", longestOwner)}
		}
		return nil
	}
}

// Replicas has so many replicas have the grant, within this time, before the work begins: else the error is
// [ErrTooFewReplicas], and the lock is given back.
func Replicas(count int, within time.Duration) Option {
	return acknowledged(replicas{count: count, within: within})
}

// DurableReplicas is as [Replicas], on disk: on the server, too. It needs Redis 7.2 or Valkey.
func DurableReplicas(count int, within time.Duration) Option {
	return acknowledged(replicas{count: count, within: within, isDurable: true})
}

func acknowledged(by replicas) Option {
	return func(o *options) error {
		o.replicas, o.single = &by, "Replicas"
		if err := checkCount("Replicas", by.count); err != nil {
			return err
		}
		return checkDuration("Replicas", by.within, time.Millisecond)
	}
}
