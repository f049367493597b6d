package rueidis_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	leaseholdrueidis "example.org/leasehold/clients/go/rueidis"
	"github.com/redis/rueidis"
)

func TestLocksOverRueidis(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	start(t, "--port", "0", "--unixsocket", socket, "--requirepass", "secret")
	option, err := rueidis.ParseURL("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	option.Password, option.SelectDB, option.ForceSingleClient = "secret", 3, true
	var client rueidis.Client
	eventually(t, func() (err error) {
		client, err = rueidis.NewClient(option)
		return err
	})
	defer client.Close()
	locks, err := leaseholdrueidis.New(client, option, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	first, err := locks.Acquire(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		waited <- locks.Do(ctx, "x", func(context.Context) error { return nil })
	}()
	if held, err := client.Do(ctx, client.B().Exists().Key("x").Build()).ToInt64(); held != 1 || err != nil {
		t.Fatal(held, err)
	}
	if _, err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if err := locks.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAWaitForTheNodesOfAClusterEndsWithItsContext(t *testing.T) {
	port := freePort(t)
	server := start(t, "--port", port, "--cluster-port", freePort(t), "--cluster-enabled", "yes")
	option := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:" + port}}
	ctx := t.Context()
	var client rueidis.Client
	eventually(t, func() (err error) {
		if client, err = rueidis.NewClient(option); err == nil {
			err = client.Do(ctx, client.B().ClusterAddslotsrange().StartSlotEndSlot().StartSlotEndSlot(0, 16383).Build()).Error()
		}
		return err
	})
	defer client.Close()
	locks, err := leaseholdrueidis.New(client, option, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	for range 3 {
		go func() { _, _ = locks.Acquire(ending, "x") }()
	}
	for range 5 {
		short, end := context.WithTimeout(ctx, 50*time.Millisecond)
		begun := time.Now()
		_, err := locks.Acquire(short, "x")
		if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 500*time.Millisecond {
			t.Error(err, took)
		}
		end()
	}
	cancel()
	_ = locks.Close(ctx)
}

func freePort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func start(t *testing.T, words ...string) *exec.Cmd {
	program := os.Getenv("LEASEHOLD_SERVER")
	if program == "" {
		program = "redis-server"
	}
	server := exec.Command(program, append([]string{"--save", "", "--dir", t.TempDir(), "--loadmodule", os.Getenv("LEASEHOLD_MODULE")}, words...)...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	return server
}

func eventually(t *testing.T, try func() error) {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
