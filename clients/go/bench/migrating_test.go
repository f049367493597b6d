package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// What docs/migrating.md says of other libraries: they and this package keep each other out on the same key.
func TestOldAndNewKeepEachOtherOut(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	program := os.Getenv("LEASEHOLD_SERVER")
	if program == "" {
		program = "redis-server"
	}
	server := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir(), "--loadmodule", os.Getenv("LEASEHOLD_MODULE"))
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	ctx := t.Context()
	client := redis.NewClient(&redis.Options{Addr: socket})
	for end := time.Now().Add(20 * time.Second); client.Ping(ctx).Err() != nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	locks, err := leasehold.New(client, nil)
	must(t, err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	syncs, obtains := redsync.New(goredis.NewPool(client)), redislock.New(client)
	option, err := rueidis.ParseURL("unix://" + socket)
	must(t, err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: option, KeyMajority: 1})
	must(t, err)
	t.Cleanup(locker.Close)
	for library, old := range map[string]struct {
		key string
		try func() (release func(), err error)
	}{
		"redsync": {"a", func() (func(), error) {
			mutex := syncs.NewMutex("a")
			return func() { _, _ = mutex.Unlock() }, mutex.TryLock()
		}},
		"redislock": {"b", func() (func(), error) {
			lock, err := obtains.Obtain(ctx, "b", ttl, nil)
			return func() { _ = lock.Release(ctx) }, err
		}},
		"rueidislock": {"rueidislock:0:c", func() (func(), error) {
			_, cancel, err := locker.TryWithContext(ctx, "c")
			return cancel, err
		}},
	} {
		t.Run(library, func(t *testing.T) {
			release, err := old.try()
			must(t, err)
			if _, err := locks.TryAcquire(ctx, old.key); !errors.Is(err, leasehold.ErrBusy) {
				t.Fatal(err)
			}
			waits := make(chan *leasehold.Lease, 1)
			go func() {
				lease, err := locks.Acquire(ctx, old.key)
				if err != nil {
					t.Error(err)
				}
				waits <- lease
			}()
			release()
			lease := <-waits
			var taken *redsync.ErrTaken
			_, err = old.try()
			if !errors.As(err, &taken) && !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, rueidislock.ErrNotLocked) {
				t.Fatal(err)
			}
			if outcome, err := lease.Release(ctx); outcome != leasehold.OutcomeReleased || err != nil {
				t.Fatal(outcome, err)
			}
			if release, err = old.try(); err != nil {
				t.Fatal(err)
			}
			release()
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
