package leasehold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Locks are locks on the servers of one client. They may be used by many goroutines at a time. Close them last.
type Locks struct{ *client }

// A client is what Locks and a Quorum have in common.
type client struct {
	settings Settings
	server   server
	remote   *remote // nil for a quorum
	closed   chan struct{}
	// background is for what is not the matter of a caller.
	background context.Context
	end        context.CancelFunc

	mu sync.Mutex
	// holds are those that are held, or whose release is under way.
	holds map[*hold]struct{}
	// watch is due while there are any.
	watch *time.Timer
	ahead time.Duration
	// givingBack are the names of what is being released, and of what may have been granted to those who gave up.
	givingBack map[string]int
	// returning are the releases under way of whatever an owner has.
	returning map[placeName]int
	isQuiet   chan struct{}
	// staying are the names of the locks whose release has failed, and until when they stay.
	staying map[string]moment
	// asking is how many ask for a lock at this moment.
	asking  int
	closing sync.Once
	left    error
}

// New returns locks on the servers of a client of go-redis: a *redis.Client, also one of Sentinels, or a *redis.ClusterClient.
// They go over connections of their own, with the addresses, the user and the certificates of the client. Without settings
// the defaults hold.
func New(client redis.UniversalClient, settings *Settings) (*Locks, error) {
	backend, err := backendOf(client)
	if err != nil {
		return nil, err
	}
	return NewOn(backend, settings)
}

// NewOn returns locks on the servers of another library.
func NewOn(backend Backend, settings *Settings) (*Locks, error) {
	l, err := newClient(settings)
	if err != nil {
		return nil, err
	}
	l.remote = newRemote(backend, &l.settings)
	l.server = l.remote
	return &Locks{l}, nil
}

func newClient(settings *Settings) (*client, error) {
	all, err := settings.checked()
	if err != nil {
		return nil, err
	}
	l := &client{
		settings: all, closed: make(chan struct{}), holds: map[*hold]struct{}{},
		givingBack: map[string]int{}, returning: map[placeName]int{}, staying: map[string]moment{},
	}
	l.background, l.end = context.WithCancel(context.Background())
	return l, nil
}

// Acquire waits for the lock, in the order of coming, until it is held, the [Wait] is over ([ErrBusy]), or the context ends.
func (l *client) Acquire(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return l.Write(name).Acquire(ctx, opts...)
}

// TryAcquire does not wait: the error is [ErrBusy] if the lock is not to be had at once.
func (l *client) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return l.Write(name).TryAcquire(ctx, opts...)
}

// Do waits for the lock, does the work, and releases the lock however the work ends: see [Lock.Do].
func (l *client) Do(ctx context.Context, name string, work func(ctx context.Context) error, opts ...Option) error {
	return l.Write(name).Do(ctx, work, opts...)
}

// Read returns a lock to be held beside any number of other readers. It needs the module.
func (l *Locks) Read(name string) Lock { return Lock{l.client, []string{name}, anyNumber, nil} }

// Write returns a lock to be held alone.
func (l *client) Write(name string) Lock { return Lock{l, []string{name}, exclusive, nil} }

// Semaphore returns a lock to be held by so many at a time. It needs the module.
func (l *Locks) Semaphore(name string, permits int) Lock {
	return Lock{l.client, []string{name}, share(permits), checkCount("permits", permits)}
}

// Several returns all of these locks or none, with one fence; in a cluster they are in one slot. Whoever waits holds none of
// them.
func (l *Locks) Several(names ...string) Lock {
	return Lock{l.client, slices.Clone(names), exclusive, checkSeveral(names)}
}

func checkSeveral(names []string) error {
	if len(names) == 0 || len(names) > mostNames {
		return &SettingError{"names", fmt.Sprintf("there must be 1 to %d", mostNames)}
	}
	known := map[string]bool{}
	for _, name := range names {
		if known[name] {
			return &SettingError{"names", "each must be named once"}
		}
		known[name] = true
	}
	return nil
}

// A Lock is a lock by its name, which many may hold at a time or one; or several, which are held all or none.
type Lock struct {
	locks *client
	names []string
	share share
	err   error
}

// Acquire waits for the lock: see [Locks.Acquire].
func (k Lock) Acquire(ctx context.Context, opts ...Option) (*Lease, error) {
	return k.ask(ctx, &options{ttl: k.locks.settings.TTL, wait: k.locks.settings.Wait, renewFor: -1, confirm: k.locks.settings.Confirm}, opts)
}

// TryAcquire does not wait: see [Locks.TryAcquire].
func (k Lock) TryAcquire(ctx context.Context, opts ...Option) (*Lease, error) {
	return k.ask(ctx, &options{ttl: k.locks.settings.TTL, renewFor: -1, isTry: true}, opts)
}

