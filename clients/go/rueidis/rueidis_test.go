package rueidis_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	leaseholdrueidis "example.org/leasehold/clients/go/rueidis"
	"github.com/redis/rueidis"
)

func TestLocksOverRueidis(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	program := os.Getenv("LEASEHOLD_SERVER")
	if program == "" {
		program = "redis-server"
	}
	server := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir(), "--loadmodule", os.Getenv("LEASEHOLD_MODULE"),
		"--requirepass", "secret")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	option, err := rueidis.ParseURL("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	option.Password, option.SelectDB, option.ForceSingleClient = "secret", 3, true
	var client rueidis.Client
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if client, err = rueidis.NewClient(option); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
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
