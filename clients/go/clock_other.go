//go:build !linux

package leasehold

import "time"

// asleep is how much longer the machine has been suspended than it takes to be noticed.
var asleep time.Duration

// jump is how much the clock on the wall may run ahead of the monotonic one before it is taken for a suspended machine.
// It may also be that somebody has set it: then leases are taken to end earlier than they do, which harms nobody.
const jump = 2 * time.Second

func gap(_, ahead time.Duration) time.Duration {
	if ahead-asleep > jump {
		asleep = ahead
	}
	return asleep
}
