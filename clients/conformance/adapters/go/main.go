// The package for Go, as the driver of the conformance scenarios talks to it: one JSON object a line.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/go-redis/v9"
)

type object = map[string]any

// A request has the fields of all of them.
type request struct {
	ID       uint64          `json:"id"`
	Do       string          `json:"do"`
	URL      string          `json:"url"`
	Cluster  []string        `json:"cluster"`
	Quorum   []string        `json:"quorum"`
	Sentinel *sentinel       `json:"sentinel"`
	CA       string          `json:"ca"`
	Cert     string          `json:"certificate"`
	Key      string          `json:"key"`
	Settings *settings       `json:"settings"`
	Lease    string          `json:"lease"`
	Name     string          `json:"name"`
	NameHex  string          `json:"name_hex"`
	TTL      *int64          `json:"ttl"`
	Wait     *int64          `json:"wait"`
	Renew    json.RawMessage `json:"renew"`
	Least    *int64          `json:"hold_at_least"`
	Mode     string          `json:"mode"`
	Permits  int             `json:"permits"`
	Owner    *string         `json:"owner"`
	Also     []string        `json:"also"`
	Grace    *int64          `json:"ephemeral"`
	Replicas *int            `json:"replicas"`
	Within   int64           `json:"replicas_within"`
	Request  uint64          `json:"request"`
	For      int64           `json:"for"`
	By       int64           `json:"by"`
	Limit    int64           `json:"limit"`
	Text     string          `json:"text"`
	Result   any             `json:"result"`
	Error    *string         `json:"error"`
	Command  []string        `json:"command"`
	Name2    string          `json:"candidate"`
	Observer string          `json:"observer"`
}

type sentinel struct {
	URLs    []string `json:"urls"`
	Service string   `json:"service"`
}

type settings struct {
	TTL              int64  `json:"ttl"`
	Wait             int64  `json:"wait"`
	Response         int64  `json:"response"`
	Within           int64  `json:"within"`
	UnreachableAfter int64  `json:"unreachable_after"`
	Slice            int64  `json:"slice"`
	WaitConnections  int    `json:"wait_connections"`
	Queue            *bool  `json:"queue"`
	Prefix           string `json:"prefix"`
}

type program struct {
	locks  *leasehold.Locks
	quorum *leasehold.Quorum
	ends   []func() error
	isTold atomic.Bool

	mu     sync.Mutex
	leases map[string]*leasehold.Lease
	works  map[string]chan request
	waits  map[uint64]context.CancelCauseFunc

	out   sync.Mutex
	lines *json.Encoder
}

var errCancelled = errors.New("cancelled")

type workError string

func (e workError) Error() string { return string(e) }

func main() {
	p := &program{
		leases: map[string]*leasehold.Lease{}, works: map[string]chan request{}, waits: map[uint64]context.CancelCauseFunc{},
		lines: json.NewEncoder(os.Stdout),
	}
	p.lines.SetEscapeHTML(false)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	redis.SetLogger(quiet{})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		p.prepare(asked)
		go func() {
			ok, err := p.answer(asked)
			if err != nil {
				p.write(object{"id": asked.ID, "error": trouble(err)})
			} else {
				p.write(object{"id": asked.ID, "ok": ok})
			}
		}()
	}
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func (p *program) write(line object) {
	p.out.Lock()
	defer p.out.Unlock()
	_ = p.lines.Encode(line)
}

// prepare is done in the order of the requests.
func (p *program) prepare(r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Do == "run" {
		p.works[r.Lease] = make(chan request, 1)
	}
}

