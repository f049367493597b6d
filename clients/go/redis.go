package leasehold

import (
	"context"
	"net"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// backendOf returns the servers of a client of go-redis. A Ring is refused: a key that it has elsewhere when a shard is down
// would be locked twice.
func backendOf(client redis.UniversalClient) (Backend, error) {
	switch client := client.(type) {
	case *redis.Client:
		return single{client}, nil
	case *redis.ClusterClient:
		return cluster{client}, nil
	case *redis.Ring:
		return nil, &SettingError{"client", "a Ring moves keys to other shards while one is down, and so locks them twice"}
	}
	return nil, &SettingError{"client", "it must be a *redis.Client or a *redis.ClusterClient"}
}

// One server, or the primary that Sentinels name: the dialer of the client finds it.
type single struct{ *redis.Client }

func (s single) Place(context.Context, string) (string, error) { return "", nil }

func (s single) Endpoint(context.Context, string) (Endpoint, error) {
	return endpointOf(s.Options(), s.Options().Addr), nil
}

func (s single) Moved(context.Context) {}

type cluster struct{ *redis.ClusterClient }

func (c cluster) Place(ctx context.Context, key string) (string, error) {
	// The library does not look at the context while it asks which nodes there are.
	looks := begin(func() (string, error) {
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return "", err
		}
		return node.Options().Addr, nil
	})
	select {
	case <-looks.done:
		return looks.value, looks.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (c cluster) Endpoint(_ context.Context, addr string) (Endpoint, error) {
	from := c.Options()
	options := &redis.Options{
		Network: "tcp", Addr: addr, Dialer: from.Dialer, Protocol: from.Protocol, Username: from.Username, Password: from.Password,
		CredentialsProvider: from.CredentialsProvider, CredentialsProviderContext: from.CredentialsProviderContext,
		StreamingCredentialsProvider: from.StreamingCredentialsProvider, ClientName: from.ClientName,
		DialTimeout: from.DialTimeout, TLSConfig: from.TLSConfig, MaxRetries: -1, PoolSize: 1,
	}
	// As the library makes a client for each node.
	if from.NewClient != nil {
		node := from.NewClient(options)
		defer func() { _ = node.Close() }()
		options = node.Options()
	}
	return endpointOf(options, addr), nil
}

func (c cluster) Moved(ctx context.Context) { c.ReloadState(ctx) }

func endpointOf(from *redis.Options, addr string) Endpoint {
	dial := from.Dialer
	if dial == nil {
		dial = redis.NewDialer(from)
	}
	return Endpoint{
		Dial: func(ctx context.Context) (net.Conn, error) { return dial(ctx, from.Network, addr) },
		Credentials: func(ctx context.Context) (username, password string, err error) {
			switch {
			case from.StreamingCredentialsProvider != nil:
				credentials, cancel, err := from.StreamingCredentialsProvider.Subscribe(deaf{})
				if err != nil {
					return "", "", err
				}
				username, password = credentials.BasicAuth()
				return username, password, cancel()
			case from.CredentialsProviderContext != nil:
				return from.CredentialsProviderContext(ctx)
			case from.CredentialsProvider != nil:
				username, password = from.CredentialsProvider()
				return username, password, nil
			}
			return from.Username, from.Password, nil
		},
		DB:         from.DB,
		Protocol:   from.Protocol,
		ClientName: from.ClientName,
	}
}

// deaf asks for credentials once: a connection that is opened later asks again.
type deaf struct{}

func (deaf) OnNext(auth.Credentials) {}
func (deaf) OnError(error)           {}
