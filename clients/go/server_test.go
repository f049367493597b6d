package leasehold_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	leasehold "example.org/leasehold/clients/go"
	"github.com/redis/go-redis/v9"
)

// Real servers: LEASEHOLD_MODULE names the module to load, LEASEHOLD_SERVER the server to run.

// addr is that of a server for the examples.
var addr string

const patience = 20 * time.Second

type server struct {
	addr    string
	dir     string
	words   []string
	process *exec.Cmd
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		slog.SetDefault(slog.New(slog.DiscardHandler))
		module := os.Getenv("LEASEHOLD_MODULE")
		if module == "" {
			fmt.Println("LEASEHOLD_MODULE must name libleasehold.so")
			return 1
		}
		s, err := start("--loadmodule", module)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer s.stop()
		addr = s.addr
		return m.Run()
	}())
}

func start(words ...string) (*server, error) {
	dir, err := os.MkdirTemp("", "leasehold-go-")
	if err != nil {
		return nil, err
	}
	// A socket in a directory of its own: a port that is free now may be another's in a moment.
	s := &server{addr: filepath.Join(dir, "socket"), dir: dir}
	s.words = append([]string{"--port", "0", "--unixsocket", s.addr, "--dir", dir, "--save", "", "--logfile", filepath.Join(dir, "log")}, words...)
	return s, s.run()
}

func (s *server) run() error {
	program := os.Getenv("LEASEHOLD_SERVER")
	if program == "" {
		program = "redis-server"
	}
	s.process = exec.Command(program, s.words...)
	if err := s.process.Start(); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	defer func() { _ = client.Close() }()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := client.Ping(context.Background()).Err()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (s *server) kill() {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}

func (s *server) stop() {
	s.kill()
	_ = os.RemoveAll(s.dir)
}

// A scene is a server with the module, a client for what the test does, and locks.
type scene struct {
	*testing.T
	server *server
	redis  *redis.Client
	ctx    context.Context
}

func newScene(t *testing.T, words ...string) *scene {
	return sceneOf(t, append([]string{"--loadmodule", os.Getenv("LEASEHOLD_MODULE")}, words...)...)
}

func sceneOf(t *testing.T, words ...string) *scene {
	t.Parallel()
	s, err := start(words...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = client.Close() })
	return &scene{t, s, client, t.Context()}
}

func (s *scene) locks(settings *leasehold.Settings) *leasehold.Locks {
	s.Helper()
	return s.locksOn(&redis.Options{Addr: s.server.addr}, settings)
}

func (s *scene) locksOn(options *redis.Options, settings *leasehold.Settings) *leasehold.Locks {
	s.Helper()
	client := redis.NewClient(options)
	locks, err := leasehold.New(client, settings)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = locks.Close(context.Background())
		_ = client.Close()
	})
	return locks
}

func (s *scene) eventually(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("it has not come: " + what)
		}
	}
}

// waiters is how many wait for a lock.
func (s *scene) waiters(name string) int {
	reply, _ := s.redis.Do(s.ctx, "LOCK.WAITERS", name, "COUNT", "-1").Slice()
	return len(reply)
}

func (s *scene) isHeld(name string) bool { return s.redis.Exists(s.ctx, name).Val() == 1 }

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// A journal is what a logger was told.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(line)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.buf.String(), text)
}

func logged() (*slog.Logger, *journal) {
	var all journal
	return slog.New(slog.NewTextHandler(&all, nil)), &all
}