func (p *program) lease(id string) *leasehold.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leases[id]
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func (p *program) answer(r request) (any, error) {
	ctx := context.Background()
	lease := p.lease(r.Lease)
	switch r.Do {
	case "open":
		return object{}, p.open(r)
	case "acquire":
		return p.held(r.Lease)(p.asked(r, leasehold.Lock.Acquire))
	case "try":
		lease, err := p.asked(r, leasehold.Lock.TryAcquire)
		if errors.Is(err, leasehold.ErrBusy) {
			return object{"held": false}, nil
		}
		return p.held(r.Lease)(lease, err)
	case "run":
		return p.run(r)
	case "finish":
		p.mu.Lock()
		work := p.works[r.Lease]
		p.mu.Unlock()
		work <- r
		return object{}, nil
	case "cancel":
		p.mu.Lock()
		cancel := p.waits[r.Request]
		p.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
		return object{}, nil
	case "state":
		return state(lease), nil
	case "block":
		return p.block(r, lease)
	case "extend":
		return extended(lease.Extend(ctx, millis(*r.TTL)))
	case "extend_by":
		return extended(lease.ExtendBy(ctx, millis(r.By)))
	case "release", "resign":
		outcome, err := lease.Release(ctx)
		return object{"outcome": outcome}, err
	case "upgrade":
		err := lease.Upgrade(ctx)
		if errors.Is(err, leasehold.ErrBusy) {
			return object{"held": false}, nil
		}
		return granted(lease), err
	case "downgrade":
		err := lease.Downgrade(ctx)
		return granted(lease), err
	case "guard":
		words := make([]any, len(r.Command))
		for at, word := range r.Command {
			words[at] = word
		}
		reply, err := lease.Guard(ctx, words...)
		return object{"reply": reply}, err
	case "detach":
		return object{"text": lease.Detach().String()}, nil
	case "adopt":
		if p.quorum != nil {
			return p.held(r.Lease)(p.quorum.Adopt(ctx, r.Text))
		}
		return p.held(r.Lease)(p.locks.Adopt(ctx, r.Text))
	case "info":
		return p.info(ctx, r.Name)
	case "holders":
		holders, err := p.locks.Holders(ctx, r.Name)
		all := []object{}
		for _, each := range holders {
			all = append(all, object{"owner": each.Owner, "fence": strconv.FormatInt(each.Fence, 10)})
		}
		return all, err
	case "waiters":
		waiters, err := p.locks.Waiters(ctx, r.Name)
		all := []object{}
		for _, each := range waiters {
			all = append(all, object{"owner": each.Owner})
		}
		return all, err
	case "top":
		top, err := p.locks.Top(ctx, 10, "")
		all := []object{}
		for _, each := range top {
			all = append(all, object{"name": each.Name, "waits": each.Waits})
		}
		return all, err
	case "log":
		log, err := p.locks.Log(ctx, 10, "")
		all := []object{}
		for _, each := range log {
			all = append(all, object{"event": each.Event, "name": each.Name})
		}
		return all, err
	case "campaign":
		return p.held(r.Lease)(p.locks.Election(r.Name, r.Name2).Campaign(ctx, leasehold.TTL(millis(*r.TTL))))
	case "leader":
		leader, err := p.locks.Election(r.Name, "").Leader(ctx)
		if leader == nil || err != nil {
			return nil, err
		}
		return object{"candidate": leader.Candidate, "fence": strconv.FormatInt(leader.Fence, 10)}, nil
	case "observe":
		go func() {
			_ = p.locks.Election(r.Name, "").Observe(ctx, func(leader *leasehold.Leader) bool {
				told := object{"event": "leader", "observer": r.Observer, "candidate": nil, "fence": nil}
				if leader != nil {
					told["candidate"], told["fence"] = leader.Candidate, strconv.FormatInt(leader.Fence, 10)
				}
				p.write(told)
				return true
			})
		}()
		return object{}, nil
	case "events":
		p.isTold.Store(true)
		return object{}, nil
	case "close":
		return p.close(millis(r.Limit))
	}
	return nil, unsupported("there is no " + r.Do)
}

func (p *program) open(r request) error {
	var given settings
	if r.Settings != nil {
		given = *r.Settings
	}
	chosen := &leasehold.Settings{
		Prefix: given.Prefix, TTL: millis(given.TTL), Wait: millis(given.Wait), Response: millis(given.Response),
		Within: millis(given.Within), UnreachableAfter: millis(given.UnreachableAfter), Slice: millis(given.Slice),
		WaitConnections: given.WaitConnections, NoQueue: given.Queue != nil && !*given.Queue,
		OnEvent: func(event leasehold.Event) {
			if p.isTold.Load() {
				p.write(object{"event": "step", "step": event.Step, "name": event.Name})
			}
		},
	}
	if len(r.Quorum) > 0 {
		var clients []redis.UniversalClient
		for _, each := range r.Quorum {
			client, err := p.client(request{URL: each})
			if err != nil {
				return err
			}
			clients = append(clients, client)
		}
		var err error
		p.quorum, err = leasehold.NewQuorum(clients, chosen)
		return err
	}
	client, err := p.client(r)
	if err != nil {
		return err
	}
	p.locks, err = leasehold.New(client, chosen)
	return err
}

