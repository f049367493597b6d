package leasehold

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// A sink is told what became of a command: once, and once more if an answer comes after the line has been given up.
// It is told by whoever reads from the connection, and so does not wait for anything.
type sink interface {
	arrive(reply Reply, err error)
}

type sinkFunc func(reply Reply, err error)

func (f sinkFunc) arrive(reply Reply, err error) { f(reply, err) }

func ignore(Reply, error) {}

// A message is a command on its way, and who is told what becomes of it.
type message struct {
	to    sink
	words []string
}

// A line is a connection to one server, on which many ask at the same time. Answers come in the order of the questions.
//
// A line on which an answer is overdue is retired: nobody asks on it any more, but it stays open for last words. A request
// that a silent server has not read yet is so followed by its release: whenever the server goes on, nothing stays behind.
type line struct {
	conn     net.Conn
	place    string
	protocol int
	// isSocket: whoever asks writes by himself, for some time. A connection of another kind may not know limits, or ends when a
	// write is given up, as an encrypted one does.
	isSocket bool
	// ear is what hears of the grants that are asked for on this line. places owns it.
	ear *ear
	// tells is called with what comes unasked. isEar: nothing else comes, and in RESP2 it looks like answers.
	tells func(l *line, push []Reply)
	isEar bool
	// usable ends when nobody is to ask on it any more, and open when it is closed. Their causes say why.
	usable, open context.Context
	retired      context.CancelCauseFunc
	close        context.CancelCauseFunc

	mu         sync.Mutex
	out, spare []byte
	isFlushing bool
	// limited is when the limit for writes was set, by whoever writes.
	limited time.Time
	pending []sink
}

const (
	// lastWords is how long a retired line stays open for a server that may read on.
	lastWords = time.Minute
	// writesAtOnce is how long a caller writes by itself. What the connection does not take by then is written by another.
	writesAtOnce = 100 * time.Millisecond
)

var (
	errSilent  = errors.New("no answer in time")
	errRetired = errors.New("the connection has fallen silent")
	errHungUp  = errors.New("the connection was closed")
)

// dial opens a line to a server, and says there who it is. The line is closed when life ends.
func dial(ctx, life context.Context, place string, at Endpoint, tells func(*line, []Reply), isEar bool) (*line, error) {
	conn, err := at.Dial(ctx)
	if err != nil {
		return nil, err
	}
	// Whatever happens meanwhile ends the connection. What a dialer of the program has made may not know of deadlines.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	l := &line{conn: conn, place: place, protocol: 3, tells: tells, isEar: isEar}
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		l.isSocket = true
	}
	reader := bufio.NewReaderSize(conn, 16<<10)
	err = l.greet(ctx, reader, at)
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	l.open, l.close = context.WithCancelCause(life)
	l.usable, l.retired = context.WithCancelCause(l.open)
	context.AfterFunc(l.open, l.closed)
	go l.read(reader)
	return l, nil
}

func (l *line) greet(ctx context.Context, reader *bufio.Reader, at Endpoint) (err error) {
	var username, password string
	if at.Credentials != nil {
		if username, password, err = at.Credentials(ctx); err != nil {
			return err
		}
	}
	say := func(words ...string) error {
		if _, err := l.conn.Write(appendCommand(nil, words)); err != nil {
			return err
		}
		reply, _, err := readReply(reader)
		if refused, isRefused := reply.(ServerError); isRefused {
			return refused
		}
		return err
	}
	isOld := at.Protocol == 2
	if !isOld {
		hello := []string{"HELLO", "3"}
		if password != "" {
			hello = append(hello, "AUTH", cmp.Or(username, "default"), password)
		}
		if at.ClientName != "" {
			hello = append(hello, "SETNAME", at.ClientName)
		}
		err = say(hello...)
		isOld = judge(err) == unknownCommand || codeOf(err) == "NOPROTO" || codeOf(err) == "NOPERM"
		if err != nil && !isOld {
			return err
		}
	}
	if isOld {
		l.protocol = 2
		auth := []string{"AUTH", username, password}
		if username == "" {
			auth = []string{"AUTH", password}
		}
		if password != "" {
			if err = say(auth...); err != nil {
				return err
			}
		}
	}
	if at.DB > 0 {
		return say("SELECT", strconv.Itoa(at.DB))
	}
	return nil
}

