package main // or your own

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const late = 800 * time.Millisecond // an answer that is later than this is an error

var rdb = redis.NewClient(&redis.Options{
	Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true, MaxRetries: -1,
})

func nodeOf(ctx context.Context, key string) (*redis.Client, error) { return rdb, nil }

func send(ctx context.Context, end time.Time, request ...any) (int64, error) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	number, err := rdb.Do(ctx, request...).Int64()
	if err == redis.Nil {
		return 0, nil // busy
	}
	return number, err
}

// In the server's queue, on a connection of its own.
func wait(ctx context.Context, end time.Time, request ...any) error {
	ctx, cancel := context.WithDeadline(ctx, end.Add(late))
	defer cancel()
	node, err := nodeOf(ctx, request[1].(string))
	if err != nil {
		return err
	}
	options := *node.Options()
	options.PoolSize, options.MinIdleConns, options.ReadTimeout = 1, 0, -1 // the context is the limit
	queue := redis.NewClient(&options)
	go func() {
		<-ctx.Done()
		queue.Close()
	}()
	left := time.Until(end).Milliseconds()
	if left < 1 {
		left = 1 // 0 would be without limit
	}
	err = queue.Do(ctx, append(request, "BLOCK", left)...).Err()
	if err == redis.Nil {
		return nil
	}
	return err
}

// nil, nil: busy. Without a share nobody else may hold the lock.
func acquire(ctx context.Context, key string, ttl, patience time.Duration, share ...int) (*Lease, error) {
	random := make([]byte, 16)
	rand.Read(random)
	owner := fmt.Sprintf("%d:%x", os.Getpid(), random)
	request := []any{"LOCK.ACQUIRE", key, owner, ttl.Milliseconds()}
	for _, holders := range share {
		request = append(request, "SHARE", holders)
	}
	for end := time.Now().Add(patience); ; {
		asked := time.Now()
		fence, err := send(ctx, end.Add(late), request...)
		switch {
		case err == nil && fence != 0 && time.Since(asked) < ttl:
			return hold(key, owner, fence, ttl, asked), nil
		case err == nil && fence == 0 && !time.Now().Before(end):
			return nil, nil
		case err == nil && fence == 0:
			err = wait(ctx, end, request...) // a grant is confirmed by asking again
		}
		if err != nil && (ctx.Err() != nil || !time.Now().Before(end) || hopeless(err)) {
			go send(context.Background(), time.Now().Add(late), "LOCK.RELEASE", key, owner) // it may have been granted
			return nil, err
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// Asking again would not help.
func hopeless(err error) bool {
	for _, code := range []string{"ERR ", "WRONGTYPE ", "NOPERM ", "NOAUTH ", "WRONGPASS "} {
		if strings.HasPrefix(err.Error(), code) {
			return true
		}
	}
	return false
}

// Lease is renewed every third of its ttl, until it is released, kept or lost.
type Lease struct {
	Key, Owner string
	Fence      int64
	Lost       context.Context    // done when the lock is lost
	Keep       context.CancelFunc // renews no more, and leaves the lock to its lease

	lose    context.CancelFunc
	kept    context.Context
	span    atomic.Pointer[span]
	changed chan struct{}
}

type span struct {
	end time.Time // by the monotonic clock
	ttl time.Duration
}

func hold(key, owner string, fence int64, ttl time.Duration, asked time.Time) *Lease {
	l := &Lease{Key: key, Owner: owner, Fence: fence, changed: make(chan struct{}, 1)}
	l.Lost, l.lose = context.WithCancel(context.Background())
	l.kept, l.Keep = context.WithCancel(l.Lost)
	l.span.Store(&span{asked.Add(ttl), ttl})
	go l.watch()
	return l
}

func (l *Lease) watch() {
	for l.kept.Err() == nil {
		now := l.span.Load()
		select {
		case <-l.kept.Done():
		case <-l.changed:
		case <-time.After(time.Until(now.end)):
			l.lose()
		case <-time.After(now.ttl / 3):
			go l.Extend(now.ttl)
		}
	}
}

func (l *Lease) ValidFor() time.Duration {
	if l.Lost.Err() != nil {
		return 0
	}
	return time.Until(l.span.Load().end) // none if it is negative
}

func (l *Lease) Extend(ttl time.Duration) (bool, error) {
	asked := time.Now() // the lease is counted from here
	held, err := send(l.Lost, asked.Add(late), "LOCK.EXTEND", l.Key, l.Owner, ttl.Milliseconds(), l.Fence)
	if err == nil && held == 1 {
		l.span.Store(&span{asked.Add(ttl), ttl})
		select {
		case l.changed <- struct{}{}:
		default:
		}
	} else if err == nil {
		l.lose()
	}
	return held == 1, err
}

func (l *Lease) Release() (bool, error) {
	l.Keep()
	held, err := send(context.Background(), time.Now().Add(late), "LOCK.RELEASE", l.Key, l.Owner, l.Fence)
	return held == 1, err
}

func withLock(ctx context.Context, key string, ttl, patience time.Duration, work func(*Lease) error, share ...int) (bool, error) {
	lease, err := acquire(ctx, key, ttl, patience, share...)
	if lease == nil {
		return false, err
	}
	defer func() {
		if held, err := lease.Release(); err != nil {
			log.Printf("%s is held until its lease ends: %v", key, err) // what became of the work is worth more
		} else if !held {
			log.Printf("%s was lost before it was released: %s", key, lease.Owner)
		}
	}()
	return true, work(lease)
}
