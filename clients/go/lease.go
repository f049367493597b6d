package leasehold

import (
	"context"
	"sync"
	"time"
)

// A Lease is a lock that is held. It renews itself until it is released or lost.
type Lease struct {
	hold *hold
	// shared is how it is shared after a downgrade.
	shared share
	values context.Context

	once sync.Once
	ctx  context.Context
}

// Name is the name that the lock was acquired by; several are listed.
func (l *Lease) Name() string { return l.hold.name() }

// Owner is who holds the lock, as the server knows it.
func (l *Lease) Owner() string { return l.hold.owner() }

// Fence is a number larger than that of every earlier grant of this lock, below 2^53. A store refuses what is smaller.
func (l *Lease) Fence() int64 { return l.hold.fenceNow() }

// ValidFor is for how long the lock is certainly held: 0 if it is lost, or released.
func (l *Lease) ValidFor() time.Duration { return l.hold.validFor() }

// Err is nil while the lock is held, and then a [LostError] that says why it is not.
func (l *Lease) Err() error {
	if l.hold.look() {
		return nil
	}
	return l.hold.lostError()
}

// Context ends when the lock is held no more: at the latest when its lease is over, also when the server is silent. The cause,
// by [context.Cause], is a [LostError] unless the lock was released. It has the values of the context of Acquire, and does not
// end with that. After a pause its Err is true in the first line that runs.
func (l *Lease) Context() context.Context {
	l.once.Do(func() { l.ctx, _ = l.under(context.WithoutCancel(l.values)) })
	return l.ctx
}

// under returns a context that ends with another one, and with the lock.
func (l *Lease) under(ctx context.Context) (context.Context, context.CancelFunc) {
	child, cancel := context.WithCancelCause(ctx)
	l.hold.whenOver(cancel)
	return &leaseContext{child, l, cancel}, func() { cancel(nil) }
}

// A leaseContext looks at the clock when it is asked: a timer may be late. Whoever has it counts on the lock, so it refers to
// the lease.
type leaseContext struct {
	context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
}

// look ends the context if the lock is held no more: whoever has found that out may not have come to tell it.
func (c *leaseContext) look() {
	if h := c.lease.hold; !h.look() {
		h.whenOver(c.cancel)
	}
}

func (c *leaseContext) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *leaseContext) Value(key any) any {
	c.look()
	if key == (leaseKey{}) {
		return c.lease
	}
	return c.Context.Value(key)
}

type leaseKey struct{}

// FromContext returns the lease that a context comes from: that of [Locks.Do], or of [Lease.Context].
func FromContext(ctx context.Context) (*Lease, bool) {
	lease, isOne := ctx.Value(leaseKey{}).(*Lease)
	return lease, isOne
}

// Extend has the lease end so long from now, and renews it by as much from now on. An [ErrLost] says that the lock is lost.
// After another error the lease is as it was, or extended: it counts for the shorter of the two.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.hold.extend(halt{ctx: ctx}, ttl)
}

// ExtendBy adds to what is left of the lease, and renews it by the sum from now on: see Extend.
func (l *Lease) ExtendBy(ctx context.Context, more time.Duration) error {
	if err := checkDuration("more", more, 0); err != nil {
		return err
	}
	l.hold.mu.Lock()
	ttl := l.hold.ttl
	l.hold.mu.Unlock()
	return l.Extend(ctx, l.ValidFor()+drift(ttl)+more)
}

// Upgrade has a lock that was shared alone from now on, by a new fence. An [ErrBusy] says that others hold it, too, and that
// nothing has changed. Nobody waits for that: two who did would wait for each other.
func (l *Lease) Upgrade(ctx context.Context) error {
	begun := now()
	isHeld, err := l.hold.share(halt{ctx: ctx}, exclusive)
	if err == nil && !isHeld {
		return &BusyError{l.Name(), now().sub(begun)}
	}
	return err
}

// Downgrade lets those in who share the lock: as before an upgrade, or else other readers. The fence stays.
func (l *Lease) Downgrade(ctx context.Context) error {
	_, err := l.hold.share(halt{ctx: ctx}, l.shared)
	return err
}

// Release gives the lock back. It takes no longer than Within of the [Settings]. If the context ends first, the lock is given
// back in the background.
func (l *Lease) Release(ctx context.Context) (Outcome, error) { return l.hold.giveBack(halt{ctx: ctx}) }

// Detach stops the renewal, and leaves the lock held until its lease ends: for work that is to be done once in a while by one
// of many. Whoever is given the text of what this returns can adopt the lock, to renew and to release it. An [Ephemeral] one
// still ends with the connection of this program.
func (l *Lease) Detach() Detached {
	l.hold.leave()
	claim := l.hold.claim()
	return Detached{append([]string{claim.key}, claim.also...), claim.owner, l.Fence()}
}
