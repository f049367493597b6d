//go:build !linux

package leasehold

import (
	"sync"
	"time"
)

// jump is how much the clock on the wall may run ahead of the monotonic one before it is taken for a suspended machine.
// It may also be that somebody has set it: then leases are taken to end earlier than they do, which harms nobody.
const jump = 2 * time.Second

var (
	started = time.Now()
	asleep  struct {
		sync.Mutex
		time.Duration
	}
)

func now() moment {
	here := time.Now()
	fine := here.Sub(started)
	wall := here.Round(0).Sub(started.Round(0))
	asleep.Lock()
	defer asleep.Unlock()
	if wall-fine-asleep.Duration > jump {
		asleep.Duration = wall - fine
	}
	return moment(fine + asleep.Duration)
}
