// Bench compares the package with other libraries for locks, side by side: all take turns in each round.
//
//	go run . -server redis://127.0.0.1:6379 -rounds 9 -time 1.5s
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

const ttl = 10 * time.Second

// A library takes the lock, does the work and releases the lock.
type library struct {
	name string
	turn func(ctx context.Context, name string, work func()) error
	end  func()
}

// A figure is what one library came to in one round.
type figure struct {
	grants, longest, cpu, commands float64
}

func main() {
	url := flag.String("server", "redis://127.0.0.1:6379", "a server with the module")
	rounds := flag.Int("rounds", 9, "how many rounds")
	each := flag.Duration("time", 1500*time.Millisecond, "how long each library has in a round")
	only := flag.String("only", "", "names of libraries, separated by commas")
	flag.Parse()
	options, err := redis.ParseURL(*url)
	check(err)
	client := redis.NewClient(options)
	defer func() { check(client.Close()) }()
	libraries := all(client, options.Addr)
	if *only != "" {
		libraries = slices.DeleteFunc(libraries, func(l library) bool { return !slices.Contains(strings.Split(*only, ","), l.name) })
	}
	for _, workers := range []int{16, 1} {
		figures := make([][]figure, len(libraries))
		for round := range *rounds {
			for at := range libraries {
				// Each is the first in its turn.
				at = (at + round) % len(libraries)
				figures[at] = append(figures[at], measure(client, libraries[at], workers, *each))
			}
		}
		fmt.Printf("\n%d workers, medians of %d rounds of %v\n\n", workers, *rounds, *each)
		fmt.Println("| | grants per second | longest wait | CPU per grant | commands per grant |\n|---|---:|---:|---:|---:|")
		for at, l := range libraries {
			of := func(part func(figure) float64) float64 { return median(figures[at], part) }
			fmt.Printf("| %s | %.0f | %.1f ms | %.0f µs | %.1f |\n", l.name,
				of(func(f figure) float64 { return f.grants }), of(func(f figure) float64 { return f.longest }),
				of(func(f figure) float64 { return f.cpu }), of(func(f figure) float64 { return f.commands }))
		}
	}
	for _, l := range libraries {
		l.end()
	}
}

func all(client *redis.Client, addr string) []library {
	locks, err := leasehold.New(client, &leasehold.Settings{TTL: ttl})
	check(err)
	obtains := redislock.New(client)
	syncs := redsync.New(goredis.NewPool(client))
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 1, NoLoopTracking: true, KeyValidity: ttl,
	})
	check(err)
	nothing := func() {}
	return []library{
		{"leasehold", func(ctx context.Context, name string, work func()) error {
			lease, err := locks.Acquire(ctx, name)
			if err != nil {
				return err
			}
			work()
			_, err = lease.Release(ctx)
			return err
		}, func() { check(locks.Close(context.Background())) }},
		{"bare commands", func(ctx context.Context, name string, work func()) error {
			// What this package sends for a free lock. It cannot wait.
			owner := rand.Text()
			fence, err := client.Do(ctx, "LOCK.ACQUIRE", name, owner, ttl.Milliseconds(), "BLOCK", 2000).Int64()
			if err != nil {
				return err
			}
			work()
			return client.Do(ctx, "LOCK.RELEASE", name, owner, fence).Err()
		}, nothing},
		{"redislock", func(ctx context.Context, name string, work func()) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
			lock, err := obtains.Obtain(ctx, name, ttl, retry)
			if err != nil {
				return err
			}
			work()
			return lock.Release(ctx)
		}, nothing},
		{"redsync", func(ctx context.Context, name string, work func()) error {
			mutex := syncs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1000))
			if err := mutex.LockContext(ctx); err != nil {
				return err
			}
			work()
			_, err := mutex.UnlockContext(ctx)
			return err
		}, nothing},
		{"rueidislock", func(ctx context.Context, name string, work func()) error {
			// A wake-up may be lost, and then it waits for as long as its context lasts.
			for {
				limited, end := context.WithTimeout(ctx, 3*time.Second)
				_, cancel, err := locker.WithContext(limited, name)
				if errors.Is(err, context.DeadlineExceeded) {
					end()
					continue
				}
				if err != nil {
					end()
					return err
				}
				work()
				cancel()
				end()
				return nil
			}
		}, locker.Close},
	}
}

func measure(client *redis.Client, l library, workers int, each time.Duration) figure {
	ctx := context.Background()
	name := "bench:" + l.name
	check(client.Del(ctx, name, "counter").Err())
	// Connections are opened, and scripts loaded, before.
	for range 3 {
		check(l.turn(ctx, name, func() {}))
	}
	var grants atomic.Int64
	var longest atomic.Int64
	begun, used, ran := time.Now(), cpu(), commands(client)
	var group sync.WaitGroup
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Since(begun) < each {
				asked := time.Now()
				err := l.turn(ctx, name, func() {
					waited := int64(time.Since(asked))
					for known := longest.Load(); waited > known && !longest.CompareAndSwap(known, waited); known = longest.Load() {
					}
					check(client.Incr(ctx, "counter").Err())
					grants.Add(1)
				})
				check(err)
			}
		}()
	}
	group.Wait()
	took, count := time.Since(begun), float64(grants.Load())
	counted, err := client.Get(ctx, "counter").Int64()
	check(err)
	if counted != grants.Load() {
		check(fmt.Errorf("%s: %d grants, and %d counted", l.name, grants.Load(), counted))
	}
	return figure{
		grants:  count / took.Seconds(),
		longest: float64(longest.Load()) / 1e6,
		cpu:     float64((cpu() - used).Microseconds()) / count,
		// Without the one of the work.
		commands: float64(commands(client)-ran)/count - 1,
	}
}

func cpu() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// commands is how many the server has run: also those of scripts.
func commands(client *redis.Client) int64 {
	info, err := client.Info(context.Background(), "stats").Result()
	check(err)
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	digits, _, _ := strings.Cut(rest, "\r")
	count, err := strconv.ParseInt(digits, 10, 64)
	check(err)
	return count
}

func median(all []figure, part func(figure) float64) float64 {
	values := make([]float64, len(all))
	for at, each := range all {
		values[at] = part(each)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
