package leasehold

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
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
	out        []byte
	isFlushing bool
	pending    []sink
}

// lastWords is how long a retired line stays open for a server that may read on.
const lastWords = time.Minute

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
	defer l.mu.Unlock()
	if life.Err() != nil {
		return context.Cause(life)
	}
	for _, each := range all {
		l.out = appendCommand(l.out, each.words)
		l.pending = append(l.pending, each.to)
	}
	if !l.isFlushing {
		l.isFlushing = true
		go l.flush()
	}
	return nil
}

// flush writes what there is, so that nobody who asks waits for the connection to take it.
func (l *line) flush() {
	for {
		l.mu.Lock()
		out := l.out
		l.out = nil
		l.isFlushing = len(out) > 0
		l.mu.Unlock()
		if len(out) == 0 {
			return
		}
		if _, err := l.conn.Write(out); err != nil {
			l.close(err)
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
