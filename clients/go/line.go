package leasehold

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
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
	// ear is that of this line, or of the one beside it that hears of grants. places owns it.
	ear *ear
	// tells is called with what comes unasked. isEar: nothing else comes, and in RESP2 it looks like answers.
	tells func(l *line, push []Reply)
	isEar bool

	mu         sync.Mutex
	out, spare []byte
	isFlushing bool
	// limited is when the limit for writes was set, by whoever writes.
	limited  time.Time
	pending  []sink
	head     int
	retired  error
	closed   error
	ends     map[*func()]struct{}
	onClosed func()
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

// dial opens a line to a server, and says there who it is.
func dial(ctx context.Context, place string, at Endpoint, tells func(*line, []Reply), isEar bool) (*line, error) {
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
	go l.read(reader)
	return l, nil
}

func (l *line) greet(ctx context.Context, reader *bufio.Reader, at Endpoint) error {
	username, password, err := at.credentials(ctx)
	if err != nil {
		return err
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
	if at.Protocol != 2 {
		hello := []string{"HELLO", "3"}
		if password != "" {
			hello = append(hello, "AUTH", orDefault(username), password)
		}
		if at.ClientName != "" {
			hello = append(hello, "SETNAME", at.ClientName)
		}
		err = say(hello...)
	}
	var refused ServerError
	isOld := errors.As(err, &refused) && (judge(err) == unknownCommand || codeOf(err) == "NOPROTO" || codeOf(err) == "NOPERM")
	if err != nil && !isOld {
		return err
	}
	if at.Protocol == 2 || isOld {
		l.protocol = 2
		switch {
		case password != "" && username != "":
			err = say("AUTH", username, password)
		case password != "":
			err = say("AUTH", password)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	if at.DB > 0 {
		return say("SELECT", strconv.Itoa(at.DB))
	}
	return nil
}

func orDefault(username string) string {
	if username == "" {
		return "default"
	}
	return username
}

// send asks on the line. With an error nothing was sent, and the sink is told nothing.
func (l *line) send(to sink, words ...string) error {
	l.mu.Lock()
	if l.retired != nil {
		defer l.mu.Unlock()
		return l.retired
	}
	return l.say(to, words)
}

// lastWord is said on a retired line, too.
func (l *line) lastWord(to sink, words ...string) error {
	l.mu.Lock()
	return l.say(to, words)
}

// sendAsking asks a node that the key is on its way to, which has to be told so each time; or another one.
func (l *line) sendAsking(isAsking bool, to sink, words []string) error {
	if isAsking {
		return l.sendBoth(sinkFunc(ignore), []string{"ASKING"}, to, words)
	}
	return l.send(to, words...)
}

// sendBoth asks two things with nothing in between.
func (l *line) sendBoth(first sink, one []string, second sink, other []string) error {
	l.mu.Lock()
	if l.retired != nil {
		defer l.mu.Unlock()
		return l.retired
	}
	if l.closed == nil {
		l.out = appendCommand(l.out, one)
		l.pending = append(l.pending, first)
	}
	return l.say(second, other)
}

// say is called with the lock, and gives it back.
func (l *line) say(to sink, words []string) error {
	if l.closed != nil {
		defer l.mu.Unlock()
		return l.closed
	}
	l.out = appendCommand(l.out, words)
	l.pending = append(l.pending, to)
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

// write is called with the lock by whoever has said that it writes, and gives both back.
func (l *line) write() {
	if !l.isSocket {
		l.mu.Unlock()
		go l.flush(nil)
		return
	}
	for len(l.out) > 0 && l.closed == nil {
		buf := l.out
		l.out, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		// To set it costs as much as all the rest.
		if here := time.Now(); here.Sub(l.limited) > writesAtOnce/2 {
			l.limited = here
			_ = l.conn.SetWriteDeadline(here.Add(writesAtOnce))
		}
		written, err := l.conn.Write(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			go l.flush(buf[written:])
			return
		}
		if err != nil {
			l.close(err)
		}
		l.mu.Lock()
		l.spare = buf[:0]
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
		if len(l.out) == 0 || l.closed != nil {
			l.isFlushing = false
			l.mu.Unlock()
			return
		}
		rest, l.out = l.out, nil
		l.mu.Unlock()
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
	if l.head == len(l.pending) {
		l.mu.Unlock()
		return false
	}
	to := l.pending[l.head]
	l.pending[l.head] = nil
	l.head++
	if l.head == len(l.pending) {
		l.pending, l.head = l.pending[:0], 0
	} else if l.head >= 1024 {
		l.pending = append(l.pending[:0], l.pending[l.head:]...)
		l.head = 0
	}
	l.mu.Unlock()
	if refused, isRefused := reply.(ServerError); isRefused {
		to.arrive(nil, refused)
	} else {
		to.arrive(reply, nil)
	}
	return true
}

// whenEnded tells when the line is of no more use, or at once if it is; until what this returns is called.
func (l *line) whenEnded(tell func()) (forget func()) {
	l.mu.Lock()
	if l.retired != nil || l.closed != nil {
		l.mu.Unlock()
		go tell()
		return func() {}
	}
	if l.ends == nil {
		l.ends = make(map[*func()]struct{})
	}
	l.ends[&tell] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		delete(l.ends, &tell)
		l.mu.Unlock()
	}
}

func (l *line) isUsable() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired == nil && l.closed == nil
}

func (l *line) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed != nil
}

// onClose is called once, when the connection is closed.
func (l *line) onClose(tell func()) {
	l.mu.Lock()
	isClosed := l.closed != nil
	l.onClosed = tell
	l.mu.Unlock()
	if isClosed {
		tell()
	}
}

// retire has nobody ask on the line any more.
func (l *line) retire() {
	l.end(errRetired, false)
	time.AfterFunc(lastWords, func() { l.close(errSilent) })
}

func (l *line) close(why error) {
	l.end(why, true)
	_ = l.conn.Close()
}

func (l *line) end(why error, closes bool) {
	l.mu.Lock()
	wasClosed := l.closed != nil
	if closes && !wasClosed {
		l.closed = why
	}
	var told []sink
	if !wasClosed {
		told = append(told, l.pending[l.head:]...)
	}
	if closes {
		l.pending, l.head, l.out = nil, 0, nil
	}
	wasUsable := l.retired == nil && !wasClosed
	if l.retired == nil {
		l.retired = why
	}
	var ends []func()
	if wasUsable {
		for tell := range l.ends {
			ends = append(ends, *tell)
		}
		l.ends = nil
	}
	var onClosed func()
	if closes && !wasClosed {
		onClosed = l.onClosed
	}
	l.mu.Unlock()
	if onClosed != nil {
		onClosed()
	}
	for _, to := range told {
		to.arrive(nil, why)
	}
	for _, tell := range ends {
		tell()
	}
}
