// Package rueidis has the locks of leasehold for programs that use rueidis instead of go-redis.
//
//	option := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}}
//	client, err := rueidis.NewClient(option)
//	locks, err := leaseholdrueidis.New(client, option, nil)
//
// The client says which servers there are, and who is the primary; the option says how to connect to them. A client does not
// tell its option, so both have to be given.
package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/rueidis"
)

// New returns locks on the servers of a client. Without settings the defaults hold.
func New(client rueidis.Client, option rueidis.ClientOption, settings *leasehold.Settings) (*leasehold.Locks, error) {
	return leasehold.NewOn(&backend{client: client, option: option, asking: make(chan struct{}, 1)}, settings)
}

type backend struct {
	client rueidis.Client
	option rueidis.ClientOption
	// asking has one who asks a cluster at a time. Others wait for it, and not longer than they want to.
	asking chan struct{}

	mu sync.Mutex
	// slots are the addresses of primaries by slot, as a cluster has told.
	slots   []string
	askedAt time.Time
}

// askedEvery is how often a cluster is asked at most.
const askedEvery = 100 * time.Millisecond

func (b *backend) Place(ctx context.Context, key string) (string, error) {
	if b.client.Mode() == rueidis.ClientModeCluster {
		return b.ofCluster(ctx, key)
	}
	var last error
	nodes := b.client.Nodes()
	for addr, node := range nodes {
		if len(nodes) == 1 && b.client.Mode() == rueidis.ClientModeStandalone {
			return addr, nil
		}
		role, err := node.Do(ctx, node.B().Role().Build()).ToArray()
		if err == nil && len(role) > 0 {
			if kind, _ := role[0].ToString(); kind == "master" {
				return addr, nil
			}
		}
		last = err
	}
	return "", errors.Join(errors.New("there is no primary"), last)
}

func (b *backend) ofCluster(ctx context.Context, key string) (string, error) {
	select {
	case b.asking <- struct{}{}:
		defer func() { <-b.asking }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	b.mu.Lock()
	slots := b.slots
	b.mu.Unlock()
	if slots == nil {
		asked := time.Now()
		var err error
		if slots, err = b.learn(ctx); err != nil {
			return "", err
		}
		b.mu.Lock()
		b.slots, b.askedAt = slots, asked
		b.mu.Unlock()
	}
	if addr := slots[leasehold.SlotOf(key)]; addr != "" {
		return addr, nil
	}
	b.Moved(ctx)
	return "", fmt.Errorf("no node has the slot of %q", key)
}

func (b *backend) learn(ctx context.Context) ([]string, error) {
	ranges, err := b.client.Do(ctx, b.client.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	slots := make([]string, 16384)
	for _, each := range ranges {
		parts, err := each.ToArray()
		if err != nil || len(parts) < 3 {
			return nil, errors.Join(errors.New("CLUSTER SLOTS has told something else"), err)
		}
		from, first := parts[0].ToInt64()
		to, second := parts[1].ToInt64()
		node, third := parts[2].ToArray()
		if err := errors.Join(first, second, third); err != nil || len(node) < 2 || from < 0 || to >= int64(len(slots)) {
			return nil, errors.Join(errors.New("CLUSTER SLOTS has told something else"), err)
		}
		host, _ := node[0].ToString()
		port, err := node[1].ToInt64()
		if err != nil {
			return nil, err
		}
		for slot := from; slot <= to; slot++ {
			slots[slot] = net.JoinHostPort(host, strconv.FormatInt(port, 10))
		}
	}
	return slots, nil
}

func (b *backend) Moved(context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.askedAt) > askedEvery {
		b.slots = nil
	}
}

func (b *backend) Endpoint(_ context.Context, addr string) (leasehold.Endpoint, error) {
	o := b.option
	return leasehold.Endpoint{
		Dial: func(ctx context.Context) (net.Conn, error) {
			dialer := o.Dialer
			switch {
			case o.DialCtxFn != nil:
				return o.DialCtxFn(ctx, addr, &dialer, o.TLSConfig)
			case o.TLSConfig != nil:
				return (&tls.Dialer{NetDialer: &dialer, Config: o.TLSConfig}).DialContext(ctx, "tcp", addr)
			}
			return dialer.DialContext(ctx, "tcp", addr)
		},
		Credentials: func(context.Context) (username, password string, err error) {
			if o.AuthCredentialsFn == nil {
				return o.Username, o.Password, nil
			}
			given, err := o.AuthCredentialsFn(rueidis.AuthCredentialsContext{})
			return given.Username, given.Password, err
		},
		DB:         o.SelectDB,
		ClientName: o.ClientName,
	}, nil
}
