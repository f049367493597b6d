package leasehold

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// plainFor is for how long a server that had no module is taken to have none. It may have been replaced.
	plainFor = 10 * time.Second
	// dialsWithin is longer than any server needs that is there.
	dialsWithin = 5 * time.Second
	// mostLingering is how many silent lines to a server stay open at a time.
	mostLingering = 4
	// mostMoves is how often a question follows its lock to another node at once.
	mostMoves = 5
	// movedFor is for how long what a node has said counts more than what the client library knows.
	movedFor = 5 * time.Second
)

// A remote is the servers of a Backend, with a line to each.
type remote struct {
	backend  Backend
	isSingle bool
	settings *Settings
	places   *places
	// ctx ends when this is closed.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	lines map[string]*later[*line]
	// lingering are silent lines that are open still.
	lingering map[string][]*line
	moves     map[uint16]move
	failure   error

	// plain: no module, as far as is known; bare: no scripts for this user either.
	plain, bare spell
	// known are the scripts that the server has run.
	known sync.Map
}

type move struct {
	to    string
	until moment
}

func newRemote(backend Backend, settings *Settings) *remote {
	r := &remote{
		backend: backend, settings: settings,
		lines: map[string]*later[*line]{}, lingering: map[string][]*line{}, moves: map[uint16]move{},
	}
	_, r.isSingle = backend.(single)
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.places = newPlaces(r)
	return r
}

func (r *remote) isPlain() bool { return r.plain.isOn() }
func (r *remote) close()        { r.cancel(errHungUp) }

func (r *remote) learns(err error) bool {
	switch judge(err) {
	case unknownCommand:
		r.plain.begin(plainFor)
	case hasModule:
		r.plain.stop()
	case unknownScript:
		r.known.Clear()
	default:
		return false
	}
	return true
}

// trouble is what the last connection came to.
func (r *remote) trouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *remote) told(err error) error { return told(err, r.trouble()) }

// moved has the primary looked for: it is connected to anew.
func (r *remote) moved() {
	r.mu.Lock()
	opens := r.lines[""]
	r.mu.Unlock()
	if r.isSingle && opens != nil && isDone(opens.done) && opens.err == nil {
		opens.value.close(errHungUp)
	}
	r.backend.Moved(r.ctx)
}

func (r *remote) place(h halt, limit moment, key string) (string, error) {
	if r.isSingle {
		return "", nil
	}
	r.mu.Lock()
	if len(r.moves) > 0 {
		slot := SlotOf(key)
		if to, isKnown := r.moves[slot]; isKnown && now() < to.until {
			r.mu.Unlock()
			return to.to, nil
		}
		delete(r.moves, slot)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, limit.left())
	defer cancel()
	place, err := r.backend.Place(ctx, key)
	if err != nil && h.err() != nil {
		return "", h.err()
	}
	return place, err
}

// lineTo returns the line to a place, and opens it if there is none.
func (r *remote) lineTo(h halt, limit moment, place string) (*line, error) {
	r.mu.Lock()
	opens := r.lines[place]
	if opens == nil || isDone(opens.done) && (opens.err != nil || opens.value.usable.Err() != nil) {
		opens = begin(func() (*line, error) { return r.dialLine(place) })
		r.lines[place] = opens
	}
	r.mu.Unlock()
	return opens.wait(h, limit)
}

func (r *remote) dialLine(place string) (*line, error) {
	l, err := r.dial(place, r.places.hearOn, false)
	r.mu.Lock()
	r.failure = err
	if err != nil {
		maps.DeleteFunc(r.moves, func(_ uint16, to move) bool { return to.to == place })
	}
	r.mu.Unlock()
	if err != nil {
		r.backend.Moved(r.ctx)
	}
	return l, err
}

// dial opens a connection that ends with this client.
func (r *remote) dial(place string, tells func(*line, []Reply), isEar bool) (*line, error) {
	if r.ctx.Err() != nil {
		return nil, ErrClosed
	}
	ctx, cancel := context.WithTimeout(r.ctx, dialsWithin)
	defer cancel()
	at, err := r.backend.Endpoint(ctx, place)
	if err != nil {
		return nil, err
	}
	if isEar {
		at.Protocol = 2
	}
	return dial(ctx, r.ctx, place, at, tells, isEar)
}

// subscribe opens a connection on which nothing but messages come.
func (r *remote) subscribe(place, channel string, tells func(*line, []Reply)) (*line, error) {
	l, err := r.dial(place, tells, true)
	if err != nil {
		return nil, err
	}
	c := newCall(nil)
	if err = l.send(message{c, []string{"SUBSCRIBE", channel}}); err == nil {
		_, err = c.wait(halt{ctx: r.ctx}, now().add(dialsWithin), l)
	}
	if err != nil {
		l.close(errHungUp)
		return nil, err
	}
	return l, nil
}

