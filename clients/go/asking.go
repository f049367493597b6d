package leasehold

import (
	"context"
	"errors"
	"fmt"
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
	if isDone(done) {
		return nil
	}
	t := time.NewTimer(limit.left())
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-t.C:
		return errSilent
	case <-h.ctx.Done():
	case <-h.closed:
	}
	if isDone(done) {
		return nil
	}
	return h.err()
}

func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func (h halt) sleep(d time.Duration) error {
	if err := h.wait(nil, now().add(d)); err != errSilent {
		return err
	}
	return nil
}

// A later is what a function comes to that does not end with the halt of those who wait for it.
type later[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func begin[T any](do func() (T, error)) *later[T] {
	l := &later[T]{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.value, l.err = do()
	}()
	return l
}

func (l *later[T]) wait(h halt, limit moment) (T, error) {
	if err := h.wait(l.done, limit); err != nil {
		var none T
		return none, err
	}
	return l.value, l.err
}

// A fate is told what became of questions that were not answered in time. It may be nil.
type fate interface {
	// left: it was asked on this line, if that is known, and nobody knows whether it was heard.
	left(on *line)
	// late: a server's answer came when nobody waited for it any more.
	late(reply Reply, err error)
}

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
	} else if c.fate != nil && (err == nil || codeOf(err) != "") {
		c.fate.late(reply, err)
	}
}

// wait waits for the answer until then. What was not answered is the matter of the fate.
func (c *call) wait(h halt, limit moment, on *line) (Reply, error) {
	if err := h.wait(c.done, limit); err != nil && c.state.CompareAndSwap(isOpen, isGivenUp) {
		c.left(on)
		return nil, err
	}
	<-c.done
	if c.err != nil && codeOf(c.err) == "" {
		c.left(on)
	}
	return c.reply, c.err
}

func (c *call) left(on *line) {
	if c.fate != nil {
		c.fate.left(on)
	}
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
	// once asks one time, and says on which line, if there was one.
	once(h halt, asked moment, lim limits, c *claim, q question, f fate) (Reply, *line, error)
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

// An answer is a number, or nil.
type answer struct {
	number int64
	isNil  bool
	// asked is when the try was made that was answered, and on where.
	asked moment
	on    *line
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
		reply, on, err := s.once(h, asked, lim, c, q, f)
		if err == nil {
			came := answer{asked: asked, on: on, isRepeated: isRepeated}
			if came.number, came.isNil, err = number(reply); err == nil {
				return came, nil
			}
			if f != nil {
				f.left(on)
			}
		}
		if errors.Is(err, errStopped) {
			return answer{}, err
		}
		if s.learns(err) && tries < mostWords {
			continue
		}
		means := judge(err)
		if means == refused {
			return answer{}, s.told(err)
		}
		if means == elsewhere {
			s.moved()
		}
		isRepeated = isRepeated || means == broken && !isUnsent(err)
		resting := retry.after(tries)
		if lim.until.left() <= resting {
			return answer{}, s.told(err)
		}
		if err := h.sleep(resting); err != nil {
			return answer{}, err
		}
	}
}
