package leasehold

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// Forever is a duration without an end.
const Forever time.Duration = 1<<63 - 1

// A Holder is who holds a lock.
type Holder struct {
	Owner string
	// Fence is that of the grant; 0 for a lock that neither Leasehold nor this package wrote.
	Fence int64
	// TTL is what is left of the lease, or [Forever].
	TTL time.Duration
	// Share is how many holders at a time it tolerates: 1 for an exclusive hold, 0 for no limit.
	Share int
}

// Info is what is known of a lock that is held, and of the oldest of its holders. It may be over when it arrives: whoever
// wants to hold the lock asks for it.
type Info struct {
	Holder
	Holders int
	// Waiters is how many wait in the server's queue; -1 where the server keeps no queue.
	Waiters int
}

// A Waiter is who waits for a lock.
type Waiter struct {
	Owner string
	// Waited is how long it has waited, and Patience how much longer it will, or [Forever].
	Waited, Patience time.Duration
	Share            int
	// Kind says whether a connection waits, or there is a ticket.
	Kind string
	// Locks is how many locks it waits for at once.
	Locks int
}

// A Contention is a lock for which there was contention since the server has started.
type Contention struct {
	Name           string
	DB             int
	Waits, Refused int64
	// WaitTotal and WaitLongest are of the waits that are over.
	WaitTotal, WaitLongest time.Duration
	// Missed is how many waits and refused requests may be missing.
	Missed int64
}

// A LogEntry is what went wrong, as late-release or deleted: the page of LOCK.LOG has all of them.
type LogEntry struct {
	ID    int64
	Time  time.Time
	Event string
	DB    int
	Name  string
	Owner string
	// Lasted is a duration. What it means depends on the event.
	Lasted time.Duration
}

// Info returns who holds the lock at this moment, and how many wait for it: nil if it is free.
func (l *Locks) Info(ctx context.Context, name string) (*Info, error) {
	return l.remote.info(halt{ctx, l.closed}, l.settings.Prefix+name)
}

func (r *remote) info(h halt, key string) (*Info, error) {
	if !r.isPlain() {
		reply, err := r.read(h, key, "LOCK.INFO", key)
		if err == nil && reply == nil {
			return nil, nil
		}
		if err == nil {
			found, err := fields(reply)
			if err != nil {
				return nil, err
			}
			row := row(found)
			return &Info{row.holder(), max(1, int(row.int("holders"))), int(row.int("waiters"))}, nil
		}
		if judge(err) != unknownCommand {
			return nil, r.told(err)
		}
	}
	return r.look(h, key)
}

// mostGlances is how often a server without the module is asked at most while the lock changes hands.
const mostGlances = 5

// look reads a lock on a server without the module.
func (r *remote) look(h halt, key string) (*Info, error) {
	for range mostGlances {
		// The value once more, to see that the time belongs to it.
		var replies [3]Reply
		for at, command := range []string{"GET", "PTTL", "GET"} {
			var err error
			if replies[at], err = r.read(h, key, command, key); err != nil {
				return nil, r.told(err)
			}
		}
		held, isHeld := replies[0].(string)
		left, _ := replies[1].(int64)
		if !isHeld || left == -2 {
			return nil, nil
		}
		if replies[2] != held {
			continue
		}
		holder := Holder{Owner: held, TTL: lasting(left), Share: 1}
		if written.MatchString(held) {
			holder.Fence, _ = strconv.ParseInt(held[:16], 10, 64)
			holder.Owner = held[17:]
		}
		return &Info{holder, 1, -1}, nil
	}
	return nil, unreachable(errors.New("the lock changes hands all the time"))
}

// Holders returns who holds the lock, the oldest grant first. It needs the module, as all that follow.
func (l *Locks) Holders(ctx context.Context, name string) ([]Holder, error) {
	key := l.settings.Prefix + name
	return list(ctx, l, key, row.holder, "LOCK.HOLDERS", key, "COUNT", "-1")
}

// Waiters returns who waits for the lock, the next one first.
func (l *Locks) Waiters(ctx context.Context, name string) ([]Waiter, error) {
	key := l.settings.Prefix + name
	return list(ctx, l, key, row.waiter, "LOCK.WAITERS", key, "COUNT", "-1")
}

// Top returns the locks most waited for on the server; in a cluster, on the node that has the lock at.
func (l *Locks) Top(ctx context.Context, count int, at string) ([]Contention, error) {
	return list(ctx, l, l.settings.Prefix+at, row.contention, "LOCK.TOP", strconv.Itoa(count))
}

// Log returns what went wrong with locks on the server, or on that node: the latest first.
func (l *Locks) Log(ctx context.Context, count int, at string) ([]LogEntry, error) {
	return list(ctx, l, l.settings.Prefix+at, row.entry, "LOCK.LOG", strconv.Itoa(count))
}

func list[T any](ctx context.Context, l *Locks, key string, read func(row) T, command ...string) ([]T, error) {
	reply, err := l.remote.read(halt{ctx, l.closed}, key, command...)
	if judge(err) == unknownCommand {
		return nil, needsModule(command[0])
	}
	if err != nil {
		return nil, l.remote.told(err)
	}
	rows, isList := reply.([]Reply)
	if !isList {
		return nil, errSurprise
	}
	all := make([]T, 0, len(rows))
	for _, each := range rows {
		found, err := fields(each)
		if err != nil {
			return nil, err
		}
		all = append(all, read(found))
	}
	return all, nil
}

// A row is fields by their names: later versions of the module have more of them.
type row map[string]Reply

func (r row) text(field string) string { return text(r[field]) }

func (r row) int(field string) int64 {
	found, _, _ := number(r[field])
	return found
}

func (r row) duration(field string) time.Duration { return lasting(r.int(field)) }

func lasting(millis int64) time.Duration {
	if millis < 0 || millis > int64(longest/time.Millisecond) {
		return Forever
	}
	return time.Duration(millis) * time.Millisecond
}

func (r row) holder() Holder {
	shared := 1
	if _, isTold := r["share"]; isTold {
		shared = int(r.int("share"))
	}
	return Holder{r.text("owner"), r.int("fence"), r.duration("ttl"), shared}
}

func (r row) waiter() Waiter {
	return Waiter{
		Owner: r.text("owner"), Waited: r.duration("waited"), Patience: r.duration("patience"), Share: int(r.int("share")),
		Kind: r.text("kind"), Locks: int(r.int("locks")),
	}
}

func (r row) contention() Contention {
	return Contention{
		Name: r.text("key"), DB: int(r.int("db")), Waits: r.int("waits"), Refused: r.int("refused"),
		WaitTotal: r.duration("wait-total"), WaitLongest: r.duration("wait-longest"), Missed: r.int("missed"),
	}
}

func (r row) entry() LogEntry {
	return LogEntry{
		ID: r.int("id"), Time: time.UnixMilli(r.int("time")), Event: r.text("event"), DB: int(r.int("db")),
		Name: r.text("key"), Owner: r.text("owner"), Lasted: r.duration("ms"),
	}
}
