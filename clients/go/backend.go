package leasehold

import (
	"context"
	"net"
)

// A Backend knows the servers that a client library is connected to. [New] has the one for go-redis; with one of your own,
// which [NewOn] takes, locks go over another library. The package opens its own connections: one to each server that has
// locks, and one beside it for messages where the server does not speak RESP3.
type Backend interface {
	// Place returns a name for the primary that has the key: the same for all keys of a server, and another for those of
	// another one.
	Place(ctx context.Context, key string) (string, error)

	// Endpoint returns how to connect to a place; or to an address that a server of a cluster has named.
	Endpoint(ctx context.Context, place string) (Endpoint, error)

	// Moved is told that a server has said that a key is elsewhere, or that it does not answer.
	Moved(ctx context.Context)
}

// An Endpoint is a server, and who a program is there.
type Endpoint struct {
	Dial func(ctx context.Context) (net.Conn, error)
	// Credentials returns the name of the user, which may be empty, and the password, which is empty if there is none. It may be
	// nil.
	Credentials func(ctx context.Context) (username, password string, err error)
	DB          int
	// Protocol is 2 for a server that does not speak RESP3. Unless it is, that is found out.
	Protocol   int
	ClientName string
}
