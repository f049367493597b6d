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
	clock   sync.Mutex
	// asleep is for how long the machine has been suspended, as far as was noticed.
	asleep time.Duration
)

func now() moment {
	clock.Lock()
	defer clock.Unlock()
	here := time.Now()
	fine := here.Sub(started)
	if ahead := time.Duration(here.UnixNano()-started.UnixNano()) - fine; ahead-asleep > jump {
		asleep = ahead
	}
	return moment(fine + asleep)
}
