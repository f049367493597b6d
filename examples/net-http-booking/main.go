// A service that books the seats of a theatre: POST /seats/12A books a seat, and no seat is booked twice.
//
//	REDIS_URL=redis://127.0.0.1:6379 PORT=8080 go run .
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/go-redis/v9"
)

// grace is how long requests may take to end when the service is to stop.
const grace = 10 * time.Second

// A theatre may have several of these services, which share one server of locks and seats.
type theatre struct {
	redis *redis.Client
	locks *leasehold.Locks
	// authorize asks the bank for the price of the seat.
	authorize func(ctx context.Context, guest string) error
}

type booking struct {
	Seat  string `json:"seat"`
	Guest string `json:"guest"`
}

var errTaken = errors.New("the seat is taken")

func newTheatre(client *redis.Client) (*theatre, error) {
	// A guest waits for so long while others book the same seat.
	locks, err := leasehold.New(client, &leasehold.Settings{TTL: 10 * time.Second, Wait: 2 * time.Second})
	if err != nil {
		return nil, err
	}
	return &theatre{client, locks, func(ctx context.Context, _ string) error {
		select {
		case <-time.After(200 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}, nil
}

// book has the server store the guest only while this process holds the lock of the seat: one that was paused for longer than
// its lease changes nothing.
func (t *theatre) book(ctx context.Context, seat, guest string) error {
	// The braces keep lock and seat on one node of a cluster.
	key := "{seat:" + seat + "}"
	return t.locks.Do(ctx, key+":lock", func(ctx context.Context) error {
		lease, _ := leasehold.FromContext(ctx)
		if taken, err := t.redis.Exists(ctx, key).Result(); err != nil || taken > 0 {
			return errors.Join(err, errTaken)
		}
		if err := t.authorize(ctx, guest); err != nil {
			return err
		}
		_, err := lease.Guard(ctx, "SET", key, guest)
		return err
	})
}

func (t *theatre) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seat := r.PathValue("seat")
	var asked struct{ Guest string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Guest == "" {
		http.Error(w, "who is the guest?", http.StatusUnprocessableEntity)
		return
	}
	err := t.book(r.Context(), seat, asked.Guest)
	switch {
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(booking{seat, asked.Guest})
	case errors.Is(err, errTaken):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		// Others had the lock for too long, it was lost, no server answered, or this process ends.
		slog.Warn("not booked", "seat", seat, "error", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func routes(t *theatre) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /seats/{seat}", t)
	return mux
}

func run() error {
	url, port := os.Getenv("REDIS_URL"), os.Getenv("PORT")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	if port == "" {
		port = "8080"
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	t, err := newTheatre(client)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server := &http.Server{Addr: "127.0.0.1:" + port, Handler: routes(t), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	slog.Info("listening", "address", "http://"+server.Addr)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Requests end as they would. The locks of those that take longer are released.
	ending, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return errors.Join(server.Shutdown(ending), t.locks.Close(context.Background()))
}

func main() {
	if err := run(); err != nil {
		slog.Error("the service has ended", "error", err)
		os.Exit(1)
	}
}