func (p *program) client(r request) (redis.UniversalClient, error) {
	hosts := func(urls []string) (all []string) {
		for _, each := range urls {
			if place, err := url.Parse(each); err == nil {
				all = append(all, place.Host)
			}
		}
		return all
	}
	var client redis.UniversalClient
	switch {
	case len(r.Cluster) > 0:
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: hosts(r.Cluster)})
	case r.Sentinel != nil:
		client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: r.Sentinel.Service, SentinelAddrs: hosts(r.Sentinel.URLs)})
	default:
		options, err := redis.ParseURL(r.URL)
		if err != nil {
			return nil, err
		}
		if options.TLSConfig != nil {
			if r.CA != "" {
				pem, err := os.ReadFile(r.CA)
				if err != nil {
					return nil, err
				}
				options.TLSConfig.RootCAs = x509.NewCertPool()
				options.TLSConfig.RootCAs.AppendCertsFromPEM(pem)
			}
			if r.Cert != "" {
				pair, err := tls.LoadX509KeyPair(r.Cert, r.Key)
				if err != nil {
					return nil, err
				}
				options.TLSConfig.Certificates = []tls.Certificate{pair}
			}
		}
		client = redis.NewClient(options)
	}
	p.ends = append(p.ends, client.Close)
	return client, nil
}

// lockOf is the lock that a request names, in its way.
func (p *program) lockOf(r request) leasehold.Lock {
	name := r.Name
	if r.NameHex != "" {
		bytes, _ := hex.DecodeString(r.NameHex)
		name = string(bytes)
	}
	switch {
	case p.quorum != nil:
		return p.quorum.Write(name)
	case len(r.Also) > 0:
		return p.locks.Several(append([]string{name}, r.Also...)...)
	case r.Mode == "read":
		return p.locks.Read(name)
	case r.Mode == "semaphore":
		return p.locks.Semaphore(name, r.Permits)
	}
	return p.locks.Write(name)
}

// begin returns the options of a request, and a context that cancel ends.
func (p *program) begin(r request) (context.Context, []leasehold.Option, func()) {
	var opts []leasehold.Option
	duration := func(ms *int64, option func(time.Duration) leasehold.Option) {
		if ms != nil {
			opts = append(opts, option(millis(*ms)))
		}
	}
	duration(r.TTL, leasehold.TTL)
	duration(r.Wait, leasehold.Wait)
	duration(r.Least, leasehold.HoldAtLeast)
	duration(r.Grace, leasehold.Ephemeral)
	if r.Owner != nil {
		opts = append(opts, leasehold.Owner(*r.Owner))
	}
	if limit, err := strconv.ParseInt(string(r.Renew), 10, 64); err == nil {
		opts = append(opts, leasehold.RenewFor(millis(limit)))
	} else if string(r.Renew) == "false" {
		opts = append(opts, leasehold.RenewFor(0))
	}
	if r.Replicas != nil {
		within := time.Second
		if r.Within > 0 {
			within = millis(r.Within)
		}
		opts = append(opts, leasehold.Replicas(*r.Replicas, within))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p.mu.Lock()
	p.waits[r.ID] = cancel
	p.mu.Unlock()
	return ctx, opts, func() {
		p.mu.Lock()
		delete(p.waits, r.ID)
		p.mu.Unlock()
	}
}

func (p *program) asked(r request, ask func(leasehold.Lock, context.Context, ...leasehold.Option) (*leasehold.Lease, error)) (*leasehold.Lease, error) {
	ctx, opts, end := p.begin(r)
	defer end()
	return ask(p.lockOf(r), ctx, opts...)
}

func (p *program) run(r request) (any, error) {
	ctx, opts, end := p.begin(r)
	defer end()
	p.mu.Lock()
	finish := p.works[r.Lease]
	p.mu.Unlock()
	var result any
	err := p.lockOf(r).Do(ctx, func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		p.keep(r.Lease, lease)
		p.write(object{"event": "working", "lease": r.Lease, "fence": strconv.FormatInt(lease.Fence(), 10)})
		done := <-finish
		result = done.Result
		if done.Error != nil {
			return workError(*done.Error)
		}
		return nil
	}, opts...)
	return object{"result": result}, err
}

