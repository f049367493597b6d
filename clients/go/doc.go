/*
Package leasehold has locks on Redis and Valkey, over the client of go-redis that a program has. A lease renews itself, knows
how long it lasts, and reports when the lock is lost.

	locks, err := leasehold.New(client, nil)
	…
	err = locks.Do(ctx, "page:front", func(ctx context.Context) error {
		// The context ends when the lock is lost.
		return build(ctx)
	})

On a server with the Leasehold module, requests wait in the server's queue, first come, first served, any number of them on one
connection (in a cluster, on one to each node). On a server without it, the package takes the same locks with scripts, and
polls. It finds out which kind of server it talks to.

# Fences

Each grant has a number, [Lease.Fence], that is larger than all earlier ones of the lock. A store that remembers the largest one
refuses a late write of a holder that was paused. [Lease.Guard] has the server of the lock do that.

# Losing a lock

A lease is counted from before the server was asked, by a clock that does not step and that goes on while the machine is
suspended. It is renewed after each third of its ttl. It is lost when the server says so, and at the latest when it could have
ended, also when the server is silent. Then the context of the work ends, with a [LostError] as its cause. Work that ignores its
context goes on.

# Errors

Errors are told apart by [errors.Is], such as [ErrBusy], [ErrLost] and [ErrUnreachable], and say more by [errors.As]. What nobody
awaits goes to the Logger of the [Settings].

# Connections

The package opens connections of its own, with the addresses, the user and the certificates of the client: one to each server,
and one beside it for messages where the server does not speak RESP3. Hooks, limits and the pool of the client are not used.
*/
package leasehold