// Do waits for the lock, does the work, and releases the lock however the work ends. What the work returns is what this
// returns: a release that fails is logged, and takes no longer than Within of the [Settings]. The context of the work ends
// with ctx, and when the lock is lost, with a [LostError] as its cause, which is also what this returns then if the work
// returns that its context has ended. [FromContext] returns the lease.
func (k Lock) Do(ctx context.Context, work func(ctx context.Context) error, opts ...Option) error {
	lease, err := k.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { _, _ = lease.Release(context.WithoutCancel(ctx)) }()
	working, cancel := lease.under(ctx)
	defer cancel()
	err = work(working)
	var lost *LostError
	if isEnd := errors.Is(err, context.Canceled); isEnd && errors.As(context.Cause(working), &lost) && !errors.Is(err, ErrLost) {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

func (k Lock) ask(ctx context.Context, o *options, opts []Option) (*Lease, error) {
	l := k.locks
	if k.err != nil {
		return nil, k.err
	}
	for _, option := range opts {
		if err := option(o); err != nil {
			return nil, err
		}
	}
	if l.remote == nil && o.single != "" {
		return nil, &SettingError{o.single, "a quorum does not have this option"}
	}
	h, leave := l.enter(ctx)
	defer leave()
	if err := h.err(); err != nil {
		return nil, err
	}
	if o.owner == "" {
		o.owner = newOwner()
	}
	keys := make([]string, len(k.names))
	for at, name := range k.names {
		keys[at] = l.settings.Prefix + name
	}
	c := &claim{key: keys[0], also: keys[1:], owner: o.owner, share: k.share, isBound: o.isBound, grace: o.grace}
	a := newAttempt(l, h, strings.Join(k.names, ", "), o, c)
	if err := l.settle(h, a.begun.add(cmp.Or(o.wait, l.settings.Within)), placeName{c.key, c.owner}); err != nil {
		return nil, err
	}
	isHeld := false
	defer func() {
		// Also if an observer panics.
		if !isHeld {
			a.giveUp()
		}
	}()
	a.tell(Event{Step: StepAsked})
	granted, err := l.server.acquire(a)
	if err == nil && granted == nil {
		a.tell(Event{Step: StepRefused})
		return nil, &BusyError{a.name, now().sub(a.begun)}
	}
	if err == nil && o.replicas != nil {
		granted, err = l.remote.acknowledged(a, granted, o.replicas)
	}
	if err == nil {
		// It may have been stopped in the same moment as it was granted.
		err = h.err()
	}
	if err != nil {
		a.tell(Event{Step: StepRefused, Err: err})
		return nil, err
	}
	a.tell(Event{Step: StepGranted, Fence: granted.fence})
	isHeld = true
	return newLease(ctx, a, granted)
}

var process = strconv.Itoa(os.Getpid()) + ":"

func newOwner() string { return process + randomName() }

// Adopt goes on with a lock that was left held, by the text of [Lease.Detach]: it renews it by the TTL of the settings. An
// [ErrLost] says that it is not held any more.
func (l *client) Adopt(ctx context.Context, text string) (*Lease, error) {
	held, err := ParseDetached(text)
	if err != nil {
		return nil, err
	}
	h, leave := l.enter(ctx)
	defer leave()
	c := &claim{key: held.Keys[0], also: held.Keys[1:], owner: held.Owner, share: unknown}
	if l.remote == nil {
		c.share = exclusive
	}
	a := newAttempt(l, h, strings.Join(held.Keys, ", "), &options{ttl: l.settings.TTL, renewFor: -1}, c)
	came, err := ask(l.server, h, l.limits(a.ttl, a.begun.add(l.settings.Within)), c, question{asks: asksExtend, ttl: a.ttl, fence: held.Fence}, nil)
	if err != nil {
		return nil, err
	}
	if came.number != 1 {
		return nil, &LostError{Lock: a.name, Loss: LossTaken}
	}
	a.tell(Event{Step: StepGranted, Fence: held.Fence})
	return newLease(ctx, a, &grant{fence: held.Fence, asked: came.asked, lasts: a.ttl})
}

// enter begins a request that Close waits for, until leave is called.
func (l *client) enter(ctx context.Context) (h halt, leave func()) {
	l.mu.Lock()
	l.asking++
	l.mu.Unlock()
	return halt{ctx, l.closed}, func() {
		l.mu.Lock()
		l.asking--
		l.changed()
		l.mu.Unlock()
	}
}

// HeldError names the locks that could not be released: they stay until their leases end.
type HeldError struct{ Locks []string }

func (e *HeldError) Error() string {
	return "leasehold: not released: " + strings.Join(e.Locks, ", ")
}

// closesWithin is how long Close takes at the most, unless its context says otherwise.
const closesWithin = 5 * time.Second

// Close ends all waits, releases what is held, and closes the connections. The client stays open. It takes as long as the
// context lasts, or 5 s without a deadline, and returns a [HeldError] if locks stay until their leases end.
func (l *client) Close(ctx context.Context) error {
	l.closing.Do(func() { l.left = l.close(ctx) })
	return l.left
}

func (l *client) close(ctx context.Context) error {
	if _, hasEnd := ctx.Deadline(); !hasEnd {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closesWithin)
		defer cancel()
	}
	close(l.closed)
	l.mu.Lock()
	holds := slices.Collect(maps.Keys(l.holds))
	l.mu.Unlock()
	for _, h := range holds {
		h.shut()
	}
	// Those who wait leave the queue meanwhile, and what is answered may have to be given back, too.
	for ctx.Err() == nil && !l.isIdle(ctx) {
	}
	l.mu.Lock()
	names := map[string]bool{}
	for h := range l.holds {
		names[h.name()] = true
	}
	for name := range l.givingBack {
		names[name] = true
	}
	for name, end := range l.staying {
		if end.left() > 0 {
			names[name] = true
		}
	}
	l.mu.Unlock()
	l.end()
	l.server.close()
	if len(names) == 0 {
		return nil
	}
	return &HeldError{slices.Sorted(maps.Keys(names))}
}

// isIdle waits until nothing is under way, or something has changed.
func (l *client) isIdle(ctx context.Context) bool {
	l.mu.Lock()
	if len(l.holds) == 0 && len(l.givingBack) == 0 && l.asking == 0 {
		l.mu.Unlock()
		return true
	}
	change := l.change()
	l.mu.Unlock()
	_ = halt{ctx: ctx}.wait(change, never)
	return false
}

// settle waits until what an owner may have had before was given back: that would take the next grant, too.
func (l *client) settle(h halt, until moment, of placeName) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.returning[of] > 0 && until.left() > 0 {
		change := l.change()
		l.mu.Unlock()
		_ = h.wait(change, until)
		l.mu.Lock()
		if err := h.err(); err != nil {
			return err
		}
	}
	return nil
}

