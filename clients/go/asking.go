package leasehold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A halt ends what is under way: because the caller has given up, or because the Locks are closed.
type halt struct {
	ctx    context.Context
	closed <-chan struct{} // nil for what goes on until then
}

var errStopped = errors.New("stopped")

// An unsent error came before a question was sent.
type unsent struct{ error }

func (u *unsent) Unwrap() error { return u.error }

func isUnsent(err error) bool {
	var before *unsent
	return errors.As(err, &before)
}

// stopped is what a caller is told who has given up.
type stopped struct{ err error }

func (s *stopped) Error() string        { return "leasehold: " + s.err.Error() }
func (s *stopped) Unwrap() error        { return s.err }
func (s *stopped) Is(target error) bool { return target == errStopped }

func (h halt) err() error {
	select {
	case <-h.closed:
		return &stopped{ErrClosed}
	default:
	}
	err := h.ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(h.ctx); cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &stopped{err}
}

// wait waits until something is done. Otherwise the error is errSilent at that moment, or that of the halt.
func (h halt) wait(done <-chan struct{}, limit moment) error {
	t := newTimer(limit.left())
	defer t.free()
	select {
	case <-done:
		return nil
	case <-t.C:
		return errSilent
	case <-h.ctx.Done():
	case <-h.closed:
	}
	return h.err()
}

func (h halt) sleep(d time.Duration) error {
	if err := h.wait(nil, now().add(d)); err != errSilent {
		return err
	}
	return nil
}

// timers are used many times: to make one costs more than all the rest of a request.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &timer{t}
}}

type timer struct{ *time.Timer }

func newTimer(d time.Duration) *timer {
	t, _ := timers.Get().(*timer)
	t.Reset(d)
	return t
}

func (t *timer) free() {
	t.Stop()
	timers.Put(t)
}

// A fate is told what became of questions that were not answered in time.
type fate interface {
	// unknown: nobody knows whether it was heard.
	unknown()
	// late: a server's answer came when nobody waited for it any more.
	late(reply Reply, err error)
	// left: it was asked on this line, and not answered.
	left(on *line)
	// bound: it was answered on this line, which the hold is bound to.
	bound(to *line)
}

type noMatter struct{}

func (noMatter) unknown()          {}
func (noMatter) late(Reply, error) {}
func (noMatter) left(*line)        {}
func (noMatter) bound(*line)       {}

// A call is a question on a line.
type call struct {
	fate  fate
	done  chan struct{}
	state atomic.Int32
	reply Reply
	err   error
}

const (
	isOpen int32 = iota
	isAnswered
	isGivenUp
)

func newCall(f fate) *call { return &call{fate: f, done: make(chan struct{})} }

func (c *call) arrive(reply Reply, err error) {
	if c.state.CompareAndSwap(isOpen, isAnswered) {
		c.reply, c.err = reply, err
		close(c.done)
	} else if err == nil || codeOf(err) != "" {
		c.fate.late(reply, err)
	}
}

// wait waits for the answer until then. What was not answered is the matter of the fate.
func (c *call) wait(h halt, limit moment, on *line) (Reply, error) {
	if err := h.wait(c.done, limit); err != nil && c.state.CompareAndSwap(isOpen, isGivenUp) {
		c.fate.left(on)
		return nil, err
	}
	<-c.done
	if c.err != nil && codeOf(c.err) == "" {
		c.fate.left(on)
	}
	return c.reply, c.err
}

// limits are how long to wait for each answer, and until when to ask.
type limits struct {
	each  time.Duration
	until moment
}

// next is until when to wait for the answer to what is asked now.
func (l limits) next(asked moment) moment { return min(asked.add(l.each), l.until) }

// A server answers questions about locks. There is one for a Backend, and one for a quorum of them.
type server interface {
	// once asks one time.
	once(h halt, asked moment, lim limits, c *claim, q question, f fate) (Reply, error)
	// acquire gets a lock, in a queue or by asking again and again. nil: others have it, and patience has ended.
	acquire(a *attempt) (*grant, error)
	isPlain() bool
	// learns says whether an error tells in which other words to ask.
	learns(err error) bool
	// moved is told that a server is not the one that grants locks.
	moved()
	told(err error) error
	close()
}

// An answer is a number, or nil, and when the try was made that was answered.
type answer struct {
	number int64
	isNil  bool
	asked  moment
	// isRepeated: an earlier try may have been heard too.
	isRepeated bool
}

// So often it is asked at once in other words.
const mostWords = 2

// ask asks until there is an answer or no more time. Every question may be asked twice: the same owner gets the same grant,
// and whoever is not the holder changes nothing.
func ask(s server, h halt, lim limits, c *claim, q question, f fate) (answer, error) {
	isRepeated := false
	for tries := 0; ; tries++ {
		if err := h.err(); err != nil {
			return answer{}, err
		}
		asked := now()
		reply, err := s.once(h, asked, lim, c, q, f)
		if err == nil {
			var came int64
			var isNil bool
			if came, isNil, err = number(reply); err == nil {
				return answer{came, isNil, asked, isRepeated}, nil
			}
		}
		means := judge(err)
		isStopped := errors.Is(err, errStopped)
		wasSent := !isUnsent(err)
		if wasSent && (isStopped || means == broken || errors.Is(err, errSurprise)) {
			f.unknown()
		}
		if isStopped {
			return answer{}, err
		}
		if s.learns(err) && tries < mostWords {
			continue
		}
		if means == refused {
			return answer{}, s.told(err)
		}
		if means == elsewhere {
			s.moved()
		}
		isRepeated = isRepeated || means == broken && wasSent
		resting := retry.after(tries)
		if lim.until.left() <= resting {
			return answer{}, s.told(err)
		}
		if err := h.sleep(resting); err != nil {
			return answer{}, err
		}
	}
}
