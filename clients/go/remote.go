package leasehold

import (
	"context"
	"errors"
	"maps"
	"slices"
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

	mu       sync.Mutex
	spots    map[string]*spot
	open     map[*line]struct{}
	moves    map[uint16]move
	failure  error
	isClosed bool
	ctx      context.Context
	cancel   context.CancelFunc

	// plain: no module, as far as is known; bare: no scripts for this user either.
	plain, bare spell
	// known are the scripts that the server has run.
	known sync.Map
}

// A spot is a server, with the line to it.
type spot struct {
	line      *line
	opening   *opening
	lingering []*line
}

type opening struct {
	done chan struct{}
	line *line
	err  error
}

type move struct {
	to    string
	until moment
}

func newRemote(backend Backend, settings *Settings) *remote {
	r := &remote{
		backend: backend, settings: settings,
		spots: map[string]*spot{}, open: map[*line]struct{}{}, moves: map[uint16]move{},
	}
	_, r.isSingle = backend.(single)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.places = newPlaces(r)
	return r
}

func (r *remote) isPlain() bool { return r.plain.isOn() }

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

func (r *remote) told(err error) error {
	r.mu.Lock()
	failure := r.failure
	r.mu.Unlock()
	return told(err, failure)
}

// moved has the primary looked for: all lines are opened anew.
func (r *remote) moved() {
	r.mu.Lock()
	var lines []*line
	for _, spot := range r.spots {
		if spot.line != nil && r.isSingle {
			lines = append(lines, spot.line)
			spot.line = nil
		}
	}
	r.mu.Unlock()
	for _, l := range lines {
		l.close(errHungUp)
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
	if r.isClosed {
		r.mu.Unlock()
		return nil, ErrClosed
	}
	at := r.spots[place]
	if at == nil {
		at = &spot{}
		r.spots[place] = at
	}
	if at.line != nil && at.line.isUsable() {
		defer r.mu.Unlock()
		return at.line, nil
	}
	opens := at.opening
	if opens == nil {
		opens = &opening{done: make(chan struct{})}
		at.opening = opens
		go r.dialLine(place, at, opens)
	}
	r.mu.Unlock()
	if err := h.wait(opens.done, limit); err != nil {
		return nil, err
	}
	return opens.line, opens.err
}

func (r *remote) dialLine(place string, at *spot, opens *opening) {
	opens.line, opens.err = r.dial(place, r.places.hear, false)
	r.mu.Lock()
	at.line, at.opening = opens.line, nil
	r.failure = opens.err
	if opens.err != nil {
		for slot, to := range r.moves {
			if to.to == place {
				delete(r.moves, slot)
			}
		}
	}
	r.mu.Unlock()
	if opens.err != nil {
		r.backend.Moved(r.ctx)
	}
	close(opens.done)
}

// dial opens a connection that ends with this client.
func (r *remote) dial(place string, tells func(*line, []Reply), isEar bool) (*line, error) {
	ctx, cancel := context.WithTimeout(r.ctx, dialsWithin)
	defer cancel()
	at, err := r.backend.Endpoint(ctx, place)
	if err != nil {
		return nil, err
	}
	if isEar {
		at.Protocol = 2
	}
	l, err := dial(ctx, place, at, tells, isEar)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	if r.isClosed {
		r.mu.Unlock()
		l.close(errHungUp)
		return nil, ErrClosed
	}
	r.open[l] = struct{}{}
	r.mu.Unlock()
	l.onClose(func() {
		r.mu.Lock()
		delete(r.open, l)
		r.mu.Unlock()
	})
	return l, nil
}

// silent is told of a line on which an answer is overdue.
func (r *remote) silent(l *line) {
	r.mu.Lock()
	at := r.spots[l.place]
	if at == nil || at.line != l {
		r.mu.Unlock()
		return
	}
	at.line = nil
	at.lingering = append(at.lingering, l)
	var oldest *line
	if len(at.lingering) > mostLingering {
		oldest, at.lingering = at.lingering[0], at.lingering[1:]
	}
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

func (r *remote) once(h halt, asked moment, lim limits, c *claim, q question, f fate) (Reply, error) {
	if r.isPlain() {
		return r.askPlainly(h, asked, lim, c, q, f)
	}
	reply, l, err := r.do(h, asked, lim, c.key, f, c.words(q)...)
	if err == nil && c.binds(q) {
		f.bound(l)
	}
	return reply, err
}

// read asks for what changes nothing.
func (r *remote) read(h halt, key string, words ...string) (Reply, error) {
	until := now().add(r.settings.Within)
	for tries := 0; ; tries++ {
		reply, _, err := r.do(h, now(), limits{r.settings.Response, until}, key, noMatter{}, words...)
		resting := retry.after(tries)
		if means := judge(err); err == nil || means == refused || means == unknownCommand || until.left() <= resting {
			return reply, err
		}
		if err := h.sleep(resting); err != nil {
			return nil, err
		}
	}
}

// dedicated opens a connection of its own to the server of a key.
func (r *remote) dedicated(h halt, limit moment, key string) (*line, error) {
	place, err := r.place(h, limit, key)
	if err != nil {
		return nil, err
	}
	opens := opening{done: make(chan struct{})}
	go func() {
		opens.line, opens.err = r.dial(place, nil, false)
		close(opens.done)
	}()
	if err = h.wait(opens.done, limit); err == nil {
		return opens.line, opens.err
	}
	go func() {
		if <-opens.done; opens.line != nil {
			opens.line.close(errHungUp)
		}
	}()
	return nil, err
}

func (r *remote) close() {
	r.mu.Lock()
	r.isClosed = true
	lines := slices.Collect(maps.Keys(r.open))
	r.mu.Unlock()
	r.cancel()
	r.places.close()
	for _, l := range lines {
		l.close(errHungUp)
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
