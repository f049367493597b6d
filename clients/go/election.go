package leasehold

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// separator is between the name of a candidate and what makes it an owner that nobody else has.
	separator = "/"
	// uuidLength is how long that is, in all languages.
	uuidLength = 36
	// looksEvery is how often to look for the leader where nothing tells of changes.
	looksEvery = time.Second
	// looksAtLeast is how often to look at least, though nothing has been heard.
	looksAtLeast = 30 * time.Second
)

// An Election has one leader among several candidates: whoever leads holds its lock.
type Election struct {
	locks     *Locks
	name      string
	candidate string
}

// A Leader leads since it was granted the lock of the election.
type Leader struct {
	// Candidate is the name that it gave when it campaigned.
	Candidate string
	// Fence is that of its term: larger than that of any earlier term.
	Fence int64
}

// Election returns an election of this name, in which this program goes by the name of the candidate.
func (l *Locks) Election(name, candidate string) *Election { return &Election{l, name, candidate} }

// Campaign waits until this candidate leads. Candidates queue, and lead in the order of their coming. The term is over when
// its lease is released, or lost.
func (e *Election) Campaign(ctx context.Context, opts ...Option) (*Lease, error) {
	if longest := longestOwner - uuidLength - len(separator); len(e.candidate) > longest {
		return nil, &SettingError{"candidate", fmt.Sprintf("it must have at most %d bytes", longest)}
	}
	random := randomName()
	uuid := strings.Join([]string{random[:8], random[8:12], random[12:16], random[16:20], random[20:]}, "-")
	return e.locks.Acquire(ctx, e.name, slices.Concat(opts, []Option{Owner(e.candidate + separator + uuid)})...)
}

// Leader returns who leads at this moment: nil between two terms.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	info, err := e.locks.Info(ctx, e.name)
	if err != nil || info == nil {
		return nil, err
	}
	return leaderOf(info), nil
}

func leaderOf(info *Info) *Leader {
	candidate := info.Owner
	if at := len(candidate) - uuidLength - len(separator); at >= 0 && candidate[at:at+1] == separator {
		candidate = candidate[:at]
	}
	return &Leader{candidate, info.Fence}
}

// Observe calls tell with who leads: with the present one first, and then with each that differs from the one before. nil:
// nobody leads. It ends when tell returns false, and with an error when the context ends or the [Locks] are closed.
//
// Where the server has key events (notify-keyspace-events with K and A) and tells them to this user, it looks when there is
// one; else every second, which is logged, and terms shorter than that may be missed. While no server answers it says nothing.
func (e *Election) Observe(ctx context.Context, tell func(*Leader) bool) error {
	l, h := e.locks, halt{ctx, e.locks.closed}
	key := l.settings.Prefix + e.name
	heard := make(chan struct{}, 1)
	hear := func() {
		select {
		case heard <- struct{}{}:
		default:
		}
	}
	var events *line
	defer func() {
		if events != nil {
			events.close(errHungUp)
		}
	}()
	mayListen, isFirst := true, true
	var last *Leader
	for {
		if err := h.err(); err != nil {
			return err
		}
		if events != nil && events.open.Err() != nil {
			events, mayListen = nil, true
		}
		if events == nil && mayListen {
			var err error
			events, err = l.remote.keyEvents(h, key, hear)
			if means := judge(err); err != nil && (means == refused || means == unknownCommand) {
				mayListen = false
				l.settings.Logger.Info("leasehold: an election is observed by looking every second", "election", e.name, "error", err)
			}
		}
		info, err := l.remote.info(h, key)
		switch {
		case isFinal(err):
			return err
		case err == nil:
			var leader *Leader
			if info != nil {
				leader = leaderOf(info)
			}
			isNew := isFirst || (leader == nil) != (last == nil) || leader != nil && leader.Fence != last.Fence
			last, isFirst = leader, false
			if isNew && !tell(leader) {
				return nil
			}
		}
		resting := looksEvery
		if events != nil {
			resting = looksAtLeast
			if info != nil {
				resting = min(info.TTL, looksAtLeast)
			}
		}
		_ = h.wait(heard, now().add(resting+time.Millisecond))
	}
}

var dbPattern = regexp.MustCompile(`\bdb=(\d+)`)

// keyEvents has the server tell of changes by its own key events. The error says why it does not.
func (r *remote) keyEvents(h halt, key string, hear func()) (*line, error) {
	reply, err := r.read(h, key, "CONFIG", "GET", "notify-keyspace-events")
	if err != nil {
		return nil, err
	}
	found, err := fields(reply)
	if err != nil {
		return nil, err
	}
	flags := text(found["notify-keyspace-events"])
	has := func(all string) bool {
		return !strings.ContainsFunc(all, func(flag rune) bool { return !strings.ContainsRune(flags, flag) })
	}
	if !has("KA") && !has("Kd$gx") {
		return nil, &SettingError{"notify-keyspace-events", "the server does not have K and A"}
	}
	reply, err = r.read(h, key, "CLIENT", "INFO")
	if err != nil {
		return nil, err
	}
	db := dbPattern.FindStringSubmatch(text(reply))
	if db == nil {
		return nil, errSurprise
	}
	limit := now().add(r.settings.Within)
	place, err := r.place(h, limit, key)
	if err != nil {
		return nil, err
	}
	return r.connect(h, limit, func() (*line, error) {
		l, err := r.subscribe(place, "__keyspace@"+db[1]+"__:"+key, func(*line, []Reply) { hear() })
		if err == nil {
			context.AfterFunc(l.usable, hear)
		}
		return l, err
	})
}