// send asks with nothing in between. With an error nothing was sent, and nobody is told anything.
func (l *line) send(all ...message) error { return l.sendWhile(l.usable, all) }

// lastWord is said on a retired line, too.
func (l *line) lastWord(to sink, words []string) error {
	return l.sendWhile(l.open, []message{{to, words}})
}

// sendAsking asks a node that the key is on its way to, which has to be told so each time; or another one.
func (l *line) sendAsking(isAsking bool, to sink, words []string) error {
	if isAsking {
		return l.send(message{sinkFunc(ignore), []string{"ASKING"}}, message{to, words})
	}
	return l.send(message{to, words})
}

func (l *line) sendWhile(life context.Context, all []message) error {
	l.mu.Lock()
	if life.Err() != nil {
		l.mu.Unlock()
		return context.Cause(life)
	}
	for _, each := range all {
		l.out = appendCommand(l.out, each.words)
		l.pending = append(l.pending, each.to)
	}
	if l.isFlushing {
		l.mu.Unlock()
		return nil
	}
	l.isFlushing = true
	l.write()
	return nil
}

// together has what is sent meanwhile go out at once.
func (l *line) together(send func()) {
	l.mu.Lock()
	isFirst := !l.isFlushing
	l.isFlushing = true
	l.mu.Unlock()
	send()
	if isFirst {
		l.mu.Lock()
		l.write()
	}
}

// write is called with the lock by whoever has said that it writes, and gives both back. To hand what there is to another
// goroutine costs a tenth of all that a lock costs.
func (l *line) write() {
	if !l.isSocket {
		l.mu.Unlock()
		go l.flush(nil)
		return
	}
	for len(l.out) > 0 {
		out := l.out
		l.out, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		// To set it costs as much as all the rest.
		if here := time.Now(); here.Sub(l.limited) > writesAtOnce/2 {
			l.limited = here
			_ = l.conn.SetWriteDeadline(here.Add(writesAtOnce))
		}
		written, err := l.conn.Write(out)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			go l.flush(out[written:])
			return
		}
		if err != nil {
			l.close(err)
		}
		l.mu.Lock()
		l.spare = out[:0]
	}
	l.isFlushing = false
	l.mu.Unlock()
}

// flush writes without anybody waiting for it.
func (l *line) flush(rest []byte) {
	if l.isSocket {
		l.limited = time.Time{}
		_ = l.conn.SetWriteDeadline(time.Time{})
	}
	for {
		if len(rest) > 0 {
			if _, err := l.conn.Write(rest); err != nil {
				l.close(err)
			}
		}
		l.mu.Lock()
		rest, l.out = l.out, nil
		l.isFlushing = len(rest) > 0
		l.mu.Unlock()
		if len(rest) == 0 {
			return
		}
	}
}

func (l *line) read(reader *bufio.Reader) {
	for {
		reply, isPush, err := readReply(reader)
		if err != nil {
			l.close(err)
			return
		}
		if list, isList := reply.([]Reply); isList && len(list) > 0 && (isPush || l.isEar) {
			if list[0] == "subscribe" {
				l.answered(nil)
			} else if l.tells != nil {
				l.tells(l, list)
			}
			continue
		}
		if isPush {
			continue
		}
		if !l.answered(reply) {
			l.close(errProtocol)
			return
		}
	}
}

func (l *line) answered(reply Reply) bool {
	l.mu.Lock()
	if len(l.pending) == 0 {
		l.mu.Unlock()
		return false
	}
	to := l.pending[0]
	l.pending[0] = nil
	l.pending = l.pending[1:]
	l.mu.Unlock()
	if refused, isRefused := reply.(ServerError); isRefused {
		to.arrive(nil, refused)
	} else {
		to.arrive(reply, nil)
	}
	return true
}

// retire has nobody ask on the line any more.
func (l *line) retire() {
	l.retired(errRetired)
	l.mu.Lock()
	pending := slices.Clone(l.pending)
	l.mu.Unlock()
	for _, to := range pending {
		to.arrive(nil, errRetired)
	}
	time.AfterFunc(lastWords, func() { l.close(errSilent) })
}

func (l *line) closed() {
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, to := range pending {
		to.arrive(nil, context.Cause(l.open))
	}
	// That of an encrypted connection may wait.
	_ = l.conn.Close()
}