// connect waits for a connection, and has it closed if it comes when nobody waits any more.
func (r *remote) connect(h halt, limit moment, opens func() (*line, error)) (*line, error) {
	opening := begin(opens)
	l, err := opening.wait(h, limit)
	if err != nil {
		go func() {
			if <-opening.done; opening.err == nil {
				opening.value.close(errHungUp)
			}
		}()
	}
	return l, err
}

// dedicated opens a connection of its own to the server of a key.
func (r *remote) dedicated(h halt, limit moment, key string) (*line, error) {
	place, err := r.place(h, limit, key)
	if err != nil {
		return nil, err
	}
	return r.connect(h, limit, func() (*line, error) { return r.dial(place, nil, false) })
}

// silent is told of a line on which an answer is overdue.
func (r *remote) silent(l *line) {
	r.mu.Lock()
	if l.usable.Err() != nil {
		r.mu.Unlock()
		return
	}
	l.retired(errRetired)
	lingering := append(r.lingering[l.place], l)
	var oldest *line
	if len(lingering) > mostLingering {
		oldest, lingering = lingering[0], lingering[1:]
	}
	r.lingering[l.place] = lingering
	r.mu.Unlock()
	l.retire()
	if oldest != nil {
		oldest.close(errSilent)
	}
	if !r.isSingle {
		r.backend.Moved(r.ctx)
	}
}

// lineFor returns the line to the server that has the key.
func (r *remote) lineFor(h halt, limit moment, key string) (*line, error) {
	place, err := r.place(h, limit, key)
	if err != nil {
		return nil, err
	}
	return r.lineTo(h, limit, place)
}

// do sends a command to the server that has the key, and follows the key when it moves. Without a line nothing was sent that
// was carried out.
func (r *remote) do(h halt, asked moment, lim limits, key string, f fate, words ...string) (Reply, *line, error) {
	limit := lim.next(asked)
	place, err := r.place(h, limit, key)
	if err != nil {
		return nil, nil, &unsent{err}
	}
	isAsking := false
	for moves := 0; ; moves++ {
		l, err := r.lineTo(h, limit, place)
		if err != nil {
			return nil, nil, &unsent{err}
		}
		c := newCall(f)
		if err := l.sendAsking(isAsking, c, words); err != nil {
			return nil, nil, &unsent{err}
		}
		reply, err := c.wait(h, limit, l)
		if err == errSilent && limit < lim.until {
			r.silent(l)
		}
		to, asks := r.redirected(key, place, err)
		if to == "" || moves == mostMoves {
			return reply, l, err
		}
		place, isAsking = to, asks
	}
}

// redirected reads MOVED and ASK, and remembers what was said.
func (r *remote) redirected(key, place string, err error) (to string, isAsking bool) {
	code := codeOf(err)
	if r.isSingle || code != "MOVED" && code != "ASK" {
		return "", false
	}
	var said ServerError
	errors.As(err, &said)
	words := strings.Fields(string(said))
	if len(words) != 3 {
		return "", false
	}
	to = words[2]
	// A node that does not know its own address means the one that it was asked at.
	if strings.HasPrefix(to, ":") {
		to = place[:max(0, strings.LastIndexByte(place, ':'))] + to
	}
	if code == "ASK" {
		return to, true
	}
	r.mu.Lock()
	r.moves[SlotOf(key)] = move{to, now().add(movedFor)}
	r.mu.Unlock()
	r.backend.Moved(r.ctx)
	return to, false
}

func (r *remote) once(h halt, asked moment, lim limits, c *claim, q question, f fate) (Reply, *line, error) {
	if r.isPlain() {
		reply, err := r.askPlainly(h, asked, lim, c, q, f)
		return reply, nil, err
	}
	return r.do(h, asked, lim, c.key, f, c.words(q)...)
}

// read asks for what changes nothing.
func (r *remote) read(h halt, key string, words ...string) (Reply, error) {
	until := now().add(r.settings.Within)
	for tries := 0; ; tries++ {
		reply, _, err := r.do(h, now(), limits{r.settings.Response, until}, key, nil, words...)
		resting := retry.after(tries)
		if means := judge(err); err == nil || means == refused || means == unknownCommand || until.left() <= resting {
			return reply, err
		}
		if err := h.sleep(resting); err != nil {
			return nil, err
		}
	}
}

// SlotOf returns the slot of a key in a cluster, for a [Backend] of your own: CRC-16 of XMODEM.
func SlotOf(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if size := strings.IndexByte(key[open+1:], '}'); size > 0 {
			key = key[open+1 : open+1+size]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
