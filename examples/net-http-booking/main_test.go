package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func open(t *testing.T) *redis.Client {
	socket := filepath.Join(t.TempDir(), "socket")
	program := os.Getenv("LEASEHOLD_SERVER")
	if program == "" {
		program = "redis-server"
	}
	server := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir(), "--loadmodule", os.Getenv("LEASEHOLD_MODULE"))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	client := redis.NewClient(&redis.Options{Addr: socket})
	t.Cleanup(func() { _ = client.Close() })
	for end := time.Now().Add(20 * time.Second); client.Ping(t.Context()).Err() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server does not answer")
		}
	}
	return client
}

func theatreAt(t *testing.T, client *redis.Client) (*theatre, string) {
	one, err := newTheatre(client)
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(routes(one))
	t.Cleanup(func() {
		service.Close()
		if err := one.locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return one, service.URL
}

func book(t *testing.T, url, seat, guest string) int {
	answer, err := http.Post(url+"/seats/"+seat, "application/json", strings.NewReader(`{"guest":"`+guest+`"}`))
	if err != nil {
		t.Error(err)
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func TestOneOfManyGuestsHasTheSeat(t *testing.T) {
	client := open(t)
	_, one := theatreAt(t, client)
	_, two := theatreAt(t, client)
	var group sync.WaitGroup
	codes := make([]int, 8)
	for at := range codes {
		group.Add(1)
		go func() {
			defer group.Done()
			codes[at] = book(t, []string{one, two}[at%2], "12A", "guest")
		}()
	}
	group.Wait()
	counts := map[int]int{}
	for _, code := range codes {
		counts[code]++
	}
	if counts[http.StatusCreated] != 1 || counts[http.StatusConflict] != 7 {
		t.Fatal(counts)
	}
	if book(t, one, "7F", "carla") != http.StatusCreated {
		t.Fatal("another seat is free")
	}
}

func TestWhoHasLostTheLockBooksNothing(t *testing.T) {
	client := open(t)
	one, url := theatreAt(t, client)
	one.authorize = func(ctx context.Context, _ string) error {
		// Somebody else has the lock by now.
		client.Del(ctx, "{seat:12A}:lock")
		return client.Do(ctx, "LOCK.ACQUIRE", "{seat:12A}:lock", "somebody", 60_000).Err()
	}
	if code := book(t, url, "12A", "anna"); code != http.StatusServiceUnavailable {
		t.Fatal(code)
	}
	if client.Exists(t.Context(), "{seat:12A}").Val() != 0 {
		t.Fatal("it is booked")
	}
}
