package leasehold

import (
	"strconv"
	"time"
)

// A share is how many holders at a time a hold tolerates, itself included.
type share int

const (
	anyNumber share = 0
	exclusive share = 1
	// unknown is that of a hold that was adopted.
	unknown share = -1
)

// A claim is what is asked of a server about a lock, by whom.
type claim struct {
	key string
	// also is what is wanted with it: all or nothing.
	also  []string
	owner string
	share share
	// isBound: held as long as a connection, and for the grace longer.
	isBound bool
	grace   time.Duration
}

type asks int

const (
	asksAcquire asks = iota
	// asksWait waits in the queue on a connection of its own.
	asksWait
	// asksTicket keeps a place in the queue for so long, without a connection that waits. The grant is told on the channel.
	asksTicket
	asksExtend
	// asksRaise has it by a larger fence: where several servers are to have one.
	asksRaise
	// asksRelease without a fence: whatever the owner was granted, and its place in the queue.
	asksRelease
)

type question struct {
	asks asks
	ttl  time.Duration
	// kept is for how long a ticket is kept, or how long to wait.
	kept    time.Duration
	channel string
	// fence is 0 if it is not known.
	fence int64
}

// binds says whether it is asked on the connection that the hold is bound to.
func (c *claim) binds(q question) bool {
	return c.isBound && (q.asks == asksAcquire || q.asks == asksTicket)
}

// words spells a question in the commands of the module.
func (c *claim) words(q question) []string {
	words := make([]string, 0, 12)
	switch q.asks {
	case asksAcquire:
		words = append(words, "LOCK.ACQUIRE", c.key, c.owner, millis(q.ttl))
	case asksWait:
		words = append(words, "LOCK.ACQUIRE", c.key, c.owner, millis(q.ttl), "BLOCK", millis(q.kept))
	case asksTicket:
		words = append(words, "LOCK.ACQUIRE", c.key, c.owner, millis(q.ttl), "TICKET", millis(q.kept))
		if q.channel != "" {
			words = append(words, "NOTIFY", q.channel)
		}
	case asksExtend:
		words = append(words, "LOCK.EXTEND", c.key, c.owner, millis(q.ttl))
	case asksRaise:
		words = append(words, "LOCK.RAISE", c.key, c.owner)
	case asksRelease:
		words = append(words, "LOCK.RELEASE", c.key, c.owner)
	}
	acquires := q.asks <= asksTicket
	if !acquires && q.fence != 0 {
		words = append(words, strconv.FormatInt(q.fence, 10))
	}
	if acquires && c.share != exclusive {
		words = append(words, "SHARE", strconv.Itoa(int(c.share)))
	}
	if c.binds(q) {
		words = append(words, "EPHEMERAL", millis(c.grace))
	}
	if len(c.also) > 0 {
		words = append(words, "ALSO", strconv.Itoa(len(c.also)))
		words = append(words, c.also...)
	}
	return words
}

// millis is whole milliseconds, as servers take them.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