// change returns what is closed by changed. It is called with the lock.
func (l *client) change() <-chan struct{} {
	if l.isQuiet == nil {
		l.isQuiet = make(chan struct{})
	}
	return l.isQuiet
}

// changed is called with the lock.
func (l *client) changed() {
	if l.isQuiet != nil {
		close(l.isQuiet)
		l.isQuiet = nil
	}
}

func (l *client) limits(ttl time.Duration, until moment) limits {
	return limits{patienceForAnswer(l.settings.Response, ttl), until}
}

// watchesEvery is how often to see whether the machine was suspended: timers that were set before are late by as long.
const watchesEvery = time.Second

// ahead is how far the clock is ahead of that of timers.
func ahead() time.Duration { return time.Duration(now()) - time.Since(started) }

func (l *client) keep(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds[h] = struct{}{}
	if l.watch == nil {
		l.ahead = ahead()
		l.watch = time.AfterFunc(watchesEvery, l.lookAfter)
	}
}

func (l *client) lookAfter() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holds) == 0 {
		l.watch = nil
		return
	}
	former := l.ahead
	if l.ahead = ahead(); l.ahead-former > watchesEvery/10 {
		for h := range l.holds {
			go h.due()
		}
	}
	l.watch.Reset(watchesEvery)
}

func (l *client) drop(h *hold) {
	l.mu.Lock()
	delete(l.holds, h)
	l.changed()
	l.mu.Unlock()
}

// giveBack releases whatever the owner has, after so long, in the background: whoever gave up does not wait for it. Close
// does.
func (l *client) giveBack(c *claim, a *attempt, after time.Duration) {
	l.returns(c, a, func() error {
		h := halt{ctx: l.background}
		if after > 0 {
			if err := h.sleep(after); err != nil {
				return err
			}
		}
		_, err := ask(l.server, h, l.limits(a.ttl, now().add(l.settings.Within)), c, question{asks: asksRelease}, nil)
		if err != nil && !errors.Is(err, errStopped) {
			l.warn("leasehold: a release failed, and the lock stays until its lease ends", a.name, c.owner, err)
		}
		return err
	})
}

// returns has Close wait for a release, and the next request of the same owner.
func (l *client) returns(c *claim, a *attempt, request func() error) {
	of := placeName{c.key, c.owner}
	l.mu.Lock()
	l.returning[of]++
	l.mu.Unlock()
	l.await(a.name, now().add(a.ttl), func() error {
		defer func() {
			l.mu.Lock()
			if l.returning[of]--; l.returning[of] == 0 {
				delete(l.returning, of)
			}
			l.changed()
			l.mu.Unlock()
		}()
		return request()
	})
}

// await has Close wait for a request about a lock.
func (l *client) await(name string, end moment, request func() error) {
	done := l.expects(name, end)
	go func() { done(request()) }()
}

// expects has Close wait until a request about a lock is done, and name the lock if that takes too long, or has failed.
func (l *client) expects(name string, end moment) (done func(err error)) {
	l.mu.Lock()
	l.givingBack[name]++
	l.mu.Unlock()
	return func(err error) {
		if err != nil && !errors.Is(err, errSurprise) {
			l.stays(name, end)
		}
		l.mu.Lock()
		if l.givingBack[name]--; l.givingBack[name] == 0 {
			delete(l.givingBack, name)
		}
		l.changed()
		l.mu.Unlock()
	}
}

// stays: a release has failed, and the lock is there until then.
func (l *client) stays(name string, end moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, until := range l.staying {
		if until.left() == 0 {
			delete(l.staying, other)
		}
	}
	l.staying[name] = max(end, l.staying[name])
}