func (p *program) held(id string) func(*leasehold.Lease, error) (any, error) {
	return func(lease *leasehold.Lease, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		p.keep(id, lease)
		return granted(lease), nil
	}
}

func granted(lease *leasehold.Lease) object {
	return object{
		"held": true, "fence": strconv.FormatInt(lease.Fence(), 10), "owner": lease.Owner(),
		"valid_for": lease.ValidFor().Milliseconds(),
	}
}

func (p *program) keep(id string, lease *leasehold.Lease) {
	p.mu.Lock()
	p.leases[id] = lease
	p.mu.Unlock()
	context.AfterFunc(lease.Context(), func() {
		p.write(object{"event": "lost", "lease": id, "loss": state(lease)["loss"]})
	})
}

func state(lease *leasehold.Lease) object {
	var loss any
	var lost *leasehold.LostError
	if lease.Context().Err() != nil && errors.As(lease.Err(), &lost) {
		loss = lost.Loss
	}
	return object{"valid_for": lease.ValidFor().Milliseconds(), "loss": loss}
}

// block stops the whole program: no goroutine runs meanwhile.
func (p *program) block(r request, lease *leasehold.Lease) (any, error) {
	wakes := exec.Command("sh", "-c", fmt.Sprintf("sleep %.3f; kill -CONT %d", millis(r.For).Seconds(), os.Getpid()))
	if err := wakes.Start(); err != nil {
		return nil, err
	}
	begun := time.Now()
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	// The signal may arrive a moment later.
	for time.Since(begun) < millis(r.For) {
	}
	found := state(lease)
	return found, wakes.Wait()
}

func extended(err error) (any, error) {
	switch {
	case err == nil:
		return object{"outcome": "extended"}, nil
	case errors.Is(err, leasehold.ErrLost):
		return object{"outcome": "lost"}, nil
	}
	return nil, err
}

func (p *program) info(ctx context.Context, name string) (any, error) {
	info, err := p.locks.Info(ctx, name)
	if err != nil || info == nil {
		return nil, err
	}
	var waiters any
	if info.Waiters >= 0 {
		waiters = info.Waiters
	}
	return object{
		"holder": info.Owner, "fence": strconv.FormatInt(info.Fence, 10), "holders": info.Holders, "waiters": waiters,
	}, nil
}

func (p *program) close(limit time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	if p.quorum != nil {
		err = p.quorum.Close(ctx)
	} else {
		err = p.locks.Close(ctx)
	}
	for _, end := range p.ends {
		_ = end()
	}
	left := []string{}
	var held *leasehold.HeldError
	if errors.As(err, &held) {
		left = held.Locks
	}
	return object{"left": left}, nil
}

type unsupported string

func (e unsupported) Error() string { return string(e) }

var kinds = []struct {
	of   error
	kind string
}{
	{errCancelled, "cancelled"},
	{leasehold.ErrUnanswered, "unanswered"},
	{leasehold.ErrBusy, "busy"},
	{leasehold.ErrClosed, "closed"},
	{leasehold.ErrTooLate, "too late"},
	{leasehold.ErrTooFewReplicas, "too few replicas"},
	{leasehold.ErrLost, "lost"},
	{leasehold.ErrSetting, "setting"},
	{leasehold.ErrUnreachable, "unreachable"},
	{leasehold.ErrNeedsModule, "needs the module"},
	{leasehold.ErrPermission, "not permitted"},
	{leasehold.ErrAuthentication, "wrong password"},
	{leasehold.ErrOutOfMemory, "out of memory"},
	{leasehold.ErrReadOnly, "read only"},
	{leasehold.ErrQueueFull, "queue full"},
	{leasehold.ErrWrongType, "wrong type"},
	{leasehold.ErrRefused, "refused"},
}

func trouble(err error) object {
	told := object{"kind": fmt.Sprintf("not of the package: %T", err), "code": "", "text": err.Error()}
	var work workError
	var missing unsupported
	var refused *leasehold.RefusedError
	if errors.As(err, &work) {
		told["kind"] = "work"
		return told
	}
	if errors.As(err, &missing) {
		told["kind"] = "unsupported"
		return told
	}
	for _, each := range kinds {
		if errors.Is(err, each.of) {
			told["kind"] = each.kind
			break
		}
	}
	if errors.As(err, &refused) {
		told["code"] = refused.Code
	}
	return told
}
