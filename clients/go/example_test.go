package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/go-redis/v9"
)

func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, err := leasehold.New(client, &leasehold.Settings{Prefix: "app:", TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Close last: a lock that is not released by then stays held until its lease ends.
	defer locks.Close(ctx)

	err = locks.Do(ctx, "page:front", func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx) // the lock's
		fmt.Println("held:", lease.Name(), lease.ValidFor() > 9*time.Second)
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: page:front true
	// <nil>
}

func ExampleLocks_TryAcquire() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, _ := leasehold.New(client, nil)
	defer locks.Close(ctx)

	lease, err := locks.TryAcquire(ctx, "nightly", leasehold.TTL(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.TryAcquire(ctx, "nightly")
	fmt.Println("another one is busy:", errors.Is(err, leasehold.ErrBusy))
	outcome, err := lease.Release(ctx)
	fmt.Println(outcome, err)
	// Output:
	// another one is busy: true
	// released <nil>
}

func ExampleLease_Context() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, _ := leasehold.New(client, nil)
	defer locks.Close(ctx)

	lease, _ := locks.Acquire(ctx, "seat", leasehold.TTL(300*time.Millisecond))
	client.Del(ctx, "seat") // somebody takes it away
	<-lease.Context().Done()
	var lost *leasehold.LostError
	fmt.Println(errors.As(context.Cause(lease.Context()), &lost), lost.Loss)
	// Output:
	// true taken
}

func ExampleLease_Guard() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, _ := leasehold.New(client, nil)
	defer locks.Close(ctx)

	lease, _ := locks.Acquire(ctx, "{account}:lock")
	reply, err := lease.Guard(ctx, "SET", "{account}:balance", 17)
	fmt.Println(reply, err)
	_, _ = lease.Release(ctx)
	_, err = lease.Guard(ctx, "SET", "{account}:balance", 18)
	fmt.Println("lost:", errors.Is(err, leasehold.ErrLost))
	fmt.Println(client.Get(ctx, "{account}:balance").Val())
	// Output:
	// OK <nil>
	// lost: true
	// 17
}

func ExampleLocks_Read() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, _ := leasehold.New(client, nil)
	defer locks.Close(ctx)

	one, _ := locks.Read("report").Acquire(ctx)
	two, _ := locks.Read("report").Acquire(ctx)
	_, err := locks.Write("report").TryAcquire(ctx)
	fmt.Println("a writer waits for both:", errors.Is(err, leasehold.ErrBusy))
	_, _ = one.Release(ctx)
	_, _ = two.Release(ctx)
	// Output:
	// a writer waits for both: true
}

func ExampleElection() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, _ := leasehold.New(client, nil)
	defer locks.Close(ctx)

	election := locks.Election("chair", "anna")
	term, _ := election.Campaign(ctx)
	leader, _ := election.Leader(ctx)
	fmt.Println(leader.Candidate, leader.Fence == term.Fence())
	_, _ = term.Release(ctx)
	// Output:
	// anna true
}

func ExampleLease_Detach() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locks, _ := leasehold.New(client, nil)
	defer locks.Close(ctx)

	lease, _ := locks.Acquire(ctx, "job 7", leasehold.Owner("web"))
	text := lease.Detach().String() // into the payload of the job
	fmt.Println(text[:len("leasehold:job%207:web:")])
	next, err := locks.Adopt(ctx, text) // in another program, of any language
	fmt.Println(next.Name(), err)
	_, _ = next.Release(ctx)
	// Output:
	// leasehold:job%207:web:
	// job 7 <nil>
}
